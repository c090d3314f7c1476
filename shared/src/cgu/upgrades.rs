//! What a `ClusterGroupUpgrade` of TALM says about clusters.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::text::sanitize_to;

/// Longest name of an upgrade in a reason, in characters.
const MAX_NAME: usize = 100;

/// The clusters that this upgrade works on, each with what to say of that. `object`: its status is read.
pub fn upgrading(namespace: &str, name: &str, object: &Value) -> Vec<(String, String)> {
    let name = sanitize_to(&format!("{namespace}/{name}"), MAX_NAME);
    let detail = format!("ClusterGroupUpgrade {name} is upgrading it");
    active_clusters(object).into_iter().map(|cluster| (cluster, detail.clone())).collect()
}

/// The clusters of an upgrade that is under way, without those that it has completed.
fn active_clusters(upgrade: &Value) -> Vec<String> {
    let texts = |value: &Value| value.as_str().map(str::to_owned);
    let list = |path: &str| upgrade.pointer(path).and_then(Value::as_array).into_iter().flatten();
    let is_progressing = |condition: &Value| condition["type"] == "Progressing" && condition["status"] == "True";
    let active = list("/status/conditions").any(is_progressing);
    let completed = |cluster: &Value| cluster["state"] == "complete" || cluster["state"] == "timedout";
    let done: BTreeSet<String> =
        list("/status/clusters").filter(|one| completed(one)).filter_map(|one| texts(&one["name"])).collect();
    let planned = list("/status/remediationPlan").filter_map(Value::as_array).flatten().filter_map(texts);
    planned.filter(|name| active && !done.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_clusters_that_an_upgrade_still_works_on_are_active() {
        let upgrade = |progressing: &str| {
            json!({ "status": {
                "conditions": [{ "type": "Progressing", "status": progressing }],
                "remediationPlan": [["a", "b"], ["c"]],
                "clusters": [{ "name": "a", "state": "complete" }],
            } })
        };
        assert_eq!(active_clusters(&upgrade("True")), ["b", "c"]);
        assert_eq!(active_clusters(&upgrade("False")), [""; 0]);
        assert_eq!(active_clusters(&json!({ "status": { "remediationPlan": "x" } })), [""; 0]);
        let detail = upgrading("ztp", "wave\u{1b}[1m", &upgrade("True"));
        assert!(
            detail[0].1.starts_with("ClusterGroupUpgrade ztp/wave") && !detail[0].1.contains('\u{1b}'),
            "{detail:?}"
        );
    }
}
