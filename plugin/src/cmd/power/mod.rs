//! Putting targets to sleep and waking them: select, plan, ask, write or create a rollout, report, wait.

mod advice;
mod confirm;
mod follow;
mod namespace;
mod report;
mod write;

use std::collections::BTreeMap;
use std::io::{IsTerminal, stderr};
use std::time::Instant;

use shared::kinds::{Intent, Kinds, TargetError};
use shared::power::Power;
use view::target::Target;

use self::follow::Follower;
use self::report::Reporter;
use self::write::Writer;
use crate::cli::time::{self, TimeError};
use crate::cli::{ActArgs, HubArgs, SleepArgs};
use crate::cmd::control_plane;
use crate::cmd::power_plan::{self, PlanResult, PowerRequest, TargetPlan};
use crate::cmd::rollout::create;
use crate::cmd::rollout::options::Options;
use crate::connect::connect;
use crate::error::{Exit, Failure, Problem, UsageError};
use crate::output::{self, nothing_found};
use crate::read::untouched;
use crate::select::{Flags, parse};

/// What a sleep accepts that is refused otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Accepted {
    /// `--force`
    pub(crate) force: bool,
    /// `--include-owned`
    pub(crate) owned: bool,
}

impl From<&SleepArgs> for Accepted {
    fn from(args: &SleepArgs) -> Self {
        Self { force: args.force, owned: args.include_owned }
    }
}

/// Puts targets to sleep or wakes them: each by itself, or all by a rollout if a flag of one is given.
///
/// # Errors
/// When nothing could be tried at all. Failures of single targets are printed and counted.
pub(crate) async fn run(
    kinds: Kinds,
    action: Power,
    args: &ActArgs,
    Accepted { force, owned }: Accepted,
    hub_args: &HubArgs,
) -> Result<Exit, Problem> {
    let mut query = parse(kinds, &args.targets, Flags::new(hub_args, args.all))?;
    let now = time::now();
    let options = Options::read(kinds, &args.rollout, &now, &mut query)?;
    let end = args.time.resolve(&now, options.as_ref().and_then(|options| options.hours.not_before))?;
    if let Some(options) = &options {
        options.check(&query, end, force)?;
    }
    if owned && query.whole().is_none() {
        return Err(UsageError::NothingOwned.into());
    }
    let (reason, now, queried) = (args.reason.as_deref(), now.timestamp(), query.names.is_empty());
    let intent = Intent { power: action, reason, end, now, queried, force };
    let hub = connect(hub_args)?;
    let mut found = view::targets(&hub, &query).await;
    if let Some(name) = query.whole() {
        let refusal = control_plane::refusal(kinds, &hub, name, &found).await;
        if let Some(why) = refusal.and_then(|refusal| refusal.of(action)) {
            return Err(TargetError::Refused(why).into());
        }
        found = untouched::without_owned(found, action == Power::Hibernating);
    }
    let refuses_owned = query.whole().is_some() && action == Power::Hibernating && !owned;
    let plan = |target: Result<Target, _>| -> PlanResult {
        let plan = TargetPlan::new(target.map_err(Failure::from)?, &intent);
        Ok(match untouched::refusal(kinds, &plan.target).filter(|_| refuses_owned && plan.changes()) {
            Some(why) => plan.refused(why),
            None => plan,
        })
    };
    let plans: Vec<PlanResult> = found.into_iter().map(plan).collect();
    if plans.is_empty() {
        output::note(&nothing_found(query.searched(&hub)));
        return Ok(Exit::Done);
    }
    let request = PowerRequest { hub: &hub, args, intent: &intent, labels: &query.labels };
    match options {
        Some(options) => create::run(request, &options, &query, plans).await,
        None => each(kinds, request, query.whole(), hub_args.all_namespaces, plans).await,
    }
}

/// Writes to each target. `whole`: the namespace, if it is named as a whole.
async fn each(
    kinds: Kinds,
    request: PowerRequest<'_>,
    whole: Option<&str>,
    everywhere: bool,
    plans: Vec<PlanResult>,
) -> Result<Exit, Problem> {
    let PowerRequest { hub, args, intent, .. } = request;
    check(intent, &plans)?;
    let rows = plans.iter().flatten().map(|one| one.target.row);
    if let Some(text) = create::hint(rows, stderr().is_terminal()) {
        output::note(&text);
    }
    let mut plans = confirm::preflights(request, plans).await?;
    let whole = whole.filter(|_| intent.power == Power::Hibernating);
    if let Some(name) = whole {
        if let Some(exit) = namespace::refused(name, &plans) {
            return Ok(exit);
        }
        untouched::note(hub, kinds, name).await;
    }
    advice::give(request, &plans).await;
    if confirm::ask(request, &plans)? {
        plans = power_plan::again(request, plans).await;
        if let Some(exit) = whole.and_then(|name| namespace::refused(name, &plans)) {
            return Ok(exit);
        }
    }
    let mut reporter = Reporter::new(&args.write, everywhere, plans.len());
    let writer = Writer::new(request);
    let mut exits = Vec::new();
    let mut begin = Instant::now();
    let mut follower = Follower::new(request, begin);
    let mut stages = stages(plans, intent.power).into_iter().peekable();
    while let Some(stage) = stages.next() {
        let (done, failed) = writer.all(stage, &mut reporter).await;
        exits.extend(failed);
        exits.extend(follower.stage(done, begin, stages.peek().is_none()).await);
        begin = Instant::now();
    }
    Ok(Exit::of(exits))
}

/// In the order in which they are written: all at once, unless a kind that an operator runs is among them.
fn stages(plans: Vec<PlanResult>, power: Power) -> Vec<Vec<PlanResult>> {
    if !plans.iter().flatten().any(|plan| plan.target.row.sleep_row().is_some()) {
        return vec![plans];
    }
    let mut stages = BTreeMap::<u8, Vec<PlanResult>>::new();
    for plan in plans {
        let stage = plan.as_ref().map_or(0, |plan| plan.target.row.stage);
        stages.entry(stage).or_default().push(plan);
    }
    match power {
        Power::Hibernating => stages.into_values().collect(),
        Power::Running => stages.into_values().rev().collect(),
    }
}

/// What some kinds do not have.
fn check(intent: &Intent<'_>, plans: &[PlanResult]) -> Result<(), Problem> {
    for TargetPlan { target, .. } in plans.iter().flatten() {
        if intent.end.is_some() && !target.row.has_schedule {
            return Err(TimeError::NoController(target.full_name()).into());
        }
        if intent.force && !target.row.has_force {
            return Err(UsageError::NothingToForce(target.full_name()).into());
        }
    }
    Ok(())
}
