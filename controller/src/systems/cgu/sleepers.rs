//! Clusters that sleep, by the `ClusterDeployment` whose name and namespace are the cluster's: the last compliance report
//! of such a cluster does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::runtime::reflector::Store;
use kube::runtime::watcher;
use parking_lot::Mutex;
use shared::hive::api::ClusterDeployment;
use shared::kinds::lifecycle::Lifecycle as _;
use shared::kinds::view::{Power, View};
use tokio::sync::Notify;

use crate::runtime::hub::{key_of, object_ref};
use crate::runtime::{Follower, Guarded, Key};
use crate::spoke::reader::is_not_there;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Or about to be, or waking.
    Asleep,
    /// Running since then.
    Running(Timestamp),
}

/// The clusters of one term of leadership.
#[derive(Default)]
pub struct Sleepers {
    known: Mutex<ClusterStates>,
    pub(super) changes: Notify,
}

#[derive(Default)]
struct ClusterStates {
    /// The watch's store, once its list is complete.
    store: Option<Store<Guarded<ClusterDeployment>>>,
    /// The hub has no `ClusterDeployments`.
    has_no_kind: bool,
    states: BTreeMap<String, State>,
}

impl Sleepers {
    /// Clusters that sleep or have run for less than `settle`, and when the next of them has run for that long. `None`
    /// until they are listed.
    pub(super) fn asleep(&self, now: Timestamp, settle: Duration) -> Option<(BTreeSet<String>, Option<Timestamp>)> {
        let settle = SignedDuration::try_from(settle).unwrap_or(SignedDuration::MAX);
        let (mut names, mut next) = (BTreeSet::new(), None::<Timestamp>);
        let known = self.known.lock();
        if known.store.is_none() && !known.has_no_kind {
            return None;
        }
        for (name, state) in &known.states {
            if let State::Running(since) = state {
                let settled = since.checked_add(settle).unwrap_or(Timestamp::MAX);
                if settled <= now {
                    continue;
                }
                next = Some(next.map_or(settled, |next| next.min(settled)));
            }
            names.insert(name.clone());
        }
        Some((names, next))
    }

    fn set(&self, name: &str, state: Option<State>) {
        let mut known = self.known.lock();
        let has_changed = match state {
            Some(state) => known.states.insert(name.to_owned(), state) != Some(state),
            None => known.states.remove(name).is_some(),
        };
        drop(known);
        if has_changed {
            self.changes.notify_one();
        }
    }
}

/// `None` for a cluster without a reported state.
fn state(view: &View) -> Option<State> {
    if view.desired.power != Power::Running {
        return Some(State::Asleep);
    }
    match view.observed.power {
        Some((Power::Running, since)) => Some(State::Running(since)),
        _ if view.observed.state.is_empty() => None,
        _ => Some(State::Asleep),
    }
}

/// A cluster whose object cannot be read counts as asleep.
fn read(object: &Guarded<ClusterDeployment>) -> Option<State> {
    object.0.as_ref().map_or(Some(State::Asleep), |cluster| state(&cluster.view(None)))
}

impl Follower<ClusterDeployment> for Sleepers {
    /// Replaces all states at once: in between, reports of sleeping clusters would count.
    fn listed(&self, objects: &Store<Guarded<ClusterDeployment>>) {
        let all = objects.state();
        let of_clusters =
            all.iter().map(|object| (key_of(&**object), object)).filter(|((namespace, name), _)| namespace == name);
        let states = of_clusters.filter_map(|((_, name), object)| Some((name, read(object)?))).collect();
        *self.known.lock() = ClusterStates { store: Some(objects.clone()), has_no_kind: false, states };
        self.changes.notify_one();
    }

    fn changed(&self, key: &Key) {
        if key.0 != key.1 {
            return;
        }
        let store = self.known.lock().store.clone();
        let found = store.and_then(|store| store.get(&object_ref(key.clone())));
        self.set(&key.1, found.and_then(|object| read(&object)));
    }

    fn failed(&self, error: &watcher::Error) {
        if matches!(error, watcher::Error::InitialListFailed(error) if is_not_there(error)) {
            self.known.lock().has_no_kind = true;
            self.changes.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use shared::kinds::view::{Desired, Observed};

    use super::*;

    #[test]
    fn a_cluster_is_believed_once_it_has_run_for_a_while() {
        let since = Timestamp::from_second(1_000).unwrap();
        let view = |desired, power: Option<Power>, state: &str| View {
            desired: Desired { power: desired, ..Desired::default() },
            observed: Observed {
                power: power.map(|power| (power, since)),
                state: state.to_owned(),
                ..Observed::default()
            },
            ..View::default()
        };
        let sleepers = Sleepers::default();
        let refused = |code| {
            let status = kube::core::Status::failure("no", "no").with_code(code);
            watcher::Error::InitialListFailed(kube::Error::Api(status.boxed()))
        };
        sleepers.failed(&refused(403));
        assert_eq!(sleepers.asleep(since, Duration::ZERO), None, "not listed");
        sleepers.failed(&refused(404));
        assert_eq!(sleepers.asleep(since, Duration::ZERO), Some((BTreeSet::new(), None)), "a hub without Hive");
        for (name, view) in [
            ("running", view(Power::Running, Some(Power::Running), "Running")),
            ("wanted", view(Power::Hibernating, Some(Power::Running), "Running")),
            ("asleep", view(Power::Hibernating, Some(Power::Hibernating), "Hibernating")),
            ("waking", view(Power::Running, None, "WaitingForMachines")),
            ("silent", view(Power::Running, None, "")),
        ] {
            sleepers.set(name, state(&view));
        }
        let at = |second| sleepers.asleep(Timestamp::from_second(second).unwrap(), Duration::from_mins(10)).unwrap();
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
        assert_eq!(at(1_599), (names(&["asleep", "running", "waking", "wanted"]), Timestamp::from_second(1_600).ok()));
        assert_eq!(at(1_600), (names(&["asleep", "waking", "wanted"]), None));
        sleepers.set("asleep", None);
        assert_eq!(at(1_600).0, names(&["waking", "wanted"]), "its object is gone");
    }
}
