//! `ClusterGroupUpgrades` by state, and whether TALM works on them.

use std::collections::HashMap;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use server::metrics::Declare as _;
use shared::cgu::phase::UpgradePhase;

use crate::runtime::Key;

/// Label of upgrades.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InState {
    state: String,
}

/// Upgrades, also those that TALM works on.
pub struct CguMetrics {
    upgrades: Family<InState, Gauge>,
    /// 1 while TALM renews its Lease.
    pub talm_active: Gauge,
    counted: Mutex<HashMap<Key, UpgradePhase>>,
}

impl CguMetrics {
    /// Registers them in a registry with our prefix.
    pub fn new(registry: &mut Registry) -> Self {
        Self {
            upgrades: registry.add("cgus", "ClusterGroupUpgrades in each state"),
            talm_active: registry.add("cgu_talm_active", "1 while TALM renews its Lease: upgrades are left to it"),
            counted: Mutex::default(),
        }
    }

    /// Counts an upgrade by its state; `None`: it is gone.
    pub fn count(&self, upgrade: &Key, phase: Option<UpgradePhase>) {
        let mut all = self.counted.lock();
        let before = match phase {
            Some(phase) => all.insert(upgrade.clone(), phase),
            None => all.remove(upgrade),
        };
        let of = |phase: UpgradePhase| self.upgrades.get_or_create_owned(&InState { state: phase.to_string() });
        if let Some(before) = before {
            of(before).dec();
        }
        if let Some(phase) = phase {
            of(phase).inc();
        }
    }

    /// Leadership was lost.
    pub fn forget_all(&self) {
        self.counted.lock().clear();
        self.upgrades.clear();
        self.talm_active.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_counts_once_until_it_is_gone() {
        let metrics = CguMetrics::new(&mut Registry::default());
        let key = ("ns".to_owned(), "a".to_owned());
        let found =
            |phase: UpgradePhase| metrics.upgrades.get_or_create_owned(&InState { state: phase.to_string() }).get();
        metrics.count(&key, Some(UpgradePhase::UpgradeNotStarted));
        metrics.count(&key, Some(UpgradePhase::UpgradeNotCompleted));
        metrics.count(&key, Some(UpgradePhase::UpgradeNotCompleted));
        assert_eq!((found(UpgradePhase::UpgradeNotStarted), found(UpgradePhase::UpgradeNotCompleted)), (0, 1));
        metrics.count(&key, None);
        assert_eq!(found(UpgradePhase::UpgradeNotCompleted), 0);
    }
}
