//! Workloads at an edge: listed by namespace, and each written as `shared::schedule::workloads` says.
//!
//! The status is written after each pass, with what is pending: that keeps the edge due. The next leader starts over with
//! lists, and finds done what is done; what others have changed since the edge is left.

use std::collections::VecDeque;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use kube::api::{ListParams, Patch, PatchParams, ValidationDirective};
use kube::{Api, ResourceExt};
use serde_json::json;
use server::hub;
use shared::annotation::keys;
use shared::kinds::operators::objects::{OPERATORS, OperatorObject};
use shared::kinds::owners::Owners;
use shared::power::Power;
use shared::schedule::api::{POWER_SCHEDULE, Schedule};
use shared::schedule::timetable::Edge;
use shared::schedule::workloads::{
    Asked, CronJobObject, DeploymentObject, Outcome, StatefulSetObject, Step, Tally, Workload, left, step,
};
use shared::text::{sanitize_chain, sanitize_to};
use shared::workload::namespaces::is_ours;
use shared::workload::ownership;
use tokio::time::Instant;
use tracing::{info, warn};

use super::{CANNOT, MAX_BLOCKED, Observation, Schedules};
use crate::runtime::backoff::{REFUSED_BACKOFF, Streak};
use crate::runtime::hub::{as_controller, full_name, named};
use crate::runtime::{Acted, Guarded, Hub, Object, ReconcileError, Reconciled, WriteError};
use crate::systems::guard::Kept;

/// Workloads of one namespace that are written at once.
const CONCURRENCY: usize = 8;
/// How long one pass begins with further namespaces.
const PASS: Duration = Duration::from_secs(30);
/// The pause between a pass that had too little time and the next one.
const AT_ONCE: Duration = Duration::from_millis(100);
/// How long it takes until tools that apply workloads from a repository have turned back what they turn back.
const SETTLES: Duration = Duration::from_secs(15);
/// How often a workload is read again because another client wrote it in between.
const ATTEMPTS: u32 = 3;
/// How long it is kept whether this controller may change workloads.
const RIGHTS_KEPT: Duration = Duration::from_secs(10);

/// How an edge was acted on.
#[derive(Clone, Debug)]
pub enum Carried {
    /// By the rollout of this name.
    Rollout(String),
    /// Not at all, and why.
    Skipped(String),
    /// By writes to workloads.
    Workloads {
        /// What became of them.
        outcome: String,
        /// How many there are.
        targets: u32,
        /// How many of them, or of their namespaces, are still to be changed or confirmed.
        pending: Option<u32>,
    },
}

impl Carried {
    /// What the status says of this edge, of which something was pending and is not tried again.
    pub fn given_up(schedule: &impl Schedule, edge: &Edge) -> Option<Self> {
        let status = schedule.status()?;
        let last = status.last_edge.as_ref().filter(|last| last.at.0 == edge.at && last.pending.is_some())?;
        let (outcome, targets) = (last.outcome.clone().unwrap_or_default(), status.targets.unwrap_or_default());
        Some(Self::Workloads { outcome, targets, pending: None })
    }
}

/// The work on an edge. It lasts until the status says that nothing is pending.
pub struct Work {
    edge: Edge,
    /// Namespaces that this pass has yet to list.
    waiting: VecDeque<String>,
    tally: Tally,
    streak: Streak,
    /// Whether what was done is observed once more: another client may have turned it back at once.
    confirms: bool,
    /// When the next pass begins.
    next: Instant,
}

impl Work {
    fn new(edge: Edge, namespaces: Vec<String>) -> Self {
        let (tally, streak) = (Tally::default(), Streak::default());
        Self { edge, waiting: namespaces.into(), tally, streak, confirms: false, next: Instant::now() }
    }

    /// Whether it is on this edge.
    fn is_of(&self, edge: &Edge) -> bool {
        (self.edge.at, self.edge.power) == (edge.at, edge.power)
    }

    /// How far it has come.
    fn carried(&self) -> Carried {
        let (all, done, failed) = self.tally.counts();
        let count = |number| u32::try_from(number).unwrap_or(u32::MAX);
        let open = failed + self.waiting.len();
        let pending = if open == 0 && !self.confirms { done } else { open };
        let pending = Some(count(pending)).filter(|pending| *pending > 0);
        Carried::Workloads { outcome: self.tally.text(self.waiting.len()), targets: count(all), pending }
    }
}

impl<S: Schedule + Object> Schedules<S> {
    /// Whether this controller has the rights of the component, in this namespace or in all.
    pub(super) async fn may_change(&self, namespace: Option<String>, kept: &Kept<bool>) -> bool {
        // No API server serves it. The component grants it, and a seed's rights on Deployments do not.
        let (resource, subresource) = (POWER_SCHEDULE.plural, "workloads");
        let right = json!({
            "group": keys::GROUP, "resource": resource, "subresource": subresource, "verb": "create",
            "namespace": namespace.unwrap_or_default(),
        });
        let ask = async { Ok(hub::may(&self.handle.hub.client, &right).await) };
        kept.answer(RIGHTS_KEPT, ask).await.unwrap_or(true)
    }

    /// Makes one pass over the workloads of an edge.
    pub(super) async fn change_workloads(
        &self,
        seen: &mut Observation<'_, S>,
        edge: Edge,
        source: &str,
        kept: &mut Option<Work>,
    ) -> Reconciled<Acted> {
        let schedule = seen.schedule;
        if kept.as_ref().is_none_or(|work| !work.is_of(&edge)) {
            match self.governed(schedule).await? {
                Ok(namespaces) => *kept = Some(Work::new(edge, namespaces)),
                Err(why) => {
                    seen.blocked = Some((CANNOT, why));
                    return Ok(Acted::Nothing);
                }
            }
        }
        let Some(work) = kept else { return Ok(Acted::Nothing) };
        let (begun, name) = (Instant::now(), full_name(schedule));
        if work.next > begun {
            seen.retry = Some(work.next - begun);
            return Ok(Acted::Nothing);
        }
        if work.waiting.is_empty() {
            work.waiting = work.tally.failed().cloned().collect();
        }
        if work.waiting.is_empty() {
            (work.waiting, work.confirms) = (work.tally.reopen().into(), true);
        }
        let reason = sanitize_to(&format!("schedule {name}: {source}"), MAX_BLOCKED);
        let (hub, own, kinds) = (&self.handle.hub, &*self.namespace, &*schedule.spec().operator_kinds);
        let asked = Asked { power: work.edge.power, at: work.edge.at, reason: &reason };
        while let Some(namespace) = work.waiting.front().cloned() {
            let pass = Pass { hub, own, kinds, asked, tally: &work.tally };
            let outcomes = pass.namespace(&namespace).await?;
            work.tally.add(&namespace, outcomes);
            work.waiting.pop_front();
            if begun.elapsed() > PASS {
                break;
            }
        }
        let carried = work.carried();
        if let Carried::Workloads { outcome, pending, .. } = &carried {
            info!(schedule = name, outcome, "workloads");
            if !work.waiting.is_empty() {
                seen.retry = Some(AT_ONCE);
            } else if pending.is_some() {
                let has_failed = work.tally.failed().next().is_some();
                let pause = if has_failed { work.streak.next(REFUSED_BACKOFF) } else { SETTLES };
                (work.next, seen.retry) = (Instant::now() + pause, Some(pause));
            }
        }
        seen.acted = Some((edge, carried));
        Ok(Acted::Nothing)
    }

    /// The namespaces whose workloads this schedule governs, or why they are not known.
    async fn governed(&self, schedule: &S) -> Reconciled<Result<Vec<String>, String>> {
        let Some(governors) = self.governance.governors() else {
            return Ok(Err("the schedules are not listed yet".to_owned()));
        };
        let labels = self.governance.namespaces.labels(&self.handle.hub.client).await;
        let labels = labels.map_err(ReconcileError::read("the namespaces"))?;
        let is_own = |name: &&String| {
            let governor = governors.of_workloads(name, &labels);
            governor.is_some_and(|one| Some(&one.uid) == schedule.meta().uid.as_ref())
        };
        let found: Vec<String> = labels.keys().filter(is_own).cloned().collect();
        let most = schedule.spec().rollout.most_targets();
        if found.len() > most as usize {
            let many = found.len();
            return Ok(Err(format!(
                "spec.rollout.maxTargets: found {many} namespaces of Workloads, must be {most} at most"
            )));
        }
        Ok(Ok(found))
    }
}

/// One pass.
struct Pass<'a> {
    hub: &'a Hub,
    /// Our own namespace.
    own: &'a str,
    /// Kinds of operators that the schedule includes, such as `clusters.postgresql.cnpg.io`.
    kinds: &'a [String],
    /// What the edge asks.
    asked: Asked<'a>,
    /// What has become of it so far.
    tally: &'a Tally,
}

/// The objects of one kind in a namespace.
trait Listed: Send + Sync {
    /// In which order they are written.
    fn stage(&self) -> u8;

    /// Adds those that scale others; returns whether one is of our own programs, and ends there.
    fn inspect(&self, owners: &mut Owners) -> bool;

    /// Writes them.
    fn write<'a>(self: Box<Self>, pass: &'a Pass<'a>, owners: &'a Owners) -> BoxFuture<'a, Reconciled<Outcomes>>;
}

/// What became of workloads, by their names.
type Outcomes = Vec<(String, Outcome)>;

impl<K: Workload + Object> Listed for Vec<Guarded<K>> {
    fn stage(&self) -> u8 {
        K::ROW.stage
    }

    fn inspect(&self, owners: &mut Owners) -> bool {
        self.iter().filter_map(|one| one.0.as_ref().ok()).map(Workload::value).any(|value| {
            owners.add(K::ROW, &value);
            is_ours(&value)
        })
    }

    fn write<'a>(self: Box<Self>, pass: &'a Pass<'a>, owners: &'a Owners) -> BoxFuture<'a, Reconciled<Outcomes>> {
        pass.all(*self, owners).boxed()
    }
}

impl Pass<'_> {
    /// What becomes of the workloads of a namespace.
    async fn namespace(&self, name: &str) -> Reconciled<Outcomes> {
        let whole = |outcome| vec![("namespace".to_owned(), outcome)];
        let ours = || "our own programs run in it".to_owned();
        if let Some(why) = left(name).or_else(|| (name == self.own).then(ours)) {
            return Ok(whole(Outcome::Left(why)));
        }
        let listed = async {
            let deployments = self.list::<DeploymentObject>(name).await?;
            let sets = self.list::<StatefulSetObject>(name).await?;
            let cron_jobs = self.list::<CronJobObject>(name).await?;
            Ok::<[Box<dyn Listed>; 3], kube::Error>([Box::new(deployments), Box::new(sets), Box::new(cron_jobs)])
        };
        let mut lists = match listed.await {
            Ok(listed) => Vec::from(listed),
            Err(error) => return Ok(whole(Outcome::Failed(sanitize_chain(&error)))),
        };
        let mut outcomes = Outcomes::new();
        macro_rules! operators {
            ($($at:literal)*) => {
                const { assert!([$($at),*].len() == OPERATORS.len()) };
                $(self.add::<OperatorObject<$at>>(name, &mut lists, &mut outcomes).await;)*
            };
        }
        operators!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        let mut owners = Owners::default();
        if lists.iter().any(|list| list.inspect(&mut owners)) {
            return Ok(whole(Outcome::Left(ours())));
        }
        // What starts or scales others sleeps first and wakes last.
        lists.sort_by_key(|list| list.stage());
        if self.asked.power == Power::Running {
            lists.reverse();
        }
        for list in lists {
            outcomes.extend(list.write(self, &owners).await?);
        }
        Ok(outcomes)
    }

    /// Lists a kind of an operator, if the schedule includes it and the hub serves it.
    async fn add<K: Workload + Object>(
        &self,
        namespace: &str,
        lists: &mut Vec<Box<dyn Listed>>,
        outcomes: &mut Outcomes,
    ) {
        let resource = K::ROW.kind.resource_name();
        if !self.kinds.contains(&resource) {
            return;
        }
        match self.list::<K>(namespace).await {
            Ok(list) => lists.push(Box::new(list)),
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => outcomes.push((resource, Outcome::Failed(sanitize_chain(&error)))),
        }
    }

    async fn list<K: Workload + Object>(&self, namespace: &str) -> kube::Result<Vec<Guarded<K>>> {
        let api: Api<Guarded<K>> = self.hub.api(&named::<K>(namespace, "", None));
        hub::list(&api, &ListParams::default(), Ok).await
    }

    /// Some at a time, in the order of their names.
    async fn all<K: Workload + Object>(&self, listed: Vec<Guarded<K>>, owners: &Owners) -> Reconciled<Outcomes> {
        let one = |found: Guarded<K>| async move {
            let (namespace, name) = (found.namespace().unwrap_or_default(), K::ROW.kind.full_name(&found.name_any()));
            if self.tally.has_ended(&namespace, &name) {
                return Ok(None);
            }
            let outcome = match found.0 {
                Ok(object) => self.one(object, owners).await?,
                Err(unreadable) => Some(Outcome::Failed(format!("it cannot be read: {}", unreadable.error))),
            };
            Ok(outcome.map(|outcome| (name, outcome)))
        };
        let outcomes = stream::iter(listed).map(one).buffered(CONCURRENCY);
        outcomes.try_filter_map(async |outcome| Ok(outcome)).try_collect().await
    }

    /// Writes one workload, read again if another client wrote it in between. None if it is none of the edge.
    async fn one<K: Workload + Object>(&self, mut object: K, owners: &Owners) -> Reconciled<Option<Outcome>> {
        let sleeps = self.asked.power == Power::Hibernating;
        // An old definition does not have the field of a row. A wake must pass all the same.
        let strict = sleeps && K::ROW.sleep_row().is_some();
        let params = PatchParams { field_validation: strict.then_some(ValidationDirective::Strict), ..as_controller() };
        for _ in 0..ATTEMPTS {
            let patch = match step(K::ROW, &object.value(), &self.asked, owners) {
                Step::NotOurs => return Ok(None),
                Step::Ended(outcome) => {
                    if outcome == Outcome::Done && !sleeps {
                        self.release(&object).await;
                    }
                    return Ok(Some(outcome));
                }
                Step::Write(patch) => patch,
            };
            match self.hub.patch_with(&object, patch, &params).await {
                Ok(_) if sleeps => return Ok(Some(Outcome::Done)),
                // The next look finds a wake done, and releases it.
                Ok(_) | Err(WriteError::Conflict(_)) => {}
                Err(WriteError::Gone(_)) => return Ok(None),
                Err(WriteError::NotLeader) => return Err(ReconcileError::not_leader()),
                Err(error) => {
                    let outdated = error.refusal().and_then(|message| K::ROW.outdated(&message));
                    return Ok(Some(Outcome::Failed(outdated.unwrap_or_else(|| sanitize_chain(&error)))));
                }
            }
            match self.hub.find(&object).await {
                Ok(Some(found)) if found.uid() == object.uid() => object = found,
                Ok(_) => return Ok(None),
                Err(error) => return Ok(Some(Outcome::Failed(sanitize_chain(&error)))),
            }
        }
        Ok(Some(Outcome::Failed("others keep changing it".to_owned())))
    }

    /// Gives up the ownership of the field that a sleep sets: after a wake it belongs to the client that deploys the
    /// workload. Otherwise a server-side apply by that client conflicts, and nothing else is wrong.
    async fn release<K: Workload + Object>(&self, object: &K) {
        let Some(patch) = ownership::release(&object.value(), keys::CONTROLLER) else { return };
        let Ok(patch) = serde_json::from_value::<json_patch::Patch>(patch) else { return };
        if self.hub.lead().is_err() {
            return;
        }
        let written = self.hub.api(object).patch(&object.name_any(), &as_controller(), &Patch::Json::<()>(patch)).await;
        if let Err(error) = written {
            warn!(
                workload = full_name(object),
                error = sanitize_chain(&error),
                "its replicas stay owned by this controller"
            );
        }
    }
}
