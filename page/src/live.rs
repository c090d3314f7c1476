//! What changes of the rows that a tab shows, as lines of JSON: ten in a second at most.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use futures::stream;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use server::Unanswered;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use crate::cache::{Cache, key};
use crate::fleet::{PAGE, Row};
use crate::tabs::Tab;

/// Time between two messages at the least.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// Interval of the refresh of ages. Its message also shows the tab that the program runs.
const TICK: Duration = Duration::from_secs(10);

/// The rows that a tab shows.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shown {
    ids: Vec<String>,
}

/// One message.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Message {
    /// Rows that changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rows: Vec<Row>,
    /// Incremented when a target appears or disappears.
    revision: u64,
    /// Incremented when a rollout, upgrade or schedule changes.
    activity: u64,
    /// Since when the hub does not answer; empty while it does.
    outage: String,
    failures: Vec<String>,
}

struct Live {
    cache: Arc<Cache>,
    changes: watch::Receiver<u64>,
    /// The rows, as the tab has them.
    rows: BTreeMap<String, Option<Row>>,
    last: Option<Instant>,
    /// The last message, without rows.
    sent: Option<Message>,
    /// Counted while the stream lasts.
    _tab: Tab,
    /// Keeps the connection from counting as idle.
    _unanswered: Option<Unanswered>,
}

/// The stream of a tab that shows these rows.
pub fn body(cache: &Arc<Cache>, shown: Shown, tab: Tab, unanswered: Option<Unanswered>) -> Body {
    let rows = shown.ids.into_iter().take(PAGE).map(|id| (id, None)).collect();
    let live = Live {
        changes: cache.changes(),
        cache: Arc::clone(cache),
        rows,
        last: None,
        sent: None,
        _tab: tab,
        _unanswered: unanswered,
    };
    Body::from_stream(stream::unfold(live, async |mut live| {
        let line = live.next().await;
        Some((Ok::<_, Infallible>(line), live))
    }))
}

impl Live {
    async fn next(&mut self) -> String {
        loop {
            let is_tick = match self.last {
                None => true,
                Some(last) => {
                    let is_late = timeout(TICK, self.changes.changed()).await.is_err();
                    sleep_until(last + MIN_INTERVAL).await;
                    is_late
                }
            };
            self.last = Some(Instant::now());
            self.changes.mark_unchanged();
            let message = self.message(Timestamp::now());
            // Most changes are of rows that other tabs show.
            if is_tick || self.sent.as_ref() != Some(&message) {
                let mut line = serde_json::to_string(&message).unwrap_or_default();
                line.push('\n');
                self.sent = Some(Message { rows: Vec::new(), ..message });
                return line;
            }
        }
    }

    fn message(&mut self, now: Timestamp) -> Message {
        let objects = self.cache.objects();
        let mut rows = Vec::new();
        for (id, sent) in &mut self.rows {
            let found = key(id).and_then(|key| objects.target(&key)).map(|target| Row::of(target, now));
            let row = found.unwrap_or_else(|| Row::gone(id));
            if sent.as_ref() != Some(&row) {
                rows.push(row.clone());
                *sent = Some(row);
            }
        }
        let (revision, activity) = (objects.revision, objects.activity);
        Message { rows, revision, activity, outage: objects.outage(), failures: objects.failures() }
    }
}
