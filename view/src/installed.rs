//! Where our own programs are installed.

use hub::error::HubError;
use hub::{HubClient, Resource, is_namespace};
use serde_json::Value;
use shared::annotation::keys;

use super::protection::WEBHOOKS;

/// Our namespace: that of the webhook's Service, and the default one for users who may not read the webhook
/// configuration.
pub fn installed_in(webhooks: &Value) -> &str {
    let service = webhooks.pointer("/webhooks/0/clientConfig/service/namespace").and_then(Value::as_str);
    service.filter(|name| is_namespace(name)).unwrap_or(keys::NAMESPACE)
}

/// The same, as the hub says.
///
/// # Errors
/// When it does not answer.
pub async fn namespace(hub: &HubClient) -> Result<String, HubError> {
    match hub.get(Resource::preferred(&WEBHOOKS), "", keys::WEBHOOK).await {
        Ok(webhooks) => Ok(installed_in(&webhooks).to_owned()),
        Err(HubError::NoObject { .. } | HubError::Forbidden { .. }) => Ok(keys::NAMESPACE.to_owned()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn we_are_where_the_webhook_is() {
        let at = |client: Value| json!({ "webhooks": [{ "clientConfig": client }] });
        for (webhooks, expected) in [
            (at(json!({ "service": { "namespace": "sleep", "name": "hibernate-webhook" } })), "sleep"),
            (at(json!({ "service": { "namespace": "../x" } })), keys::NAMESPACE),
            (at(json!({ "url": "https://127.0.0.1" })), keys::NAMESPACE),
            (Value::Null, keys::NAMESPACE),
        ] {
            assert_eq!(installed_in(&webhooks), expected, "{webhooks}");
        }
    }
}
