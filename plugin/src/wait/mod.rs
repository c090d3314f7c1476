//! `--wait`: follows targets until they have reached the state asked for.
//!
//! Watches drive it, one for each kind and namespace. A list at the start of each watch, and again after a minute without events,
//! finds what a watch has missed.

pub(crate) mod answer;
mod display;
pub(crate) mod rollout;

use std::{
    collections::BTreeMap,
    pin::pin,
    time::{Duration, Instant},
};

use futures::{StreamExt, future::join_all};
use kube::api::WatchEvent;
use serde_json::Value;
use shared::target::{PowerAction, Progress, TargetKind, UNNOTICED};

use self::display::ProgressDisplay;
use crate::{
    api::{Hub, Resource, error::HubError},
    cli::duration::elapsed,
    error::{Exit, Failure, WaitError},
    output,
    read::companion,
    select::target::Target,
};

/// After this long without an event the targets are listed again.
const SILENCE: Duration = Duration::from_mins(1);
/// Pause after a failed request; the hub may be restarting.
const PAUSE: Duration = Duration::from_secs(2);

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
            display::Outcome::Open(state) => {
                let after = elapsed(limit.unwrap_or_default());
                WaitError::TimedOut { after, state }.into()
            }
        };
        exits.push(problem.exit());
        output::error(&Failure::new(target.full_name.clone(), problem).to_string());
    }
    exits
}

/// Follows the targets of one kind and namespace until each has arrived or failed.
async fn follow(hub: &Hub, group: Vec<(usize, &Waiting)>, display: &ProgressDisplay) {
    let Some((_, any)) = group.first() else { return };
    let (resource, namespace) = (any.resource, any.namespace.as_str());
    let fields = match group.as_slice() {
        [(_, one)] => format!("metadata.name={}", one.name),
        _ => String::new(),
    };
    let mut first_look = true;
    loop {
        let result = round(hub, resource, namespace, &fields, &group, display, &mut first_look).await;
        if group.iter().all(|(at, _)| display.is_settled(*at)) {
            return;
        }
        match result {
            Ok(()) => {}
            Err(error) if error.is_transient() => {
                if hub.verbose {
                    output::note(&format!("still waiting, despite an error: {error}"));
                }
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => {
                let text = error.to_string();
                for (at, target) in &group {
                    let (after, why) = (elapsed(target.begin.elapsed()), text.clone());
                    display.fail(*at, WaitError::Lost { after, why }.into());
                }
                return;
            }
        }
    }
}

/// One list, and the changes after it until the watch ends or falls silent.
async fn round(
    hub: &Hub,
    resource: Resource,
    namespace: &str,
    fields: &str,
    group: &[(usize, &Waiting)],
    display: &ProgressDisplay,
    first_look: &mut bool,
) -> Result<(), HubError> {
    let list = hub.list(resource, Some(namespace), fields, "").await?;
    for (at, target) in group {
        match list.items.iter().find(|object| name_of(object) == target.name) {
            Some(object) => settle(hub, display, *at, target, object, *first_look).await,
            None => lose(display, *at, target),
        }
    }
    *first_look = false;
    let mut changes = pin!(hub.watch(resource, Some(namespace), (fields, ""), &list.version).await?);
    while !group.iter().all(|(at, _)| display.is_settled(*at)) {
        let Ok(Some(event)) = tokio::time::timeout(SILENCE, changes.next()).await else {
            return Ok(());
        };
        let (object, gone) = match event? {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
            WatchEvent::Deleted(object) => (object, true),
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(_) => return Ok(()), // too old: the next round lists
        };
        let Some((at, target)) = group.iter().find(|(_, target)| name_of(&object) == target.name) else {
            continue;
        };
        if gone {
            lose(display, *at, target);
        } else {
            settle(hub, display, *at, target, &object, false).await;
        }
    }
    Ok(())
}

fn name_of(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

fn lose(display: &ProgressDisplay, at: usize, target: &Waiting) {
    let after = elapsed(target.begin.elapsed());
    let why = "it does not exist any more".to_owned();
    display.fail(at, WaitError::Lost { after, why }.into());
}

async fn settle(hub: &Hub, display: &ProgressDisplay, at: usize, target: &Waiting, object: &Value, first_look: bool) {
    let mut object = object.clone();
    companion::attach(hub, target.row, &mut object).await;
    match target.row.progress(&object, target.action) {
        Ok(Progress::Reached) => display.arrive(at, target.arrived(first_look)),
        Ok(Progress::Going(text)) => display.state(at, &text),
        Ok(Progress::Unnoticed) => display.state(at, UNNOTICED),
        Ok(Progress::Lost(why)) => {
            let after = elapsed(target.begin.elapsed());
            display.fail(at, WaitError::Lost { after, why }.into());
        }
        Err(error) => display.fail(at, error.into()),
    }
}
