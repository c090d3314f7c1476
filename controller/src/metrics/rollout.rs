//! Rollouts by phase, and the targets of those in progress by state.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use server::metrics::Declare as _;
use shared::rollout::status::{PowerRolloutStatus, RolloutPhase};

use super::Label;
use crate::runtime::Key;

/// The phase of a rollout, and its targets by state.
type CountedRollout = (RolloutPhase, BTreeMap<String, u32>);

pub struct RolloutMetrics {
    rollouts: Family<[Label<String>; 1], Gauge>,
    targets: Family<[Label<String>; 1], Gauge>,
    counted: Mutex<HashMap<Key, CountedRollout>>,
}

impl RolloutMetrics {
    /// `registry` has our prefix.
    pub fn new(registry: &mut Registry) -> Self {
        let targets = "Targets of the PowerRollouts that are not over, in each state";
        Self {
            rollouts: registry.add("rollouts", "PowerRollouts in each phase"),
            targets: registry.add("rollout_targets", targets),
            counted: Mutex::default(),
        }
    }

    pub fn count(&self, rollout: &Key, status: &PowerRolloutStatus) {
        let Some(phase) = status.phase else { return };
        let targets = if phase.is_over() { BTreeMap::new() } else { status.counts.clone() };
        let mut all = self.counted.lock();
        let before = all.insert(rollout.clone(), (phase, targets.clone()));
        self.add(before, -1);
        self.add(Some((phase, targets)), 1);
    }

    pub fn forget(&self, rollout: &Key) {
        let before = self.counted.lock().remove(rollout);
        self.add(before, -1);
    }

    pub fn forget_all(&self) {
        self.counted.lock().clear();
        self.rollouts.clear();
        self.targets.clear();
    }

    fn add(&self, counted: Option<CountedRollout>, sign: i64) {
        let Some((phase, targets)) = counted else { return };
        self.rollouts.get_or_create(&[("phase", phase.to_string())]).inc_by(sign);
        for (state, count) in targets {
            self.targets.get_or_create(&[("state", state)]).inc_by(sign * i64::from(count));
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
            let rollouts = metrics.rollouts.get_or_create(&[("phase", phase.to_string())]).get();
            (rollouts, metrics.targets.get_or_create(&[("state", "Pending".to_owned())]).get())
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
