//! The preflight: before each sleep, and when a user asks for it by annotation. [`shared::kkp::decide::preflight`]
//! judges.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use shared::annotation::{format, keys as common};
use shared::finding::Finding;
use shared::hive::preflight::AGAIN;
use shared::kkp::api::{Cluster, Condition};
use shared::kkp::data::Preflight;
use shared::kkp::decide::preflight::{self, Facts};
use shared::kkp::phase::Phase;
use shared::text::sanitize;
use tokio::time::Instant;

use super::machinery::{Seen, count, for_preflight, numbers};
use super::seed::Seed;
use super::{Kkp, patches};
use crate::runtime::hub::as_controller;
use crate::runtime::{Guarded, clock};

/// The request for a preflight that has no answer yet.
pub fn requested(cluster: &Cluster) -> Option<&str> {
    let requested = cluster.annotations().get(common::PREFLIGHT_REQUESTED_AT)?;
    format::time(requested)?; // nothing else is repeated in an answer
    Preflight::answer(cluster, requested).is_none().then_some(requested)
}

/// How long a request waits: a user cluster is checked again after this time, however often somebody asks.
pub fn left(last: Option<Instant>) -> Duration {
    last.map_or(Duration::ZERO, |at| AGAIN.saturating_sub(at.elapsed()))
}

/// The condition that answers a request.
pub fn answer(cluster: &Cluster, requested: &str, findings: &[Finding], user: &Seen) -> Condition {
    let machinery = user.as_ref().ok().map(|user| &user.machinery);
    let deployments = machinery.iter().flat_map(|machinery| &machinery.deployments);
    Preflight {
        requested: requested.to_owned(),
        at: clock::now(),
        findings: findings.to_vec(),
        left_out: 0,
        pods: machinery.map_or(0, |machinery| count(machinery.pods.len())),
        numbers: numbers(user),
        machine_deployments: deployments.map(|one| (sanitize(&one.name), one.replicas)).collect(),
        quota: quota(cluster),
    }
    .condition()
}

fn quota(cluster: &Cluster) -> BTreeMap<String, String> {
    let usage = cluster.status.as_ref().and_then(|status| status.resource_usage.clone()).unwrap_or_default();
    let used = [("cpu", usage.cpu), ("memory", usage.memory), ("storage", usage.storage)];
    used.into_iter().filter_map(|(resource, used)| Some((resource.to_owned(), sanitize(&used?)))).collect()
}

/// What stands in the way of a sleep, with KKP's answer to a dry run of the pause (row 28).
pub async fn findings(kkp: &Kkp, cluster: &Cluster, recorded: Option<Phase>, seed: &Seed, user: &Seen) -> Vec<Finding> {
    let api: Api<Guarded<Cluster>> = Api::all(kkp.handle.hub.client.clone());
    let dry_run = PatchParams { dry_run: true, ..as_controller() };
    let answer = api.patch(&cluster.name_any(), &dry_run, &Patch::Merge(patches::pause(cluster, None, None))).await;
    let refusal = answer.err().map(|error| match error {
        kube::Error::Api(status) => sanitize(&status.message),
        other => sanitize(&other),
    });
    let pause = refusal.as_deref().map_or(Ok(()), Err);
    let worker_name = kkp.settings.worker_name.as_str();
    let (control_plane, user) = (seed.workloads.as_slice(), for_preflight(user));
    preflight::findings(&Facts { cluster, worker_name, recorded, pause, control_plane, user })
}

#[cfg(test)]
mod tests {
    use shared::kkp::api::{ClusterSpec, ClusterStatus};
    use shared::kkp::data::PREFLIGHT;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_user_cluster_is_not_checked_again_at_once() {
        let checked_at = Instant::now();
        assert_eq!((left(None), left(Some(checked_at))), (Duration::ZERO, AGAIN));
        tokio::time::sleep(Duration::from_secs(14)).await;
        assert_eq!(left(Some(checked_at)), Duration::from_secs(1));
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(left(Some(checked_at)), Duration::ZERO);
    }

    #[test]
    fn a_request_stands_until_it_is_answered() {
        let mut cluster = Cluster::new("abc", ClusterSpec::default());
        assert_eq!(requested(&cluster), None);
        let annotated = |at: &str| Some([(common::PREFLIGHT_REQUESTED_AT.to_owned(), at.to_owned())].into());
        cluster.metadata.annotations = annotated("now, please");
        assert_eq!(requested(&cluster), None);
        let at = "2026-11-22T18:00:00Z";
        cluster.metadata.annotations = annotated(at);
        assert_eq!(requested(&cluster), Some(at));
        let condition = answer(&cluster, at, &[], &Err("refused".into()));
        let conditions = [(PREFLIGHT.to_owned(), condition)].into();
        cluster.status = Some(ClusterStatus { conditions, ..ClusterStatus::default() });
        assert_eq!(requested(&cluster), None);
        cluster.metadata.annotations = annotated("2026-11-22T18:00:01Z");
        assert!(requested(&cluster).is_some());
    }
}
