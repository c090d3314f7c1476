//! What may scale a workload again while it sleeps, each with what to do: worth a warning, never a reason to fail.

use std::collections::BTreeSet;

use futures::{StreamExt, stream};
use hub::error::HubError;
use hub::{HubClient, Resource};
use serde_json::Value;
use shared::annotation::annotation;
use shared::fdb::recover::facts::label;
use shared::finding::{Finding, Severity};
use shared::kinds::Kind;
use shared::object::{controller, group_of, text};
use shared::text::sanitize_to;
use view::CONCURRENCY;
use view::target::Target;

static AUTOSCALER: Kind =
    Kind::namespaced("autoscaling", &["v2"], "HorizontalPodAutoscaler", "horizontalpodautoscalers");
static SCALED_OBJECT: Kind = Kind::namespaced("keda.sh", &["v1alpha1"], "ScaledObject", "scaledobjects");

/// By which the cluster-autoscaler knows a `MachineDeployment`: of Cluster API, and of KKP's machine-controller.
const NODE_GROUP: [&str; 4] = [
    "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size",
    "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size",
    "cluster.k8s.io/cluster-api-autoscaler-node-group-min-size",
    "cluster.k8s.io/cluster-api-autoscaler-node-group-max-size",
];

/// What KEDA reads as false.
const FALSE: [&str; 6] = ["0", "f", "F", "false", "False", "FALSE"];

/// Code of what undoes nothing.
const STANDS_STILL: &str = "AutoscalerPauses";
/// What a sentence shows of a name.
const MAX_NAME: usize = 128;

/// The autoscalers of these namespaces, without those that cannot be listed. One request for each kind and namespace.
pub(crate) async fn autoscalers(hub: &HubClient, namespaces: BTreeSet<String>) -> Vec<Value> {
    let both = |name: String| [&AUTOSCALER, &SCALED_OBJECT].map(|kind| (Resource::preferred(kind), name.clone()));
    let list = async |(kind, namespace): (Resource, String)| hub.list(kind, Some(&namespace), "", "").await;
    let mut lists = stream::iter(namespaces.into_iter().flat_map(both)).map(list).buffer_unordered(CONCURRENCY);
    let mut found = Vec::new();
    while let Some(list) = lists.next().await {
        match list {
            Ok(list) => found.extend(list.items),
            Err(HubError::NoKind(_)) => {}
            Err(error) => hub.note(&format!("cannot list autoscalers: {error}")),
        }
    }
    found
}

/// Everything that may scale this workload again; nothing for kinds without such a field.
pub(crate) fn of(target: &Target, autoscalers: &[Value]) -> Vec<Finding> {
    let Some(field) = target.row.deployed_field else { return Vec::new() };
    let (object, what) = (&target.object, target.full_name());
    let scalers = autoscalers.iter().filter(|scaler| scales(scaler, target));
    let scalers: BTreeSet<_> = scalers.filter_map(|scaler| by_autoscaler(scaler, &what)).collect();
    let owners = controller(object).map(|owner| {
        let owner = format!("{}/{}", short(text(owner, "/kind")), short(text(owner, "/name")));
        ("Owner", format!("{owner} controls {what} and may set spec.{field} again: scale or suspend {owner} instead"))
    });
    let tools = [by_topology(object, &what), by_node_autoscaler(object, &what), by_argo_cd(object, &what, field)];
    let flux = [("kustomize", "kustomization"), ("helm", "helmrelease")];
    let flux = flux.into_iter().filter_map(|(group, kind)| by_flux(object, &what, field, group, kind));
    let found = scalers.into_iter().chain(owners).chain(tools.into_iter().flatten()).chain(flux);
    let severity = |code: &str| if code == STANDS_STILL { Severity::Info } else { Severity::Warn };
    found.map(|(code, sentence)| Finding::new(severity(code), code, sentence)).collect()
}

type Found = Option<(&'static str, String)>;

fn by_autoscaler(scaler: &Value, what: &str) -> Found {
    let name = text(scaler, "/metadata/name");
    let keda = controller(scaler).filter(|owner| text(owner, "/apiVersion").starts_with("keda.sh/"));
    let of_hpa = || keda.map(|owner| text(owner, "/name")).or_else(|| name.strip_prefix("keda-hpa-"));
    let own = (text(scaler, "/kind") == SCALED_OBJECT.kind).then_some(name);
    if let Some(scaled) = own.or_else(of_hpa) {
        return by_keda(scaler, &short(scaled), what);
    }
    let (code, effect) = match scaler.pointer("/spec/minReplicas").and_then(Value::as_u64) {
        Some(0) => ("Autoscaler", ", also from 0: set its spec.minReplicas to 1 for as long as it sleeps"),
        _ => (STANDS_STILL, ": it stands still at 0 replicas and goes on after the wake; nothing has to be done"),
    };
    Some((code, format!("horizontalpodautoscaler/{} scales {what}{effect}", short(name))))
}

/// By a `ScaledObject` or by its HPA, which has the same annotations.
///
/// KEDA deletes the HPA of a `ScaledObject` that is paused. Paused at a count, its target is set to that count at each
/// reconcile, such as after a restart of KEDA; paused without one, it is left as it is [`handlePause` of
/// kedacore/keda]. A `ScaledObject` that fails its checks has no HPA either, and scales once they pass.
fn by_keda(scaled: &Value, name: &str, what: &str) -> Found {
    const PAUSED_AT: &str = "autoscaling.keda.sh/paused-replicas";
    let paused = annotation(scaled, "autoscaling.keda.sh/paused").is_some_and(|paused| !FALSE.contains(&paused));
    let undo = match annotation(scaled, PAUSED_AT).map(|count| count.parse().unwrap_or(0_u32)) {
        Some(0) => return None,
        Some(count) => format!("set that to {count} again"),
        None if paused => return None,
        None => "remove that".to_owned(),
    };
    let sentence = format!(
        "scaledobject/{name} (KEDA) scales {what}, also from 0: once it sleeps, annotate scaledobject/{name} with \
         {PAUSED_AT}=0, and {undo} before the resume"
    );
    Some(("Keda", sentence))
}

fn by_topology(object: &Value, what: &str) -> Found {
    label(object, "topology.cluster.x-k8s.io/owned")?;
    let name = |key: &str| short(label(object, key).unwrap_or("?"));
    let cluster = name("cluster.x-k8s.io/cluster-name");
    let entry = name("topology.cluster.x-k8s.io/deployment-name");
    let sentence = format!(
        "the topology of Cluster {cluster} owns {what} and sets spec.replicas again if it has a count: set replicas of \
         the entry {entry} of its spec.topology.workers.machineDeployments instead"
    );
    Some(("Topology", sentence))
}

fn by_node_autoscaler(object: &Value, what: &str) -> Found {
    let set = |key: &&str| annotation(object, key).map(|value| format!("{key}={}", short(value)));
    let bounds: Vec<String> = NODE_GROUP.iter().filter_map(set).collect();
    let sentence = format!(
        "the cluster-autoscaler scales {what} and may raise it for pending Pods: remove the annotations {} before the \
         sleep, and put them back after the wake",
        bounds.join(" and ")
    );
    (!bounds.is_empty()).then_some(("NodeAutoscaler", sentence))
}

fn by_argo_cd(object: &Value, what: &str, field: &str) -> Found {
    let tracked = annotation(object, "argocd.argoproj.io/tracking-id").and_then(|id| id.split(':').next());
    let app = short(label(object, "argocd.argoproj.io/instance").or(tracked)?);
    let sentence = format!(
        "Argo CD application {app} deploys {what} and may set spec.{field} again: turn its automated sync off for as \
         long as it sleeps, or add /spec/{field} to its ignoreDifferences with the sync option \
         RespectIgnoreDifferences=true"
    );
    Some(("ArgoCd", sentence))
}

fn by_flux(object: &Value, what: &str, field: &str, group: &str, kind: &str) -> Found {
    let name = short(label(object, &format!("{group}.toolkit.fluxcd.io/name"))?);
    let namespace = label(object, &format!("{group}.toolkit.fluxcd.io/namespace")).map(short);
    let place = namespace.map(|namespace| format!(" in namespace {namespace}")).unwrap_or_default();
    let sentence = format!(
        "{kind}/{name} (Flux){place} deploys {what} and may set spec.{field} again: set spec.suspend of {kind}/{name} \
         to true for as long as it sleeps"
    );
    Some(("Flux", sentence))
}

fn scales(scaler: &Value, target: &Target) -> bool {
    // Only KEDA has defaults.
    let of = |key: &str, default: &'static str| match text(scaler, &format!("/spec/scaleTargetRef/{key}")) {
        "" if text(scaler, "/kind") == SCALED_OBJECT.kind => default,
        found => found,
    };
    let group = group_of(of("apiVersion", "apps/v1"));
    text(scaler, "/metadata/namespace") == target.namespace
        && group == target.row.kind.group
        && of("kind", "Deployment") == target.row.kind.kind
        && of("name", "") == target.name
}

fn short(name: &str) -> String {
    sanitize_to(name, MAX_NAME)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::kinds::CRON_JOB;
    use shared::kinds::workload::{CAPI_MACHINE_DEPLOYMENT, DEPLOYMENT};

    use super::*;

    fn scaler(api_version: &str, kind: &str, name: &str) -> Value {
        json!({
            "metadata": { "name": "auto", "namespace": "shop" },
            "spec": { "scaleTargetRef": { "apiVersion": api_version, "kind": kind, "name": name } },
        })
    }

    fn web(metadata: &Value) -> Target {
        let mut object = json!({ "metadata": { "name": "web", "namespace": "shop" }, "spec": { "replicas": 0 } });
        json_patch::merge(&mut object["metadata"], metadata);
        Target::new(&DEPLOYMENT, "v1", object)
    }

    fn lines(found: &[Finding]) -> Vec<String> {
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn only_the_autoscaler_of_this_very_workload_is_named() {
        for (scaler, named) in [
            (scaler("apps/v1", "Deployment", "web"), true),
            (scaler("apps/v1beta2", "Deployment", "web"), true),
            (scaler("apps/v1", "Deployment", "db"), false),
            (scaler("apps/v1", "StatefulSet", "web"), false),
            (scaler("other.io/v1", "Deployment", "web"), false),
            (scaler("v1", "Deployment", "web"), false),
        ] {
            assert_eq!(!of(&web(&json!({})), std::slice::from_ref(&scaler)).is_empty(), named, "{scaler}");
        }
    }

    #[test]
    fn an_autoscaler_is_named_with_what_it_does_at_0_replicas() {
        let with = |change: Value| {
            let mut scaler = scaler("apps/v1", "Deployment", "web");
            json_patch::merge(&mut scaler, &change);
            lines(&of(&web(&json!({})), &[scaler]))
        };
        let still = "info AutoscalerPauses: horizontalpodautoscaler/auto scales deployment.apps/web: it stands still \
                     at 0 replicas and goes on after the wake; nothing has to be done";
        let keda = "warn Keda: scaledobject/orders (KEDA) scales deployment.apps/web, also from 0: once it sleeps, \
                    annotate scaledobject/orders with autoscaling.keda.sh/paused-replicas=0, and remove that before \
                    the resume";
        let owner = |kind: &str, api_version: &str| json!([{ "kind": kind, "apiVersion": api_version, "name": "orders", "controller": true }]);
        for (change, expected) in [
            (json!({}), still),
            (json!({ "spec": { "minReplicas": 1 } }), still),
            (
                json!({ "spec": { "minReplicas": 0 } }),
                "warn Autoscaler: horizontalpodautoscaler/auto scales deployment.apps/web, also from 0: set its \
                 spec.minReplicas to 1 for as long as it sleeps",
            ),
            (json!({ "metadata": { "name": "keda-hpa-orders" }, "spec": { "minReplicas": 1 } }), keda),
            (json!({ "metadata": { "ownerReferences": owner("ScaledObject", "keda.sh/v1alpha1") } }), keda),
            (json!({ "metadata": { "ownerReferences": owner("Shop", "example.com/v1") } }), still),
        ] {
            assert_eq!(with(change.clone()), [expected], "{change}");
        }
    }

    #[test]
    fn a_scaled_object_is_named_unless_keda_leaves_its_target_alone() {
        let scaled = |reference: &Value, annotations: &Value| {
            json!({
                "kind": "ScaledObject",
                "metadata": { "name": "orders", "namespace": "shop", "annotations": annotations },
                "spec": { "scaleTargetRef": reference },
            })
        };
        let web = web(&json!({}));
        let advice = |undo: &str| {
            format!(
                "warn Keda: scaledobject/orders (KEDA) scales deployment.apps/web, also from 0: once it sleeps, annotate \
                 scaledobject/orders with autoscaling.keda.sh/paused-replicas=0, and {undo} before the resume"
            )
        };
        let (remove, restore) = ("remove that", "set that to 5 again");
        for (paused, at, undo) in [
            (None, None, Some(remove)), // its HPA is yet to be made
            (Some("false"), None, Some(remove)),
            (Some("0"), None, Some(remove)),
            (Some("true"), None, None),
            (Some("yes"), None, None),
            (Some(""), None, None),
            (None, Some("5"), Some(restore)),
            (Some("true"), Some("5"), Some(restore)),
            (Some("false"), Some("5"), Some(restore)),
            (None, Some("0"), None),
            (None, Some("five"), None), // KEDA refuses it, and scales nothing
        ] {
            let annotations =
                json!({ "autoscaling.keda.sh/paused": paused, "autoscaling.keda.sh/paused-replicas": at });
            let object = scaled(&json!({ "name": "web" }), &annotations);
            assert_eq!(lines(&of(&web, &[object])), Vec::from_iter(undo.map(advice)), "{paused:?} {at:?}");
        }
        for (reference, named) in [
            (json!({ "name": "web", "kind": "Deployment", "apiVersion": "apps/v1" }), true),
            (json!({ "name": "web", "kind": "Rollout" }), false),
            (json!({ "name": "web", "apiVersion": "argoproj.io/v1alpha1" }), false),
            (json!({ "name": "db" }), false),
        ] {
            assert_eq!(!of(&web, &[scaled(&reference, &json!({}))]).is_empty(), named, "{reference}");
        }
        let mut made = scaler("apps/v1", "Deployment", "web");
        made["metadata"]["name"] = json!("keda-hpa-orders");
        let both = [scaled(&json!({ "name": "web" }), &json!({})), made];
        assert_eq!(lines(&of(&web, &both)), [advice(remove)], "named once");
    }

    #[test]
    fn whatever_may_scale_it_again_is_named_with_what_to_do() {
        let owner = |controller: bool| json!([{ "kind": "Kafka", "apiVersion": "x.io/v1", "name": "k", "controller": controller }]);
        let argo = "warn ArgoCd: Argo CD application shop deploys deployment.apps/web and may set spec.replicas again: \
                    turn its automated sync off for as long as it sleeps, or add /spec/replicas to its \
                    ignoreDifferences with the sync option RespectIgnoreDifferences=true";
        for (metadata, expected) in [
            (json!({}), vec![]),
            (json!({ "labels": { "app.kubernetes.io/instance": "shop" } }), vec![]),
            (json!({ "ownerReferences": owner(false) }), vec![]),
            (
                json!({ "ownerReferences": owner(true) }),
                vec![
                    "warn Owner: Kafka/k controls deployment.apps/web and may set spec.replicas again: scale or \
                     suspend Kafka/k instead",
                ],
            ),
            (json!({ "labels": { "argocd.argoproj.io/instance": "shop" } }), vec![argo]),
            (
                json!({ "annotations": { "argocd.argoproj.io/tracking-id": "shop:apps/Deployment:shop/web" } }),
                vec![argo],
            ),
            (
                json!({ "labels": {
                    "kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux-system",
                    "helm.toolkit.fluxcd.io/name": "web\u{1b}[31m",
                } }),
                vec![
                    "warn Flux: kustomization/apps (Flux) in namespace flux-system deploys deployment.apps/web and may \
                     set spec.replicas again: set spec.suspend of kustomization/apps to true for as long as it sleeps",
                    "warn Flux: helmrelease/web [31m (Flux) deploys deployment.apps/web and may set spec.replicas \
                     again: set spec.suspend of helmrelease/web [31m to true for as long as it sleeps",
                ],
            ),
        ] {
            assert_eq!(lines(&of(&web(&metadata), &[])), expected, "{metadata}");
        }
    }

    #[test]
    fn of_a_cron_job_it_is_the_suspension_that_may_be_undone() {
        let labels = json!({ "argocd.argoproj.io/instance": "shop", "helm.toolkit.fluxcd.io/name": "shop" });
        let object = json!({ "metadata": { "name": "report", "namespace": "shop", "labels": labels } });
        let found = lines(&of(&Target::new(&CRON_JOB, "v1", object), &[]));
        assert!(found[0].contains("/spec/suspend to its ignoreDifferences"), "{found:?}");
        assert!(found.len() == 2 && !found.concat().contains("replicas"), "{found:?}");
    }

    #[test]
    fn machines_are_scaled_by_their_topology_and_by_the_autoscaler_of_either_group() {
        let machines = |metadata: &Value| {
            let mut object = json!({ "metadata": { "name": "md", "namespace": "shop" } });
            json_patch::merge(&mut object["metadata"], metadata);
            lines(&of(&Target::new(&CAPI_MACHINE_DEPLOYMENT, "v1beta1", object), &[]))
        };
        let labels = json!({
            "topology.cluster.x-k8s.io/owned": "", "topology.cluster.x-k8s.io/deployment-name": "md-0",
            "cluster.x-k8s.io/cluster-name": "blue",
        });
        assert_eq!(
            machines(&json!({ "labels": labels })),
            ["warn Topology: the topology of Cluster blue owns machinedeployment.cluster.x-k8s.io/md and sets \
                 spec.replicas again if it has a count: set replicas of the entry md-0 of its \
                 spec.topology.workers.machineDeployments instead"]
        );
        for group in ["cluster.x-k8s.io", "cluster.k8s.io"] {
            let [min, max] = ["min", "max"].map(|end| format!("{group}/cluster-api-autoscaler-node-group-{end}-size"));
            let mut annotations = json!({});
            annotations[&min] = json!("1");
            annotations[&max] = json!("5");
            assert_eq!(
                machines(&json!({ "annotations": annotations })),
                [format!(
                    "warn NodeAutoscaler: the cluster-autoscaler scales machinedeployment.cluster.x-k8s.io/md and may \
                     raise it for pending Pods: remove the annotations {min}=1 and {max}=5 before the sleep, and put \
                     them back after the wake"
                )]
            );
        }
    }
}
