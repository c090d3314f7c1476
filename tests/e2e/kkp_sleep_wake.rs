//! KKP on real API servers: the hub is the seed, a spoke is the user cluster. KKP, machine-controller, the cloud and
//! the kubelets are the double of doubles.md of the docs; "row n" is a row of what the real ones were seen to do.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DynamicObject, ListParams, ObjectMeta};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::watch_object;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use shared::kkp::keys;
use shared::savings::ledger::{LEDGER, Ledger};
use testbed::kkp::log::{How, Log};
use testbed::supervisor::programs::Start;
use testbed::{KkpCluster, KkpOptions, ensure_that, eventually};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::kkp_common::{
    SOON, State, is_as_before, nodes, nothing_forbidden, start, start_with, state, up, up_on_upstream,
};

/// Phases of a sleep in which something may be under way, in order.
const PHASES: [&str; 6] =
    ["Draining", "ScalingDownMachines", "MachinesScaledDown", "Pausing", "ScalingDownControlPlane", "Dehydrated"];

/// How long it sleeps at least, to be counted in whole seconds.
const COUNTED: Duration = Duration::from_secs(3);

/// Every Pod that a drain deletes had ended before its instance was gone.
fn ended_before_their_instances(log: &Log, pods: usize) -> Result<()> {
    let gone = log.calls.iter().filter(|call| call.by == "cloud" && call.text.contains("is gone"));
    let first = gone.map(|call| call.at).fold(f64::INFINITY, f64::min);
    let drained: Vec<_> = log.pods.iter().filter(|pod| !pod.of_daemon_set && pod.at <= first).collect();
    ensure!(drained.len() >= pods, "{} of {pods} Pods ended before the first instance was gone", drained.len());
    ensure!(drained.iter().all(|pod| pod.how == How::Graceful && pod.grace == 30), "{drained:#?}");
    Ok(())
}

/// One sleep and one wake, with what a user cluster may bring along: definitions that prune and refuse (KKP's own,
/// where they are at hand), a kubeconfig whose host ends in the dot of the DNS root, which certificates never do (8.1),
/// and reconciles of KKP that raise counts again after the pause (row 5).
#[tokio::test(flavor = "multi_thread")]
async fn five_machines_three_volumes_and_two_load_balancers_sleep_and_come_back() -> Result<()> {
    let mut options = KkpOptions::default();
    options.settings.host = "localhost.".to_owned();
    let start = Start { hosts: Some("127.0.0.1 localhost.".to_owned()), ..start_with(&[]) };
    let cluster = up_on_upstream("shop", options, &start).await?;
    let before = state(&cluster).await?;
    ensure!(before.machines == 5 && before.volumes.len() == 3 && before.load_balancers.len() == 2, "{before:?}");
    cluster.turn(&json!({ "inFlight": { "rounds": 3, "deployments": 5, "delay": "1500ms" } })).await?;
    cluster.sleep().await?;
    cluster.wait_for_phase(Some("Dehydrated"), SOON).await?;
    is_reported(&cluster).await.context("what the Cluster says of its sleep")?;
    nothing_runs(&cluster, &before).await.context("what the sleep has left")?;
    is_recorded(&cluster).await.context("the record")?;
    let log = cluster.log().await?;
    ended_before_their_instances(&log, 10)?;
    etcd_went_last(&log).context("reconciles in flight")?;
    // What the reconciles in flight have raised makes the sleep before it unknown.
    tokio::time::sleep(COUNTED).await;

    cluster.wake().await?;
    cluster.wait_for_phase(None, SOON).await?;
    is_as_before(&cluster, &before).await?;
    nothing_is_noted(&cluster).await?;
    is_counted(&cluster).await.context("its ledger")?;
    nothing_forbidden(&cluster.log().await?)?;
    running(&cluster).await
}

/// The ledger has the sleep, and the machines with the size that their `MachineDeployments` name.
async fn is_counted(cluster: &KkpCluster) -> Result<()> {
    let object = cluster.wait_for("a ledger", SOON, |object| !ledger(object).is_empty()).await?;
    let uid = object.metadata.uid.as_deref().unwrap_or_default();
    let ledger = Ledger::of(ledger(&object), uid, Timestamp::now())?;
    let (asleep, machines) = ledger.totals();
    ensure!(asleep > 0 && machines == [("t3a.large".to_owned(), 5 * asleep)].into(), "{asleep} s of {machines:?}");
    Ok(())
}

fn ledger(object: &DynamicObject) -> &str {
    object.data["status"]["conditions"][LEDGER]["message"].as_str().unwrap_or_default()
}

/// The condition counts what a wake brings back, and KKP shows the cluster as healthy (row 6).
async fn is_reported(cluster: &KkpCluster) -> Result<()> {
    let message = |object: &DynamicObject| {
        object.data["status"]["conditions"][keys::DEHYDRATED]["message"].as_str().unwrap_or_default().to_owned()
    };
    let asleep = cluster.wait_for("a message", SOON, |object| !message(object).is_empty()).await?;
    let condition = &asleep.data["status"]["conditions"][keys::DEHYDRATED];
    ensure!(condition["status"] == "True" && asleep.data["spec"]["pause"] == true, "{condition}");
    let message = message(&asleep);
    for part in ["5 machines", "3 volumes", "2 load balancers"] {
        ensure!(message.contains(part), "no {part} in {message}");
    }
    let status = &asleep.data["status"];
    ensure!(status["phase"] == "Running" && status["extendedHealth"]["apiserver"] == "HealthStatusUp", "{status}");
    Ok(())
}

/// Its API server does not answer, and the cloud has only what remains.
async fn nothing_runs(cluster: &KkpCluster, before: &State) -> Result<()> {
    let inspection = cluster.inspect().await?;
    ensure!(!inspection.open && inspection.cloud.instances.is_empty(), "{inspection:?}");
    ensure!(
        inspection.cloud.volumes == before.data && inspection.cloud.load_balancers.len() == 2,
        "{:?}",
        inspection.cloud
    );
    let counts = cluster.replicas().await?;
    ensure!(counts.values().all(|count| *count == 0), "{counts:?}");
    Ok(())
}

async fn is_recorded(cluster: &KkpCluster) -> Result<()> {
    let record = cluster.record().await?.context("no record")?;
    ensure!(
        record["controlPlane"]["StatefulSet/etcd"] == 3 && record["controlPlane"]["Deployment/apiserver"] == 2,
        "{record}"
    );
    ensure!(record["machineDeployments"]["kube-system/a"]["replicas"] == 3, "{record}");
    ensure!(record["numbers"] == json!({ "volumes": 3, "loadBalancers": 2, "machines": 5 }), "{record}");
    Ok(())
}

/// Counts that a reconcile in flight raised are zeroed again before etcd goes.
fn etcd_went_last(log: &Log) -> Result<()> {
    let raised: Vec<f64> =
        log.calls.iter().filter(|call| call.text.starts_with("in flight")).map(|call| call.at).collect();
    let etcd = log.etcd.iter().find(|count| count.replicas == 0).context("etcd at 0")?.at;
    ensure!(!raised.is_empty() && raised.iter().all(|at| etcd - at > 10.0), "raised at {raised:?}, etcd at {etcd}");
    Ok(())
}

/// Of a sleep, nothing is left on the control plane: KKP keeps annotations that it does not know (row 11).
async fn nothing_is_noted(cluster: &KkpCluster) -> Result<()> {
    let (namespace, all) = (&cluster.info().namespace, ListParams::default());
    let deployments: Api<Deployment> = Api::namespaced(cluster.seed(), namespace);
    let sets: Api<StatefulSet> = Api::namespaced(cluster.seed(), namespace);
    let jobs: Api<CronJob> = Api::namespaced(cluster.seed(), namespace);
    let is_ours = |key: &str| key.starts_with("hibernate.sh/dehydrated-");
    let ours = |meta: &ObjectMeta| meta.annotations.iter().flatten().any(|(key, _)| is_ours(key));
    let deployments = deployments.list(&all).await?.items.into_iter().map(|one| one.metadata);
    let sets = sets.list(&all).await?.items.into_iter().map(|one| one.metadata);
    let jobs = jobs.list(&all).await?.items.into_iter().map(|one| one.metadata);
    let left: Vec<_> = deployments.chain(sets).chain(jobs).filter(ours).filter_map(|meta| meta.name).collect();
    ensure!(left.is_empty(), "an annotation of ours is left on {left:?}");
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

/// `resume` in each phase undoes what was done (8.2), and the cluster sleeps again afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_wake_in_any_phase_of_the_sleep_undoes_it() -> Result<()> {
    let cluster = up("undone", KkpOptions::default()).await?;
    let before = state(&cluster).await?;
    let mut phases = phases(&cluster);
    for phase in PHASES {
        phases.wait_for(Option::is_none).await?;
        cluster.sleep().await?;
        let seen = reached(&cluster, &mut phases, phase).await?;
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

/// The phase that the record names, by a watch; `None`: there is no record.
fn phases(cluster: &KkpCluster) -> watch::Receiver<Option<String>> {
    let records: Api<ConfigMap> = Api::namespaced(cluster.seed(), &cluster.info().namespace);
    let (sender, receiver) = watch::channel(None);
    tokio::spawn(async move {
        let mut versions = pin!(watch_object(records, keys::RECORD.0).default_backoff());
        while let Some(version) = versions.next().await {
            let Ok(record) = version else { continue };
            let text = record.and_then(|record| record.data?.remove(keys::RECORD.1));
            let record = text.and_then(|text| serde_json::from_str::<Value>(&text).ok());
            let phase = record.and_then(|record| record["phase"].as_str().map(str::to_owned));
            sender.send_if_modified(|known| {
                let is_new = *known != phase;
                *known = phase;
                is_new
            });
        }
    });
    receiver
}

/// Waits until the record names this phase, or a later one: a fast phase may be over when the news of it comes.
async fn reached(cluster: &KkpCluster, phases: &mut watch::Receiver<Option<String>>, phase: &str) -> Result<String> {
    let place = |found: &str| PHASES.iter().position(|one| *one == found);
    let is_reached = |found: &Option<String>| found.as_deref().and_then(place) >= place(phase);
    let found = timeout(SOON, phases.wait_for(is_reached)).await.map(|found| found.map(|found| found.clone()));
    let Ok(found) = found else { bail!("never in {phase}\n{}", cluster.describe().await) };
    Ok(found?.unwrap_or_default())
}

/// The controller is killed each time when the record enters a phase, both ways, and the next one goes on. The
/// controller has no kill points of its own: the record is written before anything of its phase is done.
#[tokio::test(flavor = "multi_thread")]
async fn killed_in_every_phase_both_ways_it_goes_on() -> Result<()> {
    let cluster = up("phoenix", KkpOptions::default()).await?;
    let before = state(&cluster).await?;
    let (mut phases, mut killed) = (phases(&cluster), BTreeSet::new());
    for asleep in [true, false] {
        if asleep {
            cluster.sleep().await?;
        } else {
            cluster.wake().await?;
        }
        loop {
            let Ok(changed) = timeout(SOON, phases.changed()).await else { bail!("{}", cluster.describe().await) };
            changed?;
            let found = phases.borrow_and_update().clone();
            cluster.world().signal("controller", "kill").await?;
            cluster.world().start(&start()).await?;
            killed.insert(format!("{found:?}"));
            let done = if asleep { found.as_deref() == Some("Dehydrated") } else { found.is_none() };
            if done {
                break;
            }
        }
        cluster.wait_for_phase(asleep.then_some("Dehydrated"), SOON).await?;
    }
    ensure!(killed.len() >= 8, "killed in {killed:?}");
    eventually(SOON, "as before", async || is_as_before(&cluster, &before).await).await?;
    nothing_forbidden(&cluster.log().await?)?;
    // Nobody else needs this cluster any more.
    running(&cluster).await?;
    woken_while_machines_terminate(&cluster, &before).await.context("a wake while Machines terminate")
}

/// A wake that comes while Machines terminate waits for the new ones: Nodes of Machines that are being deleted are no
/// Nodes of the wake.
async fn woken_while_machines_terminate(cluster: &KkpCluster, before: &State) -> Result<()> {
    cluster.turn(&json!({ "terminate": "200s" })).await?;
    cluster.sleep().await?;
    eventually(SOON, "terminations", async || {
        ensure_that(cluster.inspect().await?.cloud.instances, |all| all.values().all(|one| one.terminating.is_some()))
    })
    .await?;
    cluster.wake().await?;
    cluster.wait_for_phase(None, SOON).await?;
    let machines = cluster.machinery("Machine").await?;
    let live = machines.iter().filter(|one| one.metadata.deletion_timestamp.is_none()).map(ResourceExt::name_any);
    let live: BTreeSet<String> = live.collect();
    let nodes = nodes(cluster).await?;
    let ready = nodes.iter().filter(|node| live.contains(&node.name_any())).count();
    ensure!(ready == 5, "the wake has ended with {ready} of 5 Nodes:\n{}", cluster.describe().await);
    eventually(SOON, "as before", async || is_as_before(cluster, before).await).await?;
    nothing_forbidden(&cluster.log().await?)
}
