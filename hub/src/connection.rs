//! Which hub, as whom, in which namespace: what kubectl's flags say.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What overrides the kubeconfig. An absent value leaves what the kubeconfig says. With the feature `flags` each is a
/// flag of a command line, and these are its texts.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "flags", derive(clap::Args))]
pub struct Connection {
    /// Namespace [default: the context's namespace]
    #[cfg_attr(
        feature = "flags",
        arg(long, short = 'n', global = true, value_name = "NAME", value_parser = namespace,
            help_heading = None::<&str>, display_order = 100)
    )]
    pub namespace: Option<String>,
    /// Kubeconfig file; otherwise $KUBECONFIG, then ~/.kube/config, then the Pod's service account
    #[cfg_attr(feature = "flags", arg(long, global = true, value_name = "FILE"))]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[cfg_attr(feature = "flags", arg(long, global = true, value_name = "NAME"))]
    pub context: Option<String>,
    /// Cluster of the kubeconfig
    #[cfg_attr(feature = "flags", arg(long, global = true, value_name = "NAME"))]
    pub cluster: Option<String>,
    /// User of the kubeconfig
    #[cfg_attr(feature = "flags", arg(long, global = true, value_name = "NAME"))]
    pub user: Option<String>,
    /// URL of the hub's API server
    #[cfg_attr(feature = "flags", arg(long, short = 's', global = true, value_name = "URL"))]
    pub server: Option<String>,
    /// Bearer token; replaces all credentials of the kubeconfig's user
    #[cfg_attr(feature = "flags", arg(long, global = true, value_name = "TOKEN"))]
    pub token: Option<String>,
    /// File with the client certificate; replaces the user's other credentials
    #[cfg_attr(feature = "flags", arg(long, global = true, value_name = "FILE"))]
    pub client_certificate: Option<PathBuf>,
    /// File with the key of the client certificate
    #[cfg_attr(feature = "flags", arg(long, global = true, value_name = "FILE"))]
    pub client_key: Option<PathBuf>,
    /// User name for basic authentication; replaces the user's other credentials
    #[cfg_attr(feature = "flags", arg(long, global = true, value_name = "NAME", conflicts_with = "token"))]
    pub username: Option<String>,
    /// Password for basic authentication
    #[cfg_attr(feature = "flags", arg(long, global = true, value_name = "PASSWORD", conflicts_with = "token"))]
    pub password: Option<String>,
    /// File with the certificate authority of the API server
    #[cfg_attr(
        feature = "flags",
        arg(long, global = true, value_name = "FILE", conflicts_with = "insecure_skip_tls_verify")
    )]
    pub certificate_authority: Option<PathBuf>,
    /// Name to expect in the API server's certificate
    #[cfg_attr(feature = "flags", arg(long, global = true, value_name = "NAME"))]
    pub tls_server_name: Option<String>,
    /// Do not verify the API server's certificate
    #[cfg_attr(feature = "flags", arg(long, global = true))]
    pub insecure_skip_tls_verify: bool,
    /// User to impersonate
    #[cfg_attr(feature = "flags", arg(long = "as", global = true, value_name = "USER"))]
    pub impersonate: Option<String>,
    /// Group to impersonate; repeatable
    #[cfg_attr(
        feature = "flags",
        arg(long = "as-group", global = true, value_name = "GROUP", action = clap::ArgAction::Append)
    )]
    pub impersonate_groups: Vec<String>,
    /// UID to impersonate
    #[cfg_attr(feature = "flags", arg(long = "as-uid", global = true, value_name = "UID"))]
    pub impersonate_uid: Option<String>,
    /// Extra value of the user to impersonate; repeatable
    #[cfg_attr(
        feature = "flags",
        arg(long = "as-user-extra", global = true, value_name = "KEY=VALUE", action = clap::ArgAction::Append,
            value_parser = extra)
    )]
    pub impersonate_extras: Vec<(String, String)>,
    /// How long one request may take; none is no limit.
    #[cfg_attr(feature = "flags", arg(skip))]
    pub request_timeout: Option<Duration>,
    /// Whether responses are not compressed.
    #[cfg_attr(feature = "flags", arg(skip))]
    pub disable_compression: bool,
    /// Whether each request is a [`Notice`].
    #[cfg_attr(feature = "flags", arg(skip))]
    pub verbose: bool,
}

/// `-n`. Scripts give it empty for none, and kubectl lets them.
#[cfg(feature = "flags")]
fn namespace(text: &str) -> Result<String, String> {
    if text.is_empty() || crate::is_namespace(text) {
        return Ok(text.to_owned());
    }
    Err("not a valid namespace: use up to 63 lowercase letters, digits and '-'".to_owned())
}

/// `KEY=VALUE` of `--as-user-extra`.
#[cfg(feature = "flags")]
fn extra(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("not KEY=VALUE".to_owned()),
    }
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
    /// What is sent, or was skipped.
    Progress(&'a str),
    /// A watch has failed, and lists its objects again until the hub answers.
    Retry {
        /// The kind that it watches.
        kind: &'static str,
        /// The error.
        text: &'a str,
        /// Whether the user reads of it without `-v`.
        loud: bool,
    },
    /// It has listed them.
    Recovered {
        /// The kind that it watches.
        kind: &'static str,
    },
}

/// Takes notices as they come.
pub type Notify = Arc<dyn Fn(Notice<'_>) + Send + Sync>;
