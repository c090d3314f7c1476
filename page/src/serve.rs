//! Requests: what guards all of them, and what each is answered.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Extension, Json, Request, State};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Router, body::Body};
use futures::{StreamExt as _, stream};
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;
use server::{ConnectionMetrics, Limits, Port, Unanswered};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use view::CONCURRENCY;

use crate::action::ActionRequest;
use crate::activity::ActivityRequest;
use crate::fleet::Filter;
use crate::live::Shown;
use crate::program::CommandResult;
use crate::savings::ReportRequest;
use crate::target::TargetRequest;
use crate::{Site, activity, calendar, live, savings, target};

/// Most connections. A browser has six.
const LIMITS: Limits = Limits { connections: 64, per_client: None, idle: Duration::from_secs(30) };
/// Longest time for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest head, in bytes.
const MAX_HEAD: usize = 16 * 1024;
/// Largest body, in bytes.
const MAX_BODY: usize = 64 * 1024;
/// Pause before a request without a token is answered.
const UNAUTHORIZED_DELAY: Duration = Duration::from_millis(500);

const SHELL: &str = include_str!("../templates/shell.html");
const STYLE: &str = include_str!("../assets/page.css");
const SCRIPT: &str = include_str!("../assets/page.js");

/// Headers of every answer: the page runs its own script and no other, is in no frame, and sends nothing elsewhere.
const HEADERS: [(HeaderName, &str); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; frame-ancestors 'none'; \
         base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types page",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (header::X_FRAME_OPTIONS, "DENY"),
];

type Reply<T> = Result<T, (StatusCode, String)>;

/// Serves until the future is dropped.
pub async fn serve(listener: TcpListener, site: Arc<Site>) -> io::Result<()> {
    let mut http = Builder::new(TokioExecutor::new()).http1_only();
    http.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(MAX_HEAD);
    let port = Port { limits: LIMITS, http, tls: None, metrics: ConnectionMetrics::default() };
    port.serve(listener, router(site), CancellationToken::new()).await
}

/// The shell is static. All other routes are POST, because browsers then send their origin.
fn router(site: Arc<Site>) -> Router {
    Router::new()
        .route("/", get(async || Html(SHELL)))
        .route("/page.css", get(async || ([(header::CONTENT_TYPE, "text/css")], STYLE)))
        .route("/page.js", get(async || ([(header::CONTENT_TYPE, "text/javascript")], SCRIPT)))
        .route("/session", post(session))
        .route("/fleet", post(fleet))
        .route("/live", post(changes))
        .route("/target", post(of_target))
        .route("/calendar", post(of_calendar))
        .route("/savings", post(of_savings))
        .route("/activity", post(of_activity))
        .route("/act", post(act))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::from_fn_with_state(Arc::clone(&site), guard))
        .with_state(site)
}

/// The one guard of all requests.
async fn guard(State(site): State<Arc<Site>>, request: Request, next: Next) -> Response {
    let is_shell = request.method() == Method::GET && matches!(request.uri().path(), "/" | "/page.css" | "/page.js");
    let headers = request.headers();
    let refuse = |status: StatusCode, why: &'static str| (status, why).into_response();
    let mut response = if !site.access.is_host(headers) {
        refuse(StatusCode::FORBIDDEN, "the Host header must be 127.0.0.1:PORT or localhost:PORT")
    } else if is_shell {
        next.run(request).await
    } else if request.method() != Method::POST {
        refuse(StatusCode::NOT_FOUND, "there is no such page")
    } else if !site.access.is_same_origin(headers) {
        refuse(StatusCode::FORBIDDEN, "the Origin and Sec-Fetch-Site headers must be those of this page")
    } else if request.uri().path() != "/session" && !site.access.has_token(headers) {
        sleep(UNAUTHORIZED_DELAY).await;
        refuse(
            StatusCode::UNAUTHORIZED,
            "the session is unknown or has ended: press Enter in the terminal for a new link",
        )
    } else {
        next.run(request).await
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Code {
    code: String,
}

/// A token for a code.
async fn session(State(site): State<Arc<Site>>, Json(Code { code }): Json<Code>) -> Reply<Response> {
    if let Some(token) = site.access.redeem(&code) {
        let hub = site.hub();
        return Ok(Json(json!({ "token": token, "hub": &*hub.url, "context": site.context })).into_response());
    }
    sleep(UNAUTHORIZED_DELAY).await;
    let why = "this link was used or is older than a minute: press Enter in the terminal for a new one";
    Err((StatusCode::UNAUTHORIZED, why.to_owned()))
}

async fn fleet(State(site): State<Arc<Site>>, Json(filter): Json<Filter>) -> Reply<Html<String>> {
    html(filter.html(&site.cache.objects(), site.read_only, Timestamp::now()))
}

async fn changes(
    State(site): State<Arc<Site>>,
    unanswered: Option<Extension<Unanswered>>,
    Json(shown): Json<Shown>,
) -> Body {
    live::body(&site.cache, shown, site.tabs.open(), unanswered.map(|Extension(unanswered)| unanswered))
}

async fn of_target(State(site): State<Arc<Site>>, Json(request): Json<TargetRequest>) -> Reply<Html<String>> {
    html(target::html(&site, &request, Timestamp::now()).await)
}

async fn of_calendar(State(site): State<Arc<Site>>) -> Reply<Html<String>> {
    html(calendar::html(&site, Timestamp::now()).await)
}

async fn of_savings(State(site): State<Arc<Site>>, Json(request): Json<ReportRequest>) -> Reply<Html<String>> {
    html(savings::html(&site, &request, Timestamp::now()).await)
}

async fn of_activity(State(site): State<Arc<Site>>, Json(request): Json<ActivityRequest>) -> Reply<Html<String>> {
    html(activity::html(&site, &request, Timestamp::now()).await)
}

/// Runs the commands of a dialog, one for each namespace, and returns the result of each. A change goes on when its tab is
/// closed.
async fn act(State(site): State<Arc<Site>>, Json(action): Json<ActionRequest>) -> Reply<Json<Vec<CommandResult>>> {
    if site.read_only && !action.is_read_only() {
        return Err((StatusCode::FORBIDDEN, "the page was started with --read-only".to_owned()));
    }
    let commands = action.commands(&site.cache.objects()).map_err(|why| (StatusCode::BAD_REQUEST, why))?;
    let run = move |words: Vec<String>| {
        let site = Arc::clone(&site);
        async move { site.program.run(&words).await }
    };
    let results = stream::iter(commands).map(run).buffered(CONCURRENCY).collect::<Vec<_>>();
    let results = if action.is_read_only() { Ok(results.await) } else { tokio::spawn(results).await };
    results.map(Json).map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

fn html(made: Result<String, String>) -> Reply<Html<String>> {
    made.map(Html).map_err(|why| (StatusCode::BAD_REQUEST, why))
}
