//! KKP on real API servers: the hub is the seed, a spoke is the user cluster. KKP, machine-controller, the cloud and the kubelets are the
//! double of docs/development.md; "row n" is a row of what the real ones were seen to do.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DynamicObject, ListParams, ObjectMeta};
use kube::{Api, ResourceExt};
use serde_json::json;
use shared::kkp::keys;
use testbed::kkp::log::{How, Log};
use testbed::supervisor::programs::Start;
use testbed::{KkpCluster, KkpOptions, eventually};

use crate::kkp_common::{
    SOON, is_as_before, nodes, nothing_forbidden, start, start_with, state, up, up_on_upstream, up_with,
};

/// Phases of a sleep in which something may be under way, in order.
const PHASES: [&str; 6] =
    ["Draining", "ScalingDownMachines", "MachinesScaledDown", "Pausing", "ScalingDownControlPlane", "Dehydrated"];

/// Every Pod that a drain deletes had ended before its instance was gone.
fn ended_before_their_instances(log: &Log, pods: usize) -> Result<()> {
    let gone = log.calls.iter().filter(|call| call.by == "cloud" && call.text.contains("is gone"));
    let first = gone.map(|call| call.at).fold(f64::INFINITY, f64::min);
    let drained: Vec<_> = log.pods.iter().filter(|pod| !pod.of_daemon_set && pod.at <= first).collect();
    ensure!(drained.len() >= pods, "{} of {pods} Pods ended before the first instance was gone", drained.len());
    ensure!(drained.iter().all(|pod| pod.how == How::Graceful && pod.grace == 30), "{drained:#?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn five_machines_three_volumes_and_two_load_balancers_sleep_and_come_back() -> Result<()> {
    let cluster = up("shop", KkpOptions::default()).await?;
    let before = state(&cluster).await?;
    ensure!(before.machines == 5 && before.volumes.len() == 3 && before.load_balancers.len() == 2, "{before:?}");
    cluster.sleep().await?;
    cluster.wait_for_phase(Some("Dehydrated"), SOON).await?;
    let message = |object: &DynamicObject| {
        object.data["status"]["conditions"][keys::DEHYDRATED]["message"].as_str().unwrap_or_default().to_owned()
    };
    let asleep = cluster.wait_for("a message", SOON, |object| !message(object).is_empty()).await?;
    let condition = &asleep.data["status"]["conditions"][keys::DEHYDRATED];
    ensure!(condition["status"] == "True" && asleep.data["spec"]["pause"] == true, "{condition}");
    let message = message(&asleep);
    ensure!(
        message.contains("5 machines") && message.contains("3 volumes") && message.contains("2 load balancers"),
        "{message}"
    );
    // KKP shows it as healthy (row 6), and its API server does not answer.
    ensure!(
        asleep.data["status"]["phase"] == "Running"
            && asleep.data["status"]["extendedHealth"]["apiserver"] == "HealthStatusUp"
    );
    let inspection = cluster.inspect().await?;
    ensure!(!inspection.open && inspection.cloud.instances.is_empty(), "{inspection:?}");
    ensure!(inspection.cloud.volumes == before.data && inspection.cloud.load_balancers.len() == 2);
    let counts = cluster.replicas().await?;
    ensure!(counts.values().all(|count| *count == 0), "{counts:?}");
    let record = cluster.record().await?.context("a record")?;
    ensure!(
        record["controlPlane"]["StatefulSet/etcd"] == 3 && record["controlPlane"]["Deployment/apiserver"] == 2,
        "{record}"
    );
    ensure!(record["machineDeployments"]["kube-system/a"]["replicas"] == 3, "{record}");
    ensure!(record["numbers"] == json!({ "volumes": 3, "loadBalancers": 2, "machines": 5 }), "{record}");
    ended_before_their_instances(&cluster.log().await?, 10)?;

    cluster.wake().await?;
    cluster.wait_for_phase(None, SOON).await?;
    is_as_before(&cluster, &before).await?;
    nothing_forbidden(&cluster.log().await?)?;
    let pods: Api<Pod> = Api::namespaced(cluster.user(), "shop");
    eventually(SOON, "the tenant's Pods", async || {
        let all = pods.list(&ListParams::default()).await?.items;
        let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        ensure!(all.len() == 7 && all.iter().all(|pod| phase(pod) == "Running"), "{} Pods", all.len());
        Ok(())
    })
    .await
}

/// `resume` in each phase undoes what was done (8.2), and the cluster sleeps again afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_wake_in_any_phase_of_the_sleep_undoes_it() -> Result<()> {
    let cluster = up("undone", KkpOptions::default()).await?;
    let before = state(&cluster).await?;
    for phase in PHASES {
        cluster.sleep().await?;
        let seen = reached(&cluster, &[phase]).await?;
        cluster.wake().await?;
        cluster.wait_for_phase(None, SOON).await.with_context(|| format!("a wake in {phase}, seen in {seen}"))?;
        // A wake that comes before the first condition finds none to wait for.
        let undone = eventually(SOON, "as before", async || is_as_before(&cluster, &before).await);
        undone.await.with_context(|| format!("a wake in {phase}"))?;
        nothing_forbidden(&cluster.log().await?).with_context(|| format!("a wake in {phase}"))?;
        running(&cluster).await?;
    }
    Ok(())
}

/// Waits until all Pods of the tenant run: a drain has something to do.
async fn running(cluster: &KkpCluster) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(cluster.user(), "shop");
    eventually(SOON, "the tenant's Pods", async || {
        let all = pods.list(&ListParams::default()).await?.items;
        let is_running = |pod: &Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
        };
        ensure!(all.len() == 7 && all.iter().all(is_running), "{} Pods", all.len());
        Ok(())
    })
    .await
}

/// The phase that the record names; `None`: there is no record.
async fn recorded(cluster: &KkpCluster) -> Result<Option<String>> {
    let record = cluster.record().await?;
    Ok(record.and_then(|record| record["phase"].as_str().map(str::to_owned)))
}

/// Waits until the record names this phase, or a later one: a fast phase may be over before it is read.
async fn reached(cluster: &KkpCluster, phases: &[&str]) -> Result<String> {
    let from = PHASES.iter().position(|one| phases.contains(one)).unwrap_or_default();
    let deadline = tokio::time::Instant::now() + SOON;
    loop {
        if let Some(found) = recorded(cluster).await?
            && PHASES.iter().position(|one| *one == found).is_some_and(|at| at >= from)
        {
            return Ok(found);
        }
        ensure!(tokio::time::Instant::now() < deadline, "never in {phases:?}\n{}", cluster.describe().await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The controller is killed each time when the record enters a phase, both ways, and the next one goes on. The controller has no kill points of
/// its own: the record is read every 5 ms, and it is written before anything of its phase is done.
#[tokio::test(flavor = "multi_thread")]
async fn killed_in_every_phase_both_ways_it_goes_on() -> Result<()> {
    let cluster = up("phoenix", KkpOptions::default()).await?;
    let before = state(&cluster).await?;
    let mut killed = BTreeSet::new();
    for asleep in [true, false] {
        if asleep {
            cluster.sleep().await?;
        } else {
            cluster.wake().await?;
        }
        let mut last = recorded(&cluster).await?;
        let deadline = tokio::time::Instant::now() + 2 * SOON;
        loop {
            let found = recorded(&cluster).await?;
            if found != last {
                cluster.world().signal("controller", "kill").await?;
                cluster.world().start(&start()).await?;
                killed.insert(format!("{found:?}"));
                last.clone_from(&found);
            }
            let done = if asleep { found.as_deref() == Some("Dehydrated") } else { found.is_none() };
            if done {
                break;
            }
            ensure!(tokio::time::Instant::now() < deadline, "{}", cluster.describe().await);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        cluster.wait_for_phase(asleep.then_some("Dehydrated"), SOON).await?;
    }
    ensure!(killed.len() >= 8, "killed in {killed:?}");
    eventually(SOON, "as before", async || is_as_before(&cluster, &before).await).await?;
    nothing_forbidden(&cluster.log().await?)
}

/// Row 5: reconciles of KKP raise counts again after the pause.
#[tokio::test(flavor = "multi_thread")]
async fn counts_that_a_reconcile_in_flight_raises_are_zeroed_again_before_etcd_goes() -> Result<()> {
    let cluster = up_with("inflight", KkpOptions::small(), &start_with(&[])).await?;
    let before = state(&cluster).await?;
    cluster.turn(&json!({ "inFlight": { "rounds": 3, "deployments": 5, "delay": "1500ms" } })).await?;
    cluster.sleep().await?;
    cluster.wait_for_phase(Some("Dehydrated"), SOON).await?;
    let counts = cluster.replicas().await?;
    ensure!(counts.values().all(|count| *count == 0), "{counts:?}");
    let log = cluster.log().await?;
    let raised: Vec<f64> =
        log.calls.iter().filter(|call| call.text.starts_with("in flight")).map(|call| call.at).collect();
    let etcd = log.etcd.iter().find(|count| count.replicas == 0).context("etcd at 0")?.at;
    ensure!(!raised.is_empty() && raised.iter().all(|at| etcd - at > 10.0), "raised at {raised:?}, etcd at {etcd}");
    cluster.wake().await?;
    cluster.wait_for_phase(None, SOON).await?;
    is_as_before(&cluster, &before).await?;
    nothing_forbidden(&cluster.log().await?)
}

/// KKP's kubeconfigs name hosts with the dot of the DNS root, and certificates never do (8.1).
#[tokio::test(flavor = "multi_thread")]
async fn a_kubeconfig_whose_host_ends_in_a_dot_is_understood() -> Result<()> {
    let mut options = KkpOptions::small();
    options.settings.host = "localhost.".to_owned();
    let start = Start { hosts: Some("127.0.0.1 localhost.".to_owned()), ..start() };
    let cluster = up_with("dotted", options, &start).await?;
    cluster.sleep().await?;
    cluster.wait_for_phase(Some("Dehydrated"), SOON).await?;
    ensure!(cluster.inspect().await?.cloud.instances.is_empty());
    nothing_forbidden(&cluster.log().await?)
}

/// A wake that comes while Machines terminate: Nodes of Machines that are being deleted are no Nodes of the wake.
#[tokio::test(flavor = "multi_thread")]
async fn a_wake_while_machines_terminate_waits_for_the_new_ones() -> Result<()> {
    let cluster = up("early", KkpOptions::default()).await?;
    let before = state(&cluster).await?;
    cluster.turn(&json!({ "terminate": "200s" })).await?;
    cluster.sleep().await?;
    eventually(SOON, "terminations", async || {
        let instances = cluster.inspect().await?.cloud.instances;
        ensure!(instances.values().all(|one| one.terminating.is_some()), "{instances:?}");
        Ok(())
    })
    .await?;
    cluster.wake().await?;
    cluster.wait_for_phase(None, SOON).await?;
    let machines = cluster.machinery("Machine").await?;
    let live = machines.iter().filter(|one| one.metadata.deletion_timestamp.is_none()).map(ResourceExt::name_any);
    let live: BTreeSet<String> = live.collect();
    let nodes = nodes(&cluster).await?;
    let ready = nodes.iter().filter(|node| live.contains(&node.name_any())).count();
    ensure!(ready == 5, "the wake has ended with {ready} of 5 Nodes:\n{}", cluster.describe().await);
    eventually(SOON, "as before", async || is_as_before(&cluster, &before).await).await?;
    nothing_forbidden(&cluster.log().await?)
}

/// Definitions that prune and refuse: fields that KKP does not know are gone, and its enumerations hold.
#[tokio::test(flavor = "multi_thread")]
async fn with_kkps_own_definitions_it_sleeps_and_comes_back() -> Result<()> {
    let Some(cluster) = up_on_upstream("upstream", KkpOptions::small()).await? else { return Ok(()) };
    let before = state(&cluster).await?;
    cluster.sleep().await?;
    cluster.wait_for_phase(Some("Dehydrated"), SOON).await?;
    cluster.wake().await?;
    cluster.wait_for_phase(None, SOON).await?;
    is_as_before(&cluster, &before).await?;
    nothing_forbidden(&cluster.log().await?)
}

/// Of a sleep, nothing is left on the control plane: KKP keeps annotations that it does not know (row 11).
#[tokio::test(flavor = "multi_thread")]
async fn a_wake_leaves_no_annotation_of_ours_on_the_control_plane() -> Result<()> {
    let cluster = up("clean", KkpOptions::small()).await?;
    cluster.sleep().await?;
    cluster.wait_for_phase(Some("Dehydrated"), SOON).await?;
    cluster.wake().await?;
    cluster.wait_for_phase(None, SOON).await?;
    let (seed, all) = (cluster.seed(), ListParams::default());
    let deployments: Api<Deployment> = Api::namespaced(seed.clone(), &cluster.info().namespace);
    let sets: Api<StatefulSet> = Api::namespaced(seed, &cluster.info().namespace);
    let jobs: Api<CronJob> = Api::namespaced(cluster.seed(), &cluster.info().namespace);
    let is_ours = |key: &str| key.starts_with("hibernate.sh/dehydrated-");
    let ours = |meta: &ObjectMeta| meta.annotations.iter().flatten().any(|(key, _)| is_ours(key));
    let deployments = deployments.list(&all).await?.items.into_iter().map(|one| one.metadata);
    let sets = sets.list(&all).await?.items.into_iter().map(|one| one.metadata);
    let jobs = jobs.list(&all).await?.items.into_iter().map(|one| one.metadata);
    let left: Vec<_> = deployments.chain(sets).chain(jobs).filter(ours).filter_map(|meta| meta.name).collect();
    ensure!(left.is_empty(), "an annotation of ours is left on {left:?}");
    Ok(())
}
