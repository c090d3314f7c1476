//! Limits on open connections, so that a flood of connections costs its senders more than the webhook.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum_server::accept::Accept;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep, timeout};
use tower::Service;

/// How long a connection above the limit waits for another to close. The API server's timeout for every entry is longer.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(1);

/// Connection limits of a port.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Concurrent connections. One more is closed before its TLS handshake, unless another one closes within a second.
    pub connections: usize,
    /// How long a connection may go without a new request. It is closed after twice this time at the latest.
    pub idle: Duration,
}

/// Accepts a limited number of connections and closes those without requests.
#[derive(Clone, Debug)]
pub struct Limited<A> {
    inner: A,
    slots: Arc<Semaphore>,
    idle: Duration,
}

impl<A> Limited<A> {
    /// Limits what `inner` accepts.
    pub fn new(inner: A, limits: Limits) -> Self {
        Self { inner, slots: Arc::new(Semaphore::new(limits.connections)), idle: limits.idle }
    }
}

impl<A, I, S> Accept<I, S> for Limited<A>
where
    A: Accept<I, S> + Clone + Send + Sync + 'static,
    A::Future: Send,
    A::Stream: Send,
    A::Service: Send,
    I: Send + 'static,
    S: Send + 'static,
{
    type Stream = Watched<A::Stream>;
    type Service = Slotted<A::Service>;
    type Future = Pin<Box<dyn Future<Output = io::Result<(Self::Stream, Self::Service)>> + Send>>;

    fn accept(&self, stream: I, service: S) -> Self::Future {
        let Self { inner, slots, idle } = self.clone();
        Box::pin(async move {
            let slot = timeout(ACCEPT_TIMEOUT, slots.acquire_owned()).await?.map_err(io::Error::other)?;
            let (stream, service) = inner.accept(stream, service).await?;
            let open = Arc::new(Open { active: AtomicBool::new(false), _slot: slot });
            let stream = Watched { inner: stream, open: Arc::clone(&open), timer: Box::pin(sleep(idle)), idle };
            Ok((stream, Slotted { inner: service, open }))
        })
    }
}

/// An open connection.
#[derive(Debug)]
struct Open {
    /// Whether a request began since the timer last fired.
    active: AtomicBool,
    _slot: OwnedSemaphorePermit,
}

/// The stream of one connection. It fails if no request begins between two firings of its timer. Other input, such as half a
/// request head or answers to pings, does not keep the connection open.
#[derive(Debug)]
pub struct Watched<S> {
    inner: S,
    open: Arc<Open>,
    timer: Pin<Box<Sleep>>,
    idle: Duration,
}

impl<S> Watched<S> {
    /// Returns the result of the stream. While it is pending, checks the timer.
    fn unless_idle<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            return result;
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            if !self.open.active.swap(false, Ordering::Relaxed) {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            let next = Instant::now() + self.idle;
            self.timer.as_mut().reset(next);
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.inner).poll_read(cx, buf);
        this.unless_idle(cx, result)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.inner).poll_write(cx, buf);
        this.unless_idle(cx, result)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.inner).poll_flush(cx);
        this.unless_idle(cx, result)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.inner).poll_shutdown(cx);
        this.unless_idle(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.inner).poll_write_vectored(cx, bufs);
        this.unless_idle(cx, result)
    }
}

/// The service of one connection. It marks the connection as active on each request. The slot is released when both this and
/// the stream are dropped.
#[derive(Clone, Debug)]
pub struct Slotted<S> {
    inner: S,
    open: Arc<Open>,
}

impl<S: Service<R>, R> Service<R> for Slotted<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        self.open.active.store(true, Ordering::Relaxed);
        self.inner.call(request)
    }
}
