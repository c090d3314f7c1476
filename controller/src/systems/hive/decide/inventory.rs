//! The cluster's instances, or the plan to report that they cannot be listed.

use shared::cloud::CloudErrorKind::{self, Capacity, NotLeader, Throttled, Unavailable};
use shared::cloud::Inventory;
use shared::power::Power;

use shared::hive::conditions::{HIBERNATING, PowerStatus, READY, reason};

use super::facts::{Facts, backoff};
use super::plan::Plan;

/// Number of consecutive failed lists after which a steady cluster reports them.
const TRANSIENT_FAILURE_THRESHOLD: u32 = 3;

impl Facts<'_> {
    /// The instances, or a plan that reports why they are unknown. `failed` makes the status for an error that does not
    /// pass.
    pub(super) fn machines(&self, failed: impl FnOnce(&str) -> PowerStatus) -> Result<&Inventory, Box<Plan>> {
        let there = self.is(match self.cluster.desired() {
            Power::Hibernating => HIBERNATING,
            Power::Running => READY,
        });
        let (status, wait) = match &self.machines {
            None => return Err(Box::default()),
            Some(Ok(machines)) if !machines.instances.is_empty() => return Ok(machines),
            Some(Ok(machines)) => {
                let message =
                    format!("nothing matches {}: check infraID, region and credentials", machines.profile.selector);
                (failed(&message).awaiting("NoInstances", message), backoff(CloudErrorKind::Invalid, 3))
            }
            Some(Err(error)) => {
                let wait = backoff(error.kind, self.failed_lists + 1);
                let passing = matches!(error.kind, Throttled | Unavailable | Capacity | NotLeader);
                // A steady cluster keeps its status while the cloud is unavailable.
                let status = if passing || there { PowerStatus::default() } else { failed(&error.message) };
                // A single failure of a shared call must not cause writes to hundreds of steady clusters.
                let ignored = there && passing && self.failed_lists < TRANSIENT_FAILURE_THRESHOLD;
                let why = reason::delay(error.kind).unwrap_or("CloudFailing");
                let status = if ignored { status } else { status.awaiting(why, &error.message) };
                (status, wait)
            }
        };
        Err(Box::new(Plan::report(status).again(wait)))
    }
}
