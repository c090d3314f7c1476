//! Row D10: whose turn it is. One wake-up makes the operator delete everything that may be deleted, whatever its
//! `removalMode`, so the pace is kept by releasing.
//!
//! * `All`: everything that is due goes at once.
//! * `Zone`: what is due of one zone goes at once, and while its turn lasts, whatever else of it becomes due. The next
//!   zone follows `waitBetweenRemovalsSeconds` after the last release, once what was released is gone.
//! * `ProcessGroup`: the same with single groups.
//! * `None`: nothing goes until the mode is another one. It is the brake that an administrator may pull.
//!
//! The time of the last release is kept in memory only, so after a restart the first release waits, too.
//!
//! Row D11: the release is the wake-up. If the operator has not deleted what was released some time later, it slept
//! through it or failed: it is woken again, at most as often as it makes sense.

use std::collections::BTreeMap;
use std::time::Duration;

use super::facts::{Facts, Turn};
use super::plan::{Change, Group, Plan};
use crate::duration::after;
use crate::fdb::api::RemovalMode;

/// After this long the next turn begins though something of the last one is still there, unless the database is unwell:
/// then the operator holds deletions back, and would do all of them at once when it is well again.
const TURN_TIMEOUT: Duration = Duration::from_mins(10);

/// How often to check whether released objects are gone.
const RELEASE_POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Time between a release and the first further wake-up.
const FIRST_WAKE_DELAY: Duration = Duration::from_secs(15);
/// Longest time between two wake-ups.
const MAX_WAKE_INTERVAL: Duration = Duration::from_mins(10);

/// Releases those whose turn it is.
pub(super) fn take(facts: &Facts<'_>, due: &BTreeMap<&str, Group>, released: &BTreeMap<&str, Group>, plan: &mut Plan) {
    let mode = facts.cluster.removal_mode();
    let turn_of = |id: &str, group: &Group| if mode == RemovalMode::Zone { group.zone.clone() } else { id.to_owned() };
    let last = last_turn(facts, released, &turn_of);
    plan.turn.clone_from(&last);
    // What a crash left half released goes with its other half.
    for (_, group) in due.iter().filter(|(id, _)| released.contains_key(*id)) {
        release(group, plan);
    }
    let due: BTreeMap<&str, &Group> =
        due.iter().filter(|(id, _)| !released.contains_key(*id)).map(|(id, group)| (*id, group)).collect();
    if mode == RemovalMode::None || due.is_empty() {
        plan.waiting = due.len();
        return;
    }
    let now = facts.now;
    if mode == RemovalMode::All {
        for group in due.values() {
            release(group, plan);
        }
        plan.turn = Some(Turn { of: String::new(), began: now, last: now });
        return;
    }
    if !released.is_empty() && !is_well(facts) {
        plan.waiting = due.len();
        return plan.requeue_in(RELEASE_POLL_INTERVAL);
    }
    // The group that has waited longest is next; of several, the first by name.
    let next =
        due.iter().min_by_key(|(id, group)| (group.since, turn_of(id, group))).map(|(id, group)| turn_of(id, group));
    let wait = facts.cluster.wait_between_removals();
    let open = last.as_ref().filter(|turn| now < after(turn.began, wait) && now >= turn.began);
    let open = open.filter(|turn| due.iter().any(|(id, group)| turn_of(id, group) == turn.of));
    if open.is_none()
        && let Some(pause) = pause(facts, wait, last.as_ref(), released.is_empty())
    {
        plan.waiting = due.len();
        return plan.requeue_in(pause);
    }
    let (of, began) = match open {
        Some(turn) => (turn.of.clone(), turn.began),
        None => (next.unwrap_or_default(), now),
    };
    for (id, group) in &due {
        if turn_of(id, group) == of {
            release(group, plan);
        } else {
            plan.waiting += 1;
        }
    }
    if plan.waiting > 0 {
        plan.requeue_in(wait.max(Duration::from_secs(1)));
    }
    plan.turn = Some(Turn { of, began, last: now });
}

/// How long the next turn still has to wait.
fn pause(facts: &Facts<'_>, wait: Duration, last: Option<&Turn>, is_all_gone: bool) -> Option<Duration> {
    let longest = if is_all_gone { wait } else { wait.max(TURN_TIMEOUT) };
    let earliest = last.map_or_else(|| after(facts.began, wait), |turn| after(turn.last, longest));
    let pause = Duration::try_from(earliest.duration_since(facts.now)).ok().filter(|pause| !pause.is_zero())?;
    // A clock that was set back must not stop the turns for longer than they take.
    let pause = Some(pause).filter(|pause| *pause <= longest)?;
    Some(if is_all_gone { pause } else { pause.min(RELEASE_POLL_INTERVAL) })
}

/// Whether the operator may delete at all. A status that says nothing is no reason to wait.
fn is_well(facts: &Facts<'_>) -> bool {
    let health = facts.cluster.status.as_ref().and_then(|status| status.health.as_ref());
    health.is_none_or(|health| health.available && health.full_replication)
}

fn release(group: &Group, plan: &mut Plan) {
    group.objects.iter().for_each(|object| plan.act(*object, Change::Release));
}

/// The newest release that is remembered or still to be seen.
fn last_turn(
    facts: &Facts<'_>,
    released: &BTreeMap<&str, Group>,
    turn_of: &impl Fn(&str, &Group) -> String,
) -> Option<Turn> {
    // One that lies ahead was written by a clock that was set back since: it says nothing about the pace.
    let seen = released.iter().filter(|(_, group)| group.since <= facts.now);
    let seen = seen.max_by_key(|(_, group)| group.since).map(|(id, group)| Turn {
        of: turn_of(id, group),
        began: group.since,
        last: group.since,
    });
    match (facts.turn.clone(), seen) {
        (Some(turn), Some(seen)) if seen.of != turn.of && seen.last > turn.last => Some(seen),
        (Some(turn), Some(seen)) => Some(Turn { last: turn.last.max(seen.last), ..turn }),
        (turn, seen) => turn.or(seen),
    }
}

/// Row D11.
pub(super) fn wake(facts: &Facts<'_>, released: &BTreeMap<&str, Group>, plan: &mut Plan) {
    let since = released.values().map(|group| group.since);
    let (Some(first), Some(last)) = (since.clone().min(), since.max()) else {
        if plan.actions.iter().any(|action| action.change == Change::Release) {
            plan.requeue_in(FIRST_WAKE_DELAY);
        }
        return;
    };
    let objects = || released.values().flat_map(|group| &group.objects);
    let woken = objects().filter_map(|object| facts.objects[*object].woken).max();
    // A moment that lies ahead was written by a clock that was set back since: it does not count.
    let ahead = after(facts.now, MAX_WAKE_INTERVAL);
    let before = [Some(last), woken].into_iter().flatten().filter(|moment| *moment <= ahead).max();
    // As long again as it has been tried for: 15 s, 30 s, 1 min and so on after the release.
    let due = before.map(|before| {
        let tried = Duration::try_from(before.duration_since(first)).unwrap_or(MAX_WAKE_INTERVAL);
        after(before, tried.clamp(FIRST_WAKE_DELAY, MAX_WAKE_INTERVAL))
    });
    let newer = plan.actions.iter().any(|action| action.change != Change::Wake);
    if due.is_none_or(|due| due <= facts.now) {
        // Any other change of ours wakes the operator as well.
        if !newer && let Some(object) = objects().min() {
            plan.act(*object, Change::Wake);
        }
        plan.requeue_in(FIRST_WAKE_DELAY);
    } else if let Some(due) = due {
        plan.requeue_at(due, facts.now);
    }
}
