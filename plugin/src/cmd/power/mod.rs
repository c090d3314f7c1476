//! Putting targets to sleep and waking them: plan, ask, write, report, wait.

mod advice;
mod confirm;
mod namespace;
mod plan;
mod pools;
mod report;
mod write;

use std::io::{IsTerminal, stderr};
use std::time::Instant;

use shared::kinds::{Intent, Kinds};
use shared::power::Power;

use self::plan::{Found, Planned};
use self::report::{Done, Reporter};
use self::write::Writer;
use crate::cli::time::{self, TimeError};
use crate::cli::{ActArgs, HubArgs};
use crate::cmd::rollout;
use crate::connect::connect;
use crate::error::{Exit, Problem, UsageError};
use crate::output::{self, nothing_found};
use crate::read::untouched;
use crate::select::parse::{Flags, Selection, parse};
use crate::select::resolve::Resolver;
use crate::wait::{self, Request, Waiting};

/// Puts targets to sleep or wakes them.
///
/// # Errors
/// When nothing could be tried at all. Failures of single targets are printed and counted.
pub(crate) async fn run(
    kinds: Kinds,
    action: Power,
    args: &ActArgs,
    force: bool,
    hub_args: &HubArgs,
) -> Result<Exit, Problem> {
    let selection = parse(kinds, &args.targets, Flags::new(hub_args, args.all))?;
    let now = time::now();
    let end = args.time.resolve(&now)?;
    let queried = matches!(selection, Selection::Query { .. });
    let intent = Intent { power: action, reason: args.reason.as_deref(), end, now: now.timestamp(), queried, force };
    let hub = connect(hub_args)?;
    let namespace = selection.scope(&hub, hub_args);
    let found = Resolver::new(&hub, namespace).resolve(&selection).await;
    let planned: Vec<Found> = found.into_iter().map(|target| Ok(Planned::new(target?, &intent))).collect();
    if let Some(name) = selection.whole() {
        namespace::check(&hub, name, &planned).await?;
    }
    if planned.is_empty() {
        output::note(&nothing_found(selection.namespace(namespace)));
        return Ok(Exit::Done);
    }
    check(&intent, &planned)?;
    let rows = planned.iter().flatten().map(|one| one.target.row);
    if let Some(text) = rollout::create::hint(rows, stderr().is_terminal()) {
        output::note(&text);
    }
    let mut planned = confirm::preflights(&hub, args, &intent, planned).await?;
    let whole = selection.whole().filter(|_| action == Power::Hibernating);
    if let Some(name) = whole {
        if let Some(exit) = namespace::refused(name, &planned) {
            return Ok(exit);
        }
        untouched::note(&hub, name).await;
    }
    advice::give(&hub, &intent, &planned).await;
    if confirm::ask(action, args, &planned)? {
        planned = plan::again(&hub, &intent, planned).await;
        if let Some(exit) = whole.and_then(|name| namespace::refused(name, &planned)) {
            return Ok(exit);
        }
    }
    let begin = Instant::now();
    let reporter = Reporter::new(&args.write, hub_args.all_namespaces, planned.len());
    let (done, mut exits) = Writer::new(&hub, &intent, &args.write).all(planned, reporter).await;
    if args.wait && args.write.changes() {
        let followed = done.iter().filter(|done| done.follows);
        let waiting: Vec<Waiting<'_>> = followed
            .map(|Done { target, changed, requested, .. }| {
                let request = requested.map(|at| Request::new(at, args.timeout.0));
                Waiting { target, action, begin, changed: *changed, request }
            })
            .collect();
        exits.extend(wait::all(&hub, &waiting, args.timeout.0, args.write.output.is_some()).await);
    }
    Ok(Exit::of(exits))
}

/// What some kinds do not have.
fn check(intent: &Intent<'_>, planned: &[Found]) -> Result<(), Problem> {
    for Planned { target, .. } in planned.iter().flatten() {
        if intent.end.is_some() && !target.row.has_schedule {
            return Err(TimeError::NoController(target.full_name()).into());
        }
        if intent.force && !target.row.has_force {
            return Err(UsageError::NothingToForce(target.full_name()).into());
        }
    }
    Ok(())
}
