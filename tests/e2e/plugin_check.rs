//! `kubectl hibernate check`: each fault is named, and the command beside it mends it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use serde_json::{Value, json};
use testbed::check::{installed, webhook_only};
use testbed::kubeconfig::base64;
use testbed::options::Program;
use testbed::pki::Authority;
use testbed::supervisor::programs::Start;
use testbed::{Ran, World, apply, ensure_that, eventually, foreign};

use crate::controller_confined::CONTROLLER;
use crate::plugin_rollout::lease;
use crate::plugin_rollout::refused::hive_config;
use crate::rendered::checkout;

const SOON: Duration = Duration::from_mins(2);
const NAMESPACE: &str = "hibernate-system";
const RULES: [&str; 2] = ["validatingwebhookconfiguration", "mutatingwebhookconfiguration"];

/// A hub with our webhook, whose controller's Lease is held.
struct Checked {
    world: World,
    hub: Client,
    /// Of the webhook.
    url: String,
}

impl Checked {
    async fn new() -> Result<Self> {
        let world = World::up(webhook_only()).await?;
        let hub = world.hub().await?;
        let endpoints = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": { "name": "by-hand", "namespace": NAMESPACE, "labels": { "kubernetes.io/service-name": "hibernate-webhook" } },
            "endpoints": [{ "addresses": ["10.9.8.7"], "conditions": { "ready": true } }],
            "ports": [{ "name": "https", "port": 9443 }],
        });
        let rules = world.kubectl(&["get", RULES[0], "hibernate-webhook", "-o", "json"]).await?.json()?;
        let url = rules["webhooks"][0]["clientConfig"]["url"].as_str().context("a URL")?;
        let url = url.trim_end_matches("/validate").to_owned();
        let checked = Self { world, hub, url };
        apply::all(&checked.hub, &[endpoints]).await?;
        checked.run(&["kubectl apply -k manifests/".to_owned()]).await?;
        checked.hold("a").await?;
        Ok(checked)
    }

    /// Has the Lease held by that holder.
    async fn hold(&self, holder: &str) -> Result<()> {
        apply::all(&self.hub, &[lease(holder, Timestamp::now(), 86_400)]).await
    }

    async fn check(&self, args: &[&str]) -> Result<(i32, Vec<Value>)> {
        let ran = self.world.plugin(&[&["check", "-o", "json"], args].concat()).await?;
        let found: Value = serde_json::from_str(&ran.stdout).with_context(|| format!("{ran:?}"))?;
        Ok((ran.code, found["items"].as_array().cloned().unwrap_or_default()))
    }

    async fn finding(&self, name: &str, args: &[&str]) -> Result<Value> {
        let (_, found) = self.check(args).await?;
        found.iter().find(|found| found["name"] == name).cloned().with_context(|| format!("no {name}: {found:#?}"))
    }

    /// Waits for a finding. Answers its commands.
    async fn named(&self, name: &str, status: &str, part: &str) -> Result<Vec<String>> {
        eventually(SOON, name, async || {
            let found = self.finding(name, &[]).await?;
            let is_it = found["status"] == status && found["detail"].as_str().is_some_and(|text| text.contains(part));
            ensure!(is_it, "{found:#}");
            Ok(serde_json::from_value(found["commands"].clone()).unwrap_or_default())
        })
        .await
    }

    /// Runs commands as a person would, in the checkout.
    async fn run(&self, commands: &[String]) -> Result<()> {
        ensure!(!commands.is_empty(), "no command");
        for line in commands {
            // Nothing routes to the Service here: a rule has a URL or a service, and never both.
            let applies = line.contains("apply -k");
            if applies {
                self.without_rules().await?;
            }
            // kubectl restarts a Deployment once a second at most.
            eventually(SOON, line, async || ensure_that(self.shell(line).await?, |ran| ran.code == 0)).await?;
            if applies {
                self.reroute().await?;
            }
        }
        Ok(())
    }

    async fn without_rules(&self) -> Result<()> {
        self.kubectl(&format!("delete {} hibernate-webhook --ignore-not-found", RULES.join(","))).await.map(drop)
    }

    /// Has the rules that are installed ask the webhook at its URL.
    async fn reroute(&self) -> Result<()> {
        let mut rules = Vec::new();
        for kind in RULES {
            let mut found = self.world.kubectl(&["get", kind, "hibernate-webhook", "-o", "json"]).await?.json()?;
            found["metadata"] = json!({ "name": "hibernate-webhook", "labels": found["metadata"]["labels"] });
            for entry in found["webhooks"].as_array_mut().into_iter().flatten() {
                let path = entry["clientConfig"]["service"]["path"].as_str().context("a path")?;
                entry["clientConfig"] = json!({ "url": format!("{}{path}", self.url) });
            }
            rules.push(found);
        }
        self.without_rules().await?;
        apply::all(&self.hub, &rules).await
    }

    /// Runs kubectl by a line whose words have no spaces. It succeeds.
    async fn kubectl(&self, line: &str) -> Result<String> {
        self.world.kubectl(&line.split(' ').collect::<Vec<_>>()).await?.ok().with_context(|| line.to_owned())
    }

    async fn shell(&self, line: &str) -> Result<Ran> {
        let mut command = self.world.command("sh");
        command.args(["-c", line]).current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
        self.world.run(command).await
    }

    /// A fault of one finding, mended by its commands, after which what they start runs.
    async fn mends(&self, name: &str, part: &str) -> Result<()> {
        let commands = self.named(name, "failed", part).await?;
        self.run(&commands).await?;
        self.named(name, "ok", "").await.map(drop)
    }
}

fn stopped(args: &[&str]) -> Start {
    Start { args: args.iter().map(|&arg| arg.to_owned()).collect(), ..Start::new(Program::Webhook) }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_of_an_installation_is_named_with_what_mends_it() -> Result<()> {
    let checked = &Checked::new().await?;
    let (code, found) = eventually(SOON, "healthy hub", async || {
        let (code, found) = checked.check(&[]).await?;
        ensure!(code == 0 && found.iter().all(|found| found["status"] == "ok"), "{found:#?}");
        Ok((code, found))
    })
    .await?;
    assert_eq!((code, found.len()), (0, 9), "{found:#?}");
    let people = checked.world.plugin(&["check"]).await?;
    ensure!(people.stdout.contains("ok   webhook-answers"), "{people:?}");

    certificates(checked).await.context("certificates")?;
    objects(checked).await.context("objects")?;
    secrets(checked).await.context("Secrets")?;
    hive(checked).await.context("Hive")?;
    losses(checked).await.context("what an uninstallation loses")?;
    strangers(checked).await.context("users without rights, and no hub")?;
    leftovers(checked).await.context("a namespace that went first")
}

async fn certificates(checked: &Checked) -> Result<()> {
    let Checked { world, .. } = checked;
    world.signal("webhook", "stop").await?;
    let bundle = base64(&Authority::new("another authority")?.certificate());
    let foreign =
        json!([{ "op": "replace", "path": "/webhooks/2/clientConfig/caBundle", "value": bundle }]).to_string();
    checked
        .kubectl(&format!("patch validatingwebhookconfiguration hibernate-webhook --type json -p {foreign}"))
        .await?;
    checked.named("webhook-answers", "failed", "does not answer").await?;
    let commands = checked.named("webhook-ca-bundle", "failed", "signed by an unknown authority").await?;
    checked.run(&commands).await?;
    world.start(&stopped(&[])).await?;
    checked.named("webhook-ca-bundle", "ok", "").await?;
    checked.named("webhook-answers", "ok", "").await?;

    world.signal("webhook", "stop").await?;
    checked.kubectl(r#"patch secret hibernate-webhook-tls -n hibernate-system --type=merge -p {"data":null}"#).await?;
    let commands = checked.named("webhook-ca-bundle", "failed", "is empty").await?;
    checked.run(&commands).await?;
    // The next certificate ends tomorrow.
    world.start(&stopped(&["--certificate-lifetime", "24h"])).await?;
    checked.named("webhook-ca-bundle", "ok", "").await?;
    let commands = checked.named("webhook-certificate", "failed", "certificate expires at").await?;
    world.signal("webhook", "stop").await?;
    checked.run(&commands).await?;
    world.start(&stopped(&[])).await?;
    checked.named("webhook-certificate", "ok", "").await.map(drop)
}

async fn objects(checked: &Checked) -> Result<()> {
    let delete = async |object: &str| checked.kubectl(&format!("delete {object}")).await;
    delete("validatingadmissionpolicy/hibernate-controller-hive").await?;
    checked.mends("policies", "ValidatingAdmissionPolicy hibernate-controller-hive is missing").await?;
    delete("validatingadmissionpolicybinding/hibernate-webhook-ca-bundle-only").await?;
    checked
        .mends("policies", "ValidatingAdmissionPolicyBinding (with Deny) hibernate-webhook-ca-bundle-only is missing")
        .await?;
    delete("validatingadmissionpolicybinding/powerrollouts.hibernate.sh").await?;
    checked.mends("policies", "powerrollouts.hibernate.sh is missing").await?;
    delete("validatingadmissionpolicy/powerschedules.hibernate.sh").await?;
    checked.mends("policies", "until then no schedule acts").await?;
    delete("mutatingwebhookconfiguration/hibernate-webhook").await?;
    checked.mends("webhook-rules", "is missing").await?;
    delete("crd/powerrollouts.hibernate.sh").await?;
    checked.mends("versions", "there are no rollouts").await?;
    delete("crd/clusterpowerschedules.hibernate.sh").await?;
    checked.mends("versions", "there are no cluster-wide schedules").await?;

    let label = async |object: &str| {
        let line = format!("label --overwrite -n {NAMESPACE} {object} app.kubernetes.io/version=99.0.0");
        checked.kubectl(&line).await
    };
    label("crd/powerrollouts.hibernate.sh").await?;
    checked.mends("versions", "versions differ").await?;
    for object in [
        "crd/powerrollouts.hibernate.sh",
        "crd/powerschedules.hibernate.sh",
        "crd/clusterpowerschedules.hibernate.sh",
        "deployment/hibernate-webhook",
        "deployment/hibernate-controller",
    ] {
        label(object).await?;
    }
    let newer = checked.named("versions", "warning", "the hub has v99.0.0").await?;
    assert_eq!(newer, ["kubectl krew upgrade hibernate"]);
    checked.run(&["kubectl apply -k manifests/".to_owned()]).await?;

    checked.kubectl(&format!("scale deployment/hibernate-webhook -n {NAMESPACE} --replicas=0")).await?;
    checked.mends("webhook-pods", "has 0 replicas").await?;
    checked.hold("").await?;
    let commands = checked.named("controller-lease", "failed", "has no holder: no controller runs").await?;
    checked.run(&commands).await?;
    checked.hold("b").await?;
    checked.named("controller-lease", "ok", "held by b").await.map(drop)
}

/// Without the right to read every Secret, each namespace with clusters needs a binding, which `--pre` prints, too.
async fn secrets(checked: &Checked) -> Result<()> {
    let Checked { world, hub, .. } = checked;
    let mut cluster = installed("demo", "aws");
    cluster["metadata"]["namespace"] = json!("tenant");
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "tenant" } });
    apply::all(hub, &[namespace, cluster]).await?;
    let pre = checked.finding("secrets", &["--pre"]).await?;
    ensure!(pre["status"] == "warning", "{pre:#}");
    checked.kubectl("delete clusterrolebinding hibernate-controller-secrets").await?;
    let commands = checked.named("secrets", "failed", ": tenant").await?;
    assert_eq!(pre["commands"][0], commands[0]);
    checked.mends("secrets", ": tenant").await?;
    let can = ["auth", "can-i", "get", "secrets", "-n", "tenant", "--as", CONTROLLER];
    eventually(SOON, "the right", async || {
        ensure_that(world.kubectl(&can).await?.stdout, |says| says.starts_with("yes"))
    })
    .await?;
    checked.kubectl("delete cd,rolebinding --all -n tenant").await?;
    checked.run(&["kubectl apply -k manifests/".to_owned()]).await
}

/// The commands of docs/hive.md that turn Hive's controller off, without a list and with one.
async fn cut_over(checked: &Checked) -> Result<()> {
    let page = std::fs::read_to_string(checkout("docs/hive.md"))?;
    let commands: Vec<&str> = page.split('`').filter(|code| code.starts_with("kubectl patch hiveconfig ")).collect();
    let [first, further] = commands[..] else { anyhow::bail!("{commands:?}") };
    let mut without_a_list = hive_config(&[]);
    without_a_list["spec"] = json!({});
    for (config, command, disabled) in [
        (without_a_list, first, r#"["hibernation"]"#),
        (hive_config(&["unreachable"]), further, r#"["unreachable","hibernation"]"#),
    ] {
        apply::all(&checked.hub, &[foreign::of_hive_config(), config]).await?;
        checked.run(&[command.to_owned()]).await?;
        assert_eq!(checked.kubectl("get hiveconfig hive -o jsonpath={.spec.disabledControllers}").await?, disabled);
    }
    Ok(())
}

async fn hive(checked: &Checked) -> Result<()> {
    cut_over(checked).await?;
    apply::all(&checked.hub, &[hive_config(&["clusterpool"])]).await?;
    checked.mends("hive", "both run").await?;
    apply::all(&checked.hub, &[hive_config(&["clusterpool", "hibernation"])]).await?;
    checked.mends("hive", "no cluster sleeps or wakes").await?;
    let found = checked.finding("hive", &["--before-uninstall"]).await?;
    assert_eq!(found["status"], "failed", "{found:#}");
    checked.run(&serde_json::from_value::<Vec<String>>(found["commands"].clone())?).await?;
    let disabled = checked.kubectl("get hiveconfig hive -o jsonpath={.spec.disabledControllers}").await?;
    assert_eq!(disabled, r#"["clusterpool"]"#);
    checked.named("hive", "warning", "rejects platforms that Hive serves").await?;
    checked.run(&["kubectl apply -k manifests/".to_owned()]).await?;

    // No command where it would take the guard of FoundationDB's volumes away.
    apply::all(&checked.hub, &foreign::of_seed()).await?;
    apply::all(&checked.hub, &[user_cluster(&json!({}))]).await?;
    assert!(checked.named("kkp", "warning", "the component kkp is not installed").await?.is_empty());
    checked.run(&["kubectl apply -k manifests/overlays/kkp".to_owned()]).await?;
    checked.named("kkp", "ok", "").await.map(drop)
}

fn user_cluster(annotations: &Value) -> Value {
    json!({
        "apiVersion": "kubermatic.k8c.io/v1", "kind": "Cluster", "metadata": { "name": "abc", "annotations": annotations },
        "spec": { "cloud": { "dc": "eu", "providerName": "aws" }, "humanReadableName": "abc", "version": "1.34.1" },
    })
}

/// What only we keep, wake or go on with.
async fn losses(checked: &Checked) -> Result<()> {
    let Checked { world, hub, .. } = checked;
    let (code, found) = checked.check(&["--before-uninstall"]).await?;
    ensure!(code == 0 && found.len() == 8, "{found:#?}");
    let cluster = |name: &str, platform: &str, annotations: Value| {
        let mut cluster = installed(name, platform);
        cluster["metadata"]["namespace"] = json!("default");
        cluster["metadata"]["annotations"] = annotations;
        cluster["spec"]["powerState"] = json!("Hibernating");
        cluster
    };
    let tomorrow = Timestamp::now().checked_add(SignedDuration::from_hours(24))?;
    let objects = [
        cluster("night", "aws", json!({ "hibernate.sh/wake-at": tomorrow })),
        cluster("deleted", "openstack", Value::Null),
        cluster("stopping", "aws", Value::Null),
        json!({ "apiVersion": "apps.foundationdb.org/v1beta2", "kind": "FoundationDBCluster",
            "metadata": { "name": "sample", "namespace": "default" }, "spec": { "version": "7.3.69" } }),
        user_cluster(&json!({ "hibernate.sh/power-state": "Hibernating" })),
    ];
    world.signal("webhook", "stop").await?;
    checked.without_rules().await?;
    apply::all(hub, &objects).await?;
    let uid = checked.kubectl("get fdb sample -n default -o jsonpath={.metadata.uid}").await?;
    let owner = json!({ "apiVersion": "apps.foundationdb.org/v1beta2", "kind": "FoundationDBCluster", "name": "sample", "uid": uid });
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "storage-1", "namespace": "default", "ownerReferences": [owner] },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    apply::all(hub, &[claim]).await?;
    let uid = checked.kubectl("get pvc storage-1 -n default -o jsonpath={.metadata.uid}").await?;
    let record = json!({ "uid": uid, "group": "storage-1", "minimum": "2h", "why": "operator" }).to_string();
    let stamps = format!("hibernate.sh/suspended-at=2026-11-24T18:00:00Z hibernate.sh/suspension={record}");
    checked.kubectl(&format!("annotate pvc storage-1 -n default {stamps}")).await?;
    let status = r#"{"status":{"conditions":[{"type":"Hibernating","status":"False","reason":"Stopping","message":"m","lastProbeTime":"2026-11-24T18:00:00Z","lastTransitionTime":"2026-11-24T18:00:00Z"}]}}"#;
    for (name, status) in [("stopping", status), ("deleted", r#"{"status":{"powerState":"Hibernating"}}"#)] {
        checked.kubectl(&format!("patch cd {name} -n default --subresource=status --type=merge -p {status}")).await?;
    }
    checked.run(&["kubectl apply -k manifests/".to_owned()]).await?;
    world.start(&stopped(&[])).await?;
    checked.named("webhook-answers", "ok", "").await?;
    world.plugin(&["--all", "-n", "default", "--paused", "--max-concurrency", "2"]).await?.ok()?;
    let schedule =
        ["schedule", "create", "office", "--all", "-n", "default", "--zone", "UTC", "--awake", "07:30-18:00", "-y"];
    world.plugin(&schedule).await?.ok()?;
    let rollout = checked.kubectl("get powerrollouts -o jsonpath={.items[0].metadata.name}").await?;
    for (name, object, command) in [
        (
            "suspended-volumes",
            "default/storage-1",
            "kubectl hibernate recover process-groups -c sample -n default --all-suspended",
        ),
        ("rollouts", &*rollout, &*format!("kubectl hibernate rollout abort {rollout}")),
        ("schedules", "default/office", "kubectl hibernate schedule suspend psch/office -n default"),
        ("kkp-clusters", "abc", "kubectl hibernate resume cluster/abc --wait"),
        ("platforms", "default/deleted", "kubectl hibernate resume cd/deleted -n default --wait"),
        ("wake-at", "default/night", "kubectl hibernate resume cd/night -n default --wait"),
        ("transitions", "default/stopping", "kubectl hibernate cd/stopping -n default --wait"),
    ] {
        let found = checked.finding(name, &["--before-uninstall"]).await?;
        let detail = found["detail"].as_str().unwrap_or_default();
        ensure!(found["status"] == "failed" && detail.ends_with(&format!(": {object}")), "{found:#}");
        assert_eq!(found["commands"], json!([command]));
        // Nothing here does what the plugin requests: it does not wait for it.
        let line = command.replace(" --wait", "");
        let ran = checked.shell(&line).await?;
        ensure!(ran.code == 0 || name == "suspended-volumes", "{line}: {ran:?}");
    }
    for name in ["schedules", "wake-at"] {
        let found = checked.finding(name, &["--before-uninstall"]).await?;
        ensure!(found["status"] == "ok", "{found:#}");
    }
    // Requested is not awake.
    for name in ["platforms", "transitions"] {
        let found = checked.finding(name, &["--before-uninstall"]).await?;
        ensure!(found["status"] == "failed", "{found:#}");
    }
    Ok(())
}

async fn strangers(checked: &Checked) -> Result<()> {
    let (code, found) = checked.check(&["--as", "bob"]).await?;
    let unseen = found.iter().filter(|found| found["status"] == "notChecked");
    ensure!(code == 0 && unseen.clone().count() > 5, "{code} {found:#?}");
    for finding in unseen {
        ensure!(finding["detail"].as_str().is_some_and(|text| text.contains("User \"bob\" cannot")), "{finding:#}");
    }
    let (code, found) = checked.check(&["--pre", "--as", "bob"]).await?;
    ensure!(code == 1, "{found:#?}");
    let rights = found.iter().find(|found| found["name"] == "rights").context("rights")?;
    ensure!(
        rights["detail"].as_str().is_some_and(|text| text.contains("you may not create validatingwebhook")),
        "{rights:#}"
    );
    let gone = checked.world.plugin(&["check", "--server", "https://127.0.0.1:1"]).await?;
    gone.refuses(1, &["cannot reach the hub"])?;
    assert_eq!(gone.stderr.trim().lines().count(), 1, "{gone:?}");
    Ok(())
}

/// `kubectl delete namespace` came first, and took the webhook and left its rules.
async fn leftovers(checked: &Checked) -> Result<()> {
    let Checked { world, hub, .. } = checked;
    world.signal("webhook", "stop").await?;
    checked.without_rules().await?;
    for line in ["kubectl apply -k manifests/", "kubectl delete namespace hibernate-system"] {
        ensure!(checked.shell(line).await?.code == 0, "{line}");
    }
    let asleep = json!({
        "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment", "metadata": { "name": "left", "namespace": "default" },
        "spec": { "baseDomain": "example.com", "clusterName": "left", "platform": { "aws": { "region": "r" } }, "powerState": "Hibernating" },
    });
    ensure!(apply::all(hub, std::slice::from_ref(&asleep)).await.is_err(), "a rule that fails closed lets it pass");
    let part = "CREATE, UPDATE of clusterdeployments (into-sleep.hibernate.sh)";
    let commands = checked.named("webhook-rules", "failed", part).await?;
    let delete = "kubectl delete validatingwebhookconfiguration,mutatingwebhookconfiguration hibernate-webhook --ignore-not-found";
    assert_eq!(commands, [delete]);
    let pre = checked.finding("leftovers", &["--pre"]).await?;
    assert_eq!(pre["status"], "failed", "{pre:#}");
    checked.run(&commands).await?;
    eventually(SOON, "sleep without rules", || apply::all(hub, std::slice::from_ref(&asleep))).await?;
    let commands: Vec<String> = serde_json::from_value(pre["commands"].clone())?;
    checked.run(&commands).await?;
    assert_eq!(checked.finding("leftovers", &["--pre"]).await?["status"], "ok");
    checked.named("installed", "failed", "is not installed").await?;
    checked.kubectl("delete crd powerrollouts.hibernate.sh").await?;
    let commands = checked.named("installed", "failed", "is not installed").await?;
    checked.run(&commands).await
}
