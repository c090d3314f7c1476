//! What cloud drivers have in common. No cloud is named here.

mod batcher;
mod list_batcher;
mod rate_limiter;

pub use self::batcher::{Batcher, Lost, Reply};
pub use self::list_batcher::{Found, ListBatcher};
pub use self::rate_limiter::RateLimiter;
