//! Repairs the Machines of a woken cluster: replaces spot Machines that lost their instances, and writes the IDs of new
//! instances into the others. Which ones, is decided in [`shared::hive::machines`].

use jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, Preconditions};
use serde_json::json;
use shared::cloud::Inventory;
use shared::hive::machines::{EXCLUDE_NODE_DRAINING, Rename, to_rename, to_replace};
use shared::spoke::fields::INTERRUPTIBLE;
use shared::spoke::kinds::{MACHINE_NAMESPACE, Machine};
use shared::text::sanitize;
use tracing::info;

use crate::runtime::{ReconcileError, WriteError};
use crate::spoke::reader::{SpokeClient, if_there};
use fair::ChargedValue;

/// Annotation in which the machine API of OpenStack keeps the ID of a Machine's server.
const RESOURCE_ID: &str = "openstack-resourceId";

/// Deletes the Machines that lost their instances with the sleep, for their `MachineSet`s to make new ones. Returns
/// their names, which no later pass finds again, and why others were not deleted: every Machine is tried.
///
/// For a wake that began at `resume_started`, with the cluster's instances as they were listed since then. Doing it
/// twice does no harm: what is being deleted, or was made since, is left alone. Ends early when `may` says no.
pub async fn replace(
    spoke: &SpokeClient,
    existing: &Inventory,
    resume_started: Timestamp,
    may: impl Fn() -> bool,
) -> (Vec<String>, Result<(), ReconcileError>) {
    let params = ListParams::default().labels(INTERRUPTIBLE);
    let (mut replaced, mut result) = (Vec::new(), Ok(()));
    let machines = match machines(spoke, &params, "spot Machines").await {
        Ok(Some(machines)) => machines,
        Ok(None) => return (replaced, result),
        Err(error) => return (replaced, Err(error)),
    };
    for machine in to_replace(&machines, existing, resume_started) {
        if !may() {
            break;
        }
        let name = &machine.metadata.name;
        match replace_one(spoke, machine).await {
            Ok(()) => {
                let name = sanitize(name);
                info!(machine = name, "spot Machine replaced: its instance is gone");
                replaced.push(name);
            }
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {} // already deleted or changed
            Err(source) => result = Err(not_written(&sanitize(name), source)),
        }
    }
    (replaced, result)
}

/// Gives Machines the names of the instances that were made in place of theirs, so that the machine API finds them
/// again. Doing it twice does no harm. Ends early when `may` says no.
///
/// # Errors
/// When the spoke refuses; every Machine is tried first.
pub async fn rename(spoke: &SpokeClient, existing: &Inventory, may: impl Fn() -> bool) -> Result<(), ReconcileError> {
    let Some(machines) = machines(spoke, &ListParams::default(), "Machines").await? else { return Ok(()) };
    let mut result = Ok(());
    for rename in to_rename(&machines, existing) {
        if !may() {
            return Err(ReconcileError::not_leader());
        }
        let name = sanitize(&rename.machine.metadata.name);
        match rename_one(spoke, &rename).await {
            Ok(()) => info!(machine = name, provider_id = rename.provider_id, "Machine names its new instance"),
            Err(source) => result = Err(not_written(&name, source)),
        }
    }
    result
}

fn not_written(machine: &str, source: kube::Error) -> ReconcileError {
    ReconcileError::write(format!("Machine {machine}"))(WriteError::Failed(Box::new(source)))
}

async fn rename_one(spoke: &SpokeClient, rename: &Rename<'_>) -> kube::Result<()> {
    let Rename { machine: Machine { metadata, .. }, provider_id, is_named, is_failed } = rename;
    let (namespace, name) = (Some(MACHINE_NAMESPACE), &metadata.name);
    if !is_named {
        let id = provider_id.rsplit('/').next().unwrap_or_default();
        // The resourceVersion is a precondition: a Machine that changed since is read again first.
        let named = json!({
            "metadata": {"resourceVersion": metadata.resource_version, "annotations": {RESOURCE_ID: id}},
            "spec": {"providerID": provider_id},
        });
        spoke.patch::<Machine>(namespace, name, &Patch::Merge(named)).await?;
    }
    if *is_failed {
        let revived = json!({"status": {"phase": "Provisioned", "errorMessage": null, "errorReason": null}});
        spoke.patch_subresource::<Machine>(namespace, "status", name, &Patch::Merge(revived)).await?;
    }
    Ok(())
}

/// The Machines of a cluster; `None` if it has no machine API.
async fn machines(
    spoke: &SpokeClient,
    params: &ListParams,
    what: &'static str,
) -> Result<Option<ChargedValue<Vec<Machine>>>, ReconcileError> {
    if_there(spoke.list(Some(MACHINE_NAMESPACE), params, what).await).map_err(ReconcileError::list(what))
}

async fn replace_one(spoke: &SpokeClient, Machine { metadata, .. }: &Machine) -> kube::Result<()> {
    // The resourceVersion is a precondition: a Machine that changed since is read again first.
    let mark = json!({"metadata": {
        "resourceVersion": metadata.resource_version,
        "annotations": {EXCLUDE_NODE_DRAINING: "true"},
    }});
    spoke.patch::<Machine>(Some(MACHINE_NAMESPACE), &metadata.name, &Patch::Merge(mark)).await?;
    let this_one = Preconditions { uid: Some(metadata.uid.clone()), ..Preconditions::default() };
    let params = DeleteParams { preconditions: Some(this_one), ..DeleteParams::default() };
    spoke.delete::<Machine>(Some(MACHINE_NAMESPACE), &metadata.name, &params).await
}

#[cfg(test)]
mod tests {
    use fair::{Consumer, MemoryLimit};
    use shared::cloud::{Instance, InstanceState, Listing, Profile, ProviderIds};

    use super::*;
    use crate::runtime::testing::MemoryHub;

    const MACHINES: &str = "/apis/machine.openshift.io/v1beta1/namespaces/openshift-machine-api/machines";

    #[tokio::test(start_paused = true)]
    async fn what_was_replaced_is_reported_also_where_another_machine_fails() {
        let hub = MemoryHub::default();
        for name in ["a", "b", "c"] {
            let machine = json!({
                "metadata": {
                    "name": name, "uid": name, "creationTimestamp": "2026-11-01T10:00:00Z",
                    "labels": { INTERRUPTIBLE: "" },
                },
                "spec": { "providerID": format!("aws:///us-east-1a/i-{name}") },
            });
            hub.put(&format!("{MACHINES}/{name}"), machine);
        }
        let spoke = SpokeClient::new(hub.client(), MemoryLimit::default().of(Consumer::new("tenant", "spoke")));
        let provider_ids = ProviderIds { prefix: "aws:///", id_prefix: "i-" };
        let profile = Profile { provider_ids, terminates_spot: true, ..Profile::default() };
        let instances = vec![Instance::new("i-other", InstanceState::Running)];
        let existing = Inventory::new(profile, Listing { instances, ..Listing::default() });
        let woken = "2026-11-21T06:00:00Z".parse().unwrap();
        hub.inject(|method, path, _| (*method == "DELETE" && path.ends_with("/b")).then_some(500));
        let (replaced, result) = replace(&spoke, &existing, woken, || true).await;
        assert_eq!(replaced, ["a", "c"]);
        assert!(result.unwrap_err().to_string().starts_with("write Machine b"));
        hub.heal();
        let (replaced, result) = replace(&spoke, &existing, woken, || true).await;
        assert!(replaced == ["b"] && result.is_ok(), "{replaced:?}");
        hub.inject(|_, _, _| Some(403));
        let (replaced, result) = replace(&spoke, &existing, woken, || true).await;
        assert!(replaced.is_empty() && result.is_err());
    }
}
