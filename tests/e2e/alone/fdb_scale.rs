//! Five hundred process groups, a hundred removed at once. Takes minutes, so `make test` skips it. To measure, run
//! `make prepare`, then `HIBERNATE_BIN=$PWD/bin cargo test --release --workspace --locked --test e2e -- --ignored
//! --nocapture fdb_scale`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::fdb_guard::{kept, marks};
use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::api::ListParams;
use shared::annotation::keys;
use testbed::{FdbCluster, FdbOptions, Options, World};

const GROUPS: usize = 500;
const REMOVED: usize = 100;
const WINDOW: i64 = 60;
const LONG: Duration = Duration::from_mins(10);

/// Since when each of the removed volumes is held; those that are gone are missing.
async fn held(
    world: &World,
    db: &FdbCluster,
    claims: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, Timestamp>> {
    let volumes: Api<PersistentVolumeClaim> = Api::namespaced(world.hub().await?, db.namespace());
    let all = volumes.list(&ListParams::default()).await?.items;
    let since = |volume: &PersistentVolumeClaim| {
        volume.metadata.annotations.as_ref()?.get(keys::SUSPENDED_AT)?.parse::<Timestamp>().ok()
    };
    let found = all.iter().filter_map(|volume| Some((volume.metadata.name.clone()?, since(volume)?)));
    Ok(found.filter(|(name, _)| claims.contains_key(name)).collect())
}

async fn scale(mode: &str, wait: i64) -> Result<()> {
    let world = World::up(Options::hub_only()).await?;
    let options = FdbOptions {
        storage: GROUPS,
        zones: 5,
        removal_mode: mode.to_owned(),
        wait_between: Some(wait),
        ..kept("60s")
    };
    let begun = Instant::now();
    let db = world.fdb("scale", options).await?;
    eprintln!("{mode}: {GROUPS} groups after {:?}", begun.elapsed());
    let ids: Vec<String> = db.ids("storage").await?.into_iter().take(REMOVED).collect();
    let claims: BTreeMap<String, String> =
        ids.iter().map(|id| (crate::fdb_guard::claim(&db, id), id.clone())).collect();
    db.remove(&ids.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    let mut since = BTreeMap::new();
    let begun = Instant::now();
    while since.len() < REMOVED {
        ensure!(begun.elapsed() < LONG, "only {} volumes were stamped within {LONG:?}", since.len());
        since.extend(held(&world, &db, &claims).await?);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    ensure!(marks(&db, &ids[0]).await?.is_some(), "nothing goes before its time");
    let volumes: Api<PersistentVolumeClaim> = Api::namespaced(world.hub().await?, db.namespace());
    db.wait("end of all removed volumes", LONG, async || {
        let left = volumes.list_metadata(&ListParams::default()).await?.items;
        let left =
            left.iter().filter(|volume| volume.metadata.name.as_ref().is_some_and(|name| claims.contains_key(name)));
        Ok((left.count() == 0).then_some(()))
    })
    .await?;

    let deletes = db.log().await?.deletes;
    let allowed = deletes.iter().filter(|delete| delete.kind == "PersistentVolumeClaim" && delete.error.is_none());
    let mut longest = SignedDuration::ZERO;
    for delete in allowed {
        #[expect(clippy::cast_possible_truncation, reason = "milliseconds since 1970 fit")]
        let at = Timestamp::from_millisecond((delete.at * 1000.0) as i64)?;
        let since = since.get(&delete.name).with_context(|| format!("{} was not held", delete.name))?;
        let kept = at.duration_since(*since);
        ensure!(kept >= SignedDuration::from_secs(WINDOW), "{} was deleted after {kept:?}", delete.name);
        longest = longest.max(kept - SignedDuration::from_secs(WINDOW));
    }
    let refused = deletes.iter().filter(|delete| delete.error.is_some()).count();
    eprintln!("{mode}: all deleted {longest:?} after their window at most; {refused} DELETEs were refused before");
    let metrics = world.now().await?.webhook.context("a webhook")?.metrics;
    let text = testbed::json_http::JsonHttp::page(&metrics).await?;
    eprintln!("{mode}: webhook p99 {}", p99(&text));
    ensure!(db.database().await?.gone.iter().all(|volume| volume.drained), "no data was lost");
    Ok(())
}

/// Upper bound of the bucket in which the 99th percentile of all answers lies.
fn p99(metrics: &str) -> String {
    let buckets: Vec<(&str, f64)> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("hibernate_webhook_request_duration_seconds_bucket{le=\""))
        .filter_map(|line| line.split_once("\"} "))
        .filter_map(|(bound, count)| Some((bound, count.parse().ok()?)))
        .collect();
    let all = buckets.last().map_or(0.0, |(_, count)| *count);
    let found = buckets.iter().find(|(_, count)| *count >= all * 0.99);
    found.map_or("unknown".to_owned(), |(bound, _)| format!("at most {bound} s of {all} answers"))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: for measurements"]
async fn a_hundred_of_five_hundred_groups_zone_by_zone() -> Result<()> {
    scale("Zone", 2).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: for measurements"]
async fn a_hundred_of_five_hundred_groups_at_once() -> Result<()> {
    scale("All", 2).await
}
