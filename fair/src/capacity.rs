//! The rule by which tenants share a capacity, and the count of what each of them has.

use std::collections::HashMap;
use std::hash::Hash;

/// What all tenants have together, and what one of them gets while no other has any.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    pub total: usize,
    pub per_tenant: usize,
}

impl Capacity {
    /// Whether a tenant that holds `held` of the `taken` may have so many more: the less, the less is free. Tenants that
    /// take all they get soon have the same, and leave something to one that has nothing.
    pub(crate) const fn allows(self, taken: usize, held: usize, more: usize) -> bool {
        let free = self.total.saturating_sub(taken);
        free >= more && free > 0 && held * self.total.saturating_sub(self.per_tenant) < free * self.per_tenant
    }
}

/// Usage, in total and per holder.
#[derive(Debug, Default)]
pub(crate) struct Usage<K> {
    pub(crate) total: usize,
    pub(crate) by_holder: HashMap<K, usize>,
}

impl<K: Eq + Hash> Usage<K> {
    pub(crate) fn of(&self, holder: &K) -> usize {
        self.by_holder.get(holder).copied().unwrap_or_default()
    }

    pub(crate) fn add(&mut self, holder: K, amount: usize) {
        self.total += amount;
        *self.by_holder.entry(holder).or_default() += amount;
    }

    pub(crate) fn subtract(&mut self, holder: &K, amount: usize) {
        self.total = self.total.saturating_sub(amount);
        if let Some(held) = self.by_holder.get_mut(holder) {
            *held = held.saturating_sub(amount);
            if *held == 0 {
                self.by_holder.remove(holder);
            }
        }
    }
}
