//! A small client for the JSON interfaces of the world: the EC2 simulator's and the supervisor's.

use anyhow::{Context as _, Result, bail};
use http::{Method, Request, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Talks to one base URL on the loopback interface.
///
/// It holds no connection open, so that one object serves the many short-lived runtimes of a test program.
#[derive(Clone, Debug)]
pub struct JsonHttp {
    base: String,
    token: Option<String>,
}

impl JsonHttp {
    /// A client of a base URL such as `http://127.0.0.1:20123`.
    pub fn new(base: &str) -> Self {
        Self { base: base.trim_end_matches('/').to_owned(), token: None }
    }

    /// The same, with a bearer token.
    pub fn with_token(base: &str, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..Self::new(base) }
    }

    /// What a URL such as that of a program's metrics shows.
    ///
    /// # Errors
    /// When the server cannot be reached, or refuses.
    pub async fn page(url: &str) -> Result<String> {
        let (base, path) = url.split_at(url.rfind('/').context("a path")?);
        Self::new(base).text(Method::GET, path, None::<&()>).await
    }

    /// The base URL.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Reads an object.
    ///
    /// # Errors
    /// When the server cannot be reached, refuses, or answers something else.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.call(Method::GET, path, None::<&()>).await
    }

    /// Sends an object and reads the answer.
    ///
    /// # Errors
    /// As [`JsonHttp::get`].
    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T> {
        self.call(Method::POST, path, Some(body)).await
    }

    /// Sends changed fields and reads the answer.
    ///
    /// # Errors
    /// As [`JsonHttp::get`].
    pub async fn patch<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T> {
        self.call(Method::PATCH, path, Some(body)).await
    }

    /// Removes something.
    ///
    /// # Errors
    /// As [`JsonHttp::get`].
    pub async fn delete(&self, path: &str) -> Result<()> {
        self.text(Method::DELETE, path, None::<&()>).await.map(drop)
    }

    /// Any call whose answer is JSON.
    ///
    /// # Errors
    /// As [`JsonHttp::get`].
    pub async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T> {
        let text = self.text(method.clone(), path, body).await?;
        serde_json::from_str(&text).with_context(|| format!("read the answer to {method} {}{path}: {text}", self.base))
    }

    /// Any call, its answer as it came.
    ///
    /// # Errors
    /// When the server cannot be reached or answers a status other than 2xx; its text is then part of the error.
    pub async fn text(&self, method: Method, path: &str, body: Option<&impl Serialize>) -> Result<String> {
        let what = format!("{method} {}{path}", self.base);
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let content = match body {
            Some(body) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                serde_json::to_vec(body).with_context(|| format!("write the body of {what}"))?
            }
            None => Vec::new(),
        };
        let client: Client<HttpConnector, Full<Bytes>> =
            Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http();
        let response = client.request(request.body(Full::from(content))?).await.with_context(|| what.clone())?;
        let status = response.status();
        let bytes =
            response.into_body().collect().await.with_context(|| format!("read the answer to {what}"))?.to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if !status.is_success() {
            bail!("{what}: {status}: {text}");
        }
        Ok(text)
    }
}
