//! Joins what several callers ask for at about the same time, so that one call serves all of them.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use scopeguard::{ScopeGuard, guard};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

/// While a batch is in flight the next one waits for it, but no longer than this.
const MAX_DELAY: Duration = Duration::from_millis(500);

/// Collects items, then makes one call for all of them.
///
/// The calls run in tasks of their own: a caller that gives up takes nothing from the others. A call that panics fails
/// the callers of its own batch with [`NoReply`]; later batches are sent as usual.
pub struct Batcher<T> {
    /// The greatest weight of a batch. A full batch leaves at once.
    most: usize,
    gate: Gate,
    call: Call<T>,
    state: Mutex<State<T>>,
    changed: Notify,
}

/// Returns once a batch may leave.
type Gate = Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

type Call<T> = Box<dyn Fn(Vec<T>) -> BoxFuture<'static, ()> + Send + Sync>;

/// The way back to one caller.
pub struct Reply<R>(oneshot::Sender<R>);

/// The task of a batch ended without a reply: it panicked, or the process is shutting down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoReply;

struct State<T> {
    waiting: Vec<QueuedItem<T>>,
    /// Whether a task is running that sends batches.
    dispatching: bool,
    in_flight: usize,
}

struct QueuedItem<T> {
    item: T,
    weight: usize,
    leaves: Instant,
}

impl<R> Reply<R> {
    /// Whether the caller still waits.
    pub fn is_wanted(&self) -> bool {
        !self.0.is_closed()
    }

    /// Answers the caller, unless it has given up.
    pub fn send(self, answer: R) {
        let _ = self.0.send(answer);
    }
}

impl<T: Send + 'static> Batcher<T> {
    /// Batches of at most `most` in weight, each of which is handed to `call`.
    pub fn new(most: usize, call: impl Fn(Vec<T>) -> BoxFuture<'static, ()> + Send + Sync + 'static) -> Arc<Self> {
        Self::gated(most, || std::future::ready(()).boxed(), call)
    }

    /// The same for calls that a rate limiter admits: a batch that is due waits for `gate`, and includes the items that
    /// arrive until then.
    pub fn gated(
        most: usize,
        gate: impl Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static,
        call: impl Fn(Vec<T>) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let state = State { waiting: Vec::new(), dispatching: false, in_flight: 0 };
        let (gate, call) = (Box::new(gate), Box::new(call));
        Arc::new(Self { most, gate, call, state: Mutex::new(state), changed: Notify::new() })
    }

    /// Adds the item that `item` makes of the way back, and waits for the answer.
    ///
    /// The item waits for others no longer than `window`, unless a batch is in flight.
    pub async fn ask<R>(
        self: &Arc<Self>,
        weight: usize,
        window: Duration,
        item: impl FnOnce(Reply<R>) -> T,
    ) -> Result<R, NoReply> {
        let (reply, answer) = oneshot::channel();
        self.add(item(Reply(reply)), weight, window);
        answer.await.map_err(|_| NoReply)
    }

    fn add(self: &Arc<Self>, item: T, weight: usize, window: Duration) {
        let mut state = self.state.lock();
        state.waiting.push(QueuedItem { item, weight, leaves: Instant::now() + window });
        if std::mem::replace(&mut state.dispatching, true) {
            self.changed.notify_one();
        } else {
            tokio::spawn(self.clone().dispatch());
        }
    }

    async fn dispatch(self: Arc<Self>) {
        // Lets the next item start a new dispatcher, even if this one panics. Those that waited for it hear that they
        // are lost.
        let ended = guard(&self, |batcher| {
            let mut state = batcher.state.lock();
            state.dispatching = false;
            let lost = std::mem::take(&mut state.waiting);
            drop(state);
            drop(lost);
        });
        while let Some(leaves) = self.next() {
            if Instant::now() < leaves {
                tokio::select! {
                    () = tokio::time::sleep_until(leaves) => {}
                    () = self.changed.notified() => {}
                }
                continue;
            }
            (self.gate)().await;
            tokio::spawn(self.clone().send(self.take()));
        }
        ScopeGuard::into_inner(ended);
    }

    /// When the next batch leaves. Without one, the dispatcher ends.
    fn next(&self) -> Option<Instant> {
        let mut state = self.state.lock();
        let Some(first) = state.waiting.iter().map(|waiting| waiting.leaves).min() else {
            state.dispatching = false;
            return None;
        };
        let due = if state.in_flight > 0 { first + MAX_DELAY } else { first };
        let full = state.waiting.iter().map(|waiting| waiting.weight).sum::<usize>() >= self.most;
        Some(if full { Instant::now() } else { due })
    }

    /// The next batch, which is in flight from now on.
    fn take(&self) -> Vec<T> {
        let mut state = self.state.lock();
        // Whoever can wait longest goes last; otherwise first come, first served.
        state.waiting.sort_by_key(|waiting| waiting.leaves);
        let mut weight = 0;
        let fits = state.waiting.iter().take_while(|waiting| {
            weight += waiting.weight;
            weight <= self.most
        });
        let count = fits.count().max(1);
        state.in_flight += 1;
        state.waiting.drain(..count).map(|waiting| waiting.item).collect()
    }

    async fn send(self: Arc<Self>, batch: Vec<T>) {
        // However its task ends.
        let _landed = guard(&self, |batcher| {
            batcher.state.lock().in_flight -= 1;
            batcher.changed.notify_one();
        });
        (self.call)(batch).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::*;

    const WINDOW: Duration = Duration::from_millis(25);
    const CALL: Duration = Duration::from_millis(100);

    type Batches = UnboundedReceiver<(Vec<u32>, Duration)>;

    /// Calls of 100 ms, at most 10 items each; what went and when.
    fn batcher() -> (Arc<Batcher<u32>>, Batches) {
        let (log, batches) = unbounded_channel();
        let begun = Instant::now();
        let batcher = Batcher::new(10, move |batch| {
            let _ = log.send((batch, begun.elapsed()));
            tokio::time::sleep(CALL).boxed()
        });
        (batcher, batches)
    }

    async fn all(mut batches: Batches) -> Vec<(Vec<u32>, u128)> {
        tokio::time::sleep(Duration::from_secs(10)).await;
        std::iter::from_fn(|| batches.try_recv().ok()).map(|(batch, at)| (batch, at.as_millis() / 5 * 5)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn items_within_the_window_share_a_call() {
        let (batcher, batches) = batcher();
        batcher.add(1, 1, WINDOW);
        tokio::time::sleep(WINDOW / 2).await;
        batcher.add(2, 1, WINDOW);
        tokio::time::sleep(Duration::from_secs(1)).await;
        batcher.add(3, 1, WINDOW);
        let batches = all(batches).await;
        assert_eq!(batches.iter().map(|(batch, _)| batch.as_slice()).collect::<Vec<_>>(), [&[1, 2][..], &[3]]);
        assert_eq!(batches[0].1, 25);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_batch_leaves_at_once_and_the_next_waits_for_it() {
        let (batcher, batches) = batcher();
        for item in 0..12 {
            batcher.add(item, 1, WINDOW);
        }
        assert_eq!(all(batches).await, [((0..10).collect(), 0), (vec![10, 11], 100)]);
    }

    #[tokio::test(start_paused = true)]
    async fn weights_count_and_what_is_too_heavy_goes_alone() {
        let (batcher, batches) = batcher();
        for (item, weight) in [(0, 6), (1, 6), (2, 40), (3, 1)] {
            batcher.add(item, weight, WINDOW);
        }
        let batches: Vec<_> = all(batches).await.into_iter().map(|(batch, _)| batch).collect();
        assert_eq!(batches, [vec![0], vec![1], vec![2], vec![3]]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_urgent_item_takes_the_patient_ones_along() {
        let (batcher, batches) = batcher();
        batcher.add(1, 1, Duration::from_secs(2));
        tokio::time::sleep(WINDOW).await;
        batcher.add(2, 1, WINDOW);
        assert_eq!(all(batches).await, [(vec![2, 1], 50)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_call_does_not_hold_up_the_next_forever() {
        let batcher = Batcher::new(10, |_: Vec<u32>| tokio::time::sleep(Duration::from_mins(1)).boxed());
        batcher.add(1, 1, WINDOW);
        tokio::time::sleep(WINDOW * 2).await;
        batcher.add(2, 1, WINDOW);
        tokio::time::sleep(WINDOW * 2).await;
        assert_eq!(batcher.state.lock().in_flight, 1);
        tokio::time::sleep(MAX_DELAY).await;
        assert_eq!(batcher.state.lock().in_flight, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_comes_while_a_batch_waits_for_its_gate_goes_along() {
        let (log, batches) = unbounded_channel();
        let begun = Instant::now();
        let gate = || tokio::time::sleep(Duration::from_secs(1)).boxed();
        let batcher = Batcher::gated(10, gate, move |batch| {
            let _ = log.send((batch, begun.elapsed()));
            std::future::ready(()).boxed()
        });
        for item in 0..12 {
            batcher.add(item, 1, WINDOW);
            tokio::time::sleep(Duration::from_millis(90)).await;
        }
        assert_eq!(all(batches).await, [((0..10).collect(), 1025), (vec![10, 11], 2025)]);
    }

    /// The item 13 makes its batch panic: before the call is made, or while it is in flight.
    fn unlucky(at_once: bool) -> Arc<Batcher<(u32, Reply<u32>)>> {
        Batcher::new(10, move |batch: Vec<(u32, Reply<u32>)>| {
            let bad = batch.iter().any(|(item, _)| *item == 13);
            assert!(!(bad && at_once), "13");
            async move {
                tokio::time::sleep(CALL).await;
                assert!(!bad, "13");
                for (item, reply) in batch {
                    reply.send(item);
                }
            }
            .boxed()
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_fails_its_own_batch_and_no_later_one() {
        for at_once in [true, false] {
            let batcher = unlucky(at_once);
            let ask = |item: u32| batcher.ask(1, WINDOW, move |reply| (item, reply));
            let within = |calls| tokio::time::timeout(Duration::from_secs(5), calls);
            let noted = within(futures::future::join_all([ask(1), ask(13)])).await.unwrap();
            assert_eq!(noted, [Err(NoReply), Err(NoReply)], "nobody waits forever");
            let noted = within(futures::future::join_all([ask(2), ask(3)])).await.unwrap();
            assert_eq!(noted, [Ok(2), Ok(3)], "and the next batch goes as ever");
            assert_eq!(batcher.state.lock().in_flight, 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_of_the_dispatcher_is_told_to_those_who_wait() {
        let first = AtomicBool::new(true);
        let gate = move || {
            assert!(!first.swap(false, Ordering::Relaxed), "the gate is broken");
            std::future::ready(()).boxed()
        };
        let batcher = Batcher::gated(10, gate, |batch: Vec<(u32, Reply<u32>)>| {
            for (item, reply) in batch {
                reply.send(item);
            }
            std::future::ready(()).boxed()
        });
        assert_eq!(batcher.ask(1, WINDOW, |reply| (1, reply)).await, Err(NoReply));
        assert_eq!(batcher.ask(1, WINDOW, |reply| (2, reply)).await, Ok(2));
    }
}
