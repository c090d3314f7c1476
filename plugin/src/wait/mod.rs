//! `--wait`: follows targets until they have reached the state asked for.
//!
//! Watches drive it, one for each kind and namespace.

mod display;
pub(crate) mod preflight;
pub(crate) mod rollout;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::future::{Either, join_all, select};
use hub::HubClient;
use hub::watch::{self, Scope, Watcher};
use jiff::Timestamp;
use serde_json::Value;
use shared::kinds::{Progress, UNNOTICED};
use shared::power::Power;
use view::Event;
use view::age::elapsed;
use view::target::Target;

use self::display::{Outcome, ProgressDisplay, Show};
use crate::error::{Exit, Failure, Problem, WaitError};
use crate::output;

/// How long an answer to a request for a check is waited for without `--timeout`: without our controller there is none.
const ANSWER_LIMIT: Duration = Duration::from_mins(2);
/// How often that limit is checked while nothing changes.
const ANSWER_TICK: Duration = Duration::from_secs(1);

/// A target that is waited for.
pub(crate) struct Waiting<'a> {
    pub(crate) target: &'a Target,
    pub(crate) action: Power,
    pub(crate) begin: Instant,
    /// Whether anything was written: if not, the target may have been in that state all the time.
    pub(crate) changed: bool,
    /// A request for a check that the controller has to answer first.
    pub(crate) request: Option<Request>,
    /// Whether it is only followed while others are waited for.
    pub(crate) is_followed: bool,
}

/// A request for a check of a target.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    at: Timestamp,
    /// Within which time it has to be answered.
    limit: Duration,
}

impl Request {
    pub(crate) fn new(at: Timestamp, limit: Option<Duration>) -> Self {
        Self { at, limit: limit.unwrap_or(ANSWER_LIMIT) }
    }
}

impl Waiting<'_> {
    /// What the object says of the target.
    fn outcome(&self, object: &Value, first_observation: bool) -> Outcome {
        let row = self.target.row;
        let progress = match self.request {
            Some(request) => row.check_progress(object, request.at),
            None => row.progress(object, self.action),
        };
        match progress {
            Ok(Progress::Reached) => Outcome::Arrived(self.arrived(first_observation)),
            Ok(Progress::Unanswered(state)) if self.request.is_some_and(|it| self.begin.elapsed() >= it.limit) => {
                Outcome::Failed(WaitError::TimedOut { after: self.begin.elapsed(), state }.into())
            }
            Ok(Progress::InProgress(state) | Progress::Unanswered(state)) => Outcome::Open(state),
            Ok(Progress::Unnoticed) => Outcome::Open(UNNOTICED.to_owned()),
            Ok(Progress::Failed(why)) => self.lost(why),
            Err(error) => Outcome::Failed(error.into()),
        }
    }

    fn lost(&self, why: String) -> Outcome {
        Outcome::Failed(WaitError::Lost { after: self.begin.elapsed(), why }.into())
    }

    /// `hibernating after 38s`.
    fn arrived(&self, first_observation: bool) -> String {
        let state = self.target.row.state_after(self.action);
        if first_observation && !self.changed {
            return format!("already {state}");
        }
        format!("{state} after {}", elapsed(self.begin.elapsed()))
    }
}

/// Waits for all targets, and prints the outcome of each. Returns the exit codes of those that failed, and which are
/// still on their way: none if this is the last wait, for then they have timed out.
pub(crate) async fn all(
    hub: &HubClient,
    targets: &[Waiting<'_>],
    limit: Option<Duration>,
    is_last: bool,
    objects_on_stdout: bool,
) -> (Vec<Exit>, Vec<usize>) {
    let names: Vec<String> = targets.iter().map(|waiting| waiting.target.full_name()).collect();
    let display = ProgressDisplay::new(names.iter().map(String::as_str), Show::Changes);
    let all = follow_all(hub, targets, &display);
    match limit {
        None => all.await,
        // Those that are late are still open then.
        Some(limit) => drop(tokio::time::timeout(limit, all).await),
    }
    let (mut exits, mut open) = (Vec::new(), Vec::new());
    for (at, ((name, waiting), outcome)) in names.into_iter().zip(targets).zip(display.close()).enumerate() {
        let problem = match outcome {
            Outcome::Arrived(text) => {
                let print = if objects_on_stdout { output::note } else { output::line };
                print(&format!("{name} {text}"));
                continue;
            }
            Outcome::Failed(problem) => problem,
            Outcome::Open(_) if !is_last => {
                open.push(at);
                continue;
            }
            Outcome::Open(state) => WaitError::TimedOut { after: waiting.begin.elapsed(), state }.into(),
        };
        exits.push(output::failed(&Failure::new(name, problem)));
    }
    (exits, open)
}

/// Waits for all targets, at most so long. Prints no outcome: the caller does not depend on it.
pub(crate) async fn briefly(hub: &HubClient, targets: &[Waiting<'_>], limit: Duration) {
    let names: Vec<String> = targets.iter().map(|waiting| waiting.target.full_name()).collect();
    let display = ProgressDisplay::new(names.iter().map(String::as_str), Show::Nothing);
    // What is late goes on by itself.
    drop(tokio::time::timeout(limit, follow_all(hub, targets, &display)).await);
    display.close();
}

/// Follows all targets until each that is waited for has arrived or failed, with a watch for each kind and namespace.
async fn follow_all(hub: &HubClient, targets: &[Waiting<'_>], display: &ProgressDisplay) {
    let mut groups: BTreeMap<_, Vec<(usize, &Waiting<'_>)>> = BTreeMap::new();
    for (at, waiting) in targets.iter().enumerate() {
        let Target { resource, namespace, .. } = waiting.target;
        let key = (waiting.is_followed, resource.kind.group, resource.kind.plural, namespace.as_str());
        groups.entry(key).or_default().push((at, waiting));
    }
    let of = |is_followed: bool| {
        let groups = groups.iter().filter(move |(key, _)| key.0 == is_followed);
        join_all(groups.map(|(_, group)| follow(hub, group, display)))
    };
    let awaited = pin!(of(false));
    let followed = pin!(of(true));
    if let Either::Right((_, awaited)) = select(awaited, followed).await {
        awaited.await;
    }
}

/// Follows the targets of one kind and namespace until each has arrived or failed.
async fn follow(hub: &HubClient, group: &[(usize, &Waiting<'_>)], display: &ProgressDisplay) {
    let Some((_, Waiting { target: any, .. })) = group.first() else { return };
    let names: Vec<String> = group.iter().map(|(_, waiting)| waiting.target.name.clone()).collect();
    let tick = if group.iter().any(|(_, waiting)| waiting.request.is_some()) { ANSWER_TICK } else { Duration::MAX };
    let scope = Scope { namespace: Some(&any.namespace), names: &names, tick, ..Scope::of(any.resource) };
    let mut events = view::follow_targets(hub, any.row, scope);
    let mut known = BTreeSet::new();
    // As they were written, until they are listed: the limit of a request passes from then on.
    let requested = group.iter().filter(|(_, waiting)| waiting.request.is_some());
    let mut checked: BTreeMap<usize, Value> =
        requested.map(|(at, waiting)| (*at, waiting.target.object.clone())).collect();
    while !group.iter().all(|(at, _)| display.is_settled(*at)) {
        let of = |name: &str| group.iter().find(|(_, waiting)| waiting.target.name == name);
        match events.next().await {
            Some(Ok(Event::Set(target))) => {
                let Some((at, waiting)) = of(&target.name) else { continue };
                display.update(*at, waiting.outcome(&target.object, known.insert(*at)));
                if let Some(last) = checked.get_mut(at) {
                    *last = target.object;
                }
            }
            Some(Ok(Event::Gone((_, _, name)))) => {
                let Some((at, waiting)) = of(&name) else { continue };
                let gone = WaitError::Deleted { after: waiting.begin.elapsed() };
                display.update(*at, Outcome::Failed(gone.into()));
            }
            // Only the limit of a request passes while nothing changes.
            Some(Ok(Event::Tick | Event::Unreadable(_))) => {
                for (at, waiting) in group {
                    let Some(object) = checked.get(at) else { continue };
                    display.update(*at, waiting.outcome(object, false));
                }
            }
            Some(Err(error)) => {
                for (at, waiting) in group {
                    display.update(*at, waiting.lost(error.to_string()));
                }
                return;
            }
            None => return,
        }
    }
}

/// Waits until `probe` finds what it looks for in the one object that is watched. Without an object only time has
/// passed. The caller sets the deadline.
///
/// # Errors
/// When the object is deleted, or the hub refuses to be asked.
async fn until<T>(
    mut watcher: Watcher<'_>,
    mut probe: impl FnMut(Option<Value>) -> Result<Option<T>, Problem>,
) -> Result<T, Problem> {
    let begin = Instant::now();
    loop {
        let object = match watcher.next().await? {
            watch::Event::Applied(object) => Some(object),
            watch::Event::Deleted(_) => return Err(WaitError::Deleted { after: begin.elapsed() }.into()),
            watch::Event::Tick => None,
        };
        if let Some(found) = probe(object)? {
            return Ok(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::Arc;

    use hub::connection::Connection;
    use serde_json::json;
    use shared::finding::{Finding, Severity, code};
    use shared::hive::data::{DATA, Data};
    use shared::hive::preflight::PREFLIGHT;
    use shared::kinds::CLUSTER_DEPLOYMENT;
    use shared::record::Format;
    use tokio::time::timeout;

    use super::*;

    const REQUESTED: &str = "2026-11-21T18:00:00Z";

    /// A cluster that runs, and what a check of it found when.
    fn running(checked: Option<&str>, found: Option<(Severity, &str, &str)>) -> Value {
        let findings = found.map(|(severity, code, sentence)| Finding::new(severity, code, sentence));
        let data =
            checked.map(|at| Data::default().with_preflight(at.parse().unwrap(), findings.into_iter().collect()));
        json!({
            "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment",
            "metadata": { "name": "demo", "namespace": "x" },
            "spec": {
                "baseDomain": "d", "clusterName": "demo", "installed": true, "platform": { "gcp": { "region": "r" } },
            },
            "status": { "powerState": "Running", "conditions": [
                { "type": "Ready", "status": "True", "reason": "Running" },
                { "type": PREFLIGHT, "status": "True", "lastProbeTime": checked },
                { "type": DATA, "status": "False", "message": data.map(|data| data.text()) },
            ] },
        })
    }

    /// The exit code, none while it is waited for, and the message.
    fn shown(outcome: Outcome) -> (Option<Exit>, String) {
        match outcome {
            Outcome::Open(state) => (None, state),
            Outcome::Arrived(text) => (Some(Exit::Done), text),
            Outcome::Failed(problem) => (Some(problem.exit()), problem.to_string()),
        }
    }

    fn target() -> Target {
        Target::new(&CLUSTER_DEPLOYMENT, "v1", running(None, None))
    }

    fn waiting(target: &Target, seconds: u64, changed: bool) -> Waiting<'_> {
        let begin = Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap();
        Waiting { target, action: Power::Running, begin, changed, request: None, is_followed: false }
    }

    /// `--timeout`, the seconds since the request, and what the check found when.
    #[test]
    fn a_request_is_waited_for_until_it_is_answered_and_without_a_timeout_for_two_minutes() {
        const STATE: &str = "waiting for a check of its machines: hibernate-controller has not answered; is it running, and \
                             does it serve the platform gcp?";
        let late = format!("timed out after 2m0s: {STATE}");
        let unlisted = "stopped waiting after 3s: its machines were not checked: EC2 is silent";
        let fine = Some((Severity::Info, code::CREDENTIALS, "they work"));
        let silent = Some((Severity::Warn, code::CLOUD_NOT_ASKED, "EC2 is silent"));
        for (case, timeout, seconds, checked, found, expected) in [
            ("no answer yet", None, 119, None, None, (None, STATE)),
            ("no answer", None, 120, None, None, (Some(Exit::TimedOut), late.as_str())),
            ("more time is given", Some(600), 120, None, None, (None, STATE)),
            ("an older answer", None, 3, Some("2026-11-21T17:59:59Z"), fine, (None, STATE)),
            ("the answer", None, 3, Some(REQUESTED), fine, (Some(Exit::Done), "running after 3s")),
            ("a late answer", None, 300, Some(REQUESTED), fine, (Some(Exit::Done), "running after 5m0s")),
            ("no list", None, 3, Some(REQUESTED), silent, (Some(Exit::Error), unlisted)),
        ] {
            let request = Some(Request::new(REQUESTED.parse().unwrap(), timeout.map(Duration::from_secs)));
            let target = target();
            let waiting = Waiting { request, ..waiting(&target, seconds, true) };
            let (exit, text) = shown(waiting.outcome(&running(checked, found), true));
            assert_eq!((exit, text.as_str()), expected, "{case}");
        }
    }

    #[test]
    fn without_a_request_the_state_alone_counts() {
        for (changed, first_observation, text) in
            [(false, true, "already running"), (false, false, "running after 3s"), (true, true, "running after 3s")]
        {
            let outcome = shown(waiting(&target(), 3, changed).outcome(&running(None, None), first_observation));
            assert_eq!(outcome, (Some(Exit::Done), text.to_owned()), "{changed} {first_observation}");
        }
    }

    #[test]
    fn a_request_is_given_up_while_the_hub_cannot_be_listed() {
        let _ = hub::provider().install_default();
        let mut kubeconfig = tempfile::NamedTempFile::new().unwrap();
        kubeconfig.write_all(b"kind: Config\n").unwrap();
        let kubeconfig = Some(kubeconfig.path().to_owned());
        let hub = Connection { server: Some("http://127.0.0.1:9".to_owned()), kubeconfig, ..Connection::default() };
        let target = target();
        let request = Some(Request::new(REQUESTED.parse().unwrap(), None));
        let waiting = [Waiting { request, ..waiting(&target, 120, true) }];
        let ended = async {
            let hub = HubClient::connect(&hub, Arc::new(|_| {})).unwrap();
            timeout(Duration::from_secs(20), all(&hub, &waiting, None, true, false)).await.expect("it ends")
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        assert_eq!(runtime.block_on(ended).0, [Exit::TimedOut]);
    }
}
