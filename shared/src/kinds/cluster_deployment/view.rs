//! What every consumer reads of a `ClusterDeployment`.

use jiff::Timestamp;
use kube::ResourceExt;

use super::progress;
use crate::admission::{Settings, sleep_denial};
use crate::hive::admission::judge;
use crate::hive::api::{ClusterDeployment, Condition, FAKE_CLUSTER, POWERSTATE_PAUSE, RECONCILE_PAUSE};
use crate::hive::conditions::{HIBERNATING, PROGRESS, READY, reason};
use crate::hive::pool;
use crate::kinds::lifecycle::UNNOTICED;
use crate::kinds::view::{Cause, MAX_REASON, Observed, Obstacles, StepRecord, View, denied};
use crate::power::Power;
use crate::text::sanitize_to;

/// Reads the object, and what refuses its sleep by these rules.
pub(super) fn of(cluster: &ClusterDeployment, rules: Option<&Settings>) -> View {
    let power = cluster.desired();
    let view = View::of(&cluster.metadata, power);
    let observed = observed(cluster);
    let runs = observed.is_some_and(|(power, _)| power == Power::Running);
    let (failed, delayed) = trouble(cluster);
    let denial = rules.filter(|_| power == Power::Running).and_then(|rules| sleep_denial(cluster, rules, judge));
    View {
        observed: Observed {
            power: observed,
            state: cluster.power_state().to_owned(),
            since: state_since(cluster),
            step: progress::step(cluster).or_else(|| unfollowed(cluster)),
            has_spoke: runs && !cluster.annotation_is_true(FAKE_CLUSTER),
        },
        obstacles: Obstacles {
            refused: denial.as_ref().map(denied),
            waits: view.obstacles.waits.or_else(|| waits(cluster)),
            failed,
            delayed,
            domain: Some(domain(cluster)),
            ..view.obstacles
        },
        ..view
    }
}

fn since(condition: &Condition) -> Timestamp {
    condition.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

fn observed(cluster: &ClusterDeployment) -> Option<(Power, Timestamp)> {
    let is_true = |type_| cluster.condition(type_).filter(|condition| condition.status == "True");
    match (is_true(HIBERNATING), is_true(READY)) {
        (Some(asleep), None) => Some((Power::Hibernating, since(asleep))),
        (None, Some(awake)) => Some((Power::Running, since(awake))),
        _ => None,
    }
}

/// What fails, and what its cloud delays, each with its beginning.
type Trouble = (Option<(String, Timestamp)>, Option<(Cause, Timestamp)>);

fn trouble(cluster: &ClusterDeployment) -> Trouble {
    let probed = |condition: &Condition| condition.last_probe_time.as_ref().map_or_else(|| since(condition), |at| at.0);
    let awaited = cluster.condition(PROGRESS).filter(|condition| condition.status == "True");
    let cause = awaited.and_then(|condition| match condition.reason.as_deref()? {
        reason::CAPACITY => Some((Cause::Capacity, probed(condition))),
        reason::THROTTLED => Some((Cause::Throttled, probed(condition))),
        _ => None,
    });
    let passing = [reason::CLOUD_UNREACHABLE, reason::IN_TRANSIT];
    let passes = awaited.and_then(|condition| condition.reason.as_deref()).is_some_and(|why| passing.contains(&why));
    if cause.is_some() || passes {
        return (None, cause);
    }
    let failed = [HIBERNATING, READY].into_iter().filter_map(|type_| cluster.condition(type_));
    let is_failure = |condition: &&Condition| condition.reason.as_deref().is_some_and(reason::is_failure);
    let failed = failed.into_iter().find(is_failure);
    let message = |condition: &Condition| sanitize_to(condition.message.as_deref().unwrap_or_default(), MAX_REASON);
    (failed.map(|condition| (message(condition), probed(condition))), None)
}

/// Why no step is under way although the cluster is not in the desired state.
fn unfollowed(cluster: &ClusterDeployment) -> Option<StepRecord> {
    let (desired, state) = (cluster.desired(), cluster.power_state());
    let sleeps = desired == Power::Hibernating;
    let message = match progress::pause(cluster) {
        Some(pause) => pause,
        None if desired.to_string() == state => return None,
        None if sleeps && cluster.reason(HIBERNATING) == reason::UNSUPPORTED => cluster.message(HIBERNATING),
        None if sleeps || !state.is_empty() => UNNOTICED,
        None => return None,
    };
    Some(StepRecord::waiting(message.to_owned()))
}

/// When the state that is shown began. A sleep begins when `Ready` turns False, a wake when `Hibernating` does
/// (docs/reference/hive.md, section 1.5).
fn state_since(cluster: &ClusterDeployment) -> Option<Timestamp> {
    let condition = match (cluster.power_state(), cluster.desired()) {
        ("Hibernating", _) => HIBERNATING,
        ("Running", _) | (_, Power::Hibernating) => READY,
        (_, Power::Running) => HIBERNATING,
    };
    cluster.changed_at(condition)
}

fn waits(cluster: &ClusterDeployment) -> Option<String> {
    if !cluster.spec.installed {
        return Some("not installed yet".to_owned());
    }
    if let Some(key) = [RECONCILE_PAUSE, POWERSTATE_PAUSE].into_iter().find(|key| cluster.annotation_is_true(key)) {
        return Some(format!("paused: {key} is set"));
    }
    let name = sanitize_to(&pool::deciding(cluster)?.pool_name, MAX_REASON / 2);
    Some(format!("unclaimed cluster of ClusterPool {name}, which sets its powerState"))
}

/// What a cluster shares a cloud's limits with, as far as names tell: platform, region and the name of its credentials.
/// An estimate for forecasts: the controller knows the account. The names are compared without their namespaces: hubs
/// keep a copy of an account's Secret in the namespace of each cluster.
fn domain(cluster: &ClusterDeployment) -> String {
    let (platform, name) = (&cluster.spec.platform, cluster.name_any());
    let account = if let Some(aws) = &platform.aws {
        let secret = || account(aws.credentials_secret_ref.as_ref().map_or("", |secret| &secret.name), &name);
        aws.credentials_assume_role.as_ref().map_or_else(secret, |role| role.role_arn.clone())
    } else {
        let member = platform.other.get(platform.name());
        let secret = member.and_then(|member| member.credentials_secret_ref.as_ref());
        account(secret.map_or("", |secret| &secret.name), &name)
    };
    sanitize_to(&format!("{}/{}/{account}", platform.name(), platform.region().unwrap_or_default()), MAX_REASON)
}

/// The account that a Secret is of, as far as names tell. Consoles give each cluster a copy of the account's Secret,
/// named after the cluster, such as `demo-aws-creds`: those count as one.
fn account(secret: &str, cluster: &str) -> String {
    let rest = secret.strip_prefix(cluster).filter(|rest| rest.starts_with('-'));
    rest.map_or_else(|| secret.to_owned(), |rest| format!("*{rest}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::annotation::keys;
    use crate::kinds::cluster_deployment::CLUSTER_DEPLOYMENT;
    use crate::kinds::record::{Instances, Record};

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
        let detail = |change: fn(&mut Value)| cluster(change).step.map(|step| step.message);
        assert_eq!(
            detail(|object| object["spec"]["powerState"] = json!("Hibernating")).as_deref(),
            Some("waiting for a controller to reconcile")
        );
        assert_eq!(
            detail(|object| {
                object["spec"]["powerState"] = json!("Hibernating");
                object["status"]["conditions"][0]["reason"] = json!("Unsupported");
                object["status"]["conditions"][0]["message"] = json!("no actuator");
            })
            .as_deref(),
            Some("no actuator")
        );
        assert_eq!(detail(|object| object["spec"]["installed"] = json!(false)).as_deref(), Some("not installed yet"));
    }
}
