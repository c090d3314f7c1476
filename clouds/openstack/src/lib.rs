//! The OpenStack driver: sleeps by snapshot, with [`cloud_recreate`]'s planner, or by shelving.
//!
//! Machines are found by the tag or metadata `openshiftClusterID`. Each pass lists a project once for all its clusters.

mod account;
mod attempts;
mod attributes;
mod clouds_yaml;
mod driver;
mod export;
mod failures;
mod keystone;
mod lists;
mod modes;
mod names;
mod obstacles;
mod pages;
mod project;
mod registration;
mod requests;
mod shelving;
#[cfg(test)]
mod testing;
mod wire;

pub use self::registration::{OpenStack, OpenStackFlags};
