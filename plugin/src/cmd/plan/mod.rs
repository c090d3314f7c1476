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
use hub::error::HubError;
use hub::{HubClient, Resource};
use jiff::Timestamp;
use serde_json::Value;
use shared::cgu::upgrades::upgrading;
use shared::cgu::wire::UpgradeObject;
use shared::finding::Finding;
use shared::hive::api::ClusterDeployment;
use shared::hive::preflight::objects;
use shared::kinds::{Kind, Kinds};
use shared::power::Power;
use tokio::sync::OnceCell;

use self::outlook::Outlook;
use crate::cli::time::{self, TimeError};
use crate::cli::{HubArgs, PlanArgs};
use crate::connect::connect;
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
    let hub = connect(hub_args)?;
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
    let upgrades = OnceCell::new();
    let outlooks: Vec<Result<Outlook, Failure>> = stream::iter(found)
        .map(|target| async {
            let target = target?;
            let what = target.full_name();
            outlook(&hub, args, target, end, (&autoscalers, &upgrades))
                .await
                .map_err(|problem| Failure::new(what, problem))
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
        Some((options, order)) => {
            let upgrades = upgrades.get_or_init(|| working(&hub)).await.as_ref();
            rollout::print(options, &order, upgrades.unwrap_or(&BTreeMap::new()), &outlooks, args.output);
        }
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
    hub: &HubClient,
    args: &PlanArgs,
    mut target: Target,
    end: Option<Timestamp>,
    (autoscalers, upgrades): (&[Value], &OnceCell<Upgrades>),
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
    let mut findings = objects::of_hub(&target.object, &cluster, synced, Timestamp::now(), |rules| {
        verdict::weigh(rules, verdict.as_ref())
    });
    if cluster.desired() == Power::Running {
        findings.extend(of_upgrades(upgrades.get_or_init(|| working(hub)).await, &target.name));
        findings.sort();
    }
    Ok(Outlook {
        desired: cluster.desired().to_string(),
        observed: cluster.power_state().to_owned(),
        hub: findings,
        controller,
        found_at,
        end,
        unanswered,
        target,
    })
}

/// The clusters that `ClusterGroupUpgrades` work on, and what to say of that, or why this is unknown.
type Upgrades = Result<BTreeMap<String, String>, HubError>;

/// Reads them. None where there are no such objects.
async fn working(hub: &HubClient) -> Upgrades {
    match hub.list(Resource::preferred(&shared::kinds::CLUSTER_GROUP_UPGRADE.kind), None, "", "").await {
        Ok(found) => {
            let read = |object| serde_json::from_value::<UpgradeObject>(object).ok();
            Ok(found.items.into_iter().filter_map(read).flat_map(|upgrade| upgrading(&upgrade)).collect())
        }
        Err(HubError::NoKind(_)) => Ok(BTreeMap::new()),
        Err(error) => {
            if hub.verbose {
                output::note(&format!("whether ClusterGroupUpgrades are under way is not known: {error}"));
            }
            Err(error)
        }
    }
}

/// What an upgrade of a cluster means for its sleep.
fn of_upgrades(upgrades: &Upgrades, name: &str) -> Option<Finding> {
    match upgrades {
        Ok(all) => all.get(name).map(|detail| {
            Finding::warn(
                "ClusterGroupUpgrade",
                format!("{detail}: a sleep interrupts that, and rollouts wait for its end"),
            )
        }),
        Err(error) => Some(Finding::info(
            "NotRead",
            format!("whether a ClusterGroupUpgrade works on the cluster is not known: {error}"),
        )),
    }
}

/// Whether sync sets have been applied; none if this is unknown or the user may not read it.
async fn sync_sets(hub: &HubClient, target: &Target) -> Option<bool> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_of_the_cluster_is_named_as_rollouts_name_it() {
        let working =
            Ok(BTreeMap::from([("demo".to_owned(), "ClusterGroupUpgrade ztp/wave is upgrading it".to_owned())]));
        let text = |upgrades: &Upgrades, name| {
            of_upgrades(upgrades, name).map(|found| format!("{} {}", found.severity, found.sentence))
        };
        let found = text(&working, "demo").unwrap();
        assert!(found.starts_with("warn ClusterGroupUpgrade ztp/wave is upgrading it: a sleep interrupts"), "{found}");
        assert_eq!(text(&working, "other"), None);
        let unread = Err(HubError::NoObject { object: "x".to_owned() });
        let found = text(&unread, "demo").unwrap();
        assert!(found.starts_with("info whether a ClusterGroupUpgrade works on the cluster is not known"), "{found}");
    }
}
