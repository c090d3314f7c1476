//! Rollouts by phase, and the targets of those that are under way by state.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use server::metrics::Declare as _;
use shared::rollout::status::{PowerRolloutStatus, RolloutPhase};

use crate::runtime::Key;

/// Label of rollouts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InPhase {
    phase: String,
}

/// Label of targets.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InState {
    state: String,
}

/// How a rollout is counted.
type Counted = (RolloutPhase, BTreeMap<String, u32>);

/// Rollouts and their targets.
pub struct RolloutMetrics {
    rollouts: Family<InPhase, Gauge>,
    targets: Family<InState, Gauge>,
    counted: Mutex<HashMap<Key, Counted>>,
}

impl RolloutMetrics {
    /// Registers them in a registry with our prefix.
    pub fn new(registry: &mut Registry) -> Self {
        let targets = "Targets of the PowerRollouts that are not over, in each state";
        Self {
            rollouts: registry.add("rollouts", "PowerRollouts in each phase"),
            targets: registry.add("rollout_targets", targets),
            counted: Mutex::default(),
        }
    }

    /// Counts a rollout by its status.
    pub fn count(&self, rollout: &Key, status: &PowerRolloutStatus) {
        let Some(phase) = status.phase else { return };
        let targets = if phase.is_over() { BTreeMap::new() } else { status.counts.clone() };
        let mut all = self.counted.lock();
        let before = all.insert(rollout.clone(), (phase, targets.clone()));
        self.add(before, -1);
        self.add(Some((phase, targets)), 1);
    }

    /// A rollout is gone.
    pub fn forget(&self, rollout: &Key) {
        let before = self.counted.lock().remove(rollout);
        self.add(before, -1);
    }

    /// Leadership was lost.
    pub fn forget_all(&self) {
        self.counted.lock().clear();
        self.rollouts.clear();
        self.targets.clear();
    }

    fn add(&self, counted: Option<Counted>, sign: i64) {
        let Some((phase, targets)) = counted else { return };
        self.rollouts.get_or_create(&InPhase { phase: phase.to_string() }).inc_by(sign);
        for (state, count) in targets {
            self.targets.get_or_create(&InState { state }).inc_by(sign * i64::from(count));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollout_counts_once_and_its_targets_until_it_is_over() {
        let metrics = RolloutMetrics::new(&mut Registry::default());
        let status = |phase, pending| PowerRolloutStatus {
            phase: Some(phase),
            counts: BTreeMap::from([("Pending".to_owned(), pending)]),
            ..PowerRolloutStatus::default()
        };
        let key = (String::new(), "night".to_owned());
        let found = |phase: RolloutPhase| {
            let rollouts = metrics.rollouts.get_or_create(&InPhase { phase: phase.to_string() }).get();
            (rollouts, metrics.targets.get_or_create(&InState { state: "Pending".to_owned() }).get())
        };
        metrics.count(&key, &status(RolloutPhase::Progressing, 5));
        metrics.count(&key, &status(RolloutPhase::Progressing, 3));
        assert_eq!(found(RolloutPhase::Progressing), (1, 3));
        metrics.count(&key, &status(RolloutPhase::Finished, 3));
        assert_eq!((found(RolloutPhase::Progressing), found(RolloutPhase::Finished)), ((0, 0), (1, 0)));
        metrics.forget(&key);
        assert_eq!(found(RolloutPhase::Finished), (0, 0));
    }
}
