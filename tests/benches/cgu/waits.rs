//! What an upgrade costs that waits, how fast it sees what it waits for, and memory.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use testbed::bench::meter::count;
use testbed::bench::table::Table;

use super::fleet::{Hub, LONG};

/// How long a policy soaks.
const SOAK: SignedDuration = SignedDuration::from_secs(5);

const ARGS: [&str; 3] = ["--cgu", "--cgu-talm-namespace", "default"];

/// A blocked upgrade and a disabled one, and what ends waits.
pub async fn waits(table: &mut Table) -> Result<()> {
    let hub = Hub::new(50).await?;
    hub.controller(&ARGS).await?;
    let strategy = json!({ "maxConcurrency": 50, "timeout": 1 });
    hub.upgrade("first", &json!({ "enable": false })).await?;
    let blockers = json!([{ "name": "first", "namespace": "default" }]);
    hub.upgrade("second", &json!({ "blockingCRs": blockers, "remediationStrategy": strategy })).await?;
    hub.until("first", "Progressing/False/NotEnabled").await?;
    hub.until("second", "Progressing/False/IncompleteBlockingCR").await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before: usize = hub.requests().await?.values().sum();
    tokio::time::sleep(Duration::from_mins(1)).await;
    let after: usize = hub.requests().await?.values().sum();
    table.add("waits", "requests a minute, blocked and disabled", Some(27.0), Some(0.0), count(after - before));

    let driver = hub.drive(false);
    let enable = Patch::Merge(json!({ "spec": { "enable": true } }));
    hub.upgrades().patch("first", &PatchParams::default(), &enable).await?;
    let done = hub.until("first", "Succeeded/True/Completed").await?;
    let started = hub.until("second", "Succeeded/True/Completed").await?;
    table.add("waits", "s from a blocker's end to the end of the next", Some(60.0), Some(1.0), since(done, started));
    drop(driver);

    // A policy that is missing, and a batch that never complies.
    let late = json!({ "managedPolicies": ["late"], "remediationStrategy": { "maxConcurrency": 25, "timeout": 1 } });
    hub.upgrade("late", &late).await?;
    hub.until("late", "Validated/False/NotAllManagedPoliciesExist").await?;
    hub.policy("late", 0).await?;
    let there = Instant::now();
    let seen = hub.until("late", "Progressing/True/InProgress").await?;
    table.add("waits", "s until a new policy is seen", Some(60.0), Some(1.0), since(there, seen));
    let limit = seen + Duration::from_secs(30);
    let next = loop {
        ensure!(limit.elapsed() < LONG, "the next batch does not start");
        let status = hub.upgrades().get_status("late").await?.status.unwrap_or_default();
        if status.status.current_batch == 2 {
            break Instant::now();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    table.add("waits", "s from a batch's limit to the next batch", Some(299.0), Some(1.0), since(limit, next));

    // A policy that soaks, and a cluster that is missing.
    hub.policy("soaking", 0).await?;
    hub.soak("soaking", SOAK.as_secs()).await?;
    let driver = hub.drive(false);
    hub.upgrade("soaking", &json!({ "managedPolicies": ["soaking"], "remediationStrategy": { "maxConcurrency": 50 } }))
        .await?;
    let begun = Instant::now();
    let first = loop {
        ensure!(begun.elapsed() < LONG, "no cluster soaks");
        let status = hub.upgrades().get_status("soaking").await?.status.unwrap_or_default();
        let mut progress = status.status.current_batch_remediation_progress.into_values();
        if let Some(at) = progress.find_map(|one| one.first_compliant_at) {
            break at.0;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    hub.until("soaking", "Succeeded/True/Completed").await?;
    let late = Timestamp::now().duration_since(first) - SOAK;
    table.add("waits", "s from the end of a soak to the end", Some(30.0), Some(1.0), late.as_secs_f64());
    drop(driver);

    let unknown = json!({ "clusters": ["newcomer"], "managedPolicies": [] });
    hub.upgrade("newcomer", &unknown).await?;
    hub.until("newcomer", "ClustersSelected/False/ClusterNotFound").await?;
    hub.join(&["newcomer".to_owned()]).await?;
    let there = Instant::now();
    let seen = hub.until("newcomer", "ClustersSelected/True/ClusterSelectionCompleted").await?;
    table.add("waits", "s until a new cluster is seen", Some(300.0), Some(1.0), since(there, seen));
    Ok(())
}

fn since(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64()
}

/// 1,000 clusters with 20 policies of 6 KB each.
pub async fn memory(table: &mut Table) -> Result<()> {
    let hub = Hub::new(1_000).await?;
    for number in 0..15 {
        hub.policy(&format!("large{number}"), 6_000).await?;
    }
    let mut found = Vec::new();
    for args in [&[][..], &ARGS] {
        hub.controller(args).await?;
        if !args.is_empty() {
            hub.upgrade("disabled", &json!({ "enable": false })).await?;
            hub.until("disabled", "Progressing/False/NotEnabled").await?;
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        found.push(hub.world.memory("controller").await?[1]);
        hub.world.signal("controller", "kill").await?;
    }
    table.add("memory", "RSS MB", Some(482.0), None, found[1]);
    table.add("memory", "more than without --cgu", None, Some(40.0), found[1] - found[0]);
    Ok(())
}
