//! The record in its `ConfigMap`, written by compare-and-swap.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ObjectMeta, Patch, PostParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::json;
use shared::kkp::api::{Cluster, Desired, Request};
use shared::kkp::keys;
use shared::kkp::record::{Record, RecordError};

use super::Kkp;
use crate::runtime::hub::as_controller;
use crate::runtime::{Moved, ReconcileError, System, WriteError, classify};

/// A record as it was read.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The record, or why it cannot be read.
    pub record: Result<Record, RecordError>,
    /// The version of its `ConfigMap`.
    version: Option<String>,
    /// Whether the API server rejects changes of its data: another client has made it so.
    immutable: bool,
    /// The request on it, if KKP refused every write to the Cluster (row 27).
    pub request: Option<Request>,
}

fn api(kkp: &Kkp, cluster: &Cluster) -> Api<ConfigMap> {
    Api::namespaced(kkp.hub().client.clone(), &cluster.control_plane_namespace())
}

impl Stored {
    fn of(found: &ConfigMap, record: Result<Record, RecordError>) -> Self {
        let request = found.metadata.annotations.as_ref().and_then(Request::of);
        Self { record, version: found.resource_version(), immutable: found.immutable == Some(true), request }
    }

    /// What it says, if that can be read.
    pub fn readable(&self) -> Option<&Record> {
        self.record.as_ref().ok()
    }
}

/// Reads the record.
pub async fn read(kkp: &Kkp, cluster: &Cluster) -> Result<Option<Stored>, ReconcileError> {
    let (name, key) = keys::RECORD;
    let found = api(kkp, cluster).get_opt(name).await;
    let Some(found) = found.map_err(ReconcileError::read("the record"))? else { return Ok(None) };
    let text = found.data.as_ref().and_then(|data| data.get(key)).ok_or(RecordError::Unreadable);
    let record = text.and_then(|text| Record::read(text));
    Ok(Some(Stored::of(&found, record)))
}

/// Writes the record over the one that was read, or as the first.
pub async fn write(
    kkp: &Kkp,
    cluster: &Cluster,
    read: Option<&Stored>,
    record: &Record,
) -> Result<Stored, ReconcileError> {
    let (name, key) = keys::RECORD;
    let data = BTreeMap::from([(key.to_owned(), record.text().map_err(ReconcileError::TooLong)?)]);
    lead(kkp)?;
    let api = api(kkp, cluster);
    if let Some(read) = read.filter(|read| read.immutable) {
        remove(kkp, cluster, read).await?;
    }
    let written = if let Some(read) = read.filter(|read| !read.immutable) {
        let patch = json!({ "metadata": { "resourceVersion": read.version }, "data": data });
        api.patch(name, &as_controller(), &Patch::Merge(patch)).await
    } else {
        let annotations = read.and_then(|read| read.request).map(annotations);
        let metadata = ObjectMeta { name: Some(name.to_owned()), annotations, ..ObjectMeta::default() };
        let new = ConfigMap { metadata, data: Some(data), ..ConfigMap::default() };
        let params = PostParams { field_manager: as_controller().field_manager, ..PostParams::default() };
        api.create(&params, &new).await
    };
    let written = written.map_err(|error| ReconcileError::Record(refused(error)))?;
    Ok(Stored::of(&written, Ok(record.clone())))
}

/// The annotations of a request, for a record that is made anew.
fn annotations(request: Request) -> BTreeMap<String, String> {
    let desired = if request.desired == Desired::Running { "Running" } else { "Hibernating" };
    let at = request.at.map(|at| (keys::POWER_STATE_AT.to_owned(), at.to_string()));
    [(keys::POWER_STATE.to_owned(), desired.to_owned())].into_iter().chain(at).collect()
}

/// Removes the record that was read; one that another process has changed stays.
pub async fn remove(kkp: &Kkp, cluster: &Cluster, read: &Stored) -> Result<(), ReconcileError> {
    lead(kkp)?;
    let preconditions = Some(Preconditions { resource_version: read.version.clone(), uid: None });
    let params = DeleteParams { preconditions, ..DeleteParams::default() };
    match api(kkp, cluster).delete(keys::RECORD.0, &params).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(ReconcileError::Record(refused(error))),
    }
}

fn refused(error: kube::Error) -> WriteError {
    classify(error, Moved::Unknown)
}

/// Nothing is written without the claim to lead.
pub fn lead(kkp: &Kkp) -> Result<(), ReconcileError> {
    if kkp.hub().claim.holds() { Ok(()) } else { Err(ReconcileError::NotLeader) }
}
