//! How a platform puts machines to sleep, and what else differs between platforms.

use std::time::Duration;

/// What becomes of machines while their cluster sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lifecycle {
    /// They are stopped and started. A machine that the cloud does not list does not exist.
    #[default]
    StopStart,
    /// They are deleted and made again, with new IDs. A durable record says what existed: what it names and the cloud
    /// does not list is asleep.
    Recreate,
    /// The cloud keeps them, with their IDs, off its hypervisors. What an earlier sleep has recorded may still be asleep.
    Shelve,
}

/// What is done to machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::Display, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Verb {
    Start,
    Stop,
    /// Delete for good.
    Terminate,
}

/// How urgent a call is when a cloud's limit makes calls wait. The most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Priority {
    /// A cluster is waking.
    Waking,
    /// A cluster is on its way to sleep.
    Sleeping,
    /// A check of a cluster in its desired state.
    Idle,
}

impl Verb {
    /// How urgent its calls are.
    pub fn priority(self) -> Priority {
        match self {
            Self::Start => Priority::Waking,
            Self::Stop | Self::Terminate => Priority::Sleeping,
        }
    }
}

/// How long transitions of a platform may take before an Event reports them. The controller's own limits apply if they
/// are longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Falling asleep, such as for snapshots.
    pub sleep: Duration,
    pub wake: Duration,
}

/// The form of a platform's `spec.providerID`. The instance's ID is its last segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProviderIds {
    /// What they begin with, such as `aws:///`.
    pub prefix: &'static str,
    /// What the ID begins with, such as `i-`.
    pub id_prefix: &'static str,
}

impl ProviderIds {
    /// ID of the instance that a providerID names, if it is of this form.
    pub fn instance<'a>(&self, provider_id: &'a str) -> Option<&'a str> {
        if self.prefix.is_empty() {
            return None;
        }
        let id = provider_id.strip_prefix(self.prefix)?.rsplit('/').next()?;
        (!id.is_empty() && id.starts_with(self.id_prefix)).then_some(id)
    }
}

/// What a driver says of itself and of one cluster, without a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// How machines are found, for messages: `tag kubernetes.io/cluster/demo-x7k2p=owned in us-east-1`.
    pub selector: String,
    /// How machines sleep.
    pub lifecycle: Lifecycle,
    /// How long that may take.
    pub limits: Limits,
    /// How Nodes and Machines name instances.
    pub provider_ids: ProviderIds,
    /// Whether machines are moved by a call each: a missing right or a server error may concern one of them alone.
    pub one_by_one: bool,
    /// Whether the cloud reports when a machine was last started.
    pub reports_start_time: bool,
    /// Whether a sleep terminates spot instances, whose Machines have to be replaced in the wake.
    pub terminates_spot: bool,
}

impl Profile {
    /// Why a cluster without instances is an error.
    pub fn nothing_matches(&self) -> String {
        format!("nothing matches {}: check infraID, region and credentials", self.selector)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_id_names_an_instance_of_its_own_platform_only() {
        let aws = ProviderIds { prefix: "aws:///", id_prefix: "i-" };
        for (id, instance) in [
            ("aws:///us-east-1a/i-0123456789abcdef0", Some("i-0123456789abcdef0")),
            ("aws:///i-1", Some("i-1")),
            ("aws:///us-east-1a/eni-1", None),
            ("aws:///us-east-1a/", None),
            ("gce://p/z/i-gone", None),
            ("", None),
        ] {
            assert_eq!(aws.instance(id), instance, "{id}");
        }
        let openstack = ProviderIds { prefix: "openstack://", id_prefix: "" };
        assert_eq!(openstack.instance("openstack:///0b2c"), Some("0b2c"));
        assert_eq!(openstack.instance("openstack://"), None);
        assert_eq!(ProviderIds::default().instance("anything"), None, "no form, no instance");
    }
}
