//! What the user reads and answers: the candidates, the plan, the questions, and what has been done.

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write as _, stderr, stdin};

use serde_json::Value;
use shared::annotation::format;
use shared::fdb::admission::Kind;
use shared::fdb::recover::check::Goal;
use shared::fdb::recover::facts::{Facts, size};
use shared::fdb::recover::patch::Edit;
use shared::fdb::recover::presence::Obstacle;
use shared::fdb::recover::record::Record;
use shared::fdb::recover::replace::Choice;
use shared::fdb::recover::{Plan, Step};
use shared::object::name_of;
use view::age::age;

use crate::error::{FdbError, Problem};
use crate::output::{self, aligned, prompt};

/// When a question is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PromptMode {
    /// Never.
    Never,
    /// A person at a terminal, if there is one.
    Terminal,
    /// Whoever is at the other end of stdin, as kubectl-fdb does.
    Always,
}

impl PromptMode {
    fn is_on(self) -> bool {
        match self {
            Self::Never => false,
            Self::Terminal => stdin().is_terminal(),
            Self::Always => true,
        }
    }
}

/// Which groups the user chose to remove, by a flag or at the prompt. The others are chosen anew for every step.
pub(super) fn replacements(goal: &Goal, mode: PromptMode) -> Result<Vec<String>, Problem> {
    for choice in goal.choices.iter().filter(|choice| choice.is_open()) {
        output::note(&format!(
            "{} groups of class {} may be replacements of the removed groups; {} of them must be removed:",
            choice.candidates.len(),
            choice.class,
            choice.need
        ));
        let created = |at| format!("created {}", format::seconds(at));
        let rows = choice.candidates.iter().map(|one| vec![format!("  {}", one.group), created(one.created)]);
        output::note(&aligned(&rows.collect::<Vec<_>>()).join("\n"));
    }
    let mut chosen = Vec::new();
    for choice in &goal.choices {
        if choice.named {
            chosen.extend(choice.newest().map(ToOwned::to_owned));
        } else if choice.is_open() && mode.is_on() {
            chosen.extend(ask(choice)?);
        }
    }
    Ok(chosen)
}

/// Asks until the answer names as many candidates as have to go, or nobody.
fn ask(choice: &Choice) -> Result<Vec<String>, Problem> {
    let newest = choice.newest().collect::<Vec<_>>().join(" ");
    let question =
        format!("Which {} of class {} should be removed in exchange? [{newest}]: ", choice.need, choice.class);
    loop {
        let answer = read(&question)?;
        if answer.is_empty() {
            return Err(FdbError::Aborted.into());
        }
        let words: Vec<&str> = answer.split([' ', ',']).map(str::trim).filter(|word| !word.is_empty()).collect();
        let different: BTreeSet<&str> = words.iter().copied().collect();
        let known = choice.candidates.iter().filter(|candidate| different.contains(candidate.group.as_str())).count();
        if words.is_empty() || [words.len(), known] == [choice.need; 2] {
            return Ok(words.into_iter().map(ToOwned::to_owned).collect());
        }
        output::note(&format!("enter {} of the listed IDs, or press Enter for the default", choice.need));
    }
}

/// On a terminal the prompt appears there; otherwise on stderr.
fn read(question: &str) -> Result<String, Problem> {
    if stdin().is_terminal() {
        return prompt::answer(question);
    }
    let _ = write!(stderr(), "{}", output::plain(question));
    prompt::read()
}

/// The plan: who comes back, who goes, and the steps that are left.
pub(super) fn plan(cluster: &str, facts: &Facts<'_>, goal: &Goal, Plan { record, steps }: &Plan) -> Vec<String> {
    let mut lines = vec![format!("{cluster}: groups to recover:")];
    let rows = record.groups.iter().map(|held| {
        let claim = facts.claim_of(&held.group, &held.pod);
        let since = held.removal.as_deref().and_then(format::time);
        let unfinished = if goal.unfinished.contains(&held.group) { "(begun by an earlier run)" } else { "" };
        vec![
            format!("  {}", held.group),
            held.class.clone(),
            held.fault_domain.clone().unwrap_or_default(),
            since.map(|since| format!("removed {} ago", age(since, facts.now))).unwrap_or_default(),
            claim
                .map(|claim| format!("{} on PersistentVolumeClaim {}", size(claim), name_of(claim)))
                .unwrap_or_default(),
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

/// A step that is left.
fn to_do(step: &Step, record: &Record) -> String {
    let exchange = record.replacements.join(", ");
    match step {
        Step::Hold(edits) => format!("hold {} for the recovery", objects(edits)),
        Step::Skip(_) => "set spec.skip, so that the operator leaves the cluster alone".to_owned(),
        Step::Settle => "wait until the operator's last pass is over".to_owned(),
        Step::Lists(_) if exchange.is_empty() => "remove the groups from the removal lists".to_owned(),
        Step::Lists(_) => format!("put {exchange} into processGroupsToRemove, instead of the groups"),
        Step::Status(_) if exchange.is_empty() => "remove the removal marks from the groups' status".to_owned(),
        Step::Status(_) => format!("remove the removal marks from the groups' status, and mark {exchange}"),
        Step::Include(orders, _) => format!("run in the database: {}", orders.join("; ")),
        Step::Services(services) => format!("create the missing Service {}", names(services)),
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

/// Asks whether to begin.
pub(super) fn begin(mode: PromptMode) -> Result<(), Problem> {
    match mode {
        _ if !mode.is_on() => Ok(()),
        PromptMode::Always => as_kubectl_fdb(),
        _ => prompt::yes("Continue? [y/N] "),
    }
}

/// Asks until the answer is yes or no.
fn as_kubectl_fdb() -> Result<(), Problem> {
    loop {
        let answer = read("Recover these process groups? [y/n]: ")?;
        match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => return Ok(()),
            "n" | "no" => return Err(FdbError::Aborted.into()),
            _ if answer.is_empty() => return Err(FdbError::Aborted.into()),
            _ => {}
        }
    }
}

/// A step that was done. The first word is the step's name, for scripts.
pub(super) fn done(step: &Step) -> String {
    match step {
        Step::Hold(edits) => format!("hold: {} held for the recovery", objects(edits)),
        Step::Skip(_) => "skip: the operator ignores the cluster (spec.skip: true)".to_owned(),
        Step::Settle => "settle: the operator's last pass is over".to_owned(),
        Step::Lists(_) => "lists: processGroupsToRemove is edited".to_owned(),
        Step::Status(_) => "status: the removal marks are as they should be".to_owned(),
        Step::Include(orders, _) => format!("include: done in the database: {}", orders.join("; ")),
        Step::Services(services) => format!("service: {} created", names(services)),
        Step::Verify => "verify: every edit was kept".to_owned(),
        Step::Resume(_) => "resume: the operator reconciles again (spec.skip: false)".to_owned(),
        Step::Await(_) => "pod: runs".to_owned(),
        Step::Clear(..) => "clear: our annotations are removed".to_owned(),
    }
}

fn names(services: &[Value]) -> String {
    services.iter().map(name_of).collect::<Vec<_>>().join(", ")
}

fn objects(edits: &[Edit]) -> String {
    let called = |edit: &Edit| match edit.kind {
        Kind::Pvc => format!("PersistentVolumeClaim {}", edit.name),
        Kind::Service => format!("Service {}", edit.name),
    };
    edits.iter().map(called).collect::<Vec<_>>().join(", ")
}

/// What is still missing.
pub(super) fn missing(missing: &[Obstacle]) -> String {
    missing.iter().map(|one| format!("{} ({}): {}", one.group, one.pod, one.what)).collect::<Vec<_>>().join("; ")
}
