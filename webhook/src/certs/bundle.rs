//! The caBundle of each entry of the two webhook configurations: seen, and owned by server-side apply.
//!
//! Only that field is ours. Whoever applies the manifests, which leave it out, leaves it alone; the entry itself must
//! exist first, because without its other fields the API server would not take it from us.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use kube::api::{Api, Patch, PatchParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use shared::annotation::keys;

/// Kind of the configuration that judges.
pub(super) const VALIDATING: &str = "ValidatingWebhookConfiguration";
/// Kind of the configuration that stamps and records.
pub(super) const MUTATING: &str = "MutatingWebhookConfiguration";

/// Of each entry of a configuration its name and its caBundle (PEM).
type Entries = Vec<(String, Vec<u8>)>;

/// A webhook configuration as it was observed last.
#[derive(Clone, Debug)]
pub(super) struct Published {
    /// Its version.
    version: Option<String>,
    /// What its entries hold.
    pub(super) entries: Entries,
}

/// A kind of webhook configuration.
pub(super) trait Configuration:
    kube::Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
    + Clone
    + std::fmt::Debug
    + DeserializeOwned
    + Serialize
    + Send
    + 'static
{
    /// Name of the kind.
    const KIND: &'static str;

    /// Of each entry its name and its caBundle.
    fn entries(&self) -> Entries;

    /// What is remembered of it.
    fn published(&self) -> Published {
        Published { version: self.meta().resource_version.clone(), entries: self.entries() }
    }
}

impl Configuration for ValidatingWebhookConfiguration {
    const KIND: &'static str = VALIDATING;

    fn entries(&self) -> Entries {
        let entries = self.webhooks.iter().flatten();
        entries.map(|entry| (entry.name.clone(), bytes(entry.client_config.ca_bundle.as_ref()))).collect()
    }
}

impl Configuration for MutatingWebhookConfiguration {
    const KIND: &'static str = MUTATING;

    fn entries(&self) -> Entries {
        let entries = self.webhooks.iter().flatten();
        entries.map(|entry| (entry.name.clone(), bytes(entry.client_config.ca_bundle.as_ref()))).collect()
    }
}

fn bytes(bundle: Option<&ByteString>) -> Vec<u8> {
    bundle.map(|ByteString(bytes)| bytes.clone()).unwrap_or_default()
}

/// Whether every entry holds this bundle.
pub(super) fn is_published(observed: &Published, bundle: &str) -> bool {
    observed.entries.iter().all(|(_, published)| published == bundle.as_bytes())
}

/// Makes this bundle the caBundle of every entry. `None` if the configuration is not the one that was observed any
/// more.
pub(super) async fn publish<K: Configuration>(
    api: &Api<K>,
    name: &str,
    observed: &Published,
    bundle: &str,
) -> kube::Result<Option<Published>> {
    let parameters = PatchParams::apply(keys::WEBHOOK).force();
    match api.patch(name, &parameters, &Patch::Apply(applied::<K>(name, observed, bundle))).await {
        Ok(applied) => Ok(Some(applied.published())),
        Err(kube::Error::Api(status)) if status.is_conflict() => Ok(None),
        Err(error) => Err(error),
    }
}

fn applied<K: Configuration>(name: &str, observed: &Published, bundle: &str) -> Value {
    let bundle = ByteString(bundle.as_bytes().to_vec());
    let entry = |(name, _): &(String, Vec<u8>)| json!({ "name": name, "clientConfig": { "caBundle": &bundle } });
    json!({
        "apiVersion": K::api_version(&()),
        "kind": K::KIND,
        "metadata": { "name": name, "resourceVersion": observed.version },
        "webhooks": observed.entries.iter().map(entry).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_the_bundle_is_applied_and_only_to_what_was_observed() {
        let entries = vec![("a.hibernate.sh".to_owned(), vec![]), ("b.hibernate.sh".to_owned(), b"old".to_vec())];
        let observed = Published { version: Some("7".to_owned()), entries };
        assert_eq!(
            applied::<MutatingWebhookConfiguration>("hook", &observed, "new"),
            json!({
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "MutatingWebhookConfiguration",
                "metadata": { "name": "hook", "resourceVersion": "7" },
                "webhooks": [
                    { "name": "a.hibernate.sh", "clientConfig": { "caBundle": "bmV3" } },
                    { "name": "b.hibernate.sh", "clientConfig": { "caBundle": "bmV3" } },
                ],
            })
        );
        assert!(!is_published(&observed, "old"));
        let whole = Published { entries: observed.entries[1..].to_vec(), ..observed };
        assert!(is_published(&whole, "old"));
    }
}
