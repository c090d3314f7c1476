//! What KKP ensures: certificates first, then the workloads.

use anyhow::Result;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DynamicObject, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::unless_gone;
use crate::apply;
use crate::kkp::certificates::{self, SECRETS};
use crate::kkp::control_plane::{self, ETCD, MEMBERS, VERSIONED};
use crate::kkp::registry::UserCluster;
use crate::kkp::{etcd, text};

/// Row 15: certificates that are missing or expire soon, before any Deployment is touched.
pub(super) async fn certificates(cluster: &UserCluster) -> Result<()> {
    for secret in SECRETS {
        let found = cluster.of_seed.secrets.named(secret.0);
        if certificates::is_due(found.as_deref(), secret.1) {
            put_certificate(cluster, secret, certificates::life()).await?;
            cluster.call("kkp", format!("made the certificate in Secret {}", secret.0));
        }
    }
    let until = cluster.state().certificates.kubeconfig_until;
    if certificates::kubeconfig_is_due(until) || cluster.of_seed.secrets.named(crate::kkp::KUBECONFIG.0).is_none() {
        super::kubeconfig::renew(cluster, certificates::life()).await?;
        cluster.call("kkp", "made the kubeconfigs");
    }
    Ok(())
}

/// Writes a certificate that is valid for so many days.
pub(crate) async fn put_certificate(cluster: &UserCluster, secret: &(&str, &str, &str), days: i64) -> Result<()> {
    let data = cluster.state().certificates.data(secret, days)?;
    put_secret(cluster, secret.0, data).await
}

/// Writes a Secret of the control plane.
pub(super) async fn put_secret(
    cluster: &UserCluster,
    name: &str,
    data: std::collections::BTreeMap<String, k8s_openapi::ByteString>,
) -> Result<()> {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(cluster.info.namespace.clone()),
        ..ObjectMeta::default()
    };
    let secret = json!(Secret { metadata, data: Some(data), ..Secret::default() });
    let api: Api<Secret> = Api::namespaced(cluster.seed.clone(), &cluster.info.namespace);
    api.patch(name, &PatchParams::apply(apply::MANAGER).force(), &Patch::Apply(secret)).await?;
    Ok(())
}

/// A workload that is not as KKP wants it.
pub(super) enum Drift {
    /// It does not exist.
    Missing(&'static str, Value),
    /// Its replicas or its image differ. Rows 11: everything else on it stays.
    Differs(&'static str, &'static str, Value),
}

/// The version of a component: what the status says, which an update moves (row 14).
fn version(object: &DynamicObject, name: &str) -> String {
    let of_component = VERSIONED.iter().find(|(component, _)| *component == name).map(|(_, key)| *key);
    let key = of_component.unwrap_or("controlPlane");
    let detail = text(object, &format!("/status/versions/{key}"));
    if detail.is_empty() { text(object, "/spec/version") } else { detail }.to_owned()
}

/// Everything that is not as KKP wants it: rows 1 to 3.
pub(super) fn drift(cluster: &UserCluster, object: &DynamicObject) -> Vec<Drift> {
    let mut found = Vec::new();
    let etcd_serves = cluster.state().etcd.serves();
    let etcd = cluster
        .of_seed
        .stateful_sets
        .named(ETCD)
        .map(|set| i64::from(replicas(set.spec.as_ref().and_then(|spec| spec.replicas))));
    let all = control_plane::kept().chain([("StatefulSet", ETCD, etcd::wanted(etcd, etcd_serves, MEMBERS))]);
    for (kind, name, wanted) in all {
        let workload = control_plane::workload(&cluster.info.namespace, kind, name, wanted, &version(object, name));
        let seen = if kind == "Deployment" {
            cluster.of_seed.deployments.named(name).map(|one| json!(&*one))
        } else {
            cluster.of_seed.stateful_sets.named(name).map(|one| json!(&*one))
        };
        let Some(seen) = seen else {
            found.push(Drift::Missing(kind, workload));
            continue;
        };
        let image = "/spec/template/spec/containers/0/image";
        let same = seen.pointer("/spec/replicas") == workload.pointer("/spec/replicas")
            && seen.pointer(image) == workload.pointer(image);
        if !same {
            let containers = json!([{ "name": name, "image": workload.pointer(image) }]);
            let patch = json!({ "spec": { "replicas": wanted, "template": { "spec": { "containers": containers } } } });
            found.push(Drift::Differs(kind, name, patch));
        }
    }
    found
}

fn replicas(count: Option<i32>) -> i32 {
    count.unwrap_or(1)
}

/// Writes what differs.
pub(super) async fn workloads(cluster: &UserCluster, drift: Vec<Drift>) -> Result<()> {
    let (seed, namespace) = (&cluster.seed, &cluster.info.namespace);
    let deployments: Api<Deployment> = Api::namespaced(seed.clone(), namespace);
    let sets: Api<StatefulSet> = Api::namespaced(seed.clone(), namespace);
    let (new, change) = (PostParams::default(), PatchParams::default());
    for one in drift {
        match one {
            Drift::Missing("Deployment", object) => {
                unless_exists(deployments.create(&new, &serde_json::from_value(object)?).await)?;
            }
            Drift::Missing(_, object) => unless_exists(sets.create(&new, &serde_json::from_value(object)?).await)?,
            Drift::Differs(kind, name, patch) => {
                cluster.call("kkp", format!("reset {kind} {name} to {}", patch["spec"]["replicas"]));
                let patch = Patch::Strategic(patch);
                if kind == "Deployment" {
                    unless_gone(deployments.patch(name, &change, &patch).await)?;
                } else {
                    unless_gone(sets.patch(name, &change, &patch).await)?;
                }
            }
        }
    }
    Ok(())
}

fn unless_exists<T>(result: kube::Result<T>) -> Result<()> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => Ok(other.map(drop)?),
    }
}
