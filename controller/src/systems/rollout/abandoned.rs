//! Claims that no reconcile ends: those of deleted rollouts and those on objects that were no members become records,
//! those of rollouts that have not started go, and a rollout that is over is reconciled to end what it has left.
//!
//! The watch may be late, and an object may not be readable: a claim ends only by what the hub answers when it is
//! asked.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use kube::{Api, Resource, ResourceExt};
use serde_json::{Value, json};
use shared::annotation::keys;
use shared::annotation::mark::{Mark, Outcome};
use shared::rollout::api::PowerRollout;
use shared::rollout::plan::has_begun;
use shared::rollout::snapshot::Snapshot;
use shared::rollout::start::end_patch;
use shared::text::sanitize_chain;
use tracing::{debug, info};

use super::{Rollouts, uid_of};
use crate::fleet::{FleetKind, Item};
use crate::runtime::{Guarded, clock};

/// What the hub answers about the rollout of a claim.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// It was deleted.
    Gone,
    /// It has not started.
    Unstarted,
    /// Anything else.
    Unknown,
}

/// Ends the claims of rollouts that are gone, and those on objects that were no members. What fails is tried again in
/// the next round.
pub async fn sweep(rollouts: &Rollouts) {
    let objects = rollouts.handle.objects();
    let known = objects.iter().map(|rollout| (rollout.meta().uid.clone(), &**rollout));
    let known: HashMap<Option<String>, &Guarded<PowerRollout>> = known.collect();
    rollouts.snapshots.retain(|uid| known.contains_key(&Some(uid.to_owned())));
    let mut answers: HashMap<String, Answer> = HashMap::new();
    let mut members: HashMap<String, Option<Arc<Snapshot>>> = HashMap::new();
    let mut left: HashSet<String> = HashSet::new();
    let items = |kind: &FleetKind| kind.fleet.items().unwrap_or_default();
    for (kind, item) in rollouts.watched.iter().flat_map(|kind| items(kind).into_iter().map(move |item| (kind, item))) {
        let claim = item.view.desired.mark.as_ref().filter(|mark| mark.ended.is_none());
        let Some(claim) = claim else { continue };
        // Such as a backup that was restored, or a claim that was forged: no rollout works on it.
        let (why, patch) = match known.get(&Some(claim.uid.clone())).map(|rollout| (rollout.name_any(), &rollout.0)) {
            Some((name, rollout)) => {
                left.insert(name);
                match rollout {
                    Ok(rollout) if !has_begun(rollout) => {
                        if ask(rollouts, claim, &mut answers).await != Answer::Unstarted {
                            continue;
                        }
                        // No record: a member that has one would not start with the others.
                        (
                            "the rollout has not started",
                            json!({ "metadata": { "annotations": { keys::ROLLOUT: null } } }),
                        )
                    }
                    Ok(rollout) if !is_member(rollouts, rollout, &item, &mut members).await => {
                        abandon(claim, "the object was no member of the rollout when that started")
                    }
                    Ok(_) | Err(_) => continue,
                }
            }
            None if ask(rollouts, claim, &mut answers).await == Answer::Gone => {
                abandon(claim, "the rollout was deleted")
            }
            None => continue, // the watch is late, or the hub does not answer
        };
        match item.patch(&rollouts.handle.hub, patch).await {
            Ok(written) => {
                info!(rollout = claim.name, cluster = item.full_name(), why, "abandoned claim ended");
                if let Some(written) = written {
                    kind.fleet.keep(written);
                }
            }
            Err(error) => {
                debug!(cluster = item.full_name(), error = sanitize_chain(&error), "claim not ended");
            }
        }
    }
    for name in left {
        rollouts.handle.trigger((String::new(), name));
    }
}

/// Why a claim becomes a record, and the patch.
fn abandon(claim: &Mark, why: &'static str) -> (&'static str, Value) {
    (why, end_patch(&claim.end(Outcome::Abandoned, why, clock::now())))
}

/// Whether an object was a member of the rollout whose claim it has; also if that is not known.
async fn is_member(
    rollouts: &Rollouts,
    rollout: &PowerRollout,
    item: &Item,
    members: &mut HashMap<String, Option<Arc<Snapshot>>>,
) -> bool {
    let uid = uid_of(rollout);
    if !members.contains_key(uid) {
        let read = rollouts.snapshots.read(&rollouts.handle.hub, rollout).await;
        members.insert(uid.to_owned(), read.ok().and_then(Result::ok));
    }
    let snapshot = members.get(uid).and_then(Option::as_ref);
    snapshot.is_none_or(|snapshot| snapshot.group(item.view.identity.uid).is_some())
}

/// What the hub says of the rollout of a claim. Each is asked about once.
async fn ask(rollouts: &Rollouts, claim: &Mark, answers: &mut HashMap<String, Answer>) -> Answer {
    if let Some(answer) = answers.get(&claim.uid) {
        return *answer;
    }
    let api: Api<Guarded<PowerRollout>> = Api::all(rollouts.handle.hub.client.clone());
    let is_unstarted = |found: &PowerRollout| uid_of(found) == claim.uid && !has_begun(found);
    let answer = match api.get(&claim.name).await {
        Ok(found) if found.uid().is_some_and(|found| found != claim.uid) => Answer::Gone,
        // It claims nothing before.
        Ok(found) if found.0.as_ref().is_ok_and(is_unstarted) => Answer::Unstarted,
        Ok(_) => Answer::Unknown,
        Err(error) if names_missing(&error, &claim.name) => Answer::Gone,
        Err(error) => {
            debug!(rollout = claim.name, error = sanitize_chain(&error), "rollout not read");
            Answer::Unknown
        }
    };
    *answers.entry(claim.uid.clone()).or_insert(answer)
}

/// Whether an answer says that the object of this name does not exist. An API server that does not serve the kind yet
/// names no object.
fn names_missing(error: &kube::Error, name: &str) -> bool {
    let kube::Error::Api(status) = error else { return false };
    status.code == 404 && status.details.as_ref().is_some_and(|details| details.name == name)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::time::Duration;

    use futures::{StreamExt, stream};
    use kube::runtime::reflector::store::Writer;
    use kube::runtime::watcher::Event;
    use shared::hive::api::ClusterDeployment;
    use shared::kinds::{CLUSTER_DEPLOYMENT, KINDS};

    use super::*;
    use crate::fleet::Watched;
    use crate::runtime::Follower;
    use crate::runtime::testing::MemoryHub;
    use crate::spoke::Network;
    use crate::systems::rollout::Turns;

    const ROLLOUT: &str = "/apis/hibernate.sh/v1alpha1/powerrollouts/night";
    const CLUSTER: &str = "/apis/hive.openshift.io/v1/namespaces/fleet/clusterdeployments/demo";

    fn rollout(uid: &str, status: &Value) -> Value {
        json!({
            "apiVersion": "hibernate.sh/v1alpha1", "kind": "PowerRollout",
            "metadata": { "name": "night", "uid": uid, "generation": 1, "resourceVersion": "0" },
            "spec": {
                "action": "Hibernate", "targets": { "all": true }, "maxTargets": 1, "notAfter": "2126-01-01T00:00:00Z",
            },
            "status": status,
        })
    }

    /// A cluster with a claim of rollout `ours`, and a fleet that knows it.
    fn claimed(hub: &MemoryHub) -> Arc<Watched<ClusterDeployment>> {
        let claim = json!({
            "v": 1, "by": "night", "uid": "ours", "action": "Hibernate", "group": 0, "attempt": 0, "before": "Running",
            "wanted": "Hibernating", "at": "2026-11-24T12:00:00Z",
        });
        let cluster = json!({
            "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment",
            "metadata": { "name": "demo", "namespace": "fleet", "uid": "c", "annotations": { keys::ROLLOUT: claim.to_string() } },
            "spec": { "baseDomain": "d", "clusterName": "demo", "installed": true, "platform": {} },
        });
        hub.put(CLUSTER, cluster);
        let (fleet, mut writer) = (Arc::new(Watched::default()), Writer::<Guarded<ClusterDeployment>>::default());
        writer.apply_watcher_event(&Event::Init);
        writer.apply_watcher_event(&Event::InitApply(serde_json::from_value(hub.get(CLUSTER)).expect("a cluster")));
        writer.apply_watcher_event(&Event::InitDone);
        fleet.listed(&writer.as_reader());
        fleet
    }

    /// What is left of the claim when the watch has brought this: nothing, `claim`, or why it ended.
    async fn left(hub: &MemoryHub, watched: Option<Value>) -> String {
        let fleet = claimed(hub);
        let turns = Arc::new(Turns::new(NonZeroUsize::MIN));
        let kind = FleetKind::of(&CLUSTER_DEPLOYMENT, fleet);
        let namespace = "hibernate-system".to_owned();
        let (network, governance) = (Network::default(), Arc::default());
        let new = |handle| Rollouts::new(handle, KINDS, vec![kind], governance, network, namespace, turns);
        let kind = hub.term().watch().with(new);
        let listed = watched.into_iter().map(|one| Event::InitApply(serde_json::from_value(one).expect("a rollout")));
        let events: Vec<_> = [Event::Init].into_iter().chain(listed).chain([Event::InitDone]).map(Ok).collect();
        let work = tokio::spawn(kind.run_on(stream::iter(events).chain(stream::pending())));
        tokio::time::sleep(Duration::from_secs(20)).await;
        work.abort();
        let found = hub.get(CLUSTER)["metadata"]["annotations"][keys::ROLLOUT].clone();
        let mark = Mark::parse(found.as_str().unwrap_or_default());
        mark.map_or(String::new(), |mark| mark.ended.map_or("claim".to_owned(), |ended| ended.reason))
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_ends_by_what_the_hub_answers_and_not_by_what_the_watch_lacks() {
        let (new, begun) = (json!({}), json!({ "startedAt": "2026-11-24T12:00:00Z" }));
        let mut unreadable = rollout("ours", &new);
        unreadable["spec"]["notAfter"] = json!(["soon"]);
        for (what, watched, stored, expected) in [
            ("of a rollout that has not started", Some(rollout("ours", &new)), Some(rollout("ours", &new)), ""),
            ("the watch is late: it has started", Some(rollout("ours", &new)), Some(rollout("ours", &begun)), "claim"),
            ("the watch is late: it was created", None, Some(rollout("ours", &new)), "claim"),
            ("it cannot be read", Some(unreadable.clone()), Some(unreadable.clone()), "claim"),
            ("the watch is late: it cannot be read", None, Some(unreadable), "claim"),
            ("it is gone", None, None, "the rollout was deleted"),
            ("another one has its name", None, Some(rollout("another", &new)), "the rollout was deleted"),
        ] {
            let hub = MemoryHub::default();
            if let Some(stored) = stored {
                hub.put(ROLLOUT, stored);
            }
            assert_eq!(left(&hub, watched).await, expected, "{what}");
        }
        let hub = MemoryHub::default();
        hub.inject(|_, path, _| (path == ROLLOUT).then_some(404));
        assert_eq!(left(&hub, None).await, "claim", "the kind is not served");
    }
}
