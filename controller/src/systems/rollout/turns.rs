//! Whose turn it is: of each requester only so many unfinished rollouts of one action are worked on. A wake waits for
//! no sleep.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::reflector::Store;
use parking_lot::Mutex;
use shared::annotation::keys;
use shared::annotation::mark::Action;
use shared::rollout::api::PowerRollout;
use shared::rollout::plan::{has_begun, is_closed, is_over};
use shared::rollout::status::{PowerRolloutStatus, RolloutPhase};
use shared::text::sanitize_to;
use tokio::time::Instant;

use crate::runtime::hub::key_of;
use crate::runtime::{Follower, Guarded, Key, clock};

/// How the API server names the service accounts of a namespace.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
/// Longest name in a message, in characters.
const MAX_NAME: usize = 100;
/// How long an answer stands that no change has voided: `notAfter` passes without one.
const KEPT: Duration = Duration::from_secs(1);

/// The rollouts that are worked on, found anew when one of them has changed, and not for each of them.
#[derive(Debug)]
pub struct Turns {
    /// Unfinished rollouts of one requester and action that are worked on.
    pub limit: NonZeroUsize,
    /// Changes that the watch has brought.
    changes: AtomicU64,
    kept: Mutex<Option<Kept>>,
}

/// An answer: at which change and when it was found.
#[derive(Debug)]
struct Kept {
    change: u64,
    at: Instant,
    admitted: Arc<HashSet<Key>>,
}

impl Turns {
    /// So many of each requester and action.
    pub fn new(limit: NonZeroUsize) -> Self {
        Self { limit, changes: AtomicU64::new(0), kept: Mutex::default() }
    }

    /// The rollouts of these that are worked on.
    pub fn admitted(&self, all: impl FnOnce() -> Vec<Arc<Guarded<PowerRollout>>>) -> Arc<HashSet<Key>> {
        // Before the objects are read: what changes meanwhile voids the answer.
        let change = self.changes.load(Ordering::Acquire);
        let mut kept = self.kept.lock();
        if let Some(kept) = kept.as_ref().filter(|kept| kept.change == change && kept.at.elapsed() < KEPT) {
            return kept.admitted.clone();
        }
        let admitted = Arc::new(admitted(&all(), self.limit));
        *kept = Some(Kept { change, at: Instant::now(), admitted: admitted.clone() });
        admitted
    }

    fn void(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }
}

impl Follower<PowerRollout> for Turns {
    fn listed(&self, _: &Store<Guarded<PowerRollout>>) {
        self.void();
    }

    fn changed(&self, _: &Key) {
        self.void();
    }
}

/// Who shares a limit: the user who let the rollout start. Service accounts of one namespace are one requester: a
/// tenant that can create one can create many.
pub fn requester(rollout: &PowerRollout) -> &str {
    let user = rollout.annotations().get(keys::REQUESTED_BY).map_or("", String::as_str);
    let namespace = user.strip_prefix(SERVICE_ACCOUNT).and_then(|account| account.split(':').next());
    namespace.map_or(user, |namespace| &user[..SERVICE_ACCOUNT.len() + namespace.len()])
}

/// A rollout in a queue: whether it has yet to begin, and when it was created.
type Queued<'a> = (bool, Option<Timestamp>, &'a PowerRollout);

/// Whether it is over, and nothing that has changed since starts anything: `retryFailed` waits once `notAfter` has
/// passed.
pub fn rests(rollout: &PowerRollout) -> bool {
    is_over(rollout) || is_reported(rollout)
}

/// Whether it is over, and its status says that a retry waits for a later `notAfter`.
fn is_reported(rollout: &PowerRollout) -> bool {
    let is_reported = |status: &PowerRolloutStatus| {
        status.phase.is_some_and(RolloutPhase::is_over) && status.observed_generation == rollout.metadata.generation
    };
    is_closed(&rollout.spec, clock::now()) && rollout.status.as_ref().is_some_and(is_reported)
}

/// The unfinished rollouts that are worked on. What has begun goes on, and counts; then the oldest of each requester.
/// Each action has a queue of its own: a Resume waits for no Hibernate, and for no Restore, which may be a sleep.
fn admitted(all: &[Arc<Guarded<PowerRollout>>], limit: NonZeroUsize) -> HashSet<Key> {
    let mut queues: HashMap<(&str, Action), Vec<Queued<'_>>> = HashMap::new();
    let mut admitted = HashSet::new();
    for rollout in all.iter().filter_map(|one| one.0.as_ref().ok()).filter(|rollout| !rests(rollout)) {
        // A schedule has one at a time, and takes no turn from the person who wrote it.
        if rollout.spec.scheduled_by.is_some() {
            admitted.insert(key_of(rollout));
            continue;
        }
        let created = rollout.creation_timestamp().map(|at| at.0);
        let queue = queues.entry((requester(rollout), rollout.spec.action)).or_default();
        queue.push((!has_begun(rollout), created, rollout));
    }
    for queue in queues.values_mut() {
        queue.sort_by(|one, other| {
            (one.0, one.1, &one.2.metadata.name).cmp(&(other.0, other.1, &other.2.metadata.name))
        });
        let begun = queue.iter().filter(|(waits, ..)| !waits).count();
        admitted.extend(queue.iter().take(begun.max(limit.get())).map(|(.., rollout)| key_of(*rollout)));
    }
    admitted
}

/// What a rollout says that waits for its turn.
pub fn queued(rollout: &PowerRollout, limit: NonZeroUsize) -> String {
    let who = match requester(rollout) {
        "" => "an unknown user".to_owned(),
        user => sanitize_to(user, MAX_NAME),
    };
    let action = rollout.spec.action;
    format!(
        "{who} has {limit} unfinished rollouts with action {action}, and no more are worked on at once: it waits until one of them ends"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rollout(name: &str, by: &str, second: u8, status: &Value) -> Arc<Guarded<PowerRollout>> {
        let object = json!({
            "apiVersion": "hibernate.sh/v1alpha1", "kind": "PowerRollout",
            "metadata": {
                "name": name, "creationTimestamp": format!("2026-11-24T12:00:{second:02}Z"),
                "annotations": { keys::REQUESTED_BY: by },
            },
            "spec": {
                "action": "Hibernate", "targets": { "all": true }, "maxTargets": 1, "notAfter": "2126-01-01T00:00:00Z",
            },
            "status": status,
        });
        Arc::new(serde_json::from_value(object).expect("a rollout"))
    }

    /// Who is admitted, of at most two each.
    fn names(all: &[Arc<Guarded<PowerRollout>>]) -> Vec<String> {
        let mut names: Vec<String> =
            admitted(all, NonZeroUsize::new(2).expect("two")).into_iter().map(|(_, name)| name).collect();
        names.sort();
        names
    }

    #[test]
    fn the_oldest_of_each_requester_are_worked_on_and_what_has_begun_goes_on() {
        let (new, begun) = (json!({}), json!({ "startedAt": "2026-11-24T12:01:00Z" }));
        let over = json!({ "phase": "Finished", "attempt": 0 });
        let (one, other) = ("system:serviceaccount:team:one", "system:serviceaccount:team:other");
        for (what, all, expected) in [
            (
                "the oldest, by name if of one second",
                vec![("c", "ann", 2, &new), ("b", "ann", 1, &new), ("a", "ann", 2, &new)],
                vec!["a", "b"],
            ),
            (
                "each requester has its own",
                vec![("a", "ann", 1, &new), ("b", "ann", 2, &new), ("c", "ann", 3, &new), ("d", "bob", 4, &new)],
                vec!["a", "b", "d"],
            ),
            (
                "what is over counts no more",
                vec![("a", "ann", 1, &over), ("b", "ann", 2, &new), ("c", "ann", 3, &new), ("d", "ann", 4, &new)],
                vec!["b", "c"],
            ),
            (
                "what has begun counts first",
                vec![("a", "ann", 1, &new), ("b", "ann", 2, &new), ("c", "ann", 3, &begun)],
                vec!["a", "c"],
            ),
            (
                "what has begun goes on, though others let it go on",
                vec![("a", "ann", 1, &begun), ("b", "ann", 2, &begun), ("c", "ann", 3, &begun), ("d", "ann", 0, &new)],
                vec!["a", "b", "c"],
            ),
            (
                "service accounts of one namespace are one requester",
                vec![("a", one, 1, &new), ("b", other, 2, &new), ("c", one, 3, &new)],
                vec!["a", "b"],
            ),
            (
                "an unknown user is a requester",
                vec![("a", "", 1, &new), ("b", "", 2, &new), ("c", "", 3, &new)],
                vec!["a", "b"],
            ),
        ] {
            let all: Vec<_> = all.into_iter().map(|(name, by, at, status)| rollout(name, by, at, status)).collect();
            assert_eq!(names(&all), expected, "{what}");
        }
    }

    #[test]
    fn a_wake_waits_for_no_sleep_and_a_sleep_for_no_wake() {
        let acts = |name: &str, action: Action, status: &Value| {
            let mut one = rollout(name, "ann", 1, status);
            if let Some(Ok(one)) = Arc::get_mut(&mut one).map(|one| one.0.as_mut()) {
                one.spec.action = action;
            }
            one
        };
        let (new, begun) = (json!({}), json!({ "startedAt": "2026-11-24T12:01:00Z" }));
        let sleeps = ["a", "b", "c"].map(|name| acts(name, Action::Hibernate, &begun));
        let undone = ["d", "e", "f"].map(|name| acts(name, Action::Restore, &new));
        let wakes = ["w", "x", "y"].map(|name| acts(name, Action::Resume, &new));
        let all = [sleeps, undone, wakes].concat();
        assert_eq!(names(&all), ["a", "b", "c", "d", "e", "w", "x"]);
    }

    /// Eight hundred rollouts that wait ask for it one by one.
    #[tokio::test(start_paused = true)]
    async fn the_answer_is_found_once_for_all_until_something_changes() {
        let turns = Turns::new(NonZeroUsize::new(2).expect("two"));
        let all: Vec<_> = (0..800).map(|at| rollout(&format!("{at:03}"), "ann", 1, &json!({}))).collect();
        let found = std::cell::Cell::new(0);
        let ask = || {
            turns.admitted(|| {
                found.set(found.get() + 1);
                all.clone()
            })
        };
        assert!((0..800).all(|_| ask().len() == 2));
        assert_eq!(found.get(), 1);
        Follower::changed(&turns, &(String::new(), "000".to_owned()));
        ask();
        assert_eq!((ask().len(), found.get()), (2, 2), "a change");
        tokio::time::advance(KEPT).await; // `notAfter` may have passed
        ask();
        assert_eq!((ask().len(), found.get()), (2, 3));
    }

    #[test]
    fn what_is_over_rests_until_targets_may_start_again() {
        let rollout = |not_after: &str, generation: i64, phase: &str| -> PowerRollout {
            let object = json!({
                "apiVersion": "hibernate.sh/v1alpha1", "kind": "PowerRollout",
                "metadata": { "name": "night", "generation": generation },
                "spec": {
                    "action": "Hibernate", "targets": { "all": true }, "maxTargets": 1, "notAfter": not_after,
                    "retryFailed": 1,
                },
                "status": { "phase": phase, "observedGeneration": 2, "attempt": 0 },
            });
            serde_json::from_value(object).expect("a rollout")
        };
        let (passed, to_come) = ("2020-01-01T00:00:00Z", "2126-01-01T00:00:00Z");
        for (not_after, generation, phase, expected) in [
            (passed, 2, "Finished", true),
            (passed, 3, "Finished", false),
            (passed, 2, "Progressing", false),
            (to_come, 2, "Finished", false),
        ] {
            let found = is_reported(&rollout(not_after, generation, phase));
            assert_eq!(found, expected, "{not_after} {generation} {phase}");
        }
    }

    /// It holds no turn and calls for no reconcile: past `notAfter` the counter changes nothing.
    #[test]
    fn what_is_over_past_its_end_counts_no_more_whatever_its_counters_say() {
        let over = json!({ "phase": "Finished", "attempt": 0, "startedAt": "2026-11-24T12:01:00Z" });
        let mut late = rollout("a", "ann", 1, &over);
        let spec =
            Arc::get_mut(&mut late).and_then(|one| one.0.as_mut().ok()).map(|one| &mut one.spec).expect("a spec");
        spec.retry_failed = 1;
        spec.not_after = serde_json::from_value(json!("2026-11-24T13:00:00Z")).expect("a time");
        let [b, c] = ["b", "c"].map(|name| rollout(name, "ann", 2, &json!({})));
        assert_eq!(names(&[late, b, c]), ["b", "c"]);
    }

    #[test]
    fn a_message_names_the_requester_without_its_control_characters() {
        let limit = NonZeroUsize::new(50).expect("fifty");
        for (by, expected) in [
            ("ann", "ann has 50 unfinished"),
            ("", "an unknown user has 50 unfinished"),
            ("system:serviceaccount:team:x", "system:serviceaccount:team has 50"),
        ] {
            let found = queued(rollout("a", by, 0, &json!({})).0.as_ref().expect("a rollout"), limit);
            assert!(found.starts_with(expected), "{found}");
        }
        let hostile = format!("\u{1b}[31m{}", "x".repeat(10_000));
        let found = queued(rollout("a", &hostile, 0, &json!({})).0.as_ref().expect("a rollout"), limit);
        assert!(found.len() < 300 && !found.contains('\u{1b}'), "{found}");
    }
}
