//! Panics end the work that has panicked and nothing else: they are caught, logged and counted.
//!
//! What a panic says may come from a spoke, a cloud or an annotation. So the message is bounded and cleaned before anybody
//! sees it, and the default hook, which prints it as it is, is replaced.

use std::any::Any;
use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, PanicHookInfo};
use std::sync::Arc;

use futures::FutureExt;
use tokio::time::Instant;
use tracing::error;

use super::backoff::{RESTART_BACKOFF, Streak};
use crate::metrics::Metrics;

#[cfg(not(panic = "unwind"))]
compile_error!("the controller contains the panics of single targets, and must be built with panic = \"unwind\"");

/// Characters that are kept of a message.
const LONGEST: usize = 512;

thread_local! {
    /// Message and location of the last panic of this thread, for the code that catches it.
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A panic that was caught, cleaned and counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panic {
    /// What it said and where, clean and bounded.
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
    #[must_use]
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
        let said = || {
            let text = payload.downcast_ref::<&str>().map(ToString::to_string);
            clean(&text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default())
        };
        let message = LAST.with_borrow_mut(Option::take).unwrap_or_else(said);
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
    let message = format!("{}{place}", clean(info.payload_as_str().unwrap_or("a panic without a message")));
    // Logged here as well: who catches it may be a library.
    error!(message, "panic");
    LAST.set(Some(message));
}

/// Sanitizes untrusted text: one line, no control or bidi characters, bounded length.
#[must_use]
pub fn clean(text: &str) -> String {
    let mut clean: String = text.chars().map(|c| if is_unsafe(c) { ' ' } else { c }).take(LONGEST).collect();
    clean.truncate(clean.trim_end().len());
    clean
}

/// Control characters, line and paragraph separators, and marks that change the direction or hide.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_a_panic_says_is_cleaned_and_bounded() {
        assert_eq!(clean("a\x1b[31mred\n\u{202e}evil\u{2066}"), "a [31mred  evil");
        assert_eq!(clean(&"ü".repeat(2_000)).chars().count(), LONGEST);
        assert_eq!(clean(""), "");
    }

    #[tokio::test]
    async fn a_panic_is_caught_counted_and_named() {
        let metrics = Arc::new(Metrics::default());
        let panics = Panics::of("test", metrics.clone());
        let text = "\u{202e}x\n".repeat(400);
        let caught = panics.contain("test", "ns/demo", async { panic!("{text}") }).await.map(|(): ()| ());
        let message = caught.unwrap_err().message;
        assert!(message.starts_with(" x  x") && message.chars().count() <= LONGEST + 80, "{message}");
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
