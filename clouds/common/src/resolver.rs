//! Names of tenants, resolved to addresses that may be dialed.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use parking_lot::Mutex;
use tower::Service;

use crate::Dialer;

/// Hosts of one client whose addresses are known: a cloud's catalog names four that are used.
const MAX_HOSTS: usize = 16;
/// Most addresses of a name. With more, the name never counts as proven.
const MAX_RESOLVED: usize = 16;

/// Every address to which a client's name has been resolved: the owner of the name may change it between two requests.
#[derive(Clone, Debug, Default)]
pub struct Resolved(Arc<Mutex<Addresses>>);

#[derive(Debug, Default)]
struct Addresses {
    all: HashSet<IpAddr>,
    /// The one that has answered last.
    preferred: Option<IpAddr>,
}

impl Resolved {
    /// All of them, if there are between one and [`MAX_RESOLVED`].
    pub fn all(&self) -> Option<Vec<IpAddr>> {
        let Addresses { all, .. } = &*self.0.lock();
        (1..=MAX_RESOLVED).contains(&all.len()).then(|| all.iter().copied().collect())
    }

    pub fn add(&self, address: IpAddr) {
        let Addresses { all, .. } = &mut *self.0.lock();
        if all.len() <= MAX_RESOLVED {
            all.insert(address);
        }
    }

    /// The address that has answered, if one has.
    pub fn prefer(&self, address: Option<IpAddr>) {
        self.0.lock().preferred = address;
    }

    /// The one that has answered last.
    pub(crate) fn preferred(&self) -> Option<IpAddr> {
        self.0.lock().preferred
    }

    /// The address to dial: one, never several. A client that tries the next one when a port is closed shows a tenant,
    /// by the time it takes, which ports are open behind the controller.
    fn choose(&self, addresses: &[SocketAddr]) -> Option<SocketAddr> {
        let preferred = self.preferred();
        let known = addresses.iter().find(|address| preferred == Some(address.ip()));
        known.or_else(|| addresses.get(rand::random_range(0..addresses.len().max(1)))).copied()
    }
}

/// The system's resolver, whose every answer is checked.
#[derive(Clone, Debug)]
pub struct Resolver {
    names: GaiResolver,
    tenant: Arc<str>,
    dialer: Dialer,
    hosts: Arc<Mutex<HashMap<String, Resolved>>>,
}

impl Resolver {
    pub fn new(tenant: Arc<str>, dialer: Dialer) -> Self {
        Self { names: GaiResolver::new(), tenant, dialer, hosts: Arc::default() }
    }

    /// What it has resolved a host to, which is itself if it is an address.
    pub fn resolved(&self, host: &str) -> Resolved {
        let mut hosts = self.hosts.lock();
        if hosts.len() >= MAX_HOSTS && !hosts.contains_key(host) {
            hosts.clear();
        }
        let resolved = hosts.entry(host.to_owned()).or_default().clone();
        let _ = host.trim_matches(['[', ']']).parse().map(|address| resolved.add(address));
        resolved
    }
}

impl Service<Name> for Resolver {
    type Response = std::option::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.names.poll_ready(context)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (mut names, tenant) = (self.names.clone(), self.tenant.clone());
        let (dialer, seen) = (self.dialer.clone(), self.resolved(name.as_str()));
        Box::pin(async move {
            let permit = dialer.lookup(&tenant).await;
            // The thread outlives a connection that is given up, so the permit goes with the lookup.
            let lookup = tokio::spawn(async move {
                let found = names.call(name).await.map(Iterator::collect);
                drop(permit);
                found
            });
            let addresses: Vec<SocketAddr> = lookup.await.map_err(io::Error::other)??;
            for address in &addresses {
                seen.add(address.ip());
                dialer.check(address.ip()).map_err(|denied| io::Error::new(io::ErrorKind::PermissionDenied, denied))?;
            }
            Ok(seen.choose(&addresses).into_iter())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn resolved_addresses_are_checked_however_they_are_written() {
        for host in ["localhost", "127.1", "2130706433", "0x7f.1"] {
            let resolved = Resolver::new("tenant".into(), Dialer::default()).call(host.parse().unwrap()).await;
            let error = resolved.err().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{host}: {error}");
        }
        let loopback = Dialer::new(Vec::new(), true);
        let found = Resolver::new("tenant".into(), loopback).call("localhost".parse().unwrap()).await;
        assert_eq!(found.unwrap().count(), 1);
    }

    #[test]
    fn of_several_addresses_one_is_dialed_and_the_one_that_has_answered_is_kept() {
        let resolved = Resolved::default();
        let all: Vec<SocketAddr> = ["10.0.0.1:0", "10.0.0.2:0"].map(|address| address.parse().unwrap()).into();
        let chosen = |resolved: &Resolved| (0..100).filter_map(|_| resolved.choose(&all)).collect::<HashSet<_>>();
        assert_eq!(chosen(&resolved).len(), 2, "each gets its turn");
        resolved.prefer(Some(all[1].ip()));
        assert_eq!(chosen(&resolved), HashSet::from([all[1]]));
        resolved.prefer(None);
        assert_eq!((chosen(&resolved).len(), resolved.choose(&[])), (2, None));
    }
}
