//! Why waiting ends early.

/// Why waiting ended before the target reached the state asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WaitError {
    #[error("timed out after {after}: {state}")]
    TimedOut { after: String, state: String },
    #[error("stopped waiting after {after}: {why}")]
    Lost { after: String, why: String },
}
