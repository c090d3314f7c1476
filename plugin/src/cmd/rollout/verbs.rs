//! `rollout pause|resume|accept|retry|abort`: what each writes. Pure.

use jiff::Timestamp;
use serde_json::{Value, json};
use shared::annotation::format;
use shared::rollout::api::PowerRollout;
use shared::rollout::member::MemberState;
use shared::rollout::status::{PowerRolloutStatus, RolloutPhase};

use crate::cmd::rewrite::Step;

/// A verb besides `undo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Pause,
    Resume,
    Accept,
    Retry,
    Abort,
}

impl Change {
    /// What a message says that it does.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Accept => "accept failures",
            Self::Retry => "retry",
            Self::Abort => "abort",
        }
    }
}

/// What a verb writes, or why it cannot work.
///
/// | verb | when | then |
/// |---|---|---|
/// | abort | aborted already | unchanged |
/// | any | aborted | refused |
/// | all but retry | over | refused |
/// | pause | paused | unchanged |
/// | pause, abort | else | the field alone: it is the same whoever else writes |
/// | resume | halted, and neither paused nor waiting for approval | refused |
/// | resume | neither paused nor waiting for approval | unchanged |
/// | resume | else | paused, and the group's `pauseAfter`, if it is still the group of that name |
/// | accept | not halted | refused |
/// | retry | `notAfter` has passed, or nothing has failed | refused |
/// | accept, retry | else | the counter, if it is as it was read |
pub(crate) fn step(change: Change, rollout: &PowerRollout, now: Timestamp) -> Result<Step, String> {
    let (spec, phase) = (&rollout.spec, phase(rollout));
    let merge = |spec: Value, done: &str| Ok(Some((json!({ "spec": spec }), done.to_owned())));
    if spec.abort {
        return match change {
            Change::Abort => Ok(None),
            _ => Err("it is aborted: only `undo` is left".to_owned()),
        };
    }
    if let Some(phase) = phase.filter(|phase| phase.is_over() && change != Change::Retry) {
        return Err(format!("it is over ({phase}): only `undo` is left, and `retry` if targets have failed"));
    }
    match change {
        Change::Pause if spec.paused => Ok(None),
        Change::Pause => merge(json!({ "paused": true }), "paused"),
        Change::Abort => merge(json!({ "abort": true }), "aborted"),
        Change::Resume => resume(rollout),
        Change::Accept if phase == Some(RolloutPhase::Halted) && !is_of_failures(rollout) => {
            Err(format!("it has not halted for failures: {}", message(rollout)))
        }
        Change::Accept if phase != Some(RolloutPhase::Halted) => Err(format!(
            "it has not halted ({}): there are no failures to accept",
            phase.map_or_else(|| "no status yet".to_owned(), |phase| phase.to_string())
        )),
        Change::Accept => counted("acceptFailures", spec.accept_failures, "failures accepted"),
        Change::Retry if now >= spec.not_after.0 => Err(format!(
            "its notAfter {} has passed, and nothing starts any more: set a later spec.notAfter first",
            format::seconds(spec.not_after.0)
        )),
        Change::Retry => match failed(rollout) {
            0 => Err("no target has failed".to_owned()),
            failed => counted("retryFailed", spec.retry_failed, &format!("retries {failed} failed")),
        },
    }
}

fn phase(rollout: &PowerRollout) -> Option<RolloutPhase> {
    rollout.status.as_ref()?.phase
}

/// Whether it has halted for failures, and not because it selects too many targets.
fn is_of_failures(rollout: &PowerRollout) -> bool {
    rollout.status.as_ref().is_some_and(|status| status.halt.is_some())
}

fn message(rollout: &PowerRollout) -> &str {
    rollout.status.as_ref().and_then(|status| status.message.as_deref()).unwrap_or_default()
}

fn failed(rollout: &PowerRollout) -> u32 {
    let count = |status: &PowerRolloutStatus, state: MemberState| status.counts.get(&state.to_string()).copied();
    let of = |state| rollout.status.as_ref().and_then(|status| count(status, state)).unwrap_or_default();
    of(MemberState::Failed) + of(MemberState::TimeOut)
}

/// A counter that two clients raise at once would be raised once only: the test makes the second one read again. The
/// object's version would do so for each write of its status, too.
fn counted(field: &str, count: u32, done: &str) -> Result<Step, String> {
    let raised = count.checked_add(1).ok_or_else(|| format!("spec.{field} cannot become any larger"))?;
    let path = format!("/spec/{field}");
    let patch =
        json!([{ "op": "test", "path": path, "value": count }, { "op": "replace", "path": path, "value": raised }]);
    Ok(Some((patch, done.to_owned())))
}

fn resume(rollout: &PowerRollout) -> Result<Step, String> {
    let spec = &rollout.spec;
    let awaited = rollout.status.as_ref().and_then(|status| status.awaits_approval.as_deref());
    let group = spec.groups.iter().enumerate().find(|(_, group)| group.pause_after && awaited == Some(&group.name));
    let mut patch = Vec::new();
    let mut done = Vec::new();
    if spec.paused {
        patch.push(json!({ "op": "add", "path": "/spec/paused", "value": false }));
        done.push("resumed".to_owned());
    }
    if let Some((at, group)) = group {
        patch.push(json!({ "op": "test", "path": format!("/spec/groups/{at}/name"), "value": group.name }));
        patch.push(json!({ "op": "add", "path": format!("/spec/groups/{at}/pauseAfter"), "value": false }));
        done.push(format!("approved after group {}", group.name));
    }
    match (patch.is_empty(), phase(rollout)) {
        (true, Some(RolloutPhase::Halted)) if is_of_failures(rollout) => {
            Err("it has halted: use `accept`, `retry` or `abort`".to_owned())
        }
        (true, Some(RolloutPhase::Halted)) => Err(format!("it has halted: {}", message(rollout))),
        (true, _) => Ok(None),
        (false, _) => Ok(Some((Value::Array(patch), done.join(", ")))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-11-21T19:00:00Z";

    fn rollout(spec: &Value, status: &Value) -> PowerRollout {
        let mut object = json!({
            "metadata": { "name": "night", "resourceVersion": "7" },
            "spec": {
                "action": "Hibernate", "maxTargets": 2, "notAfter": "2026-11-21T20:30:00Z", "targets": { "all": true },
                "groups": [
                    { "name": "canary", "selector": { "matchLabels": { "a": "b" } }, "pauseAfter": true },
                    { "name": "canary-2", "selector": { "matchLabels": { "a": "c" } }, "pauseAfter": true },
                ],
            },
        });
        json_patch::merge(&mut object, &json!({ "spec": spec, "status": status }));
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn verbs_write_as_little_as_the_table_says() {
        use Change::{Abort, Accept, Pause, Resume, Retry};
        let phase = |phase: &str| json!({ "phase": phase });
        let halt = json!({ "group": "", "at": "2026-11-21T18:00:00Z", "acceptFailures": 3, "retryFailed": 0 });
        let failed = |phase: &str| json!({ "phase": phase, "halt": halt, "counts": { "Failed": 1, "TimeOut": 2 } });
        let write = |patch: Value, done: &str| Ok(Some((patch, done.to_owned())));
        let merge = |spec: Value, done: &str| write(json!({ "spec": spec }), done);
        let counter = |field: &str, from: u32, done: &str| {
            let path = format!("/spec/{field}");
            let test = json!({ "op": "test", "path": path, "value": from });
            write(json!([test, { "op": "replace", "path": path, "value": from + 1 }]), done)
        };
        let unpaused = json!({ "op": "add", "path": "/spec/paused", "value": false });
        let second = [
            json!({ "op": "test", "path": "/spec/groups/1/name", "value": "canary-2" }),
            json!({ "op": "add", "path": "/spec/groups/1/pauseAfter", "value": false }),
        ];
        let waits = json!({ "phase": "Paused", "awaitsApproval": "canary-2" });
        let halted = json!({ "phase": "Halted", "message": "selects 9 targets" });
        let (none, paused) = (json!({}), json!({ "paused": true }));
        let (accepted, late) = (json!({ "acceptFailures": 3 }), json!({ "notAfter": NOW }));
        for (change, spec, status, expected) in [
            (Pause, none.clone(), phase("Progressing"), merge(json!({ "paused": true }), "paused")),
            (Pause, none.clone(), none.clone(), merge(json!({ "paused": true }), "paused")),
            (Pause, paused.clone(), phase("Paused"), Ok(None)),
            (Pause, none.clone(), phase("Succeeded"), Err("it is over (Succeeded)")),
            (Resume, paused.clone(), phase("Planned"), write(json!([unpaused]), "resumed")),
            (Resume, none.clone(), phase("Progressing"), Ok(None)),
            (Resume, none.clone(), failed("Halted"), Err("it has halted: use `accept`, `retry` or `abort`")),
            (Resume, none.clone(), halted, Err("it has halted: selects 9 targets")),
            (Resume, none.clone(), waits.clone(), write(json!(second), "approved after group canary-2")),
            (
                Resume,
                paused.clone(),
                waits,
                write(json!([unpaused, second[0], second[1]]), "resumed, approved after group canary-2"),
            ),
            (Resume, none.clone(), json!({ "awaitsApproval": "gone" }), Ok(None)),
            (Resume, none.clone(), phase("Finished"), Err("it is over (Finished)")),
            (Accept, accepted, failed("Halted"), counter("acceptFailures", 3, "failures accepted")),
            (Accept, none.clone(), phase("Progressing"), Err("it has not halted (Progressing)")),
            (Accept, none.clone(), phase("Halted"), Err("it has not halted for failures")),
            (Accept, none.clone(), none.clone(), Err("it has not halted (no status yet)")),
            (Accept, json!({ "acceptFailures": u32::MAX }), failed("Halted"), Err("cannot become any larger")),
            (Retry, none.clone(), failed("Halted"), counter("retryFailed", 0, "retries 3 failed")),
            (Retry, json!({ "retryFailed": 1 }), failed("Finished"), counter("retryFailed", 1, "retries 3 failed")),
            (Retry, none.clone(), phase("Succeeded"), Err("no target has failed")),
            (Retry, late, failed("Finished"), Err("its notAfter 2026-11-21T19:00:00Z has passed")),
            (Abort, none.clone(), phase("Halted"), merge(json!({ "abort": true }), "aborted")),
            (Abort, json!({ "abort": true }), phase("Progressing"), Ok(None)),
            (Abort, json!({ "abort": true }), phase("Aborted"), Ok(None)),
            (Abort, none.clone(), phase("Finished"), Err("it is over (Finished)")),
            (Retry, json!({ "abort": true }), failed("Aborted"), Err("it is aborted: only `undo` is left")),
            (Pause, json!({ "abort": true }), phase("Progressing"), Err("it is aborted: only `undo` is left")),
        ] {
            let found = step(change, &rollout(&spec, &status), NOW.parse().unwrap());
            match expected {
                Err(part) => {
                    let why = found.unwrap_err();
                    assert!(why.contains(part), "{change:?} {spec} {status}: {why}");
                }
                Ok(expected) => assert_eq!(found, Ok(expected), "{change:?} {spec} {status}"),
            }
        }
    }

    #[test]
    fn what_a_refusal_advises_is_accepted() {
        let halt = json!({ "group": "", "at": "2026-11-21T18:00:00Z", "acceptFailures": 3, "retryFailed": 0 });
        let failed = |phase: &str| json!({ "phase": phase, "halt": halt, "counts": { "Failed": 1 } });
        let step =
            |change, spec: &Value, phase: &str| step(change, &rollout(spec, &failed(phase)), NOW.parse().unwrap());
        for (phase, verbs) in [("Halted", 3), ("Finished", 2)] {
            let why = step(Change::Resume, &json!({}), phase).unwrap_err();
            let named: Vec<&str> = why.split('`').skip(1).step_by(2).collect();
            assert_eq!(named.len(), verbs, "{why}");
            for verb in named {
                let change = match verb {
                    "accept" => Change::Accept,
                    "retry" => Change::Retry,
                    "abort" => Change::Abort,
                    // Creates another rollout, whatever has become of this one.
                    "undo" => continue,
                    other => panic!("{other} is no verb: {why}"),
                };
                assert!(step(change, &json!({}), phase).is_ok(), "{verb}: {why}");
            }
        }
        let late = |not_after: &str| step(Change::Retry, &json!({ "notAfter": not_after }), "Finished");
        let why = late(NOW).unwrap_err();
        assert!(why.ends_with("set a later spec.notAfter first"), "{why}");
        assert!(late("2026-11-21T19:00:01Z").is_ok(), "{why}");
    }
}
