//! Clusters of `KubeRay`.

use super::target;
use crate::kinds::kind::Kind;
use crate::kinds::row::TargetKind;
use crate::kinds::sleep_row::At::{Condition, Field};
use crate::kinds::sleep_row::Test::{Asked, Is, Present};
use crate::kinds::sleep_row::{Obstacle, Phase, Seen, SleepRow, State, Switch};

const STATE: &str = "the state of Ray, unless its GCS is fault-tolerant with an external Redis";
const NODES: &str = "the nodes until something scales them down";
const QUEUED: &str = "Kueue starts it again: set stopPolicy: HoldAndDrain on its LocalQueue instead";
const QUEUE: &str = "/metadata/labels/kueue.x-k8s.io~1queue-name";

/// `RayCluster`.
pub static RAY_CLUSTER: TargetKind = target(
    Kind::namespaced("ray.io", &["v1"], "RayCluster", "rayclusters"),
    2,
    &SleepRow {
        switches: &[Switch::flag("/spec/suspend")],
        states: &[
            State { when: &[Is(Condition("RayClusterSuspended", "status"), &["True"])], is: Phase::Asleep, text: None },
            State {
                when: &[Is(Condition("RayClusterSuspending", "status"), &["True"])],
                is: Phase::FallingAsleep,
                text: Some(Condition("RayClusterSuspending", "message")),
            },
            State { when: &[Is(Field("/status/state"), &["suspended"])], is: Phase::Asleep, text: None },
            State {
                when: &[Is(Field("/status/state"), &["failed"])],
                is: Phase::Failed,
                text: Some(Field("/status/reason")),
            },
            State { when: &[Is(Field("/status/state"), &["ready"])], is: Phase::Awake, text: None },
            State { when: &[Asked(false)], is: Phase::Waking, text: None },
        ],
        seen: Seen::Generation("/status/observedGeneration"),
        obstacles: &[Obstacle { when: &[Present(Field(QUEUE))], refuses: true, says: QUEUED }],
        loses: Some(STATE),
        stays: NODES,
        ..SleepRow::PLAIN
    },
);

/// `RayService`.
pub static RAY_SERVICE: TargetKind = target(
    Kind::namespaced("ray.io", &["v1"], "RayService", "rayservices"),
    2,
    &SleepRow {
        switches: &[Switch::flag("/spec/suspend")],
        states: &[
            State { when: &[Is(Condition("Suspended", "status"), &["True"])], is: Phase::Asleep, text: None },
            State {
                when: &[Is(Condition("Suspending", "status"), &["True"])],
                is: Phase::FallingAsleep,
                text: Some(Condition("Suspending", "message")),
            },
            State { when: &[Is(Condition("Ready", "status"), &["True"])], is: Phase::Awake, text: None },
            State { when: &[Asked(false)], is: Phase::Waking, text: Some(Condition("Ready", "message")) },
        ],
        seen: Seen::Generation("/status/observedGeneration"),
        loses: Some(STATE),
        stays: NODES,
        since: "1.7",
        ..SleepRow::PLAIN
    },
);
