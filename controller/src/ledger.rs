//! The durable record of a target's machines: one Secret beside the target, for platforms that delete machines during a
//! sleep.

use std::collections::BTreeMap;

use futures::FutureExt;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use shared::cloud::{Entry, Ledger, LedgerError, LedgerFuture};
use shared::hive::api::ClusterDeployment;

use crate::runtime::hub::named;
use crate::runtime::{Hub, WriteError};

/// Key of the record in its Secret.
const KEY: &str = "hibernation";

/// Key of the same in the format of openshift/hive#2722.
const EXPORT: &str = "hibernation-config";

/// Labels by which Hive finds what belongs to a cluster, as openshift/hive#2722 sets them.
const LABELS: [&str; 2] = ["hive.openshift.io/cluster-deployment", "hive.openshift.io/hibernation-config"];

/// Longest value of a label.
const MAX_LABEL: usize = 63;

/// The Secret with one target's record. Nothing is read or written before a driver asks.
pub struct SecretLedger {
    hub: Hub,
    namespace: String,
    name: String,
    /// The target, with which the Secret goes.
    owner: Option<OwnerReference>,
    labels: BTreeMap<String, String>,
}

impl SecretLedger {
    /// The record of a cluster's machines on this platform.
    pub fn new(hub: &Hub, cluster: &ClusterDeployment, platform: &str) -> Self {
        let cluster_name = cluster.name_any();
        let labels = LABELS.map(str::to_owned).into_iter().zip([cluster_name.clone(), platform.to_owned()]);
        Self {
            hub: hub.clone(),
            namespace: cluster.namespace().unwrap_or_default(),
            name: format!("{cluster_name}-hibernation-config"),
            owner: cluster.owner_ref(&()),
            labels: labels.filter(|(_, value)| value.len() <= MAX_LABEL).collect(),
        }
    }

    /// The Secret in this version.
    fn secret(&self, version: Option<&str>) -> Secret {
        named(&self.namespace, &self.name, version.map(str::to_owned))
    }

    /// The Secret in this version, with these texts.
    fn with(&self, text: &str, export: Option<&str>, version: Option<&str>) -> Secret {
        let texts = [Some((KEY, text)), export.map(|export| (EXPORT, export))];
        let mut secret = self.secret(version);
        secret.metadata.owner_references = self.owner.clone().map(|owner| vec![owner]);
        secret.metadata.labels = Some(self.labels.clone());
        let data = texts.into_iter().flatten().map(|(key, text)| (key.to_owned(), ByteString(text.into())));
        secret.data = Some(data.collect());
        secret
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

/// Whether a Secret is this target's: its owner has the target's UID. Without our record it may have none, as that of
/// openshift/hive#2722.
fn is_of(secret: &Secret, target: Option<&OwnerReference>) -> bool {
    let mut owners = secret.owner_references().iter().filter(|owner| owner.kind == "ClusterDeployment").peekable();
    (owners.peek().is_none() && !has(secret, KEY))
        || owners.any(|owner| target.is_some_and(|target| target.uid == owner.uid))
}

fn has(secret: &Secret, key: &str) -> bool {
    secret.data.as_ref().is_some_and(|data| data.contains_key(key))
}

/// What to do about a Secret with another owner. Images carry copies of our record, and none of what
/// openshift/hive#2722 has.
fn advice(secret: &Secret, target: Option<&OwnerReference>) -> String {
    if has(secret, KEY) || !has(secret, EXPORT) {
        return "delete it, and the record is made again of what the images carry".to_owned();
    }
    format!(
        "the images carry no copy of its key {EXPORT}: save the Secret, and set metadata.ownerReferences to this \
         ClusterDeployment, uid {}",
        target.map_or("", |target| target.uid.as_str())
    )
}

impl Ledger for SecretLedger {
    fn read(&self) -> LedgerFuture<'_, Option<Entry>> {
        async {
            let found = self.hub.find(&self.secret(None)).await.map_err(|error| self.unanswered("read", &error))?;
            let Some(secret) = found else { return Ok(None) };
            if !is_of(&secret, self.owner.as_ref()) {
                let (namespace, name) = (&self.namespace, &self.name);
                return Err(LedgerError::Refused(format!(
                    "the record of the cluster's machines is refused: the owner of Secret {namespace}/{name} is not this \
                     ClusterDeployment; {}",
                    advice(&secret, self.owner.as_ref())
                )));
            }
            let version = secret.resource_version().unwrap_or_default();
            let bytes = secret.data.and_then(|mut data| data.remove(KEY).or_else(|| data.remove(EXPORT)));
            // Another writer's, or damaged: a record that cannot be read must not pass for one that does not exist.
            match bytes.map(|ByteString(bytes)| String::from_utf8(bytes)) {
                Some(Ok(text)) => Ok(Some(Entry { text, version })),
                _ => Err(LedgerError::Refused(format!("Secret {} has no text in key {KEY}", self.name))),
            }
        }
        .boxed()
    }

    fn write<'a>(&'a self, text: &'a str, export: Option<&'a str>, seen: Option<&'a str>) -> LedgerFuture<'a, String> {
        async move {
            let written = self.hub.store(&self.with(text, export, seen)).await;
            let version = written.map(|written| written.resource_version().unwrap_or_default());
            version.map_err(|error| self.failed("write", error))
        }
        .boxed()
    }

    fn clear<'a>(&'a self, seen: &'a str) -> LedgerFuture<'a, ()> {
        async move { self.hub.delete(&self.secret(Some(seen))).await.map_err(|error| self.failed("delete", error)) }
            .boxed()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::cloud::{CloudError, CloudErrorKind};

    use super::*;

    #[test]
    fn a_record_counts_only_for_the_uid_that_it_names() {
        let owner = |kind: &str, uid: &str| json!({"apiVersion": "v1", "kind": kind, "name": "demo", "uid": uid});
        let (own, other) = (owner("ClusterDeployment", "own"), owner("ClusterDeployment", "other"));
        let target: OwnerReference = serde_json::from_value(own.clone()).unwrap();
        for (key, owners, expected) in [
            (KEY, json!([own]), true),
            (KEY, json!([owner("Backup", "b"), own]), true),
            (KEY, json!([other]), false),
            (KEY, json!([owner("Backup", "own")]), false),
            (KEY, json!(null), false),
            // Of openshift/hive#2722.
            (EXPORT, json!(null), true),
            (EXPORT, json!([owner("Backup", "b")]), true),
            (EXPORT, json!([own]), true),
            (EXPORT, json!([other]), false),
        ] {
            let secret = json!({"metadata": {"ownerReferences": owners}, "data": {key: ""}});
            let secret: Secret = serde_json::from_value(secret).unwrap();
            assert_eq!(is_of(&secret, Some(&target)), expected, "{key} {owners}");
            if !expected {
                let advice = advice(&secret, Some(&target));
                assert_eq!(advice.starts_with("delete it, "), key == KEY, "only images of ours carry copies: {advice}");
                assert_eq!(advice.ends_with(", uid own"), key == EXPORT, "{advice}");
            }
        }
    }

    #[test]
    fn what_only_a_change_of_the_secret_helps_against_is_reported() {
        let kind = |error| CloudError::from(error).kind;
        assert_eq!(kind(LedgerError::Refused(String::new())), CloudErrorKind::Invalid);
        assert_eq!(kind(LedgerError::Failed(String::new())), CloudErrorKind::Unavailable);
    }
}
