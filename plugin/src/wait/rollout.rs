//! `--wait` for a rollout.

use std::iter;
use std::time::{Duration, Instant};

use hub::watch::Scope;
use hub::{HubClient, Resource};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use shared::kinds::{POWER_ROLLOUT, UNNOTICED};
use shared::rollout::api::PowerRollout;
use shared::rollout::member::MemberState;
use shared::rollout::status::{PowerRolloutStatus, RolloutPhase};
use view::age::elapsed;

use super::display::{Outcome, ProgressDisplay, Show};
use super::until;
use crate::error::{Exit, Problem, WaitError};

/// How long after `notAfter` a controller has to say so itself.
const GRACE: SignedDuration = SignedDuration::from_secs(5);
/// How often the clock is looked at while nothing changes.
const TICK: Duration = Duration::from_secs(1);

/// The state of a rollout, for a client that waits for its end.
///
/// | phase | targets | outcome |
/// |---|---|---|
/// | none, or of an earlier spec | | going |
/// | Halted | | failed, with the way out if it is for failures |
/// | Aborted | | failed |
/// | over | any Failed, `TimeOut`, Overridden or Abandoned | failed |
/// | over | any Refused | refused |
/// | Finished | none at all | failed |
/// | over | any other left, such as Pending or Deferred | never started |
/// | over | else | succeeded |
/// | any other, `notAfter` has passed | none in progress, any Pending or Deferred, any failed | failed |
/// | any other, `notAfter` has passed | none in progress, any Pending or Deferred, or nothing known | never started |
/// | any other | | going |
fn outcome(rollout: &PowerRollout, now: Timestamp, begin: Instant) -> Outcome {
    let name = rollout.metadata.name.as_deref().unwrap_or_default();
    let is_late = rollout.spec.not_after.0.checked_add(GRACE).is_ok_and(|end| now > end);
    let late = |counts: &str| format!("notAfter has passed before every target was started{counts}");
    let fail = |error: WaitError| Outcome::Failed(error.into());
    let failed = |why: String| fail(WaitError::Lost { after: begin.elapsed(), why });
    let over = |why: String, exit| fail(WaitError::Over { after: begin.elapsed(), why, exit });
    let never = |counts: &str| over(late(counts), Exit::TimedOut);
    let known = rollout.status.as_ref().and_then(|status| Some((status, status.phase?)));
    let Some((status, phase)) = known else {
        return if is_late { never("") } else { Outcome::Open(UNNOTICED.to_owned()) };
    };
    let is_stale = status.observed_generation.zip(rollout.metadata.generation).is_some_and(|(seen, now)| seen < now);
    if is_stale && !is_late {
        return Outcome::Open(UNNOTICED.to_owned());
    }
    let tally = tally(status);
    let text = format!("{phase}{}{}", reason(status), if tally.is_empty() { tally } else { format!(" ({tally})") });
    let any_failed = of(status, FAILED) > 0;
    match phase {
        // The message says what to correct.
        RolloutPhase::Halted if status.halt.is_none() => failed(text),
        RolloutPhase::Halted => failed(format!(
            "{text}; go on with `kubectl hibernate rollout accept {name}` or `retry {name}`, or end it with `abort {name}`"
        )),
        RolloutPhase::Aborted => failed(text),
        _ if phase.is_over() && any_failed => failed(text),
        _ if phase.is_over() && of(status, &[MemberState::Refused]) > 0 => over(text, Exit::Refused),
        RolloutPhase::Finished if status.counts.values().all(|count| *count == 0) => failed(text),
        _ if phase.is_over() && of(status, OPEN) > 0 => over(text, Exit::TimedOut),
        _ if phase.is_over() => Outcome::Arrived(format!("over after {}: {text}", elapsed(begin.elapsed()))),
        _ if is_late && of(status, &[MemberState::Progressing]) == 0 && of(status, WAITING) > 0 => {
            let counts = format!(": {text}");
            if any_failed { failed(late(&counts)) } else { never(&counts) }
        }
        _ => Outcome::Open(text),
    }
}

const FAILED: &[MemberState] =
    &[MemberState::Failed, MemberState::TimeOut, MemberState::Overridden, MemberState::Abandoned];
const WAITING: &[MemberState] = &[MemberState::Pending, MemberState::Deferred];
const OPEN: &[MemberState] = &[MemberState::Pending, MemberState::Deferred, MemberState::Progressing];

fn of(status: &PowerRolloutStatus, states: &[MemberState]) -> u32 {
    states.iter().filter_map(|state| status.counts.get(&state.to_string())).sum()
}

fn reason(status: &PowerRolloutStatus) -> String {
    status.message.as_ref().filter(|text| !text.is_empty()).map(|text| format!(": {text}")).unwrap_or_default()
}

/// `12 targets: 3 Succeeded, 4 Progressing`; states of a later controller come last.
pub(crate) fn tally(status: &PowerRolloutStatus) -> String {
    let known: Vec<String> = MemberState::all().map(|state| state.to_string()).collect();
    let rank = |state: &str| known.iter().position(|known| known == state).unwrap_or(known.len());
    let mut counts: Vec<(&String, &u32)> = status.counts.iter().filter(|(_, count)| **count > 0).collect();
    counts.sort_by_key(|(state, _)| rank(state));
    let counts = counts.iter().map(|(state, count)| format!("{count} {state}")).collect::<Vec<_>>().join(", ");
    match (status.total, counts.is_empty()) {
        (Some(total), false) => format!("{total} targets: {counts}"),
        (Some(total), true) => format!("{total} targets"),
        (None, _) => counts,
    }
}

/// Waits for the end of a rollout. Returns what to print.
///
/// # Errors
/// When it does not end well, in time, or cannot be followed.
pub(crate) async fn until_over(
    hub: &HubClient,
    rollout: &PowerRollout,
    limit: Option<Duration>,
) -> Result<String, Problem> {
    let begin = Instant::now();
    let names = [rollout.metadata.name.clone().unwrap_or_default()];
    let what = POWER_ROLLOUT.kind.full_name(&names[0]);
    let display = ProgressDisplay::new(iter::once(what.as_str()), Show::Changes);
    let scope = Scope { names: &names, tick: TICK, ..Scope::of(Resource::preferred(&POWER_ROLLOUT.kind)) };
    let mut last = rollout.clone();
    let mut state = UNNOTICED.to_owned();
    let following = until(hub.watcher(scope), |object| {
        if let Some(object) = object {
            last = typed(object)?;
        }
        match outcome(&last, Timestamp::now(), begin) {
            Outcome::Open(text) => {
                display.state(0, &text);
                state = text;
                Ok(None)
            }
            Outcome::Arrived(text) => Ok(Some(text)),
            Outcome::Failed(problem) => Err(problem),
        }
    });
    let ended = match limit {
        None => Some(following.await),
        Some(limit) => tokio::time::timeout(limit, following).await.ok(),
    };
    display.close();
    match ended {
        Some(Err(Problem::Hub(error))) => {
            Err(WaitError::Lost { after: begin.elapsed(), why: error.to_string() }.into())
        }
        Some(ended) => ended,
        None => Err(WaitError::TimedOut { after: limit.unwrap_or_default(), state }.into()),
    }
}

/// # Errors
/// When the object does not match its schema.
pub(crate) fn typed(object: Value) -> Result<PowerRollout, Problem> {
    serde_json::from_value(object).map_err(Problem::unreadable)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: &str = "2026-11-24T18:00:00Z";

    fn rollout(not_after: &str, status: &Value) -> PowerRollout {
        typed(json!({
            "metadata": { "name": "night", "generation": 2 },
            "spec": { "action": "Hibernate", "maxTargets": 9, "notAfter": not_after, "targets": { "all": true } },
            "status": status,
        }))
        .unwrap()
    }

    /// The exit code; none while it goes on.
    fn exit(rollout: &PowerRollout) -> Option<Exit> {
        match outcome(rollout, NOW.parse().unwrap(), Instant::now()) {
            Outcome::Open(_) => None,
            Outcome::Arrived(_) => Some(Exit::Done),
            Outcome::Failed(problem) => Some(problem.exit()),
        }
    }

    /// Why it has failed.
    fn why(not_after: &str, status: &Value) -> String {
        let outcome = outcome(&rollout(not_after, status), NOW.parse().unwrap(), Instant::now());
        let Outcome::Failed(Problem::Wait(WaitError::Lost { why, .. })) = outcome else { panic!("{status}") };
        why
    }

    #[test]
    fn every_end_has_its_exit_code() {
        const LATER: &str = "2026-11-24T20:00:00Z";
        const PASSED: &str = "2026-11-24T17:59:54Z";
        const JUST: &str = "2026-11-24T17:59:55Z";
        let status = |phase: &str, counts: Value| json!({ "phase": phase, "counts": counts });
        for (not_after, status, expected) in [
            (LATER, json!(null), None),
            (LATER, json!({}), None),
            (PASSED, json!(null), Some(Exit::TimedOut)),
            (LATER, status("Planned", json!({ "Pending": 9 })), None),
            (LATER, status("Waiting", json!({ "Pending": 9 })), None),
            (LATER, status("Paused", json!({ "Pending": 8, "Failed": 1 })), None),
            (LATER, status("Progressing", json!({ "Deferred": 3, "Refused": 1 })), None),
            (LATER, status("Succeeded", json!({ "Succeeded": 8, "AlreadyInState": 1 })), Some(Exit::Done)),
            (LATER, status("Finished", json!({ "Succeeded": 8, "Removed": 1 })), Some(Exit::Done)),
            (LATER, status("Finished", json!({ "Succeeded": 8, "Failed": 1 })), Some(Exit::Error)),
            (LATER, status("Finished", json!({ "TimeOut": 1, "Refused": 3 })), Some(Exit::Error)),
            (LATER, status("Finished", json!({ "Overridden": 1 })), Some(Exit::Error)),
            (LATER, status("Finished", json!({})), Some(Exit::Error)),
            (LATER, status("Finished", json!({ "Abandoned": 1 })), Some(Exit::Error)),
            (LATER, status("Finished", json!({ "Succeeded": 8, "Refused": 1 })), Some(Exit::Refused)),
            (LATER, status("Finished", json!({ "Refused": 1, "Deferred": 1 })), Some(Exit::Refused)),
            (LATER, status("Finished", json!({ "Deferred": 1, "Succeeded": 8 })), Some(Exit::TimedOut)),
            (LATER, status("Finished", json!({ "Pending": 9, "Refused": 0 })), Some(Exit::TimedOut)),
            (LATER, status("Aborted", json!({ "Succeeded": 9 })), Some(Exit::Error)),
            (LATER, status("Halted", json!({ "Failed": 1, "Pending": 8 })), Some(Exit::Error)),
            (PASSED, status("Paused", json!({ "Pending": 9 })), Some(Exit::TimedOut)),
            (PASSED, status("Paused", json!({ "Pending": 8, "Failed": 1 })), Some(Exit::Error)),
            (JUST, status("Paused", json!({ "Pending": 9 })), None),
            (PASSED, status("Progressing", json!({ "Pending": 8, "Progressing": 1 })), None),
            (PASSED, status("Progressing", json!({ "Succeeded": 9 })), None),
        ] {
            assert_eq!(exit(&rollout(not_after, &status)), expected, "{not_after} {status}");
        }
        let stale = json!({ "phase": "Finished", "observedGeneration": 1, "counts": { "Failed": 1 } });
        assert_eq!(exit(&rollout(LATER, &stale)), None, "a retry that the controller has not seen yet");
    }

    #[test]
    fn a_halt_says_what_can_be_done() {
        let status = json!({
            "phase": "Halted", "message": "2 of 1 failures in group canary", "total": 9,
            "halt": { "group": "canary", "at": NOW, "acceptFailures": 0, "retryFailed": 0 }, "counts": { "Failed": 2, "Pending": 5, "Succeeded": 2 },
        });
        assert_eq!(
            why("2026-11-24T20:00:00Z", &status),
            "Halted: 2 of 1 failures in group canary (9 targets: 2 Succeeded, 5 Pending, 2 Failed); go on with `kubectl hibernate rollout accept night` \
             or `retry night`, or end it with `abort night`"
        );
        let status =
            json!({ "phase": "Halted", "message": "selects 9 targets, more than maxTargets 8: raise it or abort" });
        let text = "Halted: selects 9 targets, more than maxTargets 8: raise it or abort";
        assert_eq!(why("2026-11-24T20:00:00Z", &status), text);
        let status = json!({ "phase": "Paused", "message": "paused", "counts": { "Failed": 1, "Pending": 8 } });
        let text = "notAfter has passed before every target was started: Paused: paused (8 Pending, 1 Failed)";
        assert_eq!(why("2026-11-24T17:00:00Z", &status), text);
    }
}
