//! What a recovery reads: a cluster, and its PVCs, Services and Pods as the API server sends them.

use std::collections::BTreeMap;

use crate::annotation::{annotation, format, keys};
use crate::fdb::admission::Kind;
use crate::fdb::api::{FoundationDBCluster, ProcessGroup};
use crate::fdb::suspension::same_moment;
use crate::object::{items, name_of, named, text};
use jiff::Timestamp;
use serde_json::Value;

use super::record::{GroupRecord, Record};

/// Everything a recovery reads. Plain data: no client.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
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
    /// The record that another run has left.
    pub fn record(&self) -> Option<Record> {
        Record::of(self.cluster).ok().flatten()
    }

    /// Whether the operator is asked to skip the cluster.
    pub fn is_skipped(&self) -> bool {
        self.cluster.spec.skip == Some(true)
    }

    /// The claims of a group: one, unless something is wrong.
    pub fn claims_of(&self, id: &str) -> Vec<&'a Value> {
        let labels = self.cluster.group_labels();
        let Some(key) = labels.first() else { return Vec::new() };
        let of_group = |claim: &&Value| label(claim, key) == Some(id);
        self.claims.iter().filter(|claim| labels_match(claim, &self.cluster.match_labels())).filter(of_group).collect()
    }

    /// The claim that a group's Pod mounts: the one named after the Pod if there are several.
    pub fn claim_of(&self, id: &str, pod: &str) -> Option<&'a Value> {
        let claims = self.claims_of(id);
        let of_pod = claims.iter().find(|claim| name_of(claim).strip_prefix(pod) == Some("-data"));
        of_pod.or(claims.first()).copied()
    }

    /// What is held of a group: its claims and its Service.
    pub(super) fn objects_of(&self, held: &GroupRecord) -> impl Iterator<Item = (Kind, &'a Value)> + use<'a> {
        let service = named(self.services, &held.pod).map(|service| (Kind::Service, service));
        self.claims_of(&held.group).into_iter().map(|claim| (Kind::Pvc, claim)).chain(service)
    }

    /// Whether a group goes, or is suspended, in exchange for one that was brought back.
    pub fn is_exchanged(&self, group: &ProcessGroup) -> bool {
        let (id, removal) = (&group.process_group_id, group.removal_timestamp.as_deref());
        let mut noted = self.claims_of(id).into_iter().filter_map(|claim| annotation(claim, keys::EXCHANGED_AT));
        self.record().is_some_and(|record| record.replacements.contains(id))
            || noted.any(|noted| same_moment(Some(noted), removal))
    }
}

pub fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

pub fn version(object: &Value) -> &str {
    text(object, "/metadata/resourceVersion")
}

/// When it was deleted, if it was: it stays while finalizers or a Pod hold it.
pub fn deleted_at(object: &Value) -> Option<&str> {
    Some(text(object, "/metadata/deletionTimestamp")).filter(|text| !text.is_empty())
}

pub fn created_at(object: &Value) -> Option<Timestamp> {
    format::time(text(object, "/metadata/creationTimestamp"))
}

pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("labels")?.get(key)?.as_str()
}

/// Whether it has all of these labels.
pub fn labels_match(object: &Value, labels: &BTreeMap<String, String>) -> bool {
    labels.iter().all(|(key, value)| label(object, key) == Some(value))
}

/// A Pod's phase; `Pending` while it has none.
pub fn phase(pod: &Value) -> &str {
    Some(text(pod, "/status/phase")).filter(|phase| !phase.is_empty()).unwrap_or("Pending")
}

/// Whether one of a Pod's volumes is this claim.
pub fn mounts(pod: &Value, claim: &str) -> bool {
    items(pod, "/spec/volumes").any(|volume| text(volume, "/persistentVolumeClaim/claimName") == claim)
}

/// Why a Pod does not run, in the scheduler's or the kubelet's words.
pub fn why_not_running(pod: &Value) -> Option<String> {
    let unscheduled = items(pod, "/status/conditions").find(|condition| has(condition, "PodScheduled", "False"));
    let unscheduled =
        unscheduled.map(|condition| format!("{}: {}", text(condition, "/reason"), text(condition, "/message")));
    let mut waiting = items(pod, "/status/containerStatuses").filter_map(|status| {
        let waiting = status.pointer("/state/waiting").filter(|waiting| !text(waiting, "/reason").is_empty())?;
        let (reason, message) = (text(waiting, "/reason"), text(waiting, "/message"));
        Some(format!("container {}: {reason} {message}", text(status, "/name")))
    });
    unscheduled.or_else(|| waiting.next()).map(|why| why.trim_end_matches([' ', ':']).to_owned())
}

/// Whether a command can be run in a Pod.
pub fn is_ready(pod: &Value) -> bool {
    let ready = items(pod, "/status/conditions").any(|condition| has(condition, "Ready", "True"));
    phase(pod) == "Running" && deleted_at(pod).is_none() && ready
}

fn has(condition: &Value, type_: &str, status: &str) -> bool {
    text(condition, "/type") == type_ && text(condition, "/status") == status
}

/// Where the data of a claim that goes may still be.
pub fn volume(claim: &Value) -> String {
    match text(claim, "/spec/volumeName") {
        "" => "it was bound to no volume".to_owned(),
        volume => format!("its PersistentVolume {volume} keeps the data only if its reclaim policy is Retain"),
    }
}

/// How large a claim's volume is, as Kubernetes writes it.
pub fn size(claim: &Value) -> &str {
    let actual = text(claim, "/status/capacity/storage");
    if actual.is_empty() { text(claim, "/spec/resources/requests/storage") } else { actual }
}
