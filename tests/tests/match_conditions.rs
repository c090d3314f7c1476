//! Which writes reach which entry of the webhook configurations. One entry at a time is registered under failurePolicy
//! Fail at an address where nobody answers: what it takes is refused, what it leaves alone passes, and an expression that
//! fails refuses with other words.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use testbed::options::{Options, Timings};
use testbed::{World, apply, eventually};

const NOBODY: &str = "https://127.0.0.1:1";
const INTO_SLEEP: &str = "into-sleep.hibernate.sh";
const HIVE: &str = "hive.hibernate.sh";
const STAMP: &str = "stamp.hibernate.sh";
const REPLICAS: &str = "replicas.hibernate.sh";

/// A write, and the entries that it must reach.
struct Write {
    what: &'static str,
    user: &'static str,
    kind: &'static Kind,
    namespace: &'static str,
    /// Object that is patched; none is created from the patch instead.
    name: Option<&'static str>,
    subresource: Option<&'static str>,
    body: Value,
    reaches: &'static [&'static str],
}

struct Kind(&'static str, &'static str, &'static str);

const CLUSTER: Kind = Kind("hive.openshift.io", "v1", "ClusterDeployment");
const DEPLOYMENT: Kind = Kind("apps", "v1", "Deployment");
const STATEFUL_SET: Kind = Kind("apps", "v1", "StatefulSet");
const CAPI: Kind = Kind("cluster.x-k8s.io", "v1beta1", "MachineDeployment");
const MACHINE_CONTROLLER: Kind = Kind("cluster.k8s.io", "v1alpha1", "MachineDeployment");

impl Kind {
    fn resource(&self) -> ApiResource {
        ApiResource::from_gvk(&GroupVersionKind::gvk(self.0, self.1, self.2))
    }

    fn object(&self, namespace: &str, name: &str, fields: &Value) -> Value {
        let api_version = format!("{}/{}", self.0, self.1);
        let mut object =
            json!({"apiVersion": api_version, "kind": self.2, "metadata": {"name": name, "namespace": namespace}});
        merge(&mut object, fields);
        object
    }
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            from.iter().for_each(|(key, value)| merge(into.entry(key.clone()).or_insert(Value::Null), value));
        }
        (into, from) => *into = from.clone(),
    }
}

fn cluster(fields: &Value) -> Value {
    let mut cluster = json!({"spec": {"baseDomain": "example.com", "clusterName": "demo", "platform": {"aws": {"region": "us-east-1"}}}});
    merge(&mut cluster, fields);
    cluster
}

fn workload(replicas: Option<u32>, recorded: bool) -> Value {
    let pod =
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "web"}]}});
    let mut object = json!({"spec": {"selector": {"matchLabels": {"app": "web"}}, "template": pod, "serviceName": "web", "clusterName": "demo"}});
    if let Some(replicas) = replicas {
        object["spec"]["replicas"] = replicas.into();
    }
    if recorded {
        object["metadata"]["annotations"]["hibernate.sh/replicas"] = "3".into();
    }
    object
}

/// What is there before.
fn stored() -> Vec<Value> {
    let namespace = |name: &str, labels: Value| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    let mut objects = vec![
        namespace("clusters", json!({})),
        namespace("recorded", json!({"hibernate.sh/record-replicas": "true"})),
        namespace("plain", json!({})),
        CLUSTER.object("clusters", "bare", &cluster(&json!({}))),
        CLUSTER.object("clusters", "running", &cluster(&json!({"spec": {"powerState": "Running"}}))),
        CLUSTER.object("clusters", "asleep", &cluster(&json!({"spec": {"powerState": "Hibernating", "hibernateAfter": "8h"}, "metadata": {"annotations": {"hibernate.sh/reason": "weekend", "example.com/x": "1"}}}))),
    ];
    for namespace in ["recorded", "plain", "kube-system"] {
        for kind in [&DEPLOYMENT, &STATEFUL_SET, &CAPI, &MACHINE_CONTROLLER] {
            let mut three = workload(Some(3), false);
            let mut none = workload(Some(0), true);
            let mut absent = workload(None, false);
            let foreign: &[&str] = match kind.2 {
                "Deployment" => &["serviceName", "clusterName"],
                "StatefulSet" => &["clusterName"],
                _ => &[],
            };
            for spec in [&mut three, &mut none, &mut absent].into_iter().filter_map(|o| o["spec"].as_object_mut()) {
                spec.retain(|field, _| !foreign.contains(&field.as_str()));
            }
            objects.push(kind.object(namespace, "three", &three));
            objects.push(kind.object(namespace, "none", &none));
            objects.push(kind.object(namespace, "absent", &absent));
        }
    }
    objects
}

fn writes() -> Vec<Write> {
    let cluster_write = |what, user, name, body, reaches| Write {
        what,
        user,
        kind: &CLUSTER,
        namespace: "clusters",
        name,
        subresource: None,
        body,
        reaches,
    };
    let (update, create) = (
        move |what, name, body, reaches| cluster_write(what, "admin", Some(name), body, reaches),
        move |what, body: Value, reaches| {
            cluster_write(what, "admin", None, CLUSTER.object("clusters", "new", &cluster(&body)), reaches)
        },
    );
    let sleep = json!({"spec": {"powerState": "Hibernating"}});
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let mut writes = vec![
        create("a bare cluster is created", json!({}), &[HIVE]),
        create("a running cluster is created", json!({"spec": {"powerState": "Running"}}), &[HIVE, STAMP]),
        create("a sleeping cluster is created", sleep.clone(), &[INTO_SLEEP, STAMP]),
        update("a bare cluster gets a label", "bare", label.clone(), &[]),
        update(
            "a bare cluster gets an annotation of others",
            "bare",
            json!({"metadata": {"annotations": {"example.com/x": "1"}}}),
            &[],
        ),
        update(
            "a bare cluster gets an annotation of ours",
            "bare",
            json!({"metadata": {"annotations": {"hibernate.sh/protected": "true"}}}),
            &[HIVE],
        ),
        update(
            "a bare cluster is held awake",
            "bare",
            json!({"metadata": {"annotations": {"hibernate.sh/hold-awake-until": "2126-01-01T00:00:00Z"}}}),
            &[HIVE, STAMP],
        ),
        create(
            "a cluster is created that is held awake",
            json!({"metadata": {"annotations": {"hibernate.sh/hold-awake-until": "2126-01-01T00:00:00Z"}}}),
            &[HIVE, STAMP],
        ),
        update("a bare cluster is put to sleep", "bare", sleep.clone(), &[INTO_SLEEP, STAMP]),
        update(
            "a bare cluster is said to be running",
            "bare",
            json!({"spec": {"powerState": "Running"}}),
            &[HIVE, STAMP],
        ),
        update("a bare cluster is said to be empty", "bare", json!({"spec": {"powerState": ""}}), &[]),
        update("a bare cluster gets a deadline", "bare", json!({"spec": {"hibernateAfter": "1h"}}), &[HIVE]),
        update("a bare cluster gets other fields", "bare", json!({"spec": {"installed": true}}), &[]),
        update("a running cluster is put to sleep", "running", sleep.clone(), &[INTO_SLEEP, STAMP]),
        update("a sleeping cluster is put to sleep", "asleep", sleep.clone(), &[]),
        update("a sleeping cluster is woken", "asleep", json!({"spec": {"powerState": "Running"}}), &[HIVE, STAMP]),
        update(
            "a sleeping cluster is woken by removal",
            "asleep",
            json!({"spec": {"powerState": null}}),
            &[HIVE, STAMP],
        ),
        update("a sleeping cluster gets a label", "asleep", label.clone(), &[]),
        update("a sleeping cluster loses its deadline", "asleep", json!({"spec": {"hibernateAfter": null}}), &[HIVE]),
        update(
            "a sleeping cluster loses all annotations",
            "asleep",
            json!({"metadata": {"annotations": null}}),
            &[HIVE],
        ),
        update(
            "a sleeping cluster loses annotations of others",
            "asleep",
            json!({"metadata": {"annotations": {"example.com/x": null}}}),
            &[],
        ),
        update(
            "the controller's own annotation",
            "asleep",
            json!({"metadata": {"annotations": {"hibernate.sh/something-else": "x"}}}),
            &[],
        ),
        Write {
            subresource: Some("status"),
            ..update("status is written", "running", json!({"status": {"powerState": "Hibernating"}}), &[])
        },
        cluster_write("Hive puts a cluster to sleep", "hive-controllers", Some("bare"), sleep.clone(), &[HIVE, STAMP]),
        cluster_write(
            "Hive creates a sleeping cluster",
            "hive-controllers",
            None,
            CLUSTER.object("clusters", "new", &cluster(&sleep)),
            &[HIVE, STAMP],
        ),
        cluster_write("Hive labels a cluster", "hive-controllers", Some("bare"), label, &[]),
    ];
    for kind in [&DEPLOYMENT, &STATEFUL_SET, &CAPI, &MACHINE_CONTROLLER] {
        writes.extend(workload_writes(kind));
    }
    writes
}

fn workload_writes(kind: &'static Kind) -> Vec<Write> {
    let write = move |what, namespace, name, subresource, body, reaches| Write {
        what,
        user: "admin",
        kind,
        namespace,
        name: Some(name),
        subresource,
        body,
        reaches,
    };
    let direct = move |what, name, body, reaches| write(what, "recorded", name, None, body, reaches);
    let scale = move |what, name, replicas: u32, reaches| {
        write(what, "recorded", name, Some("scale"), json!({"spec": {"replicas": replicas}}), reaches)
    };
    let to = |replicas: u32| json!({"spec": {"replicas": replicas}});
    let record = |value: Value| json!({"metadata": {"annotations": {"hibernate.sh/replicas": value}}});
    vec![
        direct("3 to 0", "three", to(0), &[REPLICAS]),
        direct("3 to 5", "three", to(5), &[]),
        direct("0 to 3", "none", to(3), &[REPLICAS]),
        direct("absent to 0", "absent", to(0), &[REPLICAS]),
        direct("absent to 2", "absent", to(2), &[]),
        direct("a rollout", "three", json!({"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}}), &[]),
        direct("a record while awake", "three", record("7".into()), &[]),
        direct("a record while asleep", "none", record("7".into()), &[REPLICAS]),
        direct("no record while asleep", "none", record(Value::Null), &[REPLICAS]),
        direct("a label while asleep", "none", json!({"metadata": {"labels": {"a": "b"}}}), &[]),
        scale("scale 3 to 0", "three", 0, &[REPLICAS]),
        scale("scale 3 to 5", "three", 5, &[]),
        scale("scale 0 to 3", "none", 3, &[REPLICAS]),
        scale("scale 0 to 0", "none", 0, &[]),
        write("elsewhere", "plain", "three", None, to(0), &[]),
        write("scale elsewhere", "plain", "three", Some("scale"), to(0), &[]),
        write("in kube-system, whatever its labels", "kube-system", "three", None, to(0), &[]),
    ]
}

/// What became of a write.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Passed,
    Reached,
}

async fn send(world: &World, write: &Write) -> Result<Fate> {
    let client = world.hub_as(write.user).await?;
    let api: Api<DynamicObject> = Api::namespaced_with(client, write.namespace, &write.kind.resource());
    let (patching, posting) = (
        PatchParams { dry_run: true, ..PatchParams::default() },
        PostParams { dry_run: true, ..PostParams::default() },
    );
    let patch = Patch::Merge(&write.body);
    let answer = match (write.name, write.subresource) {
        (None, _) => api.create(&posting, &serde_json::from_value(write.body.clone())?).await.map(drop),
        (Some(name), None) => api.patch(name, &patching, &patch).await.map(drop),
        (Some(name), Some("scale")) => api.patch_scale(name, &patching, &patch).await.map(drop),
        (Some(name), Some(_)) => api.patch_status(name, &patching, &patch).await.map(drop),
    };
    match answer {
        Ok(()) => Ok(Fate::Passed),
        Err(kube::Error::Api(status)) if status.message.contains("failed calling webhook") => Ok(Fate::Reached),
        Err(error) => Err(error).with_context(|| format!("{} {} {}", write.kind.0, write.kind.2, write.what)),
    }
}

/// Registers one entry alone, under Fail.
fn alone(entry: &str) -> Vec<Value> {
    let mut configurations = manifests::webhook_configurations(&manifests::ClientConfig::Url(NOBODY.to_owned()));
    for configuration in &mut configurations {
        let Some(entries) = configuration["webhooks"].as_array_mut() else { continue };
        entries.retain(|found| found["name"] == entry);
        for found in entries {
            found["failurePolicy"] = "Fail".into();
            found["timeoutSeconds"] = 1.into();
        }
    }
    configurations
}

async fn only(world: &World, entry: &str) -> Result<()> {
    let ran = world
        .kubectl(&[
            "delete",
            "validatingwebhookconfigurations,mutatingwebhookconfigurations",
            "hibernate-webhook",
            "--ignore-not-found",
        ])
        .await?;
    ran.ok()?;
    apply::all(&world.hub().await?, &alone(entry)).await?;
    // A write that this entry must take tells when the API server has noticed.
    let writes = writes();
    let probe = writes.iter().find(|write| write.reaches.contains(&entry)).context("a write for each entry")?;
    eventually(Duration::from_secs(20), entry, async || {
        if send(world, probe).await? == Fate::Reached { Ok(()) } else { bail!("not registered yet") }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_entry_takes_its_writes_and_no_other() -> Result<()> {
    let world = World::up(Options { clusters: 0, timings: Timings::fast(), ..Options::without_programs() }).await?;
    let labelled = world.kubectl(&["label", "namespace", "kube-system", "hibernate.sh/record-replicas=true"]).await?;
    labelled.ok()?;
    apply::all(&world.hub().await?, &stored()).await?;
    let mut wrong = Vec::new();
    for entry in [INTO_SLEEP, HIVE, STAMP, REPLICAS] {
        only(&world, entry).await?;
        for write in writes() {
            let expected = if write.reaches.contains(&entry) { Fate::Reached } else { Fate::Passed };
            let found = send(&world, &write).await?;
            if found != expected {
                wrong.push(format!("{entry}: {} {}: {found:?}", write.kind.0, write.what));
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    for write in writes().iter().filter(|write| write.kind.2 == CLUSTER.2) {
        ensure!(
            !(write.reaches.contains(&INTO_SLEEP) && write.reaches.contains(&HIVE)),
            "{} is judged twice",
            write.what
        );
    }
    Ok(())
}
