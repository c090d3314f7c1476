//! A request as a face sees it.

use std::collections::BTreeMap;

use cloud_http::Url;
use http::Request;

/// A request, taken apart.
#[derive(Clone, Debug)]
pub struct Call {
    /// `GET` or `POST`.
    pub method: String,
    /// Segments of the path.
    pub path: Vec<String>,
    pub query: BTreeMap<String, String>,
    /// The body: a form's fields, if it is one.
    pub form: BTreeMap<String, String>,
    pub body: Vec<u8>,
    /// What follows `Bearer`.
    pub token: String,
    pub agent: String,
    /// `http://HOST`, as the caller has it.
    pub base: String,
    /// `list`, `start`, `stop`, `operation`, `token` and so on: what it asks for.
    pub name: &'static str,
    /// The machine it is about.
    pub machine: String,
}

impl Call {
    pub fn new(request: &Request<Vec<u8>>) -> Self {
        let header = |name: &str| {
            let value = request.headers().get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        let host = request.uri().authority().map_or_else(|| header("host"), ToString::to_string);
        let base = format!("{}://{host}", request.uri().scheme_str().unwrap_or("http"));
        let url = Url::parse(&base).ok().and_then(|base| base.join(&request.uri().to_string()).ok());
        let pairs = |url: &Url| url.query_pairs().map(|(key, value)| (key.into(), value.into())).collect();
        let body = String::from_utf8_lossy(request.body());
        let form = Url::parse(&format!("http://form/?{body}")).ok().map(|url| pairs(&url)).unwrap_or_default();
        let mut path: Vec<String> = request.uri().path().split('/').skip(1).map(str::to_owned).collect();
        path.retain(|segment| !segment.is_empty());
        Self {
            method: request.method().to_string(),
            path,
            query: url.as_ref().map(pairs).unwrap_or_default(),
            form,
            body: request.body().clone(),
            token: header("authorization").strip_prefix("Bearer ").unwrap_or_default().to_owned(),
            agent: header("user-agent"),
            base,
            name: "unknown",
            machine: String::new(),
        }
    }

    /// The path, to be matched.
    pub fn segments(&self) -> Vec<&str> {
        self.path.iter().map(String::as_str).collect()
    }

    /// Method and path, to be matched.
    pub fn route(&self) -> Vec<String> {
        std::iter::once(&self.method).chain(&self.path).cloned().collect()
    }

    /// The host, if it is one of a cloud and not a port of this machine.
    pub fn cloud_host(&self) -> Option<&str> {
        let host = self.base.split("://").nth(1)?;
        (!host.starts_with("127.0.0.1")).then_some(host)
    }

    /// The first parameter of the query that is none of these.
    pub fn unknown(&self, known: &[&str]) -> Option<&str> {
        self.query.keys().map(String::as_str).find(|key| !known.contains(key))
    }

    /// A parameter of the query.
    pub fn parameter(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }
}
