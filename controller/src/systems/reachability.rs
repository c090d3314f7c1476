//! Probes the API servers of clusters periodically, and reports in two conditions whether they are reachable. [`decide`]
//! judges the answers.
//!
//! It works on Hive's watch with a queue of its own, so that an API server that does not answer never holds up a power
//! state.

use std::sync::Arc;
use std::time::Duration;

use shared::hive::api::{ClusterDeployment, ip_override, url_override};
use shared::hive::conditions::UNREACHABLE;
use shared::hive::reachability::{Answer, Facts, LastAttempt, Plan, Url, decide, needs};
use shared::spoke::SpokeError;
use tracing::info;

use crate::runtime::hub::full_name;
use crate::runtime::{Done, Handle, Hub, Observed, ReconcileError, Reconciled, Settings, System, Target, clock, slot};
use crate::spoke::{self, Network, Route, kubeconfig};
use fair::FairLimit;

/// How long an answer may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Concurrent background probes, in total and per namespace.
const BACKGROUND_PROBES: (usize, usize) = (64, 48);

/// The system.
pub struct Reachability {
    handle: Handle<ClusterDeployment>,
    /// How spokes are reached.
    network: Network,
    /// Turns for probes in the background.
    turns: Arc<FairLimit>,
}

impl Reachability {
    /// Works on the objects of this watch.
    pub fn new(handle: Handle<ClusterDeployment>, network: Network) -> Self {
        let (most, of_one) = BACKGROUND_PROBES;
        Self { handle, network, turns: FairLimit::new(most, of_one) }
    }
}

/// What is remembered of one cluster. Losing it costs one probe.
#[derive(Clone, Copy, Debug, Default)]
pub struct TargetState {
    tried: Option<LastAttempt>,
}

impl System for Reachability {
    type Object = ClusterDeployment;
    type State = TargetState;
    type Facts<'a> = Facts<'a>;
    type Plan = Plan;

    const NAME: &'static str = "reachability";
    const ACTION: &'static str = "Reachability";
    // The timeout is for two probes, two reads of the kubeconfig and a write.
    const SETTINGS: Settings = Settings { concurrency: 256, retry: 5_000..10_000, ..Settings::OWN };

    async fn observe<'a>(
        &self,
        cluster: &'a Self::Object,
        target: &mut Target<Self>,
    ) -> Reconciled<Observed<Self::Facts<'a>>> {
        let state = &mut target.state;
        let mut facts = Facts { cluster, primary: None, initial: None, tried: state.tried, now: clock::now() };
        while let Some(ask) = needs(&facts) {
            let turn = if ask.urgent { None } else { self.turns.try_acquire(&self.tenant(cluster)) };
            if turn.is_none() && !ask.urgent {
                return Ok(Observed::Rest(Some(Duration::from_millis(rand::random_range(2_000..10_000)))));
            }
            let answer = probe(self, cluster, ask.url).await?;
            self.handle.hub.metrics.probed(answer.is_ok());
            facts.answered(ask.url, answer, clock::now());
            state.tried = facts.tried;
        }
        Ok(Observed::Facts(facts))
    }

    fn decide(&self, facts: &Facts<'_>) -> Plan {
        decide(facts)
    }

    async fn report(&self, seen: &mut Self::Facts<'_>, plan: &mut Plan, target: &mut Target<Self>) -> Reconciled<Done> {
        let cluster = seen.cluster;
        // Later, never sooner: before its time a reconcile finds nothing to do.
        let jittered = |pause: Duration| pause.mul_f64(rand::random_range(1.0..1.1)) + Duration::from_millis(20);
        let requeue = plan.requeue.map(jittered);
        let Some(patch) = plan.patch(cluster, seen.now) else { return Ok(Done { requeue, changed: false }) };
        let written = self.handle.hub.patch_status(cluster, patch).await.map_err(ReconcileError::status)?;
        target.wrote(&written);
        log_change(cluster, &written);
        Ok(Done { requeue, changed: true })
    }

    /// Its reconciles are not counted among those of power states.
    fn measured(&self, _: &Hub, _: &'static str, _: Duration) {}
}

/// Logs what a write has changed.
fn log_change(before: &ClusterDeployment, after: &ClusterDeployment) {
    let status = |cluster: &ClusterDeployment| cluster.condition(UNREACHABLE).map(|condition| condition.status.clone());
    let message = after.message(UNREACHABLE);
    if status(after) != status(before) || message != before.message(UNREACHABLE) {
        info!(cluster = full_name(after), unreachable = status(after), says = message, "reachability written");
    }
}

/// Asks an API server for its version: one small request, which every API server answers to its administrator.
async fn probe(reachability: &Reachability, cluster: &ClusterDeployment, url: Url) -> Reconciled<Answer> {
    let route = Route { url: url_override(cluster).filter(|_| url == Url::Primary), ip: ip_override(cluster) };
    let kubeconfig = match kubeconfig::read(&reachability.handle.hub.client, cluster).await {
        Ok((kubeconfig, _)) => kubeconfig,
        Err(SpokeError::Kubeconfig(why)) => return Ok(Err(why)),
        Err(error) => return Err(ReconcileError::spoke("read the kubeconfig")(error)),
    };
    let probe = async {
        let client = spoke::client(&reachability.network, kubeconfig::consumer(cluster), &kubeconfig, &route).await?;
        client.version().await.map_err(|error| spoke::failure(&error))
    };
    let answer = slot::outside(tokio::time::timeout(PROBE_TIMEOUT, probe)).await.unwrap_or_else(|_| {
        Err(SpokeError::Unreachable(format!("the cluster's API server does not answer within {PROBE_TIMEOUT:?}")))
    });
    Ok(answer.map_err(|error| error.to_string()))
}
