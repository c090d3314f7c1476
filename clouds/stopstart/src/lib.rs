//! The driver of clouds that stop and start machines one by one, by a call each that is accepted long before it is done.
//!
//! A cloud's crate implements [`Cloud`]: its list, its two calls, and how an accepted call is read back. The driver
//! shares lists between clusters, moves machines at the same time, and reports what a cloud gives up after it has
//! accepted it. It keeps accepted calls in memory only: what a restart loses is sent again, which does no harm.

mod accepted;
mod cloud;
mod driver;

pub use self::cloud::{Cloud, Failure, ListResult, Machine, Move, Progress, Reason};
pub use self::driver::{Accounts, StopStart};
