//! How long what was sent may be under way, and how long what failed waits.

use std::time::Duration;

use jiff::Timestamp;

/// How long a request that was sent may be under way: its deadline of 30 s, the way from a proxy to the cloud, and the
/// difference between the clocks of two controllers.
pub const REQUEST_LIFETIME: Duration = Duration::from_secs(90);

/// How long after a sleep was given up for the first time the next one begins.
pub const SLEEP_RETRY_DELAY: Duration = Duration::from_mins(10);

/// How long a sleep tries again what the cloud refuses, and waits for a busy server, while other machines are down.
pub const STUCK_TIMEOUT: Duration = Duration::from_mins(1);

/// The backoff grows up to so many times [`REQUEST_LIFETIME`] for creates, and [`SLEEP_RETRY_DELAY`] for sleeps.
pub const MAX_BACKOFF_FACTOR: u32 = 5;

/// Whether something was so short a time ago. A time far ahead is of a wrong clock, and says nothing.
pub(crate) fn is_within(now: Timestamp, then: Timestamp, time: Duration) -> bool {
    now < then + time && then <= now + REQUEST_LIFETIME
}
