//! A bound on what all requests together hold, so that no crowd of them can fill the memory.
//!
//! Small bodies are bounded by their number and larger ones by their sum, so that the small ones, which nearly all are,
//! never wait behind large ones.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// Largest body: object and old object can be 3 MiB each, as JSON of what etcd holds in 1.5 MiB of protobuf.
pub const BODY_LIMIT: usize = 7 * 1024 * 1024;
/// Requests at once, over all connections. At 4,000 a second a handful are open at a time.
const REQUESTS: usize = 2048;
/// Bytes of a body for which each of them has room without asking: 32 MiB together. A review of a cluster has 7 kB.
const SMALL: usize = 16 * 1024;
/// KiB of all larger bodies together: two of the largest, or several hundred as real objects have them. What is read of them may
/// take some times as much.
const LARGE: usize = 2 * BODY_LIMIT / KIB;
/// How long a larger body waits for others to be done with, which takes them milliseconds unless their senders dawdle.
const WAIT: Duration = Duration::from_secs(1);

const KIB: usize = 1024;

/// The room that there is for requests and their bodies.
#[derive(Debug)]
pub struct Room {
    requests: Semaphore,
    large: Semaphore,
}

/// A part of the room, until it is dropped.
#[derive(Debug)]
pub struct Taken<'a> {
    _request: SemaphorePermit<'a>,
    _body: Option<SemaphorePermit<'a>>,
}

/// Why a request is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Crowded {
    /// There are too many.
    #[error("too many requests at once: try again later")]
    Requests,
    /// The bodies of others fill the room.
    #[error("too many large bodies at once: try again later")]
    Bodies,
}

impl Default for Room {
    fn default() -> Self {
        Self::new(REQUESTS, LARGE)
    }
}

impl Room {
    /// Room for this many requests, and this many KiB of large bodies.
    #[must_use]
    pub fn new(requests: usize, large: usize) -> Self {
        Self { requests: Semaphore::new(requests), large: Semaphore::new(large) }
    }

    /// Takes room for a request with a body of at most this many bytes.
    ///
    /// # Errors
    /// When there is none: at once for the request, after a second for a large body.
    pub async fn take(&self, bytes: usize) -> Result<Taken<'_>, Crowded> {
        let request = self.requests.try_acquire().map_err(|_| Crowded::Requests)?;
        if bytes <= SMALL {
            return Ok(Taken { _request: request, _body: None });
        }
        let kib = u32::try_from(bytes.div_ceil(KIB)).map_err(|_| Crowded::Bodies)?;
        match timeout(WAIT, self.large.acquire_many(kib)).await {
            Ok(Ok(body)) => Ok(Taken { _request: request, _body: Some(body) }),
            _ => Err(Crowded::Bodies),
        }
    }
}
