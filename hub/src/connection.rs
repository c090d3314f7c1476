//! Which hub, as whom, in which namespace: what kubectl's flags say, without a command line.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What overrides the kubeconfig. An absent value leaves what the kubeconfig says.
#[derive(Clone, Debug, Default)]
pub struct Connection {
    /// Namespace.
    pub namespace: Option<String>,
    /// Kubeconfig file; otherwise `$KUBECONFIG`, then `~/.kube/config`, then the Pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    pub context: Option<String>,
    /// Cluster of the kubeconfig.
    pub cluster: Option<String>,
    /// User of the kubeconfig.
    pub user: Option<String>,
    /// URL of the API server.
    pub server: Option<String>,
    /// Bearer token; replaces all credentials of the kubeconfig's user.
    pub token: Option<String>,
    /// File with the client certificate; replaces the user's other credentials.
    pub client_certificate: Option<PathBuf>,
    /// File with the key of the client certificate.
    pub client_key: Option<PathBuf>,
    /// User name for basic authentication; replaces the user's other credentials.
    pub username: Option<String>,
    /// Password for basic authentication.
    pub password: Option<String>,
    /// File with the certificate authority of the API server.
    pub certificate_authority: Option<PathBuf>,
    /// Name to expect in the API server's certificate.
    pub tls_server_name: Option<String>,
    /// Whether the API server's certificate is not verified.
    pub insecure_skip_tls_verify: bool,
    /// User to impersonate.
    pub impersonate: Option<String>,
    /// Groups to impersonate.
    pub impersonate_groups: Vec<String>,
    /// UID to impersonate.
    pub impersonate_uid: Option<String>,
    /// Extra values of the user to impersonate, by key.
    pub impersonate_extras: Vec<(String, String)>,
    /// How long one request may take; none is no limit.
    pub request_timeout: Option<Duration>,
    /// Whether responses are not compressed.
    pub disable_compression: bool,
    /// Whether each request is a [`Notice`].
    pub verbose: bool,
}

/// What a caller may want to show while it waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice<'a> {
    /// The API server has warned of this. `collected`: [`with_warnings`](crate::middleware::with_warnings) returns it.
    Warning {
        /// The text.
        text: &'a str,
        /// Whether the caller gets it with the answer.
        collected: bool,
    },
    /// What is sent, or sent again.
    Progress(&'a str),
}

/// Takes notices as they come.
pub type Notify = Arc<dyn Fn(Notice<'_>) + Send + Sync>;
