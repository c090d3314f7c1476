//! How soon the controller reacts, seen by a watch of the hub.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::TryStreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::json;
use shared::annotation::keys;
use shared::annotation::mark::Mark;
use shared::hive::api::ClusterDeployment;
use shared::rollout::api::PowerRollout;
use shared::rollout::status::RolloutPhase;
use testbed::bench::table::Table;
use testbed::ec2::Fault;
use testbed::supervisor::programs::Start;
use testbed::{Program, World, ensure_that, eventually};
use tokio::time::{Instant, sleep};

use crate::pairs::plain;

const WINDOW: usize = 5;
const SOON: Duration = Duration::from_mins(2);

/// Measures each reaction once.
pub async fn run(table: &mut Table) -> Result<()> {
    let (world, clusters) = crate::accounts(2, 2).await?;
    let seen = Seen::follow(&world).await?;

    let name = crate::create(&world, "Hibernate", WINDOW).await?;
    until(&world, &name, RolloutPhase::Succeeded).await?;
    let delays = seen.refills(&uid(&world, &name).await?, "Hibernating");
    table.add("reactions", "slot filled, s, median", None, None, delays[delays.len() / 2]);
    table.add("reactions", "slot filled, s, worst", None, Some(1.0), delays[delays.len() - 1]);

    for (field, phase) in [("paused", RolloutPhase::Paused), ("abort", RolloutPhase::Aborted)] {
        plain(&world, &clusters, "Running").await?;
        let name = crate::create(&world, "Hibernate", WINDOW).await?;
        seen.until_starts(&uid(&world, &name).await?, 20).await?;
        set(&world, &name, field).await?;
        let asked = Instant::now();
        until(&world, &name, phase).await?;
        sleep(Duration::from_secs(10)).await;
        let last = seen.last_start(&uid(&world, &name).await?)?;
        let what = if field == "abort" { "last start after an abort, s" } else { "last start after a pause, s" };
        table.add("reactions", what, None, Some(1.0), last.saturating_duration_since(asked).as_secs_f64());
        set(&world, &name, "abort").await?;
    }

    plain(&world, &clusters, "Running").await?;
    let victim = clusters.last().context("no clusters")?;
    let id = victim.instances().await?[0].id.clone();
    let fault = Fault { instance: Some(id), ..Fault::error("StopInstances", "UnauthorizedOperation", 403) };
    let fault = world.ec2().inject(&fault).await?;
    let name = crate::create(&world, "Hibernate", 100).await?;
    let failed = seen.until_state(victim.name(), "FailedToStop").await?;
    until(&world, &name, RolloutPhase::Halted).await?;
    table.add("reactions", "halted after a failure, s", None, Some(1.0), failed.elapsed().as_secs_f64());
    world.ec2().heal(Some(&fault.id)).await?;
    set(&world, &name, "abort").await?;

    plain(&world, &clusters, "Running").await?;
    let name = crate::create(&world, "Hibernate", WINDOW).await?;
    let ours = uid(&world, &name).await?;
    seen.until_starts(&ours, 20).await?;
    world.signal("controller", "kill").await?;
    let leases: Api<Lease> = Api::namespaced(world.hub().await?, keys::NAMESPACE);
    let holder =
        async || anyhow::Ok(leases.get("hibernate-controller").await?.spec.and_then(|spec| spec.holder_identity));
    let dead = holder().await?;
    world.start(&Start { identity: Some("next".to_owned()), ..Start::new(Program::Controller) }).await?;
    eventually(SOON, "new leader", async || ensure_that(holder().await?, |now| *now != dead)).await?;
    let (led, starts) = (Instant::now(), seen.starts(&ours).len());
    seen.until_starts(&ours, starts + 1).await?;
    table.add("reactions", "next start after a takeover, s", None, Some(10.0), led.elapsed().as_secs_f64());
    until(&world, &name, RolloutPhase::Succeeded).await?;
    let twice = seen.starts(&ours).len().saturating_sub(clusters.len());
    table.add("reactions", "targets started twice", None, Some(0.0), testbed::bench::meter::count(twice));
    Ok(())
}

async fn uid(world: &World, name: &str) -> Result<String> {
    let api: Api<PowerRollout> = Api::all(world.hub().await?);
    api.get(name).await?.uid().context("a UID")
}

async fn set(world: &World, name: &str, field: &str) -> Result<()> {
    let api: Api<PowerRollout> = Api::all(world.hub().await?);
    api.patch(name, &PatchParams::default(), &Patch::Merge(json!({ "spec": { field: true } }))).await?;
    Ok(())
}

async fn until(world: &World, name: &str, phase: RolloutPhase) -> Result<()> {
    let api: Api<PowerRollout> = Api::all(world.hub().await?);
    eventually(SOON, &phase.to_string(), async || {
        ensure_that(api.get(name).await?.status.unwrap_or_default(), |found| found.phase == Some(phase))
    })
    .await
}

/// What a watch has seen, and when.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Log>>);

#[derive(Default)]
struct Log {
    /// Claims by the rollout's UID.
    starts: BTreeMap<String, Vec<Instant>>,
    claims: BTreeSet<(String, String, String)>,
    /// When each cluster reached a power state last.
    reached: BTreeMap<String, (String, Instant)>,
}

impl Seen {
    async fn follow(world: &World) -> Result<Self> {
        let seen = Self::default();
        let api: Api<ClusterDeployment> = Api::all(world.hub().await?);
        let log = seen.clone();
        tokio::spawn(async move {
            let events = watcher(api, watcher::Config::default()).default_backoff().applied_objects();
            events
                .try_for_each(async |cluster| {
                    log.note(&cluster);
                    Ok(())
                })
                .await
        });
        Ok(seen)
    }

    fn log(&self) -> std::sync::MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, cluster: &ClusterDeployment) {
        let (mut log, now, name) = (self.log(), Instant::now(), cluster.name_any());
        let state = cluster.power_state().to_owned();
        if log.reached.get(&name).is_none_or(|(known, _)| *known != state) {
            log.reached.insert(name.clone(), (state, now));
        }
        let mark = cluster.annotations().get(keys::ROLLOUT).and_then(|text| Mark::parse(text));
        if let Some(mark) = mark
            && log.claims.insert((mark.uid.clone(), name, mark.since.clone()))
        {
            log.starts.entry(mark.uid).or_default().push(now);
        }
    }

    fn starts(&self, uid: &str) -> Vec<Instant> {
        self.log().starts.get(uid).cloned().unwrap_or_default()
    }

    fn last_start(&self, uid: &str) -> Result<Instant> {
        self.starts(uid).last().copied().context("no starts")
    }

    async fn until_starts(&self, uid: &str, count: usize) -> Result<()> {
        eventually(SOON, "starts", async || ensure_that(self.starts(uid).len(), |starts| *starts >= count)).await
    }

    /// Seconds from the end of a target to the start that took its slot, in ascending order.
    fn refills(&self, uid: &str, state: &str) -> Vec<f64> {
        let starts = self.starts(uid);
        let mut ends: Vec<Instant> =
            self.log().reached.values().filter(|(found, _)| found == state).map(|(_, at)| *at).collect();
        ends.sort_unstable();
        let refills = starts.iter().skip(WINDOW).zip(ends);
        let mut all: Vec<f64> =
            refills.map(|(start, end)| start.saturating_duration_since(end).as_secs_f64()).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    /// When the cluster reached this power state.
    async fn until_state(&self, name: &str, state: &str) -> Result<Instant> {
        eventually(SOON, state, async || {
            let found = self.log().reached.get(name).filter(|(found, _)| found == state).map(|(_, at)| *at);
            found.context("another state")
        })
        .await
    }
}
