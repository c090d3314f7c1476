//! Kinds that an operator runs and that have a power field of their own, as data: what a sleep writes, what a wake restores,
//! and how state is read. Places are JSON pointers into the object, annotations as `/metadata/annotations/KEY`.

use std::fmt;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::annotation::format;

/// Largest count that is restored.
const MAX_COUNT: u64 = 10_000;
/// Members of an object of numbers.
const MAX_MEMBERS: usize = 8;

/// How a kind sleeps. [`super::sleep_reader`] reads it.
#[derive(Debug)]
pub struct SleepRow {
    /// What a sleep writes, all in one patch.
    pub switches: &'static [Switch],
    /// What is observed: the first that matches counts. None if the object says nothing but what is written to it.
    pub states: &'static [State],
    /// Where the operator says which generation the status is about.
    pub seen: Seen,
    /// What refuses a sleep or is said of it.
    pub obstacles: &'static [Obstacle],
    /// Where an object names the one that it scales: `kind`, which is Deployment where it is absent, and `name`.
    pub scales: Option<&'static str>,
    /// Group and kind of an object of the same name that stands between it and what it runs.
    pub makes: Option<(&'static str, &'static str)>,
    /// What a wake removes besides.
    pub clears: &'static [&'static str],
    /// Annotations that the operator's own admission adds to a write of the switches.
    pub adds: &'static [&'static str],
    /// Whether its objects may stop by themselves, without a sleep.
    pub may_stop: bool,
    /// What the operator may be waiting for while it does nothing.
    pub may_wait: &'static str,
    /// What is lost by a sleep, if anything is.
    pub loses: Option<&'static str>,
    /// What stays billed.
    pub stays: &'static str,
    /// The first release of the operator that has the switches, as `1.7`; empty where all have them.
    pub since: &'static str,
}

impl SleepRow {
    /// A row of which only the switches, the states and the texts are left to say.
    pub const PLAIN: Self = Self {
        switches: &[],
        states: &[],
        seen: Seen::Nowhere,
        obstacles: &[],
        scales: None,
        makes: None,
        clears: &[],
        adds: &[],
        may_stop: false,
        may_wait: "its controller has not seen this change",
        loses: None,
        stays: "nothing of its own",
        since: "",
    };

    /// Places that a sleep or a wake writes.
    pub fn places(&self) -> impl Iterator<Item = &'static str> + use<> {
        let (switches, clears) = (self.switches, self.clears);
        switches.iter().map(|switch| switch.at).chain(clears.iter().copied())
    }

    /// Members of the spec that a sleep or a wake writes, or writes a field of.
    pub fn spec_members(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.places().filter_map(|at| at.strip_prefix("/spec/")?.split('/').next())
    }
}

/// A field or an annotation that a sleep sets.
#[derive(Clone, Copy, Debug)]
pub struct Switch {
    /// Where it is.
    pub at: &'static str,
    /// Whether it is written only where it has a value: of several fields with one meaning objects have one.
    pub only_present: bool,
    /// What a sleep writes.
    pub asleep: Scalar,
    /// What no value means.
    pub absent: Scalar,
    /// Which values may have been there before.
    pub range: Range,
}

/// A value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// `true` or `false`.
    Bool(bool),
    /// A count.
    Number(u64),
    /// A word.
    Text(&'static str),
    /// The time, where any value means the same.
    Now,
    /// No value.
    None,
}

/// Values that a wake may restore, besides no value.
#[derive(Clone, Copy, Debug)]
pub enum Range {
    /// `true` and `false`.
    Bool,
    /// 1 to 10,000.
    Count,
    /// These words.
    Words(&'static [&'static str]),
    /// A number from 0 to 10,000, as text.
    NumberText,
    /// An object whose members are numbers from 0 to 10,000.
    Numbers,
    /// Nothing but no value.
    Nothing,
}

/// An observed state.
#[derive(Clone, Copy, Debug)]
pub struct State {
    /// All of these hold.
    pub when: &'static [Test],
    /// The state.
    pub is: Phase,
    /// Where the operator says more.
    pub text: Option<At>,
}

/// What an object does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Phase {
    Asleep,
    Awake,
    FallingAsleep,
    Waking,
    /// The operator waits before it begins.
    Waits,
    Failed,
}

/// A test of an object.
#[derive(Clone, Copy, Debug)]
pub enum Test {
    /// It is one of these words.
    Is(At, &'static [&'static str]),
    /// It begins with this.
    Begins(At, &'static str),
    /// It is `true`.
    IsTrue(At),
    /// It has a value.
    Present(At),
    /// It has no value.
    Absent(At),
    /// It is 0, or has no value.
    Zero(At),
    /// It is at least as large as the other one, which is 1 where it has no value.
    AtLeast(At, At),
    /// This member is 0, or has no value, in all elements of a list.
    AllZero(&'static str, &'static str),
    /// This member of each element of the first list is at least as large as that one of the element of the second list with
    /// the same name, which is 1 where it has no value.
    AllAtLeast((&'static str, &'static str), (&'static str, &'static str)),
    /// A sleep is asked for, or not.
    Asked(bool),
}

/// Where a value is.
#[derive(Clone, Copy, Debug)]
pub enum At {
    /// A JSON pointer.
    Field(&'static str),
    /// A member of the condition of this type.
    Condition(&'static str, &'static str),
    /// The same of a constraint, as Gardener has them.
    Constraint(&'static str, &'static str),
}

/// Where the operator says which generation the status is about.
#[derive(Clone, Copy, Debug)]
pub enum Seen {
    /// Nowhere: a state counts once it has changed.
    Nowhere,
    /// In this number, or in this text that is a number.
    Generation(&'static str),
    /// Nowhere, and a state may look like the one before: the status counts once it is written after our last write.
    ByTime,
}

/// What refuses a sleep or is said of it.
#[derive(Clone, Copy, Debug)]
pub struct Obstacle {
    /// All of these hold.
    pub when: &'static [Test],
    /// Whether the sleep is refused, and not only warned of.
    pub refuses: bool,
    /// What is said.
    pub says: &'static str,
}

impl Scalar {
    pub(super) fn value(self, now: Timestamp) -> Value {
        match self {
            Self::Now => format::seconds(now).into(),
            Self::Bool(value) => value.into(),
            Self::Number(value) => value.into(),
            Self::Text(value) => value.into(),
            Self::None => Value::Null,
        }
    }
}

impl Range {
    /// Whether a value may be restored. Records are input: users may edit them.
    pub(super) fn has(self, value: &Value) -> bool {
        let is_count = |number: u64, least: u64| (least..=MAX_COUNT).contains(&number);
        match self {
            _ if value.is_null() => true,
            Self::Bool => value.is_boolean(),
            Self::Count => value.as_u64().is_some_and(|number| is_count(number, 1)),
            Self::Words(words) => value.as_str().is_some_and(|word| words.contains(&word)),
            Self::NumberText => {
                value.as_str().and_then(|text| text.parse().ok()).is_some_and(|number| is_count(number, 0))
            }
            Self::Numbers => {
                let is_number = |value: &Value| value.as_u64().is_some_and(|number| is_count(number, 0));
                value.as_object().is_some_and(|members| members.len() <= MAX_MEMBERS && members.values().all(is_number))
            }
            Self::Nothing => false,
        }
    }

    pub(super) fn words(self) -> String {
        match self {
            Self::Bool => "true or false".to_owned(),
            Self::Count => format!("a number from 1 to {MAX_COUNT}"),
            Self::Words([]) | Self::Nothing => "no value".to_owned(),
            Self::Words(words) => words.join(", "),
            Self::NumberText => format!("a text with a number from 0 to {MAX_COUNT}"),
            Self::Numbers => format!("an object of numbers from 0 to {MAX_COUNT}"),
        }
    }
}

impl Phase {
    /// It is in this state if all of these hold.
    pub const fn when(self, when: &'static [Test]) -> State {
        State { when, is: self, text: None }
    }
}

impl State {
    /// The same, with the place where the operator says more.
    pub const fn says(self, at: At) -> Self {
        Self { text: Some(at), ..self }
    }
}

impl Obstacle {
    /// Refuses a sleep if all of these hold.
    pub const fn refusing(when: &'static [Test], says: &'static str) -> Self {
        Self { when, refuses: true, says }
    }
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.at.replace("~1", "/");
        match place.strip_prefix("/metadata/annotations/") {
            Some(key) => write!(f, "annotation {key}: {}", self.asleep),
            None => write!(f, "{}: {}", place.trim_start_matches('/').replace('/', "."), self.asleep),
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Number(value) => write!(f, "{value}"),
            Self::Text(value) => write!(f, "{value:?}"),
            Self::Now => f.write_str("the time"),
            Self::None => f.write_str("removed"),
        }
    }
}

impl Switch {
    /// Whether this is what a sleep leaves at its place.
    pub(super) fn is_set(&self, value: &Value) -> bool {
        match self.asleep {
            Scalar::Now => !value.is_null(),
            asleep => *value == asleep.value(Timestamp::UNIX_EPOCH),
        }
    }

    /// Its place in `metadata.managedFields`.
    pub fn managed(&self) -> String {
        format!("/fieldsV1{}", self.at.replace('/', "/f:"))
    }

    /// A flag that is `false` where it is absent.
    pub const fn flag(at: &'static str) -> Self {
        let (asleep, absent) = (Scalar::Bool(true), Scalar::Bool(false));
        Self { at, only_present: false, asleep, absent, range: Range::Bool }
    }

    /// An annotation that is put there by a sleep and has these words, or none, while the object is awake.
    pub const fn word(at: &'static str, asleep: &'static str, awake: &'static [&'static str]) -> Self {
        Self { at, only_present: false, asleep: Scalar::Text(asleep), absent: Scalar::None, range: Range::Words(awake) }
    }

    /// A count that is 1 where it is absent.
    pub const fn count(at: &'static str) -> Self {
        let (asleep, absent) = (Scalar::Number(0), Scalar::Number(1));
        Self { at, only_present: false, asleep, absent, range: Range::Count }
    }
}
