//! Encryption at rest: row 65. A new key has KKP roll the API server, and then rewrite every object by a Job.

use anyhow::Result;
use serde_json::{Value, json};

use super::is_paused;
use crate::kkp::options::wait;
use crate::kkp::registry::UserCluster;
use crate::kkp::text;
use crate::supervisor::clock::Clock;

/// From a new key to an API server that knows it.
const PENDING: f64 = 20.0;

/// Between two passes.
#[derive(Default)]
pub(super) struct Memory {
    /// Since when the API server rolls.
    pending_since: Option<f64>,
    job: Option<Job>,
}

/// A Job with a `backoffLimit` of 0.
struct Job {
    until: f64,
    failed: bool,
}

/// One pass.
pub(super) async fn tick(cluster: &UserCluster, memory: &mut Memory) -> Result<()> {
    let now = Clock::now();
    if let Some(job) = memory.job.as_mut().filter(|job| now < job.until) {
        // Whatever KKP does: it needs the API server.
        job.failed |= !cluster.answers();
    }
    let Some(object) = cluster.cluster().filter(|object| !is_paused(object)) else { return Ok(()) };
    let key = object.data.pointer("/spec/encryptionConfiguration/secretbox/keys/0/name").and_then(Value::as_str);
    let Some(key) = key else { return Ok(()) };
    let active = text(&object, "/status/encryption/activeKey");
    let (phase, active) = match text(&object, "/status/encryption/phase") {
        "" | "Active" if active != key => ("Pending", active),
        "Pending" if now - *memory.pending_since.get_or_insert(now) >= wait(PENDING) => {
            memory.pending_since = None;
            let takes = cluster.settings().encryption.0.as_secs_f64();
            memory.job = Some(Job { until: now + takes, failed: false });
            ("EncryptionNeeded", active)
        }
        "EncryptionNeeded" => match &memory.job {
            Some(job) if job.failed => ("Failed", active),
            Some(job) if now >= job.until => ("Active", key),
            _ => return Ok(()),
        },
        // KKP never leaves `Failed`.
        _ => return Ok(()),
    };
    cluster.call("kkp", format!("encryption: {phase}"));
    let status = json!({ "phase": phase, "activeKey": active, "encryptedResources": ["secrets"] });
    cluster.patch_status(&json!({ "encryption": status })).await
}
