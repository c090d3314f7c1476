//! Kinds whose objects sleep and wake, and what a change means for that.

use super::{Change, Object};

/// A kind whose objects can sleep. The intent is on the object itself.
pub trait Target: Object {
    /// The field that holds the intent, as messages call it.
    const INTENT: &'static str;

    /// Whether the object is meant to sleep.
    fn wants_sleep(&self) -> bool;
}

impl<K: Target> Change<'_, K> {
    /// Whether the object was meant to sleep. One that is being created was not.
    pub fn wanted_sleep(&self) -> bool {
        self.old.as_ref().is_some_and(Target::wants_sleep)
    }

    /// Whether this request changes the desired state to sleep.
    pub fn goes_to_sleep(&self) -> bool {
        !self.wanted_sleep() && self.new.wants_sleep()
    }

    /// Whether another state is desired than before.
    pub fn changes_state(&self) -> bool {
        self.wanted_sleep() != self.new.wants_sleep()
    }
}
