//! Claims of rollouts that were deleted: they become records, so that nothing waits for them.

use jiff::Timestamp;
use kube::core::PartialObjectMeta;
use kube::{Api, Resource, ResourceExt};
use shared::rollout::api::PowerRollout;
use shared::rollout::mark::Outcome;
use tracing::{debug, info};

use super::Rollouts;
use super::act::end_patch;
use crate::runtime::hub::full_name;
use crate::runtime::{System, clock};

/// Ends the claims of rollouts that are gone.
pub async fn sweep(rollouts: &Rollouts) {
    let Some(items) = rollouts.fleet.items() else { return };
    let known: Vec<Option<String>> =
        rollouts.handle.objects().iter().map(|rollout| rollout.meta().uid.clone()).collect();
    let is_known = |uid: &str| known.iter().any(|known| known.as_deref() == Some(uid));
    for item in items {
        let claim = item.observed.mark.as_ref().filter(|mark| mark.ended.is_none() && !is_known(&mark.uid));
        let (Some(claim), Some(cluster)) = (claim, item.cluster()) else { continue };
        match is_gone(rollouts, &claim.name, &claim.uid).await {
            Ok(true) => {}
            Ok(false) => continue, // the watch is late
            Err(error) => {
                debug!(rollout = claim.name, error = &error as &dyn std::error::Error, "rollout not read");
                return;
            }
        }
        let now: Timestamp = clock::now();
        let record = claim.end(Outcome::Abandoned, "the rollout was deleted", now);
        match rollouts.hub().patch(cluster, end_patch(&record)).await {
            Ok(written) => {
                info!(rollout = claim.name, cluster = full_name(cluster), "claim of a deleted rollout ended");
                rollouts.fleet.wrote(written);
            }
            // What has changed is seen again, and what failed is tried again with the next change.
            Err(error) => {
                debug!(cluster = full_name(cluster), error = &error as &dyn std::error::Error, "claim not ended")
            }
        }
    }
}

async fn is_gone(rollouts: &Rollouts, name: &str, uid: &str) -> kube::Result<bool> {
    let api: Api<PowerRollout> = Api::all(rollouts.hub().client.clone());
    let found: Option<PartialObjectMeta<PowerRollout>> = api.get_metadata_opt(name).await?;
    Ok(found.and_then(|found| found.uid()).is_none_or(|found| found != uid))
}
