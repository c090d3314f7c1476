//! What our controller's account may write of `ClusterDeployments`, volumes and Services, whatever its rights: the
//! policies that confine it. Other accounts notice none of them. On a KKP seed: `kkp_guard::confined`.

mod cgu;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use shared::annotation::keys;
use shared::hive::api::ClusterDeployment;
use testbed::fdb::common::SOON;
use testbed::options::Options;
use testbed::{World, apply, ensure_that, eventually, kubeconfig};

use crate::kkp_common::upstream_folder;

pub(crate) const CONTROLLER: &str = "system:serviceaccount:hibernate-system:hibernate-controller";
const NAMESPACE: &str = "confined";
const DEPLOYMENT: &str = "/apis/hive.openshift.io/v1/namespaces/confined/clusterdeployments/demo";

/// A hub on Hive's own definitions, where they are at hand. These tests alone share it: what they write is a dry run,
/// or in namespaces of their own, but they apply policies.
pub(crate) async fn world() -> Result<World> {
    World::shared_with(Options { upstream_crds: upstream_folder("hive"), audit: true, ..Options::bare_hub() }).await
}

/// Clients of the hub by their user. RBAC lets everything pass, so the policies alone decide.
pub(crate) async fn accounts(world: &World, users: &[&'static str]) -> Result<BTreeMap<&'static str, Client>> {
    let mut clients = BTreeMap::new();
    for &user in users {
        let client = kubeconfig::client_as(&world.file().hub.kubeconfig, user, &["system:masters"]).await?;
        clients.insert(user, client);
    }
    Ok(clients)
}

/// A dry run of a write to this path of the API: a merge patch, or another method.
pub(crate) async fn write(client: &Client, method: &str, path: &str, body: &Value) -> kube::Result<()> {
    let content = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = http::Request::builder().method(method).uri(format!("{path}?dryRun=All"));
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = request.header("content-type", content).body(body).map_err(kube::Error::HttpError)?;
    client.request::<Value>(request).await.map(drop)
}

/// Whether a policy has refused it with these words.
pub(crate) fn is_refused(answer: &kube::Result<()>, words: &str) -> bool {
    matches!(answer, Err(kube::Error::Api(status)) if status.message.contains(words))
}

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const REFUSAL: &str = "hibernate-controller may change only ";

/// Each merge patch passes or is refused, for this account alone.
async fn holds(world: &World, ours: &[(&str, Value)], others: &[(&str, Value)]) -> Result<()> {
    let clients = accounts(world, &[CONTROLLER, "alice"]).await?;
    let patch = async |user: &str, path: &str, patch: &Value| write(&clients[user], "PATCH", path, patch).await;
    let (path, probe) = others.first().context("a write")?;
    eventually(SOON, "policies in force", async || {
        ensure_that(patch(CONTROLLER, path, probe).await, |answer| is_refused(answer, REFUSAL))
    })
    .await?;
    for (path, write) in ours {
        patch(CONTROLLER, path, write).await.with_context(|| format!("{path} {write}"))?;
    }
    for (path, write) in others {
        let answer = patch(CONTROLLER, path, write).await;
        ensure!(is_refused(&answer, REFUSAL), "{path} {write}: {answer:?}");
        patch("alice", path, write).await.with_context(|| format!("alice: {path} {write}"))?;
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

#[tokio::test(flavor = "multi_thread")]
async fn of_a_cluster_deployment_it_writes_the_power_state_our_annotations_and_its_report() -> Result<()> {
    let world = world().await?;
    let hub = world.hub().await?;
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
        &hub,
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
    let deployments: Api<ClusterDeployment> = Api::namespaced(hub, NAMESPACE);
    deployments.patch_status("demo", &PatchParams::default(), &Patch::Merge(&stored)).await?;

    let report = &format!("{DEPLOYMENT}/status")[..];
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
    let clients = accounts(&world, &[CONTROLLER, "alice"]).await?;
    let answer = write(&clients[CONTROLLER], "DELETE", DEPLOYMENT, &Value::Null).await;
    ensure!(is_refused(&answer, REFUSAL), "{answer:?}");
    write(&clients["alice"], "DELETE", DEPLOYMENT, &Value::Null).await.context("alice deletes it")
}

#[tokio::test(flavor = "multi_thread")]
async fn of_volumes_and_services_of_databases_it_writes_our_annotations_and_of_others_nothing() -> Result<()> {
    let world = world().await?;
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
    let path = |object: &str| format!("/api/v1/namespaces/{NAMESPACE}/{object}");
    let [volume, service, other_volume, other_service] =
        &["persistentvolumeclaims/owned", "services/owned", "persistentvolumeclaims/others", "services/others"]
            .map(path);
    let (volume, service) = (volume.as_str(), service.as_str());
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
    others.extend([other_volume, other_service].map(|object| (object.as_str(), stamp())));
    holds(&world, &ours.concat(), &others).await
}

/// The right to keep records of deleted servers is one on every Secret: the policy of the component `openstack` leaves
/// the records.
#[tokio::test(flavor = "multi_thread")]
async fn of_secrets_it_writes_records_of_deleted_servers() -> Result<()> {
    let world = world().await?;
    let may = async |verb: &str| -> Result<bool> {
        let line = ["auth", "can-i", verb, "secrets", "-n", "default", "--as", CONTROLLER];
        Ok(world.kubectl(&line).await?.stdout.starts_with("yes"))
    };
    ensure!(may("get").await? && !may("create").await?, "without the component it only reads");
    apply::all(&world.hub().await?, &manifests::openstack()).await?;
    eventually(SOON, "rights of the component", async || {
        ensure_that(may("create").await? && may("patch").await? && may("delete").await?, |may| *may)
    })
    .await?;
    ensure!(!may("list").await? && !may("watch").await?, "it still lists none");
    let clients = accounts(&world, &[CONTROLLER, "alice"]).await?;
    let secret = |name: &str, kind: &str, key: &str| json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "type": kind, "stringData": { key: "e30=" } });
    let refusal = "hibernate-controller may write only Secrets CLUSTER-hibernation-config";
    let others = [
        secret("pull", "Opaque", "hibernation"),
        secret("demo-hibernation-config", "Opaque", "token"),
        secret("demo-hibernation-config", "example.com/x", "hibernation"),
        secret("hibernation-config-of-demo", "Opaque", "hibernation"),
    ];
    eventually(SOON, "policy in force", async || {
        ensure_that(write(&clients[CONTROLLER], "POST", SECRETS, &others[0]).await, |answer| {
            is_refused(answer, refusal)
        })
    })
    .await?;
    for other in &others {
        let answer = write(&clients[CONTROLLER], "POST", SECRETS, other).await;
        ensure!(is_refused(&answer, refusal), "{other}: {answer:?}");
        write(&clients["alice"], "POST", SECRETS, other).await.with_context(|| format!("alice: {other}"))?;
    }
    for key in ["hibernation", "hibernation-config"] {
        let record = secret("demo-hibernation-config", "Opaque", key);
        write(&clients[CONTROLLER], "POST", SECRETS, &record).await.with_context(|| format!("{record}"))?;
    }
    // What is there already is judged in the same way, whoever made it.
    let hub = world.hub().await?;
    let there = [secret("pull", "Opaque", "a"), secret("there-hibernation-config", "Opaque", "hibernation")];
    let there = there.map(|mut secret| {
        secret["metadata"]["namespace"] = json!("default");
        secret
    });
    apply::all(&hub, &there).await?;
    for (name, is_ours) in [("pull", false), ("there-hibernation-config", true)] {
        let path = format!("{SECRETS}/{name}");
        for (method, body) in [("PATCH", json!({ "stringData": { "hibernation": "e30=" } })), ("DELETE", Value::Null)] {
            let answer = write(&clients[CONTROLLER], method, &path, &body).await;
            ensure!(if is_ours { answer.is_ok() } else { is_refused(&answer, refusal) }, "{method} {name}: {answer:?}");
        }
    }
    Ok(())
}
