//! The open connections of a port, and which one makes way for another.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::metrics::ConnectionMetrics;

/// Connection limits of a port.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Concurrent connections. One more closes the one that has been idle for the longest time.
    pub connections: usize,
    /// The same for one client address; `None` is no limit. API servers may share an address.
    pub per_client: Option<usize>,
    /// How long a connection may go without a request.
    pub idle: Duration,
}

/// How long a new connection waits for another one to finish if none is idle.
const ADMIT_TIMEOUT: Duration = Duration::from_secs(1);
/// Evicted connections that may still be closing. One more is dropped without a farewell.
const MAX_CLOSING: usize = 64;

/// The connections of one port.
#[derive(Debug)]
pub(crate) struct Connections {
    limits: Limits,
    metrics: ConnectionMetrics,
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    open: HashMap<u64, Entry>,
    /// Evicted, oldest first.
    closing: Vec<(u64, Entry)>,
}

#[derive(Debug)]
struct Entry {
    client: IpAddr,
    /// Requests that are being answered.
    active: usize,
    /// Whether it has had a request.
    used: bool,
    /// When the last request ended; before the first one, when it was accepted.
    since: Instant,
    signals: Arc<Signals>,
}

/// What a connection is asked to do.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    /// Finish what has begun, and close.
    pub(crate) close: Notify,
    /// Close at once.
    pub(crate) abort: Notify,
}

enum Admission {
    Admitted(u64, Arc<Signals>),
    Busy,
}

impl State {
    /// The connection that makes way: one without any request before one with requests, then the one idle for the longest time.
    fn victim(&self, client: Option<IpAddr>) -> Option<u64> {
        let of = |entry: &Entry| entry.active == 0 && client.is_none_or(|client| entry.client == client);
        let idle = self.open.iter().filter(|(_, entry)| of(entry));
        idle.min_by_key(|(id, entry)| (entry.used, entry.since, **id)).map(|(id, _)| *id)
    }

    fn evict(&mut self, id: u64) {
        let Some(entry) = self.open.remove(&id) else { return };
        entry.signals.close.notify_one();
        self.closing.push((id, entry));
        // A request may have begun after the choice.
        let aborted = (self.closing.len() > MAX_CLOSING).then(|| self.closing.iter().position(|(_, e)| e.active == 0));
        if let Some(at) = aborted.flatten() {
            self.closing.remove(at).1.signals.abort.notify_one();
        }
    }

    fn entry(&mut self, id: u64) -> Option<&mut Entry> {
        let closing = self.closing.iter_mut().find(|(closing, _)| *closing == id).map(|(_, entry)| entry);
        self.open.get_mut(&id).or(closing)
    }
}

impl Connections {
    pub(crate) fn new(limits: Limits, metrics: ConnectionMetrics) -> Arc<Self> {
        Arc::new(Self { limits, metrics, state: Mutex::default(), freed: Notify::new() })
    }

    /// Admits a connection, if need be in place of an idle one. `None` if all are in use and none finishes within a second.
    pub(crate) async fn admit(self: &Arc<Self>, client: IpAddr) -> Option<Slot> {
        let deadline = Instant::now() + ADMIT_TIMEOUT;
        loop {
            let freed = self.freed.notified();
            if let Admission::Admitted(id, signals) = self.try_admit(client) {
                return Some(Slot { id, signals, connections: Arc::clone(self) });
            }
            if timeout_at(deadline, freed).await.is_err() {
                self.metrics.refused.inc();
                return None;
            }
        }
    }

    fn try_admit(&self, client: IpAddr) -> Admission {
        let mut state = self.lock();
        if let Some(most) = self.limits.per_client
            && state.open.values().filter(|entry| entry.client == client).count() >= most
            && !self.evict_one(&mut state, Some(client))
        {
            return Admission::Busy;
        }
        if state.open.len() >= self.limits.connections && !self.evict_one(&mut state, None) {
            return Admission::Busy;
        }
        let (id, signals) = (state.next, Arc::new(Signals::default()));
        state.next += 1;
        let entry = Entry { client, active: 0, used: false, since: Instant::now(), signals: Arc::clone(&signals) };
        state.open.insert(id, entry);
        self.metrics.open.inc();
        Admission::Admitted(id, signals)
    }

    fn evict_one(&self, state: &mut State, client: Option<IpAddr>) -> bool {
        let Some(victim) = state.victim(client) else { return false };
        state.evict(victim);
        self.metrics.evicted.inc();
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one connection. It is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    id: u64,
    pub(crate) signals: Arc<Signals>,
    connections: Arc<Connections>,
}

impl Slot {
    /// A request has begun. It ends when the guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> Active {
        if let Some(entry) = self.connections.lock().entry(self.id) {
            entry.active += 1;
            entry.used = true;
        }
        Active(Arc::clone(self))
    }

    /// Since when no request is being answered; `None` while one is.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let mut state = self.connections.lock();
        state.entry(self.id).map_or(Some(Instant::now()), |entry| (entry.active == 0).then_some(entry.since))
    }

    /// How long it may be idle.
    pub(crate) fn patience(&self) -> Duration {
        self.connections.limits.idle
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.connections.lock();
        if state.open.remove(&self.id).is_none() {
            state.closing.retain(|(id, _)| *id != self.id);
        }
        drop(state);
        self.connections.metrics.open.dec();
        self.connections.freed.notify_waiters();
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct Active(Arc<Slot>);

impl Drop for Active {
    fn drop(&mut self) {
        if let Some(entry) = self.0.connections.lock().entry(self.0.id) {
            entry.active -= 1;
            entry.since = Instant::now();
        }
        self.0.connections.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::time::sleep;

    use super::*;

    const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const TWO: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

    fn connections(connections: usize, per_client: Option<usize>) -> Arc<Connections> {
        Connections::new(
            Limits { connections, per_client, idle: Duration::from_secs(10) },
            ConnectionMetrics::default(),
        )
    }

    async fn admit(connections: &Arc<Connections>, client: IpAddr) -> Option<Arc<Slot>> {
        sleep(Duration::from_millis(1)).await;
        connections.admit(client).await.map(Arc::new)
    }

    fn is_open(slot: &Slot) -> bool {
        slot.connections.lock().open.contains_key(&slot.id)
    }

    #[tokio::test(start_paused = true)]
    async fn the_connection_idle_for_the_longest_time_makes_way() {
        let table = connections(3, None);
        let (first, busy, third) =
            (admit(&table, ONE).await.unwrap(), admit(&table, ONE).await.unwrap(), admit(&table, ONE).await.unwrap());
        let _request = busy.begin();
        sleep(Duration::from_millis(1)).await;
        drop(first.begin());
        let fourth = admit(&table, TWO).await.unwrap();
        assert!(!is_open(&third) && is_open(&first) && is_open(&busy), "the one without a request goes first");
        let _another = fourth.begin();
        let fifth = admit(&table, TWO).await.unwrap();
        assert!(!is_open(&first) && is_open(&busy) && is_open(&fourth));
        assert!(fourth.idle_since().is_none() && fifth.idle_since().is_some());
        assert_eq!((table.metrics.evicted.get(), table.metrics.refused.get()), (2, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_in_use_is_never_closed_for_another() {
        let table = connections(2, None);
        let (first, second) = (admit(&table, ONE).await.unwrap(), admit(&table, ONE).await.unwrap());
        let (request, _other) = (first.begin(), second.begin());
        let began = Instant::now();
        assert!(admit(&table, TWO).await.is_none());
        assert!(began.elapsed() >= ADMIT_TIMEOUT && table.metrics.refused.get() == 1);
        let waiting = admit(&table, TWO);
        let ends = async {
            sleep(Duration::from_millis(500)).await;
            drop(request);
        };
        let (admitted, ()) = tokio::join!(waiting, ends);
        assert!(admitted.is_some() && !is_open(&first), "once a request ends, its connection makes way");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_above_its_own_limit_closes_its_own_connections() {
        let table = connections(10, Some(2));
        let other = admit(&table, TWO).await.unwrap();
        let first = admit(&table, ONE).await.unwrap();
        let second = admit(&table, ONE).await.unwrap();
        let third = admit(&table, ONE).await.unwrap();
        assert!(!is_open(&first) && is_open(&second) && is_open(&third) && is_open(&other));
        let (_a, _b) = (second.begin(), third.begin());
        assert!(admit(&table, ONE).await.is_none());
        assert!(admit(&table, TWO).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn evicted_connections_are_few_and_give_everything_back() {
        let table = connections(1, None);
        let mut kept = Vec::new();
        for _ in 0..MAX_CLOSING + 10 {
            kept.push(admit(&table, ONE).await.unwrap());
        }
        assert_eq!(table.lock().closing.len(), MAX_CLOSING);
        let aborted = tokio::time::timeout(Duration::from_millis(1), kept[0].signals.abort.notified()).await;
        assert!(aborted.is_ok(), "the oldest is dropped at once");
        drop(kept);
        assert!(table.lock().closing.is_empty() && table.lock().open.is_empty());
        assert_eq!(table.metrics.open.get(), 0);
    }
}
