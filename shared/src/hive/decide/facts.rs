//! What a decision about a `ClusterDeployment` may read.

use std::time::Duration;

use jiff::Timestamp;

use super::plan::{Notice, Plan};
use crate::cloud::CloudErrorKind::{self, Capacity, NotLeader, Throttled, Unavailable};
use crate::cloud::{CloudError, InstanceState, Inventory, Refusal, Verb};
use crate::duration::age;
use crate::finding::code::NO_INSTANCES;
use crate::hive::api::ClusterDeployment;
use crate::hive::conditions::{HIBERNATING, PowerStatus, READY, reason};
use crate::hive::identity::Older;
use crate::power::Power;
use crate::savings::ledger::Seen;
use crate::spoke::{Spoke, SpokeError, Upgrade};

/// An attempt that is further in the future than this has a wrong timestamp.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(5);

/// Number of consecutive failed lists after which a steady cluster reports them, and of steady periods after which one
/// without machines is no longer where it was.
const TRANSIENT_FAILURE_THRESHOLD: u32 = 3;

/// The observed state of one reconcile. Plain data: no client, no clock.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The cluster on the hub.
    pub cluster: &'a ClusterDeployment,
    /// Whether a driver of ours starts and stops the machines of its platform.
    pub served: bool,
    /// How far its `SyncSet`s have been applied.
    pub sync: SyncSetState,
    /// An older object that names the same machines, if there is one.
    pub identity_taken: Option<Older>,
    /// Its instances, as the driver listed them. `None` before the list.
    pub machines: Option<Result<Inventory, CloudError>>,
    /// For how long the cloud has said of some machine, list after list, neither that it runs nor that it does not.
    pub unknown_for: Duration,
    /// For how long the cloud has listed, list after list, no machine at all.
    pub empty_for: Duration,
    /// How long lists have shown all machines stopped.
    pub stopped: Seen,
    /// The last start or stop that this process tried on this cluster.
    pub tried: Option<LastAttempt>,
    /// How many lists in a row failed before this one.
    pub failed_lists: u32,
    /// What the spoke's API server said. `None` before the request.
    pub spoke: Option<Result<Spoke, SpokeError>>,
    /// For how long the spoke has been asked in this wake. `None` while it cannot be asked.
    pub connected_for: Option<Duration>,
    /// Whether the spoke is being upgraded; an error is the hub's, and says nothing about the spoke. `None` while nobody
    /// has asked.
    pub upgrade: Option<Result<Upgrade, SpokeError>>,
    /// For how long each answer of the spoke has left that unknown.
    pub upgrade_unknown_for: Duration,
    /// How long ago this process last looked for what could stand in the way of a sleep.
    pub preflight_age: Option<Duration>,
    /// How this controller is set up.
    pub settings: Settings,
    /// The time of the observation.
    pub now: Timestamp,
}

impl Facts<'_> {
    /// The instances, if they could be listed.
    pub(super) fn inventory(&self) -> Option<&Inventory> {
        self.machines.as_ref()?.as_ref().ok()
    }

    /// Time since a moment, zero if it is in the future.
    pub(super) fn age(&self, then: Timestamp) -> Duration {
        age(then, self.now)
    }

    /// The instances, or a plan that reports why they are unknown. `failed` makes the status for an error that does not
    /// pass.
    pub(super) fn machines(&self, failed: impl FnOnce(&str) -> PowerStatus) -> Result<&Inventory, Box<Plan>> {
        let there = self.cluster.is_true(match self.cluster.desired() {
            Power::Hibernating => HIBERNATING,
            Power::Running => READY,
        });
        let (status, wait, notice) = match &self.machines {
            None => return Err(Box::default()),
            Some(Ok(machines)) if !machines.instances.is_empty() => return Ok(machines),
            Some(Ok(machines)) => {
                let message = machines.profile.nothing_matches();
                // A valid key of another account shows the same: a steady cluster keeps its status for a while.
                let stays = there && self.empty_for < self.settings.steady.saturating_mul(TRANSIENT_FAILURE_THRESHOLD);
                let status = if stays { PowerStatus::default() } else { failed(&message) };
                let notice = stays.then(|| Notice::warning(NO_INSTANCES, message.clone()));
                (status.awaiting(NO_INSTANCES, message), backoff(CloudErrorKind::Invalid, 3), notice)
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
                (status, wait, None)
            }
        };
        Err(Box::new(Plan { notice, ..Plan::report(status).requeued(wait) }))
    }

    /// Whether single machines were refused when `verb` was tried last.
    pub(super) fn was_refused(&self, verb: Verb) -> bool {
        let failure = self.tried.as_ref().and_then(|tried| tried.failed(verb));
        let one_by_one = self.inventory().is_some_and(|machines| machines.profile.one_by_one);
        failure.is_some_and(|failure| match failure.kind {
            CloudErrorKind::Refused | CloudErrorKind::Capacity => true,
            CloudErrorKind::Denied | CloudErrorKind::Unavailable => one_by_one,
            _ => false,
        })
    }

    /// What the cloud accepted and has given up since: what its driver lists, and each machine that was started in this
    /// wake and is stopped again.
    ///
    /// A machine was started in this wake if its launch is not older than the wake, by the times of the cloud and of
    /// the condition: a restart of the controller loses nothing. The first start comes moments before the condition is
    /// written, so that it may take the second one to tell.
    pub fn given_up(&self, verb: Verb) -> Vec<Refusal> {
        let Some(machines) = self.inventory() else { return Vec::new() };
        let began = self.wake_began().filter(|_| verb == Verb::Start);
        let stopped = machines.instances.iter().filter(|i| i.state == InstanceState::Stopped);
        let again = stopped.filter(|i| began.is_some() && i.launched_at >= began).map(|i| Refusal {
            id: i.id.clone(),
            kind: CloudErrorKind::Refused,
            code: "StoppedAgain".to_owned(),
            message: i.stop_reason.clone().unwrap_or_else(|| "the cloud gives no reason".to_owned()),
        });
        let by_cloud = |id: &str| machines.failed.iter().any(|refusal| refusal.id == id);
        let failed = machines.failed.iter().filter(|_| verb == Verb::Start || machines.profile.one_by_one);
        failed.cloned().chain(again.filter(|refusal| !by_cloud(&refusal.id))).collect()
    }

    /// When the wake that is under way began.
    fn wake_began(&self) -> Option<Timestamp> {
        resume_started(self.cluster).filter(|_| !self.cluster.is_true(READY))
    }

    /// What had been given up before the last start of this wake, of the machines that do not run yet: that the cloud
    /// accepts it once more is no outcome either.
    pub(super) fn still_given_up(&self, machines: &Inventory) -> Option<CloudError> {
        let began = self.wake_began()?;
        let tried = self.tried.as_ref().filter(|tried| tried.verb == Verb::Start && tried.at >= began)?;
        let waits = |id: &String| machines.instances.iter().any(|i| i.id == *id && i.state != InstanceState::Running);
        let given_up: Vec<Refusal> = tried.given_up.iter().filter(|refusal| waits(&refusal.id)).cloned().collect();
        CloudError::of_refusals(&given_up)
    }

    /// What of `verb` people have to hear: the last try failed, or the cloud has given up since what it had accepted.
    /// And how long the next try has to wait.
    pub(super) fn failure(&self, verb: Verb) -> (Option<CloudError>, Option<Duration>) {
        let given_up = CloudError::of_refusals(&self.given_up(verb));
        let held_back = self.held_back(verb, given_up.as_ref());
        (self.tried.as_ref().and_then(|tried| tried.reported(verb)).cloned().or(given_up), held_back)
    }

    /// Whether a failed try of `verb` is so recent that the next one has to wait, and how long. A call that was
    /// accepted and given up since has failed as well.
    fn held_back(&self, verb: Verb, given_up: Option<&CloudError>) -> Option<Duration> {
        let tried = self.tried.as_ref().filter(|tried| tried.verb == verb)?;
        let (kind, failures) = match tried.failed(verb) {
            Some(failure) => (failure.kind, tried.failures),
            None => (given_up?.kind, tried.failures.saturating_add(1)),
        };
        if age(self.now, tried.at) > MAX_CLOCK_SKEW {
            return None; // the clock was set back since
        }
        let left = backoff(kind, failures).checked_sub(self.age(tried.at))?;
        (!left.is_zero()).then_some(left)
    }
}

/// When the wake in progress began, from the conditions: when H first pointed to R, which it does until the
/// next sleep, or when R ceased to be True, because a machine of a running cluster had to be started.
pub fn resume_started(cluster: &ClusterDeployment) -> Option<Timestamp> {
    let resumes = cluster.reason(HIBERNATING) == reason::RESUMING_OR_RUNNING;
    let began = cluster.probed_at(HIBERNATING).filter(|_| resumes)?;
    let ceased = cluster.changed_at(READY).filter(|_| !cluster.is_true(READY));
    Some(ceased.map_or(began, |ceased| ceased.max(began)))
}

/// When the sleep in progress began, from the conditions: when R first pointed to H, and again when H turned False
/// because another party started a machine.
pub fn sleep_started(cluster: &ClusterDeployment) -> Option<Timestamp> {
    let sleeps = cluster.reason(READY) == reason::STOPPING_OR_HIBERNATING;
    let began = cluster.probed_at(READY).filter(|_| sleeps)?;
    Some(cluster.changed_at(HIBERNATING).map_or(began, |ceased| ceased.max(began)))
}

/// For how long all machines had been stopped when the wake in progress began: R's transition says since when, until the
/// cluster is awake. `None` if no condition says so, or if a machine still ran.
pub fn slept(cluster: &ClusterDeployment) -> Option<Duration> {
    let (began, stopped) = (resume_started(cluster)?, cluster.changed_at(READY)?);
    (!cluster.is_true(READY) && stopped < began).then(|| age(stopped, began))
}

/// Settings of the controller that decisions depend on.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long cluster operators that give no proof of life get before what they say is believed. Hive: 2 minutes,
    /// always.
    pub operator_pause: Duration,
    /// How long all cluster operators must have been well before the cluster counts as awake.
    pub operator_settle: Duration,
    /// How often a cluster in a steady state is reconciled.
    pub steady: Duration,
    /// How long a wake may take before an Event reports it.
    pub wake_limit: Duration,
    /// How long a sleep may take before an Event reports it.
    pub sleep_limit: Duration,
    /// Whether instances of a sleeping cluster that another party has started are stopped, as Hive does, or only
    /// reported.
    pub stops_drift: bool,
    /// After a shorter sleep no client certificate is approved.
    pub certificate_minimum_validity: Duration,
}

/// How far a cluster's `SyncSet`s have been applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncSetState {
    /// The `ClusterSync`s of the hub have not been listed yet.
    NotListed,
    /// The hub does not have the kind: Hive's clustersync controller is not there, and nothing waits for it.
    NoSuchKind,
    /// The cluster has none, and this process has been missing it since then.
    Missing(Timestamp),
    /// Not all of them have been applied once.
    NotApplied,
    /// All of them have been applied once.
    Applied,
}

/// The last start or stop, and its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastAttempt {
    /// What was tried.
    pub verb: Verb,
    /// When.
    pub at: Timestamp,
    /// What went wrong; `None` when every instance was accepted.
    pub failure: Option<CloudError>,
    /// How often in a row it went wrong.
    pub failures: u32,
    /// What the cloud had accepted and given up before.
    pub given_up: Vec<Refusal>,
}

impl LastAttempt {
    /// The failure, if this was a failed try of `verb`.
    pub(super) fn failed(&self, verb: Verb) -> Option<&CloudError> {
        self.failure.as_ref().filter(|_| self.verb == verb)
    }

    /// The failure of `verb` that people have to hear of. Machines between two states are only worth a word if that
    /// lasts.
    pub(super) fn reported(&self, verb: Verb) -> Option<&CloudError> {
        self.failed(verb).filter(|failure| failure.kind != CloudErrorKind::InTransit || self.failures > 3)
    }
}

/// How long to wait after the `failures`th failure in a row, without jitter.
///
/// A passing cause is retried within 20 s of its end; one that only a change of rights ends, within a minute.
pub fn backoff(kind: CloudErrorKind, failures: u32) -> Duration {
    let (first, most) = match kind {
        // Little is asked of the cloud: the Secret is read again, and a role is asked for.
        CloudErrorKind::Credentials => (5, 10),
        CloudErrorKind::InTransit => (3, 20),
        CloudErrorKind::Denied | CloudErrorKind::Invalid => (10, 60),
        CloudErrorKind::Throttled
        | CloudErrorKind::Unavailable
        | CloudErrorKind::Capacity
        | CloudErrorKind::Refused => (5, 20),
        CloudErrorKind::NotLeader => (1, 1),
    };
    Duration::from_secs((first << failures.saturating_sub(1).min(6)).min(most))
}
