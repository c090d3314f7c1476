//! FoundationDB: watch the clusters, look at what is being removed of them, decide, stamp and release. What is held, and how
//! long, is judged in `shared`, not here.
//!
//! Nothing but the clusters themselves is watched. Pods, PVCs and Services are listed of a cluster of which something is
//! being removed, and only while that lasts.

mod act;
mod observe;
mod report;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use kube::core::DeserializeGuard;
use kube::runtime::controller::{self, Action as Requeue, Config, Controller};
use kube::runtime::reflector;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch_all};
use kube::{Api, Client, ResourceExt};
use shared::annotation::keys;
use shared::fdb::api::FoundationDBCluster;
use shared::fdb::decide::{Facts, Plan, Turn, concerns, decide};
use shared::fdb::suspension::Minimum;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::hub::{Events, full_name, key_of, key_of_ref, slim};
use crate::lease::Claim;
use crate::metrics::Metrics;
use crate::metrics::fdb::Suspended;
use crate::pace::Pauses;

type Guarded = DeserializeGuard<FoundationDBCluster>;

/// Namespace and name of a cluster.
type Key = (String, String);

/// Clusters of one page of the first list.
const PAGE: u32 = 20;
/// Clusters that are worked on at once.
const CONCURRENCY: u16 = 16;
/// How long a look may take before it is given up.
const LOOK: Duration = Duration::from_mins(2);
/// Between two looks at one cluster of which something is held: nothing tells of a stamp that somebody took off.
const HELD: Duration = Duration::from_mins(1);
/// Between two looks at one cluster: an operator at work writes its status many times a second.
const APART: Duration = Duration::from_millis(500);

/// Everything that looks at clusters have in common.
pub struct Context {
    /// The hub.
    pub client: Client,
    /// The right to act.
    pub claim: Claim,
    /// How long removed groups are kept of clusters that do not say.
    pub minimum: Duration,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// Events.
    pub events: Events,
    /// Memory of each cluster.
    pub memories: Mutex<HashMap<Key, Arc<LookMutex<Memory>>>>,
    /// When this time of leading began.
    pub began: Timestamp,
}

/// Held during a whole look. The same object is never looked at twice at once, so nobody waits for it.
type LookMutex<T> = tokio::sync::Mutex<T>;

/// What this process remembers of a cluster between two looks. Losing it costs a look and a wait.
#[derive(Default)]
pub struct Memory {
    /// The last release.
    turn: Option<Turn>,
    /// When it was last looked at.
    looked: Option<Instant>,
    /// Whether something of it was held then.
    holds: bool,
}

/// Why a look ended early. It is repeated soon; nothing is released meanwhile.
#[derive(Debug, thiserror::Error, strum::IntoStaticStr)]
pub enum LookError {
    /// The object does not have the form that its kind has.
    #[error("read the object")]
    Malformed {
        /// What is wrong.
        source: Box<kube::core::error_boundary::InvalidObject>,
    },
    /// What belongs to the cluster could not be listed.
    #[error("list {what} of the cluster")]
    List {
        /// Which kind.
        what: &'static str,
        /// The API server's answer.
        source: Box<kube::Error>,
    },
    /// A stamp could not be written.
    #[error("write the stamp of {what}")]
    Write {
        /// Which object.
        what: String,
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

/// Works until it is dropped. Where the kind does not exist this only asks for it, at most twice a minute.
pub async fn run(watch: Client, context: Arc<Context>) {
    let clusters: Api<Guarded> = Api::all(watch);
    let (reader, writer) = reflector::store();
    let forgetful = context.clone();
    let events = watch_all(clusters, watcher::Config::default().page_size(PAGE))
        .backoff(Pauses::of_optional_kind())
        .map(|event| event.map(|event| event.modify(slim)))
        .inspect(move |event| {
            if let Ok(Event::Delete(gone)) = event {
                forgetful.forget(&key_of(gone));
            }
        })
        .reflect(writer)
        .applied_objects();
    Controller::for_stream(events, reader)
        .with_config(Config::default().concurrency(CONCURRENCY))
        .run(look, after_error, context.clone())
        .for_each(|result| {
            // Gone while the watch was down.
            if let Err(controller::Error::ObjectNotFound(gone)) = &result {
                context.forget(&key_of_ref(gone));
            }
            if let Err(error) = result {
                debug!(error = &error as &dyn std::error::Error, "look not finished");
            }
            std::future::ready(())
        })
        .await;
}

impl Context {
    /// A cluster is gone, and with it everything that was held of it.
    fn forget(&self, key: &Key) {
        if let Ok(mut all) = self.memories.lock() {
            all.remove(key);
        }
        self.metrics.fdb.forget(&Suspended::of(key));
    }

    fn memory(&self, key: &Key) -> Arc<LookMutex<Memory>> {
        self.memories.lock().map(|mut all| all.entry(key.clone()).or_default().clone()).unwrap_or_default()
    }

    /// Whether a cluster is not forgotten yet.
    fn knows(&self, key: &Key) -> bool {
        self.memories.lock().is_ok_and(|all| all.contains_key(key))
    }
}

async fn look(watched: Arc<Guarded>, context: Arc<Context>) -> Result<Requeue, LookError> {
    let cluster = match &watched.0 {
        Ok(cluster) => cluster,
        Err(error) => return Err(LookError::Malformed { source: Box::new(error.clone()) }),
    };
    let key = key_of(cluster);
    let memory = context.memory(&key);
    let mut memory = memory.lock().await;
    let started = Instant::now();
    let result = tokio::time::timeout(LOOK, Box::pin(look_once(cluster, &context, &mut memory))).await;
    let result = result.unwrap_or(Err(LookError::TimedOut));
    if !context.knows(&key) {
        // Gone during the look, which counted it once more.
        context.metrics.fdb.forget(&Suspended::of(&key));
    }
    let outcome = match &result {
        Ok(Looked { acted: true, .. }) => "changed",
        Ok(_) => "unchanged",
        Err(error) => error.into(),
    };
    context.metrics.looked_at("fdb", outcome, started.elapsed());
    Ok(result?.again.map_or_else(Requeue::await_change, Requeue::requeue))
}

/// What came of a look.
struct Looked {
    /// When to look again.
    again: Option<Duration>,
    /// Whether anything was written.
    acted: bool,
}

/// Look, decide, act, report.
async fn look_once(cluster: &FoundationDBCluster, context: &Context, memory: &mut Memory) -> Result<Looked, LookError> {
    // The first look at each cluster finds what was left behind while nobody led.
    let first = memory.looked.is_none();
    let gone = cluster.metadata.deletion_timestamp.is_some();
    if gone || !(first || memory.holds || concerns(cluster.groups())) {
        return Ok(Looked { again: None, acted: false });
    }
    let since = memory.looked.map_or(APART, |looked| looked.elapsed());
    if since < APART {
        return Ok(Looked { again: Some(APART.saturating_sub(since)), acted: false });
    }
    let seen = observe::look(context, cluster).await?;
    memory.looked = Some(Instant::now());
    let annotation = cluster.annotations().get(keys::MINIMUM_SUSPENSION).map(String::as_str);
    let facts = Facts {
        cluster,
        minimum: Minimum::of(annotation, context.minimum),
        pods: &seen.pods,
        objects: &seen.objects,
        turn: memory.turn.clone(),
        began: context.began,
        now: Timestamp::now(),
    };
    let plan = decide(&facts);
    // Remembered before it is done: a release of which nobody knows whether it was done counts as done.
    memory.turn.clone_from(&plan.turn);
    memory.holds = true;
    let done = act::run(context, cluster, &facts, &seen, &plan).await;
    report::done(context, cluster, &seen, &plan, &done.written).await;
    if let Some(error) = done.failure {
        return Err(error);
    }
    memory.holds = plan.held + plan.waiting + plan.released > 0 || plan.next.is_some() || !plan.actions.is_empty();
    count(context, cluster, &plan);
    let again = if memory.holds { Some(plan.next.map_or(HELD, |next| next.min(HELD))) } else { plan.next };
    Ok(Looked { again, acted: !plan.actions.is_empty() })
}

/// Tells what is held.
fn count(context: &Context, cluster: &FoundationDBCluster, plan: &Plan) {
    context.metrics.fdb.holds(&Suspended::of(&key_of(cluster)), plan);
}

/// A write that met somebody else's is repeated at once, everything else a little later.
#[expect(clippy::needless_pass_by_value, reason = "the signature is kube's")]
fn after_error(watched: Arc<Guarded>, error: &LookError, _: Arc<Context>) -> Requeue {
    let cluster = full_name(&*watched);
    match error {
        LookError::Write { source, .. } if is_overtaken(source) => {
            debug!(cluster, "somebody else wrote first");
            Requeue::requeue(Duration::from_millis(rand::random_range(500..1_000)))
        }
        LookError::NotLeader => Requeue::requeue(Duration::from_millis(rand::random_range(500..1_500))),
        LookError::Malformed { .. } => {
            warn!(cluster, error = error as &dyn std::error::Error, "left alone until it changes: all of it is held");
            Requeue::await_change()
        }
        LookError::List { .. } | LookError::Write { .. } | LookError::TimedOut => {
            warn!(cluster, error = error as &dyn std::error::Error, "will look again; nothing is released meanwhile");
            Requeue::requeue(Duration::from_millis(rand::random_range(2_000..5_000)))
        }
    }
}

/// Somebody else wrote first, or the object is gone.
fn is_overtaken(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_conflict() || status.is_not_found())
}
