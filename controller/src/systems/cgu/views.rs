//! Views and actions: how an upgrade reads and changes objects on a cluster through Open Cluster Management.

use std::collections::HashMap;
use std::time::Duration;

use kube::Api;
use kube::api::Patch;
use serde_json::{Value, json};
use shared::cgu::api::Reference;
use shared::cgu::decide::{Act, Facts, Pull};
use shared::cgu::objects;
use shared::cgu::precache::workload::Step;
use shared::cgu::view::ViewRequest;
use shared::cgu::wire::{ActionObject, UPGRADE, UPGRADE_NAMESPACE, ViewObject};
use tokio::time::Instant;

use super::Upgrades;
use super::api::{create, delete, delete_all, unless_absent};
use super::index::VIEWS;
use crate::runtime::hub::{as_controller, key_of};
use crate::runtime::{Guarded, Reconciled, hash};

/// A little less than [`APPROVAL_RETRY`](shared::cgu::decide::APPROVAL_RETRY), when an act is decided again.
const REPEAT_AFTER: Duration = Duration::from_secs(55);

/// Acts of the last minute: views show their effect only once they are refreshed, and until then they are decided again.
#[derive(Default)]
pub(super) struct RecentActs(HashMap<(String, String), (u64, Instant)>);

impl RecentActs {
    pub(super) fn repeats(&self, act: &Act) -> bool {
        let Some((key, what)) = repeatable(act) else { return false };
        self.0.get(&key).is_some_and(|(known, at)| *known == what && at.elapsed() < REPEAT_AFTER)
    }

    pub(super) fn extend(&mut self, acts: &[Act], at: Instant) {
        self.0.retain(|_, (_, at)| at.elapsed() < REPEAT_AFTER);
        self.0.extend(acts.iter().filter_map(repeatable).map(|(key, what)| (key, (what, at))));
    }
}

/// Cluster, object and effect of an act that is decided again until it takes effect.
fn repeatable(act: &Act) -> Option<((String, String), u64)> {
    match act {
        Act::Approve(one) => Some(((one.cluster.clone(), one.name.clone()), hash(&one.plan.resource_version))),
        Act::Pull(pull) if pull.repeats => {
            Some(((pull.cluster.clone(), String::new()), hash(&format!("{:?}", pull.steps))))
        }
        _ => None,
    }
}

/// Creates a view, or changes the object that it requests. Another client's view of this name is not changed: the cluster
/// waits until it is gone.
pub(super) async fn request(upgrades: &Upgrades, facts: &Facts<'_>, request: &ViewRequest) -> Reconciled<()> {
    let view = objects::view(facts.upgrade, request);
    let patch = json!({ "metadata": { "labels": view["metadata"]["labels"] }, "spec": view["spec"] });
    let written = create(upgrades, &view).await?;
    let is_known = facts.governance.views.contains_key(&(request.cluster.clone(), request.name.clone()));
    let written = match written {
        // TALM creates some without the labels by which we watch.
        None if is_known || request.adopts => {
            // The answer holds the last result, which is untrusted.
            let api: Api<Guarded<ViewObject>> = Api::namespaced(upgrades.handle.hub.client.clone(), &request.cluster);
            let patched = api.patch(&request.name, &as_controller(), &Patch::Merge(&patch)).await;
            unless_absent(patched, || format!("ManagedClusterView {}/{}", request.cluster, request.name))?
        }
        written => written,
    };
    if let Some(written) = written {
        upgrades.index.record(&VIEWS, key_of(&written), Some(&written));
    }
    Ok(())
}

pub(super) async fn pull(upgrades: &Upgrades, facts: &Facts<'_>, pull: &Pull) -> Reconciled<()> {
    for step in &pull.steps {
        match step {
            Step::DeleteView(name) => {
                delete::<ViewObject>(upgrades, &pull.cluster, name).await?;
                upgrades.index.record(&VIEWS, (pull.cluster.clone(), (*name).to_owned()), None);
            }
            Step::DeleteAction(name) => delete::<ActionObject>(upgrades, &pull.cluster, name).await?,
            Step::View(view) => request(upgrades, facts, view).await?,
            Step::Act(name, spec) => {
                create_action(upgrades, &objects::action(facts.upgrade, (&pull.cluster, name), spec)).await?;
            }
        }
    }
    Ok(())
}

/// Creates an action, but none on the hub itself: the policy that confines our account would refuse it.
pub(super) async fn create_action(upgrades: &Upgrades, action: &Value) -> Reconciled<()> {
    if action["metadata"]["namespace"] == objects::LOCAL_CLUSTER {
        return Ok(());
    }
    create::<ActionObject>(upgrades, action).await.map(drop)
}

/// Deletes the views of a cluster, and its actions: one that stays would be carried out whenever the cluster wakes.
pub(super) async fn delete_views(
    upgrades: &Upgrades,
    facts: &Facts<'_>,
    cluster: &str,
    has_actions: bool,
) -> Reconciled<()> {
    let upgrade = facts.upgrade;
    let own = Reference::to(upgrade);
    let all = facts.governance.views.range((cluster.to_owned(), String::new())..);
    let mut views = all.take_while(|((namespace, _), _)| namespace == cluster);
    if views.any(|(_, view)| view.upgrade == own) {
        let labels = format!("{UPGRADE}={},{UPGRADE_NAMESPACE}={}", own.name, own.namespace);
        delete_all::<ViewObject>(upgrades, cluster, &labels).await?;
    }
    let acts = upgrade
        .status
        .as_ref()
        .is_some_and(|status| !status.managed_policies_content.is_empty() || status.precaching.is_some());
    if has_actions && acts {
        let labels = format!("{UPGRADE}={}", objects::action_label(upgrade));
        delete_all::<ActionObject>(upgrades, cluster, &labels).await?;
    }
    Ok(())
}
