//! Flags that kubectl's own commands share.

use std::path::PathBuf;

use clap::{Arg, ArgAction, Args, value_parser};
use hub::connection::Connection;

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
#[command(next_help_heading = "Options for the hub", args(ignored()))]
pub(crate) struct HubArgs {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// All namespaces; with -l, --all or status
    #[arg(long, short = 'A', global = true, conflicts_with = "namespace",
          help_heading = None::<&str>, display_order = 101)]
    pub(crate) all_namespaces: bool,
    /// Targets with these labels
    #[arg(long, short = 'l', global = true, value_name = "SELECTOR", help_heading = None::<&str>, display_order = 102)]
    pub(crate) selector: Option<String>,
    /// File that adds kinds [default: kubectl-hibernate/kinds.yaml in ~/.config]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kinds: Option<PathBuf>,
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
