//! Rows 11 and 12c of docs/reference/hive.md: the transitions that time asks for.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use super::facts::Facts;
use super::gate::{gate, sync_sets};
use super::plan::{Action, Need, Notice, Plan};
use super::wake;
use crate::annotation::{Hold, format, hold, keys, protected};
use crate::duration::{age, go_string, parse_positive};
use crate::hive::api::{ClusterDeployment, FAKE_CLUSTER};
use crate::hive::conditions::{HIBERNATING, PowerStatus, READY, reason};
use crate::hive::pool;
use crate::power::Power;
use crate::spoke::Upgrade;
use crate::text::sanitize;

/// How often a deferred sleep is retried.
const DEFERRED_SLEEP_INTERVAL: Duration = Duration::from_mins(5);

/// How long a sleep is deferred while the spoke does not say whether it is being upgraded. An upgrade restarts its API
/// server, and one that is gone for good does not keep the machines running.
const UPGRADE_UNKNOWN_TIMEOUT: Duration = Duration::from_hours(1);

/// Time until a sleeping cluster wakes by schedule. One from before this sleep is left from an earlier one, and does
/// not count.
pub(super) fn wake_at(facts: &Facts<'_>) -> Option<Duration> {
    facts.cluster.moment(keys::WAKE_AT).filter(|at| !is_left_over(facts, *at)).map(|at| age(facts.now, at))
}

/// Whether a scheduled wake is from before this sleep, which begins now if it has not begun.
fn is_left_over(facts: &Facts<'_>, at: Timestamp) -> bool {
    if facts.cluster.reason(READY) == reason::STOPPING_OR_HIBERNATING {
        return facts.cluster.changed_at(READY).is_some_and(|began| at < began);
    }
    at <= facts.now && !is_requested_with(facts, at)
}

/// Whether the stamp of this sleep, which is newer than the last wake, is from before this scheduled wake. After a pause
/// R's transition is that of the pause, and says nothing about a wake.
fn is_requested_with(facts: &Facts<'_>, at: Timestamp) -> bool {
    let awake = facts.cluster.changed_at(READY).filter(|_| facts.cluster.reason(READY) != reason::PAUSED);
    let requested = facts.cluster.moment(keys::REQUESTED_AT);
    requested.is_some_and(|requested| awake.is_none_or(|awake| requested >= awake) && requested <= at)
}

/// Reports a scheduled wake that does not count.
pub(super) fn wake_ignored(facts: &Facts<'_>) -> Option<Notice> {
    let at = facts.cluster.moment(keys::WAKE_AT).filter(|at| is_left_over(facts, *at))?;
    let (at, key) = (format::seconds(at), keys::WAKE_AT);
    Some(Notice::normal("WakeAtIgnored", format!("{key} {at} is earlier than this sleep: it is ignored")))
}

/// The wake that `--until` or `--for` scheduled is due.
pub(super) fn wake_up(facts: &Facts<'_>) -> Plan {
    let at = facts.cluster.annotations().get(keys::WAKE_AT).map(String::as_str).unwrap_or_default();
    let because = format!("wake-at {at} is reached");
    Plan { notice: Some(Notice::normal("WakeAtReached", because.clone())), ..Plan::default() }
        .acting(Action::SetPowerState(Power::Running, because))
        .requeued(Duration::ZERO)
}

/// Row 11: how `hibernateAfter` stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    /// It does not apply now.
    None,
    /// It expires in this time. The cluster's machines were never listed, and are not until then.
    NotYetObserved(Duration),
    /// It expires in this time.
    In(Duration),
    /// It has expired.
    Due,
}

/// Row 11, section 1.2. A cluster that was paused is looked at first, so that it is not put to sleep at once when the
/// pause ends; Hive counts from its installation then.
pub(super) fn expiry(facts: &Facts<'_>) -> Expiry {
    let cluster = facts.cluster;
    let after = cluster.spec.hibernate_after.as_deref().and_then(|text| parse_positive(text).ok());
    let Some(after) = after.filter(|_| cluster.desired() == Power::Running && pool::deciding(cluster).is_none()) else {
        return Expiry::None;
    };
    let is_ready = cluster.is_true(READY);
    let is_unknown = cluster.condition(HIBERNATING).is_none_or(|hibernating| hibernating.status == "Unknown");
    let is_observed = is_ready || !is_unknown || cluster.reason(HIBERNATING) == reason::PAUSED;
    if is_observed && !is_ready {
        return Expiry::None;
    }
    let held = match held(facts) {
        Hold::Until { until, .. } => age(facts.now, until),
        Hold::None | Hold::Malformed { .. } => Duration::ZERO, // the latter puts off the sleep
    };
    match due(cluster, after).map_or(Duration::ZERO, |due| age(facts.now, due)).max(held) {
        Duration::ZERO => Expiry::Due,
        left if is_observed => Expiry::In(left),
        left => Expiry::NotYetObserved(left),
    }
}

/// The latest of installation, claim and reaching Running, plus `after`.
fn due(cluster: &ClusterDeployment, after: Duration) -> Option<Timestamp> {
    let claimed = cluster.spec.cluster_pool_ref.as_ref().and_then(|pool| Some(pool.claimed_timestamp.as_ref()?.0));
    let baseline = [cluster.installed_at(), claimed, cluster.true_since(READY)].into_iter().flatten().max()?;
    baseline.checked_add(SignedDuration::try_from(after).ok()?).ok().or(Some(Timestamp::MAX))
}

/// What to observe before a cluster whose `hibernateAfter` has expired is put to sleep.
pub(super) fn needs(facts: &Facts<'_>) -> Option<Need> {
    if gate(facts).is_some() || sync_sets(facts).is_some() || is_fake(facts) {
        return None;
    }
    if put_off(facts).is_some() {
        return wake::needs(facts);
    }
    facts.upgrade.is_none().then_some(Need::Upgrade)
}

/// Row 12c: writes the intent to `spec.powerState`, as a user would. The next reconcile begins the sleep.
pub(super) fn sleep_now(facts: &Facts<'_>) -> Plan {
    if let Some(wait) = gate(facts).or_else(|| sync_sets(facts)) {
        return wait;
    }
    if let Some((reason, message)) = put_off(facts) {
        let notice = Some(Notice::warning(reason, message));
        let plan = if is_fake(facts) { Plan::report(PowerStatus::running()) } else { wake::decide(facts) };
        return Plan { notice, ..plan }.by(DEFERRED_SLEEP_INTERVAL);
    }
    let after = facts.cluster.spec.hibernate_after.as_deref().and_then(|text| parse_positive(text).ok());
    let because = format!("hibernateAfter {} has passed", go_string(after.unwrap_or_default()));
    Plan { notice: Some(Notice::normal("HibernateAfterExpired", because.clone())), ..Plan::default() }
        .acting(Action::SetPowerState(Power::Hibernating, because))
        .requeued(Duration::ZERO)
}

fn is_fake(facts: &Facts<'_>) -> bool {
    facts.cluster.annotation_is_true(FAKE_CLUSTER)
}

fn held<'a>(facts: &Facts<'a>) -> Hold<'a> {
    let annotations = facts.cluster.annotations();
    hold(|key| annotations.get(key).map(String::as_str), facts.now)
}

/// Why a due sleep is deferred: reason and message of the Event.
fn put_off(facts: &Facts<'_>) -> Option<(&'static str, String)> {
    let put_off = |key: &str, text: &str, which: &str| {
        let message = format!("hibernateAfter has passed, but annotation {key} is {}{which}", sanitize(text));
        Some(("HibernationPutOff", message))
    };
    let value = facts.cluster.annotations().get(keys::PROTECTED).map(String::as_str);
    if let Some(text) = value.filter(|_| protected(value)) {
        let which = if text == "true" { "" } else { ", neither true nor false, and counts as true" };
        return put_off(keys::PROTECTED, text, which);
    }
    if let Hold::Malformed { text, .. } = held(facts) {
        return put_off(keys::HOLD_AWAKE_UNTIL, text, ", which is no time: correct or remove it");
    }
    let unknown = |why: &str| {
        let message = format!("hibernateAfter has passed, but whether the cluster is being upgraded is unknown: {why}");
        Some(("UpgradeUnknown", message))
    };
    match facts.upgrade.as_ref()? {
        Ok(Upgrade::Progressing(what)) => {
            Some(("UpgradeInProgress", format!("hibernateAfter has passed, but the cluster is being upgraded: {what}")))
        }
        Ok(Upgrade::Unknown(why)) if facts.upgrade_unknown_for < UPGRADE_UNKNOWN_TIMEOUT => unknown(why),
        Ok(Upgrade::Idle | Upgrade::Unknown(_)) => None,
        Err(error) => unknown(&sanitize(error)),
    }
}
