//! Which writes reach which entry of the webhook configurations: the cases of tests/corpus that say what they reach. One
//! entry at a time is registered under failurePolicy Fail at an address without a server: what it takes is refused, what
//! it leaves alone passes, and an expression that fails refuses with other words.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::{Client, CustomResourceExt as _};
use serde_json::{Value, json};
use testbed::options::Options;
use testbed::{World, apply, eventually};

use crate::match_writes::{Case, clients, send, store, writes};

const UNREACHABLE: &str = "https://127.0.0.1:1";
/// Writes in flight.
const AT_ONCE: usize = 24;

/// What became of a write.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Passed,
    Reached,
}

async fn fate(clients: &BTreeMap<String, Client>, case: &Case) -> Result<Fate> {
    match send(&clients[&case.user], case).await {
        Ok(()) => Ok(Fate::Passed),
        Err(kube::Error::Api(status)) if status.message.contains("failed calling webhook") => Ok(Fate::Reached),
        // No entry took it, and the policy misses what one of them would have put back.
        Err(kube::Error::Api(status)) if status.message.contains("ValidatingAdmissionPolicy") => Ok(Fate::Passed),
        Err(error) => Err(error).with_context(|| format!("{} {}", case.stored["kind"], case.name)),
    }
}

/// Both configurations, with the entries for KKP among them.
fn configurations() -> Vec<Value> {
    manifests::kkp_webhook_configurations(UNREACHABLE)
}

/// The names of all entries.
fn entries() -> BTreeSet<String> {
    let configurations = configurations();
    let all = configurations.iter().filter_map(|configuration| configuration["webhooks"].as_array()).flatten();
    all.filter_map(|entry| entry["name"].as_str().map(str::to_owned)).collect()
}

/// Registers one entry alone, under Fail.
fn alone(entry: &str) -> Vec<Value> {
    let mut configurations = configurations();
    for configuration in &mut configurations {
        let Some(entries) = configuration["webhooks"].as_array_mut() else { continue };
        entries.retain(|found| found["name"] == entry);
        for found in entries {
            found["failurePolicy"] = "Fail".into();
            found["timeoutSeconds"] = 1.into();
        }
    }
    configurations
}

async fn only(world: &World, clients: &BTreeMap<String, Client>, cases: &[Case], entry: &str) -> Result<()> {
    let kinds = "validatingwebhookconfigurations,mutatingwebhookconfigurations";
    world.kubectl(&["delete", kinds, "hibernate-webhook", "--ignore-not-found"]).await?.ok()?;
    apply::all(&world.hub().await?, &alone(entry)).await?;
    // A write that this entry must match shows when the API server has loaded it.
    let probe = cases.iter().find(|case| case.reaches(entry)).context("a write for each entry")?;
    eventually(Duration::from_mins(1), entry, async || {
        if fate(clients, probe).await? == Fate::Reached { Ok(()) } else { bail!("not registered yet") }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_entry_takes_its_writes_and_no_other() -> Result<()> {
    let _heavy = testbed::heavy().await?;
    let world = World::up(Options::bare_hub()).await?;
    let (hub, cases) = (world.hub().await?, writes());
    ensure!(cases.len() > 200, "{}", cases.len());
    let clients = clients(&world, &cases).await?;
    apply::all(&hub, &[json!(shared::kkp::api::Cluster::crd())]).await?;
    store(&hub, &cases).await?;
    let mut wrong = Vec::new();
    for entry in &entries() {
        only(&world, &clients, &cases, entry).await?;
        let fates = stream::iter(&cases).map(async |case| anyhow::Ok((case, fate(&clients, case).await?)));
        for (case, found) in fates.buffered(AT_ONCE).try_collect::<Vec<_>>().await? {
            let expected = if case.reaches(entry) { Fate::Reached } else { Fate::Passed };
            if found != expected {
                wrong.push(format!("{entry}: {} {}: {found:?}", case.stored["kind"], case.name));
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Each name in the corpora is one of an entry. Rules that deny and rules that may fail open are on entries of their own:
/// no write waits for both.
#[test]
fn no_write_is_judged_twice() {
    let entries = entries();
    let judges = [&["into-sleep", "hive"][..], &["kkp-into-sleep", "kkp-active-restore", "kkp"]];
    for case in writes() {
        let reached: Vec<_> =
            case.reaches.iter().flat_map(|all| all.split(' ')).filter(|one| !one.is_empty()).collect();
        assert!(
            reached.iter().all(|one| entries.contains(&format!("{one}.hibernate.sh"))),
            "{}: {reached:?}",
            case.name
        );
        for judges in judges {
            assert!(reached.iter().filter(|one| judges.contains(one)).count() <= 1, "{} is judged twice", case.name);
        }
    }
}
