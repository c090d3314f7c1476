//! What a report writes to the ledger: the machines of a sleep that begins, and how long one was that ends.
//!
//! While every count of its control plane is 0, nothing runs that could start a machine: the controller observes them once
//! a minute.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::api::Cluster;
use super::decide::Plan;
use super::keys::DEHYDRATED;
use super::record::Machines;
use crate::annotation::format;
use crate::cloud::UNKNOWN_TYPE;
use crate::savings::history::SleepHistory;
use crate::savings::ledger::{Before, LEDGER, Ledger, LedgerError, Seen, Sleep};

/// Since when the cluster sleeps.
fn asleep_since(cluster: &Cluster) -> Option<Timestamp> {
    let condition = cluster.condition(DEHYDRATED).filter(|condition| condition.status == "True")?;
    format::time(condition.last_transition_time.as_deref()?)
}

/// The message of its ledger.
fn message(cluster: &Cluster) -> Option<&str> {
    cluster.condition(LEDGER)?.message.as_deref()
}

/// The sleep history of a cluster.
pub fn sleep_history(cluster: &Cluster) -> SleepHistory {
    let cloud = &cluster.spec.cloud;
    SleepHistory {
        resource: cluster.metadata.name.clone().unwrap_or_default(),
        platform: cloud.provider_name.clone(),
        region: cloud.dc.clone(),
        asleep_since: asleep_since(cluster),
        ..SleepHistory::new(&cluster.metadata, message(cluster))
    }
}

/// The ledger as this plan makes it, and why the one before did not count. `None` if no sleep begins or ends. `seen`: how
/// long every count was observed at 0.
pub fn ledger(cluster: &Cluster, plan: &Plan, seen: Seen, now: Timestamp) -> Option<(Ledger, Option<LedgerError>)> {
    let before = Before { meta: &cluster.metadata, message: message(cluster), since: asleep_since(cluster) };
    let sleeps = plan.report.as_ref().is_some_and(|report| report.dehydrated);
    let machines = || by_type(plan.record.iter().flat_map(|record| record.machine_deployments.values()));
    Ledger::after(before, sleeps, now, machines, |span, ledger| {
        let asleep = seen.of(span);
        Sleep { span, asleep, machines: ledger.groups(asleep) }
    })
}

fn by_type<'a>(recorded: impl Iterator<Item = &'a Machines>) -> BTreeMap<String, u64> {
    let mut types = BTreeMap::new();
    for one in recorded.filter(|one| one.replicas > 0) {
        let kind = if one.machine_type.is_empty() { UNKNOWN_TYPE } else { &one.machine_type };
        *types.entry(kind.to_owned()).or_default() += u64::from(one.replicas);
    }
    types
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::SignedDuration;

    use super::*;
    use crate::kkp::api::{ClusterSpec, Condition};
    use crate::kkp::decide::Report;
    use crate::kkp::phase::Phase;
    use crate::kkp::record::Record;
    use crate::record::Format;

    const EVERY: Duration = Duration::from_mins(1);

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn plan(phase: Option<Phase>, record: Option<Record>) -> Plan {
        Plan { report: phase.map(|phase| Report::of(phase, "")), record, ..Plan::default() }
    }

    fn set(cluster: &mut Cluster, name: &str, status: &str, message: Option<String>, since: &str) {
        let condition = Condition {
            status: status.to_owned(),
            message,
            last_transition_time: Some(since.to_owned()),
            ..Condition::default()
        };
        cluster.status.get_or_insert_default().conditions.insert(name.to_owned(), condition);
    }

    /// A cluster that fell asleep at 18:00 with three machines.
    fn asleep() -> Cluster {
        let mut cluster = Cluster::new("abc", ClusterSpec::default());
        cluster.metadata.uid = Some("u-1".to_owned());
        let mut record = Record::begin("u-1", at("2026-11-28T17:50:00Z"));
        for (name, replicas, machine_type) in [("a", 2, "t3.medium"), ("b", 1, ""), ("c", 0, "m5.large")] {
            record.note_machines(
                name,
                Machines { replicas, machine_type: machine_type.to_owned(), ..Machines::default() },
            );
        }
        let now = at("2026-11-28T18:00:00Z");
        assert_eq!(ledger(&cluster, &plan(Some(Phase::Pausing), Some(record.clone())), Seen::default(), now), None);
        let (begun, dropped) =
            ledger(&cluster, &plan(Some(Phase::Dehydrated), Some(record)), Seen::default(), now).unwrap();
        assert_eq!((begun.machines().collect::<Vec<_>>(), dropped), (vec![("t3.medium", 2), ("unknown", 1)], None));
        set(&mut cluster, LEDGER, "False", Some(begun.text()), "2026-11-28T18:00:00Z");
        set(&mut cluster, DEHYDRATED, "True", None, "2026-11-28T18:00:00Z");
        cluster
    }

    #[test]
    fn a_sleep_counts_as_far_as_every_count_was_observed_at_0() {
        let (cluster, now) = (asleep(), at("2026-11-29T08:00:00Z"));
        let minutes = |from: &str, count: i64| {
            let from = at(from);
            (0..=count).map(move |one| from + SignedDuration::from_mins(one))
        };
        let mut seen = Seen::default();
        minutes("2026-11-28T18:00:00Z", 14 * 60).for_each(|at| seen.observe(true, at, EVERY));
        assert_eq!(ledger(&cluster, &plan(Some(Phase::Dehydrated), None), seen, now), None);
        for phase in [Some(Phase::StartingControlPlane), None] {
            let (ended, _) = ledger(&cluster, &plan(phase, None), seen, now).unwrap();
            let (asleep, machines) = ended.totals();
            // Times of conditions have whole seconds: the sleep may have begun a second later.
            assert_eq!((asleep, machines["t3.medium"]), (14 * 3_600 - 1, 28 * 3_600 - 2), "{phase:?}");
        }
        // A controller that began at 20:00 finds at 22:00 that others have raised a count.
        let mut seen = Seen::default();
        minutes("2026-11-28T20:00:00Z", 2 * 60).for_each(|at| seen.observe(true, at, EVERY));
        seen.observe(false, at("2026-11-28T22:01:00Z"), EVERY);
        let (ended, _) = ledger(&cluster, &plan(Some(Phase::ScalingDownControlPlane), None), seen, now).unwrap();
        assert_eq!(ended.totals().0, 2 * 3_600);
    }

    #[test]
    fn the_ledger_of_a_restored_cluster_counts_for_nothing() {
        let (mut cluster, now) = (asleep(), at("2026-11-29T08:00:00Z"));
        cluster.metadata.uid = Some("u-2".to_owned());
        let (ended, dropped) = ledger(&cluster, &plan(None, None), Seen::default(), now).unwrap();
        assert_eq!(dropped, Some(LedgerError::OtherObject));
        assert_eq!(ended.totals().1, BTreeMap::new());
        assert_eq!(sleep_history(&cluster).dropped, Some(LedgerError::OtherObject));
    }
}
