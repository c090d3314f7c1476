//! What a new server needs to be like the one before it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use shared::text::sanitize_to;

use crate::names::Id;
use crate::project::Project;
use crate::wire::{self, AddressPair, Attachment, DhcpOption, FixedIp, Size};

/// Our mark in a server's metadata: the cycle in which it was made. A key may have no slash.
pub(crate) const CYCLE_KEY: &str = "hibernate.sh:cycle";

/// What is recorded of a server. User data is not readable, and only the first boot needs it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Attributes {
    pub(crate) flavor: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) flavor_name: String,
    /// What the flavor was then: another one may get its name or its ID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) size: Option<Size>,
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
    /// What makes the server group again: while the cluster sleeps it is empty, and anybody may delete it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) group_kind: Option<Box<GroupKind>>,
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

impl cloud_recreate::Attributes for Attributes {
    fn machine_type(&self) -> &str {
        &self.flavor_name
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GroupKind {
    pub(crate) name: String,
    pub(crate) policy: String,
    #[serde(default)]
    pub(crate) rules: BTreeMap<String, u64>,
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
    /// Fields that few ports set.
    #[serde(default, rename = "more", skip_serializing_if = "Option::is_none")]
    pub(crate) rare: Option<Box<RarePortFields>>,
    /// Floating IPs, each with the fixed address that it leads to.
    #[serde(default)]
    pub(crate) floating_ips: Vec<(Id, Option<String>)>,
}

/// Fields that few ports set, as Neutron names them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RarePortFields {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    qos_policy_id: Option<Box<Id>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dns_name: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dns_domain: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "<[DhcpOption]>::is_empty")]
    extra_dhcp_opts: Box<[DhcpOption]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    admin_state_up: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    propagate_uplink_status: Option<bool>,
}

/// A text, unless Neutron leaves it empty.
fn filled<T: for<'a> From<&'a str>>(text: Option<&str>) -> Option<T> {
    text.filter(|text| !text.is_empty()).map(T::from)
}

impl RarePortFields {
    fn of(port: &wire::Port) -> Option<Box<Self>> {
        let rare = Self {
            qos_policy_id: port.qos_policy_id.clone(),
            dns_name: filled(port.dns_name.as_deref()),
            dns_domain: filled(port.dns_domain.as_deref()),
            extra_dhcp_opts: port.extra_dhcp_opts.clone(),
            admin_state_up: port.admin_state_up.filter(|is_up| !is_up),
            propagate_uplink_status: port.propagate_uplink_status,
        };
        (rare != Self::default()).then(|| Box::new(rare))
    }
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
        let place = |port: &wire::Port| server.addresses.all.iter().position(|mac| *mac == port.mac_address);
        ports.sort_by_key(|port| (place(port).unwrap_or(usize::MAX), &port.id));
        // From 2.96 Nova says what was asked for. Before, the zone it is in is as good.
        let zone = if project.version >= 96 { &server.pinned_availability_zone } else { &server.zone };
        let volumes = attachments.iter().map(|found| {
            let Attachment { volume, device, tag } = found.clone();
            Volume { id: volume, device, tag }
        });
        let mut volumes: Vec<Volume> = volumes.collect();
        volumes.sort_by(|a, b| (&a.device, &a.id).cmp(&(&b.device, &b.id)));
        let flavor = project.flavor(|flavor| flavor.name == server.flavor.name);
        let group = project.group_of(&server.id);
        Self {
            flavor: flavor.map(|flavor| flavor.id.clone()).unwrap_or_default(),
            flavor_name: server.flavor.name.clone(),
            size: Some(server.flavor.size()),
            hostname: server.hostname.clone(),
            key_name: server.key_name.clone(),
            zone: zone.clone().filter(|zone| !zone.is_empty()),
            config_drive: !server.config_drive.is_empty(),
            group: group.map(|group| group.id.clone()),
            group_kind: group.map(|wire::Group { name, policy, rules, .. }| {
                Box::new(GroupKind { name: name.clone(), policy: policy.clone(), rules: rules.clone() })
            }),
            description: server.description.clone(),
            tags: server.tags.clone(),
            metadata: server.metadata.clone().into_iter().filter(|(key, _)| key != CYCLE_KEY).collect(),
            ports: ports.into_iter().map(|port| Port::of(port, project)).collect(),
            volumes,
        }
    }

    /// The part of `recorded` that a server with these attributes lacks. What it has besides is its owner's.
    pub(crate) fn lacking(&self, recorded: &Self, project: &Project) -> Self {
        let ports = recorded.ports.iter().filter_map(|port| {
            let has = self.ports.iter().find(|has| has.is(port));
            let is_free = |id: &Id| project.floating_ips.iter().any(|ip| ip.id == *id && ip.port_id.is_none());
            let missing = port.floating_ips.iter().filter(|(id, _)| has.is_none_or(|has| has.lacks(id)) && is_free(id));
            let floating_ips: Vec<_> = missing.cloned().collect();
            (has.is_none() || !floating_ips.is_empty()).then(|| Port { floating_ips, ..port.clone() })
        });
        let metadata = recorded.metadata.iter().filter(|(key, value)| self.metadata.get(*key) != Some(value));
        Self {
            tags: recorded.tags.difference(&self.tags).cloned().collect(),
            metadata: metadata.map(|(key, value)| (key.clone(), value.clone())).collect(),
            ports: ports.collect(),
            // A server is not ACTIVE without its own; one of a pod goes where the pod is.
            volumes: Vec::new(),
            ..recorded.clone()
        }
    }

    /// The floating IPs of `recorded` that the server does not get back: they were reassigned or deleted while it slept.
    pub(crate) fn lost(&self, recorded: &Self, project: &Project) -> Vec<String> {
        let mut lost = Vec::new();
        for port in &recorded.ports {
            let Some(has) = self.ports.iter().find(|has| has.is(port)) else { continue };
            for (id, _) in port.floating_ips.iter().filter(|(id, _)| has.lacks(id)) {
                let found = project.floating_ips.iter().find(|ip| ip.id == *id);
                let address = found.and_then(|ip| ip.address.as_deref()).unwrap_or(id.as_str());
                match found.map(|ip| &ip.port_id) {
                    Some(Some(elsewhere)) => lost.push(format!("floating IP {address}, which port {elsewhere} has")),
                    Some(None) => {}
                    None => lost.push(format!("floating IP {address}, which its project has no more")),
                }
            }
        }
        lost.into_iter().map(|what| sanitize_to(&what, 200)).collect()
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
            fixed_ips: port.fixed_ips.to_vec(),
            security_groups: port.security_groups.clone(),
            address_pairs: port.allowed_address_pairs.to_vec(),
            tags: port.tags.clone(),
            vnic_type: port.vnic_type.as_deref().map(str::to_owned),
            is_secured: port.is_secured,
            description: filled(port.description.as_deref()),
            rare: RarePortFields::of(port),
            floating_ips: floating.map(|ip| (ip.id.clone(), ip.fixed_ip_address.clone())).collect(),
        }
    }

    fn lacks(&self, floating_ip: &Id) -> bool {
        !self.floating_ips.iter().any(|(id, _)| id == floating_ip)
    }

    /// Whether it is the same port, or was made in its place: no other in its network has its MAC address.
    fn is(&self, other: &Self) -> bool {
        self.id == other.id || (&self.network, &self.mac) == (&other.network, &other.mac)
    }
}

pub(crate) fn described([ram, cpus, disk, ephemeral]: Size) -> String {
    format!("{ram} MiB with {cpus} vCPUs and disks of {disk} and {ephemeral} GB")
}

#[cfg(test)]
pub(crate) mod tests;
