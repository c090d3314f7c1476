//! Upgrades of whole fleets, with a driver in the place of governance: a cluster complies as soon as a Placement
//! selects it.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use shared::cgu::api::ClusterGroupUpgrade;
use shared::cgu::wire::PlacementObject;
use testbed::bench::meter::count;
use testbed::bench::table::Table;
use testbed::supervisor::programs::Start;
use testbed::{Options, Program, World, apply, foreign};
use tokio::task::JoinHandle;

const POLICIES: [&str; 5] = ["p1", "p2", "p3", "p4", "p5"];
const NAMESPACE: &str = "policies";
pub const LONG: Duration = Duration::from_mins(10);
/// How long one change waits for the reaction to the one before.
const PACE: Duration = Duration::from_millis(200);

pub struct Scenario {
    name: &'static str,
    clusters: usize,
    concurrency: usize,
    /// Each cluster's compliance is a write of its own; else those of a batch are one.
    one_by_one: bool,
}

impl Scenario {
    pub const fn new(name: &'static str, clusters: usize, concurrency: usize, one_by_one: bool) -> Self {
        Self { name, clusters, concurrency, one_by_one }
    }
}

/// A hub with clusters and policies that none of them complies with.
pub struct Hub {
    pub world: World,
    pub client: Client,
    clusters: Vec<String>,
}

fn api(client: &Client, (group, version, kind): (&str, &str, &str), namespace: Option<&str>) -> Api<DynamicObject> {
    let group = if group.is_empty() { String::new() } else { format!("{group}.open-cluster-management.io") };
    let plural = if kind == "Policy" { "policies".to_owned() } else { format!("{}s", kind.to_lowercase()) };
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(&group, version, kind), &plural);
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

pub const POLICY: (&str, &str, &str) = ("policy", "v1", "Policy");
const PLACEMENT: (&str, &str, &str) = ("cluster", "v1beta1", "Placement");

/// The body of a policy; `filler`: bytes of text in it.
fn spec(filler: usize) -> Value {
    let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "x" }, "data": { "x": "x".repeat(filler) } });
    let template = json!({ "object-templates": [{ "complianceType": "musthave", "objectDefinition": object }] });
    json!({
        "remediationAction": "inform", "disabled": false,
        "policy-templates": [{ "objectDefinition": { "metadata": { "name": "x" }, "spec": template } }],
    })
}

fn report(clusters: &[String], compliant: &BTreeSet<String>) -> Value {
    let entry = |name: &String| {
        let compliant = if compliant.contains(name) { "Compliant" } else { "NonCompliant" };
        json!({ "clustername": name, "clusternamespace": name, "compliant": compliant })
    };
    json!({ "status": { "status": clusters.iter().map(entry).collect::<Vec<_>>() } })
}

impl Hub {
    pub async fn new(count: usize) -> Result<Self> {
        let world = World::up(Options { audit: true, ..Options::bare_hub() }).await?;
        let client = world.hub().await?;
        let definitions = [manifests::cgu_definitions(), foreign::of_governance(), manifests::upgrades()].concat();
        apply::all(&client, &definitions).await?;
        let hub = Self { world, client, clusters: (0..count).map(|number| format!("spoke{number:04}")).collect() };
        let namespaces: Vec<Value> = hub
            .clusters
            .iter()
            .map(String::as_str)
            .chain([NAMESPACE])
            .map(|name| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }))
            .collect();
        hub.create(("", "v1", "Namespace"), None, namespaces).await?;
        hub.join(&hub.clusters).await?;
        for policy in POLICIES {
            hub.policy(policy, 0).await?;
        }
        Ok(hub)
    }

    /// Clusters join the hub.
    pub async fn join(&self, names: &[String]) -> Result<()> {
        let managed = names.iter().map(|name| {
            json!({
                "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
                "metadata": { "name": name, "labels": { "name": name } }, "spec": { "hubAcceptsClient": true },
            })
        });
        self.create(("cluster", "v1", "ManagedCluster"), None, managed.collect()).await
    }

    /// A cluster soaks for so long before it goes on from a policy.
    pub async fn soak(&self, policy: &str, seconds: i64) -> Result<()> {
        let patch = json!({ "metadata": { "annotations": { "ran.openshift.io/soak-seconds": seconds.to_string() } } });
        let roots = api(&self.client, POLICY, Some(NAMESPACE));
        roots.patch(policy, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// A policy that no cluster complies with, and its children.
    pub async fn policy(&self, name: &str, filler: usize) -> Result<()> {
        let root = json!({
            "apiVersion": "policy.open-cluster-management.io/v1", "kind": "Policy",
            "metadata": { "name": name, "namespace": NAMESPACE }, "spec": spec(filler),
        });
        self.create(POLICY, Some(NAMESPACE), vec![root]).await?;
        let roots = api(&self.client, POLICY, Some(NAMESPACE));
        let status = Patch::Merge(report(&self.clusters, &BTreeSet::new()));
        roots.patch_status(name, &PatchParams::default(), &status).await?;
        let child = format!("{NAMESPACE}.{name}");
        let children = self.clusters.iter().map(|cluster| {
            json!({
                "apiVersion": "policy.open-cluster-management.io/v1", "kind": "Policy",
                "metadata": {
                    "name": child, "namespace": cluster,
                    "labels": { "policy.open-cluster-management.io/root-policy": child },
                },
                "spec": spec(filler),
            })
        });
        self.create(POLICY, None, children.collect()).await
    }

    async fn create(&self, kind: (&str, &str, &str), namespace: Option<&str>, objects: Vec<Value>) -> Result<()> {
        stream::iter(objects)
            .map(|object| async move {
                let of = object["metadata"]["namespace"].as_str().map(str::to_owned);
                let api = api(&self.client, kind, namespace.or(of.as_deref()));
                api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
                anyhow::Ok(())
            })
            .buffer_unordered(32)
            .try_collect()
            .await
    }

    pub async fn controller(&self, args: &[&str]) -> Result<()> {
        let start = Start { args: args.iter().map(ToString::to_string).collect(), ..Start::new(Program::Controller) };
        self.world.start(&start).await.map(drop)
    }

    pub fn upgrades(&self) -> Api<ClusterGroupUpgrade> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Creates an upgrade of all clusters; `more` of its spec.
    pub async fn upgrade(&self, name: &str, more: &Value) -> Result<()> {
        let mut spec = json!({
            "clusters": self.clusters, "managedPolicies": POLICIES, "remediationStrategy": { "maxConcurrency": 10 },
            "actions": {
                "beforeEnable": { "addClusterLabels": { "ztp-running": "" } },
                "afterCompletion": { "addClusterLabels": { "ztp-done": "" }, "removeClusterLabels": ["ztp-running"] },
            },
        });
        json_patch::merge(&mut spec, more);
        let upgrade = json!({
            "apiVersion": "ran.openshift.io/v1alpha1", "kind": "ClusterGroupUpgrade",
            "metadata": { "name": name, "namespace": "default" }, "spec": spec,
        });
        self.upgrades().create(&PostParams::default(), &serde_json::from_value(upgrade)?).await?;
        Ok(())
    }

    /// Waits until a condition has this status; `TYPE/STATUS/REASON`.
    pub async fn until(&self, name: &str, wanted: &str) -> Result<Instant> {
        let begun = Instant::now();
        loop {
            let status = self.upgrades().get_status(name).await?.status.unwrap_or_default();
            let all: Vec<String> =
                status.conditions.iter().map(|one| format!("{}/{}/{}", one.type_, one.status, one.reason)).collect();
            if all.iter().any(|one| one == wanted) {
                return Ok(Instant::now());
            }
            ensure!(begun.elapsed() < LONG, "{name}: {all:?}, wanted {wanted}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Requests so far by verb and resource, without watches and Leases.
    pub async fn requests(&self) -> Result<BTreeMap<String, usize>> {
        let mut found = BTreeMap::new();
        for event in self.world.audited("hub").await? {
            let (verb, resource) = (&event["verb"], &event["objectRef"]["resource"]);
            if event["stage"] == "ResponseComplete" && *resource != "leases" && *verb != "watch" {
                let key = format!("{} {}", verb.as_str().unwrap_or_default(), resource.as_str().unwrap_or_default());
                *found.entry(key).or_default() += 1;
            }
        }
        Ok(found)
    }

    /// Seconds of CPU of the controller so far.
    pub async fn cpu(&self) -> Result<f64> {
        self.world.cpu("controller").await
    }

    /// Clusters comply as soon as a Placement selects them.
    pub fn drive(&self, one_by_one: bool) -> Driver {
        let latencies = Arc::new(Mutex::new(Vec::new()));
        let driven = drive(self.client.clone(), self.clusters.clone(), one_by_one, latencies.clone());
        Driver { latencies, task: tokio::spawn(driven) }
    }
}

/// Plays governance until it is dropped.
pub struct Driver {
    /// From a report of compliance to the Placement of the next policy.
    latencies: Arc<Mutex<Vec<Duration>>>,
    task: JoinHandle<Result<()>>,
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn drive(
    client: Client,
    clusters_of: Vec<String>,
    one_by_one: bool,
    latencies: Arc<Mutex<Vec<Duration>>>,
) -> Result<()> {
    let roots = api(&client, POLICY, Some(NAMESPACE));
    let mut compliant: HashMap<String, BTreeSet<String>> = HashMap::new();
    let mut reported: HashMap<String, Instant> = HashMap::new();
    let mut pending: VecDeque<(String, String)> = VecDeque::new();
    // The cluster whose report the controller has not acted on.
    let mut awaited: Option<String> = None;
    let events = watcher(api(&client, PLACEMENT, None), watcher::Config::default());
    let mut events = events.default_backoff().applied_objects().boxed();
    loop {
        if let Some((policy, _)) = pending.front().filter(|_| awaited.is_none()).cloned() {
            let count = if one_by_one { 1 } else { pending.iter().take_while(|(of, _)| *of == policy).count() };
            let names: Vec<String> = pending.drain(..count).map(|(_, cluster)| cluster).collect();
            let known = compliant.entry(policy.clone()).or_default();
            known.extend(names.iter().cloned());
            let status = Patch::Merge(report(&clusters_of, known));
            roots.patch_status(&policy, &PatchParams::default(), &status).await?;
            awaited = names.first().cloned().filter(|_| one_by_one);
            reported.extend(names.into_iter().map(|name| (name, Instant::now())));
        }
        // After the last policy no Placement follows.
        let pace = if awaited.is_some() || !pending.is_empty() { PACE } else { LONG };
        let Ok(Some(placement)) = tokio::time::timeout(pace, events.next()).await else {
            awaited = None;
            continue;
        };
        // An interrupted watch goes on.
        let Ok(placement) = placement else { continue };
        let policy = placement.labels().get("openshift-cluster-group-upgrades/forPolicy").cloned().unwrap_or_default();
        let known = compliant.entry(policy.clone()).or_default();
        let is_new = |name: &String| !known.contains(name) && !pending.contains(&(policy.clone(), name.clone()));
        let new: Vec<String> = selected(&placement.data).into_iter().filter(is_new).collect();
        let now = Instant::now();
        let found = new.iter().filter_map(|cluster| reported.get(cluster)).map(|at| now.duration_since(*at));
        latencies.lock().unwrap_or_else(PoisonError::into_inner).extend(found);
        awaited = awaited.filter(|cluster| !new.contains(cluster));
        pending.extend(new.into_iter().map(|cluster| (policy.clone(), cluster)));
    }
}

/// An upgrade of the whole fleet. `talm`: requests of a cluster, and milliseconds to the next policy (p99).
pub async fn upgrade(table: &mut Table, scenario: &Scenario, [requests, next]: [f64; 2]) -> Result<()> {
    let hub = Hub::new(scenario.clusters).await?;
    hub.controller(&["--cgu", "--cgu-talm-namespace", "default"]).await?;
    let driver = hub.drive(scenario.one_by_one);
    let (before, cpu, begun) = (hub.requests().await?, hub.cpu().await?, Instant::now());
    let timeout = 240;
    let strategy = json!({ "maxConcurrency": scenario.concurrency, "timeout": timeout });
    hub.upgrade("fleet", &json!({ "remediationStrategy": strategy })).await?;
    hub.until("fleet", "Succeeded/True/Completed").await.context("the upgrade")?;
    let (took, cpu) = (begun.elapsed(), hub.cpu().await? - cpu);
    let after = hub.requests().await?;
    let all: usize = after.iter().map(|(key, number)| number - before.get(key).unwrap_or(&0)).sum();
    let gets: usize = after
        .iter()
        .filter(|(key, _)| key.starts_with("get "))
        .map(|(key, number)| number - before.get(key).unwrap_or(&0))
        .sum();
    eprintln!("bench: {after:?}");
    let mut latencies = driver.latencies.lock().unwrap_or_else(PoisonError::into_inner).clone();
    latencies.sort();
    let at = |share: usize| {
        latencies.get(latencies.len() * share / 100).copied().unwrap_or_default().as_secs_f64() * 1_000.0
    };
    let large = scenario.clusters == 1_000;
    let [most, p99] = if large { [8.0, 500.0] } else { [15.0, 100.0] };
    let name = scenario.name;
    let limited = scenario.clusters > 50;
    table.add(name, "requests a cluster", Some(requests), Some(most), count(all) / count(scenario.clusters));
    table.add(name, "of these GETs", None, Some(0.0), count(gets) / count(scenario.clusters));
    table.add(name, "ms to the next policy, p50", None, None, at(50));
    table.add(name, "ms to the next policy, p99", Some(next), limited.then_some(p99), at(99));
    let talm = if large { Some(275.0) } else { None };
    table.add(name, "seconds until all", talm, large.then_some(90.0), took.as_secs_f64());
    let [talm, most] = if large { [35.0, 12.0] } else { [if limited { 26.0 } else { 2.0 }, 3.0] };
    table.add(name, "seconds of CPU", Some(talm), limited.then_some(most), cpu);
    Ok(())
}

/// Names of the clusters that a Placement selects.
fn selected(placement: &serde_json::Value) -> Vec<String> {
    let read = serde_json::from_value::<PlacementObject>(placement.clone());
    read.map(|placement| placement.spec.into_clusters()).unwrap_or_default()
}
