//! Machines, and clusters of them: virtual machines of `KubeVirt`, node pools of `HyperShift`, shoots of Gardener.

use std::time::Duration;

use super::target;
use crate::kinds::kind::Kind;
use crate::kinds::row::{Deadlines, TargetKind};
use crate::kinds::sleep_row::At::{Condition, Field};
use crate::kinds::sleep_row::Phase::{Asleep, Awake, Failed, FallingAsleep, Waking};
use crate::kinds::sleep_row::Test::{Absent, Asked, Is, IsTrue, Present, Zero};
use crate::kinds::sleep_row::{At, Obstacle, Range, Scalar, Seen, SleepRow, Switch};

const STATUS: At = Field("/status/printableStatus");
const SEEN: At = Field("/status/runStrategy");
const STRATEGY: At = Field("/spec/runStrategy");

/// `VirtualMachine` of `KubeVirt`. It has `runStrategy` or `running`, and never both.
pub static VIRTUAL_MACHINE: TargetKind = TargetKind {
    in_rollouts: Some(Deadlines { sleep: Duration::from_mins(5), wake: Duration::from_mins(10) }),
    ..target(
        Kind::namespaced("kubevirt.io", &["v1"], "VirtualMachine", "virtualmachines").with_short(&["vm", "vms"]),
        5,
        &SleepRow {
            switches: &[
                Switch {
                    only_present: true,
                    absent: Scalar::Text("Always"),
                    ..Switch::word("/spec/runStrategy", "Halted", &["Always", "RerunOnFailure"])
                },
                Switch {
                    only_present: true,
                    asleep: Scalar::Bool(false),
                    absent: Scalar::Bool(true),
                    ..Switch::flag("/spec/running")
                },
            ],
            states: &[
                // The definition's own default is Stopped: what no controller has seen is not asleep.
                Asleep.when(&[Asked(true), Is(STATUS, &["Stopped"]), Is(SEEN, &["Halted"])]),
                Asleep.when(&[
                    Asked(false),
                    Is(STATUS, &["Stopped"]),
                    Is(SEEN, &["Always", "RerunOnFailure", "Once", "Manual"]),
                ]),
                FallingAsleep.when(&[Is(STATUS, &["Stopping", "Terminating"])]).says(STATUS),
                Failed
                    .when(&[Is(
                        STATUS,
                        &[
                            "CrashLoopBackOff",
                            "ErrorUnschedulable",
                            "ErrImagePull",
                            "ImagePullBackOff",
                            "ErrorPvcNotFound",
                            "DataVolumeError",
                        ],
                    )])
                    .says(STATUS),
                Awake.when(&[Is(STATUS, &["Running", "Paused"])]),
                Waking
                    .when(&[Is(STATUS, &["Provisioning", "Starting", "WaitingForVolumeBinding", "Migrating"])])
                    .says(STATUS),
            ],
            obstacles: &[
                Obstacle::refusing(
                    &[Is(STRATEGY, &["Once"])],
                    "its runStrategy is Once: after a wake it would run again from its start",
                ),
                Obstacle::refusing(
                    &[Is(STRATEGY, &["Manual"])],
                    "its runStrategy is Manual: stop and start it with virtctl",
                ),
                Obstacle::refusing(
                    &[Is(STRATEGY, &["WaitAsReceiver"])],
                    "its runStrategy is WaitAsReceiver: it waits for a migration",
                ),
            ],
            makes: Some(("kubevirt.io", "VirtualMachineInstance")),
            may_stop: true,
            may_wait: "the guest is given time to shut down",
            loses: Some(
                "the memory of the guest, ephemeral disks and what was plugged in without a change of the spec",
            ),
            stays: "its disks, and the node until something scales that down",
            ..SleepRow::PLAIN
        },
    )
};

/// `NodePool` of `HyperShift`. It has a count or limits of an autoscaler, and never both.
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
                Asleep.when(&[Asked(true), Zero(Field("/status/replicas"))]),
                FallingAsleep.when(&[Asked(true)]),
                Awake.when(&[Is(Condition("AllNodesHealthy", "status"), &["True"])]),
                // Its autoscaler needs none: then no node is healthy.
                Awake.when(&[
                    Present(Field("/spec/autoScaling")),
                    Zero(Field("/spec/autoScaling/min")),
                    Zero(Field("/status/replicas")),
                ]),
                Waking.when(&[]).says(Condition("AllNodesHealthy", "message")),
            ],
            may_wait: "nodes are drained first",
            stays: "the hosted control plane, volumes and load balancers",
            ..SleepRow::PLAIN
        },
    )
};

const OPERATION: At = Field("/status/lastOperation/state");
const DESCRIPTION: At = Field("/status/lastOperation/description");

/// `Shoot` of Gardener. An aggregated API server serves them: they have no definition.
pub static SHOOT: TargetKind = TargetKind {
    in_namespace: false,
    in_rollouts: Some(Deadlines { sleep: Duration::from_mins(30), wake: Duration::from_mins(45) }),
    ..target(
        Kind::namespaced("core.gardener.cloud", &["v1beta1"], "Shoot", "shoots"),
        5,
        &SleepRow {
            switches: &[Switch::flag("/spec/hibernation/enabled")],
            states: &[
                Failed.when(&[Is(OPERATION, &["Failed"])]).says(DESCRIPTION),
                Asleep.when(&[Asked(true), IsTrue(Field("/status/hibernated")), Is(OPERATION, &["Succeeded"])]),
                FallingAsleep.when(&[Asked(true)]).says(DESCRIPTION),
                Awake.when(&[
                    Is(OPERATION, &["Succeeded"]),
                    Is(Condition("APIServerAvailable", "status"), &["True"]),
                    Is(Condition("EveryNodeReady", "status"), &["True"]),
                    Is(Condition("SystemComponentsHealthy", "status"), &["True"]),
                ]),
                // Without workers.
                Awake.when(&[
                    Is(OPERATION, &["Succeeded"]),
                    Is(Condition("APIServerAvailable", "status"), &["True"]),
                    Absent(Condition("EveryNodeReady", "status")),
                    Is(Condition("SystemComponentsHealthy", "status"), &["True"]),
                ]),
                Waking.when(&[]).says(DESCRIPTION),
            ],
            seen: Seen::Generation("/status/observedGeneration"),
            // A wake adds tasks; any change of a failed shoot may add a retry.
            adds: &["shoot.gardener.cloud/tasks", "maintenance.shoot.gardener.cloud/needs-retry-operation"],
            obstacles: &[
                // A ManagedSeed names a shoot of its own namespace, and that is always this one.
                Obstacle::refusing(
                    &[Is(Field("/metadata/namespace"), &["garden"])],
                    "shoots of namespace garden may run as seeds, whose control planes would stop: set \
                     spec.hibernation.enabled of one that is no seed by hand",
                ),
                Obstacle::refusing(
                    &[Is(At::Constraint("HibernationPossible", "status"), &["False"])],
                    "its constraint HibernationPossible is False: a webhook in the shoot would block the wake",
                ),
                Obstacle::refusing(
                    &[Is(Field("/metadata/annotations/shoot.gardener.cloud~1ignore"), &["true"])],
                    "Gardener ignores it (annotation shoot.gardener.cloud/ignore)",
                ),
                Obstacle::refusing(
                    &[Is(
                        Field("/status/credentials/rotation/etcdEncryptionKey/phase"),
                        &["Preparing", "Prepared", "Completing"],
                    )],
                    "the rotation of its etcd encryption key is under way",
                ),
                Obstacle::refusing(
                    &[Is(
                        Field("/status/credentials/rotation/serviceAccountKey/phase"),
                        &["Preparing", "PreparingWithoutWorkersRollout", "WaitingForWorkersRollout", "Completing"],
                    )],
                    "the rotation of its service account key is under way",
                ),
                Obstacle {
                    when: &[Present(Field("/spec/hibernation/schedules/0"))],
                    refuses: false,
                    says: "it has schedules of its own (spec.hibernation.schedules): they go on",
                },
            ],
            may_wait: "Gardener works on one operation of a shoot after the other",
            stays: "the volumes of its etcd and its nodes, addresses of load balancers, and backups",
            ..SleepRow::PLAIN
        },
    )
};
