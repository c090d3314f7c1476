//! What KKP writes into the status of a Cluster: by merge patch, and only what changes (rows 7, 12).

use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::{Map, Value, json};

use super::super::control_plane::{DEPLOYMENTS, ETCD, STATEFUL_SETS};
use super::super::options::KUBERMATIC_VERSION;
use super::super::registry::UserCluster;
use crate::supervisor::clock::Clock;

/// Conditions of KKP's controllers: with `SeedResourcesUpToDate`, all that `ClusterInitialized` needs (section 7).
pub(super) const CONTROLLERS: [&str; 5] = ["Cluster", "Addon", "Cloud", "Update", "Monitoring"];

/// A status that is being changed.
pub(super) struct Change<'a> {
    cluster: &'a DynamicObject,
    status: Map<String, Value>,
}

impl<'a> Change<'a> {
    pub(super) fn new(cluster: &'a DynamicObject) -> Self {
        Self { cluster, status: Map::new() }
    }

    /// A field at the top.
    pub(super) fn field(&mut self, name: &str, value: Value) {
        if self.cluster.data.pointer(&format!("/status/{name}")) != Some(&value) {
            self.status.insert(name.to_owned(), value);
        }
    }

    /// A condition. Row 7: its heartbeat is no sign of life, it moves when status, reason or message do.
    pub(super) fn condition(&mut self, name: &str, is: bool, reason: &str, message: &str) {
        let status = if is { "True" } else { "False" };
        let old = self.cluster.data.pointer(&format!("/status/conditions/{name}"));
        let detail = |key: &str| old.and_then(|old| old.get(key)).and_then(Value::as_str).unwrap_or_default();
        if old.is_some() && detail("status") == status && detail("reason") == reason && detail("message") == message {
            return;
        }
        let now = Clock::text();
        let mut condition = json!({
            "status": status, "reason": reason, "message": message, "kubermaticVersion": KUBERMATIC_VERSION, "lastHeartbeatTime": now,
        });
        if detail("status") != status {
            condition["lastTransitionTime"] = json!(now);
        }
        let all = self.status.entry("conditions").or_insert_with(|| json!({}));
        all[name] = condition;
    }

    /// Health of the components.
    pub(super) fn health(&mut self, health: &Map<String, Value>) {
        for (name, value) in health {
            if self.cluster.data.pointer(&format!("/status/extendedHealth/{name}")) != Some(value) {
                let all = self.status.entry("extendedHealth").or_insert_with(|| json!({}));
                all[name] = value.clone();
            }
        }
    }

    /// The patch, if anything changes.
    pub(super) fn patch(self) -> Option<Value> {
        if self.status.is_empty() { None } else { Some(Value::Object(self.status)) }
    }
}

/// Replicas of a workload: wanted, ready, and whether all is as the spec says.
#[derive(Clone, Copy)]
struct Counts {
    wanted: i32,
    ready: i32,
    done: bool,
}

fn counts(cluster: &UserCluster) -> Vec<(String, Counts)> {
    let deployments = cluster.of_seed.deployments.all().into_iter().map(|one| {
        let status = one.status.clone().unwrap_or_default();
        let wanted = one.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        let (ready, all) = (status.ready_replicas.unwrap_or_default(), status.replicas.unwrap_or_default());
        let current = status.observed_generation.unwrap_or_default() >= one.metadata.generation.unwrap_or_default();
        let updated = status.updated_replicas.unwrap_or_default();
        (
            one.name_any(),
            Counts { wanted, ready, done: current && updated == wanted && ready == wanted && all == wanted },
        )
    });
    let sets = cluster.of_seed.stateful_sets.all().into_iter().map(|one| {
        let status = one.status.clone().unwrap_or_default();
        let wanted = one.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        let ready = status.ready_replicas.unwrap_or_default();
        let current = status.observed_generation.unwrap_or_default() >= one.metadata.generation.unwrap_or_default();
        (one.name_any(), Counts { wanted, ready, done: current && ready == wanted && status.replicas == wanted })
    });
    deployments.chain(sets).collect()
}

/// Whether every workload is as its own spec says. Row 9: at 0, 0 ready are all, so that a sleeping cluster is up to
/// date.
pub(super) fn is_up_to_date(cluster: &UserCluster) -> bool {
    let counts = counts(cluster);
    !counts.is_empty() && counts.iter().all(|(_, counts)| counts.done)
}

/// Whether a workload has been rolled out.
pub(super) fn is_rolled_out(cluster: &UserCluster, name: &str) -> bool {
    counts(cluster).iter().any(|(found, counts)| found == name && counts.done && counts.wanted > 0)
}

/// `extendedHealth`: Up where a Pod is Ready, etcd where it serves. Row 8: Down where none is.
pub(super) fn health(cluster: &UserCluster) -> Map<String, Value> {
    let counts = counts(cluster);
    let up = |up: bool| json!(if up { "HealthStatusUp" } else { "HealthStatusDown" });
    let ready =
        |name: &str| counts.iter().any(|(found, counts)| found == name && counts.wanted > 0 && counts.ready > 0);
    let components = DEPLOYMENTS.iter().chain(STATEFUL_SETS);
    let mut all: Map<String, Value> =
        components.filter_map(|(name, _, component)| Some(((*component)?.to_owned(), up(ready(name))))).collect();
    let etcd = counts.iter().any(|(name, counts)| name == ETCD && counts.ready * 2 > counts.wanted);
    all.insert("etcd".to_owned(), up(etcd));
    all.insert("cloudProviderInfrastructure".to_owned(), up(true));
    all
}

/// Whether all components are Up.
pub(super) fn all_up(health: &Map<String, Value>) -> bool {
    health.values().all(|value| value == "HealthStatusUp")
}
