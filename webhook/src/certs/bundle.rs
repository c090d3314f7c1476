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

/// A webhook configuration as it was seen last: for each entry its name and its caBundle (PEM).
pub(super) type Published = Vec<(String, Vec<u8>)>;

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

    /// For each entry its name and its caBundle.
    fn entries(&self) -> Published;
}

impl Configuration for ValidatingWebhookConfiguration {
    const KIND: &'static str = VALIDATING;

    fn entries(&self) -> Published {
        let entries = self.webhooks.iter().flatten();
        entries.map(|entry| (entry.name.clone(), bytes(entry.client_config.ca_bundle.as_ref()))).collect()
    }
}

impl Configuration for MutatingWebhookConfiguration {
    const KIND: &'static str = MUTATING;

    fn entries(&self) -> Published {
        let entries = self.webhooks.iter().flatten();
        entries.map(|entry| (entry.name.clone(), bytes(entry.client_config.ca_bundle.as_ref()))).collect()
    }
}

fn bytes(bundle: Option<&ByteString>) -> Vec<u8> {
    bundle.map(|ByteString(bytes)| bytes.clone()).unwrap_or_default()
}

/// Whether every entry holds this bundle.
pub(super) fn is_published(entries: &Published, bundle: &str) -> bool {
    entries.iter().all(|(_, published)| published == bundle.as_bytes())
}

/// Makes this bundle the caBundle of every entry.
pub(super) async fn publish<K: Configuration>(
    api: &Api<K>,
    name: &str,
    entries: &Published,
    bundle: &str,
) -> kube::Result<Published> {
    let parameters = PatchParams::apply(keys::WEBHOOK).force();
    let applied = api.patch(name, &parameters, &Patch::Apply(applied::<K>(name, entries, bundle))).await?;
    Ok(applied.entries())
}

fn applied<K: Configuration>(name: &str, entries: &Published, bundle: &str) -> Value {
    let bundle = ByteString(bundle.as_bytes().to_vec());
    let entry = |(name, _): &(String, Vec<u8>)| json!({ "name": name, "clientConfig": { "caBundle": &bundle } });
    json!({
        "apiVersion": K::api_version(&()),
        "kind": K::KIND,
        "metadata": { "name": name },
        "webhooks": entries.iter().map(entry).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_the_bundle_is_applied() {
        let entries = vec![("a.hibernate.sh".to_owned(), vec![]), ("b.hibernate.sh".to_owned(), b"old".to_vec())];
        assert_eq!(
            applied::<MutatingWebhookConfiguration>("hook", &entries, "new"),
            json!({
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "MutatingWebhookConfiguration",
                "metadata": { "name": "hook" },
                "webhooks": [
                    { "name": "a.hibernate.sh", "clientConfig": { "caBundle": "bmV3" } },
                    { "name": "b.hibernate.sh", "clientConfig": { "caBundle": "bmV3" } },
                ],
            })
        );
        assert!(!is_published(&entries, "old"));
        assert!(is_published(&entries[1..].to_vec(), "old"));
    }
}
