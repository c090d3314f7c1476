//! What guards the volumes of `FoundationDBClusters`: their PVCs and Services, by owner, one by one and in collections.

use serde_json::{Value, json};

use super::{FDB, Kind, SUSPEND, Verb, Write};

pub const CLUSTER: Kind = Kind("apps.foundationdb.org", "v1beta2", "FoundationDBCluster");
const PVC: Kind = Kind("", "v1", "PersistentVolumeClaim");
const SERVICE: Kind = Kind("", "v1", "Service");
const CONFIG_MAP: Kind = Kind("", "v1", "ConfigMap");

pub const NAMESPACE: &str = "databases";

/// Names of objects that the entry takes start with this.
const TAKEN: &str = "owned";

/// Owner references by the name of the object that has them. The garbage collector deletes what has an owner of a kind
/// that it knows and does not find, so the one of a known kind exists: the cluster of this uid.
fn owners(uid: &str) -> [(&'static str, Value); 5] {
    let owner =
        |api_version: &str, kind: &str| json!({"apiVersion": api_version, "kind": kind, "name": "kept", "uid": uid});
    let later = owner("apps.foundationdb.org/v1beta9", "FoundationDBCluster");
    [
        ("nobodys", Value::Null),
        ("owned", json!([owner("apps.foundationdb.org/v1beta2", "FoundationDBCluster")])),
        (
            "owned-by-two",
            json!([{"apiVersion": "example.com/v1", "kind": "Owner", "name": "first", "uid": "other"}, later]),
        ),
        ("of-another-kind", json!([owner("apps.foundationdb.org/v1beta2", "FoundationDBOther")])),
        ("of-another-group", json!([owner("example.com/v1", "FoundationDBCluster")])),
    ]
}

/// Clusters, and where they are.
pub fn stored() -> Vec<Value> {
    let annotations = json!({"hibernate.sh/minimum-suspension": "2h", "example.com/x": "1"});
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        CLUSTER.object(NAMESPACE, "plain", &json!({"spec": {"version": "7.3.69"}})),
        CLUSTER.object(
            NAMESPACE,
            "kept",
            &json!({"metadata": {"annotations": annotations}, "spec": {"version": "7.3.69"}}),
        ),
    ]
}

/// What belongs to the stored cluster `kept`, which has this uid, and what does not.
pub fn owned(uid: &str) -> Vec<Value> {
    let storage = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let of = |(name, owners): (&str, Value)| {
        let metadata = json!({"ownerReferences": owners, "labels": {"name": name}});
        [
            PVC.object(NAMESPACE, name, &json!({"metadata": metadata, "spec": storage})),
            SERVICE.object(NAMESPACE, name, &json!({"metadata": metadata, "spec": {"ports": [{"port": 4500}]}})),
            CONFIG_MAP.object(NAMESPACE, name, &json!({"metadata": metadata})),
        ]
    };
    owners(uid).into_iter().flat_map(of).collect()
}

/// What is done with them.
pub fn writes() -> Vec<Write> {
    let write = |what, kind, verb, reaches| Write { what, user: "admin", kind, namespace: NAMESPACE, verb, reaches };
    let marked = |value: Value| json!({"metadata": {"annotations": {"hibernate.sh/minimum-suspension": value}}});
    let labeled = || json!({"metadata": {"labels": {"a": "b"}}});
    let created = |fields| CLUSTER.object(NAMESPACE, "new", &fields);
    let mut writes = vec![
        write("a cluster is created", &CLUSTER, Verb::Create(created(json!({"spec": {"version": "7.3.69"}}))), &[]),
        write(
            "a cluster is created with suspension on",
            &CLUSTER,
            Verb::Create(created(json!({"metadata": marked("2h".into())["metadata"], "spec": {"version": "7.3.69"}}))),
            &[FDB],
        ),
        write("suspension is switched on", &CLUSTER, Verb::Patch("plain", marked("2h".into())), &[FDB]),
        write("suspension is changed", &CLUSTER, Verb::Patch("kept", marked("1h".into())), &[FDB]),
        write("suspension is switched off", &CLUSTER, Verb::Patch("kept", marked(Value::Null)), &[FDB]),
        write("suspension stays as it is", &CLUSTER, Verb::Patch("kept", labeled()), &[]),
        write("all annotations go", &CLUSTER, Verb::Patch("kept", json!({"metadata": {"annotations": null}})), &[FDB]),
        write(
            "the operator writes its status",
            &CLUSTER,
            Verb::PatchStatus("kept", json!({"status": {"generations": {"reconciled": 1}}})),
            &[],
        ),
        write("a cluster is deleted", &CLUSTER, Verb::Delete("kept"), &[]),
        write("a volume is changed", &PVC, Verb::Patch("owned", labeled()), &[]),
    ];
    for (kind, guarded) in [(&PVC, true), (&SERVICE, true), (&CONFIG_MAP, false)] {
        let reached = |owned: bool| -> &'static [&'static str] { if guarded && owned { &[SUSPEND] } else { &[] } };
        for (name, _) in owners("") {
            writes.push(write(name, kind, Verb::Delete(name), reached(name.starts_with(TAKEN))));
        }
        writes.extend([
            write(
                "a collection with owned ones",
                kind,
                Verb::DeleteCollection("name in (nobodys,owned)"),
                reached(true),
            ),
            write("a collection without", kind, Verb::DeleteCollection("name in (nobodys,of-another-kind)"), &[]),
        ]);
    }
    writes
}
