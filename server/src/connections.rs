//! The open connections of a port, and which one makes way for another.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use fair::{ClientCapacity, EvictingLimit, EvictingPermit};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::metrics::ConnectionMetrics;

/// Connection limits of a port.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Concurrent connections. One more closes one that has had no whole request yet, or else one of the client address
    /// with the most.
    pub connections: usize,
    /// The same for one client address; `None` is no limit. API servers may share an address.
    pub per_client: Option<usize>,
    /// How long a connection may go without a whole request.
    pub idle: Duration,
}

/// How long a new connection waits for another one to finish if none may make way.
const ADMIT_TIMEOUT: Duration = Duration::from_secs(1);
/// New connections that wait. One more is refused at once, or another one of the client with the most.
const MAX_WAITING: usize = 64;
/// Connections that may still be closing while the port is served. One more drops the oldest without a farewell, and
/// one without a request before one with a request.
const MAX_CLOSING: usize = 64;

/// The connections of one port.
#[derive(Debug)]
pub(crate) struct Connections {
    limit: Arc<EvictingLimit>,
    idle: Duration,
    metrics: ConnectionMetrics,
    waiting: Arc<EvictingLimit>,
    /// Those that are closing, oldest first.
    closing: Mutex<Vec<Arc<Slot>>>,
}

impl Connections {
    pub(crate) fn new(limits: Limits, metrics: ConnectionMetrics) -> Arc<Self> {
        let Limits { connections, per_client, idle } = limits;
        let capacity = ClientCapacity { total: connections, per_client, evicts_idle: true };
        let limit = EvictingLimit::new(capacity, metrics.evicted.clone());
        Arc::new(Self { limit, idle, metrics, waiting: EvictingLimit::of(MAX_WAITING), closing: Mutex::default() })
    }

    /// Admits a connection, if need be in place of another one. `None` if none may make way and none finishes within a
    /// second.
    pub(crate) async fn admit(self: &Arc<Self>, client: IpAddr) -> Option<Slot> {
        let permit = match self.limit.try_acquire(client, 1) {
            Some(permit) => Some(permit),
            None => match self.waiting.try_acquire(client, 1) {
                Some(place) => tokio::select! {
                    permit = self.limit.acquire(client, 1, ADMIT_TIMEOUT) => permit,
                    () = place.evicted() => None,
                },
                None => None,
            },
        };
        let Some(permit) = permit else {
            self.metrics.refused.inc();
            return None;
        };
        self.metrics.open.inc();
        let (requests, whole_requests, abort) = (AtomicUsize::new(0), AtomicUsize::new(0), Notify::new());
        Some(Slot { client, permit, requests, whole_requests, abort, connections: Arc::clone(self) })
    }
}

/// The place of one connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) client: IpAddr,
    pub(crate) permit: EvictingPermit,
    /// Requests without an answer.
    requests: AtomicUsize,
    /// Those of them whose whole body has arrived.
    whole_requests: AtomicUsize,
    /// When to stop waiting for its requests.
    abort: Notify,
    connections: Arc<Connections>,
}

impl Slot {
    /// Counts a request until the guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> OpenRequest {
        self.requests.fetch_add(1, Ordering::Relaxed);
        OpenRequest { slot: Arc::clone(self), whole: AtomicBool::new(false) }
    }

    /// Whether a request has no answer yet.
    pub(crate) fn has_requests(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn idle_timeout(&self) -> Duration {
        self.connections.idle
    }

    /// Begins to close, until the guard is dropped.
    pub(crate) fn close(self: &Arc<Self>) -> CloseGuard {
        let mut closing = self.connections.closing.lock();
        closing.push(Arc::clone(self));
        if closing.len() > MAX_CLOSING {
            let worth = |slot: &Self| (slot.whole_requests.load(Ordering::Relaxed) > 0, slot.has_requests());
            let least = closing.iter().enumerate().min_by_key(|(at, slot)| (worth(slot), *at)).map(|(at, _)| at);
            if let Some(at) = least {
                closing.remove(at).abort.notify_one();
            }
        }
        CloseGuard(Arc::clone(self))
    }
}

/// Counts a connection that closes.
#[derive(Debug)]
pub(crate) struct CloseGuard(Arc<Slot>);

impl CloseGuard {
    /// Waits until it is to be dropped, with its requests.
    pub(crate) async fn aborted(&self) {
        self.0.abort.notified().await;
    }
}

impl Drop for CloseGuard {
    fn drop(&mut self) {
        self.0.connections.closing.lock().retain(|slot| !Arc::ptr_eq(slot, &self.0));
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.connections.metrics.open.dec();
    }
}

/// A request that has no answer yet. From the end of its body on it protects its connection: before, a client could
/// hold a connection forever by bodies that it never sends.
#[derive(Debug)]
pub(crate) struct OpenRequest {
    slot: Arc<Slot>,
    whole: AtomicBool,
}

impl OpenRequest {
    /// The whole body has arrived.
    pub(crate) fn body_arrived(&self) {
        if !self.whole.swap(true, Ordering::Relaxed) {
            self.slot.whole_requests.fetch_add(1, Ordering::Relaxed);
            self.slot.permit.protect();
        }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.slot.requests.fetch_sub(1, Ordering::Relaxed);
        if self.whole.load(Ordering::Relaxed) {
            self.slot.whole_requests.fetch_sub(1, Ordering::Relaxed);
            self.slot.permit.release();
        }
    }
}

/// A body that says when it has arrived.
pub(crate) struct RequestBody {
    body: Incoming,
    request: Arc<OpenRequest>,
}

impl RequestBody {
    pub(crate) fn new(body: Incoming, request: Arc<OpenRequest>) -> Self {
        if body.is_end_stream() {
            request.body_arrived();
        }
        Self { body, request }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() || self.body.is_end_stream() {
            self.request.body_arrived();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::time::{Instant, sleep, timeout};

    use super::*;

    const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const TWO: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

    fn connections(connections: usize, per_client: Option<usize>) -> Arc<Connections> {
        Connections::new(
            Limits { connections, per_client, idle: Duration::from_secs(10) },
            ConnectionMetrics::default(),
        )
    }

    async fn admit(connections: &Arc<Connections>, client: IpAddr) -> Option<Arc<Slot>> {
        sleep(Duration::from_millis(1)).await;
        connections.admit(client).await.map(Arc::new)
    }

    fn whole(slot: &Arc<Slot>) -> OpenRequest {
        let begun = slot.begin();
        begun.body_arrived();
        begun
    }

    async fn is_open(slot: &Slot) -> bool {
        timeout(Duration::ZERO, slot.permit.evicted()).await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn the_connection_idle_for_the_longest_time_makes_way() {
        let table = connections(3, None);
        let (first, busy, third) =
            (admit(&table, ONE).await.unwrap(), admit(&table, ONE).await.unwrap(), admit(&table, ONE).await.unwrap());
        let _request = whole(&busy);
        sleep(Duration::from_millis(1)).await;
        drop(whole(&first));
        let fourth = admit(&table, TWO).await.unwrap();
        assert!(!is_open(&third).await, "the one without a request goes first");
        let _another = whole(&fourth);
        assert!(is_open(&first).await && is_open(&busy).await);
        let fifth = admit(&table, TWO).await.unwrap();
        assert!(!is_open(&first).await && is_open(&busy).await && is_open(&fourth).await);
        assert!(fourth.permit.idle_since().is_none() && fifth.permit.idle_since().is_some());
        assert_eq!((table.metrics.evicted.get(), table.metrics.refused.get()), (2, 0));
    }

    /// A client that begins requests and never ends them: 3 of 4 connections are its own.
    #[tokio::test(start_paused = true)]
    async fn a_request_without_its_whole_body_protects_nothing() {
        let table = connections(4, None);
        let idle = admit(&table, ONE).await.unwrap();
        drop(whole(&idle));
        let mut held = Vec::new();
        for _ in 0..200 {
            let slot = admit(&table, TWO).await.unwrap();
            held.push((slot.begin(), slot));
        }
        assert!(is_open(&idle).await, "the client with the most makes way for itself");
        let next = admit(&table, ONE).await.unwrap();
        assert!(is_open(&idle).await && is_open(&next).await);
        assert!(!is_open(&held[197].1).await && is_open(&held[199].1).await);
        drop(held);
        assert_eq!(table.metrics.open.get(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_in_use_is_never_closed_for_another() {
        let table = connections(2, None);
        let (first, second) = (admit(&table, ONE).await.unwrap(), admit(&table, ONE).await.unwrap());
        let (request, _other) = (whole(&first), whole(&second));
        let began = Instant::now();
        assert!(admit(&table, TWO).await.is_none());
        assert!(began.elapsed() >= ADMIT_TIMEOUT && table.metrics.refused.get() == 1);
        let waiting = admit(&table, TWO);
        let ends = async {
            sleep(Duration::from_millis(500)).await;
            drop(request);
        };
        let (admitted, ()) = tokio::join!(waiting, ends);
        assert!(admitted.is_some() && !is_open(&first).await, "once a request ends, its connection makes way");
    }

    #[tokio::test(start_paused = true)]
    async fn few_wait_and_the_others_are_refused_at_once() {
        let table = connections(1, None);
        let only = admit(&table, ONE).await.unwrap();
        let _request = whole(&only);
        let waiting = (0..MAX_WAITING + 8).map(|_| {
            let (table, began) = (Arc::clone(&table), Instant::now());
            tokio::spawn(async move { (table.admit(TWO).await.is_some(), began.elapsed()) })
        });
        let mut at_once = 0;
        for refused in waiting.collect::<Vec<_>>() {
            let (admitted, took) = refused.await.unwrap();
            assert!(!admitted);
            at_once += usize::from(took < ADMIT_TIMEOUT);
        }
        assert_eq!(at_once, 8);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_above_its_own_limit_closes_its_own_connections() {
        let table = connections(10, Some(2));
        let other = admit(&table, TWO).await.unwrap();
        let first = admit(&table, ONE).await.unwrap();
        let second = admit(&table, ONE).await.unwrap();
        let third = admit(&table, ONE).await.unwrap();
        assert!(!is_open(&first).await && is_open(&second).await && is_open(&third).await && is_open(&other).await);
        let (_a, _b) = (whole(&second), whole(&third));
        assert!(admit(&table, ONE).await.is_none());
        assert!(admit(&table, TWO).await.is_some());
    }

    async fn is_aborted(closing: &CloseGuard) -> bool {
        timeout(Duration::ZERO, closing.aborted()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn connections_that_close_are_few() {
        let table = connections(1, None);
        let mut closing = Vec::new();
        for _ in 0..=MAX_CLOSING {
            let slot = admit(&table, ONE).await.unwrap();
            closing.push((slot.close(), slot));
        }
        assert!(is_aborted(&closing[0].0).await, "the oldest is dropped at once");
        assert!(!is_aborted(&closing[1].0).await);
        drop(closing);
        assert_eq!(table.metrics.open.get(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_closed_and_what_has_no_request_is_dropped_before_a_request() {
        let table = connections(1, None);
        let mut kept = Vec::new();
        for _ in 0..3 {
            let slot = admit(&table, ONE).await.unwrap();
            kept.push((slot.begin(), slot.close(), slot));
        }
        kept[0].0.body_arrived();
        for _ in 0..200 {
            let slot = admit(&table, ONE).await.unwrap();
            drop((slot.begin(), slot.close()));
        }
        assert!(
            !is_aborted(&kept[0].1).await && table.closing.lock().len() == 3,
            "those that have closed do not count"
        );
        let mut idle = Vec::new();
        for _ in 0..200 {
            let slot = admit(&table, ONE).await.unwrap();
            idle.push((slot.close(), slot));
        }
        for (_, closing, _) in &kept {
            assert!(!is_aborted(closing).await);
        }
        assert!(is_aborted(&idle[0].0).await && !is_aborted(&idle[199].0).await);
        for _ in 0..MAX_CLOSING - 1 {
            let slot = admit(&table, ONE).await.unwrap();
            kept.push((slot.begin(), slot.close(), slot));
        }
        let aborted = (is_aborted(&kept[0].1).await, is_aborted(&kept[1].1).await, is_aborted(&kept[2].1).await);
        assert_eq!(aborted, (false, true, true), "a request that has arrived goes last");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_waits_makes_way_for_a_client_that_waits_less() {
        let table = connections(1, None);
        let only = admit(&table, ONE).await.unwrap();
        let request = whole(&only);
        let wait = |client| {
            let table = Arc::clone(&table);
            tokio::spawn(async move { table.admit(client).await })
        };
        let others: Vec<_> = (0..MAX_WAITING).map(|_| wait(TWO)).collect();
        sleep(Duration::from_millis(1)).await;
        let waits = wait(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3)));
        sleep(Duration::from_millis(1)).await;
        assert_eq!(others.iter().filter(|other| other.is_finished()).count(), 1);
        assert!(!waits.is_finished());
        drop(request);
        sleep(Duration::from_millis(1)).await;
        drop((waits, others));
    }
}
