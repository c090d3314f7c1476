//! What can happen to a user cluster around a sleep: each ends awake, asleep or deleted, or in a condition that says what to do. One world a
//! subject, one user cluster a case, all at the same time. "Row n" is a row of what the real KKP was seen to do (docs/development.md).

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use shared::annotation::keys as common;
use shared::kkp::keys;
use testbed::kkp::server::Act;
use testbed::{KkpCluster, KkpOptions, World, eventually};

use crate::kkp_common::{self, SOON, State, is_as_before, nothing_forbidden, state, up_all};

/// User clusters of one world, asleep, with what each was before.
async fn asleep(clusters: &[(&str, KkpOptions)]) -> Result<Vec<(KkpCluster, State)>> {
    let clusters = up_all(clusters).await?;
    try_join_all(clusters.into_iter().map(async |cluster| {
        let before = state(&cluster).await?;
        cluster.sleep().await?;
        cluster.wait_for_phase(Some("Dehydrated"), SOON).await?;
        Ok((cluster, before))
    }))
    .await
}

/// The wake ends, everything is as before, and nothing forbidden happened on the way.
async fn comes_back((cluster, before): &(KkpCluster, State)) -> Result<()> {
    cluster.wait_for_phase(None, SOON).await?;
    is_as_before(cluster, before).await?;
    nothing_forbidden(&cluster.log().await?)
}

/// A request on the record: the Cluster itself cannot be written (row 27).
async fn request_on_record(cluster: &KkpCluster, state: &str) -> Result<()> {
    let at = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let patch = json!({ "metadata": { "annotations": { keys::POWER_STATE: state, keys::POWER_STATE_AT: at } } });
    let records: Api<ConfigMap> = Api::namespaced(cluster.seed(), &cluster.info().namespace);
    records.patch(keys::RECORD.0, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
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
    let names = ["unpaused", "expired", "upgraded", "restored", "raised"].map(|name| (name, small()));
    let clusters = asleep(&names).await?;
    let [unpaused, expired, upgraded, restored, raised] = &clusters[..] else { anyhow::bail!("five clusters") };
    let by_another_client = async {
        unpaused.0.patch(&json!({ "spec": { "pause": false } })).await?;
        comes_back(unpaused).await?;
        let intent = unpaused.0.get().await?;
        ensure!(annotation(&intent, keys::POWER_STATE) == Some("Running"), "{:?}", intent.annotations());
        ensure!(intent.data["spec"]["pauseReason"].is_null(), "our reason is left: {}", intent.data["spec"]);
        told(&unpaused.0, "PauseEndedByOthers").await
    };
    let with_expired_certificates = async {
        expired.0.act(&Act::ExpireCertificates(-1)).await?;
        expired.0.wake().await?;
        comes_back(expired).await
    };
    let with_another_version = async {
        upgraded.0.patch(&json!({ "spec": { "version": "1.34.2" } })).await?;
        upgraded.0.wake().await?;
        comes_back(upgraded).await
    };
    let from_a_backup = async {
        let (cluster, _) = restored;
        kkp_common::restore(cluster).await?;
        cluster.wait_for("the restore", SOON, |object| annotation(object, keys::ACTIVE_RESTORE).is_some()).await?;
        cluster.wait_for_phase(None, SOON).await?;
        ensure!(cluster.record().await?.is_none() && !cluster.inspect().await?.cloud.instances.is_empty());
        Ok(())
    };
    let after_scaling = async {
        scaled_by_others(&raised.0).await?;
        raised.0.wake().await?;
        comes_back(raised).await
    };
    tokio::try_join!(by_another_client, with_expired_certificates, with_another_version, from_a_backup, after_scaling)
        .map(drop)
}

/// Replicas that another client raises are set to 0 three times in a sleep, then they stay and an Event says so. The first of the three
/// may have been raised by a pass of KKP that was under way when the cluster was paused (row 5).
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
    told(cluster, "ReplicasRaised").await?;
    ensure!(cluster.replicas().await?["scheduler"] == 1, "corrected a fourth time");
    Ok(())
}

/// How often the counts were set to 0 again.
async fn corrections(cluster: &KkpCluster) -> Result<u64> {
    let record = cluster.record().await?.context("a record")?;
    Ok(record["corrections"].as_u64().unwrap_or_default())
}

/// An Event with this reason is published about the cluster.
async fn told(cluster: &KkpCluster, reason: &str) -> Result<()> {
    told_that(cluster, reason, "").await
}

/// The same, with these words.
async fn told_that(cluster: &KkpCluster, reason: &str, words: &str) -> Result<()> {
    let events: Api<Event> = Api::all(cluster.seed());
    let about = format!("involvedObject.name={},reason={reason}", cluster.info().id);
    eventually(SOON, reason, async || {
        let found = events.list(&ListParams::default().fields(&about)).await?.items;
        let says = |event: &Event| event.message.as_deref().is_some_and(|message| message.contains(words));
        ensure!(found.iter().any(says), "no Event {reason}: {words}");
        Ok(())
    })
    .await
}

/// Rows 9, 10 and 27: at KKP's concurrency limit, with its webhooks down, and with a datacenter that left the Seed.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_wakes_although_kkp_is_busy_or_refuses_every_write() -> Result<()> {
    let clusters = asleep(&[("busy", small()), ("down", small()), ("moved", small())]).await?;
    let [busy, down, moved] = &clusters[..] else { anyhow::bail!("three clusters") };
    let world = busy.0.world();
    world.turn_kkp(&json!({ "othersUpdating": 10 })).await?;
    busy.0.wake().await?;
    comes_back(busy).await.context("at the limit")?;
    world.turn_kkp(&json!({ "othersUpdating": 0 })).await?;

    for (refused, knob, value, repaired) in
        [(down, "webhooksDown", json!(true), json!(false)), (moved, "datacenters", json!(["us"]), json!(["eu"]))]
    {
        let (cluster, before) = refused;
        world.turn_kkp(&json!({ knob: value })).await?;
        ensure!(cluster.wake().await.is_err(), "{knob}: KKP refuses every write");
        request_on_record(cluster, "Running").await?;
        cluster.wait_for_phase(Some("AwakePaused"), SOON).await.context(knob)?;
        ensure!(cluster.replicas().await? == before.control_plane, "{knob}");
        eventually(SOON, "the refusal", async || {
            let (_, message) = cluster.phase().await?.context("a condition")?;
            ensure!(message.contains("the end of spec.pause was refused"), "{message:?}");
            Ok(())
        })
        .await?;
        world.turn_kkp(&json!({ knob: repaired })).await?;
        comes_back(refused).await.context(knob)?;
        let intent = cluster.get().await?;
        ensure!(annotation(&intent, keys::POWER_STATE) == Some("Running"), "{:?}", intent.annotations());
    }
    Ok(())
}

/// Rows 56 to 58 and 62: no instance and no Node is left, and a quota is reported.
#[tokio::test(flavor = "multi_thread")]
async fn machines_that_do_not_join_or_come_late_and_an_api_that_is_lost_leave_nothing_behind() -> Result<()> {
    let clusters =
        up_all(&[("stray", small()), ("late", small()), ("lost", small()), ("quota", KkpOptions::default())]).await?;
    let [stray, late, lost, quota] = &clusters[..] else { anyhow::bail!("four clusters") };
    let never_joins = async {
        stray.turn(&json!({ "neverJoin": ["a"] })).await?;
        stray.patch_machines("a", &json!({ "spec": { "replicas": 2 } })).await?;
        machines(stray, 2).await?;
        nothing_is_left(stray).await
    };
    let joins_late = async {
        late.turn(&json!({ "joinLate": "8s" })).await?;
        late.patch_machines("a", &json!({ "spec": { "replicas": 2 } })).await?;
        machines(late, 2).await?;
        nothing_is_left(late).await
    };
    let loses_its_api = async {
        lost.sleep().await?;
        lost.wait_for_phase(Some("ScalingDownMachines"), SOON).await?;
        lost.turn(&json!({ "apiSilent": true })).await?;
        tokio::time::sleep(Duration::from_secs(10)).await;
        ensure!(lost.get().await?.data["spec"]["pause"] != true, "paused without a check of the Machines");
        lost.turn(&json!({ "apiSilent": false })).await?;
        nothing_is_left(lost).await
    };
    let has_no_quota = async {
        let before = state(quota).await?;
        quota.sleep().await?;
        quota.wait_for_phase(Some("Dehydrated"), SOON).await?;
        quota.turn(&json!({ "quota": 2 })).await?;
        quota.wake().await?;
        eventually(SOON, "the refusal", async || {
            let (_, message) = quota.phase().await?.context("a condition")?;
            ensure!(message.starts_with("hydrated in part") && message.contains("quota"), "{message}");
            Ok(())
        })
        .await?;
        quota.turn(&json!({ "quota": null })).await?;
        quota.wait_for_phase(None, SOON).await?;
        is_as_before(quota, &before).await
    };
    tokio::try_join!(never_joins, joins_late, loses_its_api, has_no_quota).map(drop)
}

async fn machines(cluster: &KkpCluster, wanted: usize) -> Result<()> {
    eventually(SOON, "Machines", async || {
        let found = cluster.machinery("Machine").await?.len();
        ensure!(found == wanted, "{found}");
        Ok(())
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

/// Rows 19 to 23, with a certificate that ends within a day: the guard let it pass, or was not asked, and the controller says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_sleeping_cluster_that_is_deleted_goes_with_its_volumes_and_load_balancers() -> Result<()> {
    let options = KkpOptions { cleanup_finalizers: true, ..KkpOptions::default() };
    let clusters = asleep(&[("deleted", options)]).await?;
    let [(cluster, _)] = &clusters[..] else { anyhow::bail!("one cluster") };
    let soon =
        (jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1)).strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let ends =
        json!({ "metadata": { "annotations": { keys::CERTIFICATES_EXPIRE_AT: soon, keys::ALLOW_DELETE: "true" } } });
    let objects: Api<DynamicObject> = Api::all_with(cluster.seed(), &testbed::kkp::kubermatic("Cluster"));
    objects.patch(&cluster.info().id, &PatchParams::default(), &Patch::Merge(ends)).await?;
    delete(cluster.world(), &cluster.info().id).await?;
    told_that(cluster, "CertificatesExpire", "the cluster is being deleted").await?;
    let cloud = eventually(SOON, "the end of the cluster", async || {
        ensure!(cluster.get().await.is_err(), "{}", cluster.describe().await);
        Ok(cluster.inspect().await?.cloud)
    })
    .await?;
    ensure!(cloud.instances.is_empty() && cloud.volumes.is_empty() && cloud.load_balancers.is_empty(), "{cloud:?}");
    Ok(())
}

async fn delete(world: &World, id: &str) -> Result<()> {
    let clusters: Api<DynamicObject> = Api::all_with(world.hub().await?, &testbed::kkp::kubermatic("Cluster"));
    clusters.delete(id, &DeleteParams::default()).await?;
    Ok(())
}

/// Bad input: named in the condition, and nothing changed.
#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_named_and_changes_nothing() -> Result<()> {
    let clusters = up_all(&[("keyless", small())]).await?;
    let cluster = &clusters[0];
    let (seed, namespace) = (cluster.seed(), &cluster.info().namespace);
    let before = state(cluster).await?;
    // KKP would make it again at once.
    cluster.world().turn_kkp(&json!({ "controllersDown": true })).await?;
    let secrets: Api<Secret> = Api::namespaced(seed.clone(), namespace);
    secrets.delete(testbed::kkp::KUBECONFIG.0, &DeleteParams::default()).await?;
    cluster.sleep().await?;
    said(cluster, "Preflight", "internal-admin-kubeconfig: does not exist").await?;
    let running = json!({ "metadata": { "annotations": { keys::POWER_STATE: "Running" } } });
    cluster.patch(&running).await?;
    cluster.wait_for_phase(None, SOON).await?;
    cluster.world().turn_kkp(&json!({ "controllersDown": false })).await?;

    // A record that is no record, and one of another version.
    let records: Api<ConfigMap> = Api::namespaced(seed, namespace);
    for text in ["not JSON", r#"{"v":2,"phase":"Dehydrated"}"#] {
        let record = json!({ "metadata": { "name": keys::RECORD.0 }, "data": { keys::RECORD.1: text } });
        records.create(&PostParams::default(), &serde_json::from_value(record)?).await?;
        cluster.sleep().await?;
        said(cluster, "RecordUnreadable", "hibernate-record, key record.json").await?;
        ensure!(state(cluster).await? == before);
        records.delete(keys::RECORD.0, &DeleteParams::default()).await?;
        cluster.patch(&running).await?;
        cluster.wait_for_phase(None, SOON).await?;
    }
    Ok(())
}

/// Whoever may write the `ConfigMaps` of `cluster-ID` can forge a record, or restore one, and no more than that.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_the_cluster_does_not_confirm_changes_nothing() -> Result<()> {
    let clusters = up_all(&[("guarded", small()), ("paused", small()), ("moved", small())]).await?;
    let [guarded, paused, moved] = &clusters[..] else { anyhow::bail!("three clusters") };
    tokio::try_join!(forged(guarded), of_a_paused_cluster(paused), of_another_cluster(moved)).map(drop)
}

/// A request and a phase, on the record of a protected cluster, while its own request waits for the end of the protection.
async fn forged(cluster: &KkpCluster) -> Result<()> {
    let before = state(cluster).await?;
    cluster.patch(&json!({ "metadata": { "annotations": { common::PROTECTED: "true" } } })).await?;
    let uid = cluster.get().await?.uid().context("a UID")?;
    create_record(cluster, &uid, "Draining").await?;
    request_on_record(cluster, "Hibernating").await?;
    look(cluster).await?;
    said(cluster, "RecordUnconfirmed", "no condition ClusterDehydrated of this Cluster confirms it").await?;
    cluster.sleep().await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    said(cluster, "RecordUnconfirmed", "then delete it").await?;
    ensure!(state(cluster).await? == before);
    delete_record(cluster).await?;
    look(cluster).await?;
    said(cluster, "Preflight", "refused: annotation hibernate.sh/protected").await?;
    ensure!(state(cluster).await? == before && cluster.record().await?.is_none());
    Ok(())
}

/// The seed's team has paused it, and somebody restores the record of an earlier sleep, or another cluster's.
async fn of_a_paused_cluster(cluster: &KkpCluster) -> Result<()> {
    cluster.patch(&json!({ "spec": { "pause": true, "pauseReason": "maintenance" } })).await?;
    let before = state(cluster).await?;
    let uid = cluster.get().await?.uid().context("a UID")?;
    for (uid, reason) in
        [(uid.as_str(), "RecordUnconfirmed"), ("11111111-1111-1111-1111-111111111111", "RecordForeign")]
    {
        create_record(cluster, uid, "AwakePaused").await?;
        look(cluster).await?;
        said(cluster, reason, "elete it").await?;
        tokio::time::sleep(Duration::from_secs(5)).await;
        ensure!(state(cluster).await? == before, "{reason}");
        delete_record(cluster).await?;
        look(cluster).await?;
        cluster.wait_for_phase(None, SOON).await?;
    }
    Ok(())
}

/// As after a restore of the seed: the sleeping cluster has another UID than its record. The advice is followed, or the cluster wakes by the copies.
async fn of_another_cluster(cluster: &KkpCluster) -> Result<()> {
    let before = state(cluster).await?;
    cluster.sleep().await?;
    cluster.wait_for_phase(Some("Dehydrated"), SOON).await?;
    let uid = cluster.get().await?.uid().context("a UID")?;
    name_in_record(cluster, "11111111-1111-1111-1111-111111111111").await?;
    look(cluster).await?;
    let advice = format!("set its field uid to {uid:?}");
    let condition = said(cluster, "RecordForeign", &advice).await?;
    ensure!(condition["status"] == "True", "{condition}");
    tokio::time::sleep(Duration::from_secs(5)).await;
    ensure!(cluster.replicas().await?.values().all(|count| *count == 0));
    name_in_record(cluster, &uid).await?;
    look(cluster).await?;
    cluster.wait_for_phase(Some("Dehydrated"), SOON).await?;
    name_in_record(cluster, "11111111-1111-1111-1111-111111111111").await?;
    cluster.wake().await?;
    cluster.wait_for_phase(None, SOON).await?;
    is_as_before(cluster, &before).await
}

/// A write to the Cluster has the controller look at once; it looks at a cluster of which nothing is wanted when a preflight is.
async fn look(cluster: &KkpCluster) -> Result<()> {
    let at = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    cluster.patch(&json!({ "metadata": { "annotations": { common::PREFLIGHT_REQUESTED_AT: at } } })).await?;
    Ok(())
}

async fn records(cluster: &KkpCluster) -> Result<Api<ConfigMap>> {
    Ok(Api::namespaced(cluster.seed(), &cluster.info().namespace))
}

async fn create_record(cluster: &KkpCluster, uid: &str, phase: &str) -> Result<()> {
    let now = jiff::Timestamp::now().to_string();
    let text = json!({
        "v": 1, "uid": uid, "since": now, "entered": now, "phase": phase,
        "controlPlane": { "Deployment/apiserver": 7, "Deployment/scheduler": 7 },
        "machineDeployments": { "kube-system/a": { "replicas": 7 } },
    });
    let record = json!({ "metadata": { "name": keys::RECORD.0 }, "data": { keys::RECORD.1: text.to_string() } });
    records(cluster).await?.create(&PostParams::default(), &serde_json::from_value(record)?).await?;
    Ok(())
}

async fn delete_record(cluster: &KkpCluster) -> Result<()> {
    records(cluster).await?.delete(keys::RECORD.0, &DeleteParams::default()).await?;
    Ok(())
}

async fn name_in_record(cluster: &KkpCluster, uid: &str) -> Result<()> {
    let mut record = cluster.record().await?.context("a record")?;
    record["uid"] = json!(uid);
    let patch = json!({ "data": { keys::RECORD.1: record.to_string() } });
    records(cluster).await?.patch(keys::RECORD.0, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

async fn said(cluster: &KkpCluster, reason: &str, text: &str) -> Result<Value> {
    let condition = |object: &DynamicObject| object.data["status"]["conditions"][keys::DEHYDRATED].clone();
    let says = |object: &DynamicObject| {
        let condition = condition(object);
        condition["reason"] == reason && condition["message"].as_str().is_some_and(|message| message.contains(text))
    };
    Ok(condition(&cluster.wait_for(text, SOON, says).await?))
}
