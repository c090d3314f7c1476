//! Hive: observes a `ClusterDeployment`, its machines and its spoke, and carries out what [`decide`] wants of its power
//! state.

mod act;
mod cluster_sync;
mod conflict_detector;
mod csr_approval;
mod drivers;
mod observe;
mod ownership;
mod preflight;
mod report;
mod spokes;
mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use shared::hive::api::ClusterDeployment;
use shared::hive::conditions::HIBERNATING;
use shared::hive::decide::{self, Facts, Notice, Plan, Requeue, SyncSetState, sleep_history};
use shared::hive::identity::{Identity, Older};
use tokio::time::Instant;
use tracing::{info, warn};

use self::cluster_sync::ClusterSyncs;
pub use self::drivers::Drivers;
pub use self::ownership::Ownership;
use self::state::TargetState;
use crate::runtime::events::EventOnce;
use crate::runtime::hub::{full_name, key_of};
use crate::runtime::{
    Acted, Class, Done, Handle, Hub, Key, Observed, ReconcileError, Reconciled, Settings, System, clock,
};
use crate::spoke::Network;

/// What the harness keeps of one cluster.
type Target = crate::runtime::Target<Hive>;

/// Clusters of one page of the first list. While a page is read it takes several times the memory of what is kept of
/// it.
const PAGE_SIZE: u32 = 50;

/// Requeues are aligned to multiples of this: a hundred clusters in transition then share a few calls a round.
const REQUEUE_STEP: Duration = Duration::from_millis(250);

/// How long a reconcile takes by itself: a requeue 1.7 s after its end is one 2 s after its beginning.
const RECONCILE_DURATION: Duration = Duration::from_millis(300);

/// A write that was held back because another one had just been made follows after this time.
const DEFERRED_WRITE_DELAY: Duration = Duration::from_secs(2);

/// Requeue delay until all objects are listed: before that nothing tells whose machines are whose.
const UNLISTED_DELAY: Duration = Duration::from_secs(1);

/// Requeue delay of a cluster whose machines an abandoned call may still reach.
const UNSURE_PERIOD: Duration = Duration::from_secs(5);

/// The system.
pub struct Hive {
    handle: Handle<ClusterDeployment>,
    clouds: Drivers,
    ownership: Arc<Ownership>,
    /// How spokes are reached.
    network: Network,
    settings: decide::Settings,
    concurrency: u16,
    cluster_syncs: ClusterSyncs,
}

/// Facts, and the outcome of the actions.
pub struct Observation<'a> {
    facts: Facts<'a>,
    /// The object, if an action has written it.
    written: Option<ClusterDeployment>,
    /// Whether the plan had actions.
    acted: bool,
}

impl Hive {
    /// Reconciles at most `concurrency` clusters of one namespace at once. `ownership` follows the same watch.
    pub fn new(
        handle: Handle<ClusterDeployment>,
        clouds: Drivers,
        ownership: Arc<Ownership>,
        network: Network,
        settings: decide::Settings,
        concurrency: u16,
    ) -> Self {
        let cluster_syncs = ClusterSyncs::default();
        Self { handle, clouds, ownership, network, settings, concurrency, cluster_syncs }
    }

    /// Whether the watch has brought another desired state since `decided` was read, or an older object that names its
    /// machines.
    fn is_outdated(&self, decided: &ClusterDeployment) -> bool {
        if self.ownership.older_than(decided).is_some() {
            return true;
        }
        let newest = self.handle.newest(key_of(decided));
        let Some(newest) = newest.as_ref().and_then(|newest| newest.0.as_ref().ok()) else { return false };
        newest.metadata.uid != decided.metadata.uid
            || (newest.metadata.generation > decided.metadata.generation && newest.desired() != decided.desired())
    }

    fn sync(&self, cluster: &ClusterDeployment, state: &mut TargetState) -> SyncSetState {
        self.cluster_syncs.of(&key_of(cluster), cluster.metadata.uid.as_deref(), &mut state.sync_missed_since)
    }
}

/// The older object that names the machines of `cluster`. Only the log names it whatever its namespace.
async fn older_than(hive: &Hive, cluster: &ClusterDeployment) -> Option<Older> {
    let is_per_account = Identity::of(cluster).is_some_and(|identity| identity.is_per_account());
    if is_per_account && hive.ownership.older_than(cluster).is_some() {
        // If it fails, nothing tells the two apart.
        let _ = Box::pin(observe::list(hive, cluster)).await;
    }
    let older = hive.ownership.older_than(cluster)?;
    let name = full_name(cluster);
    if let Some(left_out) = hive.handle.hub.warnings.due("machines", &name) {
        let older = full_name(&*older);
        warn!(cluster = name, older, left_out, "an older object names the same machines: left to it");
    }
    Some(Older::seen_from(cluster, older.0.as_ref().ok()?))
}

impl System for Hive {
    type Object = ClusterDeployment;
    type State = TargetState;
    type Facts<'a> = Observation<'a>;
    type Plan = Plan;

    const NAME: &'static str = "hive";
    const ACTION: &'static str = "PowerState";
    const SETTINGS: Settings = Settings { page_size: PAGE_SIZE, timeout: Duration::from_mins(3), ..Settings::OWN };

    fn concurrency(&self) -> u16 {
        self.concurrency
    }

    async fn observe<'a>(
        &self,
        cluster: &'a Self::Object,
        target: &mut Target,
    ) -> Reconciled<Observed<Self::Facts<'a>>> {
        // Thousands of reconciles may wait for company at once: what is rarely needed is in boxes.
        let state = &mut target.state;
        if !self.ownership.is_listed() {
            return Ok(Observed::Rest(Some(UNLISTED_DELAY)));
        }
        let sync = self.sync(cluster, state);
        let older = older_than(self, cluster).await;
        if let Some(left) = state.remaining_rest(cluster, sync, older.as_ref()) {
            if !Box::pin(has_new_credentials(self, cluster, state)).await {
                return Ok(Observed::Rest(Some(state.until_next(left))));
            }
            info!(cluster = full_name(cluster), "credentials have changed");
            self.clouds.doubt(cluster);
            state.trust_again();
        }
        if let Some(left) = state.conflicts.left_alone(cluster, Instant::now()) {
            Box::pin(notice(self, cluster, state, Some(&Notice::another_controller()))).await;
            return Ok(Observed::Rest(Some(state.notice.retry_in().map_or(left, |retry| retry.min(left)))));
        }
        let facts = observe::facts(self, cluster, sync, older, state).await;
        Ok(Observed::Facts(Observation { facts, written: None, acted: false }))
    }

    fn decide(&self, observation: &Observation<'_>) -> Plan {
        decide::decide(&observation.facts)
    }

    async fn act(&self, observation: &mut Self::Facts<'_>, plan: &mut Plan, target: &mut Target) -> Reconciled<Acted> {
        let actions = std::mem::take(&mut plan.actions);
        observation.written = Box::pin(act::run(self, &mut observation.facts, target, &actions)).await?;
        observation.acted = !actions.is_empty();
        Ok(if observation.acted { Acted::Changed } else { Acted::Nothing })
    }

    fn decide_again(&self, observation: &Observation<'_>, first: Plan) -> Plan {
        decide::decide_again(&observation.facts, first)
    }

    async fn report(&self, seen: &mut Self::Facts<'_>, plan: &mut Plan, target: &mut Target) -> Reconciled<Done> {
        let Observation { facts, written, acted } = seen;
        notice(self, facts.cluster, &mut target.state, plan.notice.as_ref()).await;
        if let Some(status) = record(self, facts, written.as_ref().unwrap_or(facts.cluster), target, plan).await? {
            *written = Some(status);
        }
        target.state.conflicts.wrote(written.as_ref().unwrap_or(facts.cluster));
        Ok(Done { requeue: None, changed: written.is_some() || *acted })
    }

    async fn act_after_report(
        &self,
        Observation { facts, written, .. }: &mut Self::Facts<'_>,
        plan: &Plan,
        reported: Done,
        target: &mut Target,
    ) -> Reconciled<Done> {
        let before = written.as_ref().unwrap_or(facts.cluster);
        let answered = act::after_report(self, facts, before, target, plan).await?;
        let cluster = answered.as_ref().unwrap_or(before);
        let requeue = requeue(self, &mut target.state, cluster, facts, plan);
        if cluster.metadata.deletion_timestamp.is_some() {
            target.state = TargetState::default();
            self.forget(&key_of(cluster));
        } else {
            count(self, cluster);
        }
        Ok(Done { requeue, changed: reported.changed || answered.is_some() })
    }

    fn failed(&self, state: &mut TargetState, class: Class) {
        state.failed(matches!(class, Class::Failed | Class::TimedOut));
        // A cloud call may still be in flight after its caller gave up.
        if matches!(class, Class::TimedOut | Class::Outdated) {
            state.gave_up_calls();
        }
    }

    fn forget(&self, key: &Key) {
        self.handle.hub.metrics.forget(key);
    }

    fn measured(&self, hub: &Hub, outcome: &'static str, took: Duration) {
        hub.metrics.reconciled(Self::NAME, outcome, took);
        hub.metrics.reconciled_as_hive(outcome, took);
    }

    async fn follow(&self) {
        let syncs = self.cluster_syncs.follow(&self.handle.hub, |key| self.handle.trigger(key));
        tokio::join!(syncs, self.ownership.follow(|key| self.handle.trigger(key)));
    }
}

/// Counts the cluster under its power state, and how long it was in the one before.
fn count(hive: &Hive, cluster: &ClusterDeployment) {
    let asleep = cluster.true_since(HIBERNATING).map(|since| clock::now().duration_since(since));
    let metrics = &hive.handle.hub.metrics;
    metrics.count(&key_of(cluster), cluster.power_state(), asleep);
    // The ledger of a cluster that is awake is not read.
    match asleep {
        Some(_) => metrics.savings.set_machines(&key_of(cluster), &sleep_history(cluster)),
        None => metrics.savings.forget(&key_of(cluster)),
    }
}

/// Whether the Secret that the cloud refused has another version by now. Nothing is read before a refusal.
async fn has_new_credentials(hive: &Hive, cluster: &ClusterDeployment, state: &TargetState) -> bool {
    match state.refused() {
        Some(version) => hive.clouds.are_new(cluster, version).await,
        None => false,
    }
}

/// Writes the status, if it differs. Returns the object if it was written.
///
/// The machines of a cluster move within moments of each other: a status that only names fewer of them is held back
/// once, and the next reconcile mostly has more to say.
async fn record(
    hive: &Hive,
    facts: &Facts<'_>,
    cluster: &ClusterDeployment,
    target: &mut Target,
    plan: &Plan,
) -> Reconciled<Option<ClusterDeployment>> {
    let Some(patch) = plan.status.as_ref().and_then(|status| status.patch(cluster, facts.now)) else {
        target.state.names_held_back = false;
        return Ok(None);
    };
    let soon = matches!(plan.requeue, Requeue::After(pause) if pause <= DEFERRED_WRITE_DELAY);
    let names = soon && plan.status.as_ref().is_some_and(|status| status.only_names_machines(cluster));
    target.state.names_held_back = names && !target.state.names_held_back;
    if target.state.names_held_back {
        return Ok(None);
    }
    let written = hive.handle.hub.patch_status(cluster, patch).await.map_err(ReconcileError::status)?;
    report::transition(hive, cluster, &written).await;
    target.wrote(&written);
    Ok(Some(written))
}

/// Publishes once what the status cannot show.
async fn notice(hive: &Hive, cluster: &ClusterDeployment, state: &mut TargetState, notice: Option<&Notice>) {
    let Some(notice) = notice else {
        state.notice = EventOnce::default();
        return;
    };
    let published = report::notice(hive, cluster, notice);
    state.notice.publish(&hive.handle.hub.metrics, Hive::NAME, notice.reason, published).await;
}

/// When to reconcile again; until then the object needs no reconcile as it stands.
///
/// Reconciles of clusters in transition are spread; those of steady ones are aligned, because they share calls to the
/// cloud.
fn requeue(
    hive: &Hive,
    state: &mut TargetState,
    cluster: &ClusterDeployment,
    facts: &Facts<'_>,
    plan: &Plan,
) -> Option<Duration> {
    let (elapsed, steady) = (hive.handle.hub.began.elapsed(), hive.settings.steady);
    let pause = match plan.requeue {
        Requeue::OnChange => None,
        Requeue::After(pause) if pause == steady => Some(in_step(elapsed, Duration::ZERO, steady)),
        Requeue::After(pause) if pause < REQUEUE_STEP => Some(pause),
        Requeue::After(pause) => Some(in_step(elapsed, pause.saturating_sub(RECONCILE_DURATION), REQUEUE_STEP)),
        Requeue::Retry(pause) => Some(in_step(elapsed, pause, REQUEUE_STEP)),
    };
    let due = plan.due.map(|due| due + Duration::from_millis(50));
    let later =
        plan.status.as_ref().is_some_and(|status| status.defers_progress(cluster)).then_some(DEFERRED_WRITE_DELAY);
    let unsure = state.is_unsure().then_some(UNSURE_PERIOD);
    let pause = [pause, due, later, unsure, state.notice.retry_in()].into_iter().flatten().min()?;
    state.set_rest(cluster, facts.sync, facts.identity_taken.as_ref(), pause);
    Some(state.until_next(pause))
}

/// At least `pause`, up to the next multiple of `step`: targets that wait about as long are listed by one call.
fn in_step(elapsed: Duration, pause: Duration, step: Duration) -> Duration {
    let step = step.as_nanos().max(1);
    let past = (elapsed + pause).as_nanos() % step;
    pause + Duration::from_nanos(u64::try_from(step - past).unwrap_or(u64::MAX))
}
