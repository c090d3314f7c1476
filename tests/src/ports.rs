//! Free ports on the loopback interface.

use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Result, bail};

/// Below the range that Linux takes for outgoing connections (32768 and up), so that no client of ours can be on a port
/// between our choosing it and its server binding it.
const RANGE: std::ops::Range<u16> = 20_000..32_000;

/// A free port, chosen at random, so that concurrent worlds hardly ever choose the same.
///
/// # Errors
/// When a thousand tries found none.
pub fn free() -> Result<u16> {
    for _ in 0..1_000 {
        let port = RANGE.start + rand::random::<u16>() % (RANGE.end - RANGE.start);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port on 127.0.0.1 between {} and {}", RANGE.start, RANGE.end)
}
