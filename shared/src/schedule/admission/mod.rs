//! Admission of `PowerSchedules` and `ClusterPowerSchedules`: the table of rules.
//!
//! | # | when | answer | by |
//! |---|---|---|---|
//! | S1 | a starting write by a user who may not patch the targets | deny | policy |
//! | S2 | a starting write without the stamp of its user; any other write that alters the stamp | deny | policy; the webhook at creation |
//! | S3 | a starting write with a zone, a window, an event, an exception, a duration or a selector that cannot be; one that never sleeps, or has over 24 edges a day | deny | webhook |
//! | S4 | an applyAt that is set, and not about now | deny | webhook |
//! | S5 | a `hibernateAfter` of a target that is shorter than a window | warn | plugin |
//!
//! A *starting write* is each that does more than to set `suspend`. As for rollouts, the mutating webhook stamps it with
//! who and when, and the policy [`POLICY`] asks the API server's authorizer. The rollouts of the schedule carry that
//! person; a write that only suspends, and a deletion, need the right to write schedules alone.

mod policy;
mod rules;
#[cfg(test)]
mod tests;

use serde::Deserialize;

use super::api::ScheduleSpec;
use crate::admission::stamp::stamp_author;
use crate::admission::{self, Change, Denial, Edits, Evaluation, Exempts, Meta, Object, metadata};
use crate::read::lenient;
pub use policy::policy;
pub use rules::RULES;

/// Name of the `ValidatingAdmissionPolicy` that judges S1 and S2, and of its binding. The controller acts on no schedule
/// without them.
pub const POLICY: &str = "powerschedules.hibernate.sh";

/// Judges a write of a schedule by rows S2 to S4.
pub fn judge(change: &Change<'_, Schedule>) -> Evaluation {
    admission::judge(change, RULES)
}

/// What the rules read of a schedule.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Schedule {
    /// Metadata.
    #[serde(deserialize_with = "metadata")]
    pub metadata: Meta,
    /// When targets sleep and wake.
    #[serde(default, deserialize_with = "lenient")]
    pub spec: Option<ScheduleSpec>,
}

impl Object for Schedule {
    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn must_be_whole(change: &Change<'_, Self>) -> bool {
        change.starts_targets()
    }

    fn exempts(_: &Denial) -> Exempts {
        Exempts::None
    }
}

impl Change<'_, Schedule> {
    /// Whether the write lets targets change: it does more than to suspend.
    pub fn starts_targets(&self) -> bool {
        let Some(old) = &self.old else { return true };
        let (Some(old), Some(new)) = (&old.spec, &self.new.spec) else { return true };
        let resumes = old.suspend && !new.suspend;
        resumes || *old != ScheduleSpec { suspend: old.suspend, ..new.clone() }
    }
}

/// Stamps a write that lets targets change.
pub fn stamp(change: &Change<'_, Schedule>) -> Edits {
    stamp_author(change, change.starts_targets())
}
