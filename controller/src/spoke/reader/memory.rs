//! The memory for what spokes answer: shared by all, with a part of it for each.
//!
//! What is read of an answer is charged from its first byte until the value that was made of it is dropped.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Bytes of the answers of all spokes, besides what each has for itself.
const ALL: usize = 40 << 20;
/// Bytes of the answers of one spoke.
const ONE: usize = 12 << 20;
/// Bytes that each spoke has for itself, however many others have filled what they share: as much as a small cluster needs.
const OWN: usize = 256 << 10;
/// How long an answer waits for others to be done with.
const TURN_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes that are taken at once.
const BLOCK: usize = 4 << 10;

/// The memory for answers of all spokes.
#[derive(Clone, Debug)]
pub struct Memory(Arc<Semaphore>);

impl Default for Memory {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ALL)))
    }
}

impl Memory {
    /// The part of one more spoke.
    #[must_use]
    pub fn share(&self) -> Share {
        let semaphore = |bytes| Arc::new(Semaphore::new(bytes));
        Share { own: semaphore(OWN), one: semaphore(ONE - OWN), all: self.0.clone() }
    }
}

#[cfg(test)]
impl Memory {
    /// Whether nothing of what is shared is in use.
    pub(super) fn is_free(&self) -> bool {
        self.0.available_permits() == ALL
    }
}

/// The memory for the answers of one spoke.
#[derive(Clone, Debug)]
pub struct Share {
    own: Arc<Semaphore>,
    one: Arc<Semaphore>,
    all: Arc<Semaphore>,
}

/// There is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// This spoke has filled its part.
    #[error("the cluster's answers are too large together")]
    One,
    /// All together have filled theirs.
    #[error("the answers of all clusters are too large together")]
    All,
}

impl Share {
    /// Charges nothing yet.
    #[must_use]
    pub fn charge(&self) -> Charge {
        Charge { share: self.clone(), used: 0, own: 0, shared: 0 }
    }
}

/// Bytes that are in use until this is dropped.
pub struct Charge {
    share: Share,
    used: usize,
    own: usize,
    shared: usize,
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Charge").field("used", &self.used).finish_non_exhaustive()
    }
}

impl Charge {
    /// Another one for the same spoke, of nothing yet.
    #[must_use]
    pub fn another(&self) -> Self {
        self.share.charge()
    }

    /// Bytes that are charged.
    #[must_use]
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

    /// Charges nothing, and keeps the room.
    pub fn restart(&mut self) {
        self.used = 0;
    }

    /// Takes over what another one charges for the same spoke.
    pub fn merge(&mut self, mut other: Self) {
        self.used += std::mem::take(&mut other.used);
        self.own += std::mem::take(&mut other.own);
        self.shared += std::mem::take(&mut other.shared);
    }

    /// Waits a moment for room for so many more bytes than there is room for.
    ///
    /// # Errors
    /// If others do not make it.
    pub async fn wait_for(&mut self, bytes: usize) -> Result<(), Full> {
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        let Ok(one) = timeout(TURN_TIMEOUT, self.share.one.acquire_many(permits)).await else { return Err(Full::One) };
        let Ok(all) = timeout(TURN_TIMEOUT, self.share.all.acquire_many(permits)).await else { return Err(Full::All) };
        if let (Ok(one), Ok(all)) = (one, all) {
            one.forget();
            all.forget();
            self.shared += bytes;
        }
        Ok(())
    }

    fn take(&mut self, bytes: usize) -> Result<(), Full> {
        let permits = u32::try_from(bytes).map_err(|_| Full::One)?;
        if let Ok(own) = self.share.own.try_acquire_many(permits) {
            own.forget();
            self.own += bytes;
            return Ok(());
        }
        let one = self.share.one.try_acquire_many(permits).map_err(|_| Full::One)?;
        let all = self.share.all.try_acquire_many(permits).map_err(|_| Full::All)?;
        one.forget();
        all.forget();
        self.shared += bytes;
        Ok(())
    }

    fn give_back(&mut self, own: usize, shared: usize) {
        self.own -= own;
        self.shared -= shared;
        self.share.own.add_permits(own);
        self.share.one.add_permits(shared);
        self.share.all.add_permits(shared);
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
    #[must_use]
    pub fn new(value: T, charge: Charge) -> Self {
        Self { value, charge: Arc::new(charge) }
    }

    /// The value, and what is to be kept as long as anything that is made of it.
    #[must_use]
    pub fn into_parts(self) -> (T, Held) {
        (self.value, Held(self.charge))
    }

    /// What is to be kept as long as anything that is made of it.
    #[must_use]
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
    #[must_use]
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

    #[tokio::test(start_paused = true)]
    async fn a_spoke_over_its_share_fails_alone_and_a_small_one_never_waits_for_others() {
        let memory = Memory::default();
        let hostile: Vec<Share> = (0..4).map(|_| memory.share()).collect();
        let fill = |share: &Share| {
            let mut held = Vec::new();
            while let (mut charge, true) = (share.charge(), held.len() < 10_000) {
                match charge.spend(64 << 10) {
                    Ok(()) => held.push(charge),
                    Err(full) => return (held, full),
                }
            }
            panic!("no end");
        };
        let (first, full) = fill(&hostile[0]);
        assert_eq!((first.len() * (64 << 10), full), (ONE, Full::One));
        assert!(memory.share().charge().spend(8 << 20).is_ok(), "others are served");
        let others: Vec<_> = hostile[1..].iter().map(fill).collect();
        assert_eq!(others[2].1, Full::All);
        let small = memory.share();
        let mut charge = small.charge();
        assert_eq!((charge.spend(OWN), charge.spend(1)), (Ok(()), Err(Full::All)));
        assert_eq!((charge.wait_for(1).await, charge.used()), (Err(Full::All), OWN));
        drop(first);
        assert_eq!((charge.spend(1), charge.wait_for(BLOCK).await), (Ok(()), Ok(())));
        drop((charge, others));
        assert_eq!(
            (memory.0.available_permits(), small.own.available_permits()),
            (ALL, OWN),
            "all of it is given back"
        );
    }

    #[test]
    fn what_is_refunded_or_merged_is_given_back_once() {
        let (memory, size) = (Memory::default(), 3 * OWN);
        let share = memory.share();
        let (mut one, mut other) = (share.charge(), share.charge());
        for charge in [&mut one, &mut other] {
            charge.spend(size).unwrap();
        }
        other.refund(size - 10);
        one.merge(other);
        assert_eq!((one.used(), memory.0.available_permits()), (size + 10, ALL - size - BLOCK));
        let kept: Vec<Kept<u8>> = Kept::new(vec![1, 2], one).each().collect();
        drop(kept.into_iter().next());
        assert_eq!((memory.0.available_permits(), share.own.available_permits()), (ALL, OWN));
    }
}
