//! The question before several targets, or a protected one, are changed. Only a person at a terminal is asked.

#[cfg(unix)]
use std::fs::OpenOptions;
use std::{
    fmt::Write as _,
    io::{IsTerminal, Write, stderr, stdin},
};

use shared::annotation::{annotation, keys};

use crate::{
    cmd::power::{Plan, Wish},
    error::Problem,
    output,
    select::Target,
};

/// How many targets the question lists; the rest is counted.
const LISTED: usize = 20;

/// Something that a question is written to.
type Screen = Box<dyn Write>;

/// Asks, if there is something to ask and somebody to answer. Whether a person was asked, who may have taken their time.
///
/// # Errors
/// When the answer is not yes.
pub(crate) fn ask(wish: Wish, planned: &[(Target, Result<Plan, Problem>)]) -> Result<bool, Problem> {
    let Some(question) = question(wish, planned).filter(|_| stdin().is_terminal()) else {
        return Ok(false);
    };
    yes(&question).map(|()| true)
}

/// Asks a person.
///
/// # Errors
/// When the answer is not yes, or the question cannot be shown.
pub(crate) fn yes(question: &str) -> Result<(), Problem> {
    let answer = answer(question)?;
    if is_yes(&answer) {
        return Ok(());
    }
    if answer.is_empty() {
        output::note("");
    }
    Err(Problem::Declined)
}

/// Asks a person, and returns the line that they type.
///
/// # Errors
/// When the question cannot be shown, or the answer not be read.
pub(crate) fn answer(question: &str) -> Result<String, Problem> {
    let mut out = screen(stderr().is_terminal(), terminal).ok_or(Problem::Unasked)?;
    let _ = write!(out, "{question}");
    let _ = out.flush();
    read()
}

/// The next line of stdin.
///
/// # Errors
/// When there is no reading it.
pub(crate) fn read() -> Result<String, Problem> {
    let mut answer = String::new();
    stdin().read_line(&mut answer).map_err(|source| Problem::Io { action: "read the answer".to_owned(), source })?;
    Ok(answer)
}

/// Where a person sees the question: on stderr, or on the terminal itself when stderr goes into a file.
fn screen(stderr_is_terminal: bool, terminal: impl FnOnce() -> Option<Screen>) -> Option<Screen> {
    if stderr_is_terminal { Some(Box::new(stderr())) } else { terminal() }
}

#[cfg(unix)]
fn terminal() -> Option<Screen> {
    let terminal = OpenOptions::new().write(true).open("/dev/tty").ok()?;
    Some(Box::new(terminal))
}

#[cfg(not(unix))]
fn terminal() -> Option<Screen> {
    None
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

/// The question, if there is one: more than one target changes, or a protected one goes to sleep.
fn question(wish: Wish, planned: &[(Target, Result<Plan, Problem>)]) -> Option<String> {
    let changes: Vec<&Target> =
        planned.iter().filter(|(_, plan)| matches!(plan, Ok(Plan::Patch { .. }))).map(|(target, _)| target).collect();
    let protected =
        |target: &Target| wish == Wish::Sleep && annotation(&target.object, keys::PROTECTED) == Some("true");
    if changes.len() < 2 && !changes.iter().any(|target| protected(target)) {
        return None;
    }
    let verb = if wish == Wish::Sleep { "put to sleep" } else { "wake" };
    let targets = if changes.len() == 1 { "target" } else { "targets" };
    let mut text = format!("About to {verb} {} {targets}:\n", changes.len());
    for target in changes.iter().take(LISTED) {
        let note = if protected(target) { " (protected)" } else { "" };
        let _ = writeln!(text, "  {} in {}{note}", target.full_name(), target.namespace);
    }
    if changes.len() > LISTED {
        let _ = writeln!(text, "  and {} more", changes.len() - LISTED);
    }
    Some(text + "Continue? [y/N] ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{api::Resource, error::Exit, select::CLUSTER_DEPLOYMENT};

    fn planned(name: &str, changes: bool, protected: bool) -> (Target, Result<Plan, Problem>) {
        let resource = Resource { kind: &CLUSTER_DEPLOYMENT, version: "v1" };
        let annotations = json!({ keys::PROTECTED: protected.to_string() });
        let metadata = json!({ "name": name, "namespace": "x", "annotations": annotations });
        let patch = Plan::Patch { patch: json!({}), message: String::new() };
        let plan = if changes { patch } else { Plan::Unchanged };
        (Target::new(resource, json!({ "metadata": metadata })), Ok(plan))
    }

    #[test]
    fn one_harmless_change_is_not_worth_a_question() {
        for targets in [
            vec![],
            vec![planned("a", true, false)],
            vec![planned("a", true, false), planned("b", false, true)],
            vec![planned("a", false, false), planned("b", false, false)],
        ] {
            assert_eq!(question(Wish::Sleep, &targets), None);
        }
        assert_eq!(question(Wish::Wake, &[planned("a", true, true)]), None);
    }

    #[test]
    fn the_question_lists_what_changes() {
        let two = [planned("a", true, false), planned("b", true, true), planned("c", false, false)];
        assert_eq!(
            question(Wish::Sleep, &two).unwrap(),
            "About to put to sleep 2 targets:\n  clusterdeployment.hive.openshift.io/a in x\n  \
             clusterdeployment.hive.openshift.io/b in x (protected)\nContinue? [y/N] "
        );
        assert!(question(Wish::Sleep, &[planned("a", true, true)]).unwrap().contains("1 target:"));
        let many: Vec<_> = (0..25).map(|at| planned(&at.to_string(), true, false)).collect();
        assert!(question(Wish::Wake, &many).unwrap().contains("and 5 more"));
    }

    #[test]
    fn a_question_is_shown_where_a_person_sees_it() {
        let other = || -> Option<Screen> { Some(Box::new(std::io::sink())) };
        for (stderr, terminal, shown) in
            [(true, true, true), (true, false, true), (false, true, true), (false, false, false)]
        {
            let found = screen(stderr, || terminal.then(other).flatten());
            assert_eq!(found.is_some(), shown, "{stderr} {terminal}");
        }
        assert_eq!(Problem::Unasked.exit(), Exit::Error);
    }

    #[test]
    fn only_yes_is_yes() {
        for (answer, yes) in [("y\n", true), ("YES\n", true), ("\n", false), ("", false), ("no", false), ("yep", false)]
        {
            assert_eq!(is_yes(answer), yes, "{answer:?}");
        }
    }
}
