//! What an earlier run has left to be done.

use shared::fdb::api::ProcessGroup;
use shared::fdb::suspension::{Stamp, same_moment};

use super::facts::Facts;
use super::include::by_address;
use super::presence::{claim_is_there, lacks, unreported};
use super::record::{Held, Record};

impl Facts<'_> {
    /// What of a record is still to be finished, and whatever of it is named: groups that are back are, and those
    /// that were lost, or removed once more since, are not tracked any more. Nor are their replacements.
    pub fn unfinished(&self, mut record: Record, named: &[String]) -> Record {
        for held in record.groups.clone() {
            if claim_is_there(self, &held).is_err() && !self.was_back(&held) {
                record = record.without(&held.group, self.cluster);
            } else if !self.can_finish(&held) || !(self.is_open(&held) || named.contains(&held.group)) {
                record = record.after(&held.group, self.cluster);
            }
        }
        if record.groups.is_empty() {
            record.replacements.clear();
        }
        record
    }

    fn can_finish(&self, held: &Held) -> bool {
        let removal = self.cluster.group(&held.group).and_then(|group| group.removal_timestamp.as_deref());
        claim_is_there(self, held).is_ok() && (removal.is_none() || same_moment(removal, held.removal.as_deref()))
    }

    fn is_open(&self, held: &Held) -> bool {
        self.cluster.group(&held.group).is_some_and(ProcessGroup::needs_edit)
            || !held.included
            || lacks(self, held).is_some()
            || unreported(self, held, true).is_some()
            || !held.confirmed && by_address(self.cluster, held)
            // It came back by itself: the stamps are left, and nobody has noted that it is back.
            || self.claim_of(&held.group, &held.pod).is_some_and(|claim| Stamp::of(claim).is_recovery())
    }

    /// Whether nothing was left to be edited for it: what has become of its volume since is another matter.
    fn was_back(&self, held: &Held) -> bool {
        let edited = !self.cluster.group(&held.group).is_some_and(ProcessGroup::needs_edit);
        held.included && edited && self.cluster.spec.skip != Some(true)
    }
}
