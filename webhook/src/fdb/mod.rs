//! A cache of the hub's `FoundationDBCluster`s, and whether its content is fresh enough to rely on.
//!
//! A watch keeps the cache up to date. A watch that hangs looks like one without changes, so the webhook also lists the
//! names and versions of all clusters every two seconds. The cache counts as synced once the watch has caught up with
//! such a list. A cache that has not synced for [`MAX_STALENESS`] proves nothing. A watch that falls behind is
//! restarted.

mod follow;

use std::collections::HashMap;
use std::sync::RwLock;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::Resource as _;
use shared::fdb::admission::{CacheState, Cluster};
use shared::fdb::api::FoundationDBCluster;
use shared::guarded::Guarded;

pub use follow::follow;

/// How long the cache is fresh after the last sync.
pub const MAX_STALENESS: Duration = Duration::from_secs(6);

/// How long a starting webhook waits for the first sync before it serves without one.
pub const STARTUP_TIMEOUT: Duration = Duration::from_secs(10);

/// Why the cache is stale where no API server is configured.
pub const NO_HUB: &str = "no API server is configured for the webhook";

const NOT_YET: &str = "the webhook has just started and has not listed the FoundationDBClusters yet";

/// The cache.
#[derive(Debug)]
pub struct Clusters {
    default: Duration,
    since: Instant,
    known: RwLock<Known>,
}

#[derive(Debug)]
struct Known {
    clusters: HashMap<String, Cluster>,
    /// The last sync, by both clocks: the wall clock can be set, and the monotonic clock stops while the host is
    /// suspended.
    synced: Option<(Instant, Timestamp)>,
    /// Why there was no sync since.
    error: String,
    /// Whether no sync is expected: the kind does not exist, or the webhook may not list it.
    unavailable: bool,
}

impl Clusters {
    /// An empty cache. `default` is the minimum suspension of clusters without one of their own.
    pub fn new(default: Duration) -> Self {
        let known = Known { clusters: HashMap::new(), synced: None, error: NOT_YET.to_owned(), unavailable: false };
        Self { default, since: Instant::now(), known: RwLock::new(known) }
    }

    /// Calls `question` with the state of the cache.
    pub fn ask<T>(&self, now: Timestamp, question: impl FnOnce(&CacheState<'_>) -> T) -> T {
        let Ok(known) = self.known.read() else {
            return question(&CacheState::Stale(
                "the webhook's cache of FoundationDBClusters is corrupt: restart the webhook",
            ));
        };
        match known.synced {
            None => question(&CacheState::Stale(&known.error)),
            Some((at, wall)) => {
                let age = at.elapsed().max(now.duration_since(wall).try_into().unwrap_or(Duration::ZERO));
                if age <= MAX_STALENESS {
                    return question(&CacheState::Fresh(&known.clusters));
                }
                let error = if known.error.is_empty() { "the watch lags behind" } else { &known.error };
                question(&CacheState::Stale(&format!(
                    "the webhook's cache of FoundationDBClusters is {}s old ({error})",
                    age.as_secs()
                )))
            }
        }
    }

    /// Records why the cache cannot sync.
    pub fn fail(&self, why: &str) {
        self.change(|known| why.clone_into(&mut known.error));
    }

    /// Makes the cache stale until the next sync.
    fn invalidate(&self, why: &str) {
        self.fail(why);
        self.change(|known| known.synced = None);
    }

    /// Records why the cache cannot sync before an administrator changes something.
    pub fn unavailable(&self, why: &str) {
        self.fail(why);
        self.change(|known| known.unavailable = true);
    }

    /// Whether to serve: after the first sync, if no sync is expected, or after [`STARTUP_TIMEOUT`].
    ///
    /// # Errors
    /// Names what the webhook waits for.
    pub fn ready(&self) -> Result<(), String> {
        if self.since.elapsed() > STARTUP_TIMEOUT {
            return Ok(());
        }
        match self.known.read() {
            Ok(known) if known.synced.is_none() && !known.unavailable => Err(known.error.clone()),
            _ => Ok(()),
        }
    }

    /// Records a sync: the cache held all clusters at this time.
    fn sync(&self, at: (Instant, Timestamp)) {
        self.change(|known| {
            known.synced = Some(at);
            known.error.clear();
        });
    }

    /// Adds or replaces a cluster.
    fn apply(&self, cluster: &Guarded<FoundationDBCluster>) {
        if let Some((uid, cluster)) = self.slim(cluster) {
            self.change(|known| drop(known.clusters.insert(uid, cluster)));
        }
    }

    /// Removes a cluster.
    fn remove(&self, uid: &str) {
        self.change(|known| drop(known.clusters.remove(uid)));
    }

    /// Replaces all clusters.
    fn replace(&self, clusters: HashMap<String, Cluster>) {
        self.change(|known| known.clusters = clusters);
    }

    /// The entry for a cluster, by uid. One that cannot be read keeps its volumes until it can.
    fn slim(&self, cluster: &Guarded<FoundationDBCluster>) -> Option<(String, Cluster)> {
        let known = match &cluster.0 {
            Ok(cluster) => Cluster::of(cluster, self.default),
            Err(unreadable) => Cluster::unreadable(&unreadable.metadata, &unreadable.error),
        };
        Some((cluster.meta().uid.clone()?, known))
    }

    /// Whether the cache holds every listed cluster in this version or a newer one.
    fn covers(&self, listed: &HashMap<String, String>) -> bool {
        self.known.read().is_ok_and(|known| {
            let covered = |(uid, version): (&String, &String)| {
                known.clusters.get(uid).is_some_and(|cluster| is_as_new(&cluster.version, version))
            };
            listed.iter().all(covered)
        })
    }

    /// Whether the cache holds a cluster that was not listed: the watch has missed a deletion.
    fn knows_more_than(&self, listed: &HashMap<String, String>) -> bool {
        self.known.read().is_ok_and(|known| known.clusters.keys().any(|uid| !listed.contains_key(uid)))
    }

    fn change(&self, change: impl FnOnce(&mut Known)) {
        if let Ok(mut known) = self.known.write() {
            change(&mut known);
        }
    }
}

/// Versions of one object grow. Versions that are not numbers can only be compared for equality.
fn is_as_new(known: &str, listed: &str) -> bool {
    match (known.parse::<u128>(), listed.parse::<u128>()) {
        (Ok(known), Ok(listed)) => known >= listed,
        _ => known == listed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(uid: &str, version: &str) -> Guarded<FoundationDBCluster> {
        let text = format!(
            r#"{{"metadata":{{"name":"prod","namespace":"db","uid":"{uid}","resourceVersion":"{version}"}},"spec":{{}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn listed(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        pairs.iter().map(|(uid, version)| ((*uid).to_owned(), (*version).to_owned())).collect()
    }

    fn sees(clusters: &Clusters, now: Timestamp) -> Result<usize, String> {
        clusters.ask(now, |cache| match cache {
            CacheState::Fresh(clusters) => Ok(clusters.len()),
            CacheState::Stale(why) => Err((*why).to_owned()),
        })
    }

    #[test]
    fn the_cache_is_fresh_for_a_while_after_a_sync() {
        let (clusters, now) = (Clusters::new(Duration::ZERO), Timestamp::now());
        assert!(sees(&clusters, now).unwrap_err().contains("just started"));
        clusters.fail("FoundationDBClusters may not be listed");
        assert!(sees(&clusters, now).unwrap_err().contains("may not be listed"));
        assert!(clusters.ready().unwrap_err().contains("may not be listed"));
        clusters.apply(&cluster("u1", "7"));
        clusters.sync((Instant::now(), now));
        assert_eq!((sees(&clusters, now), clusters.ready()), (Ok(1), Ok(())));
        clusters.fail("timed out");
        assert_eq!(sees(&clusters, now), Ok(1), "not at once");
        let later = now.checked_add(jiff::SignedDuration::from_secs(7)).unwrap();
        let detail = sees(&clusters, later).unwrap_err();
        assert!(detail.contains("is 7s old (timed out)"), "{detail}");
    }

    #[test]
    fn an_unavailable_cache_does_not_block_readiness() {
        let clusters = Clusters::new(Duration::ZERO);
        assert!(clusters.ready().unwrap_err().contains("just started"));
        clusters.unavailable("not defined on this cluster");
        assert_eq!(clusters.ready(), Ok(()));
        assert!(sees(&clusters, Timestamp::now()).unwrap_err().contains("not defined"), "served, and still kept");
    }

    /// A record of a recovery may be as long as all annotations of an object.
    #[test]
    fn a_cluster_that_cannot_be_read_is_known_as_one() {
        let clusters = Clusters::new(Duration::ZERO);
        clusters.sync((Instant::now(), Timestamp::now()));
        for (bytes, fits) in [(0, true), (200 << 10, true), (256 << 10, true), (257 << 10, false)] {
            let text = serde_json::json!({
                "metadata": { "name": "prod", "namespace": "db", "uid": "u1", "resourceVersion": "7",
                    "annotations": { "hibernate.sh/minimum-suspension": "2h", "hibernate.sh/recovery": "x".repeat(bytes) } },
                "spec": {},
            });
            clusters.apply(&serde_json::from_str(&text.to_string()).unwrap());
            assert!(clusters.covers(&listed(&[("u1", "7")])), "{bytes}");
            let known = clusters.ask(Timestamp::now(), |cache| match cache {
                CacheState::Fresh(clusters) => clusters["u1"].clone(),
                CacheState::Stale(why) => panic!("{why}"),
            });
            assert_eq!(
                (known.name.as_str(), known.unreadable.is_none(), !known.minimum.is_off()),
                ("prod", fits, fits)
            );
        }
    }

    #[test]
    fn a_watch_has_caught_up_when_the_cache_holds_every_listed_version() {
        let clusters = Clusters::new(Duration::ZERO);
        clusters.apply(&cluster("u1", "9"));
        assert!(clusters.covers(&listed(&[])) && clusters.covers(&listed(&[("u1", "9")])));
        assert!(!clusters.covers(&listed(&[("u1", "10")])), "numbers, not texts");
        assert!(!clusters.covers(&listed(&[("u1", "9"), ("u2", "1")])));
        assert!(clusters.knows_more_than(&listed(&[("u2", "1")])));
        clusters.remove("u1");
        assert!(!clusters.knows_more_than(&listed(&[])));
    }
}
