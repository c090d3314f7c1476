//! operating-system-manager: the bootstrap Secrets of each `MachineDeployment`.
//!
//! Row 53: it hashes all annotations of the `MachineDeployment`; any change makes the Secrets anew. The token in them
//! lives one hour, which no test waits for.

use std::collections::BTreeMap;

use anyhow::Result;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, DynamicObject, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::Lead;
use super::annotations::is_of_controller;
use crate::kkp::registry::UserCluster;
use crate::kkp::seed::unless_gone;
use crate::kubeconfig::base64;
use crate::supervisor::clock::Clock;

/// Namespace of the Secrets.
pub(super) const NAMESPACE: &str = "cloud-init-settings";
/// What the Secrets were made of.
pub(super) const HASH: &str = "k8c.io/machine-deployment-revision";
/// Which token it is.
pub(super) const TOKEN: &str = "testbed.hibernate.sh/token";

/// Name of a Secret of a `MachineDeployment`.
pub(super) fn name(deployment: &str, which: &str) -> String {
    format!("{deployment}-kube-system-{which}-config")
}

/// One round.
pub(super) async fn tick(cluster: &UserCluster, lead: &mut Lead) -> Result<()> {
    if !lead.holds(cluster, "operating-system-manager") {
        return Ok(());
    }
    let secrets: Api<Secret> = Api::namespaced(cluster.user.clone(), NAMESPACE);
    for deployment in cluster.of_user.deployments.all() {
        let (hash, bootstrap) = (hash(&deployment), name(&deployment.name_any(), "bootstrap"));
        let found = cluster.of_user.secrets.named(&bootstrap);
        if found.as_ref().is_some_and(|secret| secret.annotations().get(HASH) == Some(&hash)) {
            continue;
        }
        let (token, until) = (format!("{:08x}", rand::random::<u32>()), Clock::now() + 3600.0);
        for which in ["bootstrap", "provisioning"] {
            let secret = secret(&deployment, which, &hash, &token)?;
            unless_gone(secrets.delete(&secret.name_any(), &DeleteParams::default()).await)?;
            secrets.create(&PostParams::default(), &secret).await?;
        }
        let tokens: Api<Secret> = Api::namespaced(cluster.user.clone(), "kube-system");
        let bearer = bearer(&deployment.name_any(), &token, until)?;
        unless_gone(tokens.delete(&bearer.name_any(), &DeleteParams::default()).await)?;
        tokens.create(&PostParams::default(), &bearer).await?;
        cluster.call("osm", format!("made the bootstrap Secrets of {}", deployment.name_any()));
    }
    Ok(())
}

/// All annotations of the `MachineDeployment`, in order.
pub(super) fn hash(deployment: &DynamicObject) -> String {
    let all: BTreeMap<&String, &String> =
        deployment.annotations().iter().filter(|(key, _)| !is_of_controller(key)).collect();
    let text = format!("{all:?}{}", deployment.data.pointer("/spec/template").unwrap_or_default());
    super::sets::digest(&text)
}

/// The token as the API server knows it, by which a kubelet joins. Its label names the `MachineDeployment`.
fn bearer(deployment: &str, token: &str, until: f64) -> Result<Secret> {
    let expires = jiff::Timestamp::from_duration(jiff::SignedDuration::try_from_secs_f64(until)?)?;
    let id = super::sets::digest(deployment).chars().take(6).collect::<String>();
    Ok(serde_json::from_value(json!({
        "metadata": {
            "name": format!("bootstrap-token-{id}"), "namespace": "kube-system",
            "labels": { "machinedeployment.k8s.io/name": format!("kube-system-{deployment}") },
        },
        "type": "bootstrap.kubernetes.io/token",
        "data": {
            "token-id": base64(&id), "token-secret": base64(&format!("{token}{token}")), "expiration": base64(&expires.to_string()),
            "usage-bootstrap-authentication": base64("true"), "usage-bootstrap-signing": base64("true"),
        },
    }))?)
}

fn secret(deployment: &DynamicObject, which: &str, hash: &str, token: &str) -> Result<Secret> {
    Ok(serde_json::from_value(json!({
        "metadata": {
            "name": name(&deployment.name_any(), which), "namespace": NAMESPACE, "annotations": { HASH: hash, TOKEN: token },
        },
        "data": { "cloud-config": base64(&format!("#cloud-config\n# token {token}\n")) },
    }))?)
}
