//! A cloud in memory, and a driver for it that deletes machines and makes them again: for tests only.
//!
//! The cloud has the semantics that matter of OpenStack: servers whose IDs change, pause, images that take time and may
//! fail, ports that only one server at a time can hold, deletes that take time. It is its own referee: a request that
//! loses data is recorded as a violation. The driver is a real one of the recreate lifecycle: everything it knows is in
//! the cloud and in the ledger.

mod cloud;
mod driver;
mod faults;
mod platform;
mod record;
mod survey;
#[cfg(test)]
mod tests;

pub use self::cloud::{Answer, Cloud, Image, ImageStatus, Refused, Request, Server, Status};
pub use self::driver::Recreate;
pub use self::faults::{Account, MemoryLedger, Mishap};
pub use self::platform::{Memory, MemoryFlags};
