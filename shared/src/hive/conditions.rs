//! Condition types of a `ClusterDeployment` that concern its power.

/// Condition `Hibernating`.
pub const HIBERNATING: &str = "Hibernating";
/// Condition `Ready`.
pub const READY: &str = "Ready";
