//! From what was found to what is to be done: the table of docs/reference/hive.md, section 1.1, row by row.
//!
//! [`decide`] is total, deterministic and idempotent. The controller asks [`needs`] what to observe, fills in the
//! [`Facts`], runs the [`Plan`]'s actions in order, writes its status if that differs, and requeues after `recheck`.

mod facts;
mod gate;
mod inventory;
mod limits;
mod plan;
mod schedule;
mod sleep;
#[cfg(test)]
mod tests;
mod wake;

use std::time::Duration;

use shared::hive::api::{ClusterDeployment, FAKE_CLUSTER, INFRA_DISABLED, POWERSTATE_PAUSE, RECONCILE_PAUSE};
use shared::hive::conditions::{HIBERNATING, PowerStatus, reason};
use shared::power::Power;

pub use facts::{Drift, Facts, LastAttempt, Served, Settings, Sync, resume_started};
pub use plan::{Action, Need, Notice, Plan, Recheck, Watch};

/// Where a cluster stands: the first row of the table that matches.
enum Stage {
    ReconcilePaused,       // row 2
    Deleted,               // row 3
    NotInstalled,          // rows 4, 5
    PowerStatePaused,      // row 6
    InfrastructureRemoved, // row 7, first case
    ServedByHiveOnly,      // row 7, for platforms that Hive serves and we do not
    Unsupported,           // row 7, second case
    NowSupported,          // row 8
    SyncSetsApplied,       // row 10
    IdentityTaken,         // ours: the machines are another object's
    Unseen(Duration),      // row 11, not due and never observed
    ToWakeBySchedule,      // ours: wake-at has come
    SyncSetsNotApplied,    // row 12a
    FakeToSleep,           // row 12b
    ToSleepBySchedule,     // row 12c
    ToSleep,               // row 12d
    FakeToWake,            // row 13a
    ToWake,                // row 13b
}

impl Stage {
    fn of(facts: &Facts<'_>) -> Self {
        let cluster = facts.cluster;
        let fake = cluster.annotation_is_true(FAKE_CLUSTER);
        let disabled = cluster.spec.platform.name() == "azure" && cluster.annotation_is_true(INFRA_DISABLED);
        match (facts.served, cluster.desired()) {
            _ if cluster.annotation_is_true(RECONCILE_PAUSE) => Self::ReconcilePaused,
            (Served::HiveOnly, _) if !disabled => Self::ServedByHiveOnly,
            _ if cluster.metadata.deletion_timestamp.is_some() => Self::Deleted,
            _ if !cluster.spec.installed => Self::NotInstalled,
            _ if cluster.annotation_is_true(POWERSTATE_PAUSE) => Self::PowerStatePaused,
            _ if disabled => Self::InfrastructureRemoved,
            (Served::HiveOnly | Served::Nobody, _) => Self::Unsupported,
            _ if facts.reason(HIBERNATING) == reason::UNSUPPORTED => Self::NowSupported,
            _ if facts.reason(HIBERNATING) == reason::SYNC_SETS_NOT_APPLIED && facts.sync == Sync::Applied => {
                Self::SyncSetsApplied
            }
            _ if facts.identity_taken.is_some() => Self::IdentityTaken,
            (Served::Us, Power::Hibernating) => match schedule::wake_at(facts) {
                Some(Duration::ZERO) => Self::ToWakeBySchedule,
                _ if sleep::begins(facts) && gate::sync_sets(facts).is_some() => Self::SyncSetsNotApplied,
                _ if fake => Self::FakeToSleep,
                _ => Self::ToSleep,
            },
            (Served::Us, Power::Running) => match schedule::expiry(facts) {
                schedule::Expiry::Unseen(left) => Self::Unseen(left),
                schedule::Expiry::Due => Self::ToSleepBySchedule,
                _ if fake => Self::FakeToWake,
                _ => Self::ToWake,
            },
        }
    }
}

/// What still has to be observed, or `None` when the facts suffice for [`decide`].
pub fn needs(facts: &Facts<'_>) -> Option<Need> {
    match Stage::of(facts) {
        Stage::ToSleep => sleep::needs(facts),
        Stage::ToWake => wake::needs(facts),
        Stage::ToSleepBySchedule => schedule::needs(facts),
        _ => None,
    }
}

/// What is to be done.
pub fn decide(facts: &Facts<'_>) -> Plan {
    let plan = match Stage::of(facts) {
        Stage::ReconcilePaused => Plan::default(),
        Stage::Deleted => Plan::report(PowerStatus::deleted()),
        Stage::NotInstalled => Plan::report(PowerStatus::initialized(facts.cluster)),
        Stage::PowerStatePaused => Plan::report(PowerStatus::paused()),
        Stage::InfrastructureRemoved => Plan::report(PowerStatus::unsupported("Infrastructure disabled by annotation")),
        Stage::ServedByHiveOnly => Plan { notice: Some(not_served(facts.cluster)), ..Plan::default() },
        Stage::Unsupported => Plan::report(PowerStatus::unsupported("Unsupported platform: no actuator to handle it")),
        Stage::NowSupported => Plan::report(PowerStatus::hibernation_capable()).again(Duration::ZERO),
        Stage::SyncSetsApplied => Plan::report(PowerStatus::sync_sets_applied()).again(Duration::ZERO),
        Stage::IdentityTaken => gate::identity_taken(facts).unwrap_or_default(),
        Stage::Unseen(left) => Plan::report(PowerStatus::initialized(facts.cluster)).by(left),
        Stage::ToWakeBySchedule => schedule::wake_up(facts),
        Stage::SyncSetsNotApplied => gate::sync_sets(facts).unwrap_or_default(),
        Stage::FakeToSleep => gate::gate(facts).unwrap_or_else(|| Plan::report(PowerStatus::fake_stopped())),
        Stage::ToSleepBySchedule => schedule::sleep_now(facts),
        Stage::FakeToWake => gate::gate(facts).unwrap_or_else(|| Plan::report(PowerStatus::running())),
        Stage::ToSleep => {
            let plan = limits::sleeping(facts, sleep::decide(facts));
            let notice = plan.notice.or_else(|| schedule::wake_ignored(facts));
            Plan { notice, ..plan }
        }
        Stage::ToWake => limits::waking(facts, wake::decide(facts)),
    };
    with_due(plan, facts)
}

/// Adds the times that the user has set.
fn with_due(plan: Plan, facts: &Facts<'_>) -> Plan {
    let time = match facts.cluster.desired() {
        Power::Hibernating => schedule::wake_at(facts),
        Power::Running => match schedule::expiry(facts) {
            schedule::Expiry::In(left) => Some(left),
            _ => None,
        },
    };
    match time.filter(|time| !time.is_zero() && facts.served == Served::Us) {
        Some(time) => plan.by(time),
        None => plan,
    }
}

fn not_served(cluster: &ClusterDeployment) -> Notice {
    let platform = cluster.spec.platform.name();
    let message = format!(
        "platform {platform} has no driver in this controller yet; its power state and status are left alone. \
         Machines of this cluster do not stop or start until Hive's own hibernation controller is enabled again"
    );
    Notice::warning("PlatformNotServed", message)
}
