//! TALM's conditions (section 1.3), in TALM's order.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::text::sanitize_to;

pub const CLUSTERS_SELECTED: &str = "ClustersSelected";
pub const VALIDATED: &str = "Validated";
pub const PRECACHE_SPEC_VALID: &str = "PrecacheSpecValid";
/// TALM's spelling.
pub const PRECACHING_SUCCEEDED: &str = "PrecachingSuceeded";
pub const PROGRESSING: &str = "Progressing";
pub const SUCCEEDED: &str = "Succeeded";

/// Characters of a message: the schema allows 32,768, and a spec may list any number of clusters and policies.
const MAX_MESSAGE: usize = 32_000;

/// A message as a condition holds it: sanitized and truncated. The blank that ends some of TALM's messages stays.
pub fn message(text: &str) -> String {
    let end = if text.ends_with(' ') { " " } else { "" };
    sanitize_to(text, MAX_MESSAGE) + end
}

/// Sets a condition. One whose status changes moves to the end: kubectl shows the last one (section 1).
pub fn set(conditions: &mut Vec<Condition>, now: Timestamp, type_: &str, status: &str, reason: &str, text: &str) {
    let message = message(text);
    let at = conditions.iter().position(|condition| condition.type_ == type_);
    if let Some(known) = at.and_then(|at| conditions.get_mut(at)).filter(|known| known.status == status) {
        reason.clone_into(&mut known.reason);
        known.message = message;
        return;
    }
    let observed_generation = at.and_then(|at| conditions.remove(at).observed_generation);
    conditions.push(Condition {
        last_transition_time: Time(now),
        message,
        observed_generation,
        reason: reason.to_owned(),
        status: status.to_owned(),
        type_: type_.to_owned(),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `SetStatusCondition` of section 5.2.
    #[test]
    fn a_change_of_status_moves_a_condition_to_the_end() {
        let (first, later) = (Timestamp::from_second(10).unwrap(), Timestamp::from_second(20).unwrap());
        let mut conditions = Vec::new();
        set(&mut conditions, first, VALIDATED, "True", "ValidationCompleted", "Completed validation");
        set(&mut conditions, first, PROGRESSING, "False", "NotEnabled", "Not enabled");
        let types = |conditions: &[Condition]| conditions.iter().map(|one| one.type_.clone()).collect::<Vec<_>>();
        assert_eq!(types(&conditions), [VALIDATED, PROGRESSING]);

        set(&mut conditions, later, VALIDATED, "True", "Other", "another message");
        assert_eq!(types(&conditions), [VALIDATED, PROGRESSING], "the status is the same");
        assert_eq!((&*conditions[0].reason, conditions[0].last_transition_time.0), ("Other", first));

        set(&mut conditions, later, VALIDATED, "False", "NotAllManagedPoliciesExist", "Missing managed policies: [a] ");
        assert_eq!(types(&conditions), [PROGRESSING, VALIDATED]);
        assert_eq!(conditions[1].last_transition_time.0, later);
        assert!(!types(&conditions).contains(&SUCCEEDED.to_owned()));
    }

    #[test]
    fn a_message_is_one_line_that_the_schema_takes() {
        assert_eq!(message("Missing managed policies: [a\u{1b}[31m b] "), "Missing managed policies: [a [31m b] ");
        assert!(message(&"x".repeat(100_000)).chars().count() < 32_768);
    }
}
