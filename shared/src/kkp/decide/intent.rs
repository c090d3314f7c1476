//! Which state is reconciled: what is requested, and who overrules it.

use jiff::Timestamp;

use super::facts::{Facts, kept_awake};
use crate::annotation::format;
use crate::kkp::api::{Cluster, Request};
use crate::kkp::phase::Phase;
use crate::kkp::record::Record;
use crate::power::Power;

impl Facts<'_> {
    /// [`effective`] for this record.
    pub(super) fn desired(&self, record: Option<&Record>) -> Power {
        effective(self.cluster, record, self.request, self.now)
    }
}

/// The state that is reconciled: as requested, but for a cluster that is kept awake. What a sleep of that has begun is
/// undone; one that sleeps already stays asleep.
pub fn effective(cluster: &Cluster, record: Option<&Record>, request: Request, now: Timestamp) -> Power {
    let is_undone =
        record.is_some_and(|record| record.phase != Phase::Dehydrated) && kept_awake(cluster, now).is_some();
    if is_undone { Power::Running } else { requested(cluster, record, request) }
}

/// As requested, unless another client has ended our pause, or the cluster is being deleted. KKP deletes nothing of a
/// cluster whose API server is down (row 20).
fn requested(cluster: &Cluster, record: Option<&Record>, request: Request) -> Power {
    let is_deleted = cluster.metadata.deletion_timestamp.is_some();
    let is_woken = |record: &Record| {
        let woken = record.woken.as_deref().and_then(format::time);
        is_unpaused_by_others(cluster, record) || woken.is_some_and(|woken| request.at.is_none_or(|at| at <= woken))
    };
    if is_deleted || record.is_some_and(is_woken) { Power::Running } else { request.desired }
}

/// Whether another client ended our pause while the cluster slept, or was about to: KKP brings up everything but etcd
/// (row 8).
pub(super) fn is_unpaused_by_others(cluster: &Cluster, record: &Record) -> bool {
    !cluster.spec.pause && matches!(record.phase, Phase::ScalingDownControlPlane | Phase::Dehydrated)
}

/// Whether the Cluster still requests a sleep that is void: another client has woken the cluster since, or a newer
/// request is on the record.
pub(super) fn is_overruled(facts: &Facts<'_>) -> bool {
    let on_cluster = Request::of(|key| facts.cluster.annotation(key));
    on_cluster.is_some_and(|request| request.desired == Power::Hibernating)
        && !facts.is_deleted()
        && requested(facts.cluster, facts.record, facts.request) == Power::Running
}
