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
        namespace: args.namespace.clone(),
        kubeconfig: args.kubeconfig.clone(),
        context: args.context.clone(),
        cluster: args.cluster.clone(),
        user: args.user.clone(),
        server: args.server.clone(),
        token: args.token.clone(),
        client_certificate: args.client_certificate.clone(),
        client_key: args.client_key.clone(),
        username: args.username.clone(),
        password: args.password.clone(),
        certificate_authority: args.certificate_authority.clone(),
        tls_server_name: args.tls_server_name.clone(),
        insecure_skip_tls_verify: args.insecure_skip_tls_verify,
        impersonate: args.impersonate.clone(),
        impersonate_groups: args.impersonate_groups.clone(),
        impersonate_uid: args.impersonate_uid.clone(),
        impersonate_extras: args.impersonate_extras.clone(),
        request_timeout: args.request_timeout.0,
        disable_compression: args.disable_compression,
        verbose: args.verbosity > 0,
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
