//! Why a sleep that must be confirmed is not requested.

use super::exit::Exit;
use crate::api::error::HubError;

/// What a preflight before a sleep came to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PreflightError {
    #[error(
        "the preflight refuses the sleep, no hibernation was requested{}:\n  {}",
        if *can_be_forced { " (--force accepts this)" } else { "" }, reasons.join("\n  ")
    )]
    Refused { reasons: Vec<String>, can_be_forced: bool },
    #[error("{0}; no sleep was requested (--yes requests it without a preflight)")]
    Unanswered(String),
}

impl PreflightError {
    /// The exit code.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Refused { .. } => Exit::Refused,
            Self::Unanswered(_) => Exit::TimedOut,
        }
    }
}

/// The target's own system refused the write, and nothing else could take the request.
#[derive(Debug, thiserror::Error)]
#[error("{refusal}; {why}")]
pub(crate) struct StandInError {
    pub(crate) refusal: HubError,
    pub(crate) why: String,
}
