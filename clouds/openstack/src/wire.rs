//! What the services answer, as far as it is used: what is not is skipped, and costs nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv6Addr;

use jiff::Timestamp;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::names::Id;

/// A server, by Nova.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Server {
    pub(crate) id: Id,
    pub(crate) name: String,
    pub(crate) status: String,
    #[serde(rename = "OS-EXT-STS:task_state")]
    pub(crate) task_state: Option<String>,
    pub(crate) created: Timestamp,
    pub(crate) updated: Timestamp,
    /// Whether it has ever run.
    #[serde(rename = "OS-SRV-USG:launched_at")]
    pub(crate) launched_at: Option<IgnoredAny>,
    pub(crate) fault: Option<Fault>,
    #[serde(default)]
    pub(crate) locked: bool,
    pub(crate) image: OfImage,
    pub(crate) flavor: Flavor,
    pub(crate) key_name: Option<String>,
    #[serde(default)]
    pub(crate) config_drive: String,
    /// From 2.90.
    #[serde(rename = "OS-EXT-SRV-ATTR:hostname")]
    pub(crate) hostname: Option<String>,
    #[serde(rename = "OS-EXT-AZ:availability_zone")]
    pub(crate) zone: Option<String>,
    /// From 2.96.
    pub(crate) pinned_availability_zone: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) tags: BTreeSet<String>,
    pub(crate) metadata: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) addresses: Macs,
    #[serde(default, rename = "os-extended-volumes:volumes_attached")]
    pub(crate) volumes: Vec<VolumeRef>,
}

/// Why a server is in ERROR.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Fault {
    pub(crate) message: String,
}

/// Of those that any flavor has.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct ExtraSpecs {
    #[serde(rename = "hw:tpm_version")]
    pub(crate) tpm: Option<IgnoredAny>,
}

/// The image of a server: an object, or an empty text for one that boots from a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfImage {
    Image {
        /// Whether it asks for a virtual TPM. From 2.98.
        has_tpm: bool,
    },
    Volume,
}

/// Of the properties of a server's image.
#[derive(Default, Deserialize)]
struct ImageProperties {
    #[serde(rename = "hw_tpm_version")]
    tpm: Option<IgnoredAny>,
}

impl<'de> Deserialize<'de> for OfImage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = OfImage;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an image, or an empty text")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<OfImage, E> {
                if text.is_empty() { Ok(OfImage::Volume) } else { Ok(OfImage::Image { has_tpm: false }) }
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OfImage, A::Error> {
                let mut properties = ImageProperties::default();
                while let Some(key) = map.next_key::<String>()? {
                    if key == "properties" {
                        properties = map.next_value()?;
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(OfImage::Image { has_tpm: properties.tpm.is_some() })
            }
        }

        deserializer.deserialize_any(Either)
    }
}

/// A volume of a server.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct VolumeRef {
    pub(crate) id: Id,
    #[serde(default)]
    pub(crate) delete_on_termination: bool,
}

/// The MAC addresses of a server, network by network, in the order of its interfaces.
#[derive(Clone, Debug, Default)]
pub(crate) struct Macs {
    pub(crate) all: Vec<String>,
    /// Whether an interface of a later network may lie between those of an earlier one: Nova does not show that.
    pub(crate) is_ambiguous: bool,
}

impl<'de> Deserialize<'de> for Macs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Macs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("addresses by network")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Macs, A::Error> {
                let (mut macs, mut several) = (Macs::default(), false);
                while let Some((_, addresses)) = map.next_entry::<IgnoredAny, Vec<Address>>()? {
                    macs.is_ambiguous |= several && !addresses.is_empty();
                    several |= addresses.windows(2).any(|pair| pair[0].mac != pair[1].mac);
                    macs.all.extend(addresses.into_iter().map(|address| address.mac));
                }
                Ok(macs)
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

#[derive(Deserialize)]
struct Address {
    #[serde(default, rename = "OS-EXT-IPS-MAC:mac_addr")]
    mac: String,
}

/// A flavor, or the copy of it that a server has.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Flavor {
    /// A copy has none.
    #[serde(default)]
    pub(crate) id: String,
    #[serde(alias = "original_name")]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) ram: u32,
    #[serde(default)]
    pub(crate) vcpus: u32,
    #[serde(default)]
    pub(crate) disk: u32,
    /// GB of a disk that no image holds.
    #[serde(default, alias = "OS-FLV-EXT-DATA:ephemeral")]
    pub(crate) ephemeral: u32,
    /// Where they may be seen.
    #[serde(default)]
    pub(crate) extra_specs: ExtraSpecs,
}

/// MiB of memory, CPUs, and GB of the root disk and of the ephemeral one.
pub(crate) type Size = [u32; 4];

impl Flavor {
    pub(crate) fn size(&self) -> Size {
        [self.ram, self.vcpus, self.disk, self.ephemeral]
    }
}

/// A server group. Nova shows it only with a single server.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Group {
    pub(crate) id: Id,
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) policy: String,
    #[serde(default)]
    pub(crate) rules: BTreeMap<String, u64>,
    pub(crate) members: Vec<String>,
}

/// A key pair of the user.
#[derive(Deserialize)]
pub(crate) struct KeyPair {
    pub(crate) keypair: KeyPairName,
}

/// What has a name.
#[derive(Deserialize)]
pub(crate) struct KeyPairName {
    pub(crate) name: String,
}

/// How a volume is attached.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Attachment {
    #[serde(rename = "volumeId")]
    pub(crate) volume: Id,
    pub(crate) device: Option<String>,
    pub(crate) tag: Option<String>,
}

/// All that are attached to one server.
#[derive(Deserialize)]
pub(crate) struct Attachments {
    #[serde(rename = "volumeAttachments")]
    pub(crate) all: Vec<Attachment>,
}

/// A port, by Neutron.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Port {
    pub(crate) id: Id,
    pub(crate) name: String,
    pub(crate) network_id: Id,
    pub(crate) mac_address: String,
    pub(crate) fixed_ips: Box<[FixedIp]>,
    pub(crate) device_id: Box<str>,
    #[serde(default)]
    pub(crate) security_groups: BTreeSet<Id>,
    #[serde(default)]
    pub(crate) allowed_address_pairs: Box<[AddressPair]>,
    #[serde(default)]
    pub(crate) tags: BTreeSet<String>,
    #[serde(rename = "binding:vnic_type")]
    pub(crate) vnic_type: Option<Box<str>>,
    #[serde(rename = "port_security_enabled")]
    pub(crate) is_secured: Option<bool>,
    pub(crate) description: Option<Box<str>>,
    pub(crate) qos_policy_id: Option<Box<Id>>,
    pub(crate) dns_name: Option<Box<str>>,
    pub(crate) dns_domain: Option<Box<str>>,
    #[serde(default)]
    pub(crate) extra_dhcp_opts: Box<[DhcpOption]>,
    pub(crate) admin_state_up: Option<bool>,
    pub(crate) propagate_uplink_status: Option<bool>,
    /// Of the parent of a trunk.
    pub(crate) trunk_details: Option<IgnoredAny>,
}

/// An address of a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, serde::Serialize)]
pub(crate) struct FixedIp {
    pub(crate) subnet_id: Id,
    pub(crate) ip_address: String,
}

impl FixedIp {
    /// The address as it is asked for. One that follows from the MAC address cannot be: it comes by itself.
    pub(crate) fn to_ask_for(&self, mac: &str) -> Value {
        let is_derived = eui64(mac).is_some_and(|interface| {
            let address = self.ip_address.parse::<Ipv6Addr>();
            address.is_ok_and(|address| address.octets()[8..] == interface)
        });
        if is_derived { json!({"subnet_id": self.subnet_id}) } else { json!(self) }
    }
}

/// The interface's half of an IPv6 address, as RFC 4291 makes it of a MAC address.
fn eui64(mac: &str) -> Option<[u8; 8]> {
    let bytes: Option<Vec<u8>> = mac.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    let [first, middle @ .., last]: [u8; 6] = bytes?.try_into().ok()?;
    Some([first ^ 2, middle[0], middle[1], 0xff, 0xfe, middle[2], middle[3], last])
}

/// An address that a port may use besides its own.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, serde::Serialize)]
pub(crate) struct AddressPair {
    pub(crate) ip_address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mac_address: Option<String>,
}

/// An option of DHCP that a port has.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, serde::Serialize)]
pub(crate) struct DhcpOption {
    opt_name: String,
    opt_value: Option<String>,
    ip_version: Option<u8>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct FloatingIp {
    pub(crate) id: Id,
    #[serde(rename = "floating_ip_address")]
    pub(crate) address: Option<String>,
    pub(crate) port_id: Option<Id>,
    pub(crate) fixed_ip_address: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Network {
    pub(crate) id: Id,
    pub(crate) project_id: String,
}

/// An image, by Glance, with the properties that we have written.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Image {
    pub(crate) id: Id,
    pub(crate) status: String,
    pub(crate) owner: Option<String>,
    #[serde(default)]
    pub(crate) tags: BTreeSet<String>,
    /// `snapshot`, if it was made of a server.
    #[serde(rename = "image_type")]
    pub(crate) kind: Option<String>,
    /// The server that it was made of.
    pub(crate) instance_uuid: Option<String>,
    pub(crate) hibernate_cluster: Option<String>,
    pub(crate) hibernate_server: Option<String>,
    pub(crate) hibernate_machine: Option<String>,
    pub(crate) hibernate_cycle: Option<String>,
    pub(crate) hibernate_record: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_follows_from_the_mac_is_not_asked_for() {
        let ip = |address: &str| {
            let ip = json!({"subnet_id": "s", "ip_address": address});
            let ip: FixedIp = serde_json::from_value(ip).unwrap();
            ip.to_ask_for("fa:16:3e:27:0c:01")["ip_address"].clone()
        };
        assert_eq!(ip("2001:db8::f816:3eff:fe27:c01"), Value::Null);
        assert_eq!(ip("2001:db8::17"), "2001:db8::17");
        assert_eq!(ip("10.0.0.7"), "10.0.0.7");
    }
}
