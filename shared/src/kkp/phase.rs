//! The phases of a sleep and of a wake, in order.

use std::ops::{Index, IndexMut};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How far a dehydration or a hydration has come. Users see the names in the condition's reason: they are never
/// renamed.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::Display,
    strum::IntoStaticStr,
    strum::EnumString,
    strum::EnumIter,
)]
pub enum Phase {
    /// The sleep was requested; nothing has changed yet.
    #[default]
    Preflight,
    /// Autoscaler off, Nodes cordoned, Pods deleted, volumes detached.
    Draining,
    /// `MachineDeployments` at 0, Machines and Nodes go.
    ScalingDownMachines,
    /// No Machine and no Node is left.
    MachinesScaledDown,
    /// KKP pauses the cluster, in one write with our annotations.
    Pausing,
    /// Every Deployment and `StatefulSet` at 0, apiserver and etcd last.
    ScalingDownControlPlane,
    /// Asleep.
    Dehydrated,
    /// etcd at its count and the pause ended, back to back.
    StartingControlPlane,
    /// The user cluster's own API server does not answer yet.
    WaitingForApi,
    /// machine-controller and its webhooks are not ready yet.
    WaitingForMachineController,
    /// `MachineDeployments` at their counts.
    ScalingUpMachines,
    /// Nodes join.
    WaitingForNodes,
    /// Awake, but KKP refused to end the pause: we restored every count.
    AwakePaused,
    /// Awake: Pods did not end in time, and the drain was undone.
    DrainTimedOut,
}

impl Phase {
    /// Phases in which the control plane is paused, or about to be.
    pub const ASLEEP: [Self; 3] = [Self::Pausing, Self::ScalingDownControlPlane, Self::Dehydrated];

    /// Phases of a wake. The pause may still be ours in each of them: KKP may refuse to end it.
    pub const WAKING: [Self; 6] = [
        Self::StartingControlPlane,
        Self::WaitingForApi,
        Self::WaitingForMachineController,
        Self::ScalingUpMachines,
        Self::WaitingForNodes,
        Self::AwakePaused,
    ];

    /// Whether the cluster is on its way to sleep, or asleep.
    pub fn is_of_sleep(self) -> bool {
        self <= Self::Dehydrated
    }

    /// Whether a wake is under way, or has ended with the cluster paused. The undo of a drain is part of the sleep.
    pub fn is_of_wake(self) -> bool {
        Self::WAKING.contains(&self)
    }

    /// Where a wake begins that is requested in this phase: the completed steps are undone in reverse. `None` if
    /// nothing was done yet.
    pub fn resumes_at(self) -> Option<Self> {
        match self {
            Self::Preflight => None,
            // The control plane runs: only machines and Nodes changed.
            Self::Draining | Self::ScalingDownMachines | Self::MachinesScaledDown => {
                Some(Self::WaitingForMachineController)
            }
            Self::Pausing | Self::ScalingDownControlPlane | Self::Dehydrated => Some(Self::StartingControlPlane),
            waking => Some(waking),
        }
    }
}

/// What has a limit, as flags name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::Display, strum::VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum Limited {
    /// Deleting Pods. Then the drain is undone.
    Drain,
    /// `VolumeAttachments`, within the drain.
    Attachments,
    /// Machines and Nodes go.
    Machines,
    /// The pause.
    Pause,
    /// The control plane scales down.
    ControlPlane,
    /// etcd comes up.
    Etcd,
    /// The API server answers.
    Api,
    /// Nodes join.
    Nodes,
}

/// How long a phase may take before the condition names what blocks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// By [`Limited`].
    limits: [Duration; 8],
    /// How long the rest of the control plane stays at 0 before etcd follows: a reconcile in flight raises counts again
    /// (row 5).
    pub settle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { limits: [10, 5, 30, 2, 5, 5, 10, 20].map(Duration::from_mins), settle: Duration::from_secs(15) }
    }
}

impl Index<Limited> for Limits {
    type Output = Duration;

    fn index(&self, of: Limited) -> &Duration {
        &self.limits[of as usize]
    }
}

impl IndexMut<Limited> for Limits {
    fn index_mut(&mut self, of: Limited) -> &mut Duration {
        &mut self.limits[of as usize]
    }
}

impl Limits {
    /// The limit of a phase; `None` for one that ends by itself or lasts.
    pub fn of(&self, phase: Phase) -> Option<Duration> {
        let limited = match phase {
            Phase::Draining => Limited::Drain,
            Phase::ScalingDownMachines => Limited::Machines,
            Phase::MachinesScaledDown | Phase::Pausing => Limited::Pause,
            Phase::ScalingDownControlPlane => Limited::ControlPlane,
            Phase::StartingControlPlane => Limited::Etcd,
            Phase::WaitingForApi | Phase::WaitingForMachineController => Limited::Api,
            Phase::ScalingUpMachines | Phase::WaitingForNodes => Limited::Nodes,
            Phase::Preflight | Phase::Dehydrated | Phase::AwakePaused | Phase::DrainTimedOut => return None,
        };
        Some(self[limited])
    }

    /// The limit of a phase that has lasted longer than that.
    pub fn exceeded(&self, phase: Phase, lasted: Duration) -> Option<Duration> {
        self.of(phase).filter(|limit| lasted > *limit)
    }
}

#[cfg(test)]
mod tests {
    use strum::IntoEnumIterator as _;

    use super::*;

    #[test]
    fn the_names_that_users_and_records_hold_are_the_same() {
        for phase in Phase::iter() {
            assert_eq!(serde_json::to_value(phase).unwrap(), phase.to_string());
            assert_eq!(phase.to_string().parse(), Ok(phase));
        }
    }

    #[test]
    fn a_wake_begins_in_a_phase_of_the_wake_from_wherever_it_is_requested() {
        for phase in Phase::iter() {
            match phase.resumes_at() {
                None => assert_eq!(phase, Phase::Preflight),
                Some(resumed) => {
                    assert!(!resumed.is_of_sleep() && (phase.is_of_sleep() || resumed == phase), "{phase}");
                }
            }
        }
    }
}
