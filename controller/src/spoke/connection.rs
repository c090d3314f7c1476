//! A client of a spoke, from the kubeconfig of a tenant.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use http::Request;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{HttpConnector, HttpInfo};
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt};
use kube::config::KubeConfigOptions;
use kube::{Client, Config};
use shared::spoke::SpokeError;
use shared::text::{first_line, sanitize};
use tokio::time::Instant;
use tower::{BoxError, ServiceBuilder};

use super::reader::SpokeClient;
use super::{Network, Route, config};
use crate::runtime::slot;
use cloud_common::{Discretion, Endpoint, Resolved, Resolver};
use fair::Consumer;

const CONNECT: Duration = Duration::from_secs(3);
const WRITE: Duration = Duration::from_secs(5);
/// A watch may be silent for a while: the API server sends a bookmark about every minute.
const READ: Duration = Duration::from_secs(75);
/// Bytes that a connection reads ahead.
const READ_BUFFER: usize = 64 << 10;
/// Connections to a spoke that are kept for the next requests.
const MAX_IDLE: usize = 4;

/// A client of a spoke for the kubeconfig, if it is of a form that is accepted, by the way that is given. No request is
/// made yet.
///
/// # Errors
/// [`SpokeError::Kubeconfig`], naming what is wrong with the kubeconfig (the text begins so) or the way.
pub async fn client(
    network: &Network,
    consumer: Consumer,
    kubeconfig: &[u8],
    route: &Route<'_>,
) -> Result<SpokeClient, SpokeError> {
    let refuse = |why: String| SpokeError::Kubeconfig(format!("kubeconfig {why}"));
    let kubeconfig = config::parse(kubeconfig).map_err(refuse)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|error| refuse(format!("cannot be used: {}", first_line(&error))))?;
    let denied = network.dialer.check_host(config.cluster_url.host().unwrap_or_default());
    if route.url.is_none() && route.ip.is_none() {
        denied.map_err(|denied| refuse(format!("is refused: its server {denied}")))?;
    }
    let refuse_route = |why: &str| SpokeError::Kubeconfig(format!("spec.controlPlaneConfig.{why}"));
    route.apply(&mut config).map_err(|why| refuse_route(&sanitize(&why)))?;
    if let Err(denied) = network.dialer.check_host(config.cluster_url.host().unwrap_or_default()) {
        let field = if route.ip.is_some() { "apiServerIPOverride" } else { "apiURLOverride" };
        return Err(refuse_route(&format!("{field} is refused: {denied}")));
    }
    withhold_token(&mut config, route).map_err(refuse_route)?;
    // KKP's kubeconfigs name hosts with the dot of the DNS root, and certificates never do.
    let host = config.cluster_url.host().and_then(|host| host.strip_suffix('.')).map(str::to_owned);
    config.tls_server_name = config.tls_server_name.or(host);
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(READ);
    config.write_timeout = Some(WRITE);
    config.headers.push(crate::runtime::hub::user_agent());
    let client = connect(&config, network, &consumer.tenant);
    let client = client.map_err(|error| refuse(format!("cannot be used: {}", first_line(&error))))?;
    Ok(SpokeClient::new(client, network.memory.of(consumer)))
}

/// Without a CA in the kubeconfig anybody whom the public trusts may answer at an overridden URL: it gets no token. Who
/// may edit the override need not be allowed to read the kubeconfig.
fn withhold_token(config: &mut Config, route: &Route<'_>) -> Result<(), &'static str> {
    if route.url.is_none() || config.root_cert.is_some() || config.auth_info.token.take().is_none() {
        return Ok(());
    }
    if config.auth_info.client_certificate_data.is_some() {
        return Ok(());
    }
    Err(
        "apiURLOverride is refused: the kubeconfig has a token, and no certificate-authority-data to know the server by",
    )
}

/// kube's own client, with checked addresses and without details about endpoints that have not proven who they are.
fn connect(config: &Config, network: &Network, tenant: &Arc<str>) -> kube::Result<Client> {
    let resolver = Resolver::new(tenant.clone(), network.dialer.clone());
    let resolved = resolver.resolved(config.cluster_url.host().unwrap_or_default());
    let mut tcp = HttpConnector::new_with_resolver(resolver);
    tcp.enforce_http(false);
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    let mut http = legacy::Client::builder(TokioExecutor::new());
    http.http1_max_buf_size(READ_BUFFER).pool_max_idle_per_host(MAX_IDLE);
    let http = http.build::<_, Body>(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    let client = Client::new(service, config.default_namespace.clone());
    Ok(discreet(client, endpoint(config, resolved), network.clone()))
}

/// The same client, which says nothing of why an endpoint cannot be reached that has not proven who it is, and always
/// after the same time.
fn discreet(client: Client, endpoint: Endpoint, network: Network) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, network, endpoint) = (client.clone(), network.clone(), endpoint.clone());
        async move {
            let begun = Instant::now();
            // The reconcile that asks gives its slot back until the answer was read.
            let sent = network.threads.run(async move { client.send(request).await });
            let sent = sent.map(|ended| ended.unwrap_or_else(|panic| Err(kube::Error::Service(panic.into()))));
            let (answer, dialer) = (slot::request(sent).await, network.dialer);
            if let Ok(answer) = &answer {
                if let Some(by) = answer.extensions().get::<HttpInfo>().map(|by| by.remote_addr().ip()) {
                    endpoint.answered(&dialer, Some(by));
                }
            } else {
                endpoint.answered(&dialer, None);
                if !endpoint.is_proven(&dialer) {
                    slot::outside(tokio::time::sleep_until(begun + Discretion::SPOKE.after)).await;
                    return Err(kube::Error::Service(Discretion::SPOKE.words.into()));
                }
            }
            answer
        }
    });
    Client::new(service, namespace)
}

/// Where a client connects to, and by which CA the other side proves who it is.
fn endpoint(config: &Config, resolved: Resolved) -> Endpoint {
    Endpoint::new(&(&config.cluster_url, &config.tls_server_name, &config.root_cert), resolved)
}

/// What an error of the spoke's API server means.
pub fn failure(error: &kube::Error) -> SpokeError {
    match error {
        kube::Error::Api(status) => {
            let detail = sanitize(&status.message);
            SpokeError::Failed(format!("the cluster's API server answered {}: {detail}", status.code))
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

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use cloud_common::Dialer;

    use super::*;
    use crate::spoke::Threads;

    fn consumer() -> Consumer {
        Consumer::new("tenant", "spoke")
    }

    fn kubeconfig(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{{cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
        )
    }

    #[tokio::test]
    async fn accepts_a_token_or_certificate_data_and_nothing_that_reaches_outside() {
        let good = "server: 'https://api.demo:6443'";
        assert_eq!(refusal(&kubeconfig(good, "token: t"), Route::default()).await, None);
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
            (good, "token: t, as: admin", "as,"),
            (good, "token: t, as-uid: '7'", "as-uid"),
            (good, "token: t, as-groups: ['system:masters']", "as-groups"),
            (good, "token: t, as-user-extra: {a: [b]}", "as-user-extra"),
            (good, "username: u", "username"),
            (good, "password: p", "password"),
        ] {
            let error = refusal(&kubeconfig(cluster, user), Route::default()).await.unwrap();
            assert!(error.starts_with("kubeconfig is refused: it has ") && error.contains(field), "{field}: {error}");
        }
    }

    /// Every 100th input is also made a client of.
    #[test]
    fn fuzz_memory_of_kubeconfigs() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let seeds = [
            kubeconfig("server: 'https://api.demo:6443'", "token: t"),
            kubeconfig("server: 'https://api.demo:6443', certificate-authority-data: aGVsbG8=", "token: ' t\n'"),
            kubeconfig(
                "server: 'https://[::1]:6443', tls-server-name: a",
                "client-certificate-data: YQ==, client-key-data: YQ==",
            ),
            kubeconfig("server: 'https://a'", "username: u, password: p, as: x, as-groups: [y]"),
            kubeconfig("server: 'https://a', extensions: [&s {name: x, extension: {a: [1, 2]}}, *s]", "token: &t t"),
        ];
        let seeds: Vec<&[u8]> = seeds.iter().map(String::as_bytes).collect();
        let mut inputs = 0_u64;
        ::fuzz::run("kubeconfigs", &seeds, |bytes| {
            inputs += 1;
            let (accepted, peak) = ::fuzz::peak(|| config::parse(bytes).is_ok());
            let bound = 64 * bytes.len() + (64 << 10);
            assert!(peak.is_none_or(|peak| peak <= bound), "{peak:?} bytes in use for {}", bytes.len());
            if accepted && inputs.is_multiple_of(10) || inputs.is_multiple_of(100) {
                let _ = runtime.block_on(client(&Network::default(), consumer(), bytes, &Route::default()));
            }
            accepted
        });
    }

    #[tokio::test]
    async fn says_what_is_malformed() {
        for bad in [&b"\xff\xfe"[..], b"", b"{", b"clusters: 7"] {
            let made = client(&Network::default(), consumer(), bad, &Route::default()).await;
            assert!(matches!(made.map(drop), Err(SpokeError::Kubeconfig(_))), "{bad:?}");
        }
    }

    async fn refusal(kubeconfig: &str, route: Route<'_>) -> Option<String> {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let made = client(&Network::default(), consumer(), kubeconfig.as_bytes(), &route).await;
        made.err().map(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_token_is_trimmed_and_one_that_no_header_can_hold_is_refused() {
        let good = "server: 'https://api.demo:6443'";
        for (token, refused) in [
            ("\"abc\\n\"", false),
            ("\"  abc\\r\\n\"", false),
            ("\"a\\nb\"", true),
            ("\"a\\0b\"", true),
            ("\"\\x7f\"", true),
            ("\"\"", false),
        ] {
            let found = refusal(&kubeconfig(good, &format!("token: {token}")), Route::default()).await;
            assert_eq!(found.is_some(), refused, "{token}: {found:?}");
            assert!(found.is_none_or(|text| text.contains("a token with characters")));
        }
    }

    #[tokio::test]
    async fn literal_addresses_are_checked_wherever_they_stand() {
        let of = |server: &str| kubeconfig(&format!("server: '{server}'"), "token: t");
        let server_is = "kubeconfig is refused: its server";
        let by_url = "spec.controlPlaneConfig.apiURLOverride is refused: 169";
        let by_ip = "spec.controlPlaneConfig.apiServerIPOverride is refused: ";
        for (server, url, ip, part, rest) in [
            ("https://127.0.0.1:6443", None, None, server_is, " 127.0.0.1 is a loopback address"),
            ("https://[::1]:6443", None, None, server_is, " ::1 is a loopback address"),
            ("https://[::ffff:169.254.169.254]", None, None, server_is, " ::ffff:169.254.169.254 is"),
            ("https://api.demo", Some("https://169.254.169.254"), None, by_url, ""),
            ("https://api.demo", None, Some("127.0.0.1"), by_ip, "127.0.0.1"),
            ("https://10.0.0.1", Some("https://b.demo"), Some("0.0.0.0"), by_ip, ""),
        ] {
            let text = format!("{part}{rest}");
            let found = refusal(&of(server), Route { url, ip }).await.unwrap();
            assert!(found.starts_with(&text), "{server}: {found}");
        }
        let elsewhere = Route { url: None, ip: Some("10.0.0.1") };
        assert_eq!(refusal(&of("https://127.0.0.1"), elsewhere).await, None, "not dialed");
        assert_eq!(refusal(&of("https://10.0.0.1"), Route::default()).await, None);
    }

    #[tokio::test]
    async fn an_overridden_url_gets_no_token_unless_the_kubeconfig_has_a_ca() {
        let url = Route { url: Some("https://b.demo"), ip: None };
        let good = "server: 'https://a.demo:6443'";
        let with_ca = format!("{good}, certificate-authority-data: aGVsbG8=");
        let found = refusal(&kubeconfig(good, "token: t"), url).await.unwrap_or_default();
        assert!(
            found.starts_with("spec.controlPlaneConfig.apiURLOverride is refused: the kubeconfig has a token"),
            "{found}"
        );
        assert_eq!(refusal(&kubeconfig(good, "token: t"), Route::default()).await, None);
        let of_ca = refusal(&kubeconfig(&with_ca, "token: t"), url).await;
        assert!(of_ca.is_none_or(|why| !why.contains("apiURLOverride")));
    }

    #[test]
    fn an_endpoint_is_proven_at_each_address_of_its_name() {
        let (dialer, resolved) = (Dialer::default(), Resolved::default());
        let config = Config::new("https://api.demo:6443".parse().unwrap());
        let endpoint = endpoint(&config, resolved.clone());
        let is_proven = || endpoint.is_proven(&dialer);
        let (own, inner): (IpAddr, IpAddr) = ("203.0.113.1".parse().unwrap(), "10.0.0.1".parse().unwrap());
        dialer.prove(endpoint.at(own));
        assert!(!is_proven(), "its name was not resolved");
        resolved.add(own);
        assert!(is_proven());
        resolved.add(inner);
        assert!(!is_proven(), "whoever owns the name has it lead elsewhere");
        dialer.prove(endpoint.at(inner));
        assert!(is_proven());
        for address in (0..=16).map(|last| IpAddr::from([10, 0, 1, last])) {
            resolved.add(address);
            dialer.prove(endpoint.at(address));
        }
        assert!(!is_proven(), "it has too many");
    }

    #[tokio::test(start_paused = true)]
    async fn an_endpoint_that_has_not_proven_itself_reveals_no_cause() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let network = Network { dialer: Dialer::new(Vec::new(), true), ..Network::default() };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let open = listener.local_addr().unwrap();
        let closed = { tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap() };
        // Accepts and says nothing of TLS.
        tokio::spawn(async move {
            loop {
                let _ = listener.accept().await;
            }
        });
        let mut detail = Vec::new();
        for server in [format!("https://{open}"), format!("https://{closed}"), "https://name.invalid".to_owned()] {
            let kubeconfig = kubeconfig(&format!("server: '{server}'"), "token: t");
            let client = client(&network, consumer(), kubeconfig.as_bytes(), &Route::default()).await.unwrap();
            let begun = Instant::now();
            detail.push(failure(&client.version().await.unwrap_err()).to_string());
            let late = begun.elapsed().saturating_sub(Discretion::SPOKE.after);
            assert!(
                begun.elapsed() >= Discretion::SPOKE.after && late < Duration::from_millis(50),
                "{server}: {late:?}"
            );
        }
        detail.dedup();
        assert_eq!(detail, [format!("the cluster's API server cannot be reached: {}", Discretion::SPOKE.words)]);
    }

    #[tokio::test]
    async fn a_spoke_is_dialed_by_the_threads_that_are_for_it() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let threads = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let dialer = Dialer::new(Vec::new(), true);
        let network = Network { dialer, threads: Threads::from(&threads), ..Network::default() };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("server: 'https://{}'", listener.local_addr().unwrap());
        let kubeconfig = kubeconfig(&server, "token: t");
        let client = client(&network, consumer(), kubeconfig.as_bytes(), &Route::default()).await.unwrap();
        let request = tokio::spawn(async move { client.version().await });
        let dialed = |within: u64| tokio::time::timeout(Duration::from_millis(within), listener.accept());
        assert!(dialed(200).await.is_err(), "those threads do nothing yet");
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let run = std::thread::spawn(move || threads.block_on(ended));
        assert!(dialed(10_000).await.is_ok());
        request.abort();
        end.send(()).unwrap();
        assert_eq!(run.join().unwrap(), Ok(()));
    }
}
