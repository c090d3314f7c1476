//! Counts what the controller asks of hub, spoke and EC2.

use anyhow::Result;
use serde_json::Value;

use crate::World;

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
        let (hub, spoke) = (world.audited("hub").await?.len(), world.audited("spoke-0").await?.len());
        Ok(Self { world: world.clone(), hub, spoke })
    }

    /// What was counted since.
    ///
    /// # Errors
    /// When a log cannot be read.
    pub async fn read(&self) -> Result<Counts> {
        let written = |event: &&Value| {
            let verb = event["verb"].as_str().unwrap_or_default();
            matches!(verb, "patch" | "update") && event["objectRef"]["resource"] == "clusterdeployments"
        };
        let asked = |event: &&Value| {
            // A watch has two entries: one when it begins, one when it ends.
            let counted = event["verb"] != "watch" || event["stage"] == "ResponseStarted";
            counted && event["stage"] != "Panic"
        };
        let (hub, spoke) = (self.world.audited("hub").await?, self.world.audited("spoke-0").await?);
        let calls = self.world.ec2().calls().await?;
        let describes = calls.iter().filter(|call| call.action.starts_with("Describe")).count();
        Ok(Counts {
            hub_writes: count(hub.iter().skip(self.hub).filter(written).count()),
            spoke: count(spoke.iter().skip(self.spoke).filter(asked).count()),
            ec2: count(calls.len()),
            describes: count(describes),
        })
    }
}

/// Counts are small.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub fn count(number: usize) -> f64 {
    number as f64
}
