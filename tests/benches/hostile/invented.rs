//! One requester creates 800 rollouts, each with 1,000 names that are made up.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};
use shared::rollout::api::PowerRollout;
use testbed::bench::table::Table;
use testbed::{Options, Timings, World};

use crate::peak;

const ROLLOUTS: usize = 800;
const NAMES: usize = 1_000;
const LONG: Duration = Duration::from_mins(5);

pub async fn invented_names(table: &mut Table) -> Result<()> {
    let world = World::up(Options { clusters: 0, timings: Timings::fast(), ..Options::default() }).await?;
    let all: Api<PowerRollout> = Api::all(world.hub().await?);
    let calm = peak(&world, "controller").await?;
    let begun = Instant::now();
    let create = |number: usize| {
        let all = all.clone();
        async move {
            all.create(&PostParams::default(), &serde_json::from_value(rollout(number))?)
                .await
                .map_err(anyhow::Error::from)
        }
    };
    stream::iter(0..ROLLOUTS).map(create).buffer_unordered(4).try_collect::<Vec<_>>().await?;
    loop {
        let params = ListParams::default().limit(50);
        let (mut reported, mut page) = (0, all.list(&params).await?);
        loop {
            let is_reported = |one: &&PowerRollout| one.status.as_ref().is_some_and(|status| status.phase.is_some());
            reported += page.items.iter().filter(is_reported).count();
            let Some(next) = page.metadata.continue_.filter(|next| !next.is_empty()) else { break };
            page = all.list(&params.clone().continue_token(&next)).await?;
        }
        if reported == ROLLOUTS {
            break;
        }
        ensure!(begun.elapsed() < LONG, "{reported} of {ROLLOUTS} rollouts have a phase after {LONG:?}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let (took, attacked) = (begun.elapsed().as_secs_f64(), peak(&world, "controller").await?);
    table.add("invented", "s until 800 rollouts of 1,000 names are reported", None, None, took);
    table.add("invented", "controller's peak MB without", None, None, calm);
    table.add("invented", "controller's peak MB", None, None, attacked);
    table.add("invented", "ratio", None, None, attacked / calm);
    Ok(())
}

fn rollout(number: usize) -> Value {
    let name = |at: usize| json!({ "namespace": format!("invented-{number}"), "name": format!("made-up-{at:04}") });
    let names: Vec<Value> = (0..NAMES).map(name).collect();
    json!({
        "apiVersion": "hibernate.sh/v1alpha1", "kind": "PowerRollout", "metadata": { "name": format!("invented-{number}") },
        "spec": {
            "action": "Hibernate", "targets": { "names": names }, "maxTargets": NAMES, "notAfter": "2126-01-01T00:00:00Z",
        },
    })
}
