//! Notebooks of Kubeflow.

use super::target;
use crate::kinds::kind::Kind;
use crate::kinds::row::TargetKind;
use crate::kinds::sleep_row::At::Field;
use crate::kinds::sleep_row::Test::{Asked, Zero};
use crate::kinds::sleep_row::{Phase, Range, Scalar, SleepRow, State, Switch};

/// `Notebook`. That the annotation is there stops it, whatever its value is.
pub static NOTEBOOK: TargetKind = target(
    Kind::namespaced("kubeflow.org", &["v1", "v1beta1"], "Notebook", "notebooks"),
    2,
    &SleepRow {
        switches: &[Switch {
            at: "/metadata/annotations/kubeflow-resource-stopped",
            only_present: false,
            asleep: Scalar::Now,
            absent: Scalar::None,
            range: Range::Nothing,
        }],
        states: &[
            State { when: &[Asked(true), Zero(Field("/status/readyReplicas"))], is: Phase::Asleep, text: None },
            State { when: &[Asked(true)], is: Phase::FallingAsleep, text: None },
            State { when: &[Zero(Field("/status/readyReplicas"))], is: Phase::Waking, text: None },
            State { when: &[], is: Phase::Awake, text: None },
        ],
        // Otherwise the culler stops it again at once.
        clears: &[
            "/metadata/annotations/notebooks.kubeflow.org~1last-activity",
            "/metadata/annotations/notebooks.kubeflow.org~1last_activity_check_timestamp",
        ],
        loses: Some("what runs in the notebook and is not saved"),
        stays: "its volumes, and the node until something scales that down",
        ..SleepRow::PLAIN
    },
);
