//! OpenStack's own services: their processes, a fault proxy in front of each, and what tests see of them past the proxies.

mod client;
mod server;

pub use self::client::OpenStack;
pub use self::server::{Knobs, Server, start};
