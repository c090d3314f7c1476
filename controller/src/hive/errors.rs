//! Why a look ended early, and how soon it is repeated.

use std::time::Duration;

use tracing::{debug, info, warn};

use super::{Context, Key, LOOK};

/// Why a look ended early. It is repeated soon; nothing is lost.
#[derive(Debug, thiserror::Error, strum::IntoStaticStr)]
pub enum LookError {
    /// The object does not have the form that its kind has.
    #[error("read the object")]
    Malformed {
        /// What is wrong.
        source: Box<kube::core::error_boundary::InvalidObject>,
    },
    /// The user's field could not be written.
    #[error("write spec.powerState")]
    Intent {
        /// The API server's answer.
        source: Box<kube::Error>,
    },
    /// The status could not be written.
    #[error("write the status")]
    Status {
        /// The API server's answer.
        source: Box<kube::Error>,
    },
    /// Somebody wants something else by now than what was decided about.
    #[error("spec.powerState has changed meanwhile")]
    Outdated,
    /// Calls took too long.
    #[error("the look took longer than {LOOK:?}")]
    TimedOut,
    /// Another controller leads.
    #[error("this controller is not the leader any more")]
    NotLeader,
}

impl LookError {
    /// Whether something may have been written although the look has failed.
    pub fn leaves_doubt(&self) -> bool {
        match self {
            Self::Status { .. } | Self::Intent { .. } => !self.is_overtaken(),
            Self::TimedOut => true,
            Self::Malformed { .. } | Self::NotLeader | Self::Outdated => false,
        }
    }

    /// Whether a call to the cloud may still be on its way that nobody waits for.
    pub fn leaves_calls(&self) -> bool {
        matches!(self, Self::TimedOut | Self::Outdated)
    }

    /// Whether somebody else wrote first.
    pub fn is_overtaken(&self) -> bool {
        matches!(self, Self::Status { source } | Self::Intent { source } if is_overtaken(source))
    }
}

/// How soon to look again: not before something changes, if that is what it takes.
pub fn pause_after(key: &Key, cluster: &str, error: &LookError, context: &Context) -> Option<Duration> {
    match error {
        LookError::Status { source } | LookError::Intent { source } if is_gone(source) => {
            context.forget(key);
            None
        }
        LookError::Status { source } | LookError::Intent { source } if is_overtaken(source) => {
            debug!(cluster, "somebody else wrote first");
            // The watch may be late with what they wrote, or a policy refuses what we write.
            let times = context.memories.lock().ok().and_then(|all| all.get(key).map(|memory| memory.overtaken));
            let pause = Duration::from_millis(rand::random_range(100..500));
            Some(pause * 2_u32.pow(times.unwrap_or_default().saturating_sub(1).min(4)))
        }
        LookError::Outdated => {
            info!(cluster, "spec.powerState has changed meanwhile: will look again");
            Some(Duration::from_millis(100))
        }
        // If another one leads, this one's looks end with its time of leading. If it was only late to renew, it goes on.
        LookError::NotLeader => {
            info!(cluster, "not the leader, or late to renew the lease");
            Some(Duration::from_millis(rand::random_range(500..1_500)))
        }
        LookError::Malformed { .. } => {
            warn!(cluster, error = error as &dyn std::error::Error, "left alone until it changes");
            None
        }
        LookError::Status { .. } | LookError::Intent { .. } | LookError::TimedOut => {
            warn!(cluster, error = error as &dyn std::error::Error, "will look again");
            Some(Duration::from_millis(rand::random_range(2_000..5_000)))
        }
    }
}

/// Whether the object is not there any more.
pub fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found())
}

/// A failed `test` of a JSON patch answers 422, other lost races 409.
pub fn is_overtaken(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_conflict() || status.code == 422)
}
