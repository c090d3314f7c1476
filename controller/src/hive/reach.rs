//! Whether API servers can be reached: asked now and then, told in two conditions. What they mean is judged in `shared`.
//!
//! It looks at the same watch as the rest and keeps a queue of its own, so that an API server that does not answer never
//! holds up a power state.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use futures::channel::mpsc;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::Patch;
use kube::runtime::controller::{Action as Requeue, Config, Controller};
use kube::runtime::reflector::Store;
use shared::hive::api::ClusterDeployment;
use shared::hive::unreachable::{Answer, Facts, Tried, UNREACHABLE, Url, decide, ip_override, needs, url_override};
use shared::spoke::SpokeError;
use tokio::sync::Semaphore;
use tracing::{debug, info, warn};

use super::{Context, Guarded, Key, Watched, act, is_gone, is_overtaken, object_ref, spokes};
use crate::hub::{as_controller, full_name, key_of};
use crate::metrics::Probe;
use crate::spoke::{self, Route};

/// How long an answer may take.
const PROBE: Duration = Duration::from_secs(5);
/// Clusters that are looked at once.
const CONCURRENCY: u16 = 256;
/// Of these, those that are asked without anybody waiting for the answer.
const IN_BACKGROUND: usize = 64;

/// What looks have in common.
struct Reach {
    context: Arc<Context>,
    memories: Mutex<HashMap<Key, Memory>>,
    /// Turns for asking in the background.
    turns: Semaphore,
}

/// What is remembered of one cluster. Losing it costs one question.
#[derive(Clone, Copy, Debug, Default)]
struct Memory {
    tried: Option<Tried>,
    /// The resourceVersion that our last write returned.
    wrote: Option<u64>,
}

/// Why a look ended without a result.
#[derive(Debug, thiserror::Error)]
enum ReachError {
    /// The hub did not give the kubeconfig: that says nothing about the cluster.
    #[error("read the kubeconfig")]
    Hub(#[source] SpokeError),
    #[error("make the patch")]
    Patch(#[source] serde_json::Error),
    #[error("write the status")]
    Status(#[source] Box<kube::Error>),
}

/// Works until it is dropped. `changes` names each cluster that the watch behind `reader` has seen change.
pub(super) async fn run(context: Arc<Context>, reader: Store<Guarded>, changes: mpsc::UnboundedReceiver<Key>) {
    let reach = Reach { context, memories: Mutex::default(), turns: Semaphore::new(IN_BACKGROUND) };
    let looks = Controller::for_stream(futures::stream::pending(), reader)
        .with_config(Config::default().concurrency(CONCURRENCY))
        .reconcile_on(changes.map(object_ref))
        .run(look, after_error, Arc::new(reach));
    looks.for_each(|_| std::future::ready(())).await;
}

async fn look(watched: Watched, reach: Arc<Reach>) -> Result<Requeue, ReachError> {
    // What is malformed is told by the look at its power state.
    let Ok(cluster) = &watched.0 else { return Ok(Requeue::await_change()) };
    if !reach.context.claim.holds() {
        return Ok(Requeue::await_change());
    }
    let key = key_of(cluster);
    let mut memory = reach.memories.lock().ok().and_then(|mut all| all.remove(&key)).unwrap_or_default();
    if memory.wrote.is_some_and(|wrote| version(cluster).is_some_and(|seen| seen < wrote)) {
        reach.keep(key, memory);
        return Ok(Requeue::requeue(Duration::from_secs(1))); // the watch has yet to bring our own write
    }
    let result = look_once(&reach, cluster, &mut memory).await;
    if cluster.metadata.deletion_timestamp.is_none() {
        reach.keep(key, memory);
    }
    result
}

impl Reach {
    fn keep(&self, key: Key, memory: Memory) {
        if let Ok(mut all) = self.memories.lock() {
            all.insert(key, memory);
        }
    }
}

async fn look_once(reach: &Reach, cluster: &ClusterDeployment, memory: &mut Memory) -> Result<Requeue, ReachError> {
    let context = &*reach.context;
    let mut facts = Facts { cluster, primary: None, initial: None, tried: memory.tried, now: Timestamp::now() };
    while let Some(ask) = needs(&facts) {
        let turn = if ask.urgent { None } else { reach.turns.try_acquire().ok() };
        if turn.is_none() && !ask.urgent {
            return Ok(Requeue::requeue(Duration::from_millis(rand::random_range(2_000..10_000))));
        }
        let answer = probe(context, cluster, ask.url).await?;
        let result = if answer.is_ok() { "ok" } else { "failed" };
        context.metrics.probes.get_or_create(&Probe { result }).inc();
        facts.answered(ask.url, answer, Timestamp::now());
        memory.tried = facts.tried;
    }
    let plan = decide(&facts);
    // Upwards only: a look before its time finds nothing to do.
    let requeue = match plan.again {
        Some(again) => Requeue::requeue(again.mul_f64(rand::random_range(1.0..1.1)) + Duration::from_millis(20)),
        None => Requeue::await_change(),
    };
    let Some(patch) = plan.patch(cluster, facts.now) else { return Ok(requeue) };
    let patch = Patch::Json::<()>(serde_json::from_value(patch).map_err(ReachError::Patch)?);
    let turn = context.writes.acquire().await;
    if !context.claim.holds() {
        return Ok(Requeue::await_change());
    }
    let written = act::api(context, cluster).patch_status(&cluster.name_any(), &as_controller(), &patch).await;
    let written = written.map_err(|source| ReachError::Status(Box::new(source)))?;
    drop(turn);
    memory.wrote = version(&written);
    let word = written.condition(UNREACHABLE);
    if word.map(|word| (&word.status, &word.message)) != cluster.condition(UNREACHABLE).map(|c| (&c.status, &c.message))
    {
        let status = word.map_or("", |word| &word.status);
        let message = word.and_then(|word| word.message.as_deref()).unwrap_or_default();
        info!(cluster = full_name(cluster), unreachable = status, says = message, "reachability written");
    }
    Ok(requeue)
}

/// Asks an API server for its version: one small request, which every API server answers to its administrator.
async fn probe(context: &Context, cluster: &ClusterDeployment, url: Url) -> Result<Answer, ReachError> {
    let route = Route { url: url_override(cluster).filter(|_| url == Url::Primary), ip: ip_override(cluster) };
    let kubeconfig = match spokes::secret(context, cluster).await {
        Ok((kubeconfig, _)) => kubeconfig,
        Err(SpokeError::Kubeconfig(why)) => return Ok(Err(why)),
        Err(error) => return Err(ReachError::Hub(error)),
    };
    let asked = async {
        let client = spoke::client(&kubeconfig, &route).await?;
        client.apiserver_version().await.map(drop).map_err(|error| spoke::failure(&error))
    };
    let answer = tokio::time::timeout(PROBE, asked).await.unwrap_or_else(|_| {
        Err(SpokeError::Unreachable(format!("the cluster's API server does not answer within {PROBE:?}")))
    });
    Ok(answer.map_err(|error| error.to_string()))
}

fn version(cluster: &ClusterDeployment) -> Option<u64> {
    cluster.resource_version()?.parse().ok()
}

#[expect(clippy::needless_pass_by_value, reason = "the signature is kube's")]
fn after_error(watched: Watched, error: &ReachError, reach: Arc<Reach>) -> Requeue {
    let cluster = full_name(&*watched);
    match error {
        ReachError::Status(source) if is_gone(source) => {
            if let Ok(mut all) = reach.memories.lock() {
                all.remove(&key_of(&*watched));
            }
            Requeue::await_change()
        }
        ReachError::Status(source) if is_overtaken(source) => {
            debug!(cluster, "somebody else wrote first");
            Requeue::requeue(Duration::from_millis(rand::random_range(100..500)))
        }
        ReachError::Status(_) | ReachError::Hub(_) | ReachError::Patch(_) => {
            warn!(cluster, error = error as &dyn std::error::Error, "reachability not known, will ask again");
            Requeue::requeue(Duration::from_millis(rand::random_range(5_000..10_000)))
        }
    }
}
