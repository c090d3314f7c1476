//! The cloud's instances and their kubelets: a Node joins some time after its instance, renews its Lease, and is silent
//! once the instance is gone.

use anyhow::Result;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::osm;
use crate::cluster::nodes::is_ready;
use crate::kkp::cloud::Instance;
use crate::kkp::options::wait;
use crate::kkp::registry::{UserCluster, replicas_of};
use crate::kkp::seed::unless_gone;
use crate::supervisor::clock::Clock;

/// Seconds between two renewals of a Lease.
const RENEWAL: f64 = 5.0;

/// One round over all instances.
pub(super) async fn tick(cluster: &UserCluster) -> Result<()> {
    let terminate = cluster.settings().terminate.as_secs_f64();
    let now = Clock::now();
    let instances = {
        let mut state = cluster.state();
        let gone = state.cloud.take_terminated(now, wait(terminate));
        for instance in &gone {
            state.log.call(now, "cloud", format!("{} of {} is gone", instance.id, instance.name));
        }
        state.cloud.instances.clone()
    };
    if !cluster.answers() {
        return Ok(());
    }
    for (uid, instance) in instances {
        if instance.joined {
            renew(cluster, &instance, now).await?;
        } else if instance.joins.is_some_and(|at| now >= at) {
            let joined = join(cluster, &instance).await?;
            let mut state = cluster.state();
            if let Some(known) = state.cloud.instances.get_mut(&uid) {
                known.joined = joined;
                known.joins = if joined { known.joins } else { None };
            }
        }
    }
    Ok(())
}

/// Row 53: it joins with the token that it was given, if its Secret is still the one on the way up. On the way down it still joins: its Node is an orphan then (row 57).
async fn join(cluster: &UserCluster, instance: &Instance) -> Result<bool> {
    let secrets: Api<Secret> = Api::namespaced(cluster.user.clone(), osm::NAMESPACE);
    let secret = secrets.get_opt(&osm::name(&instance.deployment, "provisioning")).await?;
    let same = secret.as_ref().is_some_and(|secret| secret.annotations().get(osm::TOKEN) == Some(&instance.token));
    let wanted = cluster.of_user.deployments.named(&instance.deployment).is_some_and(|one| replicas_of(&one) > 0);
    if !same && wanted {
        cluster.call("cloud", format!("{} cannot join: its bootstrap token is void", instance.name));
        return Ok(false);
    }
    let name = &instance.name;
    let labels = json!({ "kubernetes.io/hostname": name, "kubernetes.io/os": "linux" });
    let node = json!({
        "metadata": { "name": name, "labels": labels },
        "spec": { "providerID": format!("kkp://{}", instance.id) },
    });
    let nodes: Api<Node> = Api::all(cluster.user.clone());
    nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
    put_lease(cluster, name).await?;
    report(cluster, name).await?;
    cluster.call("cloud", format!("{name} has joined"));
    Ok(true)
}

async fn renew(cluster: &UserCluster, instance: &Instance, now: f64) -> Result<()> {
    let name = &instance.name;
    let lease = cluster.of_user.leases.named(name);
    let renewed =
        lease.and_then(|lease| lease.spec.as_ref()?.renew_time.as_ref().map(|time| time.0.as_duration().as_secs_f64()));
    let Some(node) = cluster.of_user.nodes.named(name) else { return Ok(()) };
    if !is_ready(&node) {
        report(cluster, name).await?;
    }
    if renewed.is_none_or(|renewed| now - renewed > RENEWAL) {
        put_lease(cluster, name).await?;
    }
    Ok(())
}

async fn put_lease(cluster: &UserCluster, name: &str) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(cluster.user.clone(), "kube-node-lease");
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": name },
        "spec": { "holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now },
    });
    leases.patch(name, &PatchParams::apply("kubelet").force(), &Patch::Apply(lease)).await?;
    Ok(())
}

async fn report(cluster: &UserCluster, name: &str) -> Result<()> {
    let nodes: Api<Node> = Api::all(cluster.user.clone());
    let now = Clock::text();
    let ready = json!({ "type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now, "lastTransitionTime": now });
    let status = Patch::Strategic(json!({ "status": { "conditions": [ready] } }));
    unless_gone(nodes.patch_status(name, &PatchParams::default(), &status).await)?;
    Ok(())
}
