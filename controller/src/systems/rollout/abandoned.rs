//! Claims that no reconcile ends: those of deleted rollouts and those on objects that were no members become records, and a rollout that is
//! over is asked to end what it has left.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use kube::core::PartialObjectMeta;
use kube::{Api, Resource, ResourceExt};
use shared::rollout::api::PowerRollout;
use shared::rollout::mark::{Mark, Outcome};
use shared::rollout::plan::has_begun;
use shared::rollout::snapshot::Snapshot;
use tracing::{debug, info};

use super::Rollouts;
use super::act::end_patch;
use super::fleet::Item;
use crate::runtime::hub::full_name;
use crate::runtime::{Guarded, System, clock};

/// Ends the claims of rollouts that are gone, and those on objects that were no members. What fails is tried again in the next round.
pub async fn sweep(rollouts: &Rollouts) {
    let Some(items) = rollouts.fleet.items() else { return };
    let objects = rollouts.handle.objects();
    let begun = |rollout: &Guarded<PowerRollout>| rollout.0.as_ref().is_ok_and(has_begun);
    let known = objects.iter().map(|rollout| (rollout.meta().uid.clone(), (rollout.name_any(), begun(rollout))));
    let known: HashMap<Option<String>, (String, bool)> = known.collect();
    rollouts.snapshots.retain(|uid| known.contains_key(&Some(uid.to_owned())));
    let mut asked: HashMap<String, bool> = HashMap::new();
    let mut members: HashMap<String, Option<Arc<Snapshot>>> = HashMap::new();
    let mut left: HashSet<&String> = HashSet::new();
    for item in &items {
        let claim = item.observed.mark.as_ref().filter(|mark| mark.ended.is_none());
        let (Some(claim), Some(cluster)) = (claim, item.cluster()) else { continue };
        let why = match known.get(&Some(claim.uid.clone())) {
            Some((name, begun)) => {
                left.insert(name);
                // Such as a backup that was restored, or a claim that was forged: no rollout works on it.
                if !*begun || is_member(rollouts, claim, item, &mut members).await {
                    continue;
                }
                "the object was no member of the rollout when that started"
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

/// Whether an object was a member of the rollout whose claim it has; also if that is not known.
async fn is_member(
    rollouts: &Rollouts,
    claim: &Mark,
    item: &Item,
    members: &mut HashMap<String, Option<Arc<Snapshot>>>,
) -> bool {
    if !members.contains_key(&claim.uid) {
        let read = rollouts.snapshots.read(rollouts.hub(), &claim.uid).await;
        members.insert(claim.uid.clone(), read.ok().and_then(Result::ok));
    }
    let snapshot = members.get(&claim.uid).and_then(Option::as_ref);
    snapshot.is_none_or(|snapshot| snapshot.group(item.observed.uid).is_some())
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
