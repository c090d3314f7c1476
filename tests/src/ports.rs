//! Free ports on the loopback interface.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};

/// Below the range that Linux takes for outgoing connections (32768 and up), so that no client of ours can be on a port
/// between our choosing it and its server binding it.
const RANGE: Range<u16> = 20_000..32_000;

/// Keeps every port that this process chose reserved until the process ends.
static RESERVED: Mutex<Vec<UnixDatagram>> = Mutex::new(Vec::new());

/// A free port that no other world on this machine gets while this process runs. Its server may bind it late, and again
/// after a restart.
///
/// # Errors
/// When a thousand tries found none.
pub fn free() -> Result<u16> {
    for _ in 0..1_000 {
        let port = rand::random_range(RANGE);
        let Ok(reservation) = reserve(port) else { continue };
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            RESERVED.lock().unwrap_or_else(PoisonError::into_inner).push(reservation);
            return Ok(port);
        }
    }
    bail!("no free port on 127.0.0.1 between {} and {}", RANGE.start, RANGE.end)
}

/// Takes a name in the kernel's abstract socket namespace, which is as wide as its ports: the network namespace. The
/// kernel frees it when the process ends, however that ends.
fn reserve(port: u16) -> io::Result<UnixDatagram> {
    UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(format!("hibernate-testbed-port-{port}"))?)
}
