//! Exit codes.

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
