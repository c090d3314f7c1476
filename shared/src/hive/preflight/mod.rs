//! Everything that would block or slow a sleep or a wake, before it is tried: what the cloud and the cluster itself
//! say.
//!
//! The controller looks, because only it may: awake clusters once an hour, and any cluster when the annotation
//! `hibernate.sh/preflight-requested-at` asks. It answers in the condition [`PREFLIGHT`]: True, nothing stands in the
//! way; False, something does; Unknown, it could not be checked. The message is one [`Finding`] a line, and
//! `HibernationData` holds the same as data; `lastProbeTime` says when it was found, and a request is answered once
//! that is not older than the request.

pub mod objects;
mod rules;
#[cfg(test)]
mod tests;
mod webhooks;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

pub use self::rules::{Certificate, Part, SpokeObservation, SpokePreflight, VersionObservation, answer, within};
pub use self::webhooks::{Resources, WebhookObservation};
use super::api::{ClusterDeployment, Condition, RECONCILE_PAUSE};
use super::conditions::{READY, Word};
use super::data::{DATA, Data};
use crate::annotation::keys;
use crate::duration::age;
use crate::finding::{Finding, Severity, code};
use crate::power::Power;

/// Condition type of ours.
pub const PREFLIGHT: &str = "HibernationPreflight";

/// How often an awake cluster is checked without a request.
pub const EVERY: Duration = Duration::from_hours(1);
/// How soon a cluster is checked again, however often somebody asks.
pub const AGAIN: Duration = Duration::from_secs(15);
/// How often an unchanged answer is written again, so that its age is meaningful.
const REWRITE_INTERVAL: SignedDuration = SignedDuration::from_hours(24);
/// A request that is further in the future than this comes from a wrong clock and is ignored.
const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_hours(1);

/// The result of a preflight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    /// `Clear`, `Slowed`, `Blocked` or `NotLookedAt`.
    pub reason: &'static str,
    /// Sorted, the most severe first; each once.
    pub findings: Vec<Finding>,
}

impl Answer {
    /// One finding a line.
    pub fn message(&self) -> String {
        self.findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }
}

/// The request that was not answered yet.
pub fn pending_request(cluster: &ClusterDeployment, now: Timestamp) -> Option<Timestamp> {
    let requested = cluster.moment(keys::PREFLIGHT_REQUESTED_AT)?;
    (requested.duration_since(now) <= MAX_CLOCK_SKEW && !answers(cluster, requested)).then_some(requested)
}

/// Whether the condition is as new as this request.
pub fn answers(cluster: &ClusterDeployment, requested: Timestamp) -> bool {
    // Conditions hold whole seconds.
    found_at(cluster).is_some_and(|found| found.as_second() >= requested.as_second())
}

/// Why there may be no answer.
pub fn unanswered(cluster: &ClusterDeployment) -> String {
    let platform = cluster.spec.platform.name();
    format!("hibernate-controller has not answered; is it running, and does it serve the platform {platform}?")
}

/// Why nothing is known of the machines after the last answer: they could not be listed, or the answer cannot be read.
pub fn unlisted(cluster: &ClusterDeployment) -> Option<String> {
    let Some(findings) = findings(cluster) else {
        return Some(format!("the condition {DATA} does not hold what the check of its machines found"));
    };
    let is_why = |one: &Finding| one.severity < Severity::Info && code::OF_LIST.contains(&one.code.as_str());
    Some(format!("its machines were not checked: {}", findings.into_iter().find(is_why)?.sentence))
}

/// When the findings that the condition holds were found.
pub fn found_at(cluster: &ClusterDeployment) -> Option<Timestamp> {
    cluster.probed_at(PREFLIGHT)
}

/// The findings that the condition lists. `None` if there is no condition, or no data about it as it stands.
pub fn findings(cluster: &ClusterDeployment) -> Option<Vec<Finding>> {
    let preflight = Data::of(cluster).preflight_of(cluster.condition(PREFLIGHT)?)?;
    let mut findings = preflight.findings;
    if preflight.left_out > 0 {
        let sentence = format!("{} more findings are in the message of the condition {PREFLIGHT}", preflight.left_out);
        findings.push(Finding::info(code::LEFT_OUT, sentence));
    }
    Some(findings)
}

/// The time to write into a request: later than the last answer, whatever the clocks say, so that the next answer is a
/// new one.
pub fn request_time(cluster: &ClusterDeployment, now: Timestamp) -> Timestamp {
    let after = found_at(cluster).and_then(|found| found.checked_add(SignedDuration::from_secs(1)).ok());
    after.map_or(now, |after| after.max(now))
}

/// Whether the controller must not write to this cluster, requested or not.
pub fn is_left_alone(cluster: &ClusterDeployment) -> bool {
    cluster.annotation_is_true(RECONCILE_PAUSE)
        || cluster.metadata.deletion_timestamp.is_some()
        || !cluster.spec.installed
}

/// Whether the cluster's own API server can be asked.
pub fn is_awake(cluster: &ClusterDeployment) -> bool {
    cluster.desired() == Power::Running && cluster.is_true(READY)
}

/// When to check it, if there is a reason: a client asks, or it is time for a cluster that is awake. A wake is over for an
/// hour before its cluster is checked unasked. `last_observation` is how long ago this process checked it.
pub fn due_in(cluster: &ClusterDeployment, last_observation: Option<Duration>, now: Timestamp) -> Option<Duration> {
    if is_left_alone(cluster) {
        return None;
    }
    let rested = |since: Option<Timestamp>| since.is_none_or(|since| age(since, now) >= EVERY);
    let by_itself = is_awake(cluster)
        && rested(cluster.changed_at(READY))
        && rested(found_at(cluster).filter(|_| last_observation.is_none()))
        && last_observation.is_none_or(|ago| ago >= EVERY);
    let left = last_observation.map_or(Duration::ZERO, |ago| AGAIN.saturating_sub(ago));
    if by_itself { Some(Duration::ZERO) } else { pending_request(cluster, now).map(|_| left) }
}

/// The JSON patch for the status subresource that makes the cluster say this, or `None` if it does already.
///
/// It edits this condition and `HibernationData`, which holds the same findings as data, and begins with a test of the
/// resourceVersion: the API server answers 422 if another client wrote in between. A request is answered by a write
/// even if nothing has changed.
pub fn patch(cluster: &ClusterDeployment, answer: &Answer, now: Timestamp) -> Option<Value> {
    let old = cluster.condition(PREFLIGHT);
    let word = Word { status: answer.status, reason: answer.reason, message: answer.message() };
    let requested = pending_request(cluster, now);
    let young = found_at(cluster).is_some_and(|found| now.duration_since(found) < REWRITE_INTERVAL);
    if requested.is_none() && young && word.replaces(PREFLIGHT, old, now).is_none() {
        return None;
    }
    let found = requested.map_or(now, |requested| requested.max(now));
    let condition = Condition { last_probe_time: Some(Time(found)), ..word.condition(PREFLIGHT, old, now) };
    let data = Data::of(cluster).with_preflight(found, answer.findings.clone()).replaces(cluster, now);
    super::edit::status(cluster, [condition].into_iter().chain(data).collect(), None)
}
