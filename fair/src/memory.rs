//! Memory for what strangers wrote: shared by tenants, with a part of it for each of their clusters.
//!
//! What is read is charged from its first byte until the value that was made of it is dropped.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::may;

/// How memory is shared, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// What all share, besides what each cluster has for itself.
    pub all: usize,
    /// Of that, what one tenant gets while no other has any.
    pub of_tenant: usize,
    /// What one cluster gets.
    pub one: usize,
    /// What each cluster has for itself, however many others have filled what they share.
    pub own: usize,
    /// What clusters have for themselves, together, and of one tenant while no other has any.
    pub all_own: [usize; 2],
}

impl Sizes {
    /// For answers of clusters and clouds: a small cluster needs no more than it has for itself.
    pub const ANSWERS: Self =
        Self { all: 40 << 20, of_tenant: 24 << 20, one: 12 << 20, own: 256 << 10, all_own: [64 << 20, 32 << 20] };
    /// For objects of the hub, which stay: ten thousand clusters of one namespace, with thirty conditions each, take three
    /// quarters of what it gets.
    pub const OBJECTS: Self = Self { all: 512 << 20, of_tenant: 320 << 20, one: usize::MAX, own: 0, all_own: [0, 0] };
}
/// How long an answer waits for others to be done with.
const TURN_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes that are taken at once.
const BLOCK: usize = 4 << 10;

/// Memory that tenants share.
#[derive(Clone, Debug)]
pub struct Memory(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    sizes: Sizes,
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct State {
    all: Use,
    tenants: HashMap<Arc<str>, Use>,
    spokes: HashMap<Arc<Whose>, Use>,
}

/// Bytes in use: of what each spoke has for itself, and of what all share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Use {
    own: usize,
    shared: usize,
}

/// Whose answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Whose {
    /// Whom the spoke belongs to: clusters of one tenant share its part.
    pub tenant: Arc<str>,
    /// The spoke, by the UID or name of its object. All clients of it share its part.
    pub spoke: String,
}

impl Whose {
    /// A spoke of a tenant.
    pub fn new(tenant: &str, spoke: impl Into<String>) -> Self {
        Self { tenant: tenant.into(), spoke: spoke.into() }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(Sizes::ANSWERS)
    }
}

impl Memory {
    /// Nothing is in use.
    pub fn new(sizes: Sizes) -> Self {
        Self(Arc::new(Pool { sizes, state: Mutex::default(), freed: Notify::default() }))
    }

    /// The part of a cluster.
    pub fn share(&self, whose: Whose) -> Share {
        Share { memory: self.clone(), whose: Arc::new(whose) }
    }
}

impl Memory {
    /// Whether nothing is in use.
    pub fn is_free(&self) -> bool {
        let state = self.0.state.lock();
        state.all == Use::default() && state.tenants.is_empty() && state.spokes.is_empty()
    }
}

/// The memory for the answers of one spoke.
#[derive(Clone, Debug)]
pub struct Share {
    memory: Memory,
    whose: Arc<Whose>,
}

/// There is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// This spoke has filled its part.
    #[error("the cluster's answers are too large together")]
    One,
    /// All together have filled theirs, or its tenant has what is left to it.
    #[error("the answers of all clusters are too large together")]
    All,
}

impl Share {
    /// Charges nothing yet.
    pub fn charge(&self) -> Charge {
        Charge { share: self.clone(), used: 0, own: 0, shared: 0 }
    }
}

impl State {
    fn take(&mut self, sizes: &Sizes, whose: &Arc<Whose>, bytes: usize) -> Result<Use, Full> {
        let spoke = self.spokes.get(whose).copied().unwrap_or_default();
        let tenant = self.tenants.get(&whose.tenant).copied().unwrap_or_default();
        let [all_own, own_of_tenant] = sizes.all_own;
        let has_own = spoke.own + bytes <= sizes.own && may(all_own, own_of_tenant, self.all.own, tenant.own, bytes);
        let taken = if has_own { Use { own: bytes, shared: 0 } } else { Use { own: 0, shared: bytes } };
        if taken.shared > 0 {
            if spoke.shared + bytes > sizes.one - sizes.own {
                return Err(Full::One);
            }
            if !may(sizes.all, sizes.of_tenant, self.all.shared, tenant.shared, bytes) {
                return Err(Full::All);
            }
        }
        self.all.add(taken);
        self.tenants.entry(whose.tenant.clone()).or_default().add(taken);
        self.spokes.entry(whose.clone()).or_default().add(taken);
        Ok(taken)
    }

    fn give_back(&mut self, whose: &Arc<Whose>, given: Use) {
        self.all.subtract(given);
        if self.tenants.get_mut(&whose.tenant).is_some_and(|tenant| tenant.subtract(given)) {
            self.tenants.remove(&whose.tenant);
        }
        if self.spokes.get_mut(whose).is_some_and(|spoke| spoke.subtract(given)) {
            self.spokes.remove(whose);
        }
    }
}

impl Use {
    fn add(&mut self, more: Self) {
        self.own += more.own;
        self.shared += more.shared;
    }

    /// Returns whether nothing is left.
    fn subtract(&mut self, less: Self) -> bool {
        self.own = self.own.saturating_sub(less.own);
        self.shared = self.shared.saturating_sub(less.shared);
        *self == Self::default()
    }
}

/// Bytes that are in use until this is dropped.
#[derive(Debug)]
pub struct Charge {
    share: Share,
    used: usize,
    own: usize,
    shared: usize,
}

impl Charge {
    /// Another one for the same spoke, of nothing yet.
    pub fn another(&self) -> Self {
        self.share.charge()
    }

    /// Bytes that are charged.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Charges so many more.
    ///
    /// # Errors
    /// If there is no room; then nothing is charged.
    pub fn spend(&mut self, bytes: usize) -> Result<(), Full> {
        let used = self.used.saturating_add(bytes);
        let lacks = used.saturating_sub(self.own + self.shared);
        if lacks > 0 {
            self.take(lacks.next_multiple_of(BLOCK))?;
        }
        self.used = used;
        Ok(())
    }

    /// Charges so many less.
    pub fn refund(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes);
        let spare = (self.own + self.shared).saturating_sub(self.used.next_multiple_of(BLOCK));
        let shared = spare.min(self.shared);
        self.give_back(spare - shared, shared);
    }

    /// Takes over what another one charges for the same spoke.
    pub fn merge(&mut self, mut other: Self) {
        self.used += std::mem::take(&mut other.used);
        self.own += std::mem::take(&mut other.own);
        self.shared += std::mem::take(&mut other.shared);
    }

    /// Charges so many more, as soon as others have given back enough.
    ///
    /// # Errors
    /// If they do not within a second; then nothing is charged.
    pub async fn spend_soon(&mut self, bytes: usize) -> Result<(), Full> {
        let deadline = Instant::now() + TURN_TIMEOUT;
        let memory = self.share.memory.clone();
        loop {
            let freed = memory.0.freed.notified();
            let Err(full) = self.spend(bytes) else { return Ok(()) };
            if timeout_at(deadline, freed).await.is_err() {
                return Err(full);
            }
        }
    }

    fn take(&mut self, bytes: usize) -> Result<(), Full> {
        let pool = &self.share.memory.0;
        let taken = pool.state.lock().take(&pool.sizes, &self.share.whose, bytes)?;
        self.own += taken.own;
        self.shared += taken.shared;
        Ok(())
    }

    fn give_back(&mut self, own: usize, shared: usize) {
        if own + shared == 0 {
            return;
        }
        self.own -= own;
        self.shared -= shared;
        self.share.memory.0.state.lock().give_back(&self.share.whose, Use { own, shared });
        self.share.memory.0.freed.notify_waiters();
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.give_back(self.own, self.shared);
    }
}

/// A value that was read of a spoke, and what it is charged.
#[derive(Debug)]
pub struct Kept<T> {
    value: T,
    charge: Arc<Charge>,
}

/// What values are charged whose parts are in use elsewhere.
#[derive(Clone, Debug)]
pub struct Held(#[expect(dead_code, reason = "it is kept, not read")] Arc<Charge>);

impl<T> Kept<T> {
    /// The value is charged so.
    pub fn new(value: T, charge: Charge) -> Self {
        Self { value, charge: Arc::new(charge) }
    }

    /// The value, and what is to be kept as long as anything that is made of it.
    pub fn into_parts(self) -> (T, Held) {
        (self.value, Held(self.charge))
    }

    /// What is to be kept as long as anything that is made of it.
    pub fn held(&self) -> Held {
        Held(self.charge.clone())
    }

    /// Each of several values keeps what all of them are charged.
    pub fn each<I>(self) -> impl Iterator<Item = Kept<I>>
    where
        T: IntoIterator<Item = I>,
    {
        let charge = self.charge;
        self.value.into_iter().map(move |value| Kept { value, charge: charge.clone() })
    }

    /// Makes something else of the value, which is not larger.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Kept<U> {
        Kept { value: change(self.value), charge: self.charge }
    }
}

impl<T> Deref for Kept<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: usize = Sizes::ANSWERS.all;
    const OF_TENANT: usize = Sizes::ANSWERS.of_tenant;
    const ONE: usize = Sizes::ANSWERS.one;
    const OWN: usize = Sizes::ANSWERS.own;
    const ALL_OWN: usize = Sizes::ANSWERS.all_own[0];

    /// Takes all that a spoke may have, and says why it gets no more.
    fn fill(share: &Share) -> (Charge, Full) {
        let mut charge = share.charge();
        loop {
            if let Err(full) = charge.spend(64 << 10) {
                return (charge, full);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_spoke_over_its_share_fails_alone_and_a_small_one_never_waits_for_others() {
        let memory = Memory::default();
        let share = |tenant: &str, spoke: usize| memory.share(Whose::new(tenant, spoke.to_string()));
        let (first, full) = fill(&share("a", 0));
        assert_eq!((first.used(), full), (ONE, Full::One));
        assert_eq!(fill(&share("a", 0)).0.used(), 0, "another client of the same spoke");
        assert!(share("b", 0).charge().spend(8 << 20).is_ok(), "others are served");
        let others: Vec<_> = (1..4).map(|spoke| fill(&share("a", spoke))).collect();
        assert_eq!(others[2].1, Full::All);
        let held: usize = first.used() + others.iter().map(|(charge, _)| charge.used()).sum::<usize>();
        assert_eq!(held, OF_TENANT + 4 * OWN, "of one tenant, whatever its spokes");
        let mut small = share("a", 9).charge();
        assert_eq!((small.spend(OWN), small.spend(1)), (Ok(()), Err(Full::All)));
        assert_eq!((small.spend_soon(1).await, small.used()), (Err(Full::All), OWN));
        drop(first);
        assert_eq!((small.spend(1), small.spend_soon(BLOCK).await), (Ok(()), Ok(())));
        drop((small, others));
        assert!(memory.is_free(), "all of it is given back");
    }

    #[test]
    fn hostile_spokes_leave_others_their_own_part_and_have_an_end() {
        for spokes in [100, 1_000] {
            let memory = Memory::default();
            let share = |tenant: usize, spoke: usize| memory.share(Whose::new(&tenant.to_string(), spoke.to_string()));
            let hostile: Vec<_> = (0..spokes).map(|spoke| fill(&share(spoke % 20, spoke)).0).collect();
            let held: usize = hostile.iter().map(Charge::used).sum();
            assert!(held <= ALL + ALL_OWN, "{held}");
            assert!(share(20, spokes).charge().spend(OWN).is_ok(), "{spokes}");
        }
    }

    #[test]
    fn what_is_refunded_or_merged_is_given_back_once() {
        let (memory, size) = (Memory::default(), 3 * OWN);
        let share = memory.share(Whose::new("a", "b"));
        let (mut one, mut other) = (share.charge(), share.charge());
        for charge in [&mut one, &mut other] {
            charge.spend(size).unwrap();
        }
        other.refund(size - 10);
        one.merge(other);
        assert_eq!(one.used(), size + 10);
        assert_eq!(memory.0.state.lock().all, Use { own: 0, shared: size + BLOCK });
        let kept: Vec<Kept<u8>> = Kept::new(vec![1, 2], one).each().collect();
        drop(kept.into_iter().next());
        assert!(memory.is_free());
    }
}
