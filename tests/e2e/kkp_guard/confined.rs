//! What our controller's account may write on a seed, whatever its rights: the policy that confines it. Other accounts
//! do not notice.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use shared::kkp::{data, keys};
use testbed::{apply, ensure_that, eventually};

use super::{KKP, SOON, annotated, both, cluster, definitions};
use crate::controller_confined::{CONTROLLER, accounts, is_refused, world, write};

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

// Paths of the API, but for the namespace.
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/{}/deployments/apiserver";
const ETCD: &str = "/apis/apps/v1/namespaces/{}/statefulsets/etcd";
const JOB: &str = "/apis/batch/v1/namespaces/{}/cronjobs/defragger";
const BACKUP: &str = "/apis/kubermatic.k8c.io/v1/namespaces/{}/etcdbackupconfigs/b";
const RECORD: &str = "/api/v1/namespaces/{}/configmaps/hibernate-record";
const SETTINGS: &str = "/api/v1/namespaces/{}/configmaps/settings";
const CLUSTER: &str = "/apis/kubermatic.k8c.io/v1/clusters/abc";
const ASLEEP: &str = "/apis/kubermatic.k8c.io/v1/clusters/asleep";
const THEIRS: &str = "/apis/kubermatic.k8c.io/v1/clusters/theirs";
const NOBODYS: &str = "/apis/kubermatic.k8c.io/v1/clusters/nobodys";
const STATUS: &str = "/apis/kubermatic.k8c.io/v1/clusters/abc/status";

/// Writes of a sleep and a wake.
fn ours() -> Vec<(&'static str, Value)> {
    let note = || annotated(keys::DEHYDRATED_REPLICAS, "2");
    let replicas = |count: u32| json!({ "spec": { "replicas": count } });
    let paused = json!({ "spec": { "pause": true, "pauseReason": "dehydrated by kubectl-hibernate" } });
    let unpaused = json!({ "spec": { "pause": false, "pauseReason": null } });
    let defaults = json!({ "spec": { "enableOperatingSystemManager": true, "componentsOverride": { "scheduler": { "replicas": 1 }, "apiserver": { "endpointReconcilingDisabled": false } } } });
    let resources = json!({ "limits": { "cpu": "1", "memory": "1Gi" }, "requests": { "cpu": "100m" } });
    let enforced = json!({ "spec": { "auditLogging": { "enabled": true }, "componentsOverride": { "apiserver": { "resources": resources } } } });
    let added = json!({ "labels": { "a": "b" }, "annotations": { "example.com/y": "1" } });
    let condition = json!({ "status": "True", "reason": "Dehydrated", "kubermaticVersion": "v", "lastHeartbeatTime": "2026-11-22T18:00:00Z" });
    let conditions = json!({ keys::DEHYDRATED: condition, data::PREFLIGHT: condition, data::STATE: condition });
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
        // The defaults of a newer KKP, in the write that ends the pause: what was absent or zero, and the version of a
        // CNI plugin.
        (ASLEEP, both(unpaused.clone(), &defaults)),
        (ASLEEP, both(unpaused.clone(), &enforced)),
        (ASLEEP, both(unpaused, &json!({ "spec": { "cniPlugin": { "version": "v3.27" } } }))),
        // What a mutating policy of the seed adds to our writes.
        (DEPLOYMENT, both(replicas(2), &json!({ "metadata": added }))),
        (DEPLOYMENT, both(replicas(2), &json!({ "spec": { "template": { "metadata": added } } }))),
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
    let woken = |spec: Value| both(unpaused.clone(), &json!({ "spec": spec }));
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
        (SETTINGS, json!({ "data": { "a": "c" } })),
        (CLUSTER, json!({ "spec": { "version": "1.35.0" } })),
        (ASLEEP, json!({ "spec": { "version": "1.35.0" } })),
        // The end of the pause carries nothing else.
        (ASLEEP, woken(json!({ "version": "1.35.0" }))),
        (ASLEEP, woken(json!({ "cloud": { "dc": "us" } }))),
        (ASLEEP, woken(json!({ "cniPlugin": { "type": "cilium" } }))),
        (ASLEEP, woken(json!({ "componentsOverride": { "apiserver": { "replicas": 3 } } }))),
        (
            ASLEEP,
            woken(json!({ "componentsOverride": { "apiserver": { "resources": { "limits": { "cpu": "9" } } } } })),
        ),
        (ASLEEP, woken(json!({ "auditLogging": null }))),
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

#[tokio::test(flavor = "multi_thread")]
async fn the_controllers_account_writes_what_a_sleep_and_a_wake_need_and_nothing_else() -> Result<()> {
    let world = world().await?;
    let (hub, clients) = (world.hub().await?, accounts(&world, &[CONTROLLER, KKP, "alice"]).await?);
    apply::all(&hub, &definitions()?).await?;
    apply::all(&hub, &stored()).await?;
    apply::all(&hub, &manifests::kkp()).await?;
    let send = async |user: &str, method: &str, path: &str, namespace: &str, body: &Value| {
        write(&clients[user], method, &path.replace("{}", namespace), body).await
    };
    eventually(SOON, "policy in force", async || {
        ensure_that(
            send(CONTROLLER, "PATCH", SETTINGS, "cluster-abc", &json!({ "data": { "a": "c" } })).await,
            |answer| is_refused(answer, REFUSAL),
        )
    })
    .await?;
    let account =
        testbed::kubeconfig::client_as(&world.file().hub.kubeconfig, CONTROLLER, &["system:authenticated"]).await?;
    for (path, patch) in ours() {
        let answer = send(CONTROLLER, "PATCH", path, "cluster-abc", &patch).await;
        answer.with_context(|| format!("{path} {patch}"))?;
        // Who may do anything may schedule workloads, too: of those the account is asked with its own rights.
        let is_workload = path.starts_with("/apis/apps/") || path.starts_with("/apis/batch/");
        let client = if is_workload { &account } else { &clients[CONTROLLER] };
        let elsewhere = write(client, "PATCH", &path.replace("{}", "shop"), &patch).await;
        let fits = is_refused(&elsewhere, REFUSAL) == path.contains("{}");
        ensure!(fits, "{path} in another namespace: {elsewhere:?}");
    }
    for (path, patch) in others() {
        let answer = send(CONTROLLER, "PATCH", path, "cluster-abc", &patch).await;
        ensure!(is_refused(&answer, REFUSAL), "{path} {patch}: {answer:?}");
        for user in ["alice", KKP] {
            let answer = send(user, "PATCH", path, "cluster-abc", &patch).await;
            answer.with_context(|| format!("{user}: {path} {patch}"))?;
        }
    }
    let map = |name: &str| json!({ "metadata": { "name": name } });
    let (maps, record, members) =
        (&RECORD.replace("/hibernate-record", "")[..], map("hibernate-record"), map("rollout-members-u"));
    let new = json!({ "metadata": { "name": "new" }, "spec": workload() });
    // On a hub with Hive, too, the account records the members of rollouts: once.
    for (method, path, namespace, body, is_ours) in [
        ("POST", maps, "cluster-other", &record, true),
        ("DELETE", RECORD, "cluster-abc", &Value::Null, true),
        ("POST", maps, "hibernate-system", &members, true),
        ("POST", maps, "default", &members, false),
        ("POST", maps, "hibernate-system", &map("other"), false),
        ("POST", maps, "default", &record, false),
        ("POST", maps, "cluster-abc", &map("other"), false),
        ("DELETE", SETTINGS, "cluster-abc", &Value::Null, false),
        ("DELETE", RECORD, "shop", &Value::Null, false),
        ("POST", "/apis/apps/v1/namespaces/{}/deployments", "cluster-abc", &new, false),
        ("DELETE", DEPLOYMENT, "cluster-abc", &Value::Null, false),
        ("DELETE", ETCD, "cluster-abc", &Value::Null, false),
        ("DELETE", JOB, "cluster-abc", &Value::Null, false),
        ("DELETE", BACKUP, "cluster-abc", &Value::Null, false),
        ("DELETE", CLUSTER, "", &Value::Null, false),
    ] {
        let what = || format!("{method} {path} in {namespace:?}: {body}");
        let answer = send(CONTROLLER, method, path, namespace, body).await;
        let fits = if is_ours { answer.is_ok() } else { is_refused(&answer, REFUSAL) };
        ensure!(fits, "{}: {answer:?}", what());
        send("alice", method, path, namespace, body).await.with_context(|| format!("alice: {}", what()))?;
    }
    Ok(())
}
