//! `kubectl hibernate`: puts clusters and workloads to sleep and wakes them, with the user's own rights.
//!
//! It writes intent and reads status. It never touches a cloud or the inside of a cluster that sleeps.

mod cli;
mod cmd;
mod connect;
mod error;
mod output;
mod read;
mod run;
mod select;
mod wait;

pub use run::run;
