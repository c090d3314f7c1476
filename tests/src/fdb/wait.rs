//! Waiting for a database to be as a test wants it.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use fdb_simulator::operator::api::{Group, RESOURCES_TERMINATING, Status};
use tokio::time::Instant;

use super::handle::FdbCluster;
use crate::supervisor::clock::Clock;

/// From one look to the next: shorter than the waits of an operator, which are divided by its speed.
const PERIOD: Duration = Duration::from_millis(100);

impl FdbCluster {
    /// Waits until a probe finds something.
    pub async fn wait<T>(
        &self,
        what: &str,
        within: Duration,
        mut probe: impl AsyncFnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(found) = probe().await.with_context(|| format!("wait for {what}"))? {
                return Ok(found);
            }
            ensure!(Instant::now() <= deadline, "no {what} within {within:?}\n{}", self.describe().await);
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Waits until the operator calls the newest generation reconciled, with nothing pending.
    pub async fn wait_reconciled(&self, within: Duration) -> Result<Status> {
        self.wait("reconciled cluster", within, async || {
            let cluster = self.cluster().await?;
            let generation = cluster.generation();
            let only = [("reconciled".to_owned(), generation)].into();
            Ok((cluster.status.generations == only).then_some(cluster.status))
        })
        .await
    }

    /// Waits until a removed group is as a denied DELETE leaves it: marked, excluded, without a Pod.
    pub async fn wait_suspended(&self, id: &str, within: Duration) -> Result<Group> {
        self.wait(&format!("suspended {id}"), within, async || {
            let group = self.group(id).await?.filter(Group::is_leaving);
            let terminating = group.filter(|group| group.since(RESOURCES_TERMINATING).is_some());
            Ok(if self.pod(id).await?.is_none() { terminating } else { None })
        })
        .await
    }

    /// Waits until the operator is idle: its last pass ended without a timer, and no pass has started for this long.
    pub async fn wait_asleep(&self, idle: Duration, within: Duration) -> Result<u64> {
        let begun = Clock::now();
        self.wait("sleeping operator", within, async || {
            let passes = self.log().await?.passes;
            let is_idle = |since: f64| Clock::now() - since.max(begun) >= idle.as_secs_f64();
            let last = passes.last().filter(|pass| pass.again.is_none() && is_idle(pass.ended));
            Ok(last.map(|pass| pass.number))
        })
        .await
    }

    async fn describe(&self) -> String {
        let mut lines = Vec::new();
        if let Ok(status) = self.status().await {
            lines.push(format!("generations {:?}, health {:?}", status.generations, status.health));
            lines.extend(status.process_groups.iter().take(20).map(|group| format!("  {group:?}")));
        }
        if let Ok(log) = self.log().await {
            lines.extend(log.passes.iter().rev().take(8).rev().map(|pass| format!("  {pass:?}")));
        }
        lines.join("\n")
    }
}
