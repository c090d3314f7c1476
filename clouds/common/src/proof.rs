//! What is said of an endpoint that a tenant chooses, until it has proven who it is. A more exact word, or an earlier one,
//! would let the tenant scan the network behind the controller, or read what services there answer.
//!
//! | endpoint | is proven when | until then |
//! |---|---|---|
//! | a spoke | it has answered over TLS with the CA of its kubeconfig | [`Discretion::SPOKE`] |
//! | a cloud | it has given a token, or a well-formed answer to a call that carries one | [`Discretion::CLOUD`] |
//!
//! From then on its failures are named in their own words.

use std::hash::{BuildHasher as _, Hash, RandomState};
use std::net::IpAddr;
use std::sync::LazyLock;
use std::time::Duration;

use crate::{Dialer, Resolved};

/// What any failure of an endpoint is called, and when.
#[derive(Clone, Copy, Debug)]
pub struct Discretion {
    /// The words: the likely causes, whichever it is.
    pub words: &'static str,
    /// How long after it was begun an attempt fails: longer than its deadlines.
    pub after: Duration,
}

impl Discretion {
    /// A connection takes 3 s at most.
    pub const SPOKE: Self =
        Self { words: "no connection with this kubeconfig has succeeded yet", after: Duration::from_millis(3_200) };
    /// An answer takes 10 s to begin.
    pub const CLOUD: Self = Self {
        words: "it has accepted no login yet: check URL, network, certificate, user, password and project",
        after: Duration::from_secs(15),
    };
}

/// An endpoint, and by what the other side proves who it is.
#[derive(Clone, Debug)]
pub struct Endpoint {
    identity: u64,
    resolved: Resolved,
}

impl Endpoint {
    /// What is connected to, by the addresses that its name has had.
    pub fn new(identity: &impl Hash, resolved: Resolved) -> Self {
        Self { identity: KEYS.hash_one(identity), resolved }
    }

    /// The same at one address: a name belongs to a tenant, who may have it lead elsewhere.
    pub fn at(&self, address: IpAddr) -> u64 {
        KEYS.hash_one((self.identity, address))
    }

    /// Records the address that has answered and proven its identity; `None` if no address has answered.
    pub fn answered(&self, dialer: &Dialer, by: Option<IpAddr>) {
        self.resolved.prefer(by);
        if let Some(by) = by {
            dialer.prove(self.at(by));
        }
    }

    /// Whether that is so at the address that has answered last, and is dialed next.
    pub fn is_expected(&self, dialer: &Dialer) -> bool {
        self.resolved.preferred().is_some_and(|address| dialer.is_proven(self.at(address)))
    }

    /// Whether that is so at every address that its name has had, if that is known.
    pub fn is_proven(&self, dialer: &Dialer) -> bool {
        let addresses = self.resolved.all();
        addresses.is_some_and(|all| all.into_iter().all(|address| dialer.is_proven(self.at(address))))
    }
}

/// Without the keys of this process a tenant could look for an endpoint with the hash of one that is proven.
static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

#[cfg(test)]
mod tests {
    use std::hash::{DefaultHasher, Hasher as _};

    use super::*;

    #[test]
    fn nobody_outside_can_compute_which_endpoints_are_alike() {
        let mut known = DefaultHasher::new();
        "https://k".hash(&mut known);
        let endpoint = |url: &str| Endpoint::new(&url, Resolved::default()).identity;
        assert_eq!(endpoint("https://k"), endpoint("https://k"));
        assert_ne!(endpoint("https://k"), known.finish());
    }
}
