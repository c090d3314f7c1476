//! The patch that puts conditions into a cluster's status and leaves everything else there as it is.
//!
//! It keeps the order in which Hive keeps a cluster's conditions: failing first, healthy next, Unknown last, each by
//! name. Hive's own controllers read the first condition as the overall health.

use serde_json::{Value, json};

use super::api::{ClusterDeployment, Condition};

/// The JSON patch for the status subresource that puts `new` in place of the conditions of the same types and sets
/// `status.powerState`, or `None` if there is nothing to put.
///
/// It edits the array of conditions by index and leaves it in Hive's order, so it begins with a test of the
/// resourceVersion: the API server answers 422 if another client wrote in between.
pub fn status(cluster: &ClusterDeployment, new: Vec<Condition>, power_state: Option<&str>) -> Option<Value> {
    if new.is_empty() && power_state.is_none() {
        return None;
    }
    let old = || cluster.status.iter().flat_map(|status| &status.conditions);
    let mut order: Vec<_> = old().map(kind).collect();
    let (mut edits, mut added) = (Vec::new(), Vec::new());
    for new in new {
        if let Some(index) = old().position(|old| old.type_ == new.type_) {
            order[index] = kind(&new);
            edits.push(json!({"op": "replace", "path": format!("/status/conditions/{index}"), "value": new}));
        } else {
            order.push(kind(&new));
            added.push(new);
        }
    }
    let version = &cluster.metadata.resource_version;
    let mut patch = vec![json!({"op": "test", "path": "/metadata/resourceVersion", "value": version})];
    match &cluster.status {
        None => patch.push(json!({"op": "add", "path": "/status", "value": {"conditions": added}})),
        Some(status) if status.conditions.is_empty() => {
            patch.push(json!({"op": "add", "path": "/status/conditions", "value": added}));
        }
        Some(_) => {
            let append = |new| json!({"op": "add", "path": "/status/conditions/-", "value": new});
            patch.extend(edits.into_iter().chain(added.into_iter().map(append)));
        }
    }
    patch.extend(moves(&mut order));
    patch.extend(power_state.map(|value| json!({"op": "add", "path": "/status/powerState", "value": value})));
    Some(Value::Array(patch))
}

/// Type and status, by which conditions are put in order.
fn kind(condition: &Condition) -> (String, String) {
    (condition.type_.clone(), condition.status.clone())
}

/// Types whose healthy status is `True`; of all others it is `False` (docs/reference/hive.md, section 1.4; Hive's list
/// of positive polarity).
const POSITIVE: &[&str] = &[
    "AWSPrivateLinkReady",
    "ActiveAPIURLOverride",
    "ClusterInstallCompleted",
    "ClusterInstallRequirementsMet",
    "Hibernating",
    "Provisioned",
    "Ready",
    "RequirementsMet",
];

fn rank<'a>(type_: &'a str, status: &str) -> (u8, &'a str) {
    let group = match (status, POSITIVE.contains(&type_)) {
        ("Unknown", _) => 2,
        ("True", true) | ("False", false) => 1,
        _ => 0,
    };
    (group, type_)
}

/// JSON patch operations that bring conditions, given as type and status, from the order they are in to Hive's.
pub(super) fn moves(conditions: &mut [(String, String)]) -> Vec<Value> {
    let mut moves = Vec::new();
    for to in 0..conditions.len() {
        let first = (to..conditions.len()).min_by_key(|&at| rank(&conditions[at].0, &conditions[at].1));
        if let Some(from) = first.filter(|from| *from != to) {
            conditions[to..=from].rotate_right(1);
            let path = |at| format!("/status/conditions/{at}");
            moves.push(json!({"op": "move", "from": path(from), "path": path(to)}));
        }
    }
    moves
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(conditions: &[(&str, &str)]) -> (Vec<String>, usize) {
        let mut found: Vec<_> = conditions.iter().map(|(t, s)| ((*t).to_owned(), (*s).to_owned())).collect();
        let document = json!({"status": {"conditions": conditions.iter().map(|(t, _)| t).collect::<Vec<_>>()}});
        let moves = moves(&mut found);
        let patch: json_patch::Patch = serde_json::from_value(json!(moves)).unwrap();
        let mut patched = document;
        json_patch::patch(&mut patched, &patch).unwrap();
        let order: Vec<String> = found.into_iter().map(|(type_, _)| type_).collect();
        assert_eq!(patched["status"]["conditions"], json!(order), "the moves do what the order says");
        (order, moves.len())
    }

    #[test]
    fn failing_first_healthy_next_unknown_last_each_by_name() {
        // A sleeping cluster: H True is healthy, R False is not.
        let asleep = [("Provisioned", "True"), ("Hibernating", "True"), ("Unreachable", "Unknown"), ("Ready", "False")];
        assert_eq!(sorted(&asleep).0, ["Ready", "Hibernating", "Provisioned", "Unreachable"]);
        let awake =
            [("Hibernating", "False"), ("Unreachable", "True"), ("ProvisionFailed", "False"), ("Ready", "True")];
        assert_eq!(sorted(&awake), (awake.map(|(type_, _)| type_.to_owned()).to_vec(), 0), "nothing to move");
    }
}
