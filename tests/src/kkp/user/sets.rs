//! machine-controller's `MachineDeployments` and `MachineSets`: section 6 of docs/reference/kkp.md.

use std::collections::BTreeMap;

use anyhow::Result;
use k8s_openapi::api::core::v1::Event;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::cluster::nodes;
use crate::kkp::options::SPEED;
use crate::kkp::registry::{UserCluster, replicas_of};
use crate::kkp::seed::unless_gone;
use crate::kkp::{machinery, number};
use crate::supervisor::clock::Clock;

/// Words of KKP's own quota webhook.
const QUOTA: &str = "would exceed current quota";

/// Refusals of a `MachineSet`.
#[derive(Default)]
pub(super) struct Memory {
    refused: BTreeMap<String, Refused>,
}

#[derive(Default)]
struct Refused {
    times: i32,
    next: f64,
    /// The object as it was: a touch makes a try at once (row 62).
    version: String,
}

/// One round over all of them.
pub(super) async fn tick(cluster: &UserCluster, memory: &mut Memory) -> Result<()> {
    for deployment in cluster.of_user.deployments.all() {
        self::deployment(cluster, &deployment).await?;
    }
    for set in cluster.of_user.sets.all() {
        self::set(cluster, &set, memory).await?;
    }
    Ok(())
}

fn api(cluster: &UserCluster, kind: &str) -> Api<DynamicObject> {
    Api::namespaced_with(cluster.user.clone(), "kube-system", &machinery(kind))
}

pub(super) fn is_owned(object: &DynamicObject, by: &DynamicObject) -> bool {
    object.owner_references().iter().any(|owner| Some(&owner.uid) == by.metadata.uid.as_ref())
}

/// A short digest of a text.
pub(super) fn digest(text: &str) -> String {
    let bytes = Sha256::digest(text.as_bytes());
    let number = bytes.iter().take(5).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    format!("{number:010x}")
}

fn owner(kind: &str, object: &DynamicObject) -> Value {
    json!([{
        "apiVersion": "cluster.k8s.io/v1alpha1", "kind": kind, "name": object.name_any(), "uid": object.metadata.uid,
        "controller": true, "blockOwnerDeletion": true,
    }])
}

async fn deployment(cluster: &UserCluster, deployment: &DynamicObject) -> Result<()> {
    let sets: Vec<_> = cluster.of_user.sets.all().into_iter().filter(|set| is_owned(set, deployment)).collect();
    let template = deployment.data.pointer("/spec/template").cloned().unwrap_or_default();
    let name = format!("{}-{}", deployment.name_any(), digest(&template.to_string()));
    let newest = sets.iter().find(|set| set.name_any() == name);
    if deployment.metadata.deletion_timestamp.is_none() {
        match newest {
            None => create_set(cluster, deployment, &name, &template).await?,
            Some(newest) => {
                // Row 49: annotations first, and the count with the next look.
                if !copy_annotations(cluster, deployment, newest).await? {
                    scale(cluster, newest, replicas_of(deployment)).await?;
                }
            }
        }
        // Row 61: paused or not, counts are kept; only the newest template has any.
        for old in sets.iter().filter(|set| set.name_any() != name) {
            scale(cluster, old, 0).await?;
        }
    }
    let sum = |pointer: &str| sets.iter().map(|set| number(set, pointer)).sum::<i64>();
    let (all, ready) = (sum("/status/replicas"), sum("/status/readyReplicas"));
    let generation = deployment.metadata.generation;
    let mut status = json!({ "observedGeneration": generation, "replicas": all, "readyReplicas": ready, "availableReplicas": ready, "updatedReplicas": newest.map(|set| number(set, "/status/replicas")) });
    status["unavailableReplicas"] = json!((replicas_of(deployment) - ready).max(0));
    write_status(cluster, "MachineDeployment", deployment, status).await
}

async fn write_status(cluster: &UserCluster, kind: &str, object: &DynamicObject, status: Value) -> Result<()> {
    let same =
        status.as_object().into_iter().flatten().all(|(key, value)| object.data["status"].get(key) == Some(value));
    if !same {
        let patch = Patch::Merge(json!({ "status": status }));
        unless_gone(api(cluster, kind).patch_status(&object.name_any(), &PatchParams::default(), &patch).await)?;
    }
    Ok(())
}

async fn create_set(cluster: &UserCluster, deployment: &DynamicObject, name: &str, template: &Value) -> Result<()> {
    let set = json!({
        "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineSet",
        "metadata": {
            "name": name, "namespace": "kube-system", "ownerReferences": owner("MachineDeployment", deployment),
            "annotations": deployment.annotations(), "labels": template["metadata"]["labels"],
        },
        "spec": { "replicas": 0, "selector": deployment.data["spec"]["selector"], "template": template },
    });
    match api(cluster, "MachineSet").create(&PostParams::default(), &serde_json::from_value(set)?).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

/// Row 51: annotations are copied to the `MachineSet`, each change is added to its history, and none is ever removed.
async fn copy_annotations(cluster: &UserCluster, deployment: &DynamicObject, set: &DynamicObject) -> Result<bool> {
    const HISTORY: &str = "machinedeployment.clusters.k8s.io/revision-history";
    let missing = |(key, value): &(&String, &String)| set.annotations().get(*key) != Some(value);
    let mut new: BTreeMap<String, String> =
        deployment.annotations().iter().filter(missing).map(|(key, value)| (key.clone(), value.clone())).collect();
    if new.is_empty() {
        return Ok(false);
    }
    let history = set.annotations().get(HISTORY).map_or(String::new(), |history| format!("{history},"));
    new.insert(HISTORY.to_owned(), format!("{history}{}", history.split(',').count()));
    let patch = Patch::Merge(json!({ "metadata": { "annotations": new } }));
    unless_gone(api(cluster, "MachineSet").patch(&set.name_any(), &PatchParams::default(), &patch).await)?;
    Ok(true)
}

async fn scale(cluster: &UserCluster, set: &DynamicObject, replicas: i64) -> Result<()> {
    if replicas_of(set) != replicas {
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        unless_gone(api(cluster, "MachineSet").patch(&set.name_any(), &PatchParams::default(), &patch).await)?;
    }
    Ok(())
}

async fn set(cluster: &UserCluster, set: &DynamicObject, memory: &mut Memory) -> Result<()> {
    let owned: Vec<_> = cluster.of_user.machines.all().into_iter().filter(|one| is_owned(one, set)).collect();
    // Row 50: Machines that are terminating do not count any more.
    let live = owned.iter().filter(|one| one.metadata.deletion_timestamp.is_none()).count();
    let live = i64::try_from(live)?;
    let ready = owned.iter().filter(|one| one.metadata.deletion_timestamp.is_none() && is_ready(cluster, one)).count();
    let wanted = replicas_of(set);
    if set.metadata.deletion_timestamp.is_none() && live != wanted {
        change(cluster, set, wanted, memory).await?;
    }
    let status = json!({ "replicas": live, "readyReplicas": ready, "availableReplicas": ready, "observedGeneration": set.metadata.generation });
    write_status(cluster, "MachineSet", set, status).await
}

/// Whether the Machine has a Node that is Ready.
pub(super) fn is_ready(cluster: &UserCluster, machine: &DynamicObject) -> bool {
    let node = super::super::text(machine, "/status/nodeRef/name");
    !node.is_empty() && cluster.of_user.nodes.named(node).is_some_and(|node| nodes::is_ready(&node))
}

/// Makes or deletes Machines. What there is, is asked, not remembered: a cache may be late.
async fn change(cluster: &UserCluster, set: &DynamicObject, wanted: i64, memory: &mut Memory) -> Result<()> {
    let machines = api(cluster, "Machine");
    let all = machines.list(&ListParams::default()).await?.items;
    let everywhere = all.len();
    let mut live: Vec<DynamicObject> =
        all.into_iter().filter(|one| is_owned(one, set) && one.metadata.deletion_timestamp.is_none()).collect();
    let missing = wanted - i64::try_from(live.len())?;
    if missing > 0 {
        return create(cluster, set, missing, everywhere, memory).await;
    }
    // The youngest first.
    live.sort_by_key(|one| std::cmp::Reverse(one.metadata.creation_timestamp.clone()));
    for victim in live.iter().take(usize::try_from(-missing)?) {
        unless_gone(machines.delete(&victim.name_any(), &DeleteParams::default()).await)?;
    }
    Ok(())
}

async fn create(
    cluster: &UserCluster,
    set: &DynamicObject,
    missing: i64,
    everywhere: usize,
    memory: &mut Memory,
) -> Result<()> {
    let uid = set.metadata.uid.clone().unwrap_or_default();
    let touched = format!("{:?}{}", set.annotations(), set.data["spec"]);
    let refused = memory.refused.entry(uid).or_default();
    if refused.version != touched {
        *refused = Refused { version: touched, ..Refused::default() };
    }
    if Clock::now() < refused.next {
        return Ok(());
    }
    let quota = cluster.settings().quota.map_or(usize::MAX, |quota| quota as usize);
    for made in 0..usize::try_from(missing)? {
        if everywhere + made >= quota {
            // Row 62: doubling, 16 min at most; the reason is in Events of the MachineSet alone.
            refused.times += 1;
            refused.next = Clock::now() + (0.2 * 2f64.powi(refused.times.min(13))).min(960.0) / SPEED.sqrt();
            return refusal(cluster, set).await;
        }
        let template = &set.data["spec"]["template"];
        let machine = json!({
            "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "Machine",
            "metadata": {
                "name": format!("{}-{:05x}", set.name_any(), rand::random::<u32>() >> 12), "namespace": "kube-system",
                "ownerReferences": owner("MachineSet", set), "labels": template["metadata"]["labels"],
                "finalizers": [super::machine::DELETES, super::machine::DELETES_NODE],
            },
            "spec": template["spec"],
        });
        let api = api(cluster, "Machine");
        api.create(&PostParams::default(), &serde_json::from_value(machine)?).await?;
    }
    refused.times = 0;
    Ok(())
}

async fn refusal(cluster: &UserCluster, set: &DynamicObject) -> Result<()> {
    let message =
        format!("admission webhook denied the request: requested CPU \"2\" {QUOTA} (quota/used \"10\"/\"10\")");
    let now = Clock::text();
    let event = json!({
        "metadata": { "generateName": format!("{}.", set.name_any()), "namespace": "kube-system" },
        "involvedObject": {
            "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineSet", "name": set.name_any(), "namespace": "kube-system", "uid": set.metadata.uid,
        },
        "reason": "ReconcileError", "message": message, "type": "Warning", "firstTimestamp": now, "lastTimestamp": now, "count": 1,
        "source": { "component": "machineset-controller" },
    });
    let events: Api<Event> = Api::namespaced(cluster.user.clone(), "kube-system");
    events.create(&PostParams::default(), &serde_json::from_value(event)?).await?;
    cluster.call("machine-controller", format!("MachineSet {}: {message}", set.name_any()));
    Ok(())
}
