//! The question before several targets, a protected one, or one whose sleep destroys something are changed. Only a
//! person at a terminal is asked.

use std::fmt::Write as _;
use std::io::{IsTerminal, stdin};

use shared::target::{Change, PowerAction, is_protected};
use shared::text::and_more;

use super::briefing::{self, Known};
use crate::error::{Failure, Problem};
use crate::output::prompt;
use crate::select::target::Target;

/// A target and what is to be written to it.
pub(crate) type Planned = (Target, Result<Change, Failure>);

/// How many targets without a briefing the question lists; the rest is counted. No briefing is left out.
const LISTED: usize = 20;

/// Asks for confirmation if needed and possible. Returns whether a prompt was shown, which may have taken a while.
///
/// # Errors
/// When the answer is not yes.
pub(crate) fn ask(action: PowerAction, planned: &[Planned], known: &[Known]) -> Result<bool, Problem> {
    let Some(question) = question(action, planned, known).filter(|_| stdin().is_terminal()) else {
        return Ok(false);
    };
    prompt::yes(&question).map(|()| true)
}

/// The question, if there is one: more than one target changes, a protected one goes to sleep, or a sleep destroys
/// something.
fn question(action: PowerAction, planned: &[Planned], known: &[Known]) -> Option<String> {
    let changes: Vec<&Target> =
        planned.iter().filter(|(_, plan)| matches!(plan, Ok(Change::Patch { .. }))).map(|(target, _)| target).collect();
    let protected = |target: &Target| action == PowerAction::Hibernate && is_protected(&target.object);
    let of = |target: &Target| known.iter().find(|known| known.what == target.full_name());
    if changes.len() < 2 && !changes.iter().any(|target| protected(target) || of(target).is_some()) {
        return None;
    }
    let verb = if action == PowerAction::Hibernate { "hibernate" } else { "resume" };
    let targets = if changes.len() == 1 { "target" } else { "targets" };
    let mut text = format!("About to {verb} {} {targets}:\n", changes.len());
    let (mut listed, mut more) = (0, 0);
    for target in &changes {
        let briefing = of(target);
        if briefing.is_none() && listed == LISTED {
            more += 1;
            continue;
        }
        listed += usize::from(briefing.is_none());
        let note = if protected(target) { " (protected)" } else { "" };
        let place = if target.namespace.is_empty() { String::new() } else { format!(" in {}", target.namespace) };
        let _ = writeln!(text, "  {}{place}{note}", target.full_name());
        for line in briefing.map(briefing::lines).unwrap_or_default() {
            let _ = writeln!(text, "    {line}");
        }
    }
    if let Some(more) = and_more(more) {
        let _ = writeln!(text, "  {more}");
    }
    Some(text + "Continue? [y/N] ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::annotation::keys;
    use shared::target::{Briefing, CLUSTER_DEPLOYMENT};

    use super::*;

    fn planned(name: &str, changes: bool, protected: bool) -> Planned {
        let annotations = json!({ keys::PROTECTED: protected.to_string() });
        let metadata = json!({ "name": name, "namespace": "x", "annotations": annotations });
        let patch = Change::Patch { patch: json!({}), message: String::new(), warnings: Vec::new() };
        let plan = if changes { patch } else { Change::None { message: String::new(), follows: true } };
        (Target::new(&CLUSTER_DEPLOYMENT, "v1", json!({ "metadata": metadata })), Ok(plan))
    }

    #[test]
    fn one_harmless_change_is_not_worth_a_question() {
        for targets in [
            vec![],
            vec![planned("a", true, false)],
            vec![planned("a", true, false), planned("b", false, true)],
            vec![planned("a", false, false), planned("b", false, false)],
        ] {
            assert_eq!(question(PowerAction::Hibernate, &targets, &[]), None);
        }
        assert_eq!(question(PowerAction::Resume, &[planned("a", true, true)], &[]), None);
    }

    #[test]
    fn a_sleep_that_destroys_something_is_worth_a_question() {
        let what = "clusterdeployment.hive.openshift.io/a".to_owned();
        let briefing = Briefing { consequences: vec!["7 Pods are deleted.".to_owned()], ..Briefing::default() };
        let known = [Known { what, preflight: Ok(briefing) }];
        assert_eq!(
            question(PowerAction::Hibernate, &[planned("a", true, false)], &known).unwrap(),
            "About to hibernate 1 target:\n  clusterdeployment.hive.openshift.io/a in x\n    7 Pods are deleted.\n\
             Continue? [y/N] "
        );
        assert_eq!(question(PowerAction::Hibernate, &[planned("a", false, false)], &known), None);
        assert_eq!(question(PowerAction::Hibernate, &[planned("b", true, false)], &known), None);
    }

    #[test]
    fn the_question_lists_what_changes() {
        let two = [planned("a", true, false), planned("b", true, true), planned("c", false, false)];
        assert_eq!(
            question(PowerAction::Hibernate, &two, &[]).unwrap(),
            "About to hibernate 2 targets:\n  clusterdeployment.hive.openshift.io/a in x\n  \
             clusterdeployment.hive.openshift.io/b in x (protected)\nContinue? [y/N] "
        );
        assert!(question(PowerAction::Hibernate, &[planned("a", true, true)], &[]).unwrap().contains("1 target:"));
        let many: Vec<_> = (0..25).map(|at| planned(&at.to_string(), true, false)).collect();
        assert!(question(PowerAction::Resume, &many, &[]).unwrap().contains("and 5 more"));
    }

    #[test]
    fn every_briefing_is_shown() {
        let many: Vec<_> = (0..50).map(|at| planned(&at.to_string(), true, false)).collect();
        let known: Vec<_> = (25..50)
            .map(|at| {
                let consequences = vec![format!("{at} Pods are deleted.")];
                let preflight = Ok(Briefing { consequences, ..Briefing::default() });
                Known { what: format!("clusterdeployment.hive.openshift.io/{at}"), preflight }
            })
            .collect();
        let text = question(PowerAction::Hibernate, &many, &known).unwrap();
        for at in 25..50 {
            assert!(text.contains(&format!("/{at} in x\n    {at} Pods are deleted.\n")), "{at}: {text}");
        }
        assert!(text.starts_with("About to hibernate 50 targets:\n") && text.contains("\n  and 5 more\n"), "{text}");
    }
}
