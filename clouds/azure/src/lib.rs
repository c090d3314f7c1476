//! The driver for virtual machines of Microsoft Azure.
//!
//! Clusters of a subscription share one list of all its machines with their power states; a machine is a cluster's by
//! its resource group. Sleep is `deallocate`: a machine that is only stopped is billed.

mod account;
mod principal;
mod registration;
#[cfg(test)]
mod tests;
mod wire;

pub use self::registration::{Azure, AzureFlags};
