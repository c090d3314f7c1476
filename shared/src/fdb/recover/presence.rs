//! Whether a group can still come back, what it lacks until it is back, and when the operator is woken to see it.

use std::time::Duration;

use crate::annotation::annotation;
use crate::fdb::api::{MARKED_AS_EXCLUDED, MISSING_POD, MISSING_PROCESSES, POD_FAILING, POD_PENDING, ProcessGroup};
use crate::fdb::suspension::{Stamp, same_moment};
use crate::object::{name_of, named};

use super::HELD_MINUTES;
use super::facts::{Facts, created_at, deleted_at, mounts, phase, uid, volume, why_not_running};
use super::include::by_address;
use super::record::{GroupRecord, Record};

/// What the operator notes on a claim: a hash of the template that it was made from.
const LAST_SPEC: &str = "foundationdb.org/last-applied-spec";

/// Pause before the first wake-up: a process reports some seconds after its Pod has started.
const FIRST_WAKE: Duration = Duration::from_secs(3);
/// Longest pause between two wake-ups.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// What a group lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    pub group: String,
    pub pod: String,
    pub what: String,
    /// Whether its Pod runs and nothing but a pass of the operator is awaited.
    pub is_up: bool,
}

/// Why a recovery cannot be finished.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unrecoverable {
    #[error("{group}: its PersistentVolumeClaim was deleted during the recovery, and the data is lost")]
    NoClaim { group: String },
    #[error("{group}: PersistentVolumeClaim {claim} was deleted at {since} during the recovery; {volume}")]
    ClaimGoing { group: String, claim: String, since: String, volume: String },
    #[error(
        "{group}: PersistentVolumeClaim {claim} is not the one that was held (uid {found}, not {wanted}): the old data is gone"
    )]
    OtherClaim { group: String, claim: String, wanted: String, found: String },
    #[error(
        "{group}: it has no Service {service}, and there is no Service of another Pod to copy. If spec.routing.publicIPSource was set to service \
         since the removal, wait until the operator has created those of the other Pods, and run this again; else create Service {service} by \
         hand, without which the operator cannot create any Pod of the cluster"
    )]
    NoSibling { group: String, service: String },
    #[error(
        "another client set spec.skip to true during the recovery. The volumes are held for {} minutes at least: run this command again to \
         hold them longer, or set spec.skip to false and run it at once",
        HELD_MINUTES
    )]
    ForeignSkip,
    #[error(
        "spec.processGroupsToRemove would have {count} IDs, and FoundationDB's definition allows {most}: take IDs off the list, or wait \
         until the operator has removed some of these groups, then run this command again"
    )]
    ListFull { count: usize, most: usize },
}

impl Unrecoverable {
    /// The group whose volume is lost, if that is why. Others can come back nevertheless.
    pub fn group(&self) -> Option<&str> {
        match self {
            Self::NoClaim { group } | Self::ClaimGoing { group, .. } | Self::OtherClaim { group, .. } => Some(group),
            Self::NoSibling { .. } | Self::ForeignSkip | Self::ListFull { .. } => None,
        }
    }
}

/// Whether the volume that a group held is still its volume.
pub(super) fn claim_is_there(facts: &Facts<'_>, held: &GroupRecord) -> Result<(), Unrecoverable> {
    let group = held.group.clone();
    let Some(object) = facts.claim_of(&held.group, &held.pod) else { return Err(Unrecoverable::NoClaim { group }) };
    let claim = name_of(object).to_owned();
    if uid(object) != held.claim {
        let (wanted, found) = (held.claim.clone(), uid(object).to_owned());
        return Err(Unrecoverable::OtherClaim { group, claim, wanted, found });
    }
    let Some(since) = deleted_at(object).map(ToOwned::to_owned) else { return Ok(()) };
    Err(Unrecoverable::ClaimGoing { group, claim, since, volume: volume(object) })
}

/// What keeps a group from being back: R10 and R11. `include` is whether the recovery includes it.
pub(super) fn obstacle(facts: &Facts<'_>, held: &GroupRecord, include: bool) -> Option<Obstacle> {
    pod_obstacle(facts, held).or_else(|| report_obstacle(facts, held, include))
}

/// R10: what a group lacks to run on its old volume; none if nothing.
pub fn pod_obstacle(facts: &Facts<'_>, held: &GroupRecord) -> Option<Obstacle> {
    let claim = facts.claim_of(&held.group, &held.pod).map(name_of).unwrap_or_default();
    let what = match named(facts.pods, &held.pod) {
        None => "the operator has not created its Pod yet".to_owned(),
        Some(pod) if deleted_at(pod).is_some() => "its old Pod is still terminating".to_owned(),
        Some(pod) if !mounts(pod, claim) => format!("its Pod does not mount PersistentVolumeClaim {claim}"),
        Some(pod) => match (phase(pod), why_not_running(pod)) {
            ("Running", _) => return None,
            (phase, Some(why)) => format!("its Pod is {phase}: {why}"),
            (phase, None) => format!("its Pod is {phase}"),
        },
    };
    Some(Obstacle { group: held.group.clone(), pod: held.pod.clone(), what, is_up: false })
}

/// R11: what the operator's status still reports against a group whose Pod runs; none if its process takes part in the
/// database.
fn report_obstacle(facts: &Facts<'_>, held: &GroupRecord, include: bool) -> Option<Obstacle> {
    let group = facts.cluster.group(&held.group);
    let has = |type_: &&str| group.is_some_and(|group| group.condition(type_).is_some());
    let is_excluded = has(&MARKED_AS_EXCLUDED);
    let unseen = [MISSING_PROCESSES, MISSING_POD, POD_PENDING, POD_FAILING].into_iter().find(has);
    let what = match unseen {
        _ if group.is_none() => "the operator's status does not list it".to_owned(),
        Some(type_) => format!("its Pod runs, and the operator's status does not show its process yet ({type_})"),
        None if include && is_excluded => {
            format!("the operator's status shows it as excluded in the database ({MARKED_AS_EXCLUDED})")
        }
        None => return None,
    };
    // What is still excluded needs an `include` first, and a pass after it.
    let is_up = held.included || !is_excluded;
    Some(Obstacle { group: held.group.clone(), pod: held.pod.clone(), what, is_up })
}

/// Whether a group that stays is excluded in the database, by the operator's status: a removal excludes for itself.
pub fn is_left_excluded(facts: &Facts<'_>, group: &ProcessGroup) -> bool {
    let excluded = group.condition(MARKED_AS_EXCLUDED).is_some();
    excluded && !group.is_marked() && !facts.cluster.lists_for_removal(&group.process_group_id)
}

impl Facts<'_> {
    /// What of a record is still to be finished, and whatever of it is named: groups that are back are, and those
    /// that were lost, or removed once more since, are not tracked any more. Nor are their replacements.
    pub fn unfinished(&self, mut record: Record, requested: &[&str]) -> Record {
        for held in record.groups.clone() {
            if claim_is_there(self, &held).is_err() && !self.was_back(&held) {
                record = record.without(&held.group, self.cluster);
            } else if !self.can_finish(&held) || !(self.is_open(&held) || requested.contains(&held.group.as_str())) {
                record = record.without_untracked(&held.group, self.cluster);
            }
        }
        if record.groups.is_empty() {
            record.replacements.clear();
        }
        record
    }

    fn can_finish(&self, held: &GroupRecord) -> bool {
        let removal = self.cluster.group(&held.group).and_then(|group| group.removal_timestamp.as_deref());
        claim_is_there(self, held).is_ok() && (removal.is_none() || same_moment(removal, held.removal.as_deref()))
    }

    fn is_open(&self, held: &GroupRecord) -> bool {
        held.needs_edit(self.cluster)
            || !held.included
            || obstacle(self, held, true).is_some()
            || !held.confirmed && by_address(self.cluster, held)
            // It came back by itself: the stamps are left, and nobody has noted that it is back.
            || self.claim_of(&held.group, &held.pod).is_some_and(|claim| Stamp::of(claim).is_recovery())
    }

    /// Whether nothing was left to be edited for it: what has become of its volume since is another matter.
    fn was_back(&self, held: &GroupRecord) -> bool {
        held.included && !held.needs_edit(self.cluster) && !self.is_skipped()
    }
}

/// Says which groups the spec removes once more although their recovery has let the operator go on: another client has
/// listed them since.
pub fn removed_again(facts: &Facts<'_>) -> Option<String> {
    let record = facts.record().filter(|record| !record.skipped && !facts.is_skipped())?;
    let again: Vec<String> =
        record.groups.into_iter().map(|held| held.group).filter(|id| facts.cluster.lists_for_removal(id)).collect();
    let again = Some(again.join(", ")).filter(|again| !again.is_empty())?;
    Some(format!(
        "{again}: another client has listed it for removal again since its recovery began; it is taken off the list once more. To remove it \
         nevertheless, list it again when this command has ended"
    ))
}

/// Marked groups that the operator replaces once they are back, because the spec has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{groups}: {why}")]
pub struct SpecDrift {
    pub groups: String,
    /// What is different about them.
    pub why: &'static str,
    pub field: &'static str,
}

/// Marked groups of another `processGroupIDPrefix`, or else those whose claim was made from another template than the
/// newest claim of their class.
pub fn spec_drift(facts: &Facts<'_>, record: &Record) -> Option<SpecDrift> {
    let prefix = facts.cluster.spec.process_group_id_prefix.as_deref().filter(|prefix| !prefix.is_empty());
    let has_other_prefix = |held: &&GroupRecord| {
        let named = held.group.rsplit_once('-').map_or("", |(named, _)| named);
        named.strip_suffix(&held.class).is_none_or(|own| own.strip_suffix('-').unwrap_or(own) != prefix.unwrap_or(""))
    };
    let template = |claim| annotation(claim, LAST_SPEC);
    let has_other_template = |held: &&GroupRecord| {
        let class = facts.cluster.groups().iter().filter(|group| group.process_class == held.class);
        let claims = class.flat_map(|group| facts.claims_of(&group.process_group_id));
        let newest = claims.max_by_key(|claim| created_at(claim)).and_then(template);
        let own = facts.claim_of(&held.group, &held.pod).and_then(template);
        own.is_some() && newest.is_some() && own != newest
    };
    let is_marked = |held: &&GroupRecord| facts.cluster.group(&held.group).is_some_and(ProcessGroup::is_marked);
    let marked = record.groups.iter().filter(is_marked);
    let found = |is: &dyn Fn(&&GroupRecord) -> bool, why, field| {
        let groups: Vec<&str> = marked.clone().filter(is).map(|held| held.group.as_str()).collect();
        (!groups.is_empty()).then(|| SpecDrift { groups: groups.join(", "), why, field })
    };
    let template = "the newest volume of its class was created from a different volumeClaimTemplate";
    found(&has_other_prefix, "spec.processGroupIDPrefix is not that of its ID", "spec.processGroupIDPrefix")
        .or_else(|| found(&has_other_template, template, "spec.processes"))
}

/// R11: when a run wakes an operator that has no reason to reconcile, while nothing but its report is missing. Moments
/// are times since the run began.
#[derive(Clone, Debug, Default)]
pub struct Wakes {
    missing: Vec<Obstacle>,
    since: Duration,
    last: Duration,
}

impl Wakes {
    /// The pause until the operator is to be woken; zero is now, and counts as done. None if no report is awaited.
    pub fn pause(&mut self, missing: &[Obstacle], now: Duration) -> Option<Duration> {
        let missing: Vec<Obstacle> = missing.iter().filter(|one| one.is_up).cloned().collect();
        if missing.is_empty() || missing != self.missing {
            *self = Self { missing, since: now, last: now };
        }
        if self.missing.is_empty() {
            return None;
        }
        // As long again as it has been tried for: 3, 6, 12, 24 and 39 s after the start.
        let tried = self.last.saturating_sub(self.since);
        let pause = (self.last + tried.clamp(FIRST_WAKE, LONGEST_PAUSE)).saturating_sub(now);
        if pause.is_zero() {
            self.last = now;
        }
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(group: &str, is_up: bool) -> Obstacle {
        Obstacle { group: group.to_owned(), pod: String::new(), what: String::new(), is_up }
    }

    /// When a run wakes the operator that looks every half second for two minutes, while this is missing.
    fn woken(missing: impl Fn(u64) -> Vec<Obstacle>) -> Vec<u64> {
        let mut wakes = Wakes::default();
        let halves = (0..240_u64).filter(|half| {
            let now = Duration::from_millis(half * 500);
            wakes.pause(&missing(half / 2), now) == Some(Duration::ZERO)
        });
        halves.map(|half| half / 2).collect()
    }

    #[test]
    fn it_is_woken_while_only_the_report_is_missing_and_ever_less_often() {
        assert_eq!(woken(|_| vec![missing("storage-1", true)]), [3, 6, 12, 24, 39, 54, 69, 84, 99, 114]);
        assert_eq!(woken(|_| vec![missing("storage-1", false)]), [0_u64; 0]);
        assert_eq!(woken(|_| Vec::new()), [0_u64; 0]);
        let starts = |at: u64| move |second: u64| vec![missing("storage-1", second >= at)];
        assert_eq!(woken(starts(100)), [103, 106, 112]);
    }

    #[test]
    fn another_group_that_starts_is_waited_for_anew_and_one_that_hangs_delays_nobody() {
        let found = woken(|second| vec![missing("storage-1", true), missing("storage-2", second >= 40)]);
        assert_eq!(found, [3, 6, 12, 24, 39, 43, 46, 52, 64, 79, 94, 109]);
    }
}
