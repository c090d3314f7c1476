//! Machines of a spoke and their states.

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;

use crate::text::sanitize_to;

/// One machine of a spoke.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instance {
    /// What the driver calls it by: the cloud's own ID, such as `i-0123456789abcdef0`, or a name that outlives IDs.
    pub id: String,
    /// State at the last list.
    pub state: InstanceState,
    /// The cloud's own word for the state, for messages; empty if it says nothing more.
    pub word: Cow<'static, str>,
    /// Whether the driver has a step to make, whichever way the machine is to go. It asks for that step by name.
    pub due: bool,
    /// Whether the cloud no longer has it: only the durable record says that it existed.
    pub recorded: bool,
    /// What its Node may be called, or end its providerID with. Compared ignoring case.
    pub node_names: Vec<String>,
    /// What `spec.providerID` of its Machine has to be now, from a driver that makes machines anew.
    pub provider_id: Option<String>,
    /// When it was last started, on the cloud's clock.
    pub launched_at: Option<Timestamp>,
    /// Why the cloud stopped it, in the cloud's sanitized words; `None` while it is not stopped, or if the cloud does
    /// not say.
    pub stop_reason: Option<String>,
    /// Instance type, such as `m6i.xlarge`; empty if unknown.
    pub machine_type: String,
    /// Whether it is of the control plane: such machines start first and stop last.
    pub control_plane: bool,
    /// What kind of spot instance it is, if it is one.
    pub spot: Option<Spot>,
    /// Why it cannot be put to sleep: it cannot be stopped, or never be made again as it is. While a cluster has such a
    /// machine, none of its machines is stopped.
    pub obstacle: Option<String>,
}

/// How much of a cloud's own word for a state is kept.
const MAX_WORD: usize = 40;
/// Characters of an instance type.
pub const MAX_TYPE: usize = 34;
/// Characters of [`Instance::price_key`].
pub const MAX_PRICE_KEY: usize = MAX_TYPE + SPOT.len();
/// The type of a machine of which nothing is known.
pub const UNKNOWN_TYPE: &str = "unknown";
const SPOT: &str = "/spot";

impl Instance {
    /// A machine of which nothing more is known.
    pub fn new(id: impl Into<String>, state: InstanceState) -> Self {
        Self { id: id.into(), state, ..Self::default() }
    }

    /// The same in a state for which the cloud has a word of its own.
    ///
    /// The word reaches conditions and Events, so that only what looks like a word is kept of it.
    pub fn in_words(self, word: &str) -> Self {
        let word: String =
            word.chars().filter(|c| c.is_ascii_alphanumeric() || "-_".contains(*c)).take(MAX_WORD).collect();
        Self { word: Cow::Owned(word), ..self }
    }

    /// The same of this type, as the cloud names it.
    pub fn of_type(self, machine_type: &str) -> Self {
        Self { machine_type: sanitize_to(machine_type, MAX_TYPE), ..self }
    }

    /// The key of its price: its type, with `/spot` for a spot instance.
    pub fn price_key(&self) -> String {
        let kind = if self.machine_type.is_empty() { UNKNOWN_TYPE } else { &self.machine_type };
        if self.spot.is_some() { format!("{kind}{SPOT}") } else { kind.to_owned() }
    }

    /// Whether OpenShift's installer gives this name to a machine of a cluster's control plane.
    pub fn is_master(infra_id: &str, name: &str) -> bool {
        name.strip_prefix(infra_id).is_some_and(|rest| rest.starts_with("-master-"))
    }

    /// Whether it can only run or be terminated.
    pub fn is_one_time_spot(&self) -> bool {
        self.spot == Some(Spot::OneTime)
    }

    /// Whether a Node of this name, or with this last segment of its providerID, is this machine's.
    pub fn is_node(&self, name: &str, instance: Option<&str>) -> bool {
        let is_named = |name: &str| self.node_names.iter().any(|of_node| of_node.eq_ignore_ascii_case(name));
        instance == Some(&self.id) || is_named(name) || instance.is_some_and(is_named)
    }
}

impl fmt::Display for Instance {
    /// The ID, and the cloud's own word if it says more.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.word.is_empty() { f.write_str(&self.id) } else { write!(f, "{} ({})", self.id, self.word) }
    }
}

/// What becomes of a spot instance that is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Spot {
    /// Its request ends with it: it cannot be stopped, only terminated, and nothing brings it back.
    OneTime,
    /// Its request stays: it can be stopped and started like any other.
    Persistent,
    /// The cloud did not say. It is never terminated.
    Unknown,
}

/// State of a machine; clouds map their own words onto it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, strum::Display, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum InstanceState {
    /// Being started.
    Pending,
    /// Up, and billed.
    Running,
    /// Being stopped.
    Stopping,
    /// Off, but still billed or holding its place, such as paused or suspended in memory. It can go either way.
    Halted,
    /// Asleep: off or deleted, and it can be started again.
    Stopped,
    ShuttingDown,
    /// Deleted; still listed for a while.
    Terminated,
    /// The cloud says something that we do not know, or calls it broken. It never counts as asleep.
    #[default]
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_known_by_name_or_provider_id() {
        let instance = Instance {
            node_names: vec!["Node-1.internal".into(), "0b2c".into()],
            ..Instance::new("i-1", InstanceState::Running)
        };
        for (name, id, is_its_own) in [
            ("node-1.INTERNAL", None, true),
            ("other", Some("i-1"), true),
            ("other", Some("0B2C"), true),
            ("other", Some("i-12"), false),
            ("node-1", None, false),
        ] {
            assert_eq!(instance.is_node(name, id), is_its_own, "{name} {id:?}");
        }
    }

    #[test]
    fn a_word_is_bounded_and_printed_in_every_state() {
        let long = format!("ER\u{1b}[31mROR {}", "x".repeat(100));
        let broken = Instance::new("i-1", InstanceState::Unknown).in_words(&long);
        assert_eq!(broken.to_string(), format!("i-1 (ER31mROR{})", "x".repeat(32)));
        let imaged = Instance::new("demo-master-0", InstanceState::Stopping).in_words("image-saving");
        assert_eq!(imaged.to_string(), "demo-master-0 (image-saving)");
        assert_eq!(Instance::new("i-1", InstanceState::Unknown).to_string(), "i-1");
    }
}
