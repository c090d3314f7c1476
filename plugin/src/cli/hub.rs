//! Flags that kubectl's own commands share.

use std::path::PathBuf;

use clap::{Arg, ArgAction, Args, value_parser};

use super::values;

/// kubectl's flags on which nothing here depends, such as those of its cache and its profiler. They are accepted, so
/// that scripts can give every command the same flags.
fn ignored() -> impl Iterator<Item = Arg> {
    let hidden = |name: &'static str| Arg::new(name).long(name).global(true).hide(true);
    let files = ["cache-dir", "kuberc", "profile-output"].map(|name| hidden(name).value_parser(value_parser!(PathBuf)));
    let others = ["log-flush-frequency", "profile", "vmodule"].map(hidden);
    files.into_iter().chain(others).chain([hidden("match-server-version").action(ArgAction::SetTrue)])
}

/// Which hub, as whom, in which namespace. What selects targets stands with the other options, behind those of the
/// command.
#[derive(Debug, Default, Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags, each by itself")]
#[command(next_help_heading = "Options for the hub", args(ignored()))]
pub(crate) struct HubArgs {
    /// Namespace [default: the context's namespace]
    #[arg(long, short = 'n', global = true, value_name = "NAME", value_parser = values::namespace,
          help_heading = None::<&str>, display_order = 100)]
    pub(crate) namespace: Option<String>,
    /// All namespaces; with -l, --all or status
    #[arg(long, short = 'A', global = true, conflicts_with = "namespace",
          help_heading = None::<&str>, display_order = 101)]
    pub(crate) all_namespaces: bool,
    /// Targets with these labels
    #[arg(long, short = 'l', global = true, value_name = "SELECTOR", help_heading = None::<&str>, display_order = 102)]
    pub(crate) selector: Option<String>,
    /// Kubeconfig file; otherwise $KUBECONFIG, then ~/.kube/config, then the Pod's service account
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Cluster of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) cluster: Option<String>,
    /// User of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// URL of the hub's API server
    #[arg(long, short = 's', global = true, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// Bearer token; replaces all credentials of the kubeconfig's user
    #[arg(long, global = true, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    /// File with the client certificate; replaces the user's other credentials
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) client_certificate: Option<PathBuf>,
    /// File with the key of the client certificate
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) client_key: Option<PathBuf>,
    /// User name for basic authentication; replaces the user's other credentials
    #[arg(long, global = true, value_name = "NAME", conflicts_with = "token")]
    pub(crate) username: Option<String>,
    /// Password for basic authentication
    #[arg(long, global = true, value_name = "PASSWORD", conflicts_with = "token")]
    pub(crate) password: Option<String>,
    /// File with the certificate authority of the API server
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "insecure_skip_tls_verify")]
    pub(crate) certificate_authority: Option<PathBuf>,
    /// Name to expect in the API server's certificate
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) tls_server_name: Option<String>,
    /// Do not verify the API server's certificate
    #[arg(long, global = true)]
    pub(crate) insecure_skip_tls_verify: bool,
    /// User to impersonate
    #[arg(long = "as", global = true, value_name = "USER")]
    pub(crate) impersonate: Option<String>,
    /// Group to impersonate; repeatable
    #[arg(long = "as-group", global = true, value_name = "GROUP", action = ArgAction::Append)]
    pub(crate) impersonate_groups: Vec<String>,
    /// UID to impersonate
    #[arg(long = "as-uid", global = true, value_name = "UID")]
    pub(crate) impersonate_uid: Option<String>,
    /// Extra value of the user to impersonate; repeatable
    #[arg(long = "as-user-extra", global = true, value_name = "KEY=VALUE", action = ArgAction::Append, value_parser = values::extra)]
    pub(crate) impersonate_extras: Vec<(String, String)>,
    /// How long one request may take, such as 10s; 0 means no limit
    #[arg(long, global = true, value_name = "DURATION", default_value = "30s", value_parser = values::limit)]
    pub(crate) request_timeout: values::Limit,
    /// Do not ask for compressed responses
    #[arg(long, global = true)]
    pub(crate) disable_compression: bool,
    /// Exit with 1 if the API server answers with a warning, even after a success
    #[arg(long, global = true)]
    pub(crate) warnings_as_errors: bool,
    /// Print requests to stderr; accepts a level like kubectl (-v=6)
    #[arg(short = 'v', long = "v", global = true, value_name = "LEVEL", num_args = 0..=1, require_equals = true,
          default_value_t = 0, default_missing_value = "6", hide_default_value = true)]
    pub(crate) verbosity: u8,
}
