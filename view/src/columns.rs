//! The columns of a list of targets.

use shared::kinds::{Column, Record};

use super::age::age;
use super::times;

/// The widest that a reason may make its column; JSON and YAML have all of it.
const REASON: usize = 60;

pub static NAMESPACE: Column = Column { header: "NAMESPACE", cell: |record, _| record.namespace.clone() };
pub static NAME: Column = Column { header: "NAME", cell: |record, _| record.name.clone() };
/// The name where there are several kinds.
pub static TYPE_AND_NAME: Column =
    Column { header: "NAME", cell: |record, _| format!("{}/{}", record.kind, record.name) };
/// The type without its group.
pub static TYPE: Column =
    Column { header: "TYPE", cell: |record, _| record.kind.split('.').next().unwrap_or_default().to_owned() };
pub static FIRST: [Column; 5] = [
    Column { header: "DESIRED", cell: |record, _| record.desired.clone() },
    Column { header: STATE, cell: |record, _| record.observed.clone() },
    Column { header: SINCE, cell: |record, now| record.since.map(|since| age(since, now)).unwrap_or_default() },
    Column { header: "REQUESTED-BY", cell: |record, _| record.requested_by.clone().unwrap_or_default() },
    Column { header: "REASON", cell: |record, _| short(record.reason.as_deref().unwrap_or_default()) },
];
/// Shown where a target has such a thing.
pub static TIMES: [Column; 3] = [
    Column { header: "SCHEDULE", cell: |record, _| times::name(record) },
    Column { header: "NEXT", cell: times::next },
    Column { header: "UNTIL", cell: times::ends },
];
/// Last, because it can be long.
pub static STEP: Column = Column { header: "STEP", cell: |record, _| step(record) };

/// The column whose cells have a color.
pub const STATE: &str = "STATE";
/// The column of a moment.
pub const SINCE: &str = "SINCE";

/// How a state is highlighted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Failed,
    Awake,
    Asleep,
    /// On its way.
    Moving,
}

/// How the state of a target is highlighted; not at all if it is not known.
pub fn tone(record: &Record) -> Option<Tone> {
    let failed = record.step.as_ref().is_some_and(|step| step.failed);
    match record.observed.as_str() {
        _ if failed => Some(Tone::Failed),
        "Running" => Some(Tone::Awake),
        "Hibernating" | "Dehydrated" => Some(Tone::Asleep),
        "" | "Unknown" => None,
        _ => Some(Tone::Moving),
    }
}

/// The text, or its beginning with `…`.
fn short(text: &str) -> String {
    if text.chars().nth(REASON).is_none() {
        return text.to_owned();
    }
    let begin: String = text.chars().take(REASON - 1).collect();
    begin.trim_end().to_owned() + "…"
}

fn step(record: &Record) -> String {
    match &record.step {
        None => String::new(),
        // The reason is the state in nearly all cases, and then it stands two columns before.
        Some(step) if step.reason.is_empty() || step.reason == record.observed => step.message.clone(),
        Some(step) => format!("{}: {}", step.reason, step.message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reason_is_cut() {
        for (reason, expected) in [
            (String::new(), String::new()),
            ("ä".repeat(60), "ä".repeat(60)),
            ("ä".repeat(61), "ä".repeat(59) + "…"),
            (format!("{} {}", "x".repeat(58), "y".repeat(100_000)), "x".repeat(58) + "…"),
        ] {
            assert_eq!(short(&reason), expected);
        }
    }
}
