//! The durable record of a target's machines: one Secret beside the target, for platforms that delete machines during a sleep.

use cloud_common::Permit;
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ObjectMeta, Patch, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use shared::annotation::keys;
use shared::cloud::{ClusterRef, Entry, Ledger, LedgerError};

use crate::runtime::hub::as_controller;

/// Key of the record in its Secret.
const KEY: &str = "hibernation";

/// Greatest size of a record. A Secret holds 1 MiB, with its other keys.
const MOST: usize = 900 * 1024;

/// The Secret with one target's record. Nothing is read or written before a driver asks.
pub struct SecretLedger {
    secrets: Api<Secret>,
    name: String,
    permit: Permit,
}

impl SecretLedger {
    /// The record of this cluster.
    pub fn new(client: &Client, cluster: &ClusterRef, permit: Permit) -> Self {
        let secrets = Api::namespaced(client.clone(), &cluster.namespace);
        Self { secrets, name: format!("{}-hibernation-config", cluster.name), permit }
    }

    async fn get(&self) -> Result<Option<Entry>, LedgerError> {
        let Some(secret) = self.secrets.get_opt(&self.name).await.map_err(|error| self.failed("read", &error))? else {
            return Ok(None);
        };
        let version = secret.resource_version().unwrap_or_default();
        match secret.data.and_then(|mut data| data.remove(KEY)) {
            Some(ByteString(bytes)) => Ok(Some(Entry { bytes, version })),
            // Somebody else's, or damaged: a record that cannot be read must not pass for one that does not exist.
            None => Err(LedgerError::Failed(format!("Secret {} has no key {KEY}", self.name))),
        }
    }

    async fn put(&self, bytes: &[u8], seen: Option<&str>) -> Result<String, LedgerError> {
        if bytes.len() > MOST {
            let message = format!("the record for Secret {} has {} bytes; {MOST} is the most", self.name, bytes.len());
            return Err(LedgerError::Failed(message));
        }
        if !(self.permit)() {
            return Err(LedgerError::NotLeader);
        }
        let data = [(KEY.to_owned(), ByteString(bytes.to_vec()))];
        let written = match seen {
            None => {
                let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
                let secret = Secret { metadata, data: Some(data.into()), ..Secret::default() };
                let params = PostParams { field_manager: Some(keys::CONTROLLER.to_owned()), ..PostParams::default() };
                self.secrets.create(&params, &secret).await
            }
            Some(seen) => {
                let [(key, value)] = data;
                // The resourceVersion makes it a compare-and-swap: another version is a conflict.
                let patch = Patch::Merge(json!({"metadata": {"resourceVersion": seen}, "data": {key: value}}));
                self.secrets.patch(&self.name, &as_controller(), &patch).await
            }
        };
        let written = written.map_err(|error| self.failed("write", &error))?;
        Ok(written.resource_version().unwrap_or_default())
    }

    async fn remove(&self, seen: &str) -> Result<(), LedgerError> {
        if !(self.permit)() {
            return Err(LedgerError::NotLeader);
        }
        let this_one = Preconditions { resource_version: Some(seen.to_owned()), ..Preconditions::default() };
        let params = DeleteParams { preconditions: Some(this_one), ..DeleteParams::default() };
        match self.secrets.delete(&self.name, &params).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(self.failed("delete", &error)),
        }
    }

    fn failed(&self, verb: &str, error: &kube::Error) -> LedgerError {
        match error {
            // A Secret that exists, has another version, or is gone: another writer was quicker.
            kube::Error::Api(status) if matches!(status.code, 404 | 409) => LedgerError::Conflict,
            other => LedgerError::Failed(format!("{verb} Secret {}: {other}", self.name)),
        }
    }
}

impl Ledger for SecretLedger {
    fn read(&self) -> BoxFuture<'_, Result<Option<Entry>, LedgerError>> {
        self.get().boxed()
    }

    fn write<'a>(&'a self, bytes: &'a [u8], seen: Option<&'a str>) -> BoxFuture<'a, Result<String, LedgerError>> {
        self.put(bytes, seen).boxed()
    }

    fn clear<'a>(&'a self, seen: &'a str) -> BoxFuture<'a, Result<(), LedgerError>> {
        self.remove(seen).boxed()
    }
}
