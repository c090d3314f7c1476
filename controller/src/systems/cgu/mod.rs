//! TALM's `ClusterGroupUpgrades`, for hubs where TALM does not run: observes and acts for `shared::cgu::decide`.
//!
//! All state is in TALM's own status: a new leader goes on from it, and so does TALM.

mod act;
mod api;
pub mod graph;
pub mod index;
pub mod sleepers;
mod talm;
#[cfg(test)]
mod tests;
mod views;
mod ztp;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::EventType;
use kube::{Resource as _, ResourceExt};
use serde_json::json;
use shared::cgu::api::{ClusterGroupUpgrade, ClusterGroupUpgradeStatus, Reference, status_patch};
use shared::cgu::blockers::cycle;
use shared::cgu::conditions::PROGRESSING;
use shared::cgu::decide::{Blockers, FINALIZER, Facts, Plan, decide, rolls_out_works};
use shared::cgu::events::Event;
use shared::cgu::phase::UpgradePhase;
use shared::cgu::wire::ManagedClusterObject;
use shared::duration::age;
use shared::text::sanitize;
use tokio::time::Instant;
use tracing::info;

use self::api::reference;
use self::graph::Graphs;
use self::index::{GovernanceIndex, has_started, trigger};
use self::sleepers::Sleepers;
use self::talm::Talm;
use self::views::RecentActs;
use crate::runtime::events::{Details, EventOnce, full_name};
use crate::runtime::hub::key_of;
use crate::runtime::{Acted, Done, Handle, Observed, ReconcileError, Reconciled, Settings, System, Target, clock};

/// Event writes in flight: a batch of a hundred clusters starts with a hundred Events.
const EVENTS_AT_ONCE: usize = 16;
const METRICS_INTERVAL: Duration = Duration::from_secs(5);
/// Requeue while lists are incomplete; the last list triggers a reconcile sooner.
const UNLISTED_RETRY: Duration = Duration::from_secs(5);

pub struct Upgrades {
    handle: Handle<ClusterGroupUpgrade>,
    index: Arc<GovernanceIndex>,
    sleepers: Arc<Sleepers>,
    settings: Arc<CguSettings>,
    talm: Arc<Talm>,
}

/// What the administrator sets by flags.
pub struct CguSettings {
    /// A cluster that has run for less than this counts as asleep.
    pub settle: Duration,
    pub talm_namespace: String,
    /// The image that pulls other images. Without it `preCaching` is not served.
    pub precache_image: Option<String>,
    pub graphs: Graphs,
}

impl Upgrades {
    pub fn new(
        handle: Handle<ClusterGroupUpgrade>,
        index: Arc<GovernanceIndex>,
        sleepers: Arc<Sleepers>,
        settings: Arc<CguSettings>,
    ) -> Self {
        let talm = Arc::new(Talm::new(settings.talm_namespace.clone()));
        Self { handle, index, sleepers, settings, talm }
    }
}

#[derive(Default)]
pub struct TargetState {
    /// Why it is skipped.
    skipped: EventOnce,
    recent: RecentActs,
    /// The hub serves no views.
    no_views: EventOnce,
}

impl System for Upgrades {
    type Object = ClusterGroupUpgrade;
    type State = TargetState;
    type Facts<'a> = Facts<'a>;
    type Plan = Plan;

    const NAME: &'static str = "cgu";
    const ACTION: &'static str = "ClusterGroupUpgrade";
    // Each upgrade of a page may have half a megabyte of names. The timeout is enough for a write to each of some thousand
    // clusters.
    const SETTINGS: Settings =
        Settings { page_size: 10, concurrency: 8, timeout: Duration::from_mins(5), ..Settings::QUICK };

    async fn observe<'a>(
        &self,
        upgrade: &'a ClusterGroupUpgrade,
        target: &mut Target<Self>,
    ) -> Reconciled<Observed<Facts<'a>>> {
        if let Some((left, is_active)) = self.talm.standby() {
            let retry = if is_active { self.skip(upgrade, "TalmActive", target).await } else { None };
            return Ok(Observed::Rest(Some(retry.map_or(left, |retry| retry.min(left)))));
        }
        // An upgrade that is skipped can still be deleted.
        let is_deleted = upgrade.metadata.deletion_timestamp.is_some();
        if !is_deleted && rolls_out_works(upgrade) {
            return Ok(Observed::Rest(self.skip(upgrade, "NotServed", target).await));
        }
        if !is_deleted && uses_placement_rules(upgrade) {
            return Ok(Observed::Rest(self.skip(upgrade, "PlacementRules", target).await));
        }
        let Some(governance) = self.index.snapshot() else { return Ok(Observed::Rest(Some(UNLISTED_RETRY))) };
        if !is_deleted && governance.is_old() {
            return Ok(Observed::Rest(self.skip(upgrade, "OldDefinition", target).await));
        }
        target.state.skipped = EventOnce::default();
        let installs = upgrade.status.as_ref().is_some_and(|status| !status.managed_policies_content.is_empty());
        let needs_views = (installs || upgrade.spec.pre_caching) && !is_over(upgrade);
        if needs_views && governance.has_no_views {
            let note = "the hub does not serve ManagedClusterViews: no InstallPlan is approved, and no image is pulled";
            let about = upgrade.object_ref(&());
            self.publish_once(&mut target.state.no_views, &about, EventType::Warning, "NotServed", note).await;
        } else {
            target.state.no_views = EventOnce::default();
        }
        let now = clock::now();
        let Some((asleep, settles_at)) = self.sleepers.asleep(now, self.settings.settle) else {
            return Ok(Observed::Rest(Some(UNLISTED_RETRY)));
        };
        let releases = if upgrade.spec.pre_caching { self.settings.graphs.images() } else { BTreeMap::new() };
        // Only an upgrade that has not started waits for others.
        let (blockers, cycle) = if has_started(upgrade) { Default::default() } else { self.blockers(upgrade) };
        let pull_image = self.settings.precache_image.clone();
        let facts = Facts { now, upgrade, governance, blockers, cycle, asleep, settles_at, pull_image, releases };
        Ok(Observed::Facts(facts))
    }

    fn decide(&self, facts: &Facts<'_>) -> Plan {
        decide(facts)
    }

    async fn act(&self, facts: &mut Self::Facts<'_>, plan: &mut Plan, target: &mut Target<Self>) -> Reconciled<Acted> {
        if let Some(release) = plan.lookup.take() {
            self.settings.graphs.look_up(&release).await;
            facts.releases = self.settings.graphs.images();
            *plan = decide(facts);
        }
        plan.acts.retain(|act| !target.state.recent.repeats(act));
        let started = Instant::now();
        act::execute(self, facts, &plan.acts).await?;
        target.state.recent.extend(&plan.acts, started);
        Ok(Acted::Nothing)
    }

    async fn report(&self, seen: &mut Self::Facts<'_>, plan: &mut Plan, target: &mut Target<Self>) -> Reconciled<Done> {
        let upgrade = seen.upgrade;
        let none = ClusterGroupUpgradeStatus::default();
        let patch = status_patch(upgrade.status.as_ref().unwrap_or(&none), &plan.status);
        let mut changed = !plan.acts.is_empty();
        if let Some(patch) = patch {
            let written = self.handle.hub.merge_status(upgrade, patch).await.map_err(ReconcileError::status)?;
            target.wrote(&written);
            changed = true;
        }
        if let Some(is_added) = plan.finalizer {
            let others = upgrade.finalizers().iter().filter(|one| *one != FINALIZER).cloned();
            let finalizers: Vec<String> = others.chain(is_added.then(|| FINALIZER.to_owned())).collect();
            let patch = json!({ "metadata": { "finalizers": finalizers } });
            let written = self.handle.hub.patch(upgrade, patch).await.map_err(ReconcileError::status)?;
            target.wrote(&written);
            changed = true;
        }
        let events = stream::iter(&plan.events);
        events.for_each_concurrent(EVENTS_AT_ONCE, |event| self.publish(upgrade, event)).await;
        let requeue = plan.requeue_at.map(|at| age(clock::now(), at));
        Ok(Done { requeue: requeue.into_iter().chain(target.state.no_views.retry_in()).min(), changed })
    }

    async fn follow(&self) {
        self.handle.listed().await;
        let takeovers = async {
            loop {
                self.talm.released.notified().await;
                self.handle.objects().iter().for_each(|upgrade| self.handle.trigger(key_of(&**upgrade)));
            }
        };
        let wakes = async {
            loop {
                self.sleepers.changes.notified().await;
                trigger(&self.handle, |_| true);
            }
        };
        let metrics_loop = async {
            loop {
                let of = |upgrade: &ClusterGroupUpgrade| {
                    upgrade.status.as_ref().map_or(UpgradePhase::UpgradeNotStarted, UpgradePhase::of)
                };
                let all = self.handle.objects();
                let phases: Vec<UpgradePhase> = all.iter().filter_map(|one| one.0.as_ref().ok().map(of)).collect();
                let metrics = &self.handle.hub.metrics.upgrades;
                metrics.set(&phases);
                metrics.talm_active.set(i64::from(self.talm.standby().is_some_and(|(_, is_active)| is_active)));
                tokio::time::sleep(METRICS_INTERVAL).await;
            }
        };
        tokio::join!(
            self.index.follow(&self.handle),
            self.talm.follow(&self.handle.hub),
            takeovers,
            wakes,
            metrics_loop,
            ztp::follow(self)
        );
    }
}

impl Upgrades {
    /// The upgrades that block this one, and the cycle that they form with it.
    fn blockers(&self, upgrade: &ClusterGroupUpgrade) -> (Blockers, Vec<Reference>) {
        let newest = |blocker: &Reference| self.handle.newest((blocker.namespace.clone(), blocker.name.clone()));
        // One that has started does not wait any more.
        let of = |blocker: &Reference| {
            let found = newest(blocker);
            let waits = found.as_ref().and_then(|found| found.0.as_ref().ok()).filter(|found| !has_started(found));
            waits.map(|found| found.spec.blocking_crs.clone()).unwrap_or_default()
        };
        let all = upgrade.spec.blocking_crs.iter();
        let all = all.filter_map(|blocker| Some((blocker.clone(), newest(blocker)?))).collect();
        (all, cycle(&Reference::to(upgrade), of))
    }

    async fn publish(&self, upgrade: &ClusterGroupUpgrade, event: &Event) {
        let text = event.render(&upgrade.name_any());
        let kind = if text.is_warning { EventType::Warning } else { EventType::Normal };
        let cluster = event.cluster().map(|name| (String::new(), name.to_owned()));
        let related = cluster.map(|key| reference::<ManagedClusterObject>(key, None));
        let details = Details { annotations: text.annotations, related, controller: Some("ClusterGroupUpgrade") };
        let what = (text.action, text.reason);
        self.handle.hub.metrics.noticed(Self::NAME, text.reason);
        self.publish_about(&upgrade.object_ref(&()), kind, what, &text.note, details).await;
    }

    /// Publishes an Event that TALM does not have, once.
    async fn publish_once(
        &self,
        once: &mut EventOnce,
        about: &ObjectReference,
        kind: EventType,
        reason: &'static str,
        note: &str,
    ) {
        let published = self.publish_about(about, kind, (Self::ACTION, reason), note, Details::default());
        once.publish(&self.handle.hub.metrics, Self::NAME, reason, published).await;
    }

    async fn publish_about(
        &self,
        about: &ObjectReference,
        kind: EventType,
        what: (&'static str, &'static str),
        note: &str,
        details: Details,
    ) -> bool {
        info!(object = full_name(about), reason = what.1, "{}", sanitize(note));
        self.handle.hub.events.publish_annotated(about, kind, what, note, details).await
    }

    /// Publishes once why an upgrade is skipped. Returns when to try again, if the Event could not be written.
    async fn skip(
        &self,
        upgrade: &ClusterGroupUpgrade,
        reason: &'static str,
        target: &mut Target<Self>,
    ) -> Option<Duration> {
        if is_over(upgrade) {
            return None;
        }
        let note = match reason {
            "TalmActive" => "TALM renews its Lease: hibernate-controller leaves this upgrade to it",
            "OldDefinition" => {
                "the ClusterGroupUpgrade of this hub has no status.placements: install the definition of TALM 5.0, or \
                 let the TALM run that came with it"
            }
            "NotServed" => {
                "TALM began this upgrade and rolls out ManifestWorks, which hibernate-controller does not serve: let TALM \
                 finish it, or delete it"
            }
            _ => {
                "a TALM before 5.0 began this upgrade with PlacementRules: let that TALM finish it, or delete it and \
                 create it again"
            }
        };
        let about = upgrade.object_ref(&());
        self.publish_once(&mut target.state.skipped, &about, EventType::Normal, reason, note).await;
        target.state.skipped.retry_in()
    }
}

/// In progress with policies but without Placements: a TALM that writes `PlacementRules` has started it.
fn uses_placement_rules(upgrade: &ClusterGroupUpgrade) -> bool {
    upgrade.status.as_ref().is_some_and(|status| {
        status.is(PROGRESSING, "True")
            && !status.managed_policies_for_upgrade.is_empty()
            && status.placements.is_empty()
    })
}

/// Whether it has ended, including the cleanup.
fn is_over(upgrade: &ClusterGroupUpgrade) -> bool {
    upgrade.status.as_ref().is_some_and(|status| status.status.completed_at.is_some())
}
