//! Names that identify what belongs to a cluster, and the header that only OpenStack's services set.

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

/// Whether a server belongs to a cluster. The installer sets metadata and a tag; if both are present, the metadata decides.
/// A server belongs to one cluster only, so the lists made for all clusters are together no larger than this one.
pub(crate) fn is_of(server: &wire::Server, infra_id: &str) -> bool {
    let of_tag = |tag: &'_ String| tag.strip_prefix(CLUSTER)?.strip_prefix('=').map(|of| of == infra_id);
    let by_metadata = server.metadata.get(CLUSTER).map(|of| of == infra_id);
    by_metadata.or_else(|| server.tags.iter().find_map(of_tag)).unwrap_or_default()
}
