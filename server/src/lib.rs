//! What the webhook and the controller have in common: ports with limits, log lines, and the reader of the hub.
//!
//! A port accepts a limited number of connections. At the limit it closes one of the client address with the most, so
//! that clients that hold connections, or begin requests that they never end, lock out only themselves.

mod connections;
pub mod hub;
pub mod log;
pub mod metrics;
mod port;
mod warnings;
mod watch_memory;

pub use connections::Limits;
pub use metrics::ConnectionMetrics;
pub use port::{Client, Http, Port, Unanswered, bind, plain};
pub use warnings::Warnings;
pub use watch_memory::{WatchMemory, tenant};
