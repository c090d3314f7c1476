//! Rows R2 and R3 of a new rollout, one function each.

use super::Rollout;
use crate::admission::{Change, Fault, Rule, Verdict, annotation_field};
use crate::annotation::{format, keys};

/// The table.
pub const RULES: &[Rule<Rollout>] =
    &[Rule { row: "R2", judge: stamped }, Rule { row: "R3", judge: not_after_is_to_come }];

/// R2
fn stamped(change: &Change<'_, Rollout>) -> Verdict {
    let (found, user) = (change.new_annotation(keys::REQUESTED_BY), change.user.username.as_str());
    let key = match change.new_annotation(keys::REQUESTED_AT) {
        _ if !change.starts_targets() => return Verdict::Allow,
        _ if found != Some(user) => keys::REQUESTED_BY,
        None => keys::REQUESTED_AT,
        Some(_) => return Verdict::Allow,
    };
    let found = change.new_annotation(key).map_or_else(|| "none".to_owned(), |found| format!("{found:?}"));
    let right =
        if key == keys::REQUESTED_BY { format!("{user:?}, who asks") } else { "the time of the request".to_owned() };
    Verdict::deny(
        Fault::Forbidden,
        annotation_field(key),
        format!(
            "found {found}, must be {right}: the audit stamp is missing because the mutating webhook did not run; try again"
        ),
    )
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
