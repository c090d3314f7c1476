//! Autoscalers of workloads that are put to sleep: worth a warning, never a reason to fail.

use std::collections::BTreeSet;

use futures::future::join_all;
use serde_json::Value;
use shared::target::{Advice, Change, Kind};

use crate::{
    api::{Hub, Resource},
    cmd::power::confirm::Planned,
    output,
    select::target::Target,
};

static AUTOSCALER: Kind =
    Kind::namespaced("autoscaling", &["v2"], "HorizontalPodAutoscaler", "horizontalpodautoscalers");

/// Warns of every autoscaler whose target is about to be put to sleep. One request for each namespace with workloads.
pub(crate) async fn warn(hub: &Hub, planned: &[Planned]) {
    let workloads: Vec<&Target> = planned
        .iter()
        .filter(|(target, plan)| {
            target.row.advice == Some(Advice::Autoscalers) && matches!(plan, Ok(Change::Patch { .. }))
        })
        .map(|(target, _)| target)
        .collect();
    let namespaces: BTreeSet<&str> = workloads.iter().map(|target| target.namespace.as_str()).collect();
    let resource = Resource::preferred(&AUTOSCALER);
    let lists = join_all(namespaces.into_iter().map(|namespace| hub.list(resource, Some(namespace), "", ""))).await;
    for list in lists {
        match list {
            Ok(list) => warnings(&list.items, &workloads).iter().for_each(|text| output::warning(text)),
            Err(error) if hub.verbose => output::note(&format!("cannot list autoscalers: {error}")),
            Err(_) => {}
        }
    }
}

fn warnings(autoscalers: &[Value], workloads: &[&Target]) -> Vec<String> {
    let pairs = autoscalers.iter().flat_map(|scaler| workloads.iter().map(move |target| (scaler, target)));
    pairs
        .filter(|(scaler, target)| scales(scaler, target))
        .filter_map(|(scaler, target)| {
            let name = scaler.pointer("/metadata/name")?.as_str()?;
            Some(format!(
                "horizontalpodautoscaler/{name} scales {}: it pauses at 0 replicas and resumes after the wake",
                target.full_name()
            ))
        })
        .collect()
}

fn scales(scaler: &Value, target: &Target) -> bool {
    let of =
        |key: &str| scaler.pointer(&format!("/spec/scaleTargetRef/{key}")).and_then(Value::as_str).unwrap_or_default();
    let group = of("apiVersion").split_once('/').map_or("", |(group, _)| group);
    let namespace = scaler.pointer("/metadata/namespace").and_then(Value::as_str);
    namespace == Some(&target.namespace)
        && group == target.row.kind.group
        && of("kind") == target.row.kind.kind
        && of("name") == target.name
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::target::workload::DEPLOYMENT;

    use super::*;

    fn scaler(api_version: &str, kind: &str, name: &str) -> Value {
        json!({
            "metadata": { "name": "auto", "namespace": "shop" },
            "spec": { "scaleTargetRef": { "apiVersion": api_version, "kind": kind, "name": name } },
        })
    }

    #[test]
    fn only_the_autoscaler_of_this_very_workload_is_named() {
        let web = Target::new(&DEPLOYMENT, "v1", json!({ "metadata": { "name": "web", "namespace": "shop" } }));
        for (scaler, named) in [
            (scaler("apps/v1", "Deployment", "web"), true),
            (scaler("apps/v1beta2", "Deployment", "web"), true),
            (scaler("apps/v1", "Deployment", "db"), false),
            (scaler("apps/v1", "StatefulSet", "web"), false),
            (scaler("other.io/v1", "Deployment", "web"), false),
            (scaler("v1", "Deployment", "web"), false),
        ] {
            assert_eq!(!warnings(std::slice::from_ref(&scaler), &[&web]).is_empty(), named, "{scaler}");
        }
    }
}
