//! ClusterPools: which of a pool's clusters its controller keeps awake (docs/reference/hive.md, section 4). Whoever
//! changes one of the others by hand is overruled.

use std::cmp::Reverse;

use serde::Deserialize;

use super::api::{ClusterDeployment, ClusterPoolReference};
use crate::power::Power;

/// What is read of a `ClusterPool`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct ClusterPool {
    /// What is wanted.
    pub spec: ClusterPoolSpec,
    /// What there is.
    pub status: ClusterPoolStatus,
}

/// `spec` of a pool.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterPoolSpec {
    /// How many unclaimed clusters there are to be.
    pub size: u32,
    /// How many of them are kept awake; Hive's default is none.
    pub running_count: u32,
    /// How many clusters there are at most, claimed ones included.
    pub max_size: Option<u32>,
    /// The `hibernateAfter` that new clusters get: a Go duration.
    pub hibernate_after: Option<String>,
}

/// `status` of a pool.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct ClusterPoolStatus {
    /// Unclaimed clusters.
    pub size: u32,
    /// Unclaimed, installed, asleep.
    pub standby: u32,
    /// Unclaimed, installed, running.
    pub ready: u32,
}

/// The pool that decides about this cluster, because it is unclaimed.
pub fn deciding(cluster: &ClusterDeployment) -> Option<&ClusterPoolReference> {
    let pool = cluster.spec.cluster_pool_ref.as_ref()?;
    decides(&pool.pool_name, pool.claim_name.as_deref(), pool.claimed_timestamp.is_some()).then_some(pool)
}

/// Whether the pool of this name decides about a cluster with this claim, which may have a time.
pub fn decides(pool: &str, claim: Option<&str>, has_time: bool) -> bool {
    let is_claimed = claim.is_some_and(|name| !name.is_empty()) && has_time;
    !pool.is_empty() && !is_claimed
}

/// Whether a cluster came from this pool, claimed or not.
pub fn is_member(cluster: &ClusterDeployment, namespace: &str, name: &str) -> bool {
    let pool = cluster.spec.cluster_pool_ref.as_ref();
    pool.is_some_and(|pool| pool.namespace == namespace && pool.pool_name == name)
}

/// What the pool's controller wants of each unclaimed member: the oldest `running_count` plus one for each claim that
/// waits are awake, the rest asleep. Claimed members and those being deleted are left out.
pub fn wanted<'a>(
    pool: &ClusterPool,
    waiting_claims: usize,
    members: &'a [ClusterDeployment],
) -> Vec<(&'a ClusterDeployment, Power)> {
    let awake = usize::try_from(pool.spec.running_count).unwrap_or(usize::MAX).saturating_add(waiting_claims);
    let mut own: Vec<&ClusterDeployment> = members
        .iter()
        .filter(|cluster| deciding(cluster).is_some() && cluster.metadata.deletion_timestamp.is_none())
        .collect();
    // One that has no time yet is the newest.
    own.sort_by_key(|cluster| {
        let created = cluster.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (Reverse(created.map(Reverse)), cluster.metadata.namespace.clone(), cluster.metadata.name.clone())
    });
    let desired = |at| if at < awake { Power::Running } else { Power::Hibernating };
    own.into_iter().enumerate().map(|(at, cluster)| (cluster, desired(at))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn member(name: &str, created: Option<&str>, change: &Value) -> ClusterDeployment {
        let mut object = json!({
            "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment",
            "metadata": { "name": name, "namespace": name, "creationTimestamp": created },
            "spec": {
                "baseDomain": "d", "clusterName": name, "platform": {},
                "clusterPoolRef": { "namespace": "pools", "poolName": "small" },
            },
        });
        for (pointer, value) in change.as_object().into_iter().flatten() {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            object.pointer_mut(parent).unwrap()[key] = value.clone();
        }
        serde_json::from_value(object).unwrap()
    }

    fn names(running_count: u32, waiting: usize, members: &[ClusterDeployment]) -> String {
        let pool = ClusterPool { spec: ClusterPoolSpec { running_count, ..Default::default() }, ..Default::default() };
        let words = wanted(&pool, waiting, members).into_iter().map(|(cluster, desired)| {
            let letter = if desired == Power::Running { "+" } else { "-" };
            format!("{letter}{}", cluster.metadata.name.as_deref().unwrap())
        });
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_oldest_are_kept_awake_and_namespaces_settle_ties() {
        let claimed = json!({ "/spec/clusterPoolRef/claimName": "c", "/spec/clusterPoolRef/claimedTimestamp": "2026-01-09T00:00:00Z" });
        let members = [
            member("d", Some("2026-01-03T00:00:00Z"), &json!({})),
            member("c", Some("2026-01-02T00:00:00Z"), &json!({})),
            member("b", Some("2026-01-02T00:00:00Z"), &json!({})),
            member("young", None, &json!({})),
            member("a", Some("2026-01-01T00:00:00Z"), &claimed),
            member(
                "gone",
                Some("2026-01-01T00:00:00Z"),
                &json!({ "/metadata/deletionTimestamp": "2026-01-09T00:00:00Z" }),
            ),
            member("half", Some("2026-01-04T00:00:00Z"), &json!({ "/spec/clusterPoolRef/claimName": "c" })),
        ];
        for (running_count, waiting, expected) in [
            (0, 0, "-b -c -d -half -young"),
            (1, 0, "+b -c -d -half -young"),
            (1, 1, "+b +c -d -half -young"),
            (9, 0, "+b +c +d +half +young"),
        ] {
            assert_eq!(names(running_count, waiting, &members), expected);
        }
    }

    #[test]
    fn a_claim_counts_with_its_time_only() {
        let half = member("x", None, &json!({ "/spec/clusterPoolRef/claimName": "c" }));
        assert_eq!(deciding(&half).map(|pool| pool.pool_name.as_str()), Some("small"));
        let nameless = member("x", None, &json!({ "/spec/clusterPoolRef/poolName": "" }));
        assert_eq!(deciding(&nameless), None);
        assert!(is_member(&half, "pools", "small") && !is_member(&half, "other", "small"));
    }
}
