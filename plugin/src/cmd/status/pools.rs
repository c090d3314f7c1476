//! `status pool/NAME`: a pool's numbers and its clusters.

use futures::future::join_all;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use shared::hive::api::ClusterDeployment;
use shared::hive::pool::{ClusterPool, wanted};
use shared::target::{CLUSTER_DEPLOYMENT, CLUSTER_POOL, Record};

use crate::api::error::HubError;
use crate::api::{Hub, Resource};
use crate::cli::{HubArgs, StatusArgs, StatusOutput};
use crate::error::{Exit, Failure, Problem, ResolveError, UsageError};
use crate::output::age::age;
use crate::output::{self, nothing_found};
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
    if hub_args.all_namespaces && !names.is_empty() {
        return Err(UsageError::NameInAllNamespaces.into());
    }
    let hub = Hub::connect(hub_args).await?;
    let namespace = (!hub_args.all_namespaces).then_some(hub.namespace.as_str());
    let (mut pools, mut exits) = (Vec::new(), Vec::new());
    if names.is_empty() {
        let labels = hub_args.selector.as_deref().unwrap_or_default();
        pools = hub.list(Resource::preferred(&CLUSTER_POOL.kind), namespace, "", labels).await?.items;
    } else {
        let looks = names.iter().map(|name| hub.get(Resource::preferred(&CLUSTER_POOL.kind), &hub.namespace, name));
        for (name, found) in names.iter().zip(join_all(looks).await) {
            match found {
                Ok(pool) => pools.push(pool),
                Err(error) => {
                    let what = CLUSTER_POOL.kind.full_name(name);
                    let failure = Failure::new(what.clone(), missing(error, what, &hub.namespace));
                    exits.push(failure.problem.exit());
                    output::error(&failure.to_string());
                }
            }
        }
    }
    let all = if pools.is_empty() { Vec::new() } else { clusters(&hub).await? };
    let mut records = Vec::new();
    for object in &pools {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        let look = PoolSnapshot::new(&hub, &namespace, &name, object, &all).await;
        records.push(record(namespace, name, &look)?);
    }
    show(&records, args, hub_args.all_namespaces);
    if records.is_empty() && exits.is_empty() && matches!(args.output, StatusOutput::Table | StatusOutput::Wide) {
        output::note(&nothing_found(namespace));
    }
    Ok(Exit::of(exits))
}

/// A pool that is not there is said not to be in its namespace, as any target.
fn missing(error: HubError, what: String, namespace: &str) -> Problem {
    match error {
        HubError::NoObject { .. } => {
            ResolveError::NotFound { what, namespace: Some(namespace.to_owned()), hint: String::new() }.into()
        }
        error => error.into(),
    }
}

fn record(namespace: String, name: String, look: &PoolSnapshot) -> Result<PoolRecord, Problem> {
    let PoolSnapshot { pool: ClusterPool { spec, status }, waiting, members } = look;
    let wanted = wanted(&look.pool, *waiting, members);
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

fn show(records: &[PoolRecord], args: &StatusArgs, namespaces: bool) {
    let list = json!({ "apiVersion": "hibernate.sh/v1alpha1", "kind": "PoolStatusList", "items": records });
    match args.output {
        StatusOutput::Json => output::text(&output::json(&list)),
        StatusOutput::Yaml => output::text(&output::yaml(&list)),
        StatusOutput::Name => {
            for record in records {
                output::line(&CLUSTER_POOL.kind.full_name(&record.name));
            }
        }
        StatusOutput::Table | StatusOutput::Wide => {
            for line in tables(records, namespaces, !args.no_headers, Timestamp::now()) {
                output::line(&line);
            }
        }
    }
}

/// The pools, and below them the clusters of all.
fn tables(records: &[PoolRecord], namespaces: bool, headers: bool, now: Timestamp) -> Vec<String> {
    if records.is_empty() {
        return Vec::new();
    }
    let or_dash = |text: Option<&str>| text.filter(|text| !text.is_empty()).unwrap_or("-").to_owned();
    let header = |words: &str| words.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let mut pools = vec![header("NAMESPACE NAME SIZE STANDBY READY RUNNING-COUNT WAITING-CLAIMS HIBERNATE-AFTER")];
    let mut members = vec![header("POOL NAMESPACE NAME DESIRED STATE SINCE POOL-WANTS CLAIM")];
    for pool in records {
        pools.push(vec![
            pool.namespace.clone(),
            pool.name.clone(),
            pool.size.to_string(),
            pool.standby.to_string(),
            pool.ready.to_string(),
            pool.running_count.to_string(),
            pool.waiting_claims.to_string(),
            or_dash(pool.hibernate_after.as_deref()),
        ]);
        members.extend(pool.clusters.iter().map(|MemberRecord { record, claim, pool_wants }| {
            vec![
                pool.name.clone(),
                record.namespace.clone(),
                record.name.clone(),
                record.desired.clone(),
                or_dash(Some(&record.observed)),
                record.since.map_or_else(|| "-".to_owned(), |since| age(since, now)),
                or_dash(pool_wants.as_deref()),
                or_dash(claim.as_deref()),
            ]
        }));
    }
    if !namespaces {
        for row in &mut pools {
            row.remove(0);
        }
    }
    let skip = usize::from(!headers);
    let mut lines: Vec<String> = output::aligned(&pools).into_iter().skip(skip).collect();
    if members.len() > 1 {
        lines.push(String::new());
        lines.extend(output::aligned(&members).into_iter().skip(skip));
    }
    lines
}

#[cfg(test)]
mod tests {
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
        let look = PoolSnapshot {
            pool: serde_json::from_value(pool).unwrap(),
            waiting: 0,
            members: vec![cluster("small-c", claimed), cluster("small-b", json!({})), cluster("small-a", json!({}))],
        };
        let record = record("pools".to_owned(), "small".to_owned(), &look).unwrap();
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
