//! What a decision's status writes to the ledger: the machines of a sleep that begins, and what is proven of one that ends;
//! and what its readers find there.

use std::collections::BTreeMap;

use super::facts::Facts;
use crate::cloud::InstanceState::{ShuttingDown, Stopped, Terminated};
use crate::cloud::{Instance, Inventory};
use crate::hive::api::ClusterDeployment;
use crate::hive::conditions::reason::DRIFT;
use crate::hive::conditions::{HIBERNATING, PROGRESS, PowerStatus};
use crate::savings::history::SleepHistory;
use crate::savings::ledger::{Before, LEDGER, Ledger, LedgerError, MachineGroup, Sleep};
use crate::savings::period::Span;

fn message(cluster: &ClusterDeployment) -> Option<&str> {
    cluster.condition(LEDGER)?.message.as_deref()
}

/// The sleep history of a cluster. While it reports that a machine runs, it does not sleep.
pub fn sleep_history(cluster: &ClusterDeployment) -> SleepHistory {
    let platform = &cluster.spec.platform;
    SleepHistory {
        resource: cluster.spec.cluster_metadata.as_ref().map(|of| of.infra_id.clone()).unwrap_or_default(),
        platform: platform.name().to_owned(),
        region: platform.region().unwrap_or_default().to_owned(),
        asleep_since: cluster.true_since(HIBERNATING).filter(|_| cluster.reason(PROGRESS) != DRIFT),
        ..SleepHistory::new(&cluster.metadata, message(cluster))
    }
}

/// The ledger as this status makes it, and why the one before did not count. `None` if no sleep begins or ends.
pub(super) fn ledger(facts: &Facts<'_>, status: &PowerStatus) -> Option<(Ledger, Option<LedgerError>)> {
    let cluster = facts.cluster;
    let since = cluster.true_since(HIBERNATING);
    let before = Before { meta: &cluster.metadata, message: message(cluster), since };
    let sleeps = status.hibernating.as_ref()?.status == "True";
    let machines = || facts.inventory().map(by_type).unwrap_or_default();
    Ledger::after(before, sleeps, facts.now, machines, |span, ledger| sleep(facts, span, ledger))
}

/// Machines of each type. What is terminated is not asleep.
fn by_type(machines: &Inventory) -> BTreeMap<String, u64> {
    let mut types = BTreeMap::new();
    for instance in counted(machines) {
        *types.entry(instance.price_key()).or_default() += 1;
    }
    types
}

fn counted(machines: &Inventory) -> impl Iterator<Item = &Instance> {
    machines.instances.iter().filter(|instance| !matches!(instance.state, ShuttingDown | Terminated))
}

fn sleep(facts: &Facts<'_>, span: Span, ledger: &Ledger) -> Sleep {
    // As far as lists, one after the other, have shown all machines stopped.
    let seen = facts.stopped.of(span);
    let Some(machines) = facts.inventory() else {
        return Sleep { span, asleep: seen, machines: ledger.groups(seen) };
    };
    // A machine that is stopped, and was last started before the sleep, has not run in it.
    let is_proven = |instance: &&Instance| {
        let started = instance.launched_at.filter(|_| machines.profile.reports_start_time);
        instance.state == Stopped && (instance.recorded || started.is_some_and(|started| started <= span.0))
    };
    let proven = |instance: &Instance| if is_proven(&instance) { span } else { seen };
    let mut groups: BTreeMap<(String, Span), u64> = BTreeMap::new();
    for instance in counted(machines) {
        *groups.entry((instance.price_key(), proven(instance))).or_default() += 1;
    }
    let all_proven = counted(machines).next().is_some() && counted(machines).all(|instance| is_proven(&instance));
    let asleep = if all_proven { span } else { seen };
    // A cloud whose lists have no types until the next sleep: those of the beginning count.
    let is_untyped = counted(machines).all(|instance| instance.machine_type.is_empty());
    let listed = groups.into_iter().map(|((kind, asleep), count)| MachineGroup { kind, count, asleep });
    let machines = if is_untyped { ledger.groups(asleep) } else { listed.collect() };
    Sleep { span, asleep, machines }
}
