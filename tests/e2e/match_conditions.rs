//! Which writes reach which entry of the webhook configurations. One entry at a time is registered under failurePolicy
//! Fail at an address without a server: what it takes is refused, what it leaves alone passes, and an expression that
//! fails refuses with other words.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::match_writes::{HIVE, INTO_SLEEP, Verb, Write, fdb, kkp, stored, writes};
use anyhow::{Context as _, Result, bail, ensure};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::Value;
use testbed::options::Options;
use testbed::{World, apply, eventually};

const UNREACHABLE: &str = "https://127.0.0.1:1";

/// What became of a write.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Passed,
    Reached,
}

/// The hub's clients, by user.
type Clients = BTreeMap<&'static str, Client>;

async fn send(clients: &Clients, write: &Write) -> Result<Fate> {
    let client = clients[write.user].clone();
    let api: Api<DynamicObject> = match write.namespace {
        "" => Api::all_with(client, &write.kind.resource()),
        namespace => Api::namespaced_with(client, namespace, &write.kind.resource()),
    };
    let (patching, posting) = (
        PatchParams { dry_run: true, ..PatchParams::default() },
        PostParams { dry_run: true, ..PostParams::default() },
    );
    let answer = match &write.verb {
        Verb::Create(object) => api.create(&posting, &serde_json::from_value(object.clone())?).await.map(drop),
        Verb::Patch(name, patch) => api.patch(name, &patching, &Patch::Merge(patch)).await.map(drop),
        Verb::PatchScale(name, patch) => api.patch_scale(name, &patching, &Patch::Merge(patch)).await.map(drop),
        Verb::PatchStatus(name, patch) => api.patch_status(name, &patching, &Patch::Merge(patch)).await.map(drop),
        Verb::Delete(name) => api.delete(name, &DeleteParams::default().dry_run()).await.map(drop),
        Verb::DeleteCollection(labels) => api
            .delete_collection(&DeleteParams::default().dry_run(), &ListParams::default().labels(labels))
            .await
            .map(drop),
    };
    match answer {
        Ok(()) => Ok(Fate::Passed),
        Err(kube::Error::Api(status)) if status.message.contains("failed calling webhook") => Ok(Fate::Reached),
        // No entry took it, and the policy misses what one of them would have put back.
        Err(kube::Error::Api(status)) if status.message.contains("ValidatingAdmissionPolicy") => Ok(Fate::Passed),
        Err(error) => Err(error).with_context(|| format!("{} {} {}", write.kind.0, write.kind.2, write.what)),
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

async fn only(world: &World, clients: &Clients, entry: &str) -> Result<()> {
    let ran = world
        .kubectl(&[
            "delete",
            "validatingwebhookconfigurations,mutatingwebhookconfigurations",
            "hibernate-webhook",
            "--ignore-not-found",
        ])
        .await?;
    ran.ok()?;
    apply::all(&clients["admin"], &alone(entry)).await?;
    // A write that this entry must match shows when the API server has loaded it.
    let writes = writes();
    let probe = writes.iter().find(|write| write.reaches.contains(&entry)).context("a write for each entry")?;
    eventually(Duration::from_secs(20), entry, async || {
        if send(clients, probe).await? == Fate::Reached { Ok(()) } else { bail!("not registered yet") }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_entry_takes_its_writes_and_no_other() -> Result<()> {
    let _heavy = testbed::heavy().await?;
    let world = World::up(Options::bare_hub()).await?;
    let mut clients = Clients::new();
    for user in writes().iter().map(|write| write.user).collect::<BTreeSet<_>>() {
        clients.insert(user, world.hub_as(user).await?);
    }
    let hub = &clients["admin"];
    let labeled = world.kubectl(&["label", "namespace", "kube-system", "hibernate.sh/record-replicas=true"]).await?;
    labeled.ok()?;
    apply::all(hub, &stored()).await?;
    kkp::set_status(hub).await?;
    let databases: Api<DynamicObject> = Api::namespaced_with(hub.clone(), fdb::NAMESPACE, &fdb::CLUSTER.resource());
    let uid = databases.get("kept").await?.metadata.uid.context("a uid")?;
    apply::all(hub, &fdb::owned(&uid)).await?;
    let mut wrong = Vec::new();
    for entry in &entries() {
        let entry = entry.as_str();
        only(&world, &clients, entry).await?;
        for write in writes() {
            let expected = if write.reaches.contains(&entry) { Fate::Reached } else { Fate::Passed };
            let found = send(&clients, &write).await?;
            if found != expected {
                wrong.push(format!("{entry}: {} {}: {found:?}", write.kind.0, write.what));
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Rules that deny and rules that may fail open are on entries of their own: no write waits for both.
#[test]
fn no_write_is_judged_twice() {
    let sets: [&[&str]; 2] = [&[INTO_SLEEP, HIVE], &[kkp::INTO_SLEEP, kkp::RESTORE, kkp::CHANGES]];
    for (write, judges) in writes().iter().flat_map(|write| sets.map(|judges| (write, judges))) {
        let reached = judges.iter().filter(|entry| write.reaches.contains(entry)).count();
        assert!(reached <= 1, "{} is judged twice", write.what);
    }
}
