//! What deploys and scales others: Argo Rollouts and KEDA.

use super::target;
use crate::kinds::kind::Kind;
use crate::kinds::row::TargetKind;
use crate::kinds::sleep_row::At::{Condition, Field};
use crate::kinds::sleep_row::Test::{Absent, Asked, Is, Zero};
use crate::kinds::sleep_row::{Obstacle, Phase, Range, Scalar, Seen, SleepRow, State, Switch};

/// `Rollout` of Argo Rollouts.
pub static ROLLOUT: TargetKind = target(
    Kind::namespaced("argoproj.io", &["v1alpha1"], "Rollout", "rollouts").with_short(&["ro"]).as_homonym(),
    2,
    &SleepRow {
        switches: &[Switch::count("/spec/replicas")],
        states: &[
            State { when: &[Asked(true), Zero(Field("/status/replicas"))], is: Phase::Asleep, text: None },
            State { when: &[Asked(true)], is: Phase::FallingAsleep, text: None },
            State {
                when: &[Is(Field("/status/phase"), &["Degraded"])],
                is: Phase::Failed,
                text: Some(Field("/status/message")),
            },
            State { when: &[Is(Field("/status/phase"), &["Healthy"])], is: Phase::Awake, text: None },
            State { when: &[], is: Phase::Waking, text: Some(Field("/status/message")) },
        ],
        seen: Seen::Generation("/status/observedGeneration"),
        obstacles: &[Obstacle {
            when: &[Is(Field("/status/phase"), &["Paused"])],
            refuses: true,
            says: "a canary or a blue-green change waits: promote or abort it first",
        }],
        scales: Some("/spec/workloadRef"),
        ..SleepRow::PLAIN
    },
);

/// `ScaledObject` of KEDA, which scales its target to 0 itself.
pub static SCALED_OBJECT: TargetKind = target(
    Kind::namespaced("keda.sh", &["v1alpha1"], "ScaledObject", "scaledobjects").with_short(&["so"]),
    1,
    &SleepRow {
        switches: &[
            Switch {
                range: Range::NumberText,
                ..Switch::word("/metadata/annotations/autoscaling.keda.sh~1paused-replicas", "0", &[])
            },
            Switch {
                absent: Scalar::None,
                ..Switch::word("/metadata/annotations/autoscaling.keda.sh~1paused", "true", &["true", "false"])
            },
        ],
        states: &[
            State {
                when: &[Is(Condition("Paused", "status"), &["True"]), Zero(Field("/status/pausedReplicaCount"))],
                is: Phase::Asleep,
                text: None,
            },
            State {
                when: &[Is(Condition("Ready", "status"), &["True"]), Is(Condition("Paused", "status"), &["False"])],
                is: Phase::Awake,
                text: None,
            },
            State {
                when: &[Is(Condition("Ready", "status"), &["True"]), Absent(Condition("Paused", "status"))],
                is: Phase::Awake,
                text: None,
            },
            State { when: &[Asked(false)], is: Phase::Waking, text: Some(Condition("Ready", "message")) },
        ],
        obstacles: &[Obstacle {
            when: &[
                Is(Field("/metadata/annotations/autoscaling.keda.sh~1paused"), &["true"]),
                Absent(Field("/metadata/annotations/autoscaling.keda.sh~1paused-replicas")),
            ],
            refuses: true,
            says: "it is paused at its current count, which a wake would not bring back: remove the annotation \
                   autoscaling.keda.sh/paused first",
        }],
        scales: Some("/spec/scaleTargetRef"),
        may_wait: "before KEDA 2.18.2 a pause that was removed may stay: set the annotation and remove it again",
        ..SleepRow::PLAIN
    },
);
