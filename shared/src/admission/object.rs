//! The part of an object that admission reads, whatever its kind.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, IgnoredAny, Visitor};

use super::{Change, Denial};
use crate::annotation::mark::Mark;
use crate::annotation::{Annotations, keys};
use crate::read::lenient_types;

/// An object as rules see it: only the fields that they read, each of them optional, so that an object which its schema
/// would refuse is judged, too. Reading one skips everything else (`managedFields` above all) without copying it.
pub trait Object: DeserializeOwned {
    /// Its metadata.
    fn meta(&self) -> &Meta;

    /// Whether a change is denied for each field that cannot be read, and not only for those that it alters: it is a
    /// way into sleep.
    fn must_be_whole(_change: &Change<'_, Self>) -> bool {
        false
    }

    /// Whether a change is a wake: it is never denied.
    fn wakes(_change: &Change<'_, Self>) -> bool {
        false
    }

    /// Who is exempt from this denial.
    fn exempts(_denial: &Denial) -> Exempts {
        Exempts::UsersAndGroups
    }
}

/// Who is exempt from a denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exempts {
    /// No user.
    None,
    /// Users on the list.
    Users,
    /// Users on the list, and members of the groups on the list.
    UsersAndGroups,
}

/// A kind whose objects can sleep. The intent is on the object itself.
pub trait Target: Object {
    /// The field that holds the intent, as messages call it.
    const INTENT: &'static str;

    /// Where it is in the object.
    const INTENT_PATH: &'static [&'static str];

    /// Whether the object is meant to sleep.
    fn wants_sleep(&self) -> bool;

    /// Whether the object is meant to run. A value that does not exist means neither.
    fn wants_awake(&self) -> bool;
}

impl<K: Object> Change<'_, K> {
    /// Whether our controller sends this request: users who are exempt by name alone write the claims of rollouts, stamp
    /// what a rollout starts, create the rollouts of schedules, and end the pause of a sleeping KKP Cluster.
    pub fn is_by_controller(&self) -> bool {
        self.settings.exempt.users.contains(&self.user.username)
    }
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

    /// Whether this request withdraws the intent to sleep.
    pub fn wakes(&self) -> bool {
        self.wanted_sleep() && self.new.wants_awake() && !self.obscures(K::INTENT_PATH)
    }

    /// The person who asked for the rollout for which our controller changes the state of this target. With the claim
    /// it writes who and when.
    pub fn started_for(&self) -> Option<&str> {
        let person =
            self.new_annotation(keys::REQUESTED_BY).filter(|_| self.new_annotation(keys::REQUESTED_AT).is_some())?;
        let claims =
            || self.new_annotation(keys::ROLLOUT).and_then(Mark::parse).is_some_and(|mark| mark.ended.is_none());
        (self.changes_state() && self.is_by_controller() && claims()).then_some(person)
    }

    /// Whether another state is desired than before.
    pub fn changes_state(&self) -> bool {
        self.wanted_sleep() != self.new.wants_sleep()
    }
}

lenient_types! {
    /// Metadata of an object.
    Meta {
        /// Name; empty while the API server has yet to generate it.
        name: String,
        /// Namespace, empty for cluster-scoped objects.
        namespace: String,
        /// Annotations that rules may read.
        annotations: Annotations,
        /// What is to be done before it is gone.
        finalizers: Vec<String>,
        /// Set while the object is being deleted.
        deletion_timestamp: Option<IgnoredAny>,
    }
}

/// Reads metadata, leniently. Null is none: a patch of its annotations would fail.
///
/// # Errors
/// As [`lenient`].
pub fn metadata<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    struct Present<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Present<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_some<D: Deserializer<'de>>(self, metadata: D) -> Result<T, D::Error> {
            T::deserialize(metadata)
        }
    }

    Ok(deserializer.deserialize_option(Present(PhantomData)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::{Limits, json};

    #[test]
    fn a_list_or_null_is_no_metadata() {
        #[derive(Deserialize)]
        struct Read {
            #[serde(deserialize_with = "metadata")]
            metadata: Meta,
        }

        for (text, name, fields) in
            [("[\"demo\"]", "", 1), ("null", "", 1), (r#"{"name":"demo"}"#, "demo", 0), (r#"{"name":null}"#, "", 0)]
        {
            let text = format!(r#"{{"metadata":{text}}}"#);
            let read = json::<Read>(text.as_bytes(), &Limits::ADMISSION).unwrap();
            assert_eq!((read.value.metadata.name.as_str(), read.fields.len()), (name, fields), "{text}");
        }
    }
}
