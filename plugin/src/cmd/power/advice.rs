//! Warnings before a change that may not last, or that no controller completes. Worth a line, never a reason to fail.

use std::collections::{BTreeMap, BTreeSet};

use hub::{HubClient, Resource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use shared::finding::Severity;
use shared::hive::api::ClusterDeployment;
use shared::hive::pool::wanted;
use shared::kinds::{CLUSTER_POOL, Change};
use shared::power::Power;
use shared::text::name_some;
use view::pool::{PoolSnapshot, clusters};
use view::target::Target;

use crate::cmd::power_plan::{PlanResult, PowerRequest};
use crate::output;
use crate::read::reverts;

/// How many targets a sentence names; the rest is counted.
const NAMED: usize = 10;

/// Namespace and name of a pool.
type Key = (String, String);

/// Warns as the rows, the objects and the changes of the targets say.
pub(super) async fn give(request: PowerRequest<'_>, plans: &[PlanResult]) {
    if request.intent.power == Power::Hibernating {
        reverts(request.hub, plans).await;
    }
    others(request, plans).await;
    of_changes(plans);
}

/// What the changes themselves bring along: each sentence once, with all targets that it is about.
fn of_changes(plans: &[PlanResult]) {
    let mut sentences: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for one in plans.iter().flatten() {
        let Ok(Change::Patch { warnings, .. }) = &one.change else { continue };
        for text in warnings {
            sentences.entry(text).or_default().push(one.target.full_name());
        }
    }
    for (text, names) in sentences {
        output::warning(&format!("{}: {text}", name_some(&names, NAMED)));
    }
}

/// Everything that may undo the sleep of the targets by a field that others deploy, also of those that sleep already.
/// None of those that are refused.
async fn reverts(hub: &HubClient, plans: &[PlanResult]) {
    let deployed = plans.iter().flatten().filter(|one| one.change.is_ok() && one.target.row.deployed_field.is_some());
    let targets: Vec<&Target> = deployed.map(|one| &one.target).collect();
    let namespaces = targets.iter().map(|target| target.namespace.clone()).collect();
    let autoscalers = reverts::autoscalers(hub, namespaces).await;
    for found in targets.iter().flat_map(|target| reverts::of(target, &autoscalers)) {
        match found.severity {
            Severity::Info => output::note(&found.sentence),
            _ => output::warning(&found.sentence),
        }
    }
}

/// What others do about the changes. Without clusters that a pool decides about, nothing is asked of the hub.
async fn others(PowerRequest { hub, intent, .. }: PowerRequest<'_>, plans: &[PlanResult]) {
    let mut advised = Vec::new();
    for one in plans.iter().flatten() {
        let target = &one.target;
        let (Ok(Change::Patch { patch, .. }), Ok(read)) = (&one.change, target.row.read(&target.object)) else {
            continue;
        };
        let advice = read.advice(intent, patch);
        if let Some(text) = &advice.unattended {
            output::warning(&format!("{}: {text}", target.full_name()));
        }
        advised.push((target, advice));
    }
    let pools = pools(hub, advised.iter().filter_map(|(_, advice)| advice.pool.as_ref()).collect()).await;
    for (target, advice) in advised {
        let by_pool = advice.pool.and_then(|key| by_pool(target, intent.power, &key, pools.get(&key)));
        if let Some(text) = by_pool.or(advice.undone) {
            output::warning(&format!("{}: {text}", target.full_name()));
        }
    }
}

/// Those pools that can be read.
async fn pools(hub: &HubClient, keys: BTreeSet<&Key>) -> BTreeMap<Key, PoolSnapshot> {
    let mut found = BTreeMap::new();
    if keys.is_empty() {
        return found;
    }
    let Ok(all) = clusters(hub).await else { return found };
    for key @ (namespace, name) in keys {
        if let Ok(object) = hub.get(Resource::preferred(&CLUSTER_POOL.kind), namespace, name).await {
            found.insert(key.clone(), PoolSnapshot::new(hub, &object, &all).await);
        }
    }
    found
}

/// What a pool does about the change, and what to change instead.
fn by_pool(target: &Target, action: Power, (namespace, name): &Key, view: Option<&PoolSnapshot>) -> Option<String> {
    let pool = format!("{namespace}/{name}");
    let Some(view) = view else {
        return Some(format!(
            "ClusterPool {pool} sets the power state of its unclaimed clusters itself and may undo this: change \
             spec.runningCount of the pool, or claim the cluster"
        ));
    };
    let same = |member: &ClusterDeployment| {
        let ObjectMeta { namespace, name, .. } = &member.metadata;
        namespace.as_ref() == Some(&target.namespace) && name.as_ref() == Some(&target.name)
    };
    let wants = wanted(&view.pool, view.waiting, &view.members);
    let (at, (_, wants)) = wants.into_iter().enumerate().find(|(_, (member, _))| same(member))?;
    let count = view.pool.spec.running_count;
    match (action, wants) {
        (Power::Hibernating, Power::Running) if at < view.waiting => Some(format!(
            "ClusterPool {pool} will wake it again, because claims wait for its clusters (now {}): delete them, or put it to sleep \
             once it is claimed",
            view.waiting
        )),
        (Power::Hibernating, Power::Running) => Some(format!(
            "ClusterPool {pool} will wake it again, because it keeps its oldest unclaimed clusters running: lower \
             spec.runningCount of the pool (now {count}), or claim the cluster"
        )),
        (Power::Running, Power::Hibernating) => Some(format!(
            "ClusterPool {pool} will put it to sleep again, because it keeps only its oldest unclaimed clusters running: \
             raise spec.runningCount of the pool (now {count}), or claim the cluster"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use shared::hive::pool::{ClusterPool, ClusterPoolSpec, deciding};
    use shared::kinds::CLUSTER_DEPLOYMENT;

    use super::*;

    fn cluster(name: &str, spec: &Value) -> ClusterDeployment {
        let mut object = json!({
            "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment",
            "metadata": { "name": name, "namespace": name, "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "baseDomain": "d", "clusterName": name, "platform": {} },
        });
        object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        serde_json::from_value(object).unwrap()
    }

    fn target(name: &str) -> Target {
        Target::new(&CLUSTER_DEPLOYMENT, "v1", json!({ "metadata": { "name": name, "namespace": name } }))
    }

    fn pool_key() -> Key {
        ("pools".to_owned(), "small".to_owned())
    }

    #[test]
    fn only_what_will_be_undone_is_warned_of() {
        let own = json!({ "clusterPoolRef": { "namespace": "pools", "poolName": "small" } });
        let members = vec![cluster("a", &own), cluster("b", &own)];
        let pool =
            ClusterPool { spec: ClusterPoolSpec { running_count: 1, ..Default::default() }, ..Default::default() };
        let view = PoolSnapshot { pool, waiting: 0, members };
        let warning = |name: &str, action| by_pool(&target(name), action, &pool_key(), Some(&view));
        assert!(warning("a", Power::Hibernating).unwrap().contains("will wake it again"));
        assert!(warning("b", Power::Running).unwrap().contains("raise spec.runningCount of the pool (now 1)"));
        assert_eq!((warning("a", Power::Running), warning("b", Power::Hibernating)), (None, None));
        let unseen = by_pool(&target("a"), Power::Hibernating, &pool_key(), None).unwrap();
        assert!(unseen.contains("may undo this"), "{unseen}");
    }

    #[test]
    fn what_a_warning_advises_makes_the_change_last() {
        use Power::{Hibernating, Running};
        let own = json!({ "clusterPoolRef": { "namespace": "pools", "poolName": "small" } });
        let warned = |name: &str, action, (running_count, waiting): (u32, usize)| {
            let pool =
                ClusterPool { spec: ClusterPoolSpec { running_count, ..Default::default() }, ..Default::default() };
            let snapshot = PoolSnapshot { pool, waiting, members: vec![cluster("a", &own), cluster("b", &own)] };
            by_pool(&target(name), action, &pool_key(), Some(&snapshot))
        };
        // The count of the pool and the claims that wait, before and after.
        for (name, action, before, advice, after) in [
            ("a", Hibernating, (1, 0), "lower spec.runningCount of the pool (now 1), or claim the cluster", (0, 0)),
            ("b", Hibernating, (1, 1), "lower spec.runningCount of the pool (now 1), or claim the cluster", (0, 1)),
            ("a", Hibernating, (0, 1), "(now 1): delete them, or put it to sleep once it is claimed", (0, 0)),
            ("b", Running, (1, 0), "raise spec.runningCount of the pool (now 1), or claim the cluster", (2, 0)),
        ] {
            let warning = warned(name, action, before).unwrap();
            assert!(warning.ends_with(advice), "{name} {before:?}: {warning}");
            assert_eq!(warned(name, action, after), None, "{name} {before:?}: {warning}");
        }
        let claimed = json!({ "clusterPoolRef": {
            "namespace": "pools", "poolName": "small", "claimName": "c", "claimedTimestamp": "2026-01-02T00:00:00Z",
        } });
        assert!(deciding(&cluster("a", &claimed)).is_none());
    }
}
