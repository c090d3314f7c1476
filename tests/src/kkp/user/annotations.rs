//! Watches the annotations of `MachineDeployments`: on the way up there is one write, and none until the Nodes are
//! Ready (row 53).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use kube::api::DynamicObject;
use kube::runtime::watcher::Event;
use kube::{Api, Client, ResourceExt as _};

use crate::kkp::log::Rule;
use crate::kkp::machinery;
use crate::kkp::registry::{State, replicas_of};
use crate::kkp::watched::Watched;
use crate::supervisor::clock::Clock;

/// A `MachineDeployment` as it was seen last.
#[derive(Default)]
struct Last {
    annotations: BTreeMap<String, String>,
    replicas: i64,
    /// Whether it was raised from 0, and its Nodes are not all Ready yet.
    rises: bool,
}

/// A cache that notes breaches of the rule.
pub(crate) fn watch(user: &Client, state: &Arc<Mutex<State>>) -> Watched<DynamicObject> {
    let kind = machinery("MachineDeployment");
    let state = state.clone();
    let mut seen: BTreeMap<String, Last> = BTreeMap::new();
    let see = move |event: &Event<DynamicObject>| {
        let (Event::Apply(object) | Event::InitApply(object)) = event else { return };
        let last = seen.entry(object.name_any()).or_default();
        let replicas = replicas_of(object);
        let ready = super::super::number(object, "/status/readyReplicas");
        let changed = own(object) != own_of(&last.annotations);
        // One that goes to 0 again awaits no Node.
        if last.rises && changed && replicas > 0 && matches!(event, Event::Apply(_)) {
            let text = format!("MachineDeployment {} before its Nodes are Ready", object.name_any());
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            state.log.violation(Clock::now(), Rule::SecondAnnotation, text);
        }
        let begins = last.replicas == 0 && replicas > 0 && matches!(event, Event::Apply(_));
        last.rises = (begins || last.rises) && ready < replicas;
        last.replicas = replicas;
        last.annotations = object.annotations().clone();
    };
    Watched::start(Api::namespaced_with(user.clone(), "kube-system", &kind), kind, see)
}

/// All annotations count but those that machine-controller itself writes.
fn own(object: &DynamicObject) -> BTreeMap<String, String> {
    own_of(object.annotations())
}

fn own_of(annotations: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    annotations
        .iter()
        .filter(|(key, _)| !is_of_controller(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Whether machine-controller keeps this annotation for its roll-outs.
pub(crate) fn is_of_controller(key: &str) -> bool {
    key.starts_with("machinedeployment.clusters.k8s.io/")
}
