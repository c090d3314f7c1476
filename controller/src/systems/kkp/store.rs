//! The record in its `ConfigMap`, written by compare-and-swap.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use shared::kkp::api::Cluster;
use shared::kkp::keys;
use shared::kkp::record::Record;
use shared::record::{Format, RecordError};

use super::Kkp;
use crate::runtime::hub::named;
use crate::runtime::{Class, ReconcileError, Reconciled, WriteError};

/// What a record is stored by.
const WRITE_RECORD: &str = "write the record";

/// A record as it was read.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The record, or why it cannot be read.
    pub record: Result<Record, RecordError>,
    /// The version of its `ConfigMap`.
    version: Option<String>,
    /// Whether the API server rejects changes of its data: another client has made it so.
    immutable: bool,
    /// The annotations of the request on it, if KKP refused every write to the Cluster (row 27).
    pub request: BTreeMap<String, String>,
}

/// The `ConfigMap` in this version.
fn object(cluster: &Cluster, version: Option<String>) -> ConfigMap {
    named(&cluster.control_plane_namespace(), keys::RECORD.0, version)
}

impl Stored {
    fn of(found: &ConfigMap, record: Result<Record, RecordError>) -> Self {
        let mut request = found.annotations().clone();
        request.retain(|key, _| keys::REQUEST.contains(&key.as_str()));
        Self { record, version: found.resource_version(), immutable: found.immutable == Some(true), request }
    }

    /// What it says, if that can be read.
    pub fn readable(&self) -> Option<&Record> {
        self.record.as_ref().ok()
    }
}

/// Reads the record.
pub async fn read(kkp: &Kkp, cluster: &Cluster) -> Reconciled<Option<Stored>> {
    let found = kkp.handle.hub.find(&object(cluster, None)).await.map_err(ReconcileError::read("the record"))?;
    Ok(found.map(|found| {
        let text = found.data.as_ref().and_then(|data| data.get(keys::RECORD.1)).ok_or(RecordError::Unreadable);
        Stored::of(&found, text.and_then(|text| Record::read(text)))
    }))
}

/// Writes the record over the one that was read, or as the first.
pub async fn write(kkp: &Kkp, cluster: &Cluster, read: Option<&Stored>, record: &Record) -> Reconciled<Stored> {
    let too_long = |source| ReconcileError::new("TooLong", Class::Failed, WRITE_RECORD).because(source);
    let text = record.bounded_text().map_err(too_long)?;
    let mut object = object(cluster, read.and_then(|read| read.version.clone()));
    if let Some(read) = read.filter(|read| read.immutable) {
        remove(kkp, cluster, read).await?;
        (object.metadata.resource_version, object.metadata.annotations) = (None, Some(read.request.clone()));
    }
    object.data = Some([(keys::RECORD.1.to_owned(), text)].into());
    let written = kkp.handle.hub.store(&object).await.map_err(ReconcileError::of_other("Record", WRITE_RECORD))?;
    Ok(Stored::of(&written, Ok(record.clone())))
}

/// Removes the record that was read; one that another process has changed stays.
pub async fn remove(kkp: &Kkp, cluster: &Cluster, read: &Stored) -> Reconciled<()> {
    let removed = kkp.handle.hub.delete(&object(cluster, read.version.clone())).await;
    removed.map_err(ReconcileError::of_other("Record", WRITE_RECORD))
}

/// For a write to the Cluster.
pub fn cluster_not_written() -> impl FnOnce(WriteError) -> ReconcileError {
    ReconcileError::of_target("Cluster", "write the Cluster")
}

/// Nothing is written without the claim to lead.
pub fn lead(kkp: &Kkp) -> Reconciled<()> {
    kkp.handle.hub.lead().map_err(|_| ReconcileError::not_leader())
}
