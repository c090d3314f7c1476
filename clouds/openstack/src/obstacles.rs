//! What keeps a server from being put to sleep, or from being made again as it is.

use cloud_recreate::Obstacle;
use shared::annotation::keys::FORCE;
use shared::text::sanitize_to;

use crate::attributes::{Attributes, described};
use crate::project::Project;
use crate::wire::{self, OfImage};

/// Why a server cannot be put to sleep in either mode.
pub(crate) fn unmovable(server: &wire::Server) -> Option<Obstacle> {
    let because = |code: &str, message: String| Some(Obstacle::new(code, &message));
    if !matches!(server.status.as_str(), "ACTIVE" | "PAUSED" | "SHUTOFF") {
        let right = "only servers that are ACTIVE, PAUSED or SHUTOFF are put to sleep";
        let fault = server.fault.as_ref().map(|fault| format!(" ({})", sanitize_to(&fault.message, 200)));
        let message = format!("its status is {}{}: {right}", server.status, fault.unwrap_or_default());
        return because(Obstacle::STATUS, message);
    }
    if server.locked {
        let why = "it is locked, so that Nova neither pauses, shelves nor deletes it";
        return because("Locked", format!("{why}: unlock it, as by openstack server unlock {}", server.id));
    }
    if server.flavor.ephemeral > 0 {
        let why = "its flavor has an ephemeral disk, which would be empty after a wake";
        return because("EphemeralDisk", format!("{why}: resize it to a flavor without one"));
    }
    if server.flavor.extra_specs.tpm.is_some() || server.image == (OfImage::Image { has_tpm: true }) {
        let why = "its flavor or its image asks for a virtual TPM, whose state would be lost in a sleep";
        return because("VirtualTpm", why.to_owned());
    }
    let task = server.task_state.as_deref()?;
    because(Obstacle::BUSY, format!("its task is {task}: it is put to sleep once that has ended"))
}

/// Why a server cannot be made again as it is. `any_order`: its owner accepts interfaces in another order.
pub(crate) fn obstacle(server: &wire::Server, project: &Project, any_order: bool) -> Option<Obstacle> {
    let ports: Vec<&wire::Port> = project.ports_of(&server.id).collect();
    unmovable(server)
        .or_else(|| volume_obstacle(server))
        .or_else(|| flavor_obstacle(server, project))
        .or_else(|| port_obstacle(server, &ports, project))
        .or_else(|| if any_order { None } else { order_obstacle(server, &ports) })
}

fn volume_obstacle(server: &wire::Server) -> Option<Obstacle> {
    if server.image == OfImage::Volume {
        let message = "it boots from a volume, so a snapshot of the server holds no disk";
        return Some(Obstacle::new("BootFromVolume", message));
    }
    let volume = server.volumes.iter().find(|volume| volume.delete_on_termination)?;
    let right = "set delete_on_termination of this attachment to false";
    let message = format!("its volume {} would be deleted with it: {right}", volume.id);
    Some(Obstacle::new("DeleteOnTermination", &message))
}

fn flavor_obstacle(server: &wire::Server, project: &Project) -> Option<Obstacle> {
    let name = &server.flavor.name;
    match project.flavor(|flavor| flavor.name == *name) {
        None => {
            let message = format!("its flavor {name} exists no more: resize it to one that does");
            Some(Obstacle::new("FlavorMissing", &message))
        }
        Some(flavor) if flavor.size() != server.flavor.size() => {
            let (now, was) = (described(flavor.size()), described(server.flavor.size()));
            let right = "resize it to a flavor of its size";
            let message = format!("its flavor {name} is now {now}, and it has {was}: {right}");
            Some(Obstacle::new("FlavorChanged", &message))
        }
        Some(_) => None,
    }
}

fn port_obstacle(server: &wire::Server, ports: &[&wire::Port], project: &Project) -> Option<Obstacle> {
    for port in ports {
        if port.trunk_details.is_some() {
            let message = format!("its port {} is the parent of a trunk, which would go with it", port.id);
            return Some(Obstacle::new("Trunk", &message));
        }
        if port.name.is_empty() && !project.has_network(&port.network_id) {
            let why = "it has no name, so that Nova may have made it, and in a network of another project it could not be made again";
            let right = "attach a port with a name in its place";
            let message = format!("its port {} would be lost: {why}; {right}", port.id);
            return Some(Obstacle::new("ForeignPort", &message));
        }
    }
    let hostname = server.hostname.as_ref()?;
    let has_other =
        |port: &wire::Port| port.dns_name.as_deref().is_some_and(|name| !name.is_empty() && name != hostname);
    let port = ports.iter().find(|port| has_other(port))?;
    let why = format!("its port {} has another DNS name than its host name {hostname}", port.id);
    let message = format!("{why}, and Nova makes no server with such a port: set the DNS name to that");
    Some(Obstacle::new("DnsName", &message))
}

/// Why the interfaces may have another order after a wake.
fn order_obstacle(server: &wire::Server, ports: &[&wire::Port]) -> Option<Obstacle> {
    let is_bare = ports.iter().any(|port| port.fixed_ips.is_empty());
    if ports.len() < 2 || !(is_bare || server.addresses.is_ambiguous) {
        return None;
    }
    let why = "Nova does not show the order of its interfaces across networks, nor of those without an address, so that they \
               may have another order after a wake";
    Some(Obstacle::new("PortOrder", &format!("{why}; the annotation {FORCE}: \"true\" accepts this")))
}

/// A volume or interface that Nova reports and no list explains: it would be missing after a wake.
pub(crate) fn incomplete(server: &wire::Server, of: &Attributes) -> Option<Obstacle> {
    let because = |message: String| Some(Obstacle::new("Incomplete", &message));
    let is_known = |volume: &&wire::VolumeRef| of.volumes.iter().any(|known| known.id == volume.id);
    if let Some(volume) = server.volumes.iter().find(|volume| !is_known(volume)) {
        return because(format!("Nova does not show how its volume {} is attached", volume.id));
    }
    let is_known = |mac: &&String| mac.is_empty() || of.ports.iter().any(|port| port.mac == **mac);
    if let Some(mac) = server.addresses.all.iter().find(|mac| !is_known(mac)) {
        return because(format!("its project has no port for its interface {mac}: it may be another project's"));
    }
    None
}

#[cfg(test)]
mod tests;
