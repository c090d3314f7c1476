//! Lists the machines of many clusters by one call.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use shared::cloud::{CloudError, Priority};

use crate::{Batcher, NoReply, Reply};

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
    /// Lists at most `most` clusters by one call of `find`, with the priority of the most urgent of them.
    pub fn new<F>(most: usize, find: F) -> Self
    where
        F: Fn(BTreeSet<K>, Priority) -> BoxFuture<'static, Result<T, CloudError>> + Send + Sync + 'static,
    {
        let find = Arc::new(find);
        let batcher = Batcher::new(most, move |requests| {
            let find = find.clone();
            Box::pin(async move { answer(&*find, requests).await })
        });
        Self { batcher, most }
    }

    /// What was found for one cluster, and for others. One that is listed `alone` shares no call with others.
    ///
    /// # Errors
    /// [`NoReply`] when the call's task ended without an answer.
    pub async fn list(&self, key: K, alone: bool, priority: Priority) -> Result<Result<T, CloudError>, NoReply> {
        let weight = if alone { self.most } else { 1 };
        let request = |reply| Request { key, priority, reply };
        self.batcher.ask(weight, window(priority), request).await
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
    use futures::FutureExt;
    use futures::future::join_all;
    use parking_lot::Mutex;
    use shared::cloud::CloudErrorKind;

    use super::*;

    type Calls = Arc<Mutex<Vec<(Vec<&'static str>, Priority)>>>;

    fn lists(result: Result<(), CloudErrorKind>) -> (ListBatcher<&'static str, ()>, Calls) {
        let calls = Calls::default();
        let log = calls.clone();
        let lists = ListBatcher::new(200, move |wanted, priority| {
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
        assert!(noted.iter().all(|noted| *noted == Ok(Ok(()))), "{noted:?}");
        assert_eq!(*calls.lock(), [(vec!["a", "b"], Priority::Waking)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_that_goes_alone_shares_no_call_and_an_error_is_told_to_all() {
        let (lists, calls) = lists(Err(CloudErrorKind::Throttled));
        let noted = join_all(
            [("a", false), ("*", true), ("b", false)]
                .map(|(infra_id, alone)| lists.list(infra_id, alone, Priority::Sleeping)),
        );
        assert!(
            noted.await.iter().all(|noted| matches!(noted, Ok(Err(error)) if error.kind == CloudErrorKind::Throttled))
        );
        let calls = calls.lock();
        assert!(calls.iter().all(|(wanted, _)| wanted.len() == 1 || !wanted.contains(&"*")), "{calls:?}");
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
