//! What the webhook knows of the hub's `FoundationDBClusters`, and whether it may rely on it.
//!
//! A watch keeps the picture up to date, but one that hangs looks like one where nothing happens. So every other second the
//! names and versions of all clusters are listed as well, and only once the watch has caught up with that list does the
//! picture count as heard of then. A picture that was not heard of for [`FRESH`] proves nothing, and a watch that falls
//! behind is opened again.

mod follow;

use std::collections::HashMap;
use std::sync::RwLock;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use shared::fdb::admission::{Cluster, Sight};
use shared::fdb::api::FoundationDBCluster;

pub use follow::follow;

/// How long the picture may be relied on after it was last heard to be complete.
pub const FRESH: Duration = Duration::from_secs(6);

/// How long a webhook that has just started waits for its first picture before it serves without one.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Why nothing is known where no API server is configured.
pub const NO_HUB: &str = "the webhook has no API server to ask";

const NOT_YET: &str = "the webhook has just started and has not listed the FoundationDBClusters yet";

/// Every `FoundationDBCluster` of the hub, slimmed.
#[derive(Debug)]
pub struct Clusters {
    default: Duration,
    since: Instant,
    known: RwLock<Known>,
}

#[derive(Debug)]
struct Known {
    clusters: HashMap<String, Cluster>,
    /// When the picture was last known to be complete, by both clocks: one can be set, the other stands still while the
    /// host is suspended.
    heard: Option<(Instant, Timestamp)>,
    /// Why it is not.
    trouble: String,
    /// Whether that has to be expected: there is no such kind here, or it may not be listed.
    absent: bool,
}

impl Default for Clusters {
    fn default() -> Self {
        Self::new(Duration::ZERO)
    }
}

impl Clusters {
    /// Nothing is known yet; `default` is the minimum suspension of clusters that do not say.
    #[must_use]
    pub fn new(default: Duration) -> Self {
        let known = Known { clusters: HashMap::new(), heard: None, trouble: NOT_YET.to_owned(), absent: false };
        Self { default, since: Instant::now(), known: RwLock::new(known) }
    }

    /// Asks something about what is known now.
    pub fn ask<T>(&self, now: Timestamp, question: impl FnOnce(&Sight<'_>) -> T) -> T {
        let Ok(known) = self.known.read() else {
            return question(&Sight::Lost("the webhook's memory of the FoundationDBClusters is broken: restart it"));
        };
        match known.heard {
            None => question(&Sight::Lost(&known.trouble)),
            Some((at, wall)) => {
                let age = at.elapsed().max(now.duration_since(wall).try_into().unwrap_or(Duration::ZERO));
                if age <= FRESH {
                    return question(&Sight::Clear(&known.clusters));
                }
                let trouble = if known.trouble.is_empty() { "its watch does not keep up" } else { &known.trouble };
                question(&Sight::Lost(&format!(
                    "the webhook has not heard of the FoundationDBClusters for {}s ({trouble})",
                    age.as_secs()
                )))
            }
        }
    }

    /// The picture cannot be kept up to date, and why.
    pub fn lost(&self, why: &str) {
        self.change(|known| why.clone_into(&mut known.trouble));
    }

    /// The picture is known to be behind: it counts for nothing until it has caught up.
    fn doubt(&self, why: &str) {
        self.lost(why);
        self.change(|known| known.heard = None);
    }

    /// There will be no picture before somebody changes that, and why.
    pub fn absent(&self, why: &str) {
        self.lost(why);
        self.change(|known| known.absent = true);
    }

    /// Whether to serve: with a first picture, where none is to be had, or after [`PATIENCE`].
    ///
    /// # Errors
    /// Says what is waited for.
    pub fn ready(&self) -> Result<(), String> {
        if self.since.elapsed() > PATIENCE {
            return Ok(());
        }
        match self.known.read() {
            Ok(known) if known.heard.is_none() && !known.absent => Err(known.trouble.clone()),
            _ => Ok(()),
        }
    }

    /// All clusters are known as of `at`.
    fn heard(&self, at: (Instant, Timestamp)) {
        self.change(|known| {
            known.heard = Some(at);
            known.trouble.clear();
        });
    }

    /// A cluster is new or has changed.
    fn apply(&self, cluster: &FoundationDBCluster) {
        if let Some((uid, cluster)) = self.slim(cluster) {
            self.change(|known| drop(known.clusters.insert(uid, cluster)));
        }
    }

    /// A cluster is gone.
    fn remove(&self, uid: &str) {
        self.change(|known| drop(known.clusters.remove(uid)));
    }

    /// These are all clusters.
    fn replace(&self, clusters: HashMap<String, Cluster>) {
        self.change(|known| known.clusters = clusters);
    }

    /// What is kept of a cluster, by uid.
    fn slim(&self, cluster: &FoundationDBCluster) -> Option<(String, Cluster)> {
        Some((cluster.metadata.uid.clone()?, Cluster::of(cluster, self.default)))
    }

    /// Whether everything listed is known, as new as it was listed.
    fn covers(&self, listed: &HashMap<String, String>) -> bool {
        self.known.read().is_ok_and(|known| {
            let covered = |(uid, version): (&String, &String)| {
                known.clusters.get(uid).is_some_and(|cluster| is_as_new(&cluster.version, version))
            };
            listed.iter().all(covered)
        })
    }

    /// Whether a cluster is known that was not listed: a deletion of which the watch has not told.
    fn knows_more_than(&self, listed: &HashMap<String, String>) -> bool {
        self.known.read().is_ok_and(|known| known.clusters.keys().any(|uid| !listed.contains_key(uid)))
    }

    fn change(&self, change: impl FnOnce(&mut Known)) {
        if let Ok(mut known) = self.known.write() {
            change(&mut known);
        }
    }
}

/// Versions of one object grow; of ones that are no numbers only equality is known.
fn is_as_new(known: &str, listed: &str) -> bool {
    match (known.parse::<u128>(), listed.parse::<u128>()) {
        (Ok(known), Ok(listed)) => known >= listed,
        _ => known == listed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(uid: &str, version: &str) -> FoundationDBCluster {
        let text = format!(
            r#"{{"metadata":{{"name":"prod","namespace":"db","uid":"{uid}","resourceVersion":"{version}"}},"spec":{{}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn listed(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        pairs.iter().map(|(uid, version)| ((*uid).to_owned(), (*version).to_owned())).collect()
    }

    fn sees(clusters: &Clusters, now: Timestamp) -> Result<usize, String> {
        clusters.ask(now, |sight| match sight {
            Sight::Clear(clusters) => Ok(clusters.len()),
            Sight::Lost(why) => Err((*why).to_owned()),
        })
    }

    #[test]
    fn a_picture_counts_only_for_so_long_after_it_was_heard_to_be_complete() {
        let (clusters, now) = (Clusters::default(), Timestamp::now());
        assert!(sees(&clusters, now).unwrap_err().contains("just started"));
        clusters.lost("FoundationDBClusters may not be listed");
        assert!(sees(&clusters, now).unwrap_err().contains("may not be listed"));
        assert!(clusters.ready().unwrap_err().contains("may not be listed"));
        clusters.apply(&cluster("u1", "7"));
        clusters.heard((Instant::now(), now));
        assert_eq!((sees(&clusters, now), clusters.ready()), (Ok(1), Ok(())));
        clusters.lost("timed out");
        assert_eq!(sees(&clusters, now), Ok(1), "not at once");
        let later = now.checked_add(jiff::SignedDuration::from_secs(7)).unwrap();
        let said = sees(&clusters, later).unwrap_err();
        assert!(said.contains("for 7s (timed out)"), "{said}");
    }

    #[test]
    fn where_there_is_no_picture_to_be_had_none_is_waited_for() {
        let clusters = Clusters::default();
        assert!(clusters.ready().unwrap_err().contains("just started"));
        clusters.absent("not defined on this cluster");
        assert_eq!(clusters.ready(), Ok(()));
        assert!(sees(&clusters, Timestamp::now()).unwrap_err().contains("not defined"), "served, and still kept");
    }

    #[test]
    fn a_watch_has_caught_up_when_it_knows_all_that_was_listed() {
        let clusters = Clusters::default();
        clusters.apply(&cluster("u1", "9"));
        assert!(clusters.covers(&listed(&[])) && clusters.covers(&listed(&[("u1", "9")])));
        assert!(!clusters.covers(&listed(&[("u1", "10")])), "numbers, not texts");
        assert!(!clusters.covers(&listed(&[("u1", "9"), ("u2", "1")])));
        assert!(clusters.knows_more_than(&listed(&[("u2", "1")])));
        clusters.remove("u1");
        assert!(!clusters.knows_more_than(&listed(&[])));
    }
}
