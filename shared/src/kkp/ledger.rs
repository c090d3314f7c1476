//! What a report writes to the ledger: the machines of a sleep that begins, and how long one was that ends.
//!
//! While a cluster sleeps, nothing that could start a machine runs in its control plane. Where the controller finds that
//! others have raised a count, nothing proves since when.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::api::Cluster;
use super::decide::{Plan, Report};
use super::keys::DEHYDRATED;
use super::record::Machines;
use crate::annotation::format;
use crate::savings::ledger::{Group, LEDGER, Ledger, LedgerError, Sleep};
use crate::savings::usage::Account;

/// The word of a machine whose `MachineDeployment` names no size.
const UNKNOWN: &str = "unknown";

/// Since when the cluster sleeps.
fn asleep_since(cluster: &Cluster) -> Option<Timestamp> {
    let condition = cluster.condition(DEHYDRATED).filter(|condition| condition.status == "True")?;
    format::time(condition.last_transition_time.as_deref()?)
}

/// The account of a cluster.
pub fn account(cluster: &Cluster) -> Account {
    let ledger = cluster.condition(LEDGER).and_then(|condition| condition.message.as_deref());
    let cloud = &cluster.spec.cloud;
    Account {
        resource: cluster.metadata.name.clone().unwrap_or_default(),
        platform: cloud.provider_name.clone(),
        region: cloud.dc.clone(),
        asleep_since: asleep_since(cluster),
        ..Account::new(&cluster.metadata, ledger)
    }
}

/// The ledger as this plan makes it, and why the one before did not count. `None` if no sleep begins or ends.
pub fn ledger(cluster: &Cluster, plan: &Plan, now: Timestamp) -> Option<(Ledger, Option<LedgerError>)> {
    let report = plan.report.as_ref();
    let (since, sleeps) = (asleep_since(cluster), report.is_some_and(|report| report.dehydrated));
    if sleeps == since.is_some() {
        return None;
    }
    let before = cluster.condition(LEDGER).and_then(|condition| condition.message.as_deref());
    let (mut ledger, dropped) = Ledger::or_new(before, cluster.uid(), now);
    match since {
        None => {
            let recorded = plan.record.iter().flat_map(|record| record.machine_deployments.values());
            ledger.fell_asleep(by_type(recorded));
        }
        Some(since) => {
            let span = (since.min(now), now);
            let asleep = if is_wake(report) { span } else { (span.0, span.0) };
            let machines = ledger.machines().map(|(kind, count)| Group { kind: kind.to_owned(), count, asleep });
            let machines = machines.collect();
            ledger.add(&Sleep { span, asleep, machines });
        }
    }
    Some((ledger, dropped))
}

/// Whether a sleep ends by a wake, and not because a count was raised.
fn is_wake(report: Option<&Report>) -> bool {
    report.is_none_or(|report| report.state.phase.is_none_or(|phase| !phase.is_of_sleep()))
}

fn by_type<'a>(recorded: impl Iterator<Item = &'a Machines>) -> BTreeMap<String, u64> {
    let mut types = BTreeMap::new();
    for one in recorded.filter(|one| one.replicas > 0) {
        let kind = if one.machine_type.is_empty() { UNKNOWN } else { &one.machine_type };
        *types.entry(kind.to_owned()).or_default() += u64::from(one.replicas);
    }
    types
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kkp::api::{ClusterSpec, Condition};
    use crate::kkp::phase::Phase;
    use crate::kkp::record::Record;
    use crate::record::Format;

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
        assert_eq!(ledger(&cluster, &plan(Some(Phase::Pausing), Some(record.clone())), now), None);
        let (begun, dropped) = ledger(&cluster, &plan(Some(Phase::Dehydrated), Some(record)), now).unwrap();
        assert_eq!((begun.machines().collect::<Vec<_>>(), dropped), (vec![("t3.medium", 2), ("unknown", 1)], None));
        set(&mut cluster, LEDGER, "False", Some(begun.text()), "2026-11-28T18:00:00Z");
        set(&mut cluster, DEHYDRATED, "True", None, "2026-11-28T18:00:00Z");
        cluster
    }

    #[test]
    fn a_wake_ends_a_sleep_that_counts_and_a_raised_count_one_that_nothing_proves() {
        let (cluster, now) = (asleep(), at("2026-11-29T08:00:00Z"));
        assert_eq!(ledger(&cluster, &plan(Some(Phase::Dehydrated), None), now), None);
        for (phase, hours) in
            [(Some(Phase::StartingControlPlane), 14), (None, 14), (Some(Phase::ScalingDownControlPlane), 0)]
        {
            let (ended, _) = ledger(&cluster, &plan(phase, None), now).unwrap();
            let (asleep, machines) = ended.totals();
            assert_eq!(asleep, hours * 3_600, "{phase:?}");
            assert_eq!(machines.get("t3.medium").copied().unwrap_or_default(), hours * 7_200, "{phase:?}");
        }
    }

    #[test]
    fn the_ledger_of_a_restored_cluster_counts_for_nothing() {
        let (mut cluster, now) = (asleep(), at("2026-11-29T08:00:00Z"));
        cluster.metadata.uid = Some("u-2".to_owned());
        let (ended, dropped) = ledger(&cluster, &plan(None, None), now).unwrap();
        assert_eq!(dropped, Some(LedgerError::OtherObject));
        assert_eq!(ended.totals().1, BTreeMap::new());
        assert_eq!(account(&cluster).dropped, Some(LedgerError::OtherObject));
    }
}
