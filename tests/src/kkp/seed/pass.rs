//! One pass of KKP's controllers over one Cluster, and what a pause sets off.

use std::sync::Arc;

use anyhow::Result;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Map, Value, json};

use super::status::{CONTROLLERS, Change, all_up, health, is_rolled_out, is_up_to_date};
use super::{cleanup, ensure, is_paused, is_true};
use crate::kkp::control_plane::{API_SERVER, DEPLOYMENTS, VERSIONED};
use crate::kkp::log::Rule;
use crate::kkp::options::{InFlight, wait};
use crate::kkp::registry::{Kkp, UserCluster};
use crate::kkp::text;
use crate::supervisor::clock::Clock;

/// From a workload that is not as KKP wants it to KKP's write: 0.4 to 2.3 s (row 2).
const RESET: f64 = 1.0;
/// From all health Up to the roll-out of a changed version (row 14).
const UPDATE: f64 = 4.0;
/// `--max-parallel-reconcile` (row 9).
const MAX_PARALLEL_RECONCILE: usize = 10;

/// What a controller remembers between two passes.
#[derive(Default)]
pub(super) struct Memory {
    /// Since when something is not as it should be.
    drift_since: Option<f64>,
    /// Since when a changed version waits for all health to be Up.
    update_since: Option<f64>,
    /// Until when the concurrency limit is not checked again.
    limited_until: f64,
    cleanup: cleanup::Memory,
}

/// One pass.
pub(super) async fn tick(cluster: &UserCluster, kkp: &Kkp, memory: &mut Memory) -> Result<()> {
    let Some(object) = cluster.cluster().filter(|_| !kkp.settings().controllers_down) else { return Ok(()) };
    phase(cluster, &object).await?;
    // Rows 4, 6, 13, 14, 19: paused, only the phase is checked, and all that the status says stays.
    if is_paused(&object) {
        memory.drift_since = None;
        return Ok(());
    }
    if object.metadata.deletion_timestamp.is_some() {
        // Row 20: nothing is ensured any more.
        return cleanup::tick(cluster, &object, &mut memory.cleanup).await;
    }
    up_to_date(cluster, &object).await?;
    let now = Clock::now();
    // Rows 9, 10: what is up to date waits while too many are not.
    if is_true(&object, "SeedResourcesUpToDate") && kkp.updating() >= MAX_PARALLEL_RECONCILE {
        if now >= memory.limited_until {
            cluster.call("kkp", "Concurrency limit reached, checking again in 10 seconds");
            memory.limited_until = now + wait(10.0);
        }
        return Ok(());
    }
    if now < memory.limited_until {
        return Ok(());
    }
    // Row 15a: the pass dies in the health check, before anything is ensured.
    if cluster.runs(API_SERVER) && !cluster.answers() {
        let why = "failed to sync health: connect: connection refused";
        let mut change = Change::new(&object);
        change.condition("ClusterControllerReconciledSuccessfully", false, "ReconcilingError", why);
        if let Some(patch) = change.patch() {
            cluster.patch_status(&patch).await?;
        }
        return Ok(());
    }
    let health = health(cluster);
    report(cluster, &object, &health).await?;
    ensure::certificates(cluster).await?;
    let drift = ensure::drift(cluster, &object);
    if drift.is_empty() {
        memory.drift_since = None;
    } else if now - *memory.drift_since.get_or_insert(now) >= wait(RESET) {
        ensure::workloads(cluster, drift).await?;
        memory.drift_since = None;
    }
    update(cluster, &object, &health, memory).await
}

/// The phase controller, which ignores a pause (rows 16, 19).
async fn phase(cluster: &UserCluster, object: &DynamicObject) -> Result<()> {
    let updating = text(object, "/status/conditions/UpdateProgress/reason") == "Progressing";
    let phase = match () {
        () if object.metadata.deletion_timestamp.is_some() => "Terminating",
        () if !is_true(object, "ClusterInitialized") => "Creating",
        () if updating => "Updating",
        () => "Running",
    };
    if text(object, "/status/phase") != phase {
        cluster.patch_status(&json!({ "phase": phase })).await?;
    }
    Ok(())
}

/// The controller of `SeedResourcesUpToDate`.
async fn up_to_date(cluster: &UserCluster, object: &DynamicObject) -> Result<()> {
    let is = is_up_to_date(cluster);
    let (reason, message) = if is {
        ("UpToDate", "All control plane components are up to date")
    } else {
        ("Progressing", "Some control plane components did not finish updating")
    };
    let mut change = Change::new(object);
    change.condition("SeedResourcesUpToDate", is, reason, message);
    match change.patch() {
        Some(patch) => cluster.patch_status(&patch).await,
        None => Ok(()),
    }
}

/// Health, conditions, names and versions.
async fn report(cluster: &UserCluster, object: &DynamicObject, health: &Map<String, Value>) -> Result<()> {
    let mut change = Change::new(object);
    change.field("namespaceName", json!(cluster.info.namespace));
    change.health(health);
    for name in CONTROLLERS {
        change.condition(&format!("{name}ControllerReconciledSuccessfully"), true, "ReconcilingSuccess", "");
    }
    let version = text(object, "/spec/version");
    if object.data.pointer("/status/versions").is_none() {
        let versions =
            ["controlPlane", "apiserver", "controllerManager", "scheduler"].map(|key| (key.to_owned(), json!(version)));
        change.field("versions", Value::Object(versions.into_iter().collect()));
    }
    if all_up(health) && is_true(object, "SeedResourcesUpToDate") && !is_true(object, "ClusterInitialized") {
        change.condition("ClusterInitialized", true, "", "");
    }
    if health.get("etcd") == Some(&json!("HealthStatusUp")) && !is_true(object, "EtcdClusterInitialized") {
        change.condition("EtcdClusterInitialized", true, "", "Etcd Cluster has been initialized successfully");
    }
    match change.patch() {
        Some(patch) => cluster.patch_status(&patch).await,
        None => Ok(()),
    }
}

/// Row 14: 4 s after all health is Up the API server rolls, then the rest.
async fn update(
    cluster: &UserCluster,
    object: &DynamicObject,
    health: &Map<String, Value>,
    memory: &mut Memory,
) -> Result<()> {
    let now = Clock::now();
    let wanted = text(object, "/spec/version");
    let has = |key: &str| text(object, &format!("/status/versions/{key}")) == wanted;
    if object.data.pointer("/status/versions").is_none()
        || ["controlPlane", "apiserver", "scheduler"].iter().all(|key| has(key))
    {
        memory.update_since = None;
        return Ok(());
    }
    let mut change = Change::new(object);
    if !has("apiserver") {
        if !all_up(health) {
            memory.update_since = None;
            return Ok(());
        }
        if now - *memory.update_since.get_or_insert(now) < wait(UPDATE) {
            return Ok(());
        }
        cluster.call("kkp", format!("rolls the API server to {wanted}"));
        cluster.patch_status(&json!({ "versions": { "apiserver": wanted } })).await?;
        change.condition("UpdateProgress", true, "Progressing", &format!("Updating to {wanted}"));
    } else if !has("scheduler") && is_rolled_out(cluster, API_SERVER) && image(cluster, API_SERVER).ends_with(wanted) {
        cluster.patch_status(&json!({ "versions": { "controllerManager": wanted, "scheduler": wanted } })).await?;
    } else if has("scheduler")
        && VERSIONED.iter().all(|(name, _)| is_rolled_out(cluster, name) && image(cluster, name).ends_with(wanted))
    {
        cluster.patch_status(&json!({ "versions": { "controlPlane": wanted } })).await?;
        change.condition("UpdateProgress", true, "UpToDate", "");
    }
    match change.patch() {
        Some(patch) => cluster.patch_status(&patch).await,
        None => Ok(()),
    }
}

fn image(cluster: &UserCluster, name: &str) -> String {
    let found = cluster.of_seed.deployments.named(name);
    let container = found.and_then(|one| one.spec.as_ref()?.template.spec.as_ref()?.containers.first().cloned());
    container.and_then(|container| container.image).unwrap_or_default()
}

/// What a pause sets off.
#[derive(Default)]
pub(super) struct Pause {
    was: Option<bool>,
    /// Whether the loss of machine-controller was noted.
    noted: bool,
}

impl Pause {
    pub(super) fn tick(&mut self, cluster: &Arc<UserCluster>) {
        let Some(object) = cluster.cluster() else { return };
        let machines = cluster.of_user.machines.all().len();
        let is = is_paused(&object);
        if self.was.replace(is) == Some(false) && is {
            // Row 58: instances of Machines that are left stay.
            if machines > 0 {
                cluster.violation(Rule::PausedWithMachine, format!("paused with {machines} Machines"));
            }
            let in_flight = cluster.settings().in_flight;
            if in_flight.rounds > 0 {
                tokio::spawn(raise(cluster.clone(), in_flight));
            }
        }
        let found = cluster.of_seed.deployments.named("machine-controller");
        let gone = found.is_some_and(|one| one.spec.as_ref().and_then(|spec| spec.replicas) == Some(0));
        if gone && machines > 0 && !self.noted {
            cluster.violation(Rule::ScaledDownWithMachine, format!("machine-controller at 0 with {machines} Machines"));
        }
        self.noted = gone && machines > 0;
    }
}

/// Row 5: reconciles that began before the pause raise what they find at 0.
async fn raise(cluster: Arc<UserCluster>, in_flight: InFlight) {
    let api: Api<Deployment> = Api::namespaced(cluster.seed.clone(), &cluster.info.namespace);
    for _ in 0..in_flight.rounds {
        tokio::time::sleep(in_flight.delay.0).await;
        let Ok(found) = api.list(&ListParams::default()).await else { continue };
        let is_at_0 = |name: &str| {
            let found = found.items.iter().find(|one| one.metadata.name.as_deref() == Some(name));
            found.and_then(|one| one.spec.as_ref()?.replicas) == Some(0)
        };
        let low = DEPLOYMENTS.iter().filter(|(name, ..)| is_at_0(name)).take(in_flight.deployments as usize);
        for (name, replicas, _) in low {
            let patch = json!({ "spec": { "replicas": replicas } });
            if api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.is_ok() {
                cluster.call("kkp", format!("in flight: raised {name} to {replicas}"));
            }
        }
    }
}
