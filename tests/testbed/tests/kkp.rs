//! The double of KKP and of machine-controller is as hard on a sleep as the real ones were seen to be, and notes what
//! must never happen: no test of the product would notice a double that is kinder, or blind. What the product itself
//! runs into, the tests of the product show. The names of the tests are rows of docs/reference/kkp.md.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use testbed::kkp::log::{How, PodEnd, Rule};
use testbed::kkp::options::MachineDeployment;
use testbed::kkp::{control_plane, kubermatic};
use testbed::{KkpCluster, KkpOptions, Options, Timings, World, eventually};

const SOON: Duration = Duration::from_mins(1);
const OURS: &str = "hibernate.sh/dehydrated-replicas";

/// Waits until this holds.
async fn until(what: &str, holds: impl AsyncFn() -> Result<bool>) -> Result<()> {
    eventually(SOON, what, async || {
        ensure!(holds().await?);
        Ok(())
    })
    .await
}

/// A world of its own for each test: KKP's settings are those of the seed.
async fn world() -> Result<World> {
    World::up(Options { clusters: 0, timings: Timings::fast(), ..Options::without_programs() }).await
}

async fn pause(cluster: &KkpCluster, is: bool) -> Result<DynamicObject> {
    cluster.patch(&json!({ "spec": { "pause": is } })).await
}

/// Zeroes everything but etcd, then etcd.
async fn zero(cluster: &KkpCluster) -> Result<()> {
    for (_, name, _) in control_plane::kept() {
        cluster.scale(name, 0).await?;
    }
    cluster.scale("etcd", 0).await
}

/// Waits until every workload has its replicas.
async fn all_up(cluster: &KkpCluster) -> Result<()> {
    let is_up = |object: &DynamicObject| {
        let health = object.data["status"]["extendedHealth"].as_object().cloned().unwrap_or_default();
        let all = health.len() > 9 && health.values().all(|one| one == "HealthStatusUp");
        all && condition(object, "SeedResourcesUpToDate") == "True"
    };
    cluster.wait_for("all up", SOON, is_up).await.map(drop)
}

/// Waits until this has been noted.
async fn noted(cluster: &KkpCluster, rule: Rule) -> Result<()> {
    let is_noted = async || Ok(cluster.log().await?.violations.iter().any(|one| one.rule == rule));
    until(&format!("{rule:?}"), is_noted).await
}

fn condition<'a>(object: &'a DynamicObject, name: &str) -> &'a str {
    object.data["status"]["conditions"][name]["status"].as_str().unwrap_or_default()
}

async fn count(cluster: &KkpCluster, name: &str) -> Result<i32> {
    cluster.replicas().await?.get(name).copied().with_context(|| format!("no {name}"))
}

/// Waits until the control plane has no Pod, and its controllers have seen that.
async fn no_pod_left(cluster: &KkpCluster) -> Result<()> {
    let (seed, all) = (cluster.seed(), ListParams::default());
    let deployments: Api<Deployment> = Api::namespaced(seed.clone(), &cluster.info().namespace);
    let sets: Api<StatefulSet> = Api::namespaced(seed, &cluster.info().namespace);
    eventually(SOON, "no Pod", async || {
        for one in deployments.list(&all).await? {
            let status = one.status.unwrap_or_default();
            ensure!(status.replicas.unwrap_or_default() == 0 && status.observed_generation == one.metadata.generation);
        }
        for one in sets.list(&all).await? {
            let status = one.status.unwrap_or_default();
            ensure!(status.replicas == 0 && status.observed_generation == one.metadata.generation);
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_1_to_3_and_11_what_is_scaled_is_reset_but_etcd_at_0_or_1() -> Result<()> {
    let cluster = world().await?.kkp("resets", KkpOptions::small()).await?;
    let found = cluster.replicas().await?;
    let expected =
        control_plane::kept().map(|(_, name, count)| (name.to_owned(), i32::try_from(count).unwrap_or_default()));
    ensure!(found == expected.chain([("etcd".to_owned(), 3)]).collect(), "row 1: {found:?}");

    let deployments: Api<Deployment> = Api::namespaced(cluster.seed(), &cluster.info().namespace);
    let ours = json!({ "metadata": { "annotations": { "hibernate.sh/test": "kept" } }, "spec": { "replicas": 0 } });
    for (name, replicas) in [("apiserver", 2), ("kube-state-metrics", 1), ("prometheus", 1)] {
        if name == "prometheus" {
            cluster.scale(name, 0).await?;
        } else {
            deployments.patch(name, &PatchParams::default(), &Patch::Merge(&ours)).await?;
        }
        eventually(Duration::from_secs(3), "reset", async || {
            ensure!(count(&cluster, name).await? == replicas);
            Ok(())
        })
        .await
        .with_context(|| format!("row 2: {name}"))?;
    }
    let kept = deployments.get("apiserver").await?.metadata.annotations.unwrap_or_default();
    ensure!(kept.get("hibernate.sh/test").is_some_and(|value| value == "kept"), "row 11: {kept:?}");

    all_up(&cluster).await?;
    for at in [0, 1] {
        cluster.scale("etcd", at).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        ensure!(count(&cluster, "etcd").await? == at, "row 3: {at} stays");
        ensure!(!cluster.inspect().await?.open, "row 39: {at} of three does not serve");
    }
    cluster.scale("etcd", 2).await?;
    until("row 3: two serve, and KKP makes it three", async || Ok(count(&cluster, "etcd").await? == 3)).await?;
    all_up(&cluster).await?;
    let violations = cluster.log().await?.violations;
    let parts = violations.iter().filter(|one| one.rule == Rule::EtcdAtPart).count();
    ensure!(parts == 2, "etcd at 1 and at 2 are noted: {violations:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_5_reconciles_in_flight_raise_again_after_the_pause() -> Result<()> {
    let cluster = world().await?.kkp("inflight", KkpOptions::small()).await?;
    cluster.turn(&json!({ "inFlight": { "rounds": 2, "deployments": 4, "delay": "1s" } })).await?;
    pause(&cluster, true).await?;
    zero(&cluster).await?;
    eventually(Duration::from_secs(10), "raised Deployments", async || {
        let raised = cluster.replicas().await?.values().filter(|count| **count > 0).count();
        ensure!((4..=8).contains(&raised), "{raised}");
        Ok(())
    })
    .await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    zero(&cluster).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    ensure!(cluster.replicas().await?.values().all(|count| *count == 0), "it is over");
    noted(&cluster, Rule::PausedWithMachine).await?;
    noted(&cluster, Rule::ScaledDownWithMachine).await
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_8_to_10_an_end_of_the_pause_alone_leaves_etcd_and_at_the_limit_everything() -> Result<()> {
    let world = world().await?;
    let cluster = world.kkp("limit", KkpOptions::small()).await?;
    pause(&cluster, true).await?;
    zero(&cluster).await?;
    pause(&cluster, false).await?;
    eventually(SOON, "all but etcd", async || {
        let found = cluster.replicas().await?;
        ensure!(found["etcd"] == 0 && found["apiserver"] == 2 && found["prometheus"] == 1, "row 8: {found:?}");
        Ok(())
    })
    .await?;
    let down = |object: &DynamicObject| {
        let status = &object.data["status"];
        status["extendedHealth"]["apiserver"] == "HealthStatusDown"
            && status["extendedHealth"]["etcd"] == "HealthStatusDown"
            && status["phase"] == "Running"
    };
    let object = cluster
        .wait_for("health Down", SOON, |object| down(object) && condition(object, "SeedResourcesUpToDate") == "False")
        .await?;
    ensure!(object.data["status"].get("errorMessage").is_none(), "row 8");
    cluster.scale("etcd", 3).await?;
    all_up(&cluster).await?;

    pause(&cluster, true).await?;
    zero(&cluster).await?;
    no_pod_left(&cluster).await?;
    world.turn_kkp(&json!({ "othersUpdating": 10 })).await?;
    pause(&cluster, false).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    ensure!(cluster.replicas().await?.values().all(|count| *count == 0), "row 9: nothing comes back");
    ensure!(condition(&cluster.get().await?, "SeedResourcesUpToDate") == "True", "row 9: 0 of 0 are all");
    cluster.scale("etcd", 3).await?;
    all_up(&cluster).await.context("row 9: raising etcd makes it False, and KKP serves it")?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_19_to_23_a_sleeping_cluster_that_is_deleted_waits_until_its_counts_are_restored() -> Result<()> {
    let world = world().await?;
    let options = KkpOptions { cleanup_finalizers: true, volumes: 1, load_balancers: 1, ..KkpOptions::small() };
    let cluster = world.kkp("deleted", options).await?;
    let before = cluster.replicas().await?;
    pause(&cluster, true).await?;
    zero(&cluster).await?;
    let api: Api<DynamicObject> = Api::all_with(world.hub().await?, &kubermatic("Cluster"));
    api.delete("deleted", &DeleteParams::default()).await?;
    cluster.wait_for("phase Terminating", SOON, |object| object.data["status"]["phase"] == "Terminating").await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let finalizers = |object: &DynamicObject| object.metadata.finalizers.clone().unwrap_or_default();
    ensure!(finalizers(&cluster.get().await?).len() == 7, "row 19: paused, nothing happens");
    pause(&cluster, false).await?;
    until("refused connections", async || {
        let refused = "failed to cleanup LBs: dial tcp: connect: connection refused";
        Ok(cluster.log().await?.calls.iter().filter(|call| call.text.contains(refused)).count() > 2)
    })
    .await?;
    ensure!(cluster.replicas().await?.values().all(|count| *count == 0), "row 20: nothing is ensured");
    ensure!(finalizers(&cluster.get().await?).len() == 6, "row 20: only the constraints");
    for (name, replicas) in before.iter().rev() {
        cluster.scale(name, *replicas).await?;
    }
    eventually(2 * SOON, "the end", async || {
        let left = api.get_opt("deleted").await?;
        ensure!(left.is_none(), "row 21: {:?}", left.map(|object| finalizers(&object)));
        Ok(())
    })
    .await?;
    let cloud = cluster.inspect().await?.cloud;
    ensure!(cloud.instances.is_empty() && cloud.load_balancers.is_empty() && cloud.volumes.is_empty(), "{cloud:?}");
    Ok(())
}

/// Two machines, and Pods with a budget that allows no disruption.
fn busy() -> KkpOptions {
    KkpOptions {
        machine_deployments: vec![MachineDeployment::new("a", 1), MachineDeployment::new("b", 1)],
        volumes: 1,
        load_balancers: 1,
        ..KkpOptions::default()
    }
}

async fn nodes(cluster: &KkpCluster) -> Result<Vec<Node>> {
    Ok(Api::<Node>::all(cluster.user()).list(&ListParams::default()).await?.items)
}

/// Waits until there are so many Machines, Nodes and instances.
async fn machines(cluster: &KkpCluster, count: usize) -> Result<()> {
    eventually(SOON, "Machines, Nodes and instances", async || {
        let (machines, nodes) = (cluster.machinery("Machine").await?.len(), nodes(cluster).await?.len());
        let instances = cluster.inspect().await?.cloud.instances.len();
        ensure!(
            [machines, nodes, instances] == [count; 3],
            "{machines} Machines, {nodes} Nodes, {instances} instances"
        );
        Ok(())
    })
    .await
}

async fn scale(cluster: &KkpCluster, name: &str, count: u32) -> Result<()> {
    let annotation = if count == 0 { json!("1") } else { Value::Null };
    let change = json!({ "metadata": { "annotations": { OURS: annotation } }, "spec": { "replicas": count } });
    cluster.patch_machines(name, &change).await.map(drop)
}

async fn patch_node(cluster: &KkpCluster, name: &str, change: Value) -> Result<()> {
    let api: Api<Node> = Api::all(cluster.user());
    api.patch(name, &PatchParams::default(), &Patch::Merge(change)).await?;
    Ok(())
}

fn cordon() -> Value {
    json!({ "spec": { "unschedulable": true } })
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_49_to_51_and_61_machines_go_in_order_and_the_status_says_so_too_early() -> Result<()> {
    let options = KkpOptions { machine_deployments: vec![MachineDeployment::new("a", 3)], ..KkpOptions::small() };
    let cluster = world().await?.kkp("order", options).await?;
    cluster.turn(&json!({ "terminate": "60s" })).await?;
    scale(&cluster, "a", 0).await?;
    eventually(SOON, "a status of 0 with instances", async || {
        let status = cluster.machinery("MachineDeployment").await?[0].data["status"]["replicas"].clone();
        let instances = cluster.inspect().await?.cloud.instances;
        ensure!(status == 0 && instances.len() == 3, "row 50: {status}, {} instances", instances.len());
        ensure!(instances.values().all(|one| one.terminating.is_some()));
        Ok(())
    })
    .await?;
    let held = cluster.machinery("Machine").await?;
    let is_held = held.iter().all(|one| one.finalizers().len() == 2);
    ensure!(is_held && nodes(&cluster).await?.len() == 3, "row 49: the Node goes last");
    machines(&cluster, 0).await?;
    let texts: Vec<String> = cluster.log().await?.calls.into_iter().map(|call| call.text).collect();
    let first = |word: &str| texts.iter().position(|text| text.contains(word));
    ensure!(first("terminate") < first("is gone"), "row 49: {texts:?}");
    cluster.patch_machines("a", &json!({ "spec": { "paused": true } })).await?;
    scale(&cluster, "a", 2).await?;
    machines(&cluster, 2).await?; // row 61
    let set = &cluster.machinery("MachineSet").await?[0];
    ensure!(set.annotations().contains_key(OURS), "row 51: it stays on the MachineSet: {:?}", set.annotations());
    ensure!(!cluster.machinery("MachineDeployment").await?[0].annotations().contains_key(OURS));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_53_any_change_of_annotations_makes_the_bootstrap_secrets_anew() -> Result<()> {
    let cluster = world().await?.kkp("osm", KkpOptions::small()).await?;
    let secrets: Api<Secret> = Api::namespaced(cluster.user(), "cloud-init-settings");
    let uid = async || anyhow::Ok(secrets.get("a-kube-system-bootstrap-config").await?.metadata.uid);
    let first = uid().await?;
    scale(&cluster, "a", 0).await?;
    machines(&cluster, 0).await?;
    ensure!(uid().await? != first, "a new Secret");
    // On the way up: a second write while the instance boots, and it cannot join.
    cluster.turn(&json!({ "joinLate": "2s" })).await?;
    scale(&cluster, "a", 1).await?;
    until("an instance", async || Ok(cluster.inspect().await?.cloud.instances.len() == 1)).await?;
    cluster.patch_machines("a", &json!({ "metadata": { "annotations": { "late": "write" } } })).await?;
    until("a void token", async || {
        Ok(cluster.log().await?.calls.iter().any(|call| call.text.contains("bootstrap token is void")))
    })
    .await?;
    noted(&cluster, Rule::SecondAnnotation).await
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_54_to_56_eviction_honors_budgets_unless_it_is_skipped() -> Result<()> {
    let cluster = world().await?.kkp("evicted", busy()).await?;
    let node = |all: &[Node], of: &str| all.iter().map(ResourceExt::name_any).find(|name| name.starts_with(of));
    let all = nodes(&cluster).await?;
    let (Some(a), Some(b)) = (node(&all, "a-"), node(&all, "b-")) else { anyhow::bail!("no Nodes") };
    let blocked = async || -> Result<usize> {
        Ok(cluster.log().await?.calls.iter().filter(|call| call.text.contains("disruption budget forbids")).count())
    };
    scale(&cluster, "a", 0).await?;
    until("a refused eviction", async || Ok(blocked().await? > 0)).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    ensure!(cluster.machinery("Machine").await?.len() == 2, "row 54: stuck");
    let found = Api::<Node>::all(cluster.user()).get(&a).await?;
    ensure!(found.spec.is_some_and(|spec| spec.unschedulable == Some(true)), "row 54: cordoned");
    patch_node(&cluster, &a, json!({ "metadata": { "annotations": { "kubermatic.io/skip-eviction": "" } } })).await?;
    machines(&cluster, 1).await?;
    let ends = cluster.log().await?.pods;
    let is_killed = |pod: &PodEnd| pod.node == a && !pod.of_daemon_set && pod.how == How::InstanceStopped;
    ensure!(ends.iter().any(is_killed), "row 55: {ends:?}");
    noted(&cluster, Rule::PodKilled).await?;
    let on_node = ListParams::default().fields(&format!("spec.nodeName={a}"));
    ensure!(!Api::<Pod>::all(cluster.user()).list(&on_node).await?.items.is_empty(), "row 55: objects stay");

    // Row 56: the last Node, cordoned, is not evicted; with an orphan that is not cordoned it is.
    let orphan = json!({ "metadata": { "name": "orphan" } });
    let api: Api<Node> = Api::all(cluster.user());
    api.create(&PostParams::default(), &serde_json::from_value(orphan)?).await?;
    patch_node(&cluster, &b, cordon()).await?;
    let before = blocked().await?;
    scale(&cluster, "b", 0).await?;
    until("row 56: a refused eviction", async || Ok(blocked().await? > before)).await?;
    patch_node(&cluster, "orphan", cordon()).await?;
    until("row 56: all others are cordoned", async || Ok(cluster.machinery("Machine").await?.is_empty())).await
}
