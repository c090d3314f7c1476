//! The double of KKP does what the real one was seen to do, on the seed. The names of the tests are rows of
//! docs/reference/kkp.md.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use testbed::kkp::log::{Count, Rule};
use testbed::kkp::server::Act;
use testbed::kkp::{certificates, control_plane, kubermatic};
use testbed::{KkpCluster, KkpOptions, Options, Timings, World, eventually, kubeconfig};

pub(crate) const SOON: Duration = Duration::from_mins(1);

/// Waits until this holds.
pub(crate) async fn until(what: &str, holds: impl AsyncFn() -> Result<bool>) -> Result<()> {
    eventually(SOON, what, async || {
        ensure!(holds().await?);
        Ok(())
    })
    .await
}

/// A world of its own for each test: KKP's settings are those of the seed.
pub(crate) async fn world() -> Result<World> {
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
async fn all_up(cluster: &KkpCluster, within: Duration) -> Result<()> {
    cluster
        .wait_for("all up", within, |object| {
            let health = object.data["status"]["extendedHealth"].as_object().cloned().unwrap_or_default();
            health.len() > 9
                && health.values().all(|one| one == "HealthStatusUp")
                && condition(object, "SeedResourcesUpToDate") == "True"
        })
        .await
        .map(drop)
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

fn code<T>(result: Result<T>) -> Option<u16> {
    let error = result.err()?;
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    }
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
        let begun = Instant::now();
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
        .with_context(|| format!("row 2: {name} after {:?}", begun.elapsed()))?;
    }
    let kept = deployments.get("apiserver").await?.metadata.annotations.unwrap_or_default();
    ensure!(kept.get("hibernate.sh/test").is_some_and(|value| value == "kept"), "row 11: {kept:?}");

    all_up(&cluster, SOON).await?;
    for at in [0, 1] {
        cluster.scale("etcd", at).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        ensure!(count(&cluster, "etcd").await? == at, "row 3: {at} stays");
        ensure!(!cluster.inspect().await?.open, "row 39: {at} of three does not serve");
    }
    cluster.scale("etcd", 2).await?;
    until("row 3: two serve, and KKP makes it three", async || Ok(count(&cluster, "etcd").await? == 3)).await?;
    all_up(&cluster, SOON).await?;
    let violations = cluster.log().await?.violations;
    let parts = violations.iter().filter(|one| one.rule == Rule::EtcdAtPart).count();
    ensure!(parts == 2, "etcd at 1 and at 2 are noted: {violations:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_4_6_7_and_12_to_14_a_paused_cluster_is_left_alone_and_looks_healthy() -> Result<()> {
    let cluster = world().await?.kkp("paused", KkpOptions::small()).await?;
    let before = cluster.get().await?;
    let api: Api<DynamicObject> = Api::all_with(cluster.seed(), &kubermatic("Cluster"));
    let ours = json!({ "status": "True", "reason": "Dehydrated", "kubermaticVersion": "v2.30.0", "lastHeartbeatTime": "2026-11-24T00:00:00Z" });
    let ours = Patch::Merge(json!({ "status": { "conditions": { "ClusterDehydrated": ours } } }));
    api.patch_status(&cluster.info().id, &PatchParams::default(), &ours).await?;
    cluster.patch(&json!({ "spec": { "pause": true, "pauseReason": "why" } })).await?;
    zero(&cluster).await?;
    cluster
        .patch(&json!({ "spec": { "version": "1.34.2" }, "metadata": { "annotations": { "touched": "true" } } }))
        .await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    ensure!(cluster.replicas().await?.values().all(|count| *count == 0), "row 4");
    let mut asleep = cluster.get().await?;
    ensure!(condition(&asleep, "ClusterDehydrated") == "True", "row 12");
    if let Some(all) = asleep.data["status"]["conditions"].as_object_mut() {
        all.remove("ClusterDehydrated");
    }
    ensure!(
        asleep.data["status"] == before.data["status"],
        "row 6: {}\n{}",
        asleep.data["status"],
        before.data["status"]
    );
    ensure!(!cluster.inspect().await?.open);

    cluster.scale("etcd", 3).await?;
    let awake = pause(&cluster, false).await?;
    ensure!(awake.data["spec"]["pauseReason"] == "why", "row 13");
    all_up(&cluster, SOON).await?;
    let old = cluster.get().await?;
    ensure!(old.data["status"]["versions"]["controlPlane"] == "1.34.1", "row 14: the old version comes up first");
    ensure!(condition(&old, "ClusterDehydrated") == "True", "row 12");
    cluster.wait_for("phase Updating", SOON, |object| object.data["status"]["phase"] == "Updating").await?;
    let new = cluster
        .wait_for("the new version", SOON, |object| {
            object.data["status"]["versions"]["controlPlane"] == "1.34.2" && object.data["status"]["phase"] == "Running"
        })
        .await?;
    let heartbeat = |object: &DynamicObject| {
        object.data["status"]["conditions"]["ClusterControllerReconciledSuccessfully"]["lastHeartbeatTime"].clone()
    };
    ensure!(heartbeat(&new) == heartbeat(&before), "row 7: a heartbeat is no sign of life");
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
    let violations = cluster.log().await?.violations;
    ensure!(violations.iter().any(|one| one.rule == Rule::PausedWithMachine), "row 58: {violations:?}");
    Ok(())
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
    all_up(&cluster, SOON).await?;

    pause(&cluster, true).await?;
    zero(&cluster).await?;
    no_pod_left(&cluster).await?;
    world.turn_kkp(&json!({ "othersUpdating": 10 })).await?;
    pause(&cluster, false).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    ensure!(cluster.replicas().await?.values().all(|count| *count == 0), "row 9: nothing comes back");
    ensure!(condition(&cluster.get().await?, "SeedResourcesUpToDate") == "True", "row 9: 0 of 0 are all");
    cluster.scale("etcd", 3).await?;
    all_up(&cluster, SOON).await.context("row 9: raising etcd makes it False, and KKP serves it")?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_15_15a_and_44_certificates_and_an_api_server_that_does_not_answer() -> Result<()> {
    let cluster = world().await?.kkp("certs", KkpOptions::small()).await?;
    let secrets: Api<Secret> = Api::namespaced(cluster.seed(), &cluster.info().namespace);
    let text = async || -> Result<String> {
        let data = secrets.get("internal-admin-kubeconfig").await?.data.unwrap_or_default();
        Ok(String::from_utf8(data.get("kubeconfig").context("a kubeconfig")?.0.clone())?)
    };
    let user = async |text: &str| -> Result<Client> { kubeconfig::client(text).await };
    let before = text().await?;
    eventually(SOON, "the kubeconfig works", async || Ok(user(&before).await?.apiserver_version().await?)).await?;
    pause(&cluster, true).await?;
    zero(&cluster).await?;
    cluster.act(&Act::ExpireCertificates(-1)).await?;
    let left = async || -> Result<i64> {
        let (name, key, _) = certificates::SECRETS[0];
        certificates::days_left(&secrets.get(name).await?, key).context("a certificate")
    };
    let expired = text().await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    ensure!(left().await? < 0 && text().await? == expired, "row 15: paused, nothing is renewed");
    cluster.scale("etcd", 3).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    ensure!(!cluster.inspect().await?.etcd.serves(), "row 44");
    pause(&cluster, false).await?;
    // What the status says is as old as the pause (row 6).
    until("row 15: both are renewed", async || Ok(left().await? > 300 && text().await? != expired)).await?;
    until("an open gate", async || Ok(cluster.inspect().await?.open)).await?;
    eventually(SOON, "the new one works", async || Ok(user(&text().await?).await?.apiserver_version().await?)).await?;
    for old in [&before, &expired] {
        // The API server remembers a token that was used for ten seconds.
        eventually(SOON, "an expired one that does not", async || {
            let answer = user(old).await?.apiserver_version().await;
            ensure!(matches!(&answer, Err(kube::Error::Api(status)) if status.code == 401), "{answer:?}");
            Ok(())
        })
        .await?;
    }
    all_up(&cluster, SOON).await?;
    cluster.turn(&json!({ "apiSilent": true })).await?;
    until("a closed gate", async || Ok(!cluster.inspect().await?.open)).await?;
    cluster.scale("scheduler", 0).await?;
    let stuck = cluster
        .wait_for("an error", SOON, |object| condition(object, "ClusterControllerReconciledSuccessfully") == "False")
        .await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    ensure!(count(&cluster, "scheduler").await? == 0, "row 15a: nothing is ensured");
    ensure!(stuck.data["status"]["extendedHealth"]["scheduler"] == "HealthStatusUp", "row 15a: health stays Up");
    cluster.turn(&json!({ "apiSilent": false })).await?;
    all_up(&cluster, SOON).await
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_13_and_18_a_restore_deletes_the_volumes_and_wakes_the_cluster() -> Result<()> {
    let cluster = world().await?.kkp("restore", KkpOptions::small()).await?;
    let ring = cluster.inspect().await?.etcd.ring;
    cluster.patch_machines("a", &json!({ "spec": { "replicas": 0 } })).await?;
    until("no Machine", async || Ok(cluster.machinery("Machine").await?.is_empty())).await?;
    cluster.patch(&json!({ "spec": { "pause": true, "pauseReason": "asleep" } })).await?;
    zero(&cluster).await?;
    let kind = kubermatic("EtcdRestore");
    let restores: Api<DynamicObject> = Api::namespaced_with(cluster.seed(), &cluster.info().namespace, &kind);
    let of = json!({ "apiVersion": "kubermatic.k8c.io/v1", "kind": "Cluster", "name": cluster.info().id });
    let restore = json!({
        "apiVersion": "kubermatic.k8c.io/v1", "kind": "EtcdRestore", "metadata": { "name": "r" },
        "spec": { "name": "r", "backupName": "b", "cluster": of },
    });
    restores.create(&PostParams::default(), &serde_json::from_value(restore)?).await?;
    let key = "kubermatic.k8c.io/active-restore";
    cluster
        .wait_for("the annotation", SOON, |object| {
            object.metadata.annotations.iter().flatten().any(|(name, _)| name == key)
        })
        .await?;
    eventually(SOON, "Completed", async || {
        let phase = restores.get("r").await?.data["status"]["phase"].clone();
        ensure!(phase == "Completed", "{phase}");
        Ok(())
    })
    .await?;
    all_up(&cluster, SOON).await?;
    let object = cluster.get().await?;
    ensure!(
        object.data["spec"]["pause"] != true && object.data["spec"]["pauseReason"] == "asleep",
        "row 13: {}",
        object.data["spec"]
    );
    let new = cluster.inspect().await?.etcd.ring;
    ensure!(
        new.len() == 3 && new.values().all(|volume| !ring.values().any(|old| old == volume)),
        "new volumes: {ring:?} {new:?}"
    );
    until("row 18: the Machines of the backup", async || Ok(cluster.machinery("Machine").await?.len() == 1)).await
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
    api.delete("deleted", &kube::api::DeleteParams::default()).await?;
    cluster.wait_for("phase Terminating", SOON, |object| object.data["status"]["phase"] == "Terminating").await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let finalizers = |object: &DynamicObject| object.metadata.finalizers.clone().unwrap_or_default();
    ensure!(finalizers(&cluster.get().await?).len() == 7, "row 19: paused, nothing happens");
    pause(&cluster, false).await?;
    eventually(SOON, "refused connections", async || {
        let calls = cluster.log().await?.calls;
        ensure!(
            calls
                .iter()
                .filter(|call| call.text.contains("failed to cleanup LBs") && call.text.contains("connection refused"))
                .count()
                > 2
        );
        Ok(())
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

#[tokio::test(flavor = "multi_thread")]
async fn rows_24_to_33_the_webhooks_prune_default_and_refuse() -> Result<()> {
    let world = world().await?;
    let cluster = world.kkp("webhooks", KkpOptions::small()).await?;
    let object = cluster.patch(&json!({ "spec": { "dehydrated": true } })).await?;
    ensure!(object.data["spec"].get("dehydrated").is_none(), "row 25: answered with 200, and not stored");
    let none = json!({ "spec": { "componentsOverride": { "apiserver": { "replicas": 0 } } } });
    let object = cluster.patch(&none).await?;
    ensure!(object.data["spec"]["componentsOverride"]["apiserver"]["replicas"] == 2, "row 33");
    for (change, expected) in [
        (json!({ "spec": { "version": "1.99.0" } }), Some(403)),
        (json!({ "spec": { "features": { "etcdLauncher": false } } }), Some(403)),
        (json!({ "metadata": { "resourceVersion": "1" }, "spec": { "pause": true } }), Some(409)),
        (json!({ "metadata": { "annotations": { "a": "b" } } }), None),
    ] {
        ensure!(code(cluster.patch(&change).await) == expected, "row 29: {change}");
    }
    let api: Api<DynamicObject> = Api::all_with(world.hub().await?, &kubermatic("Cluster"));
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    let paused = Patch::Merge(json!({ "spec": { "pause": true } }));
    let refused = async |what: &str, expected: u16| -> Result<()> {
        for change in [json!({ "spec": { "pause": true } }), json!({ "metadata": { "labels": { "x": "y" } } })] {
            ensure!(code(cluster.patch(&change).await) == Some(expected), "row 27, {what}: {change}");
        }
        let status = Patch::Merge(json!({ "status": { "userEmail": what } }));
        api.patch_status("webhooks", &PatchParams::default(), &status).await.context("the status can be written")?;
        Ok(())
    };
    ensure!(api.patch("webhooks", &dry_run, &paused).await?.data["spec"]["pause"] == true, "row 28");
    ensure!(cluster.get().await?.data["spec"]["pause"] != true, "row 28");
    world.turn_kkp(&json!({ "datacenters": [] })).await?;
    refused("no datacenter", 400).await?;
    ensure!(api.patch("webhooks", &dry_run, &paused).await.is_err(), "row 28");
    world.turn_kkp(&json!({ "datacenters": ["eu"], "webhooksDown": true })).await?;
    refused("webhooks down", 500).await?;
    world.turn_kkp(&json!({ "webhooksDown": false })).await?;
    pause(&cluster, true).await?;
    let counts: Vec<Count> = cluster.log().await?.etcd;
    ensure!(counts.len() == 1 && counts[0].replicas == 3, "{counts:?}");
    Ok(())
}
