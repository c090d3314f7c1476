//! Webhooks of a spoke, as its preflight sees them: which of them hold up a wake while their Pods do not run.

use std::collections::BTreeMap;

use futures::future::join_all;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client, ResourceExt};
use shared::hive::preflight::{Part, WebhookLook};
use shared::text::sanitize;

use crate::csr::pages::{is_not_there, list};

/// A missing object is not an error; any other failure is reported in one line.
pub fn part<T>(result: kube::Result<T>) -> Part<T> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_not_there(&error) => Ok(None),
        Err(kube::Error::Api(status)) => Err(sanitize(&format_args!("{}: {}", status.code, status.message))),
        Err(error) => Err(sanitize(&error)),
    }
}

/// Labels of the spoke's namespace kube-system.
pub async fn kube_system(client: &Client) -> BTreeMap<String, String> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let found = namespaces.get_opt("kube-system").await.ok().flatten();
    let mut labels: BTreeMap<_, _> = found.map(|namespace| namespace.labels().clone()).unwrap_or_default();
    labels.insert("kubernetes.io/metadata.name".to_owned(), "kube-system".to_owned());
    labels
}

/// The two kinds of webhook have all fields in common that the preflight reads.
pub async fn webhooks(client: &Client) -> Part<Vec<WebhookLook>> {
    let kinds = [
        ApiResource::erase::<ValidatingWebhookConfiguration>(&()),
        ApiResource::erase::<MutatingWebhookConfiguration>(&()),
    ];
    let all = ListParams::default();
    let lists = kinds.map(|kind| {
        let configurations: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
        let all = all.clone();
        async move { list(&configurations, &all, "webhook configurations").await }
    });
    let mut found = Vec::new();
    for list in join_all(lists).await {
        for configuration in part(list)?.into_iter().flatten() {
            let name = configuration.name_any();
            let webhooks = configuration.data.get("webhooks").cloned().unwrap_or_default();
            let webhooks: Option<Vec<ValidatingWebhook>> =
                serde_json::from_value(webhooks).map_err(|error| sanitize(&format_args!("{name}: {error}")))?;
            found.extend(webhooks.into_iter().flatten().map(|webhook| WebhookLook {
                name: format!("{name}/{}", webhook.name),
                failure_policy: webhook.failure_policy,
                timeout: webhook.timeout_seconds,
                service: service(&webhook.client_config),
                rules: webhook.rules.unwrap_or_default(),
                namespaces: webhook.namespace_selector.unwrap_or_default(),
                objects: webhook.object_selector.unwrap_or_default(),
            }));
        }
    }
    Ok(Some(found))
}

fn service(config: &WebhookClientConfig) -> Option<String> {
    config.service.as_ref().map(|service| format!("{}/{}", service.namespace, service.name))
}
