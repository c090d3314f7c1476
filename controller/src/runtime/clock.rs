//! Clocks: one that cannot be set back, and the one that people read.

use std::time::Duration;

use jiff::Timestamp;
use nix::time::{ClockId, clock_gettime};

#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;

/// Time since boot, suspension included. `None` if the system has no such clock.
pub fn since_boot() -> Option<Duration> {
    clock_gettime(CLOCK).ok().map(Duration::from)
}

/// How often the clocks are compared.
const COMPARED: Duration = Duration::from_secs(1);
/// What they may differ by meanwhile.
const TOLERANCE: Duration = Duration::from_millis(500);

/// Waits until the clock that people read is set, or goes on after a suspension.
pub async fn stepped() {
    loop {
        let (began, at) = (tokio::time::Instant::now(), now());
        tokio::time::sleep(COMPARED).await;
        let passed = now().duration_since(at).unsigned_abs();
        if passed.abs_diff(began.elapsed()) > TOLERANCE {
            return;
        }
    }
}

/// Now, as people read it.
#[cfg(not(test))]
pub fn now() -> Timestamp {
    Timestamp::now()
}

/// The same in tests, where it moves with tokio's clock, so that a paused clock pauses decisions, too.
#[cfg(test)]
pub fn now() -> Timestamp {
    use std::sync::OnceLock;
    use std::time::Instant;
    static BEGAN: OnceLock<(Instant, Timestamp)> = OnceLock::new();
    let (began, at) = BEGAN.get_or_init(|| (Instant::now(), Timestamp::now()));
    at.saturating_add(tokio::time::Instant::now().into_std().saturating_duration_since(*began)).unwrap_or(*at)
}
