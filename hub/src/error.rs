//! Why a request to the hub fails, before and after it is sent.

use std::path::PathBuf;
use std::sync::Arc;

use kube::config::{InClusterError, KubeconfigError};
use shared::admission::Denial;

/// Why no client can be set up. Nothing has been sent yet.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read kubeconfig {}: {source}", path.display())]
    Read { path: PathBuf, source: KubeconfigError },
    #[error("cannot merge kubeconfigs {paths}: {source}")]
    Merge { paths: String, source: KubeconfigError },
    #[error(
        "no kubeconfig found; searched {searched}; pass --kubeconfig, set KUBECONFIG, or pass --server and --token"
    )]
    Missing { searched: String },
    #[error("kubeconfig {file} has no current context: `kubectl config use-context`, or pass --context ({known})")]
    NoContext { file: String, known: String },
    #[error("{what} {name:?} does not exist in kubeconfig {file} ({known})")]
    Unknown { what: &'static str, name: String, file: String, known: String },
    #[error("cannot use kubeconfig {file}: {source}")]
    Use { file: String, source: KubeconfigError },
    #[error("cannot use the Pod's service account: {0}")]
    InCluster(#[source] InClusterError),
    #[error("cannot read --certificate-authority {}: {source}", path.display())]
    Authority { path: PathBuf, source: std::io::Error },
    #[error("cannot use server {found:?} of {origin}: write https://HOST:PORT")]
    Server { found: String, origin: String },
    #[error(
        "cannot use the token of {origin}: it has control characters, such as a line end; a token is one line without them"
    )]
    Token { origin: String },
    #[error("--as-group, --as-uid and --as-user-extra need --as")]
    ImpersonationWithoutUser,
    #[error("cannot use proxy {url:?} of {variable}: {cause}")]
    Proxy { variable: &'static str, url: String, cause: String },
}

/// Why the hub did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("cannot set up a client for the hub {url}: {source}")]
    Client { url: Arc<str>, source: kube::Error },
    #[error("cannot build the request to {verb} {object}: {source}")]
    Unsendable { verb: &'static str, object: String, source: kube::core::request::Error },
    /// The object does not exist, the kind does.
    #[error("{object} not found")]
    NoObject { object: String },
    /// The hub does not serve the kind in this version.
    #[error("the hub does not have the type {0}")]
    NoKind(String),
    /// Admission or schema said no.
    #[error("{object}: refused by {by}: {message}")]
    Refused { object: String, by: String, message: String, denials: Vec<Denial> },
    /// RBAC said no; its message names the user, the verb and the resource.
    #[error("{object}: forbidden: {message}")]
    Forbidden { object: String, message: String },
    #[error("the hub {url} does not accept the credentials (401 Unauthorized): they may have expired, log in again")]
    Unauthorized { url: Arc<str> },
    /// Another client wrote in between: a conflict.
    #[error("{object}: {message}")]
    Conflict { object: String, message: String },
    /// The resourceVersion of a watch or of a page is too old.
    #[error("{object}: {message}")]
    Expired { object: String, message: String },
    /// The webhook could not be asked, which is not a refusal by anybody.
    #[error("{object}: {message}; the API server refuses the request because an admission webhook does not answer")]
    WebhookDown { object: String, message: String },
    /// `-l` is no label selector.
    #[error("-l is not a label selector: {message}")]
    Selector { message: String },
    #[error("{object}: the hub answered {code}: {message}")]
    Status { object: String, code: u16, message: String },
    #[error("cannot reach the hub {url}: {cause}; is it up, and is the URL right? (--server, --context, HTTPS_PROXY)")]
    Unreachable { url: Arc<str>, cause: String },
    #[error("cannot trust the hub {url}: {cause}; is the right certificate authority given? (--certificate-authority)")]
    Untrusted { url: Arc<str>, cause: String },
    #[error("the hub {url} did not answer in time: cannot {verb} {object} (--request-timeout)")]
    Silent { url: Arc<str>, verb: &'static str, object: String },
    #[error("cannot log in to the hub {url}: {cause}")]
    Login { url: Arc<str>, cause: String },
    #[error("cannot {verb} {object} on the hub {url}: {source}")]
    Other { verb: &'static str, object: String, url: Arc<str>, source: kube::Error },
}

impl HubError {
    /// The admission webhook that refused the request or did not answer.
    pub fn webhook(&self) -> Option<&str> {
        let named = match self {
            Self::Refused { by, .. } => by.strip_prefix("admission webhook ")?,
            Self::WebhookDown { message, .. } => message.split_once("failed calling webhook ")?.1,
            _ => return None,
        };
        named.strip_prefix('"')?.split_once('"').map(|(name, _)| name)
    }

    /// Whether the same request may succeed in a moment.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Silent { .. } | Self::Expired { .. } => true,
            Self::Status { code, .. } => *code == 429 || *code >= 500,
            _ => false,
        }
    }
}
