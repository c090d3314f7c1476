//! Names by which things of a cluster are found, and the word of the services themselves.

use crate::wire;

/// Tag, and key of metadata, that the installer gives to everything of a cluster. Its value is the infraID.
pub(crate) const CLUSTER: &str = "openshiftClusterID";

/// The header that only the services set: an answer without it is a gateway's.
pub(crate) const REQUEST_ID: &str = "x-openstack-request-id";

/// The tag by which a destroyer of a cluster finds what is its own.
pub(crate) fn tag(infra_id: &str) -> String {
    format!("{CLUSTER}={infra_id}")
}

/// The name of a machine's image.
pub(crate) fn image_name(machine: &str, cycle: &str) -> String {
    format!("{machine}-{cycle}").chars().take(255).collect()
}

/// Whether a server is a cluster's: the installer gives it metadata and tag, and the first of them says whose it is. It is
/// of one cluster alone, so that what is made of a list for all clusters is no larger than the list.
pub(crate) fn is_of(server: &wire::Server, infra_id: &str) -> bool {
    let of_tag = |tag: &'_ String| tag.strip_prefix(CLUSTER)?.strip_prefix('=').map(|of| of == infra_id);
    let by_metadata = server.metadata.get(CLUSTER).map(|of| of == infra_id);
    by_metadata.or_else(|| server.tags.iter().find_map(of_tag)).unwrap_or_default()
}
