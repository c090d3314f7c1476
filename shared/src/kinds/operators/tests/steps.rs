//! What is shown of each step that an operator writes, and when a sleep or a wake has come to its end.

use super::*;
use crate::kinds::Progress;

/// An object that is asked to sleep or to run, with this status. What is shown of it, and its progress.
fn seen(kind: &TargetKind, sleeps: bool, more: &Value) -> String {
    let Reader::Row(row) = kind.reader else { panic!("no row") };
    let mut object = object(&json!({}), &json!({}));
    json_patch::merge(&mut object, more);
    for switch in row.switches.iter().take(if row.switches[0].only_present { 1 } else { 9 }).filter(|_| sleeps) {
        crate::object::put(&mut object, switch.at, switch.asleep.value(Timestamp::UNIX_EPOCH));
    }
    let action = if sleeps { Power::Hibernating } else { Power::Running };
    let progress = match kind.progress(&object, action).unwrap() {
        Progress::Reached => "reached".to_owned(),
        Progress::InProgress(text) | Progress::Unanswered(text) => format!("waits: {text}"),
        Progress::Unnoticed => "unnoticed".to_owned(),
        Progress::Failed(text) => format!("failed: {text}"),
    };
    format!("{} | {progress}", kind.record(&object).unwrap().observed)
}

fn conditions(all: &[(&str, &str, &str)]) -> Value {
    let one = |(kind, status, reason): &(&str, &str, &str)| json!({ "type": kind, "status": status, "reason": reason, "message": "m" });
    json!({ "status": { "conditions": all.iter().map(one).collect::<Vec<_>>() } })
}

#[expect(clippy::needless_pass_by_value, reason = "as the macro makes it")]
fn status(status: Value) -> Value {
    json!({ "status": status })
}

fn check(kind: &TargetKind, steps: &[(bool, Value, &str)]) {
    for (sleeps, more, expected) in steps {
        let found = seen(kind, *sleeps, more);
        assert!(found.starts_with(expected), "{}: {sleeps} {more}: {found}", kind.kind.kind);
    }
}

#[test]
fn cloud_native_pg() {
    let healthy = "Cluster in healthy state";
    let of = |status: &str, reason: &str| {
        let mut object = conditions(&[("cnpg.io/hibernation", status, reason)]);
        object["status"]["phase"] = json!(healthy);
        object
    };
    let ready =
        |ready: u32| json!({ "spec": { "instances": 3 }, "status": { "phase": healthy, "readyInstances": ready } });
    check(
        &CNPG,
        &[
            // Before 1.29 nothing is said while it waits.
            (
                true,
                ready(3),
                "Stopping | waits: no sign of the operator yet: it stops a cluster only while that is healthy",
            ),
            (true, of("False", "WaitingForHealthy"), "Waiting | waits: m"),
            (true, of("False", "DeletingPods"), "Stopping | waits: m"),
            (true, of("True", "Hibernated"), "Hibernating | reached"),
            (false, of("True", "Hibernated"), "Starting | waits: no sign of the operator yet"),
            (false, ready(1), "Starting | waits: Cluster in healthy state"),
            (false, ready(3), "Running | reached"),
            (
                false,
                status(json!({ "phase": "Cluster is unrecoverable and needs manual intervention" })),
                "Failed | failed: Cluster is unrecoverable",
            ),
        ],
    );
    check(
        &CNPG_SCHEDULED_BACKUP,
        &[(true, json!({}), "Hibernating | reached"), (false, json!({}), "Running | reached")],
    );
    check(
        &CNPG_POOLER,
        &[
            (true, status(json!({ "instances": 2 })), "Stopping | waits: stopping"),
            (true, status(json!({})), "Hibernating | reached"),
            (false, json!({ "spec": { "instances": 2 }, "status": { "instances": 1 } }), "Starting | waits: starting"),
            (false, json!({ "spec": { "instances": 2 }, "status": { "instances": 2 } }), "Running | reached"),
        ],
    );
}

#[test]
fn argo_and_keda() {
    let of = |status: Value| {
        let mut object = json!({ "metadata": { "generation": 4 }, "status": { "observedGeneration": "4" } });
        json_patch::merge(&mut object["status"], &status);
        object
    };
    check(
        &ROLLOUT,
        &[
            (true, of(json!({ "observedGeneration": "3", "replicas": 0 })), " | waits: no sign of the operator yet"),
            (true, of(json!({ "replicas": 2, "phase": "Healthy" })), "Stopping | waits: stopping"),
            (true, of(json!({ "phase": "Healthy" })), "Hibernating | reached"),
            (false, of(json!({ "phase": "Progressing", "message": "m" })), "Starting | waits: m"),
            (false, of(json!({ "phase": "Degraded", "message": "m" })), "Failed | failed: m"),
            (false, of(json!({ "phase": "Healthy", "replicas": 2 })), "Running | reached"),
        ],
    );
    let ready = conditions(&[("Ready", "True", "r"), ("Paused", "False", "r")]);
    let paused = conditions(&[("Ready", "True", "r"), ("Paused", "True", "r")]);
    check(
        &SCALED_OBJECT,
        &[
            (true, ready.clone(), "Stopping | waits: no sign of the operator yet"),
            (true, paused.clone(), "Hibernating | reached"),
            (false, paused, "Starting | waits: no sign of the operator yet: before KEDA 2.18.2"),
            (false, ready, "Running | reached"),
        ],
    );
}

/// KEDA reports every pause in one way. Those of its owner are there after a wake as well, and never end.
#[test]
fn a_scaled_object_that_its_owner_paused_is_awake() {
    let paused = conditions(&[("Ready", "True", "r"), ("Paused", "True", "r")]);
    let held = |annotations: Value, count: Value| {
        let mut object = paused.clone();
        object["metadata"] = json!({ "annotations": annotations });
        object["status"]["pausedReplicaCount"] = count;
        object
    };
    let (at, as_it_is) = ("autoscaling.keda.sh/paused-replicas", "autoscaling.keda.sh/paused");
    let (scale_in, scale_out) = ("autoscaling.keda.sh/paused-scale-in", "autoscaling.keda.sh/paused-scale-out");
    check(
        &SCALED_OBJECT,
        &[
            (false, held(json!({ at: "0" }), json!(0)), "Running | reached"),
            (false, held(json!({ at: "0", as_it_is: "false" }), json!(0)), "Running | reached"),
            (false, held(json!({ at: "2" }), json!(2)), "Running | reached"),
            (false, held(json!({ at: "2", as_it_is: "false" }), json!(2)), "Running | reached"),
            (false, held(json!({ at: "2", as_it_is: "true" }), json!(2)), "Running | reached"),
            // Its target had that count.
            (false, held(json!({ at: "2" }), json!(0)), "Running | reached"),
            (false, held(json!({ as_it_is: "true" }), Value::Null), "Running | reached"),
            (false, held(json!({ as_it_is: "false" }), json!(0)), "Starting | waits: no sign of the operator yet"),
            (false, held(json!({ scale_in: "true" }), Value::Null), "Running | reached"),
            (false, held(json!({ scale_out: "true" }), Value::Null), "Running | reached"),
            (true, held(json!({ scale_in: "true" }), json!(0)), "Hibernating | reached"),
        ],
    );
    // One half of our pause is gone: the other one holds.
    let record = json!({ COUNT: null, PAUSED: null }).to_string();
    for annotations in [json!({ at: "0", keys::BEFORE: record }), json!({ as_it_is: "true", keys::BEFORE: record })] {
        let mut half = object(&json!({}), &json!({}));
        json_patch::merge(&mut half, &held(annotations, json!(0)));
        assert_eq!(SCALED_OBJECT.record(&half).unwrap().observed, "Hibernating", "{half}");
    }
}

#[test]
fn virtual_machines() {
    let of = |print: &str, seen: &str| {
        let status = json!({ "printableStatus": print, "runStrategy": seen });
        json!({ "spec": { "runStrategy": "Always" }, "status": status })
    };
    check(
        &VIRTUAL_MACHINE,
        &[
            // The definition's default, before any controller has seen it.
            (
                false,
                json!({ "spec": { "runStrategy": "Always" }, "status": { "printableStatus": "Stopped" } }),
                " | waits: no sign",
            ),
            (true, of("Running", "Always"), "Stopping | waits: no sign of the operator yet"),
            (true, of("Stopping", "Halted"), "Stopping | waits: Stopping"),
            (true, of("Stopped", "Halted"), "Hibernating | reached"),
            (false, of("Stopped", "RerunOnFailure"), "Stopped | waits: no sign"),
            (false, of("Starting", "Always"), "Starting | waits: Starting"),
            (false, of("CrashLoopBackOff", "Always"), "Failed | failed: CrashLoopBackOff"),
            (false, of("Running", "Always"), "Running | reached"),
        ],
    );
}

#[test]
fn percona() {
    let of = |state: &str| status(json!({ "state": state }));
    for kind in [&PERCONA_XTRADB, &PERCONA_MONGODB, &PERCONA_POSTGRES] {
        check(
            kind,
            &[
                // A backup runs.
                (true, of("ready"), "Stopping | waits: no sign of the operator yet: it pauses nothing while a backup"),
                (true, of("stopping"), "Stopping | waits: stopping"),
                (true, of("paused"), "Hibernating | reached"),
                (false, of("paused"), "Starting | waits: no sign"),
                (false, of("initializing"), "Starting | waits: starting"),
                (false, of("error"), "Failed | failed: "),
                (false, of("ready"), "Running | reached"),
            ],
        );
    }
}

#[test]
fn notebooks_and_ray() {
    check(
        &NOTEBOOK,
        &[
            (true, status(json!({ "readyReplicas": 1 })), "Stopping | waits: stopping"),
            (true, status(json!({ "readyReplicas": 0 })), "Hibernating | reached"),
            (false, status(json!({})), "Starting | waits: starting"),
            (false, status(json!({ "readyReplicas": 1 })), "Running | reached"),
        ],
    );
    let of = |conditions: Value, state: &str| {
        let mut object = conditions;
        object["status"]["state"] = json!(state);
        object
    };
    check(
        &RAY_CLUSTER,
        &[
            (true, of(conditions(&[]), "ready"), "Stopping | waits: no sign of the operator yet"),
            (true, of(conditions(&[("RayClusterSuspending", "True", "r")]), "ready"), "Stopping | waits: m"),
            (true, of(conditions(&[("RayClusterSuspended", "True", "r")]), "suspended"), "Hibernating | reached"),
            (true, of(conditions(&[]), "suspended"), "Hibernating | reached"),
            (false, of(conditions(&[]), ""), "Starting | waits: starting"),
            (false, of(conditions(&[]), "ready"), "Running | reached"),
        ],
    );
    check(
        &RAY_SERVICE,
        &[
            (true, conditions(&[("Suspending", "True", "r")]), "Stopping | waits: m"),
            (true, conditions(&[("Suspended", "True", "r")]), "Hibernating | reached"),
            (false, conditions(&[("Ready", "False", "r")]), "Starting | waits: m"),
            (false, conditions(&[("Ready", "True", "r")]), "Running | reached"),
        ],
    );
}

#[test]
fn shoots() {
    let of = |hibernated: bool, state: &str, seen: u32| {
        let mut object = conditions(&[
            ("APIServerAvailable", "True", "r"),
            ("EveryNodeReady", "True", "r"),
            ("SystemComponentsHealthy", "True", "r"),
        ]);
        object["metadata"] = json!({ "generation": 2 });
        object["status"]["hibernated"] = json!(hibernated);
        object["status"]["observedGeneration"] = json!(seen);
        object["status"]["lastOperation"] = json!({ "state": state, "description": "d" });
        object
    };
    check(
        &SHOOT,
        &[
            (true, of(true, "Succeeded", 1), " | waits: no sign of the operator yet"),
            (true, of(false, "Processing", 2), "Stopping | waits: d"),
            (true, of(false, "Error", 2), "Stopping | waits: d"),
            (true, of(false, "Failed", 2), "Failed | failed: d"),
            (true, of(true, "Succeeded", 2), "Hibernating | reached"),
            (false, of(true, "Processing", 2), "Starting | waits: d"),
            (false, of(false, "Succeeded", 2), "Running | reached"),
        ],
    );
    let mut blocked = object(&json!({}), &json!({}));
    blocked["status"] = json!({ "constraints": [{ "type": "HibernationPossible", "status": "False" }] });
    assert!(after(&SHOOT, &blocked, Power::Hibernating).1.starts_with("its constraint HibernationPossible is False"));
}

#[test]
fn cassandra_and_click_house() {
    let cassandra = |conditions: Value, progress: &str| {
        let mut object = conditions;
        object["status"]["cassandraOperatorProgress"] = json!(progress);
        object
    };
    check(
        &CASSANDRA,
        &[
            // It is set at the start.
            (true, cassandra(conditions(&[("Stopped", "True", "r")]), "Updating"), "Stopping | waits: stopping"),
            (true, cassandra(conditions(&[("Stopped", "True", "r")]), "Ready"), "Hibernating | reached"),
            (false, cassandra(conditions(&[("Ready", "False", "r")]), "Updating"), "Starting | waits: m"),
            (false, cassandra(conditions(&[("Ready", "True", "r")]), "Ready"), "Running | reached"),
        ],
    );
    let of = |state: &str| status(json!({ "status": state, "action": "a", "error": "e" }));
    check(
        &CLICK_HOUSE,
        &[
            (true, of("InProgress"), "Stopping | waits: a"),
            (true, of("Completed"), "Hibernating | reached"),
            (false, of("InProgress"), "Starting | waits: a"),
            (false, of("Aborted"), "Failed | failed: e"),
            (false, of("Completed"), "Running | reached"),
        ],
    );
    // Completed may be the change before: it counts once the operator has written the status after the sleep.
    let written = |manager: &str, subresource: &str, second: u32| json!({ "manager": manager, "subresource": subresource, "operation": "Update", "time": format!("2026-11-21T09:00:{second:02}Z") });
    let after = |second: u32| {
        let mut object = of("Completed");
        object["metadata"]["managedFields"] =
            json!([written("operator", "status", second), written("kubectl-hibernate", "", 30)]);
        object
    };
    check(
        &CLICK_HOUSE,
        &[
            (true, after(29), " | waits: no sign of the operator yet: it reconciles one change after the other"),
            (true, after(30), "Hibernating | reached"),
        ],
    );
}

#[test]
fn crunchy_and_node_pools() {
    let of = |ready: u32, replicas: u32| {
        json!({
            "metadata": { "generation": 1 }, "spec": { "instances": [{ "name": "a", "replicas": 2 }] },
            "status": { "observedGeneration": 1, "instances": [{ "name": "a", "replicas": replicas, "readyReplicas": ready }] },
        })
    };
    check(
        &CRUNCHY,
        &[
            (true, of(1, 2), "Stopping | waits: stopping"),
            (true, of(0, 0), "Hibernating | reached"),
            (false, of(1, 2), "Starting | waits: starting"),
            (false, of(2, 2), "Running | reached"),
        ],
    );
    let pool = |replicas: u32, healthy: &str| {
        let mut object = conditions(&[("AllNodesHealthy", healthy, "AsExpected")]);
        object["status"]["replicas"] = json!(replicas);
        object
    };
    let limited = |min: u32, mut pool: Value| {
        pool["spec"] = json!({ "autoScaling": { "min": min, "max": 5 } });
        pool
    };
    check(
        &NODE_POOL,
        &[
            (true, pool(2, "True"), "Stopping | waits: stopping"),
            // The conditions of an empty pool are False.
            (true, pool(0, "False"), "Hibernating | reached"),
            (false, pool(1, "False"), "Starting | waits: m"),
            (false, pool(0, "False"), "Starting | waits: m"),
            (false, pool(2, "True"), "Running | reached"),
            (false, limited(0, pool(0, "False")), "Running | reached"),
            (false, limited(0, pool(1, "False")), "Starting | waits: m"),
            (false, limited(1, pool(0, "False")), "Starting | waits: m"),
        ],
    );
    // Limits of an autoscaler are recorded, and come back without a count.
    let scaled = object(&json!({}), &json!({ "autoScaling": { "min": 2, "max": 5 } }));
    let (asleep, _) = after(&NODE_POOL, &scaled, Power::Hibernating);
    assert_eq!(asleep["spec"], json!({ "replicas": 0 }));
    let (woken, _) = after(&NODE_POOL, &asleep, Power::Running);
    assert_eq!(woken["spec"], scaled["spec"]);
}
