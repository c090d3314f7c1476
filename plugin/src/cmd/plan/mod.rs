//! `plan`: everything that would block or slow a sleep or a wake, before it is tried.
//!
//! Only the hub is asked: for the objects there, for its verdict on a sleep that is not meant (a dry run), and for what
//! hibernate-controller last found in the cloud and in the cluster. The kubeconfig of the cluster is none of our
//! business.

mod confirmed;
mod fresh;
mod outlook;
mod render;
mod rollout;
mod verdict;
mod workload;

use std::collections::BTreeMap;

use futures::future::join;
use futures::{StreamExt, stream};
use jiff::Timestamp;
use serde_json::Value;
use shared::cgu::upgrades::upgrading;
use shared::cgu::wire::UpgradeObject;
use shared::hive::api::ClusterDeployment;
use shared::hive::preflight::objects;
use shared::target::{Kind, Kinds};

use self::outlook::Outlook;
use crate::api::error::HubError;
use crate::api::{Hub, Resource};
use crate::cli::time::{self, TimeError};
use crate::cli::{HubArgs, PlanArgs};
use crate::error::{Exit, Failure, Problem, UsageError};
use crate::output::{self, nothing_found};
use crate::read::{reverts, untouched};
use crate::select::parse::{Flags, parse};
use crate::select::resolve::{CONCURRENCY, Resolver};
use crate::select::target::Target;

/// Where Hive keeps whether sync sets have been applied: an object with the name of the cluster.
static CLUSTER_SYNC: Kind = Kind::namespaced("hiveinternal.openshift.io", &["v1alpha1"], "ClusterSync", "clustersyncs");

/// Runs the command.
///
/// # Errors
/// When nothing could be asked at all. Failures of single targets are printed and counted.
pub(crate) async fn run(kinds: Kinds, args: &PlanArgs, hub_args: &HubArgs) -> Result<Exit, Problem> {
    let mut selection = parse(kinds, &args.targets, Flags::new(hub_args, args.all))?;
    let now = time::now();
    let options = rollout::Options::read(&args.rollout, &now)?;
    let end = args.time.resolve_from(&now, options.as_ref().and_then(rollout::Options::not_before))?;
    if let Some(options) = &options {
        selection = options.checked(kinds, selection)?;
    }
    let hub = Hub::connect(hub_args)?;
    let namespace = selection.scope(&hub, hub_args);
    let found = Resolver::new(&hub, namespace).resolve(&selection).await;
    if found.is_empty() {
        output::note(&nothing_found(selection.namespace(namespace)));
        return Ok(Exit::Done);
    }
    if let Some(target) = found.iter().flatten().find(|target| !target.row.has_plan) {
        return Err(UsageError::NothingToPlan(target.full_name()).into());
    }
    if let (Some(_), Some(target)) = (end, found.iter().flatten().find(|target| !target.row.has_schedule)) {
        return Err(TimeError::NoController(target.full_name()).into());
    }
    if let Some(name) = selection.whole() {
        untouched::note(&hub, name).await;
    }
    let order = match &options {
        Some(options) => Some(options.order(namespace, &found)?),
        None => None,
    };
    let scaled = found.iter().flatten().filter(|target| target.row.deployed_field().is_some());
    let autoscalers = reverts::autoscalers(&hub, scaled.map(|target| target.namespace.clone()).collect()).await;
    let outlooks: Vec<Result<Outlook, Failure>> = stream::iter(found)
        .map(|target| async {
            let target = target?;
            let what = target.full_name();
            outlook(&hub, args, target, end, &autoscalers).await.map_err(|problem| Failure::new(what, problem))
        })
        .buffered(CONCURRENCY)
        .collect()
        .await;
    let mut exits = Vec::new();
    for outlook in &outlooks {
        match outlook {
            Err(failure) => exits.push(output::failed(failure)),
            Ok(Outlook { unanswered: Some(problem), .. }) => exits.push(problem.exit()),
            Ok(outlook) if outlook.most_severe().refuses(false) => exits.push(Exit::Refused),
            Ok(_) => {}
        }
    }
    let outlooks: Vec<Outlook> = outlooks.into_iter().flatten().collect();
    let everywhere = hub_args.all_namespaces;
    match options.as_ref().zip(order) {
        Some((options, order)) => rollout::print(options, &order, &upgrades(&hub).await, &outlooks, args.output),
        None => render::all(&outlooks, args.output, everywhere, Timestamp::now()),
    }
    for outlook in &outlooks {
        if let Some(problem) = &outlook.unanswered {
            output::error(&format!("{}: {problem}", render::called(outlook, everywhere)));
        }
    }
    Ok(Exit::of(exits))
}

async fn outlook(
    hub: &Hub,
    args: &PlanArgs,
    mut target: Target,
    end: Option<Timestamp>,
    autoscalers: &[Value],
) -> Result<Outlook, Problem> {
    if let Some(confirmation) = target.row.confirmation {
        return confirmed::outlook(hub, args, target, confirmation).await;
    }
    if target.row.deployed_field().is_some() {
        return workload::outlook(hub, &args.field_manager, target, autoscalers).await;
    }
    let mut unanswered = None;
    if args.fresh {
        match fresh::ask(hub, args, &target).await {
            Ok(object) => target.object = object,
            Err(problem @ Problem::Wait(_)) => unanswered = Some(problem),
            Err(problem) => return Err(problem),
        }
    }
    let cluster: ClusterDeployment = serde::Deserialize::deserialize(&target.object).map_err(Problem::unreadable)?;
    let verdict = verdict::ask(hub, &args.field_manager, &target, end);
    let (synced, verdict) = join(sync_sets(hub, &target), verdict).await;
    let (controller, found_at) = objects::of_controller(&cluster, end);
    Ok(Outlook {
        desired: cluster.desired().to_string(),
        observed: cluster.power_state().to_owned(),
        hub: objects::of_hub(&target.object, &cluster, synced, Timestamp::now(), |rules| {
            verdict::weigh(rules, verdict.as_ref())
        }),
        controller,
        found_at,
        end,
        unanswered,
        target,
    })
}

/// The clusters that TALM is upgrading, and what to say of that; none if there is no TALM or the user may not see it.
async fn upgrades(hub: &Hub) -> BTreeMap<String, String> {
    match hub.list(Resource::preferred(&shared::target::CLUSTER_GROUP_UPGRADE.kind), None, "", "").await {
        Ok(found) => {
            let read = |object| serde_json::from_value::<UpgradeObject>(object).ok();
            found.items.into_iter().filter_map(read).flat_map(|upgrade| upgrading(&upgrade)).collect()
        }
        Err(error) => {
            if hub.verbose && !matches!(error, HubError::NoKind(_)) {
                output::note(&format!("whether ClusterGroupUpgrades are under way is not known: {error}"));
            }
            BTreeMap::new()
        }
    }
}

/// Whether sync sets have been applied; none if this is unknown or the user may not read it.
async fn sync_sets(hub: &Hub, target: &Target) -> Option<bool> {
    let resource = Resource::preferred(&CLUSTER_SYNC);
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
