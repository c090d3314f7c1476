//! Shoots of Gardener. An aggregated API server serves them: they have no definition.

use std::time::Duration;

use super::target;
use crate::kinds::kind::Kind;
use crate::kinds::row::{Deadlines, TargetKind};
use crate::kinds::sleep_row::At::{Condition, Field};
use crate::kinds::sleep_row::Test::{Absent, Asked, Is, IsTrue, Present};
use crate::kinds::sleep_row::{At, Obstacle, Phase, Seen, SleepRow, State, Switch};

const OPERATION: At = Field("/status/lastOperation/state");
const DESCRIPTION: Option<At> = Some(Field("/status/lastOperation/description"));

/// `Shoot`.
pub static SHOOT: TargetKind = TargetKind {
    in_namespace: false,
    in_rollouts: Some(Deadlines { sleep: Duration::from_mins(30), wake: Duration::from_mins(45) }),
    ..target(
        Kind::namespaced("core.gardener.cloud", &["v1beta1"], "Shoot", "shoots"),
        5,
        &SleepRow {
            switches: &[Switch::flag("/spec/hibernation/enabled")],
            states: &[
                State { when: &[Is(OPERATION, &["Failed"])], is: Phase::Failed, text: DESCRIPTION },
                State {
                    when: &[Asked(true), IsTrue(Field("/status/hibernated")), Is(OPERATION, &["Succeeded"])],
                    is: Phase::Asleep,
                    text: None,
                },
                State { when: &[Asked(true)], is: Phase::FallingAsleep, text: DESCRIPTION },
                State {
                    when: &[
                        Is(OPERATION, &["Succeeded"]),
                        Is(Condition("APIServerAvailable", "status"), &["True"]),
                        Is(Condition("EveryNodeReady", "status"), &["True"]),
                        Is(Condition("SystemComponentsHealthy", "status"), &["True"]),
                    ],
                    is: Phase::Awake,
                    text: None,
                },
                // Without workers.
                State {
                    when: &[
                        Is(OPERATION, &["Succeeded"]),
                        Is(Condition("APIServerAvailable", "status"), &["True"]),
                        Absent(Condition("EveryNodeReady", "status")),
                        Is(Condition("SystemComponentsHealthy", "status"), &["True"]),
                    ],
                    is: Phase::Awake,
                    text: None,
                },
                State { when: &[], is: Phase::Waking, text: DESCRIPTION },
            ],
            seen: Seen::Generation("/status/observedGeneration"),
            obstacles: &[
                Obstacle {
                    when: &[Is(At::Constraint("HibernationPossible", "status"), &["False"])],
                    refuses: true,
                    says: "its constraint HibernationPossible is False: a webhook in the shoot would block the wake",
                },
                Obstacle {
                    when: &[Is(Field("/metadata/annotations/shoot.gardener.cloud~1ignore"), &["true"])],
                    refuses: true,
                    says: "Gardener ignores it (annotation shoot.gardener.cloud/ignore)",
                },
                Obstacle {
                    when: &[Is(
                        Field("/status/credentials/rotation/etcdEncryptionKey/phase"),
                        &["Preparing", "Prepared", "Completing"],
                    )],
                    refuses: true,
                    says: "the rotation of its etcd encryption key is under way",
                },
                Obstacle {
                    when: &[Is(
                        Field("/status/credentials/rotation/serviceAccountKey/phase"),
                        &["Preparing", "PreparingWithoutWorkersRollout", "WaitingForWorkersRollout", "Completing"],
                    )],
                    refuses: true,
                    says: "the rotation of its service account key is under way",
                },
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
