//! `plan`: everything that would block or slow a sleep or a wake, before it is tried.
//!
//! Only the hub is asked: for the objects there, for its verdict on a sleep that is not meant (a dry run), and for what
//! hibernate-controller last found in the cloud and in the cluster. The kubeconfig of the cluster is none of our business.

mod fresh;
mod judge;
mod render;
mod verdict;

use futures::{StreamExt, future::join, stream};
use jiff::Timestamp;
use serde_json::Value;
use shared::{
    hive::{
        api::ClusterDeployment,
        preflight::{Finding, Severity},
    },
    workload::kinds::Kind,
};

use crate::{
    api::{Hub, Resource, answer::HubError},
    cli::{HubArgs, PlanArgs, time},
    cmd::power::nothing_found,
    error::{Exit, Failure, Problem},
    output,
    select::{
        Target,
        parse::{Flags, UsageError, parse},
        resolve::{CONCURRENCY, Resolver},
    },
};

/// Where Hive keeps whether sync sets have been applied: an object with the name of the cluster.
static CLUSTER_SYNC: Kind = Kind {
    group: "hiveinternal.openshift.io",
    versions: &["v1alpha1"],
    kind: "ClusterSync",
    plural: "clustersyncs",
    short: &[],
};

/// What is known about one target.
#[derive(Debug)]
pub(crate) struct Outlook {
    target: Target,
    desired: String,
    observed: String,
    /// From the objects on the hub.
    hub: Vec<Finding>,
    /// From the controller's last look.
    controller: Vec<Finding>,
    /// When that was.
    found_at: Option<Timestamp>,
    /// How long the sleep is to last.
    end: Option<Timestamp>,
    /// Why there is no newer answer although one was asked for.
    unanswered: Option<Problem>,
}

impl Outlook {
    /// How grave the gravest is.
    fn gravest(&self) -> Severity {
        let all = self.hub.iter().chain(&self.controller);
        all.map(|finding| finding.severity).min().unwrap_or(Severity::Info)
    }
}

/// Runs the command.
///
/// # Errors
/// When nothing could be asked at all. Failures of single targets are printed and counted.
pub(crate) async fn run(args: &PlanArgs, hub_args: &HubArgs) -> Result<Exit, Problem> {
    let flags = Flags {
        selector: hub_args.selector.as_deref(),
        all: args.all,
        all_namespaces: hub_args.all_namespaces,
        lists: false,
    };
    let selection = parse(&args.targets, flags)?;
    let end = args.when.resolve(&time::now())?;
    let hub = Hub::connect(hub_args).await?;
    let namespace = (!hub_args.all_namespaces).then_some(hub.namespace.as_str());
    let found = Resolver::new(&hub, namespace).resolve(&selection).await;
    if found.is_empty() {
        output::note(&nothing_found(namespace));
        return Ok(Exit::Done);
    }
    if let Some(target) = found.iter().flatten().find(|target| !target.is_cluster()) {
        return Err(UsageError::NothingToPlan(target.full_name()).into());
    }
    let outlooks: Vec<Result<Outlook, Failure>> = stream::iter(found)
        .map(|target| async {
            let target = target?;
            let what = target.full_name();
            look(&hub, args, target, end).await.map_err(|problem| Failure::new(what, problem))
        })
        .buffered(CONCURRENCY)
        .collect()
        .await;
    let mut exits = Vec::new();
    for outlook in &outlooks {
        match outlook {
            Err(failure) => {
                exits.push(failure.problem.exit());
                output::error(&failure.to_string());
            }
            Ok(Outlook { unanswered: Some(problem), .. }) => exits.push(problem.exit()),
            Ok(outlook) if outlook.gravest() == Severity::Block => exits.push(Exit::Refused),
            Ok(_) => {}
        }
    }
    let outlooks: Vec<Outlook> = outlooks.into_iter().flatten().collect();
    let everywhere = hub_args.all_namespaces;
    render::all(&outlooks, args.output, everywhere, Timestamp::now());
    for outlook in &outlooks {
        if let Some(problem) = &outlook.unanswered {
            output::error(&format!("{}: {problem}", render::called(outlook, everywhere)));
        }
    }
    Ok(Exit::of(exits))
}

async fn look(hub: &Hub, args: &PlanArgs, mut target: Target, end: Option<Timestamp>) -> Result<Outlook, Problem> {
    let mut unanswered = None;
    if args.fresh {
        match fresh::ask(hub, args, &target).await {
            Ok(object) => target.object = object,
            Err(problem @ Problem::Wait(_)) => unanswered = Some(problem),
            Err(problem) => return Err(problem),
        }
    }
    let cluster: ClusterDeployment = serde_json::from_value(target.object.clone()).map_err(Problem::Unreadable)?;
    let verdict = verdict::ask(hub, &args.field_manager, &target, end);
    let (synced, verdict) = join(sync_sets(hub, &target), verdict).await;
    let (controller, found_at) = judge::of_controller(&cluster, end);
    Ok(Outlook {
        desired: cluster.desired().to_string(),
        observed: cluster.power_state().to_owned(),
        hub: judge::of_hub(&target.object, &cluster, synced, verdict.as_ref(), Timestamp::now()),
        controller,
        found_at,
        end,
        unanswered,
        target,
    })
}

/// Whether sync sets have been applied; none where nobody can tell, or the user may not see it.
async fn sync_sets(hub: &Hub, target: &Target) -> Option<bool> {
    let resource = Resource { kind: &CLUSTER_SYNC, version: CLUSTER_SYNC.versions[0] };
    match hub.get(resource, &target.namespace, &target.name).await {
        Ok(object) => Some(object.pointer("/status/firstSuccessTime").is_some_and(Value::is_string)),
        Err(HubError::NoObject { .. }) => Some(false),
        Err(error) => {
            if hub.verbose {
                output::note(&format!("whether SyncSets have been applied is not known: {error}"));
            }
            None
        }
    }
}
