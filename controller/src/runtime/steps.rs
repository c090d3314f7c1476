//! Durable steps at the hub: records are written with compare-and-swap, before the step that they name begins.
//!
//! `shared::steps` has the record and the order of steps. Systems whose record has a form of its own, such as the stamps of
//! FoundationDB's volumes, write it by [`record`], under the same rule: nothing is done before the API server has it, and
//! nothing is overwritten that has changed since it was read.

use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use kube::api::Patch;
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use shared::steps::{Operation, Record, RecordError};

use super::hub::as_controller;
use super::write::{Moved, WriteError, classify};
use super::{Hub, Object, clock};

/// Annotations to write; `None` removes one.
pub type Annotations = Vec<(&'static str, Option<String>)>;

/// Which object a record goes to, and the version that was read of it.
pub struct Place<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// The version that was read.
    pub version: Option<&'a str>,
}

/// Writes a record of annotations, if the object still is the one that was read.
///
/// # Errors
/// When nothing was written, or the outcome is unknown. A lost race answers 409, so that a 422 is a refusal, and needs no
/// right to read the object again.
pub async fn record<K>(hub: &Hub, place: &Place<'_>, step: &Annotations) -> Result<(), WriteError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    if !hub.claim.holds() {
        return Err(WriteError::NotLeader);
    }
    let patch = json!({"metadata": {"resourceVersion": place.version, "annotations": values(step)}});
    let api: Api<K> = Api::namespaced(hub.client.clone(), place.namespace);
    let written = api.patch_metadata(place.name, &as_controller(), &Patch::Merge(patch)).await;
    written.map(drop).map_err(|error| classify(error, Moved::No))
}

fn values(annotations: &Annotations) -> Value {
    annotations.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect()
}

/// An operation whose record is kept in an annotation of its target.
///
/// No system uses it yet: dehydration and rollouts will. Only tests prove it. The release of FoundationDB's process groups has a
/// record of its own form, written by [`record`].
#[derive(Clone, Copy, Debug)]
pub struct Durable {
    /// The operation.
    pub operation: Operation,
    /// The annotation.
    pub key: &'static str,
}

/// Why a step could not be recorded. It must not begin.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The record would be too long.
    #[error("record the step")]
    Record(#[from] RecordError),
    /// It could not be written.
    #[error("write the step's record")]
    Write(#[from] WriteError),
}

#[cfg_attr(not(test), expect(dead_code, reason = "for dehydration, which is to come; proven by tests"))]
impl Durable {
    /// The record of an operation that is under way.
    ///
    /// # Errors
    /// When it cannot be gone on from: nothing may be done then, and the target has to say why.
    pub fn read(&self, object: &impl ResourceExt) -> Result<Option<Record>, RecordError> {
        object.annotations().get(self.key).map(|text| self.operation.read(text)).transpose()
    }

    /// Records the first step, with what it takes to undo the operation. Returns the object as it was written.
    ///
    /// # Errors
    /// When it is not recorded.
    pub async fn begin<K: Object>(
        &self,
        hub: &Hub,
        object: &K,
        undo: BTreeMap<String, String>,
    ) -> Result<K, StepError> {
        let record = self.operation.begin(undo, clock::now());
        self.write(hub, object, Some(&record)).await
    }

    /// The step of `record` is complete: records the next one, or removes the record after the last. Returns the object as it
    /// was written.
    ///
    /// # Errors
    /// When it is not recorded. The same step is then run again.
    pub async fn advance<K: Object>(&self, hub: &Hub, object: &K, record: &Record) -> Result<K, StepError> {
        self.write(hub, object, self.operation.after(record, clock::now()).as_ref()).await
    }

    async fn write<K: Object>(&self, hub: &Hub, object: &K, record: Option<&Record>) -> Result<K, StepError> {
        let text = record.map(Record::text).transpose()?;
        let patch = json!({"metadata": {"annotations": {self.key: text}}});
        Ok(hub.patch(object, patch).await?)
    }
}
