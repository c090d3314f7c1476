//! Reduces each object of a watched kind to one small entry, for consumers that need few fields of many objects.

use std::collections::HashMap;
use std::fmt::Debug;

use futures::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::wait::{await_condition, conditions::is_crd_established};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::Key;
use super::hub::key_of;
use super::watch_backoff::WatchBackoff;
use crate::spoke::reader::is_not_there;

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

/// Watches a kind until it is dropped, and hands over one entry for each object. While the hub does not serve the kind,
/// its definition is awaited.
pub async fn follow<K, E>(
    api: Api<K>,
    config: watcher::Config,
    backoff: WatchBackoff,
    entry: impl Fn(&K) -> E,
    mut take: impl FnMut(Change<E>),
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let (definition, definitions) = (definition_of(api.resource_url()), Api::all(api.clone().into_client()));
    let mut events = watcher(api, config).backoff(backoff).boxed();
    let mut listed = HashMap::new();
    while let Some(event) = events.next().await {
        let is_missing = matches!(&event, Err(watcher::Error::InitialListFailed(error)) if is_not_there(error));
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => drop(listed.insert(key_of(&object), entry(&object))),
            Ok(Event::InitDone) => take(Change::Listed(std::mem::take(&mut listed))),
            Ok(Event::Apply(object)) => take(Change::Set(key_of(&object), entry(&object))),
            Ok(Event::Delete(object)) => take(Change::Gone(key_of(&object))),
            Err(error) => take(Change::Failed(error)),
        }
        if is_missing {
            // If that fails, the backoff is all that is waited for. Boxed: it is large, and there are many of this.
            drop(Box::pin(await_condition(definitions.clone(), &definition, is_crd_established())).await);
        }
    }
}

/// Name of the definition of the kind at this path: `/apis/GROUP/VERSION/PLURAL`.
fn definition_of(path: &str) -> String {
    let mut parts = path.split('/').skip(2);
    let group = parts.next().unwrap_or_default();
    format!("{}.{group}", parts.last().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_named_after_its_kind() {
        let path = "/apis/view.open-cluster-management.io/v1beta1/managedclusterviews";
        assert_eq!(definition_of(path), "managedclusterviews.view.open-cluster-management.io");
    }
}
