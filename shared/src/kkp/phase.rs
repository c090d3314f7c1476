//! The phases of a sleep and of a wake, in order.

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
    /// Whether the cluster is on its way to sleep, or asleep.
    pub fn is_of_sleep(self) -> bool {
        self <= Self::Dehydrated
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

/// How long a phase may take before the condition names what blocks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Deleting Pods. Then the drain is undone.
    pub drain: Duration,
    /// `VolumeAttachments`, within the drain.
    pub attachments: Duration,
    /// Machines and Nodes go.
    pub machines: Duration,
    /// The pause.
    pub pause: Duration,
    /// The control plane scales down.
    pub control_plane: Duration,
    /// etcd comes up.
    pub etcd: Duration,
    /// The API server answers.
    pub api: Duration,
    /// Nodes join.
    pub nodes: Duration,
    /// How long the rest of the control plane stays at 0 before etcd follows: a reconcile in flight raises counts again
    /// (row 5).
    pub settle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let minutes = Duration::from_mins;
        Self {
            drain: minutes(10),
            attachments: minutes(5),
            machines: minutes(30),
            pause: minutes(2),
            control_plane: minutes(5),
            etcd: minutes(5),
            api: minutes(10),
            nodes: minutes(20),
            settle: Duration::from_secs(15),
        }
    }
}

/// The name of a limit, as flags have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::Display, strum::VariantNames)]
#[strum(serialize_all = "kebab-case")]
#[expect(missing_docs, reason = "named as the fields of Limits")]
pub enum Limited {
    Drain,
    Attachments,
    Machines,
    Pause,
    ControlPlane,
    Etcd,
    Api,
    Nodes,
}

impl Limits {
    /// Changes one limit.
    pub fn set(&mut self, which: Limited, limit: Duration) {
        *match which {
            Limited::Drain => &mut self.drain,
            Limited::Attachments => &mut self.attachments,
            Limited::Machines => &mut self.machines,
            Limited::Pause => &mut self.pause,
            Limited::ControlPlane => &mut self.control_plane,
            Limited::Etcd => &mut self.etcd,
            Limited::Api => &mut self.api,
            Limited::Nodes => &mut self.nodes,
        } = limit;
    }

    /// The limit of a phase; `None` for one that ends by itself or lasts.
    pub fn of(&self, phase: Phase) -> Option<Duration> {
        Some(match phase {
            Phase::Draining => self.drain,
            Phase::ScalingDownMachines => self.machines,
            Phase::MachinesScaledDown | Phase::Pausing => self.pause,
            Phase::ScalingDownControlPlane => self.control_plane,
            Phase::StartingControlPlane => self.etcd,
            Phase::WaitingForApi | Phase::WaitingForMachineController => self.api,
            Phase::ScalingUpMachines | Phase::WaitingForNodes => self.nodes,
            Phase::Preflight | Phase::Dehydrated | Phase::AwakePaused | Phase::DrainTimedOut => return None,
        })
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
