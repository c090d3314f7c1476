//! How soon a watch is opened again after it has ended or failed.
//!
//! `kube` reopens a watch whose answer just ends at once, and reports nothing. Behind a load balancer that cuts every
//! connection this would be as many requests as the hub can answer.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use kube::Client;
use kube::client::Body;
use kube::runtime::{utils, watcher};
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::BoxError;

use super::backoff::{Backoff, Streak};

/// How long the hub may take to begin its answer. Without a timeout a watch would wait forever behind a load balancer
/// that accepts connections without a server behind it, while another client renews the Lease.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// Between two openings of the same watch. One that has lived longer is opened again at once.
const WATCH_PERIOD: Duration = Duration::from_secs(1);

/// Backoff of a watch: doubling, with some jitter.
#[derive(Debug)]
pub struct WatchBackoff {
    backoff: Backoff,
    streak: Streak,
    /// Only this long without a failure resets it, whatever has succeeded in between.
    calm: Option<Duration>,
    failed: Option<Instant>,
}

impl WatchBackoff {
    /// 0.2 s to 2 s: a target waits for this spoke.
    pub fn of_spoke() -> Self {
        Self::new(Duration::from_millis(200), Duration::from_secs(2), None)
    }

    /// 0.8 s to 5 s: with kube's default of up to a minute, changes would go unnoticed for that long after the hub has
    /// restarted.
    ///
    /// A watcher reports the beginning of each list as a success, so a success alone does not reset it.
    pub fn of_hub() -> Self {
        Self::new(Duration::from_millis(800), Duration::from_secs(5), Some(Duration::from_mins(1)))
    }

    /// Up to 30 s: a hub may do well without this kind.
    pub fn of_optional_kind() -> Self {
        Self::new(Duration::from_millis(800), Duration::from_secs(30), Some(Duration::from_mins(1)))
    }

    fn new(first: Duration, most: Duration, calm: Option<Duration>) -> Self {
        Self { backoff: Backoff { first, most }, streak: Streak::default(), calm, failed: None }
    }
}

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        if let (Some(calm), Some(failed)) = (self.calm, self.failed)
            && failed.elapsed() > calm
        {
            self.streak = Streak::default();
        }
        self.failed = Some(Instant::now());
        Some(self.streak.next(self.backoff).mul_f64(rand::random_range(0.8..1.2)))
    }
}

impl utils::Backoff for WatchBackoff {
    fn reset(&mut self) {
        if self.calm.is_none() {
            self.streak = Streak::default();
        }
    }
}

/// When each watch, by its path, may be opened again.
type Openings = HashMap<String, Instant>;

/// The same client, with at least [`WATCH_PERIOD`] between two openings of one watch.
pub fn spaced(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let openings: Arc<Mutex<Openings>> = Arc::default();
    let service = tower::service_fn(move |request: Request<Body>| {
        let turn = turn(&mut openings.lock(), request.uri(), Instant::now());
        let client = client.clone();
        async move {
            if let Some(turn) = turn {
                tokio::time::sleep_until(turn).await;
            }
            match tokio::time::timeout(ANSWER_TIMEOUT, client.send(request)).await {
                Ok(answer) => answer.map_err(BoxError::from),
                Err(_) => Err(BoxError::from(format!("the hub gives no answer within {ANSWER_TIMEOUT:?}"))),
            }
        }
    });
    Client::new(service, namespace)
}

/// What the API server answered, if that is why a watch has failed.
pub fn api_error(error: &watcher::Error) -> Option<&kube::Error> {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => Some(error),
        _ => None,
    }
}

/// Whether a request opens a watch.
pub fn is_watch(uri: &http::Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|pair| pair == "watch=true" || pair == "watch=1"))
}

/// When a request may be made; `None` is at once.
fn turn(openings: &mut Openings, uri: &http::Uri, now: Instant) -> Option<Instant> {
    if !is_watch(uri) {
        return None;
    }
    let turn = openings.get(uri.path()).map_or(now, |next| now.max(*next));
    openings.insert(uri.path().to_owned(), turn + WATCH_PERIOD);
    Some(turn)
}

#[cfg(test)]
mod tests {
    use kube::runtime::utils::Backoff as _;

    use super::*;

    #[test]
    fn watches_of_one_kind_are_a_second_apart_and_nothing_else_waits() {
        let (mut openings, now) = (Openings::new(), Instant::now());
        let mut wait = |uri: &'static str, after: Duration| {
            let now = now + after;
            turn(&mut openings, &http::Uri::from_static(uri), now).map(|turn| turn - now)
        };
        let (pods, nodes) = ("/api/v1/pods?limit=1&watch=true", "/api/v1/nodes?watch=1");
        assert_eq!(wait(pods, Duration::ZERO), Some(Duration::ZERO));
        assert_eq!(wait(nodes, Duration::ZERO), Some(Duration::ZERO));
        assert_eq!(wait(pods, Duration::from_millis(300)), Some(Duration::from_millis(700)));
        assert_eq!(wait(pods, Duration::from_millis(300)), Some(Duration::from_millis(1_700)));
        assert_eq!(wait(pods, Duration::from_mins(5)), Some(Duration::ZERO));
        assert_eq!(wait("/api/v1/pods?limit=1", Duration::from_mins(5)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_backoff_doubles_up_to_its_limit_and_resets() {
        let near = |pause: Option<Duration>, millis: u64| {
            let (pause, wanted) = (pause.unwrap_or_default(), Duration::from_millis(millis));
            assert!(pause >= wanted.mul_f64(0.8) && pause <= wanted.mul_f64(1.2), "{pause:?}, about {wanted:?}");
        };
        let (mut spoke, mut hub) = (WatchBackoff::of_spoke(), WatchBackoff::of_hub());
        for millis in [200, 400, 800, 1_600, 2_000, 2_000] {
            near(spoke.next(), millis);
        }
        spoke.reset();
        near(spoke.next(), 200);
        for millis in [800, 1_600, 3_200, 5_000, 5_000] {
            near(hub.next(), millis);
            hub.reset(); // what a watcher calls for when it begins to list
        }
        tokio::time::advance(Duration::from_secs(61)).await;
        near(hub.next(), 800);
        assert!((0..100).all(|_| hub.next().is_some()), "never given up");
    }
}
