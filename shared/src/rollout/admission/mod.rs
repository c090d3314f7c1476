//! Admission of `PowerRollout`s: the table of rules.
//!
//! | # | when | answer | by |
//! |---|---|---|---|
//! | R1 | a starting write by a user who may not patch the targets | deny | policy |
//! | R2 | a starting write without the stamp of its user; any other write that alters the stamp | deny | policy; the webhook at creation |
//! | R3 | created with a notAfter that has passed or cannot be read | deny | webhook |
//! | R4 | created with a scheduledBy by anyone but our controller | deny | policy; webhook |
//!
//! How the rows meet:
//! - A *starting write* is one of the list [`STARTS`]: each that does more than to pause or to abort. The mutating
//!   webhook stamps it with who and when; while the webhook is down the API server refuses it. In any other write it puts
//!   back a stamp that is missing, as in a file that replaces the rollout.
//! - R1 needs the API server's authorizer, so only the policy [`POLICY`] can judge it. *The targets* are those of the
//!   named namespaces, 20 at most, or of every namespace if the targets are selected.
//! - R3 needs a clock, so only the webhook can judge it. It judges creations alone: a rollout that is over can still be
//!   changed.
//! - Nothing else reaches the webhook, and no row judges a write that only pauses or aborts, or a deletion.
//! - No identity is exempt. Our controller writes the status, and creates the rollouts of schedules: those carry the stamp
//!   of the person who wrote the schedule. To the policy our controller is who may create `powerschedules/rollouts`.

mod policy;
mod rules;
mod starts;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::admission::{self, Change, Denial, Evaluation, Exempts, Meta, Object, Written, metadata};
use crate::read::lenient;
pub use policy::{may_patch_kind, policy, starts_targets, starts_unless};
pub use rules::RULES;
pub use starts::{STARTS, STOPS, Start, stamp};

/// Name of the `ValidatingAdmissionPolicy` that judges R1 and R2, and of its binding. The controller starts nothing
/// without them.
pub const POLICY: &str = "powerrollouts.hibernate.sh";

/// Judges a new `PowerRollout` by rows R2 to R4.
pub fn judge(change: &Change<'_, Rollout>) -> Evaluation {
    admission::judge(change, RULES)
}

/// What the rules read of a `PowerRollout`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Rollout {
    /// Metadata.
    #[serde(deserialize_with = "metadata")]
    pub metadata: Meta,
    /// What is to be done: every field as it is written.
    #[serde(default, deserialize_with = "lenient")]
    pub spec: Option<BTreeMap<String, Written>>,
}

impl Rollout {
    /// A field of the spec.
    pub fn field(&self, name: &str) -> Option<&Written> {
        self.spec.as_ref()?.get(name)
    }

    /// The schedule that it carries out, as it is written.
    pub fn scheduled_by(&self) -> Option<&Written> {
        self.field("scheduledBy").filter(|found| found.begin != "null")
    }
}

impl Object for Rollout {
    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn exempts(_: &Denial) -> Exempts {
        Exempts::None
    }
}
