//! `kubectl apply -k manifests/` on a real API server: accepted, repeatable, and harmless to what the webhook wrote. What
//! each account may do is compared with a list by `rights.rs`.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};
use testbed::options::Options;
use testbed::{World, apply as objects, ensure_that, eventually};

use crate::controller_confined::CONTROLLER;
use crate::rendered::{NAMESPACE, below, checkout, documents, kustomized};

const SOON: Duration = Duration::from_mins(1);

/// Removes what a folder has installed. The world has installed the base in its own way.
pub(crate) async fn remove(world: &World, below: &str) -> Result<()> {
    let file = write(world, &kustomized(below)?)?;
    world.kubectl(&["delete", "-f", &file, "--ignore-not-found", "--wait"]).await?.ok().map(drop)
}

/// Applies a folder and answers what kubectl says of each object.
pub(crate) async fn apply(world: &World, below: &str, more: &[&str]) -> Result<Vec<String>> {
    let file = write(world, &kustomized(below)?)?;
    applied(world, &[&["-f", &file], more].concat()).await
}

/// Applies objects of the overlays.
async fn apply_objects(world: &World, objects: &[Value]) -> Result<()> {
    let file = write(world, &json!({ "apiVersion": "v1", "kind": "List", "items": objects }).to_string())?;
    applied(world, &["-f", &file]).await.map(drop)
}

async fn applied(world: &World, line: &[&str]) -> Result<Vec<String>> {
    let ran = world.kubectl(&[&["apply"], line].concat()).await?;
    ensure!(!ran.stderr.contains("unrecognized format"), "{}", ran.stderr);
    Ok(ran.ok()?.lines().map(str::to_owned).collect())
}

/// Writes objects into a file for kubectl.
fn write(world: &World, text: &str) -> Result<String> {
    let path = world.dir().join("objects.yaml").display().to_string();
    std::fs::write(&path, text).with_context(|| path.clone())?;
    Ok(path)
}

/// What the webhook has written into objects of the manifests.
pub(crate) async fn written(world: &World) -> Result<Vec<Value>> {
    let mut found = Vec::new();
    for object in ["validatingwebhookconfiguration/hibernate-webhook", "mutatingwebhookconfiguration/hibernate-webhook"]
    {
        let object = world.kubectl(&["get", object, "-o", "json"]).await?.json()?;
        let entries = object["webhooks"].as_array().context("entries")?;
        found.extend(entries.iter().map(|entry| entry["clientConfig"]["caBundle"].clone()));
    }
    let secret =
        world.kubectl(&["get", "secret/hibernate-webhook-tls", "-n", NAMESPACE, "-o", "json"]).await?.json()?;
    found.push(secret["data"].clone());
    ensure!(found.iter().all(|value| !value.is_null()), "not written yet");
    Ok(found)
}

/// Runs the webhook with the rights of its service account alone, against the configurations of the manifests.
pub(crate) async fn webhook(world: &World) -> Result<tokio::process::Child> {
    let token = world.kubectl(&["create", "token", "hibernate-webhook", "-n", NAMESPACE]).await?.ok()?;
    let kubeconfig = world.dir().join("applied-webhook.kubeconfig").display().to_string();
    std::fs::copy(&world.file().hub.kubeconfig, &kubeconfig)?;
    let credentials = ["config", "--kubeconfig", &kubeconfig, "set-credentials", "webhook", "--token", token.trim()];
    world.kubectl(&credentials).await?.ok()?;
    let context = ["config", "--kubeconfig", &kubeconfig, "set-context", "--current", "--user", "webhook"];
    world.kubectl(&context).await?.ok()?;
    let mut command = world.command(testbed::paths::program("hibernate-webhook")?);
    command.args(["--kubeconfig", &kubeconfig, "--listen", "127.0.0.1:0", "--listen-plain", "127.0.0.1:0"]);
    Ok(command.spawn()?)
}

/// kubectl says of a `PodDisruptionBudget` `configured` each time: its selector has the patch strategy `replace`, so
/// that the patch is never empty.
fn assert_unchanged(lines: &[String]) {
    let unchanged = |line: &String| line.ends_with(" unchanged") || line.starts_with("poddisruptionbudget");
    assert!(lines.iter().all(unchanged), "{lines:#?}");
}

/// One hub, from the first apply to the commands that remove everything.
#[tokio::test(flavor = "multi_thread")]
async fn applying_again_changes_nothing_and_three_commands_remove_every_overlay() -> Result<()> {
    let world = &World::up(Options::bare_hub()).await?;
    remove(world, ".").await?;
    applied_again(world).await?;
    every_overlay_is_removed(world).await.context("three commands")
}

/// The webhook changes its caBundle alone, and applying changes nothing that it wrote.
async fn applied_again(world: &World) -> Result<()> {
    let folder = checkout("manifests").display().to_string();
    let created = applied(world, &["-k", &folder]).await?;
    assert!(created.len() > 20 && created.iter().all(|line| line.ends_with(" created")), "{created:#?}");
    assert_unchanged(&apply(world, ".", &[]).await?);

    let _webhook = webhook(world).await?;
    let before = eventually(SOON, "caBundle in every entry", || written(world)).await?;
    assert_unchanged(&apply(world, ".", &[]).await?);
    assert_eq!(written(world).await?, before);
    for _ in 0..2 {
        let by_server = apply(world, ".", &["--server-side"]).await?;
        assert!(by_server.iter().all(|line| line.ends_with(" serverside-applied")), "{by_server:#?}");
        assert_eq!(written(world).await?, before);
    }
    apply(world, ".", &[]).await?;
    assert_eq!(written(world).await?, before);
    the_webhook_changes_nothing_else(world).await.context("writes of the webhook's account")
}

/// The objects of all overlays, each in every version that an overlay has of it: a list for each time that an object is
/// applied over an earlier version of itself.
fn versions(overlays: &BTreeSet<String>) -> Result<Vec<Vec<Value>>> {
    let mut lists: Vec<Vec<Value>> = Vec::new();
    let name = |object: &Value| {
        let metadata = &object["metadata"];
        format!("{} {} {}", object["kind"], metadata["namespace"], metadata["name"])
    };
    for overlay in overlays {
        for object in documents(&kustomized(overlay)?)? {
            if lists.iter().flatten().any(|earlier| *earlier == object) {
                continue;
            }
            let is_free = |list: &&mut Vec<Value>| list.iter().all(|other| name(other) != name(&object));
            match lists.iter_mut().find(is_free) {
                Some(list) => list.push(object),
                None => lists.push(vec![object]),
            }
        }
    }
    Ok(lists)
}

/// The commands of docs/install.md, after every overlay was applied over the others.
async fn every_overlay_is_removed(world: &World) -> Result<()> {
    world.kubectl(&["create", "namespace", "clusters"]).await?.ok()?;
    let mut overlays = below("overlays")?;
    // The Prometheus Operator's kinds.
    overlays.remove("overlays/monitoring");
    ensure!(overlays.len() >= 8, "{overlays:?}");
    for objects in versions(&overlays)? {
        apply_objects(world, &objects).await?;
    }
    let page = std::fs::read_to_string(checkout("docs/install.md"))?;
    let commands: Vec<&str> = page.lines().filter_map(|line| line.trim().strip_prefix("$ kubectl delete ")).collect();
    let [_, by_label, _] = commands[..] else { anyhow::bail!("{commands:?}") };
    for command in &commands {
        let words: Vec<&str> = std::iter::once("delete").chain(command.split(' ')).collect();
        world.kubectl(&words).await?.ok().with_context(|| (*command).to_owned())?;
    }
    let kinds = by_label.rsplit(' ').next().context("kinds")?;
    let kinds = format!(
        "{kinds},namespaces,customresourcedefinitions,validatingwebhookconfigurations,mutatingwebhookconfigurations"
    );
    let ours = "app.kubernetes.io/part-of=kubectl-hibernate";
    let left = world.kubectl(&["get", &kinds, "-A", "-l", ours, "-o", "name"]).await?.ok()?;
    let left: BTreeSet<&str> = left.lines().collect();
    let kept = [
        "clustergroupupgrades.ran.openshift.io",
        "clusterpowerschedules.hibernate.sh",
        "powerrollouts.hibernate.sh",
        "powerschedules.hibernate.sh",
        "precachingconfigs.ran.openshift.io",
    ];
    let kept = kept.map(|name| format!("customresourcedefinition.apiextensions.k8s.io/{name}"));
    assert_eq!(left, kept.iter().map(String::as_str).collect(), "what stays, as the page says");
    Ok(())
}

/// Patches a webhook configuration with the webhook's own token.
async fn patch(world: &World, kind: &str, patch: &Value) -> Result<testbed::Ran> {
    let kubeconfig = world.dir().join("applied-webhook.kubeconfig").display().to_string();
    let patch = patch.to_string();
    let line = ["patch", kind, "hibernate-webhook", "--kubeconfig", &kubeconfig, "--type", "json", "-p", &patch];
    world.kubectl(&line).await
}

async fn the_webhook_changes_nothing_else(world: &World) -> Result<()> {
    let op = |op: &str, path: &str, value: Value| json!([{ "op": op, "path": path, "value": value }]);
    let entry = json!({
        "name": "more.hibernate.sh", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": { "url": "https://127.0.0.1:1/x" }, "failurePolicy": "Ignore",
    });
    let changes = [
        op("replace", "/webhooks/0/clientConfig/service/namespace", json!("elsewhere")),
        op("add", "/webhooks/0/clientConfig/service/port", json!(444)),
        op(
            "add",
            "/webhooks/0/rules/-",
            json!({ "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"] }),
        ),
        op("replace", "/webhooks/0/timeoutSeconds", json!(30)),
        op("add", "/webhooks/0/namespaceSelector/matchLabels", json!({ "a": "b" })),
        op("add", "/webhooks/0/matchConditions/-", json!({ "name": "never", "expression": "false" })),
        op("add", "/webhooks/-", entry),
        op("add", "/metadata/labels/a", json!("b")),
        op("add", "/metadata/finalizers", json!(["example.com/keep"])),
        json!([{ "op": "remove", "path": "/webhooks/0" }]),
    ];
    for kind in ["validatingwebhookconfiguration", "mutatingwebhookconfiguration"] {
        // The policy takes effect shortly after it was created. Each probe is another change: one that was let through
        // changes nothing the next time, and is rightly allowed.
        let probes = Cell::new(0);
        eventually(SOON, "a policy in force", async || {
            probes.set(probes.get() + 1);
            let ran = patch(world, kind, &op("add", "/metadata/labels/probe", json!(probes.get().to_string()))).await?;
            ensure!(ran.code != 0, "allowed");
            Ok(())
        })
        .await?;
        for change in &changes {
            let ran = patch(world, kind, change).await?;
            ensure!(ran.code != 0 && ran.stderr.contains("may change only the caBundle"), "{kind} {change}: {ran:?}");
        }
    }
    // The webhook itself goes on: it puts its bundle back after somebody else has taken it out.
    let broken = json!([{ "op": "remove", "path": "/webhooks/0/clientConfig/caBundle" }]).to_string();
    let line = ["patch", "validatingwebhookconfiguration", "hibernate-webhook", "--type", "json", "-p", &broken];
    world.kubectl(&line).await?.ok()?;
    eventually(SOON, "caBundle once more", || written(world)).await?;
    // Administrators change what they like.
    let more = json!([{ "op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 7 }]).to_string();
    let line = ["patch", "validatingwebhookconfiguration", "hibernate-webhook", "--type", "json", "-p", &more];
    world.kubectl(&line).await?.ok()?;
    Ok(())
}

/// Whether the controller may read a Secret.
async fn reads(world: &World, namespace: &str, name: &str) -> Result<bool> {
    let secret = format!("secrets/{name}");
    let line = ["auth", "can-i", "get", &secret, "-n", namespace, "--as", CONTROLLER];
    Ok(world.kubectl(&line).await?.stdout.starts_with("yes"))
}

/// The overlays, one after the other on one hub.
#[tokio::test(flavor = "multi_thread")]
async fn each_overlay_adds_its_part_and_no_more() -> Result<()> {
    let world = &World::up(Options::bare_hub()).await?;
    for end in [" created", " unchanged"] {
        let policy = apply(world, "overlays/policy-only", &[]).await?;
        assert!(policy.len() == 2 && policy.iter().all(|line| line.ends_with(end)), "{policy:#?}");
    }
    remove(world, "overlays/policy-only").await?;
    of_replicas_and_platforms(world).await.context("overlays webhook-only and cut-over")?;
    remove(world, ".").await?;
    let base = apply(world, ".", &[]).await?;
    assert!(!base.iter().any(|line| line.contains("kkp")), "{base:#?}");
    let of_base = entries(world).await?;
    of_secrets_per_namespace(world).await.context("overlay secrets-per-namespace")?;
    remove(world, "overlays/secrets-per-namespace").await?;
    of_kkp(world, &of_base).await.context("overlay kkp")?;
    of_labeled_databases(world).await.context("overlay labeled-databases")
}

async fn of_replicas_and_platforms(world: &World) -> Result<()> {
    let says = async |deployment: &str, path: &str| {
        let output = format!("jsonpath={{{path}}}");
        world.kubectl(&["get", "deployment", deployment, "-n", NAMESPACE, "-o", &output]).await?.ok()
    };
    let (replicas, args) = (".spec.replicas", ".spec.template.spec.containers[0].args");
    for (overlay, count, serves) in
        [("webhook-only", "0", false), ("cut-over", "2", true), ("webhook-only", "0", false)]
    {
        let mut deployments = documents(&kustomized(&format!("overlays/{overlay}"))?)?;
        deployments.retain(|object| object["kind"] == "Deployment");
        apply_objects(world, &deployments).await?;
        assert_eq!(says("hibernate-controller", replicas).await?, count, "{overlay}");
        assert_eq!(says("hibernate-webhook", args).await?.contains("--served-platforms=aws"), serves, "{overlay}");
        assert_eq!(says("hibernate-webhook", replicas).await?, "2", "{overlay}");
    }
    Ok(())
}

/// Names of the entries of both webhook configurations.
async fn entries(world: &World) -> Result<BTreeSet<String>> {
    let line = ["get", "validatingwebhookconfiguration,mutatingwebhookconfiguration", "-o", "json"];
    let list = world.kubectl(&line).await?.json()?;
    let entries = list["items"].as_array().into_iter().flatten().filter_map(|item| item["webhooks"].as_array());
    Ok(entries.flatten().map(|entry| entry["name"].as_str().unwrap_or_default().to_owned()).collect())
}

/// On a hub that has the base.
async fn of_secrets_per_namespace(world: &World) -> Result<()> {
    world.kubectl(&["create", "namespace", "clusters"]).await?.ok()?;
    assert!(reads(world, "elsewhere", "aws").await?, "the base gives it everywhere");
    world.kubectl(&["delete", "clusterrolebinding", "hibernate-controller-secrets"]).await?.ok()?;
    apply(world, "overlays/secrets-per-namespace", &[]).await?;
    eventually(SOON, "right in the namespace", async || {
        ensure_that(reads(world, "clusters", "aws").await?, |reads| *reads)
    })
    .await?;
    assert!(!reads(world, "elsewhere", "aws").await?);

    world.kubectl(&["create", "namespace", "hive"]).await?.ok()?;
    let component = checkout("manifests/components/aws-service-provider/secret-rbac.yaml").display().to_string();
    world.kubectl(&["apply", "-f", &component]).await?.ok()?;
    eventually(SOON, "right to the service provider's Secret", async || {
        ensure_that(reads(world, "hive", "aws-service-provider").await?, |reads| *reads)
    })
    .await?;
    assert!(!reads(world, "hive", "aws").await?, "no other Secret of Hive's namespace");
    Ok(())
}

/// A seed: the base with the entries, the flag and the rights for KKP, and without the right to read every Secret.
async fn of_kkp(world: &World, before: &BTreeSet<String>) -> Result<()> {
    assert!(!before.iter().any(|name| name.starts_with("kkp")), "{before:?}");
    apply(world, "overlays/kkp", &[]).await?;
    assert_unchanged(&apply(world, "overlays/kkp", &[]).await?);
    // Nothing of FoundationDB is in it.
    let databases = ["suspend.hibernate.sh", "fdb.hibernate.sh"];
    let expected: BTreeSet<String> = ["into-sleep", "active-restore", "delete", "stamp", "stamp-record"]
        .iter()
        .map(|name| format!("kkp-{name}.hibernate.sh"))
        .chain(["kkp.hibernate.sh".to_owned()])
        .chain(before.iter().filter(|name| !databases.contains(&name.as_str())).cloned())
        .collect();
    assert_eq!(before.len() + 6 - databases.len(), expected.len(), "{before:?}");
    assert_eq!(entries(world).await?, expected);
    let output = "jsonpath={.spec.template.spec.containers[0].args}";
    let args =
        world.kubectl(&["get", "deployment", "hibernate-controller", "-n", NAMESPACE, "-o", output]).await?.ok()?;
    assert!(args.contains("--kkp") && args.contains("--namespace=$(POD_NAMESPACE)"), "{args}");
    // The certificate task fills in the caBundle of every entry: the names are its own to patch.
    let _webhook = webhook(world).await?;
    eventually(SOON, "caBundle in every entry", || written(world)).await?;
    assert!(reads(world, "cluster-abc", "internal-admin-kubeconfig").await?);
    assert!(!reads(world, "cluster-abc", "cloud-credentials").await?);
    Ok(())
}

/// Nobody answers for the webhook here: what the API server would ask it about is refused, and the rest passes.
async fn of_labeled_databases(world: &World) -> Result<()> {
    apply(world, "overlays/labeled-databases", &[]).await?;
    let hub = world.hub().await?;
    for (namespace, label) in [("labeled", json!({"hibernate.sh/suspend": "true"})), ("plain", json!({}))] {
        let cluster = json!({
            "apiVersion": "apps.foundationdb.org/v1beta2", "kind": "FoundationDBCluster",
            "metadata": {"name": "sample", "namespace": namespace, "annotations": {"hibernate.sh/minimum-suspension": "2h"}},
            "spec": {"version": "7.3.69"},
        });
        let namespace_itself =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": label}});
        objects::all(&hub, &[namespace_itself, cluster]).await?;
        let uid = ["get", "fdb", "sample", "-n", namespace, "-o", "jsonpath={.metadata.uid}"];
        let uid = world.kubectl(&uid).await?.ok()?;
        let owner = json!({"apiVersion": "apps.foundationdb.org/v1beta2", "kind": "FoundationDBCluster", "name": "sample", "uid": uid});
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": namespace, "ownerReferences": [owner]},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        });
        objects::all(&hub, &[volume]).await?;
    }
    let delete = async |namespace| world.kubectl(&["delete", "pvc", "data", "-n", namespace, "--dry-run=server"]).await;
    eventually(SOON, "guard of the labeled namespace", async || {
        ensure_that(delete("labeled").await?, |refused| {
            refused.stderr.contains("failed calling webhook \"suspend.hibernate.sh\"")
        })
    })
    .await?;
    delete("plain").await?.ok()?;
    let status = async |namespace| world.plugin(&["status", "fdb/sample", "-n", namespace]).await;
    let (guarded, open) = (status("labeled").await?, status("plain").await?);
    ensure!(guarded.code == 0 && !guarded.stderr.contains("NOT PROTECTED"), "{guarded:?}");
    open.says(0, &["plain/sample is NOT PROTECTED"])?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_the_manifests_pass_the_restricted_standard() -> Result<()> {
    let world = World::shared().await?;
    // The namespace enforces the standard, and the hub's own controllers make pods from the Deployments.
    eventually(SOON, "four pods", async || {
        ensure_that(world.kubectl(&["get", "pods", "-n", NAMESPACE, "-o", "name"]).await?.ok()?, |pods| {
            pods.lines().count() == 4
        })
    })
    .await?;
    let refused = world.kubectl(&["run", "root", "--image", "x", "-n", NAMESPACE, "--dry-run=server"]).await?;
    assert!(refused.code != 0 && refused.stderr.contains("violates PodSecurity"), "{refused:?}");
    Ok(())
}

/// The committed Secret carries no data: applying it must never take the webhook's away.
#[test]
fn the_certificate_secret_is_shipped_empty() {
    let secrets: Vec<Secret> = manifests::base()
        .into_iter()
        .filter(|object| object["kind"] == "Secret")
        .map(|object| serde_json::from_value(object).unwrap())
        .collect();
    assert_eq!(secrets.len(), 1);
    assert!(secrets[0].data.is_none() && secrets[0].string_data.is_none());
}
