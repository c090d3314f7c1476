//! The limits under load: too many requests, too many large bodies, and idle or slow connections.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by them")]

mod common;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use axum::body::{Body, HttpBody};
use axum::http::{Request, StatusCode};
use common::*;
use futures::stream;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Frame, SizeHint};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use server::{Client, Limits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use webhook::limiter::{MAX_BODY_BYTES, RequestLimiter};
use webhook::server::{LIMITS, Webhook, listen, router};

/// KiB of the largest body.
const LARGEST: usize = MAX_BODY_BYTES / 1024;

fn usual() -> String {
    review(&to_sleep()).to_string()
}

/// A body of unknown length that does not arrive.
fn never() -> Body {
    Body::from_stream(stream::pending::<Result<Vec<u8>, std::io::Error>>())
}

fn with_limiter(limiter: RequestLimiter) -> (Arc<Webhook>, Router) {
    let webhook = Arc::new(Webhook { limiter, ..default_webhook() });
    let app = router(Arc::clone(&webhook));
    (webhook, app)
}

async fn validate(app: &Router, body: impl Into<Body>) -> (StatusCode, String) {
    validate_of(app, [127, 0, 0, 1], body).await
}

/// The same for a client of this address.
async fn validate_of(app: &Router, client: [u8; 4], body: impl Into<Body>) -> (StatusCode, String) {
    let request = Request::post("/validate").header("content-type", "application/json");
    let request = request.extension(Client(client.into())).body(body.into()).unwrap();
    let response = app.clone().oneshot(request).await.unwrap();
    let code = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8(body.to_vec()).unwrap())
}

/// Sends a request that holds its permit when this returns.
async fn held(app: &Router, body: Body) -> JoinHandle<(StatusCode, String)> {
    let app = app.clone();
    let request = tokio::spawn(async move { validate(&app, body).await });
    sleep(Duration::from_millis(1)).await;
    request
}

#[tokio::test(start_paused = true)]
async fn a_large_body_without_room_is_refused_while_small_ones_pass() {
    let (webhook, app) = with_limiter(RequestLimiter::new(16, 2 * LARGEST));
    let others = [held(&app, never()).await, held(&app, never()).await];
    let start = Instant::now();
    let small = async {
        let (code, _) = validate(&app, usual()).await;
        (code, start.elapsed())
    };
    let ((code, detail), small) = tokio::join!(validate(&app, vec![b' '; MAX_BODY_BYTES]), small);
    assert_eq!(
        (code, detail.as_str()),
        (StatusCode::SERVICE_UNAVAILABLE, "too many large bodies at once: try again later\n")
    );
    assert_eq!(start.elapsed().as_secs(), 1, "the body waited for budget");
    assert_eq!(small.0, StatusCode::OK);
    assert!(small.1 < Duration::from_millis(100), "{:?}", small.1);
    assert!(webhook.metrics.text().contains(r#"hibernate_webhook_rejected_total{code="503"} 1"#));

    for other in others {
        assert_eq!(other.await.unwrap().0, StatusCode::REQUEST_TIMEOUT);
    }
    assert_eq!(validate(&app, vec![b' '; MAX_BODY_BYTES]).await.0, StatusCode::BAD_REQUEST, "read, but no review");
    assert_eq!(validate(&app, usual()).await.0, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_large_body_waits_for_another_to_be_answered() {
    let (_, app) = with_limiter(RequestLimiter::new(16, LARGEST));
    let slow = Body::from_stream(stream::once(async {
        sleep(Duration::from_millis(500)).await;
        Ok::<_, std::io::Error>(usual())
    }));
    let other = held(&app, slow).await;
    let start = Instant::now();
    assert_eq!(validate(&app, vec![b' '; MAX_BODY_BYTES]).await.0, StatusCode::BAD_REQUEST, "read, but no review");
    assert!(start.elapsed() > Duration::from_millis(400), "{:?}", start.elapsed());
    assert_eq!(other.await.unwrap().0, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn one_request_too_many_is_refused_at_once() {
    let (_, app) = with_limiter(RequestLimiter::new(1, LARGEST));
    let other = held(&app, never()).await;
    let start = Instant::now();
    let (code, detail) = validate(&app, usual()).await;
    assert_eq!(
        (code, detail.as_str()),
        (StatusCode::SERVICE_UNAVAILABLE, "too many requests at once: try again later\n")
    );
    assert!(start.elapsed() < Duration::from_millis(100), "{:?}", start.elapsed());
    assert_eq!(other.await.unwrap().0, StatusCode::REQUEST_TIMEOUT);
    assert_eq!(validate(&app, usual()).await.0, StatusCode::OK);
}

/// A body that announces its length and never comes.
struct Stalled(u64);

impl HttpBody for Stalled {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0)
    }
}

#[tokio::test(start_paused = true)]
async fn a_small_body_has_time_and_a_large_one_by_its_length() {
    let (_, app) = with_limiter(RequestLimiter::default());
    for (bytes, milliseconds) in [(1, 2_000), (16 << 10, 2_000), (1 << 20, 1_000), (7 << 20, 1_646)] {
        let start = Instant::now();
        let (code, detail) = validate(&app, Body::new(Stalled(bytes))).await;
        assert_eq!((code, detail.as_str()), (StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time\n"));
        let took = start.elapsed().as_millis();
        assert!((milliseconds..=milliseconds + 2).contains(&took), "{bytes} bytes: {took} ms");
    }
}

/// On one thread: the small one is answered while the large one is read.
#[tokio::test]
async fn a_large_body_delays_no_small_one() {
    let (_, app) = with_limiter(RequestLimiter::default());
    let mut large = review(&to_sleep());
    large["request"]["object"]["unknown"] = vec![0; 3 << 20].into();
    let large = large.to_string();
    assert!(large.len() < MAX_BODY_BYTES);
    let answered = async |body: String| {
        let (code, detail) = validate(&app, body).await;
        assert_eq!(code, StatusCode::OK, "{detail}");
        Instant::now()
    };
    let (large, small) = tokio::join!(answered(large), answered(usual()));
    assert!(small < large);
}

/// Two clients hold all requests and all memory by bodies that they never send. A third one does not notice.
#[tokio::test(start_paused = true)]
async fn idle_reservations_are_evicted_for_other_clients() {
    let (_, app) = with_limiter(RequestLimiter::new(16, 2 * LARGEST));
    let mut held = Vec::new();
    for number in 0..16_u8 {
        let (app, bytes) = (app.clone(), if number < 2 { 7 << 20 } else { 9 });
        let client = [10, 0, 0, number % 2];
        held.push(tokio::spawn(async move { validate_of(&app, client, Body::new(Stalled(bytes))).await }));
    }
    sleep(Duration::from_millis(1)).await;
    let start = Instant::now();
    for _ in 0..50 {
        let large = format!("{}{}", usual(), " ".repeat(100 << 10));
        let (small, large) = tokio::join!(validate(&app, usual()), validate(&app, large));
        assert_eq!((small.0, large.0), (StatusCode::OK, StatusCode::OK), "{} {}", small.1, large.1);
    }
    assert!(start.elapsed() < Duration::from_millis(5), "{:?}", start.elapsed());
    let mut evicted = 0;
    for request in held {
        let (code, detail) = request.await.unwrap();
        assert!(code == StatusCode::SERVICE_UNAVAILABLE || code == StatusCode::REQUEST_TIMEOUT, "{code} {detail}");
        evicted += usize::from(detail.starts_with("another client needs"));
    }
    assert!((1..=4).contains(&evicted), "no more than are needed: {evicted}");
}

#[tokio::test]
async fn a_body_in_pieces_is_put_together_up_to_the_limit() {
    let (_, app) = with_limiter(RequestLimiter::default());
    let bytes: Vec<_> = usual().into_bytes().into_iter().map(|byte| Ok::<_, std::io::Error>(vec![byte])).collect();
    assert_eq!(validate(&app, Body::from_stream(stream::iter(bytes))).await.0, StatusCode::OK);

    let endless = stream::repeat_with(|| Ok::<_, std::io::Error>(vec![b' '; 65_536]));
    let (code, detail) = validate(&app, Body::from_stream(endless)).await;
    assert_eq!((code, detail.as_str()), (StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than 7340032 bytes\n"));

    let broken = stream::iter([Ok(b"{".to_vec()), Err(std::io::Error::other("gone"))]);
    let (code, detail) = validate(&app, Body::from_stream(broken)).await;
    assert_eq!(code, StatusCode::BAD_REQUEST);
    assert!(detail.starts_with("the body cannot be read: "), "{detail}");
}

struct Server {
    address: SocketAddr,
    ca: CertificateDer<'static>,
}

fn start(limits: Limits) -> Result<Server> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let mut tls = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key)?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    tokio::spawn(listen(
        listener,
        watch::channel(Arc::new(tls)).1,
        Arc::new(default_webhook()),
        limits,
        CancellationToken::new(),
    ));
    Ok(Server { address, ca: made.cert.der().clone() })
}

impl Server {
    async fn connect(&self) -> Result<TlsStream<TcpStream>> {
        self.connect_from([127, 0, 0, 1]).await
    }

    async fn connect_from(&self, client: [u8; 4]) -> Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.ca.clone())?;
        let mut tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let socket = TcpSocket::new_v4()?;
        socket.bind((client, 0).into())?;
        let tcp = socket.connect(self.address).await?;
        Ok(TlsConnector::from(Arc::new(tls)).connect("localhost".try_into()?, tcp).await?)
    }
}

/// HTTP/2 on a connection, and its end.
async fn speak<B>(
    connection: TlsStream<TcpStream>,
) -> Result<(http2::SendRequest<B>, JoinHandle<Result<(), hyper::Error>>)>
where
    B: HttpBody<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + Unpin + 'static,
{
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(connection)).await?;
    Ok((sender, tokio::spawn(connection)))
}

fn usual_request() -> Result<Request<Full<Bytes>>> {
    let request = Request::post("https://localhost/validate").header("content-type", "application/json");
    Ok(request.body(Full::from(usual()))?)
}

/// Waits until the server has closed a connection, orderly or not.
async fn closed(mut connection: TlsStream<TcpStream>) {
    let _ = connection.read_to_end(&mut Vec::new()).await;
}

#[tokio::test]
async fn a_connection_without_requests_is_closed() -> Result<()> {
    let server = start(Limits { idle: Duration::from_secs(1), ..LIMITS })?;
    let silent = server.connect().await?;
    let mut halfway = server.connect().await?;
    halfway.write_all(b"POST /validate HTTP/1.1\r\nhost: x\r\n").await?;
    halfway.flush().await?;
    // This one goes on answering pings.
    let (mut sender, idle) = speak(server.connect().await?).await?;
    assert_eq!(sender.send_request(usual_request()?).await?.status(), StatusCode::OK);

    timeout(Duration::from_secs(10), closed(silent)).await?;
    timeout(Duration::from_secs(10), closed(halfway)).await?;
    let _ = timeout(Duration::from_secs(10), idle).await?;
    assert!(sender.send_request(usual_request()?).await.is_err());
    Ok(())
}

#[tokio::test]
async fn a_connection_with_requests_is_kept() -> Result<()> {
    let server = start(Limits { idle: Duration::from_secs(2), ..LIMITS })?;
    let (mut sender, _) = speak(server.connect().await?).await?;
    for _ in 0..12 {
        let response = sender.send_request(usual_request()?).await?;
        assert_eq!(response.status(), StatusCode::OK);
        response.into_body().collect().await?;
        sleep(Duration::from_millis(250)).await;
    }
    Ok(())
}

#[tokio::test]
async fn the_longest_idle_connection_is_evicted_at_the_limit() -> Result<()> {
    let server = start(Limits { connections: 2, ..LIMITS })?;
    let first = server.connect().await?;
    let (mut sender, _) = speak(server.connect().await?).await?;
    assert_eq!(sender.send_request(usual_request()?).await?.status(), StatusCode::OK);
    let third = server.connect().await?;
    timeout(Duration::from_secs(5), closed(first)).await?;
    assert_eq!(sender.send_request(usual_request()?).await?.status(), StatusCode::OK, "the one with requests is kept");
    let _fourth = server.connect().await?;
    timeout(Duration::from_secs(5), closed(third)).await?;
    Ok(())
}

#[tokio::test]
async fn an_evicted_idle_connection_is_closed_in_order() -> Result<()> {
    let server = start(Limits { connections: 1, ..LIMITS })?;
    let (mut sender, connection) = speak(server.connect().await?).await?;
    assert_eq!(sender.send_request(usual_request()?).await?.status(), StatusCode::OK);
    let _second = server.connect().await?;
    assert!(timeout(Duration::from_secs(5), connection).await??.is_ok(), "by GOAWAY");
    Ok(())
}

#[tokio::test]
async fn a_request_under_way_survives_a_flood_of_connections() -> Result<()> {
    let server = start(Limits { connections: 4, ..LIMITS })?;
    let (mut sender, _) = speak(server.connect().await?).await?;
    let arrived = usual().into_bytes();
    let slow = stream::once(async move {
        sleep(Duration::from_secs(1)).await;
        Ok::<_, std::convert::Infallible>(hyper::body::Frame::data(Bytes::from(arrived)))
    });
    let body = http_body_util::BodyExt::boxed(http_body_util::StreamBody::new(Box::pin(slow)));
    let request = Request::post("https://localhost/validate").header("content-type", "application/json").body(body)?;
    let answer = tokio::spawn(sender.send_request(request));
    for _ in 0..50 {
        let _ = server.connect().await;
    }
    assert_eq!(answer.await??.status(), StatusCode::OK);
    Ok(())
}

/// 300 addresses with one to three connections each that never start a TLS handshake and reconnect when closed. API
/// servers are served all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pending_handshakes_do_not_block_api_servers() -> Result<()> {
    let server = start(LIMITS)?;
    let silent = async |number: u16| -> Result<TcpStream> {
        let [high, low] = (number % 300 + 2).to_be_bytes();
        let socket = TcpSocket::new_v4()?;
        socket.bind(([127, 1, high, low], 0).into())?;
        Ok(socket.connect(server.address).await?)
    };
    let mut held = Vec::new();
    for number in 0..600 {
        held.push(silent(number).await?);
    }
    let reviews = async {
        for _ in 0..25 {
            let ask = async || -> Result<StatusCode> {
                let (mut sender, _) = speak(server.connect().await?).await?;
                Ok(sender.send_request(usual_request()?).await?.status())
            };
            let answers = futures::future::try_join_all((0..8).map(|_| ask())).await?;
            assert!(answers.iter().all(|code| *code == StatusCode::OK), "{answers:?}");
        }
        anyhow::Ok(())
    };
    let again = async {
        for number in 0_u16.. {
            held[usize::from(number) % 600] = silent(number % 600).await?;
            sleep(Duration::from_millis(1)).await;
        }
        anyhow::Ok(())
    };
    tokio::select! {
        done = reviews => done,
        failed = again => failed,
    }
}

/// Forty connections of one address, each with a POST whose body never comes, at a port that keeps eight.
#[tokio::test]
async fn bodies_that_never_come_close_no_idle_connection_of_another_client() -> Result<()> {
    let server = start(Limits { connections: 8, ..LIMITS })?;
    let mut idle = Vec::new();
    for _ in 0..2 {
        let (mut sender, connection) = speak(server.connect().await?).await?;
        assert_eq!(sender.send_request(usual_request()?).await?.status(), StatusCode::OK);
        idle.push((sender, connection));
    }
    let mut attackers = Vec::new();
    for _ in 0..40 {
        let (mut sender, _) = speak(server.connect_from([127, 0, 0, 2]).await?).await?;
        let request = Request::post("https://localhost/validate").header("content-type", "application/json");
        let answer = sender.send_request(request.header("content-length", 9).body(Stalled(9))?);
        attackers.push((tokio::spawn(answer), sender));
        // As an API server does while this goes on.
        let (mut sender, _) = speak(server.connect().await?).await?;
        assert_eq!(sender.send_request(usual_request()?).await?.status(), StatusCode::OK);
    }
    for (mut sender, connection) in idle {
        assert!(!connection.is_finished());
        assert_eq!(sender.send_request(usual_request()?).await?.status(), StatusCode::OK);
    }
    Ok(())
}
