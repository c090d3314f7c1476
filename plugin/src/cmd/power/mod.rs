//! Putting targets to sleep and waking them: plan, ask, write, report, wait.

mod briefing;
mod confirm;
mod namespace;
mod ownership;
mod pools;
mod report;
mod reverts;
mod stand_in;

use std::io::{IsTerminal, stderr};
use std::time::Instant;

use futures::{StreamExt, stream};
use serde_json::Value;
use shared::target::{Advice, CLUSTER_DEPLOYMENT, Change, Intent, Kinds, PowerAction};

use self::confirm::Planned;
use self::report::{Done, Outcome, Reporter};
use crate::api::error::HubError;
use crate::api::middleware::with_warnings;
use crate::api::{Hub, Write, patched};
use crate::cli::time::{self, TimeError};
use crate::cli::{ActArgs, DryRun, HubArgs, SleepArgs};
use crate::cmd::rollout;
use crate::error::{Exit, Failure, Problem, UsageError};
use crate::output::{self, nothing_found};
use crate::select::parse::{Flags, Selection, parse};
use crate::select::resolve::{CONCURRENCY, Resolver};
use crate::select::target::Target;
use crate::wait::{self, Request, Waiting};

/// How often a workload is read again because another client wrote it in between.
const ATTEMPTS: u32 = 5;

/// Puts targets to sleep.
///
/// # Errors
/// When nothing could be tried at all. Failures of single targets are printed and counted.
pub(crate) async fn sleep(kinds: Kinds, args: &SleepArgs, hub_args: &HubArgs) -> Result<Exit, Problem> {
    run(kinds, PowerAction::Hibernate, &args.act, args.force, hub_args).await
}

/// Wakes targets.
///
/// # Errors
/// As [`sleep`].
pub(crate) async fn wake(kinds: Kinds, args: &ActArgs, hub_args: &HubArgs) -> Result<Exit, Problem> {
    run(kinds, PowerAction::Resume, args, false, hub_args).await
}

async fn run(
    kinds: Kinds,
    action: PowerAction,
    args: &ActArgs,
    force: bool,
    hub_args: &HubArgs,
) -> Result<Exit, Problem> {
    if !args.rollout.given().is_empty() {
        return rollout::create::run(kinds, action, args, force, hub_args).await;
    }
    let selection = parse(kinds, &args.targets, flags(args, hub_args))?;
    let now = time::now();
    let end = args.time.resolve(&now)?;
    let queried = matches!(selection, Selection::Query { .. });
    let intent = Intent { action, reason: args.reason.as_deref(), end, now: now.timestamp(), queried, force };
    let hub = Hub::connect(hub_args).await?;
    let whole = selection.whole();
    let namespace = selection.scope(&hub, hub_args);
    let found = Resolver::new(&hub, namespace).resolve(&selection).await;
    if let Some(name) = whole {
        namespace::check(&hub, name, &found).await?;
    }
    if found.is_empty() {
        output::note(&nothing_found(selection.namespace(namespace)));
        return Ok(Exit::Done);
    }
    if let (Some(_), Some(target)) = (end, found.iter().flatten().find(|target| !target.row.has_schedule)) {
        return Err(TimeError::NoController(target.full_name()).into());
    }
    if let (true, Some(target)) = (force, found.iter().flatten().find(|target| !target.row.has_force)) {
        return Err(UsageError::NothingToForce(target.full_name()).into());
    }
    let clusters = found.iter().flatten().filter(|target| *target.row == CLUSTER_DEPLOYMENT).count();
    if let Some(text) = rollout::create::hint(clusters, stderr().is_terminal()) {
        output::note(&text);
    }
    let (mut found, known) = briefing::all(&hub, args, &intent, found).await?;
    let mut planned = plan_all(&found, &intent);
    let whole = whole.filter(|_| action == PowerAction::Hibernate);
    if let Some(name) = whole {
        if let Some(exit) = namespace::refused(name, &found, &planned) {
            return Ok(exit);
        }
        namespace::note_untouched(&hub, name).await;
    }
    if action == PowerAction::Hibernate {
        reverts::warn(&hub, &planned).await;
    }
    if args.yes {
        briefing::note(&known);
    } else if args.dry_run == DryRun::None {
        let took_time = confirm::ask(action, &planned, &known)?;
        if took_time {
            found = read_again(&hub, found).await;
            planned = plan_all(&found, &intent);
            if let Some(exit) = whole.and_then(|name| namespace::refused(name, &found, &planned)) {
                return Ok(exit);
            }
        }
    }
    let changing: Vec<(&Target, &Value)> = planned.iter().filter_map(change_that_a_pool_may_undo).collect();
    pools::before(&hub, action, end, &changing).await;
    let begin = Instant::now();
    let reporter = Reporter::new(args, hub_args.all_namespaces, found.len());
    let (done, mut exits) = write_all(&hub, &intent, args, found, reporter).await;
    if args.wait && args.dry_run == DryRun::None {
        let followed = done.iter().filter(|done| done.follows);
        let waiting: Vec<Waiting<'_>> = followed
            .map(|Done { target, changed, requested, .. }| {
                let request = requested.map(|at| Request::new(at, args.timeout.0));
                Waiting { target, action, begin, changed: *changed, request }
            })
            .collect();
        exits.extend(wait::all(&hub, &waiting, args.timeout.0, args.output.is_some()).await);
    }
    Ok(Exit::of(exits))
}

fn plan_all(found: &[Result<Target, Failure>], intent: &Intent<'_>) -> Vec<Planned> {
    let plan = |target: &Target| {
        let change = target.row.change(&target.object, intent);
        (target.clone(), change.map_err(|error| Failure::new(target.full_name(), error.into())))
    };
    found.iter().flatten().map(plan).collect()
}

/// The targets as they are now: another client may have written them during the confirmation prompt.
async fn read_again(hub: &Hub, found: Vec<Result<Target, Failure>>) -> Vec<Result<Target, Failure>> {
    stream::iter(found)
        .map(|target| async {
            let target = target?;
            target.read_again(hub).await.map_err(|error| Failure::new(target.full_name(), error.into()))
        })
        .buffered(CONCURRENCY)
        .collect()
        .await
}

fn change_that_a_pool_may_undo((target, change): &Planned) -> Option<(&Target, &Value)> {
    match change {
        Ok(Change::Patch { patch, .. }) if target.row.advice == Some(Advice::ClusterPools) => Some((target, patch)),
        _ => None,
    }
}

fn flags<'a>(args: &'a ActArgs, hub_args: &'a HubArgs) -> Flags<'a> {
    Flags {
        selector: hub_args.selector.as_deref(),
        all: args.all,
        all_namespaces: hub_args.all_namespaces,
        lists: false,
    }
}

/// Writes to all targets at the same time, and reports them in the order given as soon as they are done.
async fn write_all(
    hub: &Hub,
    intent: &Intent<'_>,
    args: &ActArgs,
    found: Vec<Result<Target, Failure>>,
    mut reporter: Reporter<'_>,
) -> (Vec<Done>, Vec<Exit>) {
    let (mut done, mut exits) = (Vec::new(), Vec::new());
    let mut work = stream::iter(found)
        .map(|target| async {
            let target = match target {
                Ok(target) => target,
                Err(failure) => return Outcome { of: None, warnings: Vec::new(), result: Err(failure) },
            };
            let (what, namespace) = (target.full_name(), target.namespace.clone());
            let (result, warnings) = with_warnings(write(hub, intent, args, target)).await;
            let result = result.map_err(|problem| Failure::new(what.clone(), problem));
            Outcome { of: Some((what, namespace)), warnings, result }
        })
        .buffered(CONCURRENCY);
    while let Some(outcome) = work.next().await {
        reporter.report(&outcome);
        match outcome.result {
            Ok(one) => done.push(one),
            Err(failure) => exits.push(failure.problem.exit()),
        }
    }
    (done, exits)
}

/// Plans and writes one target, again from the start if another client wrote it in between.
async fn write(hub: &Hub, intent: &Intent<'_>, args: &ActArgs, mut target: Target) -> Result<Done, Problem> {
    let settings = Write { dry_run: args.dry_run == DryRun::Server, manager: args.field_manager.clone() };
    for _ in 0..ATTEMPTS {
        let (patch, message, warnings) = match target.row.change(&target.object, intent)? {
            Change::Patch { patch, message, warnings } => (patch, message, warnings),
            Change::None { message, follows } => {
                let warnings = ownership::release(hub, args, &mut target, &settings).await.into_iter().collect();
                return Ok(Done { target, message, changed: false, follows, requested: None, warnings });
            }
            Change::Ask { patch, requested, message } => {
                let (requested, warnings) = (Some(requested), Vec::new());
                let done = Done { target, message, changed: true, follows: true, requested, warnings };
                return Ok(ask(hub, args, &settings, &patch, done).await);
            }
        };
        match apply(hub, args, &settings, &target, &patch).await {
            Ok(object) => {
                target.object = object;
                let kept = ownership::release(hub, args, &mut target, &settings).await;
                let warnings = warnings.into_iter().chain(kept).collect();
                return Ok(Done { target, message, changed: true, follows: true, requested: None, warnings });
            }
            Err(HubError::Conflict { .. }) => target = target.read_again(hub).await?,
            Err(refusal) if stand_in::is_by_system(&target, &refusal) => {
                let warning = stand_in::write(hub, &target, intent, &settings, refusal).await?;
                let warnings = warnings.into_iter().chain([warning]).collect();
                return Ok(Done { target, message, changed: true, follows: true, requested: None, warnings });
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(Problem::Contended(ATTEMPTS))
}

/// Asks the controller to check a target that is in the state asked for. A refusal is only a warning: there was nothing
/// to do.
async fn ask(hub: &Hub, args: &ActArgs, settings: &Write, patch: &Value, mut done: Done) -> Done {
    match apply(hub, args, settings, &done.target, patch).await {
        Ok(object) => done.target.object = object,
        Err(error) => {
            let warnings = vec![format!("no check of its machines was requested: {error}")];
            done = Done { message: "unchanged".to_owned(), changed: false, requested: None, warnings, ..done };
        }
    }
    done
}

async fn apply(hub: &Hub, args: &ActArgs, settings: &Write, target: &Target, patch: &Value) -> Result<Value, HubError> {
    match args.dry_run {
        DryRun::Client => Ok(patched(&target.object, patch)),
        DryRun::None | DryRun::Server => {
            hub.patch(target.resource, &target.namespace, &target.name, patch, settings).await
        }
    }
}
