//! Capacity that tenants share: what one may have follows what is free, so that it never takes the last of it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

/// Capacity of one kind.
#[derive(Debug)]
pub struct Shares {
    most: usize,
    of_one: usize,
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct State {
    taken: usize,
    held: HashMap<Arc<str>, usize>,
    /// Tenants in turn, each with those that wait for a share of its own.
    waiting: VecDeque<(Arc<str>, VecDeque<oneshot::Sender<Share>>)>,
}

/// One unit of a tenant's share, until it is dropped.
#[derive(Debug)]
pub struct Share {
    shares: Arc<Shares>,
    tenant: Arc<str>,
}

impl Shares {
    /// So many in all, and so many of them for one tenant while no other has any.
    pub fn new(most: usize, of_one: usize) -> Arc<Self> {
        Arc::new(Self { most, of_one, state: Mutex::default(), freed: Notify::new() })
    }

    /// One more for this tenant, if it may have it now.
    pub fn try_acquire(self: &Arc<Self>, tenant: &str) -> Option<Share> {
        let mut state = self.state.lock();
        (self.may(&state, tenant) && !state.waits(tenant)).then(|| self.take(&mut state, tenant))
    }

    /// One more for this tenant, as soon as it may have it. Tenants are served in turn.
    pub async fn acquire(self: &Arc<Self>, tenant: &str) -> Share {
        loop {
            let granted = {
                let mut state = self.state.lock();
                if self.may(&state, tenant) && !state.waits(tenant) {
                    return self.take(&mut state, tenant);
                }
                state.wait(tenant)
            };
            // An error cannot be: `self` keeps the sender.
            if let Ok(share) = granted.await {
                return share;
            }
        }
    }

    /// Whether nobody may have one.
    pub fn are_taken(&self) -> bool {
        self.state.lock().taken >= self.most
    }

    /// Waits until something was given back since the last call.
    pub async fn freed(&self) {
        self.freed.notified().await;
    }

    fn may(&self, state: &State, tenant: &str) -> bool {
        may(self.most, self.of_one, state.taken, state.held.get(tenant).copied().unwrap_or_default(), 1)
    }

    fn take(self: &Arc<Self>, state: &mut State, tenant: &str) -> Share {
        let tenant: Arc<str> = state.held.get_key_value(tenant).map_or_else(|| tenant.into(), |(name, _)| name.clone());
        *state.held.entry(tenant.clone()).or_default() += 1;
        state.taken += 1;
        Share { shares: self.clone(), tenant }
    }

    /// Serves those that wait, tenant by tenant, with what is free.
    fn grant(self: &Arc<Self>, state: &mut State) -> Vec<(oneshot::Sender<Share>, Share)> {
        let (mut granted, mut refused) = (Vec::new(), 0);
        while refused < state.waiting.len() && state.taken < self.most {
            let Some((tenant, mut senders)) = state.waiting.pop_front() else { break };
            senders.retain(|sender| !sender.is_closed()); // the task of such a one has ended
            let may = self.may(state, &tenant);
            if may && let Some(sender) = senders.pop_front() {
                granted.push((sender, self.take(state, &tenant)));
                refused = 0;
            }
            if !senders.is_empty() {
                refused += usize::from(!may);
                state.waiting.push_back((tenant, senders));
            }
        }
        granted
    }
}

impl State {
    fn waits(&self, tenant: &str) -> bool {
        self.waiting.iter().any(|(one, _)| **one == *tenant)
    }

    fn wait(&mut self, tenant: &str) -> oneshot::Receiver<Share> {
        let (sender, granted) = oneshot::channel();
        match self.waiting.iter_mut().find(|(one, _)| **one == *tenant) {
            Some((_, senders)) => senders.push_back(sender),
            None => self.waiting.push_back((tenant.into(), VecDeque::from([sender]))),
        }
        granted
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut state = self.shares.state.lock();
        state.taken = state.taken.saturating_sub(1);
        if let Some(held) = state.held.get_mut(&self.tenant) {
            *held -= 1;
            if *held == 0 {
                state.held.remove(&self.tenant);
            }
        }
        let granted = self.shares.grant(&mut state);
        drop(state);
        for (sender, share) in granted {
            let _ = sender.send(share); // or it is given back
        }
        self.shares.freed.notify_one();
    }
}

/// Whether a tenant that holds `held` of the `taken` of `most` may have so many more: `of_one` while no other has any,
/// and the less the less is free. Tenants that take all they get soon have the same, and leave something to one that
/// has nothing.
pub const fn may(most: usize, of_one: usize, taken: usize, held: usize, more: usize) -> bool {
    let free = most.saturating_sub(taken);
    free >= more && free > 0 && held * most.saturating_sub(of_one) < free * of_one
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, sleep};

    use super::*;

    fn take_all(shares: &Arc<Shares>, tenant: &str) -> Vec<Share> {
        std::iter::from_fn(|| shares.try_acquire(tenant)).collect()
    }

    #[test]
    fn one_tenant_gets_its_part_and_any_number_of_them_leave_something_to_the_next() {
        for (most, of_one) in [(384, 256), (1_024, 256), (64, 48), (8, 1), (6, 4), (2, 1)] {
            let shares = Shares::new(most, of_one);
            assert_eq!(take_all(&shares, "alone").len(), of_one, "{most} {of_one}");
            let tenants = most.div_ceil(8).min(40);
            let mut greedy: Vec<_> = (0..tenants).map(|_| Vec::new()).collect();
            for _ in 0..most {
                for (number, held) in greedy.iter_mut().enumerate() {
                    held.pop();
                    held.extend(take_all(&shares, &number.to_string()));
                }
            }
            assert!(shares.try_acquire("late").is_some(), "{most} {of_one}");
            let held: Vec<_> = greedy.iter().map(Vec::len).collect();
            assert!(*held.iter().max().unwrap() <= 2 * held.iter().min().unwrap(), "{most} {of_one}: {held:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_wait_are_served_tenant_by_tenant() {
        let shares = Shares::new(2, 2);
        let held = take_all(&shares, "greedy");
        let begin = Instant::now();
        let wait = |tenant: &'static str| {
            let shares = shares.clone();
            tokio::spawn(async move {
                let share = shares.acquire(tenant).await;
                sleep(Duration::from_secs(1)).await;
                drop(share);
                (tenant, begin.elapsed().as_secs())
            })
        };
        let crowd: Vec<_> = (0..100).map(|_| wait("greedy")).collect();
        tokio::task::yield_now().await;
        let other = wait("other");
        tokio::task::yield_now().await;
        drop(held);
        assert_eq!(other.await.unwrap(), ("other", 1), "before 99 others");
        for one in crowd {
            one.await.unwrap();
        }
        assert_eq!(begin.elapsed().as_secs(), 51, "and nothing was lost");
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_have_given_up_do_not_end_the_turn_of_the_next() {
        let shares = Shares::new(1, 1);
        let held = shares.acquire("a").await;
        for tenant in ["b", "c", "d"] {
            assert!(tokio::time::timeout(Duration::from_secs(1), shares.acquire(tenant)).await.is_err());
        }
        let late = shares.clone();
        let late = tokio::spawn(async move { late.acquire("e").await });
        tokio::task::yield_now().await;
        drop(held);
        assert!(tokio::time::timeout(Duration::from_secs(1), late).await.is_ok(), "three others have given up");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_granted_to_a_task_that_has_ended_goes_to_the_next() {
        let shares = Shares::new(1, 1);
        let held = shares.acquire("a").await;
        let given_up = tokio::time::timeout(Duration::from_secs(1), shares.acquire("a")).await;
        assert!(given_up.is_err());
        let (early, late) = (shares.clone(), shares.clone());
        let early = tokio::spawn(async move { early.acquire("a").await });
        let late = tokio::spawn(async move { late.acquire("b").await });
        tokio::task::yield_now().await;
        early.abort();
        drop(held);
        drop(late.await.unwrap());
        let state = shares.state.lock();
        assert_eq!((state.taken, state.held.len(), state.waiting.len()), (0, 0, 0));
    }
}
