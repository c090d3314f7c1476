//! The guard of KKP's Clusters, by kubectl against a real API server: denials, warnings, stamps, deletions and KKP's own
//! writes, and the same while the webhook is down. Each rule has its rows in `shared::kkp::admission`, and what reaches
//! it in `match_conditions`. Row numbers without a K are those of docs/reference/kkp.md.

mod confined;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use shared::annotation::keys as common;
use shared::kkp::api::Cluster;
use shared::kkp::keys;
use testbed::check::Says::{self, Denies, Nothing, Warns};
use testbed::options::{Options, Program};
use testbed::supervisor::programs::Start;
use testbed::world::run::Ran;
use testbed::{World, apply, eventually};

use crate::kkp_common::upstream_folder;
use crate::match_writes::merge;

const SOON: Duration = Duration::from_mins(1);
const KIND: &str = "clusters.kubermatic.k8c.io";
const KKP: &str = "system:serviceaccount:kubermatic:kubermatic-seed";
/// How kubectl prints who requested the state.
const REQUESTED_BY: &str = "jsonpath={.metadata.annotations.hibernate\\.sh/requested-by}";

fn controller() -> String {
    format!("system:serviceaccount:{}:{}", common::NAMESPACE, common::CONTROLLER)
}

/// KKP's own definitions, where they are at hand.
fn definitions() -> Result<Vec<Value>> {
    let Some(folder) = upstream_folder("kkp") else { return Ok(testbed::foreign::of_seed()) };
    let read = |plural: &str| -> Result<Value> {
        let file = folder.join(format!("kubermatic.k8c.io_{plural}.yaml"));
        let text = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        Ok(serde_saphyr::from_str(&text)?)
    };
    ["clusters", "etcdbackupconfigs"].into_iter().map(read).collect()
}

/// A Cluster that KKP's real definition takes.
fn cluster(name: &str, fields: &Value) -> Value {
    let blocks = |cidr: &str| json!({ "cidrBlocks": [cidr] });
    let mut object = json!({
        "apiVersion": "kubermatic.k8c.io/v1", "kind": "Cluster",
        "metadata": { "name": name, "labels": { "project-id": "p" } },
        "spec": {
            "humanReadableName": name, "version": "1.34.1", "exposeStrategy": "LoadBalancer", "pause": false,
            "cloud": { "dc": "eu", "providerName": "aws" },
            "clusterNetwork": {
                "services": blocks("10.240.16.0/20"), "pods": blocks("172.25.0.0/16"), "dnsDomain": "cluster.local",
                "proxyMode": "ipvs",
            },
        },
    });
    merge(&mut object, fields);
    object
}

fn annotated(key: &str, value: impl Into<Value>) -> Value {
    json!({ "metadata": { "annotations": { key: value.into() } } })
}

fn both(mut one: Value, other: &Value) -> Value {
    merge(&mut one, other);
    one
}

/// `status` with these conditions: type, status, reason.
fn status(phase: &str, conditions: &[(&str, &str, &str)]) -> Value {
    let condition = |(name, status, reason): &(&str, &str, &str)| {
        let condition = json!({
            "status": status, "reason": reason, "kubermaticVersion": "v2.30.0", "lastHeartbeatTime": "2026-11-22T18:00:00Z",
        });
        ((*name).to_owned(), condition)
    };
    json!({ "phase": phase, "conditions": conditions.iter().map(condition).collect::<serde_json::Map<_, _>>() })
}

fn in_days(days: i64) -> String {
    let at = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24 * days);
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Clusters in each state: name, fields, status.
fn clusters() -> Vec<(&'static str, Value, Value)> {
    let up_to_date = ("SeedResourcesUpToDate", "True", "Reconciled");
    let running = || status("Running", &[up_to_date]);
    let phase = |phase: &str| {
        let is_asleep = if phase == "Dehydrated" { "True" } else { "False" };
        status("Running", &[up_to_date, ("ClusterDehydrated", is_asleep, phase)])
    };
    let paused = |reason: &str| json!({ "spec": { "pause": true, "pauseReason": reason } });
    let copied = || both(annotated(keys::POWER_STATE, "Hibernating"), &paused("dehydrated by kubectl-hibernate"));
    let asleep = || both(copied(), &annotated(keys::PAUSED_BY_SLEEP, "u-1/2026-11-22T18:00:00Z"));
    let expires = |days| both(asleep(), &annotated(keys::CERTIFICATES_EXPIRE_AT, in_days(days)));
    let provider = |name: &str| json!({ "spec": { "cloud": { "providerName": name } } });
    let finalizers = |names: &[&str]| json!({ "metadata": { "finalizers": names } });
    let cleanup = finalizers(&[keys::CLEANUP_LOAD_BALANCERS, keys::CLEANUP_VOLUMES]);
    vec![
        ("awake", json!({}), running()),
        ("metal", provider("baremetal"), running()),
        ("protected", annotated(common::PROTECTED, "true"), running()),
        ("paused", paused("maintenance"), running()),
        ("behind", json!({}), status("Running", &[("SeedResourcesUpToDate", "False", "Reconciling")])),
        ("asleep", asleep(), phase("Dehydrated")),
        ("waking", both(asleep(), &annotated(keys::POWER_STATE, "Running")), phase("Dehydrated")),
        ("going", both(asleep(), &finalizers(&["kubermatic.k8c.io/delete-nodes"])), phase("Dehydrated")),
        ("valid", both(expires(90), &cleanup), phase("Dehydrated")),
        ("plain", expires(90), phase("Dehydrated")),
        ("expired", both(expires(-9), &cleanup), phase("Dehydrated")),
        ("allowed", both(both(expires(-9), &cleanup), &annotated(keys::ALLOW_DELETE, "true")), phase("Dehydrated")),
    ]
}

struct Bench(World);

impl Bench {
    /// A seed with our webhook and its entries for KKP.
    async fn up() -> Result<Self> {
        let world = World::up(Options::bare_hub()).await?;
        let hub = world.hub().await?;
        let (mut objects, mut statuses) = (definitions()?, Vec::new());
        for (name, fields, status) in clusters() {
            objects.push(cluster(name, &fields));
            statuses.extend((!status.is_null()).then(|| (name, Patch::Merge(json!({ "status": status })))));
        }
        apply::all(&hub, &objects).await?;
        for (name, patch) in statuses {
            Api::<Cluster>::all(hub.clone()).patch_status(name, &PatchParams::default(), &patch).await?;
        }
        world.kubectl(&["delete", KIND, "going", "--wait=false"]).await?.ok()?;
        let url = world.start(&Start::new(Program::Webhook)).await?.url.context("a URL")?;
        let configurations = manifests::kkp_webhook_configurations(&url);
        apply::all(&hub, &configurations).await?;
        let bench = Self(world);
        eventually(SOON, "guard", async || {
            Denies("protected from sleep")
                .check(&bench.annotate("alice", "protected", "power-state=Hibernating").await?)?;
            Warns("dehydrated").check(&bench.delete("plain", &["--dry-run=server"]).await?)
        })
        .await?;
        Ok(bench)
    }

    async fn patch(&self, user: &str, name: &str, patch: &Value) -> Result<Ran> {
        let patch = patch.to_string();
        let line = ["patch", KIND, name, "--type", "merge", "-p", &patch, "--dry-run=server", "--as", user];
        self.0.kubectl(&[&line[..], &["--as-group", "system:masters"]].concat()).await
    }

    /// Sets an annotation of ours.
    async fn annotate(&self, user: &str, name: &str, pair: &str) -> Result<Ran> {
        let pair = format!("{}/{pair}", common::GROUP);
        let line = ["annotate", KIND, name, &pair, "--overwrite", "--dry-run=server", "--as", user];
        self.0.kubectl(&[&line[..], &["--as-group", "system:masters"]].concat()).await
    }

    async fn delete(&self, name: &str, more: &[&str]) -> Result<Ran> {
        self.0.kubectl(&[&["delete", KIND, name, "--wait=false"], more].concat()).await
    }
}

/// Rows K1 to K5 and K12: `kubectl annotate` puts each of these to sleep.
const SLEEPS: &[(&str, &str, Says<'static>)] = &[
    ("", "awake", Nothing),
    ("K3", "metal", Warns("no cloud cost is saved")),
    ("K4", "paused", Denies("spec.pause: another client has paused the cluster")),
    ("K4", "behind", Denies("status.conditions.SeedResourcesUpToDate: not True")),
    ("K5", "protected", Denies("the cluster is protected from sleep")),
    ("again", "waking", Nothing),
];

/// Rows K1, K6, K7 to K11: name, merge patch by alice.
fn changes() -> Vec<(&'static str, &'static str, Value, Says<'static>)> {
    let unpause = || json!({ "spec": { "pause": false } });
    let (wake, allow) = (annotated(keys::POWER_STATE, "Running"), annotated(keys::ALLOW_UNPAUSE, "true"));
    let by_restore = "metadata.annotations[kubermatic.k8c.io/active-restore]: the cluster is dehydrated";
    let sleep = annotated(keys::POWER_STATE, "Hibernating");
    vec![
        ("K1", "awake", annotated(keys::POWER_STATE, "asleep"), Denies("found \"asleep\"")),
        ("K6", "awake", annotated(keys::FORCE, "yes"), Denies("found \"yes\", must be \"true\" or \"false\"")),
        ("K7", "asleep", unpause(), Denies("spec.pause: the cluster is dehydrated")),
        ("K7 with the escape", "asleep", both(unpause(), &allow), Nothing),
        ("K7 in a deletion", "going", unpause(), Nothing),
        ("K7 into sleep", "awake", both(sleep, &allow), Warns("any client can end the pause")),
        ("K8", "asleep", json!({ "spec": { "version": "1.35.0" } }), Warns("only after its wake")),
        ("K9", "asleep", annotated(keys::ACTIVE_RESTORE, "r"), Denies(by_restore)),
        ("K10", "asleep", both(wake, &annotated(keys::FORCE, "yes")), Warns("found \"yes\"")),
        ("K11", "asleep", annotated(common::REQUESTED_BY, "mallory"), Denies("cannot be edited")),
    ]
}

/// What KKP, its dashboard and an `EtcdRestore` write (rows 12, 16, 18, 31). Nothing is printed for any of it, webhook
/// up or down.
fn writes_of_kkp() -> Vec<(&'static str, &'static str, Value)> {
    let metadata = |metadata: Value| json!({ "metadata": metadata });
    let begin = both(annotated(keys::ACTIVE_RESTORE, "r"), &json!({ "spec": { "pause": true } }));
    vec![
        ("finalizers go", "going", metadata(json!({ "finalizers": null }))),
        ("16: preset", "asleep", metadata(json!({ "annotations": { "presetInvalidated": "true" } }))),
        ("18: begin, awake", "awake", begin),
        ("31: defaults", "asleep", json!({ "spec": { "componentsOverride": { "apiserver": { "replicas": 2 } } } })),
        ("an update, awake", "awake", json!({ "spec": { "version": "1.35.0" } })),
    ]
}

async fn writes_of_kkp_pass(bench: &Bench) -> Result<()> {
    for (what, name, patch) in writes_of_kkp() {
        let ran = bench.patch(KKP, name, &patch).await?;
        Nothing.check(&ran).with_context(|| format!("KKP: {what}"))?;
    }
    // 12, 16: phase and conditions, by the subresource.
    let status = status("Updating", &[("SeedResourcesUpToDate", "False", "x")]);
    let patch = json!({ "status": status }).to_string();
    let line =
        ["patch", KIND, "asleep", "--subresource", "status", "--type", "merge", "-p", &patch, "--dry-run=server"];
    Nothing.check(&bench.0.kubectl(&line).await?).context("KKP: 12")
}

async fn stamps(bench: &Bench) -> Result<()> {
    let forged =
        both(annotated(keys::POWER_STATE, "Hibernating"), &annotated(common::REQUESTED_BY, "mallory")).to_string();
    let carried = both(
        both(annotated(keys::POWER_STATE, "Running"), &annotated(common::REQUESTED_BY, "dora")),
        &annotated(common::REQUESTED_AT, "2026-11-22T18:00:00Z"),
    );
    let (carried, controller) = (carried.to_string(), controller());
    for (patch, user, who) in [
        (forged.as_str(), "alice", "alice"),
        // KKP's own write is stored as it was sent (34).
        (r#"{"metadata":{"labels":{"a":"b"}}}"#, KKP, "alice"),
        (r#"{"metadata":{"annotations":{"hibernate.sh/power-state":"Running"}}}"#, "bob", "bob"),
        (forged.as_str(), "alice", "alice"),
        // The request on the record.
        (carried.as_str(), controller.as_str(), "dora"),
        (forged.as_str(), "alice", "alice"),
        (carried.as_str(), "carl", "carl"),
    ] {
        let line = ["patch", KIND, "awake", "--type", "merge", "-p", patch, "-o", REQUESTED_BY, "--as", user];
        let found = bench.0.kubectl(&[&line[..], &["--as-group", "system:masters"]].concat()).await?.ok()?;
        ensure!(found == who, "{patch}: {found:?}");
    }
    let line = [
        "annotate",
        KIND,
        "awake",
        "hibernate.sh/power-state-",
        "hibernate.sh/requested-by-",
        "hibernate.sh/requested-at-",
    ];
    // Without a change of state a stamp that is dropped is put back, and another one is denied.
    Nothing.check(&bench.0.kubectl(&line).await?)?;
    let found = bench.0.kubectl(&["get", KIND, "awake", "-o", REQUESTED_BY]).await?.ok()?;
    ensure!(found == "carl", "{found:?}");
    Denies("cannot be edited").check(&bench.annotate("alice", "awake", "requested-by=mallory").await?)
}

/// Row 27: of a request on the record of a Cluster that KKP cannot write.
async fn stamps_of_a_record(bench: &Bench) -> Result<()> {
    let (namespace, (record, _)) = ("cluster-awake", keys::RECORD);
    bench.0.kubectl(&["create", "namespace", namespace]).await?.ok()?;
    bench.0.kubectl(&["create", "configmap", record, "-n", namespace]).await?.ok()?;
    for (pairs, user, who) in [
        (&["power-state=Running", "requested-by=mallory"][..], "alice", "alice"),
        (&["requested-by=mallory"], "mallory", "alice"),
        (&["power-state-at=2026-11-22T18:00:00Z"], "bob", "bob"),
        (&["reason=none"], "mallory", "bob"),
    ] {
        let pairs: Vec<String> = pairs.iter().map(|pair| format!("{}/{pair}", common::GROUP)).collect();
        let mut line = vec!["annotate", "configmap", record, "-n", namespace, "--overwrite", "-o", REQUESTED_BY];
        line.extend(["--as", user, "--as-group", "system:masters"]);
        line.extend(pairs.iter().map(String::as_str));
        let found = bench.0.kubectl(&line).await?.ok()?;
        ensure!(found == who, "{pairs:?} by {user}: {found:?}");
    }
    Ok(())
}

async fn deletions(bench: &Bench) -> Result<()> {
    let starts = "hibernate-controller starts its control plane first";
    for (name, says) in [
        ("valid", Warns(starts)),
        ("plain", Warns("cleanup-in-cluster-lb is absent: the cluster's load balancers remain in the cloud")),
        ("expired", Denies("hydrate first with kubectl hibernate resume cluster/expired --wait")),
        ("allowed", Warns("a control-plane certificate expired at")),
        ("awake", Nothing),
    ] {
        says.check(&bench.delete(name, &["--dry-run=server"]).await?)
            .with_context(|| format!("dry run of DELETE {name}"))?;
    }
    let complete = bench.delete("valid", &["--dry-run=server"]).await?;
    ensure!(!complete.stderr.contains("remain in the cloud"), "{complete:?}");
    // Asking again changes nothing. KKP's own DELETE passes, or the deletion of a project would never end (16).
    for _ in 0..2 {
        Denies("hydrate first").check(&bench.delete("expired", &[]).await?).context("DELETE by a person")?;
    }
    let kkp = ["--as", KKP, "--as-group", "system:serviceaccounts:kubermatic", "--as-group", "system:masters"];
    Warns("a control-plane certificate expired at").check(&bench.delete("expired", &kkp).await?).context("KKP's DELETE")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_rule_holds_against_kubectl_and_kkps_own_writes_pass() -> Result<()> {
    let bench = Bench::up().await?;
    for (row, name, says) in SLEEPS {
        let ran = bench.annotate("alice", name, "power-state=Hibernating").await?;
        says.check(&ran).with_context(|| format!("{row}: sleep of {name}"))?;
    }
    for (row, name, patch, says) in changes() {
        says.check(&bench.patch("alice", name, &patch).await?).with_context(|| format!("{row}: {name}, {patch}"))?;
    }
    let unpause = json!({ "spec": { "pause": false, "pauseReason": null } });
    Nothing.check(&bench.patch(&controller(), "asleep", &unpause).await?).context("K7: our controller")?;
    writes_of_kkp_pass(&bench).await?;
    deletions(&bench).await?;
    stamps(&bench).await?;
    stamps_of_a_record(&bench).await?;

    bench.0.signal("webhook", "kill").await?;
    let fails = |entry: &str| format!("failed calling webhook \"{entry}\"");
    let ran = bench.annotate("alice", "metal", "power-state=Hibernating").await?;
    ran.says(1, &[&fails("kkp-into-sleep.hibernate.sh")])?;
    let ran = bench.patch(KKP, "asleep", &annotated(keys::ACTIVE_RESTORE, "r")).await?;
    ran.says(1, &[&fails("kkp-active-restore.hibernate.sh")])?;
    // Under Ignore: what warns, what is refused while the webhook is up, and every way to wake.
    for (row, name, patch, says) in changes() {
        if !matches!(&says, Denies(text) if text.contains("active-restore")) && row != "K7 into sleep" {
            Nothing
                .check(&bench.patch("alice", name, &patch).await?)
                .with_context(|| format!("{row}: down, {name}"))?;
        }
    }
    Nothing.check(&bench.delete("allowed", &["--dry-run=server"]).await?).context("DELETE, down")?;
    writes_of_kkp_pass(&bench).await
}
