//! Counts what the controller asks of hub, spoke and EC2, and how large it is.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::World;

/// As the controller names itself.
const AGENT: &str = "hibernate-controller/";

/// Counts from a moment on.
pub struct Meter {
    world: World,
    hub: usize,
    spoke: usize,
}

/// What was counted.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Writes of `ClusterDeployment`s and their status.
    pub hub_writes: f64,
    /// Requests to the spoke that it answered; a watch counts once.
    pub spoke: f64,
    /// Calls of EC2.
    pub ec2: f64,
    /// Those of them that list.
    pub describes: f64,
}

impl Meter {
    /// Begins to count.
    ///
    /// # Errors
    /// When a log cannot be read.
    pub async fn begin(world: &World) -> Result<Self> {
        world.ec2().reset_calls().await?;
        let (hub, spoke) = (lines(world, "hub").await?.len(), lines(world, "spoke-0").await?.len());
        Ok(Self { world: world.clone(), hub, spoke })
    }

    /// What was counted since.
    ///
    /// # Errors
    /// When a log cannot be read.
    pub async fn read(&self) -> Result<Counts> {
        let written = |line: &&String| {
            let Ok(event) = serde_json::from_str::<Value>(line) else { return false };
            let verb = event["verb"].as_str().unwrap_or_default();
            is_ours(&event)
                && matches!(verb, "patch" | "update")
                && event["objectRef"]["resource"] == "clusterdeployments"
        };
        let asked = |line: &&String| {
            let Ok(event) = serde_json::from_str::<Value>(line) else { return false };
            // A watch has two entries: one when it begins, one when it ends.
            let counted = event["verb"] != "watch" || event["stage"] == "ResponseStarted";
            is_ours(&event) && counted && event["stage"] != "Panic"
        };
        let hub = lines(&self.world, "hub").await?;
        let spoke = lines(&self.world, "spoke-0").await?;
        let calls = self.world.ec2().calls().await?;
        let describes = calls.iter().filter(|call| call.action.starts_with("Describe")).count();
        Ok(Counts {
            hub_writes: count(hub[self.hub.min(hub.len())..].iter().filter(written).count()),
            spoke: count(spoke[self.spoke.min(spoke.len())..].iter().filter(asked).count()),
            ec2: count(calls.len()),
            describes: count(describes),
        })
    }
}

fn is_ours(event: &Value) -> bool {
    event["userAgent"].as_str().is_some_and(|agent| agent.starts_with(AGENT))
}

/// The lines of an audit log, after the API server has had time to write them.
async fn lines(world: &World, server: &str) -> Result<Vec<String>> {
    tokio::time::sleep(Duration::from_millis(300)).await;
    let path = world.file().logs.join(format!("{server}-audit.jsonl"));
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// Counts are small.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub fn count(number: usize) -> f64 {
    number as f64
}

/// Memory of the controller in MB: all of it at its peak, all of it now, and what is its own.
///
/// # Errors
/// When no controller runs.
pub async fn memory(world: &World) -> Result<[f64; 3]> {
    let now = world.now().await?;
    let pid = now.pids.get("controller").context("no controller runs")?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("read the controller's status")?;
    let field = |name: &str| -> Result<f64> {
        let line = status.lines().find(|line| line.starts_with(name)).with_context(|| format!("no {name}"))?;
        let kilobytes: f64 = line.split_whitespace().nth(1).context("no number")?.parse()?;
        Ok(kilobytes / 1024.0)
    };
    Ok([field("VmHWM:")?, field("VmRSS:")?, field("RssAnon:")?])
}
