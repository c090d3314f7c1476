//! From the flags of the command line to a client of the hub, and from its notices to the terminal.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hub::HubClient;
use hub::config::context;
use hub::connection::{Connection, Notice};
use hub::error::HubError;

use crate::cli::HubArgs;
use crate::output;

/// `--request-timeout`, if it is not given.
const TIMEOUT: Duration = Duration::from_secs(30);

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
    HubClient::connect(&connection(args), Arc::new(print))
}

/// What the flags say of the hub.
fn connection(args: &HubArgs) -> Connection {
    Connection {
        request_timeout: args.request_timeout.0,
        disable_compression: args.disable_compression,
        verbose: args.verbosity > 0,
        ..args.connection.clone()
    }
}

/// The same in the context that is current now, whatever the kubeconfig's becomes.
///
/// # Errors
/// When the kubeconfig cannot be read.
pub(crate) fn pinned(args: &HubArgs) -> Result<Connection, HubError> {
    Ok(Connection { context: context(&args.connection)?, ..connection(args) })
}

/// The flags of a command line for a connection and a file of kinds, and whether each is a secret. The namespace is not
/// among them.
pub(crate) fn flags(connection: Connection, kinds: Option<PathBuf>) -> Vec<(String, bool)> {
    let Connection {
        namespace: _,
        kubeconfig,
        context,
        cluster,
        user,
        server,
        token,
        client_certificate,
        client_key,
        username,
        password,
        certificate_authority,
        insecure_skip_tls_verify,
        tls_server_name,
        impersonate,
        impersonate_groups,
        impersonate_uid,
        impersonate_extras,
        request_timeout,
        disable_compression,
        verbose: _,
    } = connection;
    let path = |path: Option<PathBuf>| path.map(|path| path.display().to_string());
    let is_set = |set: bool| set.then(|| "true".to_owned());
    let timeout = request_timeout.map_or_else(|| "0".to_owned(), |limit| format!("{}ms", limit.as_millis()));
    let extras = impersonate_extras.into_iter().map(|(key, value)| ("as-user-extra", Some(format!("{key}={value}"))));
    let groups = impersonate_groups.into_iter().map(|group| ("as-group", Some(group)));
    let plain = [
        ("kubeconfig", path(kubeconfig)),
        ("context", context),
        ("cluster", cluster),
        ("user", user),
        ("server", server),
        ("client-certificate", path(client_certificate)),
        ("client-key", path(client_key)),
        ("username", username),
        ("certificate-authority", path(certificate_authority)),
        ("tls-server-name", tls_server_name),
        ("insecure-skip-tls-verify", is_set(insecure_skip_tls_verify)),
        ("as", impersonate),
        ("as-uid", impersonate_uid),
        ("disable-compression", is_set(disable_compression)),
        ("request-timeout", Some(timeout).filter(|_| request_timeout != Some(TIMEOUT))),
        ("kinds", path(kinds)),
    ];
    let plain = plain.into_iter().chain(groups).chain(extras).map(|(name, value)| (name, value, false));
    let secret = [("token", token, true), ("password", password, true)];
    let flag = |(name, value, is_secret): (&str, Option<String>, bool)| {
        value.map(|value| (format!("--{name}={value}"), is_secret))
    };
    plain.chain(secret).filter_map(flag).collect()
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
        Notice::Retry { text, loud: true, .. } => output::note(&format!("{text}; trying again")),
        Notice::Retry { .. } | Notice::Recovered { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{self, Cli};

    /// What becomes of these flags.
    fn flags_of(given: &[String]) -> Vec<(String, bool)> {
        let words = ["kubectl-hibernate", "demo"].into_iter().map(Into::into).chain(given.iter().map(Into::into));
        let args = cli::read::<Cli>(words).unwrap().hub;
        flags(pinned(&args).unwrap(), args.kinds)
    }

    #[test]
    fn flags_connect_to_the_same_hub_as_the_same_user_in_the_context_of_now() {
        let kubeconfig = tempfile::NamedTempFile::new().unwrap();
        let text = "kind: Config\ncurrent-context: staging\n";
        std::fs::write(kubeconfig.path(), text).unwrap();
        let file = format!("--kubeconfig={}", kubeconfig.path().display());
        let plain: Vec<String> = flags_of(std::slice::from_ref(&file)).into_iter().map(|one| one.0).collect();
        assert_eq!(plain, [file.clone(), "--context=staging".to_owned()]);
        let given: Vec<String> = [
            file.as_str(),
            "--context=prod",
            "--cluster=c",
            "--user=u",
            "--server=https://hub",
            "--client-certificate=c.pem",
            "--client-key=k.pem",
            "--certificate-authority=ca.pem",
            "--tls-server-name=hub",
            "--as=alice",
            "--as-uid=7",
            "--disable-compression=true",
            "--request-timeout=5000ms",
            "--kinds=kinds.yaml",
            "--as-group=a",
            "--as-group=b",
            "--as-user-extra=team=shop",
            "--token=t",
        ]
        .map(str::to_owned)
        .into();
        let found = flags_of(&given);
        assert_eq!(found.iter().map(|one| one.0.clone()).collect::<Vec<_>>(), given);
        let secrets: Vec<&String> = found.iter().filter(|one| one.1).map(|one| &one.0).collect();
        assert_eq!(secrets, ["--token=t"]);
    }
}
