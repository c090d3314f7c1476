//! Claims that no reconcile ends: those of deleted rollouts and those on newer objects become records, and a rollout that is over is asked to
//! end what it has left.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use kube::core::PartialObjectMeta;
use kube::{Api, Resource, ResourceExt};
use shared::rollout::api::PowerRollout;
use shared::rollout::mark::{Mark, Outcome};
use tracing::{debug, info};

use super::Rollouts;
use super::act::end_patch;
use crate::runtime::hub::full_name;
use crate::runtime::{Guarded, System, clock};

/// Ends the claims of rollouts that are gone, and those on newer objects. What fails is tried again in the next round.
pub async fn sweep(rollouts: &Rollouts) {
    let Some(items) = rollouts.fleet.items() else { return };
    let objects = rollouts.handle.objects();
    let started =
        |rollout: &Guarded<PowerRollout>| Some(rollout.0.as_ref().ok()?.status.as_ref()?.started_at.as_ref()?.0);
    let known = objects.iter().map(|rollout| (rollout.meta().uid.clone(), (rollout.name_any(), started(rollout))));
    let known: HashMap<Option<String>, (String, Option<Timestamp>)> = known.collect();
    let mut asked: HashMap<String, bool> = HashMap::new();
    let mut left: HashSet<&String> = HashSet::new();
    for item in &items {
        let claim = item.observed.mark.as_ref().filter(|mark| mark.ended.is_none());
        let (Some(claim), Some(cluster)) = (claim, item.cluster()) else { continue };
        let why = match known.get(&Some(claim.uid.clone())) {
            // Such as a backup that was restored: no rollout works on what was created after its start.
            Some((_, Some(started))) if item.observed.created > *started => {
                "the object was created after the rollout had started"
            }
            Some((name, _)) => {
                left.insert(name);
                continue;
            }
            None if is_gone(rollouts, claim, &mut asked).await => "the rollout was deleted",
            None => continue, // the watch is late, or the hub does not answer
        };
        let record = claim.end(Outcome::Abandoned, why, clock::now());
        match rollouts.hub().patch(cluster, end_patch(&record)).await {
            Ok(written) => {
                info!(rollout = claim.name, cluster = full_name(cluster), why, "abandoned claim ended");
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

/// Whether the rollout of a claim was deleted, as the hub says. Each is asked for once.
async fn is_gone(rollouts: &Rollouts, claim: &Mark, asked: &mut HashMap<String, bool>) -> bool {
    if let Some(is_gone) = asked.get(&claim.uid) {
        return *is_gone;
    }
    let api: Api<PowerRollout> = Api::all(rollouts.hub().client.clone());
    let found: kube::Result<Option<PartialObjectMeta<PowerRollout>>> = api.get_metadata_opt(&claim.name).await;
    let is_gone = match found {
        Ok(found) => found.and_then(|found| found.uid()).is_none_or(|found| found != claim.uid),
        Err(error) => {
            debug!(rollout = claim.name, error = &error as &dyn std::error::Error, "rollout not read");
            false
        }
    };
    *asked.entry(claim.uid.clone()).or_insert(is_gone)
}
