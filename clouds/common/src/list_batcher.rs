//! Lists the machines of many clusters by one call.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use shared::cloud::{CloudError, CloudErrorKind, Priority};
use tokio::time::Instant;

use crate::{Batcher, Reply};

/// How long a list waits for others. No caller waits for an idle list, and there may be thousands of those within
/// minutes.
fn window(priority: Priority) -> Duration {
    match priority {
        Priority::Waking => Duration::from_millis(25),
        Priority::Sleeping => Duration::from_millis(100),
        Priority::Idle => Duration::from_secs(2),
    }
}

/// Joins the lists that several clusters of one account ask for at the same time. Everybody gets all that was found.
///
/// `K` says which machines a caller asks for, such as an infraID.
pub struct ListBatcher<K: Key, T: Clone + Send + Sync + 'static> {
    batcher: Arc<Batcher<Request<K, T>>>,
    /// The greatest weight of a call.
    most: usize,
    /// Least time between two calls, and when the last one began.
    spacing: (Duration, Arc<Mutex<Option<Instant>>>),
}

/// What a list can be asked for.
pub trait Key: Clone + Ord + Send + Sync + 'static {}

impl<K: Clone + Ord + Send + Sync + 'static> Key for K {}

struct Request<K, T> {
    key: K,
    priority: Priority,
    reply: Reply<Result<T, CloudError>>,
}

impl<K: Key, T: Clone + Send + Sync + 'static> ListBatcher<K, T> {
    /// Lists at most `most` clusters by one call of `find`, with the priority of the most urgent of them. Unless a call is
    /// full, it begins at least `spacing` after the last one. Use zero where a call for one cluster costs less than a call
    /// for all.
    pub fn new<F>(most: usize, spacing: Duration, find: F) -> Self
    where
        F: Fn(BTreeSet<K>, Priority) -> BoxFuture<'static, Result<T, CloudError>> + Send + Sync + 'static,
    {
        let (find, last) = (Arc::new(find), Arc::<Mutex<Option<Instant>>>::default());
        let begins = last.clone();
        let batcher = Batcher::new(most, move |requests| {
            *begins.lock() = Some(Instant::now());
            let find = find.clone();
            Box::pin(async move { answer(&*find, requests).await })
        });
        Self { batcher, most, spacing: (spacing, last) }
    }

    /// The result of the call, for all clusters that share it. With `alone`, the call is for this key only.
    pub async fn list(&self, key: K, alone: bool, priority: Priority) -> Result<T, CloudError> {
        let weight = if alone { self.most } else { 1 };
        let request = |reply| Request { key, priority, reply };
        let (spacing, last) = &self.spacing;
        let since = last.lock().map_or(Duration::MAX, |last| last.elapsed());
        let window = window(priority).max(spacing.saturating_sub(since));
        let canceled = || CloudError::new(CloudErrorKind::Unavailable, "the list of machines was canceled");
        self.batcher.ask(weight, window, request).await.unwrap_or_else(|_| Err(canceled()))
    }
}

async fn answer<K: Key, T: Clone, F>(find: &F, mut requests: Vec<Request<K, T>>)
where
    F: Fn(BTreeSet<K>, Priority) -> BoxFuture<'static, Result<T, CloudError>>,
{
    requests.retain(|request| request.reply.is_wanted());
    let Some(priority) = requests.iter().map(|request| request.priority).min() else { return };
    let wanted = requests.iter().map(|request| request.key.clone()).collect();
    let found = find(wanted, priority).await;
    for Request { reply, .. } in requests {
        reply.send(found.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use futures::future::join_all;

    type Calls = Arc<Mutex<Vec<(Vec<&'static str>, Priority)>>>;

    fn lists(result: Result<(), CloudErrorKind>) -> (ListBatcher<&'static str, ()>, Calls) {
        let calls = Calls::default();
        let log = calls.clone();
        let lists = ListBatcher::new(200, Duration::ZERO, move |wanted, priority| {
            log.lock().push((wanted.into_iter().collect(), priority));
            let found = result.map_err(|kind| CloudError { kind, message: "no".into() });
            async move { found }.boxed()
        });
        (lists, calls)
    }

    #[tokio::test(start_paused = true)]
    async fn clusters_share_a_call_which_is_as_urgent_as_the_most_urgent_of_them() {
        let (lists, calls) = lists(Ok(()));
        let all = [("b", Priority::Idle), ("a", Priority::Waking), ("b", Priority::Sleeping)];
        let noted = join_all(all.map(|(infra_id, priority)| lists.list(infra_id, false, priority))).await;
        assert!(noted.iter().all(|noted| *noted == Ok(())), "{noted:?}");
        assert_eq!(*calls.lock(), [(vec!["a", "b"], Priority::Waking)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_that_goes_alone_shares_no_call_and_an_error_is_told_to_all() {
        let (lists, calls) = lists(Err(CloudErrorKind::Throttled));
        let noted = join_all(
            [("a", false), ("*", true), ("b", false)]
                .map(|(infra_id, alone)| lists.list(infra_id, alone, Priority::Sleeping)),
        );
        assert!(noted.await.iter().all(|noted| matches!(noted, Err(error) if error.kind == CloudErrorKind::Throttled)));
        let calls = calls.lock();
        assert!(calls.iter().all(|(wanted, _)| wanted.len() == 1 || !wanted.contains(&"*")), "{calls:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn spaced_lists_begin_at_once_after_a_pause_and_never_close_to_each_other() {
        let began = Instant::now();
        let at = Arc::<Mutex<Vec<Duration>>>::default();
        let log = at.clone();
        let lists = ListBatcher::new(usize::MAX, Duration::from_secs(1), move |_: BTreeSet<u32>, _| {
            log.lock().push(began.elapsed());
            async { Ok(()) }.boxed()
        });
        for pause in [0, 100, 100, 5_000] {
            tokio::time::sleep(Duration::from_millis(pause)).await;
            lists.list(1, false, Priority::Waking).await.unwrap();
        }
        let seconds: Vec<f64> = at.lock().iter().map(Duration::as_secs_f64).collect();
        let expected = [0.025, 1.025, 2.025, 7.05];
        assert!(seconds.iter().zip(expected).all(|(at, expected)| (at - expected).abs() < 0.01), "{seconds:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_nobody_waits_for_is_not_made() {
        let (lists, calls) = lists(Ok(()));
        let gives_up = lists.list("a", false, Priority::Idle);
        assert!(tokio::time::timeout(Duration::from_secs(1), gives_up).await.is_err());
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(calls.lock().is_empty());
    }
}
