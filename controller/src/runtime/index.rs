//! Reduces each object of a watched kind to one small entry, for consumers that need few fields of many objects.

use std::collections::HashMap;
use std::fmt::Debug;

use futures::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::Key;
use super::hub::key_of;
use super::watch_backoff::WatchBackoff;

/// What a watch has brought.
#[derive(Debug)]
pub enum Change<E> {
    /// These are all entries.
    Listed(HashMap<Key, E>),
    /// An object is there, or has changed.
    Set(Key, E),
    /// An object is gone.
    Gone(Key),
    /// The watch was interrupted, and is tried again.
    Failed(watcher::Error),
}

/// Watches a kind until it is dropped, and hands over one entry for each object.
pub async fn follow<K, E>(
    api: Api<K>,
    config: watcher::Config,
    backoff: WatchBackoff,
    entry: impl Fn(&K) -> E,
    mut take: impl FnMut(Change<E>),
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut events = watcher(api, config).backoff(backoff).boxed();
    let mut listed = HashMap::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => drop(listed.insert(key_of(&object), entry(&object))),
            Ok(Event::InitDone) => take(Change::Listed(std::mem::take(&mut listed))),
            Ok(Event::Apply(object)) => take(Change::Set(key_of(&object), entry(&object))),
            Ok(Event::Delete(object)) => take(Change::Gone(key_of(&object))),
            Err(error) => take(Change::Failed(error)),
        }
    }
}
