//! The caBundle of each entry of the two webhook configurations: seen, written by server-side apply, and disowned.
//!
//! Only that field is ours. Whoever applies the manifests, which leave it out, leaves it alone; the entry itself must
//! exist first, because without its other fields the API server would not take it from us. A field that we owned would
//! hold its entry: an upgrade that drops the entry by server-side apply, as Helm 4 does, would be refused.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhook, ValidatingWebhookConfiguration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
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
    /// What other field managers own, if we own something.
    others: Option<Vec<ManagedFieldsEntry>>,
    /// Of each entry its name and its caBundle (PEM).
    pub(super) entries: Vec<(String, Vec<u8>)>,
}

impl Published {
    /// What is remembered of a configuration. Entries of both kinds have the fields that we read in common.
    pub(super) fn of(configuration: &DynamicObject) -> Self {
        let webhooks = configuration.data.get("webhooks").cloned().unwrap_or_default();
        let webhooks: Vec<ValidatingWebhook> = serde_json::from_value(webhooks).unwrap_or_default();
        let bundle = |entry: &ValidatingWebhook| entry.client_config.ca_bundle.clone().unwrap_or_default().0;
        let owners = configuration.metadata.managed_fields.clone().unwrap_or_default();
        let is_ours = |owner: &ManagedFieldsEntry| owner.manager.as_deref() == Some(keys::WEBHOOK);
        let (ours, others): (Vec<_>, Vec<_>) = owners.into_iter().partition(is_ours);
        Self {
            others: (!ours.is_empty()).then_some(others),
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
    unless_changed(api.patch(name, &parameters, &Patch::Apply(applied(kind, name, observed, bundle))).await)
}

/// Gives the ownership of the fields up that [`publish`] has claimed. `None` if the configuration is not the one that was
/// observed any more.
pub(super) async fn disown(
    api: &Api<DynamicObject>,
    name: &str,
    observed: Published,
) -> kube::Result<Option<Published>> {
    let Some(others) = &observed.others else { return Ok(Some(observed)) };
    let metadata = json!({ "resourceVersion": observed.version, "managedFields": others });
    let parameters = PatchParams { field_manager: Some(keys::WEBHOOK.to_owned()), ..PatchParams::default() };
    unless_changed(api.patch(name, &parameters, &Patch::Merge(json!({ "metadata": metadata }))).await)
}

/// The configuration after a patch. `None` if it is not the one that was observed any more.
fn unless_changed(patched: kube::Result<DynamicObject>) -> kube::Result<Option<Published>> {
    match patched {
        Ok(patched) => Ok(Some(Published::of(&patched))),
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
        let observed = Published { version: Some("7".to_owned()), others: None, entries };
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
        let owned = |managers: &[&str]| {
            let fields: Vec<Value> = managers.iter().map(|manager| json!({ "manager": manager })).collect();
            let object = json!({ "metadata": { "name": "hook", "managedFields": fields } });
            let others = Published::of(&serde_json::from_value(object).unwrap()).others;
            others.map(|others| others.into_iter().filter_map(|owner| owner.manager).collect::<Vec<_>>())
        };
        assert_eq!(
            owned(&["helm", keys::WEBHOOK, keys::WEBHOOK, "kubectl"]),
            Some(vec!["helm".into(), "kubectl".into()])
        );
        assert_eq!((owned(&["helm"]), owned(&[])), (None, None));
        let whole = Published { entries: observed.entries[1..].to_vec(), ..observed };
        assert!(whole.holds("old"));
    }
}
