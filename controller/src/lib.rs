//! The controller: puts clusters to sleep and wakes them, as their objects on the hub ask for.

mod args;
mod cloud;
mod cloud_registry;
pub mod csr;
mod ledger;
mod machines;
mod metrics;
mod run;
mod runtime;
pub mod spoke;
pub mod systems;

pub use run::main;
