//! How many calls an account takes: a token bucket whose tokens go to the most urgent caller first.
//!
//! AWS keeps such buckets per account and region, for reading and for changing calls apart, and everybody who works in the
//! account draws from them. Ours are no larger, and when EC2 says that its own is empty, ours slows down for a while.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use shared::cloud::Priority;
use tokio::sync::Notify;
use tokio::time::Instant;

/// After being throttled, the pace doubles in this time until it is what it was.
const RECOVERY: Duration = Duration::from_secs(5);

/// The slowest pace, as a part of the full one.
const SLOWEST: f64 = 1.0 / 16.0;

/// Tokens for calls of one kind in one account and region.
pub(crate) struct Bucket {
    burst: f64,
    /// Tokens a second.
    rate: f64,
    state: Mutex<State>,
    /// Somebody left the queue, or the pace changed.
    changed: Notify,
}

struct State {
    tokens: f64,
    /// When `tokens` was right.
    at: Instant,
    /// Part of the full rate that was left when EC2 last throttled.
    pace: f64,
    throttled: Instant,
    queue: BTreeSet<Ticket>,
    issued: u64,
}

/// The most urgent first, then the first come.
type Ticket = (Priority, u64);

enum Turn {
    Now,
    In(Duration),
    Behind,
}

impl Bucket {
    pub(crate) fn new(burst: u32, rate: u32) -> Self {
        let now = Instant::now();
        let state =
            State { tokens: f64::from(burst), at: now, pace: 1.0, throttled: now, queue: BTreeSet::new(), issued: 0 };
        Self { burst: f64::from(burst), rate: f64::from(rate), state: Mutex::new(state), changed: Notify::new() }
    }

    /// Waits for a token. Whoever gives up waiting leaves the queue.
    pub(crate) async fn take(&self, priority: Priority) {
        let place = self.line_up(priority);
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.turn(place.ticket) {
                Turn::Now => return,
                Turn::Behind => changed.await,
                Turn::In(pause) => tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = changed => {}
                },
            }
        }
    }

    /// EC2 has throttled a call: half the pace from here on, growing back.
    pub(crate) fn slow(&self) {
        let mut state = self.lock();
        self.refill(&mut state);
        let now = state.at;
        state.pace = (pace(&state, now) / 2.0).max(SLOWEST);
        state.throttled = now;
        state.tokens = state.tokens.min(0.0);
        self.changed.notify_waiters();
    }

    fn line_up(&self, priority: Priority) -> Place<'_> {
        let mut state = self.lock();
        let ticket = (priority, state.issued);
        state.issued += 1;
        state.queue.insert(ticket);
        Place { bucket: self, ticket }
    }

    fn turn(&self, ticket: Ticket) -> Turn {
        let mut state = self.lock();
        if state.queue.first() != Some(&ticket) {
            return Turn::Behind;
        }
        self.refill(&mut state);
        if state.tokens >= 1.0 {
            state.tokens -= 1.0;
            return Turn::Now;
        }
        let seconds = (1.0 - state.tokens) / (self.rate * pace(&state, state.at));
        Turn::In(Duration::from_secs_f64(seconds.max(0.001)))
    }

    fn refill(&self, state: &mut State) {
        let now = Instant::now();
        let gained = now.duration_since(state.at).as_secs_f64() * self.rate * pace(state, now);
        state.tokens = (state.tokens + gained).min(self.burst);
        state.at = now;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Part of the full rate at this moment.
fn pace(state: &State, now: Instant) -> f64 {
    let doublings = now.duration_since(state.throttled).as_secs_f64() / RECOVERY.as_secs_f64();
    (state.pace * doublings.min(64.0).exp2()).min(1.0)
}

/// A place in the queue, left when dropped.
struct Place<'a> {
    bucket: &'a Bucket,
    ticket: Ticket,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.bucket.lock().queue.remove(&self.ticket);
        self.bucket.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shared::cloud::Priority::{Idle, Sleeping, Waking};

    use super::*;

    /// How many tokens one greedy caller gets in this time.
    async fn taken(bucket: &Bucket, within: Duration) -> u32 {
        let mut count = 0;
        let greedy = async {
            loop {
                bucket.take(Idle).await;
                count += 1;
            }
        };
        tokio::time::timeout(within, greedy).await.unwrap_err();
        count
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_and_then_the_rate() {
        let bucket = Bucket::new(10, 5);
        assert_eq!(taken(&bucket, Duration::from_millis(100)).await, 10);
        let more = taken(&bucket, Duration::from_secs(10)).await;
        assert!((49..=51).contains(&more), "{more} in 10 s at 5 a second");
        tokio::time::sleep(Duration::from_mins(5)).await;
        assert_eq!(taken(&bucket, Duration::from_millis(100)).await, 10, "it does not hold more than the burst");
    }

    #[tokio::test(start_paused = true)]
    async fn waking_goes_before_sleeping_before_idle() {
        let bucket = Arc::new(Bucket::new(1, 1));
        bucket.take(Idle).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut callers = Vec::new();
        for (number, priority) in [Idle, Sleeping, Waking, Idle, Waking, Sleeping].into_iter().enumerate() {
            let (bucket, order) = (bucket.clone(), order.clone());
            callers.push(tokio::spawn(async move {
                bucket.take(priority).await;
                order.lock().unwrap().push(number);
            }));
            tokio::task::yield_now().await;
        }
        for caller in callers {
            caller.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), [2, 4, 1, 5, 0, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn half_the_pace_after_throttling_and_back_again() {
        let bucket = Bucket::new(50, 20);
        bucket.slow();
        let second = Duration::from_secs(1);
        let first = taken(&bucket, second).await;
        assert!((9..=13).contains(&first), "{first} in the first second: about half of 20, and no burst");
        tokio::time::sleep(Duration::from_secs(8)).await;
        taken(&bucket, Duration::from_millis(1)).await;
        let later = taken(&bucket, second).await;
        assert!((19..=21).contains(&later), "{later} after the recovery");
        for _ in 0..20 {
            bucket.slow();
        }
        let slowest = taken(&bucket, Duration::from_secs(4)).await;
        assert!((4..=8).contains(&slowest), "{slowest}: it never stands still");
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_holds_nobody_up() {
        let bucket = Arc::new(Bucket::new(1, 1));
        bucket.take(Waking).await;
        let gives_up = tokio::time::timeout(Duration::from_millis(10), bucket.take(Waking));
        let other = bucket.clone();
        let patient = tokio::spawn(async move { other.take(Idle).await });
        gives_up.await.unwrap_err();
        tokio::time::timeout(Duration::from_millis(1100), patient).await.unwrap().unwrap();
    }
}
