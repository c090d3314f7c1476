//! The driver for virtual servers of IBM Cloud VPC.
//!
//! Clusters of an account and region share one list of all instances there; a machine is a cluster's by name. Why a start
//! was given up stands in the list.

mod account;
mod registration;
#[cfg(test)]
mod tests;
mod wire;

pub use self::registration::{IbmCloud, IbmFlags};
