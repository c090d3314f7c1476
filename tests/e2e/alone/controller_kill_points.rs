//! The controller is killed before it does anything, and right after each thing that it changes, point by point, and
//! the next one finishes what it began. In a world of its own.
//!
//! What it changes is seen from outside: stops and starts in EC2's log, versions of the object in a watch. A kill after
//! a call that only reads finds what the kill before it found. Each call and each write is held up for [`APART`] on its
//! way, so that two of them are never closer together than that, and the kill falls between them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use shared::hive::api::{ClusterDeployment, RESUME_SKIPS_CLUSTER_OPERATORS};
use testbed::ec2::Fault;
use testbed::ec2::check::moved_once;
use testbed::proxy::faults::{Effect, Rule};
use testbed::supervisor::programs::Start;
use testbed::world::handle::Cluster;
use testbed::{ClusterOptions, Options, Program, Timings, World};
use tokio::task::JoinHandle;

const SOON: Duration = Duration::from_mins(1);
const SIZE: usize = 2;
const APART: Duration = Duration::from_millis(250);

/// Without faults, a sleep takes 6 EC2 calls and 3 writes, a wake 8 and 5. A new controller lists once more, and writes
/// once more if the dead one had not.
const CALLS: usize = 12;
const WRITES: usize = 8;

fn start() -> Start {
    Start::new(Program::Controller)
}

/// What a watch of the object has seen: versions, each with its power state.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<(u64, String)>>>);

impl Seen {
    fn after(&self, base: u64) -> Vec<String> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().filter(|(version, _)| *version > base).map(|(_, state)| state.clone()).collect()
    }

    async fn follow(self, world: &World, cluster: &Cluster) -> Result<JoinHandle<()>> {
        let api: Api<ClusterDeployment> = Api::namespaced(world.hub().await?, cluster.namespace());
        Ok(tokio::spawn(async move {
            let mut events = watcher(api, watcher::Config::default()).boxed();
            while let Some(event) = events.next().await {
                if let Ok(Event::Apply(found)) = event {
                    let state = found.power_state().to_owned();
                    self.0.lock().unwrap_or_else(PoisonError::into_inner).push((version(&found), state));
                }
            }
        }))
    }
}

fn version(cluster: &ClusterDeployment) -> u64 {
    cluster.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default()
}

/// One sleep or wake, with a kill after the `point`-th effect. Answers how many there were at the kill, if there were
/// so many.
async fn pass(world: &World, cluster: &Cluster, seen: &Seen, asleep: bool, point: usize) -> Result<Option<usize>> {
    let (end, state) = if asleep { ("Hibernating", "stopped") } else { ("Running", "running") };
    world.ec2().reset_calls().await?;
    let base = version(&if asleep { cluster.sleep().await? } else { cluster.wake().await? });
    let begun = Instant::now();
    let mut killed = None;
    loop {
        let (calls, written) = (world.ec2().calls().await?, seen.after(base));
        let effects = calls.iter().filter(|call| !call.moved.is_empty()).count() + written.len();
        if killed.is_none() && effects >= point {
            world.signal("controller", "kill").await?;
            world.start(&start()).await?;
            killed = Some(effects);
        } else if written.last().is_some_and(|state| state == end) {
            break;
        }
        ensure!(begun.elapsed() < SOON, "point {point}: not {end} after {effects} effects, {written:?}");
        tokio::time::sleep(APART / 10).await;
    }
    if killed.is_some() {
        tokio::time::sleep(Duration::from_secs(1)).await; // the new one has listed once
    }
    let (calls, written) = (world.ec2().calls().await?, seen.after(base));
    let what = || format!("{end}, killed after effect {point}: {written:?}");
    ensure!(cluster.states().await? == BTreeMap::from([(state.to_owned(), SIZE)]), "{}", what());
    moved_once(&calls, asleep, SIZE).with_context(what)?;
    ensure!(calls.len() <= CALLS && written.len() <= WRITES, "{}, {} calls: {calls:#?}", what(), calls.len());
    eprintln!("{end}, {point}: {} calls, {} writes, {:?}", calls.len(), written.len(), begun.elapsed());
    Ok(killed)
}

#[tokio::test]
async fn killed_after_any_single_action_it_converges() -> Result<()> {
    let world = World::up(Options {
        clusters: 0,
        hub_proxy: true,
        without: vec![Program::Controller, Program::Webhook],
        timings: Timings::fast(),
        ..Options::default()
    })
    .await?;
    let labels = BTreeMap::from([(RESUME_SKIPS_CLUSTER_OPERATORS.to_owned(), "true".to_owned())]);
    let cluster = world.cluster("ninelives", ClusterOptions { labels, ..ClusterOptions::of_size(SIZE) }).await?;
    world.start(&start()).await?;
    cluster.wait_for_power_state("Running", SOON).await?;
    let millis = u64::try_from(APART.as_millis())?;
    let path = format!("/apis/hive.openshift.io/v1/namespaces/{}/", cluster.namespace());
    world.inject("hub", &Rule::new(Effect::Delay { millis }).method("PATCH").path(&path)).await?;
    world.ec2().inject(&Fault { delay: APART.as_secs_f64(), ..Fault::default() }).await?;
    let seen = Seen::default();
    let watch = seen.clone().follow(&world, &cluster).await?;

    let (mut point, mut late) = (0, 0);
    loop {
        let slept = pass(&world, &cluster, &seen, true, point).await?;
        let woke = pass(&world, &cluster, &seen, false, point).await?;
        match slept.max(woke) {
            None => break,
            Some(at) if at == point => point += 1,
            // A busy machine has let the controller get further than this point: once more.
            Some(_) => late += 1,
        }
        ensure!(late <= 10, "the kills come too late");
    }
    watch.abort();
    let log = std::fs::read_to_string(world.dir().join("logs/controller.log"))?;
    ensure!(log.contains("the last process ended while it worked on these targets"), "no mark was found after a kill");
    // A sleep: a stop and two writes at least; a wake one write more.
    ensure!(point > 4, "only {point} points");
    Ok(())
}
