//! A wake at every step of a sleep, and a sleep at every step of a wake.

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use testbed::World;
use testbed::openstack::OpenStack;
use testbed::world::handle::Cluster;

use crate::openstack::{SOON, clean, cluster, likeness, observed, record, world};

/// Clusters at once.
const MAX_IN_FLIGHT: usize = 6;

/// The steps of a sleep, by what they leave behind, and of how many servers.
const SLEEP_STEPS: [(&str, usize); 6] =
    [("recorded", 1), ("PAUSED", 1), ("imaged", 2), ("sealed", 1), ("given up", 1), ("deleted", 2)];
/// The steps of a wake.
const WAKE_STEPS: [(&str, usize); 5] = [("attempted", 1), ("created", 2), ("ACTIVE", 1), ("unmarked", 1), ("clean", 1)];

struct Subject<'a> {
    world: &'a World,
    size: usize,
    cluster: Cluster,
    openstack: OpenStack,
}

impl Subject<'_> {
    async fn record(&self) -> Result<Value> {
        let Some(secret) = record(self.world, &self.cluster).await? else { return Ok(Value::Null) };
        let data = secret.data.unwrap_or_default();
        Ok(serde_json::from_slice(&data.get("hibernation").context("key hibernation")?.0)?)
    }

    /// Whether a cluster has come as far as a step, or further.
    async fn is_at(&self, step: &str) -> Result<bool> {
        let infra_id = &self.cluster.info().infra_id;
        let machine = async |key: &str, value: Value| {
            let record = self.record().await?;
            let machines = record["machines"].as_object().map(|machines| machines.values().cloned().collect());
            let machines: Vec<Value> = machines.unwrap_or_default();
            anyhow::Ok(
                machines.iter().any(|machine| machine[key] == value || value.is_null() && !machine[key].is_null()),
            )
        };
        Ok(match step {
            "recorded" => !self.record().await?.is_null(),
            "imaged" => !self.openstack.images(infra_id).await?.is_empty(),
            "sealed" => self.record().await?["sealed"] == true,
            "given up" => machine("givenUp", json!(true)).await?,
            "attempted" => machine("started", Value::Null).await?,
            "clean" => self.record().await?.is_null(),
            _ => {
                let servers = self.openstack.servers(infra_id).await?;
                let marked =
                    servers.iter().filter(|server| !server["metadata"]["hibernate.sh:cycle"].is_null()).count();
                match step {
                    "deleted" => servers.len() < self.size,
                    "created" => marked > 0,
                    "ACTIVE" => servers.iter().any(|server| server["status"] == "ACTIVE"),
                    "unmarked" => servers.len() == self.size && marked < self.size,
                    status => servers.iter().any(|server| server["status"] == status),
                }
            }
        })
    }

    /// Asks for a state, and waits until the cluster has come as far as a step.
    async fn request(&self, state: &str, step: &str) -> Result<()> {
        self.cluster.request(state).await?;
        observed(step, async || {
            ensure!(self.is_at(step).await?);
            Ok(())
        })
        .await
    }

    async fn reach(&self, state: &str) -> Result<()> {
        self.cluster.request(state).await?;
        self.cluster.wait_for_power_state(state, SOON).await.map(drop)
    }
}

/// A cluster whose owner asks for something else at this step of its sleep or of its wake, and then lets it go on: it is
/// as it was.
async fn changes_its_mind(world: &World, number: usize, (step, size): (&str, usize), is_asleep: bool) -> Result<()> {
    let (cluster, openstack) = cluster(world, &format!("mind-{number}"), size).await?;
    let infra_id = cluster.info().infra_id.clone();
    let before = likeness(&openstack, &infra_id).await?;
    let subject = Subject { world, size, cluster, openstack };
    if is_asleep {
        subject.request("Hibernating", step).await?;
    } else {
        subject.reach("Hibernating").await?;
        subject.request("Running", step).await?;
        subject.reach("Hibernating").await?;
        observed("one image of each server", async || {
            let images = subject.openstack.images(&infra_id).await?;
            ensure!(images.len() == size, "{images:?}");
            Ok(())
        })
        .await?;
    }
    subject.reach("Running").await?;
    clean(world, &subject.cluster, &subject.openstack).await?;
    let after = likeness(&subject.openstack, &infra_id).await?;
    ensure!(before == after, "before:\n{:#}\nafter:\n{:#}", json!(before), json!(after));
    Ok(())
}

/// Side by side: most of their time is the 90 s in which a request may still arrive.
#[tokio::test]
async fn a_mind_may_change_at_any_step() -> Result<()> {
    let world = world().await?;
    let steps = SLEEP_STEPS.map(|step| (step, true)).into_iter().chain(WAKE_STEPS.map(|step| (step, false)));
    let subjects = steps.enumerate().map(|(number, (step, is_asleep))| {
        let world = &world;
        async move {
            let what =
                format!("a mind that changes {:?} {}", step.0, if is_asleep { "to a wake" } else { "to a sleep" });
            changes_its_mind(world, number, step, is_asleep).await.context(what)
        }
    });
    stream::iter(subjects).buffer_unordered(MAX_IN_FLIGHT).try_collect().await
}
