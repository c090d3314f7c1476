//! OpenShift's Machines of a cluster: one per instance, with the Node that it became and its addresses.

use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, CustomResourceExt as _};
use serde_json::{Value, json};
use shared::spoke::kinds::MACHINE_NAMESPACE;

use super::LABEL;
use super::machine::Machine;
use crate::apply;
use crate::ec2::Instance;
use crate::world::helpers::eventually;

/// Label of Machines on spot instances.
const INTERRUPTIBLE: &str = "machine.openshift.io/interruptible-instance";

/// For how long a spoke may still be getting ready to store a kind that is new to it.
const NEW: Duration = Duration::from_secs(15);

/// The kind and its namespace, for a new spoke.
pub fn definitions() -> Vec<Value> {
    vec![
        json!(Machine::crd()),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": MACHINE_NAMESPACE}}),
    ]
}

/// Makes the Machines of these instances.
///
/// # Errors
/// When the spoke refuses them.
pub async fn create(client: &Client, infra_id: &str, instances: &[Instance]) -> Result<()> {
    let machines: Api<Machine> = Api::namespaced(client.clone(), MACHINE_NAMESPACE);
    for instance in instances {
        let name = instance.tags.get("Name").unwrap_or(&instance.id);
        let mut labels = json!({LABEL: infra_id});
        if instance.lifecycle.as_deref() == Some("spot") {
            labels[INTERRUPTIBLE] = json!("");
        }
        let object = json!({
            "apiVersion": "machine.openshift.io/v1beta1",
            "kind": "Machine",
            "metadata": {"name": name, "namespace": MACHINE_NAMESPACE, "labels": labels},
            "spec": {"providerID": instance.provider_id()},
        });
        eventually(NEW, "place for Machines", || apply::all(client, std::slice::from_ref(&object))).await?;
        let address = |type_: &str, address: &str| json!({"type": type_, "address": address});
        let status = json!({"status": {
            "phase": "Running",
            "nodeRef": {"kind": "Node", "name": instance.private_dns},
            "addresses": [
                address("InternalIP", &instance.private_ip),
                address("InternalDNS", &instance.private_dns),
                address("Hostname", &instance.private_dns),
            ],
        }});
        let written = machines.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await;
        written.with_context(|| format!("write the status of Machine {name}"))?;
    }
    Ok(())
}

/// Removes the Machines of a cluster.
///
/// # Errors
/// When the spoke refuses.
pub async fn remove(client: &Client, infra_id: &str) -> Result<()> {
    let ours = ListParams::default().labels(&format!("{LABEL}={infra_id}"));
    let machines: Api<Machine> = Api::namespaced(client.clone(), MACHINE_NAMESPACE);
    let delete = async || Ok(machines.delete_collection(&DeleteParams::default(), &ours).await.map(drop)?);
    eventually(NEW, "place for Machines", delete).await.context("delete Machines")
}
