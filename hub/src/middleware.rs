//! A layer around every request: it passes on the API server's warnings, and requests if that is asked for, and limits
//! the time to an answer.
//!
//! kube's client drops `Warning` headers. This layer makes each a [`Notice`], or collects them for a caller that knows
//! which target they concern.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Request, Response};
use kube::client::Body;
use tower::{BoxError, Layer, Service};

use crate::connection::{Notice, Notify};

tokio::task_local! {
    /// Warnings collected for the caller. Local to the task, because kube polls an answer in the task that sent the
    /// request.
    static COLLECTED: RefCell<Vec<String>>;
}

/// Does some work. Warnings in the hub's answers to it are returned, each once: only the caller knows which target they
/// concern.
pub async fn with_warnings<T>(work: impl Future<Output = T>) -> (T, Vec<String>) {
    let work = Box::pin(work);
    let listening = async {
        let result = work.await;
        (result, COLLECTED.with(RefCell::take))
    };
    COLLECTED.scope(RefCell::default(), listening).await
}

/// What some work returns, or an I/O error once it has taken longer than the limit.
pub(crate) async fn within<T>(limit: Option<Duration>, work: impl Future<Output = T>) -> Result<T, BoxError> {
    match limit {
        None => Ok(work.await),
        Some(limit) => tokio::time::timeout(limit, work).await.map_err(|late| std::io::Error::from(late).into()),
    }
}

/// The layer, and what it shares between connections.
#[derive(Clone)]
pub struct HubLayer {
    notify: Notify,
    /// URL of the hub, if each request is a notice.
    verbose: Option<Arc<str>>,
    timeout: Option<Duration>,
    /// Of a credential plugin.
    token: Option<HeaderValue>,
    seen: Arc<Mutex<HashSet<String>>>,
}

impl HubLayer {
    /// `verbose` is the hub's URL if each request is a notice; `timeout` limits the time until the head of a response.
    pub fn new(notify: Notify, verbose: Option<Arc<str>>, timeout: Option<Duration>) -> Self {
        Self { notify, verbose, timeout, token: None, seen: Arc::default() }
    }

    /// The same for another login. It passes no warning on again.
    pub fn with_token(&self, token: Option<HeaderValue>) -> Self {
        Self { token, ..self.clone() }
    }

    fn warn(&self, headers: &HeaderMap) {
        for value in headers.get_all(http::header::WARNING) {
            for text in warnings(&String::from_utf8_lossy(value.as_bytes())) {
                self.pass_on(text);
            }
        }
    }

    /// Passes a warning on once, or collects it: what was passed on already concerns no single target.
    fn pass_on(&self, text: String) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.contains(&text) {
            return;
        }
        let collected = COLLECTED.try_with(|collected| {
            let mut collected = collected.borrow_mut();
            if !collected.contains(&text) {
                collected.push(text.clone());
            }
        });
        (self.notify)(Notice::Warning { text: &text, collected: collected.is_ok() });
        if collected.is_err() {
            seen.insert(text);
        }
    }
}

impl<S> Layer<S> for HubLayer {
    type Service = HubService<S>;

    fn layer(&self, inner: S) -> HubService<S> {
        HubService { inner, layer: self.clone() }
    }
}

/// The service inside the layer.
#[derive(Clone)]
pub struct HubService<S> {
    inner: S,
    layer: HubLayer,
}

impl<S, B> Service<Request<Body>> for HubService<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
    B: 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<B>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let layer = self.layer.clone();
        if let Some(token) = &layer.token {
            request.headers_mut().insert(AUTHORIZATION, token.clone());
        }
        let line = layer.verbose.as_ref().map(|hub| format!("{} {hub}{}", request.method(), request.uri()));
        let begin = Instant::now();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let result = within(layer.timeout, answer).await.unwrap_or_else(Err);
            if let Some(line) = line {
                let answer = match &result {
                    Ok(response) => response.status().as_u16().to_string(),
                    Err(_) => "no answer".to_owned(),
                };
                let line = format!("{line} {answer} in {} ms", begin.elapsed().as_millis());
                (layer.notify)(Notice::Progress(&line));
            }
            if let Ok(response) = &result {
                layer.warn(response.headers());
            }
            result
        })
    }
}

/// The texts of a `Warning` header: `299 - "text" "date", 299 agent "another \"one\""`. Codes other than 299 are not
/// the API server's and are left out, as kubectl does.
fn warnings(header: &str) -> Vec<String> {
    let mut texts = Vec::new();
    let mut rest = header.trim_start();
    while let Some((code, after)) = rest.split_once(' ') {
        let Some((text, after)) = after.split_once(' ').and_then(|(_agent, after)| quoted(after)) else {
            break;
        };
        if code == "299" && !text.is_empty() {
            texts.push(text);
        }
        let after = quoted(after.trim_start()).map_or(after, |(_date, after)| after);
        let Some(next) = after.trim_start().strip_prefix(',') else {
            break;
        };
        rest = next.trim_start();
    }
    texts
}

/// A quoted string at the start of the text, without its escapes, and what follows it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut plain = String::new();
    let mut chars = text.strip_prefix('"')?.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Some((plain, &text[at + 2..])),
            '\\' => plain.push(chars.next()?.1),
            char => plain.push(char),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warning_headers_are_read_as_rfc_7234_writes_them() {
        for (header, texts) in [
            (r#"299 - "unknown field \"spec.x\"""#, vec![r#"unknown field "spec.x""#]),
            (r#"299 - "one", 299 - "two""#, vec!["one", "two"]),
            (r#"299 - "one" "Sat, 21 Nov 2026 16:00:00 GMT", 299 api "two""#, vec!["one", "two"]),
            (r#"199 - "not ours", 299 - "ours, with a comma""#, vec!["ours, with a comma"]),
            (r#"299 - "back\\slash""#, vec![r"back\slash"]),
            (r#"299 - "übrig""#, vec!["übrig"]),
            (r#"299 - "cut off"#, vec![]),
            (r#"299 - """#, vec![]),
            ("nonsense", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(warnings(header), texts, "{header}");
        }
    }

    #[test]
    fn each_warning_is_collected_once_unless_it_was_passed_on_before() {
        let layer = HubLayer::new(Arc::new(|_| {}), None, None);
        layer.pass_on("the version is old".to_owned());
        for _target in 0..2 {
            let work = async {
                for text in ["the version is old", "paused", "paused", "new"] {
                    layer.pass_on(text.to_owned());
                }
                7
            };
            let (result, collected) = futures::executor::block_on(with_warnings(work));
            assert_eq!((result, collected), (7, vec!["paused".to_owned(), "new".to_owned()]));
        }
    }
}
