//! The table as a whole, and a kind that only tests know: the proof that a kind is one row and one module.

mod rollouts;

use jiff::Timestamp;
use serde_json::json;

use super::testing::{POWER, SANDBOX};
use super::*;
use crate::annotation::keys;
use crate::power::Power;

/// The product's table and one row more.
const WITH_SANDBOX: Kinds = Kinds {
    targets: &[
        &CLUSTER_DEPLOYMENT,
        &KKP_CLUSTER,
        &workload::DEPLOYMENT,
        &workload::STATEFUL_SET,
        &CRON_JOB,
        &workload::CAPI_MACHINE_DEPLOYMENT,
        &workload::KKP_MACHINE_DEPLOYMENT,
        &SANDBOX,
    ],
    ..KINDS
};

#[test]
fn a_type_has_many_names() {
    let groups =
        |word: &str| -> Vec<_> { KINDS.named(word).iter().map(|row| (row.kind.group, row.kind.kind)).collect() };
    let hive = vec![("hive.openshift.io", "ClusterDeployment")];
    let capi = ("cluster.x-k8s.io", "MachineDeployment");
    let kkp = ("cluster.k8s.io", "MachineDeployment");
    let user_cluster = vec![("kubermatic.k8c.io", "Cluster")];
    for (word, expected) in [
        ("cd", hive.clone()),
        ("clusterdeployment", hive.clone()),
        ("ClusterDeployments", hive.clone()),
        ("clusterdeployment.hive.openshift.io", hive.clone()),
        ("clusterdeployments.v1.hive.openshift.io", hive),
        ("cluster", user_cluster.clone()),
        ("clusters.kubermatic.k8c.io", user_cluster),
        ("cluster.cluster.x-k8s.io", vec![]),
        ("deploy", vec![("apps", "Deployment")]),
        ("deployments.apps", vec![("apps", "Deployment")]),
        ("deployments.v1.apps", vec![("apps", "Deployment")]),
        ("deployments.v1beta1.apps", vec![]),
        ("sts", vec![("apps", "StatefulSet")]),
        ("cj", vec![("batch", "CronJob")]),
        ("cronjobs.batch", vec![("batch", "CronJob")]),
        ("cronjob.apps", vec![]),
        ("md", vec![capi, kkp]),
        ("machinedeployment", vec![capi, kkp]),
        ("machinedeployment.cluster.x-k8s.io", vec![capi]),
        ("md.cluster.k8s.io", vec![kkp]),
        ("machinedeployments.v1beta1.cluster.x-k8s.io", vec![capi]),
        // A rollout is ours, and a cluster KKP's.
        ("cnpg", vec![("postgresql.cnpg.io", "Cluster")]),
        ("clusters.postgresql.cnpg.io", vec![("postgresql.cnpg.io", "Cluster")]),
        ("rollout", vec![]),
        ("ro", vec![("argoproj.io", "Rollout")]),
        ("rollouts.argoproj.io", vec![("argoproj.io", "Rollout")]),
        ("pod", vec![]),
        ("deploy.", vec![("apps", "Deployment")]),
        ("deploy.x", vec![]),
        ("", vec![]),
    ] {
        assert_eq!(groups(word), expected, "{word}");
    }
}

#[test]
fn kinds_that_are_only_shown_have_names_too() {
    for (word, expected) in [
        ("pool", Some("pool")),
        ("CP", Some("pool")),
        ("pools", Some("pool")),
        ("clusterpools.hive.openshift.io", Some("pool")),
        ("clusterpool.v1.hive.openshift.io", Some("pool")),
        ("clusterpool.example.com", None),
        ("fdb", Some("fdb")),
        ("FDB", Some("fdb")),
        ("foundationdbcluster", Some("fdb")),
        ("foundationdbclusters.apps.foundationdb.org", Some("fdb")),
        ("fdb.v1beta2.apps.foundationdb.org", Some("fdb")),
        ("fdbs", None),
        ("fdb.example.com", None),
        ("rollout", Some("rollout")),
        ("rollouts", Some("rollout")),
        ("pr", Some("rollout")),
        ("powerrollouts.v1alpha1.hibernate.sh", Some("rollout")),
        ("rollouts.argoproj.io", None),
        ("schedules", Some("schedule")),
        ("psch", Some("schedule")),
        ("cpsch", Some("cpsch")),
        ("clusterpowerschedules.hibernate.sh", Some("cpsch")),
        ("cd", None),
        ("", None),
    ] {
        assert_eq!(KINDS.shown_named(word).map(|row| row.word), expected, "{word}");
    }
}

/// Two rows of one group and plural, or two kinds of which one is shown, would make a word mean two things.
#[test]
fn no_two_rows_are_the_same_resource() {
    let targets = WITH_SANDBOX.targets.iter().map(|row| &row.kind);
    let all: Vec<&Kind> = targets.chain(WITH_SANDBOX.shown.iter().map(|row| &row.kind)).collect();
    for (at, one) in all.iter().enumerate() {
        assert!(!one.versions.is_empty() && one.is_named(one.kind) && one.is_named(one.plural), "{one:?}");
        assert!(all[at + 1..].iter().all(|other| one.resource_name() != other.resource_name()), "{one:?}");
    }
    for row in WITH_SANDBOX.targets {
        assert!(WITH_SANDBOX.shown_named(row.kind.kind).is_none(), "{:?}", row.kind);
        assert!(!row.kind.short.is_empty(), "messages show a short name: {:?}", row.kind);
    }
}

#[test]
fn messages_list_every_type() {
    assert_eq!(
        KINDS.known_types(),
        "clusterdeployments.hive.openshift.io (cd), clusters.kubermatic.k8c.io (cluster), deployments.apps (deploy), \
         statefulsets.apps (sts), cronjobs.batch (cj), machinedeployments.cluster.x-k8s.io (md), machinedeployments.cluster.k8s.io (md), \
         deploymentconfigs.apps.openshift.io (dc)"
    );
    assert!(WITH_SANDBOX.known_types().ends_with(", sandboxes.test.hibernate.sh (sbx)"));
    assert_eq!(
        CLUSTER_POOL.refusal_of("pool/small"),
        "a ClusterPool is never put to sleep itself: change its spec.runningCount, or name its clusters (see `kubectl \
         hibernate status pool/small`)"
    );
    assert_eq!(
        FOUNDATIONDB_CLUSTER.refusal_of("fdb/sample"),
        "a FoundationDBCluster is not put to sleep by this program: `kubectl hibernate status fdb/sample` shows it, \
         `kubectl hibernate recover process-groups` brings its process groups back"
    );
    assert_eq!(
        POWER_ROLLOUT.refusal_of("rollout/night"),
        "a PowerRollout is not put to sleep, it puts others to sleep or wakes them: `kubectl hibernate status \
         rollout/night` shows it, `kubectl hibernate rollout pause|resume|accept|retry|abort|undo` controls it"
    );
    assert_eq!(CLUSTER_POOL.not_together_with("x"), "pools are shown by themselves, not together with \"x\"");
}

#[test]
fn only_clusters_are_selected_without_a_type() {
    assert_eq!(KINDS.defaults(), [&CLUSTER_DEPLOYMENT]);
    assert_eq!(WITH_SANDBOX.defaults(), [&CLUSTER_DEPLOYMENT]);
    // A user cluster belongs to no namespace: `--all -n shop` must not reach it.
    assert_eq!(WITH_SANDBOX.shown_by_default(), [&CLUSTER_DEPLOYMENT, &KKP_CLUSTER]);
}

#[test]
fn a_trial_is_the_same_patch_for_any_version() {
    let hold = json!({ keys::HOLD_AWAKE_UNTIL: "1969-01-01T00:00:00Z" });
    let spec = |power: &str| json!({ "baseDomain": "d", "clusterName": "demo", "platform": {}, "powerState": power });
    let cluster = json!({ "metadata": { "resourceVersion": "7", "annotations": hold }, "spec": spec("") });
    let patch = CLUSTER_DEPLOYMENT.trial_patch(&cluster, None, Timestamp::UNIX_EPOCH);
    let expected = json!({
        "metadata": { "annotations": { keys::HOLD_AWAKE_UNTIL: null } }, "spec": { "powerState": "Hibernating" },
    });
    assert_eq!(patch, Some(expected));
    let asleep = json!({ "metadata": {}, "spec": spec("Hibernating") });
    assert_eq!(CLUSTER_DEPLOYMENT.trial_patch(&asleep, None, Timestamp::UNIX_EPOCH), None);
}

/// Anyone can write these annotations on any object; a sleep or a hold that no controller ends is not shown.
#[test]
fn only_a_kind_with_a_schedule_shows_one() {
    let annotations = json!({
        keys::WAKE_AT: "2026-11-22T06:00:00Z", keys::HOLD_AWAKE_UNTIL: "2026-11-22T07:00:00Z", keys::HOLD_AWAKE_BY: "bob",
    });
    let pods = json!({ "metadata": {}, "spec": { "containers": [] } });
    for (row, spec) in [
        (&CLUSTER_DEPLOYMENT, json!({ "baseDomain": "d", "clusterName": "demo", "platform": {} })),
        (&KKP_CLUSTER, json!({ "humanReadableName": "demo", "version": "1.34.1", "cloud": { "dc": "eu" } })),
        (&workload::DEPLOYMENT, json!({ "selector": {}, "template": pods })),
        (&cron_job::CRON_JOB, json!({ "schedule": "@daily", "jobTemplate": { "spec": { "template": pods } } })),
        (&SANDBOX, json!({})),
    ] {
        let object = json!({ "metadata": { "name": "demo", "annotations": annotations }, "spec": spec });
        let record = row.record(&object).unwrap();
        let shown = [record.wake_at, record.hold_awake_until, record.hold_awake_by].map(|text| text.is_some());
        assert_eq!(shown, [row.has_schedule; 3], "{}", row.kind.kind);
    }
}

/// Everything that commands ask of a row, asked of a kind that has no namespace.
#[test]
fn a_cluster_scoped_kind_is_one_row_and_one_module() {
    assert_eq!(WITH_SANDBOX.named("sbx"), [&SANDBOX]);
    assert!(!SANDBOX.kind.is_namespaced());
    let object = |annotations: serde_json::Value, phase: &str| json!({ "metadata": { "name": "blue", "annotations": annotations }, "status": { "phase": phase } });
    let intent = |action| Intent {
        power: action,
        reason: None,
        end: None,
        now: Timestamp::UNIX_EPOCH,
        queried: false,
        force: false,
    };
    let (awake, asleep) = (object(json!({}), "Running"), object(json!({ POWER: "Hibernating" }), "Paused"));
    let Change::Patch { patch, message, .. } = SANDBOX.change(&awake, &intent(Power::Hibernating)).unwrap() else {
        panic!()
    };
    assert_eq!(patch, json!({ "metadata": { "annotations": { POWER: "Hibernating" } } }));
    assert_eq!(message, "hibernation requested");
    assert!(matches!(SANDBOX.change(&asleep, &intent(Power::Hibernating)), Ok(Change::None { .. })));
    assert_eq!(SANDBOX.progress(&asleep, Power::Hibernating).unwrap(), Progress::Reached);
    let going = SANDBOX.progress(&asleep, Power::Running).unwrap();
    assert_eq!(going, Progress::Failed("it is to sleep again".to_owned()));
    let record = SANDBOX.record(&asleep).unwrap();
    assert_eq!(
        serde_json::to_value(&record).unwrap(),
        json!({
            "type": "sandbox.test.hibernate.sh", "name": "blue", "desired": "Hibernating", "observed": "Paused",
            "protected": false, "seats": 0,
        })
    );
    assert_eq!((SANDBOX.columns[0].cell)(&record, Timestamp::UNIX_EPOCH), "0");
}

/// Two releases of the plugin must print the same lists.
#[test]
fn a_record_is_printed_in_the_order_that_is_documented() {
    let record = Record {
        kind: "deployment.apps".to_owned(),
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        replicas: Some(1),
        step: Some(StepRecord::waiting("x".to_owned())),
        ..Record::default()
    };
    assert_eq!(
        serde_json::to_string(&record).unwrap(),
        r#"{"type":"deployment.apps","namespace":"shop","name":"web","desired":"","observed":"","step":{"message":"x","failed":false},"replicas":1,"protected":false}"#
    );
}
