//! Joins what several callers ask for at about the same time, so that it takes one call instead of many.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::Notify;
use tokio::time::Instant;

/// While a batch is on its way the next one waits for it, but not longer than this.
const PATIENCE: Duration = Duration::from_millis(500);

/// Waits for company, then makes one call for all who are there.
///
/// The calls run on their own, so that a caller who gives up takes nothing from the others.
pub(crate) struct Gather<T> {
    /// The greatest weight of a batch. A batch that is full leaves at once.
    most: usize,
    call: Call<T>,
    state: Mutex<State<T>>,
    changed: Notify,
}

type Call<T> = Box<dyn Fn(Vec<T>) -> BoxFuture<'static, ()> + Send + Sync>;

struct State<T> {
    waiting: Vec<Waiting<T>>,
    /// Whether a task is at work that sends batches off.
    gathering: bool,
    /// Batches on their way.
    flying: usize,
}

struct Waiting<T> {
    item: T,
    weight: usize,
    leaves: Instant,
}

enum Next<T> {
    Go(Vec<T>),
    Wait(Instant),
    Nobody,
}

impl<T: Send + 'static> Gather<T> {
    pub(crate) fn new(
        most: usize,
        call: impl Fn(Vec<T>) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let state = State { waiting: Vec::new(), gathering: false, flying: 0 };
        Arc::new(Self { most, call: Box::new(call), state: Mutex::new(state), changed: Notify::new() })
    }

    /// Adds an item, which waits for company no longer than `window`.
    pub(crate) fn add(self: &Arc<Self>, item: T, weight: usize, window: Duration) {
        let mut state = self.lock();
        state.waiting.push(Waiting { item, weight, leaves: Instant::now() + window });
        if std::mem::replace(&mut state.gathering, true) {
            self.changed.notify_one();
        } else {
            tokio::spawn(self.clone().gather());
        }
    }

    async fn gather(self: Arc<Self>) {
        loop {
            match self.next() {
                Next::Nobody => return,
                Next::Go(batch) => drop(tokio::spawn(self.clone().fly(batch))),
                Next::Wait(until) => tokio::select! {
                    () = tokio::time::sleep_until(until) => {}
                    () = self.changed.notified() => {}
                },
            }
        }
    }

    fn next(&self) -> Next<T> {
        let mut state = self.lock();
        // Who can wait longest goes last; otherwise in the order in which they came.
        state.waiting.sort_by_key(|waiting| waiting.leaves);
        let Some(first) = state.waiting.first() else {
            state.gathering = false;
            return Next::Nobody;
        };
        let due = if state.flying > 0 { first.leaves + PATIENCE } else { first.leaves };
        let full = state.waiting.iter().map(|waiting| waiting.weight).sum::<usize>() >= self.most;
        if !full && Instant::now() < due {
            return Next::Wait(due);
        }
        let mut weight = 0;
        let fits = state.waiting.iter().take_while(|waiting| {
            weight += waiting.weight;
            weight <= self.most
        });
        let count = fits.count().max(1);
        state.flying += 1;
        Next::Go(state.waiting.drain(..count).map(|waiting| waiting.item).collect())
    }

    async fn fly(self: Arc<Self>, batch: Vec<T>) {
        let landing = Landing(&self);
        (self.call)(batch).await;
        drop(landing);
    }
}

impl<T> Gather<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a batch as landed however it ends.
struct Landing<'a, T>(&'a Gather<T>);

impl<T> Drop for Landing<'_, T> {
    fn drop(&mut self) {
        self.0.lock().flying -= 1;
        self.0.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::*;

    const WINDOW: Duration = Duration::from_millis(25);
    const CALL: Duration = Duration::from_millis(100);

    type Batches = UnboundedReceiver<(Vec<u32>, Duration)>;

    /// Calls of 100 ms, at most 10 items each; what went and when.
    fn gather() -> (Arc<Gather<u32>>, Batches) {
        let (log, batches) = unbounded_channel();
        let begun = Instant::now();
        let gather = Gather::new(10, move |batch| {
            let _ = log.send((batch, begun.elapsed()));
            tokio::time::sleep(CALL).boxed()
        });
        (gather, batches)
    }

    async fn all(mut batches: Batches) -> Vec<(Vec<u32>, u128)> {
        tokio::time::sleep(Duration::from_secs(10)).await;
        std::iter::from_fn(|| batches.try_recv().ok()).map(|(batch, at)| (batch, at.as_millis() / 5 * 5)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_within_the_window_goes_along() {
        let (gather, batches) = gather();
        gather.add(1, 1, WINDOW);
        tokio::time::sleep(WINDOW / 2).await;
        gather.add(2, 1, WINDOW);
        tokio::time::sleep(Duration::from_secs(1)).await;
        gather.add(3, 1, WINDOW);
        let batches = all(batches).await;
        assert_eq!(batches.iter().map(|(batch, _)| batch.as_slice()).collect::<Vec<_>>(), [&[1, 2][..], &[3]]);
        assert_eq!(batches[0].1, 25);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_batch_leaves_at_once_and_the_next_waits_for_it() {
        let (gather, batches) = gather();
        for item in 0..12 {
            gather.add(item, 1, WINDOW);
        }
        assert_eq!(all(batches).await, [((0..10).collect(), 0), (vec![10, 11], 100)]);
    }

    #[tokio::test(start_paused = true)]
    async fn weights_count_and_what_is_too_heavy_goes_alone() {
        let (gather, batches) = gather();
        for (item, weight) in [(0, 6), (1, 6), (2, 40), (3, 1)] {
            gather.add(item, weight, WINDOW);
        }
        let batches: Vec<_> = all(batches).await.into_iter().map(|(batch, _)| batch).collect();
        assert_eq!(batches, [vec![0], vec![1], vec![2], vec![3]]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_urgent_item_takes_the_patient_ones_along() {
        let (gather, batches) = gather();
        gather.add(1, 1, Duration::from_secs(2));
        tokio::time::sleep(WINDOW).await;
        gather.add(2, 1, WINDOW);
        assert_eq!(all(batches).await, [(vec![2, 1], 50)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_call_does_not_hold_up_the_next_for_ever() {
        let gather = Gather::new(10, |_: Vec<u32>| tokio::time::sleep(Duration::from_mins(1)).boxed());
        gather.add(1, 1, WINDOW);
        tokio::time::sleep(WINDOW * 2).await;
        gather.add(2, 1, WINDOW);
        tokio::time::sleep(WINDOW * 2).await;
        assert_eq!(gather.lock().flying, 1);
        tokio::time::sleep(PATIENCE).await;
        assert_eq!(gather.lock().flying, 2);
    }
}
