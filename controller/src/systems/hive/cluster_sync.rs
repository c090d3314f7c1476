//! How far the `SyncSet`s of each cluster have been applied: one small entry for each `ClusterSync` of the hub.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use kube::Api;
use kube::runtime::watcher;
use parking_lot::RwLock;
use shared::hive::api::ClusterSync;
use shared::hive::decide::SyncSetState;
use shared::text::sanitize_chain;
use tracing::warn;

use super::PAGE_SIZE;
use crate::runtime::index::{self, Change};
use crate::runtime::watch_backoff::WatchBackoff;
use crate::runtime::{Guarded, Hub, Key, clock};
use crate::spoke::reader::is_not_there;

/// How long the first list is waited for. Afterwards every cluster's `ClusterSync` counts as missing, and a transition
/// waits for another minute, in which it says so (docs/reference/hive.md, row 9): two minutes in all.
const FIRST_LIST_TIMEOUT: Duration = Duration::from_mins(1);

/// What is known of the hub's `ClusterSync`s.
#[derive(Debug, Default)]
pub struct ClusterSyncs {
    known: RwLock<Known>,
}

#[derive(Debug, Default)]
enum Known {
    /// They have not been listed yet.
    #[default]
    Nothing,
    /// They could not be listed in time, so that all of them are missing since then.
    Overdue(Timestamp),
    /// The hub does not have the kind.
    NoSuchKind,
    /// By cluster.
    Listed(HashMap<Key, Synced>),
}

/// One `ClusterSync`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Synced {
    /// Whether all `SyncSet`s have been applied once.
    applied: bool,
    /// UID of the `ClusterDeployment` that it says it is of: one of the same name may have been there before.
    of: Option<String>,
}

impl ClusterSyncs {
    /// What is known of one cluster, which has been missed since then if it is missing.
    pub fn of(&self, key: &Key, uid: Option<&str>, missed_since: &mut Option<Timestamp>) -> SyncSetState {
        let known = self.known.read();
        let found = match &*known {
            Known::Nothing => return SyncSetState::NotListed,
            Known::Overdue(since) => return SyncSetState::Missing(*since),
            Known::NoSuchKind => return SyncSetState::NoSuchKind,
            Known::Listed(all) => all.get(key).filter(|found| found.of.is_none() || found.of.as_deref() == uid),
        };
        match found {
            None => SyncSetState::Missing(*missed_since.get_or_insert_with(clock::now)),
            Some(found) => {
                *missed_since = None;
                if found.applied { SyncSetState::Applied } else { SyncSetState::NotApplied }
            }
        }
    }

    /// Watches them until it is dropped. `changed` is called for each cluster about which there is something new.
    pub async fn follow(&self, hub: &Hub, changed: impl Fn(Key)) {
        let api: Api<Guarded<ClusterSync>> = Api::all(hub.watches.clone());
        let config = watcher::Config::default().page_size(PAGE_SIZE);
        let followed =
            index::follow((api, &hub.memory), config, WatchBackoff::of_hub(), synced, |change| match change {
                Change::Listed(all) => self.replace(all).into_iter().for_each(&changed),
                Change::Set(key, found) => {
                    if self.insert(key.clone(), found) {
                        changed(key);
                    }
                }
                Change::Gone(key) => {
                    if let Known::Listed(all) = &mut *self.known.write() {
                        all.remove(&key);
                    }
                }
                Change::Failed(error) => self.failed(&error),
            });
        let overdue = async {
            tokio::time::sleep(FIRST_LIST_TIMEOUT).await;
            self.overdue();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = followed => {}
            () = overdue => {}
        }
    }

    /// Replaces everything by a new list. Returns the clusters whose state changed, of those that a reconcile has asked
    /// about.
    fn replace(&self, now: HashMap<Key, Synced>) -> Vec<Key> {
        let mut known = self.known.write();
        let is_news = |key: &Key, found: &Synced| match &*known {
            Known::Nothing => false,
            Known::Listed(old) => old.get(key) != Some(found),
            Known::Overdue(_) | Known::NoSuchKind => true,
        };
        let news = now.iter().filter(|(key, found)| is_news(key, found)).map(|(key, _)| key.clone()).collect();
        *known = Known::Listed(now);
        news
    }

    /// Whether this is something new.
    fn insert(&self, key: Key, found: Synced) -> bool {
        let mut known = self.known.write();
        let Known::Listed(all) = &mut *known else { return false };
        let is_news = all.get(&key) != Some(&found);
        all.insert(key, found);
        is_news
    }

    /// Whoever waits for the first list does not wait forever.
    fn overdue(&self) {
        let mut known = self.known.write();
        if matches!(*known, Known::Nothing) {
            warn!(
                "cannot list ClusterSyncs within {FIRST_LIST_TIMEOUT:?}: treating each as missing until the list succeeds"
            );
            *known = Known::Overdue(clock::now());
        }
    }

    /// A hub without the kind has nothing to wait for; what was listed before stays.
    fn failed(&self, error: &watcher::Error) {
        let missing = matches!(error, watcher::Error::InitialListFailed(error) if is_not_there(error));
        let error = sanitize_chain(error);
        let mut known = self.known.write();
        let awaited = matches!(*known, Known::Nothing);
        if missing && (awaited || matches!(*known, Known::Overdue(_))) {
            warn!(error, "the ClusterSync kind does not exist: transitions do not wait for SyncSets");
            *known = Known::NoSuchKind;
        } else if awaited {
            warn!(error, "cannot list ClusterSyncs: no sleep or wake starts meanwhile");
        }
    }
}

fn synced(sync: &Guarded<ClusterSync>) -> Synced {
    let status = sync.0.as_ref().ok().and_then(|sync| sync.status.as_ref());
    let owners = sync.0.as_ref().ok().and_then(|sync| sync.metadata.owner_references.as_ref());
    let owner = owners.into_iter().flatten().find(|owner| owner.kind == "ClusterDeployment");
    Synced {
        applied: status.is_some_and(|status| status.first_success_time.is_some()),
        of: owner.map(|owner| owner.uid.clone()),
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use kube::core::Status;
    use tower::BoxError;

    use super::*;
    use crate::runtime::testing::MemoryHub;

    fn refused(code: u16) -> watcher::Error {
        let status = Status::failure("no", "Failed to parse error data").with_code(code);
        watcher::Error::InitialListFailed(kube::Error::Api(status.boxed()))
    }

    fn found(syncs: &ClusterSyncs) -> SyncSetState {
        syncs.of(&("ns".to_owned(), "demo".to_owned()), Some("u"), &mut None)
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_never_comes_is_waited_for_for_a_minute() {
        let mute = |_: Request<Body>| std::future::pending::<Result<Response<Body>, BoxError>>();
        let client = Client::new(tower::service_fn(mute), "default");
        let hub = Hub { watches: client, ..MemoryHub::default().term().hub };
        let syncs = ClusterSyncs::default();
        let mut followed = std::pin::pin!(syncs.follow(&hub, |_| {}));
        let second = Duration::from_secs(1);
        assert!(tokio::time::timeout(FIRST_LIST_TIMEOUT.saturating_sub(second), &mut followed).await.is_err());
        assert_eq!(found(&syncs), SyncSetState::NotListed);
        assert!(tokio::time::timeout(2 * second, &mut followed).await.is_err());
        assert!(matches!(found(&syncs), SyncSetState::Missing(_)));
    }

    #[test]
    fn what_is_listed_anew_is_news_where_it_differs() {
        let all = |applied: &[(&str, bool)]| -> HashMap<Key, Synced> {
            let one = |(name, applied): &(&str, bool)| {
                (("ns".to_owned(), (*name).to_owned()), Synced { applied: *applied, of: None })
            };
            applied.iter().map(one).collect()
        };
        let syncs = ClusterSyncs::default();
        assert!(syncs.replace(all(&[("a", false), ("b", true)])).is_empty(), "nobody has asked before");
        let mut news = syncs.replace(all(&[("a", true), ("b", true), ("c", false)]));
        news.sort();
        assert_eq!(news.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>(), ["a", "c"]);
    }

    #[test]
    fn only_a_kind_that_is_not_there_is_not_waited_for() {
        let syncs = ClusterSyncs::default();
        for code in [403, 500, 503] {
            syncs.failed(&refused(code));
            assert_eq!(found(&syncs), SyncSetState::NotListed, "{code}");
        }
        syncs.overdue();
        let SyncSetState::Missing(since) = found(&syncs) else { panic!("{:?}", found(&syncs)) };
        syncs.failed(&refused(403));
        assert_eq!(found(&syncs), SyncSetState::Missing(since), "since the same moment");
        syncs.failed(&refused(404));
        assert_eq!(found(&syncs), SyncSetState::NoSuchKind);
        syncs.overdue();
        assert_eq!(found(&syncs), SyncSetState::NoSuchKind);
        let of = |uid: &str| {
            let synced = Synced { applied: true, of: Some(uid.to_owned()) };
            HashMap::from([(("ns".to_owned(), "demo".to_owned()), synced)])
        };
        let _ = syncs.replace(of("another"));
        assert!(matches!(found(&syncs), SyncSetState::Missing(_)), "it is of a cluster that is gone");
        let _ = syncs.replace(of("u"));
        assert_eq!(found(&syncs), SyncSetState::Applied, "as soon as they can be listed");
        syncs.failed(&refused(404));
        syncs.overdue();
        assert_eq!(found(&syncs), SyncSetState::Applied, "what was listed stays");
    }
}
