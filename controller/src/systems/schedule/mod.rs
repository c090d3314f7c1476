//! `PowerSchedules` and `ClusterPowerSchedules`: at each edge one rollout, as `shared::schedule` plans it, or for
//! `Workloads` the writes themselves.
//!
//! A schedule creates rollouts as a `CronJob` creates Jobs. The name of a rollout says which schedule and which edge it is
//! of, so that no two leaders create two; the status has the last edge.

mod governance;
mod reading;
mod report;
mod workloads;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::select_all;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::events::EventType;
use serde::Serialize;
use shared::annotation::{format, keys};
use shared::duration::age;
use shared::kinds::Kinds;
use shared::power::Power;
use shared::rollout::api::{PowerRollout, TargetName};
use shared::schedule::admission::policy;
use shared::schedule::api::{POWER_SCHEDULE, Schedule, WORKLOADS};
use shared::schedule::decide::{Decision, Facts, Hold, decide};
use shared::schedule::rollout::{name, rollout};
use shared::schedule::timetable::Edge;
use shared::schedule::workloads::no_rights;
use shared::text::{sanitize_chain, sanitize_to};
use tracing::info;

pub use self::governance::{Governance, ScheduledRollouts};
use self::reading::{CALENDARS_KEPT, KeptReading, Reading};
use self::workloads::{Carried, Work};
use super::guard::{Kept, PolicyGuard};
use crate::fleet::FleetKind;
use crate::runtime::hub::{full_name, key_of};
use crate::runtime::{
    Acted, Class, Done, Handle, Key, Object, Observed, ReconcileError, Reconciled, Settings, System, Target,
    WriteError, clock,
};

/// How often it is checked whether an edge still cannot be acted on.
const BLOCKED: Duration = Duration::from_secs(10);
/// Changes of targets within this time are one change.
const DEBOUNCE: Duration = Duration::from_secs(1);
/// Longest reason why nothing happens, in characters.
const MAX_BLOCKED: usize = 512;

/// The system, for one of the two kinds.
pub struct Schedules<S: Schedule + Object> {
    handle: Handle<S>,
    /// The rollouts of schedules.
    rollouts: Arc<ScheduledRollouts>,
    /// Which schedule governs a target.
    governance: Arc<Governance>,
    /// The kinds of targets that this controller watches.
    watched: Vec<FleetKind>,
    guard: PolicyGuard,
    /// Targets with a hold, with their schedules: for all schedules at once.
    holds: Kept<Arc<Vec<(Key, Hold)>>>,
    /// Where the calendars of cluster-wide schedules are.
    namespace: String,
}

impl<S: Schedule + Object> Schedules<S> {
    /// Works on the schedules of this watch, for targets of these kinds. `namespace`: that of the controller.
    pub fn new(
        handle: Handle<S>,
        kinds: Kinds,
        watched: Vec<FleetKind>,
        (rollouts, governance): (Arc<ScheduledRollouts>, Arc<Governance>),
        namespace: String,
    ) -> Self {
        let guard = PolicyGuard::new(policy(kinds));
        Self { handle, rollouts, governance, watched, guard, holds: Kept::default(), namespace }
    }

    /// Targets that are to run and have a hold, with the schedule of this kind that governs them: one pass over all targets
    /// serves all schedules for a while.
    async fn holds(&self) -> kube::Result<Arc<Vec<(Key, Hold)>>> {
        self.holds.answer(DEBOUNCE, async { self.find_holds().await.map(Arc::new) }).await
    }

    async fn find_holds(&self) -> kube::Result<Vec<(Key, Hold)>> {
        let Some(governors) = self.governance.governors() else { return Ok(Vec::new()) };
        let labels = if governors.need_namespaces() {
            self.governance.namespaces.labels(&self.handle.hub.client).await?
        } else {
            Arc::default()
        };
        let is_own = S::kind(&()) == POWER_SCHEDULE.kind;
        let mut holds = Vec::new();
        for kind in &self.watched {
            for item in kind.fleet.items().unwrap_or_default() {
                let desired = &item.view.desired;
                let Some((until, requested)) = desired.held_until().zip(desired.requested()) else { continue };
                if desired.power == Power::Hibernating {
                    continue;
                }
                let governor = governors.acting(kind.row.kind.kind, &item.view, &labels);
                let Some(governor) = governor.filter(|one| one.namespace.is_some() == is_own) else { continue };
                let (namespace, name) = item.key();
                let hold = Hold { target: TargetName { namespace, name }, until, requested };
                holds.push(((governor.namespace.clone().unwrap_or_default(), governor.name.clone()), hold));
            }
        }
        Ok(holds)
    }
}

/// What is remembered of a schedule between two reconciles.
#[derive(Default)]
pub struct TargetState {
    /// What was read, with its calendars.
    read: Option<KeptReading>,
    /// The work on workloads at an edge.
    work: Option<Work>,
    /// Whether this controller may change workloads.
    rights: Kept<bool>,
}

/// The facts of one reconcile.
pub struct Observation<'a, S> {
    schedule: &'a S,
    reading: Reading,
    /// The person who wrote the schedule, and when.
    author: Option<(&'a str, Timestamp)>,
    /// The rollout of the last edge.
    rollout: Option<Arc<PowerRollout>>,
    /// Targets that it governs and that have a hold.
    holds: Vec<Hold>,
    now: Timestamp,
    /// The edge that was acted on, and how.
    acted: Option<(Edge, Carried)>,
    /// Why the edge that is due cannot be acted on: a reason of `Ready` and a message.
    blocked: Option<(&'static str, String)>,
    /// When what is left of an edge is tried again.
    retry: Option<Duration>,
}

/// The reason of `Ready` where an edge cannot be acted on.
const CANNOT: &str = "Blocked";

impl<S: Schedule + Object + Serialize> System for Schedules<S> {
    type Object = S;
    type State = TargetState;
    type Facts<'a> = Observation<'a, S>;
    type Plan = Option<Decision>;

    const NAME: &'static str = "schedule";
    const ACTION: &'static str = "Schedule";
    // Each schedule of a page may have a megabyte of names. The timeout is for some reads and writes, or those of
    // [`workloads`].
    const SETTINGS: Settings = Settings { page_size: 10, concurrency: 32, ..Settings::QUICK };

    async fn observe<'a>(&self, schedule: &'a S, target: &mut Target<Self>) -> Reconciled<Observed<Self::Facts<'a>>> {
        if schedule.meta().deletion_timestamp.is_some() {
            return Ok(Observed::Rest(None));
        }
        let now = clock::now();
        let reading = self.reading(schedule, &mut target.state.read, now).await?;
        let annotation = |key: &str| schedule.annotations().get(key).filter(|value| !value.is_empty());
        let author = annotation(keys::REQUESTED_BY).map(String::as_str);
        let author = author.zip(annotation(keys::REQUESTED_AT).and_then(|text| format::time(text)));
        let last = schedule.status().and_then(|status| status.last_edge.as_ref()?.rollout.as_deref());
        let rollout = last.and_then(|name| self.rollouts.find(name));
        let key = key_of(schedule);
        let holds = self.holds().await.map_err(ReconcileError::read("the namespaces"))?;
        let holds = holds.iter().filter(|(of, _)| *of == key).map(|(_, hold)| hold.clone()).collect();
        let (acted, blocked, retry) = (None, None, None);
        Ok(Observed::Facts(Observation { schedule, reading, author, rollout, holds, now, acted, blocked, retry }))
    }

    fn decide(&self, seen: &Observation<'_, S>) -> Option<Decision> {
        let Reading { timetable, fault } = &seen.reading;
        let (timetable, (_, written)) = (timetable.as_ref()?, seen.author?);
        let (spec, status, wakes_only) = (seen.schedule.spec(), seen.schedule.status(), fault.is_some());
        Some(decide(&Facts { spec, timetable, status, written, holds: &seen.holds, wakes_only, now: seen.now }))
    }

    async fn act(
        &self,
        seen: &mut Self::Facts<'_>,
        plan: &mut Self::Plan,
        target: &mut Target<Self>,
    ) -> Reconciled<Acted> {
        let schedule = seen.schedule;
        let of_workloads = schedule.spec().targets.kind == WORKLOADS;
        if of_workloads && !self.may_change(schedule.namespace(), &target.state.rights).await {
            seen.blocked = Some(("NoRights", no_rights()));
        }
        let due = plan.as_mut().and_then(|plan| plan.due.take()).filter(|_| seen.blocked.is_none());
        let (Some(due), Some(timetable), Some((author, _))) = (due, &seen.reading.timetable, seen.author) else {
            target.state.work = None;
            return Ok(Acted::Nothing);
        };
        let edge = due.edge;
        let until = match due.by.until() {
            Ok(until) => until,
            Err(why) => {
                let carried = Carried::given_up(schedule, &edge).unwrap_or(Carried::Skipped(why));
                seen.acted = Some((edge, carried));
                return Ok(Acted::Nothing);
            }
        };
        // The targets of a hold that has ended are due until the rollout has started them.
        let name = name(schedule, edge.at, &due.targets);
        if self.rollouts.find(&name).is_some_and(|found| is_ours(schedule, &found)) {
            seen.acted = Some((edge, Carried::Rollout(name)));
            return Ok(Acted::Nothing);
        }
        let unguarded = self.guard.missing(&self.handle.hub.client).await;
        let unguarded = unguarded.map_err(ReconcileError::read("the policy of schedules"))?;
        seen.blocked = unguarded.map(|why| (CANNOT, why));
        if seen.blocked.is_some() {
            return Ok(Acted::Nothing);
        }
        let source = timetable.describe(edge.source, schedule.spec());
        if of_workloads {
            return self.change_workloads(seen, edge, &source, &mut target.state.work).await;
        }
        let wanted = rollout(schedule, &due, &source, author, until);
        match self.handle.hub.store(&wanted).await {
            Ok(_) => info!(schedule = full_name(schedule), rollout = wanted.name_any(), "edge"),
            // An earlier leader has created it.
            Err(WriteError::Conflict(_)) if self.is_ours(schedule, &wanted).await? => {}
            Err(error) if matches!(error.class(), Class::NotLeader) => return Err(ReconcileError::not_leader()),
            Err(error) => {
                let error = ReconcileError::of_other("Create", "create the rollout")(error);
                seen.blocked = Some((CANNOT, sanitize_to(&sanitize_chain(&error), MAX_BLOCKED)));
                return Ok(Acted::Nothing);
            }
        }
        seen.acted = Some((edge, Carried::Rollout(wanted.name_any())));
        Ok(Acted::Nothing)
    }

    async fn report(
        &self,
        seen: &mut Self::Facts<'_>,
        plan: &mut Self::Plan,
        target: &mut Target<Self>,
    ) -> Reconciled<Done> {
        let written = report::write(self, seen, plan.as_ref()).await?;
        let changed = written.is_some();
        if let Some(written) = &written {
            target.wrote(written);
        }
        if let Some((edge, carried)) = seen.acted.as_ref().filter(|_| changed) {
            let begins = if edge.power == Power::Hibernating { "Sleep" } else { "Wake" };
            let (reason, note) = match carried {
                Carried::Rollout(rollout) => (begins, format!("rollout {rollout}")),
                Carried::Skipped(why) => ("Skipped", why.clone()),
                Carried::Workloads { outcome, .. } => (begins, outcome.clone()),
            };
            self.handle.publish(seen.schedule, EventType::Normal, reason, &note).await;
        }
        let next = plan.as_ref().and_then(|plan| plan.next.first()).map(|edge| age(seen.now, edge.at));
        let other = plan.as_ref().and_then(|plan| plan.other_at).map(|at| age(seen.now, at));
        let calendars = Some(CALENDARS_KEPT).filter(|_| !seen.schedule.spec().calendars.is_empty());
        let blocked = Some(BLOCKED).filter(|_| seen.blocked.is_some());
        Ok(Done { requeue: [next, other, calendars, blocked, seen.retry].into_iter().flatten().min(), changed })
    }

    async fn follow(&self) {
        self.handle.listed().await;
        let rollouts = async {
            loop {
                for schedule in self.rollouts.changed(&S::kind(&())).await {
                    self.handle.trigger(schedule);
                }
            }
        };
        // An edge is due by the clock that people read, and a reconcile waits by another one.
        let clocks = async {
            loop {
                clock::stepped().await;
                for schedule in self.handle.objects() {
                    self.handle.trigger(key_of(&*schedule));
                }
            }
        };
        let holds = async {
            loop {
                let _ = select_all(self.watched.iter().map(|kind| kind.fleet.changed())).await;
                tokio::time::sleep(DEBOUNCE).await;
                let held = self.holds().await.unwrap_or_default();
                let keys: BTreeSet<&Key> = held.iter().map(|(key, _)| key).collect();
                for key in keys {
                    self.handle.trigger(key.clone());
                }
            }
        };
        tokio::join!(rollouts, clocks, holds);
    }
}

impl<S: Schedule + Object> Schedules<S> {
    /// Whether the rollout of this name is of this schedule.
    async fn is_ours(&self, schedule: &S, wanted: &PowerRollout) -> Reconciled<bool> {
        let found = self.handle.hub.find(wanted).await.map_err(ReconcileError::read("the rollout of the edge"))?;
        Ok(found.is_some_and(|found| is_ours(schedule, &found)))
    }
}

fn is_ours(schedule: &impl Schedule, rollout: &PowerRollout) -> bool {
    rollout.spec.scheduled_by.as_ref().is_some_and(|by| Some(&by.uid) == schedule.meta().uid.as_ref())
}
