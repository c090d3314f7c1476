//! What our controller's account may write on a seed: its rights, and the policy that confines them. Other accounts notice neither.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, CustomResourceExt as _};
use serde_json::{Value, json};
use shared::kkp::api::Cluster;
use shared::kkp::{data, keys};
use testbed::{apply, eventually};

use super::{KKP, SOON, annotated, both, cluster, upstream};
use crate::controller_confined::{Accounts, CONTROLLER, is_refused, world};

/// A definition of `EtcdBackupConfigs` that keeps whatever it is given.
fn backup_configs() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "etcdbackupconfigs.kubermatic.k8c.io" },
        "spec": {
            "group": "kubermatic.k8c.io", "scope": "Namespaced",
            "names": {
                "kind": "EtcdBackupConfig", "plural": "etcdbackupconfigs", "singular": "etcdbackupconfig",
                "listKind": "EtcdBackupConfigList",
            },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    })
}

fn pod() -> Value {
    json!({
        "metadata": { "labels": { "app": "x", "team": "x" } },
        "spec": { "restartPolicy": "Always", "containers": [{ "name": "c", "image": "i", "resources": { "requests": { "cpu": "100m" } } }] },
    })
}

fn workload() -> Value {
    json!({ "replicas": 0, "selector": { "matchLabels": { "app": "x" } }, "template": pod() })
}

/// What KKP has made: the same in the cluster's namespace and in another.
fn stored() -> Vec<Value> {
    let mut objects = vec![cluster(
        "abc",
        &json!({
            "metadata": { "annotations": { "example.com/x": "1" } },
            "spec": { "componentsOverride": { "apiserver": { "replicas": 2 }, "etcd": { "clusterSize": 3 } } },
        }),
    )];
    let paused = json!({ "spec": { "pause": true, "pauseReason": "dehydrated by kubectl-hibernate" } });
    let paused = both(paused, &annotated(keys::POWER_STATE, "Hibernating"));
    let settings = json!({ "spec": {
        "auditLogging": { "enabled": false }, "cniPlugin": { "type": "canal", "version": "v3.21" },
        "componentsOverride": { "apiserver": { "replicas": 2, "resources": { "limits": { "cpu": "1" } } } },
    } });
    objects.push(cluster("asleep", &both(both(paused, &annotated("example.com/x", "1")), &settings)));
    objects.push(cluster("theirs", &json!({ "spec": { "pause": true, "pauseReason": "maintenance" } })));
    objects.push(cluster("nobodys", &json!({ "spec": { "pause": true } })));
    for namespace in ["cluster-abc", "shop"] {
        let meta = |name: &str| json!({ "name": name, "namespace": namespace, "labels": { "app": "x" }, "annotations": { "example.com/x": "1" } });
        let job = json!({ "spec": { "template": both(pod(), &json!({ "spec": { "restartPolicy": "Never" } })) } });
        let backup = json!({ "name": "b", "schedule": "@every 20m", "destination": "s3", "cluster": { "kind": "Cluster", "name": "abc" } });
        objects.extend([
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }),
            json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta("apiserver"), "spec": workload() }),
            json!({
                "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta("etcd"),
                "spec": both(workload(), &json!({ "serviceName": "etcd" })),
            }),
            json!({
                "apiVersion": "batch/v1", "kind": "CronJob", "metadata": meta("defragger"),
                "spec": { "schedule": "@yearly", "jobTemplate": job },
            }),
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("settings"), "data": { "a": "b" } }),
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("hibernate-record"), "data": { "record.json": "{}" } }),
            json!({ "apiVersion": "kubermatic.k8c.io/v1", "kind": "EtcdBackupConfig", "metadata": meta("b"), "spec": backup }),
        ]);
    }
    objects.push(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "cluster-other" } }));
    objects
}

const DEPLOYMENT: &str = "deployments/apiserver";
const ETCD: &str = "statefulsets/etcd";
const JOB: &str = "cronjobs/defragger";
const BACKUP: &str = "etcdbackupconfigs/b";
const RECORD: &str = "configmaps/hibernate-record";
const CLUSTER: &str = "clusters/abc";
const ASLEEP: &str = "clusters/asleep";
const THEIRS: &str = "clusters/theirs";
const NOBODYS: &str = "clusters/nobodys";
const STATUS: &str = "status of clusters/abc";

/// Writes of a sleep and a wake.
fn ours() -> Vec<(&'static str, Value)> {
    let note = || annotated(keys::DEHYDRATED_REPLICAS, "2");
    let replicas = |count: u32| json!({ "spec": { "replicas": count } });
    let paused = json!({ "spec": { "pause": true, "pauseReason": "dehydrated by kubectl-hibernate" } });
    let unpaused = json!({ "spec": { "pause": false, "pauseReason": null } });
    let defaults = json!({ "spec": { "enableOperatingSystemManager": true, "componentsOverride": { "scheduler": { "replicas": 1 }, "apiserver": { "endpointReconcilingDisabled": false } } } });
    let resources = json!({ "limits": { "cpu": "1", "memory": "1Gi" }, "requests": { "cpu": "100m" } });
    let enforced = json!({ "spec": { "auditLogging": { "enabled": true }, "componentsOverride": { "apiserver": { "resources": resources } } } });
    let condition = json!({ "status": "True", "reason": "Dehydrated", "kubermaticVersion": "v", "lastHeartbeatTime": "2026-11-22T18:00:00Z" });
    let conditions = json!({ keys::DEHYDRATED: condition, data::PREFLIGHT: condition });
    vec![
        (DEPLOYMENT, both(replicas(2), &note())),
        (DEPLOYMENT, both(replicas(1), &annotated(keys::DEHYDRATED_REPLICAS, Value::Null))),
        (ETCD, both(replicas(3), &note())),
        (JOB, json!({ "spec": { "suspend": true } })),
        (BACKUP, annotated(keys::TOUCHED_AT, "2026-11-22T18:00:00Z")),
        (RECORD, json!({ "data": { "record.json": "{\"a\":1}" } })),
        (CLUSTER, both(paused.clone(), &annotated(keys::POWER_STATE, "Hibernating"))),
        (CLUSTER, annotated(keys::CERTIFICATES_EXPIRE_AT, "2026-11-22T18:00:00Z")),
        // Row 31: KKP's webhook adds defaults to the same write.
        (CLUSTER, both(paused, &defaults)),
        (ASLEEP, unpaused.clone()),
        (ASLEEP, both(unpaused.clone(), &annotated(keys::CERTIFICATES_EXPIRE_AT, Value::Null))),
        // The defaults of a newer KKP, in the write that ends the pause: what was absent or zero, and the version of a CNI plugin.
        (ASLEEP, both(unpaused.clone(), &defaults)),
        (ASLEEP, both(unpaused.clone(), &enforced)),
        (ASLEEP, both(unpaused, &json!({ "spec": { "cniPlugin": { "version": "v3.27" } } }))),
        // What a mutating policy of the seed adds to our writes.
        (
            DEPLOYMENT,
            both(
                replicas(2),
                &json!({ "metadata": { "labels": { "a": "b" }, "annotations": { "example.com/y": "1" } } }),
            ),
        ),
        (
            DEPLOYMENT,
            both(
                replicas(2),
                &json!({ "spec": { "template": { "metadata": { "labels": { "a": "b" }, "annotations": { "c": "d" } } } } }),
            ),
        ),
        (ETCD, both(replicas(2), &json!({ "spec": { "template": { "metadata": { "labels": { "a": "b" } } } } }))),
        (STATUS, json!({ "status": { "conditions": conditions } })),
    ]
}

/// What the account has no business to write, right or no right.
fn others() -> Vec<(&'static str, Value)> {
    let image = json!([{ "name": "c", "image": "other" }]);
    let template = json!({ "spec": { "template": { "spec": { "containers": image } } } });
    let metadata = |metadata: Value| json!({ "metadata": metadata });
    let paused = json!({ "spec": { "pause": true, "pauseReason": "dehydrated by kubectl-hibernate" } });
    let unpaused = json!({ "spec": { "pause": false, "pauseReason": null } });
    let condition = json!({ "status": "True", "kubermaticVersion": "v", "lastHeartbeatTime": "2026-11-22T18:00:00Z" });
    vec![
        (DEPLOYMENT, template.clone()),
        (DEPLOYMENT, both(json!({ "spec": { "replicas": 2 } }), &template)),
        (DEPLOYMENT, metadata(json!({ "labels": { "app": "y" } }))),
        (DEPLOYMENT, metadata(json!({ "labels": { "app": null } }))),
        (DEPLOYMENT, json!({ "spec": { "template": { "metadata": { "labels": { "team": "y" } } } } })),
        (ETCD, json!({ "spec": { "template": { "metadata": { "labels": { "team": null } } } } })),
        (DEPLOYMENT, metadata(json!({ "finalizers": ["example.com/x"] }))),
        (DEPLOYMENT, annotated("example.com/x", "2")),
        (DEPLOYMENT, annotated("example.com/x", Value::Null)),
        (DEPLOYMENT, json!({ "spec": { "paused": true } })),
        (ETCD, template),
        (ETCD, json!({ "spec": { "persistentVolumeClaimRetentionPolicy": { "whenScaled": "Delete" } } })),
        (JOB, json!({ "spec": { "schedule": "@hourly" } })),
        (BACKUP, json!({ "spec": { "schedule": "@every 1m" } })),
        ("configmaps/settings", json!({ "data": { "a": "c" } })),
        (CLUSTER, json!({ "spec": { "version": "1.35.0" } })),
        (ASLEEP, json!({ "spec": { "version": "1.35.0" } })),
        // The end of the pause carries nothing else.
        (ASLEEP, both(unpaused.clone(), &json!({ "spec": { "version": "1.35.0" } }))),
        (ASLEEP, both(unpaused.clone(), &json!({ "spec": { "cloud": { "dc": "us" } } }))),
        (ASLEEP, both(unpaused.clone(), &json!({ "spec": { "cniPlugin": { "type": "cilium" } } }))),
        (
            ASLEEP,
            both(unpaused.clone(), &json!({ "spec": { "componentsOverride": { "apiserver": { "replicas": 3 } } } })),
        ),
        (
            ASLEEP,
            both(
                unpaused.clone(),
                &json!({ "spec": { "componentsOverride": { "apiserver": { "resources": { "limits": { "cpu": "9" } } } } } }),
            ),
        ),
        (ASLEEP, both(unpaused.clone(), &json!({ "spec": { "auditLogging": null } }))),
        (ASLEEP, both(unpaused.clone(), &annotated("example.com/y", "1"))),
        (ASLEEP, both(unpaused.clone(), &annotated("example.com/x", Value::Null))),
        // No pause but ours is ended, nor made ours, nor one set that does not say whose it is.
        (THEIRS, unpaused.clone()),
        (THEIRS, paused.clone()),
        (THEIRS, json!({ "spec": { "pauseReason": null } })),
        (NOBODYS, unpaused),
        (NOBODYS, paused),
        (CLUSTER, json!({ "spec": { "pause": true } })),
        (CLUSTER, json!({ "spec": { "pause": true, "pauseReason": "maintenance" } })),
        (ASLEEP, json!({ "spec": { "pauseReason": "maintenance" } })),
        (ASLEEP, json!({ "spec": { "pause": true, "version": "1.35.0" } })),
        (ASLEEP, json!({ "spec": { "pause": false }, "metadata": { "labels": { "project-id": "other" } } })),
        (ASLEEP, annotated("example.com/y", "1")),
        (CLUSTER, annotated("example.com/y", "1")),
        (CLUSTER, annotated("hibernate.sh.example.com/x", "1")),
        (CLUSTER, json!({ "spec": { "pause": true, "cloud": { "dc": "us" } } })),
        (CLUSTER, json!({ "spec": { "componentsOverride": { "etcd": { "clusterSize": 5 } } } })),
        (CLUSTER, json!({ "spec": { "componentsOverride": null } })),
        (CLUSTER, annotated(keys::ACTIVE_RESTORE, "r")),
        (CLUSTER, annotated("example.com/x", Value::Null)),
        (CLUSTER, metadata(json!({ "labels": { "project-id": "other" } }))),
        (STATUS, json!({ "status": { "phase": "Terminating" } })),
        (STATUS, json!({ "status": { "conditions": { "SeedResourcesUpToDate": condition } } })),
    ]
}

const REFUSAL: &str = "hibernate-controller may ";

/// On KKP's own definitions, where they are at hand.
#[tokio::test(flavor = "multi_thread")]
async fn the_controllers_account_writes_what_a_sleep_and_a_wake_need_and_nothing_else() -> Result<()> {
    let world = world().await?;
    let (hub, accounts) = (world.hub().await?, Accounts::of(&world, &[CONTROLLER, KKP, "alice"]).await?);
    let clusters = upstream("clusters")?.unwrap_or_else(|| json!(Cluster::crd()));
    let backups = upstream("etcdbackupconfigs")?.unwrap_or_else(backup_configs);
    apply::all(&hub, &[clusters, backups]).await?;
    apply::all(&hub, &stored()).await?;
    apply::all(&hub, &manifests::kkp::controller()).await?;
    let settings = json!({ "data": { "a": "c" } });
    eventually(SOON, "policy in force", async || {
        let answer = accounts.patch(CONTROLLER, "cluster-abc", "configmaps/settings", &settings).await;
        ensure!(is_refused(&answer, REFUSAL), "{answer:?}");
        Ok(())
    })
    .await?;
    for (object, patch) in ours() {
        let answer = accounts.patch(CONTROLLER, "cluster-abc", object, &patch).await;
        answer.with_context(|| format!("{object} {patch}"))?;
        let elsewhere = accounts.patch(CONTROLLER, "shop", object, &patch).await;
        let has_namespace = ![CLUSTER, ASLEEP, STATUS].contains(&object);
        ensure!(is_refused(&elsewhere, REFUSAL) == has_namespace, "{object} in another namespace: {elsewhere:?}");
    }
    for (object, patch) in others() {
        let answer = accounts.patch(CONTROLLER, "cluster-abc", object, &patch).await;
        ensure!(is_refused(&answer, REFUSAL), "{object} {patch}: {answer:?}");
        for user in ["alice", KKP] {
            let answer = accounts.patch(user, "cluster-abc", object, &patch).await;
            answer.with_context(|| format!("{user}: {object} {patch}"))?;
        }
    }
    nothing_is_created_or_deleted_but_records(&accounts).await
}

/// On a hub with Hive, too, the account records the members of rollouts: once.
async fn nothing_is_created_or_deleted_but_records(accounts: &Accounts) -> Result<()> {
    for (what, object, namespace, is_ours) in [
        ("create", RECORD, "cluster-other", true),
        ("delete", RECORD, "cluster-abc", true),
        ("create", "configmaps/rollout-members-u", "hibernate-system", true),
        ("create", "configmaps/rollout-members-u", "default", false),
        ("create", "configmaps/other", "hibernate-system", false),
        ("create", RECORD, "default", false),
        ("create", "configmaps/other", "cluster-abc", false),
        ("delete", "configmaps/settings", "cluster-abc", false),
        ("delete", RECORD, "shop", false),
        ("create", "deployments/new", "cluster-abc", false),
        ("delete", DEPLOYMENT, "cluster-abc", false),
        ("delete", ETCD, "cluster-abc", false),
        ("delete", JOB, "cluster-abc", false),
        ("delete", BACKUP, "cluster-abc", false),
        ("delete", CLUSTER, "", false),
    ] {
        let fields = if object.starts_with("deployments/") { json!({ "spec": workload() }) } else { json!({}) };
        let write = async |user: &str| match what {
            "create" => accounts.create(user, namespace, object, &fields).await,
            _ => accounts.delete(user, namespace, object).await,
        };
        let answer = write(CONTROLLER).await;
        let fits = if is_ours { answer.is_ok() } else { is_refused(&answer, REFUSAL) };
        ensure!(fits, "{what} {object} in {namespace:?}: {answer:?}");
        write("alice").await.with_context(|| format!("alice: {what} {object} in {namespace:?}"))?;
    }
    Ok(())
}

/// RBAC alone: Secrets by name, and no more of anything than a sleep and a wake need.
#[tokio::test(flavor = "multi_thread")]
async fn the_account_reads_few_secrets_and_one_config_map() -> Result<()> {
    let world = world().await?;
    let hub = world.hub().await?;
    apply::all(&hub, &manifests::kkp::rbac()).await?;
    let bindings: Api<ClusterRoleBinding> = Api::all(hub.clone());
    bindings.delete("hibernate-controller-secrets", &DeleteParams::default()).await?;
    let reviews: Api<SubjectAccessReview> = Api::all(hub);
    let can = async |verb: &str, resource: &str| {
        let (resource, name) = resource.split_once('/').unwrap_or((resource, ""));
        let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
        let attributes = json!({
            "verb": verb, "group": group, "resource": resource, "name": name, "namespace": "cluster-abc",
        });
        let groups = ["system:serviceaccounts", "system:serviceaccounts:hibernate-system", "system:authenticated"];
        let review = json!({ "spec": { "user": CONTROLLER, "groups": groups, "resourceAttributes": attributes } });
        let answer = reviews.create(&PostParams::default(), &serde_json::from_value(review)?).await?;
        anyhow::Ok(answer.status.is_some_and(|status| status.allowed))
    };
    eventually(SOON, "rights", async || {
        ensure!(can("get", "secrets/apiserver-tls").await? && !can("get", "secrets/other").await?, "not yet");
        Ok(())
    })
    .await?;
    for (resource, may, may_not) in [
        ("configmaps/hibernate-record", "get patch delete", "update"),
        ("configmaps/other", "", "get patch delete"),
        ("configmaps", "create", "list watch deletecollection"),
        ("secrets/internal-admin-kubeconfig", "get", "patch delete"),
        ("secrets/etcd-tls-certificate", "get", "patch delete"),
        ("secrets/apiserver-etcd-client-certificate", "get", "patch"),
        ("secrets", "", "get list watch create"),
        ("deployments.apps", "list watch patch", "get create update delete"),
        ("statefulsets.apps", "list watch patch", "create update delete"),
        ("cronjobs.batch", "list watch patch", "create update delete"),
    ] {
        for (verbs, expected) in [(may, true), (may_not, false)] {
            for verb in verbs.split_whitespace() {
                ensure!(can(verb, resource).await? == expected, "{verb} {resource}");
            }
        }
    }
    Ok(())
}
