//! The five states of TALM's documentation, from the conditions that it writes (section 1.4).

use super::api::ClusterGroupUpgradeStatus;
use super::conditions::{CLUSTERS_SELECTED, PROGRESSING, SUCCEEDED, VALIDATED};

/// The state of an upgrade in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::VariantArray)]
pub enum UpgradePhase {
    /// It is not enabled, or no controller has reconciled it.
    UpgradeNotStarted,
    /// It is not valid, blocked, or has failed.
    UpgradeCannotStart,
    UpgradeNotCompleted,
    UpgradeTimedOut,
    UpgradeCompleted,
}

impl UpgradePhase {
    pub fn of(status: &ClusterGroupUpgradeStatus) -> Self {
        let found = |type_| status.condition(type_).map(|one| (one.status.as_str(), one.reason.as_str()));
        match (found(SUCCEEDED), found(PROGRESSING)) {
            (Some(("True", _)), _) => Self::UpgradeCompleted,
            (Some((_, "TimedOut")), _) => Self::UpgradeTimedOut,
            (None, Some(("True", _))) => Self::UpgradeNotCompleted,
            (Some(_), _) | (None, Some((_, "MissingBlockingCR" | "IncompleteBlockingCR"))) => Self::UpgradeCannotStart,
            _ if status.is(CLUSTERS_SELECTED, "False") || status.is(VALIDATED, "False") => Self::UpgradeCannotStart,
            _ => Self::UpgradeNotStarted,
        }
    }

    /// The message of the condition that decides the phase.
    pub fn message(self, status: &ClusterGroupUpgradeStatus) -> Option<&str> {
        let wrong = |type_| status.condition(type_).filter(|one| one.status == "False");
        let first = wrong(CLUSTERS_SELECTED).or_else(|| wrong(VALIDATED));
        let first = first.filter(|_| matches!(self, Self::UpgradeCannotStart));
        let found = status.condition(SUCCEEDED).or(first).or_else(|| status.condition(PROGRESSING))?;
        Some(&found.message).filter(|message| !message.is_empty()).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::conditions::set;
    use super::*;

    #[test]
    fn every_end_and_every_wait_has_its_state() {
        let (succeeded, timed_out) = ((SUCCEEDED, "True", "Completed"), (SUCCEEDED, "False", "TimedOut"));
        let (disabled, blocked) =
            ((PROGRESSING, "False", "NotEnabled"), (PROGRESSING, "False", "IncompleteBlockingCR"));
        let ended = (PROGRESSING, "False", "Completed");
        for (found, phase, message) in [
            (&[][..], "UpgradeNotStarted", None),
            (&[disabled], "UpgradeNotStarted", Some("NotEnabled")),
            (&[blocked], "UpgradeCannotStart", Some("IncompleteBlockingCR")),
            (&[disabled, (VALIDATED, "False", "NotServed")], "UpgradeCannotStart", Some("NotServed")),
            (&[(CLUSTERS_SELECTED, "False", "ClusterNotFound")], "UpgradeCannotStart", Some("ClusterNotFound")),
            (&[(PROGRESSING, "True", "WaitingForPlacement")], "UpgradeNotCompleted", Some("WaitingForPlacement")),
            (&[(PROGRESSING, "False", "TimedOut"), timed_out], "UpgradeTimedOut", Some("TimedOut")),
            (&[ended, (SUCCEEDED, "False", "Failed")], "UpgradeCannotStart", Some("Failed")),
            (&[ended, succeeded], "UpgradeCompleted", Some("Completed")),
        ] {
            let mut status = ClusterGroupUpgradeStatus::default();
            for (type_, is, reason) in found {
                set(&mut status.conditions, Timestamp::UNIX_EPOCH, type_, is, reason, reason);
            }
            let of = UpgradePhase::of(&status);
            assert_eq!((of.to_string().as_str(), of.message(&status)), (phase, message), "{found:?}");
        }
    }
}
