//! What is written on a cluster while process groups are brought back: enough for another run to finish the job.

use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use super::{
    super::api::{FoundationDBCluster, ProcessGroup},
    needs_edit,
};
use crate::keys;

/// The annotation [`keys::RECOVERY`], compact JSON.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The groups that are being brought back.
    pub groups: Vec<Held>,
    /// IDs of the groups that go for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replacements: Vec<String>,
    /// When it began, RFC 3339.
    #[serde(default)]
    pub since: String,
    /// Whether `spec.skip` is true because of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skipped: bool,
}

/// One group that is being brought back.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    /// ID of the process group.
    pub group: String,
    /// Its class.
    pub class: String,
    /// Its Pod.
    pub pod: String,
    /// uid of its `PersistentVolumeClaim`.
    pub claim: String,
    /// `removalTimestamp` of the removal that is undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removal: Option<String>,
    /// Zone, as far as it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault_domain: Option<String>,
    /// IP addresses that the database may have excluded: the status forgets them when the new Pod has its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// Whether the database has been told to include it.
    #[serde(default)]
    pub included: bool,
}

impl Record {
    /// Reads the annotation; `None` if it is no such record.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().filter(|record: &Self| !record.groups.is_empty())
    }

    /// Writes the annotation.
    #[must_use]
    pub fn text(&self) -> String {
        // A struct of texts can always be written.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether a group is in it.
    #[must_use]
    pub fn has(&self, group: &str) -> bool {
        self.groups.iter().any(|held| held.group == group)
    }

    /// This record, with what another run has done for the same groups, and with the groups that it has begun with besides:
    /// two runs for one cluster end up with the same record.
    #[must_use]
    pub fn adopting(&self, other: Option<&Self>) -> Self {
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
            record.since.clone_from(&other.since);
            record.skipped = other.skipped;
        }
        record.groups.sort_by(|one, other| one.group.cmp(&other.group));
        record.replacements.sort();
        record.replacements.dedup();
        record
    }

    /// The record without a group that cannot come back, and without one of those that were to go for its class.
    #[must_use]
    pub fn without(&self, group: &str, cluster: &FoundationDBCluster) -> Self {
        let mut record = self.clone();
        let Some(at) = record.groups.iter().position(|held| held.group == group) else { return record };
        let class = record.groups.remove(at).class;
        let of_class = |id: &String| cluster.group(id).is_some_and(|found| found.process_class == class);
        if let Some(at) = record.replacements.iter().rposition(of_class) {
            record.replacements.remove(at);
        }
        record
    }

    /// The record with what the status says by now: a group that is marked (again) has to be included (again), and its
    /// removal is the current one.
    #[must_use]
    pub fn with_exclusions(&self, cluster: &FoundationDBCluster) -> Self {
        let mut record = self.clone();
        for held in &mut record.groups {
            let Some(group) = cluster.group(&held.group).filter(|group| needs_edit(group)) else { continue };
            held.included = false;
            if group.is_marked() {
                held.removal.clone_from(&group.removal_timestamp);
            }
            for address in &group.addresses {
                if !held.addresses.contains(address) {
                    held.addresses.push(address.clone());
                }
            }
        }
        record
    }

    /// The record after the database was told.
    #[must_use]
    pub fn included(&self) -> Self {
        let mut record = self.clone();
        record.groups.iter_mut().for_each(|held| held.included = true);
        record
    }
}

impl Held {
    /// A group as it stands in the status.
    #[must_use]
    pub fn new(group: &ProcessGroup, pod: String, claim: &str) -> Self {
        Self {
            group: group.process_group_id.clone(),
            class: group.process_class.clone(),
            pod,
            claim: claim.to_owned(),
            removal: group.removal_timestamp.clone(),
            fault_domain: group.fault_domain.clone(),
            addresses: group.addresses.clone(),
            included: false,
        }
    }
}

/// Whether a cluster carries something under our key that is no record of ours: somebody has edited it.
#[must_use]
pub fn is_unreadable(cluster: &FoundationDBCluster) -> bool {
    cluster.annotations().get(keys::RECOVERY).is_some_and(|text| Record::parse(text).is_none())
}
