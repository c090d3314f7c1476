//! What computes: clusters of `KubeRay`, notebooks of Kubeflow.

use super::target;
use crate::kinds::kind::Kind;
use crate::kinds::row::TargetKind;
use crate::kinds::sleep_row::At::{Condition, Field};
use crate::kinds::sleep_row::Phase::{Asleep, Awake, Failed, FallingAsleep, Waking};
use crate::kinds::sleep_row::Test::{Asked, Is, Present, Zero};
use crate::kinds::sleep_row::{Obstacle, Range, Scalar, Seen, SleepRow, Switch};

/// `Notebook` of Kubeflow. That the annotation is there stops it, whatever its value is.
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
            Asleep.when(&[Asked(true), Zero(Field("/status/readyReplicas"))]),
            FallingAsleep.when(&[Asked(true)]),
            Waking.when(&[Zero(Field("/status/readyReplicas"))]),
            Awake.when(&[]),
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

const RAY: SleepRow = SleepRow {
    switches: &[Switch::flag("/spec/suspend")],
    seen: Seen::Generation("/status/observedGeneration"),
    loses: Some("the state of Ray, unless its GCS is fault-tolerant with an external Redis"),
    stays: "the nodes until something scales them down",
    ..SleepRow::PLAIN
};

/// `RayCluster` of `KubeRay`.
pub static RAY_CLUSTER: TargetKind = target(
    Kind::namespaced("ray.io", &["v1"], "RayCluster", "rayclusters"),
    2,
    &SleepRow {
        states: &[
            Asleep.when(&[Is(Condition("RayClusterSuspended", "status"), &["True"])]),
            FallingAsleep
                .when(&[Is(Condition("RayClusterSuspending", "status"), &["True"])])
                .says(Condition("RayClusterSuspending", "message")),
            Asleep.when(&[Is(Field("/status/state"), &["suspended"])]),
            Failed.when(&[Is(Field("/status/state"), &["failed"])]).says(Field("/status/reason")),
            Awake.when(&[Is(Field("/status/state"), &["ready"])]),
            Waking.when(&[Asked(false)]),
        ],
        obstacles: &[Obstacle::refusing(
            &[Present(Field("/metadata/labels/kueue.x-k8s.io~1queue-name"))],
            "Kueue starts it again: set stopPolicy: HoldAndDrain on its LocalQueue instead",
        )],
        ..RAY
    },
);

/// `RayService` of `KubeRay`.
pub static RAY_SERVICE: TargetKind = target(
    Kind::namespaced("ray.io", &["v1"], "RayService", "rayservices"),
    2,
    &SleepRow {
        states: &[
            Asleep.when(&[Is(Condition("Suspended", "status"), &["True"])]),
            FallingAsleep
                .when(&[Is(Condition("Suspending", "status"), &["True"])])
                .says(Condition("Suspending", "message")),
            Awake.when(&[Is(Condition("Ready", "status"), &["True"])]),
            Waking.when(&[Asked(false)]).says(Condition("Ready", "message")),
        ],
        since: "1.7",
        ..RAY
    },
);
