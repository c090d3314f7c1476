//! Carries out the acts of a plan: Placements, bindings, labels. Everything can be done twice.

use std::collections::{BTreeMap, BTreeSet};

use futures::FutureExt;
use futures::stream::{self, StreamExt};
use kube::Api;
use kube::api::Patch;
use serde_json::json;
use shared::cgu::api::{ClusterGroupUpgrade, ClusterGroupUpgradeStatus, Reference};
use shared::cgu::decide::{Act, Facts};
use shared::cgu::objects::{self, Names};
use shared::cgu::wire::{BindingObject, ManagedClusterObject, PlacementObject, UPGRADE, UPGRADE_NAMESPACE};
use shared::guarded::Named;

use super::api::{create, delete_all, lead, unless_absent};
use super::index::PLACEMENTS;
use super::{Upgrades, views};
use crate::runtime::hub::{as_controller, key_of};
use crate::runtime::{Guarded, ReconcileError, Reconciled};

/// Requests in flight.
const CONCURRENT: usize = 16;
/// Acts per chunk: the future of an act takes several times its memory.
const CHUNK: usize = 32 * CONCURRENT;

/// Old views and actions are deleted before new ones are created, and Placements are written in order.
pub(super) async fn execute(upgrades: &Upgrades, facts: &Facts<'_>, acts: &[Act]) -> Reconciled<()> {
    let phase = |act: &Act| match act {
        Act::DeleteViews(..) => 0,
        Act::Prepare(_) | Act::Bind(_) | Act::Enforce(..) | Act::Release | Act::DeleteObjects => 1,
        Act::UpdateCluster(..) | Act::View(_) | Act::Approve(_) | Act::Pull(_) => 2,
    };
    for (number, concurrent) in [(0, CONCURRENT), (1, 1), (2, CONCURRENT)] {
        let of_phase: Vec<&Act> = acts.iter().filter(|act| phase(act) == number).collect();
        let mut done = Ok(());
        for some in of_phase.chunks(CHUNK) {
            let futures: Vec<_> = some.iter().map(|act| execute_one(upgrades, facts, act).boxed()).collect();
            // A failure holds up no other act.
            let ended: Vec<_> = stream::iter(futures).buffered(concurrent).collect().await;
            done = done.and(ended.into_iter().collect());
        }
        done?;
    }
    Ok(())
}

async fn execute_one(upgrades: &Upgrades, facts: &Facts<'_>, act: &Act) -> Reconciled<()> {
    match act {
        Act::Prepare(policy) => prepare(upgrades, facts, policy).await,
        // The Placement is not known yet: `prepare` has bound it a moment ago.
        Act::Bind(policy) if facts.governance.selected(&Names::of(facts.upgrade, policy)).is_none() => Ok(()),
        Act::Bind(policy) => bind(upgrades, facts, policy).await,
        Act::Enforce(policy, clusters) => enforce(upgrades, facts, policy, clusters).await,
        Act::Release => release(upgrades, facts).await,
        Act::DeleteObjects => delete_objects(upgrades, facts).await,
        Act::UpdateCluster(cluster, is_complete) => update_cluster(upgrades, facts, cluster, *is_complete).await,
        Act::DeleteViews(cluster, has_actions) => views::delete_views(upgrades, facts, cluster, *has_actions).await,
        Act::View(request) => views::request(upgrades, facts, request).await,
        Act::Approve(approval) => views::create_action(upgrades, &objects::approval(facts.upgrade, approval)).await,
        Act::Pull(pull) => views::pull(upgrades, facts, pull).await,
    }
}

/// Creates an empty Placement and its binding. The binding comes first: a Placement that is known has one.
async fn prepare(upgrades: &Upgrades, facts: &Facts<'_>, policy: &Reference) -> Reconciled<()> {
    let names = Names::of(facts.upgrade, policy);
    match facts.governance.selected(&names) {
        None => {
            bind(upgrades, facts, policy).await?;
            let placement = objects::placement(facts.upgrade, policy, &names, &[]);
            if let Some(written) = create(upgrades, &placement).await? {
                upgrades.index.record(&PLACEMENTS, key_of(&written), Some(&written));
            }
            Ok(())
        }
        Some([]) => Ok(()),
        Some(_) => select(upgrades, &names, &[]).await,
    }
}

async fn bind(upgrades: &Upgrades, facts: &Facts<'_>, policy: &Reference) -> Reconciled<()> {
    let names = Names::of(facts.upgrade, policy);
    let binding = objects::binding(facts.upgrade, policy, &names);
    create::<BindingObject>(upgrades, &binding).await.map(drop)
}

/// Makes a Placement select exactly these clusters.
async fn select(upgrades: &Upgrades, names: &Names, clusters: &[String]) -> Reconciled<()> {
    lead(upgrades)?;
    let selector = json!({ "labelSelector": { "matchExpressions": [objects::match_names(clusters)] } });
    let patch = json!({ "spec": { "predicates": [{ "requiredClusterSelector": selector }] } });
    let api: Api<Guarded<PlacementObject>> = Api::namespaced(upgrades.handle.hub.client.clone(), &names.namespace);
    let written = api.patch(&names.actual, &as_controller(), &Patch::Merge(&patch)).await;
    let written =
        written.map_err(ReconcileError::unversioned(format!("Placement {}/{}", names.namespace, names.actual)))?;
    upgrades.index.record(&PLACEMENTS, key_of(&written), Some(&written));
    Ok(())
}

/// Adds clusters to a Placement.
async fn enforce(upgrades: &Upgrades, facts: &Facts<'_>, policy: &Reference, clusters: &[String]) -> Reconciled<()> {
    let names = Names::of(facts.upgrade, policy);
    let Some(known) = facts.governance.selected(&names) else {
        // Another client has deleted the Placement.
        prepare(upgrades, facts, policy).await?;
        return select(upgrades, &names, clusters).await;
    };
    let missing: Vec<&String> = clusters.iter().filter(|name| !known.contains(name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let all: Vec<String> = known.iter().chain(missing).cloned().collect();
    select(upgrades, &names, &all).await
}

async fn release(upgrades: &Upgrades, facts: &Facts<'_>) -> Reconciled<()> {
    for names in placements(facts.upgrade) {
        if facts.governance.selected(&names).is_some_and(|known| !known.is_empty()) {
            select(upgrades, &names, &[]).await?;
        }
    }
    Ok(())
}

fn placements(upgrade: &ClusterGroupUpgrade) -> Vec<Names> {
    let policies = upgrade.status.iter().flat_map(ClusterGroupUpgradeStatus::policies);
    policies.map(|policy| Names::of(upgrade, &policy)).collect()
}

async fn delete_objects(upgrades: &Upgrades, facts: &Facts<'_>) -> Reconciled<()> {
    let upgrade = facts.upgrade;
    let Reference { name, namespace } = Reference::to(upgrade);
    let labels = format!("{UPGRADE}={name},{UPGRADE_NAMESPACE}={namespace}");
    // Also of policies that the upgrade no longer lists: their names stay in the status.
    let names = upgrade.status.iter().flat_map(|status| status.safe_resource_names.keys());
    let known = names.filter_map(|key| key.split_once('/')).map(|(namespace, _)| namespace.to_owned());
    let namespaces: BTreeSet<String> = placements(upgrade)
        .into_iter()
        .map(|names| names.namespace)
        .chain(known)
        .filter(|one| !one.is_empty())
        .collect();
    for namespace in namespaces {
        delete_all::<PlacementObject>(upgrades, &namespace, &labels).await?;
        delete_all::<BindingObject>(upgrades, &namespace, &labels).await?;
    }
    Ok(())
}

/// Writes labels and annotations of a cluster. One that does not exist any more is skipped, as with TALM.
async fn update_cluster(upgrades: &Upgrades, facts: &Facts<'_>, cluster: &str, is_complete: bool) -> Reconciled<()> {
    let Some(actions) = facts.upgrade.spec.actions.of(is_complete) else { return Ok(()) };
    let set = |(key, value)| (key, Some(value));
    let mut labels: BTreeMap<&String, Option<&String>> = actions.add_cluster_labels.iter().map(set).collect();
    let removed = actions.delete_cluster_labels.keys().chain(&actions.remove_cluster_labels);
    labels.extend(removed.map(|key| (key, None)));
    let mut annotations: BTreeMap<&String, Option<&String>> = actions.add_cluster_annotations.iter().map(set).collect();
    annotations.extend(actions.remove_cluster_annotations.iter().map(|key| (key, None)));
    let known = facts.governance.clusters.get(cluster);
    labels.retain(|key, value| known.and_then(|known| known.labels.get(*key)) != *value);
    if labels.is_empty() && annotations.is_empty() {
        return Ok(());
    }
    lead(upgrades)?;
    let patch = json!({ "metadata": { "labels": labels, "annotations": annotations } });
    let api: Api<Guarded<Named<ManagedClusterObject>>> = Api::all(upgrades.handle.hub.client.clone());
    let written = api.patch(cluster, &as_controller(), &Patch::Merge(&patch)).await;
    unless_absent(written, || format!("ManagedCluster {cluster}")).map(drop)
}
