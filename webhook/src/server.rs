//! The HTTPS server: `POST /validate` and `POST /mutate`.

use std::borrow::Cow;
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request as HttpRequest, State};
use axum::http::header::{ALLOW, CONTENT_TYPE};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response as HttpResponse};
use axum::routing::post;
use futures::TryStreamExt;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use rustls::ServerConfig;
use scopeguard::guard;
use serde::de::IgnoredAny;
use server::{Client, Http, Limits, Port, Warnings};
use shared::admission::{Objects, Settings};
use shared::text::{sanitize, sanitize_chain};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use crate::answer::{Answer, Context};
use crate::fdb::Clusters;
use crate::limiter::{MAX_BODY_BYTES, Overloaded, Permit, RequestLimiter, SMALL_BODY_BYTES, time_for};
use crate::metrics::{Answered, Denied, Metrics, Rejected};
use crate::review::{self, Request, Response, Review, ReviewError};
use crate::table::{self, Endpoint};

/// How long the answer to an HTTP/2 ping may take.
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// Limits of the HTTPS port. An API server opens one connection for each concurrent review (HTTP/1.1) and keeps up to
/// 25 idle connections for each of our paths: 250 connections for five API servers. Go keeps an idle connection for 90
/// s. The limit of 100 s is longer, so the API server always closes first and never sends a request on a connection
/// that just closed.
pub const LIMITS: Limits = Limits { connections: 256, per_client: None, idle: Duration::from_secs(100) };
/// Concurrent requests on one HTTP/2 connection. Go assumes this number until the server announces another.
const MAX_STREAMS: u32 = 100;
/// Receive window of an HTTP/2 connection: 64 MiB for all connections. hyper's default is 1 MiB for each. The window
/// holds more than 16 typical reviews, so clients do not wait for window updates.
const HTTP2_WINDOW_BYTES: u32 = 256 * 1024;
/// Read buffer of an HTTP/1.1 connection, request head included. hyper's default is 400 kB.
const HTTP1_BUFFER_BYTES: usize = 64 * 1024;

/// Namespaces, times rules, whose log lines are told apart. Whoever reaches the port invents them.
const LOGGED_NAMES: usize = 1_000;

const JSON: &str = "application/json";

/// The webhook without the network: bytes in, bytes out.
#[derive(Debug)]
pub struct Webhook {
    /// Settings from the flags.
    pub settings: Settings,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Cache of the hub's `FoundationDBCluster`s.
    pub fdb: Arc<Clusters>,
    /// Limits the requests that run at the same time.
    pub limiter: RequestLimiter,
    /// Limits the log lines about them.
    pub logged: Warnings,
}

impl Webhook {
    /// Answers by these settings.
    pub fn new(settings: Settings, metrics: Arc<Metrics>, fdb: Arc<Clusters>) -> Self {
        Self { settings, metrics, fdb, limiter: RequestLimiter::default(), logged: Warnings::of_at_most(LOGGED_NAMES) }
    }

    /// Answers a body.
    pub fn answer(&self, endpoint: Endpoint, body: &[u8], now: Timestamp) -> (StatusCode, Vec<u8>) {
        // As in Go, what is no UTF-8 becomes another character.
        let body = &*str::from_utf8(body).map_or_else(|_| String::from_utf8_lossy(body), Cow::Borrowed);
        let head = review::head(body);
        let read = head.as_deref().and_then(|head| Request::read(head).ok());
        let request = match read.map_or_else(|| Request::read(body), Ok) {
            Ok(request) => Request { body, ..request },
            Err(error) => return self.bad_request(&error, body),
        };
        let context = Context { settings: &self.settings, now, fdb: &self.fdb };
        let (resource, answer) = table::answer(endpoint, &request, &context);
        self.account(resource, &request, &answer);
        (StatusCode::OK, written(answer.respond(&request)))
    }

    /// Counts the answer and logs denials: one line a minute for each rule and namespace.
    fn account(&self, resource: &'static str, request: &Request<'_>, answer: &Answer) {
        let (operation, verdict) = (request.operation.into(), answer.verdict());
        self.metrics.requests.get_or_create(&Answered { resource, operation, verdict }).inc();
        let evaluation = &answer.evaluation;
        for denial in &evaluation.denials {
            self.metrics.denials.get_or_create(&Denied { rule: denial.row }).inc();
        }
        for finding in evaluation.denials.iter().chain(&evaluation.exempted) {
            let Some(left_out) = self.logged.due(finding.row, &request.namespace) else { continue };
            tracing::info!(
                verdict,
                left_out,
                rule = finding.row,
                user = request.user().username,
                operation,
                resource,
                namespace = sanitize(&request.namespace),
                name = sanitize(&request.name),
                dry_run = Objects::<IgnoredAny>::read(request.body).is_ok_and(|objects| objects.dry_run),
                uid = sanitize(&request.uid),
                "{}",
                finding.detail
            );
        }
    }

    fn rejected(&self, code: StatusCode, message: &str) -> HttpResponse {
        self.metrics.rejected.get_or_create(&Rejected { code: code.as_u16() }).inc();
        (code, [(CONTENT_TYPE, "text/plain; charset=utf-8")], format!("{message}\n")).into_response()
    }

    /// Answers a body that is not an `AdmissionReview`: HTTP 400 with a refusal, and with the uid if the body has one.
    fn bad_request(&self, error: &ReviewError, body: &str) -> (StatusCode, Vec<u8>) {
        if let Some(left_out) = self.logged.due("malformed", "") {
            tracing::warn!(error = sanitize_chain(error), left_out, "request body is not an AdmissionReview");
        }
        let uid = review::uid(body).unwrap_or_default();
        let status = Status {
            status: Some("Failure".to_owned()),
            code: Some(400),
            reason: Some("BadRequest".to_owned()),
            message: Some(error.to_string()),
            ..Status::default()
        };
        let response = Response { uid: &uid, status: Some(status), ..Response::default() };
        (StatusCode::BAD_REQUEST, written(response))
    }
}

/// Bytes of most answers.
const ANSWER_BYTES: usize = 1024;

fn written(response: Response<'_>) -> Vec<u8> {
    let mut text = Vec::with_capacity(ANSWER_BYTES);
    // Texts, integers and maps with text keys: there is nothing in it that JSON could not hold.
    let _ = serde_json::to_writer(&mut text, &Review::from(response));
    text
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
        .fallback(|| async { (StatusCode::NOT_FOUND, "not found: use /validate or /mutate\n") })
        .with_state(webhook)
}

async fn serve(webhook: Arc<Webhook>, endpoint: Endpoint, request: HttpRequest) -> HttpResponse {
    webhook.metrics.in_flight.inc();
    // Until it ends, even if the client disconnects.
    let _in_flight = guard(webhook.metrics.in_flight.clone(), |in_flight| _ = in_flight.dec());
    if !is_json(request.headers()) {
        return webhook.rejected(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json");
    }
    let client = Client::of(&request);
    let (body, permit) = match read(&webhook.limiter, client, request.into_body()).await {
        Ok(read) => read,
        Err((code, message)) => return webhook.rejected(code, &message),
    };
    let start = Instant::now();
    let Some((code, answer)) = answer(&webhook, endpoint, body, permit).await else {
        return webhook.rejected(StatusCode::INTERNAL_SERVER_ERROR, "the request could not be evaluated");
    };
    if code != StatusCode::OK {
        webhook.metrics.rejected.get_or_create(&Rejected { code: code.as_u16() }).inc();
    }
    webhook.metrics.duration.observe(start.elapsed().as_secs_f64());
    (code, [(CONTENT_TYPE, JSON)], answer).into_response()
}

/// Answers a body. A large one is read on a thread of its own: small ones and new connections do not wait for it. Its
/// permit lasts until it is read, even if the client disconnects. None if the thread panicked.
async fn answer(
    webhook: &Arc<Webhook>,
    endpoint: Endpoint,
    body: Bytes,
    permit: Permit,
) -> Option<(StatusCode, Vec<u8>)> {
    let now = Timestamp::now();
    if body.len() <= SMALL_BODY_BYTES {
        return Some(webhook.answer(endpoint, &body, now));
    }
    let webhook = Arc::clone(webhook);
    let large = spawn_blocking(move || {
        let answer = webhook.answer(endpoint, &body, now);
        drop((body, permit));
        answer
    });
    large.await.ok()
}

type Rejection = (StatusCode, String);

/// Reads a body once the limiter admits it, within the time that its length has. The request counts against the limits
/// until the permit is dropped.
///
/// API servers always send a Content-Length. A body without one counts as the largest.
async fn read(limiter: &RequestLimiter, client: IpAddr, body: Body) -> Result<(Bytes, Permit), Rejection> {
    let length = body.size_hint().exact().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
    if length.is_some_and(|length| length > MAX_BODY_BYTES) {
        return Err(too_large());
    }
    let most = length.unwrap_or(MAX_BODY_BYTES);
    let overloaded = |why: Overloaded| (StatusCode::SERVICE_UNAVAILABLE, why.to_string());
    let permit = limiter.acquire(client, most).await.map_err(overloaded)?;
    let whole = tokio::select! {
        whole = tokio::time::timeout(time_for(most), collect(body, length.unwrap_or_default())) => whole,
        () = permit.evicted() => return Err(overloaded(Overloaded::Evicted)),
    };
    permit.protect();
    let late = |_| (StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time".to_owned());
    Ok((whole.map_err(late)??, permit))
}

/// Copies each chunk as it arrives, unless one is all of it: keeping the chunks of a client that sends tiny ones would use
/// many times their size.
async fn collect(body: Body, length: usize) -> Result<Bytes, Rejection> {
    let broken = |error: axum::Error| (StatusCode::BAD_REQUEST, format!("the body cannot be read: {error}"));
    let mut whole = Vec::new();
    let mut pieces = body.into_data_stream();
    while let Some(piece) = pieces.try_next().await.map_err(broken)? {
        if whole.len() + piece.len() > MAX_BODY_BYTES {
            return Err(too_large());
        }
        if length > 0 && piece.len() == length {
            return Ok(piece);
        }
        whole.reserve_exact(length.saturating_sub(whole.len()));
        whole.extend_from_slice(&piece);
    }
    Ok(whole.into())
}

fn too_large() -> Rejection {
    (StatusCode::PAYLOAD_TOO_LARGE, format!("the body is larger than {MAX_BODY_BYTES} bytes"))
}

fn is_json(headers: &HeaderMap) -> bool {
    let given = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    given.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case(JSON))
}

/// Serves the HTTPS port until it is asked to stop.
///
/// The listener must be non-blocking.
///
/// # Errors
/// When it cannot be used.
pub async fn listen(
    listener: TcpListener,
    tls: watch::Receiver<Arc<ServerConfig>>,
    webhook: Arc<Webhook>,
    limits: Limits,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let mut http = Http::new(TokioExecutor::new());
    http.http1().timer(TokioTimer::new()).header_read_timeout(limits.idle).max_buf_size(HTTP1_BUFFER_BYTES);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(HTTP2_WINDOW_BYTES)
        .initial_connection_window_size(HTTP2_WINDOW_BYTES)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(PING_TIMEOUT);
    let metrics = webhook.metrics.connections.clone();
    Port { limits, http, tls: Some(tls), metrics }.serve(listener, router(webhook), stop).await
}
