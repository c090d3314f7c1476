//! What runs at once, shared by tenants.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, oneshot};

use crate::capacity::{Capacity, Usage};

/// A semaphore that tenants share by the rule of [`Capacity`].
#[derive(Debug)]
pub struct FairLimit {
    capacity: Capacity,
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct State {
    usage: Usage<Arc<str>>,
    /// Tenants in turn, each with those that wait for a permit of its own.
    waiting: VecDeque<(Arc<str>, VecDeque<oneshot::Sender<FairPermit>>)>,
}

/// One unit of the capacity, until it is dropped.
#[derive(Debug)]
pub struct FairPermit {
    limit: Arc<FairLimit>,
    tenant: Arc<str>,
}

impl FairLimit {
    /// So many in all, and so many of them for one tenant while no other has any.
    pub fn new(total: usize, per_tenant: usize) -> Arc<Self> {
        let capacity = Capacity { total, per_tenant };
        Arc::new(Self { capacity, state: Mutex::default(), freed: Notify::new() })
    }

    /// A permit for this tenant, if it may have one now.
    pub fn try_acquire(self: &Arc<Self>, tenant: &str) -> Option<FairPermit> {
        let tenant: Arc<str> = tenant.into();
        let mut state = self.state.lock();
        let waits = state.waiting.iter().any(|(one, _)| *one == tenant);
        (!waits && self.allows(&state, &tenant)).then(|| self.take(&mut state, tenant))
    }

    /// A permit for this tenant, as soon as it may have one. Tenants are served in turn.
    pub async fn acquire(self: &Arc<Self>, tenant: &str) -> FairPermit {
        loop {
            // An error cannot be: `self` keeps the sender.
            if let Ok(permit) = self.enqueue(tenant).await {
                return permit;
            }
        }
    }

    fn enqueue(self: &Arc<Self>, tenant: &str) -> oneshot::Receiver<FairPermit> {
        let (sender, granted) = oneshot::channel();
        let mut state = self.state.lock();
        match state.waiting.iter_mut().find(|(one, _)| **one == *tenant) {
            Some((_, senders)) => senders.push_back(sender),
            None => state.waiting.push_back((tenant.into(), VecDeque::from([sender]))),
        }
        self.grant(state);
        granted
    }

    /// Whether no tenant may have a permit.
    pub fn is_full(&self) -> bool {
        self.state.lock().usage.total >= self.capacity.total
    }

    /// Waits until a permit was given back since the last call.
    pub async fn freed(&self) {
        self.freed.notified().await;
    }

    fn allows(&self, state: &State, tenant: &Arc<str>) -> bool {
        self.capacity.allows(state.usage.total, state.usage.of(tenant), 1)
    }

    fn take(self: &Arc<Self>, state: &mut State, tenant: Arc<str>) -> FairPermit {
        state.usage.add(tenant.clone(), 1);
        FairPermit { limit: self.clone(), tenant }
    }

    /// Serves those that wait, tenant by tenant, with what is free.
    fn grant(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let (mut granted, mut refused) = (Vec::new(), 0);
        while refused < state.waiting.len() && state.usage.total < self.capacity.total {
            let Some((tenant, mut senders)) = state.waiting.pop_front() else { break };
            senders.retain(|sender| !sender.is_closed()); // the task of such a one has ended
            let allows = self.allows(&state, &tenant);
            if allows && let Some(sender) = senders.pop_front() {
                granted.push((sender, self.take(&mut state, tenant.clone())));
                refused = 0;
            }
            if !senders.is_empty() {
                refused += usize::from(!allows);
                state.waiting.push_back((tenant, senders));
            }
        }
        drop(state);
        for (sender, permit) in granted {
            let _ = sender.send(permit); // or it is given back
        }
    }
}

impl Drop for FairPermit {
    fn drop(&mut self) {
        let mut state = self.limit.state.lock();
        state.usage.subtract(&self.tenant, 1);
        self.limit.grant(state);
        self.limit.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, sleep};

    use super::*;

    fn take_all(limit: &Arc<FairLimit>, tenant: &str) -> Vec<FairPermit> {
        std::iter::from_fn(|| limit.try_acquire(tenant)).collect()
    }

    #[test]
    fn one_tenant_gets_its_part_and_any_number_of_them_leave_something_to_the_next() {
        for (total, per_tenant) in [(384, 256), (1_024, 256), (64, 48), (8, 1), (6, 4), (2, 1)] {
            let limit = FairLimit::new(total, per_tenant);
            assert_eq!(take_all(&limit, "alone").len(), per_tenant, "{total} {per_tenant}");
            let tenants = total.div_ceil(8).min(40);
            let mut greedy: Vec<_> = (0..tenants).map(|_| Vec::new()).collect();
            for _ in 0..total {
                for (number, held) in greedy.iter_mut().enumerate() {
                    held.pop();
                    held.extend(take_all(&limit, &number.to_string()));
                }
            }
            assert!(limit.try_acquire("late").is_some(), "{total} {per_tenant}");
            let held: Vec<_> = greedy.iter().map(Vec::len).collect();
            assert!(*held.iter().max().unwrap() <= 2 * held.iter().min().unwrap(), "{total} {per_tenant}: {held:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_wait_are_served_tenant_by_tenant() {
        let limit = FairLimit::new(2, 2);
        let held = take_all(&limit, "greedy");
        let begin = Instant::now();
        let wait = |tenant: &'static str| {
            let limit = limit.clone();
            tokio::spawn(async move {
                let permit = limit.acquire(tenant).await;
                sleep(Duration::from_secs(1)).await;
                drop(permit);
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
        let limit = FairLimit::new(1, 1);
        let held = limit.acquire("a").await;
        for tenant in ["b", "c", "d"] {
            assert!(tokio::time::timeout(Duration::from_secs(1), limit.acquire(tenant)).await.is_err());
        }
        let late = limit.clone();
        let late = tokio::spawn(async move { late.acquire("e").await });
        tokio::task::yield_now().await;
        drop(held);
        assert!(tokio::time::timeout(Duration::from_secs(1), late).await.is_ok(), "three others have given up");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_granted_to_a_task_that_has_ended_goes_to_the_next() {
        let limit = FairLimit::new(1, 1);
        let held = limit.acquire("a").await;
        let given_up = tokio::time::timeout(Duration::from_secs(1), limit.acquire("a")).await;
        assert!(given_up.is_err());
        let (early, late) = (limit.clone(), limit.clone());
        let early = tokio::spawn(async move { early.acquire("a").await });
        let late = tokio::spawn(async move { late.acquire("b").await });
        tokio::task::yield_now().await;
        early.abort();
        drop(held);
        drop(late.await.unwrap());
        let state = limit.state.lock();
        assert_eq!((state.usage.by_holder.is_empty(), state.waiting.len()), (true, 0));
    }
}
