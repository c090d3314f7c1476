//! Limits the memory that all requests use together.
//!
//! The number of requests bounds small bodies. A shared budget bounds large bodies. Nearly all bodies are small, so they never
//! wait for large ones.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// Largest request body. The object and the old object have up to 3 MiB each: the JSON of 1.5 MiB of protobuf in etcd.
pub const MAX_BODY_BYTES: usize = 7 * 1024 * 1024;
/// Concurrent requests over all connections. At 4,000 requests per second, only a handful run at the same time.
const MAX_REQUESTS: usize = 2048;
/// A body up to this size needs no budget. All of them together use 32 MiB. A review of a cluster has 7 kB.
const SMALL_BODY_BYTES: usize = 16 * 1024;
/// Budget for large bodies, in KiB: two of the largest, or several hundred of the usual size. Parsing takes a few times as much.
const LARGE_BODIES_KIB: usize = 2 * MAX_BODY_BYTES / KIB;
/// How long a large body waits for budget. Requests take milliseconds unless their clients send slowly.
const LARGE_BODY_TIMEOUT: Duration = Duration::from_secs(1);

const KIB: usize = 1024;

/// Admits requests while there is memory for them and their bodies.
#[derive(Debug)]
pub struct RequestLimiter {
    requests: Semaphore,
    large_bodies: Semaphore,
}

/// The right to process one request. Returns its share of the limits when it is dropped.
#[derive(Debug)]
pub struct Permit<'a> {
    _request: SemaphorePermit<'a>,
    _body: Option<SemaphorePermit<'a>>,
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
}

impl Default for RequestLimiter {
    fn default() -> Self {
        Self::new(MAX_REQUESTS, LARGE_BODIES_KIB)
    }
}

impl RequestLimiter {
    /// Admits this many requests, and this many KiB of large bodies.
    #[must_use]
    pub fn new(requests: usize, large_bodies_kib: usize) -> Self {
        Self { requests: Semaphore::new(requests), large_bodies: Semaphore::new(large_bodies_kib) }
    }

    /// Admits a request with a body of at most this many bytes.
    ///
    /// # Errors
    /// When a limit is reached: immediately for the number of requests, after a second for the budget.
    pub async fn acquire(&self, body_bytes: usize) -> Result<Permit<'_>, Overloaded> {
        let request = self.requests.try_acquire().map_err(|_| Overloaded::Requests)?;
        if body_bytes <= SMALL_BODY_BYTES {
            return Ok(Permit { _request: request, _body: None });
        }
        let kib = u32::try_from(body_bytes.div_ceil(KIB)).map_err(|_| Overloaded::Bodies)?;
        match timeout(LARGE_BODY_TIMEOUT, self.large_bodies.acquire_many(kib)).await {
            Ok(Ok(body)) => Ok(Permit { _request: request, _body: Some(body) }),
            _ => Err(Overloaded::Bodies),
        }
    }
}
