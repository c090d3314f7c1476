//! What our controller's account may write of `ClusterDeployments`, volumes and Services, whatever its rights: the policies that confine it.
//! Other accounts notice none of them. On a KKP seed: `kkp_guard::confined`.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use shared::annotation::keys;
use shared::hive::api::ClusterDeployment;
use testbed::options::Options;
use testbed::{World, apply, eventually, kubeconfig};

use crate::fdb_common::SOON;
use crate::kkp_common::upstream_folder;
use crate::match_writes::Kind;

pub(crate) const CONTROLLER: &str = "system:serviceaccount:hibernate-system:hibernate-controller";
const NAMESPACE: &str = "confined";
const DEPLOYMENT: &str = "clusterdeployments/demo";

/// What is written, by the name of its resource.
const KINDS: [(&str, Kind); 9] = [
    ("clusterdeployments", Kind("hive.openshift.io", "v1", "ClusterDeployment")),
    ("clusters", Kind("kubermatic.k8c.io", "v1", "Cluster")),
    ("configmaps", Kind("", "v1", "ConfigMap")),
    ("cronjobs", Kind("batch", "v1", "CronJob")),
    ("deployments", Kind("apps", "v1", "Deployment")),
    ("etcdbackupconfigs", Kind("kubermatic.k8c.io", "v1", "EtcdBackupConfig")),
    ("persistentvolumeclaims", Kind("", "v1", "PersistentVolumeClaim")),
    ("services", Kind("", "v1", "Service")),
    ("statefulsets", Kind("apps", "v1", "StatefulSet")),
];

/// A hub on Hive's own definitions, where they are at hand. The tests share it: what they write is a dry run, or in namespaces of their own.
pub(crate) async fn world() -> Result<World> {
    World::shared_with(Options { upstream_crds: upstream_folder("hive"), ..Options::bare_hub() }).await
}

/// Writes of accounts, as dry runs. RBAC lets everything pass, so the policies alone decide.
pub(crate) struct Accounts {
    clients: BTreeMap<&'static str, Client>,
    kinds: BTreeMap<&'static str, ApiResource>,
}

impl Accounts {
    pub(crate) async fn of(world: &World, users: &[&'static str]) -> Result<Self> {
        let mut clients = BTreeMap::new();
        for &user in users {
            let client = kubeconfig::client_as(&world.file().hub.kubeconfig, user, &["system:masters"]).await?;
            clients.insert(user, client);
        }
        let kinds = KINDS.iter().map(|(resource, kind)| (*resource, kind.resource())).collect();
        Ok(Self { clients, kinds })
    }

    fn api<'o>(&self, user: &str, namespace: &str, object: &'o str) -> (Api<DynamicObject>, &'o str) {
        let (resource, name) = object.split_once('/').unwrap_or((object, ""));
        let (client, kind) = (self.clients[user].clone(), &self.kinds[resource]);
        let has_namespace = kind.kind != "Cluster";
        let api =
            if has_namespace { Api::namespaced_with(client, namespace, kind) } else { Api::all_with(client, kind) };
        (api, name)
    }

    /// Of an object such as `services/a`, or of `status of services/a`.
    pub(crate) async fn patch(&self, user: &str, namespace: &str, object: &str, patch: &Value) -> kube::Result<()> {
        let (object, is_status) = object.strip_prefix("status of ").map_or((object, false), |object| (object, true));
        let (api, name) = self.api(user, namespace, object);
        let (dry_run, patch) = (PatchParams { dry_run: true, ..PatchParams::default() }, Patch::Merge(patch));
        let patched = if is_status {
            api.patch_status(name, &dry_run, &patch).await
        } else {
            api.patch(name, &dry_run, &patch).await
        };
        patched.map(drop)
    }

    pub(crate) async fn create(&self, user: &str, namespace: &str, object: &str, fields: &Value) -> kube::Result<()> {
        let (api, name) = self.api(user, namespace, object);
        let (resource, _) = object.split_once('/').unwrap_or_default();
        let object = DynamicObject::new(name, &self.kinds[resource]).data(fields.clone());
        api.create(&PostParams { dry_run: true, ..PostParams::default() }, &object).await.map(drop)
    }

    pub(crate) async fn delete(&self, user: &str, namespace: &str, object: &str) -> kube::Result<()> {
        let (api, name) = self.api(user, namespace, object);
        api.delete(name, &DeleteParams::default().dry_run()).await.map(drop)
    }
}

/// Whether a policy has refused it with these words.
pub(crate) fn is_refused(answer: &kube::Result<()>, words: &str) -> bool {
    matches!(answer, Err(kube::Error::Api(status)) if status.message.contains(words))
}

const REFUSAL: &str = "hibernate-controller may change only ";

/// Each write passes or is refused, for this account alone.
async fn holds(accounts: &Accounts, ours: &[(&str, Value)], others: &[(&str, Value)]) -> Result<()> {
    let (object, probe) = others.first().context("a write")?;
    eventually(SOON, "policies in force", async || {
        let answer = accounts.patch(CONTROLLER, NAMESPACE, object, probe).await;
        ensure!(is_refused(&answer, REFUSAL), "{answer:?}");
        Ok(())
    })
    .await?;
    for (object, write) in ours {
        let answer = accounts.patch(CONTROLLER, NAMESPACE, object, write).await;
        answer.with_context(|| format!("{object} {write}"))?;
    }
    for (object, write) in others {
        let answer = accounts.patch(CONTROLLER, NAMESPACE, object, write).await;
        ensure!(is_refused(&answer, REFUSAL), "{object} {write}: {answer:?}");
        let answer = accounts.patch("alice", NAMESPACE, object, write).await;
        answer.with_context(|| format!("alice: {object} {write}"))?;
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
    let (hub, accounts) = (world.hub().await?, Accounts::of(&world, &[CONTROLLER, "alice"]).await?);
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

    let report = "status of clusterdeployments/demo";
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
    holds(&accounts, &ours, &others).await?;
    let answer = accounts.delete(CONTROLLER, NAMESPACE, DEPLOYMENT).await;
    ensure!(is_refused(&answer, REFUSAL), "{answer:?}");
    accounts.delete("alice", NAMESPACE, DEPLOYMENT).await.context("alice deletes it")
}

#[tokio::test(flavor = "multi_thread")]
async fn of_volumes_and_services_of_databases_it_writes_our_annotations_and_of_others_nothing() -> Result<()> {
    let world = world().await?;
    let (hub, accounts) = (world.hub().await?, Accounts::of(&world, &[CONTROLLER, "alice"]).await?);
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
    holds(&accounts, &ours.concat(), &others).await
}
