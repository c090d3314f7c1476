//! Workloads: objects whose size is `spec.replicas`. Asleep is 0 replicas, with the former count in an annotation.

use serde_json::Value;

use super::kind::Kind;
use super::lifecycle::{Change, Intent, Lifecycle, Progress, TargetError};
use super::record::Record;
use super::row::{INSTANCES, Reader, TargetKind};
use super::view::{Observed, StepRecord, View};
use crate::admission::Settings;
use crate::annotation::{annotation, keys};
use crate::power::Power;
use crate::text::{count, sanitize_to};
use crate::workload::ownership::{self, our_last_write};
use crate::workload::replicas::{self, ReplicasError, Step};

/// `Deployment`.
pub static DEPLOYMENT: TargetKind = TargetKind {
    in_namespace: true,
    ..row(Kind::namespaced("apps", &["v1"], "Deployment", "deployments").with_short(&["deploy"]))
};
/// `StatefulSet`.
pub static STATEFUL_SET: TargetKind = TargetKind {
    in_namespace: true,
    stage: 3,
    ..row(Kind::namespaced("apps", &["v1"], "StatefulSet", "statefulsets").with_short(&["sts"]))
};
/// `MachineDeployment` of Cluster API.
pub static CAPI_MACHINE_DEPLOYMENT: TargetKind =
    row(Kind::namespaced("cluster.x-k8s.io", &["v1beta2", "v1beta1"], "MachineDeployment", "machinedeployments")
        .with_short(&["md"]));
/// `MachineDeployment` of KKP's machine-controller.
pub static KKP_MACHINE_DEPLOYMENT: TargetKind =
    row(Kind::namespaced("cluster.k8s.io", &["v1alpha1"], "MachineDeployment", "machinedeployments")
        .with_short(&["md"]));

/// `DeploymentConfig` of `OpenShift`, whose count and status are those of a Deployment.
pub static DEPLOYMENT_CONFIG: TargetKind = TargetKind {
    in_namespace: true,
    ..row(Kind::namespaced("apps.openshift.io", &["v1"], "DeploymentConfig", "deploymentconfigs").with_short(&["dc"]))
};

/// Every kind of workload.
pub const ROWS: &[&TargetKind] = &[&DEPLOYMENT, &STATEFUL_SET, &CAPI_MACHINE_DEPLOYMENT, &KKP_MACHINE_DEPLOYMENT];

/// A row with what all workloads have in common.
pub(super) const fn row(kind: Kind) -> TargetKind {
    TargetKind {
        deployed_field: Some("replicas"),
        writes: "spec.replicas: 0",
        awake: "ready",
        columns: &[INSTANCES],
        // Only workloads that sleep or have slept are of interest.
        is_listed: |record| record.replicas == Some(0) || record.recorded_replicas.is_some(),
        ..TargetKind::plain(kind, Reader::Code(|object| Ok(Box::new(Workload(object)))))
    }
}

/// Of a workload that another client has scaled to 0.
const NOTHING_RECORDED: &str = "unchanged (0 replicas, none recorded)";

#[derive(Debug)]
struct Workload<'a>(&'a Value);

impl Lifecycle for Workload<'_> {
    fn view(&self, _: Option<&Settings>) -> View {
        let object = self.0;
        let (replicas, awaited) = (replicas::replicas(object), awaited(object));
        let (power, state) = match (replicas, &awaited) {
            (0, Some(_)) => (Power::Hibernating, "Stopping"),
            (0, None) => (Power::Hibernating, "Hibernating"),
            (_, None) => (Power::Running, "Running"),
            (_, Some(_)) => (Power::Running, "Starting"),
        };
        let observed = Observed {
            state: state.to_owned(),
            since: our_last_write(object).filter(|_| replicas == 0),
            step: awaited.map(StepRecord::waiting),
            ..Observed::default()
        };
        View { observed, ..View::of_value(object, power) }
    }

    fn change(&self, intent: &Intent<'_>) -> Result<Change, TargetError> {
        let object = self.0;
        let step = match intent.power {
            Power::Hibernating => replicas::sleep(object, intent.reason),
            Power::Running => replicas::wake(object, intent.reason),
        };
        let (patch, message) = match step {
            // A user who names a workload expects it to run; of all workloads, some always have 0 replicas.
            Err(ReplicasError::NothingRecorded) if intent.queried => {
                return Ok(Change::None { message: NOTHING_RECORDED.to_owned(), will_reach: false });
            }
            Err(error @ (ReplicasError::Protected | ReplicasError::VolumesDeleted)) => {
                return Err(TargetError::Refused(error.to_string()));
            }
            Err(error) => return Err(TargetError::Impossible(error.to_string())),
            Ok(Step::Unchanged) if replicas::replicas(object) == 0 && annotation(object, keys::REPLICAS).is_none() => {
                return Ok(Change::None { message: NOTHING_RECORDED.to_owned(), will_reach: true });
            }
            Ok(Step::Unchanged) => return Ok(Change::None { message: "unchanged".to_owned(), will_reach: true }),
            Ok(Step::Sleep { replicas, patch }) => {
                let dropped = dropped(object).filter(|_| recorded(object) != Some(Ok(replicas)));
                (patch, format!("hibernated ({} recorded){}", count(replicas, "replica"), dropped.unwrap_or_default()))
            }
            Ok(Step::Wake { replicas, patch }) => {
                let stale = ownership::stale_record(object, keys::REPLICAS, ownership::REPLICAS)
                    .map(|by| format!("; {by}, scaled by others since"));
                (patch, format!("resumed ({}{})", count(replicas, "replica"), stale.unwrap_or_default()))
            }
            Ok(Step::Forget { replicas, patch }) => (
                patch,
                format!("already awake ({}){}", count(replicas, "replica"), dropped(object).unwrap_or_default()),
            ),
        };
        Ok(Change::Patch { patch, message, warnings: Vec::new() })
    }

    /// Asleep is without a replica left, awake is all replicas ready; both only once the workload's controller has seen
    /// this generation.
    fn progress(&self, action: Power) -> Progress {
        let object = self.0;
        let wanted = replicas::replicas(object);
        if object.pointer("/metadata/deletionTimestamp").is_some() {
            return Progress::Failed("it is being deleted".to_owned());
        }
        if (wanted == 0) != (action == Power::Hibernating) {
            return Progress::Failed(format!("it was scaled to {wanted} meanwhile"));
        }
        if number(object, "/status/observedGeneration") < number(object, "/metadata/generation") {
            return Progress::Unnoticed;
        }
        awaited(object).map_or(Progress::Reached, Progress::InProgress)
    }

    fn describe(&self, record: Record) -> Record {
        let recorded_replicas = annotation(self.0, keys::REPLICAS).map(str::to_owned);
        Record { replicas: Some(replicas::replicas(self.0)), recorded_replicas, ..record }
    }
}

fn number(object: &Value, path: &str) -> u64 {
    object.pointer(path).and_then(Value::as_u64).unwrap_or_default()
}

/// What is missing until no replica is left, or all are ready.
fn awaited(object: &Value) -> Option<String> {
    let (wanted, ready) = (replicas::replicas(object), number(object, "/status/readyReplicas"));
    if wanted > 0 {
        return (ready < u64::from(wanted)).then(|| format!("{ready} of {wanted} replicas ready"));
    }
    // A Deployment counts Pods that end by themselves apart, from Kubernetes 1.35 on; before that it does not count them.
    let left = number(object, "/status/replicas").saturating_add(number(object, "/status/terminatingReplicas"));
    (left > 0).then(|| format!("{} left", count(left, "replica")))
}

/// The count that is recorded, if there is a record.
fn recorded(object: &Value) -> Option<Result<u32, ReplicasError>> {
    annotation(object, keys::REPLICAS).map(replicas::count)
}

/// What a message says of a record that is removed or overwritten.
fn dropped(object: &Value) -> Option<String> {
    Some(match recorded(object)? {
        Ok(replicas) => format!(", stale record of {} removed", count(replicas, "replica")),
        Err(_) => format!(", malformed record {:?} removed", sanitize_to(annotation(object, keys::REPLICAS)?, 32)),
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::kinds::row::is_protected;

    fn deployment(replicas: u32, recorded: Option<&str>) -> Value {
        let annotations = recorded.map(|recorded| json!({ keys::REPLICAS: recorded }));
        let metadata =
            json!({ "name": "web", "namespace": "shop", "resourceVersion": "7", "annotations": annotations });
        json!({ "metadata": metadata, "spec": { "replicas": replicas } })
    }

    fn change(object: &Value, action: Power, queried: bool) -> Result<Change, TargetError> {
        let intent =
            Intent { power: action, reason: None, end: None, now: Timestamp::UNIX_EPOCH, queried, force: false };
        DEPLOYMENT.change(object, &intent)
    }

    fn detail(object: &Value, action: Power) -> String {
        match change(object, action, false) {
            Ok(Change::Patch { message, .. } | Change::None { message, .. } | Change::RequestCheck { message, .. }) => {
                message
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn messages_say_what_happened() {
        use Power::{Hibernating, Running};
        for (object, action, expected) in [
            (deployment(3, None), Hibernating, "hibernated (3 replicas recorded)"),
            (deployment(1, None), Hibernating, "hibernated (1 replica recorded)"),
            (deployment(0, Some("3")), Hibernating, "unchanged"),
            (deployment(0, None), Hibernating, "unchanged (0 replicas, none recorded)"),
            (deployment(0, Some("3")), Running, "resumed (3 replicas)"),
            (deployment(2, None), Running, "unchanged"),
            (deployment(2, Some("3")), Running, "already awake (2 replicas), stale record of 3 replicas removed"),
            (deployment(2, Some("x")), Running, "already awake (2 replicas), malformed record \"x\" removed"),
            (
                deployment(2, Some("1")),
                Hibernating,
                "hibernated (2 replicas recorded), stale record of 1 replica removed",
            ),
            (deployment(2, Some("2")), Hibernating, "hibernated (2 replicas recorded)"),
        ] {
            assert_eq!(detail(&object, action), expected);
        }
        let mut scaled = deployment(0, Some("3"));
        scaled["metadata"]["managedFields"] = json!([
            {
                "manager": "kubectl-hibernate", "time": "2026-11-21T09:00:00Z",
                "fieldsV1": { "f:metadata": { "f:annotations": { "f:hibernate.sh/replicas": {} } } },
            },
            {
                "manager": "kubectl", "time": "2026-11-21T10:00:00Z", "subresource": "scale",
                "fieldsV1": { "f:spec": { "f:replicas": {} } },
            },
        ]);
        assert_eq!(
            detail(&scaled, Running),
            "resumed (3 replicas; recorded by kubectl-hibernate at 2026-11-21T09:00:00Z, scaled by others since)"
        );
        assert!(detail(&deployment(0, None), Running).contains("scale it by hand"));
        assert!(detail(&deployment(0, Some("x")), Running).contains(keys::REPLICAS));
    }

    #[test]
    fn of_all_workloads_some_have_no_replicas_but_what_is_recorded_must_be_right() {
        let wake = |object: &Value| change(object, Power::Running, true);
        let message = "unchanged (0 replicas, none recorded)".to_owned();
        assert_eq!(wake(&deployment(0, None)).unwrap(), Change::None { message, will_reach: false });
        assert!(matches!(wake(&deployment(0, Some("3"))), Ok(Change::Patch { .. })));
        assert!(matches!(wake(&deployment(0, Some("x"))), Err(TargetError::Impossible(_))));
        assert!(matches!(wake(&deployment(2, None)), Ok(Change::None { will_reach: true, .. })));
    }

    #[test]
    fn a_protected_workload_refuses_to_sleep() {
        let mut object = deployment(2, None);
        object["metadata"]["annotations"] = json!({ keys::PROTECTED: "true" });
        assert!(matches!(change(&object, Power::Hibernating, false), Err(TargetError::Refused(_))));
        assert!(is_protected(&object));
    }

    #[test]
    fn workloads_are_done_when_their_controller_says_so() {
        let workload = |replicas: u32, generation: u32, status: Value| {
            let mut object = json!({ "metadata": { "generation": generation }, "spec": { "replicas": replicas } });
            object["status"] = status;
            object
        };
        let seen = |replicas: u32, ready: u32| json!({ "observedGeneration": 2, "replicas": replicas, "readyReplicas": ready });
        for (object, action, expected) in [
            (workload(0, 3, seen(0, 0)), Power::Hibernating, Progress::Unnoticed),
            (workload(0, 2, seen(3, 1)), Power::Hibernating, Progress::InProgress("3 replicas left".to_owned())),
            (workload(0, 2, json!({ "observedGeneration": 2 })), Power::Hibernating, Progress::Reached),
            (
                workload(0, 2, json!({ "observedGeneration": 2, "terminatingReplicas": 1 })),
                Power::Hibernating,
                Progress::InProgress("1 replica left".to_owned()),
            ),
            (workload(3, 2, seen(3, 1)), Power::Running, Progress::InProgress("1 of 3 replicas ready".to_owned())),
            (workload(3, 2, seen(3, 3)), Power::Running, Progress::Reached),
            (
                workload(3, 2, seen(3, 3)),
                Power::Hibernating,
                Progress::Failed("it was scaled to 3 meanwhile".to_owned()),
            ),
        ] {
            assert_eq!(DEPLOYMENT.progress(&object, action).unwrap(), expected, "{object}");
        }
    }

    #[test]
    fn workloads_have_replicas() {
        let workload = |replicas: u32, status: Value| {
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
            DEPLOYMENT.record(&object).unwrap()
        };
        let asleep = workload(0, json!({}));
        assert_eq!((asleep.desired.as_str(), asleep.observed.as_str()), ("Hibernating", "Hibernating"));
        assert_eq!(asleep.since, Some("2026-11-21T09:00:00Z".parse().unwrap()));
        assert_eq!((asleep.replicas, asleep.recorded_replicas.as_deref()), (Some(0), Some("3")));
        assert!(asleep.protected);
        let waking = workload(3, json!({ "replicas": 3, "readyReplicas": 1 }));
        assert_eq!((waking.observed.as_str(), waking.since), ("Starting", None));
        assert_eq!(waking.step.unwrap().message, "1 of 3 replicas ready");
        assert_eq!(workload(3, json!({ "readyReplicas": 3 })).observed, "Running");
        assert_eq!(workload(0, json!({ "replicas": 2 })).observed, "Stopping");
        assert_eq!(workload(0, json!({ "terminatingReplicas": 2 })).observed, "Stopping");
    }
}
