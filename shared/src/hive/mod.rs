//! Hive: hibernation of `ClusterDeployment`s.

pub mod api;
pub mod conditions;
pub mod exempt;
pub mod decide;
pub mod openshift;
