//! `status pool/NAME`: a pool's numbers and its clusters.

use hub::text;
use jiff::Timestamp;
use serde::Serialize;
use shared::hive::api::ClusterDeployment;
use shared::hive::pool::{ClusterPool, wanted};
use shared::kinds::{CLUSTER_DEPLOYMENT, CLUSTER_POOL, Record};

use super::{ended, is_table, objects, searched};
use crate::cli::{HubArgs, StatusArgs};
use crate::connect::connect;
use crate::error::{Exit, Problem};
use crate::output;
use crate::output::age::age;
use crate::read::pool::{PoolSnapshot, clusters};

/// One pool in the form that `-o json` documents. Later versions only add fields.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PoolRecord {
    namespace: String,
    name: String,
    size: u32,
    running_count: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_size: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hibernate_after: Option<String>,
    /// Unclaimed, installed, asleep.
    standby: u32,
    /// Unclaimed, installed, running.
    ready: u32,
    /// Claims without a cluster.
    waiting_claims: usize,
    clusters: Vec<MemberRecord>,
}

/// One cluster of a pool.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct MemberRecord {
    #[serde(flatten)]
    record: Record,
    #[serde(skip_serializing_if = "Option::is_none")]
    claim: Option<String>,
    /// The state that the pool's controller wants while it is unclaimed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pool_wants: Option<String>,
}

/// Runs the command for pools.
///
/// # Errors
/// When nothing can be asked at all. Failures of single pools are printed and counted.
pub(crate) async fn run(names: &[String], args: &StatusArgs, hub_args: &HubArgs) -> Result<Exit, Problem> {
    let hub = connect(hub_args)?;
    let (pools, exits) = objects(&hub, &CLUSTER_POOL.kind, names, hub_args).await?;
    let all = if pools.is_empty() { Vec::new() } else { clusters(&hub).await? };
    let mut records = Vec::new();
    for object in &pools {
        let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
        let observation = PoolSnapshot::new(&hub, namespace, name, object, &all).await;
        records.push(record(namespace.to_owned(), name.to_owned(), &observation)?);
    }
    if is_table(args, "PoolStatusList", &CLUSTER_POOL.kind, &records, |record| &record.name) {
        for line in tables(&records, hub_args.all_namespaces, !args.no_headers, Timestamp::now()) {
            output::line(&line);
        }
    }
    Ok(ended(args, records.is_empty(), exits, searched(&hub, hub_args)))
}

fn record(namespace: String, name: String, observation: &PoolSnapshot) -> Result<PoolRecord, Problem> {
    let PoolSnapshot { pool: ClusterPool { spec, status }, waiting, members } = observation;
    let wanted = wanted(&observation.pool, *waiting, members);
    let member = |cluster: &ClusterDeployment| {
        let object = serde_json::to_value(cluster).map_err(Problem::unreadable)?;
        let wants = wanted.iter().find(|(other, _)| std::ptr::eq(*other, cluster));
        let claim = cluster.spec.cluster_pool_ref.as_ref().and_then(|pool| pool.claim_name.clone());
        Ok(MemberRecord {
            record: CLUSTER_DEPLOYMENT.record(&object)?,
            claim: claim.filter(|claim| !claim.is_empty()),
            pool_wants: wants.map(|(_, desired)| desired.to_string()),
        })
    };
    let mut clusters = members.iter().map(member).collect::<Result<Vec<_>, Problem>>()?;
    clusters.sort_by_key(|member| member.record.key());
    Ok(PoolRecord {
        namespace,
        name,
        size: spec.size,
        running_count: spec.running_count,
        max_size: spec.max_size,
        hibernate_after: spec.hibernate_after.clone(),
        standby: status.standby,
        ready: status.ready,
        waiting_claims: *waiting,
        clusters,
    })
}

static POOL: [&str; 8] =
    ["NAMESPACE", "NAME", "SIZE", "STANDBY", "READY", "RUNNING-COUNT", "WAITING-CLAIMS", "HIBERNATE-AFTER"];
static CLUSTER: [&str; 8] = ["POOL", "NAMESPACE", "NAME", "DESIRED", "STATE", "SINCE", "POOL-WANTS", "CLAIM"];

/// The pools, and below them the clusters of all.
fn tables(records: &[PoolRecord], namespaces: bool, headers: bool, now: Timestamp) -> Vec<String> {
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
    let clusters = clusters.map(|(pool, MemberRecord { record, claim, pool_wants })| {
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
    if records.iter().any(|pool| !pool.clusters.is_empty()) {
        lines.push(String::new());
        lines.extend(output::table(head(&CLUSTER), clusters));
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

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
        let record = record("pools".to_owned(), "small".to_owned(), &observation).unwrap();
        let now = "2026-01-01T03:00:00Z".parse().unwrap();
        assert_eq!(
            tables(&[record], false, true, now),
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
