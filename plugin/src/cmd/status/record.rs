//! What `status` says about a target. Pure: an object in, a record out.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use shared::{
    annotation::{annotation, keys},
    hive::{
        api::{ClusterDeployment, Desired},
        conditions::{HIBERNATING, READY},
    },
    workload::replicas,
};

use crate::{
    cmd::status::{
        fires::fires_at,
        instances::{self, Instances},
    },
    error::Problem,
    select::Target,
    wait::progress::{Step, pause, step},
};

/// The state of a target in the form that `-o json` documents. Later versions only add fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    /// `clusterdeployment.hive.openshift.io`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// `Running` or `Hibernating`.
    pub(crate) desired: String,
    /// In the target's own system's words; empty if it has said nothing yet.
    pub(crate) observed: String,
    /// When the observed state began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) requested_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) requested_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// What is going on, while something is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) step: Option<StepRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) instances: Option<Instances>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) platform: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) region: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hibernate_after: Option<String>,
    /// When hibernateAfter puts the cluster to sleep, if nothing changes until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fires_at: Option<Timestamp>,
    /// When the cluster is to wake again, as it is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) wake_at: Option<String>,
    /// Until when the cluster must stay awake, as it is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hold_awake_until: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hold_awake_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) replicas: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) recorded_replicas: Option<String>,
    pub(crate) protected: bool,
}

/// A step under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct StepRecord {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) failed: bool,
}

impl From<Step> for StepRecord {
    fn from(Step { reason, message, failed }: Step) -> Self {
        Self { reason, message, failed }
    }
}

impl Record {
    /// Reads a target.
    ///
    /// # Errors
    /// When the object is not what its kind promises.
    pub(crate) fn of(target: &Target) -> Result<Self, Problem> {
        let note = |key: &str| annotation(&target.object, key).map(str::to_owned);
        let kind = target.resource.kind;
        let common = Self {
            kind: format!("{}.{}", kind.kind.to_ascii_lowercase(), kind.group),
            namespace: target.namespace.clone(),
            name: target.name.clone(),
            requested_by: note(keys::REQUESTED_BY),
            requested_at: note(keys::REQUESTED_AT),
            reason: note(keys::REASON),
            protected: note(keys::PROTECTED).as_deref() == Some("true"),
            ..Self::default()
        };
        if !target.is_cluster() {
            return Ok(common.workload(&target.object));
        }
        let cluster = serde_json::from_value(target.object.clone()).map_err(Problem::Unreadable)?;
        Ok(common.cluster(&cluster))
    }

    fn cluster(self, cluster: &ClusterDeployment) -> Self {
        let step = step(cluster).map(StepRecord::from).or_else(|| waits(cluster));
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let note = |key: &str| cluster.metadata.annotations.as_ref()?.get(key).cloned();
        Self {
            desired: cluster.desired().to_string(),
            observed: cluster.power_state().to_owned(),
            since: since(cluster),
            instances: instances::of(cluster),
            step,
            platform: text(cluster.spec.platform.name()),
            region: cluster.spec.platform.region().map(str::to_owned),
            hibernate_after: cluster.spec.hibernate_after.clone(),
            fires_at: fires_at(cluster),
            wake_at: note(keys::WAKE_AT),
            hold_awake_until: note(keys::HOLD_AWAKE_UNTIL),
            hold_awake_by: note(keys::HOLD_AWAKE_BY),
            ..self
        }
    }

    fn workload(self, object: &Value) -> Self {
        let number = |path: &str| object.pointer(path).and_then(Value::as_u64).unwrap_or_default();
        let replicas = replicas::replicas(object);
        let (left, ready) = (number("/status/replicas"), number("/status/readyReplicas"));
        let (desired, observed, message) = match replicas {
            0 if left > 0 => ("Hibernating", "Stopping", Some(format!("{left} replicas left"))),
            0 => ("Hibernating", "Hibernating", None),
            _ if ready >= u64::from(replicas) => ("Running", "Running", None),
            _ => ("Running", "Starting", Some(format!("{ready} of {replicas} replicas ready"))),
        };
        let step = message.map(|message| StepRecord { reason: String::new(), message, failed: false });
        Self {
            desired: desired.to_owned(),
            observed: observed.to_owned(),
            since: written_at(object).filter(|_| replicas == 0),
            step,
            replicas: Some(replicas),
            recorded_replicas: annotation(object, keys::REPLICAS).map(str::to_owned),
            ..self
        }
    }
}

/// Why nothing goes on although what is wanted is not there.
fn waits(cluster: &ClusterDeployment) -> Option<StepRecord> {
    let differs = cluster.desired().to_string() != cluster.power_state();
    let message = match pause(cluster) {
        Some(pause) => pause.to_owned(),
        None if differs && cluster.desired() == Desired::Hibernating => match cluster.condition(HIBERNATING) {
            Some(said) if said.reason.as_deref() == Some("Unsupported") => said.message.clone().unwrap_or_default(),
            _ => "waiting for a controller to take notice".to_owned(),
        },
        None if differs && !cluster.power_state().is_empty() => "waiting for a controller to take notice".to_owned(),
        None => return None,
    };
    Some(StepRecord { reason: String::new(), message, failed: false })
}

/// When the state that is shown began. A sleep begins when R turns False, a wake when H does (hive.md 1.5).
fn since(cluster: &ClusterDeployment) -> Option<Timestamp> {
    let condition = match (cluster.power_state(), cluster.desired()) {
        ("Hibernating", _) => HIBERNATING,
        ("Running", _) | (_, Desired::Hibernating) => READY,
        (_, Desired::Running) => HIBERNATING,
    };
    Some(cluster.condition(condition)?.last_transition_time.as_ref()?.0)
}

/// When this program last wrote the object, as the API server recorded it.
fn written_at(object: &Value) -> Option<Timestamp> {
    let entries = object.pointer("/metadata/managedFields")?.as_array()?;
    let ours = entries.iter().filter(|entry| entry.get("manager").and_then(Value::as_str) == Some(keys::PLUGIN));
    ours.filter_map(|entry| entry.get("time")?.as_str()?.parse().ok()).max()
}

/// The list that `-o json` prints.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct List<'a> {
    api_version: &'static str,
    kind: &'static str,
    items: &'a [Record],
}

impl<'a> List<'a> {
    /// A list of records.
    pub(crate) fn new(items: &'a [Record]) -> Self {
        Self { api_version: "hibernate.sh/v1alpha1", kind: "TargetStatusList", items }
    }
}

/// The key of a record among others.
pub(crate) type Key = (String, String, String);

impl Record {
    /// What makes it the same target.
    pub(crate) fn key(&self) -> Key {
        (self.kind.clone(), self.namespace.clone(), self.name.clone())
    }
}

/// Records by what makes them the same target.
pub(crate) type Records = BTreeMap<Key, Record>;

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::workload::kinds;

    use super::*;
    use crate::{api::Resource, select::CLUSTER_DEPLOYMENT};

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
        let resource = Resource { kind: &CLUSTER_DEPLOYMENT, version: "v1" };
        Record::of(&Target::new(resource, object)).unwrap()
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
            Some("waiting for a controller to take notice")
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

    #[test]
    fn workloads_have_replicas() {
        let workload = |replicas: u32, status: Value| {
            let resource = Resource { kind: &kinds::KINDS[0], version: "v1" };
            let object = json!({
                "metadata": {
                    "name": "web", "namespace": "shop",
                    "annotations": { keys::REPLICAS: "3", keys::PROTECTED: "true" },
                    "managedFields": [
                        { "manager": keys::PLUGIN, "time": "2026-11-21T09:00:00Z" },
                        { "manager": "kubectl", "time": "2026-11-21T10:00:00Z" },
                    ],
                },
                "spec": { "replicas": replicas },
                "status": status,
            });
            Record::of(&Target::new(resource, object)).unwrap()
        };
        let asleep = workload(0, json!({}));
        assert_eq!((asleep.desired.as_str(), asleep.observed.as_str()), ("Hibernating", "Hibernating"));
        assert_eq!(asleep.since, Some(time("2026-11-21T09:00:00Z")));
        assert_eq!((asleep.replicas, asleep.recorded_replicas.as_deref()), (Some(0), Some("3")));
        assert!(asleep.protected);
        let waking = workload(3, json!({ "replicas": 3, "readyReplicas": 1 }));
        assert_eq!((waking.observed.as_str(), waking.since), ("Starting", None));
        assert_eq!(waking.step.unwrap().message, "1 of 3 replicas ready");
        assert_eq!(workload(3, json!({ "readyReplicas": 3 })).observed, "Running");
        assert_eq!(workload(0, json!({ "replicas": 2 })).observed, "Stopping");
    }
}
