//! Creates the first upgrade of each cluster that joins the hub, and names what only TALM serves.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::{Namespace, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::DynamicObject;
use kube::runtime::events::EventType;
use kube::runtime::watcher;
use kube::{Api, Resource as _, ResourceExt as _};
use parking_lot::Mutex;
use shared::cgu::api::ClusterGroupUpgrade;
use shared::cgu::policy::{Child, DEPLOY_WAVE};
use shared::cgu::ztp::{ACCELERATED, DONE, NAMESPACE, WrongWave, upgrade};
use shared::text::{sanitize, sanitize_chain};
use tokio::sync::Notify;
use tracing::{debug, info, warn};

use super::observe::{MANAGED_CLUSTER, resource};
use super::{Upgrades, views};
use crate::runtime::System;
use crate::runtime::index::{self, Change};
use crate::runtime::watch_backoff::WatchBackoff;

/// Upgrades that are created at once.
const CONCURRENT: usize = 16;
/// Until an upgrade that could not be created is tried again: at first, and at most.
const SOON: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_mins(1);
const IMAGE_BASED: [&str; 4] = ["lcm.openshift.io", "v1alpha1", "ImageBasedGroupUpgrade", "imagebasedgroupupgrades"];

/// A cluster, as it joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Joined {
    /// Its UID.
    pub(super) uid: String,
    /// It is available, and is not being deleted.
    pub(super) is_available: bool,
}

/// A cluster without an upgrade.
struct Candidate {
    name: String,
    uid: String,
    children: Vec<Child>,
}

/// Creates upgrades until it is dropped.
pub(super) async fn follow(upgrades: &Upgrades) {
    let mut warned = BTreeSet::new();
    let (mut is_complete, mut pause) = (true, SOON);
    loop {
        if is_complete {
            pause = SOON;
            upgrades.governed.joined.notified().await;
        } else {
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(AGAIN);
        }
        upgrades.talm.until_gone().await;
        is_complete = pass(upgrades, &mut warned).await;
    }
}

/// Creates what is missing. Whether all of it exists now.
async fn pass(upgrades: &Upgrades, warned: &mut BTreeSet<String>) -> bool {
    let Some(known) = upgrades.governed.snapshot() else { return true };
    let is_enforced = |root: &_| known.roots.get(root).is_some_and(|policy| policy.enforced);
    let (mut missing, mut is_complete) = (Vec::new(), true);
    for (name, joined) in upgrades.governed.joined_clusters() {
        let Some(labels) = known.clusters.get(&name) else { continue };
        if labels.contains_key(ACCELERATED)
            && !labels.contains_key(DONE)
            && warned.insert(format!("{name} accelerated"))
        {
            let note = "label accelerated-ztp is not served by hibernate-controller: let TALM run, or remove it";
            warn_cluster(upgrades, &name, &joined.uid, "NotServed", note).await;
        }
        let has_upgrade = upgrades.handle.newest((NAMESPACE.to_owned(), name.clone())).is_some();
        if joined.is_available && !labels.contains_key(DONE) && !has_upgrade {
            let children = known.children.get(&name).cloned().unwrap_or_default();
            missing.push(Candidate { name, uid: joined.uid, children });
        }
    }
    let mut objects = Vec::new();
    for one in missing {
        match upgrade(&one.name, &one.uid, &one.children, is_enforced) {
            Ok(object) => objects.push((one.name, object)),
            Err(WrongWave(root)) => {
                is_complete = false;
                if warned.insert(format!("{} {}", one.name, root.name)) {
                    let (namespace, policy) = (sanitize(&root.namespace), sanitize(&root.name));
                    let note = format!("annotation {DEPLOY_WAVE} of Policy {namespace}/{policy} is not an integer");
                    warn_cluster(upgrades, &one.name, &one.uid, "WrongWave", &note).await;
                }
            }
        }
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

async fn create(upgrades: &Upgrades, object: &ClusterGroupUpgrade) -> kube::Result<()> {
    let hub = upgrades.hub();
    hub.lead().map_err(|error| kube::Error::Service(Box::new(error)))?;
    let api = Api::namespaced(hub.client.clone(), NAMESPACE);
    match api.create(&views::created(), object).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        created => return created.map(drop),
    }
    let namespace = Namespace {
        metadata: ObjectMeta { name: Some(NAMESPACE.to_owned()), ..ObjectMeta::default() },
        ..Namespace::default()
    };
    match Api::all(hub.client.clone()).create(&views::created(), &namespace).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        created => drop(created?),
    }
    api.create(&views::created(), object).await.map(drop)
}

async fn warn_cluster(upgrades: &Upgrades, name: &str, uid: &str, reason: &'static str, note: &str) {
    let [group, version, kind, _] = MANAGED_CLUSTER;
    let target = ObjectReference {
        api_version: Some(format!("{group}/{version}")),
        kind: Some(kind.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    };
    upgrades.publish_for(&target, name, EventType::Warning, (Upgrades::ACTION, reason), note, BTreeMap::new()).await;
}

/// Watches `ImageBasedGroupUpgrades` until it is dropped: each gets one Warning Event.
pub(super) async fn follow_image_based(upgrades: &Upgrades) {
    let (known, changed) = (Mutex::new(HashMap::new()), Notify::new());
    let api = Api::<DynamicObject>::all_with(upgrades.hub().watches.clone(), &resource(IMAGE_BASED));
    let entry = |object: &DynamicObject| object.object_ref(&resource(IMAGE_BASED));
    let watch = index::follow(api, watcher::Config::default(), WatchBackoff::of_optional_kind(), entry, |change| {
        match change {
            Change::Listed(all) => *known.lock() = all,
            Change::Set(key, one) => drop(known.lock().insert(key, one)),
            Change::Gone(key) => drop(known.lock().remove(&key)),
            Change::Failed(error) => debug!(error = sanitize_chain(&error), "cannot watch ImageBasedGroupUpgrades"),
        }
        changed.notify_one();
    });
    let warn = async {
        let mut warned = BTreeSet::new();
        loop {
            changed.notified().await;
            upgrades.talm.until_gone().await;
            let all: Vec<ObjectReference> = known.lock().values().cloned().collect();
            for target in all.into_iter().filter(|one| warned.insert(one.uid.clone())) {
                let name = target.name.clone().unwrap_or_default();
                let note = "ImageBasedGroupUpgrade is not served by hibernate-controller: let TALM run";
                let what = (Upgrades::ACTION, "NotServed");
                upgrades.publish_for(&target, &name, EventType::Warning, what, note, BTreeMap::new()).await;
            }
        }
    };
    tokio::join!(watch, warn);
}

/// What is kept of a cluster for its first upgrade.
pub(super) fn read(object: &DynamicObject) -> Joined {
    let mut conditions = object.data["status"]["conditions"].as_array().into_iter().flatten();
    let is_available =
        conditions.any(|one| one["type"] == "ManagedClusterConditionAvailable" && one["status"] == "True");
    Joined {
        uid: object.uid().unwrap_or_default(),
        is_available: is_available && object.metadata.deletion_timestamp.is_none(),
    }
}
