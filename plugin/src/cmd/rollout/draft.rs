//! From what was asked for to the object that is created. Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use kube::core::ObjectMeta;
use shared::annotation::mark::Action;
use shared::kinds::TargetKind;
use shared::power::Power;
use shared::rollout::api::{PowerRollout, PowerRolloutSpec, RolloutReference, Targets};
use shared::rollout::selector;
use view::target::Target;

use super::canary::{CanaryGroup, name_of};
use crate::cli::rollout::{Hours, RolloutFlags};
use crate::error::RolloutError;
use crate::select::parse::Selection;

/// Label of every namespace: its name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// Most targets by name.
const MAX_NAMES: usize = 1_000;
/// Letters and digits of a name's random end: those that form no words and look like no others, as Kubernetes has them.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// Length of a name's random end.
const RANDOM: usize = 5;

/// What goes with the action.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Request<'a> {
    /// When the sleep ends, or until when the targets are held awake.
    pub(crate) end: Option<Timestamp>,
    pub(crate) reason: Option<&'a str>,
}

/// The targets as a rollout selects them. `namespace` is none for all namespaces.
///
/// # Errors
/// When there are too many names, or the selector is none that a rollout can hold.
pub(crate) fn targets(
    row: &TargetKind,
    selection: &Selection,
    namespace: Option<&str>,
    found: &[Target],
) -> Result<Targets, RolloutError> {
    let kind = row.kind.kind.to_owned();
    let Selection::Query { selector: labels, .. } = selection else {
        let names: Vec<_> = found.iter().map(name_of).collect();
        return Ok(Targets { kind, names: within_limit(names)?, ..Targets::default() });
    };
    let selector = match labels.trim() {
        "" => None,
        labels => Some(selector::parse(labels).map_err(RolloutError::Selector)?),
    };
    let namespace_selector = namespace.filter(|_| row.kind.is_namespaced()).map(|name| LabelSelector {
        match_labels: Some([(NAMESPACE_NAME.to_owned(), name.to_owned())].into()),
        match_expressions: None,
    });
    let all = selector.is_none() && namespace_selector.is_none();
    Ok(Targets { kind, selector, namespace_selector, names: Vec::new(), all })
}

/// # Errors
/// When there are more names than a rollout can hold.
pub(crate) fn within_limit<T>(names: Vec<T>) -> Result<Vec<T>, RolloutError> {
    match names.len() {
        found if found > MAX_NAMES => Err(RolloutError::TooManyNames { found, max: MAX_NAMES }),
        _ => Ok(names),
    }
}

/// The spec of a new rollout of so many targets.
pub(crate) fn spec(
    action: Power,
    flags: &RolloutFlags,
    hours: Hours,
    request: Request<'_>,
    targets: Targets,
    count: usize,
    canaries: &[CanaryGroup],
) -> PowerRolloutSpec {
    let (wake_at, hold_awake_until) = match action {
        Power::Hibernating => (request.end, None),
        Power::Running => (None, request.end),
    };
    PowerRolloutSpec {
        groups: canaries.iter().map(|canary| canary.group.clone()).collect(),
        max_concurrency: flags.max_concurrency,
        starts_per_minute: flags.starts_per_minute,
        max_failures: flags.max_failures,
        deadline: flags.deadline.clone(),
        not_before: hours.not_before.map(Time),
        paused: flags.paused,
        wake_at: wake_at.map(whole_seconds),
        hold_awake_until: hold_awake_until.map(whole_seconds),
        reason: request.reason.map(str::to_owned),
        ..empty(action_of(action), targets, u32::try_from(count).unwrap_or(u32::MAX), hours.not_after)
    }
}

/// The spec of the rollout that undoes another one: as many targets at most, as many at a time, without its groups.
pub(crate) fn restore(undone: &PowerRollout, reason: Option<&str>, not_after: Timestamp) -> PowerRolloutSpec {
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
        ttl_after_finished: None,
    }
}

/// The object to create.
pub(crate) fn object(name: String, spec: PowerRolloutSpec) -> PowerRollout {
    PowerRollout { metadata: ObjectMeta { name: Some(name), ..ObjectMeta::default() }, spec, status: None }
}

/// `hibernate-20261124-180000-x7k2q`: when it was created, in UTC, and what tells it from others of that second.
pub(crate) fn name(action: Action, now: Timestamp, mut random: u64) -> String {
    let word = match action {
        Action::Hibernate => "hibernate",
        Action::Resume => "resume",
        Action::Restore => "restore",
    };
    let letters = ALPHABET.len() as u64;
    let end: String = (0..RANDOM)
        .filter_map(|_| {
            let at = usize::try_from(random % letters).ok()?;
            random /= letters;
            ALPHABET.get(at).copied().map(char::from)
        })
        .collect();
    format!("{word}-{}-{end}", now.strftime("%Y%m%d-%H%M%S"))
}

/// A number that nobody else has drawn: the standard library seeds its hash maps from the system's randomness.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}

pub(crate) fn action_of(action: Power) -> Action {
    match action {
        Power::Hibernating => Action::Hibernate,
        Power::Running => Action::Resume,
    }
}

fn whole_seconds(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use shared::kinds::{CLUSTER_DEPLOYMENT, KINDS};

    use super::*;
    use crate::cli::{self, Cli, Command};
    use crate::cmd::rollout::canary::tests::target;
    use crate::cmd::rollout::canary::{find, read};
    use crate::select::parse::{Flags, parse};

    const NOW: &str = "2026-11-21T20:30:00+02:00[+02:00]";

    /// The spec of a command line; targets are those named, or a/demo and b/web.
    fn drafted(line: &str) -> Value {
        let words = std::iter::once("kubectl-hibernate").chain(line.split('|'));
        let cli = cli::read::<Cli>(words.map(Into::into)).unwrap();
        let (action, act) = match &cli.command {
            Some(Command::Resume(args)) => (Power::Running, &args.act),
            _ => (Power::Hibernating, &cli.sleep.act),
        };
        let everywhere = cli.hub.all_namespaces;
        let flags =
            Flags { selector: cli.hub.selector.as_deref(), all: act.all, all_namespaces: everywhere, lists: false };
        let selection = parse(KINDS, &act.targets, flags).unwrap();
        let namespace = (!everywhere).then(|| cli.hub.namespace.as_deref().unwrap_or("a"));
        let found = match &selection {
            Selection::Named(names) => names.iter().map(|name| target("a", &name.name, "x")).collect(),
            Selection::Query { .. } => vec![target("a", "demo", "x"), target("b", "web", "y")],
        };
        let now = NOW.parse().unwrap();
        let request = Request { end: act.time.resolve(&now).unwrap(), reason: act.reason.as_deref() };
        let flags = &act.rollout;
        let canaries = find(&read(&flags.canary).unwrap(), namespace, flags.pause_after_canary, &found).unwrap();
        let targets = targets(&CLUSTER_DEPLOYMENT, &selection, namespace, &found).unwrap();
        json!(spec(action, flags, flags.hours(&now).unwrap(), request, targets, found.len(), &canaries))
    }

    fn with(change: &Value) -> Value {
        let mut spec = json!({
            "action": "Hibernate", "maxTargets": 2, "notAfter": "2026-11-21T20:30:00Z", "paused": false, "abort": false,
            "acceptFailures": 0, "retryFailed": 0, "targets": { "kind": "ClusterDeployment", "all": false },
        });
        json_patch::merge(&mut spec, change);
        spec
    }

    #[test]
    fn flags_become_the_spec() {
        let here = |namespace: &str| json!({ "matchLabels": { "kubernetes.io/metadata.name": namespace } });
        let blue = json!({ "matchLabels": { "team": "blue" } });
        let named = |names: &[&str]| -> Vec<Value> {
            names.iter().map(|name| json!({ "namespace": "a", "name": name })).collect()
        };
        for (line, change) in [
            (
                "demo|cd/web|--max-concurrency|2",
                json!({ "maxConcurrency": 2, "targets": { "names": named(&["demo", "web"]) } }),
            ),
            (
                "-l|team=blue|-A|--max-concurrency|10%",
                json!({ "maxConcurrency": "10%", "targets": { "selector": blue } }),
            ),
            (
                "-l|team=blue|-n|shop|--paused",
                json!({ "paused": true, "targets": { "selector": blue, "namespaceSelector": here("shop") } }),
            ),
            (
                "-l|team=blue|--paused",
                json!({ "paused": true, "targets": { "selector": blue, "namespaceSelector": here("a") } }),
            ),
            ("--all|-A|--max-failures|5%", json!({ "maxFailures": "5%", "targets": { "all": true } })),
            (
                "--all|-n|shop|--max-failures|0",
                json!({ "maxFailures": 0, "targets": { "namespaceSelector": here("shop") } }),
            ),
            (
                "-l|team in (blue, red),!old|-A|--starts-per-minute|5|--deadline|20m",
                json!({
                    "startsPerMinute": 5, "deadline": "20m",
                    "targets": { "selector": { "matchExpressions": [
                        { "key": "team", "operator": "In", "values": ["blue", "red"] },
                        { "key": "old", "operator": "DoesNotExist" },
                    ] } },
                }),
            ),
            (
                "--all|-A|--canary|demo|--canary|tier=y|--pause-after-canary",
                json!({ "targets": { "all": true }, "groups": [
                    { "name": "canary", "names": named(&["demo"]), "pauseAfter": true },
                    { "name": "canary-2", "selector": { "matchLabels": { "tier": "y" } }, "pauseAfter": true },
                ] }),
            ),
            (
                "--all|-A|--not-before|22:00|--not-after|23:00",
                json!({ "targets": { "all": true }, "notBefore": "2026-11-21T20:00:00Z", "notAfter": "2026-11-21T21:00:00Z" }),
            ),
            (
                "--all|-A|--paused|--for|14h|--reason|weekend",
                json!({ "targets": { "all": true }, "paused": true, "wakeAt": "2026-11-22T08:30:00Z", "reason": "weekend" }),
            ),
            ("resume|--all|-A|--paused", json!({ "action": "Resume", "targets": { "all": true }, "paused": true })),
            (
                "resume|--all|-A|--paused|--hold-awake|--until|21:00",
                json!({ "action": "Resume", "targets": { "all": true }, "paused": true, "holdAwakeUntil": "2026-11-21T19:00:00Z" }),
            ),
        ] {
            assert_eq!(drafted(line), with(&change), "{line}");
        }
    }

    #[test]
    fn names_have_a_limit() {
        assert!(within_limit(vec![(); 1_000]).is_ok());
        let error = within_limit(vec![(); 1_001]).unwrap_err();
        assert_eq!(error.to_string(), "1001 names are given: a rollout takes at most 1000; use -l SELECTOR or --all");
        assert_eq!(error.exit(), crate::error::Exit::Usage);
    }

    #[test]
    fn an_undo_has_the_targets_of_what_it_undoes() {
        let spec = with(&json!({
            "maxTargets": 12, "targets": { "all": true }, "maxConcurrency": "5%", "startsPerMinute": 3, "deadline": "20m",
            "maxFailures": 3, "paused": true, "abort": true, "retryFailed": 2, "wakeAt": "2026-11-22T08:30:00Z",
            "groups": [{ "name": "canary", "selector": { "matchLabels": { "a": "b" } } }],
        }));
        let object = json!({ "metadata": { "name": "night", "uid": "u-1" }, "spec": spec });
        let undone: PowerRollout = serde_json::from_value(object).unwrap();
        let not_after = "2026-11-24T18:00:00Z".parse().unwrap();
        let expected = with(&json!({
            "action": "Restore", "restoreOf": { "name": "night", "uid": "u-1" }, "maxTargets": 12, "targets": { "all": true },
            "maxConcurrency": "5%", "startsPerMinute": 3, "notAfter": "2026-11-24T18:00:00Z",
            "reason": "undo of rollout night",
        }));
        assert_eq!(json!(restore(&undone, None, not_after)), expected);
        assert_eq!(restore(&undone, Some("a mistake"), not_after).reason.as_deref(), Some("a mistake"));
    }

    #[test]
    fn a_name_tells_when_and_from_others() {
        let now = "2026-11-24T18:00:05.9Z".parse().unwrap();
        assert_eq!(name(Action::Hibernate, now, 0), "hibernate-20261124-180005-bbbbb");
        assert_eq!(name(Action::Restore, now, 27 + 2), "restore-20261124-180005-dcbbb");
        let (one, other) = (name(Action::Resume, now, random()), name(Action::Resume, now, random()));
        assert!(one != other && one.len() == "resume-20261124-180005-".len() + 5, "{one} {other}");
    }
}
