//! A Cluster as the rules see it.

use serde::Deserialize;

use super::HIBERNATING;
use crate::admission::{Change, Denial, Exempts, Meta, Object, Target, Unread, metadata};
use crate::kkp::phase::Phase;
use crate::kkp::{api, keys};
use crate::read::{lenient, lenient_types};

/// What the rules read of a Cluster.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Cluster {
    /// Metadata.
    #[serde(deserialize_with = "metadata")]
    pub metadata: Meta,
    /// Desired state.
    #[serde(default, deserialize_with = "lenient")]
    pub spec: Option<Spec>,
    /// Observed state.
    #[serde(default, deserialize_with = "lenient")]
    pub status: Option<Status>,
}

lenient_types! {
    /// `spec`.
    Spec {
        /// Whether KKP leaves the cluster alone.
        pause: Option<bool>,
        /// Why, in words.
        pause_reason: Option<String>,
        /// Kubernetes version.
        version: Option<String>,
        /// The cloud.
        cloud: Option<Cloud>,
    }

    /// `spec.cloud`.
    Cloud {
        /// The datacenter.
        dc: Option<String>,
        /// Provider, such as `aws`.
        provider_name: Option<String>,
    }

    /// `status`.
    Status {
        /// `Creating`, `Updating`, `Running` or `Terminating`.
        phase: Option<String>,
        /// Conditions by type.
        conditions: Option<Conditions>,
        /// Encryption at rest.
        encryption: Option<Encryption>,
    }

    /// `status.encryption`.
    Encryption {
        /// How far KKP has come with it.
        phase: Option<String>,
    }

    /// The conditions that the rules read.
    Conditions {
        /// KKP has applied everything.
        #[serde(rename = "SeedResourcesUpToDate")]
        up_to_date: Option<Condition>,
        /// Ours.
        #[serde(rename = "ClusterDehydrated")]
        dehydrated: Option<Condition>,
    }

    /// A condition.
    Condition {
        /// `True`, `False` or `Unknown`.
        status: String,
        /// One word.
        reason: Option<String>,
    }
}

/// Groups whose members are [`deleters`](crate::admission::Settings::deleters) by default: KKP's own service accounts. A refusal would stop KKP's
/// deletion of a project.
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
    /// `spec.pause`.
    pub fn paused(&self) -> bool {
        self.spec.as_ref().and_then(|spec| spec.pause).unwrap_or_default()
    }

    /// `spec.cloud.providerName`.
    pub fn provider(&self) -> &str {
        let cloud = self.spec.as_ref().and_then(|spec| spec.cloud.as_ref());
        cloud.and_then(|cloud| cloud.provider_name.as_deref()).unwrap_or_default()
    }

    /// What KKP applies only to a cluster that is not paused: version, provider and datacenter.
    pub fn applied_at_the_wake(&self) -> (Option<&str>, Option<&str>, Option<&str>) {
        let spec = self.spec.as_ref();
        let cloud = spec.and_then(|spec| spec.cloud.as_ref());
        let (provider, dc) = (cloud.map(|cloud| &cloud.provider_name), cloud.map(|cloud| &cloud.dc));
        (
            spec.and_then(|spec| spec.version.as_deref()),
            provider.and_then(Option::as_deref),
            dc.and_then(Option::as_deref),
        )
    }

    /// `status.phase`.
    pub fn phase(&self) -> &str {
        self.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
    }

    /// Why it must not sleep while KKP applies encryption at rest.
    pub fn encryption_under_way(&self) -> Option<String> {
        api::Encryption::under_way(self.status.as_ref()?.encryption.as_ref()?.phase.as_deref())
    }

    /// Whether KKP has applied everything.
    pub fn is_up_to_date(&self) -> bool {
        let conditions = self.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.and_then(|all| all.up_to_date.as_ref()).is_some_and(|condition| condition.status == "True")
    }

    /// Whether the control plane is paused by us, or about to be.
    ///
    /// Our condition says so from the pause on. A client that writes a Cluster's status can forge it: that has no
    /// effect without the intent to sleep. The pause with our reason says so, too, for a Cluster whose status was lost,
    /// such as a restored one. In a phase of the wake the control plane runs, or starts, whatever the pause says.
    pub fn is_asleep(&self) -> bool {
        let conditions = self.status.as_ref().and_then(|status| status.conditions.as_ref());
        let condition = conditions.and_then(|all| all.dehydrated.as_ref());
        condition.is_some_and(Condition::says_asleep)
            || self.paused_by_us() && !condition.is_some_and(Condition::says_waking)
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
        let reason = self.spec.as_ref().and_then(|spec| spec.pause_reason.as_deref());
        let has_our_reason = reason.is_some_and(|reason| reason.starts_with(keys::PAUSED_BY_US));
        self.paused() && has_our_reason && self.metadata.annotations.get(keys::PAUSED_BY_SLEEP).is_some()
    }
}

impl Condition {
    fn phase(&self) -> Option<Phase> {
        self.reason.as_deref()?.parse().ok()
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
