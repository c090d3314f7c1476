//! The driver for Google Compute Engine.
//!
//! Clusters of a project share one `aggregatedList`; a machine is a cluster's by name prefix and label. Credentials are
//! a service account's key: it signs its own tokens, so that no token endpoint is called.

mod account;
mod key;
mod registration;
#[cfg(test)]
mod tests;
mod wire;

pub use self::registration::{Gcp, GcpFlags};
