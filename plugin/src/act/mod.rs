//! Putting targets to sleep and waking them: plan, ask, write, report, wait.

pub(crate) mod confirm;
mod hive;
mod hpa;
mod merge;

use std::time::Instant;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use serde_json::Value;
use shared::workload::replicas::{self, Step};

use crate::{
    cli::{ActArgs, ActOutput, DryRun, HubArgs},
    error::{Exit, Failure, Problem},
    hub::{Hub, Write, answer::HubError},
    pool, print,
    target::{
        Target,
        parse::{Flags, parse},
        resolve::{CONCURRENCY, Resolver},
    },
    wait::{self, Waiting},
    when::{self, WhenError},
};

/// How often a workload is read again because somebody wrote it in between.
const ATTEMPTS: u32 = 5;

/// What is to happen to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// It is to sleep.
    Sleep,
    /// It is to be awake.
    Wake,
}

/// A wish with everything that goes with it.
#[derive(Clone, Debug)]
struct Asked<'a> {
    wish: Wish,
    reason: Option<&'a str>,
    /// When to wake again, or until when to stay awake.
    end: Option<Timestamp>,
    now: Timestamp,
}

/// What has to be written for a wish.
#[derive(Clone, Debug, PartialEq)]
enum Plan {
    /// Nothing.
    Unchanged,
    /// A JSON merge patch, and what to say once it is written.
    Patch { patch: Value, message: String },
}

/// What was done about a target.
struct Done {
    target: Target,
    message: String,
    changed: bool,
}

/// Runs the command.
///
/// # Errors
/// When nothing could be tried at all. Failures of single targets are printed and counted.
pub(crate) async fn run(wish: Wish, args: &ActArgs, hub_args: &HubArgs) -> Result<Exit, Problem> {
    let selection = parse(&args.targets, flags(args, hub_args))?;
    let now = when::now();
    let end = args.when.resolve(&now)?;
    let asked = Asked { wish, reason: args.reason.as_deref(), end, now: now.timestamp() };
    let hub = Hub::connect(hub_args).await?;
    let namespace = (!hub_args.all_namespaces).then_some(hub.namespace.as_str());
    let found = Resolver::new(&hub, namespace).resolve(&selection).await;
    if found.is_empty() {
        print::note(&nothing_found(namespace));
        return Ok(Exit::Done);
    }
    if let (Some(_), Some(target)) = (end, found.iter().flatten().find(|target| !target.is_cluster())) {
        return Err(WhenError::NoController(target.full_name()).into());
    }
    let planned: Vec<(Target, Result<Plan, Problem>)> =
        found.iter().flatten().map(|target| (target.clone(), plan(target, &asked))).collect();
    if args.dry_run == DryRun::None && !args.yes {
        confirm::ask(wish, &planned)?;
    }
    if wish == Wish::Sleep {
        hpa::warn(&hub, &planned).await;
    }
    let changing: Vec<(&Target, &Value)> = planned.iter().filter_map(change_of_cluster).collect();
    pool::warn::before(&hub, wish, end, &changing).await;
    let begin = Instant::now();
    let (done, mut exits) = write_all(&hub, &asked, args, found).await;
    if args.wait && args.dry_run == DryRun::None {
        let waiting = done.iter().map(|done| Waiting::new(&done.target, wish, begin, done.changed)).collect();
        exits.extend(wait::all(&hub, waiting, args.timeout.0, args.output.is_some()).await);
    }
    Ok(Exit::of(exits))
}

fn change_of_cluster((target, plan): &(Target, Result<Plan, Problem>)) -> Option<(&Target, &Value)> {
    match plan {
        Ok(Plan::Patch { patch, .. }) if target.is_cluster() => Some((target, patch)),
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

/// kubectl's words.
pub(crate) fn nothing_found(namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("No resources found in {namespace} namespace."),
        None => "No resources found".to_owned(),
    }
}

fn plan(target: &Target, asked: &Asked<'_>) -> Result<Plan, Problem> {
    if target.is_cluster() {
        return Ok(hive::plan(&target.object, asked));
    }
    let step = match asked.wish {
        Wish::Sleep => replicas::sleep(&target.object, asked.reason)?,
        Wish::Wake => replicas::wake(&target.object, asked.reason)?,
    };
    Ok(match step {
        Step::Unchanged => Plan::Unchanged,
        Step::Sleep { replicas, patch } => {
            Plan::Patch { patch, message: format!("hibernated ({} recorded)", count(replicas)) }
        }
        Step::Wake { replicas, patch } => Plan::Patch { patch, message: format!("resumed ({})", count(replicas)) },
        Step::Forget { replicas, patch } => {
            Plan::Patch { patch, message: format!("already awake ({}), stale record removed", count(replicas)) }
        }
    })
}

/// `1 replica`, `3 replicas`.
fn count(replicas: u32) -> String {
    match replicas {
        1 => "1 replica".to_owned(),
        _ => format!("{replicas} replicas"),
    }
}

/// Writes to all targets at the same time, and reports them in the order given as soon as they are done.
async fn write_all(
    hub: &Hub,
    asked: &Asked<'_>,
    args: &ActArgs,
    found: Vec<Result<Target, Failure>>,
) -> (Vec<Done>, Vec<Exit>) {
    let (mut done, mut exits) = (Vec::new(), Vec::new());
    let mut said: Vec<String> = Vec::new();
    let mut work = stream::iter(found)
        .map(|target| async {
            let target = target?;
            let what = target.full_name();
            write(hub, asked, args, target).await.map_err(|problem| Failure::new(what, problem))
        })
        .buffered(CONCURRENCY);
    while let Some(result) = work.next().await {
        match result {
            Ok(one) => {
                report(&one, args, done.is_empty());
                done.push(one);
            }
            Err(failure) => {
                exits.push(failure.problem.exit());
                let text = failure.to_string();
                // A hub that is down is down for every target: said once.
                if !said.contains(&text) {
                    print::error(&text);
                    said.push(text);
                }
            }
        }
    }
    (done, exits)
}

/// Plans and writes one target, again from the start if somebody wrote it in between.
async fn write(hub: &Hub, asked: &Asked<'_>, args: &ActArgs, mut target: Target) -> Result<Done, Problem> {
    let settings = Write { dry_run: args.dry_run == DryRun::Server, manager: args.field_manager.clone() };
    for _ in 0..ATTEMPTS {
        let Plan::Patch { patch, message } = plan(&target, asked)? else {
            return Ok(Done { target, message: "unchanged".to_owned(), changed: false });
        };
        let (namespace, name) = (&target.namespace, &target.name);
        let written = match args.dry_run {
            DryRun::Client => Ok(merge::merged(&target.object, &patch)),
            DryRun::None | DryRun::Server => hub.patch(target.resource, namespace, name, &patch, &settings).await,
        };
        match written {
            Ok(object) => {
                target.object = object;
                return Ok(Done { target, message, changed: true });
            }
            Err(HubError::Conflict { .. }) => {
                let object = hub.get(target.resource, namespace, name).await?;
                target = Target::new(target.resource, object);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(Problem::Contended(ATTEMPTS))
}

/// The object without what nobody wants to read; kubectl hides it too.
pub(crate) fn shown(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

fn report(done: &Done, args: &ActArgs, first: bool) {
    let Done { target, message, .. } = done;
    match args.output {
        None => print::line(&format!("{} {message}{}", target.full_name(), args.dry_run.suffix())),
        Some(ActOutput::Name) => print::line(&target.full_name()),
        Some(ActOutput::Json) => print::text(&print::json(&shown(&target.object))),
        Some(ActOutput::Yaml) => {
            let separator = if first { "" } else { "---\n" };
            print::text(&format!("{separator}{}", print::yaml(&shown(&target.object))));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::{keys, workload::kinds};

    use super::*;
    use crate::hub::Resource;

    fn deployment(replicas: u32, recorded: Option<&str>) -> Target {
        let resource = Resource { kind: &kinds::KINDS[0], version: "v1" };
        let annotations = recorded.map(|recorded| json!({ keys::REPLICAS: recorded }));
        let metadata =
            json!({ "name": "web", "namespace": "shop", "resourceVersion": "7", "annotations": annotations });
        Target::new(resource, json!({ "metadata": metadata, "spec": { "replicas": replicas } }))
    }

    fn said(target: &Target, wish: Wish) -> String {
        let asked = Asked { wish, reason: None, end: None, now: Timestamp::UNIX_EPOCH };
        match plan(target, &asked) {
            Ok(Plan::Patch { message, .. }) => message,
            Ok(Plan::Unchanged) => "unchanged".to_owned(),
            Err(problem) => problem.to_string(),
        }
    }

    #[test]
    fn messages_say_what_happened_to_a_workload() {
        for (target, wish, expected) in [
            (deployment(3, None), Wish::Sleep, "hibernated (3 replicas recorded)"),
            (deployment(1, None), Wish::Sleep, "hibernated (1 replica recorded)"),
            (deployment(0, Some("3")), Wish::Sleep, "unchanged"),
            (deployment(0, Some("3")), Wish::Wake, "resumed (3 replicas)"),
            (deployment(2, None), Wish::Wake, "unchanged"),
            (deployment(2, Some("3")), Wish::Wake, "already awake (2 replicas), stale record removed"),
        ] {
            assert_eq!(said(&target, wish), expected);
        }
        assert!(said(&deployment(0, None), Wish::Wake).contains("scale it by hand"));
        assert!(said(&deployment(0, Some("x")), Wish::Wake).contains(keys::REPLICAS));
    }
}
