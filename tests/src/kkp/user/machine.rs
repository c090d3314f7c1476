//! machine-controller's Machines: rows 49 to 60.

use std::collections::BTreeMap;

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::{eviction, osm};
use crate::kkp::cloud::Instance;
use crate::kkp::options::wait;
use crate::kkp::registry::UserCluster;
use crate::kkp::seed::unless_gone;
use crate::kkp::{OWNED_BY, machinery, text};
use crate::supervisor::clock::Clock;

/// Held until the instance is gone.
pub(super) const DELETES: &str = "machine-delete-finalizer";
/// Held until the Node is gone.
pub(super) const DELETES_NODE: &str = "machine-node-delete-finalizer";

/// machine-controller's poll (row 49).
const POLL: f64 = 10.0;
/// From an instance to its Node.
const BOOT: f64 = 3.0;

/// When each Machine is polled next.
#[derive(Default)]
pub(super) struct Memory {
    next: BTreeMap<String, f64>,
}

/// One round over all Machines.
pub(super) async fn tick(cluster: &UserCluster, memory: &mut Memory) -> Result<()> {
    let machines = cluster.of_user.machines.all();
    memory.next.retain(|uid, _| machines.iter().any(|machine| machine.metadata.uid.as_ref() == Some(uid)));
    for machine in machines {
        let uid = machine.metadata.uid.clone().unwrap_or_default();
        if machine.metadata.deletion_timestamp.is_none() {
            ensure(cluster, &machine, &uid).await?;
        } else if memory.next.get(&uid).is_none_or(|next| Clock::now() >= *next) {
            delete(cluster, &machine, &uid).await?;
            memory.next.insert(uid, Clock::now() + wait(POLL));
        }
    }
    Ok(())
}

fn api(cluster: &UserCluster) -> Api<DynamicObject> {
    Api::namespaced_with(cluster.user.clone(), "kube-system", &machinery("Machine"))
}

/// The `MachineDeployment` of a Machine.
fn deployment(cluster: &UserCluster, machine: &DynamicObject) -> Option<String> {
    let set = cluster.of_user.sets.all().into_iter().find(|set| super::sets::is_owned(machine, set))?;
    set.owner_references().iter().find(|owner| owner.kind == "MachineDeployment").map(|owner| owner.name.clone())
}

/// The instance, once there is a bootstrap Secret; then the Node, which it finds by name.
async fn ensure(cluster: &UserCluster, machine: &DynamicObject, uid: &str) -> Result<()> {
    let name = machine.name_any();
    if !cluster.state().cloud.instances.contains_key(uid) {
        let Some(deployment) = deployment(cluster, machine) else { return Ok(()) };
        let Some(secret) = cluster.of_user.secrets.named(&osm::name(&deployment, "bootstrap")) else { return Ok(()) };
        // It takes no Secret of another revision: one that OSM is about to make anew.
        let current = cluster.of_user.deployments.named(&deployment).map(|one| osm::hash(&one));
        if secret.annotations().get(osm::HASH) != current.as_ref() {
            return Ok(());
        }
        let token = secret.annotations().get(osm::TOKEN).cloned().unwrap_or_default();
        let (settings, now) = (cluster.settings(), Clock::now());
        let never = settings.never_join.contains(&deployment);
        let joins = now + wait(BOOT) + settings.join_late.as_secs_f64();
        let instance = Instance {
            name: name.clone(),
            id: format!("i-{:08x}", rand::random::<u32>()),
            deployment,
            created: now,
            token,
            terminating: None,
            joined: false,
            joins: (!never).then_some(joins),
        };
        let mut state = cluster.state();
        state.log.call(now, "cloud", format!("create {} for {name}", instance.id));
        state.cloud.instances.insert(uid.to_owned(), instance);
        return Ok(());
    }
    let Some(node) = cluster.of_user.nodes.named(&name) else { return Ok(()) };
    if !node.labels().contains_key(OWNED_BY) {
        let nodes: Api<Node> = Api::all(cluster.user.clone());
        let patch = json!({ "metadata": { "labels": { OWNED_BY: uid }, "annotations": { "cluster.k8s.io/machine": format!("kube-system/{name}") } } });
        unless_gone(nodes.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await)?;
    }
    if text(machine, "/status/nodeRef/name") != name {
        let patch = json!({ "status": { "nodeRef": { "kind": "Node", "name": name, "uid": node.metadata.uid } } });
        unless_gone(api(cluster).patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await)?;
    }
    Ok(())
}

/// Row 49: eviction, the cloud's call, then poll by poll until the instance is gone; finalizer off, Node away,
/// finalizer off.
async fn delete(cluster: &UserCluster, machine: &DynamicObject, uid: &str) -> Result<()> {
    let name = machine.name_any();
    let held = machine.finalizers();
    if held.iter().any(|finalizer| finalizer == DELETES) {
        let node = text(machine, "/status/nodeRef/name");
        if eviction::is_due(cluster, machine) && !eviction::evict(cluster, node).await? {
            return Ok(()); // row 54: again at the next poll
        }
        if !terminate(cluster, uid) {
            return Ok(());
        }
        finalizers(cluster, &name, &[DELETES_NODE]).await?;
    }
    let node = text(machine, "/status/nodeRef/name");
    if !node.is_empty() {
        let nodes: Api<Node> = Api::all(cluster.user.clone());
        unless_gone(nodes.delete(node, &DeleteParams::default()).await)?;
    }
    finalizers(cluster, &name, &[]).await
}

/// Requests the termination; whether the instance is gone.
fn terminate(cluster: &UserCluster, uid: &str) -> bool {
    let mut state = cluster.state();
    let now = Clock::now();
    let Some(instance) = state.cloud.instances.get_mut(uid) else { return true };
    if instance.terminating.is_none() {
        instance.terminating = Some(now);
        let text = format!("terminate {} of {}", instance.id, instance.name);
        state.log.call(now, "cloud", text);
    }
    false
}

async fn finalizers(cluster: &UserCluster, name: &str, left: &[&str]) -> Result<()> {
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": left } }));
    unless_gone(api(cluster).patch(name, &PatchParams::default(), &patch).await)?;
    Ok(())
}
