//! Rows R2 and R3 of a new rollout, one function each.

use super::Rollout;
use crate::admission::stamp::own_stamp;
use crate::admission::{Change, Fault, Rule, Verdict};
use crate::annotation::{format, keys};

/// The table.
pub const RULES: &[Rule<Rollout>] = &[
    Rule { row: "R2", judge: stamped },
    Rule { row: "R3", judge: not_after_is_to_come },
    Rule { row: "R4", judge: scheduled },
];

/// R2
fn stamped(change: &Change<'_, Rollout>) -> Verdict {
    let of_schedule = change.is_of_schedule() && change.new_annotation(keys::REQUESTED_BY).is_some();
    if of_schedule || !change.starts_targets() { Verdict::Allow } else { own_stamp(change) }
}

/// R4
fn scheduled(change: &Change<'_, Rollout>) -> Verdict {
    let Some(found) = change.new.scheduled_by().filter(|_| change.creates() && !change.is_by_controller()) else {
        return Verdict::Allow;
    };
    let message = format!("found {found}, must be left out: only the controller creates the rollouts of schedules");
    Verdict::deny(Fault::Forbidden, "spec.scheduledBy", message)
}

/// R3. Without the field the schema speaks.
fn not_after_is_to_come(change: &Change<'_, Rollout>) -> Verdict {
    let found = change.new.field("notAfter").filter(|found| change.creates() && found.begin != "null");
    let Some(found) = found else { return Verdict::Allow };
    let right = match serde_json::from_str::<String>(&found.begin).ok().and_then(|text| format::time(&text)) {
        Some(time) if time > change.now => return Verdict::Allow,
        Some(_) => {
            format!("which has passed, must be a time after {}: nothing would ever start", format::seconds(change.now))
        }
        None => "must be an RFC 3339 time such as 2026-11-21T18:00:00Z".to_owned(),
    };
    Verdict::deny(Fault::Invalid, "spec.notAfter", format!("found {found}, {right}"))
}
