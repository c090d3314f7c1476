//! Calls that carry a bearer token.

use std::sync::Arc;
use std::time::Duration;

use cloud_common::ChargedValue;
use futures::FutureExt;
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use shared::cloud::{CloudError, CloudErrorKind, Priority};
use tokio::time::{Instant, timeout_at};

use crate::answer::Answer;
use crate::client::{Body, Http};
use crate::error::CallError;
use crate::token::{Login, Tokens};

/// Longest token, in bytes.
const MAX_TOKEN: usize = 16 << 10;

/// How long one page of a list may take, and all of them: less than a reconcile, so that its status has the cause.
const PAGE: Duration = Duration::from_mins(1);
const LIST: Duration = Duration::from_secs(150);

/// How many pages a list has: all of a subscription with 25,000 machines are 500.
const PAGES: usize = 2_000;

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
#[derive(Deserialize)]
#[serde(untagged)]
enum Seconds {
    Number(u64),
    Text(String),
}

fn seconds<'de, D: Deserializer<'de>>(found: D) -> Result<u64, D::Error> {
    match Seconds::deserialize(found)? {
        Seconds::Number(number) => Ok(number),
        Seconds::Text(text) => text.parse().map_err(D::Error::custom),
    }
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
    let value = Some(token).filter(|token| token.len() <= MAX_TOKEN);
    let value = value.and_then(|token| HeaderValue::from_str(&format!("Bearer {token}")).ok());
    let mut value = value.ok_or_else(|| {
        let message = "the token is longer than 16 KiB, or has characters that no token has";
        CallError::Unknown(CloudError::new(CloudErrorKind::Unavailable, message))
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

    /// Every page of a list, and what they are charged. `next` finds the URL of the page after one.
    ///
    /// # Errors
    /// When a page is not to be had or takes too long, or there are too many or they take too much memory.
    pub async fn pages<P: DeserializeOwned>(
        &self,
        priority: Priority,
        first: Url,
        next: impl Fn(&P) -> Result<Option<Url>, CloudError>,
    ) -> Result<ChargedValue<Vec<P>>, CloudError> {
        let late = || {
            let message = "a page of the list of machines takes more than a minute, or all pages more than 150 s";
            CloudError::new(CloudErrorKind::Unavailable, message)
        };
        let endless = || {
            let message = format!("the list of machines has more than {PAGES} pages");
            CloudError::new(CloudErrorKind::Unavailable, message)
        };
        let (mut pages, mut all, mut url) = (Vec::new(), self.http.charge(), Some(first));
        let end = Instant::now() + LIST;
        while let Some(page) = url.take() {
            if pages.len() >= PAGES {
                return Err(endless());
            }
            let asked = async { self.call(priority, Method::GET, &page, None).await?.open::<P>().await };
            let (page, charge) = timeout_at(end.min(Instant::now() + PAGE), asked).await.map_err(|_| late())??;
            all.merge(charge);
            url = next(&page)?;
            pages.push(page);
        }
        Ok(ChargedValue::new(pages, all))
    }
}
