//! The twin of the webhook's static rules as a `ValidatingAdmissionPolicy`: V3, V5, V6 (protected), what
//! cannot be read (the longest of it), V8, V9 (form), V10, with V11.
//!
//! It needs no webhook to be up. It says less: CEL at admission knows no clock, so a hold-awake is not looked at (V6),
//! a short `hibernateAfter` is not warned of (V8), a time that has passed is let through (V9), and without the mutating
//! webhook a write has no stamp of its user (V12), and a wake that edits the claim of a rollout passes with it (V10).

use k8s_openapi::api::admissionregistration::v1::{Validation, Variable};
use serde_json::Value;
use shared::admission::cel::{INTO_SLEEP, annotation_changes, condition, list, not};
use shared::admission::policy::{Deny, forbid, variable, writes};
use shared::admission::{MAX_TEXT_BYTES, UNREADABLE};
use shared::annotation::keys;

use crate::confine::objects;
use crate::entry::{is_exempt_member, is_exempt_user};
use crate::names::WEBHOOK;

/// Name of the policy and of its binding.
const NAME: &str = "clusterdeployments.hibernate.sh";

/// The policy and its binding.
pub fn policy() -> Vec<Value> {
    let rules =
        vec![writes("hive.openshift.io", &["v1"], &["CREATE", "UPDATE"], &["clusterdeployments"], "Namespaced")];
    let conditions = vec![
        condition("not-our-controller", not(&is_exempt_user())),
        // Of members of exempt groups only the claims of rollouts are judged (V10).
        condition("not-exempt-or-claim-changes", format!("{}\n|| ({})", not(&is_exempt_member()), claim_changes())),
    ];
    let (variables, validations) = (variables(), validations());
    objects(&Deny { name: NAME, rules, conditions, variables, validations }, WEBHOOK)
}

fn variables() -> Vec<Variable> {
    vec![
        variable("intoSleep", INTO_SLEEP),
        variable(
            "wakes",
            "oldObject != null && oldObject.?spec.?powerState.orValue('') == 'Hibernating'
&& object.?spec.?powerState.orValue('') != 'Hibernating'",
        ),
        variable("hibernateAfter", "object.?spec.?hibernateAfter.orValue('')"),
        variable(
            "hibernateAfterChanges",
            "object.?spec.?hibernateAfter.hasValue()
&& (oldObject == null || object.?spec.?hibernateAfter != oldObject.?spec.?hibernateAfter)",
        ),
        variable("hibernateAfterNanoseconds", nanoseconds("variables.hibernateAfter")),
        variable(
            "stampChanges",
            format!(
                "oldObject != null
&& {}.exists(key,
  object.metadata.?annotations[?key] != oldObject.metadata.?annotations[?key])",
                list(&[keys::REQUESTED_BY, keys::REQUESTED_AT])
            ),
        ),
        variable("overlong", overlong()),
        variable("malformed", malformed()),
        variable(
            "holderChanges",
            format!(
                "oldObject != null && {} && !({})",
                annotation_changes(keys::HOLD_AWAKE_BY),
                annotation_changes(keys::HOLD_AWAKE_UNTIL)
            ),
        ),
        variable("claimChanges", claim_changes()),
        variable(
            "stateChanges",
            "(object.?spec.?powerState.orValue('') == 'Hibernating')
!= (oldObject != null && oldObject.?spec.?powerState.orValue('') == 'Hibernating')",
        ),
    ]
}

fn validations() -> Vec<Validation> {
    let deny = |reason: &str, rule: &str, unless: &str, message: &str| Validation {
        reason: Some(reason.to_owned()),
        ..forbid(unless, format!("{message} ({rule})"))
    };
    let forbidden = |rule: &str, unless: &str, message: &str| deny("Forbidden", rule, unless, message);
    let invalid = |rule: &str, unless: &str, message: &str| deny("Invalid", rule, unless, message);
    vec![
        // First, because the first denial is what the user reads, and members of exempt groups are exempt from all
        // others.
        forbidden(
            "V10",
            "variables.wakes || !variables.claimChanges",
            &format!("metadata.annotations: {} is written by the controller alone, not by hand", keys::ROLLOUT),
        ),
        forbidden(
            "V3",
            "!variables.intoSleep || !has(object.metadata.deletionTimestamp)",
            "spec.powerState: the cluster is being deleted and cannot be put to sleep",
        ),
        invalid(
            "V5",
            "!variables.intoSleep || !object.?spec.?installed.orValue(false)
|| (object.?spec.?clusterMetadata.?infraID.orValue('') != ''
  && object.?spec.?clusterMetadata.?adminKubeconfigSecretRef.?name.orValue('') != '')",
            "spec.clusterMetadata: an installed cluster needs infraID and adminKubeconfigSecretRef.name to be put to sleep and woken",
        ),
        forbidden(
            "V6",
            &format!(
                "!variables.intoSleep
|| (object.metadata.?annotations[?'{0}'].orValue('false') == 'false'
  && (oldObject == null || oldObject.metadata.?annotations[?'{0}'].orValue('false') == 'false'))",
                keys::PROTECTED
            ),
            &format!(
                "metadata.annotations[{}]: the cluster is protected; remove the annotation in a separate write, then put it to sleep",
                keys::PROTECTED
            ),
        ),
        invalid(
            UNREADABLE,
            "variables.wakes || !variables.overlong",
            &format!(
                "spec: hibernateAfter, clusterMetadata.infraID, clusterMetadata.adminKubeconfigSecretRef.name and clusterPoolRef.poolName must be texts of at most {MAX_TEXT_BYTES} bytes"
            ),
        ),
        invalid(
            "V8",
            // duration() fails on more than 2^63 ns, and a failure denies with an unhelpful message. So the sum is
            // looked at first, with some milliseconds of room for its rounding: only in these, duration() has to fail.
            "variables.wakes || !variables.hibernateAfterChanges
|| (variables.hibernateAfterNanoseconds < 9.22337203686e18 && duration(variables.hibernateAfter) > duration('0s'))",
            "spec.hibernateAfter: must be a positive duration of at most 2562047h47m16s, such as 8h or 1h30m",
        ),
        invalid(
            "V9",
            "variables.wakes || !variables.malformed",
            &format!(
                "metadata.annotations: {} must be RFC 3339 times, {} true or false, {} an integer from 0 to 2147483647",
                TIMES.join(", "),
                keys::PROTECTED,
                keys::REPLICAS
            ),
        ),
        forbidden(
            "V10",
            "variables.wakes || !variables.holderChanges",
            &format!(
                "metadata.annotations: {} is written when {} is set, not by hand",
                keys::HOLD_AWAKE_BY,
                keys::HOLD_AWAKE_UNTIL
            ),
        ),
        forbidden(
            "V10",
            "variables.wakes || !variables.stampChanges || variables.stateChanges",
            &format!(
                "metadata.annotations: {} and {} are written when spec.powerState changes, not by hand",
                keys::REQUESTED_BY,
                keys::REQUESTED_AT
            ),
        ),
    ]
}

/// The claim of a rollout is edited. A new object may be a restored one.
fn claim_changes() -> String {
    format!("oldObject != null && {}", annotation_changes(keys::ROLLOUT))
}

/// A text is longer than the webhook reads: one that is set, or any on the way into sleep. CEL counts characters.
fn overlong() -> String {
    let text = |path: &str| format!("object.?spec.{path}.orValue('')");
    let needed =
        ["?clusterMetadata.?infraID", "?clusterMetadata.?adminKubeconfigSecretRef.?name", "?clusterPoolRef.?poolName"];
    format!(
        "(variables.hibernateAfterChanges || variables.intoSleep) && size(variables.hibernateAfter) > {MAX_TEXT_BYTES}
|| variables.intoSleep && [{}].exists(text, size(text) > {MAX_TEXT_BYTES})",
        needed.map(text).join(", ")
    )
}

/// Annotations that hold a time.
const TIMES: [&str; 4] = [keys::REQUESTED_AT, keys::HOLD_AWAKE_UNTIL, keys::WAKE_AT, keys::PREFLIGHT_REQUESTED_AT];

/// RFC 3339, as far as a pattern can tell. A 29th of February too many fails in `timestamp()`, and what fails denies.
const TIME: &str = "^[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|[12][0-9]))T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$";

/// An annotation of ours is set to something that it cannot hold. Long texts are looked at no further.
fn malformed() -> String {
    let any = |keys: &[&str], wrong: &str| {
        format!(
            "{}.exists(key,
  object.metadata.?annotations[?key].hasValue()
  && (oldObject == null || object.metadata.?annotations[?key] != oldObject.metadata.?annotations[?key])
  && {})",
            list(keys),
            wrong.replace("TEXT", "object.metadata.annotations[key]")
        )
    };
    let time =
        format!("(size(TEXT) > 64 || !TEXT.matches('{TIME}') || timestamp(TEXT) < timestamp('0001-01-01T00:00:00Z'))");
    let count = "(size(TEXT) > 64 || !TEXT.matches('^0*[0-9]{1,10}$') || int(TEXT) > 2147483647)";
    [any(&TIMES, &time), any(&[keys::PROTECTED], "!(TEXT in ['true', 'false'])"), any(&[keys::REPLICAS], count)]
        .join("\n|| ")
}

/// Roughly how many nanoseconds a Go duration has, as a double, which no number of hours overflows.
///
/// Each unit is made one letter first, so that no unit is found inside another.
fn nanoseconds(text: &str) -> String {
    format!(
        "{{'h': 3.6e12, 'm': 6e10, 's': 1e9, 'L': 1e6, 'U': 1e3, 'N': 1.0}}.map(unit, {{'h': 3.6e12, 'm': 6e10, 's': 1e9, 'L': 1e6, 'U': 1e3, 'N': 1.0}}[unit]
  * {text}.replace('ms', 'L').replace('us', 'U').replace('µs', 'U').replace('ns', 'N')
    .findAll('[0-9.]+' + unit).map(part, double(part.replace(unit, ''))).sum()).sum()"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The plugin reads the row from the end of a policy's denial, which has no causes.
    #[test]
    fn every_message_ends_with_its_row() {
        let ends: Vec<String> = validations()
            .into_iter()
            .map(|validation| validation.message.unwrap().rsplit_once(' ').unwrap().1.to_owned())
            .collect();
        assert_eq!(ends, ["(V10)", "(V3)", "(V5)", "(V6)", "(unreadable)", "(V8)", "(V9)", "(V10)", "(V10)"]);
    }
}
