//! The durable record of a target's machines: one Secret beside the target, for platforms that delete machines during a
//! sleep.

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use shared::cloud::{ClusterRef, Entry, Ledger, LedgerError};

use crate::runtime::hub::named;
use crate::runtime::{Hub, WriteError};

/// Key of the record in its Secret.
const KEY: &str = "hibernation";

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
        named(&self.namespace, &self.name, version.map(str::to_owned))
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
        let (namespace, name) = (&self.namespace, &self.name);
        match error {
            kube::Error::Api(status) if status.is_forbidden() => LedgerError::Denied(format!(
                "the controller has no permission to {verb} Secret {namespace}/{name}: add the component \
                 manifests/components/openstack to the kustomization: {}",
                status.message
            )),
            error => LedgerError::Failed(format!("{verb} Secret {namespace}/{name}: {error}")),
        }
    }
}

impl Ledger for SecretLedger {
    fn read(&self) -> BoxFuture<'_, Result<Option<Entry>, LedgerError>> {
        async {
            let found = self.hub.find(&self.secret(None)).await.map_err(|error| self.unanswered("read", &error))?;
            let Some(secret) = found else { return Ok(None) };
            let version = secret.resource_version().unwrap_or_default();
            let bytes = secret.data.and_then(|mut data| data.remove(KEY));
            // Another writer's, or damaged: a record that cannot be read must not pass for one that does not exist.
            match bytes.map(|ByteString(bytes)| String::from_utf8(bytes)) {
                Some(Ok(text)) => Ok(Some(Entry { text, version })),
                _ => Err(LedgerError::Failed(format!("Secret {} has no text in key {KEY}", self.name))),
            }
        }
        .boxed()
    }

    fn write<'a>(&'a self, text: &'a str, seen: Option<&'a str>) -> BoxFuture<'a, Result<String, LedgerError>> {
        async move {
            let data = Some([(KEY.to_owned(), ByteString(text.into()))].into());
            let written = self.hub.store(&Secret { data, ..self.secret(seen) }).await;
            let version = written.map(|written| written.resource_version().unwrap_or_default());
            version.map_err(|error| self.failed("write", error))
        }
        .boxed()
    }

    fn clear<'a>(&'a self, seen: &'a str) -> BoxFuture<'a, Result<(), LedgerError>> {
        async move { self.hub.delete(&self.secret(Some(seen))).await.map_err(|error| self.failed("delete", error)) }
            .boxed()
    }
}
