//! The last known state of each object of a query.

use std::collections::BTreeMap;

use shared::kinds::Key;
use shared::text::sanitize;

use super::error::Failure;
use super::{Event, Item, Query};

/// An item, or why it cannot be read: one short line.
pub type Entry = Result<Item, String>;

/// By type, namespace and name.
pub type Entries = BTreeMap<Key, Entry>;

/// What an event changes.
#[derive(Debug, PartialEq)]
pub enum Update {
    None,
    /// Time has passed, or a hidden object is gone: what is shown is old.
    Refresh,
    /// The new state of one object.
    Entry(Entry),
}

/// Splits failures: those of objects, and the texts of all others.
pub fn of_failures(failures: &[Failure]) -> (Entries, Vec<String>) {
    let (of_objects, others): (Vec<&Failure>, Vec<&Failure>) = failures.iter().partition(|one| one.key.is_some());
    let entries = of_objects.into_iter().filter_map(|one| Some((one.key.clone()?, Err(sanitize(one)))));
    (entries.collect(), others.into_iter().map(sanitize).collect())
}

impl Event {
    /// The object that it is about.
    pub fn key(&self) -> Option<Key> {
        match self {
            Self::Tick => None,
            Self::Gone(key) => Some(key.clone()),
            Self::Set(item) => Some(item.key()),
            Self::Unreadable(failure) => failure.key.clone(),
        }
    }

    /// Applies it.
    pub fn apply(self, query: &Query, entries: &mut Entries) -> Update {
        let key = self.key();
        let entry = match self {
            Self::Tick => return Update::Refresh,
            Self::Gone(key) => {
                return match entries.remove(&key) {
                    Some(Ok(item)) => Update::Entry(Ok(item.deleted())),
                    Some(Err(_)) => Update::Entry(Err(format!("{}/{} was deleted", key.0, key.2))),
                    None => Update::None,
                };
            }
            // One that was shown is followed on, even when it is awake by now.
            Self::Set(item) if !query.shows(&item) && !matches!(entries.get(&item.key()), Some(Ok(_))) => {
                return entries.remove(&item.key()).map_or(Update::None, |_| Update::Refresh);
            }
            Self::Set(item) => Ok(item),
            Self::Unreadable(failure) => Err(sanitize(&failure)),
        };
        let before = key.and_then(|key| entries.insert(key, entry.clone()));
        if before.as_ref() == Some(&entry) { Update::None } else { Update::Entry(entry) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::kinds::POWER_ROLLOUT;

    use super::*;
    use crate::rollout::RolloutState;

    /// A rollout that cannot be read any more is not shown as it was.
    #[test]
    fn an_unreadable_object_is_reported_once_until_it_can_be_read() {
        let key = (POWER_ROLLOUT.kind.type_name(), String::new(), "night".to_owned());
        let item = |paused: bool| {
            let spec = json!({
                "action": "Hibernate", "maxTargets": 2, "notAfter": "2026-11-21T20:30:00Z", "targets": { "all": true },
                "paused": paused,
            });
            let object = json!({ "metadata": { "name": "night" }, "spec": spec });
            Item::Rollout(Box::new(RolloutState::read(object).unwrap()))
        };
        let unreadable = || {
            let error = RolloutState::read(json!({ "metadata": { "name": "night" } })).unwrap_err();
            let what = POWER_ROLLOUT.kind.full_name("night");
            Event::Unreadable(Failure { what, error, is_of_kind: false, is_unseen: false, key: Some(key.clone()) })
        };
        let why = "cannot read the object that the hub sent: missing field `spec`";
        let why = format!("powerrollout.hibernate.sh/night: {why}");
        let mut known = Entries::from([(key.clone(), Ok(item(false)))]);
        for (event, expected) in [
            (Event::Set(item(false)), Update::None),
            (unreadable(), Update::Entry(Err(why.clone()))),
            (unreadable(), Update::None),
            (Event::Tick, Update::Refresh),
            (Event::Set(item(false)), Update::Entry(Ok(item(false)))),
            (unreadable(), Update::Entry(Err(why))),
            (Event::Gone(key.clone()), Update::Entry(Err("powerrollout.hibernate.sh/night was deleted".to_owned()))),
            (Event::Gone(key.clone()), Update::None),
        ] {
            assert_eq!(event.apply(&Query::default(), &mut known), expected);
        }
        assert!(known.is_empty());
    }
}
