//! Whether a cluster's API server can be reached: the conditions `Unreachable` and `ActiveAPIURLOverride`
//! (docs/reference/hive.md, section 6).
//!
//! Hive's own controller ignores hibernation: it keeps probing a sleeping cluster, and may need many minutes to detect
//! a wake. Here a cluster that goes to sleep is marked once: `Unreachable` is `True` with a reason of its own, because
//! no connection was attempted, and Hive's syncing skips it; readers check the status only. Probes resume when the wake
//! has had an answer. [`needs`] says what to ask next, [`decide`] what to write and when to look again.

use std::time::Duration;

use super::api::{ClusterDeployment, FAKE_CLUSTER, RECONCILE_PAUSE, url_override};
use super::conditions::{ACTIVE_OVERRIDE, HIBERNATING, PROGRESS, READY, UNREACHABLE, Word, reason as power};
use super::decide::resume_started;
use super::edit;
use crate::duration::age;
use jiff::Timestamp;
use serde_json::Value;

/// The reasons of both conditions.
pub mod reason {
    /// It answers.
    pub const REACHABLE: &str = "ClusterReachable";
    /// It was asked and did not answer as it should.
    pub const ERROR: &str = "ErrorConnectingToCluster";
    /// It sleeps and is not asked.
    pub const ASLEEP: &str = "Hibernating";
}

const ASLEEP: &str = "cluster is hibernating and is not probed until it wakes";
const REACHABLE: &str = "cluster is reachable";

/// How often a cluster that answers is asked.
pub const RECHECK: Duration = Duration::from_hours(2);
/// How often it is asked while some instances could not be stopped.
const DEGRADED_INTERVAL: Duration = Duration::from_mins(5);
/// Shortest and longest backoff after failures. Hive's queue goes from 5 ms to 1,000 s.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(2));
/// How long a waking cluster is left to the wake, which polls its API server anyway. After that it is asked from here,
/// too.
const WAKE_TIMEOUT: Duration = Duration::from_mins(5);
/// Objects hold times in whole seconds.
const TIMESTAMP_RESOLUTION: Duration = Duration::from_secs(1);

/// Reasons of R while there cannot be an API server.
const NO_MACHINES: &[&str] = &[power::STARTING_MACHINES, power::WAITING_FOR_MACHINES, power::FAILED_TO_START_MACHINES];
/// Reasons of R that a cluster has only after a request to its API server.
const REQUIRES_API_SERVER: &[&str] =
    &[power::WAITING_FOR_NODES, power::PAUSING, power::WAITING_FOR_CLUSTER_OPERATORS, power::RUNNING];
/// Reasons of `HibernationProgress` while the API server does not answer the wake.
const NO_ANSWER: &[&str] = &["ApiServer", "ApiServerFailing"];

/// What an API server said: nothing wrong, or why it cannot be used.
pub type Answer = Result<(), String>;

/// The observed state of one reconcile. Plain data: no client, no clock.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The cluster on the hub.
    pub cluster: &'a ClusterDeployment,
    /// What the primary URL answered. `None` before the probe.
    pub primary: Option<Answer>,
    /// What the initial URL answered. `None` before the probe.
    pub initial: Option<Answer>,
    /// The last time that this process asked the primary URL.
    pub tried: Option<LastAttempt>,
    /// The time of the observation.
    pub now: Timestamp,
}

/// The last time that a primary URL was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastAttempt {
    /// When.
    pub at: Timestamp,
    /// How often in a row it has failed.
    pub failures: u32,
}

/// One of the URLs of an API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Url {
    /// `controlPlaneConfig.apiURLOverride` if there is one, otherwise the kubeconfig's.
    Primary,
    /// The kubeconfig's, where there is an override.
    Initial,
}

/// What to ask next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Which URL.
    pub url: Url,
    /// Whether the answer is urgent: the cluster has just woken.
    pub urgent: bool,
}

/// What is to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Conditions, by type.
    pub words: Vec<(&'static str, Word)>,
    /// When to reconcile again, unless something changes before.
    pub requeue: Option<Duration>,
    /// Whether `lastProbeTime` of `Unreachable` moves even if it says what it said.
    refresh: bool,
}

impl Plan {
    /// The JSON patch for the status subresource, or `None` if the cluster says all this already.
    pub fn patch(&self, cluster: &ClusterDeployment, now: Timestamp) -> Option<Value> {
        let new = self.words.iter().filter_map(|(type_, word)| {
            let old = cluster.condition(type_);
            let refreshed = || (*type_ == UNREACHABLE && self.refresh).then(|| word.condition(type_, old, now));
            word.replaces(type_, old, now).or_else(refreshed)
        });
        edit::status(cluster, new.collect(), None)
    }
}

/// What a cluster's reachability depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing is written: paused, being deleted, or not installed.
    NotOurs,
    /// It lacks a condition.
    New,
    /// It sleeps, or its desired state is Hibernating.
    Asleep,
    /// It is marked as asleep, and a wake that has begun has had no answer yet; for so long it is left to the wake.
    Waking(Duration),
    /// It should answer.
    Awake,
}

impl Facts<'_> {
    /// Takes in an answer.
    pub fn answered(&mut self, url: Url, answer: Answer, now: Timestamp) {
        self.now = now;
        if url == Url::Initial {
            self.initial = Some(answer);
            return;
        }
        // What failed before a sleep says nothing about the time after it.
        let before = self.tried.filter(|_| !self.marked()).map_or(0, |tried| tried.failures);
        let failures = if answer.is_ok() { 0 } else { before.saturating_add(1) };
        self.tried = Some(LastAttempt { at: now, failures });
        self.primary = Some(answer);
    }

    fn state(&self) -> State {
        let cluster = self.cluster;
        let ours = cluster.spec.installed
            && cluster.spec.cluster_metadata.is_some()
            && cluster.metadata.deletion_timestamp.is_none()
            && !cluster.annotation_is_true(RECONCILE_PAUSE);
        // Where a stop was refused, machines run: whether they make an API server is found out by asking.
        let asleep = self.cluster.reason(READY) == power::STOPPING_OR_HIBERNATING;
        let refused = self.cluster.reason(HIBERNATING) == power::FAILED_TO_STOP;
        let waking = self.marked() && self.wake_has_no_answer();
        let begun = resume_started(cluster).map_or(Duration::MAX, |then| age(then, self.now));
        match WAKE_TIMEOUT.saturating_sub(begun) {
            _ if !ours => State::NotOurs,
            _ if [UNREACHABLE, ACTIVE_OVERRIDE].iter().any(|type_| cluster.condition(type_).is_none()) => State::New,
            _ if asleep && !refused => State::Asleep,
            left if waking && !left.is_zero() => State::Waking(left),
            _ => State::Awake,
        }
    }

    /// Whether it is marked as asleep.
    fn marked(&self) -> bool {
        self.cluster.reason(UNREACHABLE) == reason::ASLEEP
    }

    fn has_override(&self) -> bool {
        url_override(self.cluster).is_some()
    }

    /// Whether the last answer was the primary URL's.
    fn on_primary(&self) -> bool {
        !self.has_override() || self.cluster.is_true(ACTIVE_OVERRIDE)
    }

    fn wake_has_no_answer(&self) -> bool {
        let ready = self.cluster.reason(READY);
        let no_answer = ready == power::WAITING_FOR_NODES && NO_ANSWER.contains(&self.cluster.reason(PROGRESS));
        NO_MACHINES.contains(&ready) || no_answer
    }

    /// Whether a wake had an answer after the last try: what failed then can be expected to work now.
    fn wake_had_answer(&self) -> bool {
        let probed = [READY, PROGRESS].into_iter().filter_map(|type_| self.cluster.probed_at(type_)).max();
        let answered = probed.and_then(|at| at.checked_add(TIMESTAMP_RESOLUTION).ok());
        let is_newer = answered.zip(self.tried).is_some_and(|(at, tried)| at > tried.at);
        is_newer && REQUIRES_API_SERVER.contains(&self.cluster.reason(READY)) && !self.wake_has_no_answer()
    }

    /// How often it is asked while it answers.
    fn period(&self) -> Duration {
        if self.cluster.reason(HIBERNATING) == power::FAILED_TO_STOP { DEGRADED_INTERVAL } else { RECHECK }
    }

    /// Time left until it is due to be seen reachable again. Only a cluster that has been seen so has any.
    fn fresh(&self) -> Option<Duration> {
        self.cluster.condition(UNREACHABLE).filter(|known| known.status == "False")?;
        let probed = self.cluster.probed_at(UNREACHABLE).map_or(Duration::MAX, |probed| age(probed, self.now));
        self.period().checked_sub(probed).filter(|left| !left.is_zero())
    }

    /// Time left until the primary URL is asked.
    fn wait(&self) -> Duration {
        match self.cluster.condition(UNREACHABLE).map_or("Unknown", |known| known.status.as_str()) {
            "False" if self.on_primary() => self.fresh().unwrap_or_default(),
            "True" | "False" if !self.marked() => {
                let Some(tried) = self.tried else { return Duration::ZERO };
                let pause = if self.wake_had_answer() { BACKOFF.0 } else { backoff(tried.failures) };
                pause.saturating_sub(age(tried.at, self.now))
            }
            _ => Duration::ZERO,
        }
    }
}

/// How long to wait after the `failures`th failure in a row, without jitter.
pub fn backoff(failures: u32) -> Duration {
    match failures {
        0 => Duration::ZERO,
        failures => BACKOFF.0.saturating_mul(1 << (failures - 1).min(16)).min(BACKOFF.1),
    }
}

/// What to ask before [`decide`] can decide.
pub fn needs(facts: &Facts<'_>) -> Option<Ask> {
    if facts.state() != State::Awake || facts.cluster.annotation_is_true(FAKE_CLUSTER) {
        return None;
    }
    let urgent = facts.marked() || facts.wake_had_answer();
    match (&facts.primary, &facts.initial) {
        (None, _) => facts.wait().is_zero().then_some(Ask { url: Url::Primary, urgent }),
        // While the initial URL counts as reachable, it is asked no more often than a cluster without an override.
        (Some(Err(_)), None) if facts.has_override() && facts.fresh().is_none() => {
            Some(Ask { url: Url::Initial, urgent })
        }
        _ => None,
    }
}

/// What the facts call for.
pub fn decide(facts: &Facts<'_>) -> Plan {
    let write = |words: Vec<_>| Plan { words, ..Plan::default() };
    match facts.state() {
        State::NotOurs => Plan::default(),
        State::New => {
            let missing = [ACTIVE_OVERRIDE, UNREACHABLE].into_iter().filter(|t| facts.cluster.condition(t).is_none());
            write(missing.map(|type_| (type_, Word::initialized())).collect())
        }
        State::Asleep => write(vec![(UNREACHABLE, Word::new("True", reason::ASLEEP, ASLEEP))]),
        State::Waking(left) => Plan { requeue: Some(left), ..Plan::default() },
        State::Awake if facts.cluster.annotation_is_true(FAKE_CLUSTER) => write(vec![(UNREACHABLE, reached())]),
        State::Awake => awake(facts),
    }
}

fn awake(facts: &Facts<'_>) -> Plan {
    let retry = backoff(facts.tried.map_or(1, |tried| tried.failures));
    let (unreachable, active, requeue) = match (&facts.primary, &facts.initial) {
        (None, _) => return Plan { requeue: Some(facts.wait()), ..Plan::default() },
        (Some(Ok(())), _) => (Some(reached()), Word::new("True", reason::REACHABLE, REACHABLE), facts.period()),
        (Some(Err(primary)), Some(Ok(()))) => (Some(reached()), failed("False", primary), retry),
        (Some(Err(primary)), Some(Err(initial))) => (Some(failed("True", initial)), failed("False", primary), retry),
        // With an override, the initial URL was asked not long ago, and answered.
        (Some(Err(primary)), None) => {
            ((!facts.has_override()).then(|| failed("True", primary)), failed("False", primary), retry)
        }
    };
    let words = unreachable.map(|word| (UNREACHABLE, word)).into_iter();
    let active = facts.has_override().then_some((ACTIVE_OVERRIDE, active));
    Plan {
        words: words.chain(active).collect(),
        requeue: Some(requeue),
        refresh: facts.fresh().is_none() && [&facts.primary, &facts.initial].into_iter().flatten().any(Result::is_ok),
    }
}

fn reached() -> Word {
    Word::new("False", reason::REACHABLE, REACHABLE)
}

fn failed(status: &'static str, error: &str) -> Word {
    Word::new(status, reason::ERROR, stable(error))
}

/// The message without what differs between tries: a certificate error contains the time.
fn stable(error: &str) -> &str {
    const CLOCKS: &[&str] = &[": verification time ", ": current time "];
    let end = CLOCKS.iter().filter_map(|clock| error.find(clock)).min().unwrap_or(error.len());
    let short = error.char_indices().nth(500).map_or(error.len(), |(at, _)| at);
    &error[..end.min(short)]
}

#[cfg(test)]
mod tests;
