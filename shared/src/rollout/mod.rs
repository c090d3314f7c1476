//! Rollouts: which targets of a fleet start now.
//!
//! [`decide`] is total, deterministic and idempotent. It knows nothing of clusters: a caller says what state each
//! target is in, and starts what it is told. The result is independent of the order of the input.

pub mod admission;
pub mod api;
pub mod draft;
pub mod forecast;
pub mod member;
mod members;
pub mod plan;
pub mod report;
pub mod selector;
mod share;
pub mod snapshot;
pub mod start;
pub mod status;
#[cfg(test)]
mod tests;
pub mod timeline;
mod window;

use jiff::Timestamp;

pub use member::{State, Target};
pub use members::{Members, NAMESPACE_NAME, NamespaceLabels, needs_namespaces, place};
pub use share::{Share, ShareError};
pub use window::{Group, Window, decide};

/// What is to be done. Targets are named by their index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision<'a> {
    /// Targets to start, in this order.
    pub start: Vec<usize>,
    /// Deferred targets, and those of earlier groups that came late, once every other target has started. In this
    /// order: each may start if nothing defers it any more.
    pub retry: Vec<usize>,
    /// Claims to turn into records: these have succeeded, or are no longer the rollout's.
    pub ended: Vec<usize>,
    /// Targets whose deadline has passed.
    pub timed_out: Vec<usize>,
    /// Targets that hold a slot.
    pub holders: Vec<usize>,
    /// The first group with more failures than it may have. Then nothing starts.
    pub breached: Option<usize>,
    /// The group whose targets start now, or end; `None` once every group is over.
    pub current: Option<usize>,
    /// A group that is over and after which a person has to approve. Until then nothing starts.
    pub awaits_approval: Option<usize>,
    /// Domains in which nothing starts: their cloud lacks capacity or rate-limits requests.
    pub closed: Vec<&'a str>,
    /// Whether every target has ended.
    pub complete: bool,
    /// When the next limit expires, if no target changes before.
    pub next_check: Option<Timestamp>,
}
