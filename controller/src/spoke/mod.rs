//! The sleeping cluster's own API server, reached by the administrator's kubeconfig that the installer left in a Secret.
//!
//! The Secret belongs to a tenant and this process is ours: a kubeconfig that would run a program, read a file or send us
//! through a proxy is refused, and so is one that would have us trust anybody's certificate.

mod bounded;
pub mod kubeconfig;
mod route;
mod state;
mod watch;

use std::time::Duration;

use kube::config::{AuthInfo, Cluster, KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use shared::spoke::openshift::ClusterVersion;
use shared::spoke::{SpokeError, Upgrade};

use self::bounded::bounded;
pub use self::route::Route;
pub use self::watch::{Scope, SpokeWatch};

const CONNECT: Duration = Duration::from_secs(3);
const WRITE: Duration = Duration::from_secs(5);
/// A watch may be silent for a while: the API server sends a bookmark about every minute.
const READ: Duration = Duration::from_secs(75);
/// How long an answer may take.
pub const LOOK: Duration = Duration::from_secs(8);

/// A client for the kubeconfig, if it is of a form that is accepted, by the way that is given. No request is made yet.
///
/// # Errors
/// [`SpokeError::Kubeconfig`], naming what is wrong with the kubeconfig (the text begins so) or the way.
pub async fn client(kubeconfig: &[u8], route: &Route<'_>) -> Result<Client, SpokeError> {
    let refuse = |why: String| SpokeError::Kubeconfig(format!("kubeconfig {why}"));
    let text = str::from_utf8(kubeconfig).map_err(|_| refuse("is not text".into()))?;
    let kubeconfig =
        Kubeconfig::from_yaml(text).map_err(|error| refuse(format!("is malformed: {}", first_line(&error))))?;
    vet(&kubeconfig).map_err(refuse)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|error| refuse(format!("cannot be used: {}", first_line(&error))))?;
    route.apply(&mut config).map_err(|why| SpokeError::Kubeconfig(format!("spec.controlPlaneConfig.{why}")))?;
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(READ);
    config.write_timeout = Some(WRITE);
    config.default_retry = false;
    config.proxy_url = None;
    config.headers.push(crate::runtime::hub::user_agent());
    let client = Client::try_from(config);
    client.map(bounded).map_err(|error| refuse(format!("cannot be used: {}", first_line(&error))))
}

/// Every user and cluster of the file is held to the same rules, whichever the current context names.
fn vet(kubeconfig: &Kubeconfig) -> Result<(), String> {
    const WHY: &str = "which would run code, read files or weaken TLS in the controller's process";
    let users = kubeconfig.auth_infos.iter().filter_map(|user| user.auth_info.as_ref()).find_map(forbidden_user);
    let clusters =
        kubeconfig.clusters.iter().filter_map(|cluster| cluster.cluster.as_ref()).find_map(forbidden_cluster);
    match users.or(clusters) {
        Some(field) => Err(format!("is refused: it has {field}, {WHY}")),
        None => Ok(()),
    }
}

fn forbidden_user(user: &AuthInfo) -> Option<&'static str> {
    [
        (user.exec.is_some(), "exec"),
        (user.auth_provider.is_some(), "auth-provider"),
        (user.token_file.is_some(), "tokenFile"),
        (user.client_certificate.is_some(), "client-certificate (a file path)"),
        (user.client_key.is_some(), "client-key (a file path)"),
    ]
    .into_iter()
    .find_map(|(found, field)| found.then_some(field))
}

fn forbidden_cluster(cluster: &Cluster) -> Option<&'static str> {
    [
        (cluster.certificate_authority.is_some(), "certificate-authority (a file path)"),
        (cluster.proxy_url.is_some(), "proxy-url"),
        (cluster.insecure_skip_tls_verify == Some(true), "insecure-skip-tls-verify"),
        (!cluster.server.as_deref().unwrap_or_default().starts_with("https://"), "a server that is not https"),
    ]
    .into_iter()
    .find_map(|(found, field)| found.then_some(field))
}

/// Asks the spoke whether it is being upgraded. One that cannot be asked is not kept awake for that.
pub async fn upgrade(client: &Client) -> Upgrade {
    let versions: Api<ClusterVersion> = Api::all(client.clone());
    match tokio::time::timeout(LOOK, versions.get("version")).await {
        Ok(Ok(version)) => {
            let conditions = version.status.into_iter().flat_map(|status| status.conditions);
            let progressing = conditions.into_iter().find(|c| c.type_ == "Progressing" && c.status == "True");
            progressing.map_or(Upgrade::Idle, |c| Upgrade::Progressing(c.message.unwrap_or_default()))
        }
        Ok(Err(kube::Error::Api(status))) if status.is_not_found() => Upgrade::Idle,
        Ok(Err(_)) | Err(_) => Upgrade::Unknown,
    }
}

/// What an error of the spoke's API server means.
pub fn failure(error: &kube::Error) -> SpokeError {
    match error {
        kube::Error::Api(status) => {
            SpokeError::Failed(format!("the cluster's API server answered {}: {}", status.code, status.message))
        }
        other => SpokeError::Unreachable(format!("the cluster's API server cannot be reached: {}", innermost(other))),
    }
}

/// The last error of the chain: `connection refused` says more than `client error (Connect)`.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    first_line(innermost)
}

fn first_line(error: &(impl std::fmt::Display + ?Sized)) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{{cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
        )
    }

    #[tokio::test]
    async fn accepts_a_token_or_certificate_data_and_nothing_that_reaches_outside() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let good = "server: 'https://api.demo:6443'";
        assert!(client(kubeconfig(good, "token: t").as_bytes(), &Route::default()).await.is_ok());
        for (cluster, user, field) in [
            (good, "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh}", "exec"),
            (good, "auth-provider: {name: gcp, config: {cmd-path: sh}}", "auth-provider"),
            (good, "tokenFile: /etc/passwd", "tokenFile"),
            (good, "client-certificate: /etc/passwd", "client-certificate"),
            (good, "client-key: /etc/passwd", "client-key"),
            ("server: 'https://a', certificate-authority: /etc/passwd", "token: t", "certificate-authority"),
            ("server: 'https://a', proxy-url: 'http://b'", "token: t", "proxy-url"),
            ("server: 'https://a', insecure-skip-tls-verify: true", "token: t", "insecure-skip-tls-verify"),
            ("server: 'http://a'", "token: t", "not https"),
        ] {
            let error = client(kubeconfig(cluster, user).as_bytes(), &Route::default())
                .await
                .map(|_| ())
                .unwrap_err()
                .to_string();
            assert!(error.starts_with("kubeconfig is refused: it has ") && error.contains(field), "{field}: {error}");
        }
    }

    #[tokio::test]
    async fn says_what_is_malformed() {
        for bad in [&b"\xff\xfe"[..], b"", b"{", b"clusters: 7"] {
            assert!(
                matches!(client(bad, &Route::default()).await.map(|_| ()), Err(SpokeError::Kubeconfig(_))),
                "{bad:?}"
            );
        }
    }
}
