//! `ClusterGroupUpgrades` by state, and whether TALM works on them.

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use server::metrics::Declare as _;
use shared::cgu::phase::UpgradePhase;
use strum::VariantArray as _;

use super::Label;

/// Also of upgrades that TALM works on.
pub struct CguMetrics {
    upgrades: Family<[Label<String>; 1], Gauge>,
    /// 1 while TALM renews its Lease.
    pub talm_active: Gauge,
}

impl CguMetrics {
    /// `registry` has our prefix.
    pub fn new(registry: &mut Registry) -> Self {
        Self {
            upgrades: registry.add("cgus", "ClusterGroupUpgrades in each state"),
            talm_active: registry.add("cgu_talm_active", "1 while TALM renews its Lease: upgrades are left to it"),
        }
    }

    pub fn set(&self, upgrades: &[UpgradePhase]) {
        for phase in UpgradePhase::VARIANTS {
            let count = upgrades.iter().filter(|one| *one == phase).count();
            let gauge = self.upgrades.get_or_create_owned(&[("state", phase.to_string())]);
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    pub fn forget_all(&self) {
        self.upgrades.clear();
        self.talm_active.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_is_shown() {
        let metrics = CguMetrics::new(&mut Registry::default());
        let found = |phase: UpgradePhase| metrics.upgrades.get_or_create_owned(&[("state", phase.to_string())]).get();
        metrics.set(&[UpgradePhase::UpgradeNotStarted, UpgradePhase::UpgradeNotStarted]);
        assert_eq!((found(UpgradePhase::UpgradeNotStarted), found(UpgradePhase::UpgradeNotCompleted)), (2, 0));
        metrics.set(&[UpgradePhase::UpgradeNotCompleted]);
        assert_eq!((found(UpgradePhase::UpgradeNotStarted), found(UpgradePhase::UpgradeNotCompleted)), (0, 1));
    }
}
