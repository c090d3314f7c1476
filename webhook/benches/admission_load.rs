//! What an answer costs over real TLS: the webhook as a process of its own, next to a server that parses nothing.
//!
//! `cargo bench -p hibernate-webhook --bench admission_load [-- --seconds 5] [--http1]`
//!
//! The client speaks as an API server does: HTTP/2 on one connection that is kept (or, with `--http1`, a connection for
//! each request in flight). Each request is an UPDATE that puts a cluster to sleep. The bare server is the limit of
//! this machine in the same run: same TLS, same HTTP, same answer, no thought.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use axum::body::Bytes;
use axum::routing::post;
use axum_server::tls_rustls::RustlsConfig;
use clap::Parser;
use futures::future::try_join_all;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use webhook::table::Endpoint;

#[derive(Parser)]
struct Args {
    /// Seconds to measure at each concurrency
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// HTTP/1.1 instead of HTTP/2
    #[arg(long)]
    http1: bool,
    /// Fail if the 99th percentile at concurrency 1 or 16 is above 2 or 5 milliseconds
    #[arg(long)]
    check: bool,
    /// Be the server that parses nothing, with tls.crt and tls.key of this folder
    #[arg(long, hide = true, value_name = "FOLDER")]
    bare: Option<std::path::PathBuf>,
    /// Given by cargo bench
    #[arg(long, hide = true)]
    bench: bool,
}

/// A sleep of an installed cluster, with the baggage of a real object: about 6.5 kB.
fn body() -> String {
    let cluster = |state: &str| {
        let conditions: Vec<_> = ["Hibernating", "Ready", "Unreachable", "SyncSetFailed"]
            .map(|kind| json!({ "type": kind, "status": "False", "reason": "NotSo", "message": "Cluster is resuming or running, see Ready condition for details", "lastProbeTime": "2026-11-20T18:00:00Z", "lastTransitionTime": "2026-11-20T18:00:00Z" }))
            .into();
        let fields: Value =
            ["baseDomain", "clusterName", "clusterMetadata", "installed", "platform", "provisioning", "pullSecretRef"]
                .into_iter()
                .map(|field| (format!("f:{field}"), json!({ ".": {}, "f:name": {}, "f:region": {} })))
                .collect::<serde_json::Map<_, _>>()
                .into();
        json!({
            "apiVersion": "hive.openshift.io/v1",
            "kind": "ClusterDeployment",
            "metadata": {
                "name": "demo", "namespace": "clusters", "uid": "5f0bb9a2-6f5d-4a8f-8f0e-0a6d0a3f2f11", "resourceVersion": "123456",
                "labels": { "hive.openshift.io/cluster-platform": "aws", "hive.openshift.io/cluster-region": "us-east-1" },
                "annotations": { "hibernate.sh/requested-by": "alice", "hibernate.sh/reason": "weekend", "example.com/note": "x".repeat(350) },
                "managedFields": [
                    { "manager": "hive-controllers", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": { "f:spec": fields } },
                    { "manager": "kubectl-hibernate", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": { "f:spec": { "f:powerState": {} } } },
                ],
            },
            "spec": {
                "baseDomain": "example.com", "clusterName": "demo", "installed": true, "powerState": state, "hibernateAfter": "8h",
                "platform": { "aws": { "region": "us-east-1", "credentialsSecretRef": { "name": "aws" }, "userTags": { "team": "a" } } },
                "clusterMetadata": {
                    "clusterID": "5f0bb9a2-6f5d-4a8f-8f0e-0a6d0a3f2f12", "infraID": "demo-x7k2p",
                    "adminKubeconfigSecretRef": { "name": "demo-admin-kubeconfig" },
                },
                "provisioning": { "installConfigSecretRef": { "name": "demo-install-config" }, "imageSetRef": { "name": "v4.20" } },
                "pullSecretRef": { "name": "pull" },
            },
            "status": { "powerState": "Running", "installedTimestamp": "2026-01-01T00:00:00Z", "apiURL": "https://api.demo.example.com:6443", "conditions": Value::Array(conditions) },
        })
    };
    let kind = json!({ "group": "hive.openshift.io", "version": "v1", "kind": "ClusterDeployment" });
    let resource = json!({ "group": "hive.openshift.io", "version": "v1", "resource": "clusterdeployments" });
    let (object, old) = (cluster("Hibernating"), cluster(""));
    // In the order of an API server, which is that of the fields in Go.
    let members = [
        ("uid", json!("0c9a8d74-9cb7-44dd-b98e-09fd62def2f4")),
        ("kind", kind.clone()),
        ("resource", resource.clone()),
        ("requestKind", kind),
        ("requestResource", resource),
        ("name", json!("demo")),
        ("namespace", json!("clusters")),
        ("operation", json!("UPDATE")),
        ("userInfo", json!({ "username": "alice", "uid": "7", "groups": ["devs", "system:authenticated"] })),
        ("object", object),
        ("oldObject", old),
        ("dryRun", json!(false)),
        (
            "options",
            json!({ "kind": "PatchOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "kubectl-hibernate" }),
        ),
    ];
    let request: Vec<_> = members.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!(r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{{}}}}}"#, request.join(","))
}

/// The limit: the same server, TLS and HTTP, which takes the body and gives back an answer made beforehand.
async fn bare(folder: &std::path::Path) -> Result<()> {
    let answer = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"0c9a8d74-9cb7-44dd-b98e-09fd62def2f4","allowed":true}}"#;
    let app = axum::Router::new()
        .route("/validate", post(move |_: Bytes| async move { ([("content-type", "application/json")], answer) }));
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let tls = RustlsConfig::from_pem_file(folder.join("tls.crt"), folder.join("tls.key")).await?;
    eprintln!("{}", json!({ "message": "serving", "https": listener.local_addr()?.to_string() }));
    let server = axum_server::from_tcp_rustls(listener, tls)?;
    server.map(|tls| tls.acceptor(axum_server::accept::NoDelayAcceptor::new())).serve(app.into_make_service()).await?;
    Ok(())
}

struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    async fn start(command: &mut Command) -> Result<Self> {
        let mut child = command.stderr(Stdio::piped()).kill_on_drop(true).spawn()?;
        let mut lines = BufReader::new(child.stderr.take().context("stderr")?).lines();
        while let Some(line) = lines.next_line().await? {
            let line: Value = serde_json::from_str(&line).with_context(|| line.clone())?;
            if let Some(address) = line["https"].as_str() {
                let address = address.parse()?;
                tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
                return Ok(Self { child, address });
            }
        }
        bail!("the server ended before it served")
    }

    fn cpu(&self) -> Result<Duration> {
        cpu_of(self.child.id().context("it has ended")?)
    }
}

/// CPU time that a process has used: `utime` and `stime` of `/proc/PID/stat`, in ticks of 10 ms.
fn cpu_of(pid: u32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat.rsplit_once(')').context("stat")?.1.split_whitespace().collect();
    let ticks = |index: usize| -> Result<u64> { Ok(fields.get(index).context("stat")?.parse()?) };
    Ok(Duration::from_millis((ticks(11)? + ticks(12)?) * 10))
}

type Https = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

fn client(ca: CertificateDer<'static>, http1: bool) -> Result<Https> {
    let mut roots = RootCertStore::empty();
    roots.add(ca)?;
    let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let https = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_only();
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    tcp.enforce_http(false);
    let https = if http1 { https.enable_http1().wrap_connector(tcp) } else { https.enable_http2().wrap_connector(tcp) };
    Ok(Client::builder(TokioExecutor::new()).http2_only(!http1).build(https))
}

#[derive(Debug)]
struct Figures {
    per_second: f64,
    mean: Duration,
    p50: Duration,
    p95: Duration,
    p99: Duration,
    max: Duration,
    cpu: Duration,
}

async fn measure(server: &Server, client: &Https, body: &Bytes, concurrency: usize, time: Duration) -> Result<Figures> {
    let url = format!("https://localhost:{}/validate", server.address.port());
    let worker = |until: Instant| {
        let (url, client, body) = (url.clone(), client.clone(), body.clone());
        async move {
            let mut latencies = Vec::new();
            while Instant::now() < until {
                let request =
                    Request::post(&url).header("content-type", "application/json").body(Full::new(body.clone()))?;
                let start = Instant::now();
                let response = client.request(request).await?;
                ensure!(response.status() == 200, "{}", response.status());
                let answer = response.into_body().collect().await?.to_bytes();
                latencies.push(start.elapsed());
                ensure!(
                    answer.windows(14).any(|text| text == b"\"allowed\":true"),
                    "{}",
                    String::from_utf8_lossy(&answer)
                );
            }
            Ok(latencies)
        }
    };
    let run = |time: Duration| {
        let until = Instant::now() + time;
        let workers: Vec<_> = (0..concurrency).map(|_| tokio::spawn(worker(until))).collect();
        async move {
            let results = try_join_all(workers).await?;
            results.into_iter().collect::<Result<Vec<_>>>().map(|lists| lists.concat())
        }
    };
    run(Duration::from_secs(1)).await.context("warm up")?;
    let (start, cpu) = (Instant::now(), server.cpu()?);
    let mut latencies = run(time).await?;
    let (elapsed, cpu) = (start.elapsed(), server.cpu()?.saturating_sub(cpu));
    latencies.sort_unstable();
    let count = u32::try_from(latencies.len())?;
    let at = |percent: usize| latencies.get(latencies.len() * percent / 100).copied().context("no requests");
    Ok(Figures {
        per_second: f64::from(count) / elapsed.as_secs_f64(),
        mean: latencies.iter().sum::<Duration>() / count,
        p50: at(50)?,
        p95: at(95)?,
        p99: at(99)?,
        max: latencies.last().copied().context("no requests")?,
        cpu: cpu / count,
    })
}

#[tokio::main]
async fn main() -> Result<()> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let args = Args::parse();
    if let Some(folder) = &args.bare {
        return bare(folder).await;
    }
    let folder = tempfile::tempdir()?;
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let (cert, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    std::fs::write(&cert, made.cert.pem())?;
    std::fs::write(&key, made.signing_key.serialize_pem())?;
    let bare = Server::start(Command::new(std::env::current_exe()?).arg("--bare").arg(folder.path())).await?;
    let webhook = Server::start(
        Command::new(env!("CARGO_BIN_EXE_hibernate-webhook"))
            .args(["--listen=127.0.0.1:0", "--listen-plain=127.0.0.1:0", "--log-format=json", "--tls-cert"])
            .arg(&cert)
            .arg("--tls-key")
            .arg(&key),
    )
    .await?;
    let body = Bytes::from(body());
    let client = client(made.cert.der().clone(), args.http1)?;
    pure(&body)?;
    println!(
        "UPDATE of powerState, {} bytes, {} for {} s each",
        body.len(),
        if args.http1 { "HTTP/1.1" } else { "HTTP/2" },
        args.seconds
    );
    println!(
        "{:8} {:>3} {:>10} {:>8} {:>8} {:>8} {:>8} {:>8} {:>10}",
        "", "c", "requests/s", "mean", "p50", "p95", "p99", "max", "CPU/request"
    );
    for (concurrency, limit) in [(1, Duration::from_millis(2)), (16, Duration::from_millis(5))] {
        let mut shown = Vec::new();
        for (name, server) in [("bare", &bare), ("webhook", &webhook)] {
            let figures = measure(server, &client, &body, concurrency, Duration::from_secs(args.seconds)).await?;
            let ms = |time: Duration| format!("{:.3}", time.as_secs_f64() * 1e3);
            println!(
                "{name:8} {concurrency:>3} {:>10.0} {:>8} {:>8} {:>8} {:>8} {:>8} {:>10}  ms",
                figures.per_second,
                ms(figures.mean),
                ms(figures.p50),
                ms(figures.p95),
                ms(figures.p99),
                ms(figures.max),
                ms(figures.cpu)
            );
            shown.push(figures);
        }
        if let [bare, webhook] = shown.as_slice() {
            println!(
                "ratio    {concurrency:>3} {:>10.2} {:>8.2} {:>44.2}",
                webhook.per_second / bare.per_second,
                webhook.mean.as_secs_f64() / bare.mean.as_secs_f64(),
                webhook.cpu.as_secs_f64() / bare.cpu.as_secs_f64()
            );
            ensure!(!args.check || webhook.p99 <= limit, "p99 {:?} is above {limit:?}", webhook.p99);
        }
    }
    Ok(())
}

/// The same request without network: bytes in, bytes out. Counted in CPU time, so that neighbours do not matter.
fn pure(body: &Bytes) -> Result<()> {
    const ROUNDS: u32 = 50_000;
    let settings = webhook::args::Args::parse_from(["hibernate-webhook"]).settings();
    let fdb = webhook::fdb::Clusters::new(Duration::ZERO);
    let webhook = webhook::server::Webhook::new(settings, Arc::default(), Arc::new(fdb));
    let now = jiff::Timestamp::now();
    for (name, endpoint) in [("validate", Endpoint::Validate), ("mutate", Endpoint::Mutate)] {
        let begun = cpu_of(std::process::id())?;
        for _ in 0..ROUNDS {
            std::hint::black_box(webhook.answer(endpoint, std::hint::black_box(body), now));
        }
        let each = (cpu_of(std::process::id())?.saturating_sub(begun) / ROUNDS).as_secs_f64();
        println!("{name} alone: {:.1} µs, {:.0} a second on one core", each * 1e6, 1.0 / each);
    }
    Ok(())
}
