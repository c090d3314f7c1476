//! The admission webhook: an HTTPS server that asks the rules of `shared` what may be written, and records who asked.
//!
//! Nothing in here calls an API server while it serves a request. An answer depends on nothing but the request, the flags
//! and the clock. Two deletions are exceptions: that of what a `FoundationDBCluster` owns also depends on the cache of a watch, that of a
//! KKP Cluster on whether it was refused before.

pub mod admin_server;
pub mod answer;
pub mod args;
pub mod certs;
pub mod fdb;
pub mod kkp;
pub mod limiter;
pub mod metrics;
pub mod patch;
pub mod review;
pub mod run;
pub mod server;
pub mod settings;
pub mod table;
