//! What can go wrong with one target, and which exit code that is.

mod recover;
mod rollout;
mod schedule;
mod usage;

use std::time::Duration;
use std::{fmt, io};

pub(crate) use self::recover::FdbError;
pub(crate) use self::rollout::RolloutError;
pub(crate) use self::schedule::ScheduleError;
pub(crate) use self::usage::UsageError;
use hub::error::HubError;
use shared::kinds::TargetError;
use view::age::elapsed;
use view::error::ViewError;

use crate::cli::time::TimeError;

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
    pub(crate) problem: Box<Problem>,
}

/// Why a target, or the whole command, failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error(transparent)]
    Hub(#[from] HubError),
    #[error(transparent)]
    View(ViewError),
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Wait(#[from] WaitError),
    #[error(transparent)]
    Usage(#[from] UsageError),
    #[error(transparent)]
    Time(#[from] TimeError),
    #[error(transparent)]
    Fdb(#[from] FdbError),
    #[error(transparent)]
    Rollout(#[from] RolloutError),
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    #[error(
        "the preflight refuses the sleep, no hibernation was requested{}:\n  {}",
        if *can_be_forced { " (--force accepts this)" } else { "" }, reasons.join("\n  ")
    )]
    Preflight { reasons: Vec<String>, can_be_forced: bool },
    #[error("{0}; no sleep was requested (--yes requests it without a preflight)")]
    NoPreflight(String),
    /// The target's own system refused the write, and nothing else could take the request.
    #[error("{refusal}; {why}")]
    StandIn { refusal: Box<HubError>, why: String },
    #[error("conflict: the object changed {0} times during the write; try again")]
    Contended(u32),
    #[error("not confirmed, nothing was changed (use --yes to skip the question)")]
    Declined,
    #[error(
        "cannot ask for confirmation, nothing was changed: neither stderr nor /dev/tty is a terminal to ask on; give --yes"
    )]
    Unasked,
    #[error("cannot {action}: {source}")]
    Io { action: String, source: io::Error },
}

impl Problem {
    /// An object that does not have the form of its kind.
    pub(crate) fn unreadable(error: serde_json::Error) -> Self {
        Self::Target(error.into())
    }

    /// A failure of the system below.
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::Io { action, source }
    }

    /// The exit code of this problem alone.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) | Self::Time(_) | Self::Hub(HubError::Selector { .. }) => Exit::Usage,
            Self::Fdb(error) => error.exit(),
            Self::Rollout(error) => error.exit(),
            Self::Schedule(error) => error.exit(),
            Self::StandIn { refusal, .. } if matches!(**refusal, HubError::Refused { .. }) => Exit::Refused,
            Self::Hub(HubError::Refused { .. }) | Self::Target(TargetError::Refused(_)) | Self::Preflight { .. } => {
                Exit::Refused
            }
            Self::NoPreflight(_) => Exit::TimedOut,
            Self::Wait(error) => error.exit(),
            _ => Exit::Error,
        }
    }
}

impl Failure {
    /// A failure of a target.
    pub(crate) fn new(what: String, problem: Problem) -> Self {
        Self { what, problem: Box::new(problem) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.problem {
            problem @ (Problem::Target(_)
            | Problem::Wait(_)
            | Problem::Preflight { .. }
            | Problem::NoPreflight(_)
            | Problem::Contended(_)) => write!(f, "{}: {problem}", self.what),
            // The others name their object themselves, where they have one.
            problem => write!(f, "{problem}"),
        }
    }
}

impl From<ViewError> for Problem {
    fn from(error: ViewError) -> Self {
        match error {
            ViewError::Hub(error) => Self::Hub(error),
            ViewError::Target(error) => Self::Target(error),
            error => Self::View(error),
        }
    }
}

impl From<view::error::Failure> for Failure {
    fn from(failure: view::error::Failure) -> Self {
        Self::new(failure.what, failure.error.into())
    }
}

/// Why waiting ended before the target reached the state asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WaitError {
    #[error("timed out after {}: {state}", elapsed(*.after))]
    TimedOut { after: Duration, state: String },
    #[error("stopped waiting after {}: {why}", elapsed(*.after))]
    Lost { after: Duration, why: String },
    #[error("stopped waiting after {}: it does not exist any more", elapsed(*.after))]
    Deleted { after: Duration },
    /// Nothing was waited for: no answer is to be expected.
    #[error("{0}")]
    Impossible(String),
    /// A rollout has ended, and not every target was started.
    #[error("over after {}: {why}", elapsed(*.after))]
    Over { after: Duration, why: String, exit: Exit },
}

impl WaitError {
    /// The exit code.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::TimedOut { .. } => Exit::TimedOut,
            Self::Lost { .. } | Self::Deleted { .. } | Self::Impossible(_) => Exit::Error,
            Self::Over { exit, .. } => *exit,
        }
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
