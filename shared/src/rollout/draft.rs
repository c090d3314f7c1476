//! From what is wanted of a fleet to the `PowerRollout` that is created. Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};

use super::api::{PowerRollout, PowerRolloutSpec, RolloutReference, Targets};
use super::members::NAMESPACE_NAME;
use crate::annotation::format::whole_seconds;
use crate::annotation::mark::Action;
use crate::kinds::{Intent, Kind};
use crate::power::Power;

/// Most targets by name.
pub const MAX_NAMES: usize = 1_000;
/// Letters and digits of a name's random end: those that form no words and look like no others, as Kubernetes has them.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// Length of a name's random end.
const RANDOM: usize = 5;

/// The objects of a kind with these labels, of one namespace; all of them if there is neither.
pub fn by_labels(kind: &Kind, selector: Option<LabelSelector>, namespace: Option<&str>) -> Targets {
    let namespace_selector = namespace.filter(|_| kind.is_namespaced()).map(|name| LabelSelector {
        match_labels: Some([(NAMESPACE_NAME.to_owned(), name.to_owned())].into()),
        match_expressions: None,
    });
    let all = selector.is_none() && namespace_selector.is_none();
    Targets { kind: kind.kind.to_owned(), selector, namespace_selector, names: Vec::new(), all }
}

/// A spec without limits: an intent for at most so many targets, none of which starts after this time.
pub fn spec(intent: &Intent<'_>, targets: Targets, max_targets: usize, not_after: Timestamp) -> PowerRolloutSpec {
    let (wake_at, hold_awake_until) = match intent.power {
        Power::Hibernating => (intent.end, None),
        Power::Running => (None, intent.end),
    };
    PowerRolloutSpec {
        reason: intent.reason.map(str::to_owned),
        wake_at: wake_at.map(|at| Time(whole_seconds(at))),
        hold_awake_until: hold_awake_until.map(|until| Time(whole_seconds(until))),
        ..of_power(intent.power, targets, u32::try_from(max_targets).unwrap_or(u32::MAX), not_after)
    }
}

/// A spec without limits that brings at most so many targets into this state.
pub fn of_power(power: Power, targets: Targets, max_targets: u32, not_after: Timestamp) -> PowerRolloutSpec {
    let action = match power {
        Power::Hibernating => Action::Hibernate,
        Power::Running => Action::Resume,
    };
    empty(action, targets, max_targets, not_after)
}

/// The spec of the rollout that undoes another one: as many targets at most, as many at a time, without its groups.
pub fn restore(undone: &PowerRollout, reason: Option<&str>, not_after: Timestamp) -> PowerRolloutSpec {
    let name = undone.metadata.name.clone().unwrap_or_default();
    let reason = reason.map_or_else(|| format!("undo of rollout {name}"), str::to_owned);
    PowerRolloutSpec {
        restore_of: Some(RolloutReference { name, uid: undone.metadata.uid.clone().unwrap_or_default() }),
        max_concurrency: undone.spec.max_concurrency,
        starts_per_minute: undone.spec.starts_per_minute,
        reason: Some(reason),
        ..empty(Action::Restore, undone.spec.targets.clone(), undone.spec.max_targets, not_after)
    }
}

fn empty(action: Action, targets: Targets, max_targets: u32, not_after: Timestamp) -> PowerRolloutSpec {
    PowerRolloutSpec {
        action,
        restore_of: None,
        targets,
        max_targets,
        groups: Vec::new(),
        max_concurrency: None,
        starts_per_minute: None,
        max_failures: None,
        deadline: None,
        min_success_time: None,
        not_before: None,
        not_after: Time(not_after),
        paused: false,
        abort: false,
        accept_failures: 0,
        retry_failed: 0,
        wake_at: None,
        hold_awake_until: None,
        reason: None,
        as_of: None,
        scheduled_by: None,
        ttl_after_finished: None,
    }
}

/// `hibernate-20261124-180000-x7k2q`: when it was created, in UTC, and what tells it from others of that second.
pub fn name(action: Action, now: Timestamp, mut random: u64) -> String {
    let letters = ALPHABET.len() as u64;
    let end: String = (0..RANDOM)
        .filter_map(|_| {
            let at = usize::try_from(random % letters).ok()?;
            random /= letters;
            ALPHABET.get(at).copied().map(char::from)
        })
        .collect();
    format!("{}-{}-{end}", action.to_string().to_lowercase(), now.strftime("%Y%m%d-%H%M%S"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_undo_has_the_targets_of_what_it_undoes() {
        let spec = json!({
            "action": "Hibernate", "notAfter": "2026-11-21T20:30:00Z", "maxTargets": 12, "targets": { "all": true },
            "maxConcurrency": "5%", "startsPerMinute": 3, "deadline": "20m", "maxFailures": 3, "paused": true,
            "abort": true, "retryFailed": 2, "wakeAt": "2026-11-22T08:30:00Z",
            "groups": [{ "name": "canary", "selector": { "matchLabels": { "a": "b" } } }],
        });
        let object = json!({ "metadata": { "name": "night", "uid": "u-1" }, "spec": spec });
        let undone: PowerRollout = serde_json::from_value(object).unwrap();
        let not_after = "2026-11-24T18:00:00Z".parse().unwrap();
        let expected = json!({
            "action": "Restore", "restoreOf": { "name": "night", "uid": "u-1" }, "maxTargets": 12,
            "targets": { "kind": "ClusterDeployment", "all": true }, "maxConcurrency": "5%", "startsPerMinute": 3,
            "notAfter": "2026-11-24T18:00:00Z", "reason": "undo of rollout night", "paused": false, "abort": false,
            "acceptFailures": 0, "retryFailed": 0,
        });
        assert_eq!(json!(restore(&undone, None, not_after)), expected);
        assert_eq!(restore(&undone, Some("a mistake"), not_after).reason.as_deref(), Some("a mistake"));
    }

    #[test]
    fn a_name_tells_when_and_from_others() {
        let now = "2026-11-24T18:00:05.9Z".parse().unwrap();
        assert_eq!(name(Action::Hibernate, now, 0), "hibernate-20261124-180005-bbbbb");
        assert_eq!(name(Action::Restore, now, 27 + 2), "restore-20261124-180005-dcbbb");
        assert_eq!(name(Action::Resume, now, u64::MAX).len(), "resume-20261124-180005-".len() + RANDOM);
    }
}
