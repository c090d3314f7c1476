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
//! | R6 | `include` in the database; after a failure once more for each group whose Pod runs | done, or not wanted |
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
pub mod facts;
pub mod include;
pub mod patch;
pub mod presence;
pub mod record;
pub mod replace;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::fdb::suspension::RECOVERY_KEEPS;
use serde_json::Value;

use self::facts::Facts;
use self::patch::Edit;
use self::presence::{Obstacle, Unrecoverable, claim_is_there, is_left_excluded, obstacle, pod_obstacle};
use self::record::{GroupRecord, Record};

/// A hold is renewed when it is older than this, so that none ends while a recovery goes on.
pub const HOLD_FRESH: Duration = Duration::from_mins(5);
/// Minutes for which a volume that is held stays so at least, if no run renews the hold.
const HELD_MINUTES: u64 = RECOVERY_KEEPS.saturating_sub(HOLD_FRESH).as_secs() / 60;

/// What only this run knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunState {
    /// The operator has been given the time of a pass since it was asked to skip.
    pub settled: bool,
    /// The edits were verified after a while.
    pub verified: bool,
    /// How often `include` has failed: tried once while the operator skips, and again when the Pods run.
    pub include_failures: u8,
    /// How many groups whose Pods ran waited for it when it failed once more.
    pub retried_with: usize,
    /// `include` ran so recently that no pass of the operator can have seen it.
    pub included: bool,
}

impl RunState {
    /// `include` has failed for this plan's record. The first time counts for no group: each has one more try once its Pod
    /// runs.
    pub fn include_failed(&mut self, facts: &Facts<'_>, planned: &Record) {
        if self.include_failures > 0 {
            self.retried_with = includable(facts, planned);
        }
        self.include_failures = self.include_failures.saturating_add(1);
    }
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
    /// R6: the commands for the database, and the record of which [`patch::remember`] writes what they ran for.
    Include(Vec<String>, Record),
    /// R7: Services to create.
    Services(Vec<Value>),
    /// R8: verify after a while.
    Verify,
    /// R9: a JSON patch of the cluster.
    Resume(Value),
    /// R10 and R11: what every group that is not there yet lacks.
    Await(Vec<Obstacle>),
    /// R12: merge patches of the held objects, and a JSON patch of the cluster.
    Clear(Vec<Edit>, Value),
}

/// What is left of a recovery.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// With what other runs have done, and with all groups that have to go.
    pub record: Record,
    /// In order; [`Step::Clear`] is the last. Empty when the groups run and only `include` failed.
    pub steps: Vec<Step>,
}

/// A write of a step to the API server.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// A merge patch of a PVC or Service.
    Edit(&'a Edit),
    /// A JSON patch of the cluster.
    Cluster(&'a Value),
    /// A JSON patch of its status.
    Status(&'a Value),
    /// A Service to create.
    Create(&'a Value),
}

impl Step {
    /// The writes to the API server, in order. `include` goes to the database.
    pub fn requests(&self) -> Vec<Request<'_>> {
        match self {
            Self::Hold(edits) => edits.iter().map(Request::Edit).collect(),
            Self::Skip(patch) | Self::Lists(patch) | Self::Resume(patch) => vec![Request::Cluster(patch)],
            Self::Status(patch) => vec![Request::Status(patch)],
            Self::Services(services) => services.iter().map(Request::Create).collect(),
            Self::Clear(edits, patch) => edits.iter().map(Request::Edit).chain([Request::Cluster(patch)]).collect(),
            Self::Settle | Self::Include(..) | Self::Verify | Self::Await(_) => Vec::new(),
        }
    }
}

/// What is left to be done for a record. `include`: whether to run it at all.
///
/// # Errors
/// When it cannot be finished.
pub fn remaining(facts: &Facts<'_>, record: &Record, include: bool, run: RunState) -> Result<Plan, Unrecoverable> {
    record.groups.iter().try_for_each(|held| claim_is_there(facts, held))?;
    let recorded = facts.record();
    let skipping = facts.is_skipped();
    if skipping && !recorded.as_ref().is_some_and(|recorded| recorded.skipped) {
        return held_first(facts, record, Unrecoverable::ForeignSkip);
    }
    let mut record = up_to_date(facts, record, recorded.as_ref());
    let lists = match patch::lists(facts.cluster, &record) {
        Ok(lists) => lists,
        Err(lost) => return held_first(facts, &record, lost),
    };
    let status = patch::status(facts.cluster, &record, facts.now);
    let quiet = lists.is_some() || status.is_some();
    owe_include(facts, &mut record, include, quiet, run);
    let mut missing: Vec<Obstacle> = record.groups.iter().filter_map(|held| obstacle(facts, held, include)).collect();
    // A record without groups would not parse.
    let noted = recorded.as_ref() == Some(&record) || record.groups.is_empty();
    let orders = include::orders(facts.cluster, &record);
    let owed = include && !orders.is_empty();
    let untried = run.include_failures == 0 || includable(facts, &record) > run.retried_with;
    let services = match patch::services(facts, &record) {
        Ok(services) => services,
        Err(lost) => return held_first(facts, &record, lost),
    };
    let back = missing.is_empty();
    // Without `include` the operator would replace these again: the record stays for another run.
    let given_up = |held: &GroupRecord| owed && !untried && awaits_include(facts, held);
    let given_up: Vec<&str> =
        record.groups.iter().filter(|held| given_up(held)).map(|held| held.group.as_str()).collect();
    missing.retain(|one| !given_up.contains(&one.group.as_str()));
    let steps = [
        hold(facts, &record, back),                                                               // R1
        (quiet && !(skipping && noted)).then(|| Step::Skip(patch::skip(facts.cluster, &record))), // R2
        (quiet && !(run.settled && skipping)).then_some(Step::Settle),                            // R3
        lists.map(Step::Lists),                                                                   // R4
        status.map(Step::Status),                                                                 // R5
        (owed && untried).then(|| Step::Include(orders, record.clone())),                         // R6
        (!services.is_empty()).then_some(Step::Services(services)),                               // R7
        (quiet || skipping && !run.verified).then_some(Step::Verify),                             // R8
        (quiet || skipping).then(|| Step::Resume(patch::resume(facts.cluster, &record))),         // R9
        (!missing.is_empty()).then_some(Step::Await(missing)),                                    // R10, R11
        given_up.is_empty().then(|| Step::Clear(patch::clear(facts, &record), patch::forget(facts.cluster))), // R12
    ];
    Ok(Plan { steps: steps.into_iter().flatten().collect(), record })
}

/// Where it cannot be finished, the volumes are held at least, for a person to see to it.
fn held_first(facts: &Facts<'_>, record: &Record, lost: Unrecoverable) -> Result<Plan, Unrecoverable> {
    let plan = |held| Plan { record: record.clone(), steps: vec![held] };
    hold(facts, record, false).map(plan).ok_or(lost)
}

/// R1.
fn hold(facts: &Facts<'_>, record: &Record, back: bool) -> Option<Step> {
    Some(patch::hold(facts, record, back)).filter(|edits| !edits.is_empty()).map(Step::Hold)
}

/// Whether nothing but `include` is to be done for a group.
fn awaits_include(facts: &Facts<'_>, held: &GroupRecord) -> bool {
    !held.included && pod_obstacle(facts, held).is_none()
}

/// How many groups of a record wait for it.
fn includable(facts: &Facts<'_>, record: &Record) -> usize {
    record.groups.iter().filter(|held| awaits_include(facts, held)).count()
}

/// A record with what another run has done, with what the status says by now, and with all that have to go. A group
/// that is marked again is excluded again.
fn up_to_date(facts: &Facts<'_>, record: &Record, recorded: Option<&Record>) -> Record {
    let others = recorded.cloned().map(|recorded| facts.unfinished(recorded, &record.ids()));
    let record = &record.clone().without_finished(recorded, facts.cluster);
    let both = record.merged_with(others.as_ref()).capped(record, others.as_ref(), facts.cluster);
    both.with_exclusions(facts.cluster).completed(facts)
}

/// Groups whose Pods run, and that the operator's status shows as excluded, or that a late pass may have excluded, have
/// to be included (again).
fn owe_include(facts: &Facts<'_>, record: &mut Record, include: bool, quiet: bool, run: RunState) {
    for held in &mut record.groups {
        // One that cannot start keeps no other waiting.
        let is_left = || facts.cluster.group(&held.group).is_some_and(|group| is_left_excluded(facts, group));
        if !run.included && pod_obstacle(facts, held).is_none() && is_left() {
            held.included = false;
        }
        // No condition shows that a late pass has excluded an address that the group has no longer.
        let is_late = !held.confirmed && include::by_address(facts.cluster, held);
        if include && !quiet && is_late && obstacle(facts, held, include).is_none() {
            (held.included, held.confirmed) = (false, true);
        }
    }
}
