//! The task that keeps the picture: one watch, and a list of versions to compare it with.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::stream::BoxStream;
use jiff::Timestamp;
use kube::api::ListParams;
use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use shared::fdb::admission::Cluster;
use shared::fdb::api::{FoundationDBCluster, FoundationDBClusterSpec, Routing};
use tokio::time::MissedTickBehavior;

use super::Clusters;

/// How often versions are listed.
const POLL: Duration = Duration::from_secs(2);
/// How long such a list may take.
const POLL_TIMEOUT: Duration = Duration::from_secs(3);
/// How soon it is tried again after a failure.
const AGAIN: Duration = Duration::from_secs(1);
/// Lists with which the watch may be behind before it is opened again.
const PATIENCE: u32 = 2;
/// How often it is tried where the kind does not exist, or may not be listed.
const ABSENT: Duration = Duration::from_secs(10);
/// How long a watch may be silent. The API server ends each after less.
const WATCH_TIMEOUT: Duration = Duration::from_secs(320);
/// Clusters of one page of the first list.
const PAGE: u32 = 50;

type Guarded = DeserializeGuard<FoundationDBCluster>;
type Watch = BoxStream<'static, watcher::Result<watcher::Event<Guarded>>>;

/// Names and versions of all clusters, and when they were asked for.
struct Listed {
    at: (Instant, Timestamp),
    versions: HashMap<String, String>,
    /// Whether the watch has caught up with it, and that has been told.
    told: bool,
}

/// Follows the clusters for ever. Trouble is kept for the denials and logged when it is new.
pub async fn follow(mut config: kube::Config, clusters: Arc<Clusters>) {
    config.default_retry = false;
    config.read_timeout = Some(WATCH_TIMEOUT);
    let client = match Client::try_from(config) {
        Ok(client) => client,
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "FoundationDBClusters are not watched");
            return clusters.absent(super::NO_HUB);
        }
    };
    let mut follower = Follower { api: Api::all(client.clone()), guarded: Api::all(client), clusters, said: None };
    loop {
        follower.wait_for_kind().await;
        follower.keep_up().await;
    }
}

struct Follower {
    api: Api<FoundationDBCluster>,
    guarded: Api<Guarded>,
    clusters: Arc<Clusters>,
    /// The trouble that was logged last.
    said: Option<String>,
}

impl Follower {
    /// Returns once the kind can be listed: where it cannot, no watch is worth a try.
    async fn wait_for_kind(&mut self) {
        while let Err(pause) = self.list().await {
            tokio::time::sleep(pause).await;
        }
    }

    /// Keeps one watch until it has fallen behind.
    async fn keep_up(&mut self) {
        let config = watcher::Config::default().page_size(PAGE);
        let mut watch: Watch = watcher(self.guarded.clone(), config).boxed();
        let mut first = HashMap::new();
        let mut listed: Option<Listed> = None;
        let mut behind = 0;
        let mut poll = tokio::time::interval(POLL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                event = watch.next() => match event {
                    Some(Ok(event)) => self.take(event, &mut first),
                    Some(Err(error)) => {
                        tracing::debug!(error = &error as &dyn std::error::Error, "watch of FoundationDBClusters");
                        tokio::time::sleep(AGAIN).await;
                    }
                    None => return,
                },
                _ = poll.tick() => {
                    let lags = |listed: &Listed| {
                        !self.clusters.covers(&listed.versions) || self.clusters.knows_more_than(&listed.versions)
                    };
                    behind = if listed.as_ref().is_some_and(lags) { behind + 1 } else { 0 };
                    if behind == 1 {
                        self.clusters.doubt("its watch does not keep up");
                    }
                    if behind > PATIENCE {
                        tracing::warn!("the watch of FoundationDBClusters has fallen behind: it is opened again");
                        return;
                    }
                    match self.list().await {
                        Ok(new) => listed = Some(new),
                        Err(pause) if pause == ABSENT => return,
                        Err(_) => {}
                    }
                }
            }
            let covered = |listed: &&mut Listed| !listed.told && self.clusters.covers(&listed.versions);
            if let Some(listed) = listed.as_mut().filter(covered) {
                self.clusters.heard(listed.at);
                listed.told = true;
            }
        }
    }

    /// Takes in what the watch tells.
    fn take(&self, event: watcher::Event<Guarded>, first: &mut HashMap<String, Cluster>) {
        match event {
            watcher::Event::Init => first.clear(),
            watcher::Event::InitApply(cluster) => first.extend(self.clusters.slim(&readable(cluster))),
            watcher::Event::InitDone => self.clusters.replace(std::mem::take(first)),
            watcher::Event::Apply(cluster) => self.clusters.apply(&readable(cluster)),
            watcher::Event::Delete(cluster) => {
                if let Some(uid) = cluster.uid() {
                    self.clusters.remove(&uid);
                }
            }
        }
    }

    /// Lists names and versions; if that fails, says when to try again.
    async fn list(&mut self) -> Result<Listed, Duration> {
        let at = (Instant::now(), Timestamp::now());
        let all = ListParams::default();
        let list = self.api.list_metadata(&all);
        let (trouble, pause) = match tokio::time::timeout(POLL_TIMEOUT, list).await {
            Ok(Ok(list)) => {
                self.said = None;
                let version = |item: &kube::core::PartialObjectMeta<_>| Some((item.uid()?, item.resource_version()?));
                return Ok(Listed { at, versions: list.items.iter().filter_map(version).collect(), told: false });
            }
            // By its code: of a group that it does not serve, an API server says so in plain text, without a reason.
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
                ("FoundationDBClusters are not defined on this cluster".to_owned(), ABSENT)
            }
            Ok(Err(kube::Error::Api(status))) if status.is_forbidden() => {
                ("the webhook may not list FoundationDBClusters: see its ClusterRole".to_owned(), ABSENT)
            }
            Ok(Err(kube::Error::Api(status))) => {
                (format!("FoundationDBClusters cannot be listed: {}", status.message), AGAIN)
            }
            Ok(Err(error)) => (format!("FoundationDBClusters cannot be listed: {error}"), AGAIN),
            Err(_) => (format!("FoundationDBClusters could not be listed within {POLL_TIMEOUT:?}"), AGAIN),
        };
        if pause == ABSENT {
            self.clusters.absent(&trouble);
        } else {
            self.clusters.lost(&trouble);
        }
        if self.said.as_ref() != Some(&trouble) {
            tracing::info!("{trouble}");
            self.said = Some(trouble);
        }
        Err(pause)
    }
}

/// A cluster that has not the form of its kind still guards its volumes: by default labels, and with Services.
fn readable(cluster: Guarded) -> FoundationDBCluster {
    cluster.0.unwrap_or_else(|invalid| FoundationDBCluster {
        metadata: invalid.metadata,
        spec: FoundationDBClusterSpec {
            routing: Some(Routing { public_ip_source: Some("service".to_owned()) }),
            ..FoundationDBClusterSpec::default()
        },
        status: None,
    })
}

#[cfg(test)]
mod tests {
    use http::{Request, Response, StatusCode};
    use kube::client::Body;
    use tower::BoxError;

    use super::*;

    #[tokio::test]
    async fn a_hub_without_the_kind_is_not_waited_for() {
        let answers = [
            (StatusCode::NOT_FOUND, "404 page not found\n", true), // of a group that is not served
            (StatusCode::FORBIDDEN, r#"{"status":"Failure","reason":"Forbidden","code":403,"message":"no"}"#, true),
            (StatusCode::TOO_MANY_REQUESTS, "storage is (re)initializing", false),
        ];
        for (code, text, ready) in answers {
            let answer = move |_: Request<Body>| {
                let mut response = Response::new(Body::from(text.as_bytes().to_vec()));
                *response.status_mut() = code;
                std::future::ready(Ok::<_, BoxError>(response))
            };
            let client = Client::new(tower::service_fn(answer), "default");
            let clusters = Arc::new(Clusters::new(Duration::ZERO));
            let (api, guarded) = (Api::all(client.clone()), Api::all(client));
            let mut follower = Follower { api, guarded, clusters: Arc::clone(&clusters), said: None };
            assert!(clusters.ready().is_err());
            let pause = follower.list().await.err();
            assert_eq!((clusters.ready().is_ok(), pause == Some(ABSENT)), (ready, ready), "{code}");
        }
    }
}
