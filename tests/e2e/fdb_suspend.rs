//! Removed process groups are kept for their window: what is denied, what is allowed, when it ends, and what never
//! waits.

use std::time::Duration;

use crate::fdb_guard::{SOON, claim, deleted, denied, kept, kubectl, marks, stamped};
use anyhow::{Context as _, Result, ensure};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::json;
use shared::annotation::groups::ProcessGroups;
use shared::annotation::keys;
use shared::fdb::suspension::Suspension;
use shared::record::Format as _;
use testbed::fdb::options::{Settings, UpdateMode};
use testbed::{FdbCluster, FdbOptions, World, ensure_that, eventually};

async fn first(db: &FdbCluster, class: &str) -> Result<String> {
    db.ids(class).await?.into_iter().next().context("a group")
}

async fn kept_for_its_window(mode: UpdateMode) -> Result<()> {
    let world = World::shared().await?;
    let kept = kept("6s");
    let settings = Settings { update_mode: mode, ..kept.settings.clone() };
    let db = world.fdb("window", FdbOptions { public_ip_source: "service".to_owned(), settings, ..kept }).await?;
    let id = first(&db, "storage").await?;
    let uid = db.pvc(&id).await?.and_then(|volume| volume.metadata.uid);
    db.remove(&[&id]).await?;
    let since = stamped(&db, &id).await?;
    db.wait_suspended(&id, SOON).await?;

    let held = marks(&db, &id).await?.context("a volume that is kept")?;
    let record = Suspension::read(&held[keys::SUSPENSION])?;
    let group = db.group(&id).await?.context("the group")?;
    ensure!((record.group.as_str(), record.class.as_str()) == (id.as_str(), "storage"), "{record:?}");
    ensure!(record.removal == group.removal_timestamp && record.why == "processGroupsToRemove", "{record:?}");
    ensure!(record.addresses == group.addresses && record.fault_domain.as_deref() == Some(&*group.fault_domain));
    ensure!(db.service(&id).await?.is_some(), "the Service is kept, too");
    ensure!(db.pvc(&id).await?.and_then(|volume| volume.metadata.uid) == uid, "the same volume");
    let refused = db.pvc_deletes(&id).await?;
    // Until the webhook has seen the new database, it refuses in other words.
    let names = format!("process group {id} of FoundationDBCluster");
    let named = refused.iter().any(|delete| delete.error.as_ref().is_some_and(|error| error.contains(&names)));
    ensure!(named, "{refused:?}");

    let gone = deleted(&db, &id, SOON).await?;
    let kept = gone.duration_since(since);
    ensure!(kept >= SignedDuration::from_secs(6), "deleted after {kept:?}");
    db.wait("end of the Service", SOON, async || Ok(db.service(&id).await?.is_none().then_some(()))).await?;
    ensure!(db.database().await?.gone.iter().all(|volume| volume.drained), "no data was lost");
    db.wait_reconciled(SOON).await?;
    let events = kubectl(&world, &db, &["get", "events", "-o", "jsonpath={.items[*].reason}"]).await?.ok()?;
    ensure!(events.contains("Suspended") && events.contains("Released"), "{events}");
    let groups = "jsonpath={.items[?(@.reason==\"Released\")].metadata.annotations['hibernate\\.sh/process-groups']}";
    let groups = kubectl(&world, &db, &["get", "events", "-o", groups]).await?.ok()?;
    ensure!(groups == ProcessGroups::new([id.as_str()]).text(), "{groups}");
    db.remove_all().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_group_is_kept_for_its_window_and_goes_after_it() -> Result<()> {
    kept_for_its_window(UpdateMode::Update).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_with_an_operator_that_applies() -> Result<()> {
    kept_for_its_window(UpdateMode::Apply).await
}

/// In global mode nothing is included while something is kept, and everything at once when that is gone, too.
#[tokio::test(flavor = "multi_thread")]
async fn in_global_mode_what_is_gone_waits_for_what_is_kept() -> Result<()> {
    let world = World::shared().await?;
    let patch = json!({"spec": {"automationOptions": {"synchronizationMode": "global"}}});
    let db = world.fdb("global", FdbOptions { patch, ..kept("10s") }).await?;
    let (id, other) = (first(&db, "storage").await?, first(&db, "cluster_controller").await?);
    db.remove(&[&id, &other]).await?;
    let since = stamped(&db, &id).await?;
    let waits = format!("not all processes are ready: {id}");
    db.wait("inclusion that waits", SOON, async || {
        Ok(db.log().await?.passes.iter().any(|pass| pass.result.contains(&waits)).then_some(()))
    })
    .await?;
    ensure!(db.pod(&other).await?.is_none() && db.group(&other).await?.is_some(), "it is gone, but not dropped");
    let kept = deleted(&db, &id, SOON).await?.duration_since(since);
    ensure!(kept >= SignedDuration::from_secs(10), "deleted after {kept:?}");

    db.wait_reconciled(SOON).await?;
    let (log, database) = (db.log().await?, db.database().await?);
    let included = log.commands.iter().filter(|command| command.text.starts_with("include ")).collect::<Vec<_>>();
    ensure!(included.len() == 1 && [&id, &other].iter().all(|id| included[0].text.contains(*id)), "{included:?}");
    let went = db.pvc_deletes(&id).await?.into_iter().rfind(|delete| delete.error.is_none());
    ensure!(went.is_some_and(|delete| delete.at < included[0].at), "{included:?}");
    ensure!(database.exclusions.is_empty() && database.keys.is_empty(), "{database:?}");
    ensure!(database.gone.iter().all(|volume| volume.drained), "no data was lost");
    db.remove_all().await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_annotation_nothing_is_kept() -> Result<()> {
    let world = World::shared().await?;
    let options = FdbOptions { annotations: [].into(), ..kept("0") };
    let db = world.fdb("off", FdbOptions { public_ip_source: "service".to_owned(), ..options }).await?;
    let id = first(&db, "storage").await?;
    db.remove(&[&id]).await?;
    deleted(&db, &id, SOON).await?;
    let deletes = db.pvc_deletes(&id).await?;
    // While the webhook's watch lags behind, it denies with these words whatever the annotation is.
    let of_suspension = |error: &String| !error.contains("the webhook does not know whether");
    ensure!(!deletes.iter().filter_map(|delete| delete.error.as_ref()).any(of_suspension), "{deletes:?}");
    db.remove_all().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_annotation_is_checked_and_shortening_it_releases_nothing() -> Result<()> {
    let world = World::shared().await?;
    let db = world.fdb("annotated", kept("1h")).await?;
    let annotate = async |value: &str| {
        kubectl(
            &world,
            &db,
            &["annotate", "--overwrite", "fdb", db.name(), &format!("hibernate.sh/minimum-suspension{value}")],
        )
        .await
    };
    denied(&annotate("=2 hours").await?, &["\"2 hours\" is not a duration", "0 switches suspension off"])?;
    denied(&annotate("=-2h").await?, &["is negative"])?;
    let id = first(&db, "storage").await?;
    db.remove(&[&id]).await?;
    stamped(&db, &id).await?;
    for value in ["=1s", "=0", "-"] {
        let ran = annotate(value).await?;
        ensure!(ran.code == 0 && ran.stderr.contains("keep their original minimum") == (value != "-"), "{ran:?}");
        tokio::time::sleep(Duration::from_secs(3)).await;
        let marks = marks(&db, &id).await?.context("a volume that is kept")?;
        ensure!(!marks.contains_key(keys::RELEASED_AT), "{value}: {marks:?}");
        db.wake().await?;
    }
    // While the webhook's watch lags behind, it denies with other words.
    let deletes = ["delete", "pvc", &claim(&db, &id), "--wait=false"];
    eventually(SOON, "its reason", async || {
        denied(&kubectl(&world, &db, &deletes).await?, &["has been suspended since"])
    })
    .await?;
    db.remove_all().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_human_has_a_key_and_everybody_else_is_denied() -> Result<()> {
    let world = World::shared().await?;
    let db = world.fdb("key", FdbOptions { public_ip_source: "service".to_owned(), ..kept("1h") }).await?;
    let (id, other) = (first(&db, "storage").await?, first(&db, "log").await?);

    // Neither removed nor stamped: a live volume does not go either, one by one or with its collection.
    let delete = ["delete", "pvc", &claim(&db, &other), "--wait=false"];
    denied(
        &kubectl(&world, &db, &delete).await?,
        &["this volume is in use and not released", "to remove the group", "hibernate.sh/release="],
    )?;
    denied(&kubectl(&world, &db, &[&delete[..], &["--dry-run=server"]].concat()).await?, &["not released"])?;
    let volumes: Api<PersistentVolumeClaim> = Api::namespaced(world.hub().await?, db.namespace());
    let all = volumes.delete_collection(&DeleteParams::default(), &ListParams::default()).await;
    let refused = all.err().context("a collection that is refused")?.to_string();
    ensure!(refused.contains("not released"), "{refused}");
    let left = volumes.list(&ListParams::default()).await?;
    ensure!(left.iter().all(|volume| volume.metadata.deletion_timestamp.is_none()), "one of a collection went");

    db.remove(&[&id]).await?;
    stamped(&db, &id).await?;
    let way = format!("kubectl hibernate recover process-groups -n {} -c key {id}", db.namespace());
    let named = kubectl(&world, &db, &["delete", "pvc", &claim(&db, &id), "--wait=false"]).await?;
    denied(
        &named,
        &[&format!("process group {id} of FoundationDBCluster {}/key has been suspended since", db.namespace()), &way],
    )?;
    // A key that was meant for another volume opens nothing; the command that the denial names does.
    let annotate = async |key: &str| {
        let pair = format!("hibernate.sh/release={key}");
        kubectl(&world, &db, &["annotate", "--overwrite", "pvc", &claim(&db, &id), &pair]).await?.ok()
    };
    let uid = volumes.get(&claim(&db, &other)).await?.metadata.uid.context("a UID")?;
    annotate(&uid).await?;
    denied(&kubectl(&world, &db, &["delete", "pvc", &claim(&db, &id), "--wait=false"]).await?, &[&way])?;
    let key = named.stderr.split("hibernate.sh/release=").nth(1).context("the command")?;
    annotate(key.split_whitespace().next().context("a UID")?).await?;
    deleted(&db, &id, SOON).await?; // the annotation has woken the operator
    db.remove_all().await
}

#[tokio::test(flavor = "multi_thread")]
async fn prefixes_and_own_label_names_are_understood() -> Result<()> {
    let world = World::shared().await?;
    let labels = json!({
        "matchLabels": {"team": "data"}, "resourceLabels": {"team": "data"},
        "processGroupIDLabels": ["example.com/id"], "processClassLabels": ["example.com/class"],
    });
    let options = FdbOptions { prefix: Some("dc1-a".to_owned()), labels, removal_mode: "All".to_owned(), ..kept("4s") };
    let db = world.fdb("own", options).await?;
    let id = first(&db, "storage").await?;
    ensure!(id.starts_with("dc1-a-storage-"), "{id}");
    db.remove_without_exclusion(&[&id]).await?;
    let since = stamped(&db, &id).await?;
    let record = Suspension::read(&marks(&db, &id).await?.context("marks")?[keys::SUSPENSION])?;
    ensure!(record.group == id && record.why == "processGroupsToRemoveWithoutExclusion", "{record:?}");
    let kept = deleted(&db, &id, SOON).await?.duration_since(since);
    ensure!(kept >= SignedDuration::from_secs(4), "deleted after {kept:?}");
    db.remove_all().await
}

/// The operator refuses to choose between two volumes of one group, so both stay until a user deletes one.
#[tokio::test(flavor = "multi_thread")]
async fn two_volumes_of_one_group_are_kept_and_released_together() -> Result<()> {
    let world = World::shared().await?;
    let db = world.fdb("twins", kept("4s")).await?;
    let id = first(&db, "storage").await?;
    let volumes: Api<PersistentVolumeClaim> = Api::namespaced(world.hub().await?, db.namespace());
    let original = db.pvc(&id).await?.context("a volume")?;
    let mut twin = original.clone();
    twin.status = None;
    twin.spec.as_mut().context("a spec")?.volume_name = None;
    twin.metadata = ObjectMeta {
        name: Some(format!("{}-old", claim(&db, &id))),
        labels: original.metadata.labels.clone(),
        owner_references: original.metadata.owner_references.clone(),
        ..ObjectMeta::default()
    };
    let twin = volumes.create(&PostParams::default(), &twin).await?.metadata.name.context("a name")?;
    let marked = async |key: &str| {
        db.wait(&format!("{key} on both"), SOON, async || {
            let twin = volumes.get(&twin).await?.metadata.annotations.unwrap_or_default();
            let both = marks(&db, &id).await?.is_some_and(|marks| marks.contains_key(key)) && twin.contains_key(key);
            Ok(both.then_some(()))
        })
        .await
    };
    db.remove(&[&id]).await?;
    marked(keys::SUSPENDED_AT).await?;
    let delete = ["delete", "pvc", &twin, "--wait=false"];
    denied(&kubectl(&world, &db, &delete).await?, &[&format!("process group {id}"), "has been suspended since"])?;
    marked(keys::RELEASED_AT).await?;
    ensure!(db.pvc_deletes(&id).await?.is_empty(), "the operator has chosen one");
    kubectl(&world, &db, &delete).await?.ok()?;
    deleted(&db, &id, SOON).await?;
    db.remove_all().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_and_a_namespace_go_whatever_is_kept_in_them() -> Result<()> {
    let world = World::shared().await?;
    for what in ["fdb", "namespace"] {
        let db = world.fdb("goes", kept("1h")).await?;
        let id = first(&db, "storage").await?;
        db.remove(&[&id]).await?;
        stamped(&db, &id).await?;
        let name = if what == "fdb" { db.name() } else { db.namespace() };
        kubectl(&world, &db, &["delete", what, name, "--wait=false"]).await?.ok()?;
        let volumes: Api<PersistentVolumeClaim> = Api::namespaced(world.hub().await?, db.namespace());
        eventually(2 * SOON, "end of all volumes", async || {
            ensure_that(volumes.list(&ListParams::default()).await?.items, Vec::is_empty)
        })
        .await?;
        let _ = db.remove_all().await;
    }
    Ok(())
}
