//! Admission of KKP's Clusters: the table of rules.
//!
//! | # | when | answer |
//! |---|---|---|
//! | K1 | power-state other than `Running`, `Hibernating` | deny |
//! | K2 | into Hibernating while being deleted | deny |
//! | K3 | into Hibernating on a provider without machines of KKP; on bare metal | deny; warn |
//! | K4 | into Hibernating while paused by another client, while an `EtcdRestore` is in progress, while KKP applies encryption at rest, while not Running or not up to date (a new object has no status yet) | deny |
//! | K5 | into Hibernating while protected or held awake | deny |
//! | K6 | an annotation of ours malformed; a hold that has passed, set; brought along by a new object | deny; deny; warn |
//! | K7 | asleep: `spec.pause` set to false without a reason of K7's list; into Hibernating with `allow-unpause` | deny; warn |
//! | K8 | asleep: `spec.version`, provider or datacenter changed | warn |
//! | K9 | asleep: `active-restore` added: an `EtcdRestore` deletes the cluster's etcd volumes (row 18) | deny |
//! | K10 | out of Hibernating | never denied: denials become warnings |
//! | K11 | requested-by or requested-at edited without a change of state, hold-awake-by without hold-awake-until, the claim of a rollout by anybody but our controller; brought along by a new object | deny; warn |
//! | K12 | into Hibernating with a requested-by that is not the request's user | deny |
//! | unreadable | a field that cannot be read, such as a text of more than 4 KiB: set or altered, or any of them into Hibernating | deny |
//! | K13 | asleep: DELETE with certificates that expire within a day, or that cannot be read, without `allow-delete`; any other DELETE | deny; warn |
//!
//! How the rows meet:
//! - *Asleep* is a Cluster that is paused by us or about to be ([`Cluster::is_asleep`]), or may be for all that can be
//!   read of it, and that is to stay so: K7, K8, K9 and K13 judge nothing once the intent to sleep is withdrawn, and
//!   nothing in the phases of a wake.
//! - K7's reasons to end the pause: an exempt user (our controller), `allow-unpause: "true"`, `active-restore`,
//!   deletion.
//! - Status, finalizers, labels and presets are never judged: KKP's own controllers write them on a sleeping cluster,
//!   too (rows 12, 16).
//! - K5, K6, K11 and K12 are the rules of Hive's V6, V9, V10 and V12. As there (but for the claim of a rollout),
//!   annotations that only the controller writes are not protected: whoever can edit `certificates-expire-at` can set
//!   `allow-delete`, too.
//! - K13 remembers nothing, because anyone may ask. Members of the [`DELETERS`] are exempt.

mod cluster;
mod deletion;
mod rules;
#[cfg(test)]
mod tests;

pub use cluster::{Cluster, DELETERS};
pub use deletion::{Deletion, judge_deletion, unreadable};
pub use rules::RULES;

use crate::admission::{self, Change, Edits, Evaluation};
use crate::annotation::{format, keys as common};
use crate::kkp::keys;

/// The value of [`keys::POWER_STATE`] that asks for sleep.
pub const HIBERNATING: &str = "Hibernating";

/// Annotations of ours that a client sets and rows K1, K6, K7, K11 and K13 judge. Writes that alter none of them
/// concern only a sleeping cluster.
pub const ANNOTATIONS: &[&str] = &[
    keys::POWER_STATE,
    keys::POWER_STATE_AT,
    keys::FORCE,
    keys::ALLOW_UNPAUSE,
    keys::ALLOW_DELETE,
    common::REQUESTED_BY,
    common::REQUESTED_AT,
    common::HOLD_AWAKE_UNTIL,
    common::HOLD_AWAKE_BY,
    common::PREFLIGHT_REQUESTED_AT,
    common::PROTECTED,
    common::ROLLOUT,
];

impl Change<'_, Cluster> {
    /// The person whose request on the record our controller carries over to the Cluster. It writes who and when.
    fn carried_for(&self) -> Option<&str> {
        self.new_annotation(common::REQUESTED_AT).filter(|_| self.alters_annotation(common::REQUESTED_AT))?;
        self.new_annotation(common::REQUESTED_BY).filter(|_| self.wakes() && self.is_by_controller())
    }

    /// Whether the cluster sleeps, and is to go on sleeping.
    pub fn stays_asleep(&self) -> bool {
        self.old.as_ref().is_some_and(|old| old.may_be_asleep(&self.unread.old))
            && self.new_annotation(keys::POWER_STATE) == Some(HIBERNATING)
    }
}

/// Judges a change of a Cluster by rows K1 to K12.
pub fn judge(change: &Change<'_, Cluster>) -> Evaluation {
    admission::judge(change, RULES)
}

/// Stamps a change of [`keys::POWER_STATE`] or of a hold, and nothing else: a write of KKP's must arrive as it was
/// sent, or KKP waits in vain for its cache to contain it (row 34).
///
/// When the controller withdraws the intent, because another client has ended the pause, the stamp names the
/// controller. When it carries over the request on the record, the stamp and the reason are those of the record, as the
/// controller writes them.
pub fn stamp(change: &Change<'_, Cluster>) -> Edits {
    match change.carried_for() {
        Some(person) => admission::stamp::stamp_holder(change, person),
        None => admission::stamp::stamp(change),
    }
}

/// Stamps a request on the record ([`keys::RECORD`]), of whose `ConfigMap` the annotations are read as those of a
/// Cluster. A stamp that is edited without a request is put back. Our controller makes a record anew as it was.
pub fn stamp_record(change: &Change<'_, Cluster>) -> Edits {
    if change.is_by_controller() {
        return Edits::default();
    }
    let is_request = [keys::POWER_STATE, keys::POWER_STATE_AT].iter().any(|key| change.alters_annotation(key));
    let stamps =
        [(common::REQUESTED_BY, change.user.username.clone()), (common::REQUESTED_AT, format::seconds(change.now))];
    stamps.into_iter().fold(Edits::default(), |edits, (key, stamp)| {
        let before = change.old_annotation(key).map(str::to_owned);
        edits.want(key, change.new_annotation(key), if is_request { Some(stamp) } else { before })
    })
}
