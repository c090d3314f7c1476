//! Node pools of `HyperShift`.

use super::target;
use crate::kinds::kind::Kind;
use crate::kinds::row::TargetKind;
use crate::kinds::sleep_row::At::{Condition, Field};
use crate::kinds::sleep_row::Test::{Asked, Is, Zero};
use crate::kinds::sleep_row::{Phase, Range, Scalar, SleepRow, State, Switch};

/// `NodePool`. It has a count or limits of an autoscaler, and never both.
pub static NODE_POOL: TargetKind = TargetKind {
    in_namespace: false,
    ..target(
        Kind::namespaced("hypershift.openshift.io", &["v1beta1"], "NodePool", "nodepools").with_short(&["np", "nps"]),
        5,
        &SleepRow {
            switches: &[
                Switch::count("/spec/replicas"),
                Switch {
                    at: "/spec/autoScaling",
                    only_present: true,
                    asleep: Scalar::None,
                    absent: Scalar::None,
                    range: Range::Numbers,
                },
            ],
            states: &[
                State { when: &[Asked(true), Zero(Field("/status/replicas"))], is: Phase::Asleep, text: None },
                State { when: &[Asked(true)], is: Phase::FallingAsleep, text: None },
                State { when: &[Is(Condition("AllNodesHealthy", "status"), &["True"])], is: Phase::Awake, text: None },
                State { when: &[], is: Phase::Waking, text: Some(Condition("AllNodesHealthy", "message")) },
            ],
            may_wait: "nodes are drained first",
            stays: "the hosted control plane, volumes and load balancers",
            ..SleepRow::PLAIN
        },
    )
};
