//! Putting a workload to sleep and waking it, as the smallest merge patch that does it.
//!
//! | # | asked | spec.replicas | recorded count | answer |
//! |---|---|---|---|---|
//! | W1 | sleep | N > 0 | any | replicas 0, N recorded |
//! | W2 | sleep | 0 | any | nothing: it sleeps, and what is recorded stays |
//! | W3 | sleep | N > 0, protected | any | refused |
//! | W4 | wake | 0 | N > 0 | replicas N, record removed |
//! | W5 | wake | 0 | none | error: the previous count is unknown |
//! | W6 | wake | 0 | malformed or 0 | error that names the annotation |
//! | W7 | wake | N > 0 | none | nothing: it is awake |
//! | W8 | wake | N > 0 | any | the stale record is removed |
//! | W9 | sleep | N > 0, `whenScaled: Delete` | any | refused: Kubernetes would delete the volume claims |
//!
//! Every patch carries the resourceVersion that it was computed from, so that the API server refuses it (409) when
//! another client scaled in between, and the count that is recorded is the count that was there.

use serde_json::{Map, Value, json};

use crate::annotation::{annotation, format, keys, protected, reason_edit};

/// `whenScaled` of a `StatefulSet` whose volume claims go with its replicas.
pub const DELETE: &str = "Delete";

/// What is to be written.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Nothing: the workload is already as it was asked to be.
    Unchanged,
    /// Put to sleep.
    Sleep {
        /// Replicas that are recorded.
        replicas: u32,
        /// JSON merge patch.
        patch: Value,
    },
    /// Woken.
    Wake {
        /// Replicas that are restored.
        replicas: u32,
        /// JSON merge patch.
        patch: Value,
    },
    /// It is awake, but a record of an earlier sleep is still on it.
    Forget {
        /// Replicas that it runs with, and keeps.
        replicas: u32,
        /// JSON merge patch.
        patch: Value,
    },
}

/// Why a workload cannot be put to sleep or woken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplicasError {
    /// Row W3.
    #[error("it is protected: remove the annotation {} to put it to sleep", keys::PROTECTED)]
    Protected,
    /// Row W9.
    #[error(
        "its persistentVolumeClaimRetentionPolicy.whenScaled is Delete: at 0 replicas its volume claims and their data are deleted; \
         set it to Retain first"
    )]
    VolumesDeleted,
    /// Row W5.
    #[error("it has 0 replicas and no annotation {} says how many there were: scale it by hand", keys::REPLICAS)]
    NothingRecorded,
    /// Row W6.
    #[error(
        "annotation {key} is {0:?}, not a number of replicas from 1 to {max}: correct it, or scale by hand",
        key = keys::REPLICAS,
        max = i32::MAX
    )]
    Malformed(String),
}

/// The merge patch that puts a workload to sleep. `object` is the whole object as the API server sent it; `reason` goes
/// on it as an annotation, and an older reason does not survive.
///
/// # Errors
/// When the workload is protected (W3), or its volumes would be deleted (W9).
pub fn sleep(object: &Value, reason: Option<&str>) -> Result<Step, ReplicasError> {
    let replicas = replicas(object);
    if replicas == 0 {
        return Ok(Step::Unchanged); // W2
    }
    if protected(annotation(object, keys::PROTECTED)) {
        return Err(ReplicasError::Protected); // W3
    }
    if deletes_volumes(object) {
        return Err(ReplicasError::VolumesDeleted); // W9
    }
    let mut annotations = reason_change(object, reason);
    annotations.insert(keys::REPLICAS.to_owned(), json!(replicas.to_string()));
    let patch = guarded(object, &annotations, Some(0));
    Ok(Step::Sleep { replicas, patch }) // W1
}

/// The merge patch that wakes a workload.
///
/// # Errors
/// When nothing usable is recorded (W5, W6).
pub fn wake(object: &Value, reason: Option<&str>) -> Result<Step, ReplicasError> {
    let (now, recorded) = (replicas(object), annotation(object, keys::REPLICAS));
    if now > 0 && recorded.is_none() {
        return Ok(Step::Unchanged); // W7
    }
    let mut annotations = reason_change(object, reason);
    annotations.insert(keys::REPLICAS.to_owned(), Value::Null);
    if now > 0 {
        let patch = guarded(object, &annotations, None);
        return Ok(Step::Forget { replicas: now, patch }); // W8
    }
    let replicas = count(recorded.ok_or(ReplicasError::NothingRecorded)?)?; // W5, W6
    let patch = guarded(object, &annotations, Some(replicas));
    Ok(Step::Wake { replicas, patch }) // W4
}

/// Whether Kubernetes deletes the volume claims of a `StatefulSet` when its replicas go.
pub fn deletes_volumes(object: &Value) -> bool {
    object.pointer("/spec/persistentVolumeClaimRetentionPolicy/whenScaled").is_some_and(|policy| policy == DELETE)
}

/// `spec.replicas`, which is 1 where it is absent.
pub fn replicas(object: &Value) -> u32 {
    let replicas = object.pointer("/spec/replicas").and_then(Value::as_u64).unwrap_or(1);
    u32::try_from(replicas).unwrap_or(u32::MAX)
}

/// Reads a recorded count.
///
/// # Errors
/// When the text is not an integer from 1 to the largest 32-bit one.
pub fn count(text: &str) -> Result<u32, ReplicasError> {
    let count = format::count(text).map(i32::unsigned_abs).filter(|count| *count > 0);
    count.ok_or_else(|| ReplicasError::Malformed(text.to_owned()))
}

/// The new reason, or the removal of an old one, or nothing.
pub(crate) fn reason_change(object: &Value, reason: Option<&str>) -> Map<String, Value> {
    reason_edit(annotation(object, keys::REASON), reason, true).into_iter().collect()
}

/// The merge patch of a workload, valid for the version that it was made from.
pub(crate) fn guarded(object: &Value, annotations: &Map<String, Value>, replicas: Option<u32>) -> Value {
    let mut patch = json!({ "metadata": { "annotations": annotations } });
    if let Some(version) = object.pointer("/metadata/resourceVersion") {
        patch["metadata"]["resourceVersion"] = version.clone();
    }
    if let Some(replicas) = replicas {
        patch["spec"] = json!({ "replicas": replicas });
    }
    patch
}

#[cfg(test)]
mod tests {
    use json_patch::merge;
    use proptest::prelude::*;

    use super::*;

    fn workload(replicas: Option<u32>, annotations: &[(&str, &str)]) -> Value {
        let annotations: Map<String, Value> =
            annotations.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        let mut object = json!({
            "metadata": { "name": "web", "resourceVersion": "7", "annotations": annotations },
            "spec": { "selector": {} },
        });
        if let Some(replicas) = replicas {
            object["spec"]["replicas"] = json!(replicas);
        }
        object
    }

    fn patch_of(step: &Step) -> &Value {
        match step {
            Step::Sleep { patch, .. } | Step::Wake { patch, .. } | Step::Forget { patch, .. } => patch,
            Step::Unchanged => &Value::Null,
        }
    }

    #[test]
    fn w1_sleep_records_what_was_there_and_overwrites_a_stale_record() {
        for (replicas, stale) in [(Some(3), None), (Some(3), Some("9")), (Some(3), Some("many")), (None, None)] {
            let annotations: Vec<_> = stale.map(|stale| (keys::REPLICAS, stale)).into_iter().collect();
            let count = replicas.unwrap_or(1);
            assert_eq!(
                sleep(&workload(replicas, &annotations), None),
                Ok(Step::Sleep {
                    replicas: count,
                    patch: json!({
                        "metadata": { "resourceVersion": "7", "annotations": { keys::REPLICAS: count.to_string() } },
                        "spec": { "replicas": 0 },
                    }),
                })
            );
        }
    }

    #[test]
    fn w2_asleep_stays_as_it_is_whatever_is_recorded() {
        for recorded in [None, Some("3"), Some("many"), Some("0")] {
            let annotations: Vec<_> = recorded.map(|recorded| (keys::REPLICAS, recorded)).into_iter().collect();
            assert_eq!(sleep(&workload(Some(0), &annotations), Some("again")), Ok(Step::Unchanged));
        }
    }

    #[test]
    fn w3_protected_is_refused_only_when_it_is_awake_and_says_true() {
        let protected = &[(keys::PROTECTED, "true")];
        assert_eq!(sleep(&workload(Some(3), protected), None), Err(ReplicasError::Protected));
        assert_eq!(sleep(&workload(Some(0), protected), None), Ok(Step::Unchanged));
        assert!(sleep(&workload(Some(3), &[(keys::PROTECTED, "false")]), None).is_ok());
    }

    #[test]
    fn w9_volumes_that_go_with_the_replicas_are_refused_only_when_it_is_awake() {
        let with = |replicas, policy: &str| {
            let mut object = workload(Some(replicas), &[(keys::REPLICAS, "3")]);
            object["spec"]["persistentVolumeClaimRetentionPolicy"] =
                json!({ "whenScaled": policy, "whenDeleted": "Delete" });
            object
        };
        assert_eq!(sleep(&with(3, "Delete"), None), Err(ReplicasError::VolumesDeleted));
        assert_eq!(sleep(&with(0, "Delete"), None), Ok(Step::Unchanged));
        assert!(sleep(&with(3, "Retain"), None).is_ok());
        assert!(wake(&with(0, "Delete"), None).is_ok());
    }

    #[test]
    fn w4_wake_restores_and_forgets() {
        assert_eq!(
            wake(&workload(Some(0), &[(keys::REPLICAS, "3"), (keys::REASON, "night")]), None),
            Ok(Step::Wake {
                replicas: 3,
                patch: json!({
                    "metadata": {
                        "resourceVersion": "7",
                        "annotations": { keys::REPLICAS: null, keys::REASON: null },
                    },
                    "spec": { "replicas": 3 },
                }),
            })
        );
    }

    #[test]
    fn w5_w6_wake_needs_a_usable_record() {
        assert_eq!(wake(&workload(Some(0), &[]), None), Err(ReplicasError::NothingRecorded));
        for bad in ["", "0", "-1", "+3", "3.0", " 3", "three", "2147483648", "99999999999999999999"] {
            assert_eq!(
                wake(&workload(Some(0), &[(keys::REPLICAS, bad)]), None),
                Err(ReplicasError::Malformed(bad.to_owned()))
            );
        }
        assert_eq!(count("2147483647"), Ok(2_147_483_647));
    }

    #[test]
    fn w7_w8_awake_is_left_alone_but_for_a_stale_record() {
        assert_eq!(wake(&workload(Some(5), &[]), Some("why not")), Ok(Step::Unchanged));
        assert_eq!(wake(&workload(None, &[]), None), Ok(Step::Unchanged));
        assert_eq!(
            wake(&workload(Some(5), &[(keys::REPLICAS, "3")]), None),
            Ok(Step::Forget {
                replicas: 5,
                patch: json!({ "metadata": { "resourceVersion": "7", "annotations": { keys::REPLICAS: null } } }),
            })
        );
    }

    #[test]
    fn a_new_reason_replaces_and_none_removes_the_old_one() {
        let object = workload(Some(2), &[(keys::REASON, "old")]);
        for (given, written) in [(Some("new"), json!("new")), (None, Value::Null)] {
            let step = sleep(&object, given).unwrap();
            assert_eq!(patch_of(&step)["metadata"]["annotations"][keys::REASON], written);
        }
        let same = sleep(&object, Some("old")).unwrap();
        assert!(patch_of(&same)["metadata"]["annotations"].get(keys::REASON).is_none());
    }

    #[test]
    fn what_an_error_advises_works() {
        type Act = fn(&Value, Option<&str>) -> Result<Step, ReplicasError>;
        let mut deleting = workload(Some(3), &[]);
        deleting["spec"]["persistentVolumeClaimRetentionPolicy"] = json!({ "whenScaled": DELETE });
        let note = |key: &str, value: Value| json!({ "metadata": { "annotations": { key: value } } });
        let scaled = || json!({ "spec": { "replicas": 2 } });
        let cases: [(Value, Act); 4] = [
            (workload(Some(3), &[(keys::PROTECTED, "true")]), sleep),
            (deleting, sleep),
            (workload(Some(0), &[]), wake),
            (workload(Some(0), &[(keys::REPLICAS, "three")]), wake),
        ];
        for (object, act) in cases {
            let error = act(&object, None).unwrap_err();
            let (advice, edits) = match error {
                ReplicasError::Protected => {
                    ("remove the annotation hibernate.sh/protected", vec![note(keys::PROTECTED, Value::Null)])
                }
                ReplicasError::VolumesDeleted => (
                    "set it to Retain first",
                    vec![json!({ "spec": { "persistentVolumeClaimRetentionPolicy": { "whenScaled": "Retain" } } })],
                ),
                ReplicasError::NothingRecorded => ("scale it by hand", vec![scaled()]),
                ReplicasError::Malformed(_) => {
                    ("correct it, or scale by hand", vec![note(keys::REPLICAS, json!("2")), scaled()])
                }
            };
            assert!(error.to_string().contains(advice), "{error}");
            for edit in edits {
                let mut object = object.clone();
                merge(&mut object, &edit);
                assert!(act(&object, None).is_ok(), "{error}: {edit}");
            }
        }
    }

    fn any_workload() -> impl Strategy<Value = Value> {
        let recorded = prop_oneof![Just(None), "[0-9]{1,4}".prop_map(Some), "[a-z0-9 .+-]{0,6}".prop_map(Some)];
        let reason = proptest::option::of("[a-z]{1,5}");
        (proptest::option::of(0_u32..10_000), recorded, reason).prop_map(|(replicas, recorded, reason)| {
            let mut annotations = Vec::new();
            annotations.extend(recorded.as_deref().map(|recorded| (keys::REPLICAS, recorded)));
            annotations.extend(reason.as_deref().map(|reason| (keys::REASON, reason)));
            workload(replicas, &annotations)
        })
    }

    proptest! {
        /// Sleeping and waking gives the same number of replicas and leaves no record.
        #[test]
        fn there_and_back(before in any_workload(), reason in proptest::option::of("[a-z]{1,5}")) {
            prop_assume!(replicas(&before) > 0);
            let mut object = before.clone();
            let down = sleep(&object, reason.as_deref()).unwrap();
            merge(&mut object, patch_of(&down));
            prop_assert_eq!(replicas(&object), 0);
            prop_assert_eq!(sleep(&object, None), Ok(Step::Unchanged), "sleeping twice is sleeping once");
            let up = wake(&object, None).unwrap();
            merge(&mut object, patch_of(&up));
            prop_assert_eq!(replicas(&object), replicas(&before));
            prop_assert_eq!(annotation(&object, keys::REPLICAS), None);
            prop_assert_eq!(annotation(&object, keys::REASON), None);
            prop_assert_eq!(wake(&object, None), Ok(Step::Unchanged), "waking twice is waking once");
        }

        /// Whatever is asked of whatever object: 0 is never recorded, and a record on a sleeping workload is never
        /// replaced.
        #[test]
        fn a_record_is_never_lost(object in any_workload()) {
            if let Ok(Step::Sleep { patch, replicas }) = sleep(&object, None) {
                prop_assert!(replicas > 0);
                prop_assert_eq!(&patch["metadata"]["annotations"][keys::REPLICAS], &json!(replicas.to_string()));
            }
            if replicas(&object) == 0 {
                prop_assert_eq!(sleep(&object, None), Ok(Step::Unchanged));
            }
        }

        /// No member of a patch repeats what the object already says, and every patch is guarded.
        #[test]
        fn every_patch_is_minimal_and_guarded(
            object in any_workload(),
            reason in proptest::option::of("[a-z]{1,2}"),
            asleep in any::<bool>(),
        ) {
            let step = if asleep { sleep(&object, reason.as_deref()) } else { wake(&object, reason.as_deref()) };
            let Ok(step) = step else { return Ok(()) };
            let patch = patch_of(&step);
            if *patch == Value::Null { return Ok(()) }
            prop_assert_eq!(&patch["metadata"]["resourceVersion"], "7");
            if let Some(replicas) = patch.pointer("/spec/replicas") {
                prop_assert_ne!(object.pointer("/spec/replicas"), Some(replicas));
            }
            for (key, value) in patch["metadata"]["annotations"].as_object().unwrap() {
                let before = annotation(&object, key);
                let stale_but_right = key == keys::REPLICAS && before == value.as_str();
                prop_assert!(before != value.as_str() || stale_but_right, "{key} is written without need");
            }
        }
    }
}
