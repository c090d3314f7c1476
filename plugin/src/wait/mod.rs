//! `--wait`: follows targets until they have reached the state asked for.
//!
//! Watches drive it, one for each kind and namespace.

pub(crate) mod answer;
mod display;
pub(crate) mod rollout;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use futures::future::join_all;
use serde_json::Value;
use shared::target::{PowerAction, Progress, TargetKind, UNNOTICED};

use self::display::ProgressDisplay;
use crate::{
    api::{
        Hub, Resource, name_of,
        watch::{Event, Scope},
    },
    cli::duration::elapsed,
    error::{Exit, Failure, WaitError},
    output,
    read::companion,
    select::target::Target,
};

/// A target that is waited for.
pub(crate) struct Waiting {
    row: &'static TargetKind,
    resource: Resource,
    namespace: String,
    name: String,
    full_name: String,
    action: PowerAction,
    begin: Instant,
    changed: bool,
}

impl Waiting {
    /// `changed` is whether anything was written: if not, the target may have been in that state all the time.
    pub(crate) fn new(target: &Target, action: PowerAction, begin: Instant, changed: bool) -> Self {
        Self {
            row: target.row,
            resource: target.resource,
            namespace: target.namespace.clone(),
            name: target.name.clone(),
            full_name: target.full_name(),
            action,
            begin,
            changed,
        }
    }

    /// `hibernating after 38s`.
    fn arrived(&self, first_look: bool) -> String {
        let state = self.row.state_after(self.action);
        if first_look && !self.changed {
            return format!("already {state}");
        }
        format!("{state} after {}", elapsed(self.begin.elapsed()))
    }
}

/// Waits for all targets, prints the outcome of each, and returns the exit codes of those that failed.
pub(crate) async fn all(
    hub: &Hub,
    targets: Vec<Waiting>,
    limit: Option<Duration>,
    objects_on_stdout: bool,
) -> Vec<Exit> {
    let mut groups: BTreeMap<(&str, &str, &str), Vec<usize>> = BTreeMap::new();
    for (at, target) in targets.iter().enumerate() {
        let key = (target.resource.kind.group, target.resource.kind.plural, target.namespace.as_str());
        groups.entry(key).or_default().push(at);
    }
    let display = ProgressDisplay::new(targets.iter().map(|target| target.full_name.as_str()));
    let follow_all = join_all(groups.into_values().map(|group| {
        let group = group.into_iter().filter_map(|at| Some((at, targets.get(at)?))).collect();
        follow(hub, group, &display)
    }));
    match limit {
        None => drop(follow_all.await),
        // Those that are still open when time is up are the ones that timed out.
        Some(limit) => drop(tokio::time::timeout(limit, follow_all).await),
    }
    let outcomes = display.close();
    let mut exits = Vec::new();
    for (target, outcome) in targets.iter().zip(outcomes) {
        let problem = match outcome {
            display::Outcome::Arrived(text) if objects_on_stdout => {
                output::note(&format!("{} {text}", target.full_name));
                continue;
            }
            display::Outcome::Arrived(text) => {
                output::line(&format!("{} {text}", target.full_name));
                continue;
            }
            display::Outcome::Failed(problem) => problem,
            display::Outcome::Open(state) => WaitError::TimedOut { after: limit.unwrap_or_default(), state }.into(),
        };
        exits.push(problem.exit());
        output::error(&Failure::new(target.full_name.clone(), problem).to_string());
    }
    exits
}

/// Follows the targets of one kind and namespace until each has arrived or failed.
async fn follow(hub: &Hub, group: Vec<(usize, &Waiting)>, display: &ProgressDisplay) {
    let Some((_, any)) = group.first() else { return };
    let names: Vec<String> = group.iter().map(|(_, target)| target.name.clone()).collect();
    let scope = Scope { namespace: Some(&any.namespace), names: &names, ..Scope::of(any.resource) };
    let mut watcher = hub.watcher(scope);
    let mut known = BTreeSet::new();
    while !group.iter().all(|(at, _)| display.is_settled(*at)) {
        let event = match watcher.next().await {
            Ok(event) => event,
            Err(error) => {
                for (at, target) in &group {
                    let lost = WaitError::Lost { after: target.begin.elapsed(), why: error.to_string() };
                    display.fail(*at, lost.into());
                }
                return;
            }
        };
        let of = |name: &str| group.iter().find(|(_, target)| target.name == name);
        match event {
            Event::Applied(object) => {
                let Some((at, target)) = of(name_of(&object)) else { continue };
                settle(hub, display, *at, target, object, known.insert(*at)).await;
            }
            Event::Deleted((_, name)) => {
                let Some((at, target)) = of(&name) else { continue };
                display.fail(*at, WaitError::deleted(target.begin.elapsed()).into());
            }
            Event::Tick => {}
        }
    }
}

async fn settle(
    hub: &Hub,
    display: &ProgressDisplay,
    at: usize,
    target: &Waiting,
    mut object: Value,
    first_look: bool,
) {
    companion::attach(hub, target.row, &mut object).await;
    match target.row.progress(&object, target.action) {
        Ok(Progress::Reached) => display.arrive(at, target.arrived(first_look)),
        Ok(Progress::Going(text)) => display.state(at, &text),
        Ok(Progress::Unnoticed) => display.state(at, UNNOTICED),
        Ok(Progress::Lost(why)) => display.fail(at, WaitError::Lost { after: target.begin.elapsed(), why }.into()),
        Err(error) => display.fail(at, error.into()),
    }
}
