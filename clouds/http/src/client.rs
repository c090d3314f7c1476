//! The client of one account.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cloud_common::{Dialer, Permit, Process, RateLimiter, Resolver};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Certificate, Client, Method, StatusCode, Url, redirect, retry};
use serde_json::Value;
use shared::cloud::{CloudError, CloudErrorKind, Priority};
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
    /// Whose lookups of names these are.
    pub tenant: Arc<str>,
    /// PEM certificates of the authorities that are trusted; `None` for those of the system.
    pub authorities: Option<Vec<u8>>,
    /// The account's calls at once, and calls a second.
    pub rate: (u32, u32),
}

/// The HTTP client of one account.
pub struct Http {
    client: Client,
    dialer: Dialer,
    permit: Permit,
    limiter: RateLimiter,
    deadlines: Deadlines,
}

/// The body of a request.
#[derive(Clone, Debug)]
pub enum Body {
    /// JSON.
    Json(Value),
    /// JSON with a content type of its own, such as a patch for images.
    As(&'static str, Value),
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
            .dns_resolver(Names(dialer.resolver(tenant)))
            .no_proxy()
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            .referer(false)
            .user_agent(format!("{AGENT} {identity}"))
            .connect_timeout(deadlines.connect)
            .read_timeout(deadlines.read)
            .timeout(deadlines.all);
        let builder = match authorities {
            None => builder,
            Some(pem) => {
                let found = Certificate::from_pem_bundle(&pem).ok().filter(|found| !found.is_empty());
                builder.tls_certs_only(found.ok_or("it has no PEM certificates")?)
            }
        };
        // An authority that cannot be used is the one thing of a tenant in here.
        let client = builder.build().map_err(|_| "its certificates cannot be used as authorities")?;
        let limiter = RateLimiter::new(rate.0, rate.1);
        Ok(Self { client, dialer, permit, limiter, deadlines })
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
        let not_sent = |kind, why: &str| CallError::NotSent(CloudError::new(kind, format!("{what}: {why}")));
        if admitted.is_err() {
            return Err(not_sent(CloudErrorKind::Throttled, "not sent: too many calls of this account wait"));
        }
        if !(self.permit)() {
            return Err(not_sent(CloudErrorKind::NotLeader, "not sent: not the leader any more"));
        }
        let host = url.host_str().unwrap_or_default();
        if let Err(denied) = self.dialer.check_host(host) {
            return Err(not_sent(CloudErrorKind::Invalid, &denied.to_string()));
        }
        let mut request = self.client.request(method, url).headers(headers.iter().cloned().collect::<HeaderMap>());
        request = match body {
            None => request,
            Some(Body::Json(json)) => request.json(json),
            Some(Body::As(kind, json)) => request.header("content-type", *kind).body(json.to_string()),
        };
        let began = Instant::now();
        let answer = match request.send().await {
            Ok(answer) => answer,
            Err(error) if error.is_connect() || error.is_builder() => {
                tokio::time::sleep_until(began + UNCONNECTED.min(self.deadlines.connect * 2)).await;
                return Err(not_sent(CloudErrorKind::Unavailable, "no connection, or its certificate is not trusted"));
            }
            Err(error) => return Err(unknown(&what, cause(&error))),
        };
        self.read(what, answer).await
    }

    async fn read(&self, what: String, mut answer: reqwest::Response) -> Result<Answer, CallError> {
        let (status, headers) = (answer.status(), answer.headers().clone());
        let most = if status.is_success() { MAX_ANSWER } else { MAX_REJECTION };
        let mut body = Vec::new();
        loop {
            match answer.chunk().await {
                Ok(Some(chunk)) if body.len() + chunk.len() <= most => body.extend_from_slice(&chunk),
                Ok(Some(_)) if status.is_success() => {
                    return Err(unknown(&what, &format!("the answer has more than {} MiB", MAX_ANSWER >> 20)));
                }
                Ok(_) => break, // the end, or more than a message is long
                Err(error) => return Err(unknown(&what, cause(&error))),
            }
        }
        if status == StatusCode::TOO_MANY_REQUESTS {
            self.limiter.slow_down();
        }
        match status.as_u16() {
            200..300 => Ok(Answer { status, headers, what, body }),
            300..400 => {
                let message = "redirects are not followed: the URL must be the service's own".to_owned();
                Err(CallError::Rejected(Rejection { what, status, headers: Box::new(headers), message }))
            }
            502 | 504 => Err(unknown(&what, &format!("{}: a gateway has no answer", status.as_u16()))),
            _ => Err(CallError::Rejected(Rejection::new(what, status, headers, &body))),
        }
    }
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
    shared::text::sanitize_to(&format!("{method} {}{port}{}", url.host_str().unwrap_or_default(), url.path()), 200)
}

#[cfg(test)]
mod tests;
