//! The form of our annotations. Only values that a request sets are judged: what is stored blocks nothing else.

use super::{Change, Fault, Object, Verdict, annotation_field};
use crate::annotation::{format, keys};

/// Denies an annotation that is no time.
pub fn time<K: Object>(change: &Change<'_, K>, key: &str) -> Verdict {
    judge(change, key, |text| format::time(text).is_some(), "an RFC 3339 time such as 2026-11-21T18:00:00Z")
}

/// Denies a time that has passed. A new object may be a restored one, and `GitOps` writes a scheduled wake again after
/// it has passed: such times do nothing.
pub fn to_come<K: Object>(change: &Change<'_, K>, key: &str) -> Verdict {
    let Some(text) = change.new_annotation(key).filter(|_| change.alters_annotation(key)) else {
        return Verdict::Allow;
    };
    match format::time(text) {
        Some(time) if time <= change.now && (change.creates() || key == keys::WAKE_AT) => {
            Verdict::warn(format!("{key} {} has passed already", format::seconds(time)))
        }
        Some(time) if time <= change.now => Verdict::deny(
            Fault::Invalid,
            annotation_field(key),
            format!("found {text:?}, which has passed, must be a time after {}", format::seconds(change.now)),
        ),
        _ => Verdict::Allow,
    }
}

/// Denies an annotation that is neither `true` nor `false`.
pub fn boolean<K: Object>(change: &Change<'_, K>, key: &str) -> Verdict {
    judge(change, key, |text| format::boolean(text).is_some(), "\"true\" or \"false\"")
}

/// Denies an annotation that is no count of replicas.
pub fn count<K: Object>(change: &Change<'_, K>, key: &str) -> Verdict {
    judge(change, key, |text| format::count(text).is_some(), "an integer from 0 to 2147483647")
}

fn judge<K: Object>(change: &Change<'_, K>, key: &str, fits: fn(&str) -> bool, right: &str) -> Verdict {
    match change.new_annotation(key) {
        Some(text) if change.alters_annotation(key) && !fits(text) => {
            Verdict::deny(Fault::Invalid, annotation_field(key), format!("found {text:?}, must be {right}"))
        }
        _ => Verdict::Allow,
    }
}
