//! The envelope of every record, claim and stamp of ours, and of the data in our conditions and Events: compact JSON,
//! `{"v":1,"uid":"...","at":"...","by":"...",...}`. A field that its place implies is left out.
//!
//! | format | stands in | `uid` | `at` | `by` |
//! |---|---|---|---|---|
//! | [`Mark`](crate::annotation::mark::Mark) | annotation of a target | the rollout | when it claimed the target | its name |
//! | [`Record`](crate::kkp::record::Record) of a sleep | `ConfigMap` | the Cluster | when the sleep began | |
//! | [`NodeBefore`](crate::kkp::node::NodeBefore) | annotation of a Node | | | |
//! | [`Suspension`](crate::fdb::suspension::Suspension) | annotation of a PVC or Service | that object | | |
//! | the plugin's record of a recovery | annotation of its cluster | | when it began | |
//! | [`Ledger`](crate::savings::ledger::Ledger) | condition | that object | until when sleeps are counted | |
//! | [`Data`](crate::hive::data::Data), [`kkp::data`](crate::kkp::data), [`ProcessGroups`](crate::annotation::groups::ProcessGroups) | condition, Event | | | |
//!
//! Others can write there, too, and objects are copied and restored with their annotations: a reader compares the UID. The
//! members of a rollout ([`crate::rollout::snapshot`]) are too many for JSON.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::annotation::format;
use crate::read::{self, Limits};

const VERSION: u32 = 1;
/// Kubernetes' limit for names in bytes; UIDs are shorter.
const MAX_NAME: usize = 253;

/// Why a record cannot be used. Its object is left alone until a person, or the right version of the controller, helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Longer than the limit, in bytes.
    #[error("it has more than {} KiB", .0 >> 10)]
    TooLong(usize),
    #[error("it has version {0}, and this release reads version {VERSION}: another release wrote it")]
    Version(u32),
    #[error("it is malformed")]
    Unreadable,
    /// Retried once memory is released.
    #[error("there is no memory for it")]
    NoRoom,
}

/// The envelope as it is read, the same in every version.
#[derive(Deserialize)]
struct Envelope {
    v: u32,
    uid: Option<String>,
    at: Option<String>,
    by: Option<String>,
}

#[derive(Serialize)]
struct Versioned<'a, T> {
    v: u32,
    #[serde(flatten)]
    body: &'a T,
}

/// A format with the fields of the envelope among its own.
pub trait Format: Clone + Serialize + DeserializeOwned {
    const MAX_BYTES: usize;

    /// Validates and sanitizes a value that was read.
    fn checked(self) -> Option<Self> {
        Some(self)
    }

    fn read(text: &str) -> Result<Self, RecordError> {
        Self::read_charged(text, &mut |_| true)
    }

    /// Charges what is kept, in bytes: `charge` returns whether there is room.
    fn read_charged(text: &str, charge: &mut dyn FnMut(usize) -> bool) -> Result<Self, RecordError> {
        if text.len() > Self::MAX_BYTES {
            return Err(RecordError::TooLong(Self::MAX_BYTES));
        }
        // What we write takes less: the test `a_record_as_long_as_its_secret_is_read` measures it.
        let kept = (64 << 10) + 12 * Self::MAX_BYTES;
        let limits = Limits { kept, text: Self::MAX_BYTES, annotation: Self::MAX_BYTES, ..Limits::answer(0) };
        let envelope = read::text::<Envelope>(text, &limits).map_err(|_| RecordError::Unreadable)?.value;
        if envelope.v != VERSION {
            return Err(RecordError::Version(envelope.v));
        }
        let is_named = [envelope.uid, envelope.by].iter().flatten().all(|name| is_name(name));
        let is_dated = envelope.at.is_none_or(|at| format::time(&at).is_some());
        let mut has_room = true;
        let body = read::json_charged(text.as_bytes(), &limits, &mut |bytes| {
            has_room &= charge(bytes);
            has_room
        });
        let body = body.ok().filter(|_| is_named && is_dated).and_then(|read| Self::checked(read.value));
        body.ok_or(if has_room { RecordError::Unreadable } else { RecordError::NoRoom })
    }

    /// Removes the least important part of a value that is too long. Returns whether there was one.
    fn cut(&mut self) -> bool {
        false
    }

    /// Writes the value, and cuts it down to [`Self::MAX_BYTES`] if it can.
    fn text(&self) -> String {
        let mut text = write(self);
        if text.len() > Self::MAX_BYTES {
            let mut rest = self.clone();
            while text.len() > Self::MAX_BYTES && rest.cut() {
                text = write(&rest);
            }
        }
        text
    }

    /// Writes a value that must not be too long.
    fn bounded_text(&self) -> Result<String, RecordError> {
        let text = self.text();
        if text.len() > Self::MAX_BYTES { Err(RecordError::TooLong(Self::MAX_BYTES)) } else { Ok(text) }
    }
}

fn write(body: &impl Serialize) -> String {
    // Maps with string keys, strings and numbers always serialize.
    serde_json::to_string(&Versioned { v: VERSION, body }).unwrap_or_default()
}

/// Whether a text has only the characters of names and UIDs, which become parts of requests.
fn is_name(text: &str) -> bool {
    let is_known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    text.len() <= MAX_NAME && text.chars().all(is_known) && !text.contains("..")
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
pub(crate) fn is_zero(count: &usize) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
    struct Note {
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        words: Vec<String>,
        #[serde(default, skip_serializing_if = "is_zero")]
        more: usize,
    }

    impl Format for Note {
        const MAX_BYTES: usize = 2048;

        fn checked(self) -> Option<Self> {
            Some(self).filter(|note| note.words.iter().all(|word| word != "forged"))
        }

        fn cut(&mut self) -> bool {
            self.words.pop().inspect(|_| self.more += 1).is_some()
        }
    }

    #[test]
    fn what_is_no_record_is_refused_and_says_why() {
        let envelope = |fields: &str| format!(r#"{{"v":1{fields},"words":["a"]}}"#);
        let known = Note { words: vec!["a".to_owned()], more: 0 };
        assert_eq!(known.text(), envelope(""));
        for fields in
            ["", r#","uid":"u-1""#, r#","uid":"","at":"2026-11-24T12:00:00+01:00","by":"night.a""#, r#","x":[]"#]
        {
            assert_eq!(Note::read(&envelope(fields)).as_ref(), Ok(&known), "{fields}");
        }
        for fields in [r#","uid":7"#, r#","uid":"a/b""#, r#","uid":"../b""#, r#","at":"soon""#, r#","by":"a b""#] {
            assert_eq!(Note::read(&envelope(fields)), Err(RecordError::Unreadable), "{fields}");
        }
        let long = envelope(&format!(r#","by":"{}""#, "n".repeat(254)));
        for (text, error, message) in [
            ("", RecordError::Unreadable, "it is malformed"),
            (r#"{"words":[]}"#, RecordError::Unreadable, "it is malformed"),
            (r#"{"v":"1"}"#, RecordError::Unreadable, "it is malformed"),
            (r#"{"v":1,"words":"a"}"#, RecordError::Unreadable, "it is malformed"),
            (r#"{"v":1,"words":["forged"]}"#, RecordError::Unreadable, "it is malformed"),
            (&long, RecordError::Unreadable, "it is malformed"),
            (
                r#"{"v":2,"uid":"U/1","words":7}"#,
                RecordError::Version(2),
                "it has version 2, and this release reads version 1: another release wrote it",
            ),
            (&" ".repeat(2049), RecordError::TooLong(2048), "it has more than 2 KiB"),
        ] {
            assert_eq!(Note::read(text), Err(error), "{text:.40}");
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn what_is_kept_of_a_record_is_charged_and_has_an_end() {
        #[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
        struct Lists(Vec<Vec<String>>);

        #[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
        struct Long {
            lists: Lists,
        }

        impl Format for Long {
            const MAX_BYTES: usize = 512 << 10;
        }

        let of = |part: &str| {
            let text = format!(r#"{{"v":1,"lists":[{}]}}"#, vec![part; 500_000 / (part.len() + 1)].join(","));
            let mut kept = 0;
            let read = Long::read_charged(&text, &mut |bytes| {
                kept += bytes;
                true
            });
            assert_eq!(Long::read_charged(&text, &mut |_| false), Err(RecordError::NoRoom));
            (read.map(|_| kept), kept)
        };
        assert!(of(&format!(r#"["{}"]"#, "x".repeat(100))).0.is_ok_and(|kept| kept > 500_000));
        let (read, kept) = of("[]");
        assert_eq!(read, Err(RecordError::Unreadable));
        assert!(kept <= 7 << 20, "{kept}");
    }

    #[test]
    fn what_does_not_fit_is_left_out_one_by_one() {
        let fitted = |words, length| Note::read(&Note { words: vec!["x".repeat(length); words], more: 0 }.text());
        let note = fitted(30, 100).unwrap();
        assert_eq!((note.words.len(), note.more), (19, 11));
        assert_eq!(fitted(1, 5000), Ok(Note { words: vec![], more: 1 }));
    }
}
