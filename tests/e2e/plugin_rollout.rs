//! Rollouts from the command line, on a real hub without a controller: what is created, refused, changed and shown.
//! Where a controller would write, the test does.

mod created;
pub(crate) mod refused;
mod verbs;
mod waited;

use anyhow::Result;
use jiff::{SignedDuration, Timestamp};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use shared::hive::api::ClusterDeployment;
use shared::rollout::api::PowerRollout;
use testbed::check::webhook_only;
use testbed::options::Options;
use testbed::world::run::Ran;
use testbed::{World, apply, eventually};

use crate::hive_common::create;
use crate::plugin_common::{Shell, in_namespace};

/// A hub of its own: its Lease is held, although no controller runs. Its audit log is not read: it only tells it from
/// the hubs of other tests.
async fn world() -> Result<World> {
    let world = World::shared_with(Options { audit: true, ..webhook_only() }).await?;
    let hub = world.hub().await?;
    apply::all(&hub, &[namespace(), lease("test", Timestamp::now(), 86_400)]).await?;
    let rollouts: Api<PowerRollout> = Api::all(hub);
    eventually(crate::hive_common::SOON, "the definition", async || {
        Ok(rollouts.list(&ListParams::default()).await.map(drop)?)
    })
    .await?;
    Ok(world)
}

fn namespace() -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "hibernate-system" } })
}

pub(crate) fn lease(holder: &str, renewed: Timestamp, seconds: i32) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "hibernate-controller", "namespace": "hibernate-system" },
        "spec": {
            "holderIdentity": holder, "leaseDurationSeconds": seconds,
            "renewTime": renewed.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
        },
    })
}

/// What the controller writes when too many targets have failed.
fn halt() -> Value {
    json!({ "group": "", "at": "2026-11-24T18:00:00Z", "acceptFailures": 0, "retryFailed": 0 })
}

/// An installed cluster that runs.
async fn cluster(client: &Client, ns: &str, name: &str, labels: &Value) -> Result<()> {
    let clusters: Api<ClusterDeployment> = Api::namespaced(client.clone(), ns);
    let aws = json!({ "region": "eu-central-1", "credentialsSecretRef": { "name": "creds" } });
    let change = json!({ "metadata": { "labels": labels }, "spec": { "platform": { "aws": aws } } });
    create(&clusters, name, "aws", &change).await?;
    let status = json!({ "status": { "powerState": "Running" } });
    clusters.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

/// Three clusters; two have the tier `x`. All have a label that no other test's clusters have.
async fn fleet(shell: &Shell) -> Result<()> {
    for (name, tier) in [("a", "x"), ("b", "x"), ("c", "y")] {
        cluster(&shell.client, &shell.ns, name, &json!({ "tier": tier, "fleet": shell.ns })).await?;
    }
    Ok(())
}

/// Runs a test beside the fleet.
async fn with_fleet(test: impl AsyncFnOnce(&Shell) -> Result<()>) -> Result<()> {
    in_namespace(world().await?, async |shell| {
        fleet(&shell).await?;
        test(&shell).await
    })
    .await
}

/// The rollouts with this reason: names are made up by the plugin.
async fn rollouts_because(client: &Client, reason: &str) -> Result<Vec<PowerRollout>> {
    let all: Api<PowerRollout> = Api::all(client.clone());
    let list = all.list(&ListParams::default()).await?.items;
    Ok(list.into_iter().filter(|one| one.spec.reason.as_deref() == Some(reason)).collect())
}

/// A rollout of nobody's making.
async fn rollout(client: &Client, spec: Value) -> Result<PowerRollout> {
    let name = format!("night-{:08x}", rand::random::<u32>());
    let mut object = json!({
        "apiVersion": "hibernate.sh/v1alpha1", "kind": "PowerRollout", "metadata": { "name": name },
        "spec": {
            "action": "Hibernate", "maxTargets": 3, "notAfter": "2036-01-01T00:00:00Z",
            "targets": { "selector": { "matchLabels": { "fleet": name } } },
            "groups": [{ "name": "canary", "selector": { "matchLabels": { "tier": "x" } }, "pauseAfter": true }],
        },
    });
    crate::match_writes::merge(&mut object, &json!({ "spec": spec }));
    let all: Api<PowerRollout> = Api::all(client.clone());
    Ok(all.create(&PostParams::default(), &serde_json::from_value(object)?).await?)
}

/// What a controller would write.
async fn observed(client: &Client, name: &str, status: Value) -> Result<()> {
    let all: Api<PowerRollout> = Api::all(client.clone());
    all.patch_status(name, &PatchParams::default(), &Patch::Merge(json!({ "status": status }))).await?;
    Ok(())
}

async fn get(client: &Client, name: &str) -> Result<PowerRollout> {
    Ok(Api::<PowerRollout>::all(client.clone()).get(name).await?)
}

/// Seconds from now.
fn from_now(time: Timestamp) -> i64 {
    time.duration_since(Timestamp::now()).as_secs()
}

/// The methods and paths of the requests that `-v` shows.
fn requests(ran: &Ran) -> Vec<&str> {
    ran.stderr.lines().filter(|line| line.contains(" https://")).collect()
}

fn is_about(found: i64, expected: SignedDuration) -> bool {
    (found - expected.as_secs()).abs() < 60
}

fn name(rollout: &PowerRollout) -> String {
    rollout.name_any()
}
