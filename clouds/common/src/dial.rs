//! Where the controller connects to. Kubeconfigs, overrides and the URLs of clouds belong to tenants, and the controller
//! may reach what they cannot: its own machine, the cloud's metadata service. So every address is checked when it is dialed.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;

use fair::{FairLimit, FairPermit};
use ipnet::IpNet;
use parking_lot::Mutex;

/// Most proven endpoints that are remembered. At the limit all are forgotten.
const MAX_ENDPOINTS: usize = 50_000;

/// Metadata services of clouds that are not in a denied range.
const METADATA_ADDRESSES: [IpAddr; 5] = [
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x23)),
    IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V4(std::net::Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(std::net::Ipv4Addr::new(100, 100, 100, 200)),
];

/// Name lookups at once. Each holds a thread, of which the process has 512, until a tenant's name server answers.
const MAX_LOOKUPS: usize = 64;
/// Of one tenant.
const MAX_LOOKUPS_OF_TENANT: usize = 16;

/// Calls to clouds of tenants at once: each connection reads up to 400 KB ahead.
const MAX_CALLS: usize = 64;
/// Of one tenant.
const MAX_CALLS_OF_TENANT: usize = 16;

/// Which addresses may be dialed, and which endpoints have proven who they are.
#[derive(Clone, Debug)]
pub struct Dialer(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    denied: Vec<IpNet>,
    allow_loopback: bool,
    /// Endpoints that have proven who they are: see [`crate::Endpoint`].
    proven: Mutex<HashSet<u64>>,
    lookups: Arc<FairLimit>,
    calls: Arc<FairLimit>,
}

impl Default for Dialer {
    fn default() -> Self {
        Self::new(Vec::new(), false)
    }
}

/// An address that is not dialed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address} is {what}, which the controller does not connect to")]
pub struct Denied {
    address: IpAddr,
    what: String,
}

impl Dialer {
    /// Denies these networks besides what is always denied. `allow_loopback` is for tests.
    pub fn new(denied: Vec<IpNet>, allow_loopback: bool) -> Self {
        let lookups = FairLimit::new(MAX_LOOKUPS, MAX_LOOKUPS_OF_TENANT);
        let calls = FairLimit::new(MAX_CALLS, MAX_CALLS_OF_TENANT);
        Self(Arc::new(Inner { denied, allow_loopback, proven: Mutex::default(), lookups, calls }))
    }

    /// Whether an address may be dialed.
    pub fn check(&self, address: IpAddr) -> Result<(), Denied> {
        let refuse = |what: &str| Err(Denied { address, what: what.to_owned() });
        let inner = embedded(address);
        match inner {
            _ if METADATA_ADDRESSES.contains(&inner) => return refuse("a cloud's metadata service"),
            _ if inner.is_loopback() && !self.0.allow_loopback => return refuse("a loopback address"),
            _ if inner.is_multicast() => return refuse("a multicast address"),
            IpAddr::V4(v4) if v4.octets()[0] == 0 => return refuse("an unspecified address"),
            IpAddr::V4(v4) if v4.is_link_local() => return refuse("a link-local address"),
            IpAddr::V4(v4) if v4.is_broadcast() => return refuse("a broadcast address"),
            IpAddr::V6(v6) if v6.is_unspecified() => return refuse("an unspecified address"),
            IpAddr::V6(v6) if v6.is_unicast_link_local() => return refuse("a link-local address"),
            IpAddr::V6(v6) if is_translated(v6) => return refuse("an address that is translated to another one"),
            _ => {}
        }
        match self.0.denied.iter().find(|net| net.contains(&inner) || net.contains(&address)) {
            Some(net) => refuse(&format!("in {net}")),
            None => Ok(()),
        }
    }

    /// The host of a URL if it is an address, which no resolver sees.
    pub fn check_host(&self, host: &str) -> Result<(), Denied> {
        let literal = IpAddr::from_str(host.trim_matches(['[', ']']));
        literal.map_or(Ok(()), |address| self.check(address))
    }

    /// A call to a cloud of this tenant, which lasts until it is dropped. Tenants are served in turn.
    pub async fn call(&self, tenant: &str) -> FairPermit {
        self.0.calls.acquire(tenant).await
    }

    /// A lookup of a name for this tenant, which lasts until it is dropped.
    pub(crate) async fn lookup(&self, tenant: &str) -> FairPermit {
        self.0.lookups.acquire(tenant).await
    }

    /// Whether this endpoint has proven who it is.
    pub fn is_proven(&self, endpoint: u64) -> bool {
        self.0.proven.lock().contains(&endpoint)
    }

    pub fn prove(&self, endpoint: u64) {
        let mut proven = self.0.proven.lock();
        if proven.len() >= MAX_ENDPOINTS {
            proven.clear();
        }
        proven.insert(endpoint);
    }
}

/// Whether a gateway of the network makes another address of it: 6to4, Teredo, NAT64 of the network's own, and SIIT.
fn is_translated(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    segments[0] == 0x2002
        || segments[..2] == [0x2001, 0]
        || segments[..3] == [0x64, 0xff9b, 1]
        || segments[..6] == [0, 0, 0, 0, 0xffff, 0]
}

/// The IPv4 address that an IPv6 address leads to: mapped, compatible, or by NAT64.
fn embedded(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    let segments = v6.segments();
    let nat64 = segments[..6] == [0x64, 0xff9b, 0, 0, 0, 0];
    let compatible = segments[..6] == [0; 6] && segments[6] != 0;
    if nat64 || compatible || v6.to_ipv4_mapped().is_some() {
        let [.., a, b, c, d] = v6.octets();
        return IpAddr::from([a, b, c, d]);
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(dialer: &Dialer, address: &str) -> Option<String> {
        dialer.check(address.parse().unwrap()).err().map(|denied| denied.what)
    }

    #[test]
    fn addresses_of_this_machine_and_of_metadata_services_are_denied() {
        let dialer = Dialer::new(vec!["10.96.0.0/12".parse().unwrap(), "fd12::/16".parse().unwrap()], false);
        for (address, what) in [
            ("127.0.0.1", Some("a loopback address")),
            ("127.8.9.1", Some("a loopback address")),
            ("::1", Some("a loopback address")),
            ("::ffff:127.0.0.1", Some("a loopback address")),
            ("::127.0.0.1", Some("a loopback address")),
            ("64:ff9b::7f00:1", Some("a loopback address")),
            ("0.0.0.0", Some("an unspecified address")),
            ("0.1.2.3", Some("an unspecified address")),
            ("::", Some("an unspecified address")),
            ("::ffff:0.0.0.0", Some("an unspecified address")),
            ("169.254.1.1", Some("a link-local address")),
            ("169.254.169.254", Some("a link-local address")),
            ("::ffff:169.254.169.254", Some("a link-local address")),
            ("64:ff9b::a9fe:a9fe", Some("a link-local address")),
            ("fe80::1", Some("a link-local address")),
            ("224.0.0.1", Some("a multicast address")),
            ("ff02::1", Some("a multicast address")),
            ("::ffff:224.0.0.1", Some("a multicast address")),
            ("255.255.255.255", Some("a broadcast address")),
            ("fd00:ec2::254", Some("a cloud's metadata service")),
            ("168.63.129.16", Some("a cloud's metadata service")),
            ("::ffff:168.63.129.16", Some("a cloud's metadata service")),
            ("100.100.100.200", Some("a cloud's metadata service")),
            ("fd00:ec2::23", Some("a cloud's metadata service")),
            ("192.0.0.192", Some("a cloud's metadata service")),
            ("2002:a9fe:a9fe::1", Some("an address that is translated to another one")),
            ("2001:0:1::1", Some("an address that is translated to another one")),
            ("64:ff9b:1::a9fe:a9fe", Some("an address that is translated to another one")),
            ("64:ff9b:1:a9fe:a9:fe00::", Some("an address that is translated to another one")),
            ("::ffff:0:169.254.169.254", Some("an address that is translated to another one")),
            ("10.96.0.1", Some("in 10.96.0.0/12")),
            ("::ffff:10.96.0.1", Some("in 10.96.0.0/12")),
            ("fd12::1", Some("in fd12::/16")),
            // Private clusters and hosted control planes.
            ("10.0.0.1", None),
            ("172.16.0.1", None),
            ("192.168.0.1", None),
            ("100.64.0.1", None),
            ("fd00::1", None),
            ("203.0.113.1", None),
            ("2001:db8::1", None),
        ] {
            assert_eq!(denied(&dialer, address).as_deref(), what, "{address}");
        }
        assert_eq!(denied(&Dialer::new(Vec::new(), true), "127.0.0.1"), None);
        assert!(denied(&Dialer::new(Vec::new(), true), "169.254.169.254").is_some());
        assert!(Dialer::default().check_host("[::1]").is_err() && Dialer::default().check_host("api.demo").is_ok());
    }
}
