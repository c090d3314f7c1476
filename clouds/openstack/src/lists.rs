//! A snapshot of a project, for all clusters in it.

use std::sync::Arc;
use std::time::Instant;

use cloud_common::Charge;
use cloud_http::{CallError, StatusCode};
use futures::TryFutureExt;
use shared::cloud::{CloudError, CloudErrorKind, Priority};

use crate::account::Account;
use crate::id::Id;
use crate::keystone::Service;
use crate::requests::OWN;
use crate::wire::{
    Flavor, Flavors, FloatingIp, FloatingIps, Group, Groups, Image, Images, KeyPair, KeyPairs, Marked, Network,
    Networks, Page, Port, Ports, Server, Servers,
};

/// Most entries of one list.
const ENTRIES: usize = 10_000;

/// Server groups of one call.
const GROUPS: usize = 100;

/// Everything in a project that says how a server is made.
pub(crate) struct Project {
    /// Its ID.
    pub(crate) id: Id,
    /// When the lists were begun.
    pub(crate) begun: Instant,
    /// The microversion that Nova was asked with.
    pub(crate) version: u32,
    pub(crate) servers: Vec<Server>,
    pub(crate) ports: Vec<Port>,
    pub(crate) floating_ips: Vec<FloatingIp>,
    images: Vec<Image>,
    groups: Vec<Group>,
    surroundings: Arc<Surroundings>,
    /// For each list.
    #[expect(dead_code, reason = "it is kept, not read")]
    charges: Vec<Charge>,
}

/// What seldom changes.
pub(crate) struct Surroundings {
    flavors: Vec<Flavor>,
    networks: Vec<Network>,
    /// Names of the user's key pairs.
    keys: Vec<KeyPair>,
    #[expect(dead_code, reason = "it is kept, not read")]
    charges: Vec<Charge>,
}

impl Surroundings {
    /// Three lists at once.
    pub(crate) async fn list(account: &Account, priority: Priority) -> Result<Self, CloudError> {
        let networks = format!("/networks?project_id={}&fields=id&fields=project_id", account.session().await?.project);
        let (flavors, networks, keys) = futures::try_join!(
            pages::<Flavors>(account, priority, Service::Compute, "/flavors/detail?limit=1000"),
            pages::<Networks>(account, priority, Service::Network, &networks),
            account.get::<KeyPairs>(priority, Service::Compute, "/os-keypairs").map_err(CloudError::from),
        )?;
        let (KeyPairs { all: keys }, charge) = keys;
        let mut charges = vec![charge];
        let (flavors, networks) = (flavors.into(&mut charges), networks.into(&mut charges));
        Ok(Self { flavors, networks, keys, charges })
    }
}

impl Project {
    /// Five lists at once. A list that fails is an error of all: nothing must seem to be gone.
    pub(crate) async fn list(account: &Account, priority: Priority) -> Result<Self, CloudError> {
        let begun = Instant::now();
        let session = account.session().await?;
        let (id, version) = (session.project.clone(), session.version);
        let (ports, ips) = (format!("/ports?project_id={id}&limit=1000"), format!("/floatingips?project_id={id}"));
        let images = format!("/images?owner={id}&limit=100");
        let of_network = async {
            let ports = pages::<Ports>(account, priority, Service::Network, &ports).await?;
            // Neutron has proven who it is now: a 404 is its own word.
            Ok((ports, floating_ips(account, priority, &ips).await?))
        };
        let (surroundings, servers, groups, (ports, floating_ips), images) = futures::try_join!(
            account.surroundings(priority),
            // With a limit, Nova leaves out servers of a part of it that does not answer.
            pages::<Servers>(account, priority, Service::Compute, "/servers/detail"),
            groups(account, priority),
            of_network,
            pages::<Images>(account, priority, Service::Image, &images),
        )?;
        let mut charges = Vec::new();
        let (servers, groups, ports) =
            (servers.into(&mut charges), groups.into(&mut charges), ports.into(&mut charges));
        let (floating_ips, images) = (floating_ips.into(&mut charges), images.into(&mut charges));
        Ok(Self { id, begun, version, servers, ports, floating_ips, images, groups, surroundings, charges })
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

    /// Whether there is a server group.
    pub(crate) fn has_group(&self, id: &Id) -> bool {
        self.groups.iter().any(|group| group.id == *id)
    }
}

#[cfg(test)]
impl Project {
    /// With the flavor `m1.small`, another one that is large, and the network `own`.
    pub(crate) fn for_tests(ports: Vec<Port>, floating_ips: Vec<FloatingIp>) -> Self {
        let id = |id: &str| Id::try_from(id.to_owned()).unwrap();
        let flavor = |id: &str, name: &str, ram| Flavor {
            id: id.to_owned(),
            name: name.to_owned(),
            ram,
            vcpus: 1,
            disk: 1,
            ephemeral: 0,
            extra_specs: crate::wire::ExtraSpecs::default(),
        };
        let flavors = vec![flavor("flavor-1", "m1.small", 64), flavor("flavor-2", "m1.replaced", 8192)];
        let networks = vec![
            Network { id: id("own"), project_id: "p".to_owned() },
            Network { id: id("shared"), project_id: "admin".to_owned() },
        ];
        let surroundings = Arc::new(Surroundings { flavors, networks, keys: Vec::new(), charges: Vec::new() });
        let (servers, images, groups) = (Vec::new(), Vec::new(), Vec::new());
        Self {
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
}

/// A list that is read page by page, and what it is charged.
struct List<T> {
    all: Vec<T>,
    charge: Charge,
}

impl<T: Marked> List<T> {
    /// What is kept of a list has its own part of the memory, so that there is one left for answers.
    fn new(account: &Account, path: &str) -> Self {
        Self { all: Vec::new(), charge: account.charge(path) }
    }

    /// One more page.
    fn add(&mut self, items: Vec<T>, charge: &Charge, path: &str) -> Result<(), CloudError> {
        let failed = |kind, has: &str| {
            let path = path.split('?').next().unwrap_or_default();
            let message = format!("the list {path} has more {has}: the project holds too much to be read whole");
            Err(CloudError::new(kind, message))
        };
        if self.charge.spend(charge.used()).is_err() {
            return failed(CloudErrorKind::Unavailable, "entries than there is memory for");
        }
        self.all.extend(items);
        if self.all.len() > ENTRIES {
            return failed(CloudErrorKind::Invalid, &format!("than {ENTRIES} entries"));
        }
        Ok(())
    }

    /// The list, each ID once: what is made for each of many entries of one ID would not be charged.
    fn into(mut self, charges: &mut Vec<Charge>) -> Vec<T> {
        self.all.sort_by(|a, b| a.marker().cmp(b.marker()));
        self.all.dedup_by(|a, b| a.marker() == b.marker());
        self.all.shrink_to_fit();
        self.charge.refund(self.all.len() * size_of::<T>()); // a list was charged for twice its elements
        charges.push(self.charge);
        self.all
    }
}

/// The server groups as they are now.
pub(crate) async fn groups_now(account: &Account) -> Result<Vec<Group>, CloudError> {
    Ok(groups(account, Priority::Waking).await?.into(&mut Vec::new()))
}

async fn groups(account: &Account, priority: Priority) -> Result<List<Group>, CloudError> {
    let mut list = List::new(account, "/os-server-groups");
    loop {
        let path = format!("/os-server-groups?limit={GROUPS}&offset={}", list.all.len());
        let (Groups { all: some }, charge) = account.get(priority, Service::Compute, &path).await?;
        let is_last = some.len() < GROUPS;
        list.add(some, &charge, &path)?;
        if is_last {
            return Ok(list);
        }
    }
}

/// A cloud without routers has none.
async fn floating_ips(account: &Account, priority: Priority, path: &str) -> Result<List<FloatingIp>, CloudError> {
    let first = account.get::<FloatingIps>(priority, Service::Network, path).await;
    match first {
        Err(CallError::Rejected(no)) if no.status == StatusCode::NOT_FOUND && no.headers.contains_key(OWN) => {
            Ok(List::new(account, path))
        }
        first => rest(account, priority, Service::Network, path, first?).await,
    }
}

async fn pages<P: Page<Item: Marked>>(
    account: &Account,
    priority: Priority,
    service: Service,
    path: &str,
) -> Result<List<P::Item>, CloudError> {
    let first = account.get::<P>(priority, service, path).await?;
    rest(account, priority, service, path, first).await
}

/// Every page after the first. A page's link is a URL by a stranger: only its last item's ID is taken.
async fn rest<P: Page<Item: Marked>>(
    account: &Account,
    priority: Priority,
    service: Service,
    path: &str,
    (first, charge): (P, Charge),
) -> Result<List<P::Item>, CloudError> {
    let (items, mut more) = first.open();
    let mut list = List::new(account, path);
    list.add(items, &charge, path)?;
    drop(charge);
    loop {
        let Some(last) = list.all.last().filter(|_| more) else { return Ok(list) };
        let mark: String = url_encoded(last.marker());
        let sign = if path.contains('?') { '&' } else { '?' };
        let (page, charge) = account.get::<P>(priority, service, &format!("{path}{sign}marker={mark}")).await?;
        let (items, is_more) = page.open();
        more = is_more && !items.is_empty();
        list.add(items, &charge, path)?;
    }
}

/// A flavor's ID may have spaces and dots.
fn url_encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}
