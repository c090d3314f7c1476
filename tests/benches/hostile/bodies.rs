//! Sixteen bodies of 6.9 MB at once, of labels and of groups; and a flood of bodies with fields of a wrong type.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::future::{join_all, try_join_all};
use hyper::StatusCode;
use hyper::body::Bytes;
use serde_json::{Value, json};
use shared::annotation::keys;
use shared::kkp::admission::ANNOTATIONS;
use testbed::bench::table::Table;
use testbed::{Options, World};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::reviews::{Reviewer, Webhook, review, review_of};
use crate::{p99, peak};

const BODIES: usize = 16;
/// Connections of the flood, and its address.
const FLOOD: (usize, Ipv4Addr) = (4, Ipv4Addr::new(127, 0, 0, 2));
/// Requests of another client meanwhile.
const REQUESTS: usize = 500;

pub async fn large_bodies(table: &mut Table) -> Result<()> {
    for (what, body) in [("labels", review(87_000, 1)), ("groups", review(1, 400_000))] {
        let world = World::up(Options::default()).await?;
        let webhook = Webhook::of(&world).await?;
        let clients: Vec<Reviewer> = (0..BODIES).map(|_| webhook.client()).collect::<Result<_>>()?;
        let megabytes = u32::try_from(body.len() / 100_000).map(f64::from)? / 10.0;
        let (mut judged, mut busy, mut slowest) = (0_u32, 0_u32, 0.0_f64);
        for answer in join_all(clients.iter().map(|client| client.post(body.clone()))).await {
            let (status, took) = answer?;
            judged += u32::from(status == StatusCode::OK);
            busy += u32::from(status == StatusCode::SERVICE_UNAVAILABLE);
            slowest = slowest.max(took.as_secs_f64());
        }
        let name = format!("bodies {what}");
        table.add(&name, "MB a body", None, None, megabytes);
        table.add(&name, "judged, of 16", None, None, f64::from(judged));
        table.add(&name, "told to try again (503), of 16", None, None, f64::from(busy));
        table.add(&name, "slowest answer, s", None, Some(2.0), slowest);
        table.add(&name, "webhook's peak of memory, MB", None, Some(128.0), peak(&world, "webhook").await?);
    }
    Ok(())
}

/// CPU of the webhook for a body with fields of a wrong type, against a good one of the same size, and what another
/// client notices of a flood of them.
pub async fn wrong_bodies(table: &mut Table) -> Result<()> {
    let world = World::up(Options::default()).await?;
    let webhook = Webhook::of(&world).await?;
    for (name, bytes, requests) in
        [("bodies 17 KB", 17_000, 4_000), ("bodies 540 KB", 540_000, 400), ("bodies 2 MB", 2_000_000, 100)]
    {
        let [good, wrong] = [false, true].map(|is_wrong| with_fields(bytes, is_wrong));
        let mut cpu = Vec::new();
        for body in [&good, &wrong] {
            let (from, each) = (world.cpu("webhook").await?, requests / FLOOD.0);
            try_join_all((0..FLOOD.0).map(|_| flood(&webhook, body, each))).await?;
            cpu.push((world.cpu("webhook").await? - from) * 1e6 / f64::from(u32::try_from(each * FLOOD.0)?));
        }
        let calm = of_another(&webhook).await?;
        let mut attack = endless(&webhook, &wrong)?;
        sleep(Duration::from_secs(1)).await;
        let attacked = of_another(&webhook).await?;
        attack.shutdown().await;
        table.add(name, "CPU of a good one, us", None, None, cpu[0]);
        table.add(name, "CPU of a wrong one, us", None, None, cpu[1]);
        table.add(name, "ratio", None, Some(2.0), cpu[1] / cpu[0]);
        table.add(name, "99 of 100 of another within ms, without", None, None, calm);
        table.add(name, "99 of 100 of another within ms, in the flood", None, None, attacked);
    }
    Ok(())
}

async fn flood(webhook: &Webhook, body: &Bytes, requests: usize) -> Result<()> {
    let client = webhook.client_at(FLOOD.1.into())?;
    for _ in 0..requests {
        let (status, _) = client.post(body.clone()).await?;
        ensure!(status == StatusCode::OK, "{status}");
    }
    Ok(())
}

/// The wrong bodies without end, until it is dropped.
pub fn attack(webhook: &Webhook) -> Result<JoinSet<()>> {
    endless(webhook, &with_fields(540_000, true))
}

fn endless(webhook: &Webhook, body: &Bytes) -> Result<JoinSet<()>> {
    let mut attack = JoinSet::new();
    for _ in 0..FLOOD.0 {
        let (client, body) = (webhook.client_at(FLOOD.1.into())?, body.clone());
        attack.spawn(async move { while client.post(body.clone()).await.is_ok() {} });
    }
    Ok(attack)
}

/// What 99 of 100 requests of another client take at most, in ms.
async fn of_another(webhook: &Webhook) -> Result<f64> {
    let (client, mut took) = (webhook.client()?, Vec::new());
    for _ in 0..REQUESTS {
        took.push(client.post(review(1, 1)).await?.1.as_secs_f64() * 1_000.0);
        sleep(Duration::from_millis(5)).await;
    }
    Ok(p99(took))
}

/// A sleep of so many bytes: 8 fields and 20 annotations that rules read, and labels and annotations of others, are of a
/// wrong type or not.
fn with_fields(bytes: usize, is_wrong: bool) -> Bytes {
    let odd = |good: Value| if is_wrong { json!(7_000_000) } else { good };
    let keys = keys::TARGET_ANNOTATIONS.iter().chain(ANNOTATIONS).copied().map(str::to_owned);
    let others = (0..bytes / 120).map(|at| format!("hibernate.sh/note-{at:06}"));
    let notes: serde_json::Map<_, _> = keys.chain(others).map(|key| (key, odd(json!("true")))).collect();
    let cluster = |state: &str| {
        json!({
            "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment",
            "metadata": { "name": "demo", "namespace": "clusters", "uid": "5f0bb9a2", "annotations": notes },
            "spec": {
                "powerState": state, "installed": odd(json!(true)), "hibernateAfter": odd(json!("8h")),
                "platform": odd(json!({ "aws": {} })), "clusterPoolRef": { "poolName": odd(json!("pool")), "claimName": odd(json!("claim")) },
                "clusterMetadata": {
                    "infraID": odd(json!("demo-x7k2p")), "adminKubeconfigSecretRef": { "name": odd(json!("demo-admin")) },
                },
            },
            "status": { "installedTimestamp": odd(json!("2026-01-01T00:00:00Z")) },
        })
    };
    let (mut object, old) = (cluster("Hibernating"), cluster("Running"));
    let missing = bytes.saturating_sub(object.to_string().len() + old.to_string().len());
    object["spec"]["filler"] = json!(vec![odd(json!("filler!")); missing / 10]);
    review_of(&object, &old, 1)
}
