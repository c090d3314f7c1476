//! Names that identify what belongs to a cluster, and IDs that become parts of URLs.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Tag, and key of metadata, that the installer gives to everything of a cluster. Its value is the infraID.
pub(crate) const CLUSTER_KEY: &str = "openshiftClusterID";

/// The header that only the services set: an answer without it is a gateway's.
pub(crate) const REQUEST_ID_HEADER: &str = "x-openstack-request-id";

/// The tag by which a destroyer of a cluster finds what is its own.
pub(crate) fn tag(infra_id: &str) -> String {
    format!("{CLUSTER_KEY}={infra_id}")
}

/// The name of a machine's image.
pub(crate) fn image_name(machine: &str, cycle: &str) -> String {
    format!("{machine}-{cycle}").chars().take(255).collect()
}

/// Longest ID, in bytes.
const MAX_ID: usize = 64;

/// The ID of an OpenStack resource: letters, digits, `-` and `_`, also in answers and records, which are untrusted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Id(String);

impl Id {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Id {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let is_known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let is_id = (1..=MAX_ID).contains(&text.len()) && text.chars().all(is_known);
        if is_id { Ok(Self(text)) } else { Err("an ID has 1 to 64 letters, digits, - and _") }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
