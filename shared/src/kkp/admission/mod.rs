//! Admission of KKP's Clusters: the table of rules.
//!
//! | # | when | answer |
//! |---|---|---|
//! | K1 | power-state other than `Running`, `Hibernating` | deny |
//! | K2 | into Hibernating while being deleted | deny |
//! | K3 | into Hibernating on a provider without machines of KKP; on bare metal | deny; warn |
//! | K4 | into Hibernating while paused by another client, while an `EtcdRestore` is under way, while not Running or not up to date | deny |
//! | K5 | into Hibernating while protected or held awake | deny |
//! | K6 | an annotation of ours malformed | deny |
//! | K7 | asleep: `spec.pause` set to false by another client than our controller, without a wake, `active-restore` or deletion | deny |
//! | K8 | asleep: `spec.version` or the datacenter changed | warn |
//! | K9 | asleep: `active-restore` added: an `EtcdRestore` deletes the cluster's etcd volumes (row 18) | deny |
//! | K10 | out of Hibernating | never denied: denials become warnings |
//!
//! *Asleep* is what our condition on the Cluster says, from the pause to the end of a wake. Status, finalizers, labels and presets are never
//! judged: KKP's own controllers write them on a sleeping cluster, too (row 16).

mod cluster;
mod rules;
#[cfg(test)]
mod tests;

pub use cluster::{Cluster, Settings};
pub use rules::RULES;

use crate::admission::{self, Change, Judgement};
use crate::annotation::keys as common;
use crate::kkp::keys;

/// Kind of the objects judged here.
pub const KIND: &str = "Cluster";

impl Change<'_, Cluster> {
    /// Whether this request asks for sleep, and the cluster was to run before.
    #[must_use]
    pub fn goes_to_sleep(&self) -> bool {
        self.old_annotation(keys::POWER_STATE) != Some(HIBERNATING)
            && self.new_annotation(keys::POWER_STATE) == Some(HIBERNATING)
    }

    /// Whether this request withdraws the intent to sleep.
    #[must_use]
    pub fn wakes(&self) -> bool {
        let wanted = self.new_annotation(keys::POWER_STATE);
        self.old_annotation(keys::POWER_STATE) == Some(HIBERNATING) && matches!(wanted, None | Some("Running"))
    }

    /// Whether the cluster sleeps, and is to go on sleeping.
    #[must_use]
    pub fn stays_asleep(&self) -> bool {
        self.old.as_ref().is_some_and(Cluster::is_asleep) && self.new_annotation(keys::POWER_STATE) == Some(HIBERNATING)
    }
}

/// The value of [`keys::POWER_STATE`] that asks for sleep.
const HIBERNATING: &str = "Hibernating";

/// Annotations of a Cluster that rows K1 and K6 read, with what each holds.
const ANNOTATIONS: [(&str, Holds); 5] = [
    (keys::POWER_STATE_AT, Holds::Time),
    (common::HOLD_AWAKE_UNTIL, Holds::Time),
    (common::PREFLIGHT_REQUESTED_AT, Holds::Time),
    (common::PROTECTED, Holds::Boolean),
    (keys::FORCE, Holds::Boolean),
];

#[derive(Clone, Copy)]
enum Holds {
    Time,
    Boolean,
}

/// Judges a change of a Cluster by rows K1 to K10.
#[must_use]
pub fn judge(change: &Change<'_, Cluster>) -> Judgement {
    let judgement = admission::judge(change, RULES);
    if change.wakes() { judgement.softened() } else { judgement } // K10
}
