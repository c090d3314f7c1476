//! What `status` shows of a cluster.

use jiff::Timestamp;

use super::hibernate_after::fires_at;
use super::{instances, progress};
use crate::annotation::keys;
use crate::hive::api::{ClusterDeployment, Desired};
use crate::hive::conditions::{HIBERNATING, READY, reason};
use crate::target::lifecycle::UNNOTICED;
use crate::target::record::{Record, StepRecord};

/// Adds to a record what the cluster reports.
pub(super) fn describe(cluster: &ClusterDeployment, record: Record) -> Record {
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let note = |key: &str| cluster.metadata.annotations.as_ref()?.get(key).cloned();
    Record {
        desired: cluster.desired().to_string(),
        observed: cluster.power_state().to_owned(),
        since: since(cluster),
        instances: instances::of(cluster),
        step: progress::step(cluster).or_else(|| waits(cluster)),
        platform: text(cluster.spec.platform.name()),
        region: cluster.spec.platform.region().map(str::to_owned),
        hibernate_after: cluster.spec.hibernate_after.clone(),
        fires_at: fires_at(cluster),
        wake_at: note(keys::WAKE_AT),
        hold_awake_until: note(keys::HOLD_AWAKE_UNTIL),
        hold_awake_by: note(keys::HOLD_AWAKE_BY),
        ..record
    }
}

/// Why no step is under way although the cluster is not in the desired state.
fn waits(cluster: &ClusterDeployment) -> Option<StepRecord> {
    let differs = cluster.desired().to_string() != cluster.power_state();
    let message = match progress::pause(cluster) {
        Some(pause) => pause.to_owned(),
        None if differs && cluster.desired() == Desired::Hibernating => match cluster.condition(HIBERNATING) {
            Some(said) if said.reason.as_deref() == Some(reason::UNSUPPORTED) => {
                said.message.clone().unwrap_or_default()
            }
            _ => UNNOTICED.to_owned(),
        },
        None if differs && !cluster.power_state().is_empty() => UNNOTICED.to_owned(),
        None => return None,
    };
    Some(StepRecord::waiting(message))
}

/// When the state that is shown began. A sleep begins when `Ready` turns False, a wake when `Hibernating` does
/// (docs/reference/hive.md, section 1.5).
fn since(cluster: &ClusterDeployment) -> Option<Timestamp> {
    let condition = match (cluster.power_state(), cluster.desired()) {
        ("Hibernating", _) => HIBERNATING,
        ("Running", _) | (_, Desired::Hibernating) => READY,
        (_, Desired::Running) => HIBERNATING,
    };
    Some(cluster.condition(condition)?.last_transition_time.as_ref()?.0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::target::cluster_deployment::CLUSTER_DEPLOYMENT;
    use crate::target::record::Instances;

    fn cluster(change: impl FnOnce(&mut Value)) -> Record {
        let mut object = json!({
            "apiVersion": "hive.openshift.io/v1",
            "kind": "ClusterDeployment",
            "metadata": { "name": "demo", "namespace": "x" },
            "spec": {
                "baseDomain": "d", "clusterName": "demo", "installed": true, "hibernateAfter": "8h",
                "platform": { "aws": { "region": "us-east-1" } },
            },
            "status": {
                "powerState": "Running",
                "installedTimestamp": "2026-11-01T00:00:00Z",
                "conditions": [
                    { "type": "Hibernating", "status": "False", "reason": "ResumingOrRunning",
                      "lastTransitionTime": "2026-11-21T08:00:00Z" },
                    { "type": "Ready", "status": "True", "reason": "Running",
                      "lastTransitionTime": "2026-11-21T08:05:00Z" },
                ],
            },
        });
        change(&mut object);
        CLUSTER_DEPLOYMENT.record(&object).unwrap()
    }

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn plain_hive_without_any_annotation_of_ours_is_enough() {
        let record = cluster(|_| {});
        assert_eq!((record.desired.as_str(), record.observed.as_str()), ("Running", "Running"));
        assert_eq!(record.since, Some(time("2026-11-21T08:05:00Z")));
        assert_eq!((record.requested_by, record.reason, record.step), (None, None, None));
        assert_eq!((record.platform.as_deref(), record.region.as_deref()), (Some("aws"), Some("us-east-1")));
    }

    #[test]
    fn hibernate_after_fires_by_hives_rules() {
        let ready = "/status/conditions/1";
        for (name, expected, change) in [
            (
                "after R became True",
                Some("2026-11-21T16:05:00Z"),
                Box::new(|_: &mut Value| {}) as Box<dyn Fn(&mut Value)>,
            ),
            (
                "claimed later",
                Some("2026-11-21T18:00:00Z"),
                Box::new(|object| {
                    object["spec"]["clusterPoolRef"] = json!({
                        "namespace": "x", "poolName": "p", "claimName": "c", "claimedTimestamp": "2026-11-21T10:00:00Z",
                    });
                }),
            ),
            (
                "unclaimed",
                None,
                Box::new(|object| {
                    object["spec"]["clusterPoolRef"] = json!({ "namespace": "x", "poolName": "p" });
                }),
            ),
            ("asleep", None, Box::new(|object| object["spec"]["powerState"] = json!("Hibernating"))),
            (
                "still waking",
                None,
                Box::new(move |object| {
                    object.pointer_mut(ready).unwrap()["status"] = json!("False");
                }),
            ),
            (
                "never slept",
                Some("2026-11-01T08:00:00Z"),
                Box::new(|object| object["status"]["conditions"] = json!([])),
            ),
            ("not a duration", None, Box::new(|object| object["spec"]["hibernateAfter"] = json!("soon"))),
            ("no such wish", None, Box::new(|object| object["spec"]["hibernateAfter"] = Value::Null)),
        ] {
            assert_eq!(cluster(change).fires_at, expected.map(time), "{name}");
        }
    }

    #[test]
    fn the_schedule_is_shown_as_it_is_written() {
        let record = cluster(|object| {
            object["metadata"]["annotations"] = json!({
                keys::WAKE_AT: "2026-11-22T08:00:00Z", keys::HOLD_AWAKE_UNTIL: "soon", keys::HOLD_AWAKE_BY: "bob",
            });
        });
        let json = serde_json::to_value(&record).unwrap();
        assert_eq!(json["wakeAt"], "2026-11-22T08:00:00Z");
        assert_eq!((&json["holdAwakeUntil"], &json["holdAwakeBy"]), (&json!("soon"), &json!("bob")));
        assert_eq!(serde_json::to_value(cluster(|_| {})).unwrap().get("wakeAt"), None);
    }

    #[test]
    fn a_step_says_what_is_missing() {
        let record = cluster(|object| {
            object["spec"]["powerState"] = json!("Hibernating");
            object["status"]["powerState"] = json!("WaitingForMachinesToStop");
            object["status"]["conditions"] = json!([
                { "type": "Hibernating", "status": "False", "reason": "WaitingForMachinesToStop",
                  "message": "Stopping cluster machines. Some machines have not yet stopped: i-1,i-2" },
                { "type": "Ready", "status": "False", "reason": "StoppingOrHibernating",
                  "lastTransitionTime": "2026-11-21T09:00:00Z" },
            ]);
        });
        assert_eq!(record.instances, Some(Instances { total: None, awaited: 2 }));
        assert_eq!(record.since, Some(time("2026-11-21T09:00:00Z")));
        assert!(record.step.unwrap().message.ends_with("i-1,i-2"));
    }

    #[test]
    fn a_wish_that_nobody_follows_is_shown() {
        let said = |change: fn(&mut Value)| cluster(change).step.map(|step| step.message);
        assert_eq!(
            said(|object| object["spec"]["powerState"] = json!("Hibernating")).as_deref(),
            Some("waiting for a controller to reconcile")
        );
        assert_eq!(
            said(|object| {
                object["spec"]["powerState"] = json!("Hibernating");
                object["status"]["conditions"][0]["reason"] = json!("Unsupported");
                object["status"]["conditions"][0]["message"] = json!("no actuator");
            })
            .as_deref(),
            Some("no actuator")
        );
        assert_eq!(said(|object| object["spec"]["installed"] = json!(false)).as_deref(), Some("not installed yet"));
    }
}
