//! TALM's Events (section 1.5): reasons, actions, notes and annotations, which programs read.

use std::collections::BTreeMap;

use crate::text::{name_some, sanitize_to};

/// Bytes of all annotations of an object, as Kubernetes limits them.
const MAX_ANNOTATIONS: usize = 256 * 1024;
/// Names that a note holds.
const MAX_NAMES: usize = 20;
const PREFIX: &str = "cgu.openshift.io/";

/// Something that an upgrade tells programs. `clusters`: how many the plan has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named as the annotations that hold them")]
pub enum Event {
    /// Its first reconcile.
    Created,
    /// It starts: so many clusters in so many batches.
    Started { clusters: usize, batches: usize },
    /// All of its clusters comply.
    Succeeded { clusters: usize },
    /// Its time was over for these, or it failed.
    TimedOut { timed_out: Vec<String>, clusters: usize },
    /// A batch starts.
    BatchStarted { batch: i64, names: Vec<String>, clusters: usize },
    /// Each cluster of a batch complies.
    BatchSucceeded { batch: i64, names: Vec<String>, clusters: usize },
    /// The time of a batch was over for these.
    BatchTimedOut { batch: i64, timed_out: Vec<String>, size: usize, clusters: usize },
    /// A cluster starts.
    ClusterStarted(String),
    /// A cluster complies with every policy.
    ClusterSucceeded(String),
    /// Clusters cannot be selected.
    MissingClusters(Vec<String>),
    /// Policies cannot be enforced: `missing-policies`, `invalid-policies` or `ambiguous-policies`.
    Policies(&'static str, Vec<String>),
    /// These clusters of a batch sleep.
    Asleep { batch: i64, names: Vec<String> },
    /// These upgrades wait for each other.
    Cycle(String),
    /// This field asks for what is left to TALM.
    NotServed(&'static str),
}

/// The text of an Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventText {
    /// It is a Warning.
    pub warns: bool,
    /// `CguStarted`, ...
    pub reason: &'static str,
    /// `RemediationInBatchStarted`, ...
    pub action: &'static str,
    /// For people.
    pub note: String,
    /// For programs.
    pub annotations: BTreeMap<String, String>,
}

impl Event {
    /// The Event of the upgrade of this name.
    pub fn render(&self, upgrade: &str) -> EventText {
        let (warns, reason, action, note) = self.words();
        let note = match self {
            Self::Created => format!("New ClusterGroupUpgrade found: {upgrade}"),
            Self::Started { .. } | Self::Succeeded { .. } | Self::TimedOut { .. } => {
                format!("ClusterGroupUpgrade {upgrade} {note} remediating policies")
            }
            _ => format!("ClusterGroupUpgrade {upgrade}: {note}"),
        };
        EventText { warns, reason, action, note, annotations: self.annotations() }
    }

    /// The cluster that it is about.
    pub fn cluster(&self) -> Option<&str> {
        match self {
            Self::ClusterStarted(name) | Self::ClusterSucceeded(name) => Some(name),
            _ => None,
        }
    }

    /// Whether it is a Warning, its reason, its action, and what its note says after the name.
    fn words(&self) -> (bool, &'static str, &'static str, String) {
        const INVALID: (bool, &str, &str) = (true, "CguValidationFailure", "RemediationOnHoldDueToValidationFailure");
        let failure = |what: &str, names: &[String]| {
            (INVALID.0, INVALID.1, INVALID.2, format!("validation failure ({what}): {}", names.join(",")))
        };
        match self {
            Self::Created => (false, "CguCreated", "BuildingRemediationPlan", String::new()),
            Self::Started { .. } => (false, "CguStarted", "RemediationStarted", "started".to_owned()),
            Self::Succeeded { .. } => (false, "CguSuccess", "RemediationCompleted", "succeeded".to_owned()),
            Self::TimedOut { .. } => (true, "CguTimedout", "RemediationTimeout", "timed-out".to_owned()),
            Self::BatchStarted { batch, .. } => {
                (false, "CguStarted", "RemediationInBatchStarted", format!("batch index {batch} upgrade started"))
            }
            Self::BatchSucceeded { batch, .. } => {
                let note = format!("all clusters in the batch index {batch} are compliant with managed policies");
                (false, "CguSuccess", "RemediationInBatchCompleted", note)
            }
            Self::BatchTimedOut { batch, .. } => {
                let note = format!("some clusters in the batch index {batch} timed out remediating policies");
                (true, "CguTimedout", "RemediationInBatchTimeout", note)
            }
            Self::ClusterStarted(name) => {
                (false, "CguStarted", "RemediationInClusterStarted", format!("cluster {name} upgrade started"))
            }
            Self::ClusterSucceeded(name) => {
                let note = format!("cluster {name} upgrade finished successfully");
                (false, "CguSuccess", "RemediationInClusterCompleted", note)
            }
            Self::MissingClusters(names) => failure("missing clusters", names),
            Self::Policies(what, names) => failure(&what.replace('-', " "), names),
            Self::Asleep { batch, names } => {
                let names = name_some(names, MAX_NAMES);
                let note =
                    format!("clusters of the batch index {batch} sleep, and are upgraded only once they run: {names}");
                (true, "ClustersAsleep", "RemediationInBatchStarted", note)
            }
            Self::Cycle(names) => {
                let note =
                    format!("it waits for itself, and never starts: {names}. Remove one of them from spec.blockingCRs");
                (true, "BlockingCycle", "RemediationStarted", note)
            }
            Self::NotServed(field) => (INVALID.0, INVALID.1, INVALID.2, not_served_message(field)),
        }
    }

    fn annotations(&self) -> BTreeMap<String, String> {
        let total = |clusters: &usize| ("total-clusters-count", clusters.to_string());
        let of = |type_: &str| ("event-type", type_.to_owned());
        let list = |key, names: &[String]| (key, names.join(","));
        let pairs = match self {
            Self::Created => vec![of("global")],
            Self::Started { clusters, batches } => {
                vec![of("global"), total(clusters), ("total-batches-count", batches.to_string())]
            }
            Self::Succeeded { clusters } => vec![of("global"), total(clusters)],
            Self::TimedOut { timed_out, clusters } => vec![
                of("global"),
                total(clusters),
                list("timedout-clusters", timed_out),
                ("timedout-clusters-count", timed_out.len().to_string()),
            ],
            Self::BatchStarted { names, clusters, .. } | Self::BatchSucceeded { names, clusters, .. } => vec![
                of("batch"),
                total(clusters),
                list("batch-clusters", names),
                ("batch-clusters-count", names.len().to_string()),
            ],
            Self::BatchTimedOut { timed_out, size, clusters, .. } => vec![
                of("batch"),
                total(clusters),
                list("timedout-clusters", timed_out),
                ("timedout-clusters-count", timed_out.len().to_string()),
                ("batch-clusters-count", size.to_string()),
            ],
            Self::ClusterStarted(name) | Self::ClusterSucceeded(name) => {
                vec![of("cluster"), ("cluster-name", name.clone())]
            }
            Self::MissingClusters(names) => {
                vec![list("missing-clusters", names), ("missing-clusters-count", names.len().to_string())]
            }
            Self::Policies(what, names) => vec![list(what, names)],
            Self::Asleep { names, .. } => vec![of("batch"), ("batch-clusters-count", names.len().to_string())],
            Self::Cycle(_) | Self::NotServed(_) => Vec::new(),
        };
        let text = |value: String| sanitize_to(&value, MAX_ANNOTATIONS);
        bounded(pairs.into_iter().map(|(key, value)| (format!("{PREFIX}{key}"), text(value))).collect())
    }
}

/// What the condition and the Event say of a field that is left to TALM.
pub(super) fn not_served_message(field: &str) -> String {
    format!("{field} is not served by hibernate-controller: remove it, or let TALM run")
}

/// Cuts the longest list at a name, so that all annotations fit, and says which it was.
fn bounded(mut annotations: BTreeMap<String, String>) -> BTreeMap<String, String> {
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
        let cases = [
            (
                Event::Created,
                "CguCreated/BuildingRemediationPlan",
                "New ClusterGroupUpgrade found: u",
                "event-type=global",
            ),
            (
                Event::Started { clusters: 3, batches: 2 },
                "CguStarted/RemediationStarted",
                "ClusterGroupUpgrade u started remediating policies",
                "event-type=global total-batches-count=2 total-clusters-count=3",
            ),
            (
                Event::Succeeded { clusters: 3 },
                "CguSuccess/RemediationCompleted",
                "ClusterGroupUpgrade u succeeded remediating policies",
                "event-type=global total-clusters-count=3",
            ),
            (
                Event::TimedOut { timed_out: names(&["b", "c"]), clusters: 3 },
                "CguTimedout/RemediationTimeout",
                "ClusterGroupUpgrade u timed-out remediating policies",
                "event-type=global timedout-clusters=b,c timedout-clusters-count=2 total-clusters-count=3",
            ),
            (
                Event::BatchStarted { batch: 1, names: names(&["a", "b"]), clusters: 3 },
                "CguStarted/RemediationInBatchStarted",
                "ClusterGroupUpgrade u: batch index 1 upgrade started",
                "batch-clusters=a,b batch-clusters-count=2 event-type=batch total-clusters-count=3",
            ),
            (
                Event::BatchSucceeded { batch: 1, names: names(&["a"]), clusters: 3 },
                "CguSuccess/RemediationInBatchCompleted",
                "ClusterGroupUpgrade u: all clusters in the batch index 1 are compliant with managed policies",
                "batch-clusters=a batch-clusters-count=1 event-type=batch total-clusters-count=3",
            ),
            (
                Event::BatchTimedOut { batch: 2, timed_out: names(&["b"]), size: 2, clusters: 3 },
                "CguTimedout/RemediationInBatchTimeout",
                "ClusterGroupUpgrade u: some clusters in the batch index 2 timed out remediating policies",
                "batch-clusters-count=2 event-type=batch timedout-clusters=b timedout-clusters-count=1 total-clusters-count=3",
            ),
            (
                Event::ClusterStarted("a".to_owned()),
                "CguStarted/RemediationInClusterStarted",
                "ClusterGroupUpgrade u: cluster a upgrade started",
                "cluster-name=a event-type=cluster",
            ),
            (
                Event::ClusterSucceeded("a".to_owned()),
                "CguSuccess/RemediationInClusterCompleted",
                "ClusterGroupUpgrade u: cluster a upgrade finished successfully",
                "cluster-name=a event-type=cluster",
            ),
            (
                Event::MissingClusters(names(&["x"])),
                "CguValidationFailure/RemediationOnHoldDueToValidationFailure",
                "ClusterGroupUpgrade u: validation failure (missing clusters): x",
                "missing-clusters=x missing-clusters-count=1",
            ),
            (
                Event::Policies("missing-policies", names(&["p"])),
                "CguValidationFailure/RemediationOnHoldDueToValidationFailure",
                "ClusterGroupUpgrade u: validation failure (missing policies): p",
                "missing-policies=p",
            ),
            (
                Event::Policies("ambiguous-policies", names(&["p", "q"])),
                "CguValidationFailure/RemediationOnHoldDueToValidationFailure",
                "ClusterGroupUpgrade u: validation failure (ambiguous policies): p,q",
                "ambiguous-policies=p,q",
            ),
        ];
        for (event, what, note, annotations) in cases {
            let found = event.render("u");
            let shown =
                found.annotations.iter().map(|(key, value)| format!("{}={value}", key.strip_prefix(PREFIX).unwrap()));
            assert_eq!((format!("{}/{}", found.reason, found.action).as_str(), found.note.as_str()), (what, note));
            assert_eq!(shown.collect::<Vec<_>>().join(" "), annotations, "{event:?}");
            let warns = what.starts_with("CguTimedout") || what.starts_with("CguValidationFailure");
            assert_eq!(found.warns, warns, "{event:?}");
        }
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
