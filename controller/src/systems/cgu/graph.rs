//! Images of releases, from update graphs (row 7). Policies name the graph: only origins that the administrator allows are
//! contacted, and their answers are bounded.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body;
use http::header::ACCEPT;
use http::{Request, Uri};
use kube::client::Body;
use kube::{Client, Config};
use parking_lot::Mutex;
use serde::Deserialize;
use shared::cgu::version::Release;
use shared::read::{self, Limits};
use shared::text::{first_line, sanitize};
use tokio::time::Instant;

use crate::runtime::slot;

const TIMEOUT: Duration = Duration::from_secs(5);
const MAX_BYTES: usize = 1 << 20;
/// How long an image is cached, and how long a failure.
const TTL: [Duration; 2] = [Duration::from_mins(10), Duration::from_mins(1)];
/// Limit of the cache.
const MAX_RELEASES: usize = 1_000;
/// Bytes of a reference of an image.
const MAX_IMAGE: usize = 512;

pub struct Graphs {
    origins: Vec<Uri>,
    cache: Mutex<BTreeMap<Release, (Instant, Image)>>,
}

/// The image of a release, or why there is none.
type Image = Result<String, String>;

#[derive(Deserialize)]
struct Graph {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    version: String,
    #[serde(default)]
    payload: String,
}

impl Graphs {
    /// `origins`: those that may be contacted.
    pub fn new(origins: Vec<Uri>) -> Self {
        Self { origins, cache: Mutex::default() }
    }

    /// All releases in the cache.
    pub(super) fn images(&self) -> BTreeMap<Release, Image> {
        let mut cache = self.cache.lock();
        cache.retain(|_, (at, found)| at.elapsed() < TTL[usize::from(found.is_err())]);
        cache.iter().map(|(release, (_, found))| (release.clone(), found.clone())).collect()
    }

    /// Looks a release up, unless it is cached.
    pub(super) async fn look_up(&self, release: &Release) {
        if self.images().contains_key(release) {
            return;
        }
        let url = format!("{}?channel={}", release.upstream, release.channel);
        let response = slot::outside(tokio::time::timeout(TIMEOUT, self.request(release, &url))).await;
        let timed_out = |_| Err(format!("unable to request update graph on url {url}: no answer within {TIMEOUT:?}"));
        let found = response.unwrap_or_else(timed_out).map_err(|error| sanitize(&error));
        let mut cache = self.cache.lock();
        if cache.len() >= MAX_RELEASES {
            cache.clear();
        }
        cache.insert(release.clone(), (Instant::now(), found));
    }

    async fn request(&self, release: &Release, url: &str) -> Image {
        let failed = |error: &dyn std::fmt::Display| format!("unable to request update graph on url {url}: {error}");
        let uri: Uri = url.parse().map_err(|error: http::uri::InvalidUri| failed(&error))?;
        let is_of = |origin: &&Uri| origin.scheme() == uri.scheme() && origin.authority() == uri.authority();
        let Some(origin) = self.origins.iter().find(is_of) else {
            let origins: Vec<String> = self.origins.iter().map(ToString::to_string).collect();
            return Err(failed(&format!("its origin is not one of --cgu-graph: {}", origins.join(", "))));
        };
        let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let request = Request::get(path).header(ACCEPT, "application/json").body(Body::empty());
        let request = request.map_err(|error| failed(&error))?;
        let mut config = Config::new(origin.clone());
        (config.connect_timeout, config.read_timeout) = (Some(TIMEOUT), Some(TIMEOUT));
        let client = Client::try_from(config).map_err(|error| failed(&first_line(&error)))?;
        let answer = client.send(request).await.map_err(|error| failed(&first_line(&error)))?;
        // Redirects are not followed: they may lead to other origins.
        if answer.status() != http::StatusCode::OK {
            return Err(format!("error response from update graph url {url}: {}", answer.status().as_u16()));
        }
        let body = body::to_bytes(body::Body::new(answer.into_body()), MAX_BYTES).await;
        let text = body.map_err(|error| format!("unable to read body from response: {error}"))?;
        let graph = read::json::<Graph>(&text, &Limits::answer(text.len()));
        let graph = graph.map_err(|error| format!("unable to unmarshal body: {error}"))?.value;
        let is_image = |text: &str| {
            !text.is_empty() && text.len() <= MAX_IMAGE && text.bytes().all(|byte| byte.is_ascii_graphic())
        };
        let found = graph.nodes.into_iter().find(|node| node.version == release.version && is_image(&node.payload));
        found
            .map(|node| node.payload)
            .ok_or_else(|| format!("unable to find version {} on update graph on url {url}", release.version))
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::response::Redirect;
    use axum::routing::get;
    use serde_json::json;

    use super::*;

    /// A server on loopback, and its origin.
    async fn server(app: Router) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        origin
    }

    #[tokio::test]
    async fn a_release_is_looked_up_where_it_is_allowed() {
        let graph = json!({ "nodes": [
            { "version": "4.16.1", "payload": "quay.io/release@sha256:1", "metadata": {} },
            { "version": "4.16.2", "payload": "" },
            { "version": "4.16.3", "payload": "a\nb" },
        ], "edges": [[0, 1]] });
        let large = json!({ "nodes": [], "filler": "x".repeat(MAX_BYTES) });
        let app = Router::new()
            .route("/graph", get(async move || axum::Json(graph)))
            .route("/large", get(async move || axum::Json(large)))
            .route("/moved", get(async || Redirect::to("/graph")))
            .route("/hangs", get(async || std::future::pending::<()>().await));
        let origin = server(app).await;
        let graphs = Graphs::new(vec![origin.parse().unwrap()]);
        let ask = async |upstream: &str, version: &str| {
            let (upstream, version) = (upstream.to_owned(), version.to_owned());
            let release = Release { upstream, version, channel: "stable-4.16".to_owned(), ..Release::default() };
            graphs.look_up(&release).await;
            graphs.images()[&release].clone()
        };
        assert_eq!(ask(&format!("{origin}/graph"), "4.16.1").await, Ok("quay.io/release@sha256:1".to_owned()));
        for (upstream, version, expected) in [
            (format!("{origin}/graph"), "4.16.2", "unable to find version 4.16.2"),
            (format!("{origin}/graph"), "4.16.3", "unable to find version 4.16.3"),
            (format!("{origin}/large"), "4.16.1", "unable to read body"),
            (format!("{origin}/moved"), "4.16.1", ": 303"),
            ("http://169.254.169.254/latest".to_owned(), "4.16.1", "its origin is not one of --cgu-graph"),
            (origin.replace("http", "https") + "/graph", "4.16.1", "its origin is not one of --cgu-graph"),
            ("file:///etc/passwd".to_owned(), "4.16.1", "unable to request update graph"),
        ] {
            let error = ask(&upstream, version).await.unwrap_err();
            assert!(error.contains(expected), "{upstream}: {error}");
        }
        let begun = std::time::Instant::now();
        let error = ask(&format!("{origin}/hangs"), "4.16.1").await.unwrap_err();
        assert!(error.contains("no answer within 5s") && begun.elapsed() < 2 * TIMEOUT, "{error}");
    }
}
