//! The way from a driver to the cloud, and what can go wrong on it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cloud_common::Permit;
use futures::FutureExt;
use jiff::Timestamp;
use shared::cloud::{CloudError, CloudErrorKind, Entry, Ledger, LedgerError, LedgerFuture};

use crate::cloud::{Cloud, TICK};
use crate::request::{Answer, Refusal, Request};

/// The error of a request that may be under way.
pub(crate) const NO_ANSWER: &str = "no answer";

/// How long a request waits for an answer.
const DEADLINE: Duration = Duration::from_secs(30);

/// How a process dies at a request, or a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// Before the request is sent.
    Before,
    /// After it was executed.
    After,
    /// While it is under way: it arrives up to two ticks later, when another process leads.
    Late,
    /// It is answered with an error by the cloud, and the process lives on.
    Fails,
    /// It is lost, no answer comes, and the process lives on.
    Lost,
}

#[derive(Debug, Default)]
struct Road {
    requests: usize,
    /// What every request is answered.
    trouble: Option<CloudErrorKind>,
    silent: bool,
    /// The machine that cannot be moved.
    locked: Option<String>,
    /// The process dies at the request after so many.
    mishap: Option<(usize, Mishap)>,
    /// The process is dead: nothing more leaves it.
    dead: bool,
    late: Vec<(Timestamp, Request)>,
}

/// One account of the cloud, as one process uses it.
#[derive(Clone)]
pub struct Account {
    cloud: Arc<Mutex<Cloud>>,
    road: Arc<Mutex<Road>>,
    permit: Permit,
}

impl Account {
    /// An account of a new cloud.
    pub fn new() -> Self {
        Self { cloud: Arc::default(), road: Arc::default(), permit: Arc::new(|| true) }
    }

    /// The same, used by a process with this permit.
    pub fn by(&self, permit: Permit) -> Self {
        Self { permit, ..self.clone() }
    }

    pub fn cloud(&self) -> MutexGuard<'_, Cloud> {
        self.cloud.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn road(&self) -> MutexGuard<'_, Road> {
        self.road.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests for servers and images that have arrived.
    pub fn requests(&self) -> usize {
        self.road().requests
    }

    /// From now on every request is answered by this, or not at all, or this machine is locked.
    pub fn trouble(&self, trouble: Option<CloudErrorKind>, silent: bool, locked: Option<String>) {
        let mut road = self.road();
        (road.trouble, road.silent, road.locked) = (trouble, silent, locked);
    }

    /// The process dies at the request after so many, or lives on.
    pub fn dies(&self, mishap: Option<(usize, Mishap)>) {
        let mut road = self.road();
        (road.mishap, road.dead) = (mishap, false);
    }

    /// A request that a dead process has sent arrives.
    pub fn deliver_late(&self) {
        let late = self.road().late.pop();
        let Some((sent, late)) = late else { return };
        let mut cloud = self.cloud();
        if cloud.now <= sent + 2 * TICK {
            let _ = cloud.execute(late);
        }
    }

    /// Whether a request of a dead process may still arrive.
    pub fn is_late(&self) -> bool {
        !self.road().late.is_empty()
    }

    /// Sends a request. Never returns if the process dies.
    pub(crate) async fn send(&self, request: Request) -> Result<Result<Answer, Refusal>, CloudError> {
        if !(self.permit)() {
            return Err(failure(CloudErrorKind::NotLeader, "not sent: not the leader any more"));
        }
        let Some(answer) = self.arrive(request)? else {
            tokio::time::sleep(DEADLINE).await;
            return Err(failure(CloudErrorKind::Unavailable, NO_ANSWER));
        };
        match answer {
            Some(answer) => Ok(answer),
            None => std::future::pending().await,
        }
    }

    /// `None` if there will be no answer, `Some(None)` if the caller is gone.
    #[expect(clippy::option_option, reason = "an answer, silence, or death")]
    fn arrive(&self, request: Request) -> Result<Option<Option<Result<Answer, Refusal>>>, CloudError> {
        let is_ledger = matches!(request, Request::Read { .. } | Request::Write { .. } | Request::Clear { .. });
        let mut road = self.road();
        if road.dead {
            return Ok(Some(None));
        }
        if let Some((left, mishap)) = &mut road.mishap {
            let mishap = *mishap;
            if let Some(less) = left.checked_sub(1) {
                *left = less;
            } else {
                match mishap {
                    Mishap::Fails | Mishap::Lost => {
                        road.mishap = None;
                        let answer = if mishap == Mishap::Fails { "503" } else { NO_ANSWER };
                        return Err(failure(CloudErrorKind::Unavailable, answer));
                    }
                    Mishap::Before => {}
                    Mishap::After => drop(self.cloud().execute(request)),
                    Mishap::Late => {
                        let now = self.cloud().now;
                        road.late.push((now, request));
                    }
                }
                road.dead = true;
                return Ok(Some(None));
            }
        }
        if !is_ledger {
            road.requests += 1;
            if let Some(kind) = road.trouble {
                return Err(failure(kind, "the cloud is in trouble"));
            }
            if road.silent {
                return Ok(None);
            }
        }
        let mut cloud = self.cloud();
        if road.locked.as_ref().is_some_and(|machine| cloud.is_about(&request, machine)) {
            return Ok(Some(Some(Err(Refusal::Locked))));
        }
        Ok(Some(Some(cloud.execute(request))))
    }
}

impl Default for Account {
    fn default() -> Self {
        Self::new()
    }
}

fn failure(kind: CloudErrorKind, message: &str) -> CloudError {
    CloudError { kind, message: message.to_owned() }
}

/// One cluster's record, kept in the same memory.
pub struct MemoryLedger {
    account: Account,
    record: String,
}

impl MemoryLedger {
    /// The record of this name.
    pub fn new(account: Account, record: String) -> Self {
        Self { account, record }
    }

    async fn send(&self, request: Request) -> Result<Answer, LedgerError> {
        match self.account.send(request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(LedgerError::Conflict),
            Err(error) if error.kind == CloudErrorKind::NotLeader => Err(LedgerError::NotLeader),
            Err(error) => Err(LedgerError::Failed(error.message)),
        }
    }
}

impl Ledger for MemoryLedger {
    fn read(&self) -> LedgerFuture<'_, Option<Entry>> {
        async {
            match self.send(Request::Read { record: self.record.clone() }).await? {
                Answer::Record(entry) => Ok(entry),
                other => Err(LedgerError::Failed(format!("{other:?}"))),
            }
        }
        .boxed()
    }

    fn write<'a>(&'a self, text: &'a str, _export: Option<&'a str>, seen: Option<&'a str>) -> LedgerFuture<'a, String> {
        async move {
            let (record, text, seen) = (self.record.clone(), text.to_owned(), seen.map(str::to_owned));
            match self.send(Request::Write { record, text, seen }).await? {
                Answer::Done(version) => Ok(version),
                other => Err(LedgerError::Failed(format!("{other:?}"))),
            }
        }
        .boxed()
    }

    fn clear<'a>(&'a self, seen: &'a str) -> LedgerFuture<'a, ()> {
        async move {
            let (record, seen) = (self.record.clone(), seen.to_owned());
            self.send(Request::Clear { record, seen }).await.map(drop)
        }
        .boxed()
    }
}
