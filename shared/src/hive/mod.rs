//! Hive: hibernation of `ClusterDeployment`s.

pub mod admission;
pub mod api;
pub mod conditions;
pub mod config;
pub mod data;
pub mod decide;
pub mod edit;
pub mod exempt;
pub mod identity;
pub mod pool;
pub mod preflight;
