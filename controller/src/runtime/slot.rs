//! The slot of a reconcile: it holds one while it works, and gives it back while it waits for a spoke.
//!
//! A spoke is a tenant's, and answers when it likes. Every client of a spoke gives the slot of the reconcile back by
//! itself, so that no system has to think of it. Reconciles that have begun are bounded as well: each holds what it has
//! read, and a connection.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures::{Stream, StreamExt, stream};
use http::Response;
use kube::client::Body as KubeBody;
use parking_lot::Mutex;
use scopeguard::guard;
use tokio::time::{Instant, timeout_at};

use fair::{FairLimit, FairPermit};

tokio::task_local! {
    /// The slot of the reconcile that this task runs.
    static SLOT: Slot;
}

/// The slots of one system.
pub struct Slots {
    working: Arc<FairLimit>,
    begun: Arc<FairLimit>,
}

impl Slots {
    /// So many reconciles of one tenant at once, and half as many more over all. Four times as many may have begun,
    /// those that wait for spokes included.
    pub fn new(per_tenant: u16) -> Self {
        let per_tenant = usize::from(per_tenant).max(1);
        Self {
            working: FairLimit::new(per_tenant + per_tenant.div_ceil(2), per_tenant),
            begun: FairLimit::new(4 * per_tenant, per_tenant),
        }
    }

    /// The slot of a reconcile that may begin now.
    pub fn begin(&self, tenant: &str) -> Option<Slot> {
        let begun = self.begun.try_acquire(tenant)?;
        let permit = Some(self.working.try_acquire(tenant)?);
        let state = Mutex::new(State { permit, ..State::default() });
        let (working, tenant, returning) = (self.working.clone(), tenant.to_owned(), tokio::sync::Mutex::default());
        Some(Slot(Arc::new(Inner { working, tenant, state, returning, _begun: begun })))
    }

    /// Whether no tenant may begin a reconcile now.
    pub fn are_full(&self) -> bool {
        self.working.is_full() || self.begun.is_full()
    }

    /// Waits until a slot was given back since the last call. The end of a reconcile is seen elsewhere.
    pub async fn freed(&self) {
        self.working.freed().await;
    }
}

/// The slot of one reconcile.
#[derive(Clone)]
pub struct Slot(Arc<Inner>);

struct Inner {
    working: Arc<FairLimit>,
    tenant: String,
    state: Mutex<State>,
    /// Of several requests that end together, one waits for the slot.
    returning: tokio::sync::Mutex<()>,
    _begun: FairPermit,
}

#[derive(Default)]
struct State {
    /// The slot, unless it was given back.
    permit: Option<FairPermit>,
    /// Requests to spokes that are under way.
    away: usize,
    /// How long slots were waited for, and since when one is.
    waited: Duration,
    waits: Option<Instant>,
}

impl Slot {
    /// Runs a reconcile that may take this long, but for the time in which it waits for a slot. `None` if it takes
    /// longer.
    pub async fn within<T>(&self, timeout: Duration, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(SLOT.scope(self.clone(), work));
        let begun = Instant::now();
        loop {
            let waited = self.waited();
            if let Ok(done) = timeout_at(begun + timeout + waited, &mut work).await {
                return Some(done);
            }
            if self.waited() == waited {
                return None;
            }
        }
    }

    /// Takes a slot again, unless a request to a spoke is under way.
    async fn back(&self) {
        let _turn = self.0.returning.lock().await;
        if !self.0.state.lock().is_to_return() {
            return;
        }
        self.0.state.lock().waits.get_or_insert_with(Instant::now);
        let waiting = guard(&self.0.state, |state| {
            let mut state = state.lock();
            if let Some(since) = state.waits.take() {
                state.waited += since.elapsed();
            }
        });
        let permit = self.0.working.acquire(&self.0.tenant).await;
        drop(waiting);
        let mut state = self.0.state.lock();
        if state.is_to_return() {
            state.permit = Some(permit);
        } else {
            drop(state); // not under the lock: others may wait for it
            drop(permit);
        }
    }

    fn waited(&self) -> Duration {
        let state = self.0.state.lock();
        state.waited + state.waits.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

impl State {
    fn is_to_return(&self) -> bool {
        self.away == 0 && self.permit.is_none()
    }
}

/// A request to a spoke that is under way.
struct Away(Slot);

impl Away {
    /// Gives the slot back. `None` in a task that has none.
    fn begin() -> Option<Self> {
        let slot = SLOT.try_with(Slot::clone).ok()?;
        let mut state = slot.0.state.lock();
        state.away += 1;
        let permit = state.permit.take();
        drop(state);
        drop(permit);
        Some(Self(slot))
    }

    async fn end(self) {
        let slot = self.0.clone();
        drop(self);
        slot.back().await;
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        self.0.0.state.lock().away -= 1;
    }
}

/// Waits for a spoke without a slot. Timeouts belong inside: the wait for the slot afterwards is not the spoke's fault.
pub async fn outside<T>(wait: impl Future<Output = T>) -> T {
    let away = Away::begin();
    let result = wait.await;
    if let Some(away) = away {
        away.end().await;
    }
    result
}

/// The same for a request, until its answer was read to its end.
pub async fn request<E>(sent: impl Future<Output = Result<Response<KubeBody>, E>>) -> Result<Response<Body>, E> {
    let Some(away) = Away::begin() else { return sent.await.map(|answer| answer.map(Body::new)) };
    match sent.await {
        Ok(answer) => Ok(answer.map(|body| Body::from_stream(until_read(body, away)))),
        Err(error) => {
            away.end().await;
            Err(error)
        }
    }
}

fn until_read(body: KubeBody, away: Away) -> impl Stream<Item = Result<Bytes, axum::Error>> {
    stream::unfold(Some((Body::new(body).into_data_stream(), away)), async |under_way| {
        let (mut body, away) = under_way?;
        let chunk = body.next().await;
        if let Some(Ok(chunk)) = chunk {
            return Some((Ok(chunk), Some((body, away))));
        }
        away.end().await;
        Some((chunk?, None))
    })
}

/// Takes the slot again that a wait has left behind which was given up.
pub async fn ensure() {
    if let Ok(slot) = SLOT.try_with(Slot::clone) {
        slot.back().await;
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tokio::time::sleep;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// The state of a slot as a reconcile sees it.
    fn holds() -> bool {
        SLOT.with(|slot| slot.0.state.lock().permit.is_some())
    }

    fn all(slots: &Slots, tenant: &str) -> Vec<Slot> {
        std::iter::from_fn(|| slots.begin(tenant)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_reconcile_that_waits_for_a_spoke_holds_no_slot_until_it_goes_on() {
        let slots = Slots::new(4);
        let slot = slots.begin("a").unwrap();
        let work = async {
            assert!(holds());
            outside(async {
                assert!(!holds());
                outside(sleep(SECOND)).await;
                assert!(!holds(), "the outer wait lasts");
            })
            .await;
            assert!(holds());
            let both = tokio::join!(outside(sleep(SECOND)), outside(sleep(2 * SECOND)));
            assert!(holds() && both == ((), ()));
            let given_up = tokio::time::timeout(SECOND, outside(sleep(5 * SECOND))).await;
            assert!(given_up.is_err() && !holds());
            ensure().await;
            assert!(holds());
        };
        slot.within(Duration::from_mins(1), work).await.unwrap();
        outside(sleep(SECOND)).await; // also in a task without a slot
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_under_way_until_its_answer_was_read() {
        let service = tower::service_fn(|_: http::Request<KubeBody>| {
            let chunks = stream::iter(["one", "two"]).then(async |chunk| {
                sleep(SECOND).await;
                Ok::<_, Infallible>(Bytes::from_static(chunk.as_bytes()))
            });
            std::future::ready(Ok::<_, Infallible>(Response::new(Body::from_stream(chunks))))
        });
        let client = kube::Client::new(service, "default");
        let slot = Slots::new(4).begin("a").unwrap();
        let work = async {
            let answer = request(client.send(http::Request::new(KubeBody::empty()))).await.unwrap();
            assert!(!holds());
            let read = axum::body::to_bytes(answer.into_body(), 100).await.unwrap();
            assert!(holds() && read == "onetwo", "{read:?}");
        };
        slot.within(Duration::from_mins(1), work).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_for_a_slot_is_no_timeout_and_a_silent_spoke_is() {
        let slots = Slots::new(1);
        let away = slots.begin("a").unwrap();
        let work = away.within(2 * SECOND, async { outside(sleep(SECOND)).await });
        let busy = async {
            sleep(SECOND / 2).await;
            let held = all(&slots, "b");
            sleep(Duration::from_mins(1)).await;
            drop(held);
        };
        let took = Instant::now();
        assert_eq!(tokio::join!(work, busy), (Some(()), ()));
        assert_eq!(took.elapsed(), Duration::from_mins(1) + SECOND / 2);
        assert_eq!(away.within(2 * SECOND, async { outside(sleep(3 * SECOND)).await }).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn reconciles_that_have_begun_are_bounded_wherever_they_are() {
        let slots = Slots::new(4);
        let mut begun = Vec::new();
        while let Some(slot) = slots.begin("silent") {
            slot.0.state.lock().permit = None; // it waits for its spoke
            begun.push(slot);
        }
        assert_eq!(begun.len(), 4, "of one tenant");
        assert_eq!(all(&slots, "other").len(), 3, "of another, who finds every slot");
        for number in 0..100 {
            begun.extend(slots.begin(&number.to_string()).inspect(|slot| slot.0.state.lock().permit = None));
        }
        assert_eq!(begun.len(), 16, "of all");
    }
}
