//! Which clusters a `ClusterGroupUpgrade` is upgrading, for consumers that let those clusters alone.

use std::collections::BTreeSet;

use kube::ResourceExt;

use super::wire::{UpgradeObject, UpgradeStatus};
use crate::text::sanitize_to;

/// Characters of an upgrade's name in a reason.
const MAX_NAME: usize = 100;

/// The clusters that this upgrade works on, each with a sentence that says so.
pub fn upgrading(upgrade: &UpgradeObject) -> Vec<(String, String)> {
    let (namespace, name) = (upgrade.namespace().unwrap_or_default(), upgrade.name_any());
    let name = sanitize_to(&format!("{namespace}/{name}"), MAX_NAME);
    let detail = format!("ClusterGroupUpgrade {name} is upgrading it");
    active_clusters(&upgrade.status).map(|cluster| (cluster.clone(), detail.clone())).collect()
}

/// Clusters of an upgrade in progress that it has not ended.
fn active_clusters(status: &UpgradeStatus) -> impl Iterator<Item = &String> {
    let active = status.conditions.iter().any(|one| one.type_ == "Progressing" && one.status == "True");
    let done = status.clusters.iter().filter(|one| matches!(one.state.as_str(), "complete" | "timedout"));
    let done: BTreeSet<&str> = done.map(|one| one.name.as_str()).collect();
    status.remediation_plan.iter().flatten().filter(move |name| active && !done.contains(name.as_str()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::read::{self, Foreign as _};

    #[test]
    fn only_clusters_that_an_upgrade_still_works_on_are_active() {
        let upgrade = |progressing: &str| {
            json!({ "metadata": { "name": "wave\u{1b}[1m", "namespace": "ztp" }, "status": {
                "conditions": [{ "type": "Progressing", "status": progressing }],
                "remediationPlan": [["a", "b"], ["c"]],
                "clusters": [{ "name": "a", "state": "complete" }],
            } })
        };
        let of = |object: Value| {
            let text = object.to_string();
            upgrading(&read::json::<UpgradeObject>(text.as_bytes(), &UpgradeObject::LIMITS).unwrap().value)
        };
        let clusters = |object: Value| of(object).into_iter().map(|(cluster, _)| cluster).collect::<Vec<_>>();
        assert_eq!(clusters(upgrade("True")), ["b", "c"]);
        assert_eq!(clusters(upgrade("False")), [""; 0]);
        assert_eq!(clusters(json!({ "status": { "remediationPlan": "x" } })), [""; 0]);
        let detail = of(upgrade("True"));
        assert!(
            detail[0].1.starts_with("ClusterGroupUpgrade ztp/wave") && !detail[0].1.contains('\u{1b}'),
            "{detail:?}"
        );
    }
}
