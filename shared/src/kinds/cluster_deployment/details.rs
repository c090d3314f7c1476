//! What only `status` reads of a cluster: how many instances it has and how many are awaited, from `HibernationData` or
//! else from Hive's messages, and when `spec.hibernateAfter` puts it to sleep.

use crate::duration;
use crate::hive::api::ClusterDeployment;
use crate::hive::conditions::{HIBERNATING, PROGRESS, READY};
use crate::hive::data::{Data, Unit};
use crate::hive::pool;
use crate::kinds::record::Instances;
use crate::power::Power;
use jiff::Timestamp;

/// The count of hibernate-controller. Without one: the messages of Hive, which only name the awaited machines.
pub(super) fn instances(cluster: &ClusterDeployment) -> Option<Instances> {
    let progress = cluster.condition(PROGRESS).and_then(|progress| Data::of(cluster).progress_of(progress));
    if let Some(count) = progress.filter(|progress| progress.unit == Unit::Instances) {
        return Some(Instances { total: Some(count.total), awaited: count.awaited });
    }
    [HIBERNATING, READY].into_iter().find_map(|type_| named(cluster.message(type_)))
}

/// `... Some machines have not yet stopped: i-1,i-2`.
fn named(message: &str) -> Option<Instances> {
    let (_, names) = message.split_once(". Some machines ")?.1.split_once(": ")?;
    let names = names.split_once(' ').map_or(names, |(names, _)| names);
    let awaited = names.split(',').filter(|name| !name.is_empty()).count();
    Some(Instances { total: None, awaited })
}

/// By Hive's rules (docs/reference/hive.md, section 1.2): that long after the latest of installation, claim, and the
/// moment R became True; not for unclaimed clusters of a pool, and not while the cluster sleeps or is on its way.
pub(super) fn fires_at(cluster: &ClusterDeployment) -> Option<Timestamp> {
    let after = duration::parse_positive(cluster.spec.hibernate_after.as_deref()?).ok()?;
    let status_of = |type_| cluster.condition(type_).map(|condition| condition.status.as_str());
    let never_slept = status_of(HIBERNATING).is_none_or(|status| status == "Unknown");
    if cluster.desired() == Power::Hibernating || !(never_slept || cluster.is_true(READY)) {
        return None;
    }
    if pool::deciding(cluster).is_some() {
        return None;
    }
    let claimed_at = cluster.spec.cluster_pool_ref.as_ref().and_then(|pool| Some(pool.claimed_timestamp.as_ref()?.0));
    let baseline = [cluster.installed_at(), claimed_at, cluster.true_since(READY)].into_iter().flatten().max()?;
    baseline.checked_add(after).ok()
}

#[cfg(test)]
mod tests {
    use crate::hive::conditions::PowerStatus;

    use super::*;

    #[test]
    fn numbers_are_taken_from_what_hive_writes() {
        let hive = |status: PowerStatus| {
            let patch = status.patch(&ClusterDeployment::default(), jiff::Timestamp::UNIX_EPOCH).unwrap();
            let conditions = patch[1]["value"]["conditions"].as_array().unwrap().clone();
            let messages =
                conditions.into_iter().filter_map(|detail| Some(detail.get("message")?.as_str()?.to_owned()));
            messages.collect::<Vec<_>>().iter().find_map(|message| named(message))
        };
        let only = |awaited| Some(Instances { total: None, awaited });
        assert_eq!(hive(PowerStatus::waiting_for_machines_to_stop(&["i-1", "i-2"])), only(2));
        assert_eq!(hive(PowerStatus::waiting_for_machines(&["i-1"])), only(1));
        assert_eq!(hive(PowerStatus::running()), None);
    }
}
