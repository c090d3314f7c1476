//! A fleet of small clusters with a label of its own, and rollouts over it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use shared::annotation::keys;
use shared::annotation::mark::{Mark, Outcome};
use shared::rollout::api::PowerRollout;
use shared::rollout::status::{PowerRolloutStatus, RolloutPhase};
use testbed::supervisor::programs::Start;
use testbed::{Cluster, ClusterOptions, Options, Program, Timings, World, ensure_that, eventually};
use tokio::time::Instant;

use crate::match_writes::merge;

pub const SOON: Duration = Duration::from_mins(1);

/// The controller with a short lease: the next one waits for the dead one's to run out.
pub fn controller() -> Start {
    Start::new(Program::Controller).leased(["3s", "2s", "500ms"])
}

/// A world whose controller a test starts, and ends.
pub async fn restarted() -> Result<World> {
    World::up(Options {
        clusters: 0,
        hub_proxy: true,
        without: vec![Program::Controller],
        timings: Timings { ec2_start: "1s".parse()?, ec2_stop: "1s".parse()?, ..Timings::fast() },
        ..Options::default()
    })
    .await
}

/// Clusters that one selector selects.
pub struct Fleet<'a> {
    world: &'a World,
    word: String,
    clusters: BTreeMap<String, Cluster>,
}

impl<'a> Fleet<'a> {
    /// Makes clusters named `word-name`, and waits until they are in their states.
    pub async fn new(world: &'a World, word: &str, clusters: &[(&str, ClusterOptions)]) -> Result<Self> {
        let word = format!("{word}-{:04x}", rand::random::<u16>());
        let mut fleet = Self { world, word, clusters: BTreeMap::new() };
        for (name, options) in clusters {
            let mut options = options.clone();
            options.labels.insert("fleet".to_owned(), fleet.word.clone());
            options.labels.insert("role".to_owned(), (*name).to_owned());
            let cluster = world.cluster(&format!("{}-{name}", fleet.word), options).await?;
            fleet.clusters.insert((*name).to_owned(), cluster);
        }
        for ((_, options), cluster) in clusters.iter().zip(clusters.iter().map(|(name, _)| fleet.get(name))) {
            let pauses = options.annotations.keys().any(|key| key.ends_with("-pause"));
            let is_whole = options.patch.pointer("/spec/installed") != Some(&json!(false))
                && ["/spec/clusterMetadata", "/spec/platform"].iter().all(|part| options.patch.pointer(part).is_none());
            if !pauses && is_whole {
                let state = if options.awake() { "Running" } else { "Hibernating" };
                cluster.wait_for_power_state(state, SOON).await?;
            }
        }
        Ok(fleet)
    }

    /// So many clusters of one instance.
    pub async fn of(world: &'a World, word: &str, names: &[&str]) -> Result<Self> {
        let clusters: Vec<(&str, ClusterOptions)> =
            names.iter().map(|name| (*name, ClusterOptions::of_size(1))).collect();
        Self::new(world, word, &clusters).await
    }

    pub fn get(&self, name: &str) -> &Cluster {
        &self.clusters[name]
    }

    /// Its claim or record.
    pub async fn mark(&self, name: &str) -> Result<Option<Mark>> {
        let found = self.get(name).get().await?;
        Ok(found.annotations().get(keys::ROLLOUT).and_then(|text| Mark::parse(text)))
    }

    /// Waits until its claim has ended like this.
    pub async fn until_ended(&self, name: &str, result: Outcome) -> Result<()> {
        eventually(SOON, "the end of the claim", async || {
            let ended = self.mark(name).await?.and_then(|mark| mark.ended);
            ensure_that(ended, |ended| ended.as_ref().is_some_and(|ended| ended.result == result))
        })
        .await
    }

    /// Every target has one record, of one attempt, and its machine was moved by one call.
    pub async fn each_was_started_once(&self, call: &str) -> Result<()> {
        let calls = self.world.ec2().calls().await?;
        for (name, cluster) in &self.clusters {
            let mark = self.mark(name).await?.context("a mark")?;
            ensure!(mark.attempt == 0 && mark.ended.is_some_and(|ended| ended.result == Outcome::Succeeded), "{name}");
            let id = cluster.instances().await?[0].id.clone();
            let moved = calls.iter().filter(|one| one.action == call && one.moved.contains(&id));
            ensure!(moved.count() == 1, "{name}: {call} of {id} not once");
        }
        Ok(())
    }

    pub fn reference(&self, name: &str) -> Value {
        let cluster = self.get(name);
        json!({ "namespace": cluster.namespace(), "name": cluster.name() })
    }

    /// The groups of a rollout whose one canary is this cluster: it starts first.
    pub fn canary(&self, name: &str) -> Value {
        json!([{ "name": "canary", "names": [self.reference(name)] }])
    }

    /// Creates a rollout over the fleet, with these fields of its spec.
    pub async fn rollout(&self, action: &str, spec: Value) -> Result<Rollout> {
        let name = format!("{}-{:04x}", self.word, rand::random::<u16>());
        let mut object = json!({
            "apiVersion": "hibernate.sh/v1alpha1", "kind": "PowerRollout", "metadata": { "name": name },
            "spec": {
                "action": action, "maxTargets": 20, "notAfter": "2126-01-01T00:00:00Z", "minSuccessTime": "0s",
                "targets": { "selector": { "matchLabels": { "fleet": self.word } } },
            },
        });
        merge(&mut object, &json!({ "spec": spec }));
        let api: Api<PowerRollout> = Api::all(self.world.hub().await?);
        api.create(&PostParams::default(), &serde_json::from_value(object)?).await.context("create the rollout")?;
        Ok(Rollout { api, name })
    }

    /// Deletes one of them.
    pub async fn remove_one(&mut self, name: &str) -> Result<()> {
        self.clusters.remove(name).context("a cluster")?.remove().await
    }

    pub async fn remove(self) -> Result<()> {
        for cluster in self.clusters.into_values() {
            cluster.remove().await?;
        }
        Ok(())
    }
}

/// A rollout on the hub.
pub struct Rollout {
    pub api: Api<PowerRollout>,
    pub name: String,
}

impl Rollout {
    pub async fn get(&self) -> Result<PowerRollout> {
        Ok(self.api.get(&self.name).await?)
    }

    pub async fn set(&self, spec: Value) -> Result<PowerRollout> {
        let patch = Patch::Merge(json!({ "spec": spec }));
        Ok(self.api.patch(&self.name, &PatchParams::default(), &patch).await?)
    }

    pub async fn delete(&self) -> Result<()> {
        self.api.delete(&self.name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Waits until its status is as wanted.
    pub async fn until(&self, what: &str, wanted: impl Fn(&PowerRolloutStatus) -> bool) -> Result<PowerRolloutStatus> {
        let deadline = Instant::now() + 4 * SOON;
        loop {
            let status = self.get().await?.status.unwrap_or_default();
            if wanted(&status) {
                return Ok(status);
            }
            if Instant::now() > deadline {
                bail!("{}: no {what}: {status:#?}", self.name);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub async fn until_phase(&self, phase: RolloutPhase) -> Result<PowerRolloutStatus> {
        self.until(&phase.to_string(), |status| status.phase == Some(phase)).await
    }

    /// Waits until a target is in a state. The reason then.
    pub async fn until_target(&self, cluster: &Cluster, state: &str) -> Result<String> {
        let what = format!("{} {state}", cluster.name());
        let status = self.until(&what, |status| word(status, cluster).is_some_and(|(found, _)| found == state)).await?;
        Ok(word(&status, cluster).map(|(_, reason)| reason.to_owned()).unwrap_or_default())
    }
}

/// State and reason of a target in a status.
pub fn word<'s>(status: &'s PowerRolloutStatus, cluster: &Cluster) -> Option<(&'s str, &'s str)> {
    let found = status.targets.iter().find(|target| target.name == cluster.name());
    found.map(|target| (target.state.as_str(), target.reason.as_str()))
}
