//! Putting targets to sleep and waking them: plan, ask, write, report, wait.

mod autoscalers;
pub(crate) mod confirm;
mod hive;
mod merge;
mod pools;
mod report;

use std::time::Instant;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use serde_json::Value;
use shared::workload::replicas::{self, ReplicasError, Step};

use crate::{
    api::{Hub, Write, answer::HubError},
    cli::{
        ActArgs, DryRun, HubArgs,
        time::{self, WhenError},
    },
    cmd::power::report::{Outcome, Reporter},
    error::{Exit, Failure, Problem},
    output,
    select::{
        Target,
        parse::{Flags, Selection, parse},
        resolve::{CONCURRENCY, Resolver},
    },
    wait::{self, Waiting},
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
pub(crate) struct Asked<'a> {
    wish: Wish,
    reason: Option<&'a str>,
    /// When to wake again, or until when to stay awake.
    end: Option<Timestamp>,
    now: Timestamp,
    /// Whether the targets are all that a query finds, and none was named.
    queried: bool,
}

/// What has to be written for a wish.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Plan {
    /// Nothing.
    Unchanged,
    /// Nothing: it has 0 replicas, and nobody knows of any time when it had more.
    Resting,
    /// A JSON merge patch, and what to say once it is written.
    Patch { patch: Value, message: String },
}

/// What was done about a target.
pub(crate) struct Done {
    target: Target,
    message: String,
    changed: bool,
    /// Whether it is, or will be, as it was wished.
    follows: bool,
    /// What the change goes against.
    warnings: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// When nothing could be tried at all. Failures of single targets are printed and counted.
pub(crate) async fn run(wish: Wish, args: &ActArgs, hub_args: &HubArgs) -> Result<Exit, Problem> {
    let selection = parse(&args.targets, flags(args, hub_args))?;
    let now = time::now();
    let end = args.when.resolve(&now)?;
    let queried = matches!(selection, Selection::Query { .. });
    let asked = Asked { wish, reason: args.reason.as_deref(), end, now: now.timestamp(), queried };
    let hub = Hub::connect(hub_args).await?;
    let namespace = (!hub_args.all_namespaces).then_some(hub.namespace.as_str());
    let mut found = Resolver::new(&hub, namespace).resolve(&selection).await;
    if found.is_empty() {
        output::note(&nothing_found(namespace));
        return Ok(Exit::Done);
    }
    if let (Some(_), Some(target)) = (end, found.iter().flatten().find(|target| !target.is_cluster())) {
        return Err(WhenError::NoController(target.full_name()).into());
    }
    let mut planned = plan_all(&found, &asked);
    if args.dry_run == DryRun::None && !args.yes {
        let took_time = confirm::ask(wish, &planned)?;
        if took_time {
            found = read_again(&hub, found).await;
            planned = plan_all(&found, &asked);
        }
    }
    if wish == Wish::Sleep {
        autoscalers::warn(&hub, &planned).await;
    }
    let changing: Vec<(&Target, &Value)> = planned.iter().filter_map(change_of_cluster).collect();
    pools::before(&hub, wish, end, &changing).await;
    let begin = Instant::now();
    let reporter = Reporter::new(args, hub_args.all_namespaces, found.len());
    let (done, mut exits) = write_all(&hub, &asked, args, found, reporter).await;
    if args.wait && args.dry_run == DryRun::None {
        let followed = done.iter().filter(|done| done.follows);
        let waiting = followed.map(|done| Waiting::new(&done.target, wish, begin, done.changed)).collect();
        exits.extend(wait::all(&hub, waiting, args.timeout.0, args.output.is_some()).await);
    }
    Ok(Exit::of(exits))
}

fn plan_all(found: &[Result<Target, Failure>], asked: &Asked<'_>) -> Vec<(Target, Result<Plan, Problem>)> {
    found.iter().flatten().map(|target| (target.clone(), plan(target, asked))).collect()
}

/// The targets as they are now: while a question was thought about, somebody may have written them.
async fn read_again(hub: &Hub, found: Vec<Result<Target, Failure>>) -> Vec<Result<Target, Failure>> {
    stream::iter(found)
        .map(|target| async {
            let target = target?;
            match hub.get(target.resource, &target.namespace, &target.name).await {
                Ok(object) => Ok(Target::new(target.resource, object)),
                Err(error) => Err(Failure::new(target.full_name(), error.into())),
            }
        })
        .buffered(CONCURRENCY)
        .collect()
        .await
}

/// The patch that puts a cluster to sleep, for who only wants to know what the hub says to it. None if it is to sleep already.
pub(crate) fn sleep_patch(cluster: &Value, end: Option<Timestamp>, now: Timestamp) -> Option<Value> {
    let asked = Asked { wish: Wish::Sleep, reason: None, end, now, queried: false };
    let Plan::Patch { mut patch, .. } = hive::plan(cluster, &asked) else {
        return None;
    };
    // Nothing is kept of it, so that a newer version of the object is as good.
    if let Some(metadata) = patch.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
    }
    Some(patch)
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
        Wish::Sleep => replicas::sleep(&target.object, asked.reason),
        Wish::Wake => replicas::wake(&target.object, asked.reason),
    };
    let step = match step {
        // Whoever names it expects it to run; of all workloads, some always rest.
        Err(ReplicasError::NothingRecorded) if asked.queried => return Ok(Plan::Resting),
        step => step?,
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
            let (result, warnings) = Hub::heard(write(hub, asked, args, target)).await;
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

/// Plans and writes one target, again from the start if somebody wrote it in between.
async fn write(hub: &Hub, asked: &Asked<'_>, args: &ActArgs, mut target: Target) -> Result<Done, Problem> {
    let settings = Write { dry_run: args.dry_run == DryRun::Server, manager: args.field_manager.clone() };
    for _ in 0..ATTEMPTS {
        let (patch, message) = match plan(&target, asked)? {
            Plan::Patch { patch, message } => (patch, message),
            Plan::Unchanged => {
                let message =
                    if target.is_cluster() { hive::unchanged(&target.object, asked) } else { "unchanged".to_owned() };
                return Ok(Done { target, message, changed: false, follows: true, warnings: Vec::new() });
            }
            Plan::Resting => {
                let message = "unchanged (0 replicas, none recorded)".to_owned();
                return Ok(Done { target, message, changed: false, follows: false, warnings: Vec::new() });
            }
        };
        // Said only once it is done: who refuses it has words of its own.
        let warnings = if target.is_cluster() { hive::warnings(&target.object, asked) } else { Vec::new() };
        let (namespace, name) = (&target.namespace, &target.name);
        let written = match args.dry_run {
            DryRun::Client => Ok(merge::merged(&target.object, &patch)),
            DryRun::None | DryRun::Server => hub.patch(target.resource, namespace, name, &patch, &settings).await,
        };
        match written {
            Ok(object) => {
                target.object = object;
                return Ok(Done { target, message, changed: true, follows: true, warnings });
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

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::{annotation::keys, workload::kinds};

    use super::*;
    use crate::api::Resource;

    fn deployment(replicas: u32, recorded: Option<&str>) -> Target {
        let resource = Resource { kind: &kinds::KINDS[0], version: "v1" };
        let annotations = recorded.map(|recorded| json!({ keys::REPLICAS: recorded }));
        let metadata =
            json!({ "name": "web", "namespace": "shop", "resourceVersion": "7", "annotations": annotations });
        Target::new(resource, json!({ "metadata": metadata, "spec": { "replicas": replicas } }))
    }

    fn asked(wish: Wish, queried: bool) -> Asked<'static> {
        Asked { wish, reason: None, end: None, now: Timestamp::UNIX_EPOCH, queried }
    }

    fn said(target: &Target, wish: Wish) -> String {
        match plan(target, &asked(wish, false)) {
            Ok(Plan::Patch { message, .. }) => message,
            Ok(Plan::Unchanged) => "unchanged".to_owned(),
            Ok(Plan::Resting) => "resting".to_owned(),
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

    #[test]
    fn of_all_workloads_some_rest_but_what_is_recorded_is_to_be_right() {
        let wake = |target: &Target| plan(target, &asked(Wish::Wake, true));
        assert!(matches!(wake(&deployment(0, None)), Ok(Plan::Resting)));
        assert!(matches!(wake(&deployment(0, Some("3"))), Ok(Plan::Patch { .. })));
        assert!(matches!(wake(&deployment(0, Some("x"))), Err(Problem::Replicas(ReplicasError::Malformed(_)))));
        assert!(matches!(wake(&deployment(2, None)), Ok(Plan::Unchanged)));
    }

    #[test]
    fn a_sleep_that_is_not_meant_is_the_same_patch_for_any_version() {
        let hold = json!({ keys::HOLD_AWAKE_UNTIL: "1969-01-01T00:00:00Z" });
        let cluster = json!({ "metadata": { "resourceVersion": "7", "annotations": hold }, "spec": {} });
        let patch = sleep_patch(&cluster, None, Timestamp::UNIX_EPOCH);
        let expected = json!({
            "metadata": { "annotations": { keys::HOLD_AWAKE_UNTIL: null } }, "spec": { "powerState": "Hibernating" },
        });
        assert_eq!(patch, Some(expected));
        let asleep = json!({ "metadata": {}, "spec": { "powerState": "Hibernating" } });
        assert_eq!(sleep_patch(&asleep, None, Timestamp::UNIX_EPOCH), None);
    }
}
