//! The cluster's instances, or what is said while they cannot be listed.

use super::facts::{Facts, backoff};
use super::plan::Plan;
use crate::cloud::CloudErrorKind::{self, Capacity, NotLeader, Throttled, Unavailable};
use crate::cloud::Inventory;
use crate::hive::api::Desired;
use crate::hive::conditions::{HIBERNATING, PowerStatus, READY};

/// So many looks in a row have to fail before a cluster that waits for nothing tells of it.
const HICCUPS: u32 = 3;

impl Facts<'_> {
    /// The machines, or a plan that says why nothing can be said about them.
    pub(super) fn machines(&self, failed: impl FnOnce(&str) -> PowerStatus) -> Result<&Inventory, Box<Plan>> {
        let there = self.is(match self.cluster.desired() {
            Desired::Hibernating => HIBERNATING,
            Desired::Running => READY,
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
                let wait = backoff(error.kind, self.failed_looks + 1);
                let passing = matches!(error.kind, Throttled | Unavailable | Capacity | NotLeader);
                // A cluster that was where it should be when the cloud was last heard is not called ill because the cloud is silent.
                let status = if passing || there { PowerStatus::default() } else { failed(&error.message) };
                // One hiccup of a shared call is no reason to write to hundreds of clusters that wait for nothing.
                let hiccup = there && passing && self.failed_looks < HICCUPS;
                let status = if hiccup { status } else { status.awaiting("CloudUnavailable", &error.message) };
                (status, wait)
            }
        };
        Err(Box::new(Plan::report(status).again(wait)))
    }
}
