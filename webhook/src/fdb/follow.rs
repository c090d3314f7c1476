//! The task that fills the cache: one watch, and a list of versions to compare it with.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fair::{Capacity, MemoryLimit, MemorySizes};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use jiff::Timestamp;
use kube::api::ListParams;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use server::{WatchMemory, hub};
use shared::fdb::admission::Cluster;
use shared::fdb::api::FoundationDBCluster;
use shared::guarded::Named;
use shared::text::sanitize_chain;
use tokio::time::MissedTickBehavior;

use super::Clusters;

/// How often the names and versions are listed.
const LIST_INTERVAL: Duration = Duration::from_secs(2);
/// How long such a list may take.
const LIST_TIMEOUT: Duration = Duration::from_secs(3);
/// Pause after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Number of lists by which the watch may be behind before it is restarted.
const LAG_THRESHOLD: u32 = 2;
/// How often to retry where the kind does not exist or the webhook may not list it.
const UNAVAILABLE_RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// Page size of the initial list.
const PAGE_SIZE: u32 = 50;

/// What is said where the account has no right to the kind.
const FORBIDDEN: &str = "the webhook may not list FoundationDBClusters: see its ClusterRole";

/// Memory for what is kept of them, in all and of one namespace: the webhook has 256 MiB.
const MEMORY: MemorySizes = MemorySizes::of_tenants(Capacity { total: 96 << 20, per_tenant: 64 << 20 });

type Guarded = shared::guarded::Guarded<FoundationDBCluster>;
type Watch = BoxStream<'static, watcher::Result<watcher::Event<Guarded>>>;

/// Names and versions of all clusters, and when the list was requested.
struct Listed {
    at: (Instant, Timestamp),
    versions: HashMap<String, String>,
    /// Whether the watch has caught up with it and the sync is recorded.
    recorded: bool,
}

/// Fills the cache forever. Denials quote the last error; the log has each new error once.
pub async fn follow(config: kube::Config, clusters: Arc<Clusters>) {
    let client = match Client::try_from(config) {
        Ok(client) => client,
        Err(error) => {
            tracing::warn!(error = sanitize_chain(&error), "cannot watch FoundationDBClusters");
            return clusters.unavailable(super::NO_HUB);
        }
    };
    let memory = WatchMemory::new(MemoryLimit::new(MEMORY));
    let mut follower = Follower { client: hub::bounded(client), clusters, memory, logged: None };
    loop {
        follower.wait_for_kind().await;
        follower.keep_up().await;
    }
}

struct Follower {
    client: Client,
    clusters: Arc<Clusters>,
    memory: WatchMemory,
    /// The last error in the log.
    logged: Option<String>,
}

impl Follower {
    /// Waits until the kind can be listed. Before that, every watch fails.
    async fn wait_for_kind(&mut self) {
        loop {
            let may_list = tokio::time::timeout(LIST_TIMEOUT, hub::may_list::<FoundationDBCluster>(&self.client)).await;
            let listed = if may_list.unwrap_or(true) {
                self.list().await.map(drop)
            } else {
                Err(self.failed(FORBIDDEN.to_owned(), UNAVAILABLE_RETRY_INTERVAL))
            };
            let Err(pause) = listed else { return };
            tokio::time::sleep(pause).await;
        }
    }

    /// Runs one watch until it falls behind.
    async fn keep_up(&mut self) {
        let config = watcher::Config::default().page_size(PAGE_SIZE);
        let mut watch: Watch = watcher(Api::all(self.client.clone()), config).boxed();
        let mut first = HashMap::new();
        let mut listed: Option<Listed> = None;
        let mut behind = 0;
        let mut poll = tokio::time::interval(LIST_INTERVAL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                event = watch.next() => match event {
                    Some(Ok(event)) => self.apply(event, &mut first),
                    Some(Err(error)) => {
                        tracing::debug!(error = sanitize_chain(&error), "watch of FoundationDBClusters");
                        tokio::time::sleep(RETRY_INTERVAL).await;
                    }
                    None => return,
                },
                _ = poll.tick() => {
                    let lags = |listed: &Listed| {
                        !self.clusters.covers(&listed.versions) || self.clusters.knows_more_than(&listed.versions)
                    };
                    behind = if listed.as_ref().is_some_and(lags) { behind + 1 } else { 0 };
                    if behind == 1 {
                        self.clusters.invalidate("the watch lags behind");
                    }
                    if behind > LAG_THRESHOLD {
                        tracing::warn!("the watch of FoundationDBClusters lags behind: reopening it");
                        return;
                    }
                    match self.list().await {
                        Ok(new) => listed = Some(new),
                        Err(pause) if pause == UNAVAILABLE_RETRY_INTERVAL => return,
                        Err(_) => {}
                    }
                }
            }
            let covered = |listed: &&mut Listed| !listed.recorded && self.clusters.covers(&listed.versions);
            if let Some(listed) = listed.as_mut().filter(covered) {
                self.clusters.sync(listed.at);
                listed.recorded = true;
            }
        }
    }

    /// Applies a watch event.
    fn apply(&mut self, event: watcher::Event<Guarded>, first: &mut HashMap<String, Cluster>) {
        let weighed = event.modify(|object| object.1 = object.0.as_ref().map_or(object.1, Cluster::weight));
        match self.memory.charge(weighed) {
            watcher::Event::Init => first.clear(),
            watcher::Event::InitApply(cluster) => first.extend(self.clusters.slim(&cluster)),
            watcher::Event::InitDone => self.clusters.replace(std::mem::take(first)),
            watcher::Event::Apply(cluster) => self.clusters.apply(&cluster),
            watcher::Event::Delete(cluster) => {
                if let Some(uid) = cluster.uid() {
                    self.clusters.remove(&uid);
                }
            }
        }
    }

    /// Lists names and versions.
    ///
    /// # Errors
    /// The pause before the next try.
    async fn list(&mut self) -> Result<Listed, Duration> {
        let at = (Instant::now(), Timestamp::now());
        let all = ListParams::default();
        // A cluster that cannot be read has a version, too.
        let version =
            |one: shared::guarded::Guarded<Named<FoundationDBCluster>>| Ok((one.uid(), one.resource_version()));
        let list = hub::names(&self.client, None, &all, version);
        let (trouble, pause) = match tokio::time::timeout(LIST_TIMEOUT, list).await {
            Ok(Ok(list)) => {
                self.logged = None;
                let versions = list.into_iter().filter_map(|(uid, version)| uid.zip(version)).collect();
                return Ok(Listed { at, versions, recorded: false });
            }
            // By code: for an unknown API group, the API server answers in plain text without a reason.
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
                ("FoundationDBClusters are not defined on this cluster".to_owned(), UNAVAILABLE_RETRY_INTERVAL)
            }
            Ok(Err(kube::Error::Api(status))) if status.is_forbidden() => {
                (FORBIDDEN.to_owned(), UNAVAILABLE_RETRY_INTERVAL)
            }
            Ok(Err(kube::Error::Api(status))) => {
                (format!("FoundationDBClusters cannot be listed: {}", status.message), RETRY_INTERVAL)
            }
            Ok(Err(error)) => (format!("FoundationDBClusters cannot be listed: {error}"), RETRY_INTERVAL),
            Err(_) => (format!("FoundationDBClusters could not be listed within {LIST_TIMEOUT:?}"), RETRY_INTERVAL),
        };
        Err(self.failed(trouble, pause))
    }

    /// Notes that there is no list, and why; the pause before the next one.
    fn failed(&mut self, trouble: String, pause: Duration) -> Duration {
        if pause == UNAVAILABLE_RETRY_INTERVAL {
            self.clusters.unavailable(&trouble);
        } else {
            self.clusters.fail(&trouble);
        }
        if self.logged.as_ref() != Some(&trouble) {
            tracing::info!("{trouble}");
            self.logged = Some(trouble);
        }
        pause
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use http::{Request, Response, StatusCode};
    use kube::client::Body;
    use tower::BoxError;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_this_account_may_not_list_is_asked_for_only_once_it_may() {
        let granted = Arc::new(AtomicBool::new(false));
        let may = Arc::clone(&granted);
        let answer = move |request: Request<Body>| {
            let (allowed, is_review) =
                (may.load(Ordering::Relaxed), request.uri().path().ends_with("/selfsubjectaccessreviews"));
            assert!(is_review || allowed, "{}", request.uri());
            let review = serde_json::json!({ "status": { "allowed": allowed } });
            let list = serde_json::json!({ "kind": "FoundationDBClusterList", "metadata": {}, "items": [] });
            let text = if is_review { review } else { list }.to_string();
            std::future::ready(Ok::<_, BoxError>(Response::new(Body::from(text.into_bytes()))))
        };
        let client = Client::new(tower::service_fn(answer), "default");
        let clusters = Arc::new(Clusters::new(Duration::ZERO));
        let memory = WatchMemory::new(MemoryLimit::default());
        let mut follower = Follower { client, clusters: Arc::clone(&clusters), memory, logged: None };
        let waits = tokio::time::timeout(Duration::from_mins(1), follower.wait_for_kind()).await;
        assert!(waits.is_err() && clusters.ready().is_ok(), "nothing waits for what is never there");
        granted.store(true, Ordering::Relaxed);
        follower.wait_for_kind().await;
    }

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
            let memory = WatchMemory::new(MemoryLimit::default());
            let mut follower = Follower { client, clusters: Arc::clone(&clusters), memory, logged: None };
            assert!(clusters.ready().is_err());
            let pause = follower.list().await.err();
            assert_eq!((clusters.ready().is_ok(), pause == Some(UNAVAILABLE_RETRY_INTERVAL)), (ready, ready), "{code}");
        }
    }
}
