//! A snapshot of a project, for all clusters in it.

use std::sync::Arc;
use std::time::Instant;

use cloud_common::Charge;

use crate::names::{CLUSTER_KEY, Id};
use crate::wire::{Flavor, FloatingIp, Group, Image, KeyPair, Network, Port, Server};

/// Everything in a project that says how a server is made.
pub(crate) struct Project {
    pub(crate) id: Id,
    /// When the lists were begun.
    pub(crate) begun: Instant,
    /// The microversion of the calls to Nova.
    pub(crate) version: u32,
    pub(crate) servers: Vec<Server>,
    pub(crate) ports: Vec<Port>,
    pub(crate) floating_ips: Vec<FloatingIp>,
    pub(crate) images: Vec<Image>,
    pub(crate) groups: Vec<Group>,
    pub(crate) surroundings: Arc<Surroundings>,
    /// For each list.
    #[expect(dead_code, reason = "it is kept, not read")]
    pub(crate) charges: Vec<Charge>,
}

/// Lists that seldom change.
pub(crate) struct Surroundings {
    pub(crate) flavors: Vec<Flavor>,
    pub(crate) networks: Vec<Network>,
    /// The user's key pairs.
    pub(crate) keys: Vec<KeyPair>,
    #[expect(dead_code, reason = "it is kept, not read")]
    pub(crate) charges: Vec<Charge>,
}

impl Server {
    /// Whether it belongs to a cluster. The installer sets metadata and a tag; if both are present, the metadata decides.
    /// A server belongs to one cluster only, so the lists made for all clusters are together no larger than this one.
    pub(crate) fn is_of(&self, infra_id: &str) -> bool {
        let of_tag = |tag: &'_ String| tag.strip_prefix(CLUSTER_KEY)?.strip_prefix('=').map(|of| of == infra_id);
        let by_metadata = self.metadata.get(CLUSTER_KEY).map(|of| of == infra_id);
        by_metadata.or_else(|| self.tags.iter().find_map(of_tag)).unwrap_or_default()
    }
}

impl Project {
    /// The servers of a cluster.
    pub(crate) fn servers_of<'a>(&'a self, infra_id: &'a str) -> impl Iterator<Item = &'a Server> {
        self.servers.iter().filter(move |server| server.is_of(infra_id))
    }

    /// The ports that are bound to a server.
    pub(crate) fn ports_of<'a>(&'a self, server: &'a Id) -> impl Iterator<Item = &'a Port> {
        self.ports.iter().filter(|port| *port.device_id == *server.as_str())
    }

    /// The images that were made for the sleep of a cluster. One that its owner makes of a server after a wake inherits
    /// every property of the image that the server boots from, and is its owner's: it is of another server.
    pub(crate) fn images_of<'a>(&'a self, infra_id: &'a str) -> impl Iterator<Item = &'a Image> {
        self.own_images().filter(move |image| {
            let of = image.hibernate_server.as_deref();
            let is_of = of.is_some() && (of == image.instance_uuid.as_deref() || of == Some(image.id.as_str()));
            is_of && image.hibernate_cluster.as_deref() == Some(infra_id)
        })
    }

    /// An image that was made of a server, by its ID. Only such an image is deleted after a wake.
    pub(crate) fn snapshot(&self, id: &str) -> Option<&Image> {
        let is_snapshot = |image: &&Image| image.kind.as_deref() == Some("snapshot");
        self.own_images().filter(is_snapshot).find(|image| image.id.as_str() == id)
    }

    /// An image that another project shares is a stranger's, whatever it says.
    fn own_images(&self) -> impl Iterator<Item = &Image> {
        self.images.iter().filter(|image| image.owner.as_deref() == Some(self.id.as_str()))
    }

    /// A flavor. Nova's answers about servers have its name only, which is unique, and their own size.
    pub(crate) fn flavor(&self, is_it: impl Fn(&Flavor) -> bool) -> Option<&Flavor> {
        self.surroundings.flavors.iter().find(|flavor| is_it(flavor))
    }

    /// Whether a network is this project's own.
    pub(crate) fn has_network(&self, network: &Id) -> bool {
        let own = |found: &&Network| found.project_id == self.id.as_str();
        self.surroundings.networks.iter().filter(own).any(|found| found.id == *network)
    }

    /// Whether the user has a key pair of this name.
    pub(crate) fn has_key(&self, name: &str) -> bool {
        self.surroundings.keys.iter().any(|key| key.keypair.name == name)
    }

    /// The server group that a server is in.
    pub(crate) fn group_of(&self, server: &Id) -> Option<&Group> {
        let is_in = |group: &&Group| group.members.iter().any(|member| member == server.as_str());
        self.groups.iter().find(is_in)
    }

    pub(crate) fn has_group(&self, id: &Id) -> bool {
        self.groups.iter().any(|group| group.id == *id)
    }
}
