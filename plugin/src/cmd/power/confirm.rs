//! What comes before a change: the controller's preflight, if the sleep destroys something, and the question before
//! several targets, a protected one, or such a sleep. Only a person at a terminal is asked.

use std::fmt::Write as _;
use std::io::{IsTerminal, stdin};

use futures::{StreamExt, stream};
use shared::finding::Severity;
use shared::kinds::{Briefing, is_protected};
use shared::power::Power;
use shared::text::and_more;
use view::CONCURRENCY;
use view::age::elapsed;

use crate::cmd::power_plan::{Findings, PlanResult, PowerRequest, TargetPlan};
use crate::error::{Failure, Problem, UsageError};
use crate::output::{self, prompt};
use crate::wait::preflight::{self, Outcome};

/// How many targets without a briefing the question lists; the rest is counted. No briefing is left out.
const LISTED: usize = 20;

/// Adds what the controller finds about sleeps that need a confirmation. One that it refuses becomes a failure.
///
/// # Errors
/// When a confirmation is needed, and neither `--yes` is given nor anyone can be asked.
pub(super) async fn preflights(request: PowerRequest<'_>, plans: Vec<PlanResult>) -> Result<Vec<PlanResult>, Problem> {
    if request.sleeps()
        && !request.args.yes
        && !stdin().is_terminal()
        && let Some(one) = plans.iter().flatten().find(|one| one.confirmation().is_some())
    {
        return Err(UsageError::NeedsYes(one.target.full_name()).into());
    }
    let checked = stream::iter(plans).map(async |one| {
        let one = one?;
        let Some(outcome) = one.preflight(request).await else { return Ok(one) };
        Ok(match judged(request, &one, outcome) {
            Ok(briefing) => TargetPlan { briefing: Some(briefing), ..one.again(request).await },
            Err(problem) => TargetPlan { change: Err(Failure::new(one.target.full_name(), problem)), ..one },
        })
    });
    Ok(checked.buffered(CONCURRENCY).collect().await)
}

/// What an answer means for the sleep of one target. The inner error says why there is none, where the sleep may be
/// requested all the same.
fn judged(
    PowerRequest { args, intent, .. }: PowerRequest<'_>,
    one: &TargetPlan,
    outcome: Result<Outcome, Problem>,
) -> Result<Findings, Problem> {
    match outcome? {
        Outcome::Answered { briefing, .. } => briefed(briefing, intent.force),
        Outcome::Impossible(why) => Ok(Err(why)),
        Outcome::Silent => {
            let silence = one.confirmation().map(|by| by.silence(&one.target.object)).unwrap_or_default();
            let why = format!("no answer to the preflight after {}: {silence}", elapsed(preflight::LIMIT));
            unanswered(args.yes, why)
        }
        Outcome::Refused(error) => Err(error.into()),
    }
}

/// With `--yes` the sleep is requested all the same: the controller makes its own preflight before it begins.
fn unanswered(yes: bool, why: String) -> Result<Findings, Problem> {
    if yes { Ok(Err(why)) } else { Err(Problem::NoPreflight(why)) }
}

fn briefed(briefing: Briefing, force: bool) -> Result<Findings, Problem> {
    let refusals = briefing.refusals(force);
    if refusals.is_empty() {
        return Ok(Ok(briefing));
    }
    let reasons = refusals.iter().map(|found| format!("{}: {}", found.code, found.sentence)).collect();
    Err(Problem::Preflight { reasons, can_be_forced: briefing.can_be_forced() })
}

/// Asks for confirmation if needed and possible. Returns whether a prompt was shown, which may have taken a while. With
/// `--yes`, prints what a user would read before the question.
///
/// # Errors
/// When the answer is not yes.
pub(super) fn ask(request: PowerRequest<'_>, plans: &[PlanResult]) -> Result<bool, Problem> {
    let args = request.args;
    if args.yes {
        plans.iter().flatten().for_each(note);
    }
    match prompt::is_due(&args.write, args.yes).then(|| question(request.intent.power, plans)).flatten() {
        Some(question) => prompt::yes(&question).map(|()| true),
        None => Ok(false),
    }
}

/// The question, if there is one: more than one target changes, a protected one goes to sleep, or a sleep destroys
/// something.
fn question(action: Power, plans: &[PlanResult]) -> Option<String> {
    let changes: Vec<&TargetPlan> = plans.iter().flatten().filter(|one| one.changes()).collect();
    let protected = |one: &TargetPlan| action == Power::Hibernating && is_protected(&one.target.object);
    if changes.len() < 2 && !changes.iter().any(|one| protected(one) || one.briefing.is_some()) {
        return None;
    }
    let verb = if action == Power::Hibernating { "hibernate" } else { "resume" };
    let targets = if changes.len() == 1 { "target" } else { "targets" };
    let mut text = format!("About to {verb} {} {targets}:\n", changes.len());
    let (mut listed, mut more) = (0, 0);
    for one in &changes {
        if one.briefing.is_none() && listed == LISTED {
            more += 1;
            continue;
        }
        listed += usize::from(one.briefing.is_none());
        let note = if protected(one) { " (protected)" } else { "" };
        let namespace = &one.target.namespace;
        let place = if namespace.is_empty() { String::new() } else { format!(" in {namespace}") };
        let _ = writeln!(text, "  {}{place}{note}", one.target.full_name());
        for line in one.briefing.as_ref().map(lines).unwrap_or_default() {
            let _ = writeln!(text, "    {line}");
        }
    }
    if let Some(more) = and_more(more) {
        let _ = writeln!(text, "  {more}");
    }
    Some(text + "Continue? [y/N] ")
}

/// What a user reads about a sleep.
fn lines(findings: &Findings) -> Vec<String> {
    let briefing = match findings {
        Ok(briefing) => briefing,
        Err(why) => return vec![format!("warning: {why}")],
    };
    let findings = briefing.findings.iter().map(|found| {
        let word = match found.severity {
            Severity::Block => "refused",
            Severity::Forceable => "forced",
            Severity::Warn => "warning",
            Severity::Info => "note",
        };
        format!("{word}: {}: {}", found.code, found.sentence)
    });
    let left_out = (briefing.left_out > 0)
        .then(|| format!("warning: the controller left out {} more findings", briefing.left_out));
    briefing.consequences.iter().cloned().chain(findings).chain(left_out).collect()
}

fn note(one: &TargetPlan) {
    let what = one.target.full_name();
    match &one.briefing {
        None => {}
        Some(Err(why)) => output::warning(&format!("{what}: {why}")),
        Some(found) => {
            output::note(&format!("{what}:"));
            for line in lines(found) {
                output::note(&format!("  {line}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::annotation::keys;
    use shared::finding::Finding;
    use shared::kinds::{CLUSTER_DEPLOYMENT, Change};
    use view::target::Target;

    use super::*;
    use crate::error::Exit;

    fn planned(name: &str, changes: bool, protected: bool) -> TargetPlan {
        let annotations = json!({ keys::PROTECTED: protected.to_string() });
        let metadata = json!({ "name": name, "namespace": "x", "annotations": annotations });
        let patch = Change::Patch { patch: json!({}), message: String::new(), warnings: Vec::new() };
        let change = if changes { patch } else { Change::None { message: String::new(), will_reach: true } };
        let target = Target::new(&CLUSTER_DEPLOYMENT, "v1", json!({ "metadata": metadata }));
        TargetPlan { target, change: Ok(change), briefing: None }
    }

    fn with(one: TargetPlan, consequence: String) -> TargetPlan {
        let briefing = Some(Ok(Briefing { consequences: vec![consequence], ..Briefing::default() }));
        TargetPlan { briefing, ..one }
    }

    fn question_of(action: Power, planned: impl IntoIterator<Item = TargetPlan>) -> Option<String> {
        question(action, &planned.into_iter().map(Ok).collect::<Vec<_>>())
    }

    fn briefing(findings: &[(Severity, &str)]) -> Briefing {
        let found = |(severity, code): &(Severity, &str)| Finding::new(*severity, code, format!("{code} is so"));
        Briefing {
            consequences: vec!["7 Pods are deleted.".to_owned()],
            findings: findings.iter().map(found).collect(),
            ..Briefing::default()
        }
    }

    #[test]
    fn refusals_end_with_exit_code_3_and_say_what_a_force_would_do() {
        use Severity::{Block, Forceable, Warn};
        for (findings, force, expected) in [
            (vec![], false, None),
            (vec![(Warn, "LoadBalancers")], false, None),
            (vec![(Forceable, "BarePods")], true, None),
            (
                vec![(Forceable, "BarePods"), (Warn, "x")],
                false,
                Some(
                    "the preflight refuses the sleep, no hibernation was requested (--force accepts this):\n  BarePods: BarePods is so",
                ),
            ),
            (
                vec![(Block, "NotRunning"), (Forceable, "BarePods")],
                false,
                Some(
                    "the preflight refuses the sleep, no hibernation was requested:\n  NotRunning: NotRunning is so\n  BarePods: BarePods is so",
                ),
            ),
            (
                vec![(Block, "NotRunning"), (Forceable, "BarePods")],
                true,
                Some("the preflight refuses the sleep, no hibernation was requested:\n  NotRunning: NotRunning is so"),
            ),
        ] {
            let judged = briefed(briefing(&findings), force);
            match expected {
                None => assert!(judged.is_ok(), "{findings:?}"),
                Some(text) => {
                    let problem = judged.unwrap_err();
                    assert_eq!((problem.to_string().as_str(), problem.exit()), (text, Exit::Refused), "{findings:?}");
                }
            }
        }
    }

    #[test]
    fn without_an_answer_only_yes_goes_on() {
        let silent = |yes| unanswered(yes, "no answer".to_owned());
        assert_eq!(silent(true).unwrap(), Err("no answer".to_owned()));
        let problem = silent(false).unwrap_err();
        assert_eq!(problem.exit(), Exit::TimedOut);
        assert_eq!(problem.to_string(), "no answer; no sleep was requested (--yes requests it without a preflight)");
    }

    #[test]
    fn consequences_come_first_and_what_is_forced_is_named() {
        let mut briefing = briefing(&[(Severity::Forceable, "BarePods"), (Severity::Warn, "LoadBalancers")]);
        briefing.left_out = 2;
        assert_eq!(
            lines(&Ok(briefing)),
            [
                "7 Pods are deleted.",
                "forced: BarePods: BarePods is so",
                "warning: LoadBalancers: LoadBalancers is so",
                "warning: the controller left out 2 more findings",
            ]
        );
        assert_eq!(lines(&Err("no answer".to_owned())), ["warning: no answer"]);
    }

    #[test]
    fn one_harmless_change_is_not_worth_a_question() {
        for targets in [
            vec![],
            vec![planned("a", true, false)],
            vec![planned("a", true, false), planned("b", false, true)],
            vec![planned("a", false, false), planned("b", false, false)],
        ] {
            assert_eq!(question_of(Power::Hibernating, targets), None);
        }
        assert_eq!(question_of(Power::Running, [planned("a", true, true)]), None);
    }

    #[test]
    fn a_sleep_that_destroys_something_is_worth_a_question() {
        let deletes = |found| [with(found, "7 Pods are deleted.".to_owned())];
        assert_eq!(
            question_of(Power::Hibernating, deletes(planned("a", true, false))).unwrap(),
            "About to hibernate 1 target:\n  clusterdeployment.hive.openshift.io/a in x\n    7 Pods are deleted.\n\
             Continue? [y/N] "
        );
        assert_eq!(question_of(Power::Hibernating, deletes(planned("a", false, false))), None);
    }

    #[test]
    fn the_question_lists_what_changes() {
        let two = [planned("a", true, false), planned("b", true, true), planned("c", false, false)];
        assert_eq!(
            question_of(Power::Hibernating, two).unwrap(),
            "About to hibernate 2 targets:\n  clusterdeployment.hive.openshift.io/a in x\n  \
             clusterdeployment.hive.openshift.io/b in x (protected)\nContinue? [y/N] "
        );
        assert!(question_of(Power::Hibernating, [planned("a", true, true)]).unwrap().contains("1 target:"));
        let many: Vec<_> = (0..25).map(|at| planned(&at.to_string(), true, false)).collect();
        assert!(question_of(Power::Running, many).unwrap().contains("and 5 more"));
    }

    #[test]
    fn every_briefing_is_shown() {
        let plain = (0..25).map(|at| planned(&at.to_string(), true, false));
        let deletes = |at: u32| with(planned(&at.to_string(), true, false), format!("{at} Pods are deleted."));
        let many: Vec<_> = plain.chain((25..50).map(deletes)).collect();
        let text = question_of(Power::Hibernating, many).unwrap();
        for at in 25..50 {
            assert!(text.contains(&format!("/{at} in x\n    {at} Pods are deleted.\n")), "{at}: {text}");
        }
        assert!(text.starts_with("About to hibernate 50 targets:\n") && text.contains("\n  and 5 more\n"), "{text}");
    }
}
