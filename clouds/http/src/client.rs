//! The client of one account.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cloud_common::{Dialer, Permit, Process, RateLimiter, Resolver};
use futures::FutureExt;
use futures::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Certificate, Client, Method, StatusCode, Url, redirect, retry};
use serde_json::Value;
use shared::cloud::{CloudError, CloudErrorKind, Priority};
use shared::text::sanitize_to;
use tokio::time::Instant;
use tower::Service;

use crate::answer::{Answer, CallError, Rejection};

/// Who we are, in every log of a cloud.
const AGENT: &str = concat!("hibernate-controller/", env!("CARGO_PKG_VERSION"));

/// Largest answer.
const MAX_ANSWER: usize = 8 << 20;

/// Largest answer to a call that is rejected.
const MAX_REJECTION: usize = 64 << 10;

/// How long a failed connection takes at least, longer than its deadline: a port that is closed and one that is silent
/// take the same time, so that no tenant can scan ports behind the controller.
const UNCONNECTED: Duration = Duration::from_millis(3_200);

/// Longest pause that a cloud's `Retry-After` gets.
const MAX_PAUSE: Duration = Duration::from_mins(1);

/// How long a call waits for the account's rate limit.
const QUEUE: Duration = Duration::from_secs(20);

/// How long each part of a call may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines {
    connect: Duration,
    /// Until the next bytes of the answer.
    read: Duration,
    all: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        let [connect, read, all] = [3, 10, 30].map(Duration::from_secs);
        Self { connect, read, all }
    }
}

/// What a client is made of.
pub struct Options {
    /// Who calls, and whether it may.
    pub process: Process,
    /// Whose lookups of names these are, where a tenant chooses the hosts: every address is checked when it is dialed, and
    /// no proxy of the environment is used. `None` where the hosts are a vendor's own.
    pub tenant: Option<Arc<str>>,
    /// PEM certificates of the authorities that are trusted; `None` for those of the system.
    pub authorities: Option<Vec<u8>>,
    /// The account's calls at once, and calls a second.
    pub rate: (u32, u32),
}

/// The HTTP client of one account.
pub struct Http {
    transport: Arc<dyn Transport>,
    permit: Permit,
    limiter: RateLimiter,
    /// How long an attempt may take.
    deadline: Duration,
}

/// How requests get to a cloud. Tests put a simulator here.
pub trait Transport: Send + Sync {
    /// Makes one attempt. `what` names the request in messages.
    fn send<'a>(&'a self, what: &'a str, request: Request) -> BoxFuture<'a, Result<Reply, CallError>>;
}

/// One request.
#[derive(Debug)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The URL.
    pub url: Url,
    /// Headers besides those of the body.
    pub headers: HeaderMap,
    /// The body.
    pub body: Option<Body>,
}

/// What comes back, whatever its status.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, as long as a client reads it.
    pub body: Vec<u8>,
}

/// The transport over the network.
struct Network {
    client: Client,
    /// Checks addresses that a tenant chooses.
    dialer: Option<Dialer>,
    deadlines: Deadlines,
}

/// The body of a request.
#[derive(Clone, Debug)]
pub enum Body {
    /// JSON.
    Json(Value),
    /// JSON with a content type of its own, such as a patch for images.
    As(&'static str, Value),
    /// Keys and values of a form.
    Form(Vec<(&'static str, String)>),
}

/// The system's resolver with the dialer's checks, as reqwest wants it.
struct Names(Resolver);

impl Resolve for Names {
    fn resolve(&self, name: Name) -> Resolving {
        let mut names = self.0.clone();
        Box::pin(async move {
            let found = names.call(name.as_str().parse()?).await?;
            Ok(Box::new(found) as Addrs)
        })
    }
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Http")
    }
}

impl Http {
    /// No request is made yet.
    ///
    /// # Errors
    /// When the authorities are no certificates.
    pub fn new(options: Options) -> Result<Self, String> {
        Self::with(options, Deadlines::default())
    }

    pub(crate) fn with(options: Options, deadlines: Deadlines) -> Result<Self, String> {
        let Options { process, tenant, authorities, rate } = options;
        let Process { identity, permit, dialer } = process;
        let builder = Client::builder()
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            .referer(false)
            .user_agent(format!("{AGENT} {identity}"))
            .connect_timeout(deadlines.connect)
            .read_timeout(deadlines.read)
            .timeout(deadlines.all);
        let (builder, dialer) = match tenant {
            Some(tenant) => (builder.dns_resolver(Names(dialer.resolver(tenant))).no_proxy(), Some(dialer)),
            None => (builder, None),
        };
        let builder = match authorities {
            None => builder,
            Some(pem) => {
                let found = Certificate::from_pem_bundle(&pem).ok().filter(|found| !found.is_empty());
                builder.tls_certs_only(found.ok_or("it has no PEM certificates")?)
            }
        };
        // An authority that cannot be used is the one thing of a tenant in here.
        let client = builder.build().map_err(|_| "its certificates cannot be used as authorities")?;
        let deadline = deadlines.all + Duration::from_secs(1); // the client's own comes first, and says more
        Ok(Self { deadline, ..Self::over(Arc::new(Network { client, dialer, deadlines }), permit, rate) })
    }

    /// A client whose requests take another way than the network.
    pub fn over(transport: Arc<dyn Transport>, permit: Permit, rate: (u32, u32)) -> Self {
        let deadline = Deadlines::default().all;
        Self { transport, permit, limiter: RateLimiter::new(rate.0, rate.1), deadline }
    }

    /// Makes one attempt of a call. Headers with tokens are marked as sensitive by the caller.
    ///
    /// # Errors
    /// When it has no successful answer. Which calls are repeated is up to the caller.
    pub async fn call(
        &self,
        priority: Priority,
        method: Method,
        url: Url,
        headers: &[(HeaderName, HeaderValue)],
        body: Option<&Body>,
    ) -> Result<Answer, CallError> {
        let what = what(&method, &url);
        let admitted = tokio::time::timeout(QUEUE, self.limiter.acquire(priority)).await;
        if admitted.is_err() {
            return Err(not_sent(&what, CloudErrorKind::Throttled, "not sent: too many calls of this account wait"));
        }
        if !(self.permit)() {
            return Err(not_sent(&what, CloudErrorKind::NotLeader, "not sent: not the leader any more"));
        }
        let headers = headers.iter().cloned().collect();
        let request = Request { method, url, headers, body: body.cloned() };
        let Reply { status, headers, body } = tokio::time::timeout(self.deadline, self.transport.send(&what, request))
            .await
            .unwrap_or_else(|_| Err(unknown(&what, "no answer in time")))?;
        let answer = match status.as_u16() {
            // 304: there was nothing to do.
            200..300 | 304 => return Ok(Answer { status, headers, what, body }),
            300..400 => {
                let message = "redirects are not followed: the URL must be the service's own".to_owned();
                let (kind, code, headers) = (CloudErrorKind::Unavailable, String::new(), Box::new(headers));
                return Err(CallError::Rejected(Rejection { what, status, kind, headers, code, message }));
            }
            502 | 504 => return Err(unknown(&what, &format!("{}: a gateway has no answer", status.as_u16()))),
            _ => Rejection::new(what, status, headers, &body),
        };
        if answer.kind == CloudErrorKind::Throttled {
            self.limiter.slow_down();
            self.limiter.pause(answer.retry_after().unwrap_or_default().min(MAX_PAUSE));
        }
        Err(CallError::Rejected(answer))
    }
}

impl Transport for Network {
    fn send<'a>(&'a self, what: &'a str, request: Request) -> BoxFuture<'a, Result<Reply, CallError>> {
        self.attempt(what, request).boxed()
    }
}

impl Network {
    async fn attempt(&self, what: &str, request: Request) -> Result<Reply, CallError> {
        let Request { method, url, headers, body } = request;
        let host = url.host_str().unwrap_or_default();
        if let Some(Err(denied)) = self.dialer.as_ref().map(|dialer| dialer.check_host(host)) {
            return Err(not_sent(what, CloudErrorKind::Invalid, &denied.to_string()));
        }
        let is_post = method == Method::POST;
        let request = self.client.request(method, url).headers(headers);
        let request = match body {
            // Front ends answer 411 to a POST without a length, which HTTP/1.1 otherwise leaves out.
            None if is_post => request.header(CONTENT_LENGTH, 0),
            None => request,
            Some(Body::Json(json)) => request.json(&json),
            Some(Body::As(kind, json)) => request.header("content-type", kind).body(json.to_string()),
            Some(Body::Form(fields)) => request.form(&fields),
        };
        let began = Instant::now();
        let answer = match request.send().await {
            Ok(answer) => answer,
            Err(error) if error.is_connect() || error.is_builder() => {
                tokio::time::sleep_until(began + UNCONNECTED.min(self.deadlines.connect * 2)).await;
                let why = "no connection, or its certificate is not trusted";
                return Err(not_sent(what, CloudErrorKind::Unavailable, why));
            }
            Err(error) => return Err(unknown(what, cause(&error))),
        };
        read(what, answer).await
    }
}

/// An answer with its body, as far as it is of use.
async fn read(what: &str, mut answer: reqwest::Response) -> Result<Reply, CallError> {
    let (status, headers) = (answer.status(), answer.headers().clone());
    let most = if status.is_success() { MAX_ANSWER } else { MAX_REJECTION };
    let mut body = Vec::new();
    loop {
        match answer.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() <= most => body.extend_from_slice(&chunk),
            Ok(Some(_)) if status.is_success() => {
                return Err(unknown(what, &format!("the answer has more than {} MiB", MAX_ANSWER >> 20)));
            }
            Ok(_) => return Ok(Reply { status, headers, body }), // the end, or more than a message is long
            Err(error) => return Err(unknown(what, cause(&error))),
        }
    }
}

fn not_sent(what: &str, kind: CloudErrorKind, why: &str) -> CallError {
    CallError::NotSent(CloudError::new(kind, format!("{what}: {why}")))
}

fn cause(error: &reqwest::Error) -> &'static str {
    if error.is_timeout() { "no answer in time" } else { "the connection broke" }
}

fn unknown(what: &str, why: &str) -> CallError {
    CallError::Unknown(CloudError::new(CloudErrorKind::Unavailable, format!("{what}: {why}")))
}

/// Method, host and path, stable between tries. The query may have markers of pages.
fn what(method: &Method, url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    sanitize_to(&format!("{method} {}{port}{}", url.host_str().unwrap_or_default(), url.path()), 200)
}

#[cfg(test)]
mod tests;
