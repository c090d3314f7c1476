//! Carries out what was decided: Placements, bindings, labels. Everything can be done twice.

use std::collections::BTreeSet;

use futures::FutureExt;
use futures::stream::{self, StreamExt};
use kube::Api;
use kube::ResourceExt;
use kube::api::Patch;
use serde_json::{Value, json};
use shared::cgu::api::{ClusterGroupUpgrade, ClusterGroupUpgradeStatus, Reference};
use shared::cgu::decide::Act;
use shared::cgu::objects::{self, Names, UPGRADE, UPGRADE_NAMESPACE};
use shared::cgu::wire::PlacementObject;
use shared::guarded::Named;

use super::api::{BINDING, MANAGED_CLUSTER, Objects, PLACEMENT, lead, resource};
use super::{Observation, Upgrades, views};
use crate::runtime::hub::as_controller;
use crate::runtime::{Guarded, ReconcileError, System};

/// Clusters that are written at once.
const CONCURRENT: usize = 16;
/// Acts whose futures are there at once: each takes several times the memory of its act.
const AT_ONCE: usize = 32 * CONCURRENT;

/// Does everything. Views and actions go before new ones are created, and Placements are written in order.
pub(super) async fn carry_out(
    upgrades: &Upgrades,
    observation: &Observation<'_>,
    acts: &[Act],
) -> Result<(), ReconcileError> {
    let phase = |act: &Act| match act {
        Act::Forget(..) => 0,
        Act::Prepare(_) | Act::Bind(_) | Act::Enforce(..) | Act::Release | Act::DeleteObjects => 1,
        Act::Change(..) | Act::View(_) | Act::Approve(_) | Act::Pull(_) => 2,
    };
    for (number, concurrent) in [(0, CONCURRENT), (1, 1), (2, CONCURRENT)] {
        let of_phase: Vec<&Act> = acts.iter().filter(|act| phase(act) == number).collect();
        let mut done = Ok(());
        for some in of_phase.chunks(AT_ONCE) {
            let futures: Vec<_> = some.iter().map(|act| one(upgrades, observation, act).boxed()).collect();
            // One that fails holds up no other.
            let ended: Vec<_> = stream::iter(futures).buffered(concurrent).collect().await;
            done = done.and(ended.into_iter().collect());
        }
        done?;
    }
    Ok(())
}

async fn one(upgrades: &Upgrades, observation: &Observation<'_>, act: &Act) -> Result<(), ReconcileError> {
    match act {
        Act::Prepare(policy) => prepare(upgrades, observation, policy).await,
        // That of a Placement that is not known yet was created right now.
        Act::Bind(policy) if observation.known.selected(&Names::of(observation.upgrade, policy)).is_none() => Ok(()),
        Act::Bind(policy) => bind(upgrades, observation, policy).await,
        Act::Enforce(policy, clusters) => enforce(upgrades, observation, policy, clusters).await,
        Act::Release => release(upgrades, observation).await,
        Act::DeleteObjects => delete_objects(upgrades, observation).await,
        Act::Change(cluster, is_complete) => change(upgrades, observation, cluster, *is_complete).await,
        Act::Forget(cluster, has_actions) => views::forget(upgrades, observation, cluster, *has_actions).await,
        Act::View(request) => views::request(upgrades, observation, request).await,
        Act::Approve(approval) => views::act(upgrades, objects::approval(observation.upgrade, approval)).await,
        Act::Pull(pull) => views::pull(upgrades, observation, pull).await,
    }
}

/// A Placement that selects nothing, and its binding. The binding comes first: once the Placement is known, so is that.
async fn prepare(upgrades: &Upgrades, observation: &Observation<'_>, policy: &Reference) -> Result<(), ReconcileError> {
    let names = Names::of(observation.upgrade, policy);
    match observation.known.selected(&names) {
        None => {
            bind(upgrades, observation, policy).await?;
            let placement = objects::placement(observation.upgrade, policy, &names, &[]);
            if let Some(written) = views::create(upgrades, PLACEMENT, &placement).await? {
                upgrades.governed.placed(&written);
            }
            Ok(())
        }
        Some([]) => Ok(()),
        Some(_) => select(upgrades, &names, &[]).await,
    }
}

/// Binds a Placement, unless it is bound.
async fn bind(upgrades: &Upgrades, observation: &Observation<'_>, policy: &Reference) -> Result<(), ReconcileError> {
    let names = Names::of(observation.upgrade, policy);
    let binding = objects::binding(observation.upgrade, policy, &names);
    views::create::<Named>(upgrades, BINDING, &binding).await.map(drop)
}

/// Lets a Placement select exactly these clusters.
async fn select(upgrades: &Upgrades, names: &Names, clusters: &[String]) -> Result<(), ReconcileError> {
    lead(upgrades)?;
    let selector = json!({ "labelSelector": { "matchExpressions": [objects::selected(clusters)] } });
    let patch = json!({ "spec": { "predicates": [{ "requiredClusterSelector": selector }] } });
    let api: Api<Guarded<PlacementObject>> = Api::namespaced(upgrades.hub().client.clone(), &names.namespace);
    let written = api.patch(&names.actual, &as_controller(), &Patch::Merge(&patch)).await;
    let written =
        written.map_err(ReconcileError::unversioned(format!("Placement {}/{}", names.namespace, names.actual)))?;
    upgrades.governed.placed(&written);
    Ok(())
}

/// Adds clusters to a Placement; those that it selects stay.
async fn enforce(
    upgrades: &Upgrades,
    observation: &Observation<'_>,
    policy: &Reference,
    clusters: &[String],
) -> Result<(), ReconcileError> {
    let names = Names::of(observation.upgrade, policy);
    let Some(known) = observation.known.selected(&names) else {
        // Another client has deleted it.
        prepare(upgrades, observation, policy).await?;
        return select(upgrades, &names, clusters).await;
    };
    let missing: Vec<&String> = clusters.iter().filter(|name| !known.contains(name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let all: Vec<String> = known.iter().chain(missing).cloned().collect();
    select(upgrades, &names, &all).await
}

async fn release(upgrades: &Upgrades, observation: &Observation<'_>) -> Result<(), ReconcileError> {
    for names in placements(observation.upgrade) {
        if observation.known.selected(&names).is_some_and(|known| !known.is_empty()) {
            select(upgrades, &names, &[]).await?;
        }
    }
    Ok(())
}

fn placements(upgrade: &ClusterGroupUpgrade) -> Vec<Names> {
    let policies = upgrade.status.iter().flat_map(ClusterGroupUpgradeStatus::policies);
    policies.map(|policy| Names::of(upgrade, &policy)).collect()
}

async fn delete_objects(upgrades: &Upgrades, observation: &Observation<'_>) -> Result<(), ReconcileError> {
    let upgrade = observation.upgrade;
    let labels =
        format!("{UPGRADE}={},{UPGRADE_NAMESPACE}={}", upgrade.name_any(), upgrade.namespace().unwrap_or_default());
    // Of policies that the upgrade no longer lists, too: their names stay in the status.
    let names = upgrade.status.iter().flat_map(|status| status.safe_resource_names.keys());
    let known = names.filter_map(|key| key.split_once('/')).map(|(namespace, _)| namespace.to_owned());
    let namespaces: BTreeSet<String> = placements(upgrade)
        .into_iter()
        .map(|names| names.namespace)
        .chain(known)
        .filter(|one| !one.is_empty())
        .collect();
    for namespace in namespaces {
        for kind in [PLACEMENT, BINDING] {
            views::delete_all(upgrades, kind, &namespace, &labels).await?;
        }
    }
    Ok(())
}

/// Labels and annotations of a cluster. One that does not exist any more is left out, as with TALM.
async fn change(
    upgrades: &Upgrades,
    observation: &Observation<'_>,
    cluster: &str,
    is_complete: bool,
) -> Result<(), ReconcileError> {
    let Some(actions) = observation.upgrade.spec.actions.of(is_complete) else { return Ok(()) };
    let mut labels: serde_json::Map<String, Value> =
        actions.add_cluster_labels.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    let removed = actions.delete_cluster_labels.keys().chain(&actions.remove_cluster_labels);
    labels.extend(removed.map(|key| (key.clone(), Value::Null)));
    let mut annotations: serde_json::Map<String, Value> =
        actions.add_cluster_annotations.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    annotations.extend(actions.remove_cluster_annotations.iter().map(|key| (key.clone(), Value::Null)));
    let known = observation.known.clusters.get(cluster);
    labels.retain(|key, value| known.and_then(|known| known.labels.get(key)).map(String::as_str) != value.as_str());
    if labels.is_empty() && annotations.is_empty() {
        return Ok(());
    }
    lead(upgrades)?;
    let patch = json!({ "metadata": { "labels": labels, "annotations": annotations } });
    let api: Api<Objects> = Api::all_with(upgrades.hub().client.clone(), &resource(MANAGED_CLUSTER));
    match api.patch(cluster, &as_controller(), &Patch::Merge(&patch)).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        written => written.map(drop).map_err(ReconcileError::unversioned(format!("ManagedCluster {cluster}"))),
    }
}
