//! The Secret with CA and leaf: read, created, and written under the resourceVersion that was read.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;
use shared::annotation::keys;

use super::material::Content;

/// Type of the Secret. It says that the content is the webhook's own to replace; another type is never written.
pub const SECRET_TYPE: &str = "hibernate.sh/webhook-certificate";

const BUNDLE: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";
const CHAIN: &str = "tls.crt";
const KEY: &str = "tls.key";

/// Why the Secret cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum SecretError {
    /// Another owner's Secret, which is never written.
    #[error(
        "Secret {secret} is of type {found:?}, not {SECRET_TYPE:?}: the webhook does not overwrite it: delete it, \
         name another with --certificate-secret, or use --tls-cert and --tls-key"
    )]
    Foreign { secret: String, found: String },
    /// The Secret is gone, and the manifests give no right to create any.
    #[error("Secret {secret} is missing: apply the manifests again; they create an empty one for the webhook to fill")]
    Create { secret: String, source: kube::Error },
    /// The API server refused or could not be reached.
    #[error("cannot write Secret {secret}")]
    Write { secret: String, source: kube::Error },
}

/// The content of a Secret of ours, or `None` if a text is missing or no text.
pub(super) fn content(secret: &Secret) -> Result<Option<Content>, SecretError> {
    let found = secret.type_.clone().unwrap_or_default();
    if found != SECRET_TYPE {
        let secret = format!("{}/{}", secret.namespace().unwrap_or_default(), secret.name_any());
        return Err(SecretError::Foreign { secret, found });
    }
    let text = |key: &str| {
        let ByteString(bytes) = secret.data.as_ref()?.get(key)?;
        String::from_utf8(bytes.clone()).ok()
    };
    let whole = || {
        Some(Content {
            bundle: text(BUNDLE)?,
            authority_key: text(AUTHORITY_KEY)?,
            chain: text(CHAIN)?,
            key: text(KEY)?,
        })
    };
    Ok(whole())
}

/// Writes content if the Secret did not change since `seen`. False if it did.
pub(super) async fn write(
    api: &Api<Secret>,
    namespace: &str,
    name: &str,
    seen: Option<&Secret>,
    content: &Content,
) -> Result<bool, SecretError> {
    let answer = match seen {
        None => api.create(&parameters(), &new(name, content)).await,
        Some(seen) => {
            let patch = json!({ "metadata": { "resourceVersion": seen.resource_version() }, "data": data(content) });
            let parameters = PatchParams { field_manager: Some(keys::WEBHOOK.to_owned()), ..PatchParams::default() };
            api.patch(name, &parameters, &Patch::Merge(patch)).await
        }
    };
    let secret = || format!("{namespace}/{name}");
    match answer {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => Ok(false),
        Err(source) if seen.is_none() => Err(SecretError::Create { secret: secret(), source }),
        Err(source) => Err(SecretError::Write { secret: secret(), source }),
    }
}

fn parameters() -> PostParams {
    PostParams { field_manager: Some(keys::WEBHOOK.to_owned()), ..PostParams::default() }
}

fn new(name: &str, content: &Content) -> Secret {
    Secret {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        type_: Some(SECRET_TYPE.to_owned()),
        data: Some(data(content)),
        ..Secret::default()
    }
}

fn data(content: &Content) -> BTreeMap<String, ByteString> {
    let Content { bundle, authority_key, chain, key } = content;
    [(BUNDLE, bundle), (AUTHORITY_KEY, authority_key), (CHAIN, chain), (KEY, key)]
        .map(|(name, text)| (name.to_owned(), ByteString(text.as_bytes().to_vec())))
        .into()
}
