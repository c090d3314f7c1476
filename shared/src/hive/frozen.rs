//! Sentences that the plugin of the previous release parses. They stay as they are for one release.
//!
//! Each is produced by the code that writes it. Where the plugin reads data instead (`HibernationData`, the causes of a
//! refusal), it still falls back to these sentences while an older controller or webhook runs.

use jiff::Timestamp;
use serde_json::json;

use super::admission::{self, Cluster};
use super::api::ClusterDeployment;
use super::decide::{Facts, Served, Settings, Sync, decide};
use super::preflight::{self, Certificate, CloudLook, SpokeLook, SpokePreflight, VersionLook};
use crate::admission::{Change, UnreadFields, User};
use crate::cloud::InstanceState::{Running, Stopped, Terminated};
use crate::cloud::{Instance, InstanceState, Inventory, Listing, Profile, Spot};

fn now() -> Timestamp {
    "2026-11-22T18:00:00Z".parse().unwrap()
}

fn cluster(power_state: &str, hibernating: (&str, &str), ready: (&str, &str)) -> ClusterDeployment {
    let condition = |type_: &str, (status, reason): (&str, &str)| {
        json!({"type": type_, "status": status, "reason": reason, "lastProbeTime": now().to_string(),
            "lastTransitionTime": now().to_string()})
    };
    serde_json::from_value(json!({
        "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment", "metadata": {"name": "demo"},
        "spec": {"baseDomain": "d", "clusterName": "demo", "installed": true, "powerState": power_state,
            "platform": {"aws": {"region": "us-east-1"}}},
        "status": {"conditions": [condition("Hibernating", hibernating), condition("Ready", ready)]},
    }))
    .unwrap()
}

/// The message of `HibernationProgress` for a cluster with instances in these states.
fn progress(cluster: &ClusterDeployment, states: &[InstanceState]) -> String {
    let instance = |(n, state): (usize, &InstanceState)| Instance {
        spot: (*state == Terminated).then_some(Spot::OneTime),
        ..Instance::new(format!("i-{n}"), *state)
    };
    let instances = states.iter().enumerate().map(instance).collect();
    let machines = Inventory::new(Profile::default(), Listing { instances, ..Listing::default() });
    let facts = Facts {
        cluster,
        served: Served::ByUs,
        sync: Sync::Applied,
        identity_taken: None,
        machines: Some(Ok(machines)),
        tried: None,
        failed_lists: 0,
        spoke: None,
        asked_for: None,
        upgrade: None,
        settings: Settings::default(),
        now: now(),
    };
    decide(&facts).status.unwrap().progress.unwrap().message
}

/// `status/instances.rs` reads total and awaited; `wait/progress.rs` compares the rest with Hive's sentence.
#[test]
fn counts_of_instances() {
    let sleeping = cluster("Hibernating", ("False", "Stopping"), ("False", "StoppingOrHibernating"));
    let waking = cluster("Running", ("False", "ResumingOrRunning"), ("False", "StartingMachines"));
    let awake = cluster("Running", ("False", "ResumingOrRunning"), ("True", "Running"));
    for (cluster, states, expected) in [
        (&sleeping, &[Running, Stopped, Running][..], "2 of 3 instances are not stopped: i-0, i-2"),
        (&sleeping, &[Stopped, Stopped], "2 instances stopped"),
        (&sleeping, &[Stopped, Terminated], "1 instances stopped, 1 one-time spot instances terminated"),
        (&waking, &[Running, Stopped], "1 of 2 instances are not running: i-1"),
        (&awake, &[Running, Running], "2 instances running"),
    ] {
        assert_eq!(progress(cluster, states), expected);
    }
}

/// `plan/judge.rs` reads one finding a line, and from the end of one sentence the end of a certificate.
#[test]
fn findings_of_the_preflight() {
    let look = SpokeLook {
        version: Ok(Some(VersionLook {
            progressing: true,
            from: Some("4.20.8".to_owned()),
            to: Some("4.20.9".to_owned()),
        })),
        certificates: Ok(Some(vec![Certificate {
            name: "ns/signer".to_owned(),
            not_after: "2026-12-01T00:00:00Z".parse().unwrap(),
        }])),
        pending_requests: Ok(Some(1)),
        webhooks: Ok(None),
        kube_system: [].into(),
        budgets: Err("forbidden".to_owned()),
    };
    let cloud = CloudLook { selector: "tag x".to_owned(), instances: 6, spot: vec!["i-1".to_owned()] };
    let answer = preflight::answer(Some(&Ok(cloud)), &SpokePreflight::Looked(Box::new(look)), None, now());
    assert_eq!(
        answer.message().lines().collect::<Vec<_>>(),
        [
            "warn NotRead: disruption budgets could not be read: forbidden",
            "warn PendingRequests: 1 undecided certificate request: nodes that wait for them are not ready",
            "warn SpotInstances: 1 spot instance will be terminated by the stop, and the wake waits for new ones: i-1",
            "warn UpgradeInProgress: the cluster is being upgraded from 4.20.8 to 4.20.9: a sleep interrupts it, and it goes on \
             after the wake",
            "info CertificateExpires: the first certificate to expire is that in ns/signer, at 2026-12-01T00:00:00Z",
            "info Credentials: the credentials work: 6 instances found",
            "info StopProtection: whether an instance is protected from being stopped shows only at the stop",
        ]
    );
}

/// `plan/verdict.rs` looks for each denial's `field: message` in a refusal, and for the field of V4 at its beginning. How
/// several are put together is pinned where that is done, in the webhook.
#[test]
fn denials() {
    let object = |power_state: &str| -> Cluster {
        serde_json::from_value(json!({
            "metadata": {"name": "demo", "annotations": {
                "hibernate.sh/protected": "true", "hibernate.sh/requested-by": "alice",
                "hibernate.sh/hold-awake-until": "2026-11-23T18:00:00Z", "hibernate.sh/hold-awake-by": "bob",
            }},
            "spec": {"installed": true, "powerState": power_state, "platform": {"vsphere": {}},
                "clusterMetadata": {"infraID": "demo-x", "adminKubeconfigSecretRef": {"name": "k"}}},
        }))
        .unwrap()
    };
    let user = User { username: "alice".to_owned() };
    let settings = admission::Settings::default();
    let (old, new) = (Some(object("Running")), object("Hibernating"));
    let change = Change {
        old,
        new,
        user: &user,
        field_manager: "",
        now: now(),
        settings: &settings,
        unread: UnreadFields::default(),
    };
    let said: Vec<_> = admission::judge(&change).denials.into_iter().map(|denial| denial.said.to_string()).collect();
    assert_eq!(
        said,
        [
            "spec.platform: found vsphere, but only clusters on aws, azure, gcp, ibmcloud can be put to sleep",
            "metadata.annotations[hibernate.sh/protected]: the cluster is protected from sleep: remove the annotation first",
            "metadata.annotations[hibernate.sh/hold-awake-until]: held awake until 2026-11-23T18:00:00Z by bob: wait, or remove \
             the annotation",
        ]
    );
    assert_eq!(admission::KIND, "ClusterDeployment", "the refusal begins with it");
}

/// The last reasons that a plugin recognizes as failures by their first letters.
#[test]
fn reasons_of_failures() {
    use super::conditions::reason::{FAILED_TO_START_MACHINES, FAILED_TO_STOP, RUNNING, is_failure};
    for reason in [FAILED_TO_STOP, FAILED_TO_START_MACHINES] {
        assert!(reason.starts_with("Failed") && is_failure(reason));
    }
    assert!(!is_failure(RUNNING));
}
