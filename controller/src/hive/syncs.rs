//! How far the `SyncSet`s of each cluster have been applied: one small entry for each `ClusterSync` of the hub.

use std::collections::HashMap;
use std::sync::RwLock;

use futures::StreamExt;
use jiff::Timestamp;
use kube::core::DeserializeGuard;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt};
use shared::hive::api::ClusterSync;
use shared::hive::decide::Sync;
use tracing::warn;

use super::Key;
use crate::pace::Pauses;

/// What is known of the hub's `ClusterSync`s.
#[derive(Debug, Default)]
pub struct Syncs {
    known: RwLock<Known>,
}

#[derive(Debug, Default)]
enum Known {
    /// They have not been listed yet.
    #[default]
    Nothing,
    /// The hub does not have the kind, or we may not read it.
    NoSuchKind,
    /// Whether all `SyncSet`s have been applied once, by cluster.
    Listed(HashMap<Key, bool>),
}

impl Syncs {
    /// What is known of one cluster, which has been missed since then if it is missing.
    pub fn of(&self, key: &Key, missed_since: &mut Option<Timestamp>) -> Sync {
        let Ok(known) = self.known.read() else { return Sync::NotListed };
        let found = match &*known {
            Known::Nothing => return Sync::NotListed,
            Known::NoSuchKind => return Sync::NoSuchKind,
            Known::Listed(all) => all.get(key),
        };
        match found {
            None => Sync::Missing { since: *missed_since.get_or_insert_with(Timestamp::now) },
            Some(applied) => {
                *missed_since = None;
                if *applied { Sync::Applied } else { Sync::NotApplied }
            }
        }
    }

    /// Watches them until it is dropped. `changed` is called for each cluster about which there is something new.
    pub async fn follow(&self, client: Client, changed: impl Fn(Key)) {
        let api: Api<DeserializeGuard<ClusterSync>> = Api::all(client);
        let mut events =
            watcher::watcher(api, watcher::Config::default().page_size(super::PAGE)).backoff(Pauses::of_hub()).boxed();
        let mut listed: HashMap<Key, bool> = HashMap::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(sync)) => {
                    listed.insert(key(&sync), is_applied(&sync));
                }
                Ok(Event::InitDone) => self.set(Known::Listed(std::mem::take(&mut listed))),
                Ok(Event::Apply(sync)) => {
                    if self.insert(key(&sync), is_applied(&sync)) {
                        changed(key(&sync));
                    }
                }
                Ok(Event::Delete(sync)) => {
                    if let Ok(mut known) = self.known.write()
                        && let Known::Listed(all) = &mut *known
                    {
                        all.remove(&key(&sync));
                    }
                }
                Err(error) => self.failed(&error),
            }
        }
    }

    fn set(&self, now: Known) {
        if let Ok(mut known) = self.known.write() {
            *known = now;
        }
    }

    /// Whether this is something new.
    fn insert(&self, key: Key, applied: bool) -> bool {
        let Ok(mut known) = self.known.write() else { return false };
        let Known::Listed(all) = &mut *known else { return false };
        all.insert(key, applied) != Some(applied)
    }

    /// A hub without the kind, or where it may not be read, has nothing to wait for; what was listed before stays.
    fn failed(&self, error: &watcher::Error) {
        let refused = match error {
            watcher::Error::InitialListFailed(kube::Error::Api(status)) => {
                status.is_not_found() || status.is_forbidden()
            }
            _ => false,
        };
        let Ok(mut known) = self.known.write() else { return };
        if refused && matches!(*known, Known::Nothing) {
            warn!(error = error as &dyn std::error::Error, "ClusterSyncs cannot be read: nothing waits for SyncSets");
            *known = Known::NoSuchKind;
        }
    }
}

fn key(sync: &DeserializeGuard<ClusterSync>) -> Key {
    (sync.namespace().unwrap_or_default(), sync.name_any())
}

fn is_applied(sync: &DeserializeGuard<ClusterSync>) -> bool {
    let status = sync.0.as_ref().ok().and_then(|sync| sync.status.as_ref());
    status.is_some_and(|status| status.first_success_time.is_some())
}
