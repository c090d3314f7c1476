//! The admission webhook: an HTTPS server that asks the rules of `shared` what may be written, and records who asked.
//!
//! Nothing in here calls an API server while it serves a request. An answer depends on nothing but the request, the
//! flags and the clock; nothing that a request says is remembered for another one. The deletion of what a
//! `FoundationDBCluster` owns also depends on the cache of a watch.

pub mod admin_server;
pub mod answer;
pub mod args;
pub mod certs;
pub mod fdb;
pub mod limiter;
pub mod metrics;
pub mod patch;
pub mod review;
pub mod run;
pub mod server;
pub mod table;
