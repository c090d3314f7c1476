//! Pods of the user cluster: bound by the scheduler, run and ended by the kubelets of their Nodes.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::Lead;
use super::eviction::{is_cordoned, of_daemon_set};
use crate::cluster::nodes::is_ready;
use crate::kkp::log::{How, PodEnd, Rule};
use crate::kkp::options::wait;
use crate::kkp::registry::UserCluster;
use crate::kkp::running;
use crate::kkp::seed::unless_gone;
use crate::supervisor::clock::Clock;

/// How long a Pod takes to end once it is deleted, if its grace period allows that.
const POD_END: f64 = 1.0;

/// Pods whose containers run.
#[derive(Default)]
pub(super) struct Memory {
    running: BTreeMap<String, PodEnd>,
    /// Those that have ended, and whose object is still there.
    ended: BTreeSet<String>,
    scheduler: Lead,
}

/// One round over all Pods.
pub(super) async fn tick(cluster: &UserCluster, memory: &mut Memory) -> Result<()> {
    let pods = cluster.of_user.pods.all();
    memory.ended.retain(|uid| pods.iter().any(|pod| pod.metadata.uid.as_ref() == Some(uid)));
    run(cluster, &pods, memory);
    if !cluster.answers() {
        return Ok(());
    }
    for pod in &pods {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let api: Api<Pod> = Api::namespaced(cluster.user.clone(), &pod.namespace().unwrap_or_default());
        if memory.ended.contains(&uid) && is_on_instance(cluster, pod) {
            let preconditions = Some(Preconditions { uid: Some(uid), resource_version: None });
            let now = DeleteParams { preconditions, ..DeleteParams::default().grace_period(0) };
            unless_conflict(api.delete(&pod.name_any(), &now).await)?;
        } else if memory.running.contains_key(&uid) && phase(pod) == "Pending" {
            let status = Patch::Strategic(running(pod, true));
            unless_gone(api.patch_status(&pod.name_any(), &PatchParams::default(), &status).await)?;
        }
    }
    if memory.scheduler.holds(cluster, "scheduler") {
        schedule(cluster, &pods).await?;
    }
    Ok(())
}

fn unless_conflict<T>(result: kube::Result<T>) -> Result<()> {
    match result {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
}

fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// Whether the instance of its Node is there.
fn is_on_instance(cluster: &UserCluster, pod: &Pod) -> bool {
    node(pod).is_some_and(|node| cluster.state().cloud.of_node(node).is_some_and(|instance| instance.joined))
}

/// Containers start and end. Each end is noted once, with how it came about.
fn run(cluster: &UserCluster, pods: &[std::sync::Arc<Pod>], memory: &mut Memory) {
    let now = Clock::now();
    for pod in pods.iter().filter(|pod| is_on_instance(cluster, pod)) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        if memory.ended.contains(&uid) || matches!(phase(pod), "Succeeded" | "Failed") {
            continue;
        }
        let grace = pod.metadata.deletion_grace_period_seconds;
        let known = memory.running.entry(uid.clone()).or_insert_with(|| PodEnd {
            pod: format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any()),
            node: node(pod).unwrap_or_default().to_owned(),
            of_daemon_set: of_daemon_set(pod),
            grace: pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(30),
            deleted_at: None,
            at: 0.0,
            how: How::Graceful,
        });
        if pod.metadata.deletion_timestamp.is_none() {
            continue;
        }
        known.grace = grace.unwrap_or(known.grace);
        let since = *known.deleted_at.get_or_insert(now);
        let (takes, grace) = (wait(POD_END), u32::try_from(known.grace).map_or(0.0, f64::from));
        if now - since >= takes.min(grace) {
            known.how = if takes <= grace { How::Graceful } else { How::GraceOver };
            let end = PodEnd { at: now, ..known.clone() };
            memory.running.remove(&uid);
            memory.ended.insert(uid);
            cluster.state().log.pods.push(end);
        }
    }
    let stopped: Vec<String> = {
        let state = cluster.state();
        let is_gone = |end: &PodEnd| state.cloud.of_node(&end.node).is_none();
        memory.running.iter().filter(|(_, end)| is_gone(end)).map(|(uid, _)| uid.clone()).collect()
    };
    for uid in stopped {
        let Some(known) = memory.running.remove(&uid) else { continue };
        // Row 55: the object stays Running until the Pod garbage collector comes.
        let text = format!("{} ran when the instance of {} stopped", known.pod, known.node);
        if !known.of_daemon_set {
            cluster.violation(Rule::PodKilled, text);
        }
        cluster.state().log.pods.push(PodEnd { at: now, how: How::InstanceStopped, ..known });
    }
    // Deleted with a grace of 0 by another client: the kubelet ends it.
    memory.running.retain(|uid, _| pods.iter().any(|pod| pod.metadata.uid.as_ref() == Some(uid)));
}

/// Binds Pods to Nodes that are Ready and not cordoned; those of a `DaemonSet` to the Node that they name.
async fn schedule(cluster: &UserCluster, pods: &[std::sync::Arc<Pod>]) -> Result<()> {
    let nodes = cluster.of_user.nodes.all();
    let mut load: BTreeMap<String, usize> = nodes
        .iter()
        .filter(|node| is_ready(node) && !is_cordoned(node) && node.metadata.deletion_timestamp.is_none())
        .map(|one| (one.name_any(), pods.iter().filter(|pod| node(pod) == Some(&one.name_any())).count()))
        .collect();
    for pod in pods.iter().filter(|pod| node(pod).is_none() && pod.metadata.deletion_timestamp.is_none()) {
        let place = if of_daemon_set(pod) {
            wanted_node(pod).filter(|name| nodes.iter().any(|node| &node.name_any() == name && is_ready(node)))
        } else {
            load.iter().min_by_key(|(_, load)| **load).map(|(name, _)| name.clone())
        };
        let Some(place) = place else { continue };
        *load.entry(place.clone()).or_default() += 1;
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": { "name": pod.name_any() },
            "target": { "apiVersion": "v1", "kind": "Node", "name": place },
        });
        let api: Api<Pod> = Api::namespaced(cluster.user.clone(), &pod.namespace().unwrap_or_default());
        let (name, params) = (pod.name_any(), PostParams::default());
        let bound: kube::Result<Value> = api.create_subresource("binding", &name, &params, &binding).await;
        unless_conflict(bound)?;
    }
    Ok(())
}

fn wanted_node(pod: &Pod) -> Option<String> {
    let terms = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &terms.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
    let field =
        terms.iter().flat_map(|term| term.match_fields.iter().flatten()).find(|field| field.key == "metadata.name")?;
    field.values.as_ref()?.first().cloned()
}
