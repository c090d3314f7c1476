//! What of a record counts.
//!
//! The record is a `ConfigMap`, and our account is not the only one that writes those of its namespace. It holds what a
//! sleep has changed, never how far one has come: that is the phase in our condition on the Cluster, whose status few
//! may write. A phase is entered in two writes, the record first and the condition second, and nothing of it is done
//! before both are there. A record that is ahead of the condition is one of a crash between the two, or one that
//! another client has edited: either way the phase of the condition goes on.

use super::facts::Facts;
use super::plan::{Plan, Report};
use crate::kkp::api::Cluster;
use crate::kkp::data::{Outcome, RECORD_MISSING, State};
use crate::kkp::keys::{DEHYDRATED, PAUSED_BY_SLEEP};
use crate::kkp::pause::{PAUSE_FOREIGN, foreign_pause, is_paused_by_us};
use crate::kkp::phase::Phase;
use crate::kkp::record::Record;
use crate::record::RecordError;

/// Requeue delay of a cluster that is held.
const HELD: std::time::Duration = std::time::Duration::from_mins(1);

/// What a record is to its Cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing {
    /// There is none, and none is missed.
    Absent,
    /// It is one of a sleep that has not begun: nothing was done by it.
    Void,
    /// It is in force, in the phase that our condition names.
    InForce(Box<Record>),
    /// The record of an operation in this phase is missing or was, or the condition of a cluster that we paused is:
    /// with what is left the operation goes on.
    Orphaned(Option<Box<Record>>, Phase),
    /// Nothing is done about the cluster. But of an operation in this phase, as our condition or our pause says, a wake
    /// needs no record: it is rebuilt.
    Held(Report, Option<Phase>),
}

/// The phase in our condition.
pub fn phase(cluster: &Cluster) -> Option<Phase> {
    State::of(cluster)?.phase
}

/// Whether the record was missed when the cluster was judged last.
pub(super) fn was_missed(cluster: &Cluster) -> bool {
    cluster.condition(DEHYDRATED).is_some_and(|condition| condition.reason.as_deref() == Some(RECORD_MISSING))
}

/// Judges it, or why it cannot be read.
pub fn standing(cluster: &Cluster, record: Option<Result<&Record, RecordError>>) -> Standing {
    let (phase, found) = (phase(cluster), record.and_then(Result::ok));
    let own = found.filter(|record| record.mismatch(cluster.uid()).is_none());
    // A record that was restored with its Cluster has another UID, and is of the sleep that the pause names.
    let is_ours = is_paused_by_us(cluster, own) || own.is_none() && is_paused_by_us(cluster, found);
    let begun = phase.filter(|phase| *phase != Phase::Preflight);
    let under_way = begun.or(is_ours.then_some(Phase::Dehydrated));
    let record = match record.transpose() {
        Ok(record) => record,
        Err(error) => return unreadable(cluster, error, under_way),
    };
    if let Some(mismatch) = record.and_then(|record| record.mismatch(cluster.uid())) {
        return foreign(cluster, &mismatch, under_way);
    }
    match (record, begun) {
        // Counts may have been raised meanwhile.
        (Some(record), Some(phase)) if was_missed(cluster) => Standing::Orphaned(Some(Box::new(record.clone())), phase),
        (Some(record), Some(phase)) => Standing::InForce(Box::new(Record { phase, ..record.clone() })),
        (Some(record), None) if is_ours => Standing::Orphaned(Some(Box::new(record.clone())), Phase::Dehydrated),
        (Some(_), None) if phase.is_some() => Standing::Void,
        (Some(record), None) => unconfirmed(cluster, record),
        // KKP removes the namespace of a cluster that is deleted, and the record with it.
        (None, Some(_)) if cluster.metadata.deletion_timestamp.is_some() && !is_ours => Standing::Absent,
        (None, Some(phase)) => Standing::Orphaned(None, phase),
        (None, None) if is_ours => Standing::Orphaned(None, Phase::Dehydrated),
        (None, None) => foreign_pause(cluster)
            .filter(|_| cluster.annotation(PAUSED_BY_SLEEP).is_some_and(|sleep| sleep.contains('/')))
            .map_or(Standing::Absent, |problem| {
                held(cluster, None, PAUSE_FOREIGN, &format!("it is missing, and {problem}"))
            }),
    }
}

/// What a wake does without the record.
const REBUILDS: &str = "A wake rebuilds it from the copies on the objects";

fn foreign(cluster: &Cluster, mismatch: &str, under_way: Option<Phase>) -> Standing {
    let remedy = if under_way.is_some() {
        let uid = cluster.uid();
        format!(
            "no sleep goes on. If this cluster was restored together with it, set its field uid to {uid:?}; otherwise delete it. {REBUILDS}"
        )
    } else {
        "nothing is done. If a sleep was under way when this cluster was restored, restore the counts that it holds by hand; then delete it"
            .to_owned()
    };
    held(cluster, under_way, "RecordForeign", &format!("{mismatch}: {remedy}"))
}

fn unreadable(cluster: &Cluster, error: RecordError, under_way: Option<Phase>) -> Standing {
    let remedy = if under_way.is_some() {
        format!("no sleep goes on. Restore it, or delete it. {REBUILDS}")
    } else {
        "nothing is done. Delete it. If a sleep was under way when this cluster lost its status, restore the counts by hand before".to_owned()
    };
    held(cluster, under_way, "RecordUnreadable", &format!("{error}: {remedy}"))
}

fn unconfirmed(cluster: &Cluster, record: &Record) -> Standing {
    let problem = format!(
        "it is in phase {}, and no condition {DEHYDRATED} of this Cluster confirms it: nothing is done. If a sleep was under way when the \
         Cluster lost its status, restore the counts that it holds by hand; then delete it",
        record.phase
    );
    held(cluster, None, "RecordUnconfirmed", &problem)
}

fn held(cluster: &Cluster, under_way: Option<Phase>, reason: &str, problem: &str) -> Standing {
    Standing::Held(hold(cluster, under_way.or_else(|| phase(cluster)), reason, problem), under_way)
}

/// What the condition says of a cluster whose record is of no use. It keeps the phase: the operation goes on from
/// there.
pub(super) fn hold(cluster: &Cluster, phase: Option<Phase>, reason: &str, problem: &str) -> Report {
    let in_phase = phase.map(|phase| format!("in phase {phase}: ")).unwrap_or_default();
    Report {
        dehydrated: cluster.is_true(DEHYDRATED),
        reason: reason.to_owned(),
        message: format!("{in_phase}{}: {problem}", cluster.record_place()),
        state: State { phase, outcome: Outcome::Held },
    }
}

impl Facts<'_> {
    /// The record as it was found.
    pub(super) fn found(&self) -> Option<Result<&Record, RecordError>> {
        self.unread.map(Err).or(self.record.map(Ok))
    }
}

impl Plan {
    /// Nothing but to say why.
    pub(super) fn held(report: Report) -> Self {
        Self { report: Some(report), requeue: Some(HELD), ..Self::default() }
    }
}
