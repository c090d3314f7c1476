//! The durable record of a target's machines: one Secret beside the target, for platforms that delete machines during a
//! sleep.

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use shared::cloud::{ClusterRef, Entry, Ledger, LedgerError};

use crate::runtime::{Hub, WriteError};

/// Key of the record in its Secret.
const KEY: &str = "hibernation";

/// Greatest size of a record. A Secret holds 1 MiB, with its other keys.
const MOST: usize = 900 * 1024;

/// The Secret with one target's record. Nothing is read or written before a driver asks.
pub struct SecretLedger {
    hub: Hub,
    namespace: String,
    name: String,
}

impl SecretLedger {
    /// The record of this cluster.
    pub fn new(hub: &Hub, cluster: &ClusterRef) -> Self {
        let name = format!("{}-hibernation-config", cluster.name);
        Self { hub: hub.clone(), namespace: cluster.namespace.clone(), name }
    }

    /// The Secret in this version.
    fn secret(&self, version: Option<&str>) -> Secret {
        let (name, namespace) = (Some(self.name.clone()), Some(self.namespace.clone()));
        let resource_version = version.map(str::to_owned);
        Secret {
            metadata: ObjectMeta { name, namespace, resource_version, ..ObjectMeta::default() },
            ..Secret::default()
        }
    }

    async fn get(&self) -> Result<Option<Entry>, LedgerError> {
        let found = self.hub.api(&self.secret(None)).get_opt(&self.name).await;
        let Some(secret) = found.map_err(|error| self.unanswered("read", &error))? else { return Ok(None) };
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
        let data = Some([(KEY.to_owned(), ByteString(bytes.to_vec()))].into());
        let written = self.hub.store(&Secret { data, ..self.secret(seen) }).await;
        written
            .map(|written| written.resource_version().unwrap_or_default())
            .map_err(|error| self.failed("write", error))
    }

    async fn remove(&self, seen: &str) -> Result<(), LedgerError> {
        self.hub.delete(&self.secret(Some(seen))).await.map_err(|error| self.failed("delete", error))
    }

    fn failed(&self, verb: &str, error: WriteError) -> LedgerError {
        match error {
            WriteError::NotLeader => LedgerError::NotLeader,
            // A Secret that exists, has another version, or is gone: another writer was quicker.
            WriteError::Conflict(_) | WriteError::Gone(_) => LedgerError::Conflict,
            WriteError::Refused(error) | WriteError::Failed(error) => self.unanswered(verb, &error),
        }
    }

    fn unanswered(&self, verb: &str, error: &kube::Error) -> LedgerError {
        LedgerError::Failed(format!("{verb} Secret {}: {error}", self.name))
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
