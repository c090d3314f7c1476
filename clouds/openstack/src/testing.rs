//! Servers for tests.

use crate::wire::Server;

/// When a server was changed last.
pub(crate) const UPDATED: &str = "2026-11-27T10:00:00Z";

/// A server of this name in this state, without volumes and ports.
pub(crate) fn test_server(name: &str, status: &str, task: Option<&str>) -> Server {
    let server = serde_json::json!({
        "id": format!("{name}-id"), "name": name, "status": status, "OS-EXT-STS:task_state": task,
        "created": UPDATED, "updated": UPDATED, "OS-SRV-USG:launched_at": null, "locked": name.ends_with('1'),
        "image": {"id": "image"}, "key_name": null, "description": null,
        "tags": [], "metadata": {}, "addresses": {}, "OS-EXT-AZ:availability_zone": null,
        "flavor": {"original_name": "m1.small", "ephemeral": i32::from(name.ends_with('0') && name.contains("etcd"))},
    });
    serde_json::from_value(server).unwrap()
}
