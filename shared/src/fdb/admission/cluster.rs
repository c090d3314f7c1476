//! Rules M1 and M2: the annotation that switches suspension on.

use std::time::Duration;

use serde::Deserialize;

use crate::admission::{Change, Fault, Judgement, Meta, Object, Rule, Verdict, from_map, judge};
use crate::annotation::keys;
use crate::duration::parse_unsigned;
use crate::fdb::suspension::Minimum;

/// What the rules read of a `FoundationDBCluster`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Annotated {
    /// Metadata.
    #[serde(deserialize_with = "from_map")]
    pub metadata: Meta,
}

/// What the operator of the webhook decides about clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// How long removed process groups are kept of clusters that do not say so themselves; nothing is off.
    pub minimum_suspension: Duration,
}

impl Object for Annotated {
    type Settings = Settings;

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

const RULES: &[Rule<Annotated>] = &[Rule { row: "M1", judge: readable }, Rule { row: "M2", judge: shortened }];

/// Judges a write of a cluster.
pub fn judge_cluster(change: &Change<'_, Annotated>) -> Judgement {
    judge(change, RULES)
}

/// M1. A value that was there before is left alone, so that it does not stand in the way of every other write.
fn readable(change: &Change<'_, Annotated>) -> Verdict {
    let key = keys::MINIMUM_SUSPENSION;
    match change.new_annotation(key).map(parse_unsigned) {
        Some(Err(error)) if change.alters_annotation(key) => {
            let field = format!("metadata.annotations[{key}]");
            Verdict::deny(Fault::Invalid, field, format!("{error}; 0 switches suspension off"))
        }
        _ => Verdict::Allow,
    }
}

/// M2.
fn shortened(change: &Change<'_, Annotated>) -> Verdict {
    let key = keys::MINIMUM_SUSPENSION;
    let default = change.settings.minimum_suspension;
    let (old, new) =
        (Minimum::of(change.old_annotation(key), default), Minimum::of(change.new_annotation(key), default));
    let text = new.text();
    match (old, new) {
        (Minimum::For(old), new) if matches!(new, Minimum::Off) || matches!(new, Minimum::For(new) if new < old) => {
            Verdict::warn(format!("{key} is now {text}: groups that are already suspended keep their original minimum"))
        }
        _ => Verdict::Allow,
    }
}
