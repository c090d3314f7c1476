//! A clock that cannot be set back and does not stand still while the host is suspended.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;

/// Time since boot, suspension included. `None` if the system has no such clock.
#[must_use]
pub fn since_boot() -> Option<Duration> {
    clock_gettime(CLOCK).ok().map(Duration::from)
}
