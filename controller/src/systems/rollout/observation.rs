//! The facts of one reconcile of a rollout, and its targets among them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client};
use server::hub;
use shared::cgu::upgrades::upgrading;
use shared::cgu::wire::UpgradeObject;
use shared::rollout::api::PowerRollout;
use shared::rollout::plan::has_begun;
use shared::rollout::{Members, NamespaceLabels, needs_namespaces};
use shared::text::sanitize_to;

use super::selection::Selection;
use super::{Rollouts, TargetState};
use crate::fleet::{Identity, Item};
use crate::runtime::{Guarded, ReconcileError, Reconciled, clock};

/// Longest kind in a message, in characters.
const MAX_KIND: usize = 63;
/// How long it is kept which clusters are upgraded: rollouts share the answer.
pub const UPGRADES_KEPT: Duration = Duration::from_secs(10);

/// The facts of one reconcile.
pub struct Observation<'a> {
    pub rollout: &'a PowerRollout,
    /// The same with what it selects by, until it has started.
    pub whole: Option<Arc<PowerRollout>>,
    /// The targets, with the index of their group.
    pub items: Vec<(Arc<Item>, usize)>,
    /// What each of them shares a cloud's limits with, if that is known.
    pub domains: Vec<Option<Arc<str>>>,
    pub upgrades: Arc<BTreeMap<String, String>>,
    pub checked: HashMap<Identity, (String, Timestamp)>,
    /// Targets whose checks are under way.
    pub checking: HashSet<Identity>,
    pub queued: Option<String>,
    pub blocked: Option<String>,
    pub now: Timestamp,
    /// Whether anything was written or found.
    pub acted: bool,
    /// Whether a start is left to the next plan: another client wrote the target first, or its check is under way.
    pub left: bool,
    /// Why a target was not written.
    pub failed: Option<ReconcileError>,
}

impl<'a> Observation<'a> {
    /// Nothing is known yet.
    pub fn of(rollout: &'a PowerRollout) -> Self {
        Self {
            rollout,
            whole: None,
            items: Vec::new(),
            domains: Vec::new(),
            upgrades: Arc::default(),
            checked: HashMap::new(),
            checking: HashSet::new(),
            queued: None,
            blocked: None,
            now: clock::now(),
            acted: false,
            left: false,
            failed: None,
        }
    }
}

/// Nothing is known of its targets, because the watch of their kind is off. Of one that has begun, the claims stay until
/// the kind is watched again.
pub fn unserved(rollout: &PowerRollout) -> Observation<'_> {
    let mut observation = Observation::of(rollout);
    let kind = sanitize_to(&rollout.spec.targets.kind, MAX_KIND);
    observation.blocked = Some(format!(
        "spec.targets.kind: this hibernate-controller does not watch kind {kind}: start it with the option for that system"
    ));
    observation
}

/// Whether a member has a claim of this rollout. While members are unknown, every claim of it has to end.
pub async fn has_claim(rollouts: &Rollouts, rollout: &PowerRollout, items: &[Arc<Item>]) -> Reconciled<bool> {
    let is_claim = |item: &&Arc<Item>| item.view.desired.mark.as_ref().is_some_and(|mark| mark.ended.is_none());
    let claimed: Vec<&Arc<Item>> = items.iter().filter(|item| is_own(rollout, item)).filter(is_claim).collect();
    if claimed.is_empty() || !has_begun(rollout) {
        return Ok(false);
    }
    let snapshot = rollouts.snapshots.read(&rollouts.handle.hub, rollout).await?;
    let is_member =
        |item: &&Arc<Item>| snapshot.as_ref().map_or(true, |known| known.group(item.view.identity.uid).is_some());
    Ok(claimed.iter().any(is_member))
}

/// Fills in the targets: the members of a rollout that has started, whatever their labels say now; otherwise those that
/// it selects. False while not all schedules are listed, and a schedule has created the rollout.
pub async fn members(
    rollouts: &Rollouts,
    observation: &mut Observation<'_>,
    items: &[Arc<Item>],
    state: &mut TargetState,
) -> Reconciled<bool> {
    let (rollout, hub) = (observation.rollout, &rollouts.handle.hub);
    let known = if has_begun(rollout) {
        state.selection = Selection::default();
        Some(rollouts.snapshots.read(hub, rollout).await?)
    } else {
        rollouts.snapshots.known(rollout).map(Ok)
    };
    let is_known = known.is_some();
    match known {
        Some(Ok(known)) => {
            let group = |item: &Arc<Item>| Some((item.clone(), known.group(item.view.identity.uid)?));
            observation.items = items.iter().filter_map(group).collect();
        }
        // Nothing starts, but what has begun ends.
        Some(Err(why)) => {
            observation.blocked = Some(why);
            observation.items =
                items.iter().filter(|item| is_own(rollout, item)).map(|item| (item.clone(), 0)).collect();
        }
        None => {}
    }
    // A rollout that is blocked is judged every two seconds: it must not be read as often.
    if has_begun(rollout) || observation.blocked.is_some() {
        return Ok(true);
    }
    let whole = state.selection.of(rollouts, rollout).await?;
    if !is_known {
        let governed = match &whole.spec.scheduled_by {
            None => None,
            Some(by) => match rollouts.governance.governors() {
                Some(governors) => Some((governors, by.uid.as_str())),
                None => return Ok(false),
            },
        };
        let needs = governed.as_ref().is_some_and(|(governors, _)| governors.need_namespaces());
        let namespaces = if needs || needs_namespaces(&whole.spec.targets) {
            let namespaces = rollouts.governance.namespaces.labels(&hub.client).await;
            namespaces.map_err(ReconcileError::read("the namespaces"))?
        } else {
            Arc::default()
        };
        match Members::of(&whole.spec.targets, &whole.spec.groups) {
            Ok(members) => {
                observation.items = select(&members, items, &namespaces);
                if let Some((governors, uid)) = &governed {
                    let kind = &whole.spec.targets.kind;
                    let is_its = |item: &Item| {
                        governors.acting(kind, &item.view, &namespaces).is_some_and(|one| one.uid == *uid)
                    };
                    observation.items.retain(|(item, _)| is_its(item));
                }
            }
            Err(error) => observation.blocked = Some(error.to_string()),
        }
    }
    observation.whole = Some(whole);
    Ok(true)
}

/// The clusters that an active `ClusterGroupUpgrade` lists, with what to say of that.
pub async fn active_upgrades(client: &Client) -> kube::Result<Arc<BTreeMap<String, String>>> {
    // One that cannot be read is of one tenant: it is reported by the system that works on it, and holds up no rollout.
    let active = |one: Guarded<UpgradeObject>| Ok(one.ok().map(|one| upgrading(&one)).unwrap_or_default());
    match hub::list(&Api::all(client.clone()), &ListParams::default(), active).await {
        // TALM is not installed, or not served to this controller.
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Ok(Arc::default()),
        found => Ok(Arc::new(found?.into_iter().flatten().collect())),
    }
}

/// The targets that the rollout selects.
fn select(members: &Members, items: &[Arc<Item>], namespaces: &NamespaceLabels) -> Vec<(Arc<Item>, usize)> {
    let selected = items.iter().filter(|item| members.cover(&item.view, namespaces));
    selected.map(|item| (item.clone(), members.group(&item.view))).collect()
}

fn is_own(rollout: &PowerRollout, item: &Item) -> bool {
    item.view.desired.mark.as_ref().is_some_and(|mark| rollout.metadata.uid.as_ref() == Some(&mark.uid))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use kube::runtime::reflector::store::Writer;
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};
    use shared::annotation::keys;
    use shared::hive::api::ClusterDeployment;
    use shared::kinds::{CLUSTER_DEPLOYMENT, KINDS};

    use super::*;
    use crate::fleet::{FleetKind, Watched};
    use crate::runtime::Follower;
    use crate::runtime::testing::MemoryHub;
    use crate::spoke::Network;
    use crate::systems::rollout::Turns;

    const BELOW: &str = "/apis/hibernate.sh/v1alpha1/powerrollouts/";
    const BEGUN: &str = "/apis/hibernate.sh/v1alpha1/powerrollouts/begun";

    fn rollout(name: &str, kind: &str, status: &Value) -> Value {
        json!({
            "apiVersion": "hibernate.sh/v1alpha1", "kind": "PowerRollout",
            "metadata": { "name": name, "uid": name, "generation": 1, "annotations": { keys::REQUESTED_BY: "ann" } },
            "spec": {
                "action": "Hibernate", "targets": { "kind": kind, "all": true }, "maxTargets": 9,
                "notAfter": "2126-01-01T00:00:00Z", "ttlAfterFinished": "1h",
            },
            "status": status,
        })
    }

    /// As after a restart of the controller without the option for that kind.
    #[tokio::test(start_paused = true)]
    async fn a_rollout_of_a_kind_that_is_not_watched_any_more_says_so_ends_and_takes_no_turn() {
        let hub = MemoryHub::default();
        let counts = json!({ "Pending": 1, "Progressing": 2 });
        let status =
            json!({ "phase": "Progressing", "startedAt": "2026-11-24T12:00:00Z", "total": 3, "counts": counts });
        hub.put(BEGUN, rollout("begun", "Cluster", &status));
        hub.put(&format!("{BELOW}next"), rollout("next", "ClusterDeployment", &json!({})));
        let (fleet, mut writer) =
            (Arc::new(Watched::<ClusterDeployment>::default()), Writer::<Guarded<ClusterDeployment>>::default());
        for event in [Event::Init, Event::InitDone] {
            writer.apply_watcher_event(&event);
        }
        fleet.listed(&writer.as_reader());
        let kind = FleetKind::of(&CLUSTER_DEPLOYMENT, fleet);
        let (turns, namespace) = (Arc::new(Turns::new(NonZeroUsize::MIN)), "hibernate-system".to_owned());
        let (network, governance) = (Network::default(), Arc::default());
        let new = |handle| Rollouts::new(handle, KINDS, vec![kind], governance, network, namespace, turns);
        let watch = hub.term().watch().with(new);
        let work = tokio::spawn(watch.run_on(hub.watch("/apis/hibernate.sh/")));
        let found = async |name: &str| {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let status = hub.get(&format!("{BELOW}{name}"))["status"].clone();
            let message = status["message"].as_str().unwrap_or_default().to_owned();
            (status["phase"].clone(), message, status["counts"].clone())
        };
        let why = "spec.targets.kind: this hibernate-controller does not watch kind Cluster: start it with the option for that system";
        assert_eq!(found("begun").await, (json!("Progressing"), why.to_owned(), counts.clone()));
        let (phase, message, _) = found("next").await;
        assert_eq!(phase, "Waiting");
        assert!(message.contains("powerrollouts.hibernate.sh"), "its turn, but for the policy: {message}");
        hub.edit(BEGUN, |rollout| {
            rollout["spec"]["abort"] = json!(true);
            rollout["metadata"]["generation"] = json!(2);
        });
        let ended = format!("0 of 3 targets are in their state; {why}");
        assert_eq!(found("begun").await, (json!("Aborted"), ended, counts));
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert_eq!(hub.get(BEGUN), Value::Null, "ttlAfterFinished");
        work.abort();
    }
}
