//! The test world: real API servers, a simulated EC2 with real rules, machines that come and go, and faults on demand.
//!
//! The program `testbed` runs it for people and for the demo; tests and benchmarks use this library:
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use std::time::Duration;
//! use testbed::{ClusterOptions, World};
//!
//! let world = World::shared().await?;
//! let cluster = world.cluster("sleeper", ClusterOptions::default()).await?;
//! cluster.sleep().await?;
//! cluster.wait_for_power_state("Hibernating", Duration::from_secs(60)).await?;
//! assert!(cluster.instances().await?.iter().all(|instance| instance.state == "stopped"));
//! # Ok(())
//! # }
//! ```

pub mod apply;
pub mod bench;
pub mod browser;
pub mod check;
#[cfg(test)]
mod ci;
#[cfg(test)]
mod circles;
#[cfg(test)]
mod citations;
pub mod cluster;
pub mod controlplane;
pub mod delay;
pub mod denier;
pub mod ec2;
pub mod fdb;
pub mod foreign;
pub mod governance;
pub mod json_http;
pub mod kkp;
pub mod kubeconfig;
pub mod launch;
pub mod openstack;
pub mod options;
pub mod page;
pub mod paths;
pub mod pki;
pub mod ports;
pub mod process;
pub mod proxy;
pub mod restricted;
pub mod simulated;
pub mod supervisor;
mod webhook;
pub mod world;
pub mod world_file;

pub use cluster::{ClusterInfo, ClusterOptions, Platform};
pub use fdb::handle::FdbCluster;
pub use fdb::options::FdbOptions;
pub use kkp::handle::KkpCluster;
pub use kkp::options::KkpOptions;
pub use options::{Options, Program, Timings};
pub use world::World;
pub use world::handle::Cluster;
pub use world::helpers::{ensure_that, eventually, eventually_every, with_temp_ns};
pub use world::run::Ran;
pub use world::shared::heavy;

/// Chooses the process's TLS provider. Every program and every test that makes a client calls it first; more than once
/// is fine.
pub fn install_tls() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}
