//! How many calls an account takes, or how many machines it moves: a token bucket whose tokens go to the most urgent
//! caller first.
//!
//! Clouds limit the calls of an account, and everyone who works in the account draws from the same limit. Our bucket is
//! no larger than the cloud's. When the cloud throttles a call, the bucket refills more slowly for a while.
//!
//! `governor` was evaluated: it polls its waiters in no order and its quota is fixed at construction, so neither
//! priorities nor the slow-down can be built on it.

use std::collections::BTreeSet;
use std::time::Duration;

use parking_lot::Mutex;
use scopeguard::guard;
use shared::cloud::Priority;
use tokio::sync::Notify;
use tokio::time::Instant;

/// After a slow-down, the rate doubles in this time until it is back at the full rate.
const RATE_DOUBLING_TIME: Duration = Duration::from_secs(5);

/// The slowest rate, as a fraction of the full one.
const MIN_RATE_FRACTION: f64 = 1.0 / 16.0;

/// Limits the calls of one kind in one account and region.
#[derive(Debug)]
pub struct RateLimiter {
    burst: f64,
    /// Tokens per second.
    rate: f64,
    state: Mutex<State>,
    /// A caller left the queue, or the rate changed.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    tokens: f64,
    /// When `tokens` was computed.
    at: Instant,
    /// Fraction of the full rate at the last slow-down.
    fraction: f64,
    slowed: Instant,
    /// Until then there are no tokens.
    paused: Instant,
    queue: BTreeSet<Ticket>,
    issued: u64,
}

/// Most urgent first, then first come, first served.
type Ticket = (Priority, u64);

enum Turn {
    Now(u32),
    In(Duration),
    Behind,
}

impl RateLimiter {
    /// Allows `burst` calls at once and `rate` calls per second after that.
    pub fn new(burst: u32, rate: u32) -> Self {
        let now = Instant::now();
        let state = State {
            tokens: f64::from(burst),
            at: now,
            fraction: 1.0,
            slowed: now,
            paused: now,
            queue: BTreeSet::new(),
            issued: 0,
        };
        Self { burst: f64::from(burst), rate: f64::from(rate), state: Mutex::new(state), changed: Notify::new() }
    }

    /// Waits for a token. A caller that is dropped leaves the queue.
    pub async fn acquire(&self, priority: Priority) {
        self.acquire_some(priority, 1, 1).await;
    }

    /// Waits until there are `least` tokens, or a full bucket if it holds fewer, and takes as many as there are, at
    /// most `most`. A caller that is dropped leaves the queue.
    pub async fn acquire_some(&self, priority: Priority, least: u32, most: u32) -> u32 {
        let most = f64::from(most).min(self.burst.floor());
        let least = f64::from(least).min(most);
        let place = guard(self.line_up(priority), |ticket| {
            self.state.lock().queue.remove(&ticket);
            self.changed.notify_waiters();
        });
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.turn(*place, least, most) {
                Turn::Now(tokens) => return tokens,
                Turn::Behind => changed.await,
                Turn::In(pause) => tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = changed => {}
                },
            }
        }
    }

    /// Halves the rate, because the cloud has throttled a call. The rate grows back over time.
    pub fn slow_down(&self) {
        let mut state = self.state.lock();
        self.refill(&mut state);
        let now = state.at;
        state.fraction = (fraction(&state, now) / 2.0).max(MIN_RATE_FRACTION);
        state.slowed = now;
        state.tokens = state.tokens.min(0.0);
        self.changed.notify_waiters();
    }

    /// Gives no tokens for so long, because the cloud asks for it.
    pub fn pause(&self, time: Duration) {
        let mut state = self.state.lock();
        state.paused = state.paused.max(Instant::now() + time);
        self.changed.notify_waiters();
    }

    /// Whether all tokens are back: a new limiter would do the same.
    pub fn is_full(&self) -> bool {
        let mut state = self.state.lock();
        self.refill(&mut state);
        state.queue.is_empty() && state.tokens >= self.burst && fraction(&state, state.at) >= 1.0
    }

    /// Takes the tokens of so much time, and lets the bucket owe them: the cloud's own bucket is behind.
    pub fn set_back(&self, time: Duration) {
        let tokens = (self.rate * time.as_secs_f64()).min(self.burst);
        let mut state = self.state.lock();
        self.refill(&mut state);
        state.tokens = (state.tokens - tokens).max(-tokens);
    }

    fn line_up(&self, priority: Priority) -> Ticket {
        let mut state = self.state.lock();
        let ticket = (priority, state.issued);
        state.issued += 1;
        state.queue.insert(ticket);
        ticket
    }

    fn turn(&self, ticket: Ticket, least: f64, most: f64) -> Turn {
        let mut state = self.state.lock();
        if state.queue.first() != Some(&ticket) {
            return Turn::Behind;
        }
        self.refill(&mut state);
        let paused = state.paused.saturating_duration_since(state.at);
        if !paused.is_zero() {
            return Turn::In(paused);
        }
        if state.tokens >= least {
            let taken = state.tokens.floor().clamp(least, most);
            state.tokens -= taken;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most a u32's worth")]
            return Turn::Now(taken as u32);
        }
        let seconds = (least - state.tokens) / (self.rate * fraction(&state, state.at));
        Turn::In(Duration::from_secs_f64(seconds.max(0.001)))
    }

    fn refill(&self, state: &mut State) {
        let now = Instant::now();
        let gained = now.duration_since(state.at).as_secs_f64() * self.rate * fraction(state, now);
        state.tokens = (state.tokens + gained).min(self.burst);
        state.at = now;
    }
}

/// Fraction of the full rate that applies now.
fn fraction(state: &State, now: Instant) -> f64 {
    let doublings = now.duration_since(state.slowed).as_secs_f64() / RATE_DOUBLING_TIME.as_secs_f64();
    (state.fraction * doublings.min(64.0).exp2()).min(1.0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shared::cloud::Priority::{Idle, Sleeping, Waking};

    use super::*;

    /// How many tokens one caller gets in this time.
    async fn taken(limiter: &RateLimiter, within: Duration) -> u32 {
        let mut count = 0;
        let greedy = async {
            loop {
                limiter.acquire(Idle).await;
                count += 1;
            }
        };
        tokio::time::timeout(within, greedy).await.unwrap_err();
        count
    }

    #[tokio::test(start_paused = true)]
    async fn a_bucket_that_is_set_back_owes_the_tokens_and_gets_them_back() {
        let limiter = RateLimiter::new(10, 5);
        assert!(limiter.is_full());
        limiter.set_back(Duration::from_millis(800));
        assert!(!limiter.is_full());
        assert_eq!(taken(&limiter, Duration::from_millis(100)).await, 6);
        limiter.set_back(Duration::from_secs(1));
        assert_eq!(taken(&limiter, Duration::from_millis(800)).await, 0, "five are owed");
        assert_eq!(taken(&limiter, Duration::from_millis(300)).await, 1);
        limiter.set_back(Duration::from_hours(1));
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert!(limiter.is_full(), "no more is owed than one burst");
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_and_then_the_rate() {
        let limiter = RateLimiter::new(10, 5);
        assert_eq!(taken(&limiter, Duration::from_millis(100)).await, 10);
        let more = taken(&limiter, Duration::from_secs(10)).await;
        assert!((49..=51).contains(&more), "{more} in 10 s at 5 a second");
        tokio::time::sleep(Duration::from_mins(5)).await;
        assert_eq!(taken(&limiter, Duration::from_millis(100)).await, 10, "it holds no more than the burst");
    }

    #[tokio::test(start_paused = true)]
    async fn waking_goes_before_sleeping_before_idle() {
        let limiter = Arc::new(RateLimiter::new(1, 1));
        limiter.acquire(Idle).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut callers = Vec::new();
        for (number, priority) in [Idle, Sleeping, Waking, Idle, Waking, Sleeping].into_iter().enumerate() {
            let (limiter, order) = (limiter.clone(), order.clone());
            callers.push(tokio::spawn(async move {
                limiter.acquire(priority).await;
                order.lock().push(number);
            }));
            tokio::task::yield_now().await;
        }
        for caller in callers {
            caller.await.unwrap();
        }
        assert_eq!(*order.lock(), [2, 4, 1, 5, 0, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_down_halves_the_rate_which_recovers() {
        let limiter = RateLimiter::new(50, 20);
        limiter.slow_down();
        let second = Duration::from_secs(1);
        let first = taken(&limiter, second).await;
        assert!((9..=13).contains(&first), "{first} in the first second: about half of 20, and no burst");
        tokio::time::sleep(Duration::from_secs(8)).await;
        taken(&limiter, Duration::from_millis(1)).await;
        let later = taken(&limiter, second).await;
        assert!((19..=21).contains(&later), "{later} after the recovery");
        for _ in 0..20 {
            limiter.slow_down();
        }
        let slowest = taken(&limiter, Duration::from_secs(4)).await;
        assert!((4..=8).contains(&slowest), "{slowest}: the rate never falls to zero");
    }

    #[tokio::test(start_paused = true)]
    async fn some_tokens_come_together_and_smaller_callers_do_not_overtake() {
        let limiter = Arc::new(RateLimiter::new(10, 2));
        assert_eq!(limiter.acquire_some(Waking, 10, 10).await, 10);
        let (begin, many, one) = (Instant::now(), limiter.clone(), limiter.clone());
        let many = tokio::spawn(async move {
            assert_eq!(many.acquire_some(Waking, 6, 8).await, 6);
            begin.elapsed().as_secs()
        });
        tokio::task::yield_now().await;
        let one = tokio::spawn(async move {
            one.acquire(Waking).await;
            begin.elapsed().as_secs()
        });
        assert_eq!((many.await.unwrap(), one.await.unwrap()), (3, 3));
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(limiter.acquire_some(Waking, 3, 500).await, 10, "all that it holds");
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_gives_up_delays_no_other() {
        let limiter = Arc::new(RateLimiter::new(1, 1));
        limiter.acquire(Waking).await;
        let gives_up = tokio::time::timeout(Duration::from_millis(10), limiter.acquire(Waking));
        let other = limiter.clone();
        let patient = tokio::spawn(async move { other.acquire(Idle).await });
        gives_up.await.unwrap_err();
        tokio::time::timeout(Duration::from_millis(1100), patient).await.unwrap().unwrap();
    }
}
