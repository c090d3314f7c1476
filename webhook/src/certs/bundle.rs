//! The caBundle of each entry of the two webhook configurations: seen, and owned by server-side apply.
//!
//! Only that field is ours. Whoever applies the manifests, which leave it out, leaves it alone; the entry itself must
//! exist first, because without its other fields the API server would not take it from us.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhook, ValidatingWebhookConfiguration,
};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use shared::annotation::keys;

/// Kinds of the configurations: the one that judges, and the one that stamps and records.
pub(super) const KINDS: [&str; 2] = ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"];

/// The configurations of each kind.
pub(super) fn configurations(client: &Client) -> [(&'static str, Api<DynamicObject>); 2] {
    let [validating, mutating] = KINDS;
    [
        (validating, ApiResource::erase::<ValidatingWebhookConfiguration>(&())),
        (mutating, ApiResource::erase::<MutatingWebhookConfiguration>(&())),
    ]
    .map(|(kind, resource)| (kind, Api::all_with(client.clone(), &resource)))
}

/// A webhook configuration as it was observed last.
#[derive(Clone, Debug)]
pub(super) struct Published {
    /// Its version.
    version: Option<String>,
    /// Of each entry its name and its caBundle (PEM).
    pub(super) entries: Vec<(String, Vec<u8>)>,
}

impl Published {
    /// What is remembered of a configuration. Entries of both kinds have the fields that we read in common.
    pub(super) fn of(configuration: &DynamicObject) -> Self {
        let webhooks = configuration.data.get("webhooks").cloned().unwrap_or_default();
        let webhooks: Vec<ValidatingWebhook> = serde_json::from_value(webhooks).unwrap_or_default();
        let bundle = |entry: &ValidatingWebhook| entry.client_config.ca_bundle.clone().unwrap_or_default().0;
        Self {
            version: configuration.metadata.resource_version.clone(),
            entries: webhooks.into_iter().map(|entry| (entry.name.clone(), bundle(&entry))).collect(),
        }
    }

    /// Whether every entry holds this bundle.
    pub(super) fn holds(&self, bundle: &str) -> bool {
        self.entries.iter().all(|(_, published)| published == bundle.as_bytes())
    }
}

/// Makes this bundle the caBundle of every entry. `None` if the configuration is not the one that was observed any
/// more.
pub(super) async fn publish(
    (kind, api): (&str, &Api<DynamicObject>),
    name: &str,
    observed: &Published,
    bundle: &str,
) -> kube::Result<Option<Published>> {
    let parameters = PatchParams::apply(keys::WEBHOOK).force();
    match api.patch(name, &parameters, &Patch::Apply(applied(kind, name, observed, bundle))).await {
        Ok(applied) => Ok(Some(Published::of(&applied))),
        Err(kube::Error::Api(status)) if status.is_conflict() => Ok(None),
        Err(error) => Err(error),
    }
}

fn applied(kind: &str, name: &str, observed: &Published, bundle: &str) -> Value {
    let bundle = ByteString(bundle.as_bytes().to_vec());
    let entry = |(name, _): &(String, Vec<u8>)| json!({ "name": name, "clientConfig": { "caBundle": &bundle } });
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
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
            applied(KINDS[1], "hook", &observed, "new"),
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
        assert!(!observed.holds("old"));
        let of = |webhooks: Value| {
            let object = json!({ "metadata": { "name": "hook", "resourceVersion": "7" }, "webhooks": webhooks });
            Published::of(&serde_json::from_value(object).unwrap())
        };
        let seen = of(json!([
            { "name": "a.hibernate.sh", "clientConfig": {}, "sideEffects": "None", "admissionReviewVersions": ["v1"] },
            {
                "name": "b.hibernate.sh", "clientConfig": { "caBundle": "b2xk" }, "sideEffects": "None",
                "admissionReviewVersions": ["v1"], "reinvocationPolicy": "IfNeeded",
            },
        ]));
        assert_eq!((&seen.version, &seen.entries), (&observed.version, &observed.entries));
        assert!(of(Value::Null).entries.is_empty());
        let whole = Published { entries: observed.entries[1..].to_vec(), ..observed };
        assert!(whole.holds("old"));
    }
}
