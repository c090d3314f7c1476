//! Rules M1 and M2: the annotation that switches suspension on.

use serde::Deserialize;

use crate::admission::{Change, Evaluation, Fault, Meta, Object, Rule, Verdict, annotation_field, judge, metadata};
use crate::annotation::keys;
use crate::duration::parse_unsigned;
use crate::fdb::suspension::Minimum;

/// What the rules read of a `FoundationDBCluster`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Annotated {
    /// Metadata.
    #[serde(deserialize_with = "metadata")]
    pub metadata: Meta,
}

impl Object for Annotated {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

const RULES: &[Rule<Annotated>] = &[Rule { row: "M1", judge: readable }, Rule { row: "M2", judge: shortened }];

/// Judges a write of a cluster.
pub fn judge_cluster(change: &Change<'_, Annotated>) -> Evaluation {
    judge(change, RULES)
}

/// M1. A value that was there before is left alone, so that it does not stand in the way of every other write.
fn readable(change: &Change<'_, Annotated>) -> Verdict {
    let key = keys::MINIMUM_SUSPENSION;
    let Some(Err(error)) = change.new_annotation(key).map(parse_unsigned) else { return Verdict::Allow };
    Verdict::deny(Fault::Invalid, annotation_field(key), format!("{error}; 0 switches suspension off"))
        .when(change.alters_annotation(key))
}

/// M2.
fn shortened(change: &Change<'_, Annotated>) -> Verdict {
    let key = keys::MINIMUM_SUSPENSION;
    let minimum = |annotation| Minimum::of(annotation, change.settings.minimum_suspension);
    let (old, new) = (minimum(change.old_annotation(key)), minimum(change.new_annotation(key)));
    let is_shorter = match (&old, &new) {
        (Minimum::For(old), Minimum::For(new)) => new < old,
        (old, new) => matches!(old, Minimum::For(_)) && new.is_off(),
    };
    let text = new.text();
    Verdict::warn(format!("{key} is now {text}: groups that are already suspended keep their original minimum"))
        .when(is_shorter)
}
