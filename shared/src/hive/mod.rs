//! Hive: hibernation of `ClusterDeployment`s.

pub mod api;
pub mod conditions;
pub mod openshift;
