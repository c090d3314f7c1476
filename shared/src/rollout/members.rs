//! Which group a member belongs to.

use super::target::{State, Target};

/// Puts targets that belong to no group into the last one, and fills up canary groups: where nothing of a canary group has to change, it
/// proves nothing, and the first of the remaining targets take its place.
///
/// `canaries`: how many of the first groups are canary groups; the last group is never one. Call it once, when the rollout starts.
pub fn place(targets: &mut [Target], groups: usize, canaries: usize) {
    let last = groups.saturating_sub(1);
    for target in targets.iter_mut().filter(|target| target.group > last) {
        target.group = last;
    }
    for group in 0..canaries.min(last) {
        let members: Vec<&Target> = targets.iter().filter(|target| target.group == group).collect();
        let count = members.len();
        if members.iter().any(|target| target.state != State::Excluded) {
            continue;
        }
        let mut rest: Vec<&mut Target> =
            targets.iter_mut().filter(|target| target.group == last && target.state == State::Pending).collect();
        rest.sort_by(|one, other| one.name.cmp(&other.name));
        for target in rest.into_iter().take(count) {
            target.group = group;
        }
    }
}
