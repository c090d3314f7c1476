//! The table, row by row.

mod advice;

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::admission::testing::stored;
use crate::admission::{Change, Settings, UnreadFields, User};
use crate::fdb::api::FoundationDBCluster;
use crate::fdb::suspension::Suspension;
use crate::record::Format;

const REMOVAL: &str = "2026-11-21T17:59:58Z";
const ID: &str = "storage-1";

/// The cluster `db/prod`, uid `u1`, with `storage-1` marked for removal.
fn cluster() -> Value {
    json!({
        "metadata": {"name": "prod", "namespace": "db", "uid": "u1", "resourceVersion": "7",
            "annotations": {"hibernate.sh/minimum-suspension": "2h"}},
        "spec": {"version": "7.3.69", "routing": {"publicIPSource": "service"}},
        "status": {"processGroups": [
            {"processGroupID": ID, "processClass": "storage", "removalTimestamp": REMOVAL},
            {"processGroupID": "storage-2", "processClass": "storage"},
        ]},
    })
}

fn object(annotations: &Value) -> Value {
    json!({"metadata": {
        "name": "prod-storage-1-data", "namespace": "db", "uid": "p-1", "annotations": annotations,
        "labels": {"foundationdb.org/fdb-process-group-id": ID, "foundationdb.org/fdb-process-class": "storage"},
        "ownerReferences": [{"apiVersion": "apps.foundationdb.org/v1beta2", "kind": "FoundationDBCluster",
            "name": "prod", "uid": "u1", "controller": true}],
    }})
}

fn record(removal: Option<&str>, why: &str) -> String {
    json!({"v": 1, "uid": "p-1", "group": ID, "removal": removal, "minimum": "2h", "class": "storage", "why": why})
        .to_string()
}

fn stamped(more: &[(&str, &str)], record: &str) -> Value {
    let mut annotations =
        json!({"hibernate.sh/suspended-at": "2026-11-21T18:00:00Z", "hibernate.sh/suspension": record});
    for (key, value) in more {
        annotations[*key] = json!(value);
    }
    object(&annotations)
}

fn with(mut value: Value, pointer: &str, new: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    value.pointer_mut(parent).unwrap()[key] = new;
    value
}

fn clusters(cluster: &Value) -> HashMap<String, Cluster> {
    let cluster: FoundationDBCluster = serde_json::from_value(cluster.clone()).unwrap();
    [("u1".to_owned(), Cluster::of(&cluster, Duration::ZERO))].into()
}

fn deleted(object: &Value) -> Deleted {
    let (deleted, unread) = stored::<Deleted>(object);
    Deleted { unread, ..deleted.unwrap() }
}

fn row(kind: Kind, object: &Value, cluster: &Value) -> (bool, &'static str) {
    let object = self::deleted(object);
    match judge(kind, &object, &CacheState::Fresh(&clusters(cluster))) {
        Verdict::Allow(row) => (true, row),
        Verdict::Deny(row, _) => (false, row),
    }
}

#[test]
fn the_table() {
    use Kind::{Pvc, Service};
    let plain = || object(&json!({}));
    let note = |key: &str, value: &str| object(&json!({ key: value }));
    let owner = |field: &str, value: &str| with(plain(), &format!("/metadata/ownerReferences/0/{field}"), json!(value));
    let at = ("hibernate.sh/released-at", "2026-11-21T20:00:00Z");
    let key = ("hibernate.sh/release", "p-1");
    let operator = || record(Some(REMOVAL), "operator");
    let recovery = || record(Some(REMOVAL), "recovery");
    let held = || stamped(&[], &operator());
    let released = || stamped(&[at], &operator());
    let minimum = |notes: Value| with(cluster(), "/metadata/annotations", notes);
    let off = || minimum(json!({}));
    let groups = |pointer: &str, value: Value| with(cluster(), &format!("/status/processGroups{pointer}"), value);
    let unmarked = || groups("/0/removalTimestamp", Value::Null);
    let forgotten = || groups("", json!([]));
    let marked_again = groups("/0/removalTimestamp", json!("2026-11-21T19:59:58Z"));
    let deleted = |object: Value| with(object, "/metadata/deletionTimestamp", json!("2026-11-21T18:00:00Z"));
    let bare = || with(plain(), "/metadata/labels", Value::Null);
    let unnamed = Suspension { uid: String::new(), ..Suspension::read(&operator()).unwrap() }.text();
    let class = |class: &str| {
        let labels =
            json!({"foundationdb.org/fdb-process-group-id": "x-1", "foundationdb.org/fdb-process-class": class});
        with(plain(), "/metadata/labels", labels)
    };
    let own_labels = json!({"processGroupIDLabels": ["id"], "processClassLabels": ["class"]});
    let own_labels = || with(cluster(), "/spec/labels", own_labels.clone());
    let labeled = |class: &str| with(plain(), "/metadata/labels", json!({"id": ID, "class": class}));
    let by_pod = || with(cluster(), "/spec/routing", json!({"publicIPSource": "pod"}));
    let uid = |uid: Value| with(held(), "/metadata/uid", uid);
    for (name, kind, object, cluster, expected) in [
        ("no owner", Pvc, with(plain(), "/metadata/ownerReferences", Value::Null), cluster(), (true, "S1")),
        ("another's kind", Pvc, owner("apiVersion", "example.com/v1"), cluster(), (true, "S1")),
        ("any version", Pvc, owner("apiVersion", "apps.foundationdb.org/v1"), cluster(), (false, "S14")),
        ("terminating", Pvc, deleted(plain()), cluster(), (true, "S2")),
        ("the key", Pvc, note(key.0, "p-1"), cluster(), (true, "S3")),
        ("the key to another object", Pvc, note(key.0, "p-2"), cluster(), (false, "S14")),
        ("no key", Pvc, note(key.0, "yes"), cluster(), (false, "S14")),
        ("the key during the window", Pvc, stamped(&[key], &operator()), cluster(), (true, "S3")),
        ("owner gone", Pvc, owner("uid", "u0"), cluster(), (true, "S5")),
        (
            "owner gone, stamped",
            Pvc,
            with(stamped(&[], "{}"), "/metadata/ownerReferences/0/uid", json!("u0")),
            cluster(),
            (true, "S5"),
        ),
        ("owner being deleted", Pvc, plain(), deleted(cluster()), (true, "S6")),
        ("off", Pvc, plain(), off(), (true, "S7")),
        ("off, as 0", Pvc, plain(), minimum(json!({"hibernate.sh/minimum-suspension": "0"})), (true, "S7")),
        ("off, but held", Pvc, held(), off(), (false, "S13")),
        ("off, but unreadably held", Pvc, stamped(&[], "?"), off(), (false, "S13")),
        ("off, but held, for whom is unknown", Pvc, stamped(&[], &unnamed), off(), (false, "S13")),
        ("off, but held, its own UID is unknown", Pvc, uid(json!("")), off(), (false, "S13")),
        ("off, but held, its own UID is unreadable", Pvc, uid(json!(7)), off(), (false, UNREADABLE)),
        ("Service of the cluster", Service, bare(), cluster(), (true, "S8")),
        ("PVC without labels", Pvc, bare(), cluster(), (false, "S14")),
        ("Service of a stateless class", Service, class("cluster_controller"), cluster(), (true, "S8")),
        ("Service of a log", Service, class("log"), cluster(), (false, "S14")),
        ("PVC of a stateless class", Pvc, class("stateless"), cluster(), (false, "S14")),
        ("own label names", Service, labeled("stateless"), own_labels(), (true, "S8")),
        ("own label names", Service, labeled("storage"), own_labels(), (false, "S14")),
        ("Services are not wanted", Service, plain(), by_pod(), (true, "S9")),
        ("Services are not wanted", Pvc, plain(), by_pod(), (false, "S14")),
        ("Service", Service, plain(), cluster(), (false, "S14")),
        ("recovering", Pvc, stamped(&[], &recovery()), cluster(), (false, "S10")),
        ("recovering, once released", Pvc, stamped(&[at], &recovery()), cluster(), (false, "S10")),
        ("released", Pvc, released(), cluster(), (true, "S11")),
        ("released, Service", Service, released(), cluster(), (true, "S11")),
        ("released, off by now", Pvc, released(), off(), (true, "S11")),
        ("released, the group is forgotten", Pvc, released(), forgotten(), (true, "S11")),
        ("released, marked again since", Pvc, released(), marked_again, (false, "S12")),
        ("released, not marked", Pvc, released(), unmarked(), (false, "S12")),
        ("released for no removal", Pvc, stamped(&[at], &record(None, "operator")), unmarked(), (false, "S12")),
        ("released without a record", Pvc, note(at.0, at.1), cluster(), (false, "S13")),
        ("of another group", Pvc, stamped(&[at], &operator().replace(ID, "storage-9")), cluster(), (false, "S13")),
        ("held", Pvc, held(), cluster(), (false, "S13")),
        ("held, the group is forgotten", Pvc, held(), forgotten(), (false, "S13")),
        ("not stamped", Pvc, plain(), cluster(), (false, "S14")),
        ("not stamped, not marked", Pvc, plain(), unmarked(), (false, "S14")),
        (
            "unreadable minimum",
            Pvc,
            plain(),
            minimum(json!({"hibernate.sh/minimum-suspension": "2 hours"})),
            (false, "S14"),
        ),
    ] {
        assert_eq!(row(kind, &object, &cluster), expected, "{name}");
    }
}

fn message(object: &Value, cache: &CacheState<'_>) -> String {
    let evaluation = judge_deletion(Kind::Pvc, &serde_json::from_value(object.clone()).unwrap(), cache);
    evaluation.denials[0].detail.message.clone()
}

#[test]
fn a_denial_names_the_group_since_until_and_the_ways_out() {
    let known = clusters(&cluster());
    let detail = message(&stamped(&[], &record(Some(REMOVAL), "operator")), &CacheState::Fresh(&known));
    assert_eq!(
        detail,
        "process group storage-1 of FoundationDBCluster db/prod has been suspended since 2026-11-21T18:00:00Z, until \
         2026-11-21T20:00:00Z at least; to bring the group back: kubectl fdb recover process-groups -n db -c prod storage-1 \
         (or kubectl hibernate recover process-groups); to delete it anyway: kubectl annotate pvc prod-storage-1-data \
         -n db hibernate.sh/release=p-1 --overwrite"
    );
    let detail = message(&object(&json!({})), &CacheState::Fresh(&known));
    assert!(detail.contains("the controller releases them 2h0m0s after the deletion of the group's Pod"), "{detail}");
    let detail = message(&stamped(&[], &record(Some(REMOVAL), "recovery")), &CacheState::Fresh(&known));
    let again = "if there is no progress: kubectl hibernate recover process-groups -n db -c prod storage-1; ";
    assert!(detail.contains(again), "{detail}");
    let detail = message(&stamped(&[], "?"), &CacheState::Fresh(&known));
    assert!(detail.contains("since 2026-11-21T18:00:00Z, until 2026-11-21T20:00:00Z"), "{detail}");
}

#[test]
fn what_is_in_use_is_removed_by_the_operator_and_not_with_the_key() {
    let known = clusters(&with(cluster(), "/status/processGroups/0/removalTimestamp", Value::Null));
    let detail = message(&object(&json!({})), &CacheState::Fresh(&known));
    assert_eq!(
        detail,
        "process group storage-1 of FoundationDBCluster db/prod is not marked for removal: this volume is in use \
         and not released; to remove the group: kubectl fdb remove process-groups -n db -c prod prod-storage-1 (or \
         add storage-1 to spec.processGroupsToRemove); only to delete a volume that is in use: kubectl annotate pvc \
         prod-storage-1-data -n db hibernate.sh/release=p-1 --overwrite"
    );
    let at = [("hibernate.sh/released-at", "2026-11-21T20:00:00Z")];
    let detail = message(&stamped(&at, &record(Some(REMOVAL), "operator")), &CacheState::Fresh(&known));
    assert!(
        detail.contains("but the group is not marked for removal") && detail.contains("to remove the group"),
        "{detail}"
    );
    assert!(!detail.contains("recover"), "{detail}");
    let service = with(object(&json!({})), "/metadata/name", json!("prod-storage-1"));
    let service: Deleted = serde_json::from_value(service).unwrap();
    let detail = judge_deletion(Kind::Service, &service, &CacheState::Fresh(&known)).denials[0].detail.message.clone();
    assert!(detail.contains("this Service is in use") && detail.contains("-c prod prod-storage-1 (or"), "{detail}");
    let unknown = clusters(&with(cluster(), "/status/processGroups", json!([])));
    let detail = message(&object(&json!({})), &CacheState::Fresh(&unknown));
    assert!(detail.contains("is not released: volume and Service of a removed group are kept"), "{detail}");
}

#[test]
fn s4_while_nothing_is_known_everything_in_scope_stays() {
    let detail = message(&object(&json!({})), &CacheState::Stale("FoundationDBClusters are not defined here"));
    assert!(
        detail.contains("FoundationDBCluster prod") && detail.contains("FoundationDBClusters are not defined here")
    );
    let stale = CacheState::Stale("x");
    let judged = |object: &Value| judge(Kind::Pvc, &serde_json::from_value(object.clone()).unwrap(), &stale);
    assert_eq!(judged(&object(&json!({"hibernate.sh/release": "p-1"}))), Verdict::Allow("S3"));
    assert!(matches!(judged(&object(&json!({}))), Verdict::Deny("S4", _)));
}

#[test]
fn bad_minimums_are_refused_when_they_are_written() {
    let annotated = |value: Option<&str>| Annotated {
        metadata: crate::admission::Meta {
            annotations: value.iter().map(|value| (keys::MINIMUM_SUSPENSION, *value)).collect(),
            ..crate::admission::Meta::default()
        },
    };
    for (old, new, denials, warnings) in [
        (None, Some("2h"), 0, 0),
        (None, Some("0"), 0, 0),
        (None, Some("2 hours"), 1, 0),
        (None, Some("-2h"), 1, 0),
        (Some("2h"), Some(""), 1, 0),
        (Some("2 hours"), Some("2 hours"), 0, 0),
        (Some("2 hours"), Some("2h"), 0, 0),
        (Some("2h"), Some("1h"), 0, 1),
        (Some("2h"), Some("0"), 0, 1),
        (Some("2h"), None, 0, 1),
        (Some("2h"), Some("3h"), 0, 0),
    ] {
        let evaluation = judge_cluster(&Change {
            old: Some(annotated(old)),
            new: annotated(new),
            user: &User::default(),
            field_manager: "",
            now: jiff::Timestamp::UNIX_EPOCH,
            settings: &Settings::default(),
            unread: UnreadFields::default(),
        });
        assert_eq!((evaluation.denials.len(), evaluation.warnings.len()), (denials, warnings), "{old:?} to {new:?}");
    }
}

proptest! {
    /// Whatever stands on a volume of a live cluster with suspension on: without a key or a release of this removal it
    /// stays.
    #[test]
    fn nothing_goes_without_a_release_of_this_removal(
        at in proptest::option::of(".{0,25}"),
        record in proptest::option::of(prop_oneof![".{0,30}", Just(record(Some("2026-11-20T00:00:00Z"), "operator"))]),
        released in proptest::option::of("(2026-11-21T20:00:00Z|.{0,20})"),
    ) {
        let pairs = [("hibernate.sh/suspended-at", at), ("hibernate.sh/suspension", record), ("hibernate.sh/released-at", released)];
        let annotations: serde_json::Map<_, _> = pairs.into_iter().filter_map(|(k, v)| Some((k.to_owned(), json!(v?)))).collect();
        let (allowed, row) = row(Kind::Pvc, &object(&json!(annotations)), &cluster());
        prop_assert!(!allowed, "{row}");
    }
}
