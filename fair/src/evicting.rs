//! What clients of a port hold: connections, requests, memory of their bodies.
//!
//! At the limit, what makes way for a newcomer belongs to the client that holds the most, and the newcomer counts for
//! its own client: a client that holds no more than an equal part loses nothing to others. What is protected never
//! makes way. An unused connection makes way for every newcomer: a client with many addresses keeps no other client out
//! by connections that it does not use. A client is an IPv4 address or an IPv6 network of 64 bits.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::capacity::Usage;

/// How much there is, and what makes way for a newcomer.
#[derive(Clone, Copy, Debug)]
pub struct ClientCapacity {
    pub total: usize,
    /// Of one client; `None` is no limit of its own.
    pub per_client: Option<usize>,
    /// Right for what may be idle, such as connections: a permit that was never protected makes way for every newcomer,
    /// one whose protection has ended for the same client's next and for one of a client that holds as much. Otherwise
    /// only permits of clients that hold more make way.
    pub evicts_idle: bool,
}

/// A limit that makes room for a newcomer: see the top of this file.
#[derive(Debug)]
pub struct EvictingLimit {
    capacity: ClientCapacity,
    evicted: Counter,
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    usage: Usage<u128>,
    entries: HashMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    client: u128,
    weight: usize,
    /// What protects it: requests that are being answered.
    active: usize,
    /// Whether it was ever protected.
    used: bool,
    /// When its last protection ended; before the first one, when it was taken.
    since: Instant,
    evicted: Arc<Notify>,
}

/// The client of an address. A host of an IPv6 network has all addresses of the network at its choice.
fn client_of(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V6(address) => address.to_bits() & !u128::from(u64::MAX),
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
    }
}

impl State {
    /// What makes way for a newcomer of this client, which would hold this much.
    fn victim(&self, capacity: ClientCapacity, client: u128, own: usize) -> Option<u64> {
        let exceeds_own = capacity.per_client.is_some_and(|most| own > most);
        let load = |entry: &Entry| if entry.client == client { own } else { self.usage.of(&entry.client) };
        let yields = |entry: &Entry| match capacity.evicts_idle {
            true if exceeds_own => entry.client == client,
            true => load(entry) >= own,
            false => !exceeds_own && load(entry) > own,
        };
        let unused = || self.unused().filter(|(_, entry)| !exceeds_own || entry.client == client);
        if capacity.evicts_idle
            && let Some(id) = self.longest_unused(unused)
        {
            return Some(id);
        }
        let free = self.entries.iter().filter(|(_, entry)| entry.active == 0 && yields(entry));
        free.min_by_key(|(id, entry)| (Reverse(load(entry)), entry.used, entry.since, **id)).map(|(id, _)| *id)
    }

    fn unused(&self) -> impl Iterator<Item = (u64, &Entry)> {
        self.entries.iter().filter(|(_, entry)| !entry.used).map(|(id, entry)| (*id, entry))
    }

    /// The oldest of the client whose unused permits are the oldest, by the sum of the squares of their ages. Ages count
    /// more than numbers: a client that soon uses what it takes, several at once, loses nothing to many clients that do
    /// not. Numbers count, too: one client that ever takes many anew loses its own.
    fn longest_unused<'a, I: Iterator<Item = (u64, &'a Entry)>>(&self, unused: impl Fn() -> I) -> Option<u64> {
        let (now, mut ages) = (Instant::now(), HashMap::<u128, u128>::new());
        for (_, entry) in unused() {
            *ages.entry(entry.client).or_default() += now.duration_since(entry.since).as_micros().pow(2);
        }
        let order = |(id, entry): &(u64, &Entry)| {
            let age = ages.get(&entry.client).copied().unwrap_or_default();
            (Reverse((age, self.usage.of(&entry.client))), entry.since, *id)
        };
        unused().min_by_key(order).map(|(id, _)| id)
    }

    fn insert(&mut self, id: u64, entry: Entry) {
        self.usage.add(entry.client, entry.weight);
        self.entries.insert(id, entry);
    }

    fn remove(&mut self, id: u64) -> Option<Entry> {
        let entry = self.entries.remove(&id)?;
        self.usage.subtract(&entry.client, entry.weight);
        Some(entry)
    }
}

impl EvictingLimit {
    /// For what is never idle, and without a limit of its own for a client.
    pub fn of(total: usize) -> Arc<Self> {
        Self::new(ClientCapacity { total, per_client: None, evicts_idle: false }, Counter::default())
    }

    /// `evicted` counts what made way.
    pub fn new(capacity: ClientCapacity, evicted: Counter) -> Arc<Self> {
        Arc::new(Self { capacity, evicted, state: Mutex::default(), freed: Notify::new() })
    }

    /// A permit at once, if need be in place of others; `None` if there is neither room nor anything that makes way.
    pub fn try_acquire(self: &Arc<Self>, address: IpAddr, weight: usize) -> Option<EvictingPermit> {
        let (mut state, client) = (self.state.lock(), client_of(address));
        let ClientCapacity { total, per_client, .. } = self.capacity;
        let mut victims = Vec::new();
        loop {
            let own = state.usage.of(&client) + weight;
            if state.usage.total + weight <= total && per_client.is_none_or(|most| own <= most) {
                break;
            }
            let Some(victim) = state.victim(self.capacity, client, own) else {
                // What has made way is not enough.
                for (id, entry) in victims {
                    state.insert(id, entry);
                }
                return None;
            };
            victims.extend(state.remove(victim).map(|entry| (victim, entry)));
        }
        for (_, entry) in victims {
            entry.evicted.notify_one();
            self.evicted.inc();
        }
        let (id, evicted) = (state.next, Arc::new(Notify::new()));
        let entry =
            Entry { client, weight, active: 0, used: false, since: Instant::now(), evicted: Arc::clone(&evicted) };
        state.next += 1;
        state.insert(id, entry);
        Some(EvictingPermit { id, evicted, limit: Arc::clone(self) })
    }

    /// The same, and waits for so long until there is room.
    pub async fn acquire(
        self: &Arc<Self>,
        address: IpAddr,
        weight: usize,
        timeout: Duration,
    ) -> Option<EvictingPermit> {
        let deadline = Instant::now() + timeout;
        loop {
            let freed = self.freed.notified();
            if let Some(permit) = self.try_acquire(address, weight) {
                return Some(permit);
            }
            timeout_at(deadline, freed).await.ok()?;
        }
    }
}

/// A part of the capacity, until it is dropped or makes way.
#[derive(Debug)]
pub struct EvictingPermit {
    id: u64,
    evicted: Arc<Notify>,
    limit: Arc<EvictingLimit>,
}

impl EvictingPermit {
    /// Waits until it has made way for another one. One task may wait.
    pub async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// Protects it until as many calls of [`Self::release`], or its end.
    pub fn protect(&self) {
        if let Some(entry) = self.limit.state.lock().entries.get_mut(&self.id) {
            entry.active += 1;
            entry.used = true;
        }
    }

    /// Ends one protection.
    pub fn release(&self) {
        if let Some(entry) = self.limit.state.lock().entries.get_mut(&self.id) {
            entry.active = entry.active.saturating_sub(1);
            entry.since = Instant::now();
        }
        self.limit.freed.notify_waiters();
    }

    /// Since when nothing protects it; `None` while something does, and once it has made way.
    pub fn idle_since(&self) -> Option<Instant> {
        self.limit.state.lock().entries.get(&self.id).filter(|entry| entry.active == 0).map(|entry| entry.since)
    }
}

impl Drop for EvictingPermit {
    fn drop(&mut self) {
        self.limit.state.lock().remove(self.id);
        self.limit.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
