//! Bytes of what strangers wrote: shared by tenants, with a part reserved for each of their clusters.
//!
//! What is read is charged from its first byte until the value that was made of it is dropped.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::capacity::{Capacity, Usage};

/// How much memory there is, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct MemorySizes {
    /// What each consumer has for itself, however many others have filled what they share.
    pub reserved: Capacity,
    pub reserved_per_consumer: usize,
    /// What all share besides.
    pub shared: Capacity,
    pub shared_per_consumer: usize,
}

impl MemorySizes {
    /// For answers of clusters and clouds: a small cluster needs no more than is reserved for it.
    pub const ANSWERS: Self = Self {
        reserved: Capacity { total: 64 << 20, per_tenant: 32 << 20 },
        reserved_per_consumer: 256 << 10,
        shared: Capacity { total: 40 << 20, per_tenant: 24 << 20 },
        shared_per_consumer: (12 << 20) - (256 << 10),
    };

    /// For objects of the hub, which stay: ten thousand clusters of one namespace, with thirty conditions each, take three
    /// quarters of what it gets.
    pub const OBJECTS: Self = Self::of_tenants(Capacity { total: 512 << 20, per_tenant: 320 << 20 });

    /// Without limits for the consumers of a tenant.
    pub const fn of_tenants(shared: Capacity) -> Self {
        let reserved = Capacity { total: 0, per_tenant: 0 };
        Self { reserved, reserved_per_consumer: 0, shared, shared_per_consumer: usize::MAX }
    }
}

/// How long an answer waits for others to give back memory.
const WAIT_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes that are taken at once.
const BLOCK: usize = 4 << 10;

/// Memory that tenants share.
#[derive(Clone, Debug)]
pub struct MemoryLimit(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    sizes: MemorySizes,
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct State {
    reserved: Pool,
    shared: Pool,
}

/// Bytes in use of one capacity.
#[derive(Debug, Default)]
struct Pool {
    tenants: Usage<Arc<str>>,
    consumers: Usage<Arc<Consumer>>,
}

/// Who is charged: a spoke, a cloud account or a reader of the hub.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Consumer {
    /// Whom it belongs to: all consumers of one tenant share its part.
    pub tenant: Arc<str>,
    /// UID or name: all clients of one consumer share its part.
    pub id: String,
}

impl Consumer {
    pub fn new(tenant: &str, id: impl Into<String>) -> Self {
        Self { tenant: tenant.into(), id: id.into() }
    }
}

impl Default for MemoryLimit {
    fn default() -> Self {
        Self::new(MemorySizes::ANSWERS)
    }
}

impl MemoryLimit {
    pub fn new(sizes: MemorySizes) -> Self {
        Self(Arc::new(Inner { sizes, state: Mutex::default(), freed: Notify::default() }))
    }

    pub fn of(&self, consumer: Consumer) -> ConsumerMemory {
        ConsumerMemory { limit: self.clone(), consumer: Arc::new(consumer) }
    }

    /// Whether nothing is in use.
    pub fn is_free(&self) -> bool {
        let State { reserved, shared } = &*self.0.state.lock();
        [reserved, shared].iter().all(|pool| pool.tenants.by_holder.is_empty() && pool.consumers.by_holder.is_empty())
    }
}

/// The memory of one consumer.
#[derive(Clone, Debug)]
pub struct ConsumerMemory {
    limit: MemoryLimit,
    consumer: Arc<Consumer>,
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryFull {
    /// This consumer has filled its own part.
    #[error("the cluster's answers are too large together")]
    Consumer,
    /// All together have filled theirs, or its tenant has what is left to it.
    #[error("the answers of all clusters are too large together")]
    Shared,
}

impl ConsumerMemory {
    /// A charge of nothing yet.
    pub fn charge(&self) -> Charge {
        Charge { memory: self.clone(), used: 0, reserved: 0, shared: 0 }
    }
}

impl Pool {
    fn take(
        &mut self,
        capacity: Capacity,
        per_consumer: usize,
        consumer: &Arc<Consumer>,
        bytes: usize,
    ) -> Result<(), MemoryFull> {
        if self.consumers.of(consumer) + bytes > per_consumer {
            return Err(MemoryFull::Consumer);
        }
        if !capacity.allows(self.tenants.total, self.tenants.of(&consumer.tenant), bytes) {
            return Err(MemoryFull::Shared);
        }
        self.tenants.add(consumer.tenant.clone(), bytes);
        self.consumers.add(consumer.clone(), bytes);
        Ok(())
    }

    fn give_back(&mut self, consumer: &Arc<Consumer>, bytes: usize) {
        self.tenants.subtract(&consumer.tenant, bytes);
        self.consumers.subtract(consumer, bytes);
    }
}

/// Bytes that are in use until this is dropped.
#[derive(Debug)]
pub struct Charge {
    memory: ConsumerMemory,
    used: usize,
    reserved: usize,
    shared: usize,
}

impl Charge {
    /// Another one for the same consumer, of nothing yet.
    pub fn another(&self) -> Self {
        self.memory.charge()
    }

    pub fn used(&self) -> usize {
        self.used
    }

    /// Charges so many more.
    ///
    /// # Errors
    /// If there is no room; then nothing is charged.
    pub fn spend(&mut self, bytes: usize) -> Result<(), MemoryFull> {
        let used = self.used.saturating_add(bytes);
        let lacks = used.saturating_sub(self.reserved + self.shared);
        if lacks > 0 {
            self.take(lacks.next_multiple_of(BLOCK))?;
        }
        self.used = used;
        Ok(())
    }

    /// Charges so many less.
    pub fn refund(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes);
        let spare = (self.reserved + self.shared).saturating_sub(self.used.next_multiple_of(BLOCK));
        let shared = spare.min(self.shared);
        self.give_back(spare - shared, shared);
    }

    /// Takes over what another one charges for the same consumer.
    pub fn merge(&mut self, mut other: Self) {
        self.used += std::mem::take(&mut other.used);
        self.reserved += std::mem::take(&mut other.reserved);
        self.shared += std::mem::take(&mut other.shared);
    }

    /// Charges so many more, as soon as others have given back enough.
    ///
    /// # Errors
    /// If they do not within a second; then nothing is charged.
    pub async fn spend_soon(&mut self, bytes: usize) -> Result<(), MemoryFull> {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        let limit = self.memory.limit.clone();
        loop {
            let freed = limit.0.freed.notified();
            let Err(full) = self.spend(bytes) else { return Ok(()) };
            if timeout_at(deadline, freed).await.is_err() {
                return Err(full);
            }
        }
    }

    fn take(&mut self, bytes: usize) -> Result<(), MemoryFull> {
        let ConsumerMemory { limit, consumer } = &self.memory;
        let (sizes, mut state) = (&limit.0.sizes, limit.0.state.lock());
        if state.reserved.take(sizes.reserved, sizes.reserved_per_consumer, consumer, bytes).is_ok() {
            self.reserved += bytes;
        } else {
            state.shared.take(sizes.shared, sizes.shared_per_consumer, consumer, bytes)?;
            self.shared += bytes;
        }
        Ok(())
    }

    fn give_back(&mut self, reserved: usize, shared: usize) {
        if reserved + shared == 0 {
            return;
        }
        self.reserved -= reserved;
        self.shared -= shared;
        let ConsumerMemory { limit, consumer } = &self.memory;
        let mut state = limit.0.state.lock();
        state.reserved.give_back(consumer, reserved);
        state.shared.give_back(consumer, shared);
        drop(state);
        limit.0.freed.notify_waiters();
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.give_back(self.reserved, self.shared);
    }
}

/// A value that was read, and its charge.
#[derive(Debug)]
pub struct ChargedValue<T> {
    value: T,
    charge: Arc<Charge>,
}

/// Keeps a charge as long as parts of its value are in use.
pub type ChargeGuard = Arc<Charge>;

impl<T> ChargedValue<T> {
    pub fn new(value: T, charge: Charge) -> Self {
        Self { value, charge: Arc::new(charge) }
    }

    pub fn into_parts(self) -> (T, ChargeGuard) {
        (self.value, self.charge)
    }

    pub fn guard(&self) -> ChargeGuard {
        self.charge.clone()
    }

    /// Splits the value; each part keeps the whole charge.
    pub fn each<I>(self) -> impl Iterator<Item = ChargedValue<I>>
    where
        T: IntoIterator<Item = I>,
    {
        let charge = self.charge;
        self.value.into_iter().map(move |value| ChargedValue { value, charge: charge.clone() })
    }

    /// Makes something else of the value, which is not larger.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> ChargedValue<U> {
        ChargedValue { value: change(self.value), charge: self.charge }
    }
}

impl<T> Deref for ChargedValue<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: MemorySizes = MemorySizes::ANSWERS;
    const OWN: usize = SIZES.reserved_per_consumer;

    /// Takes all that a spoke may have, and says why it gets no more.
    fn fill(memory: &ConsumerMemory) -> (Charge, MemoryFull) {
        let mut charge = memory.charge();
        loop {
            if let Err(full) = charge.spend(64 << 10) {
                return (charge, full);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_spoke_over_its_share_fails_alone_and_a_small_one_never_waits_for_others() {
        let limit = MemoryLimit::default();
        let memory = |tenant: &str, spoke: usize| limit.of(Consumer::new(tenant, spoke.to_string()));
        let (first, full) = fill(&memory("a", 0));
        assert_eq!((first.used(), full), (SIZES.shared_per_consumer + OWN, MemoryFull::Consumer));
        assert_eq!(fill(&memory("a", 0)).0.used(), 0, "another client of the same spoke");
        assert!(memory("b", 0).charge().spend(8 << 20).is_ok(), "others are served");
        let others: Vec<_> = (1..4).map(|spoke| fill(&memory("a", spoke))).collect();
        assert_eq!(others[2].1, MemoryFull::Shared);
        let held: usize = first.used() + others.iter().map(|(charge, _)| charge.used()).sum::<usize>();
        assert_eq!(held, SIZES.shared.per_tenant + 4 * OWN, "of one tenant, whatever its spokes");
        let mut small = memory("a", 9).charge();
        assert_eq!((small.spend(OWN), small.spend(1)), (Ok(()), Err(MemoryFull::Shared)));
        assert_eq!((small.spend_soon(1).await, small.used()), (Err(MemoryFull::Shared), OWN));
        drop(first);
        assert_eq!((small.spend(1), small.spend_soon(BLOCK).await), (Ok(()), Ok(())));
        drop((small, others));
        assert!(limit.is_free(), "all of it is given back");
    }

    #[test]
    fn hostile_spokes_leave_others_their_own_part_and_have_an_end() {
        for spokes in [100, 1_000] {
            let limit = MemoryLimit::default();
            let memory = |tenant: usize, spoke: usize| limit.of(Consumer::new(&tenant.to_string(), spoke.to_string()));
            let hostile: Vec<_> = (0..spokes).map(|spoke| fill(&memory(spoke % 20, spoke)).0).collect();
            let held: usize = hostile.iter().map(Charge::used).sum();
            assert!(held <= SIZES.shared.total + SIZES.reserved.total, "{held}");
            assert!(memory(20, spokes).charge().spend(OWN).is_ok(), "{spokes}");
        }
    }

    #[test]
    fn what_is_refunded_or_merged_is_given_back_once() {
        let (limit, size) = (MemoryLimit::default(), 3 * OWN);
        let memory = limit.of(Consumer::new("a", "b"));
        let (mut one, mut other) = (memory.charge(), memory.charge());
        for charge in [&mut one, &mut other] {
            charge.spend(size).unwrap();
        }
        other.refund(size - 10);
        one.merge(other);
        assert_eq!(one.used(), size + 10);
        let in_use = |state: &State| (state.reserved.tenants.total, state.shared.tenants.total);
        assert_eq!(in_use(&limit.0.state.lock()), (0, size + BLOCK));
        let values: Vec<ChargedValue<u8>> = ChargedValue::new(vec![1, 2], one).each().collect();
        drop(values.into_iter().next());
        assert!(limit.is_free());
    }
}
