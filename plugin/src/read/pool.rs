//! Hive's ClusterPools: what is in them, and what they undo. A pool itself is never put to sleep.

use serde_json::Value;
use shared::{
    hive::{
        api::ClusterDeployment,
        pool::{ClusterPool, is_member},
    },
    workload::kinds::Kind,
};

use crate::{
    api::{Hub, Resource, answer::HubError},
    select::{CLUSTER_DEPLOYMENT, parse::UsageError},
};

/// Hive's kind. `pool` is our own short word for it.
pub(crate) static CLUSTER_POOL: Kind = Kind {
    group: "hive.openshift.io",
    versions: &["v1"],
    kind: "ClusterPool",
    plural: "clusterpools",
    short: &["cp", "pool"],
};

/// A wish for a cluster out of a pool.
pub(crate) static CLUSTER_CLAIM: Kind =
    Kind { group: "hive.openshift.io", versions: &["v1"], kind: "ClusterClaim", plural: "clusterclaims", short: &[] };

pub(crate) fn resource(kind: &'static Kind) -> Resource {
    Resource { kind, version: kind.versions[0] }
}

/// Whether a word names the type.
pub(crate) fn is_pool_word(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    let (name, group) = word.split_once('.').unwrap_or((&word, CLUSTER_POOL.group));
    let known =
        ["clusterpool", "pools"].contains(&name) || name == CLUSTER_POOL.plural || CLUSTER_POOL.short.contains(&name);
    known && (group == CLUSTER_POOL.group || group.strip_prefix("v1.") == Some(CLUSTER_POOL.group))
}

/// Names of pools, if pools were asked for; no name at all means every pool.
///
/// # Errors
/// When pools and other targets are mixed.
pub(crate) fn asked(words: &[String]) -> Result<Option<Vec<String>>, UsageError> {
    let named =
        |word: &String| word.split_once('/').filter(|(type_, _)| is_pool_word(type_)).map(|(_, name)| name.to_owned());
    if let Some((first, rest)) = words.split_first().filter(|(first, _)| is_pool_word(first)) {
        if let Some(other) = rest.iter().find(|word| word.contains('/')) {
            return Err(UsageError::Mixed(first.clone(), other.clone()));
        }
        return Ok(Some(rest.to_vec()));
    }
    let pools: Vec<String> = words.iter().filter_map(named).collect();
    match words.iter().find(|word| named(word).is_none()) {
        _ if pools.is_empty() => Ok(None),
        Some(other) => Err(UsageError::PoolsAndOthers(other.clone())),
        None => Ok(Some(pools)),
    }
}

/// A pool with its clusters.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) pool: ClusterPool,
    /// Claims that no cluster was given to yet.
    pub(crate) waiting: usize,
    pub(crate) members: Vec<ClusterDeployment>,
}

impl Look {
    /// Reads what belongs to a pool, out of all clusters of the hub.
    pub(crate) async fn new(
        hub: &Hub,
        namespace: &str,
        name: &str,
        object: &Value,
        clusters: &[ClusterDeployment],
    ) -> Self {
        let pool = serde_json::from_value(object.clone()).unwrap_or_default();
        let members = clusters.iter().filter(|cluster| is_member(cluster, namespace, name)).cloned().collect();
        // Claims only raise the number of clusters that are kept awake; without the right to see them there are none.
        let claims = hub.list(resource(&CLUSTER_CLAIM), Some(namespace), "", "").await;
        let waiting = claims.map_or(0, |claims| claims.items.iter().filter(|claim| waits(claim, name)).count());
        Self { pool, waiting, members }
    }
}

pub(crate) fn waits(claim: &Value, pool: &str) -> bool {
    let text = |path: &str| claim.pointer(path).and_then(Value::as_str).unwrap_or_default();
    text("/spec/clusterPoolName") == pool
        && text("/spec/namespace").is_empty()
        && text("/metadata/deletionTimestamp").is_empty()
}

/// Every cluster of the hub: those of a pool live in a namespace each.
pub(crate) async fn clusters(hub: &Hub) -> Result<Vec<ClusterDeployment>, HubError> {
    let list = hub.list(resource(&CLUSTER_DEPLOYMENT), None, "", "").await?;
    Ok(list.items.into_iter().filter_map(|object| serde_json::from_value(object).ok()).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn understood(line: &str) -> String {
        let words: Vec<String> = line.split_whitespace().map(Into::into).collect();
        match asked(&words) {
            Ok(None) => "no pools".to_owned(),
            Ok(Some(names)) => format!("[{}]", names.join(" ")),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn pools_are_told_from_other_targets() {
        for (line, expected) in [
            ("", "no pools"),
            ("demo", "no pools"),
            ("cd/pool", "no pools"),
            ("pool/small", "[small]"),
            ("cp/small ClusterPool/big", "[small big]"),
            ("clusterpools.hive.openshift.io/small", "[small]"),
            ("clusterpool.v1.hive.openshift.io/small", "[small]"),
            ("clusterpool.example.com/small", "no pools"),
            ("pool small big", "[small big]"),
            ("pools", "[]"),
            ("cp", "[]"),
        ] {
            assert_eq!(understood(line), expected, "{line}");
        }
        assert!(understood("pool/small demo").contains("not together with \"demo\""));
        assert!(understood("pool small cd/demo").contains("not both"));
    }

    #[test]
    fn a_claim_waits_until_it_has_a_namespace() {
        let claim = |change: Value| {
            let mut claim = json!({ "metadata": {}, "spec": { "clusterPoolName": "small" } });
            claim["spec"].as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            waits(&claim, "small")
        };
        assert!(claim(json!({})) && claim(json!({ "namespace": "" })));
        assert!(!claim(json!({ "namespace": "small-x" })) && !claim(json!({ "clusterPoolName": "big" })));
    }
}
