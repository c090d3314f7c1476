//! What is written on a cluster while process groups are brought back: enough for another run to finish the job.

use std::collections::BTreeSet;

use crate::annotation::keys;
use crate::fdb::api::{FoundationDBCluster, ProcessGroup, RESOURCES_TERMINATING};
use crate::fdb::suspension::same_moment;
use crate::record::{Format, RecordError};
use kube::ResourceExt;
use serde::{Deserialize, Serialize};

/// The annotation [`keys::RECOVERY`], compact JSON.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The groups that are being brought back.
    pub groups: Vec<GroupRecord>,
    /// IDs of the groups that are removed in exchange.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replacements: Vec<String>,
    /// IDs chosen for removal in exchange for groups that were lost midway: withdrawn if still possible.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spared: Vec<String>,
    /// When it began, RFC 3339.
    #[serde(rename = "at")]
    pub since: String,
    /// Whether `spec.skip` is true because of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skipped: bool,
}

/// One group that is being brought back.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct GroupRecord {
    pub group: String,
    pub class: String,
    pub pod: String,
    /// uid of its `PersistentVolumeClaim`.
    pub claim: String,
    /// `removalTimestamp` of the removal that is undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removal: Option<String>,
    /// `removalTimestamp` with which the recovery began, once the operator has marked the group again: replacements are
    /// younger than this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_removal: Option<String>,
    /// Whether no group goes in exchange, because `--replacement` says so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub alone: bool,
    /// Zone, as far as it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault_domain: Option<String>,
    /// IP addresses that the database may have excluded: the status forgets them when the new Pod has its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// Whether `include` ran for it.
    #[serde(default)]
    pub included: bool,
    /// Whether `include` ran after the operator's status showed its process: no late reconcile excludes its addresses any
    /// more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub confirmed: bool,
}

impl Format for Record {
    // What all annotations of an object may have.
    const MAX_BYTES: usize = 256 * 1024;

    fn checked(self) -> Option<Self> {
        Some(self).filter(|record| !record.groups.is_empty())
    }
}

impl Record {
    /// What is recorded on a cluster, if anything is.
    ///
    /// # Errors
    /// When another client has edited it, or another release has written it.
    pub fn of(cluster: &FoundationDBCluster) -> Result<Option<Self>, RecordError> {
        cluster.annotations().get(keys::RECOVERY).map(|text| Self::read(text)).transpose()
    }

    pub fn ids(&self) -> Vec<&str> {
        self.groups.iter().map(|held| held.group.as_str()).collect()
    }

    pub fn has(&self, group: &str) -> bool {
        self.groups.iter().any(|held| held.group == group)
    }

    /// This record, with what another run has done for the same groups, and with the groups that it has begun with
    /// besides: two runs for one cluster end up with the same record.
    pub fn merged_with(&self, other: Option<&Self>) -> Self {
        let mut record = self.clone();
        if let Some(other) = other {
            for theirs in &other.groups {
                match record.groups.iter_mut().find(|held| held.group == theirs.group) {
                    Some(same) if same.claim == theirs.claim => same.clone_from(theirs),
                    Some(_) => {}
                    None => record.groups.push(theirs.clone()),
                }
            }
            record.replacements.extend(other.replacements.iter().cloned());
            record.spared.extend(other.spared.iter().cloned());
            record.since.clone_from(&other.since);
            record.skipped = other.skipped;
        }
        record.groups.sort_by(|one, other| one.group.cmp(&other.group));
        for ids in [&mut record.replacements, &mut record.spared] {
            ids.sort();
            ids.dedup();
        }
        record
    }

    /// This record without replacements for groups that have no record by the time that they are back: another run has
    /// recovered them, and other groups were removed in exchange.
    pub(super) fn without_finished(mut self, recorded: Option<&Self>, cluster: &FoundationDBCluster) -> Self {
        for held in &mut self.groups {
            if !held.needs_edit(cluster) && !recorded.is_some_and(|recorded| recorded.has(&held.group)) {
                held.removal = None;
            }
        }
        if !self.groups.iter().any(|held| held.needs_edit(cluster)) {
            self.replacements.retain(|id| recorded.is_some_and(|recorded| recorded.replacements.contains(id)));
        }
        self
    }

    /// Limits the replacements of each class to the groups of it that come back, or to what one of the two runs had
    /// decided if that is more. Where they differ, the other run's choice counts, so that both runs end up with the same
    /// record.
    pub(super) fn capped(&self, own: &Self, other: Option<&Self>, cluster: &FoundationDBCluster) -> Self {
        let mut record = self.clone();
        let classes: BTreeSet<&str> = self.groups.iter().map(|held| held.class.as_str()).collect();
        for class in classes {
            let count = |record: &Self| record.replacements_of(class, cluster).len();
            let most = self.returning_count(class).max(count(own)).max(other.map_or(0, count));
            let mut going = self.replacements_of(class, cluster);
            let excess = going.len().saturating_sub(most);
            going.retain(|(_, id)| !other.is_some_and(|other| other.replacements.contains(id)));
            for (_, id) in going.into_iter().rev().take(excess) {
                record.replacements.retain(|one| *one != id);
            }
        }
        record.spared.retain(|id| !record.replacements.contains(id));
        record
    }

    /// The record without a group that cannot come back, and without one of those that were to go for its class, or
    /// more of them if there were still more than groups of it come back. The operator's own doing cannot be undone:
    /// those that it has not begun with stay.
    pub fn without(&self, group: &str, cluster: &FoundationDBCluster) -> Self {
        let mut record = self.clone();
        let Some(class) = record.take(group) else { return record };
        let mut going = record.replacements_of(&class, cluster);
        let left = going.len().saturating_sub(1).min(record.returning_count(&class));
        for (stage, id) in going.split_off(left) {
            record.replacements.retain(|one| *one != id);
            if stage == RemovalStage::Ordered && cluster.spec.skip == Some(true) {
                record.spared.push(id);
            }
        }
        record
    }

    /// The record without a group that no recovery tracks any more, and without its replacement, which is in
    /// `processGroupsToRemove`.
    pub(super) fn without_untracked(mut self, group: &str, cluster: &FoundationDBCluster) -> Self {
        let Some(class) = self.take(group) else { return self };
        let first = self.replacements_of(&class, cluster).into_iter().next();
        if let Some((_, id)) = first.filter(|(stage, _)| *stage != RemovalStage::Planned) {
            self.replacements.retain(|one| *one != id);
        }
        self
    }

    /// Takes a group out, and says of which class it is.
    fn take(&mut self, group: &str) -> Option<String> {
        let at = self.groups.iter().position(|held| held.group == group)?;
        Some(self.groups.remove(at).class)
    }

    /// How many groups of a class come back.
    fn returning_count(&self, class: &str) -> usize {
        self.groups.iter().filter(|held| held.class == class).count()
    }

    /// Whether the mark of a group that goes is the recovery's own, which bears the time of the record, and the operator
    /// has not gone on from there.
    pub(super) fn has_marked(&self, group: &ProcessGroup) -> bool {
        same_moment(group.removal_timestamp.as_deref(), Some(&self.since))
            && !group.is_excluded()
            && group.condition(RESOURCES_TERMINATING).is_none()
    }

    /// The replacements of a class that are still there, the furthest on their way first.
    fn replacements_of(&self, class: &str, cluster: &FoundationDBCluster) -> Vec<(RemovalStage, String)> {
        let of_class = |id: &String| {
            let stage = match cluster.group(id).filter(|group| group.process_class == class)? {
                group if group.is_marked() && !self.has_marked(group) => RemovalStage::Begun,
                group if group.is_marked() || cluster.lists_for_removal(id) => RemovalStage::Ordered,
                _ => RemovalStage::Planned,
            };
            Some((stage, id.clone()))
        };
        let mut going: Vec<(RemovalStage, String)> = self.replacements.iter().filter_map(of_class).collect();
        going.sort();
        going.dedup();
        going
    }

    /// The record with what the status says by now: a group that is marked (again) has to be included (again), and its
    /// removal is the current one.
    pub fn with_exclusions(mut self, cluster: &FoundationDBCluster) -> Self {
        for held in &mut self.groups {
            let Some(group) = cluster.group(&held.group).filter(|group| group.needs_edit()) else { continue };
            (held.included, held.confirmed) = (false, false);
            if group.is_marked() && !same_moment(held.removal.as_deref(), group.removal_timestamp.as_deref()) {
                let before = std::mem::replace(&mut held.removal, group.removal_timestamp.clone());
                held.first_removal = held.first_removal.take().or(before);
            }
            for address in &group.addresses {
                if !held.addresses.contains(address) {
                    held.addresses.push(address.clone());
                }
            }
        }
        self
    }

    /// The record after `include` ran for the groups that a plan has as not included. What other runs have written besides
    /// stays.
    pub fn with_included(mut self, planned: &Self) -> Self {
        for held in planned.groups.iter().filter(|held| !held.included) {
            match self.groups.iter_mut().find(|one| one.group == held.group) {
                Some(one) if one.claim == held.claim => (one.included, one.confirmed) = (true, held.confirmed),
                Some(_) => {}
                None => self.groups.push(GroupRecord { included: true, ..held.clone() }),
            }
        }
        self.groups.sort_by(|one, other| one.group.cmp(&other.group));
        self
    }
}

impl GroupRecord {
    /// A group as it stands in the status.
    pub fn new(group: &ProcessGroup, pod: String, claim: &str) -> Self {
        Self {
            group: group.process_group_id.clone(),
            class: group.process_class.clone(),
            pod,
            claim: claim.to_owned(),
            removal: group.removal_timestamp.clone(),
            fault_domain: group.fault_domain.clone(),
            addresses: group.addresses.clone(),
            ..Self::default()
        }
    }

    /// Whether the status still has marks of its removal.
    pub(super) fn needs_edit(&self, cluster: &FoundationDBCluster) -> bool {
        cluster.group(&self.group).is_some_and(ProcessGroup::needs_edit)
    }

    /// The `removalTimestamp` after which its replacement was created.
    pub fn removed_at(&self) -> Option<&str> {
        self.first_removal.as_deref().or(self.removal.as_deref())
    }
}

/// How far a group has got that goes for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RemovalStage {
    /// The operator has marked it.
    Begun,
    /// The spec names it, or the recovery has marked it.
    Ordered,
    /// Only the record does.
    Planned,
}
