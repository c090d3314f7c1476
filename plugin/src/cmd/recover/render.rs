//! What will be done, and what has been done, in words.

use jiff::Timestamp;
use shared::annotation::format;

use crate::output::age::age;
use crate::output::aligned;
use crate::read::fdb::DatabaseSnapshot;
use crate::recover::check::Goal;
use crate::recover::object::{name, size};
use crate::recover::record::Record;
use crate::recover::{Edit, Kept, Missing, Step};

/// The plan: who comes back, who goes, and the steps that are left.
pub(crate) fn plan(
    cluster: &str,
    observation: &DatabaseSnapshot,
    goal: &Goal,
    record: &Record,
    steps: &[Step],
) -> Vec<String> {
    let now = Timestamp::now();
    let facts = observation.facts();
    let mut lines = vec![format!("{cluster}: groups to recover:")];
    let rows = record.groups.iter().map(|held| {
        let claim = facts.claim_of(&held.group, &held.pod);
        let since = held.removal.as_deref().and_then(format::time);
        let unfinished = if goal.unfinished.contains(&held.group) { "(begun by an earlier run)" } else { "" };
        vec![
            format!("  {}", held.group),
            held.class.clone(),
            held.fault_domain.clone().unwrap_or_default(),
            since.map(|since| format!("removed {} ago", age(since, now))).unwrap_or_default(),
            claim.map(|claim| format!("{} on PersistentVolumeClaim {}", size(claim), name(claim))).unwrap_or_default(),
            unfinished.to_owned(),
        ]
    });
    lines.extend(aligned(&rows.collect::<Vec<_>>()));
    if !record.replacements.is_empty() {
        lines.push("Removed in exchange (suspended in turn, if suspension is on):".to_owned());
        lines.extend(record.replacements.iter().map(|id| format!("  {id}")));
    }
    lines.push("Steps:".to_owned());
    lines.extend(steps.iter().enumerate().map(|(at, step)| format!("  {:>2}. {}", at + 1, to_do(step, record))));
    lines
}

/// The candidates for an exchange, if there is a choice.
pub(crate) fn candidates(goal: &Goal) -> Vec<String> {
    let mut lines = Vec::new();
    for choice in goal.choices.iter().filter(|choice| choice.is_open()) {
        lines.push(format!(
            "{} groups of class {} may be replacements of the removed groups; {} of them must be removed:",
            choice.candidates.len(),
            choice.class,
            choice.need
        ));
        let created = |at| format!("created {}", format::seconds(at));
        let rows = choice.candidates.iter().map(|one| vec![format!("  {}", one.group), created(one.created)]);
        lines.extend(aligned(&rows.collect::<Vec<_>>()));
    }
    lines
}

/// A step that is left.
fn to_do(step: &Step, record: &Record) -> String {
    match step {
        Step::Hold(edits) => format!("hold {} for the recovery", objects(edits)),
        Step::Skip(_) => "set spec.skip, so that the operator leaves the cluster alone".to_owned(),
        Step::Settle => "wait until the operator's last pass is over".to_owned(),
        Step::Lists(_) => match record.replacements.as_slice() {
            [] => "remove the groups from the removal lists".to_owned(),
            ids => format!("put {} into processGroupsToRemove, instead of the groups", ids.join(", ")),
        },
        Step::Status(_) => match record.replacements.as_slice() {
            [] => "remove the removal marks from the groups' status".to_owned(),
            ids => format!("remove the removal marks from the groups' status, and mark {}", ids.join(", ")),
        },
        Step::Include(orders, _) => format!("run in the database: {}", orders.join("; ")),
        Step::Services(services) => {
            format!("create the missing Service {}", services.iter().map(name).collect::<Vec<_>>().join(", "))
        }
        Step::Verify => "verify that every edit was kept".to_owned(),
        Step::Resume(_) => "set spec.skip back to false".to_owned(),
        Step::Await(missing) => {
            format!(
                "wait for {} on the old volumes, and until the operator sees the processes report",
                missing.iter().map(|one| one.pod.as_str()).collect::<Vec<_>>().join(", ")
            )
        }
        Step::Clear(..) => "remove our annotations".to_owned(),
    }
}

/// A step that was done. The first word is the step's name, for scripts.
pub(crate) fn done(step: &Step) -> String {
    match step {
        Step::Hold(edits) => format!("hold: {} held for the recovery", objects(edits)),
        Step::Skip(_) => "skip: the operator ignores the cluster (spec.skip: true)".to_owned(),
        Step::Settle => "settle: the operator's last pass is over".to_owned(),
        Step::Lists(_) => "lists: processGroupsToRemove is edited".to_owned(),
        Step::Status(_) => "status: the removal marks are as they should be".to_owned(),
        Step::Include(orders, _) => format!("include: done in the database: {}", orders.join("; ")),
        Step::Services(services) => {
            format!("service: {} created", services.iter().map(name).collect::<Vec<_>>().join(", "))
        }
        Step::Verify => "verify: every edit was kept".to_owned(),
        Step::Resume(_) => "resume: the operator reconciles again (spec.skip: false)".to_owned(),
        Step::Await(_) => "pod: runs".to_owned(),
        Step::Clear(..) => "clear: our annotations are removed".to_owned(),
    }
}

fn objects(edits: &[Edit]) -> String {
    let called = |edit: &Edit| match edit.kind {
        Kept::Pvc => format!("PersistentVolumeClaim {}", edit.name),
        Kept::Service => format!("Service {}", edit.name),
    };
    edits.iter().map(called).collect::<Vec<_>>().join(", ")
}

/// What is still missing.
pub(crate) fn missing(missing: &[Missing]) -> String {
    missing.iter().map(|one| format!("{} ({}): {}", one.group, one.pod, one.what)).collect::<Vec<_>>().join("; ")
}
