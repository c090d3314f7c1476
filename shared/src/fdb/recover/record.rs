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

    /// This record, with what a run before has done for the same groups.
    #[must_use]
    pub fn adopting(&self, earlier: Option<&Self>) -> Self {
        let mut record = self.clone();
        let Some(earlier) = earlier else { return record };
        for held in &mut record.groups {
            if let Some(same) =
                earlier.groups.iter().find(|other| other.group == held.group && other.claim == held.claim)
            {
                held.clone_from(same);
            }
        }
        record.since.clone_from(&earlier.since);
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
