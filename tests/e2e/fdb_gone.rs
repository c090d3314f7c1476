//! A database goes away while the controller reconciles it.

use std::time::Duration;

use crate::fdb_guard::{SOON, kept, kubectl, stamped};
use anyhow::{Context as _, Result, ensure};
use testbed::json_http::JsonHttp;
use testbed::proxy::faults::{Effect, Rule};
use testbed::{World, ensure_that, eventually};

/// The metrics of a database.
async fn noted(page: &str, database: &str) -> Result<Vec<String>> {
    let label = format!("cluster=\"{database}\"");
    Ok(JsonHttp::page(page).await?.lines().filter(|line| line.contains(&label)).map(str::to_owned).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_told_of_it_any_more() -> Result<()> {
    let world = World::shared().await?;
    let page = world.now().await?.controller.context("a controller")?.metrics;
    let db = world.fdb("gone", kept("1h")).await?;
    let id = db.ids("storage").await?.remove(0);
    db.remove(&[&id]).await?;
    stamped(&db, &id).await?;
    let held = format!("hibernate_fdb_suspended_groups{{namespace=\"{}\",cluster=\"gone\"}} 1", db.namespace());
    eventually(SOON, "held group", async || ensure_that(noted(&page, "gone").await?, |noted| noted.contains(&held)))
        .await?;

    let volumes = format!("/api/v1/namespaces/{}/persistentvolumeclaims", db.namespace());
    let slow = Rule::new(Effect::Delay { millis: 4000 }).path(&volumes).user_agent("hibernate-controller/");
    let slow = world.inject("hub", &slow).await?;
    db.kill_operator().await?;
    db.patch(&serde_json::json!({"metadata": {"labels": {"example.com/touched": "yes"}}})).await?;
    eventually(SOON, "look", async || ensure_that(world.hits("hub", &slow.id).await?, |hits| *hits > 0)).await?;
    kubectl(&world, &db, &["delete", "fdb", db.name(), "--wait=false"]).await?.ok()?;
    eventually(SOON, "no word of it", async || ensure_that(noted(&page, "gone").await?, Vec::is_empty)).await?;
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let noted = noted(&page, "gone").await?;
        ensure!(noted.is_empty(), "{noted:?}");
    }
    world.heal("hub", Some(&slow.id)).await
}
