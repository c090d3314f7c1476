//! Pools as a person reads them.

use jiff::Timestamp;
use view::age::age;
use view::pool::{PoolMember, PoolState};

use super::table_below;
use crate::output;

static POOL: [&str; 8] =
    ["NAMESPACE", "NAME", "SIZE", "STANDBY", "READY", "RUNNING-COUNT", "WAITING-CLAIMS", "HIBERNATE-AFTER"];
static CLUSTER: [&str; 8] = ["POOL", "NAMESPACE", "NAME", "DESIRED", "STATE", "SINCE", "POOL-WANTS", "CLAIM"];

/// The pools, and below them the clusters of all.
pub(super) fn tables(records: &[&PoolState], namespaces: bool, headers: bool, now: Timestamp) -> Vec<String> {
    if records.is_empty() {
        return Vec::new();
    }
    let pools = records.iter().map(|pool| {
        let mut cells = vec![
            pool.name.clone(),
            pool.size.to_string(),
            pool.standby.to_string(),
            pool.ready.to_string(),
            pool.running_count.to_string(),
            pool.waiting_claims.to_string(),
            pool.hibernate_after.clone().unwrap_or_default(),
        ];
        if namespaces {
            cells.insert(0, pool.namespace.clone());
        }
        cells
    });
    let clusters = records.iter().flat_map(|pool| pool.clusters.iter().map(move |cluster| (pool, cluster)));
    let clusters = clusters.map(|(pool, PoolMember { record, claim, pool_wants })| {
        vec![
            pool.name.clone(),
            record.namespace.clone(),
            record.name.clone(),
            record.desired.clone(),
            record.observed.clone(),
            record.since.map(|since| age(since, now)).unwrap_or_default(),
            pool_wants.clone().unwrap_or_default(),
            claim.clone().unwrap_or_default(),
        ]
    });
    let head = |all: &'static [&'static str]| if headers { all } else { &[] };
    let mut lines = output::table(head(&POOL[usize::from(!namespaces)..]), pools);
    lines.extend(table_below(head(&CLUSTER), clusters));
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use view::pool::PoolSnapshot;

    use super::*;

    #[test]
    fn a_pool_stands_above_its_clusters() {
        let cluster = |name: &str, change: Value| {
            let mut object = json!({
                "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment",
                "metadata": { "name": name, "namespace": name, "creationTimestamp": "2026-01-01T00:00:00Z" },
                "spec": {
                    "baseDomain": "d", "clusterName": name, "platform": {}, "installed": true,
                    "clusterPoolRef": { "namespace": "pools", "poolName": "small" },
                },
                "status": { "powerState": "Running", "conditions": [
                    { "type": "Ready", "status": "True", "reason": "Running", "lastTransitionTime": "2026-01-01T00:00:00Z" },
                ] },
            });
            object["spec"]["clusterPoolRef"].as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            serde_json::from_value(object).unwrap()
        };
        let pool = json!({
            "spec": { "size": 2, "runningCount": 1, "hibernateAfter": "8h" },
            "status": { "size": 2, "ready": 2, "standby": 0 },
        });
        let claimed = json!({ "claimName": "mine", "claimedTimestamp": "2026-01-01T00:00:00Z" });
        let observation = PoolSnapshot {
            pool: serde_json::from_value(pool).unwrap(),
            waiting: 0,
            members: vec![cluster("small-c", claimed), cluster("small-b", json!({})), cluster("small-a", json!({}))],
        };
        let record = PoolState::new("pools", "small", &observation).unwrap();
        let now = "2026-01-01T03:00:00Z".parse().unwrap();
        assert_eq!(
            tables(&[&record], false, true, now),
            [
                "NAME    SIZE   STANDBY   READY   RUNNING-COUNT   WAITING-CLAIMS   HIBERNATE-AFTER",
                "small   2      0         2       1               0                8h",
                "",
                "POOL    NAMESPACE   NAME      DESIRED   STATE     SINCE   POOL-WANTS    CLAIM",
                "small   small-a     small-a   Running   Running   3h      Running       -",
                "small   small-b     small-b   Running   Running   3h      Hibernating   -",
                "small   small-c     small-c   Running   Running   3h      -             mine",
            ]
        );
    }
}
