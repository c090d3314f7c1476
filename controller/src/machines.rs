//! Makes a woken cluster's spot Machines anew. Which ones, is judged in [`decide`].

mod decide;

use jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, Preconditions};
use serde_json::json;
use shared::cloud::Inventory;
use shared::spoke::fields::INTERRUPTIBLE;
use shared::spoke::kinds::{MACHINE_NAMESPACE, Machine};
use shared::text::sanitize;
use tracing::info;

use self::decide::{EXCLUDE_NODE_DRAINING, to_replace};
use crate::runtime::ReconcileError;
use crate::runtime::hub::as_controller;
use crate::spoke::reader::{SpokeClient, is_not_there};

/// Deletes the Machines that lost their instances with the sleep, for their `MachineSet`s to make new ones. Returns
/// their names.
///
/// For a wake that began at `resume_started`, with the cluster's instances as they were listed since then. Doing it
/// twice does no harm: what is being deleted, or was made since, is left alone. Ends early when `may` says no.
///
/// # Errors
/// When the spoke refuses; every Machine is tried first.
pub async fn replace(
    spoke: &SpokeClient,
    existing: &Inventory,
    resume_started: Timestamp,
    may: impl Fn() -> bool,
) -> Result<Vec<String>, ReconcileError> {
    let params = ListParams::default().labels(INTERRUPTIBLE);
    let machines = match spoke.list::<Machine>(Some(MACHINE_NAMESPACE), &params, "spot Machines").await {
        Ok(machines) => machines,
        Err(error) if is_not_there(&error) => return Ok(Vec::new()), // a cluster without the machine API
        Err(error) => return Err(ReconcileError::List("spot Machines", Box::new(error))),
    };
    let (mut replaced, mut failed) = (Vec::new(), None);
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
            Err(source) if is(&source, 404) || is(&source, 409) => {} // already deleted or changed
            Err(source) => {
                failed = Some(ReconcileError::ControlPlane(format!("Machine {}", sanitize(name)), Box::new(source)));
            }
        }
    }
    failed.map_or(Ok(replaced), Err)
}

async fn replace_one(spoke: &SpokeClient, Machine { metadata, .. }: &Machine) -> kube::Result<()> {
    // The resourceVersion is a precondition: a Machine that changed since is read again first.
    let mark = json!({"metadata": {
        "resourceVersion": metadata.resource_version,
        "annotations": {EXCLUDE_NODE_DRAINING: "true"},
    }});
    spoke.patch::<Machine>(Some(MACHINE_NAMESPACE), &metadata.name, &as_controller(), &Patch::Merge(mark)).await?;
    let this_one = Preconditions { uid: Some(metadata.uid.clone()), ..Preconditions::default() };
    let params = DeleteParams { preconditions: Some(this_one), ..DeleteParams::default() };
    spoke.delete::<Machine>(Some(MACHINE_NAMESPACE), &metadata.name, &params).await
}

fn is(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}
