//! Claims that no reconcile ends: those of deleted rollouts become records, and a rollout that is over is asked to end what it has left.

use std::collections::{HashMap, HashSet};

use kube::core::PartialObjectMeta;
use kube::{Api, Resource, ResourceExt};
use shared::rollout::api::PowerRollout;
use shared::rollout::mark::Outcome;
use tracing::{debug, info};

use super::Rollouts;
use super::act::end_patch;
use crate::runtime::hub::full_name;
use crate::runtime::{System, clock};

/// Ends the claims of rollouts that are gone. What fails is tried again in the next round.
pub async fn sweep(rollouts: &Rollouts) {
    let Some(items) = rollouts.fleet.items() else { return };
    let known: HashMap<Option<String>, String> =
        rollouts.handle.objects().iter().map(|rollout| (rollout.meta().uid.clone(), rollout.name_any())).collect();
    let mut asked: HashMap<String, bool> = HashMap::new();
    let mut left: HashSet<&String> = HashSet::new();
    for item in &items {
        let claim = item.observed.mark.as_ref().filter(|mark| mark.ended.is_none());
        let (Some(claim), Some(cluster)) = (claim, item.cluster()) else { continue };
        if let Some(name) = known.get(&Some(claim.uid.clone())) {
            left.insert(name);
            continue;
        }
        let is_gone = if let Some(is_gone) = asked.get(&claim.uid) {
            *is_gone
        } else {
            let is_gone = is_gone(rollouts, &claim.name, &claim.uid).await.unwrap_or_else(|error| {
                debug!(rollout = claim.name, error = &error as &dyn std::error::Error, "rollout not read");
                false
            });
            *asked.entry(claim.uid.clone()).or_insert(is_gone)
        };
        if !is_gone {
            continue; // the watch is late, or the hub does not answer
        }
        let record = claim.end(Outcome::Abandoned, "the rollout was deleted", clock::now());
        match rollouts.hub().patch(cluster, end_patch(&record)).await {
            Ok(written) => {
                info!(rollout = claim.name, cluster = full_name(cluster), "claim of a deleted rollout ended");
                rollouts.fleet.wrote(written);
            }
            Err(error) => {
                debug!(cluster = full_name(cluster), error = &error as &dyn std::error::Error, "claim not ended");
            }
        }
    }
    for name in left {
        rollouts.handle.trigger((String::new(), name.clone()));
    }
}

async fn is_gone(rollouts: &Rollouts, name: &str, uid: &str) -> kube::Result<bool> {
    let api: Api<PowerRollout> = Api::all(rollouts.hub().client.clone());
    let found: Option<PartialObjectMeta<PowerRollout>> = api.get_metadata_opt(name).await?;
    Ok(found.and_then(|found| found.uid()).is_none_or(|found| found != uid))
}
