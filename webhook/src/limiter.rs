//! Limits the memory that all requests use together, and shares it between clients.
//!
//! The number of requests bounds small bodies. A shared budget bounds large bodies. Nearly all bodies are small, so
//! they never wait for large ones. At either limit, a request whose body has not arrived makes way for one of a client
//! that holds less.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use fair::{EvictingLimit, EvictingPermit};
use futures::future::OptionFuture;

/// Largest request body. The object and the old object have up to 3 MiB each: the JSON of 1.5 MiB of protobuf in etcd.
pub const MAX_BODY_BYTES: usize = 7 * 1024 * 1024;
/// Concurrent requests over all connections. At 4,000 requests per second, only a handful run at the same time.
const MAX_REQUESTS: usize = 2048;
/// A body up to this size needs no budget. All of them together use 32 MiB. A review of a cluster has 7 kB.
pub const SMALL_BODY_BYTES: usize = 16 * 1024;
/// Budget for large bodies, in KiB: two of the largest, or several hundred of the usual size. Parsing takes a few times
/// as much.
const LARGE_BODIES_KIB: usize = 2 * MAX_BODY_BYTES / KIB;
/// How long a large body waits for budget. Requests take milliseconds unless their clients send slowly.
const LARGE_BODY_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a small body may take to arrive. An API server that is short of CPU sends it long after the head, and a
/// mutating review without an answer fails open. A request without its body holds one of many, and makes way.
const SMALL_BODY_TIME: Duration = Duration::from_secs(2);
/// How long a larger one may take at least.
const LARGE_BODY_TIME: Duration = Duration::from_secs(1);
/// How long the beginning of a larger one may take.
const BEGINNING: Duration = Duration::from_millis(250);
/// How fast the rest of it has to arrive: 5 MiB a second, so the largest has 1.65 s.
const BYTES_PER_MILLISECOND: usize = 5 * 1024 * KIB / 1000;

const KIB: usize = 1024;

/// Admits requests while there is memory for them and their bodies.
#[derive(Debug)]
pub struct RequestLimiter {
    requests: Arc<EvictingLimit>,
    large_bodies: Arc<EvictingLimit>,
}

/// The right to process one request, until it is dropped.
#[derive(Debug)]
pub struct Permit {
    request: EvictingPermit,
    body: Option<EvictingPermit>,
}

/// Why the limiter rejects a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Overloaded {
    /// Too many requests run.
    #[error("too many requests at once: try again later")]
    Requests,
    /// Other requests use the whole budget for large bodies.
    #[error("too many large bodies at once: try again later")]
    Bodies,
    /// The request has made way for one of a client that holds less.
    #[error("another client needs what this one holds: try again later")]
    Evicted,
}

impl Default for RequestLimiter {
    fn default() -> Self {
        Self::new(MAX_REQUESTS, LARGE_BODIES_KIB)
    }
}

impl RequestLimiter {
    /// Admits this many requests, and this many KiB of large bodies.
    pub fn new(requests: usize, large_bodies_kib: usize) -> Self {
        Self { requests: EvictingLimit::of(requests), large_bodies: EvictingLimit::of(large_bodies_kib) }
    }

    /// Admits a request with a body of at most this many bytes.
    ///
    /// # Errors
    /// When a limit is reached: immediately for the number of requests, after a second for the budget.
    pub async fn acquire(&self, client: IpAddr, body_bytes: usize) -> Result<Permit, Overloaded> {
        let request = self.requests.try_acquire(client, 1).ok_or(Overloaded::Requests)?;
        if body_bytes <= SMALL_BODY_BYTES {
            return Ok(Permit { request, body: None });
        }
        let budget = self.large_bodies.acquire(client, body_bytes.div_ceil(KIB), LARGE_BODY_TIMEOUT);
        tokio::select! {
            body = budget => Ok(Permit { request, body: Some(body.ok_or(Overloaded::Bodies)?) }),
            () = request.evicted() => Err(Overloaded::Evicted),
        }
    }
}

impl Permit {
    /// Waits until the request has made way for another one.
    pub async fn evicted(&self) {
        // Without a body its branch does not match, and the other one is waited for.
        let body = OptionFuture::from(self.body.as_ref().map(EvictingPermit::evicted));
        tokio::select! {
            () = self.request.evicted() => {}
            Some(()) = body => {}
        }
    }

    /// The body has arrived: from now on the request makes way for no other.
    pub fn protect(&self) {
        self.request.protect();
        self.body.iter().for_each(EvictingPermit::protect);
    }
}

/// How long a body of so many bytes may take to arrive.
pub fn time_for(body_bytes: usize) -> Duration {
    if body_bytes <= SMALL_BODY_BYTES {
        return SMALL_BODY_TIME;
    }
    let rest = (body_bytes - SMALL_BODY_BYTES) / BYTES_PER_MILLISECOND;
    LARGE_BODY_TIME.max(BEGINNING.saturating_add(Duration::from_millis(u64::try_from(rest).unwrap_or(u64::MAX))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the wait for budget, the longest is shorter than the API server's shortest timeout of our entries, 3 s.
    #[test]
    fn a_body_has_its_share_of_time() {
        for (bytes, milliseconds) in
            [(0, 2_000), (7_000, 2_000), (SMALL_BODY_BYTES, 2_000), (1 << 20, 1_000), (MAX_BODY_BYTES, 1_647)]
        {
            assert_eq!(time_for(bytes).as_millis(), milliseconds, "{bytes} bytes");
        }
        let limit = Duration::from_millis(2_700);
        assert!(LARGE_BODY_TIMEOUT + time_for(MAX_BODY_BYTES) < limit && SMALL_BODY_TIME < limit);
    }
}
