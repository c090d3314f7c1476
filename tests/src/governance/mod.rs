//! Governance of Open Cluster Management, as an upgrade sees it: the placement controller, the policy propagator, the
//! work agent, and what spokes report. Rules G1 to G8 are those of [`arrows`] and [`work`].
//!
//! It runs in the process of the test, works on a hub of real API servers, and ends when it is dropped.

mod arrows;
mod store;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::arrows::{Change, Write};
use self::store::{Kind, Stores};
use self::work::Effect;
use crate::apply;

/// How long each arrow takes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delays {
    /// From a Placement to its decision.
    pub decide: Duration,
    /// From a decision, or a root, to the child.
    pub propagate: Duration,
    /// From a child that is enforced to its compliance.
    pub comply: Duration,
    /// From a child to the status of its root.
    pub report: Duration,
    /// From a view to its result, and from an action to what it does.
    pub work: Duration,
    /// From an action that was carried out to its end.
    pub collect: Duration,
}

/// What a test turns while it runs.
#[derive(Clone, Debug, Default)]
pub struct Knobs {
    /// How long each arrow takes.
    pub delays: Delays,
    /// Clusters that sleep: what they have last reported stays.
    pub asleep: BTreeSet<String>,
    /// Clusters and policies that never comply, whatever is enforced, and Jobs that fail.
    pub stuck: BTreeSet<(String, String)>,
    /// Clusters and policies that comply from the first report on.
    pub compliant: BTreeSet<(String, String)>,
    /// Clusters and `InstallPlan`s that actions have approved.
    pub approved: BTreeSet<(String, String)>,
    /// What actions have created, by cluster and `RESOURCE/NAMESPACE/NAME`.
    pub objects: BTreeMap<(String, String), Value>,
}

/// The controllers that are played.
pub struct Governance {
    client: Client,
    knobs: Arc<Mutex<Knobs>>,
    changed: Arc<Notify>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Governance {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Governance {
    /// Starts it on a hub that has the definitions.
    ///
    /// # Errors
    /// When the hub does not answer.
    pub async fn start(client: Client, knobs: Knobs) -> Result<Self> {
        let (knobs, changed) = (Arc::new(Mutex::new(knobs)), Arc::new(Notify::new()));
        let (stores, mut tasks) = Stores::start(&client, &changed).await?;
        tasks.push(tokio::spawn(play(client.clone(), stores, knobs.clone(), changed.clone())));
        Ok(Self { client, knobs, changed, tasks })
    }

    /// Turns knobs, or reads them.
    pub fn turn<T>(&self, change: impl FnOnce(&mut Knobs) -> T) -> T {
        let found = change(&mut self.knobs.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_one();
        found
    }

    /// Makes a `ManagedCluster` with its namespace; label `name` is its name.
    ///
    /// # Errors
    /// When the hub refuses it.
    pub async fn cluster(&self, name: &str, labels: &BTreeMap<String, String>) -> Result<()> {
        let mut labels = json!(labels);
        labels["name"] = json!(name);
        labels["cluster.open-cluster-management.io/clusterset"] = json!("default");
        let cluster = json!({
            "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
            "metadata": { "name": name, "labels": labels }, "spec": { "hubAcceptsClient": true },
        });
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        apply::all(&self.client, &[namespace, cluster]).await
    }

    /// Says that a cluster is available.
    ///
    /// # Errors
    /// When the hub refuses it.
    pub async fn available(&self, name: &str) -> Result<()> {
        let condition = json!({
            "type": "ManagedClusterConditionAvailable", "status": "True", "reason": "ManagedClusterAvailable",
            "message": "", "lastTransitionTime": "2026-11-26T00:00:00Z",
        });
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &Kind::Cluster.resource());
        let status = Patch::Merge(json!({ "status": { "conditions": [condition] } }));
        api.patch_status(name, &PatchParams::default(), &status).await?;
        Ok(())
    }

    /// Makes an inform policy of an object for these clusters: a Placement by name, and a binding without a
    /// filter. `wave`: its turn on a cluster that joins.
    ///
    /// # Errors
    /// When the hub refuses it.
    pub async fn policy(
        &self,
        (namespace, name): (&str, &str),
        wave: usize,
        clusters: &[&str],
        object: &Value,
    ) -> Result<()> {
        let set = json!({
            "apiVersion": "cluster.open-cluster-management.io/v1beta2", "kind": "ManagedClusterSetBinding",
            "metadata": { "name": "default", "namespace": namespace }, "spec": { "clusterSet": "default" },
        });
        let selector = json!({ "matchExpressions": [{ "key": "name", "operator": "In", "values": clusters }] });
        let placement = json!({
            "apiVersion": "cluster.open-cluster-management.io/v1beta1", "kind": "Placement",
            "metadata": { "name": format!("placement-{name}"), "namespace": namespace },
            "spec": { "predicates": [{ "requiredClusterSelector": { "labelSelector": selector } }] },
        });
        let group = "policy.open-cluster-management.io";
        let binding = json!({
            "apiVersion": format!("{group}/v1"), "kind": "PlacementBinding",
            "metadata": { "name": format!("binding-{name}"), "namespace": namespace },
            "placementRef": {
                "name": format!("placement-{name}"), "kind": "Placement", "apiGroup": "cluster.open-cluster-management.io",
            },
            "subjects": [{ "name": name, "kind": "Policy", "apiGroup": group }],
        });
        let template = json!({
            "apiVersion": format!("{group}/v1"), "kind": "ConfigurationPolicy", "metadata": { "name": format!("{name}-config") },
            "spec": {
                "remediationAction": "inform", "severity": "low",
                "object-templates": [{ "complianceType": "musthave", "objectDefinition": object }],
            },
        });
        let policy = json!({
            "apiVersion": format!("{group}/v1"), "kind": "Policy",
            "metadata": {
                "name": name, "namespace": namespace, "annotations": { "ran.openshift.io/ztp-deploy-wave": wave.to_string() },
            },
            "spec": { "disabled": false, "remediationAction": "inform", "policy-templates": [{ "objectDefinition": template }] },
        });
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
        apply::all(&self.client, &[namespace, set, placement, binding, policy]).await
    }
}

/// Carries out each change once its delay is over, unless it is not called for any more.
async fn play(client: Client, stores: Stores, knobs: Arc<Mutex<Knobs>>, changed: Arc<Notify>) {
    let mut due: BTreeMap<String, (Instant, Write)> = BTreeMap::new();
    loop {
        let current = knobs.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let changes = arrows::changes(&stores.view(), &current);
        let now = Instant::now();
        due.retain(|key, (_, write)| changes.iter().any(|change| change.key == *key && change.write == *write));
        for Change { key, delay, write } in changes {
            due.entry(key).or_insert((now + delay, write));
        }
        let mut ready: Vec<(Instant, String)> =
            due.iter().filter(|(_, (at, _))| *at <= now).map(|(key, (at, _))| (*at, key.clone())).collect();
        ready.sort();
        for (_, key) in ready {
            let Some((_, write)) = due.remove(&key) else { continue };
            if let Write::Act { cluster, effect, .. } = &write {
                effect.clone().carry_out(cluster, &mut knobs.lock().unwrap_or_else(PoisonError::into_inner));
                changed.notify_one();
            }
            if let Err(error) = carry_out(&client, &write).await {
                tracing::warn!("{key}: {error:#}");
                // It is called for again unless the watch says otherwise.
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            // What the next action does may depend on this one.
            if matches!(write, Write::Act { .. }) {
                break;
            }
        }
        let next = due.values().map(|(at, _)| *at).min();
        tokio::select! {
            () = changed.notified() => {}
            () = async { tokio::time::sleep_until(next.unwrap_or(now)).await }, if next.is_some() => {}
        }
        // Events come in bursts, and what we have written is one of them.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn carry_out(client: &Client, write: &Write) -> Result<()> {
    let api = |kind: Kind, namespace: &str| -> Api<DynamicObject> {
        Api::namespaced_with(client.clone(), namespace, &kind.resource())
    };
    let params = PatchParams::apply("governance").force();
    match write {
        Write::Apply { kind, namespace, name, object, status } => {
            let api = api(*kind, namespace);
            if let Some(object) = object {
                api.patch(name, &params, &Patch::Apply(object)).await.with_context(|| format!("apply {name}"))?;
            }
            if let Some(status) = status {
                // What is not in it goes: a Job that has ended is not active any more.
                let replace = json!([{ "op": "add", "path": "/status", "value": status }]);
                let patch = Patch::Json::<()>(serde_json::from_value(replace)?);
                api.patch_status(name, &PatchParams::default(), &patch)
                    .await
                    .with_context(|| format!("report {name}"))?;
            }
        }
        Write::Delete { kind, namespace, name } => delete(&api(*kind, namespace), name).await?,
        // A Job has no action.
        Write::Act { action, .. } if action.is_empty() => {}
        Write::Act { cluster, action, effect } => {
            let status = if *effect == Effect::Fail { "False" } else { "True" };
            let condition = json!({
                "type": "Completed", "status": status, "reason": "ActionDone", "message": "",
                "lastTransitionTime": "2026-11-26T00:00:00Z",
            });
            let patch = Patch::Merge(json!({ "status": { "conditions": [condition] } }));
            match api(Kind::Action, cluster).patch_status(action, &PatchParams::default(), &patch).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                written => drop(written.with_context(|| format!("end {action}"))?),
            }
        }
    }
    Ok(())
}

async fn delete(api: &Api<DynamicObject>, name: &str) -> Result<()> {
    match api.delete(name, &kube::api::DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        result => result.map(drop).with_context(|| format!("delete {name}")),
    }
}

/// Compliance of a cluster in the status of a root, as an upgrade reads it.
fn entry(cluster: &str, compliant: Option<&str>) -> Value {
    let mut entry = json!({ "clustername": cluster, "clusternamespace": cluster });
    if let Some(compliant) = compliant {
        entry["compliant"] = json!(compliant);
    }
    entry
}
