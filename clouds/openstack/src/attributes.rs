//! What a new server needs to be like the one before it, and what keeps it from being made.

use std::collections::{BTreeMap, BTreeSet};

use cloud_recreate::Obstacle;
use serde::{Deserialize, Serialize};
use shared::text::sanitize_to;

use crate::id::Id;
use crate::lists::Project;
use crate::wire::{self, AddressPair, Attachment, FixedIp, OfImage};

/// Our mark in a server's metadata: the cycle in which it was made. A key may have no slash.
pub(crate) const CYCLE: &str = "hibernate.sh:cycle";

/// What is recorded of a server. User data is not readable, and only the first boot needs it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Attributes {
    pub(crate) flavor: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hostname: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) zone: Option<String>,
    #[serde(default)]
    pub(crate) config_drive: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) group: Option<Id>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    #[serde(default)]
    pub(crate) tags: BTreeSet<String>,
    #[serde(default)]
    pub(crate) metadata: BTreeMap<String, String>,
    /// In the order of the server's interfaces.
    #[serde(default)]
    pub(crate) ports: Vec<Port>,
    #[serde(default)]
    pub(crate) volumes: Vec<Volume>,
}

/// A port. One that Nova has made goes with its server, and is made again with the same addresses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Port {
    pub(crate) id: Id,
    pub(crate) network: Id,
    pub(crate) mac: String,
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) fixed_ips: Vec<FixedIp>,
    #[serde(default)]
    pub(crate) security_groups: BTreeSet<Id>,
    #[serde(default)]
    pub(crate) address_pairs: Vec<AddressPair>,
    #[serde(default)]
    pub(crate) tags: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) vnic_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) is_secured: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    /// Floating IPs, each with the fixed address that it leads to.
    #[serde(default)]
    pub(crate) floating_ips: Vec<(Id, Option<String>)>,
}

/// A volume that is no root disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Volume {
    pub(crate) id: Id,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) device: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tag: Option<String>,
}

impl Attributes {
    pub(crate) fn of(server: &wire::Server, project: &Project, attachments: &[Attachment]) -> Self {
        let mut ports: Vec<&wire::Port> = project.ports_of(&server.id).collect();
        // What Nova's cache does not have yet comes last.
        let place = |port: &wire::Port| server.addresses.0.iter().position(|mac| *mac == port.mac_address);
        ports.sort_by_key(|port| (place(port).unwrap_or(usize::MAX), &port.id));
        // From 2.96 Nova says what was asked for. Before, the zone it is in is as good.
        let zone = if project.version >= 96 { &server.pinned_availability_zone } else { &server.zone };
        let volumes = attachments.iter().map(|found| {
            let Attachment { volume, device, tag } = found.clone();
            Volume { id: volume, device, tag }
        });
        let mut volumes: Vec<Volume> = volumes.collect();
        volumes.sort_by(|a, b| (&a.device, &a.id).cmp(&(&b.device, &b.id)));
        Self {
            flavor: project.flavor(&server.flavor.original_name).unwrap_or_default().to_owned(),
            hostname: server.hostname.clone(),
            key_name: server.key_name.clone(),
            zone: zone.clone().filter(|zone| !zone.is_empty()),
            config_drive: !server.config_drive.is_empty(),
            group: project.group_of(&server.id).cloned(),
            description: server.description.clone(),
            tags: server.tags.clone(),
            metadata: server.metadata.clone().into_iter().filter(|(key, _)| key != CYCLE).collect(),
            ports: ports.into_iter().map(|port| Port::of(port, project)).collect(),
            volumes,
        }
    }

    /// What of these a server with `self` lacks. What it has more is its owner's.
    pub(crate) fn lacking(&self, of: &Self, project: &Project) -> Self {
        let ports = of.ports.iter().filter_map(|port| {
            let has = self.ports.iter().find(|has| has.is(port));
            let is_free = |id: &Id| project.floating_ips.iter().any(|ip| ip.id == *id && ip.port_id.is_none());
            let is_missing = |id: &Id| has.is_none_or(|has| !has.floating_ips.iter().any(|(found, _)| found == id));
            let missing = port.floating_ips.iter().filter(|(id, _)| is_missing(id) && is_free(id));
            let floating_ips: Vec<_> = missing.cloned().collect();
            (has.is_none() || !floating_ips.is_empty()).then(|| Port { floating_ips, ..port.clone() })
        });
        let metadata = of.metadata.iter().filter(|(key, value)| self.metadata.get(*key) != Some(value));
        Self {
            tags: of.tags.difference(&self.tags).cloned().collect(),
            metadata: metadata.map(|(key, value)| (key.clone(), value.clone())).collect(),
            ports: ports.collect(),
            // A server is not ACTIVE without its own; one of a pod goes where the pod is.
            volumes: Vec::new(),
            ..of.clone()
        }
    }

    /// Whether a server lacks nothing, as [`Attributes::lacking`] says.
    pub(crate) fn is_complete(&self) -> bool {
        self.tags.is_empty() && self.metadata.is_empty() && self.ports.is_empty()
    }
}

impl Port {
    pub(crate) fn of(port: &wire::Port, project: &Project) -> Self {
        let floating = project.floating_ips.iter().filter(|ip| ip.port_id.as_ref() == Some(&port.id));
        Self {
            id: port.id.clone(),
            network: port.network_id.clone(),
            mac: port.mac_address.clone(),
            name: port.name.clone(),
            fixed_ips: port.fixed_ips.clone(),
            security_groups: port.security_groups.clone(),
            address_pairs: port.allowed_address_pairs.clone(),
            tags: port.tags.clone(),
            vnic_type: port.vnic_type.clone(),
            is_secured: port.is_secured,
            description: port.description.clone().filter(|description| !description.is_empty()),
            floating_ips: floating.map(|ip| (ip.id.clone(), ip.fixed_ip_address.clone())).collect(),
        }
    }

    /// Whether it is the same port, or was made in its place: no other in its network has its MAC address.
    fn is(&self, other: &Self) -> bool {
        self.id == other.id || (&self.network, &self.mac) == (&other.network, &other.mac)
    }
}

/// A locked server can be neither paused, shelved nor deleted.
pub(crate) fn locked(server: &wire::Server) -> Option<Obstacle> {
    let message = || format!("it is locked: unlock it, as by openstack server unlock {}", server.id);
    server.locked.then(|| Obstacle { code: "Locked".to_owned(), message: message() })
}

/// Why a server cannot be made again as it is.
pub(crate) fn obstacle(server: &wire::Server, project: &Project) -> Option<Obstacle> {
    let because =
        |code: &str, message: String| Some(Obstacle { code: code.to_owned(), message: sanitize_to(&message, 400) });
    if !matches!(server.status.as_str(), "ACTIVE" | "PAUSED" | "SHUTOFF") {
        let right = "only servers that are ACTIVE, PAUSED or SHUTOFF are put to sleep";
        return because("Status", format!("its status is {}: {right}", server.status));
    }
    if let Some(locked) = locked(server) {
        return Some(locked);
    }
    if server.image == OfImage::Volume {
        return because("BootFromVolume", "it boots from a volume, of which a snapshot makes no image".to_owned());
    }
    if let Some(volume) = server.volumes.iter().find(|volume| volume.delete_on_termination) {
        let right = "set delete_on_termination of this attachment to false";
        return because("DeleteOnTermination", format!("its volume {} would be deleted with it: {right}", volume.id));
    }
    if server.flavor.ephemeral > 0 {
        return because("EphemeralDisk", "its flavor has an ephemeral disk, which no image holds".to_owned());
    }
    if server.flavor.extra_specs.tpm.is_some() {
        return because("VirtualTpm", "its flavor has a virtual TPM, whose state no image holds".to_owned());
    }
    let flavor = &server.flavor.original_name;
    if project.flavor(flavor).is_none() {
        return because("FlavorMissing", format!("its flavor {flavor} exists no more: resize it to one that does"));
    }
    for port in project.ports_of(&server.id) {
        if port.trunk_details.is_some() {
            return because("Trunk", format!("its port {} is the parent of a trunk, which would go with it", port.id));
        }
        if port.name.is_empty() && !project.has_network(&port.network_id) {
            let why = "it has no name, so that Nova may have made it, and in a network of another project it could not be made again";
            let right = "attach a port with a name in its place";
            return because("ForeignPort", format!("its port {} would be lost: {why}; {right}", port.id));
        }
    }
    None
}

/// What Nova says that a server has, and no list shows: it would be missing after a wake.
pub(crate) fn incomplete(server: &wire::Server, of: &Attributes) -> Option<Obstacle> {
    let because =
        |message: String| Some(Obstacle { code: "Incomplete".to_owned(), message: sanitize_to(&message, 400) });
    let is_known = |volume: &&wire::Attached| of.volumes.iter().any(|known| known.id == volume.id);
    if let Some(volume) = server.volumes.iter().find(|volume| !is_known(volume)) {
        return because(format!("Nova does not show how its volume {} is attached", volume.id));
    }
    let is_known = |mac: &&String| mac.is_empty() || of.ports.iter().any(|port| port.mac == **mac);
    if let Some(mac) = server.addresses.0.iter().find(|mac| !is_known(mac)) {
        return because(format!("its project has no port for its interface {mac}: it may be another project's"));
    }
    None
}

#[cfg(test)]
mod tests;
