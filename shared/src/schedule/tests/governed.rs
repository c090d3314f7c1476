//! Which schedule governs a target, and the rollout of an edge.

use super::*;
use crate::hive::api::ClusterDeployment;
use crate::kinds::lifecycle::Lifecycle as _;
use crate::kinds::operators::{CNPG, EDB, NODE_POOL, SHOOT, VIRTUAL_MACHINE};
use crate::kinds::workload::{CAPI_MACHINE_DEPLOYMENT, DEPLOYMENT, DEPLOYMENT_CONFIG};
use crate::kinds::{CLUSTER_DEPLOYMENT, CRON_JOB, KKP_CLUSTER, View};
use crate::rollout::NamespaceLabels;
use crate::rollout::api::TargetName;
use crate::schedule::api::{ClusterPowerSchedule, PowerSchedule};
use crate::schedule::decide::{By, Due};
use crate::schedule::governs::{Governor, Governors, may_govern};
use crate::schedule::rollout::{name, rollout};
use crate::schedule::timetable::Source;

fn metadata(name: &str, namespace: Option<&str>, created: u8) -> Value {
    json!({ "name": name, "namespace": namespace, "uid": format!("0000-{name}"), "creationTimestamp": format!("2026-11-01T00:00:{created:02}Z") })
}

fn fields(priority: i32, targets: &Value) -> Value {
    json!({ "timeZone": "UTC", "awake": [{ "from": "08:00", "to": "18:00" }], "priority": priority, "targets": targets })
}

fn own(name: &str, priority: i32, created: u8, targets: &Value) -> PowerSchedule {
    serde_json::from_value(
        json!({ "metadata": metadata(name, Some("team"), created), "spec": fields(priority, targets) }),
    )
    .unwrap()
}

fn everywhere(name: &str, priority: i32, targets: &Value) -> ClusterPowerSchedule {
    serde_json::from_value(json!({ "metadata": metadata(name, None, 0), "spec": fields(priority, targets) })).unwrap()
}

fn cluster(namespace: &str, name: &str) -> View {
    let cluster: ClusterDeployment = serde_json::from_value(json!({
        "metadata": { "name": name, "namespace": namespace, "labels": { "env": "dev" } },
        "spec": { "baseDomain": "d", "clusterName": name, "installed": true, "platform": {} },
    }))
    .unwrap();
    cluster.view(None)
}

#[test]
fn one_schedule_governs_namespaced_first_then_priority_then_age() {
    let all = json!({ "all": true });
    let governors = Governors::new([
        Governor::of(&everywhere("platform", 1_000, &all)),
        Governor::of(&everywhere("second", 5, &json!({ "selector": { "matchLabels": { "env": "dev" } } }))),
        Governor::of(&own("young", 0, 2, &all)),
        Governor::of(&own("old", 0, 1, &all)),
        Governor::of(&own("named", 1, 9, &json!({ "names": [{ "name": "one" }] }))),
        Governor::of(&own("workloads", 1_000, 0, &json!({ "kind": "Workloads", "all": true }))),
    ]);
    let labels = NamespaceLabels::new();
    for (namespace, name, expected) in [
        ("team", "one", vec!["named", "old", "young", "platform", "second"]),
        ("team", "two", vec!["old", "young", "platform", "second"]),
        ("other", "one", vec!["platform", "second"]),
    ] {
        let found: Vec<String> =
            governors.of("ClusterDeployment", &cluster(namespace, name), &labels).map(|one| one.name.clone()).collect();
        assert_eq!(found, expected, "{namespace}/{name}");
    }
}

#[test]
fn one_whose_selector_cannot_be_read_keeps_its_targets_and_acts_on_none() {
    let broken = json!({ "matchExpressions": [{ "key": "env", "operator": "NotIn", "values": ["prod "] }] });
    let here = json!({ "matchLabels": { "kubernetes.io/metadata.name": "team" } });
    let by = |targets: Value| Governor::of(&everywhere("broken", 9, &targets));
    let in_team = || Governor::of(&own("broken", 9, 0, &json!({ "selector": broken })));
    let both = || by(json!({ "selector": broken, "namespaceSelector": here }));
    for (governor, namespace, keeps) in [
        (in_team(), "team", true),
        (in_team(), "other", false),
        (by(json!({ "selector": broken })), "other", true),
        (by(json!({ "namespaceSelector": broken })), "other", true),
        (both(), "team", true),
        (both(), "other", false),
    ] {
        let what = format!("{governor:?} {namespace}");
        let governors = Governors::new([governor, Governor::of(&everywhere("platform", 0, &json!({ "all": true })))]);
        let (view, labels) = (cluster(namespace, "one"), NamespaceLabels::new());
        let found: Vec<&str> = governors.of("ClusterDeployment", &view, &labels).map(|one| one.name.as_str()).collect();
        assert_eq!(found, if keeps { vec!["broken", "platform"] } else { vec!["platform"] }, "{what}");
        let acting = governors.acting("ClusterDeployment", &view, &labels).map(|one| one.name.as_str());
        assert_eq!(acting, (!keeps).then_some("platform"), "{what}");
        let first = governors.of_target(&CLUSTER_DEPLOYMENT, &view, &labels)[0];
        assert_eq!((first.governs, first.acts()), (true, !keeps), "{what}");
        assert!(governors.of("Cluster", &view, &labels).next().is_none(), "{what}");
    }
}

#[test]
fn workloads_are_governed_with_their_namespace_and_kinds_of_operators_where_they_are_included() {
    let workloads = |name: &str, priority: i32, namespaces: &[&str], operators: &[&str]| {
        let names: Vec<Value> = namespaces.iter().map(|name| json!({ "name": name })).collect();
        let mut schedule = everywhere(name, priority, &json!({ "kind": "Workloads", "names": names }));
        schedule.spec.0.operator_kinds = operators.iter().map(|kind| (*kind).to_owned()).collect();
        Governor::of(&schedule)
    };
    let (machines, databases) = ("virtualmachines.kubevirt.io", "clusters.postgresql.cnpg.io");
    let governors = Governors::new([
        workloads("both", 5, &["shop"], &[machines, databases]),
        workloads("late", 0, &["shop", "bank"], &[databases]),
        workloads("plain", 1, &["bank"], &[]),
        Governor::of(&everywhere("machines", 9, &json!({ "kind": "VirtualMachine", "all": true }))),
        Governor::of(&everywhere("clusters", 9, &json!({ "kind": "Cluster", "all": true }))),
    ]);
    for (row, namespace, governing, others) in [
        (&DEPLOYMENT, "shop", vec!["both"], vec!["late"]),
        (&CRON_JOB, "bank", vec!["plain"], vec!["late"]),
        (&DEPLOYMENT, "other", vec![], vec![]),
        (&CNPG, "shop", vec!["both"], vec!["late"]),
        // The one that acts in the namespace leaves the kind out.
        (&CNPG, "bank", vec![], vec![]),
        // Its kind is called Cluster, too.
        (&EDB, "shop", vec![], vec![]),
        (&KKP_CLUSTER, "", vec!["clusters"], vec![]),
        (&VIRTUAL_MACHINE, "shop", vec!["machines", "both"], vec![]),
        (&VIRTUAL_MACHINE, "bank", vec!["machines"], vec![]),
        (&NODE_POOL, "shop", vec![], vec![]),
    ] {
        let found = governors.of_target(row, &cluster(namespace, "web"), &NamespaceLabels::new());
        let names = |governs: bool| -> Vec<&str> {
            found.iter().filter(|one| one.governs == governs).map(|one| one.governor.name.as_str()).collect()
        };
        assert_eq!((names(true), names(false)), (governing, others), "{} in {namespace}", row.kind.resource_name());
    }
}

#[test]
fn schedules_have_targets_of_some_kinds() {
    for row in [&CLUSTER_DEPLOYMENT, &KKP_CLUSTER, &CRON_JOB, &CNPG, &VIRTUAL_MACHINE, &SHOOT] {
        assert!(may_govern(row), "{}", row.kind.resource_name());
    }
    for row in [&CAPI_MACHINE_DEPLOYMENT, &NODE_POOL, &DEPLOYMENT_CONFIG] {
        assert!(!may_govern(row), "{}", row.kind.resource_name());
    }
}

#[test]
fn the_rollout_of_an_edge_has_its_name_its_limits_and_its_person() {
    let targets = json!({ "selector": { "matchLabels": { "env": "dev" } } });
    let mut schedule = own("night", 0, 0, &targets);
    schedule.metadata.uid = Some("1c9f2d7a-0000-4000-8000-0123456789ab".to_owned());
    let begin = at("2026-11-27T17:00:00Z");
    let edge = Edge { at: begin, nominal: begin, power: Power::Hibernating, source: Source::Window(0) };
    let until = at("2026-11-30T06:30:00Z");
    let due = Due { edge, by: By::Rollout(until), targets: vec![] };
    let made = json!(rollout(&schedule, &due, "awake Mon-Fri", "ann", until));
    let expected = json!({
        "action": "Hibernate", "maxTargets": 1000, "maxConcurrency": "100%", "notAfter": "2026-11-30T06:30:00Z",
        "targets": {
            "kind": "ClusterDeployment", "all": false, "selector": { "matchLabels": { "env": "dev" } },
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "team" } },
        },
        "reason": "schedule team/night: awake Mon-Fri", "asOf": "2026-11-27T17:00:00Z", "ttlAfterFinished": "72h",
        "scheduledBy": { "kind": "PowerSchedule", "namespace": "team", "name": "night", "uid": "1c9f2d7a-0000-4000-8000-0123456789ab" },
        "paused": false, "abort": false, "acceptFailures": 0, "retryFailed": 0,
    });
    assert_eq!(made["spec"], expected);
    assert_eq!(made["metadata"]["annotations"], json!({ "hibernate.sh/requested-by": "ann" }));
    assert_eq!(made["metadata"]["name"], "night-20261127-170000-0123456789ab");
    let names = vec![TargetName { namespace: "team".to_owned(), name: "one".to_owned() }];
    let some = json!(rollout(&schedule, &Due { targets: names.clone(), ..due.clone() }, "end of a hold", "ann", until));
    assert_eq!(some["spec"]["targets"], json!({ "kind": "ClusterDeployment", "all": false, "names": names }));
    assert_eq!(some["metadata"]["name"], "night-20261127-170000-0123456789ab-0ab35616b5466c4d");
    schedule.metadata.name = Some("x".repeat(253));
    assert!(name(&schedule, edge.at, &names).len() <= 253);
    let wake = Due { edge: Edge { power: Power::Running, ..edge }, ..due };
    let made = rollout(&everywhere("platform", 0, &json!({ "all": true })), &wake, "", "ann", until);
    assert_eq!((made.spec.max_concurrency, made.spec.targets.all), (None, true));
}
