//! Virtual machines of `KubeVirt`.

use std::time::Duration;

use super::target;
use crate::kinds::kind::Kind;
use crate::kinds::row::{Deadlines, TargetKind};
use crate::kinds::sleep_row::At::Field;
use crate::kinds::sleep_row::Test::{Asked, Is};
use crate::kinds::sleep_row::{At, Obstacle, Phase, Range, Scalar, SleepRow, State, Switch};

const STATUS: At = Field("/status/printableStatus");
const SEEN: At = Field("/status/runStrategy");
const STRATEGY: At = Field("/spec/runStrategy");

/// `VirtualMachine`. It has `runStrategy` or `running`, and never both.
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
                    at: "/spec/running",
                    only_present: true,
                    asleep: Scalar::Bool(false),
                    absent: Scalar::Bool(true),
                    range: Range::Bool,
                },
            ],
            states: &[
                // The definition's own default is Stopped: what no controller has seen is not asleep.
                State {
                    when: &[Asked(true), Is(STATUS, &["Stopped"]), Is(SEEN, &["Halted"])],
                    is: Phase::Asleep,
                    text: None,
                },
                State {
                    when: &[
                        Asked(false),
                        Is(STATUS, &["Stopped"]),
                        Is(SEEN, &["Always", "RerunOnFailure", "Once", "Manual"]),
                    ],
                    is: Phase::Asleep,
                    text: None,
                },
                State {
                    when: &[Is(STATUS, &["Stopping", "Terminating"])],
                    is: Phase::FallingAsleep,
                    text: Some(STATUS),
                },
                State {
                    when: &[Is(
                        STATUS,
                        &[
                            "CrashLoopBackOff",
                            "ErrorUnschedulable",
                            "ErrImagePull",
                            "ImagePullBackOff",
                            "ErrorPvcNotFound",
                            "DataVolumeError",
                        ],
                    )],
                    is: Phase::Failed,
                    text: Some(STATUS),
                },
                State { when: &[Is(STATUS, &["Running", "Paused"])], is: Phase::Awake, text: None },
                State {
                    when: &[Is(STATUS, &["Provisioning", "Starting", "WaitingForVolumeBinding", "Migrating"])],
                    is: Phase::Waking,
                    text: Some(STATUS),
                },
            ],
            obstacles: &[
                Obstacle {
                    when: &[Is(STRATEGY, &["Once"])],
                    refuses: true,
                    says: "its runStrategy is Once: after a wake it would run again from its start",
                },
                Obstacle {
                    when: &[Is(STRATEGY, &["Manual"])],
                    refuses: true,
                    says: "its runStrategy is Manual: stop and start it with virtctl",
                },
                Obstacle {
                    when: &[Is(STRATEGY, &["WaitAsReceiver"])],
                    refuses: true,
                    says: "its runStrategy is WaitAsReceiver: it waits for a migration",
                },
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
