//! What a recovery reads.

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::Value;
use shared::annotation::{annotation, keys};
use shared::fdb::admission::Kind as Kept;
use shared::fdb::api::{FoundationDBCluster, ProcessGroup};
use shared::fdb::suspension::same_moment;
use shared::record::Format;

use super::object::{self, labels_match, name};
use super::record::{Held, Record};

/// Everything a recovery reads. Plain data: no client.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The cluster.
    pub cluster: &'a FoundationDBCluster,
    /// `PersistentVolumeClaims` with the cluster's match labels.
    pub claims: &'a [Value],
    /// Services with the cluster's match labels.
    pub services: &'a [Value],
    /// Pods with the cluster's match labels.
    pub pods: &'a [Value],
    /// The plugin's clock.
    pub now: Timestamp,
}

impl<'a> Facts<'a> {
    /// The claims of a group: one, unless something is wrong.
    pub fn claims_of(&self, id: &str) -> Vec<&'a Value> {
        let labels = self.cluster.group_labels();
        let Some(label) = labels.first() else { return Vec::new() };
        let of_group = |claim: &&Value| object::label(claim, label) == Some(id);
        self.claims.iter().filter(|claim| labels_match(claim, &self.cluster.match_labels())).filter(of_group).collect()
    }

    /// The claim that a group's Pod mounts: the one named after the Pod if there are several.
    pub fn claim_of(&self, id: &str, pod: &str) -> Option<&'a Value> {
        let claims = self.claims_of(id);
        let named = claims.iter().find(|claim| name(claim).strip_prefix(pod).is_some_and(|rest| rest == "-data"));
        named.or(claims.first()).copied()
    }

    /// The Service of a group's Pod.
    pub fn service_of(&self, pod: &str) -> Option<&'a Value> {
        self.services.iter().find(|service| name(service) == pod)
    }

    /// What is held of a group: its claims and its Service.
    pub(super) fn kept_of(&self, held: &Held) -> impl Iterator<Item = (Kept, &'a Value)> + use<'a> {
        let service = self.service_of(&held.pod).map(|service| (Kept::Service, service));
        self.claims_of(&held.group).into_iter().map(|claim| (Kept::Pvc, claim)).chain(service)
    }

    /// A Pod by its name.
    pub fn pod(&self, pod: &str) -> Option<&'a Value> {
        self.pods.iter().find(|object| name(object) == pod)
    }

    /// Whether a group goes, or is suspended, in exchange for one that was brought back.
    pub fn is_exchanged(&self, group: &ProcessGroup) -> bool {
        let (id, removal) = (&group.process_group_id, group.removal_timestamp.as_deref());
        let mut noted = self.claims_of(id).into_iter().filter_map(|claim| annotation(claim, keys::EXCHANGED_AT));
        self.record().is_some_and(|record| record.replacements.contains(id))
            || noted.any(|noted| same_moment(Some(noted), removal))
    }

    /// The record that another run has left.
    pub fn record(&self) -> Option<Record> {
        self.cluster.annotations().get(keys::RECOVERY).and_then(|text| Record::read(text).ok())
    }
}
