//! What is written on a held PVC or Service, and what it means: the stamp.
//!
//! The truth about a suspension is on the object itself. Whoever reads a stamp reads it here: an unreadable one holds.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::annotation::{annotation, format, keys};
use crate::duration::{age, go_string, parse_unsigned};
use crate::object::text;
use crate::record::Format;

/// [`Suspension::why`] of a group whose ID stands in `spec.processGroupsToRemove`.
pub const LISTED: &str = "processGroupsToRemove";
/// [`Suspension::why`] of a group whose ID stands in `spec.processGroupsToRemoveWithoutExclusion`.
pub const LISTED_WITHOUT_EXCLUSION: &str = "processGroupsToRemoveWithoutExclusion";
/// [`Suspension::why`] of a group that the operator chose by itself: replaced, misconfigured or one too many.
pub const OPERATOR: &str = "operator";
/// [`Suspension::why`] while the plugin brings the group back.
pub const RECOVERY: &str = "recovery";

/// A `suspended-at` that lies further ahead than this was written by a clock that is wrong.
pub const SKEW: Duration = Duration::from_mins(1);
/// How long a hold for a recovery keeps the stamps of a group that is not marked any more.
pub const RECOVERY_KEEPS: Duration = Duration::from_mins(10);

/// What the stamp of an object consists of.
pub const STAMP: [&str; 4] = [keys::SUSPENDED_AT, keys::SUSPENSION, keys::RELEASED_AT, keys::WOKEN_AT];

/// How long removed groups of a cluster are to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Minimum {
    /// They are not kept.
    Off,
    /// At least this long.
    For(Duration),
    /// Somebody asked for it, but for how long cannot be read: until it can.
    Unreadable(String),
}

impl Minimum {
    /// What the cluster's annotation [`keys::MINIMUM_SUSPENSION`] asks for; `default` is what counts without one.
    pub fn of(annotation: Option<&str>, default: Duration) -> Self {
        match annotation.map(parse_unsigned) {
            None => Self::from(default),
            Some(Ok(duration)) => Self::from(duration),
            Some(Err(_)) => Self::Unreadable(annotation.unwrap_or_default().to_owned()),
        }
    }

    /// Whether removed groups are not kept.
    pub fn is_off(&self) -> bool {
        *self == Self::Off
    }

    /// As [`Suspension::minimum`] holds it.
    pub fn text(&self) -> String {
        match self {
            Self::Off => "0s".to_owned(),
            Self::For(duration) => go_string(*duration),
            Self::Unreadable(text) => text.clone(),
        }
    }
}

impl From<Duration> for Minimum {
    fn from(duration: Duration) -> Self {
        if duration.is_zero() { Self::Off } else { Self::For(duration) }
    }
}

/// The record beside `suspended-at`: annotation [`keys::SUSPENSION`], compact JSON.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Suspension {
    /// UID of the PVC or Service. A stamp of another object, such as the original of a copy, is none.
    #[serde(default)]
    pub uid: String,
    /// ID of the process group.
    pub group: String,
    /// `status.processGroups[].removalTimestamp` of the removal that this belongs to; `None` if the group was not
    /// marked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removal: Option<String>,
    /// How long it is to be kept: what was in force when this was written.
    pub minimum: String,
    /// Process class.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub class: String,
    /// Zone, as far as it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault_domain: Option<String>,
    /// IP addresses that the database may have excluded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// What it goes back to: [`LISTED`], [`LISTED_WITHOUT_EXCLUSION`], [`OPERATOR`] or [`RECOVERY`].
    #[serde(default)]
    pub why: String,
}

impl Format for Suspension {
    const MAX_BYTES: usize = 64 * 1024;
}

impl Suspension {
    /// The annotations of an object that is held since then, as a merge patch.
    pub fn annotations(&self, since: Timestamp) -> Value {
        let mut annotations = no_annotations();
        annotations[keys::SUSPENDED_AT] = moment(since).into();
        annotations[keys::SUSPENSION] = self.text().into();
        annotations
    }

    /// Whether it belongs to this removal: the status' `removalTimestamp`, however the same moment is spelled.
    pub fn is_of(&self, removal: Option<&str>) -> bool {
        same_moment(self.removal.as_deref(), removal)
    }
}

/// The annotations of an object that is not held any more, as a merge patch.
pub fn no_annotations() -> Value {
    STAMP.map(|key| (key.to_owned(), Value::Null)).into_iter().collect()
}

/// Whether two times of a status are the same moment. Texts that are no times are compared as they are.
pub fn same_moment(one: Option<&str>, other: Option<&str>) -> bool {
    match (one.and_then(format::time), other.and_then(format::time)) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}

/// All that an object says about its suspension.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// [`keys::SUSPENDED_AT`], if it can be read.
    pub since: Option<Timestamp>,
    /// [`keys::SUSPENSION`], if it can be read.
    pub record: Option<Suspension>,
    /// [`keys::RELEASED_AT`], if it can be read.
    pub released: Option<Timestamp>,
    /// Whether a human has set [`keys::RELEASE`] to the UID of the object.
    pub key: bool,
    /// Whether anything of the first three is there at all, readable or not.
    pub present: bool,
}

impl Stamp {
    /// Reads the annotations of the object with this UID. What stands there for another object, because it was copied
    /// or restored with its annotations, counts for nothing. If it names no object, or the UID of this one is unknown,
    /// the stamp is there and cannot be read.
    pub fn read<'a>(uid: &str, get: impl Fn(&str) -> Option<&'a str>) -> Self {
        let key = get(keys::RELEASE).is_some_and(|release| !uid.is_empty() && release == uid);
        let record = get(keys::SUSPENSION).and_then(|text| Suspension::read(text).ok());
        if let Some(record) = record.as_ref().filter(|record| record.uid.is_empty() || record.uid != uid) {
            return Self { key, present: record.uid.is_empty() || uid.is_empty(), ..Self::default() };
        }
        let time = |key| get(key).and_then(format::time);
        Self {
            since: time(keys::SUSPENDED_AT),
            record,
            released: time(keys::RELEASED_AT),
            key,
            present: [keys::SUSPENDED_AT, keys::SUSPENSION, keys::RELEASED_AT].iter().any(|key| get(key).is_some()),
        }
    }

    /// Reads an object that was read as JSON.
    pub fn of(object: &Value) -> Self {
        Self::read(text(object, "/metadata/uid"), |key| annotation(object, key))
    }

    /// How long it has been held: never negative, and nothing while it cannot be read or lies in the future.
    pub fn age(&self, now: Timestamp) -> Duration {
        self.since.map_or(Duration::ZERO, |since| age(since, now))
    }

    /// Whether the plugin is bringing the group back.
    pub fn is_recovery(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.why == RECOVERY)
    }

    /// When the hold ends. `None` if there is no end: nothing is stamped, or no duration can be read.
    pub fn until(&self, in_force: &Minimum) -> Option<Timestamp> {
        let window = self.window(in_force)?;
        self.since?.checked_add(window).ok()
    }

    /// How long it is to be held: what the record says, or longer if more is in force by now. A record that cannot be
    /// read leaves it to what is in force, and holds without end if that is nothing.
    pub fn window(&self, in_force: &Minimum) -> Option<Duration> {
        match (self.recorded(), in_force) {
            (Some(recorded), Minimum::For(now)) => Some(recorded.max(*now)),
            (Some(recorded), Minimum::Off) => Some(recorded),
            (None, Minimum::For(now)) => Some(*now),
            (None, Minimum::Off) | (_, Minimum::Unreadable(_)) => None,
        }
    }

    /// How long it is to be held by what the record says, if that can be read.
    pub fn recorded(&self) -> Option<Duration> {
        self.record.as_ref().and_then(|record| parse_unsigned(&record.minimum).ok())
    }

    /// Whether the controller has released the object for this removal (the status' `removalTimestamp`).
    pub fn is_released_for(&self, removal: Option<&str>) -> bool {
        let of_this = self.record.as_ref().is_some_and(|record| record.is_of(removal) && record.why != RECOVERY);
        self.released.is_some() && of_this
    }
}

/// Writes the moment of a stamp: rounded up to the next second, so that no window ends early.
pub fn moment(now: Timestamp) -> String {
    let up = now.subsec_nanosecond() > 0;
    format::seconds(if up { now.checked_add(SignedDuration::from_secs(1)).unwrap_or(now) } else { now })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const REMOVAL: &str = "2026-11-21T17:59:58Z";

    fn stamp(pairs: &[(&str, &str)]) -> Stamp {
        Stamp::read("p-1", |key| pairs.iter().find(|(name, _)| *name == key).map(|(_, value)| *value))
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn record(minimum: &str) -> String {
        Suspension {
            uid: "p-1".to_owned(),
            group: "storage-1".to_owned(),
            removal: Some(REMOVAL.to_owned()),
            minimum: minimum.to_owned(),
            ..Suspension::default()
        }
        .text()
    }

    #[test]
    fn a_minimum_that_cannot_be_read_never_means_off() {
        let hour = Duration::from_hours(1);
        for (annotation, default, expected) in [
            (None, Duration::ZERO, Minimum::Off),
            (None, hour, Minimum::For(hour)),
            (Some("0"), hour, Minimum::Off),
            (Some("0s"), hour, Minimum::Off),
            (Some("1h"), Duration::ZERO, Minimum::For(hour)),
            (Some("2 hours"), Duration::ZERO, Minimum::Unreadable("2 hours".to_owned())),
            (Some("-1h"), Duration::ZERO, Minimum::Unreadable("-1h".to_owned())),
            (Some(""), Duration::ZERO, Minimum::Unreadable(String::new())),
        ] {
            assert_eq!(Minimum::of(annotation, default), expected, "{annotation:?}");
        }
    }

    #[test]
    fn the_record_is_compact_and_reads_back() {
        let full = Suspension {
            fault_domain: Some("zone-a".to_owned()),
            addresses: vec!["10.0.0.1".to_owned()],
            class: "storage".to_owned(),
            why: LISTED.to_owned(),
            ..Suspension::read(&record("2h")).unwrap()
        };
        assert_eq!(
            full.text(),
            r#"{"v":1,"uid":"p-1","group":"storage-1","removal":"2026-11-21T17:59:58Z","minimum":"2h","class":"storage","faultDomain":"zone-a","addresses":["10.0.0.1"],"why":"processGroupsToRemove"}"#
        );
        assert_eq!(Suspension::read(&full.text()), Ok(full));
        assert!(Suspension::read("yes").is_err());
    }

    #[test]
    fn windows_grow_but_never_shrink() {
        let (hour, two) = (Duration::from_hours(1), Duration::from_hours(2));
        for (recorded, in_force, expected) in [
            ("1h", Minimum::For(hour), Some(hour)),
            ("2h", Minimum::For(hour), Some(two)),
            ("2h", Minimum::Off, Some(two)),
            ("1h", Minimum::For(two), Some(two)),
            ("soon", Minimum::For(two), Some(two)),
            ("soon", Minimum::Off, None),
            ("2h", Minimum::Unreadable("x".to_owned()), None),
        ] {
            let stamp = stamp(&[(keys::SUSPENSION, &record(recorded))]);
            assert_eq!(stamp.window(&in_force), expected, "{recorded} {in_force:?}");
        }
    }

    #[test]
    fn ages_are_never_negative() {
        let held = stamp(&[(keys::SUSPENDED_AT, "2026-11-21T18:00:00Z")]);
        assert_eq!(held.age(at("2026-11-21T18:00:59Z")), Duration::from_secs(59));
        assert_eq!(held.age(at("2026-11-21T17:00:00Z")), Duration::ZERO);
        assert_eq!(stamp(&[(keys::SUSPENDED_AT, "yesterday")]).age(at("2026-11-21T18:00:00Z")), Duration::ZERO);
        assert!(stamp(&[(keys::SUSPENDED_AT, "yesterday")]).present);
        assert!(!stamp(&[(keys::RELEASE, "p-1")]).present);
    }

    #[test]
    fn a_release_counts_for_its_own_removal_only() {
        let text = record("2h");
        let released = stamp(&[(keys::SUSPENSION, &text), (keys::RELEASED_AT, "2026-11-21T20:00:00Z")]);
        assert!(released.is_released_for(Some(REMOVAL)));
        assert!(released.is_released_for(Some("2026-11-21T18:59:58+01:00")), "another spelling of the same moment");
        assert!(!released.is_released_for(Some("2026-11-21T17:59:59Z")));
        assert!(!released.is_released_for(None));
        assert!(!stamp(&[(keys::RELEASED_AT, "2026-11-21T20:00:00Z")]).is_released_for(None), "without a record");
        assert!(!stamp(&[(keys::SUSPENSION, &text), (keys::RELEASED_AT, "now")]).is_released_for(Some(REMOVAL)));
        let recovery = Suspension { why: RECOVERY.to_owned(), ..Suspension::read(&text).unwrap() }.text();
        let recovery = stamp(&[(keys::SUSPENSION, &recovery), (keys::RELEASED_AT, "2026-11-21T20:00:00Z")]);
        assert!(!recovery.is_released_for(Some(REMOVAL)), "what is being recovered is never released");
    }

    #[test]
    fn a_key_names_the_object() {
        for (value, expected) in [("p-1", true), ("p-2", false), ("P-1", false), ("true", false), ("", false)] {
            assert_eq!(stamp(&[(keys::RELEASE, value)]).key, expected, "{value}");
        }
        assert!(!Stamp::read("", |_| Some("")).key);
    }

    /// A PVC that was restored from a backup, or made of another one's manifest.
    #[test]
    fn the_stamp_of_another_object_is_none() {
        let text = record("2h");
        let all = [
            (keys::SUSPENDED_AT, "2020-11-21T18:00:00Z"),
            (keys::SUSPENSION, &text),
            (keys::RELEASED_AT, "2020-11-21T20:00:00Z"),
            (keys::RELEASE, "p-1"),
        ];
        let of = |uid| Stamp::read(uid, |key| all.iter().find(|(name, _)| *name == key).map(|(_, value)| *value));
        assert!(of("p-1").is_released_for(Some(REMOVAL)) && of("p-1").key);
        assert_eq!(of("p-2"), Stamp::default());
    }

    #[test]
    fn a_stamp_of_an_unknown_object_holds() {
        let (named, unnamed) =
            (record("2h"), Suspension { uid: String::new(), ..Suspension::read(&record("2h")).unwrap() });
        for (uid, text) in [("p-1", &unnamed.text()), ("", &unnamed.text()), ("", &named)] {
            let all = [
                (keys::SUSPENDED_AT, "2020-11-21T18:00:00Z"),
                (keys::SUSPENSION, text),
                (keys::RELEASED_AT, "2020-11-21T20:00:00Z"),
            ];
            let stamp = Stamp::read(uid, |key| all.iter().find(|(name, _)| *name == key).map(|(_, value)| *value));
            assert_eq!(stamp, Stamp { present: true, ..Stamp::default() }, "{uid} {text}");
        }
    }

    proptest! {
        #[test]
        fn a_written_moment_is_never_early(nanos in 0_i128..4_000_000_000_000_000_000) {
            let now = Timestamp::from_nanosecond(nanos).unwrap();
            let written = format::time(&moment(now)).unwrap();
            prop_assert!(written >= now && written.duration_since(now) < SignedDuration::from_secs(1));
        }

        #[test]
        fn any_text_can_stand_on_an_object(at in ".{0,30}", record in ".{0,60}") {
            let stamp = stamp(&[(keys::SUSPENDED_AT, &at), (keys::SUSPENSION, &record)]);
            prop_assert!(stamp.present && !stamp.is_released_for(None));
        }
    }
}
