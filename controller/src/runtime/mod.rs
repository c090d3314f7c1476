//! The reconcile harness: everything that the work on one kind of object has in common with the work on any other.
//!
//! A [`System`] says how one target is observed, decided about, acted on and reported. The harness does the rest: it
//! watches the kind, keeps one typed state per target, runs one reconcile per target at a time with a timeout, contains
//! panics, classifies errors, requeues, and counts. A system that only ever sees one target cannot delay or break
//! another one.

pub mod backoff;
pub mod clock;
pub mod crash_marks;
mod error;
pub mod events;
pub mod hub;
pub mod index;
pub mod kind;
pub mod lease;
pub mod panics;
pub mod readiness;
mod reconcile;
mod schedule;
pub mod slot;
mod target;
#[cfg(test)]
pub mod testing;
#[cfg(test)]
mod tests;
pub mod watch_backoff;
mod write;

use std::fmt::Debug;
use std::future::Future;
use std::ops::Range;
use std::time::Duration;

use kube::Resource;
pub use shared::guarded::Guarded;
use shared::read::Foreign;

pub use self::error::{Class, ReconcileError, Reconciled};
pub use self::hub::{Handle, Hub, Scoped};
pub use self::kind::{Follower, Term, group, run};
pub use self::target::{Key, Target, fingerprint, hash};
pub use self::write::{Moved, WriteError, classify};

/// What the harness needs of a kind: a resource whose group, version and scope are known when the program is compiled.
pub trait Object:
    Resource<DynamicType = (), Scope: Scoped<Self>> + Clone + Foreign + Debug + Send + Sync + 'static
{
}

impl<K> Object for K where
    K: Resource<DynamicType = (), Scope: Scoped<K>> + Clone + Foreign + Debug + Send + Sync + 'static
{
}

/// The work on the targets of one kind.
///
/// One reconcile is `observe`, `decide`, `remember`, `act`, `decide_again` if acting has changed the facts, `report`, and
/// `act_after_report`. An error ends it early; [`ReconcileError::class`] says how soon the next one follows.
pub trait System: Send + Sync + Sized + 'static {
    /// The kind of object that is a target.
    type Object: Object;
    /// What is remembered of one target between two reconciles. Losing it costs time, never a wrong action: it is
    /// dropped when a reconcile panics, when the object is replaced by another of its name, and with leadership.
    type State: Default + Send;
    /// Everything that a decision may read.
    type Facts<'a>: Send + Sync;
    /// Everything that a decision wants done.
    type Plan: Send + Sync;

    /// Label of metrics, and name in `/readyz?verbose`.
    const NAME: &'static str;
    /// What Events of this system are about.
    const ACTION: &'static str;
    /// Limits and times.
    const SETTINGS: Settings;

    /// Targets of one tenant that are reconciled at once, where a flag sets it.
    fn concurrency(&self) -> u16 {
        Self::SETTINGS.concurrency
    }

    /// Whose share of the capacity its work takes.
    fn tenant(&self, object: &Self::Object) -> String {
        server::tenant(object.meta()).to_owned()
    }

    /// Fills in the facts about `object`, the newer of what the watch brought and what our last write returned.
    fn observe<'a>(
        &self,
        object: &'a Self::Object,
        target: &mut Target<Self>,
    ) -> impl Future<Output = Reconciled<Observed<Self::Facts<'a>>>> + Send;

    /// Decides. Pure: same facts, same plan.
    fn decide(&self, facts: &Self::Facts<'_>) -> Self::Plan;

    /// Records what counts as done from here on, even if the answer to the call is lost.
    fn remember(&self, _plan: &Self::Plan, _state: &mut Self::State) {}

    /// Carries out the plan's actions. What came of them becomes a fact.
    fn act(
        &self,
        _facts: &mut Self::Facts<'_>,
        _plan: &mut Self::Plan,
        _target: &mut Target<Self>,
    ) -> impl Future<Output = Reconciled<Acted>> + Send {
        std::future::ready(Ok(Acted::Nothing))
    }

    /// Decides once more, with the facts that acting has changed.
    fn decide_again(&self, facts: &Self::Facts<'_>, _first: Self::Plan) -> Self::Plan {
        self.decide(facts)
    }

    /// Writes the status and Events of the plan, and returns when to reconcile again.
    fn report(
        &self,
        facts: &mut Self::Facts<'_>,
        plan: &mut Self::Plan,
        target: &mut Target<Self>,
    ) -> impl Future<Output = Reconciled<Done>> + Send;

    /// Carries out the actions that must not hold up the report, such as calls to a tenant's API server. `reported` is
    /// how the report has ended.
    fn act_after_report(
        &self,
        _facts: &mut Self::Facts<'_>,
        _plan: &Self::Plan,
        reported: Done,
        _target: &mut Target<Self>,
    ) -> impl Future<Output = Reconciled<Done>> + Send {
        std::future::ready(Ok(reported))
    }

    /// A reconcile has failed: what the state says may be out of date.
    fn failed(&self, _state: &mut Self::State, _class: Class) {}

    /// A target is gone, or its state was dropped: what is kept of it outside its state goes as well.
    fn forget(&self, _key: &Key) {}

    /// Counts a reconcile that has ended.
    fn measured(&self, hub: &Hub, outcome: &'static str, took: Duration) {
        hub.metrics.reconciled(Self::NAME, outcome, took);
    }

    /// Watches whatever else calls for reconciles, and asks for them with [`Handle::trigger`]. Runs for one term of
    /// leadership.
    fn follow(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}

/// Limits and times of one system.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Objects of one page of the first list. While a page is read it takes several times the memory of what is kept of
    /// it.
    pub page_size: u32,
    /// Targets of one tenant that are reconciled at once; half as many more over all tenants.
    pub concurrency: u16,
    /// How long one reconcile may take before it is given up, but for waits for a slot: longer than the timeouts of all
    /// of its calls together.
    pub timeout: Duration,
    /// Whether a hub may do well without the kind. Then its watch is tried again less often.
    pub optional: bool,
    /// Milliseconds until the next try after a lost race. It doubles, up to sixteen times that.
    pub conflict: Range<u64>,
    /// Milliseconds until the next try after any other failure.
    pub retry: Range<u64>,
}

impl Settings {
    /// Of the kind that every hub has.
    pub const OWN: Self = Self {
        page_size: 50,
        concurrency: 1,
        timeout: Duration::from_mins(2),
        optional: false,
        conflict: 100..500,
        retry: 2_000..5_000,
    };
    /// Of a kind whose other writers are quick.
    pub const QUICK: Self = Self { optional: true, conflict: 50..200, retry: 1_000..2_000, ..Self::OWN };
    /// Of a kind whose operator writes often.
    pub const SLOW: Self = Self { optional: true, conflict: 500..1_000, ..Self::OWN };
}

/// What observing has found.
#[derive(Debug)]
pub enum Observed<F> {
    /// Facts to decide about.
    Facts(F),
    /// Nothing is due. Reconciled again after this time, or only when something changes.
    Rest(Option<Duration>),
}

/// What acting has done to the facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acted {
    /// They are as they were.
    Nothing,
    /// They have changed.
    Changed,
}

/// How a reconcile has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// When to reconcile again, unless something changes before.
    pub requeue: Option<Duration>,
    /// Whether anything was written or called.
    pub changed: bool,
}
