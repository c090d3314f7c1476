//! Views and actions: how an upgrade reads and changes objects on a cluster through Open Cluster Management.

use std::collections::HashMap;
use std::time::Duration;

use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PostParams};
use kube::core::{Request as Requests, Status};
use kube::{Api, Resource as _};
use serde_json::{Value, json};
use shared::cgu::decide::{Act, Pull};
use shared::cgu::objects::{self, UPGRADE, UPGRADE_NAMESPACE};
use shared::cgu::precache::workload::Step;
use shared::cgu::view::{View, ViewRequest};
use shared::cgu::wire::ViewObject;
use shared::guarded::Named;
use shared::read::Foreign;
use tokio::time::Instant;

use super::api::{ACTION, VIEW, api, lead, resource};
use super::{Observation, Upgrades};
use crate::runtime::hub::{as_controller, key_of};
use crate::runtime::{Guarded, ReconcileError, System as _, hash};

/// Until something is asked again: a little less than [`APPROVE_AGAIN`](shared::cgu::decide::APPROVE_AGAIN), when it
/// is decided again.
const RECENT: Duration = Duration::from_secs(55);

/// What was asked of clusters a moment ago: their views show what came of it only when they are read again.
#[derive(Default)]
pub(super) struct Recent(HashMap<(String, String), (u64, Instant)>);

impl Recent {
    /// Whether an act repeats a recent one.
    pub(super) fn repeats(&self, act: &Act) -> bool {
        let Some((key, what)) = repeatable(act) else { return false };
        self.0.get(&key).is_some_and(|(known, at)| *known == what && at.elapsed() < RECENT)
    }

    /// Keeps what was asked at this moment.
    pub(super) fn extend(&mut self, acts: &[Act], at: Instant) {
        self.0.retain(|_, (_, at)| at.elapsed() < RECENT);
        self.0.extend(acts.iter().filter_map(repeatable).map(|(key, what)| (key, (what, at))));
    }
}

/// About which object of which cluster an act is, and what it does, if it may be repeated.
fn repeatable(act: &Act) -> Option<((String, String), u64)> {
    match act {
        Act::Approve(one) => Some(((one.cluster.clone(), one.name.clone()), hash(&one.plan.resource_version))),
        Act::Pull(pull) if pull.repeats => {
            Some(((pull.cluster.clone(), String::new()), hash(&format!("{:?}", pull.steps))))
        }
        _ => None,
    }
}

/// Creates a view, or lets it ask for another object. Another client's view of the name is not ours to change: the
/// cluster waits until it is gone.
pub(super) async fn request(
    upgrades: &Upgrades,
    observation: &Observation<'_>,
    request: &ViewRequest,
) -> Result<(), ReconcileError> {
    let view = objects::view(observation.upgrade, request);
    let patch = json!({ "metadata": { "labels": view["metadata"]["labels"] }, "spec": view["spec"] });
    let written = create(upgrades, VIEW, &view).await?;
    let is_known = observation.known.views.contains_key(&(request.cluster.clone(), request.name.clone()));
    let written = match written {
        // TALM creates some without the labels that are watched.
        None if is_known || request.adopts => {
            // Its answer holds the last result, which is the cluster's.
            let api: Api<Guarded<ViewObject>> = Api::namespaced(upgrades.hub().client.clone(), &request.cluster);
            match api.patch(&request.name, &as_controller(), &Patch::Merge(&patch)).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => None,
                patched => Some(patched.map_err(ReconcileError::unversioned(format!(
                    "{} {}/{}",
                    VIEW[2], request.cluster, request.name
                )))?),
            }
        }
        written => written,
    };
    if let Some(written) = written {
        upgrades.governed.viewed(&written);
    }
    Ok(())
}

/// Carries out the steps of a pull of images, one after the other.
pub(super) async fn pull(
    upgrades: &Upgrades,
    observation: &Observation<'_>,
    pull: &Pull,
) -> Result<(), ReconcileError> {
    for step in &pull.steps {
        match step {
            Step::DeleteView(name) => delete(upgrades, VIEW, &pull.cluster, name).await?,
            Step::DeleteAction(name) => delete(upgrades, ACTION, &pull.cluster, name).await?,
            Step::View(view) => request(upgrades, observation, view).await?,
            Step::Act(name, spec) => {
                let action = objects::action(observation.upgrade, (&pull.cluster, name), spec);
                act(upgrades, action).await?;
            }
        }
    }
    Ok(())
}

async fn delete(upgrades: &Upgrades, kind: [&str; 4], cluster: &str, name: &str) -> Result<(), ReconcileError> {
    lead(upgrades)?;
    match api(upgrades, kind, cluster).delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        deleted => drop(deleted.map_err(ReconcileError::unversioned(format!("{} {cluster}/{name}", kind[2])))?),
    }
    if kind == VIEW {
        upgrades.governed.forgot(&(cluster.to_owned(), name.to_owned()));
    }
    Ok(())
}

/// Creates an action. One of its name is an earlier try. None changes the hub itself: the policy of our account would
/// refuse it.
pub(super) async fn act(upgrades: &Upgrades, action: Value) -> Result<(), ReconcileError> {
    if action["metadata"]["namespace"] == objects::LOCAL_CLUSTER {
        return Ok(());
    }
    create::<Named>(upgrades, ACTION, &action).await.map(drop)
}

/// Creates an object. `None`: one of its name is there already, or the namespace or the kind is not.
pub(super) async fn create<K: Foreign>(
    upgrades: &Upgrades,
    kind: [&str; 4],
    object: &Value,
) -> Result<Option<Guarded<K>>, ReconcileError> {
    lead(upgrades)?;
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    let (namespace, what) = (text("namespace"), format!("{} {}/{}", kind[2], text("namespace"), text("name")));
    let requests = Requests::new(DynamicObject::url_path(&resource(kind), Some(&namespace)));
    let request = match requests.create(&created(), object.to_string().into_bytes()) {
        Ok(request) => request,
        Err(error) => return Err(ReconcileError::unversioned(what)(kube::Error::BuildRequest(error))),
    };
    match upgrades.hub().client.request(request).await {
        Ok(written) => Ok(Some(written)),
        Err(kube::Error::Api(status)) if status.is_already_exists() || is_gone(kind, &status) => Ok(None),
        // Not as a lost race, which is tried again at once.
        Err(error) if is_missing(&error) => {
            Err(ReconcileError::read("the namespace or the kind of what is created")(error))
        }
        Err(error) => Err(ReconcileError::unversioned(what)(error)),
    }
}

fn is_missing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found())
}

/// Whether the namespace of a cluster is gone, or about to be, or the hub does not serve views and actions: that
/// holds up no other cluster.
fn is_gone(kind: [&str; 4], status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let is_terminating = causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating");
    (kind == VIEW || kind == ACTION) && (is_terminating || status.is_not_found())
}

/// Deletes the views of a cluster, and its actions: one that is left over would be carried out whenever the cluster
/// wakes.
pub(super) async fn forget(
    upgrades: &Upgrades,
    observation: &Observation<'_>,
    cluster: &str,
    has_actions: bool,
) -> Result<(), ReconcileError> {
    let upgrade = observation.upgrade;
    let own = key_of(upgrade);
    let all = observation.known.views.range((cluster.to_owned(), String::new())..);
    let mut views = all.take_while(|((namespace, _), _)| namespace == cluster);
    let is_own = |view: &View| (&view.upgrade.namespace, &view.upgrade.name) == (&own.0, &own.1);
    if views.any(|(_, view)| is_own(view)) {
        let labels = format!("{UPGRADE}={},{UPGRADE_NAMESPACE}={}", own.1, own.0);
        delete_all(upgrades, VIEW, cluster, &labels).await?;
    }
    let acts = upgrade
        .status
        .as_ref()
        .is_some_and(|status| !status.managed_policies_content.is_empty() || status.precaching.is_some());
    if has_actions && acts {
        delete_all(upgrades, ACTION, cluster, &format!("{UPGRADE}={}", objects::action_label(upgrade))).await?;
    }
    Ok(())
}

/// Deletes every object of a kind with these labels.
pub(super) async fn delete_all(
    upgrades: &Upgrades,
    kind: [&str; 4],
    namespace: &str,
    labels: &str,
) -> Result<(), ReconcileError> {
    lead(upgrades)?;
    let all = ListParams::default().labels(labels);
    match api(upgrades, kind, namespace).delete_collection(&DeleteParams::default(), &all).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        deleted => {
            deleted.map(drop).map_err(ReconcileError::unversioned(format!("{} of namespace {namespace}", kind[3])))
        }
    }
}

pub(super) fn created() -> PostParams {
    PostParams { field_manager: as_controller().field_manager, ..PostParams::default() }
}
