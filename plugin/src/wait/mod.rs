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
use shared::target::{PowerAction, Progress, UNNOTICED};

use self::display::{Outcome, ProgressDisplay};
use crate::{
    api::{
        Hub, name_of,
        watch::{Event, Scope},
    },
    cli::duration::elapsed,
    error::{Exit, Failure, WaitError},
    output,
    read::companion,
    select::target::Target,
};

/// A target that is waited for.
pub(crate) struct Waiting<'a> {
    pub(crate) target: &'a Target,
    pub(crate) action: PowerAction,
    pub(crate) begin: Instant,
    /// Whether anything was written: if not, the target may have been in that state all the time.
    pub(crate) changed: bool,
}

impl Waiting<'_> {
    /// `hibernating after 38s`.
    fn arrived(&self, first_look: bool) -> String {
        let state = self.target.row.state_after(self.action);
        if first_look && !self.changed {
            return format!("already {state}");
        }
        format!("{state} after {}", elapsed(self.begin.elapsed()))
    }
}

/// Waits for all targets, prints the outcome of each, and returns the exit codes of those that failed.
pub(crate) async fn all(
    hub: &Hub,
    targets: &[Waiting<'_>],
    limit: Option<Duration>,
    objects_on_stdout: bool,
) -> Vec<Exit> {
    let mut groups: BTreeMap<_, Vec<(usize, &Waiting<'_>)>> = BTreeMap::new();
    for (at, waiting) in targets.iter().enumerate() {
        let Target { resource, namespace, .. } = waiting.target;
        let key = (resource.kind.group, resource.kind.plural, namespace.as_str());
        groups.entry(key).or_default().push((at, waiting));
    }
    let names: Vec<String> = targets.iter().map(|waiting| waiting.target.full_name()).collect();
    let display = ProgressDisplay::new(names.iter().map(String::as_str));
    let follow_all = join_all(groups.values().map(|group| follow(hub, group, &display)));
    match limit {
        None => drop(follow_all.await),
        // Those that are still open when time is up are the ones that timed out.
        Some(limit) => drop(tokio::time::timeout(limit, follow_all).await),
    }
    let mut exits = Vec::new();
    for (name, outcome) in names.into_iter().zip(display.close()) {
        let problem = match outcome {
            Outcome::Arrived(text) => {
                let line = format!("{name} {text}");
                if objects_on_stdout {
                    output::note(&line)
                } else {
                    output::line(&line)
                }
                continue;
            }
            Outcome::Failed(problem) => problem,
            Outcome::Open(state) => WaitError::TimedOut { after: limit.unwrap_or_default(), state }.into(),
        };
        exits.push(problem.exit());
        output::error(&Failure::new(name, problem).to_string());
    }
    exits
}

/// Follows the targets of one kind and namespace until each has arrived or failed.
async fn follow(hub: &Hub, group: &[(usize, &Waiting<'_>)], display: &ProgressDisplay) {
    let Some((_, Waiting { target: any, .. })) = group.first() else { return };
    let names: Vec<String> = group.iter().map(|(_, waiting)| waiting.target.name.clone()).collect();
    let scope = Scope { namespace: Some(&any.namespace), names: &names, ..Scope::of(any.resource) };
    let mut watcher = hub.watcher(scope);
    let mut known = BTreeSet::new();
    while !group.iter().all(|(at, _)| display.is_settled(*at)) {
        let event = match watcher.next().await {
            Ok(event) => event,
            Err(error) => {
                for (at, waiting) in group {
                    let lost = WaitError::Lost { after: waiting.begin.elapsed(), why: error.to_string() };
                    display.fail(*at, lost.into());
                }
                return;
            }
        };
        let of = |name: &str| group.iter().find(|(_, waiting)| waiting.target.name == name);
        match event {
            Event::Applied(object) => {
                let Some((at, waiting)) = of(name_of(&object)) else { continue };
                settle(hub, display, *at, waiting, object, known.insert(*at)).await;
            }
            Event::Deleted((_, name)) => {
                let Some((at, waiting)) = of(&name) else { continue };
                display.fail(*at, WaitError::deleted(waiting.begin.elapsed()).into());
            }
            Event::Tick => {}
        }
    }
}

async fn settle(
    hub: &Hub,
    display: &ProgressDisplay,
    at: usize,
    waiting: &Waiting<'_>,
    mut object: Value,
    first_look: bool,
) {
    let row = waiting.target.row;
    companion::attach(hub, row, &mut object).await;
    match row.progress(&object, waiting.action) {
        Ok(Progress::Reached) => display.arrive(at, waiting.arrived(first_look)),
        Ok(Progress::Going(text)) => display.state(at, &text),
        Ok(Progress::Unnoticed) => display.state(at, UNNOTICED),
        Ok(Progress::Lost(why)) => display.fail(at, WaitError::Lost { after: waiting.begin.elapsed(), why }.into()),
        Err(error) => display.fail(at, error.into()),
    }
}
