//! What an edge does with each workload, row by row.

use super::*;
use crate::annotation::keys;
use crate::kinds::operators::objects::OperatorObject;
use crate::kinds::operators::{CNPG, SCALED_OBJECT};
use crate::kinds::owners::Owners;
use crate::kinds::workload::{DEPLOYMENT, STATEFUL_SET};
use crate::kinds::{CRON_JOB, TargetKind};
use crate::power::Power::{Hibernating, Running};
use crate::rollout::NamespaceLabels;
use crate::schedule::api::{ClusterPowerSchedule, PowerSchedule};
use crate::schedule::governs::{Governor, Governors};
use crate::schedule::workloads::{
    Asked, CronJobObject, DeploymentObject, Outcome, StatefulSetObject, Step, Tally, Workload, left, step,
};

const EDGE: &str = "2026-11-27T17:00:00Z";

/// A workload from before the edge, with these fields.
fn workload(fields: &Value) -> Value {
    let mut object = json!({
        "metadata": { "name": "web", "resourceVersion": "7", "creationTimestamp": "2026-11-01T00:00:00Z" },
        "spec": { "replicas": 3 },
    });
    json_patch::merge(&mut object, fields);
    object
}

fn noted(key: &str, value: &str) -> Value {
    json!({ "metadata": { "annotations": { key: value } } })
}

/// Asleep, with this record.
fn asleep(record: &str) -> Value {
    let mut fields = noted(keys::REPLICAS, record);
    json_patch::merge(&mut fields, &json!({ "spec": { "replicas": 0 } }));
    fields
}

/// Its replicas are of this manager since a time of the day of the edge.
fn owned(manager: &str, time: &str) -> Value {
    let fields = json!({ "f:spec": { "f:replicas": {}, "f:suspend": {} } });
    let entry = json!({
        "manager": manager, "operation": "Update", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
        "time": format!("2026-11-27T{time}Z"), "fieldsV1": fields,
    });
    json!({ "metadata": { "managedFields": [entry] } })
}

/// Put to sleep at this time of the day of the edge, and scaled by `kubectl scale` since.
fn scaled(time: &str, is_named: bool) -> Value {
    let record = json!({ "f:metadata": { "f:annotations": { "f:hibernate.sh/replicas": {} } } });
    let ours = json!({ "manager": keys::CONTROLLER, "time": format!("2026-11-27T{time}Z"), "fieldsV1": record });
    let scale = json!({ "manager": "kubectl", "subresource": "scale", "fieldsV1": { "f:spec": { "f:replicas": {} } } });
    let entries = if is_named { json!([scale, ours]) } else { json!([ours]) };
    json!({ "metadata": { "managedFields": entries } })
}

/// As the controller reads it: what has no field in a reader does not count.
fn seen(row: &TargetKind, object: &Value, power: Power) -> String {
    let value = match row.kind.kind {
        "Deployment" => serde_json::from_value::<DeploymentObject>(object.clone()).unwrap().value(),
        "StatefulSet" => serde_json::from_value::<StatefulSetObject>(object.clone()).unwrap().value(),
        _ => serde_json::from_value::<CronJobObject>(object.clone()).unwrap().value(),
    };
    outcome(row, &value, power, &Owners::default())
}

fn outcome(row: &TargetKind, value: &Value, power: Power, owners: &Owners) -> String {
    match step(row, value, &Asked { power, at: at(EDGE), reason: "schedule night: awake" }, owners) {
        Step::NotOurs => "-".to_owned(),
        Step::Ended(Outcome::Done) => "done".to_owned(),
        Step::Ended(Outcome::Left(why)) => format!("left: {why}"),
        Step::Ended(Outcome::Failed(why)) => format!("failed: {why}"),
        Step::Write(patch) => {
            assert_eq!(patch["metadata"]["resourceVersion"], "7");
            format!("{} {}", patch["spec"], patch["metadata"]["annotations"])
        }
    }
}

#[test]
fn an_operators_object_is_written_and_what_it_scales_is_left_to_it() {
    let scaled = json!({ "metadata": { "uid": "s" }, "spec": { "scaleTargetRef": { "name": "web" } } });
    let owners = Owners::of([(&SCALED_OBJECT, &scaled)]);
    let web = workload(&json!({}));
    assert_eq!(outcome(&DEPLOYMENT, &web, Hibernating, &owners), "-", "E8");
    assert!(outcome(&STATEFUL_SET, &web, Hibernating, &owners).starts_with(r#"{"replicas":0}"#));
    let recorded = merged(&web, &asleep("2"));
    assert!(
        outcome(&DEPLOYMENT, &recorded, Running, &owners).starts_with(r#"{"replicas":2}"#),
        "a wake leaves no record"
    );
    let owner = json!({ "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "one", "uid": "s", "controller": true });
    let owned = workload(&json!({ "metadata": { "name": "other", "ownerReferences": [owner] } }));
    assert_eq!(outcome(&STATEFUL_SET, &owned, Hibernating, &owners), "-", "E8");

    let database = workload(&json!({ "spec": { "replicas": null, "instances": 3 } }));
    let database = serde_json::from_value::<OperatorObject<0>>(database).unwrap().value();
    let none = Owners::default();
    let written = outcome(&CNPG, &database, Hibernating, &none);
    assert!(written.contains(r#""cnpg.io/hibernation":"on""#), "E7: {written}");
    let mut changed = database.clone();
    changed["metadata"]["managedFields"] = json!([{
        "manager": "kubectl-cnpg", "time": "2026-11-27T17:00:01Z",
        "fieldsV1": { "f:metadata": { "f:annotations": { "f:cnpg.io/hibernation": {} } } },
    }]);
    let left = outcome(&CNPG, &changed, Hibernating, &none);
    assert!(left.starts_with("left: kubectl-cnpg has changed it at 2026-11-27T17:00:01Z"), "E4: {left}");
}

#[test]
fn each_workload_is_written_left_or_failed() {
    let young = json!({ "metadata": { "creationTimestamp": "2026-11-27T17:00:01Z" } });
    let deleted = json!({ "metadata": { "deletionTimestamp": "2026-11-27T16:00:00Z" } });
    let of_operator = json!({ "metadata": { "ownerReferences": [
        { "apiVersion": "example.com/v1", "kind": "Shop", "name": "one", "uid": "u", "controller": true },
    ] } });
    let owner = json!({ "metadata": { "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "one", "uid": "u" }] } });
    let deletes = json!({ "spec": { "persistentVolumeClaimRetentionPolicy": { "whenScaled": "Delete" } } });
    let job = |suspend: bool| json!({ "spec": { "replicas": null, "suspend": suspend } });
    let mut slept = job(true);
    json_patch::merge(&mut slept, &noted(keys::CRON_JOB_SUSPEND, "false"));
    let sleep = r#"{"replicas":0} {"hibernate.sh/reason":"schedule night: awake","hibernate.sh/replicas":"3"}"#;
    let suspend =
        r#"{"suspend":true} {"hibernate.sh/cronjob-suspend":"false","hibernate.sh/reason":"schedule night: awake"}"#;
    let (deployment, set, cron_job) = (&DEPLOYMENT, &STATEFUL_SET, &CRON_JOB);
    for (what, row, fields, power, expected) in [
        ("E1", deployment, young, Hibernating, "-"),
        ("E1", deployment, deleted, Hibernating, "-"),
        ("E2", set, of_operator.clone(), Hibernating, "left: Shop one owns it"),
        ("E2 wakes", set, merged(&of_operator, &asleep("2")), Running, r#"{"replicas":2}"#),
        ("E2 others", set, owner, Hibernating, sleep),
        ("E3", deployment, noted(keys::PROTECTED, "true"), Hibernating, "left: it is protected"),
        ("E3", set, deletes, Hibernating, "left: its persistentVolumeClaimRetentionPolicy.whenScaled is Delete"),
        (
            "E4",
            deployment,
            owned("kubectl", "17:00:01"),
            Hibernating,
            "left: kubectl has changed it at 2026-11-27T17:00:01Z",
        ),
        ("E4 before", deployment, owned("kubectl", "17:00:00"), Hibernating, sleep),
        ("E4 ours", deployment, owned(keys::CONTROLLER, "17:00:09"), Hibernating, sleep),
        ("E4 scaled", deployment, owned("kube-controller-manager", "17:00:09"), Hibernating, sleep),
        ("E4", deployment, scaled("17:00:05", true), Hibernating, "left: kubectl has changed it after this edge"),
        ("E4", deployment, scaled("17:00:05", false), Hibernating, "left: another client has changed it after this"),
        ("E4 an older record", deployment, scaled("16:59:59", true), Hibernating, sleep),
        (
            "E4 sleeps",
            deployment,
            merged(&asleep("2"), &owned(keys::PLUGIN, "17:00:09")),
            Running,
            "left: kubectl-hibernate",
        ),
        ("E5", deployment, asleep("many"), Running, "failed: annotation hibernate.sh/replicas is \"many\""),
        ("E6", deployment, asleep("3"), Hibernating, "done"),
        ("E6", deployment, json!({}), Running, "done"),
        ("E6 idle", deployment, json!({ "spec": { "replicas": 0 } }), Running, "done"),
        ("E6 even so", deployment, merged(&asleep("3"), &owned("kubectl", "17:00:09")), Hibernating, "done"),
        ("E7", deployment, json!({}), Hibernating, sleep),
        ("E7", set, asleep("2"), Running, r#"{"replicas":2} {"hibernate.sh/replicas":null}"#),
        ("E7", cron_job, job(false), Hibernating, suspend),
        ("E7", cron_job, slept, Running, r#"{"suspend":false} {"hibernate.sh/cronjob-suspend":null}"#),
    ] {
        let found = seen(row, &workload(&fields), power);
        assert!(found.starts_with(expected), "{what} {fields}: {found}");
    }
}

fn merged(one: &Value, other: &Value) -> Value {
    let mut all = one.clone();
    json_patch::merge(&mut all, other);
    all
}

#[test]
fn the_namespaces_of_control_planes_are_left() {
    for name in ["kube-system", "hibernate-system", "hive", "cluster-abc"] {
        assert!(left(name).is_some(), "{name}");
    }
    for name in ["shop", "default", "my-cluster-abc"] {
        assert_eq!(left(name), None, "{name}");
    }
}

#[test]
fn an_outcome_counts_all_names_the_first_and_keeps_what_has_ended() {
    let mut tally = Tally::default();
    let named = |names: &[&str], outcome: &Outcome| -> Vec<(String, Outcome)> {
        names.iter().map(|name| ((*name).to_owned(), outcome.clone())).collect()
    };
    assert_eq!(tally.text(2), "0 of 0 done; namespaces to go: 2");
    tally.add("shop", named(&["a", "b"], &Outcome::Done));
    assert_eq!((tally.text(0).as_str(), tally.failed().count()), ("2 of 2 done", 0));
    tally.add("bank", named(&["c", "d", "e"], &Outcome::Failed("de\u{1b}nied".to_owned())));
    tally.add("shop", named(&["p"], &Outcome::Left("it is protected".to_owned())));
    assert_eq!(tally.text(0), "2 of 6 done; failed: bank/c: de nied (and 2 more); left: shop/p: it is protected");
    assert_eq!((tally.counts(), tally.failed().map(String::as_str).collect::<Vec<_>>()), ((6, 2, 3), vec!["bank"]));
    assert!(tally.has_ended("shop", "p") && !tally.has_ended("bank", "c") && !tally.has_ended("bank", "new"));
    // Of those that failed one is gone.
    tally.add("bank", named(&["c", "d"], &Outcome::Done));
    assert_eq!(tally.text(0), "4 of 5 done; left: shop/p: it is protected");
    assert_eq!((tally.reopen(), tally.counts()), (vec!["bank".to_owned(), "shop".to_owned()], (1, 0, 0)));
    tally.add("bank", named(&["x"], &Outcome::Failed("y".repeat(10_000))));
    assert!(tally.text(0).len() < 400, "{}", tally.text(0));
}

#[test]
fn one_schedule_governs_the_workloads_of_a_namespace() {
    let spec = |targets: &Value| json!({ "timeZone": "UTC", "awake": [{ "from": "08:00", "to": "18:00" }], "targets": targets });
    let everywhere = |name: &str, targets: &Value| -> Governor {
        let schedule = json!({ "metadata": { "name": name, "uid": name }, "spec": spec(targets) });
        Governor::of(&serde_json::from_value::<ClusterPowerSchedule>(schedule).unwrap())
    };
    let own: PowerSchedule = serde_json::from_value(json!({
        "metadata": { "name": "own", "uid": "own", "namespace": "team" },
        "spec": spec(&json!({ "kind": "Workloads", "all": true })),
    }))
    .unwrap();
    let governors = Governors::new([
        Governor::of(&own),
        everywhere("a-named", &json!({ "kind": "Workloads", "names": [{ "name": "shop" }, { "name": "team" }] })),
        everywhere(
            "b-labeled",
            &json!({ "kind": "Workloads", "namespaceSelector": { "matchLabels": { "env": "dev" } } }),
        ),
        everywhere("c-clusters", &json!({ "all": true })),
    ]);
    let label = |env: &str| [("env".to_owned(), env.to_owned())].into();
    let labels: NamespaceLabels = [("team", "dev"), ("shop", "dev"), ("bank", "dev"), ("live", "prod")]
        .map(|(name, env)| (name.to_owned(), label(env)))
        .into();
    for (namespace, expected) in
        [("team", Some("own")), ("shop", Some("a-named")), ("bank", Some("b-labeled")), ("live", None)]
    {
        let governor = governors.of_workloads(namespace, &labels).map(|one| one.name.as_str());
        assert_eq!(governor, expected, "{namespace}");
    }
}
