//! Webhooks of a spoke, as its preflight sees them: which of them hold up a wake while their Pods do not run.

use std::collections::BTreeMap;

use kube::api::ListParams;
use shared::hive::preflight::{Part, WebhookObservation};
use shared::spoke::kinds::{Kind, Metadata, MutatingWebhooks, Namespace, ValidatingWebhooks, Webhook};
use shared::text::sanitize;

use super::reader::{SpokeClient, if_there};
use fair::{ChargeGuard, ChargedValue};

/// A missing object is not an error; any other failure is reported in one line.
pub fn part<T>(result: kube::Result<T>) -> Part<T> {
    if_there(result).map_err(|error| match error {
        kube::Error::Api(status) => sanitize(&format_args!("{}: {}", status.code, status.message)),
        other => sanitize(&other),
    })
}

/// What was read, and what it is charged as long as anything of it is in use.
pub fn taken<T>(part: Part<ChargedValue<T>>, held: &mut Vec<ChargeGuard>) -> Part<T> {
    let take = |kept: ChargedValue<T>| {
        let (value, charge) = kept.into_parts();
        held.push(charge);
        value
    };
    Ok(part?.map(take))
}

/// Labels of the spoke's namespace kube-system.
pub async fn kube_system(client: &SpokeClient) -> (BTreeMap<String, String>, Option<ChargeGuard>) {
    let found = client.get::<Namespace>("kube-system").await.ok().map(ChargedValue::into_parts);
    let (namespace, held) = found.unzip();
    let mut labels = namespace.map(|namespace| namespace.metadata.labels).unwrap_or_default();
    labels.insert("kubernetes.io/metadata.name".to_owned(), "kube-system".to_owned());
    (labels, held)
}

/// All webhooks of both kinds.
pub async fn webhooks(client: &SpokeClient) -> [Part<ChargedValue<Vec<WebhookObservation>>>; 2] {
    let validating = listed(client, |ValidatingWebhooks { metadata, webhooks }| (metadata, webhooks));
    let mutating = listed(client, |MutatingWebhooks { metadata, webhooks }| (metadata, webhooks));
    tokio::join!(validating, mutating).into()
}

async fn listed<K: Kind>(
    client: &SpokeClient,
    parts: fn(K) -> (Metadata, Vec<Webhook>),
) -> Part<ChargedValue<Vec<WebhookObservation>>> {
    let found = client.list::<K>(None, &ListParams::default(), "webhook configurations").await;
    part(found.map(|found| found.map(|all| all.into_iter().map(parts).flat_map(observations).collect())))
}

fn observations((configuration, webhooks): (Metadata, Vec<Webhook>)) -> impl Iterator<Item = WebhookObservation> {
    webhooks.into_iter().map(move |webhook| WebhookObservation {
        name: format!("{}/{}", configuration.name, webhook.name),
        failure_policy: webhook.failure_policy,
        timeout: webhook.timeout_seconds,
        service: webhook.client_config.service.map(|one| format!("{}/{}", one.namespace, one.name)),
        rules: webhook.rules,
        namespaces: webhook.namespace_selector,
        objects: webhook.object_selector,
    })
}
