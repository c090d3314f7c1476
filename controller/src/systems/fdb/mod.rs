//! FoundationDB: observes what is being removed of a cluster, decides, stamps and releases. [`decide`] judges what
//! is held, and how long.
//!
//! Only the clusters themselves are watched. Pods, PVCs and Services are listed of a cluster of which something is
//! being removed, and only while that lasts.

mod act;
mod observe;
mod report;
#[cfg(test)]
mod tests;

use std::time::Duration;

use kube::ResourceExt;
use shared::annotation::keys;
use shared::fdb::api::FoundationDBCluster;
use shared::fdb::decide::{Facts, Plan, Turn, concerns, decide};
use shared::fdb::suspension::Minimum;
use tokio::time::Instant;

use crate::runtime::hub::key_of;
use crate::runtime::{Acted, Done, Handle, Key, Observed, Reconciled, Settings, System, Target, clock};

/// Between two reconciles of one cluster of which something is held: no watch reports a stamp that a user removed.
const HELD_PERIOD: Duration = Duration::from_mins(1);
/// Between two lists of one cluster's objects: an operator at work writes its status many times a second.
const LIST_PERIOD: Duration = Duration::from_millis(500);

/// The system.
pub struct Fdb {
    handle: Handle<FoundationDBCluster>,
    /// How long removed groups are kept of clusters that do not say.
    minimum: Duration,
}

impl Fdb {
    /// Keeps removed groups for `minimum`, unless their cluster says otherwise.
    pub fn new(handle: Handle<FoundationDBCluster>, minimum: Duration) -> Self {
        Self { handle, minimum }
    }
}

/// What is remembered of a cluster between two reconciles. Losing it costs a list and a wait.
#[derive(Default)]
pub struct TargetState {
    /// The last release.
    turn: Option<Turn>,
    /// When its objects were last listed.
    listed: Option<Instant>,
    /// Whether something of it was held then.
    holds: bool,
}

/// Facts, and what came of acting on them.
pub struct Observation<'a> {
    facts: Facts<'a>,
    done: act::Done,
}

impl System for Fdb {
    type Object = FoundationDBCluster;
    type State = TargetState;
    type Facts<'a> = Observation<'a>;
    type Plan = Plan;

    const NAME: &'static str = "fdb";
    const ACTION: &'static str = "Suspension";
    const SETTINGS: Settings = Settings { page_size: 20, concurrency: 16, ..Settings::SLOW };

    async fn observe<'a>(
        &self,
        cluster: &'a Self::Object,
        target: &mut Target<Self>,
    ) -> Reconciled<Observed<Self::Facts<'a>>> {
        let state = &mut target.state;
        // The first reconcile of each cluster finds what was left behind while there was no leader.
        let first = state.listed.is_none();
        let gone = cluster.metadata.deletion_timestamp.is_some();
        if gone || !(first || state.holds || concerns(cluster.groups())) {
            return Ok(Observed::Rest(None));
        }
        let ago = state.listed.map_or(LIST_PERIOD, |listed| listed.elapsed());
        if ago < LIST_PERIOD {
            return Ok(Observed::Rest(Some(LIST_PERIOD.saturating_sub(ago))));
        }
        let (pods, objects) = observe::list(self, cluster).await?;
        state.listed = Some(Instant::now());
        let annotation = cluster.annotations().get(keys::MINIMUM_SUSPENSION).map(String::as_str);
        let facts = Facts {
            cluster,
            minimum: Minimum::of(annotation, self.minimum),
            pods,
            objects,
            turn: state.turn.clone(),
            // A state that was dropped has forgotten the last release, as a new leader has.
            began: target.forgot_at.map_or(self.handle.hub.began_at, |at| at.max(self.handle.hub.began_at)),
            now: clock::now(),
        };
        Ok(Observed::Facts(Observation { facts, done: act::Done::default() }))
    }

    fn decide(&self, observation: &Observation<'_>) -> Plan {
        decide(&observation.facts)
    }

    /// A release whose outcome is unknown counts as done.
    fn remember(&self, plan: &Plan, state: &mut TargetState) {
        state.turn.clone_from(&plan.turn);
        state.holds = true;
    }

    async fn act(&self, observation: &mut Self::Facts<'_>, plan: &mut Plan, _: &mut Target<Self>) -> Reconciled<Acted> {
        observation.done = act::run(self, &observation.facts, plan).await;
        Ok(Acted::Nothing)
    }

    async fn report(&self, seen: &mut Self::Facts<'_>, plan: &mut Plan, target: &mut Target<Self>) -> Reconciled<Done> {
        let Observation { facts, done } = seen;
        report::done(self, facts, plan, &done.written).await;
        if let Some(error) = done.failure.take() {
            return Err(error);
        }
        let changed = !plan.actions.is_empty();
        let holds = plan.held + plan.waiting + plan.released > 0 || plan.requeue.is_some() || changed;
        target.state.holds = holds;
        self.handle.hub.metrics.fdb.set(&key_of(facts.cluster), plan);
        let requeue = plan.requeue.map_or(HELD_PERIOD, |pause| pause.min(HELD_PERIOD));
        Ok(Done { requeue: holds.then_some(requeue), changed })
    }

    fn forget(&self, key: &Key) {
        self.handle.hub.metrics.fdb.forget(key);
    }
}
