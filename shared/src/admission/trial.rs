//! What the rules say of a sleep that has not been requested yet.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{Change, Denial, Evaluation, Finding, Settings, Target, UnreadFields, User};
use crate::annotation::keys;
use crate::power::Power;

/// User of a sleep that is only tried. No verdict depends on the name.
const NOBODY: &str = "plan";

/// What the rules say of a sleep of this object, if a person requested it now. `None` if it does not match its schema. They
/// read it as they read an object of a request.
pub fn sleep_trial<K: Target>(
    mut object: Value,
    settings: &Settings,
    now: Timestamp,
    judge: fn(&Change<'_, K>) -> Evaluation,
) -> Option<Evaluation> {
    let user = User { username: NOBODY.to_owned() };
    set(&mut object, K::INTENT_PATH, None);
    let awake = K::deserialize(&object).ok()?;
    set(&mut object, K::INTENT_PATH, Some(&Power::Hibernating.to_string()));
    set(&mut object, &["metadata", "annotations", keys::REQUESTED_BY], Some(NOBODY));
    Some(judge(&Change {
        old: Some(awake),
        new: K::deserialize(&object).ok()?,
        user: &user,
        field_manager: "",
        now,
        settings,
        unread: UnreadFields::default(),
    }))
}

/// Why a sleep of this object would be denied: the first denial. A hold is not among them, because it ends.
pub fn sleep_denial<K: Target>(
    object: &impl Serialize,
    settings: &Settings,
    judge: fn(&Change<'_, K>) -> Evaluation,
) -> Option<Finding<Denial>> {
    let mut object = serde_json::to_value(object).ok()?;
    for key in [keys::HOLD_AWAKE_UNTIL, keys::HOLD_AWAKE_BY] {
        set(&mut object, &["metadata", "annotations", key], None);
    }
    // No rule denies for what an object already says about time.
    sleep_trial(object, settings, Timestamp::UNIX_EPOCH, judge)?.denials.into_iter().next()
}

/// Sets a field, or removes it. A parent that is not an object is replaced.
fn set(object: &mut Value, path: &[&str], value: Option<&str>) {
    let Some((name, parents)) = path.split_last() else { return };
    let Some(value) = value else {
        let parent = parents.iter().try_fold(object, |parent, name| parent.get_mut(*name));
        drop(parent.and_then(|parent| parent.as_object_mut()?.remove(*name)));
        return;
    };
    let mut parent = object;
    for name in parents {
        parent = &mut parent[*name];
        if !parent.is_object() {
            *parent = Value::Object(Map::new());
        }
    }
    parent[*name] = value.into();
}
