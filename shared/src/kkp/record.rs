//! What a sleep changed, in a `ConfigMap` of the cluster's namespace: written before the first destructive act.
//!
//! Other accounts may write that `ConfigMap`, too. The record names the Cluster that it belongs to, and how far a sleep
//! has come is what our condition on that Cluster says (`decide::standing`). A recorded count is never replaced by a
//! lower one: whoever records twice sees what the first time left behind.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::keys::AUTOSCALER;
use super::phase::Phase;
use crate::annotation::format;
use crate::record::Format;

/// What a sleep changed, and how far it has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// UID of the Cluster.
    pub uid: String,
    /// When this sleep began, RFC 3339.
    #[serde(rename = "at")]
    pub since: String,
    /// The phase that has begun. Its calls may or may not have been made.
    pub phase: Phase,
    /// When the phase began, RFC 3339.
    pub entered: String,
    /// Replicas of the control plane's Deployments and `StatefulSets`, by kind and name.
    #[serde(default)]
    pub control_plane: BTreeMap<Workload, u32>,
    /// `CronJobs` that we suspended.
    #[serde(default)]
    pub cron_jobs: BTreeSet<String>,
    /// When another client's end of the pause was seen, RFC 3339. Older requests for sleep are void.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub woken: Option<String>,
    /// `MachineDeployments` by `namespace/name`.
    #[serde(default)]
    pub machine_deployments: BTreeMap<String, Machines>,
    /// What there was, for people.
    #[serde(default)]
    pub numbers: Numbers,
    /// How often replicas that somebody raised were set to 0 again in this sleep.
    #[serde(default)]
    pub corrections: u32,
    /// Whether one of these has begun and not ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub correcting: bool,
    /// Since when every workload but etcd has been at 0, RFC 3339: a count that is raised again stays so until a
    /// reconcile sees it (row 5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_since: Option<String>,
    /// What a drain that took too long waited for, and its last error.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub blocked: String,
    /// Whether it was lost and made again from the copies on the objects, which hold no numbers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rebuilt: bool,
}

/// A Deployment or `StatefulSet`, as `Deployment/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Workload {
    /// Its kind.
    pub kind: WorkloadKind,
    /// Its name.
    pub name: String,
}

/// What has replicas in a control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::Display, strum::EnumString)]
pub enum WorkloadKind {
    /// `apps/v1` `Deployment`.
    Deployment,
    /// `apps/v1` `StatefulSet`.
    StatefulSet,
}

impl From<Workload> for String {
    fn from(workload: Workload) -> Self {
        format!("{}/{}", workload.kind, workload.name)
    }
}

impl TryFrom<String> for Workload {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(kind, name)| Some((kind.parse().ok()?, name.to_owned())));
        let (kind, name) = parts.ok_or_else(|| format!("{text:?} names no Deployment and no StatefulSet"))?;
        Ok(Self { kind, name })
    }
}

/// A `MachineDeployment` before the sleep.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Machines {
    /// `spec.replicas`.
    pub replicas: u32,
    /// The annotations that put it under an autoscaler's control.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub autoscaler: BTreeMap<String, String>,
    /// Their cloud's word for the size of its Machines; empty if it names none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub machine_type: String,
}

/// Numbers of a cluster before its sleep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Numbers {
    /// `PersistentVolumes`.
    pub volumes: u32,
    /// Services of type `LoadBalancer`.
    pub load_balancers: u32,
    /// Machines.
    pub machines: u32,
}

impl Format for Record {
    // A `ConfigMap` may have 1 MiB.
    const MAX_BYTES: usize = 512 << 10;

    fn checked(mut self) -> Option<Self> {
        // A wake writes these to the user cluster.
        for machines in self.machine_deployments.values_mut() {
            machines.autoscaler.retain(|key, _| AUTOSCALER.contains(&key.as_str()));
        }
        Some(self)
    }
}

impl Record {
    /// The record of a sleep that begins, of the Cluster with this UID.
    pub fn begin(uid: &str, now: Timestamp) -> Self {
        let now = format::seconds(now);
        Self { uid: uid.to_owned(), since: now.clone(), entered: now, ..Self::default() }
    }

    /// The sleep that it is of, `UID/TIME`: the UID of the Cluster, and when the sleep began.
    pub fn sleep(&self) -> String {
        format!("{}/{}", self.uid, self.since)
    }

    /// What is wrong with it for the Cluster with this UID; `None` if it belongs to it.
    pub fn mismatch(&self, uid: &str) -> Option<String> {
        let found = &self.uid;
        (found != uid).then(|| format!("it is of the Cluster with UID {found:?}, and this Cluster has UID {uid:?}"))
    }

    /// How long the phase has lasted.
    pub fn in_phase(&self, now: Timestamp) -> Duration {
        lasted(&self.entered, now).unwrap_or_default()
    }

    /// Notes since when every workload but etcd has been at 0, if they are. A time to come is none.
    pub fn note_quiet(&mut self, is_quiet: bool, now: Timestamp) {
        let kept = self.quiet_since.take().filter(|since| lasted(since, now).is_some());
        self.quiet_since = is_quiet.then(|| kept.unwrap_or_else(|| format::seconds(now)));
    }

    /// How long that has been so.
    pub fn quiet(&self, now: Timestamp) -> Duration {
        self.quiet_since.as_deref().and_then(|since| lasted(since, now)).unwrap_or_default()
    }

    /// The same record in another phase.
    pub fn enter(self, phase: Phase, now: Timestamp) -> Self {
        if self.phase == phase { self } else { Self { phase, entered: format::seconds(now), ..self } }
    }

    /// Records the replicas of a control plane's workload. Of two counts the larger one stays, as in the copies.
    pub fn note(&mut self, workload: Workload, replicas: u32) {
        let count = self.control_plane.entry(workload).or_default();
        *count = replicas.max(*count);
    }

    /// Records a `MachineDeployment`: of two counts the larger one, and the annotations that are not recorded yet.
    pub fn note_machines(&mut self, name: &str, seen: Machines) {
        let recorded = self.machine_deployments.entry(name.to_owned()).or_default();
        recorded.replicas = recorded.replicas.max(seen.replicas);
        if !seen.machine_type.is_empty() {
            recorded.machine_type = seen.machine_type;
        }
        for (key, value) in seen.autoscaler {
            recorded.autoscaler.entry(key).or_insert(value);
        }
    }
}

/// How long ago a time was; `None` if it is to come, or no time.
fn lasted(since: &str, now: Timestamp) -> Option<Duration> {
    Duration::try_from(now - format::time(since)?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::RecordError;

    fn now() -> Timestamp {
        "2026-11-22T18:00:00Z".parse().unwrap()
    }

    fn workload(name: &str) -> Workload {
        Workload { kind: WorkloadKind::StatefulSet, name: name.to_owned() }
    }

    #[test]
    fn a_record_comes_back_as_it_was() {
        let mut record = Record::begin("u-1", now());
        record.note(workload("etcd"), 3);
        let autoscaler = [(AUTOSCALER[0].to_owned(), "1".to_owned())].into();
        record.note_machines("kube-system/a", Machines { replicas: 2, autoscaler, ..Machines::default() });
        record.cron_jobs.insert("etcd-defragger".into());
        let text = record.text();
        assert!(text.starts_with("{\"v\":1,\"uid\":\"u-1\",") && text.contains("\"StatefulSet/etcd\":3"), "{text}");
        assert_eq!(Record::read(&text), Ok(record.clone()));
        // Of annotations a record holds the autoscaler's alone: a wake writes them to the user cluster.
        let forged = text.replace("\"cluster.k8s.io/", "\"example.com/x\":\"y\",\"cluster.k8s.io/");
        assert_eq!(Record::read(&forged), Ok(record));
    }

    #[test]
    fn what_is_no_record_of_ours_is_an_error() {
        let text = Record::begin("u-1", now()).text();
        for (text, error) in [
            (String::new(), RecordError::Unreadable),
            ("{}".to_owned(), RecordError::Unreadable),
            (text.replace("\"v\":1", "\"v\":2"), RecordError::Version(2)),
            (text.replace("Preflight", "Sleepy"), RecordError::Unreadable),
            (text.replace("\"controlPlane\":{}", "\"controlPlane\":{\"Pod/x\":1}"), RecordError::Unreadable),
            (text.replace("\"controlPlane\":{}", "\"controlPlane\":{\"Deployment/x\":-1}"), RecordError::Unreadable),
            (" ".repeat(Record::MAX_BYTES + 1), RecordError::TooLong(Record::MAX_BYTES)),
        ] {
            assert_eq!(Record::read(&text), Err(error), "{}", &text[..text.len().min(80)]);
        }
    }

    #[test]
    fn a_record_that_is_too_long_is_not_written() {
        let mut record = Record::begin("u-1", now());
        for number in 0..10_000 {
            record.note(workload(&format!("{number:0>60}")), 1);
        }
        assert_eq!(record.bounded_text(), Err(RecordError::TooLong(Record::MAX_BYTES)));
    }

    proptest! {
        #[test]
        fn a_recorded_count_is_never_replaced_by_a_lower_one(counts in proptest::collection::vec(0u32..5, 1..10)) {
            let mut record = Record::begin("u-1", now());
            for count in &counts {
                record.note(workload("etcd"), *count);
                record.note_machines("kube-system/a", Machines { replicas: *count, ..Machines::default() });
            }
            let most = counts.iter().copied().max().unwrap_or_default();
            prop_assert_eq!(record.control_plane[&workload("etcd")], most);
            prop_assert_eq!(record.machine_deployments["kube-system/a"].replicas, most);
        }

        #[test]
        fn reading_never_panics(text in ".{0,200}") {
            let _ = Record::read(&text);
        }
    }
}
