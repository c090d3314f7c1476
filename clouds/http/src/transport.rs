//! How requests get to a cloud, and what is read of its answers.

use std::net::IpAddr;

use cloud_common::Charge;
use futures::FutureExt;
use futures::future::BoxFuture;
use reqwest::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, StatusCode, Url};
use serde_json::Value;
use shared::cloud::CloudErrorKind;

use crate::error::CallError;

/// Largest answer to a call that is rejected.
const MAX_REJECTION: usize = 64 << 10;

/// Headers that are read of an answer, and the longest.
const HEADERS: [&str; 5] =
    ["retry-after", "location", "azure-asyncoperation", "x-subject-token", "x-openstack-request-id"];
const MAX_HEADER: usize = 16 << 10;

/// How requests get to a cloud. Tests put a simulator here.
pub trait Transport: Send + Sync {
    /// Makes one attempt. `what` names the request in messages. The memory of the answer goes to `charge`.
    fn send<'a>(
        &'a self,
        what: &'a str,
        request: Request,
        charge: &'a mut Charge,
    ) -> BoxFuture<'a, Result<Reply, CallError>>;
}

#[derive(Debug)]
pub struct Request {
    pub method: Method,
    pub url: Url,
    /// Headers besides those of the body.
    pub headers: HeaderMap,
    pub body: Option<Body>,
}

/// What comes back, whatever its status.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// The body, as long as a client reads it.
    pub body: Vec<u8>,
    /// Who has answered, if it is known.
    pub by: Option<IpAddr>,
}

/// The transport over the network.
pub(crate) struct Network(pub(crate) Client);

/// The body of a request.
#[derive(Clone, Debug)]
pub enum Body {
    Json(Value),
    /// JSON with a content type of its own, such as a patch for images.
    As(&'static str, Value),
    /// Keys and values of a form.
    Form(Vec<(&'static str, String)>),
}

impl Transport for Network {
    fn send<'a>(
        &'a self,
        what: &'a str,
        request: Request,
        charge: &'a mut Charge,
    ) -> BoxFuture<'a, Result<Reply, CallError>> {
        self.attempt(what, request, charge).boxed()
    }
}

impl Network {
    async fn attempt(&self, what: &str, request: Request, charge: &mut Charge) -> Result<Reply, CallError> {
        let Request { method, url, headers, body } = request;
        let is_post = method == Method::POST;
        let request = self.0.request(method, url).headers(headers);
        let request = match body {
            // Front ends answer 411 to a POST without a length, which HTTP/1.1 otherwise leaves out.
            None if is_post => request.header(CONTENT_LENGTH, 0),
            None => request,
            Some(Body::Json(json)) => request.json(&json),
            Some(Body::As(kind, json)) => request.header("content-type", kind).body(json.to_string()),
            Some(Body::Form(fields)) => request.form(&fields),
        };
        let answer = match request.send().await {
            Ok(answer) => answer,
            Err(error) if error.is_connect() || error.is_builder() => {
                let why = "no connection, or its certificate is not trusted";
                return Err(CallError::not_sent(what, CloudErrorKind::Unavailable, why));
            }
            Err(error) => return Err(CallError::unknown(what, cause(&error))),
        };
        read(what, answer, charge).await
    }
}

/// Reads an answer, with as much of its body as is of use.
async fn read(what: &str, mut answer: reqwest::Response, charge: &mut Charge) -> Result<Reply, CallError> {
    let (status, by) = (answer.status(), answer.remote_addr().map(|by| by.ip()));
    // A copy: a header keeps alive what was read with it.
    let header = |name| {
        let value = answer.headers().get(name).filter(|value| value.len() <= MAX_HEADER)?;
        Some((HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).ok()?))
    };
    let headers = HEADERS.into_iter().filter_map(header).collect();
    let mut body = Vec::new();
    loop {
        match answer.chunk().await {
            // The body of an error is cut off at this size.
            Ok(Some(chunk)) if status.is_success() || body.len() + chunk.len() <= MAX_REJECTION => {
                charge.spend_soon(chunk.len()).await.map_err(|full| CallError::too_large(what, full))?;
                if body.capacity() - body.len() < chunk.len() {
                    body.reserve_exact(chunk.len() + body.len() / 8); // doubled it would take more than is charged
                }
                body.extend_from_slice(&chunk);
            }
            Ok(_) => return Ok(Reply { status, headers, body, by }),
            Err(error) => return Err(CallError::unknown(what, cause(&error))),
        }
    }
}

fn cause(error: &reqwest::Error) -> &'static str {
    if error.is_timeout() { "no answer in time" } else { "the connection broke" }
}
