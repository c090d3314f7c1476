//! The seam between a kind and whoever reads it: what one version of an object says, whatever its kind.
//!
//! A kind has one typed reader, and every consumer takes its [`View`]: `status`, `plan`, `--wait`, rollouts. Everything
//! here depends on nothing but one version of the object.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::admission::{Denial, Finding};
use crate::annotation::mark::Mark;
use crate::annotation::{Hold, NAMELESS, format, hold, keys, protected};
pub use crate::power::Power;
use crate::text::sanitize_to;

/// Longest reason in characters.
pub const MAX_REASON: usize = 200;

/// A step under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StepRecord {
    /// One word, empty if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// One sentence.
    pub message: String,
    /// Whether the last attempt failed. The controller tries again.
    pub failed: bool,
}

impl StepRecord {
    /// A step that only says what is being waited for.
    pub fn waiting(message: String) -> Self {
        Self { message, ..Self::default() }
    }
}

/// One version of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// Which object it is.
    pub identity: Identity,
    /// What it is asked for.
    pub desired: Desired,
    /// What was observed of it.
    pub observed: Observed,
    /// What keeps it from following.
    pub obstacles: Obstacles,
}

/// Which object it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Identity {
    /// Namespace, empty for cluster-scoped kinds.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID; none for an object that no API server has stored.
    pub uid: Option<Uid>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// When it was created.
    pub created: Timestamp,
}

/// What it is asked for. Texts are as they are written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Desired {
    /// The desired state.
    pub power: Power,
    /// Who asked for it.
    pub requested_by: Option<String>,
    /// When it was asked for.
    pub requested_at: Option<String>,
    /// Why it was asked for.
    pub reason: Option<String>,
    /// When it is to wake again.
    pub wake_at: Option<String>,
    /// Until when it must stay awake.
    pub hold_awake_until: Option<String>,
    /// Who holds it awake.
    pub hold_awake_by: Option<String>,
    /// Whether it is protected from sleep.
    pub protected: bool,
    /// The claim of a rollout, or its record.
    pub mark: Option<Mark>,
}

/// What was observed of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// The state that it is in, and since when; `None` between two states.
    pub power: Option<(Power, Timestamp)>,
    /// The state in the words of its own system; empty if that has said nothing yet.
    pub state: String,
    /// When that state began.
    pub since: Option<Timestamp>,
    /// The step under way, or what is awaited.
    pub step: Option<StepRecord>,
    /// Whether its own API server can tell about an upgrade: it runs, and it is no fake.
    pub has_spoke: bool,
}

/// What keeps it from following a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Obstacles {
    /// The admission rule that refuses its sleep.
    pub refused: Option<String>,
    /// Why a wake would change nothing.
    pub no_wake: Option<String>,
    /// Until when a sleep has to wait, and why. What has no end lasts.
    pub not_asleep_before: Option<(Timestamp, String)>,
    /// Why neither a sleep nor a wake can begin.
    pub waits: Option<String>,
    /// Why the change fails, and since when.
    pub failed: Option<(String, Timestamp)>,
    /// Why its cloud delays the change, and since when.
    pub delayed: Option<(Cause, Timestamp)>,
    /// What shares a cloud's limits with it, as far as names tell.
    pub domain: Option<String>,
}

/// Why a cloud delays a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The cloud has no capacity.
    Capacity,
    /// The cloud rate-limits requests.
    Throttled,
}

/// The UID of an object, as the API server gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Uid(pub(crate) u128);

impl Uid {
    /// Reads a UUID. `None` if the text is none.
    pub fn parse(text: &str) -> Option<Self> {
        let is_hyphen = |(index, byte): (usize, u8)| (byte == b'-') == matches!(index, 8 | 13 | 18 | 23);
        let is_uuid = text.len() == 36 && text.bytes().enumerate().all(is_hyphen);
        let digit = |c: char| c.to_digit(16).map(u128::from);
        let add = |value: u128, c: char| Some(value << 4 | digit(c)?);
        is_uuid.then(|| text.chars().filter(|c| *c != '-').try_fold(0, add)).flatten().map(Self)
    }
}

impl View {
    /// What the metadata of every kind says. The rest is the kind's to fill in.
    pub fn of(meta: &ObjectMeta, power: Power) -> Self {
        let note = |key: &str| meta.annotations.as_ref()?.get(key).map(String::as_str);
        let identity = Identity {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.as_deref().and_then(Uid::parse),
            labels: meta.labels.clone().unwrap_or_default(),
            created: meta.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        };
        let owned = |key: &str| note(key).map(str::to_owned);
        let desired = Desired {
            power,
            requested_by: owned(keys::REQUESTED_BY),
            requested_at: owned(keys::REQUESTED_AT),
            reason: owned(keys::REASON),
            wake_at: owned(keys::WAKE_AT),
            hold_awake_until: owned(keys::HOLD_AWAKE_UNTIL),
            hold_awake_by: owned(keys::HOLD_AWAKE_BY),
            protected: protected(note(keys::PROTECTED)),
            mark: note(keys::ROLLOUT).and_then(Mark::parse),
        };
        let waits = meta.deletion_timestamp.is_some().then(|| "it is being deleted".to_owned());
        let obstacles = Obstacles { not_asleep_before: held_awake(note), waits, ..Obstacles::default() };
        Self { identity, desired, obstacles, observed: Observed::default() }
    }

    /// The same of an object that was read as JSON. Metadata that does not match its schema says nothing.
    pub fn of_value(object: &Value, power: Power) -> Self {
        Self::of(&ObjectMeta::deserialize(&object["metadata"]).unwrap_or_default(), power)
    }
}

impl Desired {
    /// When it is to wake again.
    pub fn wakes_at(&self) -> Option<Timestamp> {
        format::time(self.wake_at.as_deref()?)
    }

    /// Until when it must stay awake.
    pub fn held_until(&self) -> Option<Timestamp> {
        format::time(self.hold_awake_until.as_deref()?)
    }

    /// When the desired state was requested.
    pub fn requested(&self) -> Option<Timestamp> {
        format::time(self.requested_at.as_deref()?)
    }
}

/// A denial with its row.
pub(super) fn denied(denial: &Finding<Denial>) -> String {
    sanitize_to(&format!("{}: {}", denial.row, denial.detail), MAX_REASON)
}

/// Until when a hold keeps it awake, and what to say of that. A hold without an end that can be read lasts.
fn held_awake<'a>(note: impl Fn(&str) -> Option<&'a str>) -> Option<(Timestamp, String)> {
    let by = |by: Option<&str>| sanitize_to(by.unwrap_or(NAMELESS), MAX_REASON / 2);
    match hold(note, Timestamp::UNIX_EPOCH) {
        Hold::None => None,
        Hold::Until { until, by: holder } => {
            Some((until, format!("held awake until {} by {}", format::seconds(until), by(holder))))
        }
        Hold::Malformed { by: holder, .. } => {
            Some((Timestamp::MAX, format!("held awake by {}: the hold has no end that can be read", by(holder))))
        }
    }
}
