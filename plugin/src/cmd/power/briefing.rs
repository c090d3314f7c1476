//! The preflight before a sleep that destroys something: the controller is asked, and what it found decides whether the
//! sleep is requested at all, and what the user reads before the question.

use std::io::{IsTerminal, stdin};
use std::time::Duration;

use futures::{StreamExt, stream};
use shared::finding::Severity;
use shared::target::confirmation::{Briefing, Confirmation};
use shared::target::{Change, Intent, PowerAction};

use crate::api::{Hub, Write};
use crate::cli::duration::elapsed;
use crate::cli::{ActArgs, DryRun};
use crate::error::{Failure, PreflightError, Problem, UsageError};
use crate::output;
use crate::read::preflight::{self, Asked};
use crate::select::resolve::CONCURRENCY;
use crate::select::target::Target;

/// How long an answer is waited for. A controller reads the user cluster for it, which takes a few seconds.
const LIMIT: Duration = Duration::from_secs(30);

/// What is known about a sleep before it is confirmed.
#[derive(Debug)]
pub(crate) struct Known {
    /// The target as messages name it.
    pub(crate) what: String,
    /// What the controller found, or why it was not asked or has not answered.
    pub(crate) preflight: Result<Briefing, String>,
}

/// The targets of which a sleep may still be requested, and what is known about those that need a confirmation. A
/// target whose preflight refuses the sleep becomes a failure in its place.
///
/// # Errors
/// When a confirmation is needed, and neither `--yes` is given nor anyone can be asked.
pub(crate) async fn all(
    hub: &Hub,
    args: &ActArgs,
    intent: &Intent<'_>,
    found: Vec<Result<Target, Failure>>,
) -> Result<(Vec<Result<Target, Failure>>, Vec<Known>), Problem> {
    if intent.action != PowerAction::Hibernate || args.dry_run != DryRun::None {
        return Ok((found, Vec::new()));
    }
    let needs = found.iter().flatten().find(|target| confirmation(target, intent).is_some());
    match needs {
        None => return Ok((found, Vec::new())),
        Some(target) if !args.yes && !stdin().is_terminal() => {
            return Err(UsageError::NeedsYes(target.full_name()).into());
        }
        Some(_) => {}
    }
    let asked = stream::iter(found).map(async |target| {
        let target = target?;
        let Some(confirmation) = confirmation(&target, intent) else { return Ok((target, None)) };
        let what = target.full_name();
        match one(hub, args, intent, &target, confirmation).await {
            Ok(preflight) => {
                let target = target.read_again(hub).await.map_err(|error| Failure::new(what.clone(), error.into()))?;
                Ok((target, Some(Known { what, preflight })))
            }
            Err(problem) => Err(Failure::new(what, problem)),
        }
    });
    let asked: Vec<Result<(Target, Option<Known>), Failure>> = asked.buffered(CONCURRENCY).collect().await;
    let (mut kept, mut known) = (Vec::new(), Vec::new());
    for one in asked {
        kept.push(match one {
            Ok((target, briefing)) => {
                known.extend(briefing);
                Ok(target)
            }
            Err(failure) => Err(failure),
        });
    }
    Ok((kept, known))
}

/// How the sleep of a target is confirmed, if one is about to be requested that needs it.
fn confirmation(target: &Target, intent: &Intent<'_>) -> Option<&'static dyn Confirmation> {
    let confirmation = target.row.confirmation?;
    match target.row.change(&target.object, intent) {
        Ok(Change::Patch { patch, .. }) if confirmation.is_needed(&patch) => Some(confirmation),
        _ => None,
    }
}

/// Requests a preflight and waits for the answer. The inner error says why there is none, where the sleep may be
/// requested all the same.
async fn one(
    hub: &Hub,
    args: &ActArgs,
    intent: &Intent<'_>,
    target: &Target,
    confirmation: &'static dyn Confirmation,
) -> Result<Result<Briefing, String>, Problem> {
    let write = Write { dry_run: false, manager: args.field_manager.clone() };
    match preflight::ask(hub, target, confirmation, intent.now, &write, Some(LIMIT)).await? {
        Asked::Answered(briefing) => judged(briefing, intent.force),
        Asked::Impossible(why) => Ok(Err(why)),
        Asked::Silent => {
            let why = format!("no answer to the preflight after {}: {}", elapsed(LIMIT), confirmation.silence());
            unanswered(args, why, PreflightError::Unanswered)
        }
        Asked::Refused(error) => Err(error.into()),
    }
}

/// With `--yes` the sleep is requested all the same: the controller makes its own preflight before it begins.
fn unanswered(
    args: &ActArgs,
    why: String,
    error: fn(String) -> PreflightError,
) -> Result<Result<Briefing, String>, Problem> {
    if args.yes { Ok(Err(why)) } else { Err(error(why).into()) }
}

fn judged(briefing: Briefing, force: bool) -> Result<Result<Briefing, String>, Problem> {
    let refusals = briefing.refusals(force);
    if refusals.is_empty() {
        return Ok(Ok(briefing));
    }
    let reasons = refusals.iter().map(|found| format!("{}: {}", found.code, found.sentence)).collect();
    Err(PreflightError::Refused { reasons, can_be_forced: briefing.can_be_forced() }.into())
}

/// What a user reads about a sleep.
pub(crate) fn lines(known: &Known) -> Vec<String> {
    let briefing = match &known.preflight {
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

/// Prints what a user would read before the question, for those that are not asked.
pub(crate) fn note(known: &[Known]) {
    for one in known {
        match &one.preflight {
            Ok(_) => {
                output::note(&format!("{}:", one.what));
                for line in lines(one) {
                    output::note(&format!("  {line}"));
                }
            }
            Err(why) => output::warning(&format!("{}: {why}", one.what)),
        }
    }
}

#[cfg(test)]
mod tests {
    use shared::finding::Finding;

    use super::*;
    use crate::error::Exit;

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
            let judged = judged(briefing(&findings), force);
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
        let args = |line: &str| {
            let words = std::iter::once("kubectl-hibernate").chain(line.split(' ')).map(Into::into);
            crate::cli::Cli::read(words).unwrap().sleep.act
        };
        let silent = |line: &str| unanswered(&args(line), "no answer".to_owned(), PreflightError::Unanswered);
        assert_eq!(silent("cluster/abc --yes").unwrap(), Err("no answer".to_owned()));
        let problem = silent("cluster/abc").unwrap_err();
        assert_eq!(problem.exit(), Exit::TimedOut);
        assert_eq!(problem.to_string(), "no answer; no sleep was requested (--yes requests it without a preflight)");
    }

    #[test]
    fn consequences_come_first_and_what_is_forced_is_named() {
        let known = |preflight| Known { what: "x/demo".to_owned(), preflight };
        let mut briefing = briefing(&[(Severity::Forceable, "BarePods"), (Severity::Warn, "LoadBalancers")]);
        briefing.left_out = 2;
        assert_eq!(
            lines(&known(Ok(briefing))),
            [
                "7 Pods are deleted.",
                "forced: BarePods: BarePods is so",
                "warning: LoadBalancers: LoadBalancers is so",
                "warning: the controller left out 2 more findings",
            ]
        );
        assert_eq!(lines(&known(Err("no answer".to_owned()))), ["warning: no answer"]);
    }
}
