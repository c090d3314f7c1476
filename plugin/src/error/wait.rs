//! Why waiting ends early.

use std::time::Duration;

use super::exit::Exit;
use crate::cli::duration::elapsed;

/// Why waiting ended before the target reached the state asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WaitError {
    #[error("timed out after {}: {state}", elapsed(*.after))]
    TimedOut { after: Duration, state: String },
    #[error("stopped waiting after {}: {why}", elapsed(*.after))]
    Lost { after: Duration, why: String },
    /// A rollout has ended, and not every target was started.
    #[error("over after {}: {why}", elapsed(*.after))]
    Over { after: Duration, why: String, exit: Exit },
}

impl WaitError {
    /// The exit code.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::TimedOut { .. } => Exit::TimedOut,
            Self::Lost { .. } => Exit::Error,
            Self::Over { exit, .. } => *exit,
        }
    }

    /// The object was deleted.
    pub(crate) fn deleted(after: Duration) -> Self {
        Self::Lost { after, why: "it does not exist any more".to_owned() }
    }
}
