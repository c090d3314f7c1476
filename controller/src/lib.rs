//! The controller: puts clusters to sleep and wakes them, as their objects on the hub ask for.

mod args;
mod cloud;
mod cloud_registry;
mod csr;
mod fleet;
mod ledger;
mod machines;
mod metrics;
mod run;
mod runtime;
mod spoke;

/// The systems that are put to sleep: each a [`runtime::System`], registered by one line in [`run`].
mod systems {
    pub mod cgu;
    pub mod fdb;
    mod guard;
    pub mod hive;
    pub mod kkp;
    pub mod reachability;
    pub mod rollout;
    pub mod schedule;
}

pub use fleet::{Member, MemberKind};
pub use run::run;

/// What tests of other crates run without the controller around it.
pub mod parts {
    pub use crate::csr::{Approver, Pass};
    pub use crate::spoke::reader::SpokeClient;
    pub use fair::{Consumer, MemoryLimit};
}
