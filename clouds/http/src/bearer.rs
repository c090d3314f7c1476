//! Calls that carry a bearer token.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use shared::cloud::{CloudError, CloudErrorKind, Priority};
use tokio::time::timeout;

use crate::answer::{Answer, CallError};
use crate::client::{Body, Http};
use crate::token::{Login, Tokens};

/// Bytes of all pages of one list: 20,000 machines have less.
const MAX_LIST: usize = 32 << 20;

/// Pages of one list.
const MAX_PAGES: usize = 500;

/// How long one list may take.
const LIST: Duration = Duration::from_mins(1);

/// An account whose calls carry a bearer token.
pub struct Bearer<L: Login<Token = HeaderValue>> {
    http: Arc<Http>,
    tokens: Tokens<L>,
}

/// What a token endpoint answers.
#[derive(Deserialize)]
pub struct Granted {
    access_token: String,
    #[serde(deserialize_with = "seconds")]
    expires_in: u64,
}

/// A number, or a text with one: Entra has answered either.
fn seconds<'de, D: serde::Deserializer<'de>>(found: D) -> Result<u64, D::Error> {
    let found = serde_json::Value::deserialize(found)?;
    let number = found.as_u64().or_else(|| found.as_str()?.parse().ok());
    number.ok_or_else(|| serde::de::Error::custom("expires_in is no number"))
}

impl Granted {
    /// The token as calls carry it, and how long it lives.
    ///
    /// # Errors
    /// When it has characters that no token has.
    pub fn token(&self) -> Result<(HeaderValue, Duration), CallError> {
        Ok((bearer(&self.access_token)?, Duration::from_secs(self.expires_in)))
    }
}

/// The value of the header that carries a token.
///
/// # Errors
/// When it has characters that no token has.
pub fn bearer(token: &str) -> Result<HeaderValue, CallError> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| {
        CallError::Unknown(CloudError::new(CloudErrorKind::Unavailable, "the token has characters that no token has"))
    })?;
    value.set_sensitive(true);
    Ok(value)
}

impl<L: Login<Token = HeaderValue>> Bearer<L> {
    /// No request is made yet.
    pub fn new(http: Arc<Http>, login: L) -> Self {
        Self { http, tokens: Tokens::new(login) }
    }

    /// Makes a call, and once more with a new token if the token is not accepted.
    ///
    /// # Errors
    /// As the login or the call say.
    pub async fn call(
        &self,
        priority: Priority,
        method: Method,
        url: &Url,
        body: Option<&Body>,
    ) -> Result<Answer, CallError> {
        let call = |token: HeaderValue| {
            let (method, url, headers) = (method.clone(), url.clone(), [(AUTHORIZATION, token)]);
            let headers: [(HeaderName, HeaderValue); 1] = headers;
            async move { self.http.call(priority, method, url, &headers, body).await }.boxed()
        };
        self.tokens.with(call).await
    }

    /// Every page of a list. `next` finds the URL of the page after one.
    ///
    /// # Errors
    /// When a page is not to be had, or there is no end to them.
    pub async fn pages<P: DeserializeOwned>(
        &self,
        priority: Priority,
        first: Url,
        next: impl Fn(&P) -> Result<Option<Url>, CloudError>,
    ) -> Result<Vec<P>, CloudError> {
        let all = async {
            let (mut pages, mut bytes, mut url) = (Vec::new(), 0, Some(first));
            while let Some(page) = url.take() {
                let answer = self.call(priority, Method::GET, &page, None).await?;
                bytes += answer.len();
                let page: P = answer.json()?;
                url = next(&page)?;
                pages.push(page);
                if bytes > MAX_LIST || pages.len() > MAX_PAGES {
                    let most = format!("{} MiB or {MAX_PAGES} pages", MAX_LIST >> 20);
                    let message = format!("the list of machines has more than {most}");
                    return Err(CloudError::new(CloudErrorKind::Invalid, message));
                }
            }
            Ok(pages)
        };
        let late = CloudError::new(CloudErrorKind::Unavailable, "the list of machines takes more than a minute");
        timeout(LIST, all).await.unwrap_or(Err(late))
    }
}
