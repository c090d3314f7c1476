//! A bound on open connections, so that a flood of them costs its senders more than us.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum_server::accept::Accept;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::Service;

/// Lets a number of connections in at once; others wait for one to end before they may shake hands.
#[derive(Clone, Debug)]
pub struct Limited<A> {
    inner: A,
    slots: Arc<Semaphore>,
}

impl<A> Limited<A> {
    /// Bounds what `inner` accepts.
    pub fn new(inner: A, connections: usize) -> Self {
        Self { inner, slots: Arc::new(Semaphore::new(connections)) }
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
    type Stream = A::Stream;
    type Service = Slotted<A::Service>;
    type Future = Pin<Box<dyn Future<Output = io::Result<(Self::Stream, Self::Service)>> + Send>>;

    fn accept(&self, stream: I, service: S) -> Self::Future {
        let Self { inner, slots } = self.clone();
        Box::pin(async move {
            let slot = slots.acquire_owned().await.map_err(io::Error::other)?;
            let (stream, service) = inner.accept(stream, service).await?;
            Ok((stream, Slotted { inner: service, _slot: Arc::new(slot) }))
        })
    }
}

/// The service of one connection, which holds the connection's slot as long as it lives.
#[derive(Clone, Debug)]
pub struct Slotted<S> {
    inner: S,
    _slot: Arc<OwnedSemaphorePermit>,
}

impl<S: Service<R>, R> Service<R> for Slotted<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        self.inner.call(request)
    }
}
