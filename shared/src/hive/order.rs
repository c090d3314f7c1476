//! The order in which Hive keeps a cluster's conditions: failing first, healthy next, Unknown last, each by name.
//!
//! Hive's own controllers read the first condition as the overall health, so a write of ours keeps the order.

use serde_json::{Value, json};

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
