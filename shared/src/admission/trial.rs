//! The rules, asked before anybody writes.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{Change, Denial, Finding, Judgement, Target, UnreadFields, User};
use crate::annotation::{Annotations, keys};

/// Why a sleep of an object as it is would be denied, if a person requested it: the first denial. A hold is not among
/// them, because it ends. `read` makes the object that the rules read, with these annotations, awake or asleep.
pub fn sleep_denial<K: Target>(
    annotations: &BTreeMap<String, String>,
    settings: &K::Settings,
    judge: fn(&Change<'_, K>) -> Judgement,
    read: impl Fn(Annotations, bool) -> K,
) -> Option<Finding<Denial>> {
    let user = User { username: "rollout".to_owned() };
    let is_hold = |key: &str| [keys::HOLD_AWAKE_UNTIL, keys::HOLD_AWAKE_BY].contains(&key);
    let kept =
        || annotations.iter().filter(|(key, _)| !is_hold(key)).map(|(key, value)| (key.as_str(), value.as_str()));
    let stamped = kept().chain([(keys::REQUESTED_BY, user.username.as_str())]);
    let change = Change {
        old: Some(read(kept().collect(), false)),
        new: read(stamped.collect(), true),
        user: &user,
        field_manager: keys::CONTROLLER,
        // No rule denies for what an object already says about time.
        now: Timestamp::UNIX_EPOCH,
        settings,
        unread: UnreadFields::default(),
    };
    judge(&change).denials.into_iter().next()
}
