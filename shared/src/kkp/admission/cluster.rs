//! A Cluster as the rules see it.
//!
//! [`api::Cluster`](crate::kkp::api::Cluster) cannot be that type. It has what KKP's definition requires, such as the
//! version of KKP in each condition, and fails as a whole without it; rows K4 and K7 judge such objects. It keeps all
//! metadata, all conditions and usage, which each write of KKP's would pay for. What can be lenient without a change of
//! the definition is shared.

use serde::Deserialize;

use super::HIBERNATING;
use crate::admission::{Change, Denial, Exempts, Meta, Object, Target, Unread, metadata};
use crate::kkp::api::Encryption;
use crate::kkp::keys;
use crate::kkp::phase::Phase;
use crate::read::{lenient, lenient_types};

/// What the rules read of a Cluster.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Cluster {
    /// Metadata.
    #[serde(deserialize_with = "metadata")]
    pub metadata: Meta,
    /// Desired state.
    #[serde(default, deserialize_with = "lenient")]
    pub spec: Spec,
    /// Observed state.
    #[serde(default, deserialize_with = "lenient")]
    pub status: Status,
}

lenient_types! {
    /// `spec`. A text that is absent is empty.
    Spec {
        /// Whether KKP leaves the cluster alone.
        pause: Option<bool>,
        /// Why, in words.
        pause_reason: String,
        /// Kubernetes version.
        version: String,
        /// The cloud.
        cloud: Cloud,
    }

    /// `spec.cloud`.
    Cloud {
        /// The datacenter.
        dc: String,
        /// Provider, such as `aws`.
        provider_name: String,
    }

    /// `status`.
    Status {
        /// `Creating`, `Updating`, `Running` or `Terminating`.
        phase: String,
        /// Conditions by type.
        conditions: Conditions,
        /// Encryption at rest.
        encryption: Encryption,
    }

    /// The conditions that the rules read.
    Conditions {
        /// KKP has applied everything.
        #[serde(rename = "SeedResourcesUpToDate")]
        up_to_date: Condition,
        /// Ours.
        #[serde(rename = "ClusterDehydrated")]
        dehydrated: Condition,
    }

    /// A condition.
    Condition {
        /// `True`, `False` or `Unknown`.
        status: String,
        /// One word.
        reason: String,
    }
}

/// Groups whose members are [`deleters`](crate::admission::Settings::deleters) by default: KKP's own service accounts. A
/// refusal would stop KKP's deletion of a project.
pub const DELETERS: &[&str] = &["system:serviceaccounts:kubermatic"];

impl Object for Cluster {
    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn must_be_whole(change: &Change<'_, Self>) -> bool {
        change.goes_to_sleep()
    }

    /// K10
    fn wakes(change: &Change<'_, Self>) -> bool {
        change.wakes()
    }

    fn exempts(_: &Denial) -> Exempts {
        Exempts::Users
    }
}

impl Target for Cluster {
    const INTENT: &'static str = keys::POWER_STATE;

    const INTENT_PATH: &'static [&'static str] = &["metadata", "annotations", keys::POWER_STATE];

    fn wants_sleep(&self) -> bool {
        self.metadata.annotations.get(keys::POWER_STATE) == Some(HIBERNATING)
    }

    fn wants_awake(&self) -> bool {
        matches!(self.metadata.annotations.get(keys::POWER_STATE), None | Some("Running"))
    }
}

impl Cluster {
    /// Whether KKP leaves the cluster alone.
    pub fn paused(&self) -> bool {
        self.spec.pause == Some(true)
    }

    /// What KKP applies only to a cluster that is not paused: version, provider and datacenter.
    pub fn applied_at_the_wake(&self) -> [&str; 3] {
        let Spec { version, cloud: Cloud { dc, provider_name }, .. } = &self.spec;
        [version, provider_name, dc]
    }

    /// Why it must not sleep while KKP applies encryption at rest.
    pub fn encryption_under_way(&self) -> Option<String> {
        Encryption::under_way(self.status.encryption.phase.as_deref())
    }

    /// Whether the control plane is paused by us, or about to be.
    ///
    /// Our condition says so from the pause on. A client that writes a Cluster's status can forge it: that has no
    /// effect without the intent to sleep. The pause with our reason says so, too, for a Cluster whose status was lost,
    /// such as a restored one. In a phase of the wake the control plane runs, or starts, whatever the pause says.
    pub fn is_asleep(&self) -> bool {
        let condition = &self.status.conditions.dehydrated;
        condition.says_asleep() || self.paused_by_us() && !condition.says_waking()
    }

    /// Whether such a cluster may be paused by us for all that can be read of it.
    pub fn may_be_asleep(&self, unread: &[Unread]) -> bool {
        let decides: [&[&str]; 4] = [
            &["spec", "pause"],
            &["spec", "pauseReason"],
            &["metadata", "annotations", keys::PAUSED_BY_SLEEP],
            &["status", "conditions", keys::DEHYDRATED],
        ];
        self.is_asleep() || unread.iter().any(|field| decides.iter().any(|path| field.concerns(path)))
    }

    /// Whether the pause is of a sleep of ours, in a sleep or in a wake. Of which one is the controller's to compare:
    /// the Cluster may be a restored one, which is dehydrated, too.
    pub fn paused_by_us(&self) -> bool {
        let has_our_reason = self.spec.pause_reason.starts_with(keys::PAUSED_BY_US);
        self.paused() && has_our_reason && self.metadata.annotations.get(keys::PAUSED_BY_SLEEP).is_some()
    }
}

impl Condition {
    fn phase(&self) -> Option<Phase> {
        self.reason.parse().ok()
    }

    /// Whether [`keys::DEHYDRATED`] says so: by its phase, or by its status, which stays `True` while the record cannot
    /// be read.
    fn says_asleep(&self) -> bool {
        self.status == "True" || self.phase().is_some_and(|phase| Phase::ASLEEP.contains(&phase))
    }

    /// Whether [`keys::DEHYDRATED`] says that a wake is under way, or over.
    fn says_waking(&self) -> bool {
        self.phase().is_some_and(Phase::is_of_wake)
    }
}
