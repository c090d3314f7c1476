//! A Cluster's progress, as our condition reports it.

use jiff::Timestamp;

use crate::annotation::{format, keys as common};
use crate::kinds::lifecycle::Progress;
use crate::kkp::api::{Cluster, Condition};
use crate::kkp::data::{Outcome, RECORD_MISSING, State};
use crate::kkp::keys;
use crate::kkp::pause::foreign_pause;
use crate::kkp::phase::Phase;
use crate::power::Power;

/// What our condition reports.
pub(super) struct Reported<'a> {
    condition: &'a Condition,
    pub(super) state: State,
    /// The phase, or why the cluster is held in it.
    pub(super) reason: &'a str,
    pub(super) message: &'a str,
}

/// What our condition reports, if the Cluster has it: it goes when a wake is complete.
pub(super) fn reported(cluster: &Cluster) -> Option<Reported<'_>> {
    let (condition, state) = (cluster.condition(keys::DEHYDRATED)?, State::of(cluster)?);
    let (reason, message) = (condition.reason.as_deref(), condition.message.as_deref());
    Some(Reported { condition, state, reason: reason.unwrap_or_default(), message: message.unwrap_or_default() })
}

impl Reported<'_> {
    /// `Draining: waiting for Pods to end: shop/web-1`.
    pub(super) fn sentence(&self) -> String {
        if self.message.is_empty() { self.reason.to_owned() } else { format!("{}: {}", self.reason, self.message) }
    }

    /// When it was reported.
    pub(super) fn at(&self) -> Option<Timestamp> {
        format::time(&self.condition.last_heartbeat_time)
    }

    /// Since when it has been so.
    pub(super) fn since(&self) -> Option<Timestamp> {
        format::time(self.condition.last_transition_time.as_deref()?)
    }

    /// Whether it was written before the request. Our controller writes the heartbeat whenever reason or message
    /// change. A drain takes longer than a second: one that timed out in the second of the request is of an earlier
    /// one, and is retried.
    fn is_older_than_request(&self, cluster: &Cluster) -> bool {
        let requested = cluster.annotation(keys::POWER_STATE_AT).and_then(format::time);
        let written = self.at();
        let timed_out = self.state.phase == Some(Phase::DrainTimedOut);
        requested > written || timed_out && requested.is_some() && requested == written
    }

    /// Whether a wake goes on although the record is of no use: it is rebuilt, if the objects have the copies.
    fn holds_up_no_wake(&self) -> bool {
        let has_begun = self.state.phase.is_some_and(|phase| phase != Phase::Preflight);
        has_begun && self.reason != RECORD_MISSING
    }
}

/// | # | seen | sleep | wake |
/// |---|---|---|---|
/// | P1 | being deleted | lost | lost |
/// | P2 | another request | lost | lost |
/// | P3 | no condition | unnoticed | reached, or lost if it has the pause of another Cluster's sleep |
/// | P4 | held: the record cannot be used | lost | lost, or unnoticed if that was before the request and a wake rebuilds it |
/// | P5 | Dehydrated | reached | going, or unnoticed while it sleeps as it should |
/// | P6 | failed: the drain timed out and was undone, or a preflight refused | lost, or unnoticed if that was before the request | going |
/// | P7 | any other phase | going | going |
///
/// What is seen is the state, never the message ([`State::of`]).
pub(super) fn of(cluster: &Cluster, desired: Power, action: Power) -> Progress {
    if cluster.metadata.deletion_timestamp.is_some() {
        return Progress::Failed("it is being deleted".to_owned()); // P1
    }
    if desired != action {
        let by = cluster.annotation(common::REQUESTED_BY);
        let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
        return Progress::Failed(format!("superseded by a newer request{by}: the desired state is now {desired}")); // P2
    }
    let sleeps = action == Power::Hibernating;
    let Some(reported) = reported(cluster) else {
        let foreign = || foreign_pause(cluster).map_or(Progress::Reached, Progress::Failed);
        return if sleeps { Progress::Unnoticed } else { foreign() }; // P3
    };
    match reported.state.outcome {
        Outcome::Held if !sleeps && reported.holds_up_no_wake() && reported.is_older_than_request(cluster) => {
            Progress::Unnoticed // P4
        }
        Outcome::Held => Progress::Failed(reported.sentence()), // P4
        _ if sleeps && reported.state.phase == Some(Phase::Dehydrated) => Progress::Reached, // P5
        Outcome::Asleep => Progress::Unnoticed,                 // P5
        Outcome::Failed if sleeps && reported.is_older_than_request(cluster) => Progress::Unnoticed, // P6
        Outcome::Failed if sleeps => Progress::Failed(reported.sentence()), // P6
        Outcome::Pending | Outcome::Failed => Progress::InProgress(reported.sentence()), // P7
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kinds::kkp_cluster::KKP_CLUSTER;
    use crate::kinds::kkp_cluster::tests::{cluster, stands};
    use crate::kkp::data::STATE;

    fn going(text: &str) -> Progress {
        Progress::InProgress(text.to_owned())
    }

    fn lost(text: &str) -> Progress {
        Progress::Failed(text.to_owned())
    }

    fn seen(annotations: &Value, detail: Option<(&str, &str)>, outcome: Option<Outcome>, action: Power) -> Progress {
        let object = cluster(annotations, detail);
        let object = outcome.into_iter().fold(object, stands);
        KKP_CLUSTER.progress(&object, action).unwrap()
    }

    /// Row 6: KKP's own phase says Running throughout.
    #[test]
    fn progress_comes_from_our_condition() {
        use Outcome::{Asleep, Failed, Held, Pending};
        use Power::{Hibernating, Running};
        let (timed_out, refused) = (("DrainTimedOut", "a/b"), ("Preflight", "refused: no"));
        let unreadable = ("RecordUnreadable", "it is malformed");
        for (row, detail, outcome, action, expected) in [
            ("P3", None, None, Hibernating, Progress::Unnoticed),
            ("P3", None, None, Running, Progress::Reached),
            ("P4", Some(unreadable), Some(Held), Hibernating, lost("RecordUnreadable: it is malformed")),
            ("P4", Some(unreadable), Some(Held), Running, lost("RecordUnreadable: it is malformed")),
            ("P5", Some(("Dehydrated", "")), Some(Asleep), Hibernating, Progress::Reached),
            ("P5", Some(("Dehydrated", "")), Some(Asleep), Running, Progress::Unnoticed),
            ("P5", Some(("Dehydrated", "waiting")), Some(Pending), Hibernating, Progress::Reached),
            ("P7", Some(("Dehydrated", "waiting")), Some(Pending), Running, going("Dehydrated: waiting")),
            ("P6", Some(timed_out), Some(Failed), Hibernating, lost("DrainTimedOut: a/b")),
            ("P7", Some(timed_out), Some(Failed), Running, going("DrainTimedOut: a/b")),
            ("P7", Some(timed_out), Some(Pending), Hibernating, going("DrainTimedOut: a/b")),
            ("P6", Some(refused), Some(Failed), Hibernating, lost("Preflight: refused: no")),
            ("P7", Some(refused), Some(Failed), Running, going("Preflight: refused: no")),
            ("P7", Some(refused), Some(Pending), Hibernating, going("Preflight: refused: no")),
            ("P7", Some(("Draining", "a/b")), Some(Pending), Hibernating, going("Draining: a/b")),
            ("P7", Some(("Pausing", "")), Some(Pending), Hibernating, going("Pausing")),
            ("P7", Some(("WaitingForNodes", "1 of 5")), Some(Pending), Running, going("WaitingForNodes: 1 of 5")),
            ("P7", Some(("WaitingForNodes", "1 of 5")), Some(Pending), Hibernating, going("WaitingForNodes: 1 of 5")),
            ("P7", Some(("AwakePaused", "why")), Some(Pending), Running, going("AwakePaused: why")),
            // No state was written, or it was lost: the reason alone counts.
            ("P4", Some(unreadable), None, Running, lost("RecordUnreadable: it is malformed")),
            ("P5", Some(("Dehydrated", "")), None, Hibernating, Progress::Reached),
            ("P5", Some(("Dehydrated", "")), None, Running, Progress::Unnoticed),
            ("P6", Some(timed_out), None, Hibernating, lost("DrainTimedOut: a/b")),
            ("P7", Some(refused), None, Hibernating, going("Preflight: refused: no")),
            ("P7", Some(("Draining", "a/b")), None, Hibernating, going("Draining: a/b")),
        ] {
            let request = json!({ keys::POWER_STATE: action });
            assert_eq!(seen(&request, detail, outcome, action), expected, "{row} {detail:?} {outcome:?}");
        }
    }

    #[test]
    fn no_text_of_a_message_changes_what_is_seen() {
        let texts = ["", "refused: no", "asleep since 2026", "undoing the drain", "in phase Dehydrated: x", "waiting"];
        for reason in ["Preflight", "Draining", "Dehydrated", "DrainTimedOut", "RecordForeign", "WaitingForNodes"] {
            for outcome in
                [None, Some(Outcome::Pending), Some(Outcome::Asleep), Some(Outcome::Failed), Some(Outcome::Held)]
            {
                for action in [Power::Hibernating, Power::Running] {
                    let request = json!({ keys::POWER_STATE: action });
                    let of = |text| std::mem::discriminant(&seen(&request, Some((reason, text)), outcome, action));
                    assert!(texts.into_iter().all(|text| of(text) == of("x")), "{reason} {outcome:?} {action:?}");
                }
            }
        }
    }

    #[test]
    fn what_was_reported_before_the_request_is_no_answer_to_it() {
        let seen = |at: &str, detail: (&str, &str)| {
            let request = json!({ keys::POWER_STATE: "Hibernating", keys::POWER_STATE_AT: at });
            seen(&request, Some(detail), Some(Outcome::Failed), Power::Hibernating)
        };
        let (timed_out, refused) = (("DrainTimedOut", "a/b"), ("Preflight", "refused: no"));
        for (at, detail, expected) in [
            ("2026-11-22T18:00:01Z", timed_out, Progress::Unnoticed), // the condition is of 18:00:00
            ("2026-11-22T18:00:00Z", timed_out, Progress::Unnoticed), // no drain takes less than a second
            ("2026-11-22T17:59:59Z", timed_out, lost("DrainTimedOut: a/b")),
            ("2026-11-22T18:00:00Z", refused, lost("Preflight: refused: no")), // a preflight may refuse at once
            ("soon", timed_out, lost("DrainTimedOut: a/b")),
        ] {
            assert_eq!(seen(at, detail), expected, "{at} {detail:?}");
        }
    }

    /// The condition is of 18:00:00. A wake rebuilds a record from the copies on the objects, if there are any.
    #[test]
    fn a_record_that_holds_up_a_sleep_is_no_answer_to_a_later_wake() {
        use Power::{Hibernating, Running};
        let (before, after) = ("2026-11-22T17:59:59Z", "2026-11-22T18:00:01Z");
        for (reason, phase, at, action, waits) in [
            ("RecordForeign", Some(Phase::Dehydrated), after, Running, true),
            ("RecordUnreadable", Some(Phase::Draining), after, Running, true),
            ("RecordUnreadable", Some(Phase::Dehydrated), before, Running, false), // its answer
            ("RecordUnreadable", Some(Phase::Dehydrated), after, Hibernating, false),
            ("RecordMissing", Some(Phase::Dehydrated), after, Running, false),
            // Nothing was begun that a wake could undo.
            ("RecordForeign", Some(Phase::Preflight), after, Running, false),
            ("RecordUnconfirmed", None, after, Running, false),
            ("PauseForeign", None, after, Running, false),
        ] {
            let request = json!({ keys::POWER_STATE: action, keys::POWER_STATE_AT: at });
            let mut object = cluster(&request, Some((reason, "x")));
            let state = State { phase, outcome: Outcome::Held }.condition("2026-11-22T18:00:00Z");
            object["status"]["conditions"][STATE] = serde_json::to_value(state).unwrap();
            let expected = if waits { Progress::Unnoticed } else { lost(&format!("{reason}: x")) };
            assert_eq!(KKP_CLUSTER.progress(&object, action).unwrap(), expected, "{reason} {phase:?} {at} {action}");
        }
    }

    #[test]
    fn a_deleted_cluster_and_another_request_end_the_wait() {
        let merged = |change: Value| {
            let mut object = cluster(&json!({ keys::POWER_STATE: "Hibernating" }), None);
            json_patch::merge(&mut object, &change);
            KKP_CLUSTER.progress(&object, Power::Hibernating).unwrap()
        };
        assert_eq!(
            merged(json!({ "metadata": { "deletionTimestamp": "2026-11-22T18:00:00Z" } })),
            lost("it is being deleted")
        );
        let other = json!({ keys::POWER_STATE: "Running", crate::annotation::keys::REQUESTED_BY: "bob" });
        assert_eq!(
            merged(json!({ "metadata": { "annotations": other } })),
            lost("superseded by a newer request by bob: the desired state is now Running")
        );
    }
}
