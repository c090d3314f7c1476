//! Names and selectors of a rollout: up to thousands, a megabyte of a tenant's text. The watch keeps none of it. A
//! reconcile loads it and keeps it until the rollout starts.

use std::sync::Arc;
use std::time::Duration;

use shared::rollout::api::{PowerRollout, PowerRolloutSpec, Targets};
use tokio::time::Instant;

use super::{Rollouts, STAMP};
use crate::runtime::{Class, ReconcileError, Reconciled};

/// Largest selection that is kept between two reconciles, in bytes: fifty paused rollouts must not fill the memory.
const MAX_KEPT: usize = 32 * 1024;
/// How long the result for a larger selection is cached: that rollout is paused, early, or selects too much or nothing.
const RESULT_TTL: Duration = Duration::from_secs(30);

/// Leaves out what a rollout selects by, and metadata that no decision reads.
pub fn trim(rollout: &mut PowerRollout) {
    let meta = &mut rollout.metadata;
    (meta.labels, meta.owner_references, meta.finalizers) = (None, None, None);
    if let Some(annotations) = &mut meta.annotations {
        annotations.retain(|key, _| STAMP.contains(&key.as_str()));
    }
    let spec = &mut rollout.spec;
    spec.targets = Targets { kind: std::mem::take(&mut spec.targets.kind), ..Targets::default() };
    for group in &mut spec.groups {
        (group.selector, group.names) = (None, Vec::new());
    }
}

/// What one rollout selects by.
#[derive(Default)]
pub struct Selection {
    /// The rollout with it, unless that is large.
    kept: Option<Arc<PowerRollout>>,
    /// Of a large one: the generation that was judged, and until when that stands.
    judged: Option<(Option<i64>, Instant)>,
}

impl Selection {
    /// The rollout with what it selects by.
    pub async fn of(&mut self, rollouts: &Rollouts, rollout: &PowerRollout) -> Reconciled<Arc<PowerRollout>> {
        let is_it = |kept: &PowerRollout| {
            let (kept, own) = (&kept.metadata, &rollout.metadata);
            kept.uid == own.uid && kept.generation == own.generation
        };
        let kept = self.kept.take().filter(|kept| is_it(kept));
        let is_kept = kept.is_some();
        let mut whole = if let Some(kept) = kept {
            kept
        } else {
            let found = rollouts.handle.hub.find(rollout).await;
            let found = found.map_err(ReconcileError::read("the rollout"))?;
            // The watch is late.
            let moved = || ReconcileError::new("Moved", Class::Outdated, "the rollout has changed");
            Arc::new(found.filter(is_it).ok_or_else(moved)?)
        };
        let own = Arc::make_mut(&mut whole);
        (own.metadata, own.status) = (rollout.metadata.clone(), rollout.status.clone());
        if is_kept || is_small(&own.spec) {
            self.kept = Some(whole.clone());
        } else {
            self.judged = Some((rollout.metadata.generation, Instant::now()));
        }
        Ok(whole)
    }

    /// Caches the result for a large selection for a while.
    pub fn cache_result(&mut self, due: Option<Duration>) {
        if let Some((_, until)) = &mut self.judged {
            *until = Instant::now() + due.map_or(RESULT_TTL, |due| due.min(RESULT_TTL));
        }
    }

    /// How long the result for a large selection is still cached.
    pub fn remaining_ttl(&self, rollout: &PowerRollout) -> Option<Duration> {
        let (_, until) = self.judged.filter(|(generation, _)| *generation == rollout.metadata.generation)?;
        Some(until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }
}

/// Whether the spec has at most [`MAX_KEPT`] bytes.
fn is_small(spec: &PowerRolloutSpec) -> bool {
    serde_json::to_vec(spec).is_ok_and(|text| text.len() <= MAX_KEPT)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::admission::Settings;
    use shared::annotation::keys;
    use shared::hive::api::ClusterDeployment;
    use shared::kinds::lifecycle::Lifecycle;
    use shared::rollout::{Members, NamespaceLabels};

    use super::super::unstamped;
    use super::*;

    #[test]
    fn what_is_left_is_small_and_selects_nothing() {
        let names: Vec<_> = (0..1_000).map(|n| json!({ "namespace": "fleet", "name": format!("{n:0>253}") })).collect();
        let selector = json!({ "matchExpressions": [{ "key": "env", "operator": "NotIn", "values": vec!["x".repeat(1_000); 500] }] });
        let cluster: ClusterDeployment = serde_json::from_value(json!({
            "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment",
            "metadata": { "name": "demo", "namespace": "fleet" },
            "spec": { "baseDomain": "d", "clusterName": "demo", "installed": true, "platform": {} },
        }))
        .expect("a cluster");
        for targets in [
            json!({ "names": names }),
            json!({ "selector": selector, "namespaceSelector": selector }),
            json!({ "all": true }),
        ] {
            let mut rollout: PowerRollout = serde_json::from_value(json!({
                "apiVersion": "hibernate.sh/v1alpha1", "kind": "PowerRollout",
                "metadata": {
                    "name": "night", "uid": "u", "labels": { "a": "x".repeat(10_000) }, "finalizers": ["a"],
                    "annotations": { "note": "x".repeat(200_000), keys::REQUESTED_BY: "ann", keys::REQUESTED_AT: "2026-11-25T18:00:00Z" },
                },
                "spec": {
                    "action": "Hibernate", "targets": targets, "maxTargets": 1, "notAfter": "2126-01-01T00:00:00Z",
                    "groups": [{ "name": "one", "names": names }, { "name": "two", "selector": selector }],
                },
            }))
            .expect("a rollout");
            trim(&mut rollout);
            let left = json!(rollout);
            assert!(left.to_string().len() < 1_000, "{left}");
            assert_eq!(left["metadata"]["annotations"].as_object().map(serde_json::Map::len), Some(2));
            assert_eq!(unstamped(&rollout), None, "it may start");
            assert_eq!(left["spec"]["groups"].as_array().map(Vec::len), Some(2), "limits and approvals of groups stay");
            let members = Members::of(&rollout.spec.targets, &rollout.spec.groups).expect("members");
            assert!(
                !members.cover(&cluster.view(Some(&Settings::serving(&["aws"]))), &NamespaceLabels::new()),
                "{targets}"
            );
        }
    }
}
