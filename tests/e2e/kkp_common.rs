//! What the tests of KKP's user clusters share.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Service};
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use shared::kkp::keys;
use testbed::kkp::log::{How, Log};
use testbed::supervisor::programs::Start;
use testbed::{KkpCluster, KkpOptions, Options, Program, Timings, World, apply};

/// Long enough for anything that happens at all.
pub(crate) const SOON: Duration = Duration::from_mins(3);

/// A short lease: the next controller waits for the dead one's to run out. etcd follows the others soon.
pub(crate) fn start() -> Start {
    start_with(&["--kkp-settle", "3s"])
}

pub(crate) fn start_with(args: &[&str]) -> Start {
    let args = ["--kkp"].iter().chain(args).map(|&arg| arg.to_owned());
    Start { args: args.collect(), ..Start::new(Program::Controller) }.leased(["3s", "2s", "500ms"])
}

/// A seed with several user clusters, each on a spoke of its own, and our controller.
pub(crate) async fn up_all(clusters: &[(&str, KkpOptions)]) -> Result<Vec<KkpCluster>> {
    up_all_with(clusters, &start()).await
}

/// The same with this controller.
pub(crate) async fn up_all_with(clusters: &[(&str, KkpOptions)], start: &Start) -> Result<Vec<KkpCluster>> {
    up_in(None, clusters, start).await
}

/// A seed with one user cluster and our controller.
pub(crate) async fn up(id: &str, options: KkpOptions) -> Result<KkpCluster> {
    Ok(up_all(&[(id, options)]).await?.remove(0))
}

/// The same on the definitions of KKP and machine-controller themselves, where they are at hand, with this controller.
pub(crate) async fn up_on_upstream(id: &str, options: KkpOptions, start: &Start) -> Result<KkpCluster> {
    Ok(up_in(upstream_folder("kkp"), &[(id, options)], start).await?.remove(0))
}

async fn up_in(
    upstream_crds: Option<PathBuf>,
    clusters: &[(&str, KkpOptions)],
    start: &Start,
) -> Result<Vec<KkpCluster>> {
    let (spokes, timings) = (clusters.len(), Timings::fast());
    let world =
        World::up(Options { clusters: 0, spokes, timings, upstream_crds, ..Options::without_programs() }).await?;
    apply::all(&world.hub().await?, &manifests::kkp()).await?;
    let made = clusters.iter().map(|(id, options)| world.kkp(id, options.clone()));
    let made = try_join_all(made).await?;
    world.start(start).await?;
    Ok(made)
}

/// Where upstream's own definitions of a system are. Where they are not at hand, a test uses ours.
pub(crate) fn upstream_folder(system: &str) -> Option<PathBuf> {
    let all = std::env::var_os("HIBERNATE_UPSTREAM_CRDS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/upstream-crds"), PathBuf::from);
    let folder = Some(all.join(system)).filter(|folder| folder.is_dir());
    if folder.is_none() {
        eprintln!("the real definitions of {system} are not at hand: ours are used");
    }
    folder
}

/// What a sleep must bring back as it was.
#[derive(Debug, PartialEq)]
pub(crate) struct State {
    pub(crate) control_plane: BTreeMap<String, i32>,
    pub(crate) suspended: Vec<bool>,
    pub(crate) machine_deployments: BTreeMap<String, (Value, BTreeMap<String, String>)>,
    /// UID, handle and claim of each volume.
    pub(crate) volumes: BTreeMap<String, String>,
    /// What is on each volume.
    pub(crate) data: BTreeMap<String, String>,
    /// UID and address of each load balancer.
    pub(crate) load_balancers: BTreeMap<String, String>,
    pub(crate) machines: usize,
    pub(crate) paused: bool,
}

pub(crate) async fn state(cluster: &KkpCluster) -> Result<State> {
    let (user, all) = (cluster.user(), ListParams::default());
    let cloud = cluster.inspect().await?.cloud;
    let jobs: Api<CronJob> = Api::namespaced(cluster.seed(), &cluster.info().namespace);
    let suspended = jobs.list(&all).await?.items.into_iter().map(|job| job.spec.suspend == Some(true));
    let deployments = cluster.machinery("MachineDeployment").await?.into_iter();
    let machine_deployments = deployments.map(|one| {
        let annotations = one.annotations().clone();
        (one.name_any(), (one.data["spec"].clone(), annotations))
    });
    let claims: Api<PersistentVolumeClaim> = Api::all(user.clone());
    let claims =
        claims.list(&all).await?.items.into_iter().map(|one| (one.uid(), one.spec.and_then(|spec| spec.volume_name)));
    let claims: BTreeSet<_> = claims.collect();
    let volumes = Api::<PersistentVolume>::all(user.clone()).list(&all).await?.items.into_iter().map(|one| {
        let claim = claims.iter().find(|(_, volume)| volume.as_deref() == Some(&one.name_any()));
        (one.name_any(), format!("{:?} {:?} {:?}", one.uid(), one.spec, claim))
    });
    let services = Api::<Service>::all(user).list(&all).await?.items.into_iter();
    let balancers =
        services.filter(|one| one.spec.as_ref().is_some_and(|spec| spec.type_.as_deref() == Some("LoadBalancer")));
    Ok(State {
        control_plane: cluster.replicas().await?,
        suspended: suspended.collect(),
        machine_deployments: machine_deployments.collect(),
        volumes: volumes.collect(),
        data: cloud.volumes,
        load_balancers: balancers.map(|one| (one.name_any(), format!("{:?} {:?}", one.uid(), one.status))).collect(),
        machines: cloud.instances.len(),
        paused: cluster.get().await?.data["spec"]["pause"] == true,
    })
}

/// The cluster is as it was, and nothing of the sleep is left on any object.
pub(crate) async fn is_as_before(cluster: &KkpCluster, before: &State) -> Result<()> {
    let after = state(cluster).await?;
    ensure!(after == *before, "before {before:#?}\nafter {after:#?}");
    ensure!(cluster.record().await?.is_none() && cluster.phase().await?.is_none());
    for node in &nodes(cluster).await? {
        let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default();
        let left: Vec<_> =
            node.annotations().keys().filter(|key| key.contains("hibernate") || *key == keys::SKIP_EVICTION).collect();
        ensure!(
            !cordoned && left.is_empty(),
            "{}: cordoned {cordoned}, {left:?}\n{}",
            node.name_any(),
            cluster.describe().await
        );
    }
    let record = cluster.get().await?;
    let written = [keys::CERTIFICATES_EXPIRE_AT, keys::PAUSED_BY_SLEEP];
    let left: Vec<_> = record.annotations().keys().filter(|key| written.contains(&key.as_str())).collect();
    ensure!(left.is_empty(), "{left:?}");
    Ok(())
}

/// etcd had all of its members or none, no Machine was left behind, and every Pod had its grace period.
pub(crate) fn nothing_forbidden(log: &Log) -> Result<()> {
    ensure!(log.violations.is_empty(), "{:#?}", log.violations);
    let counts: Vec<i64> = log.etcd.iter().map(|count| count.replicas).collect();
    ensure!(counts.iter().all(|count| *count == 0 || *count == 3), "{counts:?}");
    // A Pod of a DaemonSet stays on its Node, as with kubectl drain.
    let bad = |how| log.pods.iter().find(|pod| pod.how == how && !pod.of_daemon_set);
    ensure!(bad(How::InstanceStopped).is_none() && bad(How::GraceOver).is_none(), "{:#?}", log.pods);
    Ok(())
}

/// The user cluster's Nodes.
pub(crate) async fn nodes(cluster: &KkpCluster) -> Result<Vec<Node>> {
    Ok(Api::<Node>::all(cluster.user()).list(&ListParams::default()).await?.items)
}

/// Begins an `EtcdRestore`.
pub(crate) async fn restore(cluster: &KkpCluster) -> Result<()> {
    let kind = testbed::kkp::kubermatic("EtcdRestore");
    let restores: Api<DynamicObject> = Api::namespaced_with(cluster.seed(), &cluster.info().namespace, &kind);
    let restore = json!({
        "apiVersion": "kubermatic.k8c.io/v1", "kind": "EtcdRestore", "metadata": { "name": "r" },
        "spec": { "name": "r", "backupName": "b", "cluster": { "name": cluster.info().id, "kind": "Cluster" } },
    });
    restores.create(&PostParams::default(), &serde_json::from_value(restore)?).await?;
    Ok(())
}
