//! Twenty hostile spokes at once, of every kind that has ended a controller, beside the same controller at rest. Its
//! data segment is limited: a controller that reads what it is sent does not live through this.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use shared::annotation::{format, keys};
use testbed::bench::table::Table;
use testbed::proxy::faults::{Effect, Rule};
use testbed::world::handle::Cluster;
use testbed::{ClusterOptions, Options, Timings, World};

use crate::peak;

const HOSTILE: usize = 20;
/// Nodes of the cluster that sleeps and wakes among them.
const HONEST: usize = 20;
const LONG: Duration = Duration::from_mins(3);
/// How long the spokes are asked: preflights, and the reads and watches of a wake.
const ATTACK: Duration = Duration::from_mins(1);
/// Bytes that the controller may have in its data segment.
const DATA: usize = 256 << 20;
const MIB: usize = 1 << 20;

pub async fn hostile_answers(table: &mut Table) -> Result<()> {
    let world = World::up(Options { clusters: 0, timings: Timings::fast(), ..Options::default() }).await?;
    let make = |number: usize| {
        let world = world.clone();
        async move { world.cluster(&format!("hostile-{number}"), ClusterOptions::of_size(1)).await }
    };
    let honest = ClusterOptions { own_account: true, ..ClusterOptions::of_size(HONEST) };
    let honest = world.cluster("honest", honest).await?;
    let clusters: Vec<Cluster> = try_join_all((0..HOSTILE).map(make)).await?;
    honest.wait_for_power_state("Running", LONG).await?;
    try_join_all(clusters.iter().map(|cluster| cluster.wait_for_power_state("Running", LONG))).await?;
    // Those that sleep wake during the attack, so that they are listed and watched; the others are asked for
    // preflights.
    let (asleep, awake) = halves(&clusters);
    try_join_all(asleep.iter().map(|cluster| cluster.sleep())).await?;
    try_join_all(asleep.iter().map(|cluster| cluster.wait_for_power_state("Hibernating", LONG))).await?;
    let calm_wake = wakes(&honest).await?;
    let pid = *world.now().await?.pids.get("controller").context("no controller runs")?;
    prlimit(pid)?;
    fs::write(format!("/proc/{pid}/clear_refs"), "5").context("reset the peak")?;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let calm = peak(&world, "controller").await?;
    for (number, cluster) in clusters.iter().enumerate() {
        attack(&world, cluster, number).await?;
    }
    let until = tokio::time::Instant::now() + ATTACK;
    let asks = async {
        while tokio::time::Instant::now() < until {
            for cluster in &awake {
                let asked = json!({ keys::PREFLIGHT_REQUESTED_AT: format::seconds(Timestamp::now()) });
                cluster.patch(&json!({ "metadata": { "annotations": asked } })).await?;
            }
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        anyhow::Ok(())
    };
    let ((), attacked_wake) = tokio::try_join!(asks, wakes(&honest))?;
    let attacked = peak(&world, "controller").await?;
    let now = *world.now().await?.pids.get("controller").context("the controller has ended")?;
    ensure!(now == pid, "the controller was ended and started again");
    let mut hits = 0;
    for cluster in &clusters {
        hits += world.faults(&cluster.info().infra_id).await?.iter().map(|rule| rule.hits).sum::<u32>();
    }
    table.add("answers", "s until 20 other Nodes are awake, none hostile", None, None, calm_wake);
    table.add("answers", "s until 20 other Nodes are awake, 20 hostile", None, None, attacked_wake);
    table.add("answers", "ratio", None, None, attacked_wake / calm_wake);
    table.add("answers", "hostile answers sent", None, None, f64::from(hits));
    table.add("answers", "controller's peak MB, none hostile", None, None, calm);
    table.add("answers", "controller's peak MB, 20 hostile", None, None, attacked);
    table.add("answers", "MB over the same without", None, Some(96.0), attacked - calm);
    table.add("answers", "ratio", None, None, attacked / calm);
    Ok(())
}

/// Seconds from a request to wake until all Nodes are there.
async fn wakes(cluster: &Cluster) -> Result<f64> {
    cluster.sleep().await?;
    cluster.wait_for_power_state("Hibernating", LONG).await?;
    let asked = tokio::time::Instant::now();
    cluster.wake().await?;
    cluster.wait_for_power_state("Running", LONG).await?;
    Ok(asked.elapsed().as_secs_f64())
}

/// Those that are put to sleep before the attack, and those that stay awake.
fn halves(clusters: &[Cluster]) -> (Vec<&Cluster>, Vec<&Cluster>) {
    let (asleep, awake): (Vec<_>, Vec<_>) =
        clusters.iter().enumerate().partition(|(number, _)| (number / KINDS).is_multiple_of(2));
    let without_number = |all: Vec<(usize, _)>| all.into_iter().map(|(_, cluster)| cluster).collect();
    (without_number(asleep), without_number(awake))
}

/// The ways in which spokes are hostile.
const KINDS: usize = 7;

/// Makes a spoke hostile in its own way. One that sleeps is woken, which makes the controller list and watch it.
async fn attack(world: &World, cluster: &Cluster, number: usize) -> Result<()> {
    let body = |begin: &str, unit: &str, times: usize, end: &str| Effect::Body {
        begin: begin.into(),
        unit: unit.into(),
        times: u32::try_from(times).unwrap_or(u32::MAX),
        end: end.into(),
    };
    let empty = |begin: &str| body(begin, "{},", MIB, "{}]}");
    let event = |field: &str| {
        let parts = "{},".repeat((MIB - 200) / 3);
        let event = format!("{{\"type\":\"ADDED\",\"object\":{{\"metadata\":{{\"{field}\":[{parts}{{}}]}}}}}}\n");
        Rule::new(body("", &event, 20, "")).query("watch=true")
    };
    let rules = match number % KINDS {
        0 => vec![Rule::new(empty(r#"{"items":[{"metadata":{"x":1e999}},"#))],
        1 => vec![Rule::new(empty(r#"{"items":[{"metadata":{"x":"\ud800"}},"#))],
        2 => vec![Rule::new(body(r#"{"items":[{"x":"#, "[[[[[[[[", 1 << 10, "{},"))],
        // Pages of 8 MB without end, whose objects are sound.
        3 => {
            let node = json!({ "metadata": { "name": "n" }, "spec": { "providerID": "x".repeat(8_000) } });
            vec![Rule::new(body(r#"{"metadata":{"continue":"x"},"items":["#, &format!("{node},"), 990, "{}]}"))]
        }
        4 => vec![event("managedFields"), Rule::new(empty(r#"{"items":["#))],
        5 => vec![event("ownerReferences"), Rule::new(empty(r#"{"items":["#))],
        _ => {
            aliases(world, cluster).await?;
            vec![]
        }
    };
    for rule in rules {
        cluster.inject(&rule).await?;
    }
    if cluster.power_state().await? == "Hibernating" {
        cluster.wake().await?;
    }
    Ok(())
}

/// A kubeconfig of 450 KB that is a thousand times as large once its aliases are followed.
async fn aliases(world: &World, cluster: &Cluster) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(world.hub().await?, cluster.namespace());
    let found = cluster.get().await?;
    let metadata = found.spec.cluster_metadata.context("spec.clusterMetadata")?;
    let name = metadata.admin_kubeconfig_secret_ref.name;
    let groups = vec!["*s"; 150_000].join(",");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: []\ncontexts: []\nusers: [{{name: a, user: {{as-groups: [&s {}, {groups}]}}}}]\n",
        "x".repeat(4_000)
    );
    let data: BTreeMap<_, _> = [("kubeconfig", text.clone()), ("raw-kubeconfig", text)].into();
    secrets.patch(&name, &PatchParams::default(), &Patch::Merge(&json!({ "stringData": data }))).await?;
    Ok(())
}

pub fn prlimit(pid: i32) -> Result<()> {
    let limited = Command::new("prlimit").args([&format!("--pid={pid}"), &format!("--data={DATA}")]).status();
    ensure!(limited.context("run prlimit of util-linux")?.success(), "prlimit failed");
    Ok(())
}
