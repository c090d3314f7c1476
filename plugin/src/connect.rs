//! From the flags of the command line to a client of the hub, and from its notices to the terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hub::HubClient;
use hub::connection::{Connection, Notice};
use hub::error::HubError;

use crate::cli::HubArgs;
use crate::output;

/// Whether the hub has answered with a warning.
static WARNED: AtomicBool = AtomicBool::new(false);

/// Whether any answer of the hub had a warning.
pub(crate) fn has_warned() -> bool {
    WARNED.load(Ordering::Relaxed)
}

/// Sets up a client. Nothing is sent yet.
///
/// # Errors
/// When the kubeconfig or the flags cannot be used.
pub(crate) fn connect(args: &HubArgs) -> Result<HubClient, HubError> {
    let connection = Connection {
        request_timeout: args.request_timeout.0,
        disable_compression: args.disable_compression,
        verbose: args.verbosity > 0,
        ..args.connection.clone()
    };
    HubClient::connect(&connection, Arc::new(print))
}

fn print(notice: Notice<'_>) {
    match notice {
        Notice::Warning { text, collected } => {
            WARNED.store(true, Ordering::Relaxed);
            if !collected {
                output::warning(text);
            }
        }
        Notice::Progress(text) => output::note(text),
    }
}
