//! Row D11: the release is the wake-up. If the operator has not deleted what was released some time later, it slept
//! through it or failed: it is woken again, at most as often as it makes sense.

use std::collections::BTreeMap;
use std::time::Duration;

use super::facts::Facts;
use super::plan::{Change, Group, Plan};

/// Time between a release and the first further wake-up.
const FIRST_WAKE_DELAY: Duration = Duration::from_secs(15);
/// Longest time between two wake-ups.
const MAX_WAKE_INTERVAL: Duration = Duration::from_mins(10);

pub(super) fn wake(facts: &Facts<'_>, released: &BTreeMap<&str, Group>, plan: &mut Plan) {
    let since = released.values().map(|group| group.since);
    let (Some(first), Some(last)) = (since.clone().min(), since.max()) else {
        if plan.actions.iter().any(|action| action.change == Change::Release) {
            plan.again_in(FIRST_WAKE_DELAY);
        }
        return;
    };
    let objects = || released.values().flat_map(|group| &group.objects);
    let woken = objects().filter_map(|object| facts.objects[*object].woken).max();
    // A moment that lies ahead was written by a clock that was set back since: it does not count.
    let ahead = facts.now.checked_add(MAX_WAKE_INTERVAL).unwrap_or(facts.now);
    let before = [Some(last), woken].into_iter().flatten().filter(|moment| *moment <= ahead).max();
    // As long again as it has been tried for: 15 s, 30 s, 1 min and so on after the release.
    let due = before.map(|before| {
        let tried = Duration::try_from(before.duration_since(first)).unwrap_or(MAX_WAKE_INTERVAL);
        before.checked_add(tried.clamp(FIRST_WAKE_DELAY, MAX_WAKE_INTERVAL)).unwrap_or(before)
    });
    let newer = plan.actions.iter().any(|action| action.change != Change::Wake);
    if due.is_none_or(|due| due <= facts.now) {
        // Any other change of ours wakes the operator as well.
        if !newer && let Some(object) = objects().min() {
            plan.act(*object, Change::Wake);
        }
        plan.again_in(FIRST_WAKE_DELAY);
    } else if let Some(due) = due {
        plan.again_at(due, facts.now);
    }
}
