//! Fields of a spoke's objects that need their own reader: labels and annotations with known keys, and lists that are
//! reduced to one value.

use std::fmt;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use crate::kkp::keys;
use crate::read::lenient;
use crate::visit::{self, fold, text};

/// Label of a Node with the UID of its Machine, by machine-controller.
pub const OWNED_BY: &str = "machine-controller/owned-by";
/// Annotation of a static Pod.
pub const MIRROR: &str = "kubernetes.io/config.mirror";
/// Label of a bootstrap token with the namespace and the name of its `MachineDeployment`.
pub const TOKEN_OF: &str = "machinedeployment.k8s.io/name";
/// Annotation of a Secret of OpenShift: when its certificate expires, so that no certificate has to be read.
pub const NOT_AFTER: &str = "auth.openshift.io/certificate-not-after";
/// Label of Machines on spot instances; its value is empty.
pub const INTERRUPTIBLE: &str = "machine.openshift.io/interruptible-instance";

/// Label of a Machine with what it is for, such as `master`.
pub const MACHINE_ROLE: &str = "machine.openshift.io/cluster-api-machine-role";

/// Labels of a Node of the control plane. No kubelet may change them later, by the API server's `NodeRestriction`; at the
/// Node's creation it sets them itself.
pub const CONTROL_PLANE: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// Other labels and annotations are skipped.
const KEYS: &[&str] = &[
    OWNED_BY,
    MIRROR,
    TOKEN_OF,
    NOT_AFTER,
    INTERRUPTIBLE,
    MACHINE_ROLE,
    CONTROL_PLANE[0],
    CONTROL_PLANE[1],
    keys::AUTOSCALER[0],
    keys::AUTOSCALER[1],
    keys::DEHYDRATED_AUTOSCALER[0],
    keys::DEHYDRATED_AUTOSCALER[1],
    keys::SKIP_EVICTION,
    keys::CORDONED,
    keys::DEHYDRATED_REPLICAS,
];

/// The labels or annotations of one object whose keys are in [`KEYS`].
#[derive(Clone, Debug, Default)]
pub struct KnownKeys(Vec<(&'static str, String)>);

impl KnownKeys {
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| *found == key).map(|(_, value)| value.as_str())
    }

    pub fn contains_key(&self, key: &str) -> bool {
        self.get(key).is_some()
    }
}

impl<'a> FromIterator<(&'a str, String)> for KnownKeys {
    fn from_iter<I: IntoIterator<Item = (&'a str, String)>>(all: I) -> Self {
        Self(all.into_iter().filter_map(|(key, value)| Some((known_key(key)?, value))).collect())
    }
}

fn known_key(key: &str) -> Option<&'static str> {
    KEYS.iter().find(|known| **known == key).copied()
}

impl<'de> Deserialize<'de> for KnownKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Self::default())
    }
}

impl<'de> Visitor<'de> for KnownKeys {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_map<M: MapAccess<'de>>(mut self, mut map: M) -> Result<Self, M::Error> {
        while let Some(KnownKey(key)) = map.next_key()? {
            match key {
                Some(key) if self.contains_key(key) => return Err(M::Error::duplicate_field(key)),
                Some(key) => self.0.push((key, map.next_value::<Value>()?.0)),
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(self)
    }
}

/// Empty if it is too long.
#[derive(Deserialize)]
struct Value(#[serde(deserialize_with = "lenient")] String);

/// `None` for a key that is not in [`KEYS`].
struct KnownKey(Option<&'static str>);

impl<'de> Deserialize<'de> for KnownKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_identifier(text("a key", |key| Ok(Self(known_key(key)))))
    }
}

/// Longest name that Kubernetes allows.
const MAX_NAME: usize = 253;

/// A name, a UID or a version.
pub(super) fn short<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    visit::short(deserializer, MAX_NAME)
}

/// When the status of an object was last written.
pub(super) fn status_written<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Write {
        subresource: Option<String>,
        time: Option<Timestamp>,
    }

    fold(deserializer, |newest: &mut Option<Timestamp>, write: Write| {
        *newest = (*newest).max(write.time.filter(|_| write.subresource.as_deref() == Some("status")));
    })
}

/// A condition of any object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type", deserialize_with = "lenient")]
    pub type_: String,
    #[serde(deserialize_with = "lenient")]
    pub status: String,
    pub last_heartbeat_time: Option<Timestamp>,
    pub last_update_time: Option<Timestamp>,
}

pub(super) fn ready<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Condition>, D::Error> {
    fold(deserializer, |ready: &mut Option<Condition>, one: Condition| {
        if one.type_ == "Ready" && ready.is_none() {
            *ready = Some(one);
        }
    })
}

/// Whether a Job is done, however it ended.
pub(super) fn is_done<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    fold(deserializer, |done: &mut bool, one: Condition| {
        *done |= matches!(one.type_.as_str(), "Complete" | "Failed") && one.status == "True";
    })
}

/// The taint of a cordoned Node.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Whether a Pod tolerates the taint of a cordoned Node.
pub(super) fn tolerates_cordon<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Toleration {
        key: Option<String>,
        operator: Option<String>,
        effect: Option<String>,
    }

    fold(deserializer, |tolerates: &mut bool, one: Toleration| {
        let covers = match one.key.as_deref() {
            None | Some("") => one.operator.as_deref() == Some("Exists"),
            Some(key) => key == UNSCHEDULABLE,
        };
        *tolerates |= covers && one.effect.as_deref().is_none_or(|effect| matches!(effect, "" | "NoSchedule"));
    })
}

/// Whether a Pod mounts a claim, or one is made for it.
pub(super) fn has_claim<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Volume {
        persistent_volume_claim: Option<IgnoredAny>,
        ephemeral: Option<IgnoredAny>,
    }

    fold(deserializer, |has: &mut bool, one: Volume| {
        *has |= one.persistent_volume_claim.is_some() || one.ephemeral.is_some();
    })
}

/// Last part of the labels whose value is one Node: `kubernetes.io/hostname`, and the topologies of drivers of local disks.
const OF_ONE_NODE: &[&str] = &["hostname", "host", "node", "nodename", "node-name", "nodeid", "node-id"];

/// Whether the affinity of a volume names Nodes: each of its terms does, by label or by field.
pub(super) fn names_nodes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Affinity {
        required: Option<Required>,
    }

    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Required {
        #[serde(rename = "nodeSelectorTerms", deserialize_with = "all_name_nodes")]
        all_name_nodes: bool,
    }

    Ok(Option::<Affinity>::deserialize(deserializer)?
        .and_then(|one| one.required)
        .is_some_and(|one| one.all_name_nodes))
}

fn all_name_nodes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Term {
        #[serde(deserialize_with = "is_by_node")]
        match_expressions: bool,
        #[serde(deserialize_with = "is_by_node")]
        match_fields: bool,
    }

    // Terms, and those that name Nodes.
    let count = |(terms, named): &mut (usize, usize), one: Term| {
        *terms += 1;
        *named += usize::from(one.match_expressions || one.match_fields);
    };
    let (terms, named) = fold(deserializer, count)?;
    Ok(terms > 0 && named == terms)
}

fn is_by_node<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Requirement {
        key: String,
        operator: String,
    }

    fold(deserializer, |is: &mut bool, one: Requirement| {
        let last = one.key.rsplit('/').next().unwrap_or_default();
        *is |= one.operator == "In" && (OF_ONE_NODE.contains(&last) || one.key == "metadata.name");
    })
}
