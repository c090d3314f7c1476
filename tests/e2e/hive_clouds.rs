//! Hive's clusters on GCP, Azure and IBM Cloud, on simulators that speak the clouds' APIs and that the vendors' SDKs accept.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::ByteString;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use shared::annotation::keys;
use shared::hive::conditions::{HIBERNATING, READY};
use shared::spoke::kinds::MACHINE_NAMESPACE;
use testbed::cluster::machine::Machine;
use testbed::simulated::{Disks, LogEntry, PLATFORMS};
use testbed::supervisor::programs::Start;
use testbed::world::handle::Cluster;
use testbed::{ClusterOptions, Options, Platform, Program, Timings, World};

use crate::hive_common::{SOON, ledger_counts, message, says};

/// Long enough for twelve clusters whose controller dies again and again.
const LONG: Duration = Duration::from_mins(3);

async fn cluster(world: &World, platform: Platform, options: ClusterOptions) -> Result<Cluster> {
    let name: &str = platform.into();
    world.cluster(name, ClusterOptions { platform, ..options }).await
}

/// Each machine got one call each way.
async fn called_once(world: &World, cluster: &Cluster, platform: Platform) -> Result<()> {
    let simulated = world.simulated(platform)?;
    let calls = simulated.calls().await?;
    for machine in simulated.machines(&cluster.info().infra_id).await? {
        for verb in ["stop", "start"] {
            let of_machine = calls.iter().filter(|call| call.call == verb && call.machine == machine.name);
            ensure!(of_machine.count() == 1, "{verb} {}: {calls:?}", machine.name);
        }
    }
    Ok(())
}

/// Which controller made a call.
fn identity(call: &LogEntry) -> &str {
    call.agent.rsplit(' ').next().unwrap_or_default()
}

async fn machines(cluster: &Cluster) -> Result<BTreeMap<String, Option<String>>> {
    let machines: Api<Machine> = Api::namespaced(cluster.spoke().await?, MACHINE_NAMESPACE);
    let all = machines.list(&ListParams::default()).await?;
    Ok(all.iter().map(|machine| (machine.name_any(), machine.uid())).collect())
}

#[tokio::test]
async fn six_machines_of_each_cloud_sleep_and_wake_and_a_spot_machine_stays_the_same() -> Result<()> {
    let transitions = Timings { ec2_start: "5s".parse()?, ec2_stop: "5s".parse()?, ..Timings::fast() };
    let world = World::up(Options { clusters: 0, timings: transitions, ..Options::default() }).await?;
    try_join_all(PLATFORMS.map(async |platform| {
        let cluster =
            cluster(&world, platform, ClusterOptions { spot_workers: 1, ..ClusterOptions::of_size(6) }).await?;
        cluster.wait_for_power_state("Running", SOON).await?;
        let before = machines(&cluster).await?;
        ensure!(before.len() == 6, "{before:?}");
        for (verb, state) in [("sleep", "stopped"), ("resume", "running")] {
            let args = [cluster.name(), "-n", cluster.namespace(), "--wait"];
            let verb = if verb == "sleep" { &[][..] } else { &[verb][..] };
            let ran = world.plugin(&[verb, &args].concat()).await?;
            println!("{platform:?} {state}: {:.1} s", ran.duration.as_secs_f64());
            ran.ok()?;
            let states = cluster.states().await?;
            ensure!(states == BTreeMap::from([(state.to_owned(), 6)]), "{platform:?}: {states:?}");
            // The ledger counts whole seconds.
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        ensure!(machines(&cluster).await? == before, "a Machine was replaced on {platform:?}");
        called_once(&world, &cluster, platform).await?;
        let kind = match platform {
            Platform::Gcp => "e2-standard-4",
            Platform::Azure => "Standard_D4s_v5",
            _ => "bx2-4x16",
        };
        ledger_counts(&world, &cluster, 6, kind).await?;
        let calls = world.simulated(platform)?.calls().await?;
        let refused: Vec<_> = calls.iter().filter(|call| call.status >= 400).collect();
        ensure!(refused.is_empty(), "{platform:?}: {refused:?}");
        ensure!(calls.iter().all(|call| call.agent.starts_with("hibernate-controller/")), "{platform:?}");
        cluster.remove().await
    }))
    .await?;
    Ok(())
}

/// What a cloud accepts and gives up, and what is wrong with a Secret, stands in the status; both end by themselves.
#[tokio::test]
async fn a_start_without_capacity_and_a_wrong_secret_stand_in_the_status() -> Result<()> {
    let world = World::shared().await?;
    try_join_all(PLATFORMS.map(async |platform| {
        let cluster = cluster(&world, platform, ClusterOptions::of_size(2)).await?;
        cluster.wait_for_power_state("Running", SOON).await?;
        let secrets: Api<Secret> = Api::namespaced(world.hub().await?, cluster.namespace());
        let name = format!("{}-cloud-creds", cluster.name());
        let (key, wrong, words) = match platform {
            Platform::Gcp => {
                ("osServiceAccount.json", r#"{"type": "external_account"}"#, "has type \"external_account\"")
            }
            Platform::Azure => ("osServicePrincipal.json", r#"{"clientId": "hush"}"#, "has no subscriptionId"),
            _ => ("ibmcloud_api_key", "un known", "is not an API key"),
        };
        let good = secrets.get(&name).await?.data.and_then(|mut data| data.remove(key)).context("a key")?;
        let write = async |value: ByteString| {
            let patch = Patch::Merge(json!({"data": {key: value}}));
            secrets.patch(&name, &PatchParams::default(), &patch).await
        };
        write(ByteString(wrong.into())).await?;
        tokio::time::sleep(Duration::from_secs(16)).await; // as long as a Secret that worked is trusted
        cluster.sleep().await?;
        let found = says(&cluster, HIBERNATING, words).await?;
        let text = message(&found, HIBERNATING);
        ensure!(text.contains(&format!("Secret {}/{name}: {key}", cluster.namespace())), "{text}");
        ensure!(!text.contains("hush"), "{text}");
        write(good).await?;
        cluster.wait_for_power_state("Hibernating", SOON).await?;

        let simulated = world.simulated(platform)?;
        let machines = simulated.machines(&cluster.info().infra_id).await?;
        let worker = machines.iter().find(|machine| machine.name.contains("-worker-")).context("a worker")?;
        let code = match platform {
            Platform::Gcp => "ZONE_RESOURCE_POOL_EXHAUSTED",
            Platform::Azure => "AllocationFailed",
            _ => "cannot_start_capacity",
        };
        simulated.give_up(&worker.name, code, "no machines of this type here now").await?;
        cluster.wake().await?;
        let words = format!("{}: {code}: no machines of this type here now", worker.name);
        let failed = says(&cluster, READY, &words).await?;
        ensure!(failed.power_state() == "FailedToStartMachines", "{}", failed.power_state());
        cluster.wait_for_power_state("Running", SOON).await?;
        cluster.remove().await
    }))
    .await?;
    Ok(())
}

/// Azure refuses to deallocate it only after the others are: a plan says so before, and nothing is stopped.
#[tokio::test]
async fn no_machine_stops_while_one_has_an_ephemeral_os_disk() -> Result<()> {
    let without = vec![Program::Controller];
    let world = World::up(Options { clusters: 0, without, timings: Timings::fast(), ..Options::default() }).await?;
    let cluster = cluster(&world, Platform::Azure, ClusterOptions::of_size(6)).await?;
    let simulated = world.simulated(Platform::Azure)?;
    let machines = simulated.machines(&cluster.info().infra_id).await?;
    let mut machine = machines.into_iter().find(|machine| machine.name.contains("-worker-")).context("a worker")?;
    machine.disks = Disks::EphemeralOs;
    let words = format!("{}: its OS disk is ephemeral, and Azure cannot deallocate such a machine", machine.name);
    simulated.put(machine).await?;
    world.start(&Start::new(Program::Controller)).await?;
    cluster.wait_for_power_state("Running", SOON).await?;
    let plan = world.plugin(&["plan", cluster.name(), "-n", cluster.namespace(), "--fresh"]).await?;
    ensure!(plan.code == 3 && plan.stdout.contains(&words), "{}{}", plan.stdout, plan.stderr);
    cluster.sleep().await?;
    let found = says(&cluster, HIBERNATING, &words).await?;
    ensure!(found.power_state() == "FailedToStop", "{}", found.power_state());
    ensure!(cluster.states().await? == BTreeMap::from([("running".to_owned(), 6)]), "a machine was stopped");
    cluster.wake().await?;
    cluster.wait_for_power_state("Running", SOON).await?;
    let calls = simulated.calls().await?;
    ensure!(!calls.iter().any(|call| ["start", "stop"].contains(&&*call.call)), "{calls:?}");
    Ok(())
}

/// Two controllers, of which the leader dies up to ten times while clusters of four platforms sleep and wake at once.
#[tokio::test]
async fn twelve_clusters_of_four_platforms_and_leaders_that_die() -> Result<()> {
    const KILLS: u64 = 5;
    let timings = Timings { ec2_start: "2s".parse()?, ec2_stop: "2s".parse()?, ..Timings::fast() };
    let without = vec![Program::Controller, Program::Webhook];
    let world = World::up(Options { clusters: 0, without, timings, ..Options::default() }).await?;
    let start = |identity: &str| Start {
        identity: Some(identity.to_owned()),
        ..Start::new(Program::Controller).leased(["3s", "2s", "500ms"])
    };
    let mut living = BTreeSet::new();
    for identity in ["a", "b"] {
        world.start(&start(identity)).await?;
        living.insert(identity.to_owned());
    }
    let platforms = [Platform::Aws, Platform::Gcp, Platform::Azure, Platform::IbmCloud];
    let mut clusters = Vec::new();
    for platform in platforms.into_iter().cycle().take(12) {
        clusters.push((platform, cluster(&world, platform, ClusterOptions::of_size(2)).await?));
    }
    let all_are = async |state: &str| {
        try_join_all(clusters.iter().map(|(_, cluster)| cluster.wait_for_power_state(state, LONG))).await
    };
    all_are("Running").await?;
    for (is_sleep, end) in [(true, "Hibernating"), (false, "Running")] {
        for (_, cluster) in &clusters {
            if is_sleep {
                cluster.sleep().await?
            } else {
                cluster.wake().await?
            };
        }
        for round in 0..KILLS {
            tokio::time::sleep(Duration::from_millis(300 * round + 150)).await;
            let leases: Api<Lease> = Api::namespaced(world.hub().await?, keys::NAMESPACE);
            let holder = leases.get(keys::CONTROLLER).await?.spec.and_then(|spec| spec.holder_identity);
            let holder = holder.filter(|holder| !holder.is_empty()).context("a holder")?;
            // It may be dead, and its Lease not yet over.
            if living.remove(&holder) {
                world.signal(&format!("controller-{holder}"), "kill").await?;
                let next = format!("{end}-{round}").to_lowercase();
                world.start(&start(&next)).await?;
                living.insert(next);
            }
        }
        all_are(end).await?;
    }
    for (platform, cluster) in clusters.iter().filter(|(platform, _)| *platform != Platform::Aws) {
        for machine in world.simulated(*platform)?.machines(&cluster.info().infra_id).await? {
            ensure!((machine.stops, machine.starts) == (1, 1), "{machine:?}");
        }
    }
    for platform in PLATFORMS {
        let calls = world.simulated(platform)?.calls().await?;
        let mut actors: Vec<&str> =
            calls.iter().filter(|c| ["start", "stop"].contains(&&*c.call)).map(identity).collect();
        actors.dedup();
        let distinct: BTreeSet<&str> = actors.iter().copied().collect();
        ensure!(distinct.len() == actors.len(), "a former leader of {platform:?} has acted: {actors:?}");
    }
    let events =
        world.kubectl(&["get", "events.events.k8s.io", "-A", "-o", "jsonpath={.items[*].reason}"]).await?.ok()?;
    ensure!(!events.contains("AnotherController"), "{events}");
    Ok(())
}

/// Behind an egress proxy the clouds' own hosts are reached through it, as by Hive. Another simulator plays the proxy.
#[tokio::test]
async fn calls_to_a_vendors_hosts_go_through_the_proxy_of_the_environment() -> Result<()> {
    let without = vec![Program::Controller, Program::Webhook];
    let world = World::up(Options { clusters: 0, without, timings: Timings::fast(), ..Options::default() }).await?;
    let (gcp, proxy) = (world.simulated(Platform::Gcp)?, world.simulated(Platform::Azure)?);
    let environment = [("HTTP_PROXY".to_owned(), proxy.endpoint().to_owned())].into();
    world.start(&Start { environment, ..Start::new(Program::Controller) }).await?;
    cluster(&world, Platform::Gcp, ClusterOptions::of_size(1)).await?;
    testbed::eventually(SOON, "a call through the proxy", async || {
        let calls = proxy.calls().await?;
        ensure!(
            calls.iter().any(|call| call.query.contains_key("pageToken") || call.query.contains_key("filter")),
            "{calls:?}"
        );
        Ok(())
    })
    .await?;
    ensure!(gcp.calls().await?.is_empty(), "past the proxy");
    Ok(())
}
