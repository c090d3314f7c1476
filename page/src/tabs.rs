//! The tabs that are open: the program ends some time after the last one.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// Counts the tabs.
#[derive(Clone, Default)]
pub struct Tabs(Arc<watch::Sender<usize>>);

/// One of them, until it is dropped.
pub struct Tab(Arc<watch::Sender<usize>>);

impl Tabs {
    /// One more.
    pub fn open(&self) -> Tab {
        self.0.send_modify(|count| *count += 1);
        Tab(Arc::clone(&self.0))
    }

    /// Waits until there has been none for so long.
    pub async fn idle(&self, long: Duration) {
        let mut count = self.0.subscribe();
        loop {
            let _ = count.wait_for(|count| *count == 0).await;
            if timeout(long, count.wait_for(|count| *count > 0)).await.is_err() {
                return;
            }
        }
    }
}

impl Drop for Tab {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_time_counts_from_the_end_of_the_last_tab() {
        let (tabs, begun) = (Tabs::default(), Instant::now());
        let minute = Duration::from_mins(1);
        let first = tabs.open();
        let open = async {
            sleep(3 * minute).await;
            drop(first);
            sleep(minute / 2).await;
            let second = tabs.open();
            sleep(minute).await;
            drop(second);
        };
        tokio::join!(open, tabs.idle(minute));
        assert_eq!(begun.elapsed(), 5 * minute + minute / 2);
    }
}
