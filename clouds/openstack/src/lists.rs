//! The lists of a project, page by page.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cloud_common::{Charge, ListBatcher};
use cloud_http::{CallError, StatusCode};
use futures::FutureExt;
use serde::de::DeserializeOwned;
use shared::cloud::{CloudError, CloudErrorKind, Priority};
use tokio::time::timeout;

use crate::account::Account;
use crate::keystone::Service;
use crate::names::REQUEST_ID_HEADER;
use crate::pages::{HasMarker, Page};
use crate::project::{Project, Surroundings};
use crate::wire::{Flavor, FloatingIp, Group, Image, KeyPair, Network, Port, Server};

const MAX_ENTRIES: usize = 10_000;

/// Server groups of one call.
const GROUPS_PER_PAGE: usize = 100;

const SNAPSHOT_TIMEOUT: Duration = Duration::from_mins(1);

/// How long flavors, networks and key pairs are cached.
const SURROUNDINGS_TTL: Duration = Duration::from_mins(1);

/// Lists a project once for everybody who asks at the same time.
pub(crate) fn lists(account: &Arc<Account>) -> ListBatcher<(), Arc<Project>> {
    let account = account.clone();
    ListBatcher::new(usize::MAX, Duration::ZERO, move |_, priority| {
        let account = account.clone();
        async move {
            let late =
                |_| CloudError::new(CloudErrorKind::Unavailable, "the lists of the project take more than a minute");
            let project = timeout(SNAPSHOT_TIMEOUT, list_project(&account, priority).boxed()).await.map_err(late)??;
            let project = Arc::new(project);
            account.keep(&project);
            Ok(project)
        }
        .boxed()
    })
}

/// Five lists at once, all or none: nothing must seem to be gone.
pub(crate) async fn list_project(account: &Account, priority: Priority) -> Result<Project, CloudError> {
    let begun = Instant::now();
    let session = account.session().await?;
    let (id, version) = (session.project.clone(), session.version);
    let (ports, ips) = (format!("/ports?project_id={id}&limit=1000"), format!("/floatingips?project_id={id}"));
    let images = format!("/images?owner={id}&limit=100");
    let of_network = async {
        let ports = pages::<Port>(account, priority, Service::Network, &ports).await?;
        // The ports came from Neutron, so a 404 here is Neutron's own.
        Ok((ports, floating_ips(account, priority, &ips).await?))
    };
    let (surroundings, servers, groups, (ports, floating_ips), images) = futures::try_join!(
        surroundings(account, priority),
        // With a limit, Nova omits the servers of a cell that does not answer.
        pages::<Server>(account, priority, Service::Compute, "/servers/detail"),
        groups(account, priority),
        of_network,
        pages::<Image>(account, priority, Service::Image, &images),
    )?;
    let mut charges = Vec::new();
    let (servers, groups, ports) = (servers.into(&mut charges), groups.into(&mut charges), ports.into(&mut charges));
    let (floating_ips, images) = (floating_ips.into(&mut charges), images.into(&mut charges));
    Ok(Project { id, begun, version, servers, ports, floating_ips, images, groups, surroundings, charges })
}

/// Flavors, networks and key pairs, listed once in a while.
async fn surroundings(account: &Account, priority: Priority) -> Result<Arc<Surroundings>, CloudError> {
    let kept = account.surroundings.lock().clone();
    if let Some((_, known)) = kept.filter(|(at, _)| at.elapsed() < SURROUNDINGS_TTL) {
        return Ok(known);
    }
    let found = Arc::new(list_surroundings(account, priority).await?);
    *account.surroundings.lock() = Some((Instant::now(), found.clone()));
    Ok(found)
}

async fn list_surroundings(account: &Account, priority: Priority) -> Result<Surroundings, CloudError> {
    let networks = format!("/networks?project_id={}&fields=id&fields=project_id", account.session().await?.project);
    let (flavors, networks, keys) = futures::try_join!(
        pages::<Flavor>(account, priority, Service::Compute, "/flavors/detail?limit=1000"),
        pages::<Network>(account, priority, Service::Network, &networks),
        pages::<KeyPair>(account, priority, Service::Compute, "/os-keypairs"),
    )?;
    let mut charges = Vec::new();
    let (flavors, networks, keys) = (flavors.into(&mut charges), networks.into(&mut charges), keys.into(&mut charges));
    Ok(Surroundings { flavors, networks, keys, charges })
}

/// A list that is read page by page, and what it is charged.
struct List<T> {
    all: Vec<T>,
    charge: Charge,
}

impl<T: HasMarker> List<T> {
    /// A list has its own part of the memory, so that one is left for answers.
    fn new(account: &Account, path: &str) -> Self {
        Self { all: Vec::new(), charge: account.charge(path) }
    }

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
        if self.all.len() > MAX_ENTRIES {
            return failed(CloudErrorKind::Invalid, &format!("than {MAX_ENTRIES} entries"));
        }
        Ok(())
    }

    /// The list without duplicate IDs: what is built for each duplicate would not be charged.
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
    let mut list = List::<Group>::new(account, "/os-server-groups");
    loop {
        let path = format!("/os-server-groups?limit={GROUPS_PER_PAGE}&offset={}", list.all.len());
        let (page, charge) = account.get::<Page<Group>>(priority, Service::Compute, &path).await?;
        let some = page.items;
        // Nova may be configured to return fewer than what was asked for (`[api] max_limit`), and others know no offset.
        let is_last = some.iter().all(|group| list.all.iter().any(|one| one.id == group.id));
        list.add(some, &charge, &path)?;
        if is_last {
            return Ok(list);
        }
    }
}

/// A cloud without routers has none.
async fn floating_ips(account: &Account, priority: Priority, path: &str) -> Result<List<FloatingIp>, CloudError> {
    let first = account.get::<Page<FloatingIp>>(priority, Service::Network, path).await;
    match first {
        Err(CallError::Rejected(no))
            if no.status == StatusCode::NOT_FOUND && no.headers.contains_key(REQUEST_ID_HEADER) =>
        {
            Ok(List::new(account, path))
        }
        first => rest(account, priority, Service::Network, path, first?).await,
    }
}

async fn pages<T: DeserializeOwned + HasMarker>(
    account: &Account,
    priority: Priority,
    service: Service,
    path: &str,
) -> Result<List<T>, CloudError> {
    let first = account.get::<Page<T>>(priority, service, path).await?;
    rest(account, priority, service, path, first).await
}

/// Every page after the first. A page's link is a URL by a stranger: only its last item's ID is taken.
async fn rest<T: DeserializeOwned + HasMarker>(
    account: &Account,
    priority: Priority,
    service: Service,
    path: &str,
    (first, charge): (Page<T>, Charge),
) -> Result<List<T>, CloudError> {
    let (mut more, mut list) = (first.has_next(), List::new(account, path));
    list.add(first.items, &charge, path)?;
    drop(charge);
    loop {
        let Some(last) = list.all.last().filter(|_| more) else { return Ok(list) };
        let mark: String = url_encoded(last.marker());
        let sign = if path.contains('?') { '&' } else { '?' };
        let (page, charge) = account.get::<Page<T>>(priority, service, &format!("{path}{sign}marker={mark}")).await?;
        more = page.has_next() && !page.items.is_empty();
        list.add(page.items, &charge, path)?;
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
