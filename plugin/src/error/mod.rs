//! What can go wrong with one target, and which exit code that is.

pub(crate) mod recover;

use std::fmt;

use shared::workload::replicas::ReplicasError;

use crate::{
    api::answer::HubError,
    cli::time::WhenError,
    error::recover::FdbError,
    select::{parse::UsageError, resolve::ResolveError},
    wait::WaitError,
};

/// How the program ends. The numbers are part of its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All done, or nothing to do.
    Done = 0,
    /// Something failed.
    Error = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// Policy, webhook or schema said no.
    Refused = 3,
    /// Waiting took too long.
    TimedOut = 4,
}

impl Exit {
    /// The exit code of several failures: their own if they are of one kind, otherwise an error.
    pub(crate) fn of(failures: impl IntoIterator<Item = Self>) -> Self {
        failures.into_iter().reduce(|all, next| if all == next { all } else { Self::Error }).unwrap_or(Self::Done)
    }
}

/// A target that could not be served.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The target as messages name it.
    pub(crate) what: String,
    /// Why.
    pub(crate) problem: Problem,
}

/// Why a target, or the whole command, failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error(transparent)]
    Hub(#[from] HubError),
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    #[error(transparent)]
    Replicas(#[from] ReplicasError),
    #[error(transparent)]
    Wait(#[from] WaitError),
    #[error(transparent)]
    Usage(#[from] UsageError),
    #[error(transparent)]
    When(#[from] WhenError),
    #[error(transparent)]
    Fdb(#[from] FdbError),
    #[error("somebody else changed it {0} times while it was being written: try again")]
    Contended(u32),
    #[error("not confirmed, nothing was changed (--yes does not ask)")]
    Declined,
    #[error(
        "cannot ask for confirmation, nothing was changed: neither stderr nor /dev/tty is a terminal to ask on; give --yes"
    )]
    Unasked,
    #[error("cannot read the object that the hub sent: {0}")]
    Unreadable(#[source] serde_json::Error),
    #[error("cannot {action}: {source}")]
    Io { action: String, source: std::io::Error },
}

impl Failure {
    /// A failure of a target.
    pub(crate) fn new(what: String, problem: Problem) -> Self {
        Self { what, problem }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.problem {
            // These name their object themselves, where they have one.
            Problem::Hub(_)
            | Problem::Resolve(_)
            | Problem::Usage(_)
            | Problem::When(_)
            | Problem::Fdb(_)
            | Problem::Declined
            | Problem::Unasked
            | Problem::Io { .. } => {
                write!(f, "{}", self.problem)
            }
            problem => write!(f, "{}: {problem}", self.what),
        }
    }
}

impl Problem {
    /// The exit code of this problem alone.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) | Self::When(_) | Self::Hub(HubError::Selector { .. }) => Exit::Usage,
            Self::Fdb(error) => error.exit(),
            Self::Hub(HubError::Refused { .. }) | Self::Replicas(ReplicasError::Protected) => Exit::Refused,
            Self::Wait(WaitError::TimedOut { .. }) => Exit::TimedOut,
            _ => Exit::Error,
        }
    }
}

impl From<crate::api::config::ConfigError> for Problem {
    fn from(error: crate::api::config::ConfigError) -> Self {
        Self::Hub(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_failures_have_one_exit_code() {
        use Exit::{Done, Error, Refused, TimedOut};
        for (failures, expected) in [
            (vec![], Done),
            (vec![Refused], Refused),
            (vec![Refused, Refused], Refused),
            (vec![Refused, Error], Error),
            (vec![TimedOut, TimedOut], TimedOut),
            (vec![Refused, TimedOut], Error),
            (vec![Refused, TimedOut, Refused], Error),
        ] {
            assert_eq!(Exit::of(failures.clone()), expected, "{failures:?}");
        }
    }
}
