//! Hive: watch `ClusterDeployment`s, look, decide, act, report. Power states are judged in `shared`, not here.

mod act;
pub mod drivers;
mod errors;
mod memory;
mod observe;
mod preflight;
mod reach;
mod report;
mod requests;
mod rival;
mod spokes;
mod step;
mod syncs;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures::StreamExt;
use futures::channel::mpsc;
use jiff::Timestamp;
use kube::core::DeserializeGuard;
use kube::runtime::controller::{self, Action as Requeue, Config, Controller};
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use shared::hive::api::ClusterDeployment;
use shared::hive::conditions::HIBERNATING;
use shared::hive::decide::{Facts, Notice, Plan, Recheck, Settings, Sync, decide};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tracing::{debug, info};

pub use self::drivers::Drivers;
pub use self::errors::LookError;
use self::errors::{is_gone, is_overtaken, pause_after};
use self::memory::Memory;
use self::step::{STEP, in_step};
pub use self::syncs::Syncs;
use crate::hub::{Events, full_name, key_of, key_of_ref, slim};
use crate::lease::Claim;
use crate::metrics::{Metrics, Told};
use crate::pace::Pauses;

/// Namespace and name of a cluster.
pub type Key = (String, String);

/// A cluster, or what of it could be read.
pub type Guarded = DeserializeGuard<ClusterDeployment>;

/// Clusters of one page of the first list. While a page is read it takes several times the memory of what is kept of it.
const PAGE: u32 = 50;

/// A look takes its time: 1.7 s after it is 2 s after its beginning.
const LOOKS: Duration = Duration::from_millis(300);

/// How many status writes are under way at once. The hub has other users.
pub const WRITES_AT_ONCE: usize = 32;

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
    /// Whether the conditions `Unreachable` and `ActiveAPIURLOverride` are written here.
    pub own_unreachable: bool,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// Events.
    pub events: Events,
    /// Memory of each cluster.
    pub memories: Mutex<HashMap<Key, Memory>>,
    /// What is known of the hub's `ClusterSync`s.
    pub syncs: Syncs,
    /// Clusters that are to be looked at because of something that is not on their object.
    pub news: mpsc::UnboundedSender<Key>,
    /// Turns for status writes.
    pub writes: Semaphore,
    /// The clusters as the watch has brought them.
    pub watched: OnceLock<reflector::Store<Guarded>>,
    /// When this time of leading began: the looks at steady clusters keep in step from here, so that they share calls.
    pub began: Instant,
}

impl Context {
    /// The memory, if it is of this very object and not of an earlier one of the same name.
    fn of_same(&self, mut memory: Memory, cluster: &ClusterDeployment) -> Memory {
        if memory.uid != cluster.metadata.uid {
            self.metrics.forget(memory.counted.take());
            memory = Memory::of(cluster);
        }
        memory
    }

    /// Whether the watch has brought another wish since `decided` was read.
    fn is_outdated(&self, decided: &ClusterDeployment) -> bool {
        let newest = self.watched.get().and_then(|watched| watched.get(&object_ref(key_of(decided))));
        let Some(newest) = newest.as_ref().and_then(|newest| newest.0.as_ref().ok()) else { return false };
        newest.metadata.uid != decided.metadata.uid
            || (newest.metadata.generation > decided.metadata.generation && newest.desired() != decided.desired())
    }

    /// When to look again, or not before something changes.
    fn requeue(&self, key: &Key, pause: Option<Duration>) -> Requeue {
        let Some(pause) = pause else { return Requeue::await_change() };
        self.metrics.queue.add(key, Instant::now() + pause);
        Requeue::requeue(pause)
    }

    /// A cluster is gone, and its memory, watches and counts with it.
    fn forget(&self, key: &Key) {
        let memory = self.memories.lock().ok().and_then(|mut all| all.remove(key));
        self.metrics.queue.take(key);
        self.metrics.forget(memory.and_then(|memory| memory.counted));
    }
}

/// Works until it is dropped.
pub async fn run(watch: Client, context: Arc<Context>, news: mpsc::UnboundedReceiver<Key>, concurrency: u16) {
    let clusters: Api<Guarded> = Api::all(watch.clone());
    let (reader, writer) = reflector::store();
    let _ = context.watched.set(reader.clone());
    let (seen, changes) = mpsc::unbounded();
    let seen = context.own_unreachable.then_some(seen);
    let (forgetful, metrics) = (context.clone(), context.metrics.clone());
    let reached = reach::run(context.clone(), reader.clone(), changes);
    let events = watcher(clusters, watcher::Config::default().page_size(PAGE))
        .backoff(Pauses::of_hub())
        .map(|event| event.map(|event| event.modify(slim)))
        .inspect(move |event| {
            if let Ok(watcher::Event::Delete(gone)) = event {
                forgetful.forget(&key_of(gone));
            }
        })
        .reflect(writer)
        .applied_objects()
        .inspect(move |event| {
            let Ok(cluster) = event else { return };
            let key = key_of(cluster);
            metrics.queue.add(&key, Instant::now());
            if let Some(seen) = &seen {
                let _ = seen.unbounded_send(key);
            }
        });
    let metrics = context.metrics.clone();
    let news = news.inspect(move |key| metrics.queue.add(key, Instant::now())).map(object_ref);
    let looks = Controller::for_stream(events, reader)
        .with_config(Config::default().concurrency(concurrency))
        .reconcile_on(news)
        .run(look, after_error, context.clone());
    let forgetful = context.clone();
    let looks = looks.for_each(move |result| {
        // Gone while it was looked at, or while the watch was down.
        if let Err(controller::Error::ObjectNotFound(gone)) = &result {
            forgetful.forget(&key_of_ref(gone));
        }
        if let Err(error) = result {
            debug!(error = &error as &dyn std::error::Error, "look not finished");
        }
        std::future::ready(())
    });
    let syncs = context.syncs.follow(watch, |key| {
        let _ = context.news.unbounded_send(key);
    });
    tokio::select! {
        () = looks => {}
        () = syncs => {}
        () = reached, if context.own_unreachable => {}
    }
}

fn object_ref((namespace, name): Key) -> ObjectRef<Guarded> {
    ObjectRef::new(&name).within(&namespace)
}

type Watched = Arc<Guarded>;

async fn look(watched: Watched, context: Arc<Context>) -> Result<Requeue, LookError> {
    let key = key_of(&*watched);
    context.metrics.queue.take(&key);
    let watched = match &watched.0 {
        Ok(cluster) => cluster,
        Err(error) => return Err(LookError::Malformed { source: Box::new(error.clone()) }),
    };
    // The same object is never looked at twice at once, so its memory can be taken out and put back.
    let memory = context.memories.lock().ok().and_then(|mut all| all.remove(&key)).unwrap_or_default();
    let mut memory = context.of_same(memory, watched);
    let started = Instant::now();
    let result = tokio::time::timeout(LOOK, Box::pin(look_once(watched, &context, &mut memory))).await;
    let result = result.unwrap_or(Err(LookError::TimedOut));
    match &result {
        Err(error) => {
            memory.failed(error.leaves_doubt(), error.is_overtaken());
            if error.leaves_calls() {
                memory.gave_up_calls();
            }
        }
        Ok(_) => memory.overtaken = 0,
    }
    let gone = watched.metadata.deletion_timestamp.is_some();
    match context.memories.lock() {
        Ok(mut all) if !gone => drop(all.insert(key.clone(), memory)),
        _ => context.metrics.forget(memory.counted.take()),
    }
    let outcome = match &result {
        Ok((_, true)) => "changed",
        Ok((_, false)) => "unchanged",
        Err(error) => error.into(),
    };
    context.metrics.looked(outcome, started.elapsed());
    result.map(|(pause, _)| context.requeue(&key, pause))
}

/// Look, decide, act, report. Returns when to look again, and whether anything was written.
async fn look_once(
    watched: &ClusterDeployment,
    context: &Context,
    memory: &mut Memory,
) -> Result<(Option<Duration>, bool), LookError> {
    // Thousands of looks may wait for company at once: what is rarely needed is in boxes, and nothing is copied that need not be.
    let newest = memory.newest(watched);
    let before: &ClusterDeployment = &newest;
    let sync = context.syncs.of(&key_of(before), &mut memory.sync_missed_since);
    if let Some(left) = memory.rests(before, sync) {
        if !Box::pin(has_new_credentials(context, before, memory)).await {
            return Ok((Some(memory.until_next(left)), false));
        }
        info!(cluster = full_name(before), "credentials have changed");
        context.drivers.doubt(before);
        memory.trust_again();
    }
    if let Some(left) = memory.rival.left_alone(before, Instant::now()) {
        Box::pin(notice(context, before, memory, Some(&Notice::another_controller()))).await;
        return Ok((Some(left), false));
    }
    let facts = observe::facts(context, before, sync, memory).await;
    Box::pin(finish(before, sync, facts, context, memory)).await
}

/// The part of a look after the first facts have come in.
async fn finish(
    before: &ClusterDeployment,
    sync: Sync,
    mut facts: Facts<'_>,
    context: &Context,
    memory: &mut Memory,
) -> Result<(Option<Duration>, bool), LookError> {
    let mut plan = decide(&facts);
    let actions = std::mem::take(&mut plan.actions);
    let acted = Box::pin(act::run(context, &mut facts, memory, &actions)).await?;
    if !actions.is_empty() {
        let Plan { status, recheck, due, watch, .. } = decide(&facts);
        plan = Plan { status, recheck, due, watch, ..plan };
    }
    notice(context, before, memory, plan.notice.as_ref()).await;
    let reported = record(context, &facts, acted.as_ref().unwrap_or(before), memory, &plan).await?;
    let mut written = reported.or(acted);
    memory.rival.wrote(written.as_ref().unwrap_or(before));
    let answered =
        preflight::tell(context, written.as_ref().unwrap_or(before), facts.machines.as_ref(), memory).await?;
    if let Some(answered) = &answered {
        memory.wrote(answered);
    }
    written = answered.or(written);
    let cluster = written.as_ref().unwrap_or(before);
    spokes::keep(context, cluster, memory, plan.watch).await;
    if let (true, Some(Ok(machines))) = (plan.replace_spot, &facts.machines) {
        spokes::replace_spot(context, cluster, memory, machines).await;
    }
    count(context, cluster, memory);
    Ok((settle(context, memory, cluster, sync, &plan), written.is_some() || !actions.is_empty()))
}

/// Counts the cluster under its power state, and how long it was in the one before.
fn count(context: &Context, cluster: &ClusterDeployment, memory: &mut Memory) {
    let asleep = cluster.condition(HIBERNATING).filter(|word| word.status == "True");
    let since = asleep.and_then(|word| word.last_transition_time.as_ref());
    let asleep = since.map(|since| Timestamp::now().duration_since(since.0));
    context.metrics.count(&mut memory.counted, cluster.power_state(), asleep);
}

/// Whether the Secret that the cloud refused has another version by now. Nothing else is asked, and only after a refusal.
async fn has_new_credentials(context: &Context, cluster: &ClusterDeployment, memory: &Memory) -> bool {
    match memory.refused() {
        Some(version) => context.drivers.are_new(cluster, version).await,
        None => false,
    }
}

/// Writes the status, if it differs. Returns the object if it was written.
async fn record(
    context: &Context,
    facts: &Facts<'_>,
    cluster: &ClusterDeployment,
    memory: &mut Memory,
    plan: &Plan,
) -> Result<Option<ClusterDeployment>, LookError> {
    let Some(patch) = plan.status.as_ref().and_then(|status| status.patch(cluster, facts.now)) else {
        return Ok(None);
    };
    let written = act::write_status(context, cluster, patch).await?;
    report::transition(context, cluster, &written).await;
    memory.wrote(&written);
    Ok(Some(written))
}

/// Says once what the status cannot say.
async fn notice(context: &Context, cluster: &ClusterDeployment, memory: &mut Memory, notice: Option<&Notice>) {
    let reason = notice.map(|notice| notice.reason);
    if let Some(notice) = notice.filter(|_| memory.noticed != reason) {
        context.metrics.notices.get_or_create(&Told { system: "hive", reason: notice.reason }).inc();
        report::notice(context, cluster, notice).await;
    }
    memory.noticed = reason;
}

/// What was not written because something else had just been written is written after this time.
const TELL_LATER: Duration = Duration::from_secs(2);

/// Between two looks at machines that a call may still reach which nobody waits for.
const UNSURE: Duration = Duration::from_secs(5);

/// Remembers how long the object needs no look as it stands.
///
/// Looks at clusters in transition are spread; those at steady ones keep in step, because they share calls to the cloud.
fn settle(
    context: &Context,
    memory: &mut Memory,
    cluster: &ClusterDeployment,
    sync: Sync,
    plan: &Plan,
) -> Option<Duration> {
    let steady = context.settings.steady;
    let pause = match plan.recheck {
        Recheck::OnChange => None,
        Recheck::After(pause) if pause == steady => Some(in_step(context.began.elapsed(), Duration::ZERO, steady)),
        Recheck::After(pause) if pause < STEP => Some(pause),
        Recheck::After(pause) => Some(in_step(context.began.elapsed(), pause.saturating_sub(LOOKS), STEP)),
        Recheck::Retry(pause) => Some(in_step(context.began.elapsed(), pause, STEP)),
    };
    let due = plan.due.map(|due| due + Duration::from_millis(50));
    let untold = plan.status.as_ref().is_some_and(|status| status.is_told_later(cluster)).then_some(TELL_LATER);
    let unsure = memory.is_unsure().then_some(UNSURE);
    let pause = [pause, due, untold, unsure].into_iter().flatten().min()?;
    memory.rest(cluster, sync, pause);
    Some(memory.until_next(pause))
}

/// A write that met somebody else's is repeated soon, everything else a little later.
#[expect(clippy::needless_pass_by_value, reason = "the signature is kube's")]
fn after_error(watched: Watched, error: &LookError, context: Arc<Context>) -> Requeue {
    let key = key_of(&*watched);
    let pause = pause_after(&key, &full_name(&*watched), error, &context);
    context.requeue(&key, pause)
}
