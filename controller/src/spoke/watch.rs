//! One connection to a waking spoke: watches instead of polls, and a reconcile of the target whenever something has
//! changed.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{BoxStream, SelectAll};
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use shared::spoke::kinds::{CertificateRequest, ClusterOperator, Lease, Node, Object};
use shared::spoke::{Spoke, SpokeError};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::reader::{Listing, SpokeClient, events};
use super::state::{Change, Snapshot, State};
use super::{ANSWER_TIMEOUT, failure};
use crate::csr;
use crate::runtime::panics::Panics;
use crate::runtime::watch_backoff::{WatchBackoff, api_error};
use crate::runtime::{clock, slot};
use fair::ChargedValue;

/// Events that come within this time make one reconcile.
const BATCH_WINDOW: Duration = Duration::from_millis(100);

/// Maximum events per batch, so that an endless stream is processed, too.
const BATCH_SIZE: usize = 500;

/// Snapshots take at most one part in this many of a watch's time.
const SNAPSHOT_SHARE: u32 = 10;

/// How soon a spoke is watched again that has more objects than we keep.
const TOO_MANY_PERIOD: Duration = Duration::from_secs(30);

/// What is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Nodes, Leases, certificate requests and, if wanted, operators.
    Everything {
        /// Whether operators are waited for.
        operators: bool,
    },
    /// Certificate requests.
    Certificates,
}

/// A watch of one spoke. It ends when it is dropped.
#[derive(Debug)]
pub struct SpokeWatch {
    snapshot: watch::Receiver<Arc<Snapshot>>,
    scope: Scope,
    task: JoinHandle<()>,
}

impl Drop for SpokeWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl SpokeWatch {
    /// Begins to watch. `changed` is called whenever there is something new to decide about, `requested` when there is
    /// something new about certificate requests. `requested` returns after what time to call it again, even without news.
    ///
    /// The spoke's answers are untrusted: a panic in the watch restarts it with empty state.
    pub fn begin<F>(
        client: SpokeClient,
        scope: Scope,
        since: Timestamp,
        panics: Panics,
        changed: impl Fn() + Send + Sync + 'static,
        requested: impl Fn(SpokeClient) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Option<Duration>> + Send + 'static,
    {
        let operators = scope == Scope::Everything { operators: true };
        let charge = client.charge();
        let new = move || State::new(since, operators, charge.another());
        let (snapshots, snapshot) = watch::channel(Arc::new(new().snapshot(clock::now())));
        let task = Task { client, scope, snapshots, changed, requested };
        let run = async move { panics.keep_alive("the watch of a spoke", || task.run(new())).await };
        Self { snapshot, scope, task: tokio::spawn(run) }
    }

    /// What it watches.
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// What it has seen. In the first moments, waits a little for the first answer.
    pub async fn observe(&mut self) -> Result<Spoke, SpokeError> {
        if !self.snapshot.borrow().is_conclusive() {
            let first = async { self.snapshot.wait_for(|snapshot| snapshot.is_conclusive()).await.map(drop) };
            let _ = slot::outside(tokio::time::timeout(Duration::from_millis(500), first)).await;
        }
        let snapshot = self.snapshot.borrow().clone();
        snapshot.observed(clock::now()).cloned()
    }
}

struct Task<C, R> {
    client: SpokeClient,
    scope: Scope,
    snapshots: watch::Sender<Arc<Snapshot>>,
    changed: C,
    requested: R,
}

type WatchItem = Result<Change, watcher::Error>;

impl<C: Fn() + Send + Sync + 'static, R, F> Task<C, R>
where
    R: Fn(SpokeClient) -> F + Send + Sync + 'static,
    F: Future<Output = Option<Duration>> + Send + 'static,
{
    /// Connects, again and again: soon at first, every two seconds later.
    async fn run(&self, mut state: State) {
        let mut listing = Listing::Streamed;
        loop {
            match self.session(listing, &mut state).await {
                Ended::NotStreamed => listing = Listing::Plain,
                Ended::Silent => tokio::time::sleep(Duration::from_millis(500)).await,
                Ended::TooMany => tokio::time::sleep(TOO_MANY_PERIOD).await,
            }
        }
    }

    /// One session: the first kind shows whether the API server works, then the others are asked for.
    async fn session(&self, listing: Listing, state: &mut State) -> Ended {
        state.begin();
        let first = match self.scope {
            Scope::Everything { .. } => self.events::<Node>(listing, Change::Node),
            Scope::Certificates => self.requests(listing),
        };
        let mut session = Session::new(listing, first);
        loop {
            let began = session.began.filter(|_| self.scope != Scope::Certificates);
            let next = tokio::select! {
                next = session.streams.next() => next,
                () = until(session.report_at) => {
                    session.report_at = self.report_requests().await;
                    continue;
                }
                () = until(session.publish_at) => {
                    self.publish_now(&mut session, state);
                    continue;
                }
                () = until(began.map(|began| began + ANSWER_TIMEOUT)) => {
                    // What it did answer in this time says more.
                    if !session.is_explained {
                        let message = format!("the cluster's API server did not answer within {ANSWER_TIMEOUT:?}");
                        self.failed(SpokeError::Unreachable(message), state);
                    }
                    return Ended::Silent;
                }
            };
            let Some(first) = next else { return Ended::Silent };
            let batch = session.batch(first).await;
            let has_requests = match self.apply(batch, &mut session, state) {
                Ok(has_requests) => has_requests,
                Err(ended) => return ended,
            };
            if state.truncated().is_some() {
                self.publish(state);
                return Ended::TooMany;
            }
            if session.began.is_some() && state.answers() {
                session.began = None;
                self.watch_others(&mut session);
            }
            if Instant::now() < session.earliest {
                session.publish_at = Some(session.earliest);
            } else {
                self.publish_now(&mut session, state);
            }
            if has_requests {
                session.report_at = self.report_requests().await;
            }
        }
    }

    /// Applies a batch of events. Returns whether there is something new about certificate requests.
    fn apply(&self, batch: Vec<WatchItem>, session: &mut Session, state: &mut State) -> Result<bool, Ended> {
        let mut has_requests = false;
        for seen in batch {
            match seen {
                Ok(Change::Unread) => has_requests = true,
                Ok(change) => {
                    has_requests |= matches!(change, Change::Request);
                    if matches!(change, Change::NoOperators) {
                        session.no_operators.send_replace(true);
                    }
                    state.apply(change);
                }
                Err(error) if session.listing == Listing::Streamed && is_not_streamed(&error) => {
                    return Err(Ended::NotStreamed);
                }
                Err(error) => {
                    session.is_explained = true;
                    self.failed(explain(&error), state);
                }
            }
        }
        Ok(has_requests)
    }

    /// Watches the other kinds, once the API server has listed the first one.
    fn watch_others(&self, session: &mut Session) {
        let (Scope::Everything { operators }, listing) = (self.scope, session.listing) else { return };
        session.streams.push(self.events::<Lease>(listing, Change::Lease));
        session.streams.push(self.requests(listing));
        if operators {
            let mut no_operators = session.no_operators.subscribe();
            let ended = async move { no_operators.wait_for(|none| *none).await.map(drop) }.boxed();
            let events = self.events::<ClusterOperator>(listing, Change::Operator);
            let events = events.map(|seen| match seen {
                Err(error) if is_no_such_kind(&error) => Ok(Change::NoOperators),
                seen => seen,
            });
            session.streams.push(events.take_until(ended).boxed());
        }
    }

    /// Returns when to do so again.
    async fn report_requests(&self) -> Option<Instant> {
        (self.requested)(self.client.clone()).await.map(|pause| Instant::now() + pause)
    }

    fn events<K: Object>(
        &self,
        listing: Listing,
        change: fn(Event<ChargedValue<K>>) -> Change,
    ) -> BoxStream<'static, WatchItem> {
        let events = events::<K>(self.client.clone(), listing).backoff(WatchBackoff::of_spoke());
        events.map(move |event| event.map(change)).boxed()
    }

    fn requests(&self, listing: Listing) -> BoxStream<'static, WatchItem> {
        let requests = self.events::<CertificateRequest>(listing, |event| match event {
            Event::InitApply(request) | Event::Apply(request) if is_undecided(&request) => Change::Request,
            // From here on it is known that the API server answers, and what it issued before the sleep.
            Event::InitDone => Change::Request,
            _ => Change::Nothing,
        });
        // Who may ask for a certificate must not stop the wake with a request that cannot be read.
        let unread = |seen| match seen {
            Err(error) if !is_not_streamed(&error) => Ok(Change::Unread),
            seen => seen,
        };
        requests.map(unread).boxed()
    }

    fn failed(&self, error: SpokeError, state: &mut State) {
        state.failed(error, clock::now());
        self.publish(state);
    }

    fn publish_now(&self, session: &mut Session, state: &mut State) {
        (session.earliest, session.publish_at) = (self.publish(state), None);
    }

    /// Publishes what was seen to reconciles, and calls for one if there is something new to decide about. Returns when
    /// the next snapshot may be made: a spoke with many objects may send many events.
    fn publish(&self, state: &mut State) -> Instant {
        let (begun, now) = (Instant::now(), clock::now());
        let snapshot = state.snapshot(now);
        let is_news = state.is_news(&snapshot, now);
        self.snapshots.send_replace(Arc::new(snapshot));
        if self.scope != Scope::Certificates && is_news {
            (self.changed)();
        }
        Instant::now() + (SNAPSHOT_SHARE - 1) * begun.elapsed()
    }
}

/// The streams of one session, and its times.
struct Session {
    listing: Listing,
    streams: SelectAll<BoxStream<'static, WatchItem>>,
    /// When it began, until the first kind was listed.
    began: Option<Instant>,
    /// Whether an error has said why the API server does not answer.
    is_explained: bool,
    /// When to report certificate requests again.
    report_at: Option<Instant>,
    /// When the next snapshot may be made, and when it is due.
    earliest: Instant,
    publish_at: Option<Instant>,
    /// Whether the cluster has no operators.
    no_operators: watch::Sender<bool>,
}

impl Session {
    fn new(listing: Listing, first: BoxStream<'static, WatchItem>) -> Self {
        let now = Instant::now();
        let (streams, no_operators) = (SelectAll::from_iter([first]), watch::Sender::new(false));
        let (began, earliest) = (Some(now), now);
        Self { listing, streams, began, is_explained: false, report_at: None, earliest, publish_at: None, no_operators }
    }

    /// The events that come soon after the first one.
    async fn batch(&mut self, first: WatchItem) -> Vec<WatchItem> {
        let mut batch = vec![first];
        let mut window = std::pin::pin!(tokio::time::sleep(BATCH_WINDOW));
        while batch.len() < BATCH_SIZE {
            tokio::select! {
                biased;
                next = self.streams.next() => match next {
                    Some(seen) => batch.push(seen),
                    None => break,
                },
                () = &mut window => break,
            }
        }
        batch
    }
}

fn is_undecided(request: &CertificateRequest) -> bool {
    csr::Kind::of_signer(&request.spec.signer_name).is_some() && csr::settled(request).is_none()
}

/// How a session ended.
#[derive(PartialEq, Eq)]
enum Ended {
    Silent,
    NotStreamed,
    /// More objects than we keep.
    TooMany,
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Servers that cannot stream a list answer so.
fn is_not_streamed(error: &watcher::Error) -> bool {
    matches!(api_error(error), Some(kube::Error::Api(status)) if matches!(status.code, 400 | 422))
}

fn is_no_such_kind(error: &watcher::Error) -> bool {
    matches!(api_error(error), Some(kube::Error::Api(status)) if status.is_not_found())
}

fn explain(error: &watcher::Error) -> SpokeError {
    match api_error(error) {
        Some(error) => failure(error),
        None => SpokeError::Failed(format!("the cluster's API server ends a watch: {error}")),
    }
}
