//! The sleeping cluster's own API server, reached by the administrator's kubeconfig that the installer left in a Secret.
//!
//! The Secret belongs to a tenant and this process is ours: a kubeconfig that would run a program, read a file or send us
//! through a proxy is refused, and so is one that would have us trust anybody's certificate.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, ListParams};
use kube::config::{AuthInfo, Cluster, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, ResourceExt};
use shared::hive::decide::{NodeLook, OperatorLook, Spoke, SpokeError};
use shared::hive::openshift::ClusterOperator;

const CONNECT: Duration = Duration::from_secs(3);
const READ: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_secs(8);

/// A client for the kubeconfig, if it is of a form that is accepted. No request is made yet.
///
/// # Errors
/// [`SpokeError::Kubeconfig`], naming what is wrong with it.
pub async fn client(kubeconfig: &[u8]) -> Result<Client, SpokeError> {
    let refuse = |why: String| SpokeError::Kubeconfig(format!("kubeconfig {why}"));
    let text = str::from_utf8(kubeconfig).map_err(|_| refuse("is not text".into()))?;
    let kubeconfig =
        Kubeconfig::from_yaml(text).map_err(|error| refuse(format!("is malformed: {}", first_line(&error))))?;
    vet(&kubeconfig).map_err(refuse)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|error| refuse(format!("cannot be used: {}", first_line(&error))))?;
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(READ);
    config.write_timeout = Some(READ);
    config.default_retry = false;
    config.proxy_url = None;
    Client::try_from(config).map_err(|error| refuse(format!("cannot be used: {}", first_line(&error))))
}

/// Every user and cluster of the file is held to the same rules, whichever the current context names.
fn vet(kubeconfig: &Kubeconfig) -> Result<(), String> {
    const WHY: &str = "which would run code, read files or trust strangers in the controller's process";
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

/// Asks for Nodes, their Leases and, if wanted, ClusterOperators. Whether a Node has `moved` is for the caller to fill in.
///
/// # Errors
/// [`SpokeError::Unreachable`] when nobody answers, [`SpokeError::Failed`] when the answer is an error.
pub async fn look(client: &Client, with_operators: bool) -> Result<Spoke, SpokeError> {
    let all = ListParams::default();
    let nodes: Api<Node> = Api::all(client.clone());
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    let operators: Api<ClusterOperator> = Api::all(client.clone());
    let operators = async {
        if !with_operators {
            return Ok(Vec::new());
        }
        match operators.list(&all).await {
            Ok(list) => Ok(list.items),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    };
    let looks = async { tokio::try_join!(nodes.list(&all), leases.list(&all), operators) };
    let answer = tokio::time::timeout(LOOK, looks).await;
    let answer = answer
        .map_err(|_| SpokeError::Unreachable(format!("the cluster's API server gives no answer within {LOOK:?}")))?;
    let (nodes, leases, operators) = answer.map_err(|error| failure(&error))?;
    Ok(Spoke {
        nodes: nodes.items.iter().map(|node| node_look(node, &leases.items)).collect(),
        operators: operators.iter().map(operator_look).collect(),
    })
}

fn failure(error: &kube::Error) -> SpokeError {
    match error {
        kube::Error::Api(status) => {
            SpokeError::Failed(format!("the cluster's API server answers {}: {}", status.code, status.message))
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

fn node_look(node: &Node, leases: &[Lease]) -> NodeLook {
    let name = node.name_any();
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
    let lease = leases.iter().find(|lease| lease.metadata.name.as_deref() == Some(&name));
    let renewed = lease.and_then(|lease| lease.spec.as_ref()?.renew_time.as_ref()).map(|time| time.0);
    let heartbeat = ready.and_then(|ready| ready.last_heartbeat_time.as_ref()).map(|Time(time)| *time);
    NodeLook {
        ready: ready.is_some_and(|ready| ready.status == "True"),
        sign_of_life: renewed.max(heartbeat),
        moved: false,
        name,
    }
}

/// hive.md 1.3, checkClusterRunning 5: what makes an operator unwell. An unknown or missing Available counts as fine.
const UNWELL: &[(&str, &str)] = &[("Available", "False"), ("Progressing", "True"), ("Degraded", "True")];

fn operator_look(operator: &ClusterOperator) -> OperatorLook {
    let conditions = operator.status.iter().flat_map(|status| &status.conditions);
    let unwell = conditions.filter(|c| UNWELL.contains(&(c.type_.as_str(), c.status.as_str())));
    OperatorLook { name: operator.name_any(), unwell: unwell.map(|c| format!("{}={}", c.type_, c.status)).collect() }
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
        assert!(client(kubeconfig(good, "token: t").as_bytes()).await.is_ok());
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
            let error = client(kubeconfig(cluster, user).as_bytes()).await.map(|_| ()).unwrap_err().to_string();
            assert!(error.starts_with("kubeconfig is refused: it has ") && error.contains(field), "{field}: {error}");
        }
    }

    #[tokio::test]
    async fn says_what_is_malformed() {
        for bad in [&b"\xff\xfe"[..], b"", b"{", b"clusters: 7"] {
            assert!(matches!(client(bad).await.map(|_| ()), Err(SpokeError::Kubeconfig(_))), "{bad:?}");
        }
    }
}
