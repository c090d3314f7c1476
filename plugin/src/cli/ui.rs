//! Flags of `ui`.

use clap::Args;

/// Flags of `ui`.
#[derive(Debug, Args)]
pub(crate) struct UiArgs {
    /// Type of the targets [default: all clusters of the namespace]
    #[arg(value_name = "TYPE")]
    pub(crate) kind: Option<String>,
    /// Port on 127.0.0.1 [default: random]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    pub(crate) port: u16,
    /// Print the URL, and open no browser
    #[arg(long)]
    pub(crate) no_open: bool,
    /// Serve the page without actions
    #[arg(long)]
    pub(crate) read_only: bool,
}
