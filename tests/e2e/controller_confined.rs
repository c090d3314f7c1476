//! What our controller's account may write of `ClusterDeployments`, volumes and Services, whatever its rights: the policies that confine it.
//! Other accounts notice none of them. On a KKP seed: `kkp_guard::confined`.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use shared::annotation::keys;
use testbed::options::Options;
use testbed::world::run::Ran;
use testbed::{World, apply, eventually};

use crate::fdb_common::SOON;
use crate::kkp_common::upstream_folder;

const CONTROLLER: &str = "system:serviceaccount:hibernate-system:hibernate-controller";
const NAMESPACE: &str = "confined";
const DEPLOYMENT: &str = "clusterdeployments.hive.openshift.io/demo";

/// A dry run of a merge patch. RBAC lets everything pass (kubectl reads an object before it patches it), so the policies alone decide.
async fn patch(world: &World, user: &str, object: &str, patch: &Value) -> Result<Ran> {
    let patch = patch.to_string();
    let (object, more) = match object.split_once(" of ") {
        Some((subresource, object)) => (object, vec!["--subresource", subresource]),
        None => (object, vec![]),
    };
    let line = ["patch", object, "-n", NAMESPACE, "--type", "merge", "-p", &patch, "--dry-run=server"];
    world.kubectl(&[&line[..], &["--as", user, "--as-group", "system:masters"], &more].concat()).await
}

/// Each write passes or is refused, for this account alone.
async fn holds(world: &World, ours: &[(&str, Value)], others: &[(&str, Value)]) -> Result<()> {
    let is_refused = |ran: &Ran| ran.code != 0 && ran.stderr.contains("hibernate-controller may change only ");
    let (object, probe) = others.first().context("a write")?;
    eventually(SOON, "policies in force", async || {
        let ran = patch(world, CONTROLLER, object, probe).await?;
        ensure!(is_refused(&ran), "{ran:?}");
        Ok(())
    })
    .await?;
    for (object, write) in ours {
        patch(world, CONTROLLER, object, write).await?.ok().with_context(|| format!("{object} {write}"))?;
    }
    for (object, write) in others {
        let ran = patch(world, CONTROLLER, object, write).await?;
        ensure!(is_refused(&ran), "{object} {write}: {ran:?}");
        patch(world, "alice", object, write).await?.ok().with_context(|| format!("alice: {object} {write}"))?;
    }
    Ok(())
}

fn annotated(key: &str, value: impl Into<Value>) -> Value {
    json!({ "metadata": { "annotations": { key: value.into() } } })
}

fn condition(kind: &str, status: &str) -> Value {
    let at = "2026-11-25T12:00:00Z";
    json!({ "type": kind, "status": status, "reason": "R", "message": "m", "lastProbeTime": at, "lastTransitionTime": at })
}

async fn deployments(options: Options) -> Result<()> {
    let world = World::up(options).await?;
    let metadata = json!({
        "name": "demo", "namespace": NAMESPACE, "labels": { "team": "a" }, "finalizers": ["hibernate.sh/test"],
        "annotations": { "example.com/x": "1", "hive.openshift.io/protected-delete": "true", keys::PROTECTED: "true" },
    });
    let spec = json!({
        "baseDomain": "example.com", "clusterName": "demo", "installed": true, "powerState": "Running", "preserveOnDelete": true,
        "clusterMetadata": { "clusterID": "c", "infraID": "demo-x7k2p", "adminKubeconfigSecretRef": { "name": "kubeconfig" } },
        "platform": { "aws": { "region": "eu-central-1", "credentialsSecretRef": { "name": "aws" } } },
        "pullSecretRef": { "name": "pull" },
    });
    let group = "hive.openshift.io/v1";
    apply::all(
        &world.hub().await?,
        &[
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } }),
            json!({ "apiVersion": group, "kind": "ClusterDeployment", "metadata": metadata, "spec": spec }),
        ],
    )
    .await?;
    let theirs = condition("DNSNotReady", "False");
    let status = |fields: Value| json!({ "status": fields });
    let conditions = |all: &[&Value]| status(json!({ "conditions": all }));
    let stored =
        json!({ "status": { "conditions": [theirs, condition("Ready", "True")], "apiURL": "https://a.example.com" } });
    let line = ["patch", DEPLOYMENT, "-n", NAMESPACE, "--type", "merge", "--subresource", "status", "-p"];
    world.kubectl(&[&line[..], &[&stored.to_string()]].concat()).await?.ok()?;

    let report = "status of clusterdeployments.hive.openshift.io/demo";
    let (asleep, ready) = (condition("Hibernating", "True"), condition("Ready", "False"));
    let ours = [
        (
            DEPLOYMENT,
            json!({ "spec": { "powerState": "Hibernating" }, "metadata": { "annotations": { keys::REASON: "idle", keys::WAKE_AT: null } } }),
        ),
        (DEPLOYMENT, json!({ "spec": { "powerState": null } })),
        (DEPLOYMENT, annotated(keys::ROLLOUT, "{}")),
        (DEPLOYMENT, annotated(keys::PROTECTED, Value::Null)),
        (report, conditions(&[&ready, &asleep, &theirs])),
        (report, json!({ "status": { "powerState": "Hibernating" } })),
    ];
    let spec = |fields: Value| (DEPLOYMENT, json!({ "spec": fields }));
    let metadata = |fields: Value| (DEPLOYMENT, json!({ "metadata": fields }));
    let others = [
        spec(json!({ "installed": false })),
        spec(json!({ "powerState": "Hibernating", "installed": false })),
        spec(json!({ "powerState": "Hibernating", "installed": null })),
        spec(json!({ "clusterMetadata": { "infraID": "other-12345" } })),
        spec(json!({ "clusterMetadata": { "adminKubeconfigSecretRef": { "name": "other" } } })),
        spec(json!({ "platform": { "aws": { "credentialsSecretRef": { "name": "other" } } } })),
        spec(json!({ "platform": { "aws": { "credentialsAssumeRole": { "roleARN": "arn:aws:iam::1:role/x" } } } })),
        spec(json!({ "preserveOnDelete": false })),
        spec(json!({ "hibernateAfter": "1h" })),
        spec(json!({ "controlPlaneConfig": { "apiURLOverride": "evil.example.com:6443" } })),
        metadata(json!({ "labels": { "team": "b" } })),
        metadata(json!({ "labels": { "more": "x" } })),
        metadata(json!({ "finalizers": null })),
        metadata(json!({ "annotations": { "hive.openshift.io/protected-delete": null } })),
        metadata(json!({ "annotations": { "example.com/y": "1" } })),
        metadata(json!({ "annotations": { "hibernate.sh.example.com/x": "1" } })),
        (report, conditions(&[&theirs, &ready, &condition("ProvisionFailed", "True")])),
        (report, conditions(&[&condition("DNSNotReady", "True"), &ready])),
        (report, conditions(&[&ready])),
        (report, json!({ "status": { "apiURL": "https://evil.example.com" } })),
        (report, json!({ "status": { "installRestarts": 3 } })),
    ];
    holds(&world, &ours, &others).await?;
    let delete = ["delete", DEPLOYMENT, "-n", NAMESPACE, "--dry-run=server", "--as-group", "system:masters", "--as"];
    let ran = world.kubectl(&[&delete[..], &[CONTROLLER]].concat()).await?;
    ensure!(ran.code != 0 && ran.stderr.contains("hibernate-controller may change only "), "{ran:?}");
    world.kubectl(&[&delete[..], &["alice"]].concat()).await?.ok().map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_cluster_deployment_it_writes_the_power_state_our_annotations_and_its_report() -> Result<()> {
    deployments(Options::bare_hub()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn its_confines_are_the_same_with_hives_own_definition() -> Result<()> {
    let Some(hive) = upstream_folder("hive") else { return Ok(()) };
    deployments(Options { upstream_crds: Some(hive), ..Options::bare_hub() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn of_volumes_and_services_of_databases_it_writes_our_annotations_and_of_others_nothing() -> Result<()> {
    let world = World::up(Options::bare_hub()).await?;
    let hub = world.hub().await?;
    apply::all(
        &hub,
        &[
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } }),
            json!({
                "apiVersion": "apps.foundationdb.org/v1beta2", "kind": "FoundationDBCluster",
                "metadata": { "name": "sample", "namespace": NAMESPACE }, "spec": { "version": "7.3.69" },
            }),
        ],
    )
    .await?;
    let uid = ["get", "foundationdbclusters", "sample", "-n", NAMESPACE, "-o", "jsonpath={.metadata.uid}"];
    let uid = world.kubectl(&uid).await?.ok()?;
    let owner = json!([{ "apiVersion": "apps.foundationdb.org/v1beta2", "kind": "FoundationDBCluster", "name": "sample", "uid": uid }]);
    for (name, owners) in [("owned", owner), ("others", Value::Null)] {
        let metadata = json!({
            "name": name, "namespace": NAMESPACE, "labels": { "app": "x" }, "annotations": { "example.com/x": "1" }, "ownerReferences": owners,
        });
        let storage = json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } });
        let ports = json!({ "ports": [{ "port": 4500 }], "selector": { "app": "x" } });
        apply::all(
            &hub,
            &[
                json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": storage }),
                json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": ports }),
            ],
        )
        .await?;
    }
    let (volume, service) = ("persistentvolumeclaims/owned", "services/owned");
    let stamp = || annotated(keys::SUSPENDED_AT, "2026-11-25T12:00:00Z");
    let ours = [volume, service].map(|object| [(object, stamp()), (object, annotated(keys::RELEASED_AT, Value::Null))]);
    let metadata = |fields: Value| json!({ "metadata": fields });
    let mut others = vec![
        (service, json!({ "spec": { "selector": { "app": "y" } } })),
        (service, json!({ "spec": { "type": "NodePort" } })),
        (service, json!({ "spec": { "externalIPs": ["192.0.2.1"] } })),
        (service, json!({ "spec": { "selector": { "app": "y" } }, "metadata": stamp()["metadata"] })),
        (volume, json!({ "spec": { "volumeName": "another" } })),
    ];
    for object in [volume, service] {
        others.extend([
            (object, metadata(json!({ "labels": { "app": "y" } }))),
            (object, metadata(json!({ "labels": { "more": "x" } }))),
            (object, metadata(json!({ "ownerReferences": null }))),
            (object, metadata(json!({ "finalizers": ["example.com/x"] }))),
            (object, annotated("example.com/x", Value::Null)),
            (object, annotated("service.beta.kubernetes.io/aws-load-balancer-internal", "false")),
        ]);
    }
    others.extend(["persistentvolumeclaims/others", "services/others"].map(|object| (object, stamp())));
    holds(&world, &ours.concat(), &others).await
}
