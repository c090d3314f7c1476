//! Of a fleet that sleeps and wakes at once some instances refuse. The clusters that are well do not notice, the others
//! say which instance it is and why, and get there once they are healed. In a world of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use kube::Api;
use kube::api::ListParams;
use shared::hive::api::{ClusterDeployment, RESUME_SKIPS_CLUSTER_OPERATORS};
use testbed::ec2::{Call, Fault};
use testbed::world::handle::Cluster;
use testbed::{ClusterOptions, Options, Program, Timings, World};

const SIZE: usize = 3;
const LONG: Duration = Duration::from_secs(90);
/// After a cure the next try comes within 20 s, and then the machines move.
const CURED: Duration = Duration::from_secs(40);

/// An instance, and what EC2 answers to its stop or start.
struct Patient {
    cluster: Cluster,
    instance: String,
}

struct Fleet {
    world: World,
    all: Vec<Cluster>,
    /// A third each will be protected, throttled, and without room.
    patients: Vec<Patient>,
    api: Api<ClusterDeployment>,
}

impl Fleet {
    /// So many clusters, of so many of which one instance refuses.
    async fn new(clusters: usize, ill: usize) -> Result<Self> {
        let apart = clusters / ill;
        let throttled =
            |number: usize| number.is_multiple_of(apart) && (ill / 3..2 * ill / 3).contains(&(number / apart));
        let world = World::up(Options {
            clusters: 0,
            without: vec![Program::Webhook],
            timings: Timings::fast(),
            ..Options::default()
        })
        .await?;
        let all: Vec<Cluster> = stream::iter(0..clusters)
            .map(async |number| {
                let labels = BTreeMap::from([(RESUME_SKIPS_CLUSTER_OPERATORS.to_owned(), "true".to_owned())]);
                // EC2 throttles accounts: those that will be throttled have one of their own.
                let own_account = throttled(number);
                let options = ClusterOptions { labels, own_account, ..ClusterOptions::of_size(SIZE) };
                world.cluster(&format!("ship-{number}"), options).await
            })
            .buffered(8)
            .try_collect()
            .await?;
        let mut patients = Vec::new();
        for cluster in all.iter().step_by(apart).take(ill) {
            let instance = cluster.instances().await?.swap_remove(1).id;
            patients.push(Patient { cluster: cluster.clone(), instance });
        }
        let api = Api::all(world.hub().await?);
        Ok(Self { world, all, patients, api })
    }

    async fn turn(&self, asleep: bool) -> Result<Instant> {
        self.world.ec2().reset_calls().await?;
        let begun = Instant::now();
        stream::iter(&self.all)
            .map(async |cluster| if asleep { cluster.sleep().await } else { cluster.wake().await })
            .buffer_unordered(16)
            .try_collect::<Vec<_>>()
            .await?;
        Ok(begun)
    }

    /// Waits until all clusters but `without` are there, and says how long the slowest took.
    async fn arrived(&self, asleep: bool, without: &[Patient], begun: Instant, within: Duration) -> Result<Duration> {
        let end = if asleep { "Hibernating" } else { "Running" };
        let ill: BTreeSet<&str> = without.iter().map(|patient| patient.cluster.namespace()).collect();
        loop {
            let found = self.api.list(&ListParams::default()).await?;
            ensure!(found.items.len() == self.all.len(), "{} clusters", found.items.len());
            let namespace = |cluster: &ClusterDeployment| cluster.metadata.namespace.clone().unwrap_or_default();
            let late = found.iter().filter(|c| c.power_state() != end && !ill.contains(namespace(c).as_str()));
            let late: Vec<_> = late.map(|c| (namespace(c), c.power_state().to_owned())).collect();
            if late.is_empty() {
                return Ok(begun.elapsed());
            }
            ensure!(begun.elapsed() < within, "not {end} within {within:?}: {late:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Each instance is moved once, and none the wrong way.
    async fn check(&self, asleep: bool) -> Result<()> {
        let calls: Vec<Call> = self.world.ec2().calls().await?;
        testbed::ec2::check::moved_once(&calls, asleep, self.all.len() * SIZE)
    }
}

/// Somewhere in its conditions both words stand.
async fn says(patient: &Patient, cause: &str) -> Result<()> {
    let words = |cluster: &ClusterDeployment| {
        let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
        conditions.filter_map(|condition| condition.message.clone()).collect::<Vec<_>>().join("\n")
    };
    let wanted = |found: &ClusterDeployment| words(found).contains(&patient.instance) && words(found).contains(cause);
    let what = format!("{} and {cause} in the status", patient.instance);
    patient.cluster.wait_for(&what, Duration::from_secs(30), wanted).await.map(drop)
}

/// As long as without the faults, give or take what a busy machine does, and what EC2's own limit takes: a call that is
/// refused for one instance is split, and 2 `StartInstances` a second are admitted after the first 5.
fn about_as_fast(with: Duration, without: Duration, calls: usize, what: &str) -> Result<()> {
    eprintln!("{what}: {without:?} without faults, {with:?} with them and {calls} calls");
    let admitted = Duration::from_millis(500 * u64::try_from(calls.saturating_sub(5))?);
    ensure!(with <= 2 * without + admitted + Duration::from_secs(5), "{what}: {with:?} instead of {without:?}");
    Ok(())
}

#[tokio::test]
async fn a_few_that_refuse_hold_nobody_up() -> Result<()> {
    refuse(20, 3).await
}

#[tokio::test]
#[ignore = "takes minutes: for measurements"]
async fn a_few_of_a_hundred_that_refuse_hold_nobody_up() -> Result<()> {
    refuse(100, 15).await
}

/// Both times 5% of the instances refuse.
async fn refuse(clusters: usize, ill: usize) -> Result<()> {
    let fleet = Fleet::new(clusters, ill).await?;
    let begun = Instant::now();
    fleet.arrived(false, &[], begun, LONG).await.context("before anything")?;
    let mut undisturbed = Vec::new();
    for asleep in [true, false] {
        let begun = fleet.turn(asleep).await?;
        undisturbed.push(fleet.arrived(asleep, &[], begun, LONG).await?);
        fleet.check(asleep).await?;
    }

    let ec2 = fleet.world.ec2();
    let (one, two) = (ill / 3, 2 * ill / 3);
    let (protected, throttled, full) = (&fleet.patients[..one], &fleet.patients[one..two], &fleet.patients[two..]);
    for patient in protected {
        ec2.protect(&patient.instance, true).await?;
    }
    for (patients, action, code, status) in [
        (throttled, "StopInstances", "RequestLimitExceeded", 503),
        (throttled, "StartInstances", "RequestLimitExceeded", 503),
        (full, "StartInstances", "InsufficientInstanceCapacity", 500),
    ] {
        for patient in patients {
            let fault = Fault::error(action, code, status);
            let fault = if code == "RequestLimitExceeded" {
                Fault { access_key: Some(patient.cluster.info().access_key_id.clone()), ..fault }
            } else {
                Fault { instance: Some(patient.instance.clone()), ..fault }
            };
            ec2.inject(&fault).await?;
        }
    }

    let begun = fleet.turn(true).await?;
    let healthy = fleet.arrived(true, &fleet.patients[..two], begun, LONG).await?;
    about_as_fast(healthy, undisturbed[0], 0, "falling asleep")?;
    for (patients, cause) in [(protected, "OperationNotPermitted"), (throttled, "RequestLimitExceeded")] {
        for patient in patients {
            says(patient, cause).await?;
        }
    }
    for patient in protected {
        ec2.protect(&patient.instance, false).await?;
    }
    heal(&fleet, "StopInstances").await?;
    fleet.arrived(true, &[], Instant::now(), CURED).await.context("after the cure")?;
    fleet.check(true).await?;

    let begun = fleet.turn(false).await?;
    let healthy = fleet.arrived(false, &fleet.patients[one..], begun, LONG).await?;
    // The throttled have accounts of their own.
    let own: BTreeSet<&str> = throttled.iter().map(|one| one.cluster.info().access_key_id.as_str()).collect();
    let calls: Vec<Call> = ec2.calls().await?;
    let shared = calls.iter().filter(|call| call.action == "StartInstances" && !own.contains(call.access_key.as_str()));
    let shared = shared.count();
    about_as_fast(healthy, undisturbed[1], shared, "waking")?;
    ensure!(shared < clusters, "{shared} calls for {clusters} clusters");
    for (patients, cause) in [(throttled, "RequestLimitExceeded"), (full, "InsufficientInstanceCapacity")] {
        for patient in patients {
            says(patient, cause).await?;
        }
    }
    heal(&fleet, "StartInstances").await?;
    fleet.arrived(false, &[], Instant::now(), CURED).await.context("after the cure")?;
    fleet.check(false).await
}

/// Ends the faults of one action.
async fn heal(fleet: &Fleet, action: &str) -> Result<()> {
    let ec2 = fleet.world.ec2();
    for fault in ec2.faults().await?.iter().filter(|fault| fault.action.as_deref() == Some(action)) {
        ec2.heal(Some(&fault.id)).await?;
    }
    Ok(())
}
