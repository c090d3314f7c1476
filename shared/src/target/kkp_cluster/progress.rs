//! A Cluster's progress, as our condition reports it.

use crate::annotation::format;
use crate::kkp::api::{Cluster, Condition};
use crate::kkp::keys;
use crate::kkp::phase::Phase;
use crate::target::lifecycle::{PowerAction, Progress};

/// What our condition says.
pub(super) struct Said<'a> {
    pub(super) condition: &'a Condition,
    /// The reason; a phase in nearly all cases.
    pub(super) reason: &'a str,
    /// The phase that the reason names, if it names one.
    pub(super) phase: Option<Phase>,
    pub(super) message: &'a str,
}

/// What our condition says, if the Cluster has it: it goes when a wake is complete.
pub(super) fn said(cluster: &Cluster) -> Option<Said<'_>> {
    let condition = cluster.condition(keys::DEHYDRATED)?;
    let reason = condition.reason.as_deref().unwrap_or_default();
    let message = condition.message.as_deref().unwrap_or_default();
    Some(Said { condition, reason, phase: reason.parse().ok(), message })
}

impl Said<'_> {
    /// Whether the controller refuses to begin the sleep.
    pub(super) fn is_refusal(&self) -> bool {
        self.phase == Some(Phase::Preflight) && self.message.starts_with(keys::REFUSED)
    }

    /// Whether the cluster sleeps as it should.
    pub(super) fn is_asleep(&self) -> bool {
        self.phase == Some(Phase::Dehydrated) && (self.message.is_empty() || self.message.starts_with(keys::ASLEEP))
    }

    /// `Draining: waiting for Pods to end: shop/web-1`.
    pub(super) fn sentence(&self) -> String {
        if self.message.is_empty() { self.reason.to_owned() } else { format!("{}: {}", self.reason, self.message) }
    }

    /// Whether it was written before the request. Our controller writes the heartbeat whenever reason or message
    /// change. A drain takes longer than a second: one that timed out in the second of the request is of an earlier
    /// one, and is retried.
    fn is_older_than_request(&self, cluster: &Cluster) -> bool {
        let annotations = cluster.metadata.annotations.as_ref();
        let requested = annotations.and_then(|all| format::time(all.get(keys::POWER_STATE_AT)?));
        let written = format::time(&self.condition.last_heartbeat_time);
        requested > written || self.phase == Some(Phase::DrainTimedOut) && requested.is_some() && requested == written
    }

    /// Whether the controller still undoes a drain that took too long. It tries again after that if that was requested
    /// meanwhile.
    fn is_undone(&self) -> bool {
        self.phase == Some(Phase::DrainTimedOut) && self.message.starts_with(keys::UNDOING)
    }
}

/// | # | seen | sleep | wake |
/// |---|---|---|---|
/// | P1 | being deleted | lost | lost |
/// | P2 | another request | lost | lost |
/// | P3 | no condition | unnoticed | reached |
/// | P4 | a reason that is no phase: the record cannot be read | lost | lost |
/// | P5 | Dehydrated | reached | going, or unnoticed while it only says that the cluster sleeps |
/// | P6 | the drain timed out and was undone, or a preflight refused | lost, or unnoticed if that was before the request | going |
/// | P7 | any other phase | going | going |
pub(super) fn of(cluster: &Cluster, desired: PowerAction, action: PowerAction) -> Progress {
    if cluster.metadata.deletion_timestamp.is_some() {
        return Progress::Lost("it is being deleted".to_owned()); // P1
    }
    if desired != action {
        let by = cluster.metadata.annotations.as_ref().and_then(|all| all.get(crate::annotation::keys::REQUESTED_BY));
        let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
        let state = super::state(desired);
        return Progress::Lost(format!("superseded by a newer request{by}: the desired state is now {state}")); // P2
    }
    let sleeps = action == PowerAction::Hibernate;
    let Some(said) = said(cluster) else {
        return if sleeps { Progress::Unnoticed } else { Progress::Reached }; // P3
    };
    match said.phase {
        None => Progress::Lost(said.sentence()),                            // P4
        Some(Phase::Dehydrated) if sleeps => Progress::Reached,             // P5
        Some(Phase::Dehydrated) if said.is_asleep() => Progress::Unnoticed, // P5
        Some(phase) if sleeps && !said.is_undone() && (phase == Phase::DrainTimedOut || said.is_refusal()) => {
            if said.is_older_than_request(cluster) { Progress::Unnoticed } else { Progress::Lost(said.sentence()) } // P6
        }
        Some(_) => Progress::Going(said.sentence()), // P7
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::target::kkp_cluster::KKP_CLUSTER;
    use crate::target::kkp_cluster::tests::cluster;

    fn going(text: &str) -> Progress {
        Progress::Going(text.to_owned())
    }

    fn lost(text: &str) -> Progress {
        Progress::Lost(text.to_owned())
    }

    /// Row 6: KKP's own phase says Running throughout.
    #[test]
    fn progress_comes_from_our_condition() {
        use PowerAction::{Hibernate, Resume};
        let asleep = ("Dehydrated", "asleep since 2026-11-22T18:00:00Z. 5 machines come back with a wake");
        let refused = ("Preflight", "refused: status.phase is \"Updating\", not \"Running\"");
        for (row, said, action, expected) in [
            ("P3", None, Hibernate, Progress::Unnoticed),
            ("P3", None, Resume, Progress::Reached),
            ("P4", Some(("RecordUnreadable", "it is malformed")), Hibernate, lost("RecordUnreadable: it is malformed")),
            ("P4", Some(("RecordUnreadable", "it is malformed")), Resume, lost("RecordUnreadable: it is malformed")),
            ("P5", Some(asleep), Hibernate, Progress::Reached),
            ("P5", Some(asleep), Resume, Progress::Unnoticed),
            ("P5", Some(("Dehydrated", "waiting")), Resume, going("Dehydrated: waiting")),
            ("P6", Some(("DrainTimedOut", "a/b")), Hibernate, lost("DrainTimedOut: a/b")),
            ("P6", Some(("DrainTimedOut", "a/b")), Resume, going("DrainTimedOut: a/b")),
            ("P7", Some(("DrainTimedOut", keys::UNDOING)), Hibernate, going("DrainTimedOut: undoing the drain")),
            ("P6", Some(refused), Hibernate, lost("Preflight: refused: status.phase is \"Updating\", not \"Running\"")),
            ("P7", Some(("Preflight", "waiting for others")), Hibernate, going("Preflight: waiting for others")),
            ("P7", Some(("Draining", "a/b")), Hibernate, going("Draining: a/b")),
            ("P7", Some(("Pausing", "")), Hibernate, going("Pausing")),
            ("P7", Some(("WaitingForNodes", "1 of 5")), Resume, going("WaitingForNodes: 1 of 5")),
            ("P7", Some(("WaitingForNodes", "1 of 5")), Hibernate, going("WaitingForNodes: 1 of 5")),
            ("P7", Some(("AwakePaused", "why")), Resume, going("AwakePaused: why")),
        ] {
            let request = json!({ keys::POWER_STATE: super::super::state(action) });
            assert_eq!(KKP_CLUSTER.progress(&cluster(&request, said), action).unwrap(), expected, "{row} {said:?}");
        }
    }

    #[test]
    fn what_was_said_before_the_request_is_no_answer_to_it() {
        let seen = |at: &str| {
            let request = json!({ keys::POWER_STATE: "Hibernating", keys::POWER_STATE_AT: at });
            let object = cluster(&request, Some(("DrainTimedOut", "a/b")));
            KKP_CLUSTER.progress(&object, PowerAction::Hibernate).unwrap()
        };
        assert_eq!(seen("2026-11-22T18:00:01Z"), Progress::Unnoticed); // the condition is of 18:00:00
        assert_eq!(seen("2026-11-22T18:00:00Z"), Progress::Unnoticed, "no drain takes less than a second");
        assert_eq!(seen("2026-11-22T17:59:59Z"), lost("DrainTimedOut: a/b"));
        // A preflight may refuse at once.
        let request = json!({ keys::POWER_STATE: "Hibernating", keys::POWER_STATE_AT: "2026-11-22T18:00:00Z" });
        let object = cluster(&request, Some(("Preflight", "refused: no")));
        let refused = KKP_CLUSTER.progress(&object, PowerAction::Hibernate).unwrap();
        assert_eq!(refused, lost("Preflight: refused: no"));
        assert_eq!(seen("soon"), lost("DrainTimedOut: a/b"));
    }

    #[test]
    fn a_deleted_cluster_and_another_request_end_the_wait() {
        let merged = |change: Value| {
            let mut object = cluster(&json!({ keys::POWER_STATE: "Hibernating" }), None);
            json_patch::merge(&mut object, &change);
            KKP_CLUSTER.progress(&object, PowerAction::Hibernate).unwrap()
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
