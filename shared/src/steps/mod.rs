//! Durable steps: operations of several steps that survive a crash between any two of their calls.
//!
//! The step, and what it takes to undo it, is recorded on the object *before* the step begins. A pass reads the record, makes
//! the next calls of that one step, which must be idempotent, and records the next step once this one is complete. Whoever
//! comes later, after a restart or as the next leader, goes on from the record.
//!
//! ```
//! use shared::steps::{Operation, Record};
//!
//! const RECREATE: Operation = Operation { name: "recreate", version: 1, steps: &["snapshot", "delete"] };
//! let now = "2026-11-22T18:00:00Z".parse().unwrap();
//! let record = RECREATE.begin([("disks".to_owned(), "d-1,d-2".to_owned())].into(), now);
//! assert_eq!(record.step, "snapshot");
//! let text = record.text().unwrap(); // goes to an annotation, and comes back from it
//! let record = RECREATE.read(&text).unwrap();
//! assert_eq!(RECREATE.after(&record, now).unwrap().step, "delete");
//! ```

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::annotation::format;

/// Bytes of a record. All annotations of an object together may have 256 KiB.
pub const MAX_RECORD_BYTES: usize = 8 << 10;

/// An operation: its name, the version of its record, and its steps in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its name in records.
    pub name: &'static str,
    /// The version of its record. Another version is never guessed at.
    pub version: u32,
    /// Its steps, in order. At least one.
    pub steps: &'static [&'static str],
}

/// How far an operation has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The version of the operation's record.
    pub version: u32,
    /// Which operation.
    pub operation: String,
    /// The step that has begun. Its calls may or may not have been made.
    pub step: String,
    /// When it was recorded, RFC 3339.
    pub since: String,
    /// What it takes to undo the operation: what was there before.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub undo: BTreeMap<String, String>,
}

/// Why a record cannot be gone on from. The operation stops until a person, or the right version of the controller, helps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// It is longer than any that is written.
    #[error("the record has {0} bytes, more than {MAX_RECORD_BYTES}")]
    TooLong(usize),
    /// It is not a record.
    #[error("the record cannot be read: {0}")]
    Malformed(String),
    /// Another version of the controller wrote it.
    #[error("the record of operation {operation} has version {found}, and this controller knows version {known}")]
    UnknownVersion {
        /// Which operation.
        operation: String,
        /// The record's version.
        found: u32,
        /// The version that is known.
        known: u32,
    },
    /// Another operation is under way.
    #[error("operation {0} is under way")]
    OtherOperation(String),
    /// It names a step that the operation does not have.
    #[error("operation {operation} has no step {step:?}")]
    UnknownStep {
        /// Which operation.
        operation: String,
        /// The step that is named.
        step: String,
    },
}

impl Operation {
    /// The record of the first step, to be written before it begins.
    pub fn begin(&self, undo: BTreeMap<String, String>, now: Timestamp) -> Record {
        self.at(self.steps.first().copied().unwrap_or_default(), undo, now)
    }

    /// The record of the step that follows, to be written before that begins; `None` after the last one, when the record goes.
    pub fn after(&self, record: &Record, now: Timestamp) -> Option<Record> {
        let mut later = self.steps.iter().skip_while(|step| **step != record.step);
        Some(self.at(later.nth(1)?, record.undo.clone(), now))
    }

    /// Reads a record of this operation.
    ///
    /// # Errors
    /// When it is not one that can be gone on from. Nothing may be done then.
    pub fn read(&self, text: &str) -> Result<Record, RecordError> {
        if text.len() > MAX_RECORD_BYTES {
            return Err(RecordError::TooLong(text.len()));
        }
        // The version first: of another one only that can be told.
        let head: Head = serde_json::from_str(text).map_err(|error| RecordError::Malformed(error.to_string()))?;
        if head.operation != self.name {
            return Err(RecordError::OtherOperation(head.operation));
        }
        if head.version != self.version {
            let (operation, found, known) = (head.operation, head.version, self.version);
            return Err(RecordError::UnknownVersion { operation, found, known });
        }
        let record: Record = serde_json::from_str(text).map_err(|error| RecordError::Malformed(error.to_string()))?;
        if !self.steps.contains(&record.step.as_str()) {
            return Err(RecordError::UnknownStep { operation: record.operation, step: record.step });
        }
        Ok(record)
    }

    fn at(&self, step: &str, undo: BTreeMap<String, String>, now: Timestamp) -> Record {
        let (operation, step) = (self.name.to_owned(), step.to_owned());
        Record { version: self.version, operation, step, since: format::seconds(now), undo }
    }
}

#[derive(Deserialize)]
struct Head {
    version: u32,
    operation: String,
}

impl Record {
    /// As it is written.
    ///
    /// # Errors
    /// When it would be too long to be read again. Then the step must not begin.
    pub fn text(&self) -> Result<String, RecordError> {
        let text = serde_json::to_string(self).map_err(|error| RecordError::Malformed(error.to_string()))?;
        if text.len() > MAX_RECORD_BYTES { Err(RecordError::TooLong(text.len())) } else { Ok(text) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOVE: Operation = Operation { name: "move", version: 2, steps: &["lift", "carry", "put-down"] };

    fn now() -> Timestamp {
        "2026-11-22T18:00:00Z".parse().unwrap()
    }

    #[test]
    fn an_operation_goes_from_step_to_step_and_keeps_what_undoes_it() {
        let mut record = MOVE.begin([("from".to_owned(), "here".to_owned())].into(), now());
        let mut steps = vec![record.step.clone()];
        while let Some(next) = MOVE.after(&record, now()) {
            record = MOVE.read(&next.text().unwrap()).unwrap();
            assert_eq!(record.undo["from"], "here");
            steps.push(record.step.clone());
        }
        assert_eq!(steps, MOVE.steps);
    }

    #[test]
    fn what_is_not_known_is_never_guessed_at() {
        let text = |edit: &dyn Fn(&mut Record)| {
            let mut record = MOVE.begin(BTreeMap::new(), now());
            edit(&mut record);
            serde_json::to_string(&record).unwrap()
        };
        let long = "x".repeat(MAX_RECORD_BYTES);
        for (text, says) in [
            (
                text(&|record| record.version = 3),
                "the record of operation move has version 3, and this controller knows version 2",
            ),
            (text(&|record| record.operation = "other".to_owned()), "operation other is under way"),
            (text(&|record| record.step = "fly".to_owned()), "operation move has no step \"fly\""),
            (r#"{"version": 3, "operation": "move", "phase": 7}"#.to_owned(), "has version 3"),
            ("{".to_owned(), "the record cannot be read: "),
            (text(&|record| record.undo = [("a".to_owned(), long.clone())].into()), "more than 8192"),
        ] {
            let error = MOVE.read(&text).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        let mut record = MOVE.begin(BTreeMap::new(), now());
        record.undo.insert("a".to_owned(), long);
        assert!(matches!(record.text(), Err(RecordError::TooLong(_))));
    }
}
