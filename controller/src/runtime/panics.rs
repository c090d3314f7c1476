//! Panics end the work that has panicked and nothing else: they are caught, logged and counted.
//!
//! The message of a panic may hold text from a spoke, a cloud or an annotation. It is sanitized, and the default hook,
//! which prints it as it is, is replaced.

use std::any::Any;
use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, PanicHookInfo};
use std::sync::Arc;

use futures::FutureExt;
use shared::text::sanitize;
use tokio::time::Instant;
use tracing::error;

use super::backoff::{RESTART_BACKOFF, Streak};
use crate::metrics::Metrics;

#[cfg(not(panic = "unwind"))]
compile_error!("the controller contains the panics of single targets, and must be built with panic = \"unwind\"");

thread_local! {
    /// Message and location of the last panic of this thread, for the code that catches it.
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A panic that was caught, sanitized and counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Panic {
    /// What it said and where, sanitized.
    pub message: String,
}

/// Where panics of one system are counted.
#[derive(Clone)]
pub struct Panics {
    system: &'static str,
    metrics: Arc<Metrics>,
}

impl Panics {
    /// Counts them for this system.
    pub fn of(system: &'static str, metrics: Arc<Metrics>) -> Self {
        Self { system, metrics }
    }

    /// Runs work to its end, or to its panic. `what` and `name` say in the log what that was.
    ///
    /// # Errors
    /// When it has panicked.
    pub async fn contain<T>(&self, what: &str, name: &str, work: impl Future<Output = T>) -> Result<T, Panic> {
        // Whatever the work has left half done is dropped by the caller.
        AssertUnwindSafe(work).catch_unwind().await.map_err(|payload| self.caught(what, name, &*payload))
    }

    /// Runs work that never ends, and begins it anew after a panic, or if it has ended all the same.
    ///
    /// Work that has lasted for longer than the longest backoff begins with the first one again.
    pub async fn keep_alive<F: Future<Output = ()>>(&self, what: &str, work: impl Fn() -> F) {
        let mut streak = Streak::default();
        loop {
            let began = Instant::now();
            let _ = self.contain(what, "", work()).await;
            if began.elapsed() > RESTART_BACKOFF.most {
                streak = Streak::default();
            }
            tokio::time::sleep(streak.next(RESTART_BACKOFF)).await;
        }
    }

    fn caught(&self, what: &str, name: &str, payload: &(dyn Any + Send)) -> Panic {
        let detail = || {
            let text = payload.downcast_ref::<&str>().copied();
            sanitize(text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or_default())
        };
        let message = LAST.with_borrow_mut(Option::take).unwrap_or_else(detail);
        self.metrics.panicked(self.system);
        error!(system = self.system, cluster = name, message, "{what} panicked");
        Panic { message }
    }
}

/// Replaces the default hook, which prints messages as they are.
pub fn install_hook() {
    std::panic::set_hook(Box::new(hook));
}

fn hook(info: &PanicHookInfo<'_>) {
    let place = info.location().map(|place| format!(" at {}:{}", place.file(), place.line())).unwrap_or_default();
    let message = format!("{}{place}", sanitize(info.payload_as_str().unwrap_or("a panic without a message")));
    // Logged here as well: who catches it may be a library.
    error!(message, "panic");
    LAST.set(Some(message));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shared::text::MAX_CHARS;

    use super::*;

    #[tokio::test]
    async fn a_panic_is_caught_counted_and_named() {
        let metrics = Arc::new(Metrics::default());
        let panics = Panics::of("test", metrics.clone());
        let text = "\u{202e}x\n".repeat(400);
        let caught = panics.contain("test", "ns/demo", async { panic!("{text}") }).await.map(|(): ()| ());
        let message = caught.unwrap_err().message;
        assert!(message.starts_with(" x  x") && message.chars().count() <= MAX_CHARS + 80, "{message}");
        assert_eq!(panics.contain("test", "ns/demo", async { 7 }).await, Ok(7));
        assert!(metrics.text().contains("hibernate_panics_total{system=\"test\"} 1\n"), "{}", metrics.text());
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_panics_begins_anew_and_what_has_lasted_begins_anew_soon() {
        let panics = Panics::of("test", Arc::default());
        let begun = std::cell::RefCell::new(Vec::new());
        let work = || async {
            begun.borrow_mut().push(Instant::now());
            let count = begun.borrow().len();
            tokio::time::sleep(if count == 4 { Duration::from_hours(1) } else { Duration::ZERO }).await;
            assert!(count == 2, "not yet");
        };
        let _ = tokio::time::timeout(Duration::from_mins(61), panics.keep_alive("test", work)).await;
        let pauses: Vec<_> = begun.borrow().windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
        assert_eq!(pauses[..5], [1, 2, 4, 3_601, 2]);
    }
}
