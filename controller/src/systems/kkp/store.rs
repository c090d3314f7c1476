//! The record in its `ConfigMap`, written by compare-and-swap.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ObjectMeta, Patch, PostParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::json;
use shared::kkp::api::{Cluster, Request};
use shared::kkp::keys;
use shared::kkp::record::{Record, RecordError};

use super::{Kkp, KkpError};
use crate::runtime::hub::as_controller;
use crate::runtime::{Moved, System, WriteError, classify};

/// A record as it was read.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The record.
    pub record: Record,
    /// The version of its `ConfigMap`.
    version: Option<String>,
    /// The request on it, if KKP refused every write to the Cluster (row 27).
    pub request: Option<Request>,
}

fn api(kkp: &Kkp, cluster: &Cluster) -> Api<ConfigMap> {
    Api::namespaced(kkp.hub().client.clone(), &cluster.control_plane_namespace())
}

/// Reads the record. The inner error is about what it says.
pub async fn read(kkp: &Kkp, cluster: &Cluster) -> Result<Result<Option<Stored>, RecordError>, KkpError> {
    let (name, key) = keys::RECORD;
    let found = api(kkp, cluster).get_opt(name).await;
    let found = found.map_err(|source| KkpError::Read { what: "the record", source: Box::new(source) })?;
    let Some(found) = found else { return Ok(Ok(None)) };
    let text = found.data.as_ref().and_then(|data| data.get(key)).ok_or(RecordError::Unreadable);
    Ok(text.and_then(|text| Record::read(text)).map(|record| {
        let request = found.metadata.annotations.as_ref().and_then(Request::of);
        Some(Stored { record, version: found.resource_version(), request })
    }))
}

/// Writes the record over the one that was read, or as the first.
pub async fn write(kkp: &Kkp, cluster: &Cluster, read: Option<&Stored>, record: &Record) -> Result<Stored, KkpError> {
    let (name, key) = keys::RECORD;
    let data = BTreeMap::from([(key.to_owned(), record.text().map_err(KkpError::TooLong)?)]);
    lead(kkp)?;
    let api = api(kkp, cluster);
    let written = if let Some(read) = read {
        let patch = json!({ "metadata": { "resourceVersion": read.version }, "data": data });
        api.patch(name, &as_controller(), &Patch::Merge(patch)).await
    } else {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let new = ConfigMap { metadata, data: Some(data), ..ConfigMap::default() };
        let params = PostParams { field_manager: as_controller().field_manager, ..PostParams::default() };
        api.create(&params, &new).await
    };
    let written = written.map_err(|error| KkpError::Record(refused(error)))?;
    let request = written.metadata.annotations.as_ref().and_then(Request::of);
    Ok(Stored { record: record.clone(), version: written.resource_version(), request })
}

/// Removes the record that was read; one that another process has changed stays.
pub async fn remove(kkp: &Kkp, cluster: &Cluster, read: &Stored) -> Result<(), KkpError> {
    lead(kkp)?;
    let preconditions = Some(Preconditions { resource_version: read.version.clone(), uid: None });
    let params = DeleteParams { preconditions, ..DeleteParams::default() };
    match api(kkp, cluster).delete(keys::RECORD.0, &params).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(KkpError::Record(refused(error))),
    }
}

fn refused(error: kube::Error) -> WriteError {
    classify(error, Moved::Unknown)
}

/// Nothing is written without the claim to lead.
pub fn lead(kkp: &Kkp) -> Result<(), KkpError> {
    if kkp.hub().claim.holds() { Ok(()) } else { Err(KkpError::NotLeader) }
}
