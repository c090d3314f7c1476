//! The guard of KKP's Clusters, by kubectl against a real API server: denials, warnings, stamps, deletions and KKP's own
//! writes, and the same while the webhook is down: the cases of tests/corpus/kkp.yaml that have words. Row numbers without
//! a K are those of docs/reference/kkp.md.

mod confined;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use shared::annotation::keys as common;
use shared::kkp::keys;
use testbed::check::Says::{self, Denies, Nothing, Warns};
use testbed::options::{Options, Program};
use testbed::supervisor::programs::Start;
use testbed::world::run::Ran;
use testbed::{World, apply, eventually};

use crate::kkp_common::upstream_folder;
use crate::match_writes::{self, Case, Verb, merge, sent, store};

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

struct Bench {
    world: World,
    cases: Vec<Case>,
}

fn name(case: &Case) -> &str {
    case.stored["metadata"]["name"].as_str().unwrap_or_default()
}

impl Bench {
    /// A seed with our webhook and its entries for KKP.
    async fn up() -> Result<Self> {
        let world = World::up(Options::bare_hub()).await?;
        let hub = world.hub().await?;
        apply::all(&hub, &definitions()?).await?;
        let mut cases = sent(match_writes::KKP).cases;
        cases.retain(|case| case.words.is_some());
        store(&hub, &cases).await?;
        let url = world.start(&Start::new(Program::Webhook)).await?.url.context("a URL")?;
        let configurations = manifests::kkp_webhook_configurations(&url);
        apply::all(&hub, &configurations).await?;
        let bench = Self { world, cases };
        let probes = ["into sleep: K5", "deletion (K13): whole"];
        let probes = probes.map(|probe| bench.cases.iter().find(|case| case.name == probe));
        eventually(SOON, "guard", async || {
            for probe in probes {
                let probe = probe.context("a case")?;
                says(probe).check(&bench.send(probe).await?)?;
            }
            Ok(())
        })
        .await?;
        Ok(bench)
    }

    /// The write of a case, as a dry run.
    async fn send(&self, case: &Case) -> Result<Ran> {
        let patch = case.write.to_string();
        let verb = match case.verb {
            Verb::Delete => vec!["delete", KIND, name(case), "--wait=false"],
            Verb::Status => vec!["patch", KIND, name(case), "--subresource", "status", "--type", "merge", "-p", &patch],
            _ => vec!["patch", KIND, name(case), "--type", "merge", "-p", &patch],
        };
        let user = ["--dry-run=server", "--as", &case.user, "--as-group", "system:masters"];
        self.world.kubectl(&[&verb[..], &user].concat()).await
    }

    /// Sets an annotation of ours.
    async fn annotate(&self, user: &str, name: &str, pair: &str) -> Result<Ran> {
        let pair = format!("{}/{pair}", common::GROUP);
        let line = ["annotate", KIND, name, &pair, "--overwrite", "--dry-run=server", "--as", user];
        self.world.kubectl(&[&line[..], &["--as-group", "system:masters"]].concat()).await
    }

    async fn delete(&self, name: &str, more: &[&str]) -> Result<Ran> {
        self.world.kubectl(&[&["delete", KIND, name, "--wait=false"], more].concat()).await
    }
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
        let found = bench.world.kubectl(&[&line[..], &["--as-group", "system:masters"]].concat()).await?.ok()?;
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
    Nothing.check(&bench.world.kubectl(&line).await?)?;
    let found = bench.world.kubectl(&["get", KIND, "awake", "-o", REQUESTED_BY]).await?.ok()?;
    ensure!(found == "carl", "{found:?}");
    Denies("cannot be edited").check(&bench.annotate("alice", "awake", "requested-by=mallory").await?)
}

/// Row 27: of a request on the record of a Cluster that KKP cannot write.
async fn stamps_of_a_record(bench: &Bench) -> Result<()> {
    let (namespace, (record, _)) = ("cluster-awake", keys::RECORD);
    bench.world.kubectl(&["create", "namespace", namespace]).await?.ok()?;
    bench.world.kubectl(&["create", "configmap", record, "-n", namespace]).await?.ok()?;
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
        let found = bench.world.kubectl(&line).await?.ok()?;
        ensure!(found == who, "{pairs:?} by {user}: {found:?}");
    }
    Ok(())
}

/// Anyone may ask again, and nothing changes. KKP's own DELETE passes, or the deletion of a project would never end (16).
async fn deletions(bench: &Bench) -> Result<()> {
    let case =
        bench.cases.iter().find(|case| case.name.ends_with("not allowed")).context("a case that is not allowed")?;
    let name = name(case);
    for _ in 0..2 {
        Denies("hydrate first").check(&bench.delete(name, &[]).await?).context("DELETE by a person")?;
    }
    let kkp = ["--as", KKP, "--as-group", "system:serviceaccounts:kubermatic", "--as-group", "system:masters"];
    Warns("a control-plane certificate expired at").check(&bench.delete(name, &kkp).await?).context("KKP's DELETE")
}

/// What kubectl prints of a case.
fn says(case: &Case) -> Says<'_> {
    let (says, words) = (case.says.as_deref().unwrap_or_default(), case.words.as_deref().unwrap_or_default());
    match says {
        says if says.contains(" deny ") => Denies(words),
        says if says.contains(" warn") => Warns(words),
        _ => Nothing,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_rule_holds_against_kubectl_and_kkps_own_writes_pass() -> Result<()> {
    let bench = Bench::up().await?;
    ensure!(bench.cases.len() > 30, "{}", bench.cases.len());
    for case in &bench.cases {
        says(case).check(&bench.send(case).await?).with_context(|| case.name.clone())?;
    }
    deletions(&bench).await?;
    stamps(&bench).await?;
    stamps_of_a_record(&bench).await?;

    bench.world.signal("webhook", "kill").await?;
    // Under Ignore: what warns, what is refused while the webhook is up, and every way to wake.
    for case in bench.cases.iter().filter(|case| !case.name.ends_with("not allowed")) {
        let closed = ["kkp-into-sleep.hibernate.sh", "kkp-active-restore.hibernate.sh"];
        let fails = closed.into_iter().find(|entry| case.reaches(entry));
        let fails = fails.map(|entry| format!("failed calling webhook \"{entry}\""));
        let says = fails.as_deref().map_or(Nothing, Denies);
        says.check(&bench.send(case).await?).with_context(|| format!("down: {}", case.name))?;
    }
    Ok(())
}
