//! What others of its namespace stop: the children of an object are its operator's to scale.

use std::collections::BTreeSet;

use serde_json::Value;
use shared::kinds::row::Reader;
use shared::object::{items, text};
use view::target::Target;

use crate::cmd::power_plan::PlanResult;

/// Leaves out what an object of the same plans controls or scales. The names of what is left out.
pub(super) fn without_children(plans: Vec<PlanResult>) -> (Vec<PlanResult>, Vec<String>) {
    let (mut uids, mut scaled) = (BTreeSet::new(), BTreeSet::new());
    for target in plans.iter().flatten().map(|one| &one.target) {
        let Reader::Row(row) = target.row.reader else { continue };
        uids.insert(text(&target.object, "/metadata/uid").to_owned());
        let named = row.scales.and_then(|at| target.object.pointer(at)).map(|named| {
            let kind = named["kind"].as_str().unwrap_or("Deployment");
            (kind.to_owned(), text(named, "/name").to_owned())
        });
        scaled.extend(named);
    }
    let is_child = |target: &Target| {
        let owner = items(&target.object, "/metadata/ownerReferences").find(|owner| owner["controller"] == true);
        let is_owned = owner.is_some_and(|owner: &Value| uids.contains(text(owner, "/uid")));
        is_owned || scaled.contains(&(target.row.kind.kind.to_owned(), target.name.clone()))
    };
    let (children, kept): (Vec<_>, Vec<_>) =
        plans.into_iter().partition(|one| one.as_ref().is_ok_and(|plan| is_child(&plan.target)));
    (kept, children.into_iter().flatten().map(|plan| plan.target.full_name()).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::kinds::operators::{CNPG_POOLER, SCALED_OBJECT};
    use shared::kinds::workload::{DEPLOYMENT, STATEFUL_SET};
    use shared::kinds::{Change, TargetKind};

    use super::*;
    use crate::cmd::power_plan::TargetPlan;

    fn plan(row: &'static TargetKind, name: &str, more: &Value) -> TargetPlan {
        let mut object = json!({ "metadata": { "name": name, "namespace": "shop", "uid": name } });
        json_patch::merge(&mut object, more);
        let change = Ok(Change::None { message: String::new(), will_reach: true });
        TargetPlan { target: Target::new(row, "v1", object), change, briefing: None }
    }

    #[test]
    fn what_an_object_controls_or_scales_is_its_own_to_stop() {
        let owned = |uid: &str, controller: bool| json!({ "metadata": { "ownerReferences": [{ "kind": "Pooler", "name": uid, "uid": uid, "controller": controller }] } });
        let plans = vec![
            plan(&CNPG_POOLER, "pool", &json!({})),
            plan(&DEPLOYMENT, "pool-rw", &owned("pool", true)),
            plan(&DEPLOYMENT, "other", &owned("pool", false)),
            plan(&DEPLOYMENT, "unknown", &owned("gone", true)),
            plan(&SCALED_OBJECT, "scaler", &json!({ "spec": { "scaleTargetRef": { "name": "web" } } })),
            plan(
                &SCALED_OBJECT,
                "sets",
                &json!({ "spec": { "scaleTargetRef": { "kind": "StatefulSet", "name": "db" } } }),
            ),
            plan(&DEPLOYMENT, "web", &json!({})),
            plan(&DEPLOYMENT, "db", &json!({})),
            plan(&STATEFUL_SET, "db", &json!({})),
        ];
        let (kept, children) = without_children(plans.into_iter().map(Ok).collect());
        let kept: Vec<String> = kept.iter().flatten().map(|one| one.target.name.clone()).collect();
        assert_eq!(kept, ["pool", "other", "unknown", "scaler", "sets", "db"]);
        assert_eq!(children, ["deployment.apps/pool-rw", "deployment.apps/web", "statefulset.apps/db"]);
    }
}
