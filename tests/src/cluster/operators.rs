//! The `ClusterOperators` of a cluster: settled, except for a while after its API server has come back.
//!
//! Each names the namespace of its own pods, where its leader renews a Lease, except while the cluster sleeps.

use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::LABEL;
use super::objects::days_ago;
use crate::apply::{self, MANAGER};
use crate::proxy::becomes;
use crate::supervisor::clock::Clock;

/// The operators that a cluster has here, out of OpenShift's thirty or so.
pub const OPERATORS: &[&str] =
    &["authentication", "console", "dns", "etcd", "ingress", "kube-apiserver", "machine-config", "network"];

/// The operator's object name: all clusters of a spoke share one name space.
pub fn name(operator: &str, infra_id: &str) -> String {
    format!("{operator}-{infra_id}")
}

/// The namespace of an operator's own pods. All clusters of a spoke share it.
pub fn namespace(operator: &str) -> String {
    format!("openshift-{operator}-operator")
}

/// The Lease that the leader among an operator's pods renews.
pub fn lease_name(operator: &str, infra_id: &str) -> String {
    format!("{operator}-operator-lock-{infra_id}")
}

/// The namespaces of all operators, for a new spoke.
pub fn namespaces() -> Vec<Value> {
    let namespaces = OPERATORS.iter().map(|operator| namespace(operator));
    namespaces.map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).collect()
}

/// Makes the operators of a cluster, settled for days. If it begins asleep, their Leases are a day old.
///
/// # Errors
/// When the spoke refuses them.
pub async fn create(client: &Client, infra_id: &str, awake: bool) -> Result<()> {
    let age = if awake { SignedDuration::ZERO } else { SignedDuration::from_hours(24) };
    let renewed = micros(Timestamp::now() - age);
    let mut objects: Vec<Value> = OPERATORS
        .iter()
        .map(|operator| {
            json!({
                "apiVersion": "config.openshift.io/v1",
                "kind": "ClusterOperator",
                "metadata": {"name": name(operator, infra_id), "labels": {LABEL: infra_id}},
                "spec": {},
            })
        })
        .collect();
    objects.extend(OPERATORS.iter().map(|operator| lease(operator, infra_id, &renewed)));
    apply::all(client, &objects).await?;
    write(client, infra_id, false, &days_ago(3)).await
}

/// Plays the operators of one cluster: some time after each wake they are busy, then they settle. Runs until it is
/// aborted.
pub async fn play(
    client: Client,
    infra_id: String,
    mut api_up: watch::Receiver<bool>,
    clock: Clock,
    mut settled: bool,
) {
    loop {
        if !becomes(&mut api_up, true).await {
            return;
        }
        if !settled {
            tokio::select! {
                result = settle(&client, &infra_id, &clock) => match result {
                    Ok(()) => settled = true,
                    Err(error) => {
                        tracing::warn!(cluster = infra_id, "{error:#}");
                        tokio::time::sleep(Duration::from_millis(500)).await;
                    }
                },
                _ = becomes(&mut api_up, false) => {}
            }
            continue;
        }
        if !becomes(&mut api_up, false).await {
            return;
        }
        settled = false;
    }
}

/// Plays the leaders among the operators' pods: they come back some time after the API server and renew their Leases as
/// long as it answers. Runs until it is aborted.
pub async fn lead(client: Client, infra_id: String, mut api_up: watch::Receiver<bool>, clock: Clock, awake: bool) {
    let mut started = awake;
    loop {
        started &= *api_up.borrow();
        if !becomes(&mut api_up, true).await {
            return;
        }
        let timings = clock.timings();
        let pause = if started { timings.operator_lease_period.0 } else { timings.operator_lag.0 };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = becomes(&mut api_up, false) => continue,
        }
        match renew(&client, &infra_id).await {
            Ok(()) => started = true,
            Err(error) => tracing::warn!(cluster = infra_id, "{error:#}"),
        }
    }
}

async fn renew(client: &Client, infra_id: &str) -> Result<()> {
    let renewed = json!({"spec": {"renewTime": micros(Timestamp::now())}});
    for operator in OPERATORS {
        let leases: Api<Lease> = Api::namespaced(client.clone(), &namespace(operator));
        let name = lease_name(operator, infra_id);
        leases
            .patch(&name, &PatchParams::default(), &Patch::Merge(&renewed))
            .await
            .with_context(|| format!("renew Lease {name}"))?;
    }
    Ok(())
}

fn lease(operator: &str, infra_id: &str, renewed: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": lease_name(operator, infra_id),
            "namespace": namespace(operator),
            "labels": {LABEL: infra_id},
        },
        "spec": {
            "holderIdentity": format!("{operator}-operator-{infra_id}"),
            "leaseDurationSeconds": 137,
            "renewTime": renewed,
        },
    })
}

/// Removes the operators of a cluster and their Leases.
///
/// # Errors
/// When the spoke refuses.
pub async fn remove(client: &Client, infra_id: &str) -> Result<()> {
    let (now, ours) = (DeleteParams::default(), ListParams::default().labels(&format!("{LABEL}={infra_id}")));
    let operators: Api<DynamicObject> = Api::all_with(client.clone(), &resource());
    operators.delete_collection(&now, &ours).await.context("delete ClusterOperators")?;
    let leases = OPERATORS.iter().map(|operator| Api::<Lease>::namespaced(client.clone(), &namespace(operator)));
    let leases: Vec<_> = leases.collect();
    let deletions = leases.iter().map(|leases| leases.delete_collection(&now, &ours));
    try_join_all(deletions).await.context("delete the Leases of operators").map(drop)
}

async fn settle(client: &Client, infra_id: &str, clock: &Clock) -> Result<()> {
    tokio::time::sleep(clock.timings().operator_lag.0).await;
    write(client, infra_id, true, &Clock::text()).await?;
    tokio::time::sleep(clock.timings().operator_settle.0).await;
    write(client, infra_id, false, &Clock::text()).await
}

async fn write(client: &Client, infra_id: &str, progressing: bool, since: &str) -> Result<()> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource());
    let status = |value: bool| if value { "True" } else { "False" };
    let condition = |type_: &str, value: bool, reason: &str, since: &str| json!({"type": type_, "status": status(value), "reason": reason, "lastTransitionTime": since});
    let (reason, installed) = (if progressing { "Restarting" } else { "AsExpected" }, days_ago(3));
    let conditions = [
        condition("Available", true, "AsExpected", &installed),
        condition("Progressing", progressing, reason, since),
        condition("Degraded", false, "AsExpected", &installed),
        condition("Upgradeable", true, "AsExpected", &installed),
    ];
    for operator in OPERATORS {
        let patch = json!({"status": {
            "conditions": conditions,
            "relatedObjects": [{"group": "", "resource": "namespaces", "name": namespace(operator)}],
        }});
        let name = name(operator, infra_id);
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        api.patch_status(&name, &params, &Patch::Merge(&patch))
            .await
            .with_context(|| format!("write the status of ClusterOperator {name}"))?;
    }
    Ok(())
}

/// `clusteroperators.config.openshift.io`
pub fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(
        &kube::core::GroupVersionKind::gvk("config.openshift.io", "v1", "ClusterOperator"),
        "clusteroperators",
    )
}

pub(super) fn micros(moment: Timestamp) -> String {
    moment.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}
