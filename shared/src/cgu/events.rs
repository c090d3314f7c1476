//! TALM's Events (section 1.5): reasons, actions, notes and annotations, which programs read.

use std::collections::BTreeMap;

use crate::text::{name_some, sanitize_to};

/// Kubernetes' limit for all annotations of an object, in bytes.
const MAX_ANNOTATIONS: usize = 256 * 1024;
/// Names in a note.
const MAX_NAMES: usize = 20;
const PREFIX: &str = "cgu.openshift.io/";

/// An Event, as programs read it. `clusters` counts those of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// At its first reconcile.
    Created,
    /// It starts, with so many batches.
    Started { clusters: usize, batches: usize },
    /// All of its clusters comply.
    Succeeded { clusters: usize },
    /// It timed out for these clusters, or failed.
    TimedOut { timed_out: Vec<String>, clusters: usize },
    /// A batch starts.
    BatchStarted { batch: i64, names: Vec<String>, clusters: usize },
    /// Each cluster of a batch complies.
    BatchSucceeded { batch: i64, names: Vec<String>, clusters: usize },
    /// A batch of this size timed out for these clusters.
    BatchTimedOut { batch: i64, timed_out: Vec<String>, size: usize, clusters: usize },
    /// One cluster starts.
    ClusterStarted(String),
    /// A cluster complies with every policy.
    ClusterSucceeded(String),
    /// Clusters cannot be selected.
    MissingClusters(Vec<String>),
    /// Policies cannot be enforced: `missing-policies`, `invalid-policies` or `ambiguous-policies`, and their names.
    Policies(&'static str, Vec<String>),
    /// These clusters of a batch sleep.
    Asleep { batch: i64, names: Vec<String> },
    /// Upgrades wait for each other, as [`super::blockers::arrows`] writes them.
    Cycle(String),
    /// Only TALM serves this field.
    NotServed(&'static str),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventText {
    pub is_warning: bool,
    /// `CguStarted`, ...
    pub reason: &'static str,
    /// `RemediationInBatchStarted`, ...
    pub action: &'static str,
    pub note: String,
    pub annotations: BTreeMap<String, String>,
}

impl Event {
    pub fn render(&self, upgrade: &str) -> EventText {
        let (is_warning, reason, action) = self.kind();
        EventText { is_warning, reason, action, note: self.note(upgrade), annotations: self.annotations() }
    }

    const fn kind(&self) -> (bool, &'static str, &'static str) {
        match self {
            Self::Created => (false, "CguCreated", "BuildingRemediationPlan"),
            Self::Started { .. } => (false, "CguStarted", "RemediationStarted"),
            Self::Succeeded { .. } => (false, "CguSuccess", "RemediationCompleted"),
            Self::TimedOut { .. } => (true, "CguTimedout", "RemediationTimeout"),
            Self::BatchStarted { .. } => (false, "CguStarted", "RemediationInBatchStarted"),
            Self::BatchSucceeded { .. } => (false, "CguSuccess", "RemediationInBatchCompleted"),
            Self::BatchTimedOut { .. } => (true, "CguTimedout", "RemediationInBatchTimeout"),
            Self::ClusterStarted(_) => (false, "CguStarted", "RemediationInClusterStarted"),
            Self::ClusterSucceeded(_) => (false, "CguSuccess", "RemediationInClusterCompleted"),
            Self::Asleep { .. } => (true, "ClustersAsleep", "RemediationInBatchStarted"),
            Self::Cycle(_) => (true, "BlockingCycle", "RemediationStarted"),
            Self::MissingClusters(_) | Self::Policies(..) | Self::NotServed(_) => {
                (true, "CguValidationFailure", "RemediationOnHoldDueToValidationFailure")
            }
        }
    }

    fn note(&self, upgrade: &str) -> String {
        let whole = |what: &str| format!("ClusterGroupUpgrade {upgrade} {what} remediating policies");
        let invalid = |what: &str, names: &[String]| format!("validation failure ({what}): {}", names.join(","));
        let detail = match self {
            Self::Created => return format!("New ClusterGroupUpgrade found: {upgrade}"),
            Self::Started { .. } => return whole("started"),
            Self::Succeeded { .. } => return whole("succeeded"),
            Self::TimedOut { .. } => return whole("timed-out"),
            Self::BatchStarted { batch, .. } => format!("batch index {batch} upgrade started"),
            Self::BatchSucceeded { batch, .. } => {
                format!("all clusters in the batch index {batch} are compliant with managed policies")
            }
            Self::BatchTimedOut { batch, .. } => {
                format!("some clusters in the batch index {batch} timed out remediating policies")
            }
            Self::ClusterStarted(name) => format!("cluster {name} upgrade started"),
            Self::ClusterSucceeded(name) => format!("cluster {name} upgrade finished successfully"),
            Self::MissingClusters(names) => invalid("missing clusters", names),
            Self::Policies(what, names) => invalid(&what.replace('-', " "), names),
            Self::Asleep { batch, names } => {
                let names = name_some(names, MAX_NAMES);
                format!("clusters of the batch index {batch} sleep, and are upgraded only once they run: {names}")
            }
            Self::Cycle(names) => {
                format!("it waits for itself, and never starts: {names}. Remove one of them from spec.blockingCRs")
            }
            Self::NotServed(field) => not_served_message(field),
        };
        format!("ClusterGroupUpgrade {upgrade}: {detail}")
    }

    fn annotations(&self) -> BTreeMap<String, String> {
        let of = |type_: &str| ("event-type", type_.to_owned());
        let total = |clusters: &usize| ("total-clusters-count", clusters.to_string());
        let in_batch = |count: usize| ("batch-clusters-count", count.to_string());
        let list = |key, names: &[String]| (key, names.join(","));
        let timed_out_of =
            |names: &[String]| [list("timedout-clusters", names), ("timedout-clusters-count", names.len().to_string())];
        let pairs = match self {
            Self::Created => vec![of("global")],
            Self::Started { clusters, batches } => {
                vec![of("global"), total(clusters), ("total-batches-count", batches.to_string())]
            }
            Self::Succeeded { clusters } => vec![of("global"), total(clusters)],
            Self::TimedOut { timed_out, clusters } => {
                [of("global"), total(clusters)].into_iter().chain(timed_out_of(timed_out)).collect()
            }
            Self::BatchStarted { names, clusters, .. } | Self::BatchSucceeded { names, clusters, .. } => {
                vec![of("batch"), total(clusters), list("batch-clusters", names), in_batch(names.len())]
            }
            Self::BatchTimedOut { timed_out, size, clusters, .. } => {
                [of("batch"), total(clusters), in_batch(*size)].into_iter().chain(timed_out_of(timed_out)).collect()
            }
            Self::ClusterStarted(name) | Self::ClusterSucceeded(name) => {
                vec![of("cluster"), ("cluster-name", name.clone())]
            }
            Self::MissingClusters(names) => {
                vec![list("missing-clusters", names), ("missing-clusters-count", names.len().to_string())]
            }
            Self::Policies(what, names) => vec![list(what, names)],
            Self::Asleep { names, .. } => vec![of("batch"), in_batch(names.len())],
            Self::Cycle(_) | Self::NotServed(_) => Vec::new(),
        };
        let text = |value: String| sanitize_to(&value, MAX_ANNOTATIONS);
        fit(pairs.into_iter().map(|(key, value)| (format!("{PREFIX}{key}"), text(value))).collect())
    }

    /// The cluster that it is about, if it is about one.
    pub fn cluster(&self) -> Option<&str> {
        match self {
            Self::ClusterStarted(name) | Self::ClusterSucceeded(name) => Some(name),
            _ => None,
        }
    }
}

pub(super) fn not_served_message(field: &str) -> String {
    format!("{field} is not served by hibernate-controller: remove it, or let TALM run")
}

/// Cuts the longest list at a name, so that all annotations fit, and names its key in an annotation.
fn fit(mut annotations: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let size = |all: &BTreeMap<String, String>| all.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
    if size(&annotations) <= MAX_ANNOTATIONS {
        return annotations;
    }
    let longest = annotations.iter().max_by_key(|(_, value)| value.len()).map(|(key, _)| key.clone());
    let Some(key) = longest else { return annotations };
    annotations.insert(format!("{PREFIX}truncated"), key.clone());
    let surplus = size(&annotations) - MAX_ANNOTATIONS;
    if let Some(list) = annotations.get_mut(&key) {
        let room = list.len().saturating_sub(surplus);
        let end = list.match_indices(',').map(|(at, _)| at).take_while(|at| *at <= room).last();
        list.truncate(end.unwrap_or(0));
    }
    annotations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    /// Section 1.5.
    #[test]
    fn words_are_those_of_talm() {
        let events = [
            Event::Created,
            Event::Started { clusters: 3, batches: 2 },
            Event::Succeeded { clusters: 3 },
            Event::TimedOut { timed_out: names(&["b", "c"]), clusters: 3 },
            Event::BatchStarted { batch: 1, names: names(&["a", "b"]), clusters: 3 },
            Event::BatchSucceeded { batch: 1, names: names(&["a"]), clusters: 3 },
            Event::BatchTimedOut { batch: 2, timed_out: names(&["b"]), size: 2, clusters: 3 },
            Event::ClusterStarted("a".to_owned()),
            Event::ClusterSucceeded("a".to_owned()),
            Event::MissingClusters(names(&["x"])),
            Event::Policies("missing-policies", names(&["p"])),
            Event::Policies("ambiguous-policies", names(&["p", "q"])),
        ];
        let expected = "\
Normal CguCreated/BuildingRemediationPlan: New ClusterGroupUpgrade found: u [event-type=global]
Normal CguStarted/RemediationStarted: ClusterGroupUpgrade u started remediating policies [event-type=global total-batches-count=2 total-clusters-count=3]
Normal CguSuccess/RemediationCompleted: ClusterGroupUpgrade u succeeded remediating policies [event-type=global total-clusters-count=3]
Warning CguTimedout/RemediationTimeout: ClusterGroupUpgrade u timed-out remediating policies [event-type=global timedout-clusters=b,c timedout-clusters-count=2 total-clusters-count=3]
Normal CguStarted/RemediationInBatchStarted: ClusterGroupUpgrade u: batch index 1 upgrade started [batch-clusters=a,b batch-clusters-count=2 event-type=batch total-clusters-count=3]
Normal CguSuccess/RemediationInBatchCompleted: ClusterGroupUpgrade u: all clusters in the batch index 1 are compliant with managed policies [batch-clusters=a batch-clusters-count=1 event-type=batch total-clusters-count=3]
Warning CguTimedout/RemediationInBatchTimeout: ClusterGroupUpgrade u: some clusters in the batch index 2 timed out remediating policies [batch-clusters-count=2 event-type=batch timedout-clusters=b timedout-clusters-count=1 total-clusters-count=3]
Normal CguStarted/RemediationInClusterStarted: ClusterGroupUpgrade u: cluster a upgrade started [cluster-name=a event-type=cluster]
Normal CguSuccess/RemediationInClusterCompleted: ClusterGroupUpgrade u: cluster a upgrade finished successfully [cluster-name=a event-type=cluster]
Warning CguValidationFailure/RemediationOnHoldDueToValidationFailure: ClusterGroupUpgrade u: validation failure (missing clusters): x [missing-clusters=x missing-clusters-count=1]
Warning CguValidationFailure/RemediationOnHoldDueToValidationFailure: ClusterGroupUpgrade u: validation failure (missing policies): p [missing-policies=p]
Warning CguValidationFailure/RemediationOnHoldDueToValidationFailure: ClusterGroupUpgrade u: validation failure (ambiguous policies): p,q [ambiguous-policies=p,q]";
        let found = events.map(|event| {
            let EventText { is_warning, reason, action, note, annotations } = event.render("u");
            let kind = if is_warning { "Warning" } else { "Normal" };
            let pairs = annotations.iter().map(|(key, value)| format!("{}={value}", key.strip_prefix(PREFIX).unwrap()));
            format!("{kind} {reason}/{action}: {note} [{}]", pairs.collect::<Vec<_>>().join(" "))
        });
        assert_eq!(found.as_slice(), expected.lines().collect::<Vec<_>>());
    }

    #[test]
    fn a_list_that_is_too_long_is_cut_at_a_name_and_marked() {
        let clusters: Vec<String> = (0..8_000).map(|number| format!("{number:0>35}")).collect();
        let event = Event::BatchStarted { batch: 1, names: clusters.clone(), clusters: clusters.len() };
        let annotations = event.render("u").annotations;
        let list = &annotations["cgu.openshift.io/batch-clusters"];
        assert_eq!(annotations["cgu.openshift.io/truncated"], "cgu.openshift.io/batch-clusters");
        assert_eq!(annotations["cgu.openshift.io/batch-clusters-count"], "8000");
        let size: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
        assert!((MAX_ANNOTATIONS - 40..=MAX_ANNOTATIONS).contains(&size), "{size}");
        assert!(list.split(',').all(|name| name.len() == 35), "cut within a name");
    }
}
