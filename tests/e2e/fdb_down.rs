//! While the webhook is down, or does not hear of the clusters, what it guards stays, and nothing else is touched.

use std::time::{Duration, Instant};

use crate::fdb_guard::{SOON, claim, deleted, denied, kept, kubectl, marks, stamped};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use shared::annotation::keys;
use testbed::proxy::faults::{Effect, Rule};
use testbed::supervisor::programs::Start;
use testbed::{Options, Program, World, apply, ensure_that, eventually};

/// On one hub, one after the other: each ends or blinds a program that guards all volumes.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_guarded_stays_without_a_controller_a_webhook_or_a_watch() -> Result<()> {
    let world = World::up(Options::hub_only()).await?;
    a_controller_is_killed_in_the_window(&world).await.context("without a controller")?;
    the_webhook_is_down(&world).await.context("without a webhook")?;
    a_watch_hangs(&world).await.context("with a watch that hangs")
}

/// Volumes in scope stay, and others go.
async fn the_webhook_is_down(world: &World) -> Result<()> {
    let db = world.fdb("down", kept("1h")).await?;
    let id = db.ids("storage").await?.remove(0);
    db.remove(&[&id]).await?;
    stamped(&db, &id).await?;
    let free = serde_json::json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "free", "namespace": db.namespace()},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    apply::all(&world.hub().await?, &[free]).await?;

    world.signal("webhook", "kill").await?;
    let refused = kubectl(world, &db, &["delete", "pvc", &claim(&db, &id), "--wait=false"]).await?;
    denied(&refused, &["failed calling webhook \"suspend.hibernate.sh\""])?;
    kubectl(world, &db, &["delete", "pvc", "free"]).await?.ok()?;
    kubectl(world, &db, &["annotate", "fdb", db.name(), "example.com/touched=yes"]).await?.ok()?;
    kubectl(world, &db, &["delete", "namespace", db.namespace(), "--wait=false"]).await?.ok()?;
    let namespaces: Api<Namespace> = Api::all(world.hub().await?);
    eventually(SOON, "condition that names our webhook", async || {
        let status = namespaces.get(db.namespace()).await?.status.context("a status")?;
        let mut failures =
            status.conditions.unwrap_or_default().into_iter().filter(|condition| condition.status == "True");
        let says = failures
            .find(|condition| condition.message.as_ref().is_some_and(|text| text.contains("suspend.hibernate.sh")));
        says.map(drop).context("no such condition yet")
    })
    .await?;
    ensure!(marks(&db, &id).await?.is_some(), "the volume is still there");

    world.start(&Start::new(Program::Webhook)).await?;
    let back = Instant::now();
    eventually(Duration::from_mins(2), "end of the namespace", async || {
        ensure_that(namespaces.get_opt(db.namespace()).await?, Option::is_none)
    })
    .await?;
    eprintln!("the namespace was gone {:?} after the webhook's return", back.elapsed());
    Ok(())
}

async fn a_watch_hangs(world: &World) -> Result<()> {
    world.signal("webhook", "stop").await?;
    world.start(&Start { hub_proxy: Some(true), ..Start::new(Program::Webhook) }).await?;
    // Suspension is off at first, so that a picture which stands still would allow everything.
    let db = world.fdb("hangs", fdb_off()).await?;
    let (id, later) = {
        let mut ids = db.ids("storage").await?;
        (ids.remove(0), ids.remove(0))
    };
    let delete = async |id: &str| kubectl(world, &db, &["delete", "pvc", &claim(&db, id), "--dry-run=server"]).await;
    eventually(SOON, "volume that may go", async || delete(&id).await?.ok()).await?;

    let rule = |query: Option<&str>| Rule {
        path: Some("/apis/apps.foundationdb.org".to_owned()),
        query: query.map(str::to_owned),
        user_agent: None,
        effect: Effect::Hang,
        ..Rule::default()
    };
    // Everything that the webhook asks about clusters hangs from now on. What it has open is dropped by a restart of
    // the watch.
    world.inject("hub", &rule(None)).await?;
    let switched = Instant::now();
    kubectl(world, &db, &["annotate", "fdb", db.name(), &format!("{}=1h", keys::MINIMUM_SUSPENSION)]).await?.ok()?;
    eventually(SOON, "denial", async || denied(&delete(&id).await?, &["FoundationDBCluster"])).await?;
    eprintln!("a stale picture was trusted for {:?} at most", switched.elapsed());
    tokio::time::sleep(Duration::from_secs(8)).await;
    denied(&delete(&id).await?, &["does not know whether FoundationDBCluster hangs", "hibernate.sh/release="])?;
    db.remove(&[&id]).await?;
    stamped(&db, &id).await?; // the controller does not go through the proxy
    db.wait_suspended(&id, SOON).await?;
    ensure!(marks(&db, &id).await?.is_some(), "nothing was let through");

    world.heal("hub", None).await?;
    let seen = &["process group", "has been suspended since"];
    eventually(SOON, "webhook that sees again", async || denied(&delete(&id).await?, seen)).await?;

    // Only the watch hangs: the list of versions shows that it is behind, and a new one is no better until the fault is
    // gone.
    world.signal("webhook", "stop").await?;
    world.inject("hub", &rule(Some("watch=true"))).await?;
    world.start(&Start { hub_proxy: Some(true), ..Start::new(Program::Webhook) }).await?;
    eventually(SOON, "webhook that has listed", async || denied(&delete(&id).await?, seen)).await?;
    db.remove(&[&later]).await?;
    stamped(&db, &later).await?;
    ensure!(marks(&db, &later).await?.is_some(), "nothing was let through");
    let until = Instant::now() + Duration::from_secs(10);
    while Instant::now() < until {
        denied(&delete(&later).await?, &["FoundationDBCluster"])?;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// The next one goes on where it was.
async fn a_controller_is_killed_in_the_window(world: &World) -> Result<()> {
    let db = world.fdb("restart", kept("8s")).await?;
    let id = db.ids("storage").await?.remove(0);
    db.remove(&[&id]).await?;
    let since = stamped(&db, &id).await?;
    world.signal("controller", "kill").await?;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let marked = marks(&db, &id).await?.context("nothing is deleted while no controller runs")?;
    ensure!(!marked.contains_key(keys::RELEASED_AT), "{marked:?}");
    denied(
        &kubectl(world, &db, &["delete", "pvc", &claim(&db, &id), "--wait=false"]).await?,
        &["has been suspended since"],
    )?;
    world.start(&Start::new(Program::Controller)).await?;
    ensure!(stamped(&db, &id).await? == since, "it is held since then, and not since the restart");
    deleted(&db, &id, SOON).await?;
    Ok(())
}

fn fdb_off() -> testbed::FdbOptions {
    testbed::FdbOptions { annotations: [].into(), ..kept("0") }
}
