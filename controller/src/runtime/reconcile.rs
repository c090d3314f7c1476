//! One reconcile after another: state, timeout, panics, errors, requeues, counts.

use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc::UnboundedReceiver;
use futures::future;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use kube::Resource;
use kube::runtime::events::EventType;
use kube::runtime::reflector::Store;
use shared::text::{sanitize, sanitize_chain};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};

use super::backoff::{PANIC_BACKOFF, REFUSED_BACKOFF};
use super::crash_marks::CrashBackoff;
use super::hub::{full_name, object_ref};
use super::panics::Panic;
use super::schedule::Schedule;
use super::slot::{self, Slots};
use super::target::{Hold, Target, TargetEntry, Targets};
use super::{
    Acted, Class, Done, Follower, Guarded, Handle, Key, Observed, ReconcileError, Reconciled, System, WriteError,
};

/// When to reconcile again while the claim to lead does not hold. If another controller leads, this term ends; if this
/// one was late to renew, it goes on.
const NOT_LEADER: std::ops::Range<u64> = 500..1_500;

/// Requeue delay of a reconcile whose desired state changed while it ran.
const OUTDATED: Duration = Duration::from_millis(100);

/// Event reason.
const INTERNAL_ERROR: &str = "InternalError";

/// Reconciles the targets of one system.
pub(super) struct Reconciler<S: System> {
    system: S,
    handle: Handle<S::Object>,
    slots: Slots,
    targets: Targets<S>,
}

impl<S: System> Reconciler<S> {
    pub(super) fn new(system: S, handle: Handle<S::Object>) -> Self {
        handle.hub.metrics.queue.begin(S::NAME);
        let slots = Slots::new(system.concurrency());
        Self { system, handle, slots, targets: Targets::default() }
    }

    /// Reconciles until it is dropped.
    pub(super) async fn run(self: Arc<Self>, triggers: UnboundedReceiver<Key>) {
        let reconciles = self.reconcile_all(triggers);
        let panics = self.handle.panics();
        let follows = panics.keep_alive("a watch of related objects", || self.system.follow());
        tokio::select! {
            () = reconciles => {}
            () = follows => {}
        }
    }

    /// Reconciles a target as the watch has brought it last. Answers when to do so again, if nothing changes before.
    async fn reconcile(&self, key: &Key, slot: slot::Slot) -> Option<Duration> {
        self.handle.hub.metrics.queue.take(S::NAME, key);
        let Some(watched) = self.handle.newest(key.clone()) else {
            self.gone(key); // deleted while it was queued, or while the watch was down
            return None;
        };
        let requeue = match &watched.0 {
            Ok(object) => {
                // A pass contains its own panics. This contains those of the system's bookkeeping around it, which lose
                // the state.
                let one = Box::pin(self.marked(key, object, &slot));
                let contained =
                    self.handle.panics().contain("the bookkeeping of a target", &full_name(object), one).await;
                contained.unwrap_or(Some(PANIC_BACKOFF.first))
            }
            Err(unreadable) => {
                let (cluster, error) = (full_name(&*watched), sanitize(&unreadable.error));
                warn!(system = S::NAME, cluster, error, "object malformed: ignored until it changes");
                let note = format!("the controller cannot read this object, and ignores it until it changes: {error}");
                self.handle.publish(&*watched, EventType::Warning, "Unreadable", &note).await;
                None
            }
        };
        let pause = requeue?;
        self.handle.hub.metrics.queue.add(S::NAME, key, Instant::now() + pause);
        Some(pause)
    }

    /// Reconciles one target, marked as at work, unless the last process has ended with it.
    async fn marked(&self, key: &Key, object: &S::Object, slot: &slot::Slot) -> Option<Duration> {
        let name = full_name(object);
        let (tenant, uid) = (self.system.tenant(object), Resource::meta(object).uid.as_deref());
        match self.handle.hub.marks.begin(S::NAME, &tenant, uid, &name) {
            Ok(mark) => {
                let requeue = self.reconcile_one(key, object, slot).await;
                mark.complete();
                requeue
            }
            Err(CrashBackoff { pause, unreported }) => {
                // One end is mostly that of a process that was killed.
                if let Some(times) = unreported.filter(|times| *times > 1) {
                    let note = format!(
                        "the controller's process ended {times} times in a row while it worked on this object: it tries again after {} s",
                        pause.as_secs()
                    );
                    self.handle.publish(object, EventType::Warning, INTERNAL_ERROR, &note).await;
                }
                Some(pause)
            }
        }
    }

    /// Reconciles one target. Answers when to do so again, if nothing changes before.
    async fn reconcile_one(&self, key: &Key, object: &S::Object, slot: &slot::Slot) -> Option<Duration> {
        let (mut entry, replaced) = self.targets.take(key, object.meta().uid.as_ref());
        if replaced {
            self.system.forget(key);
        }
        if let Some(left) = entry.hold.left(object) {
            self.targets.put(key, entry);
            return Some(left);
        }
        let started = Instant::now();
        let ended = self.contained(object, &mut entry, slot).await;
        let outcome = match &ended {
            Ok(Done { changed: true, .. }) => "changed",
            Ok(_) => "unchanged",
            Err(error) => error.label(),
        };
        let requeue = match &ended {
            Ok(done) => {
                entry.conflicts = 0;
                entry.hold = Hold::default();
                done.requeue
            }
            Err(error) => self.after(key, object, &mut entry, error).await,
        };
        let gone = matches!(&ended, Err(error) if error.class() == Class::Gone);
        if gone || !self.targets.put(key, entry) {
            self.gone(key); // during the reconcile, which may have counted it once more
        }
        self.system.measured(&self.handle.hub, outcome, started.elapsed());
        requeue
    }

    /// Runs one reconcile with its timeout, and keeps its panics to itself.
    async fn contained(&self, object: &S::Object, entry: &mut TargetEntry<S>, slot: &slot::Slot) -> Reconciled<Done> {
        if !self.handle.hub.claim.holds() {
            return Err(ReconcileError::not_leader());
        }
        let name = full_name(object);
        let timeout = S::SETTINGS.timeout;
        // Boxed: thousands of reconciles may wait at once, and what is rarely needed of one is large.
        let pass = slot.within(timeout, Box::pin(self.pass(object, &mut entry.target)));
        let contained = self.handle.panics().contain("the reconcile of a target", &name, pass).await;
        let panicked =
            |panic| ReconcileError::new("Panicked", Class::Panicked, "the reconcile panicked").because(panic);
        contained.map_err(panicked)?.unwrap_or_else(|| {
            let action = format!("the reconcile took longer than {timeout:?}");
            Err(ReconcileError::new("TimedOut", Class::TimedOut, action))
        })
    }

    /// Observe, decide, act, report, act.
    async fn pass(&self, watched: &S::Object, target: &mut Target<S>) -> Reconciled<Done> {
        let newer = target.newer_than(watched);
        let object = newer.as_deref().unwrap_or(watched);
        let mut facts = match self.system.observe(object, target).await? {
            Observed::Facts(facts) => facts,
            Observed::Rest(requeue) => return Ok(Done { requeue, changed: false }),
        };
        slot::ensure().await;
        let mut plan = self.system.decide(&facts);
        self.system.remember(&plan, &mut target.state);
        if self.system.act(&mut facts, &mut plan, target).await? == Acted::Changed {
            plan = self.system.decide_again(&facts, plan);
        }
        slot::ensure().await;
        let reported = self.system.report(&mut facts, &mut plan, target).await?;
        self.system.act_after_report(&mut facts, &plan, reported, target).await
    }

    /// After a failure: what is kept, reported and waited for.
    async fn after(
        &self,
        key: &Key,
        object: &S::Object,
        entry: &mut TargetEntry<S>,
        error: &ReconcileError,
    ) -> Option<Duration> {
        let class = error.class();
        let cluster = full_name(object);
        entry.conflicts = if class == Class::Conflict { entry.conflicts.saturating_add(1) } else { 0 };
        if class == Class::Panicked {
            entry.target.reset();
            self.system.forget(key);
        } else {
            self.system.failed(&mut entry.target.state, class);
        }
        let some = |range: &std::ops::Range<u64>| Duration::from_millis(rand::random_range(range.clone()));
        match class {
            Class::Gone => {
                debug!(system = S::NAME, cluster, error = sanitize_chain(error), "not reconciled until it changes");
                None
            }
            Class::Conflict => {
                debug!(system = S::NAME, cluster, "another client wrote first");
                // The watch may be late with what it wrote.
                Some(some(&S::SETTINGS.conflict) * 2_u32.pow(entry.conflicts.saturating_sub(1).min(4)))
            }
            Class::Outdated => {
                info!(system = S::NAME, cluster, error = sanitize_chain(error), "will reconcile again");
                Some(OUTDATED)
            }
            Class::NotLeader => {
                info!(system = S::NAME, cluster, "not the leader, or late to renew the lease");
                Some(some(&NOT_LEADER))
            }
            Class::TimedOut | Class::Failed => {
                if let Some(left_out) = self.handle.hub.warnings.due(S::NAME, &cluster) {
                    warn!(system = S::NAME, cluster, error = sanitize_chain(error), left_out, "will reconcile again");
                }
                Some(some(&S::SETTINGS.retry))
            }
            Class::Refused | Class::Panicked => Some(self.hold(object, entry, error).await),
        }
    }

    /// Holds back a target whose failure would repeat itself, and says so.
    async fn hold(&self, object: &S::Object, entry: &mut TargetEntry<S>, error: &ReconcileError) -> Duration {
        let cluster = full_name(object);
        let panicked = error.class() == Class::Panicked;
        let (backoff, reason) =
            if panicked { (PANIC_BACKOFF, INTERNAL_ERROR) } else { (REFUSED_BACKOFF, "WriteRefused") };
        let pause = entry.hold.next(object, backoff);
        let note = if let Some(Panic { message }) = error.cause() {
            format!(
                "the controller panicked while it reconciled this object, and tries again after {} min or when the object \
                 changes: {message}",
                pause.as_secs() / 60
            )
        } else {
            self.handle.hub.metrics.refused(S::NAME);
            let refusal = error.cause().and_then(WriteError::refusal);
            let detail = sanitize(&refusal.unwrap_or_else(|| sanitize_chain(error)));
            warn!(system = S::NAME, cluster, detail, ?pause, "the API server refuses a write");
            format!("cannot {error}: the API server refused the write: {detail}")
        };
        // A repeated refusal is reported once; each panic is reported.
        if panicked || entry.hold.reported.as_ref() != Some(&note) {
            self.handle.publish(object, EventType::Warning, reason, &note).await;
            entry.hold.reported = Some(note);
        }
        pause
    }

    /// Reconciles each target when its time has come and its tenant has a slot.
    async fn reconcile_all(&self, mut triggers: UnboundedReceiver<Key>) {
        self.handle.listed().await;
        let (mut schedule, mut working) = (Schedule::default(), FuturesUnordered::new());
        loop {
            schedule.mature(Instant::now(), |key| self.tenant(key));
            while !self.slots.are_full()
                && let Some((key, slot)) = schedule.begin(|tenant| self.slots.begin(tenant))
            {
                let one = async move {
                    let requeue = self.reconcile(&key, slot).await;
                    (key, requeue)
                };
                working.push(Box::pin(one));
            }
            let next = schedule.next();
            tokio::select! {
                key = triggers.next() => match key {
                    Some(key) => schedule.add(key, Instant::now()),
                    None => return,
                },
                Some((key, requeue)) = working.next() => {
                    schedule.ended(key, requeue.map(|pause| Instant::now() + pause));
                }
                () = self.slots.freed() => {}
                () = next.map_or_else(|| future::pending().left_future(), |at| sleep_until(at).right_future()) => {}
            }
        }
    }

    /// Whose share of the slots a target takes.
    fn tenant(&self, key: &Key) -> String {
        let newest = self.handle.newest(key.clone());
        let object = newest.as_ref().and_then(|newest| newest.0.as_ref().ok());
        object.map_or_else(|| key.0.clone(), |object| self.system.tenant(object))
    }

    fn gone(&self, key: &Key) {
        self.targets.remove(key);
        self.handle.hub.metrics.queue.take(S::NAME, key);
        self.system.forget(key);
    }
}

impl<S: System> Follower<S::Object> for Reconciler<S> {
    fn changed(&self, key: &Key) {
        self.handle.trigger(key.clone());
    }

    fn gone(&self, key: &Key) {
        Self::gone(self, key);
    }

    fn listed(&self, watched: &Store<Guarded<S::Object>>) {
        for key in self.targets.keys() {
            if watched.get(&object_ref(key.clone())).is_none() {
                Self::gone(self, &key);
            }
        }
    }
}
