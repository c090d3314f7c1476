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
use super::state::{Change, Picture, State};
use super::{ANSWER_TIMEOUT, csr, failure};
use crate::runtime::panics::Panics;
use crate::runtime::watch_backoff::{WatchBackoff, answer};
use crate::runtime::{clock, slot};
use fair::ChargedValue;

/// Events that come within this time make one reconcile.
const BATCH_WINDOW: Duration = Duration::from_millis(100);

/// Maximum events per batch, so that an endless stream is processed, too.
const BATCH_SIZE: usize = 500;

/// Of the time of a watch, at most one part of so many is for pictures of what it has seen.
const PICTURES: u32 = 10;

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
    picture: watch::Receiver<Arc<Picture>>,
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
    /// something new about certificate requests; it answers when to call it again, news or not.
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
        let (pictures, picture) = watch::channel(Arc::new(new().picture(clock::now())));
        let task = Task { client, scope, pictures, changed, requested };
        let run = async move { panics.keep_alive("the watch of a spoke", || task.run(new())).await };
        Self { picture, scope, task: tokio::spawn(run) }
    }

    /// What it watches.
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// What it has seen. In the first moments, waits a little for the first answer.
    pub async fn observe(&mut self) -> Result<Spoke, SpokeError> {
        if !self.picture.borrow().speaks() {
            let first = async { self.picture.wait_for(|picture| picture.speaks()).await.map(drop) };
            let _ = slot::outside(tokio::time::timeout(Duration::from_millis(500), first)).await;
        }
        let picture = self.picture.borrow().clone();
        picture.observed(clock::now()).cloned()
    }
}

struct Task<C, R> {
    client: SpokeClient,
    scope: Scope,
    pictures: watch::Sender<Arc<Picture>>,
    changed: C,
    requested: R,
}

type Seen = Result<Change, watcher::Error>;

impl<C: Fn() + Send + Sync + 'static, R, F> Task<C, R>
where
    R: Fn(SpokeClient) -> F + Send + Sync + 'static,
    F: Future<Output = Option<Duration>> + Send + 'static,
{
    /// Connects, again and again: soon at first, every two seconds later.
    async fn run(&self, mut state: State) {
        let mut listing = Listing::Streamed;
        let mut digest = None;
        loop {
            match self.session(listing, &mut state, &mut digest).await {
                Ended::NotStreamed => listing = Listing::Plain,
                Ended::Silent => tokio::time::sleep(Duration::from_millis(500)).await,
                Ended::TooMany => tokio::time::sleep(TOO_MANY_PERIOD).await,
            }
        }
    }

    /// One session: the first kind shows whether the API server works, then the others are asked for.
    async fn session(&self, listing: Listing, state: &mut State, digest: &mut Option<u64>) -> Ended {
        state.begin();
        let mut streams: SelectAll<BoxStream<'static, Seen>> = SelectAll::new();
        let mut began = Some(Instant::now());
        let (mut again, mut is_explained) = (None, false);
        // When the next picture may be made, and when it is due.
        let (mut earliest, mut due) = (Instant::now(), None);
        match self.scope {
            Scope::Everything { .. } => streams.push(self.events::<Node>(listing, Change::Node)),
            Scope::Certificates => streams.push(self.requests(listing)),
        }
        let (no_operators, operators_missing) = watch::channel(false);
        loop {
            let deadline = began.filter(|_| self.scope != Scope::Certificates).map(|began| began + ANSWER_TIMEOUT);
            let next = tokio::select! {
                next = streams.next() => next,
                () = until(again) => {
                    again = (self.requested)(self.client.clone()).await.map(|pause| Instant::now() + pause);
                    continue;
                }
                () = until(due) => {
                    (earliest, due) = (self.show(state, digest), None);
                    continue;
                }
                () = until(deadline) => {
                    // What it did answer in this time says more.
                    if !is_explained {
                        let message = format!("the cluster's API server did not answer within {ANSWER_TIMEOUT:?}");
                        self.failed(SpokeError::Unreachable(message), state, digest);
                    }
                    return Ended::Silent;
                }
            };
            let Some(first) = next else { return Ended::Silent };
            let mut batch = vec![first];
            let mut more = std::pin::pin!(tokio::time::sleep(BATCH_WINDOW));
            while batch.len() < BATCH_SIZE {
                tokio::select! {
                    biased;
                    next = streams.next() => match next {
                        Some(seen) => batch.push(seen),
                        None => break,
                    },
                    () = &mut more => break,
                }
            }
            let mut requested = false;
            for seen in batch {
                match seen {
                    Ok(Change::Unread) => requested = true,
                    Ok(change) => {
                        requested |= matches!(change, Change::Request);
                        if matches!(change, Change::NoOperators) {
                            let _ = no_operators.send(true);
                        }
                        state.apply(change);
                    }
                    Err(error) if listing == Listing::Streamed && is_not_streamed(&error) => return Ended::NotStreamed,
                    Err(error) => {
                        is_explained = true;
                        self.failed(explain(&error), state, digest);
                    }
                }
            }
            if state.cut().is_some() {
                self.show(state, digest);
                return Ended::TooMany;
            }
            if began.is_some() && state.answers() {
                began = None;
                let Scope::Everything { operators } = self.scope else { continue };
                streams.push(self.events::<Lease>(listing, Change::Lease));
                streams.push(self.requests(listing));
                if operators {
                    let mut no_operators = operators_missing.clone();
                    let ended = async move { no_operators.wait_for(|none| *none).await.map(drop) }.boxed();
                    let events = self.events::<ClusterOperator>(listing, Change::Operator);
                    let events = events.map(|seen| match seen {
                        Err(error) if is_no_such_kind(&error) => Ok(Change::NoOperators),
                        seen => seen,
                    });
                    streams.push(events.take_until(ended).boxed());
                }
            }
            if Instant::now() < earliest {
                due = Some(earliest);
            } else {
                (earliest, due) = (self.show(state, digest), None);
            }
            if requested {
                again = (self.requested)(self.client.clone()).await.map(|pause| Instant::now() + pause);
            }
        }
    }

    fn events<K: Object>(
        &self,
        listing: Listing,
        change: fn(Event<ChargedValue<K>>) -> Change,
    ) -> BoxStream<'static, Seen> {
        let events = events::<K>(self.client.clone(), listing).backoff(WatchBackoff::of_spoke());
        events.map(move |event| event.map(change)).boxed()
    }

    fn requests(&self, listing: Listing) -> BoxStream<'static, Seen> {
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

    fn failed(&self, error: SpokeError, state: &mut State, digest: &mut Option<u64>) {
        state.failed(error, clock::now());
        self.show(state, digest);
    }

    /// Shows what was seen to reconciles, and calls for one if there is something new to decide about. Returns when the
    /// next picture may be made: a spoke with many objects may send many events.
    fn show(&self, state: &mut State, digest: &mut Option<u64>) -> Instant {
        let (begun, now) = (Instant::now(), clock::now());
        let picture = state.picture(now);
        let new = picture.digest(now);
        self.pictures.send_replace(Arc::new(picture));
        if self.scope != Scope::Certificates && digest.replace(new) != Some(new) {
            (self.changed)();
        }
        Instant::now() + (PICTURES - 1) * begun.elapsed()
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
    matches!(answer(error), Some(kube::Error::Api(status)) if matches!(status.code, 400 | 422))
}

fn is_no_such_kind(error: &watcher::Error) -> bool {
    matches!(answer(error), Some(kube::Error::Api(status)) if status.is_not_found())
}

fn explain(error: &watcher::Error) -> SpokeError {
    match answer(error) {
        Some(error) => failure(error),
        None => SpokeError::Failed(format!("the cluster's API server ends a watch: {error}")),
    }
}
