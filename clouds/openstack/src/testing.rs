//! Servers and projects for tests.

use std::sync::Arc;
use std::time::Instant;

use crate::names::Id;
use crate::project::{Project, Surroundings};
use crate::wire::{ExtraSpecs, Flavor, FloatingIp, Network, Port, Server};

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

/// A project with the flavor `m1.small`, another one that is large, and the network `own`.
pub(crate) fn test_project(ports: Vec<Port>, floating_ips: Vec<FloatingIp>) -> Project {
    let id = |id: &str| Id::try_from(id.to_owned()).unwrap();
    let flavor = |id: &str, name: &str, ram| Flavor {
        id: id.to_owned(),
        name: name.to_owned(),
        ram,
        vcpus: 1,
        disk: 1,
        ephemeral: 0,
        extra_specs: ExtraSpecs::default(),
    };
    let flavors = vec![flavor("flavor-1", "m1.small", 64), flavor("flavor-2", "m1.replaced", 8192)];
    let networks = vec![
        Network { id: id("own"), project_id: "p".to_owned() },
        Network { id: id("shared"), project_id: "admin".to_owned() },
    ];
    let surroundings = Arc::new(Surroundings { flavors, networks, keys: Vec::new(), charges: Vec::new() });
    let (servers, images, groups) = (Vec::new(), Vec::new(), Vec::new());
    Project {
        id: id("p"),
        begun: Instant::now(),
        version: 100,
        servers,
        ports,
        floating_ips,
        images,
        groups,
        surroundings,
        charges: Vec::new(),
    }
}
