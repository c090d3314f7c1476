//! Creates a rollout in place of the changes themselves: find the canaries, check the hub, ask, create, wait.

use futures::{StreamExt, stream};
use hub::{HubClient, Resource, Write};
use shared::annotation::format;
use shared::kinds::{Briefing, POWER_ROLLOUT, TargetKind, is_protected};
use shared::power::Power;
use shared::rollout::api::PowerRollout;
use shared::rollout::draft;
use shared::rollout::plan::MAX_CONCURRENCY;
use shared::text::{and_more, count, name_some};
use view::target::Target;
use view::{CONCURRENCY, Query};

use super::canary::{CanaryGroup, name_of, place};
use super::guard;
use super::options::Options;
use crate::cli::values::Limit;
use crate::cli::{DryRun, WriteFlags};
use crate::cmd::power_plan::{PlanResult, PowerRequest, TargetPlan};
use crate::error::{Exit, Failure, Problem};
use crate::output::{self, prompt};
use crate::wait;
use crate::wait::preflight::Outcome;

/// How many names a question lists.
const LISTED: usize = 20;

/// Creates a rollout of all targets. If one was not found, there is none: a rollout of some of them was not requested.
///
/// # Errors
/// When nothing was created.
pub(crate) async fn run(
    request: PowerRequest<'_>,
    options: &Options<'_>,
    query: &Query,
    plans: Vec<PlanResult>,
) -> Result<Exit, Problem> {
    let PowerRequest { hub, args, intent, .. } = request;
    let failures: Vec<&Failure> = plans.iter().filter_map(|one| one.as_ref().err()).collect();
    if !failures.is_empty() {
        return Ok(Exit::of(failures.into_iter().map(output::failed)));
    }
    let found: Vec<&Target> = plans.iter().flatten().map(|one| &one.target).collect();
    let (spec, groups) = options.draft(intent, query, query.namespace(hub), &found)?;
    let name = draft::name(spec.action, intent.now, random());
    let rollout = PowerRollout::new(&name, spec);
    let mut summary = summary(intent.power, &rollout, found.len(), &groups);
    if args.write.dry_run != DryRun::Client {
        guard::check(hub, rollout.metadata.name.as_deref().unwrap_or_default(), args.rollout.paused, options.row.rival)
            .await?;
    }
    summary.extend(totals(request, plans.iter().flatten()).await);
    prompt::confirm(&args.write, args.yes, &question(&summary, &found), &summary)?;
    create(hub, &rollout, &args.write, args.wait.then_some(args.timeout)).await
}

/// A number that nobody else has drawn: the standard library seeds its hash maps from the system's randomness.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}

/// What the sleeps delete and keep in all, where they destroy something: the sum of what the controller finds now. A
/// target that does not answer, or that the preflight refuses, is counted: the controller checks each before its sleep.
async fn totals<'a>(request: PowerRequest<'_>, plans: impl Iterator<Item = &'a TargetPlan>) -> Vec<String> {
    let answers = stream::iter(plans).map(|one| one.preflight(request)).buffered(CONCURRENCY).collect::<Vec<_>>().await;
    let briefing = |outcome| if let Ok(Outcome::Answered { briefing, .. }) = outcome { Some(briefing) } else { None };
    sum(&answers.into_iter().flatten().map(briefing).collect::<Vec<_>>())
}

/// The lines about these preflights; none about kinds whose sleep destroys nothing.
fn sum(answers: &[Option<Briefing>]) -> Vec<String> {
    let answered: Vec<&Briefing> = answers.iter().flatten().collect();
    let silent = answers.len() - answered.len();
    let refused = answered.iter().filter(|briefing| !briefing.refusals(false).is_empty()).count();
    let total = Briefing::sum(answered.iter().copied());
    [
        (!total.is_empty())
            .then(|| format!("  in all, by the preflights of {}: {total}", count(answered.len(), "target"))),
        (refused > 0).then(|| format!("  refused by the preflight: {}", count(refused, "target"))),
        (silent > 0).then(|| format!("  without an answer to the preflight: {}", count(silent, "target"))),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Reports what was done to a rollout.
///
/// # Errors
/// When it cannot be written down.
pub(crate) fn report(flags: &WriteFlags, rollout: &PowerRollout, done: &str) -> Result<(), Problem> {
    let object = serde_json::to_value(rollout).map_err(Problem::unreadable)?;
    output::changed(flags, &full_name(rollout), done, &object);
    Ok(())
}

/// Creates the object, reports it, and waits for its end if there is a limit to that.
///
/// # Errors
/// When the hub refuses.
pub(crate) async fn create(
    hub: &HubClient,
    rollout: &PowerRollout,
    flags: &WriteFlags,
    wait: Option<Limit>,
) -> Result<Exit, Problem> {
    let created = match flags.dry_run {
        DryRun::Client => rollout.clone(),
        DryRun::None | DryRun::Server => output::warned(send(hub, rollout, &flags.into())).await?,
    };
    report(flags, &created, "created")?;
    match wait.filter(|_| flags.changes()) {
        Some(limit) => Ok(waited(hub, &created, limit, flags.output.is_some()).await),
        None => Ok(Exit::Done),
    }
}

/// Sends the object. What the hub stores, or would store.
///
/// # Errors
/// When the hub refuses.
pub(crate) async fn send(hub: &HubClient, rollout: &PowerRollout, write: &Write) -> Result<PowerRollout, Problem> {
    let object = serde_json::to_value(rollout).map_err(Problem::unreadable)?;
    wait::rollout::typed(hub.create(Resource::preferred(&POWER_ROLLOUT.kind), None, &object, write).await?)
}

async fn waited(hub: &HubClient, rollout: &PowerRollout, limit: Limit, objects_on_stdout: bool) -> Exit {
    let what = full_name(rollout);
    match wait::rollout::until_over(hub, rollout, limit.0).await {
        Ok(text) => {
            let print = if objects_on_stdout { output::note } else { output::line };
            print(&format!("{what} {text}"));
            Exit::Done
        }
        Err(problem) => output::failed(&Failure::new(what, problem)),
    }
}

/// The name of a rollout for messages.
pub(crate) fn full_name(rollout: &PowerRollout) -> String {
    POWER_ROLLOUT.kind.full_name(rollout.metadata.name.as_deref().unwrap_or_default())
}

/// What the rollout does, in lines.
fn summary(action: Power, rollout: &PowerRollout, found: usize, groups: &[CanaryGroup]) -> Vec<String> {
    let spec = &rollout.spec;
    let verb = if action == Power::Hibernating { "hibernate" } else { "resume" };
    let at_once = spec.max_concurrency.unwrap_or(MAX_CONCURRENCY);
    let from = spec.not_before.as_ref().map(|from| format!("from {} ", format::seconds(from.0))).unwrap_or_default();
    let paused = if spec.paused { ", created paused" } else { "" };
    let mut lines = vec![format!(
        "{verb} {} as rollout {}, up to {at_once} at a time, starting {from}until {}{paused}",
        count(found, "target"),
        rollout.metadata.name.as_deref().unwrap_or_default(),
        format::seconds(spec.not_after.0),
    )];
    for CanaryGroup { group, members } in groups {
        let pause = if group.pause_after { ", then pause" } else { "" };
        lines.push(format!("  {}: {}{pause}", group.name, name_some(members.iter().map(place), LISTED)));
    }
    let canaries: usize = groups.iter().map(|group| group.members.len()).sum();
    if canaries > 0 && canaries < found {
        lines.push(format!("  then the remaining {}", found - canaries));
    }
    lines
}

/// The question, with the first targets.
pub(crate) fn question(summary: &[String], found: &[&Target]) -> String {
    let shown = found.iter().take(LISTED).map(|target| {
        let note = if is_protected(&target.object) { " (protected)" } else { "" };
        format!("  {}{note}\n", place(&name_of(target)))
    });
    let more = and_more(found.len().saturating_sub(LISTED)).map(|more| format!("  {more}\n"));
    let targets: String = shown.chain(more).collect();
    format!("About to {}\nTargets:\n{targets}Continue? [y/N] ", summary.join("\n"))
}

/// Where many targets change at once although a rollout could take them in waves: a line for whoever sees it on a
/// terminal.
pub(crate) fn hint<'a>(rows: impl Iterator<Item = &'a TargetKind>, on_terminal: bool) -> Option<String> {
    let targets = rows.filter(|row| row.in_rollouts.is_some()).count();
    (on_terminal && targets > LISTED).then(|| {
        format!(
            "{targets} targets change at once: use --max-concurrency and --canary to change them in waves (a rollout)"
        )
    })
}

#[cfg(test)]
mod tests {
    use std::iter::repeat_n;

    use jiff::Timestamp;
    use shared::finding::{Finding, Severity};
    use shared::kinds::{CLUSTER_DEPLOYMENT, Intent};
    use shared::rollout::api::Targets;

    use super::*;
    use crate::cli::rollout::{Hours, RolloutFlags};
    use crate::cmd::rollout::canary::tests::target;
    use crate::cmd::rollout::canary::{find, read};
    use crate::cmd::rollout::options::spec;

    #[test]
    fn preflights_add_up() {
        let briefing = |machines: u32, volumes: u32| Briefing {
            totals: vec![(machines, "Machines deleted"), (volumes, "volumes kept")],
            ..Briefing::default()
        };
        let refused = Briefing { findings: vec![Finding::new(Severity::Forceable, "Quota", "no")], ..briefing(1, 0) };
        let answers = [Some(briefing(5, 3)), None, Some(refused), Some(briefing(4, 1))];
        assert_eq!(
            sum(&answers),
            [
                "  in all, by the preflights of 3 targets: 10 Machines deleted, 4 volumes kept",
                "  refused by the preflight: 1 target",
                "  without an answer to the preflight: 1 target",
            ]
        );
        assert_eq!(sum(&[]), Vec::<String>::new());
    }

    #[test]
    fn the_question_has_the_count_and_the_canaries() {
        let found = [target("a", "demo", "x"), target("b", "web", "y"), target("b", "db", "y")];
        let found: Vec<&Target> = found.iter().collect();
        let canaries = read(&["a/demo".to_owned()]).unwrap();
        let groups = find(&canaries, None, true, &found).unwrap();
        let hours = Hours { not_before: None, not_after: "2026-11-24T20:00:00Z".parse().unwrap() };
        let (now, power) = (Timestamp::UNIX_EPOCH, Power::Hibernating);
        let intent = Intent { power, reason: None, end: None, now, queried: true, force: false };
        let targets = Targets { all: true, ..Targets::default() };
        let flags = RolloutFlags { paused: true, ..RolloutFlags::default() };
        let spec = spec(&flags, hours, &groups, draft::spec(&intent, targets, found.len(), hours.not_after));
        let lines = summary(power, &PowerRollout::new("night", spec), found.len(), &groups);
        assert_eq!(
            question(&lines, &found),
            "About to hibernate 3 targets as rollout night, up to 20 at a time, starting until 2026-11-24T20:00:00Z, created \
             paused\n  canary: a/demo, then pause\n  then the remaining 2\nTargets:\n  a/demo\n  b/web\n  b/db\n\
             Continue? [y/N] "
        );
        let many: Vec<Target> = (0..25).map(|at| target("a", &at.to_string(), "x")).collect();
        assert!(question(&lines, &many.iter().collect::<Vec<_>>()).contains("  a/19\n  and 5 more\nContinue?"));
    }

    #[test]
    fn two_numbers_are_not_the_same() {
        assert_ne!(random(), random());
    }

    #[test]
    fn many_targets_on_a_terminal_are_worth_a_hint() {
        for (targets, terminal, hinted) in [(20, true, false), (21, true, true), (21, false, false)] {
            assert_eq!(
                hint(repeat_n(&CLUSTER_DEPLOYMENT, targets), terminal).is_some(),
                hinted,
                "{targets} {terminal}"
            );
        }
        let text = hint(repeat_n(&CLUSTER_DEPLOYMENT, 500), true).unwrap();
        assert!(text.contains("--max-concurrency and --canary") && !text.contains('\n'));
    }
}
