//! One typed state per target, by namespace and name, guarded by UID.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::System;
use super::backoff::{Backoff, PANIC_BACKOFF, Streak};
use super::clock;
use super::hub::version;

/// Longest pause of a target that is held back once its status has changed.
const PAUSE_AFTER_STATUS: Duration = PANIC_BACKOFF.first;

/// Namespace and name of a target.
pub type Key = (String, String);

/// What is kept of one target between two reconciles.
pub struct Target<S: System> {
    /// The system's own state.
    pub state: S::State,
    /// The object as it came back from our last write, until the watch has caught up with it.
    written: Option<Arc<S::Object>>,
    /// When a panic last took the state with it: what happened before is forgotten, as it is to a new leader.
    pub forgot_at: Option<Timestamp>,
}

impl<S: System> Default for Target<S> {
    fn default() -> Self {
        Self { state: S::State::default(), written: None, forgot_at: None }
    }
}

impl<S: System> Target<S> {
    /// Keeps what a write has returned: the next reconcile must not see an older object.
    pub fn wrote(&mut self, object: &S::Object) {
        self.written = Some(Arc::new(object.clone()));
    }

    /// Drops the state, which may be inconsistent.
    pub(super) fn reset(&mut self) {
        *self = Self { state: S::State::default(), written: None, forgot_at: Some(clock::now()) };
    }

    /// What our last write returned, if the watch has not caught up with it.
    pub(super) fn newer_than(&mut self, watched: &S::Object) -> Option<Arc<S::Object>> {
        self.written.take_if(|written| written.uid() != watched.uid() || version(&**written) <= version(watched));
        self.written.clone()
    }
}

/// A target and what the harness itself keeps of it.
pub(super) struct TargetEntry<S: System> {
    pub(super) uid: Option<String>,
    pub(super) target: Target<S>,
    /// Consecutive reconciles whose write conflicted.
    pub(super) conflicts: u32,
    /// Failures that would repeat themselves.
    pub(super) hold: Hold,
}

/// A target that is held back because its last reconciles were refused or have panicked.
#[derive(Clone, Debug, Default)]
pub(super) struct Hold {
    /// Failures of this kind in a row.
    streak: Streak,
    /// What the object said then that people write, and its version.
    seen: Option<(u64, Option<String>)>,
    /// When the last one was.
    since: Option<Instant>,
    /// When the next reconcile is due, unless the object changes before.
    until: Option<Instant>,
    /// What was reported last, so that it is reported once.
    pub(super) reported: Option<String>,
}

impl Hold {
    /// How long the target is still left alone.
    ///
    /// What people write ends it. A new status, which our own writes make, only ends what is left of the first pause:
    /// the work on it may write and fail each time.
    pub(super) fn left(&self, object: &impl kube::Resource) -> Option<Duration> {
        let (until, since, (seen, version)) = (self.until?, self.since?, self.seen.as_ref()?);
        if *seen != fingerprint(object.meta()) {
            return None;
        }
        let moved = *version != object.meta().resource_version;
        let until = if moved { until.min(since + PAUSE_AFTER_STATUS) } else { until };
        Some(until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }

    /// One more failure. Answers how long the target is left alone.
    pub(super) fn next(&mut self, object: &impl kube::Resource, backoff: Backoff) -> Duration {
        let pause = self.streak.next(backoff);
        let now = Instant::now();
        self.seen = Some((fingerprint(object.meta()), object.meta().resource_version.clone()));
        (self.since, self.until) = (Some(now), Some(now + pause));
        pause
    }
}

/// What people write on an object. Status writes, such as our own, do not change it.
pub fn fingerprint(meta: &ObjectMeta) -> u64 {
    let is_deleted = meta.deletion_timestamp.is_some();
    hash(&(&meta.uid, meta.generation, is_deleted, &meta.annotations, &meta.labels))
}

/// Anything in few bytes, for as long as this process lasts.
pub fn hash(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// The states of all targets.
pub(super) struct Targets<S: System> {
    /// `None` while a reconcile is at work, which has the state meanwhile.
    all: Mutex<HashMap<Key, Option<Box<TargetEntry<S>>>>>,
}

impl<S: System> Default for Targets<S> {
    fn default() -> Self {
        Self { all: Mutex::default() }
    }
}

impl<S: System> Targets<S> {
    /// Takes the state of this very object, and not of an earlier one of the same name. Says whether there was one of
    /// that.
    ///
    /// The same target is never reconciled twice at once, so that its state can be taken out and put back.
    pub(super) fn take(&self, key: &Key, uid: Option<&String>) -> (Box<TargetEntry<S>>, bool) {
        let kept = self.all.lock().entry(key.clone()).or_default().take();
        let replaced = kept.as_ref().is_some_and(|entry| entry.uid.as_ref() != uid);
        let kept = kept.filter(|_| !replaced);
        let new = || {
            let (target, hold) = (Target::default(), Hold::default());
            Box::new(TargetEntry { uid: uid.cloned(), target, conflicts: 0, hold })
        };
        (kept.unwrap_or_else(new), replaced)
    }

    /// Puts a state back. False if the target was forgotten meanwhile: then the state is dropped.
    pub(super) fn put(&self, key: &Key, entry: Box<TargetEntry<S>>) -> bool {
        let mut all = self.all.lock();
        let Some(place) = all.get_mut(key) else { return false };
        *place = Some(entry);
        true
    }

    /// A target is gone.
    pub(super) fn remove(&self, key: &Key) {
        let removed = self.all.lock().remove(key);
        drop(removed); // not under the lock: the system's own code runs
    }

    /// All targets of which there is a state.
    pub(super) fn keys(&self) -> Vec<Key> {
        self.all.lock().keys().cloned().collect()
    }
}
