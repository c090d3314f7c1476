//! A user cluster on a real seed, and what plays its controller.

use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use shared::annotation::{format, keys as common};
use shared::finding::Finding;
use shared::kkp::api::{Cluster, Condition};
use shared::kkp::data::{PREFLIGHT, Preflight, STATE, State};
use shared::kkp::keys;
use shared::kkp::phase::Phase;
use shared::kkp::record::{Machines, Numbers, Record};
use shared::record::Format as _;
use testbed::{Options, Ran, World, apply, foreign};

/// A hub with the kinds of KKP.
async fn seed() -> Result<World> {
    let world = World::shared_with(Options::bare_hub()).await?;
    let eu = json!({ "apiVersion": "kubermatic.k8c.io/v1", "kind": "Seed", "metadata": { "name": "eu", "namespace": "default" } });
    apply::all(&world.hub().await?, &[foreign::of_seed(), vec![eu]].concat()).await?;
    Ok(world)
}

/// A user cluster that runs, and what plays its controller.
pub struct User {
    pub world: World,
    hub: Client,
    pub id: String,
}

impl User {
    pub async fn new(name: &str) -> Result<Self> {
        let world = seed().await?;
        let hub = world.hub().await?;
        let id = format!("{name}-{:06x}", rand::random::<u32>() >> 8);
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": format!("cluster-{id}") } });
        let cluster = json!({
            "apiVersion": "kubermatic.k8c.io/v1", "kind": "Cluster",
            "metadata": { "name": id, "labels": { "project-id": "p", "test": id } },
            "spec": {
                "humanReadableName": format!("shop-of-{id}"), "version": "1.34.1", "cloud": { "dc": "eu", "providerName": "aws" },
            },
        });
        apply::all(&hub, &[namespace, cluster]).await?;
        let user = Self { world, hub, id };
        user.status(json!({ "phase": "Running", "namespaceName": format!("cluster-{}", user.id) })).await?;
        Ok(user)
    }

    fn clusters(&self) -> Api<Cluster> {
        Api::all(self.hub.clone())
    }

    async fn get(&self) -> Result<Cluster> {
        Ok(self.clusters().get(&self.id).await?)
    }

    pub async fn annotation(&self, key: &str) -> Result<Option<String>> {
        Ok(self.get().await?.annotations().get(key).cloned())
    }

    pub async fn annotate(&self, annotations: Value) -> Result<()> {
        let patch = json!({ "metadata": { "annotations": annotations } });
        self.clusters().patch(&self.id, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    async fn status(&self, status: Value) -> Result<()> {
        let patch = json!({ "status": status });
        self.clusters().patch_status(&self.id, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// The condition of a phase; none for a cluster that is awake.
    pub async fn phase(&self, phase: Option<(Phase, &str)>) -> Result<()> {
        let Some((phase, message)) = phase else {
            return self.status(json!({ "conditions": { keys::DEHYDRATED: null, STATE: null } })).await;
        };
        let status = if phase == Phase::Dehydrated { "True" } else { "False" }.to_owned();
        let (reason, message) = (Some(phase.to_string()), Some(message.to_owned()));
        let words = written(Condition { status, reason, message, ..Condition::default() });
        let state = written(State::entered(phase).condition(&words.last_heartbeat_time));
        self.status(json!({ "conditions": { keys::DEHYDRATED: words, STATE: state } })).await
    }

    /// Answers the preflight that is requested while something else is done.
    pub async fn answering<T>(&self, findings: &[Finding], work: impl Future<Output = Result<T>>) -> Result<T> {
        let answer = async {
            let mut answered = None;
            loop {
                let requested = self.annotation(common::PREFLIGHT_REQUESTED_AT).await?;
                if let Some(requested) = requested.filter(|requested| answered.as_ref() != Some(requested)) {
                    let answer = written(answer(&requested, findings).condition());
                    self.status(json!({ "conditions": { PREFLIGHT: answer } })).await?;
                    answered = Some(requested);
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::select! {
            done = work => done,
            failed = answer => failed,
        }
    }

    /// Runs the plugin by a line whose words have no spaces; `IT` is the cluster.
    pub async fn run(&self, line: &str) -> Result<Ran> {
        let target = self.target();
        let words = line.split(' ').map(|word| if word == "IT" { target.as_str() } else { word });
        self.world.plugin(&words.collect::<Vec<_>>()).await
    }

    pub fn target(&self) -> String {
        format!("cluster/{}", self.id)
    }

    /// Writes the record of a sleep as the controller does.
    pub async fn record(&self, text: &str) -> Result<()> {
        let (name, key) = keys::RECORD;
        let record = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": { key: text },
            "metadata": { "name": name, "namespace": format!("cluster-{}", self.id) },
        });
        apply::all(&self.hub, &[record]).await
    }

    /// The record of a sleep of this cluster.
    pub async fn record_of_sleep(&self) -> Result<()> {
        let (cluster, now) = (self.get().await?, Timestamp::now());
        let mut record = Record::begin(cluster.uid(), now).enter(Phase::Dehydrated, now);
        record.numbers = Numbers { volumes: 3, load_balancers: 2, machines: 5 };
        record.note_machines("kube-system/a", Machines { replicas: 5, ..Machines::default() });
        self.record(&record.text()).await
    }

    pub async fn record_annotation(&self, key: &str) -> Result<Option<String>> {
        let records: Api<ConfigMap> = Api::namespaced(self.hub.clone(), &format!("cluster-{}", self.id));
        Ok(records.get(keys::RECORD.0).await?.annotations().get(key).cloned())
    }

    pub async fn json(&self) -> Result<Value> {
        Ok(self.run("status IT -o json").await?.json()?["items"][0].clone())
    }
}

/// A condition as KKP's schema requires it.
fn written(condition: Condition) -> Condition {
    let now = format::seconds(Timestamp::now());
    Condition {
        kubermatic_version: "v2.30.0".to_owned(),
        last_heartbeat_time: now.clone(),
        last_transition_time: Some(now),
        ..condition
    }
}

fn answer(requested: &str, findings: &[Finding]) -> Preflight {
    Preflight {
        requested: requested.to_owned(),
        at: Timestamp::now(),
        findings: findings.to_vec(),
        left_out: 0,
        pods: 7,
        numbers: Numbers { volumes: 3, load_balancers: 2, machines: 5 },
        machine_deployments: [("kube-system/a".to_owned(), 3), ("kube-system/b".to_owned(), 2)].into(),
        quota: [("cpu".to_owned(), "8".to_owned())].into(),
    }
}
