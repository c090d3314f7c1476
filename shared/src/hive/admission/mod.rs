//! Admission of `ClusterDeployment`s: the table of rules, and what makes a change ours to judge.
//!
//! | # | when | answer |
//! |---|---|---|
//! | V1 | powerState other than `""`, `Running`, `Hibernating` | deny |
//! | V2 | into Hibernating while not installed | warn |
//! | V3 | into Hibernating while being deleted | deny |
//! | V4 | into Hibernating on a platform that is not served; on Azure without a resource group | deny |
//! | V5 | into Hibernating, installed, without clusterMetadata, infraID or admin kubeconfig | deny |
//! | V6 | into Hibernating while protected or held awake | deny |
//! | V7 | into Hibernating while paused, within 24 h of installation, owned by a pool, or upgrading | warn |
//! | V8 | hibernateAfter not a positive Go duration; shorter than 10 minutes | deny; warn |
//! | V9 | an annotation of ours malformed; wake-at or hold-awake-until that has passed, set; brought along by a new object | deny; deny; warn |
//! | V10 | requested-by or requested-at edited without a change of state, hold-awake-by without hold-awake-until, the claim of a rollout by anybody but our controller; any of them brought along by a new object without what it belongs to | deny; warn |
//! | V11 | out of Hibernating | never denied: denials become warnings |
//! | V12 | into Hibernating with a requested-by that is not the request's user | deny |
//! | unreadable | a field that cannot be read, such as a text of more than 4 KiB: set or altered, or any of them into Hibernating | deny |
//!
//! How the rows meet:
//! - A *state* is what is desired: `""`, absent and `Running` are one state, so a change among them is none.
//! - *Into Hibernating* is an update from any other powerState, or the creation of an object that already says
//!   Hibernating.
//! - V1, V8 and V9 judge only values that this request sets: what is stored already blocks nothing else, and can be
//!   mended field by field.
//! - *Out of Hibernating* (V11) is an update from Hibernating to `""`, absent or `Running`. A powerState that does not
//!   exist is no way out of it: V1 holds.
//! - Exempt identities are never denied; [`Evaluation::exempted`] lists what they bypassed. One denial holds for
//!   members of exempt groups, too: that of the claim of a rollout (V10), which only users on the list write.
//! - A claim that is edited in a change of state is put back by the mutating webhook, because a wake could not be
//!   denied for it (V11).
//! - What our controller starts for a rollout is stamped with the person who asked for the rollout, as the controller
//!   writes it: V12 accepts it.

mod cluster;
mod rules;

pub use cluster::Cluster;
pub use rules::{PLATFORM_FIELD, PLATFORM_ROW, RULES};

use crate::admission::{self, Change, Edits, Evaluation, Settings, Unread};
use crate::annotation::{format, keys};
use crate::hive::api::HIVE_PLATFORMS;
use crate::hive::exempt;

impl Change<'_, Cluster> {
    /// Whether this request sets or alters `spec.powerState`.
    pub fn alters_power_state(&self) -> bool {
        self.old.as_ref().is_none_or(|old| old.spec.power_state != self.new.spec.power_state)
    }

    /// `spec.hibernateAfter`, if this request sets or alters it.
    pub fn new_hibernate_after(&self) -> Option<&str> {
        let before = self.old.as_ref().and_then(|old| old.spec.hibernate_after.as_deref());
        self.new.spec.hibernate_after.as_deref().filter(|after| before != Some(after))
    }

    /// Whether there is anything in this request for us to judge: everything else that happens to a cluster is not our
    /// business, whatever its state.
    fn concerns_us(&self) -> bool {
        self.creates()
            || self.alters_power_state()
            || self.new_hibernate_after().is_some()
            || keys::TARGET_ANNOTATIONS.iter().any(|key| self.alters_annotation(key))
            || self.unread.new.iter().any(Unread::altered)
    }
}

/// Settings without flags: the platforms that Hive's own hibernation controller serves; Hive's service accounts and our
/// controller are exempt.
pub fn default_settings() -> Settings {
    Settings { exempt: exempt::identities(), ..Settings::serving(HIVE_PLATFORMS) }
}

/// Judges a change of a `ClusterDeployment` by rows V1 to V12.
pub fn judge(change: &Change<'_, Cluster>) -> Evaluation {
    if !change.concerns_us() {
        return Evaluation::default();
    }
    admission::judge(change, RULES)
}

/// Stamps as [`admission::stamp::stamp`] does, and drops a scheduled wake that would undo a later sleep.
///
/// `""`, absent and `Running` are one state, so that a tool which writes out the default does not claim to have woken
/// the cluster.
pub fn stamp(change: &Change<'_, Cluster>) -> Edits {
    drop_passed_wake(change, admission::stamp::stamp(change))
}

/// Every wake removes a scheduled wake, and so does a write that brings or keeps one that has passed when the cluster
/// goes to sleep.
fn drop_passed_wake(change: &Change<'_, Cluster>, edits: Edits) -> Edits {
    let Some(found) = change.new_annotation(keys::WAKE_AT) else { return edits };
    let passed = format::time(found).is_some_and(|at| at <= change.now);
    let brought = change.alters_annotation(keys::WAKE_AT);
    if !change.wakes() && !(passed && (change.goes_to_sleep() || brought)) {
        return edits;
    }
    let edits = edits.want(keys::WAKE_AT, Some(found), None);
    if passed && brought { edits.warn(format!("{} {found} has passed: it is dropped", keys::WAKE_AT)) } else { edits }
}

#[cfg(test)]
mod tests;
