//! One request on its way through the proxy.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, stream};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Uri, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::Request;
use hyper::body::{Bytes, Frame, Incoming};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::json;

use super::faults::{Effect, Seen};
use super::{Shared, tls};

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Body = UnsyncBoxBody<Bytes, Failure>;

/// Headers that belong to one connection and are not passed on.
const HOP_BY_HOP: [HeaderName; 6] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::TRANSFER_ENCODING,
    header::TE,
    header::UPGRADE,
    HeaderName::from_static("proxy-connection"),
];

/// The server behind a proxy.
#[derive(Clone)]
pub struct Upstream {
    base: String,
    client: Client<HttpsConnector<HttpConnector>, Incoming>,
}

impl Upstream {
    /// An HTTPS server whose certificate is signed by this authority (PEM), or an HTTP one.
    ///
    /// # Errors
    /// When the authority is not a certificate.
    pub fn new(base: &str, authority: &str) -> Result<Self> {
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls::client(authority)?)
            .https_or_http()
            .enable_http1()
            .enable_http2()
            .build();
        Ok(Self {
            base: base.trim_end_matches('/').to_owned(),
            client: Client::builder(TokioExecutor::new()).build(connector),
        })
    }
}

pub(super) enum Answer {
    Response(Response<Body>),
    /// The request is kept for ever.
    Hang,
    /// The connection is closed.
    Cut,
}

/// Judges a request and does with it what the faults say.
pub(super) async fn answer(shared: &Arc<Shared>, request: Request<Incoming>) -> Answer {
    let sentence = {
        let agent = request.headers().get(header::USER_AGENT).and_then(|agent| agent.to_str().ok());
        shared.faults.meet(&Seen {
            method: request.method().as_str(),
            path: request.uri().path(),
            query: request.uri().query().unwrap_or_default(),
            user_agent: agent.unwrap_or_default(),
        })
    };
    if sentence.delay > 0 {
        tokio::time::sleep(Duration::from_millis(sentence.delay)).await;
    }
    match sentence.effect {
        Some(Effect::Status { code, retry_after, message }) => Answer::Response(status(code, retry_after, message)),
        Some(Effect::Body { begin, unit, times, end }) => Answer::Response(made_up(begin, &unit, times, end)),
        Some(Effect::Words { code, text }) => {
            let mut response = Response::new(Full::from(text).map_err(|never| match never {}).boxed_unsync());
            *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
            Answer::Response(response)
        }
        Some(Effect::Cut { after_upstream: false }) => Answer::Cut,
        Some(Effect::Cut { after_upstream: true }) => {
            // The whole answer is read, so that the server has certainly done what was asked.
            if let Ok(response) = forward(shared, request).await {
                let _ = response.into_body().collect().await;
            }
            Answer::Cut
        }
        Some(Effect::Hang) => Answer::Hang,
        Some(Effect::DropWatch { after_millis }) => {
            passed(forward(shared, request).await, |body| broken_off(body, after_millis))
        }
        Some(Effect::WatchExpired { after_millis }) => {
            passed(forward(shared, request).await, |body| expired(body, after_millis))
        }
        Some(Effect::Delay { .. }) | None => passed(forward(shared, request).await, |body| body),
    }
}

/// The answer of the server behind; without one the connection is closed, as if there were no proxy.
fn passed(result: Result<Response<Body>>, change: impl FnOnce(Body) -> Body) -> Answer {
    match result {
        Ok(response) => Answer::Response(response.map(change)),
        Err(error) => {
            tracing::debug!("{error:#}");
            Answer::Cut
        }
    }
}

async fn forward(shared: &Shared, request: Request<Incoming>) -> Result<Response<Body>> {
    let (mut parts, body) = request.into_parts();
    let (path, query) = (parts.uri.path(), parts.uri.query());
    let target = match &shared.lists {
        Some(lists) => lists.rewrite(path, query),
        None => parts.uri.path_and_query().map_or_else(|| path.to_owned(), ToString::to_string),
    };
    parts.uri =
        format!("{}{target}", shared.upstream.base).parse::<Uri>().with_context(|| format!("forward to {target}"))?;
    // The client of the server behind chooses both by itself.
    parts.version = http::Version::HTTP_11;
    parts.headers.remove(header::HOST);
    strip(&mut parts.headers);
    let what = format!("{} {}", parts.method, parts.uri);
    let response = shared
        .upstream
        .client
        .request(Request::from_parts(parts, body))
        .await
        .with_context(|| format!("forward {what}"))?;
    let (mut parts, body) = response.into_parts();
    strip(&mut parts.headers);
    parts.version = http::Version::HTTP_11;
    Ok(Response::from_parts(parts, body.map_err(Failure::from).boxed_unsync()))
}

fn strip(headers: &mut HeaderMap) {
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

/// The body, until it breaks off without an end.
fn broken_off(body: Body, after_millis: u64) -> Body {
    let whole = body.into_data_stream().map(|chunk| chunk.map(Frame::data));
    let until = whole.take_until(tokio::time::sleep(Duration::from_millis(after_millis)));
    let broken = stream::once(async { Err(Failure::from("dropped by a fault")) });
    StreamBody::new(until.chain(broken)).boxed_unsync()
}

/// The body, until an event says that the watch is too old.
fn expired(body: Body, after_millis: u64) -> Body {
    let event = json!({"type": "ERROR", "object": status_object(410, None)});
    let whole = body.into_data_stream().map(|chunk| chunk.map(Frame::data));
    let until = whole.take_until(tokio::time::sleep(Duration::from_millis(after_millis)));
    let last = stream::once(async move { Ok(Frame::data(Bytes::from(format!("{event}\n")))) });
    StreamBody::new(until.chain(last)).boxed_unsync()
}

/// How many units one chunk of a made-up body holds at most, in bytes.
const CHUNK: usize = 64 * 1024;

fn made_up(begin: String, unit: &str, times: u32, end: String) -> Response<Body> {
    let most = u32::try_from(CHUNK / unit.len().max(1)).unwrap_or(u32::MAX).max(1);
    let whole = Bytes::from(unit.repeat(most as usize));
    let last = Bytes::from(unit.repeat((times % most) as usize));
    let units = stream::iter((0..times / most).map(move |_| whole.clone())).chain(stream::iter([last]));
    let chunks = stream::iter([Bytes::from(begin)]).chain(units).chain(stream::iter([Bytes::from(end)]));
    let body = StreamBody::new(chunks.map(|chunk| Ok::<_, Failure>(Frame::data(chunk)))).boxed_unsync();
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn status(code: u16, retry_after: Option<u32>, message: Option<String>) -> Response<Body> {
    let text = status_object(code, message).to_string();
    let mut response = Response::new(Full::from(text).map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// An error as the API server writes it.
fn status_object(code: u16, message: Option<String>) -> serde_json::Value {
    let reason = match code {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        422 => "Invalid",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    };
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message.unwrap_or_else(|| format!("injected by the test world: {reason}")),
        "reason": reason,
        "code": code,
    })
}
