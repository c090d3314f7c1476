//! TALM's `ClusterGroupUpgrades`, for hubs where TALM does not run: what `shared::cgu` decides is carried out here.
//!
//! All state is in TALM's own status: a new leader goes on from it, and so does TALM. Policies, clusters and Placements
//! are kept as one small entry each.

mod act;
mod observe;
mod sleepers;
mod talm;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::events::EventType;
use serde_json::json;
use shared::cgu::api::{ClusterGroupUpgrade, ClusterGroupUpgradeStatus, Reference, status_patch};
use shared::cgu::conditions::PROGRESSING;
use shared::cgu::decide::{FINALIZER, Facts, Plan, decide};
use shared::rollout::timeline;
use tracing::info;

use self::observe::Snapshot;
pub use self::observe::{Governed, trim};
pub use self::sleepers::Sleepers;
use self::talm::Talm;
use crate::metrics::Noticed;
use crate::runtime::hub::{full_name, key_of};
use crate::runtime::{Acted, Done, Handle, Hub, Observed, ReconcileError, Settings, System, Target, clock};

/// Upgrades of one page of the first list: each may have half a megabyte of names.
const PAGE_SIZE: u32 = 10;
/// Upgrades of one namespace that are reconciled at once.
const CONCURRENCY: u16 = 8;
/// How long a reconcile may take: a write for each of some thousand clusters.
const RECONCILE_TIMEOUT: Duration = Duration::from_mins(5);
/// Until the lists are complete, an upgrade waits; the last of them calls for its reconcile.
const UNLISTED: Duration = Duration::from_secs(5);

/// The system.
pub struct Upgrades {
    handle: Handle<ClusterGroupUpgrade>,
    governed: Arc<Governed>,
    sleepers: Arc<Sleepers>,
    /// A cluster that has run for less than this counts as asleep.
    settle: Duration,
    talm: Talm,
}

impl Upgrades {
    /// Works on the upgrades of this watch, unless TALM does: its Lease is in this namespace.
    pub fn new(
        handle: Handle<ClusterGroupUpgrade>,
        governed: Arc<Governed>,
        sleepers: Arc<Sleepers>,
        settle: Duration,
        talm_namespace: String,
    ) -> Self {
        Self { handle, governed, sleepers, settle, talm: Talm::new(talm_namespace) }
    }
}

/// What is remembered of an upgrade between two reconciles.
#[derive(Default)]
pub struct TargetState {
    /// Why it was left alone, as an Event has said.
    left_alone: Option<&'static str>,
}

/// The facts of one reconcile.
pub struct Observation<'a> {
    upgrade: &'a ClusterGroupUpgrade,
    known: Snapshot,
    blockers: BTreeMap<Reference, ClusterGroupUpgradeStatus>,
    asleep: BTreeSet<String>,
    /// When the next cluster has run for long enough.
    settled: Option<Timestamp>,
    unplaced: Option<String>,
    now: Timestamp,
}

impl System for Upgrades {
    type Object = ClusterGroupUpgrade;
    type State = TargetState;
    type Facts<'a> = Observation<'a>;
    type Plan = Plan;

    const NAME: &'static str = "cgu";
    const ACTION: &'static str = "ClusterGroupUpgrade";

    fn settings(&self) -> Settings {
        Settings {
            page_size: PAGE_SIZE,
            concurrency: CONCURRENCY,
            timeout: RECONCILE_TIMEOUT,
            optional: true,
            conflict: 50..200,
            retry: 1_000..2_000,
        }
    }

    fn hub(&self) -> &Hub {
        &self.handle.hub
    }

    async fn observe<'a>(
        &self,
        upgrade: &'a ClusterGroupUpgrade,
        target: &mut Target<Self>,
    ) -> Result<Observed<Observation<'a>>, ReconcileError> {
        if let Some((left, is_active)) = self.talm.rests_for() {
            if is_active {
                self.leaves_alone(upgrade, "TalmActive", target).await;
            }
            return Ok(Observed::Rest(Some(left)));
        }
        if is_of_placement_rules(upgrade) {
            self.leaves_alone(upgrade, "PlacementRules", target).await;
            return Ok(Observed::Rest(None));
        }
        target.state.left_alone = None;
        let Some(known) = self.governed.snapshot() else { return Ok(Observed::Rest(Some(UNLISTED))) };
        let status = |blocker: &Reference| {
            let found = self.handle.newest((blocker.namespace.clone(), blocker.name.clone()))?;
            let found = found.0.as_ref().ok()?;
            Some((blocker.clone(), found.status.clone().unwrap_or_default()))
        };
        let blockers = upgrade.spec.blocking_crs.iter().filter_map(status).collect();
        let (unplaced, now) = (known.unplaced(upgrade), clock::now());
        let Some((asleep, settled)) = self.sleepers.asleep(now, self.settle) else {
            return Ok(Observed::Rest(Some(UNLISTED)));
        };
        Ok(Observed::Facts(Observation { upgrade, known, blockers, asleep, settled, unplaced, now }))
    }

    fn decide(&self, observation: &Observation<'_>) -> Plan {
        let Observation { upgrade, known, blockers, asleep, unplaced, now, .. } = observation;
        decide(&Facts {
            now: *now,
            upgrade,
            clusters: &known.clusters,
            roots: &known.roots,
            children: &known.children,
            blockers,
            unplaced: unplaced.as_deref(),
            asleep,
        })
    }

    async fn act(
        &self,
        observation: &mut Self::Facts<'_>,
        plan: &mut Plan,
        _: &mut Target<Self>,
    ) -> Result<Acted, ReconcileError> {
        act::carry_out(self, observation, &plan.acts).await?;
        Ok(Acted::Nothing)
    }

    async fn report(
        &self,
        observation: Self::Facts<'_>,
        plan: Plan,
        target: &mut Target<Self>,
    ) -> Result<Done, ReconcileError> {
        let upgrade = observation.upgrade;
        let before = upgrade.status.clone().unwrap_or_default();
        let patch = status_patch(&before, &plan.status);
        let mut changed = !plan.acts.is_empty();
        if let Some(patch) = patch {
            let written = self.hub().merge_status(upgrade, patch).await.map_err(ReconcileError::Status)?;
            target.wrote(&written);
            changed = true;
        }
        if let Some(is_kept) = plan.finalizer {
            let kept = upgrade.finalizers().iter().filter(|one| *one != FINALIZER).cloned();
            let finalizers: Vec<String> = kept.chain(is_kept.then(|| FINALIZER.to_owned())).collect();
            let patch = json!({ "metadata": { "finalizers": finalizers } });
            let written = self.hub().patch(upgrade, patch).await.map_err(ReconcileError::Status)?;
            target.wrote(&written);
            changed = true;
        }
        for event in &plan.events {
            self.publish(upgrade, event).await;
        }
        let next = [plan.next, observation.settled].into_iter().flatten().min();
        let requeue = next.map(|next| timeline::age(clock::now(), next));
        Ok(Done { requeue, changed })
    }

    async fn follow(&self) {
        self.handle.listed().await;
        let taken_over = async {
            loop {
                self.talm.gone.notified().await;
                self.handle.objects().iter().for_each(|upgrade| self.handle.trigger(key_of(&**upgrade)));
            }
        };
        let woken = async {
            loop {
                self.sleepers.changes.notified().await;
                observe::trigger(&self.handle, |_| true);
            }
        };
        tokio::join!(self.governed.follow(&self.handle), self.talm.follow(self.hub()), taken_over, woken);
    }
}

impl Upgrades {
    async fn publish(&self, upgrade: &ClusterGroupUpgrade, event: &shared::cgu::events::Event) {
        let found = event.render(&upgrade.name_any());
        let kind = if found.warns { EventType::Warning } else { EventType::Normal };
        self.say(upgrade, kind, (found.action, found.reason), &found.note, found.annotations).await;
    }

    async fn say(
        &self,
        upgrade: &ClusterGroupUpgrade,
        kind: EventType,
        what: (&'static str, &'static str),
        note: &str,
        annotations: BTreeMap<String, String>,
    ) {
        let name = full_name(upgrade);
        info!(upgrade = name, reason = what.1, "{note}");
        self.hub().metrics.notices.get_or_create(&Noticed { system: Self::NAME, reason: what.1 }).inc();
        let target = kube::Resource::object_ref(upgrade, &());
        self.hub().events.publish_annotated(&target, &name, kind, what, note, annotations).await;
    }

    /// Says once why nothing is done with an upgrade.
    async fn leaves_alone(&self, upgrade: &ClusterGroupUpgrade, reason: &'static str, target: &mut Target<Self>) {
        if target.state.left_alone.replace(reason) == Some(reason) || is_over(upgrade) {
            return;
        }
        let note = match reason {
            "TalmActive" => "TALM renews its Lease: hibernate-controller leaves this upgrade to it".to_owned(),
            _ => "a TALM before 5.0 began this upgrade with PlacementRules: let that TALM finish it, or delete it and \
                  create it again"
                .to_owned(),
        };
        self.say(upgrade, EventType::Normal, (Self::ACTION, reason), &note, BTreeMap::new()).await;
    }
}

/// Under way with policies and without Placements: a TALM that writes `PlacementRules` has begun it.
fn is_of_placement_rules(upgrade: &ClusterGroupUpgrade) -> bool {
    upgrade.status.as_ref().is_some_and(|status| {
        let is_under_way = status.condition(PROGRESSING).is_some_and(|found| found.status == "True");
        is_under_way && !status.managed_policies_for_upgrade.is_empty() && status.placements.is_empty()
    })
}

/// It has ended, and everything that follows an end was done.
fn is_over(upgrade: &ClusterGroupUpgrade) -> bool {
    upgrade.status.as_ref().is_some_and(|status| status.status.completed_at.is_some())
}

/// Whether an upgrade waits for another one.
fn is_blocked_by(upgrade: &ClusterGroupUpgrade, (namespace, name): &crate::runtime::Key) -> bool {
    upgrade.spec.blocking_crs.iter().any(|blocker| blocker.namespace == *namespace && blocker.name == *name)
        && key_of(upgrade) != (namespace.clone(), name.clone())
}
