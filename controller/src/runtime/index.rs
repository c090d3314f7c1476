//! Reduces each object of a watched kind to one small entry, for consumers that need few fields of many objects.

use std::collections::HashMap;
use std::fmt::Debug;
use std::mem::take;

use fair::MemoryLimit;
use futures::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::wait::{await_condition, conditions::is_crd_established};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use server::WatchMemory;

use super::hub::key_of;
use super::watch_backoff::WatchBackoff;
use super::{Guarded, Key};
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

/// Watches a kind until it is dropped, and hands over one entry for each object, which is not larger than the object: it
/// is charged as much. While the hub does not serve the kind, its definition is awaited.
pub async fn follow<K, E>(
    (api, memory): (Api<Guarded<K>>, &MemoryLimit),
    config: watcher::Config,
    backoff: WatchBackoff,
    entry: impl Fn(&Guarded<K>) -> E,
    mut hand_over: impl FnMut(Change<E>),
) where
    K: Resource + Clone + Debug + Send + 'static,
    Guarded<K>: DeserializeOwned,
{
    let (definition, definitions) = (definition_of(api.resource_url()), Api::all(api.clone().into_client()));
    let mut events = watcher(api, config).backoff(backoff).boxed();
    let (mut listed, mut memory) = (HashMap::new(), WatchMemory::new(memory.clone()));
    while let Some(event) = events.next().await {
        let is_missing = matches!(&event, Err(watcher::Error::InitialListFailed(error)) if is_not_there(error));
        match event.map(|event| memory.charge(event)) {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => listed.extend([(key_of(&object), entry(&object))]),
            Ok(Event::InitDone) => hand_over(Change::Listed(take(&mut listed))),
            Ok(Event::Apply(object)) => hand_over(Change::Set(key_of(&object), entry(&object))),
            Ok(Event::Delete(object)) => hand_over(Change::Gone(key_of(&object))),
            Err(error) => hand_over(Change::Failed(error)),
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
