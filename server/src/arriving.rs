//! The body of a request on its way.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};

use crate::connections::Begun;

/// A body that says when it has arrived.
pub(crate) struct Arriving {
    body: Incoming,
    begun: Arc<Begun>,
}

impl Arriving {
    pub(crate) fn new(body: Incoming, begun: Arc<Begun>) -> Self {
        if body.is_end_stream() {
            begun.is_whole();
        }
        Self { body, begun }
    }
}

impl Body for Arriving {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() || self.body.is_end_stream() {
            self.begun.is_whole();
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
