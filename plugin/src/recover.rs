//! Bringing suspended process groups back: what is still to be done, from one read of the cluster.
//!
//! The real operator was observed to accept this sequence in both of its write modes. Every step is idempotent, and its
//! result is visible on the objects, so the next run finishes one that was interrupted: it reads the cluster and does
//! the remaining steps. Between the steps the cluster carries a [`record::Record`] of who
//! is being brought back.
//!
//! | # | step | left out when |
//! |---|---|---|
//! | R1 | renew the hold on PVCs and Services | a hold for a recovery is fresh |
//! | R2 | `spec.skip` = true, and the record | status and lists need no edit, or the operator is asked to skip already |
//! | R3 | wait longer than one pass of the operator | this run has waited |
//! | R4 | one edit of both removal lists: the IDs out, the replacements' in | they are as they should be |
//! | R5 | one edit of the status: the marks off, those in exchange marked | they are as they should be |
//! | R6 | `include` in the database | done, or not wanted |
//! | R7 | missing Services | there is one for every group, or the Pods need none |
//! | R8 | verify: an operator that applies its status loses edits silently | this run has verified |
//! | R9 | `spec.skip` as it was | it is |
//! | R10 | wait for the Pods | they run |
//! | R11 | wait for the operator's status to show the processes, waking it; `include` what it shows as excluded, and addresses after it | it does |
//! | R12 | the stamps and the record off | there are none |
//!
//! R3 cannot prove that the operator's last pass is over: a pass over a suspended group writes nothing. R11 does: the
//! operator has one worker per cluster, so the pass that clears the conditions of R5 began after that one had ended,
//! and its `exclude` with it. No condition shows an excluded address that the
//! group no longer has: the plugin includes it again as the last step.

pub mod check;
mod facts;
pub mod include;
pub mod object;
pub mod patch;
mod presence;
pub mod record;
pub mod replace;
pub mod service;
#[cfg(test)]
mod tests;
mod unfinished;
pub mod wake;

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use shared::annotation::{annotation, keys};
pub use shared::fdb::admission::Kind as Kept;
use shared::fdb::api::ProcessGroup;
use shared::fdb::suspension::{RECOVERY_KEEPS, Stamp};

pub use self::facts::Facts;
use self::object::deleted_at;
pub use self::patch::Edit;
pub use self::presence::{Missing, Outdated, Unrecoverable, is_left_excluded, lacks, outdated, removed_again};
use self::presence::{claim_is_there, unreported};
use self::record::{Held, Record};

/// A hold is renewed when it is older than this, so that none ends while a recovery goes on.
pub const HOLD_FRESH: Duration = Duration::from_mins(5);
/// Minutes for which a volume that is held stays so at least, if no run renews the hold.
const HELD_MINUTES: u64 = RECOVERY_KEEPS.saturating_sub(HOLD_FRESH).as_secs() / 60;

/// What only this run knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// The operator has been given the time of a pass since it was asked to skip.
    pub settled: bool,
    /// The edits were verified after a while.
    pub verified: bool,
    /// How often `include` has failed: tried once while the operator skips, and again when the Pods run.
    pub include_failures: u8,
    /// `include` ran so recently that no pass of the operator can have seen it.
    pub included: bool,
}

/// One step. The caller executes the first step of a plan, reads the cluster again and plans again.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// R1: merge patches, each guarded by resourceVersion.
    Hold(Vec<Edit>),
    /// R2: a JSON patch of the cluster.
    Skip(Value),
    /// R3: wait until the operator's last pass must be over.
    Settle,
    /// R4: a JSON patch of the cluster.
    Lists(Value),
    /// R5: a JSON patch of the cluster's status.
    Status(Value),
    /// R6: the commands for the database, and the record to write after them.
    Include(Vec<String>, Record),
    /// R7: Services to create.
    Services(Vec<Value>),
    /// R8: verify after a while.
    Verify,
    /// R9: a JSON patch of the cluster.
    Resume(Value),
    /// R10 and R11: what every group that is not there yet lacks.
    Await(Vec<Missing>),
    /// R12: merge patches of the held objects, and a JSON patch of the cluster.
    Clear(Vec<Edit>, Value),
}

/// Remaining steps of a record, in order; [`Step::Clear`] is the last. Empty when the groups run and only `include`
/// failed. `include`: whether to run it at all.
///
/// # Errors
/// When it cannot be finished.
pub fn remaining(facts: &Facts<'_>, record: &Record, include: bool, done: Done) -> Result<Vec<Step>, Unrecoverable> {
    for held in &record.groups {
        claim_is_there(facts, held)?;
    }
    let skipping = facts.cluster.spec.skip == Some(true);
    let recorded = facts.record();
    if skipping && !recorded.as_ref().is_some_and(|recorded| recorded.skipped) {
        return hold(facts, record, false).map(|held| vec![held]).ok_or(Unrecoverable::ForeignSkip);
    }
    let record = &record.unless_done(recorded.as_ref(), facts.cluster);
    // What another run has done counts; a group that is marked again is excluded again.
    let own: Vec<String> = record.groups.iter().map(|held| held.group.clone()).collect();
    let others = recorded.clone().map(|recorded| facts.unfinished(recorded, &own));
    let both = record.adopting(others.as_ref()).fitting(record, others.as_ref(), facts.cluster);
    let mut record = both.with_exclusions(facts.cluster).completed(facts);
    let (lists, status) = (patch::lists(facts.cluster, &record), patch::status(facts.cluster, &record, facts.now));
    let quiet = lists.is_some() || status.is_some();
    let runs = |held: &Held| lacks(facts, held).is_none();
    let running = record.groups.iter().all(runs);
    if !done.included {
        // One that cannot start keeps no other waiting.
        let is_left =
            |held: &Held| facts.cluster.group(&held.group).is_some_and(|group| is_left_excluded(facts, group));
        let excluded = |held: &Held| runs(held) && is_left(held);
        record.groups.iter_mut().filter(|held| excluded(held)).for_each(|held| held.included = false);
    }
    let unready = |held: &Held| lacks(facts, held).or_else(|| unreported(facts, held, include));
    // No condition shows that a late pass has excluded an address that the group has no longer.
    let late = |held: &Held| !held.confirmed && include::by_address(facts.cluster, held) && unready(held).is_none();
    if include && !quiet {
        for held in record.groups.iter_mut().filter(|held| late(held)) {
            (held.included, held.confirmed) = (false, true);
        }
    }
    let record = &record;
    let missing: Vec<Missing> = record.groups.iter().filter_map(unready).collect();
    let mut steps = Vec::new();
    steps.extend(hold(facts, record, missing.is_empty())); // R1
    // A record without groups would not parse.
    let noted = recorded.as_ref() == Some(record) || record.groups.is_empty();
    if quiet && !(skipping && noted) {
        steps.push(Step::Skip(patch::skip(facts.cluster, record))); // R2
    }
    if quiet && !(done.settled && skipping) {
        steps.push(Step::Settle); // R3
    }
    steps.extend(lists.map(Step::Lists)); // R4
    steps.extend(status.map(Step::Status)); // R5
    let orders = include::orders(facts.cluster, record);
    let owed = include && !orders.is_empty();
    let untried = done.include_failures == 0 || (running && done.include_failures == 1);
    if owed && untried {
        steps.push(Step::Include(orders, record.included())); // R6
    }
    let services = service::missing(facts, record)?;
    if !services.is_empty() {
        steps.push(Step::Services(services)); // R7
    }
    if skipping || quiet {
        if quiet || !done.verified {
            steps.push(Step::Verify); // R8
        }
        steps.push(Step::Resume(patch::resume(facts.cluster, record))); // R9
    }
    // Without `include` the operator would replace the group again: the record stays for another run.
    let given_up = owed && !untried && running;
    if !missing.is_empty() && !given_up {
        steps.push(Step::Await(missing)); // R10, R11
    }
    if !given_up {
        steps.push(Step::Clear(clear(facts, record), patch::forget(facts.cluster))); // R12
    }
    Ok(steps)
}

/// R1. While a Pod or a report is awaited the hold is kept fresh; once all are back it is about to be cleared.
fn hold(facts: &Facts<'_>, record: &Record, back: bool) -> Option<Step> {
    if back && !record.groups.iter().any(|held| facts.cluster.group(&held.group).is_some_and(ProcessGroup::needs_edit))
    {
        return None;
    }
    let is_stale = |object: &Value| deleted_at(object).is_none() && !is_fresh(object, facts.now);
    let mut edits = Vec::new();
    for held in &record.groups {
        let stale = facts.kept_of(held).filter(|(_, object)| is_stale(object));
        edits.extend(stale.map(|(kind, object)| patch::hold(kind, object, facts, held)));
    }
    (!edits.is_empty()).then_some(Step::Hold(edits))
}

/// Whether an object is held for a recovery, and nothing on it says otherwise.
fn is_fresh(object: &Value, now: Timestamp) -> bool {
    let stamp = Stamp::of(object);
    stamp.is_recovery()
        && !stamp.key
        && annotation(object, keys::RELEASED_AT).is_none()
        && stamp.since.is_some()
        && stamp.age(now) < HOLD_FRESH
}

/// R12.
fn clear(facts: &Facts<'_>, record: &Record) -> Vec<Edit> {
    let objects = record.groups.iter().flat_map(|held| facts.kept_of(held));
    let cleared = objects.filter_map(|(kind, object)| patch::clear(kind, object, record, facts.now));
    let going = record.replacements.iter().filter_map(|id| facts.cluster.group(id));
    let exchanged = going.filter_map(|group| Some((group, group.removal_timestamp.as_deref()?)));
    let exchanged = exchanged.flat_map(|(group, removal)| {
        let claims = facts.claims_of(&group.process_group_id).into_iter();
        claims.filter(|claim| deleted_at(claim).is_none()).filter_map(|claim| patch::exchanged(claim, removal))
    });
    cleared.chain(exchanged).collect()
}
