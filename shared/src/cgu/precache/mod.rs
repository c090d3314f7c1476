//! Images that are pulled before an upgrade starts (rows 10 and 11, section 9.5).

pub mod spec;
pub mod workload;

use jiff::{SignedDuration, Timestamp};

use self::workload::{DEPENDENCIES, JOB_VIEW, NAMESPACE_VIEW, Step, Workload};
use super::objects::LOCAL_CLUSTER;
use super::view::{Answer, Found, Job, View, Views};

/// How long a cluster may take for the first result of a view, before it counts as out of reach.
const FIRST_RESULT: SignedDuration = SignedDuration::from_secs(30);

/// How long after its deadline the end of a Job is waited for: its view may not be read any more.
const JOB_ENDS: SignedDuration = SignedDuration::from_mins(10);

/// Where a cluster is, in TALM's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumString)]
pub enum State {
    /// Nothing was done.
    NotStarted,
    /// What an earlier pull has left is removed.
    PreparingToStart,
    /// What the Job needs is created, then the Job.
    Starting,
    /// The Job runs.
    Active,
    /// The images are there.
    Succeeded,
    /// The Job's time was over.
    PrecacheTimeout,
    /// The Job has failed, or the cluster is out of reach.
    UnrecoverableError,
}

impl State {
    /// Whether it stays.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::PrecacheTimeout | Self::UnrecoverableError)
    }
}

/// A cluster, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub struct Cluster<'a> {
    /// Its name.
    pub name: &'a str,
    /// Where it is.
    pub state: State,
    /// Its `ManagedCluster` is available.
    pub is_available: bool,
    /// The upgrade is enabled: an error is final.
    pub is_enabled: bool,
}

/// What happens next on a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Next {
    /// Where it is then.
    pub state: State,
    /// What is done before.
    pub steps: Vec<Step>,
    /// The steps may be repeated, and are once a minute: the cluster carries them out in its own time.
    pub repeats: bool,
    /// When to reconcile again, unless a view changes before.
    pub at: Option<Timestamp>,
}

/// What happens next on a cluster. Total.
pub fn next(cluster: &Cluster<'_>, workload: &Workload<'_>, views: &Views, now: Timestamp) -> Next {
    let view = |name: &str| views.get(&(cluster.name.to_owned(), name.to_owned()));
    let to = |state, steps| Next { state, steps, repeats: false, at: None };
    let repeated = |steps| Next { state: cluster.state, steps, repeats: true, at: None };
    let failed = || to(if cluster.is_enabled { State::UnrecoverableError } else { cluster.state }, Vec::new());
    // A view without a result: it may come, unless the cluster is out of reach.
    let unanswered = |view: &View| {
        let end = view.created.checked_add(FIRST_RESULT).unwrap_or(Timestamp::MAX);
        if now >= end || !cluster.is_available {
            return failed();
        }
        Next { at: Some(end), ..to(cluster.state, Vec::new()) }
    };
    match cluster.state {
        // No action changes the hub itself.
        State::NotStarted if cluster.name == LOCAL_CLUSTER => failed(),
        State::NotStarted => to(State::PreparingToStart, workload.prepare()),
        State::PreparingToStart => match view(NAMESPACE_VIEW) {
            None => repeated(vec![workload.view(NAMESPACE_VIEW)]),
            Some(view) => match view.found {
                Found::Unknown => unanswered(view),
                Found::Yes => to(cluster.state, Vec::new()),
                Found::No => to(State::Starting, Vec::new()),
                Found::Failed => failed(),
            },
        },
        State::Starting => {
            let dependencies = DEPENDENCIES.map(view);
            if dependencies.iter().any(|view| view.is_none_or(|view| view.found == Found::No)) {
                return repeated(workload.dependencies(dependencies.iter().any(Option::is_some)));
            }
            for view in dependencies.into_iter().flatten() {
                match view.found {
                    Found::Unknown => return unanswered(view),
                    Found::Failed => return failed(),
                    Found::Yes | Found::No => {}
                }
            }
            match view(JOB_VIEW) {
                None => repeated(vec![workload.view(JOB_VIEW)]),
                Some(view) => match view.found {
                    Found::Unknown => unanswered(view),
                    Found::No => repeated(workload.start()),
                    Found::Yes | Found::Failed => job(view, cluster, workload, now).unwrap_or_else(failed),
                },
            }
        }
        State::Active => match view(JOB_VIEW) {
            // TALM's has no labels, and is not known.
            None => repeated(vec![workload.view(JOB_VIEW)]),
            Some(view) if view.found == Found::Unknown => unanswered(view),
            Some(view) => job(view, cluster, workload, now).unwrap_or_else(failed),
        },
        // Only once the state is written: without the view of the Job it cannot be observed again.
        State::Succeeded if view(JOB_VIEW).is_some() => repeated(Workload::clean()),
        State::Succeeded | State::PrecacheTimeout | State::UnrecoverableError => to(cluster.state, Vec::new()),
    }
}

/// What the Job's state leads to; `None`: an error. The last result of a cluster that is not available says nothing, and
/// a Job without a state has just begun, or is about to end.
fn job(view: &View, cluster: &Cluster<'_>, workload: &Workload<'_>, now: Timestamp) -> Option<Next> {
    let limit = SignedDuration::from_mins(workload.timeout.max(0)).saturating_add(JOB_ENDS);
    let is_late = view.created.checked_add(limit).is_ok_and(|end| now > end);
    let unavailable = cluster.state == State::Active && !cluster.is_available;
    let (state, steps) = match view.answer {
        Answer::Job(Job::Succeeded) => (State::Succeeded, Vec::new()),
        Answer::Job(Job::DeadlineExceeded) => (State::PrecacheTimeout, Workload::forget_dependencies()),
        Answer::Job(Job::BackoffLimitExceeded) => (State::UnrecoverableError, Workload::forget_dependencies()),
        _ if is_late || unavailable || view.found == Found::No || view.found == Found::Failed => return None,
        Answer::Job(Job::Active) if cluster.state != State::Active => (State::Active, Workload::forget_dependencies()),
        _ => (cluster.state, Vec::new()),
    };
    let at = (!state.is_final()).then(|| now.checked_add(FIRST_RESULT).unwrap_or(now));
    Some(Next { state, steps, repeats: false, at })
}

#[cfg(test)]
mod tests;
