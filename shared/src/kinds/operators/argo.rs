//! What deploys and scales others: Argo Rollouts and KEDA.

use super::target;
use crate::kinds::kind::Kind;
use crate::kinds::row::TargetKind;
use crate::kinds::sleep_row::At::{Condition, Field};
use crate::kinds::sleep_row::Phase::{Asleep, Awake, Failed, FallingAsleep, Waking};
use crate::kinds::sleep_row::Test::{Absent, Asked, Is, Present, Zero};
use crate::kinds::sleep_row::{At, Obstacle, Range, Seen, SleepRow, Switch, Test};

/// `Rollout` of Argo Rollouts.
pub static ROLLOUT: TargetKind = target(
    Kind::namespaced("argoproj.io", &["v1alpha1"], "Rollout", "rollouts").with_short(&["ro"]).as_homonym(),
    2,
    &SleepRow {
        switches: &[Switch::count("/spec/replicas")],
        states: &[
            Asleep.when(&[Asked(true), Zero(Field("/status/replicas"))]),
            FallingAsleep.when(&[Asked(true)]),
            Failed.when(&[Is(Field("/status/phase"), &["Degraded"])]).says(Field("/status/message")),
            Awake.when(&[Is(Field("/status/phase"), &["Healthy"])]),
            Waking.when(&[]).says(Field("/status/message")),
        ],
        seen: Seen::Generation("/status/observedGeneration"),
        obstacles: &[Obstacle::refusing(
            &[Is(Field("/status/phase"), &["Paused"])],
            "a canary or a blue-green change waits: promote or abort it first",
        )],
        scales: Some("/spec/workloadRef"),
        ..SleepRow::PLAIN
    },
);

const PAUSED: Test = Is(Condition("Paused", "status"), &["True"]);
/// By which it is paused: at a count, at its current one, or in one direction, so that it goes on in the other.
const AT_COUNT: At = Field("/metadata/annotations/autoscaling.keda.sh~1paused-replicas");
const AS_IT_IS: At = Field("/metadata/annotations/autoscaling.keda.sh~1paused");
const SCALE_IN: At = Field("/metadata/annotations/autoscaling.keda.sh~1paused-scale-in");
const SCALE_OUT: At = Field("/metadata/annotations/autoscaling.keda.sh~1paused-scale-out");

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
            Switch::word("/metadata/annotations/autoscaling.keda.sh~1paused", "true", &["true", "false"]),
        ],
        states: &[
            // Its owner has paused it. Where the target has that count already, KEDA writes no status.
            Awake.when(&[Asked(false), PAUSED, Present(AT_COUNT)]),
            Awake.when(&[Asked(false), PAUSED, Is(AS_IT_IS, &["true"])]),
            Awake.when(&[Asked(false), PAUSED, Present(SCALE_IN)]),
            Awake.when(&[Asked(false), PAUSED, Present(SCALE_OUT)]),
            Asleep.when(&[PAUSED, Zero(Field("/status/pausedReplicaCount"))]),
            Awake.when(&[Is(Condition("Ready", "status"), &["True"]), Is(Condition("Paused", "status"), &["False"])]),
            Awake.when(&[Is(Condition("Ready", "status"), &["True"]), Absent(Condition("Paused", "status"))]),
            Waking.when(&[Asked(false)]).says(Condition("Ready", "message")),
        ],
        obstacles: &[Obstacle::refusing(
            &[Is(AS_IT_IS, &["true"]), Absent(AT_COUNT)],
            "it is paused at its current count, which a wake would not bring back: remove the annotation \
             autoscaling.keda.sh/paused first",
        )],
        scales: Some("/spec/scaleTargetRef"),
        may_wait: "before KEDA 2.18.2 a pause that was removed may stay: set the annotation and remove it again",
        ..SleepRow::PLAIN
    },
);
