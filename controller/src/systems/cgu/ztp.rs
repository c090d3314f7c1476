//! Creates the first upgrade of each cluster that joins the hub, and warns of objects that only TALM serves.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::Namespace;
use kube::Resource;
use kube::runtime::events::EventType;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use shared::cgu::api::ClusterGroupUpgrade;
use shared::cgu::policy::DEPLOY_WAVE;
use shared::cgu::wire::{ImageBasedGroupUpgrade, ManagedClusterObject};
use shared::cgu::ztp::{ACCELERATED, DONE, NAMESPACE, WrongWave, upgrade};
use shared::text::{sanitize, sanitize_chain};
use tokio::time::timeout;
use tracing::{info, warn};

use super::Upgrades;
use super::api::reference;
use crate::runtime::Key;
use crate::runtime::backoff::{Backoff, Streak};
use crate::runtime::events::EventOnce;

/// Requests in flight.
const CONCURRENT: usize = 16;
/// After an upgrade could not be created.
const RETRY: Backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_mins(1) };

/// Creates upgrades until it is dropped.
pub(super) async fn follow(upgrades: &Upgrades) {
    let mut warned = BTreeMap::new();
    let (mut is_complete, mut failures) = (true, Streak::default());
    loop {
        if is_complete {
            failures = Streak::default();
            let unwritten = warned.values().filter_map(EventOnce::retry_in).min().unwrap_or(Duration::MAX);
            // At the timeout too: an Event is due again.
            let _ = timeout(unwritten, upgrades.index.new_clusters.notified()).await;
        } else {
            tokio::time::sleep(failures.next(RETRY)).await;
        }
        upgrades.talm.until_gone().await;
        is_complete = create_missing(upgrades, &mut warned).await;
    }
}

/// Creates the missing upgrades. Returns whether all of them exist now.
async fn create_missing(upgrades: &Upgrades, warned: &mut BTreeMap<String, EventOnce>) -> bool {
    let Some(known) = upgrades.index.snapshot() else { return true };
    let is_enforced = |root: &_| known.roots.get(root).is_some_and(|policy| policy.enforced);
    let (mut objects, mut is_complete) = (Vec::new(), true);
    for (name, cluster) in known.clusters.iter() {
        let (is_done, key) = (cluster.labels.contains_key(DONE), || (String::new(), name.clone()));
        if cluster.labels.contains_key(ACCELERATED) && !is_done {
            let note = "label accelerated-ztp is not served by hibernate-controller: let TALM run, or remove it";
            let (id, about) = (format!("{name} accelerated"), (key(), &*cluster.uid));
            warn_once::<ManagedClusterObject>(upgrades, warned, id, about, ("NotServed", note)).await;
        }
        let has_upgrade = upgrades.handle.newest((NAMESPACE.to_owned(), name.clone())).is_some();
        if !cluster.is_available || is_done || has_upgrade {
            continue;
        }
        match upgrade(name, &cluster.uid, known.children_of(name), is_enforced) {
            Ok(object) => objects.push((name.clone(), object)),
            Err(WrongWave(root)) => {
                is_complete = false;
                let (namespace, policy) = (sanitize(&root.namespace), sanitize(&root.name));
                let note = format!("annotation {DEPLOY_WAVE} of Policy {namespace}/{policy} is not an integer");
                let (id, about) = (format!("{name} {}", root.name), (key(), &*cluster.uid));
                warn_once::<ManagedClusterObject>(upgrades, warned, id, about, ("WrongWave", &note)).await;
            }
        }
    }
    for (key, uid) in known.image_based.iter() {
        let what = ("NotServed", "ImageBasedGroupUpgrade is not served by hibernate-controller: let TALM run");
        warn_once::<ImageBasedGroupUpgrade>(upgrades, warned, uid.clone(), (key.clone(), uid), what).await;
    }
    let created = stream::iter(objects).map(|(name, object)| async move {
        match create(upgrades, &object).await {
            Ok(()) => info!(cluster = name, "created the first upgrade of a cluster"),
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => {
                warn!(cluster = name, error = sanitize_chain(&error), "cannot create the first upgrade of a cluster");
                return false;
            }
        }
        true
    });
    created.buffer_unordered(CONCURRENT).fold(is_complete, async |all, one| all && one).await
}

async fn create(upgrades: &Upgrades, object: &Value) -> kube::Result<()> {
    let hub = &upgrades.handle.hub;
    hub.lead().map_err(|error| kube::Error::Service(Box::new(error)))?;
    let path = ClusterGroupUpgrade::url_path(&(), Some(NAMESPACE));
    let first = || hub.create::<IgnoredAny>(&path, object);
    match first().await {
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        created => return created.map(drop),
    }
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    match hub.create::<IgnoredAny>(&Namespace::url_path(&(), None), &namespace).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        created => drop(created?),
    }
    first().await.map(drop)
}

/// Publishes a Warning about an object that is not ours, once for each `id`.
async fn warn_once<K: Resource<DynamicType = ()>>(
    upgrades: &Upgrades,
    warned: &mut BTreeMap<String, EventOnce>,
    id: String,
    (key, uid): (Key, &str),
    (reason, note): (&'static str, &str),
) {
    let about = reference::<K>(key, Some(uid));
    upgrades.publish_once(warned.entry(id).or_default(), &about, EventType::Warning, reason, note).await;
}
