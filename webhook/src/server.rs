//! The HTTPS server: `POST /validate` and `POST /mutate`.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::{Request as HttpRequest, State};
use axum::http::header::{ALLOW, CONTENT_TYPE};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response as HttpResponse};
use axum::routing::post;
use axum_server::Handle;
use axum_server::accept::NoDelayAcceptor;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use futures::TryStreamExt;
use hyper_util::rt::TokioTimer;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use tokio_util::sync::CancellationToken;

use crate::answer::{Answer, Context};
use crate::connections::{Limited, Limits};
use crate::fdb::Clusters;
use crate::metrics::{Answered, Denied, Metrics, Rejected};
use crate::review::{self, Request, Response, Review, ReviewError};
use crate::room::{BODY_LIMIT, Room, Taken};
use crate::settings::Settings;
use crate::table::{self, Endpoint};

/// How long a request may wait for room and its body take to arrive, together: less than the API server waits for any of our
/// entries.
const DEADLINE: Duration = Duration::from_millis(2500);
/// How long a connection may take to shake hands, or to answer a ping.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// What connections may take. An API server has one for each review under way (HTTP/1.1) and keeps up to 25 idle ones for each
/// of our paths: 250 for five of them. 100 s without a request is longer than the 90 s for which Go keeps an idle connection,
/// so that it is never us who closes one just when the API server uses it again.
pub const LIMITS: Limits = Limits { connections: 256, idle: Duration::from_secs(100) };
/// Requests at once on one HTTP/2 connection: what Go takes for granted before it is told.
const STREAMS: u32 = 100;
/// Bytes that an HTTP/2 connection may send before they are read: 64 MiB for all connections, where hyper would give each of
/// them 1 MiB. More than 16 usual reviews, so that none of them waits for leave to be sent.
const WINDOW: u32 = 256 * 1024;
/// Bytes that an HTTP/1.1 connection may buffer, the head of a request among them; hyper would take 400 kB.
const BUFFER: usize = 64 * 1024;
/// How long requests may take to be finished once the server is asked to stop.
const DRAIN: Duration = Duration::from_secs(5);

const JSON: &str = "application/json";

/// The webhook without its network: bytes in, bytes out.
#[derive(Debug, Default)]
pub struct Webhook {
    /// What the operator decided.
    pub settings: Settings,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// What is known of the hub's `FoundationDBClusters`.
    pub fdb: Arc<Clusters>,
    /// How many requests are let in at once.
    pub room: Room,
}

impl Webhook {
    /// Answers a body.
    #[must_use]
    pub fn answer(&self, endpoint: Endpoint, body: &[u8], now: Timestamp) -> (StatusCode, Vec<u8>) {
        let request = match Request::read(body) {
            Ok(request) => request,
            Err(error) => return bad_request(&error, body),
        };
        let context = Context { settings: &self.settings, now, fdb: &self.fdb };
        let (resource, answer) = table::answer(endpoint, &request, &context);
        self.account(resource, &request, &answer);
        (StatusCode::OK, written(answer.respond(&request)))
    }

    /// Counts an answer, and writes down who was denied what.
    fn account(&self, resource: &'static str, request: &Request<'_>, answer: &Answer) {
        let (operation, verdict) = (request.operation.into(), answer.verdict());
        self.metrics.requests.get_or_create(&Answered { resource, operation, verdict }).inc();
        let judgement = &answer.judgement;
        for denial in &judgement.denials {
            self.metrics.denials.get_or_create(&Denied { rule: denial.row }).inc();
        }
        for finding in judgement.denials.iter().chain(&judgement.overlooked) {
            tracing::info!(
                verdict,
                rule = finding.row,
                user = request.user_info.username,
                operation,
                resource,
                namespace = %request.namespace,
                name = %request.name,
                dry_run = request.dry_run.unwrap_or_default(),
                uid = %request.uid,
                "{}",
                finding.said
            );
        }
    }

    fn rejected(&self, code: StatusCode, message: &str) -> HttpResponse {
        self.metrics.rejected.get_or_create(&Rejected { code: code.as_u16() }).inc();
        (code, [(CONTENT_TYPE, "text/plain; charset=utf-8")], format!("{message}\n")).into_response()
    }
}

/// The answer to what is no review: HTTP 400, and inside it a refusal with the uid, if there was one.
fn bad_request(error: &ReviewError, body: &[u8]) -> (StatusCode, Vec<u8>) {
    tracing::warn!(%error, "a body that is no review");
    let uid = review::uid(body).unwrap_or_default();
    let status = Status {
        status: Some("Failure".to_owned()),
        code: Some(400),
        reason: Some("BadRequest".to_owned()),
        message: Some(error.to_string()),
        ..Status::default()
    };
    let response = Response {
        uid: &uid,
        allowed: false,
        status: Some(status),
        patch: None,
        audit_annotations: std::collections::BTreeMap::new(),
        warnings: vec![],
    };
    (StatusCode::BAD_REQUEST, written(response))
}

fn written(response: Response<'_>) -> Vec<u8> {
    // Texts, integers and maps with text keys: there is nothing in it that JSON could not hold.
    serde_json::to_vec(&Review::from(response)).unwrap_or_default()
}

/// The routes of the HTTPS port.
pub fn router(webhook: Arc<Webhook>) -> Router {
    let at =
        |endpoint| move |State(webhook): State<Arc<Webhook>>, request: HttpRequest| serve(webhook, endpoint, request);
    Router::new()
        .route("/validate", post(at(Endpoint::Validate)))
        .route("/mutate", post(at(Endpoint::Mutate)))
        .method_not_allowed_fallback(|method: Method| async move {
            (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "POST")], format!("{method} is not POST\n"))
        })
        .fallback(|| async { (StatusCode::NOT_FOUND, "there is /validate and /mutate\n") })
        .with_state(webhook)
}

async fn serve(webhook: Arc<Webhook>, endpoint: Endpoint, request: HttpRequest) -> HttpResponse {
    let _in_flight = InFlight::new(&webhook.metrics);
    if !is_json(request.headers()) {
        return webhook.rejected(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json");
    }
    let (body, _taken) = match tokio::time::timeout(DEADLINE, read(&webhook.room, request.into_body())).await {
        Ok(Ok(read)) => read,
        Ok(Err((code, message))) => return webhook.rejected(code, &message),
        Err(_) => return webhook.rejected(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"),
    };
    let start = Instant::now();
    let (code, answer) = webhook.answer(endpoint, &body, Timestamp::now());
    if code != StatusCode::OK {
        webhook.metrics.rejected.get_or_create(&Rejected { code: code.as_u16() }).inc();
    }
    webhook.metrics.duration.observe(start.elapsed().as_secs_f64());
    (code, [(CONTENT_TYPE, JSON)], answer).into_response()
}

/// Reads a body as soon as there is room for it. The room is taken until the second of the pair is dropped.
///
/// A body without a length, which no API server sends, may become the largest. It is copied together while it arrives:
/// pieces that are kept cost many times their bytes if their sender cuts them small.
async fn read(room: &Room, body: Body) -> Result<(Vec<u8>, Taken<'_>), (StatusCode, String)> {
    let too_large = || (StatusCode::PAYLOAD_TOO_LARGE, format!("the body is larger than {BODY_LIMIT} bytes"));
    let length = body.size_hint().exact().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
    if length.is_some_and(|length| length > BODY_LIMIT) {
        return Err(too_large());
    }
    let taken = room.take(length.unwrap_or(BODY_LIMIT)).await;
    let taken = taken.map_err(|crowded| (StatusCode::SERVICE_UNAVAILABLE, crowded.to_string()))?;
    let broken = |error: axum::Error| (StatusCode::BAD_REQUEST, format!("the body cannot be read: {error}"));
    let mut whole = Vec::with_capacity(length.unwrap_or_default());
    let mut pieces = body.into_data_stream();
    while let Some(piece) = pieces.try_next().await.map_err(broken)? {
        if whole.len() + piece.len() > BODY_LIMIT {
            return Err(too_large());
        }
        whole.extend_from_slice(&piece);
    }
    Ok((whole, taken))
}

fn is_json(headers: &HeaderMap) -> bool {
    let given = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    given.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case(JSON))
}

/// Counts a request while it lives, also if its client goes away.
struct InFlight<'a>(&'a Metrics);

impl<'a> InFlight<'a> {
    fn new(metrics: &'a Metrics) -> Self {
        metrics.in_flight.inc();
        Self(metrics)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.dec();
    }
}

/// Serves the HTTPS port until [`stop`] is called on the handle.
///
/// The listener must be non-blocking.
///
/// # Errors
/// When it cannot be used.
pub async fn listen(
    listener: TcpListener,
    tls: RustlsConfig,
    webhook: Arc<Webhook>,
    handle: Handle<SocketAddr>,
    limits: Limits,
) -> std::io::Result<()> {
    let tls = RustlsAcceptor::new(tls).handshake_timeout(HANDSHAKE).acceptor(NoDelayAcceptor::new());
    let mut server = axum_server::from_tcp(listener)?.handle(handle).acceptor(Limited::new(tls, limits));
    let http = server.http_builder();
    http.http1().timer(TokioTimer::new()).header_read_timeout(limits.idle).max_buf_size(BUFFER);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(HANDSHAKE);
    server.serve(router(webhook).into_make_service()).await
}

/// Ends a server once it is asked to stop: no new connection, and a few seconds for what has begun.
pub async fn drain(stop: CancellationToken, handle: Handle<SocketAddr>) {
    stop.cancelled().await;
    handle.graceful_shutdown(Some(DRAIN));
}
