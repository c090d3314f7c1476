//! The program itself: real TLS, both HTTP versions, the plain port, and an orderly end.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by them")]

mod common;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use common::*;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Request, StatusCode, Version};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, Command};

struct Server {
    child: Child,
    log: tokio::io::Lines<BufReader<ChildStderr>>,
    https: SocketAddr,
    plain: SocketAddr,
    ca: CertificateDer<'static>,
    _files: tempfile::TempDir,
}

fn program() -> Command {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut program = Command::new(env!("CARGO_BIN_EXE_hibernate-webhook"));
    program.kill_on_drop(true).stderr(Stdio::piped()).args([
        "--listen=127.0.0.1:0",
        "--listen-plain=127.0.0.1:0",
        "--log-format=json",
        "--shutdown-delay-duration=0s",
    ]);
    program
}

fn certificate(folder: &Path) -> Result<CertificateDer<'static>> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    std::fs::write(folder.join("tls.crt"), made.cert.pem())?;
    std::fs::write(folder.join("tls.key"), made.signing_key.serialize_pem())?;
    Ok(made.cert.der().clone())
}

async fn start() -> Result<Server> {
    start_with(tempfile::tempdir()?, &[]).await
}

async fn start_with(files: tempfile::TempDir, arguments: &[String]) -> Result<Server> {
    let ca = certificate(files.path())?;
    let mut child = program()
        .args(arguments)
        .arg("--tls-cert")
        .arg(files.path().join("tls.crt"))
        .arg("--tls-key")
        .arg(files.path().join("tls.key"))
        .spawn()?;
    let mut log = BufReader::new(child.stderr.take().context("stderr")?).lines();
    loop {
        let line = log.next_line().await?.context("it ended before it served")?;
        let line: Value = serde_json::from_str(&line)?;
        if line["message"] == "serving" {
            let address = |key: &str| -> Result<SocketAddr> { Ok(line[key].as_str().context("address")?.parse()?) };
            let (https, plain) = (address("https")?, address("plain")?);
            return Ok(Server { child, log, https, plain, ca, _files: files });
        }
    }
}

impl Server {
    fn client(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        http2: bool,
    ) -> Result<Client<hyper_rustls::HttpsConnector<hyper_util::client::legacy::connect::HttpConnector>, Full<Bytes>>>
    {
        let mut roots = RootCertStore::empty();
        roots.add(self.ca.clone())?;
        let tls =
            ClientConfig::builder_with_protocol_versions(versions).with_root_certificates(roots).with_no_client_auth();
        let https = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_only();
        let https = if http2 { https.enable_http2().build() } else { https.enable_http1().build() };
        Ok(Client::builder(TokioExecutor::new()).build(https))
    }

    async fn plain(&self, path: &str) -> Result<(StatusCode, String)> {
        let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let response = client.get(format!("http://{}{path}", self.plain).parse()?).await?;
        let code = response.status();
        Ok((code, String::from_utf8(response.into_body().collect().await?.to_bytes().to_vec())?))
    }

    fn terminate(&self) -> Result<()> {
        let pid = self.child.id().context("it has ended already")?;
        ensure!(std::process::Command::new("kill").arg(pid.to_string()).status()?.success());
        Ok(())
    }
}

fn sleep_request(url: &str) -> Result<Request<Full<Bytes>>> {
    let request = to_sleep();
    let body = Full::from(review(&request).to_string());
    Ok(Request::post(url).header("content-type", "application/json").body(body)?)
}

#[tokio::test]
async fn it_speaks_every_version_that_an_api_server_may_speak() -> Result<()> {
    let server = start().await?;
    let url = format!("https://localhost:{}/validate", server.https.port());
    for (tls, http2) in [
        (&rustls::version::TLS13, true),
        (&rustls::version::TLS13, false),
        (&rustls::version::TLS12, true),
        (&rustls::version::TLS12, false),
    ] {
        let response = server.client(&[tls], http2)?.request(sleep_request(&url)?).await?;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.version(), if http2 { Version::HTTP_2 } else { Version::HTTP_11 });
        let answer: Value = serde_json::from_slice(&response.into_body().collect().await?.to_bytes())?;
        assert_eq!(answer["response"]["allowed"], true);
    }
    Ok(())
}

#[tokio::test]
async fn the_plain_port_tells_how_it_is() -> Result<()> {
    let server = start().await?;
    let url = format!("https://localhost:{}/validate", server.https.port());
    server.client(&[&rustls::version::TLS13], true)?.request(sleep_request(&url)?).await?;
    assert_eq!(server.plain("/healthz").await?.0, StatusCode::OK);
    // Where somebody's kubeconfig leads nowhere, it waits some seconds for a picture of the FoundationDBClusters.
    let ready = async || {
        while !matches!(server.plain("/readyz").await, Ok((StatusCode::OK, _))) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(15), ready()).await?;
    let (code, metrics) = server.plain("/metrics").await?;
    assert_eq!(code, StatusCode::OK);
    for line in [
        r#"hibernate_webhook_requests_total{resource="clusterdeployments",operation="UPDATE",verdict="allow"} 1"#,
        "hibernate_webhook_request_duration_seconds_count 1",
        "hibernate_webhook_in_flight 0",
        "hibernate_webhook_certificate_failures 0",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    Ok(())
}

/// SIGTERM and the removal from the Service are concurrent: an API server that dials meanwhile is answered.
#[tokio::test]
async fn after_sigterm_it_is_not_ready_and_still_serves_new_connections() -> Result<()> {
    let mut server = start_with(tempfile::tempdir()?, &["--shutdown-delay-duration=2s".to_owned()]).await?;
    server.terminate()?;
    while !server.log.next_line().await?.context("it ended at once")?.contains("stopping") {}
    assert_eq!(server.plain("/readyz").await?, (StatusCode::SERVICE_UNAVAILABLE, "stopping\n".to_owned()));
    assert_eq!(server.plain("/healthz").await?.0, StatusCode::OK, "a Pod that is not alive is killed");
    assert_eq!(ask_with(&server, None).await?, StatusCode::OK);
    let status = tokio::time::timeout(Duration::from_secs(10), server.child.wait()).await??;
    assert_eq!(status.code(), Some(0));
    Ok(())
}

/// A request whose body is still on its way when the server is asked to stop is answered; afterwards it ends with 0.
#[tokio::test]
async fn it_finishes_what_has_begun() -> Result<()> {
    let mut server = start().await?;
    let mut roots = RootCertStore::empty();
    roots.add(server.ca.clone())?;
    let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let tcp = tokio::net::TcpStream::connect(server.https).await?;
    let mut stream = tokio_rustls::TlsConnector::from(Arc::new(tls)).connect("localhost".try_into()?, tcp).await?;
    let mut body = review(&to_sleep()).to_string();
    body.extend(std::iter::repeat_n(' ', 4 << 20)); // gives it a second to arrive
    let (first, rest) = body.split_at(100);
    let head = format!(
        "POST /validate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{first}").as_bytes()).await?;
    stream.flush().await?;
    tokio::time::sleep(Duration::from_millis(200)).await;

    server.terminate()?;
    while !server.log.next_line().await?.context("it ended at once")?.contains("stopping") {}
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(tokio::net::TcpStream::connect(server.https).await.is_err(), "no new connection");
    stream.write_all(rest.as_bytes()).await?;
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains(r#""allowed":true"#), "{answer}");
    let status = tokio::time::timeout(Duration::from_secs(5), server.child.wait()).await??;
    assert_eq!(status.code(), Some(0));
    Ok(())
}

#[tokio::test]
async fn what_keeps_it_from_running_is_reported() -> Result<()> {
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let busy = std::net::TcpListener::bind(taken)?;
    let listen = format!("--listen={}", busy.local_addr()?);
    for (arguments, code, detail) in [
        (vec!["--tls-cert=/nonexistent/tls.crt", "--tls-key=/nonexistent/tls.key"], 1, "/nonexistent/tls.crt"),
        (vec!["--tls-cert=/nonexistent/tls.crt"], 2, "--tls-key"),
        (vec!["--client-ca=/nonexistent/ca.crt"], 1, "/nonexistent/ca.crt"),
        (vec!["--client-ca=/etc/hostname"], 1, "cannot use /etc/hostname as the CA of clients"),
        (vec!["--listen=nowhere"], 2, "invalid socket address"),
        (vec![listen.as_str()], 1, "Address already in use"),
    ] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_hibernate-webhook"));
        program.args(["--listen-plain=127.0.0.1:0"]).args(arguments).kill_on_drop(true);
        let output = tokio::time::timeout(Duration::from_secs(10), program.output()).await??;
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(detail), "{stderr}");
    }
    Ok(())
}

#[tokio::test]
async fn lines_that_are_not_for_a_terminal_have_no_colors() -> Result<()> {
    let files = tempfile::tempdir()?;
    certificate(files.path())?;
    let [cert, key] = ["tls.crt", "tls.key"].map(|name| files.path().join(name));
    let mut program = Command::new(env!("CARGO_BIN_EXE_hibernate-webhook"));
    program.args(["--listen=127.0.0.1:0", "--listen-plain=127.0.0.1:0", "--log-format=text"]).env_remove("NO_COLOR");
    program.arg("--tls-cert").arg(cert).arg("--tls-key").arg(key).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = program.spawn()?;
    let mut log = BufReader::new(child.stderr.take().context("stderr")?).lines();
    loop {
        let line = log.next_line().await?.context("it ended before it served")?;
        ensure!(!line.contains('\x1b'), "{line:?}");
        if line.contains("serving") {
            return Ok(());
        }
    }
}

/// A CA, and a certificate for a client that it has signed.
fn client_ca() -> Result<(String, CertifiedKey)> {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    let mut params = CertificateParams::default();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?;
    Ok((issuer.pem(), (certificate.der().clone(), PrivateKeyDer::Pkcs8(key.serialize_der().into()))))
}

type CertifiedKey = (CertificateDer<'static>, PrivateKeyDer<'static>);

/// Posts a review with this certificate, or with none.
async fn ask_with(server: &Server, client: Option<&CertifiedKey>) -> Result<StatusCode> {
    let mut roots = RootCertStore::empty();
    roots.add(server.ca.clone())?;
    let tls = ClientConfig::builder().with_root_certificates(roots);
    let tls = match client {
        Some((certificate, key)) => tls.with_client_auth_cert(vec![certificate.clone()], key.clone_key())?,
        None => tls.with_no_client_auth(),
    };
    let https = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1().build();
    let client = Client::builder(TokioExecutor::new()).build(https);
    let url = format!("https://localhost:{}/validate", server.https.port());
    Ok(client.request(sleep_request(&url)?).await?.status())
}

#[tokio::test]
async fn with_a_ca_of_clients_only_its_clients_are_served() -> Result<()> {
    let ((one, of_one), (two, of_two)) = (client_ca()?, client_ca()?);
    let files = tempfile::tempdir()?;
    let file = files.path().join("ca.crt");
    std::fs::write(&file, &one)?;
    let arguments = [format!("--client-ca={}", file.display()), "--certificate-check-interval=50ms".to_owned()];
    let server = start_with(files, &arguments).await?;
    let answers = async || [None, Some(&of_one), Some(&of_two)].map(|client| ask_with(&server, client));
    let served = async || {
        let [none, one, two] = answers().await;
        (none.await.is_ok(), one.await.is_ok(), two.await.is_ok())
    };
    assert_eq!(served().await, (false, true, false));
    assert_eq!(ask_with(&server, Some(&of_one)).await?, StatusCode::OK);
    assert_eq!(server.plain("/healthz").await?.0, StatusCode::OK, "probes have no certificate");

    // Another CA takes over, and what is no CA changes nothing.
    std::fs::write(&file, format!("{one}{two}"))?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(served().await, (false, true, true));
    std::fs::write(&file, "nothing")?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(served().await, (false, true, true));
    std::fs::write(&file, two)?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(served().await, (false, false, true));
    Ok(())
}

/// Denials are a line a minute for each rule and namespace, whoever asks: forged reviews would fill the disk.
#[tokio::test]
async fn denials_are_logged_once_a_minute_for_each_rule_and_namespace() -> Result<()> {
    let mut server = start().await?;
    let client = server.client(&[&rustls::version::TLS13], true)?;
    let url = format!("https://localhost:{}/validate", server.https.port());
    let pid = server.child.id().context("it has ended already")?;
    let log = tokio::spawn(async move {
        let mut lines = Vec::new();
        while let Ok(Some(line)) = server.log.next_line().await {
            lines.push(line);
        }
        (lines, server)
    });
    let protected = protected();
    let denied = |namespace: &str| {
        let mut request = update(CLUSTERS, &cluster(""), &protected);
        request["namespace"] = json!(namespace);
        review(&request).to_string()
    };
    let forged = (0..2_000).map(|number| denied(&format!("forged-{number}")));
    let bodies =
        std::iter::repeat_n(denied("shop"), 200).chain(forged).chain(std::iter::repeat_n("{}".to_owned(), 200));
    let answers = bodies.map(|body| async {
        let request = Request::post(&url).header("content-type", "application/json").body(Full::from(body))?;
        client.request(request).await?.into_body().collect().await?;
        anyhow::Ok(())
    });
    stream::iter(answers).buffered(50).try_collect::<()>().await?;
    ensure!(std::process::Command::new("kill").arg(pid.to_string()).status()?.success());
    let (lines, _server) = log.await?;
    let (mut shop, mut forged, mut others) = (0, 0, 0);
    for line in lines {
        let line: Value = serde_json::from_str(&line)?;
        let of = |name: &str| line["namespace"].as_str().is_some_and(|namespace| namespace.starts_with(name));
        shop += usize::from(of("shop"));
        forged += usize::from(of("forged"));
        others += usize::from(line["message"] == "request body is not an AdmissionReview");
        ensure!(!of("shop") || line["left_out"] == 0, "{line}");
    }
    assert!(shop == 1 && (900..=1_001).contains(&forged) && others <= 2, "{shop} {forged} {others}");
    Ok(())
}
