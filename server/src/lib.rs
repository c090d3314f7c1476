//! What the webhook and the controller have in common as servers: ports with limits, and log lines.
//!
//! A port accepts a limited number of connections. At the limit it closes the connection that has been idle for the longest time, so
//! that clients that hold connections without using them never lock out those that work.

mod connections;
pub mod log;
mod metrics;
mod port;

pub use connections::Limits;
pub use metrics::ConnectionMetrics;
pub use port::{Http, Port, plain};
