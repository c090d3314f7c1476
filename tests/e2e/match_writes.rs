//! Writes, each with the entries of the webhook configurations that it must reach, and what is there before.

pub mod fdb;
pub mod kkp;
pub mod rollouts;

use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

pub const INTO_SLEEP: &str = "into-sleep.hibernate.sh";
pub const HIVE: &str = "hive.hibernate.sh";
const STAMP: &str = "stamp.hibernate.sh";
const REPLICAS: &str = "replicas.hibernate.sh";
const SUSPEND: &str = "suspend.hibernate.sh";
const FDB: &str = "fdb.hibernate.sh";

/// A write, and the entries that it must reach.
pub struct Write {
    pub what: &'static str,
    pub user: &'static str,
    pub kind: &'static Kind,
    /// Empty for a kind without namespaces.
    pub namespace: &'static str,
    pub verb: Verb,
    pub reaches: &'static [&'static str],
}

/// What is done: to which object, with which patch.
pub enum Verb {
    Create(Value),
    Patch(&'static str, Value),
    PatchScale(&'static str, Value),
    PatchStatus(&'static str, Value),
    Delete(&'static str),
    /// What has these labels.
    DeleteCollection(&'static str),
}

/// Group, version, kind.
pub struct Kind(pub &'static str, pub &'static str, pub &'static str);

const CLUSTER: Kind = Kind("hive.openshift.io", "v1", "ClusterDeployment");
const DEPLOYMENT: Kind = Kind("apps", "v1", "Deployment");
const STATEFUL_SET: Kind = Kind("apps", "v1", "StatefulSet");
const CAPI: Kind = Kind("cluster.x-k8s.io", "v1beta1", "MachineDeployment");
const MACHINE_CONTROLLER: Kind = Kind("cluster.k8s.io", "v1alpha1", "MachineDeployment");

impl Kind {
    pub fn resource(&self) -> ApiResource {
        ApiResource::from_gvk(&GroupVersionKind::gvk(self.0, self.1, self.2))
    }

    fn object(&self, namespace: &str, name: &str, fields: &Value) -> Value {
        let api_version = format!("{}/{}", self.0, self.1);
        let api_version = api_version.trim_start_matches('/');
        let mut object =
            json!({"apiVersion": api_version, "kind": self.2, "metadata": {"name": name, "namespace": namespace}});
        merge(&mut object, fields);
        object
    }
}

pub fn merge(into: &mut Value, from: &Value) {
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
pub fn stored() -> Vec<Value> {
    let namespace = |name: &str, labels: Value| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    let mut objects = vec![
        namespace("clusters", json!({})),
        namespace("recorded", json!({"hibernate.sh/record-replicas": "true"})),
        namespace("plain", json!({})),
        CLUSTER.object("clusters", "bare", &cluster(&json!({}))),
        CLUSTER.object("clusters", "running", &cluster(&json!({"spec": {"powerState": "Running"}}))),
        CLUSTER.object("clusters", "asleep", &cluster(&json!({"spec": {"powerState": "Hibernating", "hibernateAfter": "8h"}, "metadata": {"annotations": {"hibernate.sh/reason": "weekend", "example.com/x": "1"}}}))),
        CLUSTER.object("clusters", "stamped", &cluster(&json!({"spec": {"powerState": "Hibernating"}, "metadata": {"annotations": {"hibernate.sh/requested-by": "bob", "hibernate.sh/rollout": "{}"}}}))),
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
    objects.extend(fdb::stored());
    objects.extend(kkp::stored());
    objects.extend(rollouts::stored());
    objects
}

/// All of them.
pub fn writes() -> Vec<Write> {
    let cluster_write =
        |what, user, verb, reaches| Write { what, user, kind: &CLUSTER, namespace: "clusters", verb, reaches };
    let (update, create) = (
        move |what, name, body, reaches| cluster_write(what, "admin", Verb::Patch(name, body), reaches),
        move |what, body: Value, reaches| {
            cluster_write(what, "admin", Verb::Create(CLUSTER.object("clusters", "new", &cluster(&body))), reaches)
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
        update(
            "a bare cluster gets a claim",
            "bare",
            json!({"metadata": {"annotations": {"hibernate.sh/rollout": "{}"}}}),
            &[HIVE],
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
        update(
            "a sleeping cluster loses its stamp",
            "stamped",
            json!({"metadata": {"annotations": {"hibernate.sh/requested-by": null}}}),
            &[HIVE, STAMP],
        ),
        update(
            "a sleeping cluster gets another stamp",
            "stamped",
            json!({"metadata": {"annotations": {"hibernate.sh/requested-by": "mallory"}}}),
            &[HIVE],
        ),
        update(
            "a claim is dropped",
            "stamped",
            json!({"metadata": {"annotations": {"hibernate.sh/rollout": null}}}),
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
        cluster_write(
            "status is written",
            "admin",
            Verb::PatchStatus("running", json!({"status": {"powerState": "Hibernating"}})),
            &[],
        ),
        cluster_write(
            "Hive puts a cluster to sleep",
            "hive-controllers",
            Verb::Patch("bare", sleep.clone()),
            &[HIVE, STAMP],
        ),
        cluster_write(
            "Hive creates a sleeping cluster",
            "hive-controllers",
            Verb::Create(CLUSTER.object("clusters", "new", &cluster(&sleep))),
            &[HIVE, STAMP],
        ),
        cluster_write("Hive labels a cluster", "hive-controllers", Verb::Patch("bare", label), &[]),
    ];
    for kind in [&DEPLOYMENT, &STATEFUL_SET, &CAPI, &MACHINE_CONTROLLER] {
        writes.extend(workload_writes(kind));
    }
    writes.extend(fdb::writes());
    writes.extend(kkp::writes());
    writes.extend(rollouts::writes());
    writes
}

fn workload_writes(kind: &'static Kind) -> Vec<Write> {
    let write = move |what, namespace, verb, reaches| Write { what, user: "admin", kind, namespace, verb, reaches };
    let direct = move |what, name, body, reaches| write(what, "recorded", Verb::Patch(name, body), reaches);
    let scale = move |what, name, replicas: u32, reaches| {
        write(what, "recorded", Verb::PatchScale(name, json!({"spec": {"replicas": replicas}})), reaches)
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
        write("elsewhere", "plain", Verb::Patch("three", to(0)), &[]),
        write("scale elsewhere", "plain", Verb::PatchScale("three", to(0)), &[]),
        write("in kube-system, whatever its labels", "kube-system", Verb::Patch("three", to(0)), &[]),
    ]
}
