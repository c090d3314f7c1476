//! `plan`: everything that would block or slow a sleep or a wake, before it is tried.
//!
//! Only the hub is asked: for the objects there, for its verdict on a sleep that is not meant (a dry run), and for what
//! hibernate-controller last found in the cloud and in the cluster. The kubeconfig of the cluster is none of our
//! business.

mod render;
mod rollout;
mod verdict;

use std::collections::BTreeMap;
use std::mem;

use futures::future::join;
use futures::{StreamExt, stream};
use hub::error::HubError;
use hub::{HubClient, Resource, Write};
use jiff::Timestamp;
use serde_json::Value;
use shared::cgu::upgrades::upgrading;
use shared::cgu::wire::UpgradeObject;
use shared::finding::{Finding, Severity};
use shared::kinds::confirmation::{Briefing, Preflight};
use shared::kinds::lifecycle::{HubFacts, HubFindings, REFUSED};
use shared::kinds::row::Plan;
use shared::kinds::{Kinds, TargetError};
use shared::power::Power;
use tokio::sync::OnceCell;
use view::CONCURRENCY;
use view::target::Target;

use crate::cli::time::{self, TimeError};
use crate::cli::{HubArgs, PlanArgs};
use crate::cmd::control_plane::{self, Refusal};
use crate::cmd::rollout::options::Options;
use crate::connect::connect;
use crate::error::{Exit, Failure, Problem, UsageError, WaitError};
use crate::output::{self, nothing_found};
use crate::read::{reverts, untouched, wake};
use crate::select::{Flags, parse};
use crate::wait::preflight::{self, Outcome};

/// Code of what is known about a target that does not exist any more.
const DELETED: &str = "Deleted";

/// What is known about one target.
#[derive(Debug)]
struct Outlook {
    target: Target,
    desired: String,
    observed: String,
    /// From the objects on the hub.
    hub: Vec<Finding>,
    /// From the controller's last preflight.
    controller: Vec<Finding>,
    /// When that was.
    found_at: Option<Timestamp>,
    /// How long the sleep is to last.
    end: Option<Timestamp>,
    /// Why there is no newer answer although one was asked for.
    unanswered: Option<Problem>,
}

impl Outlook {
    fn most_severe(&self) -> Severity {
        let all = self.hub.iter().chain(&self.controller);
        all.map(|finding| finding.severity).min().unwrap_or(Severity::Info)
    }

    /// The state that is planned: the other one than it is to be in now.
    fn planned(&self) -> Power {
        if self.desired == Power::Running.to_string() { Power::Hibernating } else { Power::Running }
    }

    /// The same, with why its owner does not let it sleep, and why its namespace is not changed.
    fn of_namespace(self, owned: Option<String>, refusal: Option<&Refusal>) -> Self {
        let power = self.planned();
        let owned = owned.filter(|_| power == Power::Hibernating);
        self.refused(owned).refused(refusal.and_then(|refusal| refusal.of(power)))
    }

    /// The same, with why it is not changed, if that is so.
    fn refused(mut self, why: Option<String>) -> Self {
        self.hub.splice(0..0, why.map(|why| Finding::block(REFUSED, why)));
        self
    }

    /// Of a target that was deleted while its preflight was awaited.
    fn deleted(target: Target, error: WaitError) -> Result<Self, Problem> {
        Ok(Self {
            desired: target.record()?.desired,
            observed: "Deleted".to_owned(),
            hub: vec![Finding::block(DELETED, "it was deleted while this command waited for the preflight")],
            controller: Vec::new(),
            found_at: None,
            end: None,
            unanswered: Some(error.into()),
            target,
        })
    }
}

/// Runs the command.
///
/// # Errors
/// When nothing could be asked at all. Failures of single targets are printed and counted.
pub(crate) async fn run(kinds: Kinds, args: &PlanArgs, hub_args: &HubArgs) -> Result<Exit, Problem> {
    let mut query = parse(kinds, &args.targets, Flags::new(hub_args, args.all))?;
    let now = time::now();
    let options = Options::read(kinds, &args.rollout, &now, &mut query)?;
    let end = args.time.resolve(&now, options.as_ref().and_then(|options| options.hours.not_before))?;
    let hub = connect(hub_args)?;
    let mut found = view::targets(&hub, &query).await;
    for target in found.iter().flatten() {
        check(target, end)?;
    }
    let refused = match query.whole() {
        Some(name) => whole(&hub, kinds, name, &mut found).await?,
        None => None,
    };
    if found.is_empty() {
        output::note(&nothing_found(query.searched(&hub)));
        return Ok(Exit::Done);
    }
    let order = match &options {
        Some(options) => Some(options.groups(query.namespace(&hub), &found.iter().flatten().collect::<Vec<_>>())?),
        None => None,
    };
    let scaled = found.iter().flatten().filter(|target| target.row.deployed_field.is_some());
    let autoscalers = reverts::autoscalers(&hub, scaled.map(|target| target.namespace.clone()).collect()).await;
    let upgrades = OnceCell::new();
    let outlooks: Vec<Result<Outlook, Failure>> = stream::iter(found)
        .map(|target| async {
            let target = target?;
            let what = target.full_name();
            let owned = query.whole().and_then(|_| untouched::refusal(kinds, &target));
            let outlook = outlook(&hub, args, target, end, (&autoscalers, &upgrades)).await;
            let outlook = outlook.map(|found| found.of_namespace(owned, refused.as_ref()));
            outlook.map_err(|problem| Failure::new(what, problem))
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

/// Why a namespace is not changed as a whole, if that is so. Leaves out what owners scale, and names what else there is to
/// know of a namespace that is.
///
/// # Errors
/// The refusal, where no target can show it.
async fn whole(
    hub: &HubClient,
    kinds: Kinds,
    name: &str,
    found: &mut Vec<Result<Target, view::error::Failure>>,
) -> Result<Option<Refusal>, Problem> {
    let refused = control_plane::refusal(kinds, hub, name, found).await;
    *found = untouched::without_owned(mem::take(found), false);
    match &refused {
        Some(refusal) if !found.iter().any(Result::is_ok) => {
            let why = refusal.of(Power::Hibernating).unwrap_or_default();
            return Err(TargetError::Refused(why).into());
        }
        None if !found.is_empty() => {
            untouched::note(hub, kinds, name).await;
            wake::note(hub, name, recorded(found)).await;
        }
        _ => {}
    }
    Ok(refused)
}

/// Replicas that a wake of these targets starts.
fn recorded(found: &[Result<Target, view::error::Failure>]) -> u32 {
    let records = found.iter().flatten().filter_map(|target| target.record().ok());
    records
        .filter(|record| record.replicas == Some(0))
        .filter_map(|record| record.recorded_replicas?.parse::<u32>().ok())
        .fold(0, u32::saturating_add)
}

/// What some kinds do not have.
fn check(target: &Target, end: Option<Timestamp>) -> Result<(), Problem> {
    match target.row.plan {
        None => Err(UsageError::NothingToPlan(target.full_name()).into()),
        Some(_) if end.is_some() && !target.row.has_schedule => Err(TimeError::NoController(target.full_name()).into()),
        Some(_) => Ok(()),
    }
}

/// What is known of one target, after a fresh preflight if it is requested.
async fn outlook(
    hub: &HubClient,
    args: &PlanArgs,
    mut target: Target,
    end: Option<Timestamp>,
    (autoscalers, upgrades): (&[Value], &OnceCell<Upgrades>),
) -> Result<Outlook, Problem> {
    let Some(plan) = target.row.plan else { return Err(UsageError::NothingToPlan(target.full_name()).into()) };
    let (mut unanswered, mut answer) = (None, None);
    if let Some(preflight) = plan.preflight.filter(|_| args.fresh) {
        match fresh(hub, args, &target, preflight).await {
            Ok((object, briefing)) => {
                target = Target::new(target.row, target.resource.version, object).complete(hub).await;
                answer = Some(briefing);
            }
            Err(Problem::Wait(error @ WaitError::Deleted { .. })) => return Outlook::deleted(target, error),
            Err(Problem::Wait(error)) => unanswered = Some(error.into()),
            Err(problem) => return Err(problem),
        }
    }
    let (is_synced, verdict) =
        join(sync_object(hub, plan, &target), verdict::ask(hub, &args.field_manager, &target, end)).await;
    let record = target.record()?;
    let facts = HubFacts { object: &target.object, is_synced, now: Timestamp::now() };
    let HubFindings { mut judged, others } = target.row.read(&target.object)?.findings(facts);
    judged.extend(reverts::of(&target, autoscalers));
    let mut findings = verdict::weigh(plan.rules.as_ref(), judged, verdict.as_ref());
    findings.extend(others);
    if plan.is_upgraded && record.desired == Power::Running.to_string() {
        findings.extend(of_upgrades(upgrades.get_or_init(|| working(hub)).await, &target.name));
    }
    findings.sort();
    let last = plan.preflight.map(|preflight| preflight.last(&target.object, end)).transpose()?;
    // The last request may be another client's, and not answered yet.
    let last = last.map(|last| last.or(answer));
    Ok(Outlook {
        desired: record.desired,
        observed: record.observed,
        hub: findings,
        found_at: last.iter().flatten().find_map(|last| last.at),
        controller: last.map(|last| last.map_or_else(not_checked, of_preflight)).unwrap_or_default(),
        end: end.filter(|_| target.row.has_schedule),
        unanswered,
        target,
    })
}

/// Requests a preflight and waits. Returns the object with the answer, and the answer.
///
/// # Errors
/// [`WaitError`] where there is no answer.
async fn fresh(
    hub: &HubClient,
    args: &PlanArgs,
    target: &Target,
    preflight: &'static dyn Preflight,
) -> Result<(Value, Briefing), Problem> {
    let write = Write::new(&args.field_manager, false);
    let limit = args.timeout.0;
    Err(match preflight::ask(hub, target, preflight, Timestamp::now(), &write, limit).await? {
        Outcome::Answered { object, briefing } => return Ok((object, briefing)),
        Outcome::Silent => {
            let state = preflight.silence(&target.object);
            WaitError::TimedOut { after: limit.unwrap_or_default(), state }.into()
        }
        Outcome::Impossible(why) => WaitError::Impossible(why).into(),
        Outcome::Refused(error) => error.into(),
    })
}

fn not_checked() -> Vec<Finding> {
    vec![Finding::info("NotChecked", "hibernate-controller has made no preflight yet: use --fresh")]
}

/// A refusal that a force accepts blocks as well: the user has to decide.
fn of_preflight(last: Briefing) -> Vec<Finding> {
    let found = last.findings.into_iter().map(|found| match found.severity {
        Severity::Forceable => Finding::block(&found.code, format!("{} (--force accepts this)", found.sentence)),
        _ => found,
    });
    let consequences = last.consequences.iter().map(|sentence| Finding::info("Consequence", sentence));
    found.chain(consequences).collect()
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
            hub.note(&format!("whether ClusterGroupUpgrades are under way is not known: {error}"));
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

/// Whether what a cluster gets from the hub has been applied; none if this is unknown or the user may not read it.
async fn sync_object(hub: &HubClient, plan: &'static Plan, target: &Target) -> Option<bool> {
    let sync = plan.sync.as_ref()?;
    match hub.get(Resource::preferred(&sync.kind), &target.namespace, &target.name).await {
        Ok(object) => Some((sync.is_applied)(&object)),
        Err(HubError::NoObject { .. }) => Some(false),
        Err(error) => {
            hub.note(&format!("{}: {} is not known: {error}", target.full_name(), sync.kind.kind));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::kinds::CLUSTER_DEPLOYMENT;

    use super::*;
    use crate::cli::Command;
    use crate::cmd::tests::{Server, wait_for};

    #[test]
    fn a_target_that_is_deleted_while_it_is_checked_keeps_its_row() {
        const PATH: &str = "/apis/hive.openshift.io/v1/namespaces/x/clusterdeployments";
        let object = json!({
            "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment",
            "metadata": { "name": "demo", "namespace": "x", "resourceVersion": "1" },
            "spec": { "baseDomain": "d", "clusterName": "demo", "installed": true, "platform": { "gcp": { "region": "r" } } },
        });
        let server = Server::start();
        server.answers(&format!("PATCH {PATH}/demo"), 200, object.clone());
        server.answers(&format!("GET {PATH}"), 200, json!({ "type": "DELETED", "object": object }));
        let cli = server.cli("plan cd/demo -n x --fresh");
        let Some(Command::Plan(args)) = &cli.command else { panic!("a plan") };
        let target = Target::new(&CLUSTER_DEPLOYMENT, "v1", object);
        let outlook = wait_for(async {
            let hub = connect(&cli.hub).unwrap();
            outlook(&hub, args, target, None, (&[], &OnceCell::new())).await.unwrap()
        });
        assert_eq!((outlook.observed.as_str(), outlook.most_severe()), ("Deleted", Severity::Block));
        assert_eq!(outlook.hub[0].code, DELETED);
        let text = outlook.unanswered.unwrap().to_string();
        assert!(text.starts_with("stopped waiting after 0s: it does not exist any more"), "{text}");
    }

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

    #[test]
    fn refusals_block_and_consequences_inform() {
        let found = |severity, code| Finding::new(severity, code, "so");
        let known = Briefing {
            consequences: vec!["7 Pods are deleted.".to_owned()],
            findings: vec![
                found(Severity::Block, "NotRunning"),
                found(Severity::Forceable, "BarePods"),
                found(Severity::Warn, "LoadBalancers"),
            ],
            ..Briefing::default()
        };
        let detail: Vec<String> = of_preflight(known)
            .iter()
            .map(|found| format!("{} {}: {}", found.severity, found.code, found.sentence))
            .collect();
        assert_eq!(
            detail,
            [
                "block NotRunning: so",
                "block BarePods: so (--force accepts this)",
                "warn LoadBalancers: so",
                "info Consequence: 7 Pods are deleted.",
            ]
        );
    }
}
