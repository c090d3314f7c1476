//! Recording replica counts: whichever client scales a workload to 0, its previous count survives.
//!
//! | # | spec.replicas | answer |
//! |---|---|---|
//! | C1 | N > 0 to 0 | `hibernate.sh/replicas: "N"`, whatever the annotation held before |
//! | C2 | 0 to N > 0 | the annotation is removed |
//! | C3 | stays 0, a recorded count is altered or removed | it is put back, unless the plugin's field manager did it |
//! | C4 | stays 0, nothing usable is recorded, a count is added | it stays, if it is a count; 0 and nonsense are removed |
//! | C5 | created, or stays above 0 | nothing |
//! | C6 | N > 0 to 0 through the scale subresource | warning: a `Scale` has no annotations of the workload |
//! | C7 | cannot be read, before or after | a recorded count is put back |
//! | C8 | N > 0 to 0 with `whenScaled: Delete` | denied: Kubernetes would delete the volume claims |
//!
//! C4 is the way out after C6, and after an outage of the webhook: a user who knows the count may write it.

use serde::Deserialize;

use super::replicas::DELETE;
use crate::admission::{Change, Denial, Edits, Fault, Meta, Object, metadata};
use crate::annotation::{format, keys};
use crate::read::lenient;

/// What the rules read of a workload, or of a `Scale`: the object of the scale subresource has the same fields.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Workload {
    /// Metadata.
    #[serde(deserialize_with = "metadata")]
    pub metadata: Meta,
    /// Desired state.
    #[serde(default, deserialize_with = "lenient")]
    pub spec: Option<Spec>,
}

/// `spec` of a workload or of a `Scale`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Spec {
    /// How many are wanted.
    #[serde(default, deserialize_with = "lenient")]
    pub replicas: Option<i64>,
    /// What becomes of the volume claims of a `StatefulSet`.
    #[serde(default, rename = "persistentVolumeClaimRetentionPolicy", deserialize_with = "lenient")]
    pub retention: Option<Retention>,
}

/// `spec.persistentVolumeClaimRetentionPolicy`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Retention {
    /// `Retain` or `Delete`, when the replicas are fewer.
    #[serde(default, rename = "whenScaled", deserialize_with = "lenient")]
    pub when_scaled: Option<String>,
}

impl Object for Workload {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Workload {
    /// `spec.replicas`. Where it is absent it is 1, and 0 in a `Scale`: `autoscaling/v1` leaves zeros out.
    fn replicas(&self, absent: i64) -> i64 {
        self.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(absent)
    }

    fn deletes_volumes(&self) -> bool {
        let retention = self.spec.as_ref().and_then(|spec| spec.retention.as_ref());
        retention.is_some_and(|retention| retention.when_scaled.as_deref() == Some(DELETE))
    }
}

/// Keeps the record of a workload's replicas (C1 to C5, C7, C8).
pub fn record(change: &Change<'_, Workload>) -> Edits {
    let edits = Edits::default();
    let Some(old) = &change.old else {
        return edits; // C5
    };
    let (stored, sent) = (change.old_annotation(keys::REPLICAS), change.new_annotation(keys::REPLICAS));
    let unread = change.unread.old.iter().chain(&change.unread.new);
    if unread.into_iter().any(|field| field.concerns(&["spec", "replicas"])) {
        return edits.want(keys::REPLICAS, sent, stored.map(str::to_owned)); // C7
    }
    match (old.replicas(1), change.new.replicas(1)) {
        (1.., 0) if change.new.deletes_volumes() => Edits { denial: Some(volumes_deleted()), ..edits }, // C8
        (before @ 1.., 0) => edits.want(keys::REPLICAS, sent, Some(before.to_string())),                // C1
        (0, 1..) => edits.want(keys::REPLICAS, sent, None),                                             // C2
        (0, 0) if stored != sent && change.field_manager != keys::PLUGIN => match (stored, sent) {
            (Some(stored), _) if is_record(stored) => edits.want(keys::REPLICAS, sent, Some(stored.to_owned())).warn(
                format!("{} records the replica count for the resume: {stored} was restored", keys::REPLICAS), // C3
            ),
            (_, Some(sent)) if !is_record(sent) => edits.want(keys::REPLICAS, Some(sent), None).warn(
                format!("{} must be an integer from 1 to 2147483647: it was removed", keys::REPLICAS), // C4
            ),
            _ => edits,
        },
        _ => edits, // C5
    }
}

fn volumes_deleted() -> Denial {
    Denial {
        fault: Fault::Forbidden,
        field: "spec.persistentVolumeClaimRetentionPolicy.whenScaled".to_owned(),
        message: "found Delete: at 0 replicas the volume claims and their data are deleted; set it to Retain first"
            .to_owned(),
    }
}

/// Warns when the count is about to be lost in the scale subresource (C6).
pub fn scale(change: &Change<'_, Workload>) -> Edits {
    match change.old.as_ref().map(|old| old.replicas(0)) {
        Some(before @ 1..) if change.new.replicas(0) == 0 => Edits::default()
            .warn(format!("the scale subresource cannot carry annotations: the replica count {before} is not recorded"))
            .warn(format!(
                "to be able to resume it, annotate it with {}={before}, or use kubectl hibernate instead of scale",
                keys::REPLICAS
            )),
        _ => Edits::default(),
    }
}

/// Whether a workload can be woken to this: 0 is never a record.
fn is_record(text: &str) -> bool {
    format::count(text).is_some_and(|count| count > 0)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::admission::testing::{annotations, edited, note};
    use crate::admission::{Edit, Settings, UnreadFields, User};
    use crate::workload::replicas::{Step, wake};

    fn workload(replicas: Option<i64>, record: Option<&str>) -> Workload {
        Workload {
            metadata: Meta {
                annotations: record.iter().map(|record| (keys::REPLICAS, *record)).collect(),
                ..Meta::default()
            },
            spec: Some(Spec { replicas, retention: None }),
        }
    }

    fn edits(manager: &str, old: Option<Workload>, new: Workload) -> Edits {
        record(&Change {
            old,
            new,
            user: &User::default(),
            field_manager: manager,
            now: Timestamp::UNIX_EPOCH,
            settings: &Settings::default(),
            unread: UnreadFields::default(),
        })
    }

    /// What the record is after the write.
    fn after(edits: &Edits, sent: Option<&str>) -> Option<String> {
        match edits.annotations.as_slice() {
            [] => sent.map(str::to_owned),
            [Edit { key: keys::REPLICAS, value }] => {
                assert_ne!(value.as_deref(), sent, "no edit without need");
                value.clone()
            }
            other => panic!("more than the record was edited: {other:?}"),
        }
    }

    #[test]
    fn the_table() {
        let none = None;
        for (row, manager, from, stored, to, sent, expected) in [
            ("C1", "kubectl", Some(3), none, 0, none, Some("3")),
            ("C1 absent is 1", "kubectl", None, none, 0, none, Some("1")),
            ("C1 stale", "kubectl", Some(3), Some("9"), 0, Some("9"), Some("3")),
            ("C1 forged", "kubectl", Some(3), none, 0, Some("9"), Some("3")),
            ("C1 by the plugin, right", "kubectl-hibernate", Some(3), none, 0, Some("3"), Some("3")),
            ("C1 by the plugin, wrong", "kubectl-hibernate", Some(3), none, 0, Some("9"), Some("3")),
            ("C2", "kubectl", Some(0), Some("3"), 5, Some("3"), none),
            ("C2 nothing recorded", "kubectl", Some(0), none, 5, none, none),
            ("C2 removed by the plugin", "kubectl-hibernate", Some(0), Some("3"), 3, none, none),
            ("C3 altered", "kubectl-edit", Some(0), Some("3"), 0, Some("9"), Some("3")),
            ("C3 removed", "argocd-controller", Some(0), Some("3"), 0, none, Some("3")),
            ("C3 zeroed", "kubectl", Some(0), Some("3"), 0, Some("0"), Some("3")),
            ("C3 untouched", "kubectl", Some(0), Some("3"), 0, Some("3"), Some("3")),
            ("C3 by the plugin", "kubectl-hibernate", Some(0), Some("3"), 0, Some("4"), Some("4")),
            ("C4 added", "kubectl-annotate", Some(0), none, 0, Some("3"), Some("3")),
            ("C4 zero", "kubectl-annotate", Some(0), none, 0, Some("0"), none),
            ("C4 nonsense", "kubectl-annotate", Some(0), none, 0, Some("many"), none),
            ("C4 nonsense mended", "kubectl-annotate", Some(0), Some("many"), 0, Some("3"), Some("3")),
            ("C4 nonsense removed", "kubectl-annotate", Some(0), Some("many"), 0, none, none),
            ("C5 rollout", "kubectl", Some(3), Some("9"), 4, Some("9"), Some("9")),
            ("C5 annotated while up", "kubectl", Some(3), none, 3, Some("9"), Some("9")),
            ("C5 nonsense replicas", "kubectl", Some(-1), none, 0, none, none),
        ] {
            let edits = edits(manager, Some(workload(from, stored)), workload(Some(to), sent));
            assert_eq!(after(&edits, sent).as_deref(), expected, "{row}");
        }
        assert_eq!(edits("kubectl", None, workload(Some(0), Some("x"))), Edits::default(), "C5 created");
    }

    #[test]
    fn who_loses_something_is_warned() {
        let warnings = |edits: Edits| edits.warnings.join("\n");
        let put_back = edits("kubectl", Some(workload(Some(0), Some("3"))), workload(Some(0), None));
        assert_eq!(
            warnings(put_back),
            "hibernate.sh/replicas records the replica count for the resume: 3 was restored"
        );
        let removed = edits("kubectl", Some(workload(Some(0), None)), workload(Some(0), Some("0")));
        assert!(warnings(removed).contains("from 1 to 2147483647"));
    }

    #[test]
    fn c8_volumes_that_would_be_deleted_are_denied() {
        let set = |replicas, policy: &str| Workload {
            spec: Some(Spec {
                replicas: Some(replicas),
                retention: Some(Retention { when_scaled: Some(policy.to_owned()) }),
            }),
            ..workload(None, None)
        };
        for (old, new, denied) in [
            (set(3, "Delete"), set(0, "Delete"), true),
            (set(3, "Retain"), set(0, "Delete"), true),
            (set(3, "Delete"), set(0, "Retain"), false),
            (set(3, "Delete"), set(1, "Delete"), false),
            (set(0, "Delete"), set(0, "Delete"), false),
            (set(0, "Delete"), set(3, "Delete"), false),
        ] {
            assert_eq!(edits("kubectl", Some(old), new).denial.is_some(), denied);
        }
    }

    #[test]
    fn c6_a_scale_request_to_zero_is_warned_of() {
        let json = |text: &str| serde_json::from_str::<Workload>(text).unwrap();
        let three = r#"{"metadata":{"name":"web"},"spec":{"replicas":3}}"#;
        let zero = r#"{"metadata":{"name":"web"},"spec":{}}"#;
        for (old, new, warnings) in [(three, zero, 2), (zero, three, 0), (zero, zero, 0), (three, three, 0)] {
            let edits = scale(&Change {
                old: Some(json(old)),
                new: json(new),
                user: &User::default(),
                field_manager: "",
                now: Timestamp::UNIX_EPOCH,
                settings: &Settings::default(),
                unread: UnreadFields::default(),
            });
            assert_eq!(edits.warnings.len(), warnings, "{old} to {new}");
            assert!(edits.annotations.is_empty());
            assert!(edits.warnings.iter().all(|text| text.len() < 120), "{:?}", edits.warnings);
        }
    }

    /// What C6 says is annotated, and what that gives back.
    #[test]
    fn the_annotation_that_c6_advises_is_kept_and_resumed_with() {
        let of = |replicas| {
            serde_json::from_value::<Workload>(
                json!({ "metadata": { "name": "web" }, "spec": { "replicas": replicas } }),
            )
            .unwrap()
        };
        let scaled = scale(&Change {
            old: Some(of(3)),
            new: of(0),
            user: &User::default(),
            field_manager: "",
            now: Timestamp::UNIX_EPOCH,
            settings: &Settings::default(),
            unread: UnreadFields::default(),
        });
        let advised = annotations(&scaled.warnings[1]);
        assert_eq!(advised, [note(keys::REPLICAS, "3")]);
        let kept = edits("kubectl-annotate", Some(workload(Some(0), None)), workload(Some(0), advised[0].1.as_str()));
        assert_eq!(kept, Edits::default());
        let object = edited(&json!({ "metadata": { "annotations": {} }, "spec": { "replicas": 0 } }), &advised);
        assert!(matches!(wake(&object, None), Ok(Step::Wake { replicas: 3, .. })), "{object}");
    }

    fn any_record() -> impl Strategy<Value = Option<String>> {
        proptest::option::of(prop_oneof!["[0-9]{1,3}", "[a-z0-9 -]{0,4}"])
    }

    proptest! {
        /// However often others write, what they wake to later is what was there when it was put to sleep.
        #[test]
        fn the_record_of_a_sleep_survives_every_write_of_others(
            count in 1_i64..2_000_000,
            before in any_record(),
            writes in proptest::collection::vec(any_record(), 1..8),
        ) {
            let mut stored = workload(Some(count), before.as_deref());
            for sent in &writes {
                let new = workload(Some(0), sent.as_deref());
                let record = after(&edits("somebody", Some(stored), new), sent.as_deref());
                prop_assert_eq!(&record, &Some(count.to_string()));
                stored = workload(Some(0), record.as_deref());
            }
        }
    }
}
