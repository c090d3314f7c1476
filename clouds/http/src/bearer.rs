//! Calls that carry a bearer token.

use std::sync::Arc;
use std::time::Duration;

use cloud_common::ChargedValue;
use futures::FutureExt;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Method, Url};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use shared::cloud::{CloudError, CloudErrorKind, Priority};
use tokio::time::{Instant, timeout_at};

use crate::answer::Answer;
use crate::client::Http;
use crate::error::CallError;
use crate::token::{Login, Tokens};
use crate::transport::Body;

/// Longest token, in bytes.
const MAX_TOKEN: usize = 16 << 10;

/// How long one page of a list may take, and all of them: less than a reconcile, so that its status has the cause.
const PAGE_TIMEOUT: Duration = Duration::from_mins(1);
const LIST_TIMEOUT: Duration = Duration::from_secs(150);

/// A subscription with 25,000 machines has 500.
const MAX_PAGES: usize = 2_000;

/// An account whose calls carry a bearer token.
pub struct Bearer<L: Login<Token = HeaderValue>> {
    http: Arc<Http>,
    tokens: Tokens<L>,
}

/// A login by a form, as of OAuth 2.
pub struct FormLogin {
    http: Arc<Http>,
    url: Url,
    form: Body,
}

/// What a token endpoint answers.
#[derive(Deserialize)]
struct TokenAnswer {
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

impl Login for FormLogin {
    type Token = HeaderValue;

    async fn login(&self) -> Result<(HeaderValue, Duration), CallError> {
        let answer = self.http.call(Priority::Waking, Method::POST, self.url.clone(), &[], Some(&self.form)).await;
        let answer = answer.map_err(CallError::of_login)?.json::<TokenAnswer>().await?;
        Ok((bearer(&answer.access_token)?, Duration::from_secs(answer.expires_in)))
    }
}

/// The value of the header that carries a token.
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

impl Bearer<FormLogin> {
    /// An account that gets its tokens from `url` by a form. No request is made yet.
    pub fn by_form(http: Http, url: Url, fields: Vec<(&'static str, String)>) -> Self {
        let http = Arc::new(http);
        Self::new(http.clone(), FormLogin { http, url, form: Body::Form(fields) })
    }
}

impl<L: Login<Token = HeaderValue>> Bearer<L> {
    /// No request is made yet.
    pub fn new(http: Arc<Http>, login: L) -> Self {
        Self { http, tokens: Tokens::new(login) }
    }

    /// Makes a call, and once more with a new token if the token is not accepted.
    pub async fn call(
        &self,
        priority: Priority,
        method: Method,
        url: &Url,
        body: Option<&Body>,
    ) -> Result<Answer, CallError> {
        let call = |token: HeaderValue| {
            let (method, url, headers) = (method.clone(), url.clone(), [(AUTHORIZATION, token)]);
            async move { self.http.call(priority, method, url, &headers, body).await }.boxed()
        };
        self.tokens.with(call).await
    }

    /// Every page of a list, charged to the account. `next` finds the URL of the next page.
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
        let (mut pages, mut all, mut url) = (Vec::new(), self.http.charge(), Some(first));
        let end = Instant::now() + LIST_TIMEOUT;
        while let Some(page) = url.take() {
            if pages.len() >= MAX_PAGES {
                let message = format!("the list of machines has more than {MAX_PAGES} pages");
                return Err(CloudError::new(CloudErrorKind::Unavailable, message));
            }
            let asked = async { self.call(priority, Method::GET, &page, None).await?.open::<P>().await };
            let (page, charge) =
                timeout_at(end.min(Instant::now() + PAGE_TIMEOUT), asked).await.map_err(|_| late())??;
            all.merge(charge);
            url = next(&page)?;
            pages.push(page);
        }
        Ok(ChargedValue::new(pages, all))
    }
}
