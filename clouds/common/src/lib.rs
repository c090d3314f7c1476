//! What cloud drivers have in common: rate limits, batches, and how they register. No cloud is named here.

mod batcher;
mod list_batcher;
mod rate_limiter;
mod registration;

pub use self::batcher::{Batcher, NoReply, Reply};
pub use self::list_batcher::{Found, ListBatcher};
pub use self::rate_limiter::RateLimiter;
pub use self::registration::{Access, Permit, Platform, Process, SecretData};
