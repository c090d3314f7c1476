//! The credential plugin of a kubeconfig's user (`exec`), run once for each login. kube runs it three times for each
//! client, which asks for three one-time codes.

use std::io::{self, IsTerminal as _};
use std::process::{Command, Stdio};

use http::HeaderValue;
use jiff::{SignedDuration, Timestamp};
use kube::config::{AuthInfo, ExecConfig, ExecInteractiveMode};
use serde::Deserialize;
use serde_json::json;

use crate::login::Plugin;

/// The versions of its API that kubectl knows.
const VERSIONS: [&str; 2] = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];

/// A token or certificate is renewed so long before its end.
const EARLY: SignedDuration = SignedDuration::from_secs(10);

/// What a plugin prints.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    api_version: String,
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
    expiration_timestamp: Option<Timestamp>,
}

/// What a plugin has brought, besides a certificate. It has no `Debug`: it holds the token.
#[derive(Default)]
pub struct Login {
    /// The header of each request.
    pub token: Option<HeaderValue>,
    /// When the token and the certificate end; none if the plugin does not say.
    pub end: Option<Timestamp>,
}

/// Runs the plugin of a user who has one; none if other credentials come first. A certificate that it prints becomes
/// the user's.
///
/// # Errors
/// What is wrong with the plugin, without anything that it printed.
pub fn log_in(user: &mut AuthInfo) -> Result<Option<Login>, String> {
    let plugin = Plugin::of(user).unwrap_or_default();
    let Some(exec) = user.exec.take() else { return Ok(None) };
    if user.token.is_some() || user.token_file.is_some() || user.username.is_some() {
        return Ok(None);
    }
    let printed = run(&exec, &plugin)?;
    if let (Some(certificate), Some(key)) = (&printed.client_certificate_data, &printed.client_key_data) {
        user.client_certificate_data = Some(base64(certificate));
        user.client_key_data = Some(base64(key).into());
        (user.client_certificate, user.client_key) = (None, None);
    }
    let token = printed.token.map(|token| header(&token, &plugin)).transpose()?;
    Ok(Some(Login { token, end: printed.expiration_timestamp }))
}

/// Whether what ends then is to be renewed.
pub fn has_ended(end: Timestamp) -> bool {
    Timestamp::now() + EARLY >= end
}

fn header(token: &str, plugin: &Plugin) -> Result<HeaderValue, String> {
    let mut header = HeaderValue::try_from(format!("Bearer {}", token.trim())).map_err(|_| plugin.invalid())?;
    header.set_sensitive(true);
    Ok(header)
}

fn run(exec: &ExecConfig, plugin: &Plugin) -> Result<Status, String> {
    let version = exec.api_version.as_deref().unwrap_or_default();
    if !VERSIONS.contains(&version) {
        return Err(plugin.wrong(&format!("has apiVersion {version:?}; it has to be {}", VERSIONS.join(" or "))));
    }
    let command = exec.command.as_deref().filter(|command| !command.is_empty());
    let command = command.ok_or_else(|| plugin.wrong("has no command"))?;
    let is_interactive = match exec.interactive_mode {
        Some(ExecInteractiveMode::Never) => false,
        Some(ExecInteractiveMode::Always) if !io::stdin().is_terminal() => {
            return Err(plugin.wrong("has interactiveMode Always, and stdin is no terminal"));
        }
        _ => io::stdin().is_terminal(),
    };
    let mut spec = json!({ "interactive": is_interactive });
    if exec.provide_cluster_info {
        spec["cluster"] = json!(exec.cluster);
    }
    let info = json!({ "apiVersion": version, "kind": "ExecCredential", "spec": spec });
    let variables = exec.env.iter().flatten().filter_map(|one| Some((one.get("name")?, one.get("value")?)));
    let out = Command::new(command)
        .args(exec.args.iter().flatten())
        .envs(variables)
        .env("KUBERNETES_EXEC_INFO", info.to_string())
        .stdin(if is_interactive { Stdio::inherit() } else { Stdio::null() })
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| plugin.not_started(&error))?;
    if !out.status.success() {
        return Err(plugin.failed(out.status));
    }
    // JSON, or YAML, as kubectl reads it.
    let printed: ExecCredential = serde_saphyr::from_slice(&out.stdout).map_err(|_| plugin.invalid())?;
    let has_pair = printed.status.client_certificate_data.is_some() == printed.status.client_key_data.is_some();
    let has_any = printed.status.token.is_some() || printed.status.client_key_data.is_some();
    if printed.api_version != version || !has_pair || !has_any {
        return Err(plugin.invalid());
    }
    Ok(printed.status)
}

fn base64(bytes: impl AsRef<[u8]>) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

#[cfg(all(test, unix))]
pub(crate) mod tests {
    use std::fs;

    use super::*;

    type Edit = fn(&mut ExecConfig);

    /// A user whose plugin counts how often it runs, and prints this.
    pub(crate) fn user(folder: &std::path::Path, printed: &str) -> AuthInfo {
        let script = format!("echo x >> '{}/runs'; printf %s \"$PRINTED\"", folder.display());
        let variable = [("name".to_owned(), "PRINTED".to_owned()), ("value".to_owned(), printed.to_owned())].into();
        let exec = ExecConfig {
            api_version: Some(VERSIONS[0].to_owned()),
            command: Some("sh".to_owned()),
            args: Some(vec!["-c".to_owned(), script]),
            env: Some(vec![variable]),
            ..ExecConfig::default()
        };
        AuthInfo { exec: Some(exec), ..AuthInfo::default() }
    }

    pub(crate) fn runs(folder: &std::path::Path) -> usize {
        fs::read_to_string(folder.join("runs")).unwrap_or_default().lines().count()
    }

    pub(crate) fn credential(status: &serde_json::Value) -> String {
        json!({ "apiVersion": VERSIONS[0], "kind": "ExecCredential", "status": status }).to_string()
    }

    #[test]
    fn a_token_becomes_a_header() {
        let folder = tempfile::TempDir::new().unwrap();
        let end: Timestamp = "2126-11-27T12:00:00Z".parse().unwrap();
        for end in [None, Some(end)] {
            let mut user = user(folder.path(), &credential(&json!({ "token": "t\n", "expirationTimestamp": end })));
            let login = log_in(&mut user).unwrap().unwrap();
            assert_eq!((login.token.unwrap(), login.end), (HeaderValue::from_static("Bearer t"), end));
            assert!(user.exec.is_none(), "kube runs none");
        }
        assert_eq!(runs(folder.path()), 2);
    }

    #[test]
    fn a_certificate_becomes_the_users() {
        let folder = tempfile::TempDir::new().unwrap();
        let end: Timestamp = "2126-11-27T12:00:00Z".parse().unwrap();
        let pair = json!({ "clientCertificateData": "C", "clientKeyData": "K", "expirationTimestamp": end });
        let mut found = user(folder.path(), &credential(&pair));
        let login = log_in(&mut found).unwrap().unwrap();
        assert_eq!((login.token, login.end), (None, Some(end)));
        assert_eq!((found.client_certificate_data.as_deref(), runs(folder.path())), (Some("Qw=="), 1));
        assert!(found.client_key_data.is_some());
    }

    #[test]
    fn other_credentials_come_first_and_what_kubectl_refuses_is_refused() {
        let folder = tempfile::TempDir::new().unwrap();
        let printed = credential(&json!({ "token": "t" }));
        let mut with_token = AuthInfo { token: Some("own".to_owned().into()), ..user(folder.path(), &printed) };
        assert!(log_in(&mut with_token).unwrap().is_none());
        let edits: [(Edit, &str); 4] = [
            (
                |exec| exec.api_version = Some("client.authentication.k8s.io/v1alpha1".to_owned()),
                "has apiVersion \"client.authentication.k8s.io/v1alpha1\"; it has to be client.authentication.k8s.io/v1 or",
            ),
            (|exec| exec.api_version = None, "has apiVersion \"\""),
            (|exec| exec.command = None, "has no command"),
            (|exec| exec.api_version = Some(VERSIONS[1].to_owned()), "did not print a valid ExecCredential"),
        ];
        for (edit, says) in edits {
            let mut user = user(folder.path(), &printed);
            user.exec.iter_mut().for_each(edit);
            let why = log_in(&mut user).err().unwrap_or_default();
            assert!(why.contains(says), "{says}: {why}");
        }
        for status in [json!({}), json!({ "clientKeyData": "K" }), json!({ "token": "a\u{0}b" })] {
            let why = log_in(&mut user(folder.path(), &credential(&status))).err().unwrap_or_default();
            assert!(why.ends_with("did not print a valid ExecCredential"), "{status}: {why}");
        }
        if !io::stdin().is_terminal() {
            let mut user = user(folder.path(), &printed);
            user.exec.iter_mut().for_each(|exec| exec.interactive_mode = Some(ExecInteractiveMode::Always));
            let why = log_in(&mut user).err().unwrap_or_default();
            assert!(why.ends_with("has interactiveMode Always, and stdin is no terminal"), "{why}");
        }
    }
}
