//! Why waiting ends early.

use std::time::Duration;

use crate::cli::duration::elapsed;

/// Why waiting ended before the target reached the state asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WaitError {
    #[error("timed out after {}: {state}", elapsed(*.after))]
    TimedOut { after: Duration, state: String },
    #[error("stopped waiting after {}: {why}", elapsed(*.after))]
    Lost { after: Duration, why: String },
}

impl WaitError {
    /// The object was deleted.
    pub(crate) fn deleted(after: Duration) -> Self {
        Self::Lost { after, why: "it does not exist any more".to_owned() }
    }
}
