//! What governance would change, all at once: a function of what is there.
//!
//! | rule | |
//! |---|---|
//! | G1 | a cluster gets a child `NAMESPACE.ROOT` in its namespace only through a binding without subFilter whose decisions list it, if the root is not disabled |
//! | G2 | a binding with subFilter `restricted` places nothing; if it overrides remediationAction with enforce and its decisions list a cluster that G1 has placed, that child is enforced |
//! | G3 | placementRef is a Placement and subjects are Policies, each with its exact apiGroup, in the policy's namespace; anything else binds nothing |
//! | G4 | a Placement decides for `ManagedClusters` that its selector matches, if a `ManagedClusterSetBinding` is in its namespace; taints are tolerated or exclude |
//! | G5 | status.status[] of a root lists every cluster of G1 as its child says, and without a value those that only a restricted binding lists, sorted |
//! | G6 | a child complies once it is enforced and its cluster is awake, after a delay; inform changes nothing; who sleeps keeps the last value |
//! | G7 | each arrow has its own delay, also back to inform |

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};
use shared::cgu::policy::ROOT_POLICY;
use shared::rollout::selector::selects;

use super::store::{Kind, View};
use super::work::Effect;
use super::{Knobs, entry, work};

const CLUSTER: &str = "cluster.open-cluster-management.io";
const POLICY: &str = "policy.open-cluster-management.io";
const PLACEMENT: &str = "cluster.open-cluster-management.io/placement";

/// A write that is called for, and how long it takes until it is made.
#[derive(Debug, PartialEq)]
pub(super) struct Change {
    pub(super) key: String,
    pub(super) delay: Duration,
    pub(super) write: Write,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Write {
    Apply {
        kind: Kind,
        namespace: String,
        name: String,
        object: Option<Value>,
        status: Option<Value>,
    },
    Delete {
        kind: Kind,
        namespace: String,
        name: String,
    },
    /// An action of a cluster ends.
    Act {
        cluster: String,
        action: String,
        effect: Effect,
    },
}

/// Everything that is not as it would be.
pub(super) fn changes(view: &View, knobs: &Knobs) -> Vec<Change> {
    let mut changes = decisions(view, knobs);
    let placed = placed(view);
    changes.extend(children(view, knobs, &placed));
    changes.extend(compliance(view, knobs));
    changes.extend(reports(view, knobs, &placed));
    changes.extend(work::changes(view, knobs));
    changes
}

pub(super) fn change(arrow: &str, delay: Duration, write: Write) -> Change {
    let (Write::Apply { namespace, name, .. }
    | Write::Delete { namespace, name, .. }
    | Write::Act { cluster: namespace, action: name, .. }) = &write;
    Change { key: format!("{arrow} {namespace}/{name}"), delay, write }
}

fn texts<'a>(value: &'a Value, field: &'a str) -> impl Iterator<Item = &'a str> {
    value.as_array().into_iter().flatten().filter_map(move |one| one[field].as_str())
}

/// G4
fn decisions(view: &View, knobs: &Knobs) -> Vec<Change> {
    let mut changes = Vec::new();
    for ((namespace, name), placement) in view.of(Kind::Placement) {
        let has_set = view.of(Kind::SetBinding).keys().any(|(found, _)| found == namespace);
        let selected: Vec<&str> = view
            .of(Kind::Cluster)
            .iter()
            .filter(|(_, cluster)| has_set && matches(&placement["spec"], cluster))
            .map(|((_, cluster), _)| cluster.as_str())
            .collect();
        let decision = format!("{name}-decision-1");
        let listed: Vec<Value> = selected.iter().map(|name| json!({ "clusterName": name, "reason": "" })).collect();
        let known = view.get(Kind::Decision, namespace, &decision);
        if known.is_none_or(|known| known["status"]["decisions"].as_array() != Some(&listed)) {
            let object = json!({
                "apiVersion": format!("{CLUSTER}/v1beta1"), "kind": "PlacementDecision",
                "metadata": { "name": decision, "namespace": namespace, "labels": { PLACEMENT: name } },
            });
            changes.push(change(
                "decide",
                knobs.delays.decide,
                Write::Apply {
                    kind: Kind::Decision,
                    namespace: namespace.clone(),
                    name: decision,
                    object: known.is_none().then_some(object),
                    status: Some(json!({ "decisions": listed })),
                },
            ));
        }
        let (status, reason) =
            if has_set { ("True", "AllDecisionsScheduled") } else { ("False", "NoManagedClusterSetBindings") };
        if placement["status"]["conditions"][0]["reason"] != reason {
            let condition = json!({
                "type": "PlacementSatisfied", "status": status, "reason": reason, "lastTransitionTime": "2026-11-26T00:00:00Z",
                "message": if has_set { "All cluster decisions scheduled" } else { "No valid ManagedClusterSetBindings found in placement namespace" },
            });
            let status = json!({ "conditions": [condition], "numberOfSelectedClusters": selected.len() });
            let (kind, namespace, name) = (Kind::Placement, namespace.clone(), name.clone());
            let write = Write::Apply { kind, namespace, name, object: None, status: Some(status) };
            changes.push(change("satisfy", knobs.delays.decide, write));
        }
    }
    for ((namespace, name), decision) in view.of(Kind::Decision) {
        let placement = decision["metadata"]["labels"][PLACEMENT].as_str().unwrap_or_default();
        if view.get(Kind::Placement, namespace, placement).is_none() {
            let write = Write::Delete { kind: Kind::Decision, namespace: namespace.clone(), name: name.clone() };
            changes.push(change("decide", knobs.delays.decide, write));
        }
    }
    changes
}

/// Whether a Placement selects a cluster: any of its predicates, and every taint tolerated.
fn matches(placement: &Value, cluster: &Value) -> bool {
    let labels: BTreeMap<String, String> =
        serde_json::from_value(cluster["metadata"]["labels"].clone()).unwrap_or_default();
    let is_selected = |predicate: &Value| {
        let selector = &predicate["requiredClusterSelector"]["labelSelector"];
        serde_json::from_value::<LabelSelector>(selector.clone()).is_ok_and(|selector| selects(&selector, &labels))
    };
    let tolerated: BTreeSet<&str> = texts(&placement["tolerations"], "key").collect();
    let mut taints = texts(&cluster["spec"]["taints"], "key");
    placement["predicates"].as_array().is_none_or(|all| all.iter().any(is_selected))
        && taints.all(|taint| tolerated.contains(taint))
}

/// For each root, by namespace and name: its clusters, and those on which it is enforced.
type Placed = BTreeMap<(String, String), (BTreeSet<String>, BTreeSet<String>)>;

/// G1 to G3
fn placed(view: &View) -> Placed {
    let mut placed = Placed::new();
    for ((namespace, _), binding) in view.of(Kind::Binding) {
        let reference = &binding["placementRef"];
        if reference["kind"] != "Placement" || reference["apiGroup"] != CLUSTER {
            continue;
        }
        let decided = view.of(Kind::Decision).iter().filter(|((found, _), decision)| {
            found == namespace && decision["metadata"]["labels"][PLACEMENT] == reference["name"]
        });
        let clusters: BTreeSet<String> = decided
            .flat_map(|(_, decision)| texts(&decision["status"]["decisions"], "clusterName"))
            .map(str::to_owned)
            .collect();
        let subjects = binding["subjects"].as_array().into_iter().flatten();
        for subject in subjects.filter(|one| one["kind"] == "Policy" && one["apiGroup"] == POLICY) {
            let name = subject["name"].as_str().unwrap_or_default().to_owned();
            let (all, enforced) = placed.entry((namespace.clone(), name)).or_default();
            if binding["subFilter"] != "restricted" {
                all.extend(clusters.iter().cloned());
            } else if binding["bindingOverrides"]["remediationAction"] == "enforce" {
                enforced.extend(clusters.iter().cloned());
            }
        }
    }
    placed
}

pub(super) fn is_child(policy: &Value) -> bool {
    policy["metadata"]["labels"][ROOT_POLICY].is_string()
}

fn children(view: &View, knobs: &Knobs, placed: &Placed) -> Vec<Change> {
    let (mut changes, mut wanted) = (Vec::new(), BTreeSet::new());
    for ((namespace, name), (clusters, enforced)) in placed {
        let root = view.get(Kind::Policy, namespace, name);
        let Some(root) = root.filter(|root| root["spec"]["disabled"] != true && !is_child(root)) else { continue };
        for cluster in clusters {
            let child = format!("{namespace}.{name}");
            wanted.insert((cluster.clone(), child.clone()));
            let mut spec = root["spec"].clone();
            if enforced.contains(cluster) {
                spec["remediationAction"] = json!("enforce");
            }
            if view.get(Kind::Policy, cluster, &child).is_some_and(|known| known["spec"] == spec) {
                continue;
            }
            let object = json!({
                "apiVersion": format!("{POLICY}/v1"), "kind": "Policy",
                "metadata": {
                    "name": child, "namespace": cluster, "labels": { ROOT_POLICY: child },
                    "annotations": root["metadata"]["annotations"],
                },
                "spec": spec,
            });
            let (kind, namespace) = (Kind::Policy, cluster.clone());
            let write = Write::Apply { kind, namespace, name: child, object: Some(object), status: None };
            changes.push(change("propagate", knobs.delays.propagate, write));
        }
    }
    for (key, _) in view.of(Kind::Policy).iter().filter(|(key, policy)| is_child(policy) && !wanted.contains(*key)) {
        let write = Write::Delete { kind: Kind::Policy, namespace: key.0.clone(), name: key.1.clone() };
        changes.push(change("propagate", knobs.delays.propagate, write));
    }
    changes
}

/// G6
fn compliance(view: &View, knobs: &Knobs) -> Vec<Change> {
    let mut changes = Vec::new();
    for ((cluster, name), child) in view.of(Kind::Policy).iter().filter(|(_, policy)| is_child(policy)) {
        if knobs.asleep.contains(cluster) {
            continue;
        }
        let root = name.split_once('.').map_or(name.as_str(), |(_, root)| root);
        let key = (cluster.clone(), root.to_owned());
        let known = child["status"]["compliant"].as_str();
        let is_enforced = child["spec"]["remediationAction"] == "enforce"
            && !knobs.stuck.contains(&key)
            && work::is_installed(cluster, child, knobs);
        let (wanted, delay) = match known {
            None if knobs.compliant.contains(&key) => ("Compliant", Duration::ZERO),
            None => ("NonCompliant", Duration::ZERO),
            Some("NonCompliant") if is_enforced => ("Compliant", knobs.delays.comply),
            Some(_) => continue,
        };
        let (kind, namespace, name) = (Kind::Policy, cluster.clone(), name.clone());
        let status = Some(json!({ "compliant": wanted }));
        changes.push(change("comply", delay, Write::Apply { kind, namespace, name, object: None, status }));
    }
    changes
}

/// G5
fn reports(view: &View, knobs: &Knobs, placed: &Placed) -> Vec<Change> {
    let mut changes = Vec::new();
    for ((namespace, name), root) in view.of(Kind::Policy).iter().filter(|(_, policy)| !is_child(policy)) {
        let empty = Default::default();
        let (clusters, enforced) = placed.get(&(namespace.clone(), name.clone())).unwrap_or(&empty);
        let child = |cluster: &str| view.get(Kind::Policy, cluster, &format!("{namespace}.{name}"));
        let said = |cluster: &String| child(cluster).and_then(|child| child["status"]["compliant"].as_str());
        let listed: BTreeSet<&String> = clusters.iter().chain(enforced).collect();
        let status: Vec<Value> = listed
            .into_iter()
            .map(|cluster| entry(cluster, said(cluster).filter(|_| clusters.contains(cluster))))
            .collect();
        if root["status"]["status"].as_array().map_or(&[][..], Vec::as_slice) == status {
            continue;
        }
        let all = |word: &str| clusters.iter().all(|cluster| said(cluster) == Some(word));
        let compliant = if all("Compliant") { "Compliant" } else { "NonCompliant" };
        let (kind, namespace, name) = (Kind::Policy, namespace.clone(), name.clone());
        let status = Some(json!({ "compliant": compliant, "status": status }));
        let write = Write::Apply { kind, namespace, name, object: None, status };
        changes.push(change("report", knobs.delays.report, write));
    }
    changes
}
