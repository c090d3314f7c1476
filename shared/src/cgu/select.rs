//! Selects the clusters of an upgrade (section 3 and row 4).

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt as _;
use kube::core::SelectorExt as _;

use super::api::ClusterGroupUpgradeSpec;
use super::wire::{Condition, ManagedClusterObject};
use crate::rollout::selector;
use crate::text::sanitize;

/// Limit for one upgrade: its status holds each cluster by name.
pub const MAX_CLUSTERS: usize = 5_000;

/// Limit for all selectors of one upgrade: each requirement is compared with each cluster.
const MAX_REQUIREMENTS: usize = 1_000;

/// The entry of a `ManagedCluster`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManagedCluster {
    pub labels: BTreeMap<String, String>,
    pub uid: String,
    /// Also false while it is being deleted.
    pub is_available: bool,
}

impl ManagedCluster {
    pub fn read(object: &ManagedClusterObject) -> Self {
        let is_available = |one: &Condition| one.type_ == "ManagedClusterConditionAvailable" && one.status == "True";
        let is_kept = object.metadata.deletion_timestamp.is_none();
        Self {
            labels: object.labels().clone(),
            uid: object.uid().unwrap_or_default(),
            is_available: is_kept && object.status.conditions.iter().flatten().any(is_available),
        }
    }
}

/// Why clusters cannot be selected, in TALM's words where it has some.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// There are neither names nor a selector.
    #[error("cannot obtain all the details about the clusters in the CR: no cluster specified for remediation")]
    Nothing,
    /// A selector is malformed.
    #[error("cannot obtain all the details about the clusters in the CR: {0}")]
    Selector(String),
    #[error("cluster {} is not a ManagedCluster", sanitize(.0.first().map_or("", String::as_str)))]
    Unknown(Vec<String>),
    #[error("canary cluster {} is not in the list of clusters", sanitize(.0))]
    Canary(String),
    #[error(
        "{0} clusters are selected, and {MAX_CLUSTERS} is the most: divide them among several ClusterGroupUpgrades"
    )]
    TooMany(usize),
}

/// The distinct names of its clusters: those that it lists, in its order, then those that a selector matches, from A to
/// Z. `known`: all `ManagedCluster`s by name.
pub fn select<'a>(
    spec: &'a ClusterGroupUpgradeSpec,
    known: &'a BTreeMap<String, ManagedCluster>,
) -> Result<Vec<&'a str>, SelectError> {
    if spec.clusters.is_empty() && spec.cluster_selector.is_empty() && spec.cluster_label_selectors.is_empty() {
        return Err(SelectError::Nothing);
    }
    let pairs = spec.cluster_selector.iter().map(|text| pair(text)).collect::<Result<BTreeSet<_>, _>>()?;
    let requirements = spec.cluster_label_selectors.iter().map(|one| {
        1 + one.match_labels.as_ref().map_or(0, BTreeMap::len) + one.match_expressions.as_ref().map_or(0, Vec::len)
    });
    let count: usize = requirements.sum();
    if count > MAX_REQUIREMENTS {
        let found = format!("clusterLabelSelectors has {count} requirements, and {MAX_REQUIREMENTS} is the most");
        return Err(SelectError::Selector(found));
    }
    let compiled = spec.cluster_label_selectors.iter().zip(0..).map(|(one, index)| {
        let malformed = |error| SelectError::Selector(format!("clusterLabelSelectors[{index}]: {}", sanitize(&error)));
        selector::compile(one).map_err(malformed)
    });
    let compiled = compiled.collect::<Result<Vec<_>, _>>()?;
    let matches = |labels: &BTreeMap<String, String>| {
        labels.iter().any(|(key, value)| pairs.contains(&(key.as_str(), value.as_str())))
            || compiled.iter().any(|one| one.matches(labels))
    };
    let selected = known.iter().filter(|(_, cluster)| matches(&cluster.labels)).map(|(name, _)| name.as_str());
    let mut once = BTreeSet::new();
    let names = spec.clusters.iter().map(String::as_str).chain(selected);
    let names: Vec<&str> = names.filter(|name| once.insert(*name)).collect();
    if names.len() > MAX_CLUSTERS {
        return Err(SelectError::TooMany(names.len()));
    }
    let unknown: Vec<String> =
        names.iter().filter(|name| !known.contains_key(**name)).map(ToString::to_string).collect();
    if !unknown.is_empty() {
        return Err(SelectError::Unknown(unknown));
    }
    match spec.remediation_strategy.canaries.iter().find(|canary| !once.contains(canary.as_str())) {
        Some(canary) => Err(SelectError::Canary(canary.clone())),
        None => Ok(names),
    }
}

/// `KEY=VALUE`, or `KEY` for an empty value. TALM panics at a second `=` (row 41).
fn pair(text: &str) -> Result<(&str, &str), SelectError> {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    if value.contains('=') {
        let found = sanitize(text);
        return Err(SelectError::Selector(format!("clusterSelector {found:?} is malformed: write KEY=VALUE or KEY")));
    }
    Ok((key, value))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn known() -> BTreeMap<String, ManagedCluster> {
        let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        (1..=6)
            .map(|number| {
                let mut labels = BTreeMap::from([label("name", &format!("spoke{number}"))]);
                if matches!(number, 1 | 3) {
                    labels.extend([label("upgrade", "")]);
                }
                if matches!(number, 1 | 4) {
                    labels.extend([label("upgrade2", "true")]);
                }
                (format!("spoke{number}"), ManagedCluster { labels, ..ManagedCluster::default() })
            })
            .collect()
    }

    fn selected(mut spec: Value) -> Result<Vec<String>, String> {
        let strategy = spec["remediationStrategy"].take();
        spec["remediationStrategy"] = if strategy.is_null() { json!({ "maxConcurrency": 1 }) } else { strategy };
        let (spec, known) = (serde_json::from_value(spec).unwrap(), known());
        let names = select(&spec, &known).map_err(|error| error.to_string())?;
        Ok(names.into_iter().map(str::to_owned).collect())
    }

    /// Selection of section 3, cluster-selector of section 5.1.
    #[test]
    fn named_clusters_come_first_then_the_selected_by_name() {
        let labels = |labels: Value| json!([{ "matchLabels": labels }]);
        for (spec, expected) in [
            (json!({ "clusters": ["spoke3", "spoke1", "spoke3"] }), vec!["spoke3", "spoke1"]),
            (
                json!({ "clusters": ["spoke6", "spoke1"], "clusterSelector": ["upgrade2=true", "upgrade"] }),
                vec!["spoke6", "spoke1", "spoke3", "spoke4"],
            ),
            (json!({ "clusterSelector": ["upgrade="] }), vec!["spoke1", "spoke3"]),
            (
                json!({ "clusterSelector": ["upgrade"], "clusterLabelSelectors": labels(json!({ "upgrade2": "true" })) }),
                vec!["spoke1", "spoke3", "spoke4"],
            ),
            (json!({ "clusterLabelSelectors": labels(json!({ "upgrade": "", "upgrade2": "true" })) }), vec!["spoke1"]),
            (json!({ "clusterSelector": ["nobody=has"] }), vec![]),
        ] {
            assert_eq!(selected(spec.clone()).unwrap(), expected, "{spec}");
        }
    }

    /// Both may come in thousands.
    #[test]
    fn selectors_are_found_by_the_labels() {
        let cluster = |number: usize| {
            let labels = BTreeMap::from([("name".to_owned(), number.to_string())]);
            (number.to_string(), ManagedCluster { labels, ..ManagedCluster::default() })
        };
        let known = (0..12_000).map(cluster).collect();
        let cluster_selector = (11_999..41_000).map(|number| format!("name={number}")).collect();
        let spec = ClusterGroupUpgradeSpec { cluster_selector, ..ClusterGroupUpgradeSpec::default() };
        let began = std::time::Instant::now();
        assert_eq!(select(&spec, &known).unwrap(), ["11999"]);
        assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
    }

    #[test]
    fn what_cannot_be_selected_is_named() {
        let canaries = json!({ "maxConcurrency": 1, "canaries": ["spoke1", "spoke2"] });
        let expression = json!([{ "matchExpressions": [{ "key": "a", "operator": "Sometimes" }] }]);
        for (spec, expected) in [
            (json!({}), "no cluster specified for remediation"),
            (json!({ "clusters": ["spoke1", "spoke7"] }), "cluster spoke7 is not a ManagedCluster"),
            (
                json!({ "clusters": ["spoke1"], "remediationStrategy": canaries }),
                "canary cluster spoke2 is not in the list of clusters",
            ),
            (json!({ "clusterSelector": ["a=b=c"] }), "clusterSelector \"a=b=c\" is malformed: write KEY=VALUE or KEY"),
            (json!({ "clusters": ["spoke1"], "clusterLabelSelectors": expression }), "clusterLabelSelectors[0]: "),
            (
                json!({ "clusterLabelSelectors": [{ "matchExpressions": [{ "key": "env", "operator": "NotIn", "values": ["prod "] }] }] }),
                "clusterLabelSelectors[0]: key env: \"prod \" is not the value of a label",
            ),
            (
                json!({ "clusterLabelSelectors": vec![json!({ "matchLabels": { "a": "b" } }); 501] }),
                "clusterLabelSelectors has 1002 requirements, and 1000 is the most",
            ),
            (
                json!({ "clusters": (0..5_001).map(|n| n.to_string()).collect::<Vec<_>>() }),
                "5001 clusters are selected",
            ),
        ] {
            let message = selected(spec.clone()).unwrap_err();
            assert!(message.contains(expected), "{spec}: {message}");
        }
    }
}
