//! Hive: watch `ClusterDeployment`s, look, decide, act, report. Power states are judged in `shared`, not here.

mod act;
mod drivers;
mod memory;
mod observe;
mod preflight;
mod report;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use kube::api::Patch;
use kube::core::DeserializeGuard;
use kube::runtime::controller::{Action as Requeue, Config, Controller};
use kube::runtime::events::Recorder;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use shared::hive::api::ClusterDeployment;
use shared::hive::decide::{Facts, Plan, Recheck, Settings, decide};
use shared::keys;
use tokio::time::Instant;
use tracing::{debug, info, warn};

pub use self::drivers::Drivers;
use self::memory::Memory;
use crate::lease::Claim;
use crate::metrics::{LeftAlone, Look, Metrics};

/// How long a look may take before it is given up: longer than all of its calls' own limits together.
const LOOK: Duration = Duration::from_mins(3);

/// Everything that looks at clusters have in common.
pub struct Context {
    /// The hub.
    pub client: Client,
    /// The right to act.
    pub claim: Claim,
    /// Clouds.
    pub drivers: Drivers,
    /// Settings of decisions.
    pub settings: Settings,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// Events.
    pub recorder: Recorder,
    /// Memory of each cluster, by namespace and name.
    pub memories: Mutex<HashMap<(String, String), Memory>>,
}

/// Why a look ended early. It is repeated soon; nothing is lost.
#[derive(Debug, thiserror::Error, strum::IntoStaticStr)]
pub enum LookError {
    /// The object does not have the form that its kind has.
    #[error("read the object")]
    Malformed {
        /// What is wrong.
        source: Box<kube::core::error_boundary::InvalidObject>,
    },
    /// The moment the wake began could not be kept on the object.
    #[error("write annotation {}", keys::RESUME_STARTED_AT)]
    Mark {
        /// The API server's answer.
        source: Box<kube::Error>,
    },
    /// The status could not be written.
    #[error("write the status")]
    Status {
        /// The API server's answer.
        source: Box<kube::Error>,
    },
    /// Calls took too long.
    #[error("the look took longer than {LOOK:?}")]
    TimedOut,
    /// Another controller leads.
    #[error("this controller is not the leader any more")]
    NotLeader,
}

/// Works until it is dropped.
pub async fn run(watch: Client, context: Arc<Context>, concurrency: u16) {
    let clusters: Api<DeserializeGuard<ClusterDeployment>> = Api::all(watch);
    let looks = Controller::new(clusters, watcher::Config::default())
        .with_config(Config::default().concurrency(concurrency))
        .run(look, after_error, context);
    looks
        .for_each(|result| async move {
            if let Err(error) = result {
                debug!(error = &error as &dyn std::error::Error, "look not finished");
            }
        })
        .await;
}

type Watched = Arc<DeserializeGuard<ClusterDeployment>>;

async fn look(watched: Watched, context: Arc<Context>) -> Result<Requeue, LookError> {
    let watched = match &watched.0 {
        Ok(cluster) => cluster,
        Err(error) => return Err(LookError::Malformed { source: Box::new(error.clone()) }),
    };
    let key = (watched.namespace().unwrap_or_default(), watched.name_any());
    // The same object is never looked at twice at once, so its memory can be taken out and put back.
    let mut memory = context.memories.lock().ok().and_then(|mut all| all.remove(&key)).unwrap_or_default();
    let started = Instant::now();
    let result = tokio::time::timeout(LOOK, Box::pin(look_once(watched, &context, &mut memory))).await;
    let gone = watched.metadata.deletion_timestamp.is_some();
    if let (false, Ok(mut all)) = (gone, context.memories.lock()) {
        all.insert(key, memory);
    }
    let result = result.unwrap_or(Err(LookError::TimedOut));
    let outcome = match &result {
        Ok((_, true)) => "changed",
        Ok((_, false)) => "unchanged",
        Err(error) => error.into(),
    };
    context.metrics.looks.get_or_create(&Look { system: "hive", outcome }).inc();
    context.metrics.look_seconds.observe(started.elapsed().as_secs_f64());
    result.map(|(requeue, _)| requeue)
}

/// Look, decide, act, report. Returns when to look again, and whether anything was written.
async fn look_once(
    watched: &ClusterDeployment,
    context: &Context,
    memory: &mut Memory,
) -> Result<(Requeue, bool), LookError> {
    let mut cluster = memory.newest(watched);
    if let Some(left) = memory.rests(&cluster) {
        return Ok((Requeue::requeue(left), false));
    }
    let before = cluster.clone();
    let mut facts = observe::facts(context, &before, memory).await;
    let mut plan = decide(&facts);
    let actions = std::mem::take(&mut plan.actions);
    for action in &actions {
        if let Some(written) = act::run(context, &mut facts, memory, action).await? {
            cluster = written;
        }
    }
    if !actions.is_empty() {
        let Plan { status, recheck, .. } = decide(&facts);
        plan = Plan { status, recheck, ..plan };
    }
    notice(context, &before, memory, &plan).await;
    let mut changed = record(context, &facts, &mut cluster, memory, &plan).await? || !actions.is_empty();
    if let Some(written) = preflight::tell(context, &cluster, facts.machines.as_ref(), memory).await? {
        memory.wrote(&written);
        cluster = written;
        changed = true;
    }
    Ok((settle(memory, &cluster, plan.recheck), changed))
}

/// Writes the status, if it differs.
async fn record(
    context: &Context,
    facts: &Facts<'_>,
    cluster: &mut ClusterDeployment,
    memory: &mut Memory,
    plan: &Plan,
) -> Result<bool, LookError> {
    let Some(patch) = plan.status.as_ref().and_then(|status| status.patch(cluster, facts.now)) else {
        return Ok(false);
    };
    if !context.claim.holds() {
        return Err(LookError::NotLeader);
    }
    let patch: json_patch::Patch = serde_json::from_value(patch)
        .map_err(|error| LookError::Status { source: Box::new(kube::Error::SerdeError(error)) })?;
    let patch = Patch::Json::<()>(patch);
    let written = act::api(context, cluster).patch_status(&cluster.name_any(), &act::as_controller(), &patch).await;
    let written = written.map_err(|source| LookError::Status { source: Box::new(source) })?;
    report::transition(context, cluster, &written).await;
    memory.wrote(&written);
    *cluster = written;
    Ok(true)
}

/// Says once what the status cannot say.
async fn notice(context: &Context, cluster: &ClusterDeployment, memory: &mut Memory, plan: &Plan) {
    let reason = plan.notice.as_ref().map(|notice| notice.reason);
    if let Some(notice) = plan.notice.as_ref().filter(|_| memory.noticed != reason) {
        context.metrics.left_alone.get_or_create(&LeftAlone { system: "hive", reason: notice.reason }).inc();
        report::warning(context, cluster, notice.reason, &notice.message).await;
    }
    memory.noticed = reason;
}

/// Remembers how long the object needs no look as it stands.
fn settle(memory: &mut Memory, cluster: &ClusterDeployment, recheck: Recheck) -> Requeue {
    match recheck {
        Recheck::OnChange => Requeue::await_change(),
        Recheck::After(pause) => {
            let pause = pause.mul_f64(rand::random_range(0.9..1.1));
            memory.rest(cluster, pause);
            Requeue::requeue(pause)
        }
    }
}

/// A write that met somebody else's is repeated at once, everything else a little later.
#[expect(clippy::needless_pass_by_value, reason = "the signature is kube's")]
fn after_error(watched: Watched, error: &LookError, context: Arc<Context>) -> Requeue {
    let cluster = full_name(&*watched);
    match error {
        LookError::Status { source } | LookError::Mark { source } if is_gone(source) => {
            if let Ok(mut all) = context.memories.lock() {
                all.remove(&(watched.namespace().unwrap_or_default(), watched.name_any()));
            }
            Requeue::await_change()
        }
        LookError::Status { source } | LookError::Mark { source } if is_overtaken(source) => {
            debug!(cluster, "somebody else wrote first");
            Requeue::requeue(Duration::from_millis(rand::random_range(100..500)))
        }
        LookError::NotLeader => {
            info!(cluster, "left to the new leader");
            Requeue::await_change()
        }
        LookError::Malformed { .. } => {
            warn!(cluster, error = error as &dyn std::error::Error, "left alone until it changes");
            Requeue::await_change()
        }
        LookError::Status { .. } | LookError::Mark { .. } | LookError::TimedOut => {
            warn!(cluster, error = error as &dyn std::error::Error, "will look again");
            Requeue::requeue(Duration::from_millis(rand::random_range(2_000..5_000)))
        }
    }
}

fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found())
}

/// A failed `test` of a JSON patch answers 422, other lost races 409.
fn is_overtaken(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_conflict() || status.code == 422)
}

/// `namespace/name`, for logs.
fn full_name(object: &impl ResourceExt) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}
