//! A cloud in memory for the planner of `clouds/recreate`: for tests only.
//!
//! It does what matters of OpenStack: servers whose IDs change, pause, images that take time and may fail, vanish or
//! stay queued, ports that two creates at once fight about, deletes that take time and may fail, people who delete
//! servers. It is its own referee: a request that loses data is recorded as a violation.

mod cloud;
mod faults;
mod planner;
mod platform;
mod referee;
mod request;
#[cfg(test)]
mod tests;

pub use self::cloud::{Cloud, Fails, Image, Server, Status, TICK};
pub use self::faults::{Account, MemoryLedger, Mishap};
pub use self::platform::{Memory, MemoryFlags};
pub use self::request::{Answer, Refusal, Request, ServerAttributes};
