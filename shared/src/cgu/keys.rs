//! Labels, words and limits that several modules share.

/// Label of an object: name of its upgrade.
pub const UPGRADE: &str = "openshift-cluster-group-upgrades/clusterGroupUpgrade";
/// Label of an object: namespace of its upgrade.
pub const UPGRADE_NAMESPACE: &str = "openshift-cluster-group-upgrades/clusterGroupUpgradeNamespace";

/// Most policies of one upgrade: each is looked up for each cluster.
pub const MAX_POLICIES: usize = 500;

/// What stands for a value that a template of `object-templates-raw` gives.
pub(super) const PLACEHOLDER: &str = "placeholder";
