//! When `spec.hibernateAfter` puts a cluster to sleep.

use crate::duration;
use crate::hive::api::ClusterDeployment;
use crate::hive::conditions::{HIBERNATING, READY};
use crate::power::Power;
use jiff::Timestamp;

/// By Hive's rules (docs/reference/hive.md, section 1.2): that long after the latest of installation, claim, and the
/// moment R became True; not for unclaimed clusters of a pool, and not while the cluster sleeps or is on its way.
pub(super) fn fires_at(cluster: &ClusterDeployment) -> Option<Timestamp> {
    let after = duration::parse_positive(cluster.spec.hibernate_after.as_deref()?).ok()?;
    let status_of = |type_| cluster.condition(type_).map(|condition| condition.status.as_str());
    let ready = cluster.condition(READY).filter(|ready| ready.status == "True");
    let never_slept = status_of(HIBERNATING).is_none_or(|status| status == "Unknown");
    if cluster.desired() == Power::Hibernating || !(never_slept || ready.is_some()) {
        return None;
    }
    let pool = cluster.spec.cluster_pool_ref.as_ref();
    let claimed_at = pool.and_then(|pool| pool.claimed_timestamp.as_ref());
    let unclaimed = pool.is_some_and(|pool| {
        let claim = pool.claim_name.as_deref().unwrap_or_default();
        !pool.pool_name.is_empty() && (claim.is_empty() || claimed_at.is_none())
    });
    if unclaimed {
        return None;
    }
    let installed_at = cluster.status.as_ref().and_then(|status| status.installed_timestamp.as_ref());
    let ready_since = ready.and_then(|ready| ready.last_transition_time.as_ref());
    let baseline = [installed_at, claimed_at, ready_since].into_iter().flatten().map(|time| time.0).max()?;
    baseline.checked_add(after).ok()
}
