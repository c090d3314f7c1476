//! How many instances a cluster has and how many are awaited: from `HibernationData`, or else from Hive's messages.

use crate::hive::api::ClusterDeployment;
use crate::hive::conditions::{HIBERNATING, PROGRESS, READY};
use crate::hive::data::{Data, Unit};
use crate::target::record::Instances;

/// The count of hibernate-controller. Without one: the messages of Hive, which only name the awaited machines.
pub(super) fn of(cluster: &ClusterDeployment) -> Option<Instances> {
    let progress = cluster.condition(PROGRESS).and_then(|progress| Data::of(cluster).progress_of(progress));
    if let Some(count) = progress.filter(|progress| progress.unit == Unit::Instances) {
        return Some(Instances { total: Some(count.total), awaited: count.awaited });
    }
    let message = |type_| cluster.condition(type_).and_then(|detail| detail.message.as_deref());
    [HIBERNATING, READY].into_iter().filter_map(message).find_map(named)
}

/// `... Some machines have not yet stopped: i-1,i-2`.
fn named(message: &str) -> Option<Instances> {
    let (_, names) = message.split_once(". Some machines ")?.1.split_once(": ")?;
    let names = names.split_once(' ').map_or(names, |(names, _)| names);
    let awaited = names.split(',').filter(|name| !name.is_empty()).count();
    Some(Instances { total: None, awaited })
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
