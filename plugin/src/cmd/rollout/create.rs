//! Creates a rollout in place of the changes themselves: find the targets and canaries, check the hub, ask, create,
//! wait.

use std::io::{IsTerminal, stdin};

use futures::{StreamExt, stream};
use hub::middleware::with_warnings;
use hub::{HubClient, Resource, Write};
use jiff::Timestamp;
use shared::annotation::format;
use shared::kinds::{Briefing, Intent, Kinds, POWER_ROLLOUT, TargetKind, is_protected};
use shared::power::Power;
use shared::rollout::api::PowerRollout;
use shared::rollout::plan::MAX_CONCURRENCY;
use shared::text::{and_more, count, name_some};
use view::CONCURRENCY;
use view::target::Target;

use super::canary::{self, CanaryGroup, name_of, place};
use super::draft::{self, Request};
use super::guard;
use crate::cli::duration::Limit;
use crate::cli::time::TimeError;
use crate::cli::{ActArgs, DryRun, HubArgs, WriteFlags, time};
use crate::connect::connect;
use crate::error::{Exit, Failure, Problem, RolloutError};
use crate::output::{self, nothing_found, prompt};
use crate::read::preflight::{self, Outcome};
use crate::select::parse::{Flags, Reference, Selection, parse};
use crate::select::resolve::Resolver;
use crate::wait;

/// How many names a question lists.
const LISTED: usize = 20;

/// Creates a rollout.
///
/// # Errors
/// When nothing was created.
pub(crate) async fn run(
    kinds: Kinds,
    action: Power,
    args: &ActArgs,
    force: bool,
    hub_args: &HubArgs,
) -> Result<Exit, Problem> {
    let flag = args.rollout.given().first().copied().unwrap_or_default();
    if force {
        return Err(RolloutError::Force { flag }.into());
    }
    let (selection, row) = of_one_kind(kinds, flag, parse(kinds, &args.targets, Flags::new(hub_args, args.all))?)?;
    if let Selection::Named(names) = &selection {
        draft::within_limit(names.iter().collect())?;
    }
    let now = time::now();
    let hours = args.rollout.hours(&now)?;
    let end = args.time.resolve_from(&now, hours.not_before)?;
    let canaries = canary::read(&args.rollout.canary)?;
    if end.is_some() && !row.has_schedule {
        return Err(TimeError::NoController(row.kind.resource_name()).into());
    }
    let hub = connect(hub_args)?;
    let namespace = (!hub_args.all_namespaces).then_some(hub.namespace.as_str());
    let found = match all_or_none(Resolver::new(&hub, namespace).resolve(&selection).await) {
        Ok(found) => found,
        Err(exit) => return Ok(exit),
    };
    if found.is_empty() {
        output::note(&nothing_found(selection.namespace(namespace)));
        return Ok(Exit::Done);
    }
    let groups = canary::find(&canaries, namespace, args.rollout.pause_after_canary, &found)?;
    let targets = draft::targets(row, &selection, namespace, &found)?;
    let request = Request { end, reason: args.reason.as_deref() };
    let spec = draft::spec(action, &args.rollout, hours, request, targets, found.len(), &groups);
    let name = draft::name(spec.action, now.timestamp(), draft::random());
    let rollout = draft::object(name, spec);
    let mut summary = summary(action, &rollout, &found, &groups);
    if args.write.dry_run != DryRun::Client {
        guard::check(&hub, rollout.metadata.name.as_deref().unwrap_or_default(), args.rollout.paused, row).await?;
    }
    if action == Power::Hibernating && args.write.changes() {
        summary.extend(totals(&hub, args, &found, now.timestamp()).await);
    }
    if args.write.changes() && !args.yes && stdin().is_terminal() {
        prompt::yes(&question(&summary, &found))?;
    } else {
        for line in &summary {
            output::note(line);
        }
    }
    let created = create(&hub, &rollout, &args.write).await?;
    if args.wait && args.write.changes() {
        return Ok(waited(&hub, &created, args.timeout, args.write.output.is_some()).await);
    }
    Ok(Exit::Done)
}

/// What the sleeps delete and keep in all, where they destroy something: the sum of what the controller finds now. A
/// target that does not answer, or that the preflight refuses, is counted: the controller checks each before its sleep.
async fn totals(hub: &HubClient, args: &ActArgs, found: &[Target], now: Timestamp) -> Vec<String> {
    let intent = Intent { power: Power::Hibernating, reason: None, end: None, now, queried: true, force: false };
    let needs = |target: &Target| target.confirmation(&target.row.change(&target.object, &intent).ok()?);
    let requests = found.iter().filter_map(|target| Some((target, needs(target)?)));
    let write = Write::from(&args.write);
    let answers = stream::iter(requests).map(async |(target, confirmation)| {
        match preflight::ask(hub, target, confirmation, now, &write, Some(preflight::LIMIT)).await {
            Ok(Outcome::Answered { briefing, .. }) => Some(briefing),
            Ok(_) | Err(_) => None,
        }
    });
    let answers: Vec<Option<Briefing>> = answers.buffered(CONCURRENCY).collect().await;
    sum(&answers)
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

/// Creates the object, and reports it.
///
/// # Errors
/// When the hub refuses.
pub(crate) async fn create(
    hub: &HubClient,
    rollout: &PowerRollout,
    flags: &WriteFlags,
) -> Result<PowerRollout, Problem> {
    let created = if flags.dry_run == DryRun::Client {
        rollout.clone()
    } else {
        let (answer, warnings) = with_warnings(send(hub, rollout, &flags.into())).await;
        for text in &warnings {
            output::warning(text);
        }
        answer?
    };
    report(flags, &created, "created")?;
    Ok(created)
}

/// Sends the object. What the hub stores, or would store.
///
/// # Errors
/// When the hub refuses.
pub(crate) async fn send(hub: &HubClient, rollout: &PowerRollout, write: &Write) -> Result<PowerRollout, Problem> {
    let object = serde_json::to_value(rollout).map_err(Problem::unreadable)?;
    let stored = hub.create(Resource::preferred(&POWER_ROLLOUT.kind), None, &object, write).await?;
    serde_json::from_value(stored).map_err(Problem::unreadable)
}

/// Waits for its end, and reports it.
pub(crate) async fn waited(hub: &HubClient, rollout: &PowerRollout, limit: Limit, objects_on_stdout: bool) -> Exit {
    let what = full_name(rollout);
    match wait::rollout::until_over(hub, rollout, limit.0).await {
        Ok(text) if objects_on_stdout => output::note(&format!("{what} {text}")),
        Ok(text) => output::line(&format!("{what} {text}")),
        Err(problem) => {
            let failure = Failure::new(what, problem);
            output::error(&failure.to_string());
            return failure.problem.exit();
        }
    }
    Exit::Done
}

/// The name of a rollout for messages.
pub(crate) fn full_name(rollout: &PowerRollout) -> String {
    POWER_ROLLOUT.kind.full_name(rollout.metadata.name.as_deref().unwrap_or_default())
}

/// The selection of objects of one kind that rollouts may have as targets, and its row. A name without a type is that
/// of an object of the first such kind.
///
/// # Errors
/// When the command line names other kinds, or several.
pub(crate) fn of_one_kind(
    kinds: Kinds,
    flag: &'static str,
    selection: Selection,
) -> Result<(Selection, &'static TargetKind), RolloutError> {
    let names = || kinds.in_rollouts().map(|row| format!("{}s", row.kind.kind)).collect::<Vec<_>>().join(" or ");
    let by_default = kinds.in_rollouts().next();
    let of_word = |one: &Reference| match one.word {
        Some(_) => one.kinds.first().copied(),
        None => by_default,
    };
    let named: Vec<&'static TargetKind> = match &selection {
        Selection::Query { kinds, .. } => kinds.clone(),
        Selection::Named(references) => references.iter().filter_map(of_word).collect(),
    };
    let Some(row) = named.first().copied().or(by_default).filter(|row| row.in_rollouts.is_some()) else {
        let found = named.first().map(|row| row.kind.resource_name()).unwrap_or_default();
        return Err(RolloutError::OtherKind { flag, kinds: names(), found });
    };
    if let Some(other) = named.iter().find(|other| **other != row) {
        let found = format!("{} and {}", row.kind.resource_name(), other.kind.resource_name());
        return Err(RolloutError::OtherKind { flag, kinds: names(), found });
    }
    let selection = match selection {
        Selection::Named(references) => {
            let of_row = |one: Reference| Reference { kinds: vec![row], ..one };
            Selection::Named(references.into_iter().map(of_row).collect())
        }
        query @ Selection::Query { .. } => query,
    };
    Ok((selection, row))
}

/// Every target, or the exit code of the failures, which are printed: a rollout of some of them was not requests for.
fn all_or_none(found: Vec<Result<Target, Failure>>) -> Result<Vec<Target>, Exit> {
    let (mut targets, mut exits) = (Vec::new(), Vec::new());
    for one in found {
        match one {
            Ok(target) => targets.push(target),
            Err(failure) => {
                output::error(&failure.to_string());
                exits.push(failure.problem.exit());
            }
        }
    }
    if exits.is_empty() { Ok(targets) } else { Err(Exit::of(exits)) }
}

/// What the rollout does, in lines.
fn summary(action: Power, rollout: &PowerRollout, found: &[Target], groups: &[CanaryGroup]) -> Vec<String> {
    let spec = &rollout.spec;
    let verb = if action == Power::Hibernating { "hibernate" } else { "resume" };
    let at_once = spec.max_concurrency.unwrap_or(MAX_CONCURRENCY);
    let from = spec.not_before.as_ref().map(|from| format!("from {} ", format::seconds(from.0))).unwrap_or_default();
    let paused = if spec.paused { ", created paused" } else { "" };
    let mut lines = vec![format!(
        "{verb} {} as rollout {}, up to {at_once} at a time, starting {from}until {}{paused}",
        count(found.len(), "target"),
        rollout.metadata.name.as_deref().unwrap_or_default(),
        format::seconds(spec.not_after.0),
    )];
    for CanaryGroup { group, members } in groups {
        let pause = if group.pause_after { ", then pause" } else { "" };
        lines.push(format!("  {}: {}{pause}", group.name, name_some(members.iter().map(place), LISTED)));
    }
    let canaries: usize = groups.iter().map(|group| group.members.len()).sum();
    if canaries > 0 && canaries < found.len() {
        lines.push(format!("  then the remaining {}", found.len() - canaries));
    }
    lines
}

/// The question, with the first targets.
fn question(summary: &[String], found: &[Target]) -> String {
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

    use shared::kinds::KINDS;

    use shared::finding::{Finding, Severity};
    use shared::kinds::{CLUSTER_DEPLOYMENT, KKP_CLUSTER};

    use super::*;
    use crate::cli::rollout::{Hours, RolloutFlags};
    use crate::cmd::rollout::canary::tests::target;
    use crate::cmd::rollout::canary::{find, read};

    fn selected(line: &str) -> Result<Selection, String> {
        let words: Vec<String> = line.split_whitespace().map(Into::into).collect();
        let flags = Flags { all: line.starts_with("all"), ..Flags::default() };
        let words = words.strip_prefix(&["all".to_owned()]).unwrap_or(&words);
        of_one_kind(KINDS, "--paused", parse(KINDS, words, flags).unwrap())
            .map(|(selection, _)| selection)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_rollout_is_of_one_kind_that_its_row_allows() {
        for (line, kind) in [
            ("demo", &CLUSTER_DEPLOYMENT),
            ("cd/demo web", &CLUSTER_DEPLOYMENT),
            ("cd demo web", &CLUSTER_DEPLOYMENT),
            ("all", &CLUSTER_DEPLOYMENT),
            ("all cd", &CLUSTER_DEPLOYMENT),
            ("cluster/abc cluster/def", &KKP_CLUSTER),
            ("all cluster", &KKP_CLUSTER),
        ] {
            let kinds = match selected(line).unwrap() {
                Selection::Query { kinds, .. } => kinds,
                Selection::Named(names) => names.into_iter().flat_map(|name| name.kinds).collect(),
            };
            assert!(kinds.iter().all(|row| *row == kind), "{line}");
        }
        for (line, found) in [
            ("deploy/web", "deployments.apps"),
            ("cd/demo cluster/abc", "clusterdeployments.hive.openshift.io and clusters.kubermatic.k8c.io"),
            ("demo cluster/abc", "clusterdeployments.hive.openshift.io and clusters.kubermatic.k8c.io"),
            ("all deploy", "deployments.apps"),
            ("all cd,cluster", "clusterdeployments.hive.openshift.io and clusters.kubermatic.k8c.io"),
        ] {
            let error = selected(line).unwrap_err();
            assert!(error.starts_with("--paused creates a PowerRollout") && error.contains(found), "{line}: {error}");
            assert!(error.contains("omit the options"), "{error}");
        }
    }

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
        let canaries = read(&["a/demo".to_owned()]).unwrap();
        let groups = find(&canaries, None, true, &found).unwrap();
        let hours = Hours { not_before: None, not_after: "2026-11-24T20:00:00Z".parse().unwrap() };
        let targets = shared::rollout::api::Targets { all: true, ..Default::default() };
        let flags = RolloutFlags { paused: true, ..RolloutFlags::default() };
        let spec = draft::spec(Power::Hibernating, &flags, hours, Request::default(), targets, found.len(), &groups);
        let lines = summary(Power::Hibernating, &draft::object("night".to_owned(), spec), &found, &groups);
        assert_eq!(
            question(&lines, &found),
            "About to hibernate 3 targets as rollout night, up to 20 at a time, starting until 2026-11-24T20:00:00Z, created \
             paused\n  canary: a/demo, then pause\n  then the remaining 2\nTargets:\n  a/demo\n  b/web\n  b/db\n\
             Continue? [y/N] "
        );
        let many: Vec<Target> = (0..25).map(|at| target("a", &at.to_string(), "x")).collect();
        assert!(question(&lines, &many).contains("  a/19\n  and 5 more\nContinue?"));
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
