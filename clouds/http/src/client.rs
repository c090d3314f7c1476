//! The client of one account.

use std::sync::Arc;
use std::time::Duration;

use cloud_common::{Charge, Consumer, ConsumerMemory, Discretion, MemoryLimit, Permit, Process, RateLimiter};
use futures::future::OptionFuture;
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Certificate, Client, Method, Url, redirect, retry};
use shared::cloud::{CloudErrorKind, Priority};
use shared::text::sanitize_to;
use tokio::time::{Instant, timeout_at};

use crate::answer::Answer;
use crate::error::{CallError, Rejection};
use crate::stranger::{Stranger, Strangers};
use crate::transport::{Body, Network, Reply, Request, Transport};

/// Names us in the logs of clouds.
const USER_AGENT: &str = concat!("hibernate-controller/", env!("CARGO_PKG_VERSION"));

/// Idle connections of a client.
const MAX_IDLE: usize = 2;

/// Longest `Retry-After` that is honored.
const MAX_PAUSE: Duration = Duration::from_mins(1);

/// How long a call waits for the account's rate limit.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(20);

/// How long each part of a call may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines {
    connect: Duration,
    /// Until the next bytes of the answer.
    read: Duration,
    all: Duration,
    /// For endpoints of tenants that have not proven who they are.
    unproven: Discretion,
}

impl Default for Deadlines {
    fn default() -> Self {
        let [connect, read, all] = [3, 10, 30].map(Duration::from_secs);
        Self { connect, read, all, unproven: Discretion::CLOUD }
    }
}

/// What a client is made of.
pub struct Options {
    /// Who calls, and whether it may.
    pub process: Process,
    /// Whose lookups and calls these are, where a tenant chooses the hosts: every address is checked when it is dialed, and
    /// no proxy of the environment is used. `None` where the hosts are a vendor's own.
    pub tenant: Option<Arc<str>>,
    /// A short name for the account. The memory of answers is charged to it, and to the tenant.
    pub account: Arc<str>,
    /// PEM certificates of authorities that are trusted beside those of the system.
    pub authorities: Option<Vec<u8>>,
    /// The account's calls at once, and calls a second.
    pub rate: (u32, u32),
}

/// The HTTP client of one account.
pub struct Http {
    transport: Arc<dyn Transport>,
    permit: Permit,
    limiter: RateLimiter,
    /// Memory of the answers.
    memory: ConsumerMemory,
    /// Memory of the authorities.
    _trusted: Charge,
    /// Where a tenant chooses the hosts.
    strangers: Option<Strangers>,
    deadlines: Deadlines,
}

impl Http {
    /// No request is made yet.
    pub fn new(options: Options) -> Result<Self, String> {
        Self::with(options, Deadlines::default())
    }

    pub(crate) fn with(options: Options, deadlines: Deadlines) -> Result<Self, String> {
        let Options { process, tenant, account, authorities, rate } = options;
        let Process { identity, permit, dialer, memory } = process;
        let consumer = Consumer::new(tenant.as_ref().unwrap_or(&account), &*account);
        let mut builder = Client::builder()
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            .referer(false)
            .user_agent(format!("{USER_AGENT} {identity}"))
            .connect_timeout(deadlines.connect)
            .read_timeout(deadlines.read)
            .timeout(deadlines.all);
        let strangers = tenant.is_some().then(|| Strangers::new(dialer, consumer.clone()));
        if let Some(names) = &strangers {
            // HTTP/2 would read megabytes ahead.
            builder = builder.dns_resolver(names.clone()).no_proxy().http1_only().pool_max_idle_per_host(MAX_IDLE);
        }
        let memory = memory.of(consumer);
        let mut trusted = memory.charge();
        if let Some(pem) = authorities {
            trusted.spend(pem.len()).map_err(|full| full.to_string())?;
            let found = Certificate::from_pem_bundle(&pem).ok().filter(|found| !found.is_empty());
            builder = builder.tls_certs_merge(found.ok_or("it has no PEM certificates")?);
        }
        // Only a tenant's certificates can make this fail.
        let client = builder.build().map_err(|_| "its certificates cannot be used as authorities")?;
        let (transport, limiter) = (Arc::new(Network(client)), RateLimiter::new(rate.0, rate.1));
        Ok(Self { transport, permit, limiter, memory, _trusted: trusted, strangers, deadlines })
    }

    /// A client on another transport than the network, with a memory of its own.
    pub fn over(transport: Arc<dyn Transport>, permit: Permit, rate: (u32, u32)) -> Self {
        let (limiter, deadlines) = (RateLimiter::new(rate.0, rate.1), Deadlines::default());
        let memory = MemoryLimit::default().of(Consumer::new("", ""));
        let trusted = memory.charge();
        Self { transport, permit, limiter, memory, _trusted: trusted, strangers: None, deadlines }
    }

    /// An empty charge, into which those of several answers are merged.
    pub fn charge(&self) -> Charge {
        self.memory.charge()
    }

    /// Makes one attempt of a call: retries are up to the caller, as is marking headers with tokens as sensitive.
    pub async fn call(
        &self,
        priority: Priority,
        method: Method,
        url: Url,
        headers: &[(HeaderName, HeaderValue)],
        body: Option<&Body>,
    ) -> Result<Answer, CallError> {
        let what = what(&method, &url);
        let admitted = tokio::time::timeout(QUEUE_TIMEOUT, async {
            self.limiter.acquire(priority).await;
            OptionFuture::from(self.strangers.as_ref().map(Strangers::turn)).await
        });
        let _turn = admitted.await.map_err(|_| {
            CallError::not_sent(&what, CloudErrorKind::Throttled, "not sent: too many calls of this account wait")
        })?;
        if !(self.permit)() {
            return Err(CallError::not_sent(&what, CloudErrorKind::NotLeader, "not sent: not the leader any more"));
        }
        let headers = headers.iter().cloned().collect();
        let stranger = self.strangers.as_ref().map(|all| all.meet(&url, &self.deadlines.unproven)).transpose();
        let stranger =
            stranger.map_err(|denied| CallError::not_sent(&what, CloudErrorKind::Invalid, &denied.to_string()))?;
        let request = Request { method, url, headers, body: body.cloned() };
        let unproven = stranger.as_ref().and_then(Stranger::deadline);
        // The client's own deadline comes first, and says more.
        let deadline = unproven.unwrap_or_else(|| Instant::now() + self.deadlines.all + Duration::from_secs(1));
        let mut charge = self.memory.charge();
        let sent = timeout_at(deadline, self.transport.send(&what, request, &mut charge)).await;
        let reply = sent.unwrap_or_else(|_| Err(CallError::unknown(&what, "no answer in time")));
        let by = reply.as_ref().ok().and_then(|reply| reply.by);
        let error = match (reply.and_then(|reply| accepted(&what, reply)), stranger) {
            (Ok(Reply { status, headers, body, by }), stranger) => {
                return Ok(Answer { status, headers, what, body, charge, stranger: stranger.zip(by) });
            }
            (Err(error), Some(stranger)) => stranger.discreet(by, &what, error).await,
            (Err(error), None) => error,
        };
        // An unproven endpoint gets here as `Unknown`: a pause would show in later calls what its error hides.
        if let CallError::Rejected(answer) = &error
            && answer.kind == CloudErrorKind::Throttled
        {
            self.limiter.slow_down();
            self.limiter.pause(answer.retry_after().unwrap_or_default().min(MAX_PAUSE));
        }
        Err(error)
    }
}

/// A successful reply, or the rejection.
fn accepted(what: &str, reply: Reply) -> Result<Reply, CallError> {
    let status = reply.status;
    match status.as_u16() {
        // 304: there was nothing to do.
        200..300 | 304 => Ok(reply),
        300..400 => {
            let message = "redirects are not followed: the URL must be the service's own".to_owned();
            let (kind, code, headers) = (CloudErrorKind::Unavailable, String::new(), Box::new(reply.headers));
            Err(CallError::Rejected(Rejection { what: what.to_owned(), status, kind, headers, code, message }))
        }
        502 | 504 => Err(CallError::unknown(what, &format!("{}: a gateway has no answer", status.as_u16()))),
        _ => Err(CallError::Rejected(Rejection::new(what.to_owned(), status, reply.headers, &reply.body))),
    }
}

/// Method, host and path: the same for every attempt. The query is left out, because it may hold page markers.
fn what(method: &Method, url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    sanitize_to(&format!("{method} {}{port}{}", url.host_str().unwrap_or_default(), url.path()), 200)
}

#[cfg(test)]
mod tests;
