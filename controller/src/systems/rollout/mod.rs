//! `PowerRollouts`: starts targets in waves, as `shared::rollout` plans it.
//!
//! It reads the objects that other systems watch, and only writes intent and its claim on them: those systems carry
//! out the change. Claims and records on the targets and the status of the rollout are all that a
//! new leader needs.

mod abandoned;
mod act;
mod checks;
mod observation;
mod report;
mod selection;
mod snapshots;
mod turns;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::select_all;
use jiff::Timestamp;
use kube::ResourceExt;
use shared::annotation::keys;
use shared::duration;
use shared::duration::age;
use shared::kinds::Kinds;
use shared::kinds::row::STOP_START;
use shared::rollout::admission::policy;
use shared::rollout::api::PowerRollout;
use shared::rollout::plan::{Candidate, Input, Plan, has_begun, is_closed, plan};
use shared::text::{sanitize_chain, sanitize_to};
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::info;

use self::checks::Checks;
use self::observation::{Observation, UPGRADES_KEPT, active_upgrades, has_claim, members, unserved};
use self::selection::Selection;
pub use self::selection::trim;
use self::snapshots::Snapshots;
pub use self::turns::Turns;
use self::turns::{queued, requester, rests};
use crate::fleet::{FleetKind, Identity, Item};
use crate::runtime::hub::key_of;
use crate::runtime::{
    Acted, Class, Done, Handle, Key, Observed, ReconcileError, Reconciled, Settings, System, Target, WriteError, clock,
};
use crate::spoke::Network;
use crate::systems::guard::{Kept, PolicyGuard};
use crate::systems::schedule::Governance;
use fair::FairLimit;

/// Changes of targets within this time are one change.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// After this time a deferral that was not renewed is forgotten.
const FORGOTTEN: Duration = Duration::from_mins(5);
/// A start that has not failed for this long fails anew. Longer than [`FORGOTTEN`]: a target whose deferral was
/// forgotten is deferred again by one try, and takes no time from others.
const LAPSED: Duration = Duration::from_mins(10);
/// Shortest time between two writes of one status in one phase.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// Until the list of targets is complete, a rollout waits.
const UNLISTED: Duration = Duration::from_millis(500);
/// What is left is tried again after this time: the watch brings what another client wrote.
const AGAIN: Duration = Duration::from_millis(100);
/// How often claims of rollouts that are gone are looked for.
const SWEEP: Duration = Duration::from_secs(5);

/// Longest reason why nothing starts, in characters.
const MAX_BLOCKED: usize = 512;

/// The system.
pub struct Rollouts {
    handle: Handle<PowerRollout>,
    /// The kinds that rollouts may be about, as far as this controller watches them.
    watched: Vec<FleetKind>,
    /// Which schedule governs a target.
    governance: Arc<Governance>,
    /// Something has changed that no fleet tells of.
    changes: Notify,
    /// How spokes are reached.
    network: Network,
    /// Whether the policy that decides who may start a rollout is in force.
    guard: PolicyGuard,
    /// The clusters that TALM upgrades, with what to say of that.
    upgrades: Kept<Arc<BTreeMap<String, String>>>,
    /// Checks of spokes over all rollouts.
    turns: Arc<FairLimit>,
    snapshots: Snapshots,
    /// Which rollouts are worked on.
    queue: Arc<Turns>,
}

impl Rollouts {
    /// Works on the rollouts of this watch whose turn it is, and on targets of the watched kinds, of which `governance`
    /// says whose they are. Records are kept in `namespace`.
    pub fn new(
        handle: Handle<PowerRollout>,
        kinds: Kinds,
        watched: Vec<FleetKind>,
        governance: Arc<Governance>,
        network: Network,
        namespace: String,
        queue: Arc<Turns>,
    ) -> Self {
        let (guard, upgrades, changes) = (PolicyGuard::new(policy(kinds)), Kept::default(), Notify::new());
        let (turns, snapshots) = (checks::turns(), Snapshots::new(namespace));
        Self { handle, watched, governance, changes, network, guard, upgrades, turns, snapshots, queue }
    }

    /// The kind of a rollout's targets, if this controller watches it.
    fn kind(&self, rollout: &PowerRollout) -> Option<&FleetKind> {
        self.watched.iter().find(|kind| kind.row.kind.kind == rollout.spec.targets.kind)
    }

    /// The rollouts whose turn it is. One of a kind that is not watched takes none: nothing of it can end.
    fn admitted(&self) -> Arc<HashSet<Key>> {
        let is_served = |one: &PowerRollout| self.kind(one).is_some();
        self.queue.admitted(|| {
            let mut all = self.handle.objects();
            all.retain(|one| one.0.as_ref().is_ok_and(is_served));
            all
        })
    }
}

/// What is remembered of a rollout between two reconciles.
#[derive(Default)]
pub struct TargetState {
    /// Checks that are under way.
    checks: Checks,
    /// What the last try to start a target found against that, and when it was.
    checked: HashMap<Identity, (String, Timestamp)>,
    /// Targets whose start fails: when it did first and last.
    failing: HashMap<Identity, (Instant, Instant)>,
    /// What it selects by, until it starts.
    selection: Selection,
    /// When a target was written last.
    wrote: Option<Instant>,
    /// When the status was written last.
    written: Option<Instant>,
}

impl TargetState {
    /// Keeps nothing but the time of the last status write.
    fn rest(&mut self) {
        *self = Self { written: self.written, ..Self::default() };
    }
}

impl System for Rollouts {
    type Object = PowerRollout;
    type State = TargetState;
    type Facts<'a> = Observation<'a>;
    type Plan = Plan;

    const NAME: &'static str = "rollout";
    const ACTION: &'static str = "Rollout";
    // Each rollout of a page may have a megabyte of names. The timeout is for some rounds of writes.
    const SETTINGS: Settings = Settings { page_size: 10, concurrency: 8, ..Settings::QUICK };

    /// Who shares the limit of unfinished rollouts: service accounts and names that a tenant can make many of get no
    /// slots of their own. Rollouts of schedules have slots beside those of their author.
    fn tenant(&self, rollout: &PowerRollout) -> String {
        let schedules = if rollout.spec.scheduled_by.is_some() { "schedules of " } else { "" };
        format!("{schedules}{}", requester(rollout))
    }

    async fn observe<'a>(
        &self,
        rollout: &'a PowerRollout,
        target: &mut Target<Self>,
    ) -> Reconciled<Observed<Observation<'a>>> {
        if rollout.metadata.deletion_timestamp.is_some() {
            return Ok(Observed::Rest(None));
        }
        let kind = self.kind(rollout);
        let items = kind.map_or_else(|| Some(Vec::new()), |kind| kind.fleet.items());
        let Some(items) = items else { return Ok(Observed::Rest(Some(UNLISTED))) };
        let state = &mut target.state;
        // A claim that its last write has left behind, or a restored object brings along, still has to end.
        if rests(rollout) && !has_claim(self, rollout, &items).await? {
            state.rest();
            self.snapshots.forget(uid_of(rollout));
            self.changes.notify_one(); // it may be the turn of another one
            return Ok(Observed::Rest(expire(self, rollout).await?));
        }
        let Some(kind) = kind else { return Ok(Observed::Facts(unserved(rollout))) };
        let mut observation = Observation::of(rollout);
        if !has_begun(rollout) && !self.admitted().contains(&key_of(rollout)) {
            state.rest();
            observation.queued = Some(queued(rollout, self.queue.limit));
            return Ok(Observed::Facts(observation));
        }
        let client = &self.handle.hub.client;
        let unguarded = self.guard.missing(client).await.map_err(ReconcileError::read("the policy of rollouts"))?;
        observation.blocked = unguarded.or_else(|| unstamped(rollout));
        if let Some(left) = state.selection.remaining_ttl(rollout).filter(|_| self.snapshots.known(rollout).is_none()) {
            return Ok(Observed::Rest(Some(left)));
        }
        if kind.upgrades {
            let upgrades = self.upgrades.answer(UPGRADES_KEPT, active_upgrades(client)).await;
            observation.upgrades = upgrades.map_err(ReconcileError::read("the ClusterGroupUpgrades"))?;
        }
        if !members(self, &mut observation, &items, state).await? {
            return Ok(Observed::Rest(Some(UNLISTED)));
        }
        observation.domains = observation.items.iter().map(|(item, _)| (kind.domain)(item)).collect();
        let now = observation.now;
        if rollout.spec.paused || is_closed(&rollout.spec, now) {
            state.checks = Checks::default();
        }
        state.checked.extend(state.checks.objections().into_iter().map(|(target, why)| (target, (why, now))));
        state.failing.retain(|_, (_, last)| last.elapsed() < LAPSED);
        // A deferral that was not renewed is one of a target that has gone on.
        state.checked.retain(|_, (_, at)| age(*at, now) < FORGOTTEN);
        (observation.checked, observation.checking) = (state.checked.clone(), state.checks.under_way().clone());
        Ok(Observed::Facts(observation))
    }

    fn decide(&self, observation: &Observation<'_>) -> Plan {
        let Observation { rollout, whole, items, domains, upgrades, checked, checking, queued, blocked, now, .. } =
            observation;
        let rollout = whole.as_deref().unwrap_or(rollout);
        let of = |item: &Item| checked.get(&item.identity());
        let candidates = items.iter().zip(domains).map(|((item, group), domain)| Candidate {
            object: &item.view,
            group: *group,
            domain: domain.as_deref(),
            upgrade: upgrades.get(&item.view.identity.name).map(String::as_str),
            checked: if checked.is_empty() { None } else { of(item).map(|(why, at)| (why.as_str(), *at)) },
            checking: !checking.is_empty() && checking.contains(&item.identity()),
        });
        let candidates: Vec<Candidate<'_>> = candidates.collect();
        let deadlines = self.kind(rollout).and_then(|kind| kind.row.in_rollouts).unwrap_or(STOP_START);
        let (candidates, queued, blocked) = (&candidates[..], queued.as_deref(), blocked.as_deref());
        plan(&Input { rollout, candidates, deadlines, queued, blocked, now: *now })
    }

    async fn act(
        &self,
        observation: &mut Self::Facts<'_>,
        plan: &mut Plan,
        target: &mut Target<Self>,
    ) -> Reconciled<Acted> {
        if let Some(snapshot) = plan.snapshot.take() {
            match self.snapshots.record(&self.handle.hub, observation.rollout, snapshot).await {
                Ok(()) => {}
                Err(error) if matches!(error.class(), Class::Outdated | Class::NotLeader) => return Err(error),
                // Nothing starts, and the status says why.
                Err(error) => {
                    observation.blocked = Some(sanitize_to(&sanitize_chain(&error), MAX_BLOCKED));
                    return Ok(Acted::Changed);
                }
            }
        }
        let (ends, starts) = (std::mem::take(&mut plan.ends), std::mem::take(&mut plan.starts));
        if ends.is_empty() && starts.is_empty() {
            return Ok(Acted::Nothing);
        }
        act::run(self, observation, ends, starts, &mut target.state).await;
        observation.now = clock::now();
        Ok(Acted::Changed)
    }

    async fn report(&self, seen: &mut Self::Facts<'_>, plan: &mut Plan, target: &mut Target<Self>) -> Reconciled<Done> {
        let Observation { rollout, acted, left, now, .. } = *seen;
        let is_left = !plan.starts.is_empty() || !plan.ends.is_empty();
        let more = left || (acted && is_left);
        let due = plan.requeue_at.map(|at| age(now, at));
        let status = std::mem::take(&mut plan.status);
        let (mut written, later) = report::write(self, rollout, status, &mut target.state).await?;
        if let Some(written) = &mut written {
            trim(written);
            target.wrote(written);
        }
        if later.is_none() {
            target.state.selection.cache_result(due);
        }
        // The status says first what has come of the others.
        if let Some(error) = seen.failed.take() {
            return Err(error);
        }
        Ok(Done { requeue: requeue(more, due, later), changed: acted || written.is_some() })
    }

    fn forget(&self, key: &Key) {
        self.handle.hub.metrics.rollouts.forget(key);
        // Its claims become records.
        self.changes.notify_one();
    }

    async fn follow(&self) {
        self.handle.listed().await;
        let triggers = async {
            loop {
                let fleets = self.watched.iter().map(|kind| kind.fleet.changed());
                select_all(fleets.chain([self.changes.notified().boxed()])).await;
                tokio::time::sleep(DEBOUNCE).await;
                for rollout in self.admitted().iter() {
                    self.handle.trigger(rollout.clone());
                }
            }
        };
        let sweeps = async {
            loop {
                abandoned::sweep(self).await;
                tokio::time::sleep(SWEEP).await;
            }
        };
        tokio::join!(triggers, sweeps);
    }
}

/// When to reconcile again. `more`: targets are left to write. `due`: the next time of the plan. `later`: when the
/// status may be written.
fn requeue(more: bool, due: Option<Duration>, later: Option<Duration>) -> Option<Duration> {
    // What is due now waits for the status: the first start does, until the status says that the rollout has started.
    let due = due.filter(|due| later.is_none() || !due.is_zero());
    [more.then_some(AGAIN), due, later].into_iter().flatten().min()
}

/// The annotations that say who let the rollout start targets, and when.
const STAMP: [&str; 2] = [keys::REQUESTED_BY, keys::REQUESTED_AT];

/// Why the rollout starts nothing: no trusted requester is recorded.
fn unstamped(rollout: &PowerRollout) -> Option<String> {
    let stamped = |key: &str| rollout.annotations().get(key).is_some_and(|value| !value.is_empty());
    let missing = STAMP.into_iter().find(|key| !stamped(key))?;
    Some(format!(
        "annotation {missing} is missing: the webhook did not see the last change of the spec; change it again"
    ))
}

fn uid_of(rollout: &PowerRollout) -> &str {
    rollout.metadata.uid.as_deref().unwrap_or_default()
}

/// Deletes a rollout whose `ttlAfterFinished` has passed. How long it is kept otherwise.
async fn expire(rollouts: &Rollouts, rollout: &PowerRollout) -> Reconciled<Option<Duration>> {
    let ttl = rollout.spec.ttl_after_finished.as_deref().and_then(|text| duration::parse_unsigned(text).ok());
    let finished = rollout.status.as_ref().and_then(|status| status.finished_at.as_ref());
    let Some((ttl, finished)) = ttl.zip(finished) else { return Ok(None) };
    let passed = age(finished.0, clock::now());
    if passed < ttl {
        return Ok(Some(ttl.saturating_sub(passed)));
    }
    match rollouts.handle.hub.delete(rollout).await {
        Ok(()) => info!(rollout = rollout.name_any(), "expired rollout deleted"),
        Err(WriteError::Conflict(_)) => {}
        Err(error) => return Err(ReconcileError::of_other("Delete", "delete the expired rollout")(error)),
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollout_without_a_whole_stamp_is_not_believed() {
        let why = |annotations: &serde_json::Value| {
            let object = serde_json::json!({
                "apiVersion": "hibernate.sh/v1alpha1", "kind": "PowerRollout",
                "metadata": { "name": "night", "annotations": annotations },
                "spec": {
                    "action": "Hibernate", "targets": { "all": true }, "maxTargets": 1, "notAfter": "2126-01-01T00:00:00Z",
                },
            });
            unstamped(&serde_json::from_value(object).unwrap())
        };
        let (by, at) = (keys::REQUESTED_BY, keys::REQUESTED_AT);
        assert_eq!(why(&serde_json::json!({ by: "alice", at: "2026-11-24T12:00:00Z" })), None);
        for (found, missing) in [
            (serde_json::json!({}), by),
            (serde_json::json!({ by: "", at: "2026-11-24T12:00:00Z" }), by),
            (serde_json::json!({ by: "alice" }), at),
        ] {
            assert!(why(&found).is_some_and(|why| why.contains(missing)), "{found}");
        }
    }

    #[test]
    fn a_status_that_is_held_back_is_written_in_time() {
        let years = Duration::from_hours(100 * 365 * 24);
        let millis = Duration::from_millis;
        for (more, due, later, expected) in [
            (false, None, None, None),
            (false, Some(years), None, Some(years)),
            // The last claim has ended within a second of a status write: only notAfter is due.
            (false, Some(years), Some(millis(300)), Some(millis(300))),
            (false, Some(millis(100)), Some(millis(300)), Some(millis(100))),
            // No busy loop while the status has to wait.
            (false, Some(millis(0)), Some(millis(300)), Some(millis(300))),
            (false, Some(millis(0)), None, Some(millis(0))),
            (true, Some(years), Some(millis(300)), Some(AGAIN)),
        ] {
            assert_eq!(requeue(more, due, later), expected, "{more} {due:?} {later:?}");
        }
    }
}
