//! Warnings before a change that a pool or `hibernateAfter` will undo, or that no controller completes.

use std::collections::BTreeMap;

use hub::{HubClient, Resource};
use jiff::Timestamp;
use shared::annotation::format;
use shared::hive::api::ClusterDeployment;
use shared::hive::conditions::PROGRESS;
use shared::hive::pool::{deciding, wanted};
use shared::hive::preflight::PREFLIGHT;
use shared::kinds::{CLUSTER_POOL, Change, Intent};
use shared::power::Power;
use view::pool::{PoolSnapshot, clusters};

use super::plan::Planned;
use crate::output;

/// Warns of every cluster whose change will not last, once. Without unclaimed clusters nothing is asked of the hub.
pub(super) async fn warn(hub: &HubClient, intent: &Intent<'_>, planned: &[&Planned]) {
    let (action, end) = (intent.power, intent.end);
    let mut undone: Vec<(String, ClusterDeployment)> = Vec::new();
    for Planned { target, change, .. } in planned {
        let Ok(Change::Patch { patch, .. }) = change else { continue };
        let Ok(cluster) = serde_json::from_value::<ClusterDeployment>(target.object.clone()) else {
            continue;
        };
        let unattended = unattended(&cluster, action, end);
        if let Some(text) = &unattended {
            output::warning(&format!("{}: {text}", target.full_name()));
        }
        let unheld = action == Power::Running && unattended.is_some();
        if unheld || patch.pointer("/spec/powerState").is_some() {
            undone.push((target.full_name(), cluster));
        }
    }
    by_others(hub, action, end, &undone).await;
}

/// Warns of what a pool or `hibernateAfter` undoes.
async fn by_others(hub: &HubClient, action: Power, hold: Option<Timestamp>, changing: &[(String, ClusterDeployment)]) {
    let mut views: BTreeMap<(String, String), Option<PoolSnapshot>> = BTreeMap::new();
    let pools = changing.iter().filter_map(|(_, cluster)| deciding(cluster));
    let mut keys: Vec<_> = pools.map(|pool| (pool.namespace.clone(), pool.pool_name.clone())).collect();
    keys.sort();
    keys.dedup();
    if !keys.is_empty() {
        let all = clusters(hub).await;
        for key in keys {
            let object = hub.get(Resource::preferred(&CLUSTER_POOL.kind), &key.0, &key.1).await;
            let view = match (&object, &all) {
                (Ok(object), Ok(all)) => Some(PoolSnapshot::new(hub, &key.0, &key.1, object, all).await),
                _ => None,
            };
            views.insert(key, view);
        }
    }
    for (name, cluster) in changing {
        let text = match deciding(cluster) {
            Some(pool) => {
                let view = views.get(&(pool.namespace.clone(), pool.pool_name.clone())).and_then(Option::as_ref);
                by_pool(cluster, action, &format!("{}/{}", pool.namespace, pool.pool_name), view)
            }
            None => by_clock(cluster, action, hold),
        };
        if let Some(text) = text {
            output::warning(&format!("{name}: {text}"));
        }
    }
}

/// What a pool does about the change, and what to change instead.
fn by_pool(cluster: &ClusterDeployment, action: Power, pool: &str, view: Option<&PoolSnapshot>) -> Option<String> {
    let Some(view) = view else {
        return Some(format!(
            "ClusterPool {pool} sets the power state of its unclaimed clusters itself and may undo this: change \
             spec.runningCount of the pool, or claim the cluster"
        ));
    };
    let same = |other: &ClusterDeployment| {
        other.metadata.namespace == cluster.metadata.namespace && other.metadata.name == cluster.metadata.name
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

/// Warns about an end time if only Hive's own controller runs, which supports none.
fn unattended(cluster: &ClusterDeployment, action: Power, end: Option<Timestamp>) -> Option<String> {
    let end = format::seconds(end.filter(|_| !is_attended(cluster))?);
    let missing = match action {
        Power::Hibernating => format!("it does not wake at {end}"),
        Power::Running => format!("only the admission webhook, if installed, enforces the hold until {end}"),
    };
    Some(format!("no sign that hibernate-controller manages it: without the controller, {missing}"))
}

/// Whether our controller has ever written to it: these conditions are its own.
fn is_attended(cluster: &ClusterDeployment) -> bool {
    [PROGRESS, PREFLIGHT].iter().any(|ours| cluster.condition(ours).is_some())
}

/// What `hibernateAfter` does about a wake. Hive's own controller ignores holds.
fn by_clock(cluster: &ClusterDeployment, action: Power, hold: Option<Timestamp>) -> Option<String> {
    let held = hold.is_some() && is_attended(cluster);
    let after = cluster.spec.hibernate_after.as_deref().filter(|_| action == Power::Running && !held)?;
    Some(format!(
        "spec.hibernateAfter puts it to sleep again {after} after it is running; raise or remove it if that is too soon"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use shared::hive::pool::{ClusterPool, ClusterPoolSpec};

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

    #[test]
    fn only_what_will_be_undone_is_warned_of() {
        let own = json!({ "clusterPoolRef": { "namespace": "pools", "poolName": "small" } });
        let members = vec![cluster("a", &own), cluster("b", &own)];
        let pool =
            ClusterPool { spec: ClusterPoolSpec { running_count: 1, ..Default::default() }, ..Default::default() };
        let view = PoolSnapshot { pool, waiting: 0, members };
        let warning = |name: &str, action| by_pool(&cluster(name, &own), action, "pools/small", Some(&view));
        assert!(warning("a", Power::Hibernating).unwrap().contains("will wake it again"));
        assert!(warning("b", Power::Running).unwrap().contains("raise spec.runningCount of the pool (now 1)"));
        assert_eq!((warning("a", Power::Running), warning("b", Power::Hibernating)), (None, None));
        let unseen = by_pool(&cluster("a", &own), Power::Hibernating, "pools/small", None).unwrap();
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
            by_pool(&cluster(name, &own), action, "pools/small", Some(&snapshot))
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

    #[test]
    fn a_wake_that_ends_by_itself_is_warned_of() {
        let timed = cluster("a", &json!({ "hibernateAfter": "8h" }));
        assert!(by_clock(&timed, Power::Running, None).unwrap().contains("again 8h after"));
        assert_eq!(by_clock(&timed, Power::Hibernating, None), None);
        let hold = Some(Timestamp::UNIX_EPOCH);
        assert!(by_clock(&timed, Power::Running, hold).is_some(), "nobody heeds the hold");
        assert_eq!(by_clock(&attended(timed, PREFLIGHT), Power::Running, hold), None, "a hold was given");
        assert_eq!(by_clock(&cluster("a", &json!({})), Power::Running, None), None);
    }

    fn attended(mut cluster: ClusterDeployment, type_: &str) -> ClusterDeployment {
        let condition = serde_json::from_value(json!({ "type": type_, "status": "True" })).unwrap();
        cluster.status.get_or_insert_default().conditions.push(condition);
        cluster
    }

    #[test]
    fn an_end_that_nobody_may_act_on_is_warned_of() {
        let end = Some("2026-11-22T08:00:00Z".parse().unwrap());
        let plain = cluster("a", &json!({}));
        assert!(
            unattended(&plain, Power::Hibernating, end).unwrap().ends_with("it does not wake at 2026-11-22T08:00:00Z")
        );
        assert!(
            unattended(&plain, Power::Running, end).unwrap().ends_with("enforces the hold until 2026-11-22T08:00:00Z")
        );
        assert_eq!(unattended(&plain, Power::Hibernating, None), None);
        let hives = attended(plain.clone(), "Hibernating");
        assert!(unattended(&hives, Power::Hibernating, end).is_some(), "Hive writes that one too");
        for ours in [PROGRESS, PREFLIGHT] {
            assert_eq!(unattended(&attended(plain.clone(), ours), Power::Hibernating, end), None);
        }
    }
}
