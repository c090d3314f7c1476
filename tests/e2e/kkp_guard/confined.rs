//! What our controller's account may write on a seed: its rights, and the policy that confines them. Other accounts notice neither.

use anyhow::{Context as _, Result, bail, ensure};
use kube::CustomResourceExt as _;
use serde_json::{Value, json};
use shared::kkp::api::Cluster;
use shared::kkp::{data, keys};
use testbed::options::Options;
use testbed::{Ran, World, apply, eventually};

use super::{KKP, SOON, annotated, both, cluster, upstream};

const CONTROLLER: &str = "system:serviceaccount:hibernate-system:hibernate-controller";

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
    let pod = json!({
        "metadata": { "labels": { "app": "x", "team": "x" } },
        "spec": { "restartPolicy": "Always", "containers": [{ "name": "c", "image": "i", "resources": { "requests": { "cpu": "100m" } } }] },
    });
    for namespace in ["cluster-abc", "shop"] {
        let meta = |name: &str| json!({ "name": name, "namespace": namespace, "labels": { "app": "x" }, "annotations": { "example.com/x": "1" } });
        let workload = json!({ "replicas": 0, "selector": { "matchLabels": { "app": "x" } }, "template": pod });
        let job =
            json!({ "spec": { "template": both(pod.clone(), &json!({ "spec": { "restartPolicy": "Never" } })) } });
        let backup = json!({ "name": "b", "schedule": "@every 20m", "destination": "s3", "cluster": { "kind": "Cluster", "name": "abc" } });
        objects.extend([
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }),
            json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta("apiserver"), "spec": workload }),
            json!({
                "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta("etcd"),
                "spec": both(workload.clone(), &json!({ "serviceName": "etcd" })),
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
    objects
}

const DEPLOYMENT: &str = "deployments/apiserver";
const ETCD: &str = "statefulsets/etcd";
const JOB: &str = "cronjobs/defragger";
const BACKUP: &str = "etcdbackupconfigs/b";
const RECORD: &str = "configmaps/hibernate-record";
const CLUSTER: &str = "clusters.kubermatic.k8c.io/abc";
const ASLEEP: &str = "clusters.kubermatic.k8c.io/asleep";
const THEIRS: &str = "clusters.kubermatic.k8c.io/theirs";
const NOBODYS: &str = "clusters.kubermatic.k8c.io/nobodys";
const STATUS: &str = "status of the Cluster";

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

struct Seed(World);

impl Seed {
    /// A dry run of a merge patch. RBAC lets everything pass (kubectl reads an object before it patches it), so the policy alone decides.
    async fn patch(&self, user: &str, namespace: &str, object: &str, patch: &Value) -> Result<Ran> {
        let (object, status) = if object == STATUS { (CLUSTER, true) } else { (object, false) };
        let patch = patch.to_string();
        let mut line =
            vec!["patch", object, "-n", namespace, "--type", "merge", "-p", &patch, "--dry-run=server", "--as", user];
        line.extend(["--as-group", "system:masters"]);
        if status {
            line.extend(["--subresource", "status"]);
        }
        self.0.kubectl(&line).await
    }

    async fn run(&self, user: &str, line: &str) -> Result<Ran> {
        let words: Vec<&str> = line.split(' ').collect();
        self.0
            .kubectl(&[&words[..], &["--dry-run=server", "--as", user, "--as-group", "system:masters"]].concat())
            .await
    }
}

fn is_refused(ran: &Ran) -> bool {
    ran.code != 0 && ran.stderr.contains("hibernate-controller may ")
}

async fn confined(definitions: &[Value]) -> Result<()> {
    let seed = Seed(World::up(Options::bare_hub()).await?);
    let hub = seed.0.hub().await?;
    apply::all(&hub, definitions).await?;
    apply::all(&hub, &stored()).await?;
    apply::all(&hub, &manifests::kkp::controller()).await?;
    let settings = json!({ "data": { "a": "c" } });
    eventually(SOON, "policy in force", async || {
        let ran = seed.patch(CONTROLLER, "cluster-abc", "configmaps/settings", &settings).await?;
        if is_refused(&ran) { Ok(()) } else { bail!("{ran:?}") }
    })
    .await?;
    for (object, patch) in ours() {
        let ran = seed.patch(CONTROLLER, "cluster-abc", object, &patch).await?;
        ran.ok().with_context(|| format!("{object} {patch}"))?;
        let elsewhere = seed.patch(CONTROLLER, "shop", object, &patch).await?;
        let is_namespaced = ![CLUSTER, ASLEEP, STATUS].contains(&object);
        ensure!(is_refused(&elsewhere) == is_namespaced, "{object} in another namespace: {elsewhere:?}");
    }
    for (object, patch) in others() {
        let ran = seed.patch(CONTROLLER, "cluster-abc", object, &patch).await?;
        ensure!(is_refused(&ran), "{object} {patch}: {ran:?}");
        for user in ["alice", KKP] {
            let ran = seed.patch(user, "cluster-abc", object, &patch).await?;
            ran.ok().with_context(|| format!("{user}: {object} {patch}"))?;
        }
    }
    seed.0.kubectl(&["create", "namespace", "cluster-other"]).await?.ok()?;
    // On a hub with Hive, too, the account records the members of rollouts: once.
    for (line, is_ours) in [
        ("create configmap hibernate-record -n cluster-other", true),
        ("delete configmap hibernate-record -n cluster-abc", true),
        ("create configmap rollout-members-u -n hibernate-system", true),
        ("create configmap rollout-members-u -n default", false),
        ("create configmap other -n hibernate-system", false),
        ("create configmap hibernate-record -n default", false),
        ("create configmap other -n cluster-abc", false),
        ("delete configmap settings -n cluster-abc", false),
        ("delete configmap hibernate-record -n shop", false),
        ("create deployment new --image i -n cluster-abc", false),
        ("delete deployment apiserver -n cluster-abc", false),
        ("delete statefulset etcd -n cluster-abc", false),
        ("delete cronjob defragger -n cluster-abc", false),
        ("delete etcdbackupconfigs b -n cluster-abc", false),
        ("delete clusters.kubermatic.k8c.io abc", false),
    ] {
        let ran = seed.run(CONTROLLER, line).await?;
        ensure!(if is_ours { ran.code == 0 } else { is_refused(&ran) }, "{line}: {ran:?}");
        seed.run("alice", line).await?.ok().with_context(|| format!("alice: {line}"))?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_controllers_account_writes_what_a_sleep_and_a_wake_need_and_nothing_else() -> Result<()> {
    confined(&[json!(Cluster::crd()), backup_configs()]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn its_confines_are_the_same_with_kkps_own_definitions() -> Result<()> {
    match (upstream("clusters")?, upstream("etcdbackupconfigs")?) {
        (Some(clusters), Some(configs)) => confined(&[clusters, configs]).await,
        _ => Ok(()),
    }
}

/// RBAC alone: Secrets by name, and no more of anything than a sleep and a wake need.
#[tokio::test(flavor = "multi_thread")]
async fn the_account_reads_few_secrets_and_one_config_map() -> Result<()> {
    let world = World::up(Options::bare_hub()).await?;
    apply::all(&world.hub().await?, &manifests::kkp::rbac()).await?;
    world.kubectl(&["delete", "clusterrolebinding", "hibernate-controller-secrets"]).await?.ok()?;
    let can = async |verb: &str, resource: &str| {
        let line = ["auth", "can-i", verb, resource, "-n", "cluster-abc", "--as", CONTROLLER];
        anyhow::Ok(world.kubectl(&line).await?.code == 0)
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
