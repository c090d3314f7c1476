//! What can happen to a user cluster around a sleep: each ends awake, asleep or deleted, or in a condition that says
//! what to do. One world a subject. Its user clusters go through their cases at the same time, each through one after
//! the other: an API server costs more than a case. "Row n" is a row of what the real KKP was seen to do
//! (doubles.md of the docs).

mod records;

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Event, Pod, Secret};
use kube::api::{DeleteParams, DynamicObject, ListParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use shared::annotation::keys as common;
use shared::kkp::keys;
use testbed::kkp::server::Act;
use testbed::{KkpCluster, KkpOptions, ensure_that, eventually};

use self::records::{detail, forged, of_another_cluster, request_on_record};
use crate::kkp_common::{
    self, SOON, State, is_as_before, nothing_forbidden, start_with, state, up, up_all, up_all_with,
};

/// Waits until nothing keeps the cluster from sleeping, and puts it to sleep. What it was before.
async fn put_to_sleep(cluster: &KkpCluster) -> Result<State> {
    let up_to_date = "/status/conditions/SeedResourcesUpToDate/status";
    let is_ready = |object: &DynamicObject| {
        object.data["status"]["phase"] == "Running" && object.data.pointer(up_to_date) == Some(&json!("True"))
    };
    cluster.wait_for("an idle KKP", SOON, is_ready).await?;
    let before = state(cluster).await?;
    cluster.sleep().await?;
    cluster.wait_for_phase(Some("Dehydrated"), SOON).await?;
    Ok(before)
}

/// The wake ends, everything is as before, and nothing forbidden happened on the way.
async fn comes_back(cluster: &KkpCluster, before: &State) -> Result<()> {
    cluster.wait_for_phase(None, SOON).await?;
    is_as_before(cluster, before).await?;
    nothing_forbidden(&cluster.log().await?)
}

/// It sleeps, this happens, it is woken, and it comes back.
async fn survives(cluster: &KkpCluster, happens: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
    let before = put_to_sleep(cluster).await?;
    happens().await?;
    cluster.wake().await?;
    comes_back(cluster, &before).await
}

fn annotation<'a>(object: &'a DynamicObject, key: &str) -> Option<&'a str> {
    object.annotations().get(key).map(String::as_str)
}

fn small() -> KkpOptions {
    KkpOptions::small()
}

/// Rows 8, 14, 15 and 18.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_happens_to_a_sleeping_cluster_it_comes_back() -> Result<()> {
    let clusters = up_all(&["handled", "changed", "raised"].map(|name| (name, small()))).await?;
    let [handled, changed, raised] = &clusters[..] else { bail!("three clusters") };
    let by_others = async {
        by_another_client(handled).await.context("woken by another client")?;
        from_a_backup(handled).await.context("restored from a backup")
    };
    let by_time = async {
        let expire = async || changed.act(&Act::ExpireCertificates(-1)).await;
        survives(changed, expire).await.context("with expired certificates")?;
        let upgrade = async || changed.patch(&json!({ "spec": { "version": "1.34.2" } })).await.map(drop);
        survives(changed, upgrade).await.context("with another version")?;
        let other_sleep =
            json!({ "metadata": { "annotations": { keys::PAUSED_BY_SLEEP: "u-1/2026-11-22T18:00:00Z" } } });
        paused_by_another_client(changed, &other_sleep).await.context("paused for another sleep")
    };
    let by_scaling = async {
        survives(raised, async || scaled_by_others(raised).await).await.context("scaled by another client")?;
        let reason = json!({ "spec": { "pauseReason": "maintenance" } });
        paused_by_another_client(raised, &reason).await.context("paused for another reason")
    };
    tokio::try_join!(by_others, by_time, by_scaling).map(drop)
}

async fn by_another_client(cluster: &KkpCluster) -> Result<()> {
    let before = put_to_sleep(cluster).await?;
    cluster.patch(&json!({ "spec": { "pause": false } })).await?;
    comes_back(cluster, &before).await?;
    let intent = cluster.get().await?;
    ensure!(annotation(&intent, keys::POWER_STATE) == Some("Running"), "{:?}", intent.annotations());
    ensure!(intent.data["spec"]["pauseReason"].is_null(), "our reason is left: {}", intent.data["spec"]);
    noted(cluster, "PauseEndedByOthers").await
}

async fn from_a_backup(cluster: &KkpCluster) -> Result<()> {
    put_to_sleep(cluster).await?;
    kkp_common::restore(cluster).await?;
    cluster.wait_for("the restore", SOON, |object| annotation(object, keys::ACTIVE_RESTORE).is_some()).await?;
    cluster.wait_for_phase(None, SOON).await?;
    ensure!(cluster.record().await?.is_none() && !cluster.inspect().await?.cloud.instances.is_empty());
    Ok(())
}

/// Another client has taken over the pause, or has paused the cluster again with the reason of ours: the wake leaves
/// it, and says so.
async fn paused_by_another_client(cluster: &KkpCluster, change: &Value) -> Result<()> {
    let before = put_to_sleep(cluster).await?;
    cluster.patch(change).await?;
    cluster.wake().await?;
    noted(cluster, "PausedByOthers").await?;
    cluster.wait_for_phase(None, SOON).await?;
    let after = state(cluster).await?;
    ensure!(after.paused && cluster.record().await?.is_none(), "{after:#?}");
    ensure!(State { paused: false, ..after } == before, "{before:#?}");
    ensure!(annotation(&cluster.get().await?, keys::PAUSED_BY_SLEEP).is_none(), "our annotation is left");
    nothing_forbidden(&cluster.log().await?)
}

/// Replicas that another client raises are set to 0 three times in a sleep, then they stay and an Event says so. The
/// first of the three may have been raised by a pass of KKP that was under way when the cluster was paused (row 5).
async fn scaled_by_others(cluster: &KkpCluster) -> Result<()> {
    let line = ["scale", "deployment/scheduler", "--replicas=1", "-n", &cluster.info().namespace];
    loop {
        let before = corrections(cluster).await?;
        let ran = cluster.world().kubectl(&line).await?;
        ensure!(ran.code == 0, "{ran:?}");
        // The controller sees it within a minute; a write to the Cluster has it look at once.
        cluster.patch(&json!({ "metadata": { "labels": { "scaled": before.to_string() } } })).await?;
        if before == 3 {
            break;
        }
        eventually(SOON, "0 again", async || {
            let (counts, phase, after) =
                (cluster.replicas().await?, cluster.phase().await?, corrections(cluster).await?);
            let is_asleep = phase.as_ref().is_some_and(|(phase, _)| phase == "Dehydrated");
            let found = format!("{before} corrections, then {after}: {phase:?} {counts:?}");
            ensure!(counts["scheduler"] == 0 && is_asleep && after == before + 1, "{found}");
            Ok(())
        })
        .await?;
    }
    noted(cluster, "ReplicasRaised").await?;
    ensure!(cluster.replicas().await?["scheduler"] == 1, "corrected a fourth time");
    Ok(())
}

/// How often the counts were set to 0 again.
async fn corrections(cluster: &KkpCluster) -> Result<u64> {
    let record = cluster.record().await?.context("a record")?;
    Ok(record["corrections"].as_u64().unwrap_or_default())
}

/// An Event with this reason is published about the cluster.
async fn noted(cluster: &KkpCluster, reason: &str) -> Result<()> {
    told_that(cluster, reason, "").await
}

/// The same, with these words.
async fn told_that(cluster: &KkpCluster, reason: &str, words: &str) -> Result<()> {
    let events: Api<Event> = Api::all(cluster.seed());
    let about = format!("involvedObject.name={},reason={reason}", cluster.info().id);
    let says = |event: &Event| event.message.as_deref().is_some_and(|message| message.contains(words));
    eventually(SOON, reason, async || {
        ensure_that(events.list(&ListParams::default().fields(&about)).await?.items, |found| found.iter().any(says))
    })
    .await
}

/// What KKP itself may be like: without our kubeconfig; at its concurrency limit, with its webhooks down, and with a
/// datacenter that left the Seed (rows 9, 10 and 27).
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_wakes_although_kkp_is_busy_or_refuses_every_write() -> Result<()> {
    let cluster = up("seeded", small()).await?;
    bad_input_is_named_and_changes_nothing(&cluster).await.context("bad input")?;
    let limit = async |others: u32| cluster.world().turn_kkp(&json!({ "othersUpdating": others })).await.map(drop);
    survives(&cluster, async || limit(10).await).await.context("at the limit")?;
    limit(0).await?;
    let datacenter = ("datacenters", json!(["us"]), json!(["eu"]));
    refused(&cluster, &datacenter, None).await.context("without its datacenter")?;
    let webhooks = ("webhooksDown", json!(true), json!(false));
    refused(&cluster, &webhooks, Some("bob")).await.context("without KKP's webhooks")
}

/// KKP refuses every write by this knob; the record is stamped with who requested the wake.
async fn refused(cluster: &KkpCluster, (knob, value, repaired): &(&str, Value, Value), by: Option<&str>) -> Result<()> {
    let before = put_to_sleep(cluster).await?;
    cluster.world().turn_kkp(&json!({ *knob: value })).await?;
    ensure!(cluster.wake().await.is_err(), "KKP refuses every write");
    request_on_record(cluster, "Running", by).await?;
    cluster.wait_for_phase(Some("AwakePaused"), SOON).await?;
    ensure!(cluster.replicas().await? == before.control_plane, "a count was not restored");
    eventually(SOON, "the refusal", async || {
        ensure_that(cluster.phase().await?.context("a condition")?.1, |message| {
            message.contains("the end of spec.pause was refused")
        })
    })
    .await?;
    cluster.world().turn_kkp(&json!({ *knob: repaired })).await?;
    comes_back(cluster, &before).await?;
    let intent = cluster.get().await?;
    ensure!(annotation(&intent, keys::POWER_STATE) == Some("Running"), "{:?}", intent.annotations());
    ensure!(annotation(&intent, common::REQUESTED_BY) == by, "{:?}", intent.annotations());
    Ok(())
}

/// Row 65: KKP applies encryption at rest by a Job that fails for good without the API server; row 64: the seed has no
/// room for the third member of etcd and the second Pod of the API server.
#[tokio::test(flavor = "multi_thread")]
async fn encryption_at_rest_is_waited_for_and_a_seed_without_room_is_not() -> Result<()> {
    let limits = ["--kkp-settle", "3s", "--kkp-limit", "etcd=20s", "--kkp-limit", "api=20s"];
    let clusters = [("ciphered", small()), ("crowded", small())];
    let clusters = up_all_with(&clusters, &start_with(&limits)).await?;
    let [ciphered, crowded] = &clusters[..] else { bail!("two clusters") };
    let encrypts = async {
        encrypted_before(ciphered).await.context("encryption before a sleep")?;
        encrypted_meanwhile(ciphered).await.context("encryption during a sleep")
    };
    let wakes = async { wakes_without_room(crowded).await.context("a seed without room") };
    tokio::try_join!(encrypts, wakes).map(drop)
}

/// Raised while no controller looks: what runs on the Nodes that come then has its grace period, too.
#[tokio::test(flavor = "multi_thread")]
async fn pods_on_nodes_that_come_after_the_drain_end_before_their_machines() -> Result<()> {
    let cluster = up("late", KkpOptions { load_balancers: 1, ..small() }).await?;
    cluster.turn(&json!({ "terminate": "200s" })).await?;
    cluster.sleep().await?;
    cluster.wait_for_phase(Some("ScalingDownMachines"), SOON).await?;
    cluster.world().signal("controller", "kill").await?;
    let first = kkp_common::nodes(&cluster).await?;
    cluster.patch_machines("a", &json!({ "spec": { "replicas": 2 } })).await?;
    let pods: Api<Pod> = Api::all(cluster.user());
    eventually(SOON, "Pods on a new Node", async || {
        let found = pods.list(&ListParams::default().labels("app=web-1")).await?.items;
        let node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let is_new = |pod: &Pod| node(pod).is_some_and(|name| first.iter().all(|node| node.name_any() != name));
        ensure!(
            found.iter().any(is_new),
            "{:?}",
            found.iter().map(|pod| (&pod.metadata.labels, node(pod))).collect::<Vec<_>>()
        );
        Ok(())
    })
    .await?;
    cluster.world().start(&kkp_common::start()).await?;
    cluster.wait_for_phase(Some("Dehydrated"), SOON).await?;
    nothing_forbidden(&cluster.log().await?)?;
    cluster.wake().await?;
    cluster.wait_for_phase(None, SOON).await?;
    machines(&cluster, 2).await
}

/// Another key for encryption at rest, and how long the Job takes that encrypts everything with it.
async fn encrypt(cluster: &KkpCluster, key: &str, takes: &str) -> Result<()> {
    cluster.turn(&json!({ "encryption": takes })).await?;
    let keys = json!([{ "name": key, "value": "c2VjcmV0" }]);
    let spec = json!({ "enabled": true, "resources": ["secrets"], "secretbox": { "keys": keys } });
    cluster.patch(&json!({ "spec": { "encryptionConfiguration": spec } })).await.map(drop)
}

fn encryption(object: &DynamicObject) -> &str {
    object.data["status"]["encryption"]["phase"].as_str().unwrap_or_default()
}

/// The controller refuses, and so does the plugin before it asks. The sleep begins when KKP is done.
async fn encrypted_before(cluster: &KkpCluster) -> Result<()> {
    let before = state(cluster).await?;
    encrypt(cluster, "first", "40s").await?;
    cluster.wait_for("the Job", SOON, |object| encryption(object) == "EncryptionNeeded").await?;
    let name = format!("cluster/{}", cluster.info().id);
    let ran = cluster.world().plugin(&["plan", &name, "--fresh"]).await?;
    let says = format!("{}{}", ran.stdout, ran.stderr);
    ensure!(says.contains("EncryptionUnderWay") && says.contains("found \"EncryptionNeeded\""), "{ran:?}");
    let refused = cluster.world().plugin(&[&name, "--yes"]).await?;
    ensure!(refused.code == 3 && annotation(&cluster.get().await?, keys::POWER_STATE).is_none(), "{refused:?}");
    cluster.sleep().await?;
    detail(cluster, "Preflight", "status.encryption.phase: found \"EncryptionNeeded\", must be \"Active\"").await?;
    ensure!(state(cluster).await? == before && cluster.record().await?.is_none(), "something was changed");
    cluster.wait_for_phase(Some("Dehydrated"), SOON).await?;
    ensure!(encryption(&cluster.get().await?) == "Active");
    cluster.wake().await?;
    comes_back(cluster, &before).await
}

/// The preflight is over when another key is set: the pause waits for it.
async fn encrypted_meanwhile(cluster: &KkpCluster) -> Result<()> {
    let before = state(cluster).await?;
    cluster.turn(&json!({ "terminate": "60s" })).await?;
    cluster.sleep().await?;
    cluster.wait_for_phase(Some("ScalingDownMachines"), SOON).await?;
    encrypt(cluster, "second", "15s").await?;
    detail(cluster, "Pausing", "status.encryption.phase: found ").await?;
    cluster.wait_for_phase(Some("Dehydrated"), SOON).await?;
    ensure!(encryption(&cluster.get().await?) == "Active");
    cluster.wake().await?;
    comes_back(cluster, &before).await
}

/// KKP calls both up, and so does the wake once their limits have passed. What is missing is named until it is there.
async fn wakes_without_room(cluster: &KkpCluster) -> Result<()> {
    let before = put_to_sleep(cluster).await?;
    cluster.turn(&json!({ "room": { "etcd": 2, "apiserver": 1 } })).await?;
    cluster.wake().await?;
    detail(cluster, "WaitingForNodes", "ready of the control plane: apiserver (1 of 2), etcd (2 of 3)").await?;
    comes_back(cluster, &before).await?;
    let warned = async |wanted: bool| {
        let says = "not all of its control plane is ready: apiserver (1 of 2), etcd (2 of 3)";
        eventually(SOON, "the warning", async || {
            ensure_that(cluster.world().plugin(&["status", "clusters"]).await?, |ran| {
                ran.stderr.contains(says) == wanted
            })
        })
        .await
    };
    warned(true).await?;
    cluster.turn(&json!({ "room": null })).await?;
    warned(false).await
}

/// What a record is that the cluster does not confirm; then Machines that do not join, or late, an API server that is
/// lost, and a quota that is too small (rows 56 to 58 and 62). The last cluster is deleted in its sleep.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_without_its_cluster_and_a_cluster_without_its_machines_leave_nothing_behind() -> Result<()> {
    let finalized = KkpOptions { cleanup_finalizers: true, ..KkpOptions::default() };
    let clusters = [("guarded", small()), ("moved", small()), ("quota", finalized)];
    let clusters = up_all(&clusters).await?;
    let [guarded, moved, quota] = &clusters[..] else { bail!("three clusters") };
    let guarded = async {
        forged(guarded).await.context("a forged record")?;
        goes(guarded, &json!({ "neverJoin": ["a"] })).await.context("Machines that never join")
    };
    let moved = async {
        of_another_cluster(moved).await.context("a record of another cluster")?;
        goes(moved, &json!({ "joinLate": "8s" })).await.context("Machines that join late")?;
        loses_its_api(moved).await.context("an API server that is lost")
    };
    let quota = async {
        has_no_quota(quota).await.context("a quota that is too small")?;
        deleted_asleep(quota).await.context("deleted in its sleep")
    };
    tokio::try_join!(guarded, moved, quota).map(drop)
}

/// The end of what came before: the cluster is to run, nothing holds it, and what was seen of it is forgotten.
async fn afresh(cluster: &KkpCluster) -> Result<()> {
    cluster
        .patch(&json!({
            "metadata": { "annotations": { common::PROTECTED: null, keys::POWER_STATE: "Running" } },
            "spec": { "pause": false, "pauseReason": null },
        }))
        .await?;
    cluster.wait_for_phase(None, SOON).await?;
    cluster.clear_log().await
}

/// With a second Machine, and this knob turned.
async fn goes(cluster: &KkpCluster, knob: &Value) -> Result<()> {
    afresh(cluster).await?;
    cluster.turn(knob).await?;
    cluster.patch_machines("a", &json!({ "spec": { "replicas": 2 } })).await?;
    machines(cluster, 2).await?;
    nothing_is_left(cluster).await
}

async fn loses_its_api(cluster: &KkpCluster) -> Result<()> {
    afresh(cluster).await?;
    // Long enough for the phase to be seen.
    cluster.turn(&json!({ "terminate": "60s" })).await?;
    cluster.sleep().await?;
    cluster.wait_for_phase(Some("ScalingDownMachines"), SOON).await?;
    cluster.turn(&json!({ "apiSilent": true })).await?;
    tokio::time::sleep(Duration::from_secs(10)).await;
    ensure!(cluster.get().await?.data["spec"]["pause"] != true, "paused without a check of the Machines");
    cluster.turn(&json!({ "apiSilent": false })).await?;
    nothing_is_left(cluster).await
}

async fn has_no_quota(cluster: &KkpCluster) -> Result<()> {
    let before = put_to_sleep(cluster).await?;
    cluster.turn(&json!({ "quota": 2 })).await?;
    cluster.wake().await?;
    eventually(SOON, "the refusal", async || {
        ensure_that(cluster.phase().await?.context("a condition")?.1, |message| {
            message.starts_with("hydrated in part") && message.contains("quota")
        })
    })
    .await?;
    cluster.turn(&json!({ "quota": null })).await?;
    cluster.wait_for_phase(None, SOON).await?;
    is_as_before(cluster, &before).await
}

async fn machines(cluster: &KkpCluster, wanted: usize) -> Result<()> {
    eventually(SOON, "Machines", async || {
        ensure_that(cluster.machinery("Machine").await?.len(), |found| *found == wanted)
    })
    .await
}

/// The cluster sleeps, and has neither an instance nor a Node.
async fn nothing_is_left(cluster: &KkpCluster) -> Result<()> {
    cluster.sleep().await?;
    cluster.wait_for_phase(Some("Dehydrated"), SOON).await?;
    let instances = cluster.inspect().await?.cloud.instances;
    let nodes = kkp_common::nodes(cluster).await?;
    ensure!(instances.is_empty() && nodes.is_empty(), "{instances:?} {} Nodes", nodes.len());
    nothing_forbidden(&cluster.log().await?)
}

/// Rows 19 to 23, with a certificate that ends within a day: the guard let it pass, or was not asked, and the
/// controller says so. The cluster goes with its volumes and load balancers.
async fn deleted_asleep(cluster: &KkpCluster) -> Result<()> {
    put_to_sleep(cluster).await?;
    let soon =
        (jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1)).strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let ends = json!({ keys::CERTIFICATES_EXPIRE_AT: soon, keys::ALLOW_DELETE: "true" });
    cluster.patch(&json!({ "metadata": { "annotations": ends } })).await?;
    let objects: Api<DynamicObject> = Api::all_with(cluster.seed(), &testbed::kkp::kubermatic("Cluster"));
    objects.delete(&cluster.info().id, &DeleteParams::default()).await?;
    told_that(cluster, "CertificatesExpire", "the cluster is being deleted").await?;
    let gone = eventually(SOON, "the end of the cluster", async || {
        ensure!(cluster.get().await.is_err(), "it is still there");
        Ok(())
    })
    .await;
    if let Err(error) = gone {
        return Err(error.context(cluster.describe().await));
    }
    let cloud = cluster.inspect().await?.cloud;
    ensure!(cloud.instances.is_empty() && cloud.volumes.is_empty() && cloud.load_balancers.is_empty(), "{cloud:?}");
    Ok(())
}

/// Bad input: named in the condition, and nothing changed.
async fn bad_input_is_named_and_changes_nothing(cluster: &KkpCluster) -> Result<()> {
    let before = state(cluster).await?;
    // KKP would make it again at once.
    cluster.world().turn_kkp(&json!({ "controllersDown": true })).await?;
    let secrets: Api<Secret> = Api::namespaced(cluster.seed(), &cluster.info().namespace);
    secrets.delete(testbed::kkp::KUBECONFIG.0, &DeleteParams::default()).await?;
    cluster.sleep().await?;
    detail(cluster, "Preflight", "internal-admin-kubeconfig: does not exist").await?;
    let running = json!({ "metadata": { "annotations": { keys::POWER_STATE: "Running" } } });
    cluster.patch(&running).await?;
    cluster.wait_for_phase(None, SOON).await?;
    cluster.world().turn_kkp(&json!({ "controllersDown": false })).await?;
    ensure!(state(cluster).await? == before);
    Ok(())
}
