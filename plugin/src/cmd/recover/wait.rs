//! What a recovery waits for: the end of a pass of the operator, its Pods, and its report.

use std::pin::pin;
use std::time::Duration;

use futures::future::select;
use hub::Resource;
use hub::error::HubError;
use hub::exec::POD;
use hub::watch::Scope;
use serde_json::Value;
use shared::kinds::FOUNDATIONDB_CLUSTER;
use tokio::time::{Instant, sleep, timeout};

use super::steps::{PAUSE, Run};
use crate::cmd::recover::render;
use crate::error::Problem;
use crate::read::fdb::DatabaseSnapshot;
use crate::recover::Missing;
use crate::recover::object::version;
use crate::recover::wake::touch;

/// Without events everything is read again after this.
const SILENCE: Duration = Duration::from_secs(10);
/// How often the cluster is read while the operator settles.
const TICK: Duration = Duration::from_millis(250);
/// How often the cluster is read while the operator's report is awaited.
const POLL: Duration = Duration::from_secs(1);
/// After this, the status is edited even if it still changes: the edit has a precondition, and is verified later.
const RESTLESS: Duration = Duration::from_mins(1);

impl Run<'_> {
    /// The cluster as it is now.
    pub(super) async fn object(&self) -> Result<Value, HubError> {
        self.hub.get(Resource::preferred(&FOUNDATIONDB_CLUSTER.kind), self.namespace, self.name).await
    }

    /// Waits until the status has not changed for a while: the operator's pass in progress has ended.
    pub(super) async fn settled(&self) -> Result<(), Problem> {
        let begin = Instant::now();
        let (mut status, mut since) = (None, Instant::now());
        while since.elapsed() < self.settle && begin.elapsed() < RESTLESS.max(self.settle * 3) {
            sleep(TICK.min(self.settle)).await;
            let object = match self.object().await {
                Ok(object) => object,
                Err(error) if error.is_transient() => continue,
                Err(HubError::NoObject { .. }) => return Ok(()), // which the next look finds, too
                Err(error) => return Err(error.into()),
            };
            let found = object.get("status").cloned();
            if found != status {
                (status, since) = (found, Instant::now());
            }
        }
        Ok(())
    }

    /// Has the operator reconcile once more.
    pub(super) async fn wake(&self, observation: &DatabaseSnapshot, missing: &[Missing]) {
        if let Some(edit) = touch(&observation.facts(), missing) {
            // Who wrote in between has woken it; after another failure the next wake-up follows.
            let _ = self.edit(&[edit]).await;
        }
    }

    /// Says what is missing if that is news, and waits for something to happen to the Pods or the cluster, or for
    /// `limit`.
    pub(super) async fn await_news(
        &self,
        observation: &DatabaseSnapshot,
        missing: &[Missing],
        limit: Option<Duration>,
    ) {
        let text = render::missing(missing);
        if *self.state.borrow() != text {
            self.say(&text);
        }
        let labels = observation.cluster.selector();
        let scope = Scope { namespace: Some(self.namespace), labels: &labels, ..Scope::of(Resource::preferred(&POD)) };
        let mut watcher = self.hub.watcher_from(scope, &observation.pods_version);
        let pods = async {
            if watcher.next().await.is_err() {
                sleep(PAUSE).await;
            }
        };
        let report = async {
            loop {
                sleep(POLL).await;
                if self.object().await.is_ok_and(|object| version(&object) != version(&observation.object)) {
                    return;
                }
            }
        };
        let limit = limit.map_or(SILENCE, |limit| limit.min(SILENCE));
        let _ = timeout(limit, select(pin!(pods), pin!(report))).await;
    }
}
