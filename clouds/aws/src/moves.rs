//! Starting, stopping and terminating: the machines of several clusters by one call, without one spoiling it for
//! another.

mod part;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use cloud_common::Batcher;
use futures::FutureExt;
use parking_lot::Mutex;
use shared::cloud::{CloudError, CloudErrorKind, Outcome, Refusal, Verb};
use tokio::time::{Instant, timeout};

use self::part::Part;
use crate::call::{Ec2Api, api_name};
use crate::errors::{Failure, given_up};
use crate::refusal_cache::RefusalCache;

/// Instances of one call.
const MAX_BATCH: usize = 100;

/// How long a call waits for others.
const BATCH_WINDOW: Duration = Duration::from_millis(25);

/// How long a caller waits until EC2's limits admit its first instances.
const ADMISSION_TIMEOUT: Duration = Duration::from_secs(10);

/// How often at most a caller's instances are tried one by one when EC2 refuses them without naming one.
const ONE_BY_ONE_INTERVAL: Duration = Duration::from_mins(5);

/// After so many callers in a row were retried alone and denied, the account has no permission at all.
const MAX_DENIED: usize = 3;

/// Callers and instances kept with the time of their last single try, so that they come after others.
const MAX_TRIED: usize = 1000;

/// After so many instances in a row with insufficient capacity, the others of this caller are not tried one by one, and
/// neither are those of the next callers without capacity.
const MAX_WITHOUT_CAPACITY: usize = 5;

/// Calls of one kind in one account.
pub(crate) struct Moves {
    call: Verb,
    sender: Arc<dyn Ec2Api>,
    parts: Arc<Batcher<Part>>,
}

impl Moves {
    pub(crate) fn new<S: Ec2Api>(call: Verb, sender: Arc<S>) -> Self {
        let (refused, one_by_one, denied) = (RefusalCache::default(), Mutex::default(), Mutex::default());
        let mover = Arc::new(Mover { call, sender: sender.clone(), refused, one_by_one, denied });
        let gate = {
            let mover = mover.clone();
            move || mover.clone().turn().boxed()
        };
        let parts = Batcher::gated(MAX_BATCH, gate, move |parts: Vec<Part>| {
            let mover = mover.clone();
            async move { mover.answer(parts).await }.boxed()
        });
        Self { call, sender, parts }
    }

    /// Moves instances, together with what others want moved at the same time.
    ///
    /// Each caller waits for the tokens of its own instances, so that a cluster starts as soon as EC2 admits it, and
    /// gives its place in the controller to others before long: the instances that are left are asked for again.
    /// Callers that are admitted while a call waits for its own token share that call.
    pub(crate) async fn all(&self, ids: &[String]) -> Result<Outcome, CloudError> {
        let mut outcome = Outcome::default();
        for ids in ids.chunks(MAX_BATCH) {
            let Ok(admitted) = timeout(ADMISSION_TIMEOUT, self.sender.admit(self.call, ids.len())).await else {
                let is_first = outcome == Outcome::default();
                return if is_first { Err(self.limited()) } else { Ok(Outcome { unfinished: true, ..outcome }) };
            };
            let (now, later) = ids.split_at(admitted.min(ids.len()));
            let part = self.parts.ask(now.len(), BATCH_WINDOW, |reply| Part::new(now, reply)).await;
            let part = part.unwrap_or_else(|_| Err(given_up(api_name(self.call))))?;
            outcome.moved.extend(part.moved);
            outcome.refused.extend(part.refused);
            outcome.unfinished |= part.unfinished || !later.is_empty();
            if !later.is_empty() {
                break;
            }
        }
        Ok(outcome)
    }

    fn limited(&self) -> CloudError {
        let message =
            format!("{} waits for its turn: EC2 limits the instances of an account and region", api_name(self.call));
        CloudError::new(CloudErrorKind::Throttled, message)
    }
}

struct Mover<S> {
    call: Verb,
    sender: Arc<S>,
    refused: RefusalCache,
    /// When a caller's instances were last tried one by one, by the least of them.
    one_by_one: Mutex<HashMap<String, Instant>>,
    /// When a caller was last denied by itself, by its first instance.
    denied: Mutex<HashMap<String, Instant>>,
}

impl<S: Ec2Api> Mover<S> {
    async fn turn(self: Arc<Self>) {
        self.sender.turn(self.call).await;
    }

    async fn answer(&self, mut parts: Vec<Part>) {
        parts.retain(Part::is_wanted);
        Round { mover: self, has_turn: true, failed: None, denied: 0, without_room: 0 }.run(parts).await;
    }

    fn may_go_one_by_one(&self, ids: &[String]) -> bool {
        let Some(least) = ids.iter().min() else { return false };
        let mut tried = self.one_by_one.lock();
        if tried.len() >= MAX_TRIED {
            tried.retain(|_, at| at.elapsed() < ONE_BY_ONE_INTERVAL);
        }
        let is_long_ago = tried.get(least).map_or(tried.len() < MAX_TRIED, |at| at.elapsed() >= ONE_BY_ONE_INTERVAL);
        if is_long_ago {
            tried.insert(least.clone(), Instant::now());
        }
        is_long_ago
    }

    /// When these were last tried one by one. `None`, never tried, sorts first.
    fn was_tried(&self, ids: &[String]) -> Option<Instant> {
        let tried = self.one_by_one.lock();
        tried.get(ids.iter().min()?).copied()
    }

    /// When a call for this caller alone was last denied. `None`, never denied, sorts first.
    fn was_denied(&self, ids: &[String]) -> Option<Instant> {
        let denied = self.denied.lock();
        denied.get(ids.first()?).copied()
    }

    fn remember_denied(&self, ids: &[String], is_denied: bool) {
        let Some(first) = ids.first() else { return };
        let mut denied = self.denied.lock();
        if !is_denied {
            denied.remove(first);
        } else if denied.len() < MAX_TRIED || denied.contains_key(first) {
            denied.insert(first.clone(), Instant::now());
        } else {
            denied.clear();
        }
    }

    fn failed(&self, failure: Failure) -> CloudError {
        self.sender.failed(api_name(self.call), failure)
    }

    fn refusal(&self, id: String, failure: &Failure, sits_out: bool) -> Refusal {
        let one_time = failure.code == "UnsupportedOperation" && failure.message.contains("one-time Spot Instance");
        if one_time && names(&failure.message, &id) {
            self.sender.cannot_stop(&id);
        }
        let (kind, code, message) = (failure.refuses_as(), failure.code.clone(), failure.message.clone());
        let refusal = Refusal { id, kind, code, message };
        self.refused.remember(&refusal, sits_out);
        refusal
    }
}

/// One round: the requests of several callers at the same time. Each caller gets its answer as soon as its own part is
/// done.
struct Round<'a, S> {
    mover: &'a Mover<S>,
    /// Whether the next call has its turn already: the batch waited for that of the first one.
    has_turn: bool,
    /// A failure that has nothing to do with the instances: it ends the round for all who are left.
    failed: Option<CloudError>,
    /// Callers in a row who were denied by themselves.
    denied: usize,
    /// Instances in a row, each by itself, for which there was no room.
    without_room: usize,
}

impl<S: Ec2Api> Round<'_, S> {
    /// The instances of all callers in one call.
    ///
    /// If EC2 has no capacity for all of them, or refuses without naming instances, the callers are split into groups,
    /// so that a few refused callers cost the others few calls. The callers of a refused group get a call each at the
    /// end. After any other refusal each caller gets its own call. Only then the instances of callers that were refused
    /// alone are tried one by one. Recently denied callers, and instances recently tried one by one, go last; each gets
    /// its try.
    async fn run(mut self, parts: Vec<Part>) {
        let (mut apart, failure) = if parts.len() > 1 { self.together(parts).await } else { (parts, None) };
        let mut alone = Vec::new();
        let size = failure.filter(Failure::may_be_of_some).map_or(1, |_| apart.len().isqrt());
        while !apart.is_empty() {
            let group: Vec<Part> = apart.drain(..size.clamp(1, apart.len())).collect();
            alone.extend(if group.len() > 1 { self.together(group).await.0 } else { group });
        }
        alone.sort_by_cached_key(|part| (self.mover.was_denied(&part.ids), self.mover.was_tried(&part.left())));
        let mut refused = Vec::new();
        for part in alone {
            refused.extend(self.alone(part).await);
        }
        for (part, unfinished) in refused {
            self.singly(part, unfinished).await;
        }
    }

    /// Several callers' instances in one call. Those who may have to do without the others, and why.
    async fn together(&mut self, mut parts: Vec<Part>) -> (Vec<Part>, Option<Failure>) {
        let mut seen = HashSet::new();
        let all = parts.iter().flat_map(Part::left).filter(|id| seen.insert(id.clone())).collect();
        let mut outcome = Outcome::default();
        let failure = match &self.failed {
            Some(_) => None,
            None => self.batch(&parts, all, &mut outcome).await.err().map(|unfinished| unfinished.failure),
        };
        for part in &mut parts {
            part.take(&outcome);
        }
        let (apart, done): (Vec<_>, Vec<_>) = parts.into_iter().partition(|part| !part.left().is_empty());
        for part in done {
            part.reply(None);
        }
        match failure {
            Some(failure) if is_of_one(failure.kind) => (apart, Some(failure)),
            failure => {
                self.failed = self.failed.take().or_else(|| failure.map(|failure| self.mover.failed(failure)));
                for part in apart {
                    part.reply(self.failed.clone());
                }
                (Vec::new(), None)
            }
        }
    }

    /// One caller's instances. Returned if EC2 refuses them without naming one.
    async fn alone(&mut self, mut part: Part) -> Option<(Part, FailedBatch)> {
        let left = part.left();
        if left.is_empty() || self.failed.is_some() {
            part.reply(self.failed.clone().filter(|_| !left.is_empty()));
            return None;
        }
        let mut outcome = Outcome::default();
        let result = self.batch(std::slice::from_ref(&part), left, &mut outcome).await;
        part.take(&outcome);
        match result {
            Err(unfinished) if unfinished.failure.may_be_of_some() => return Some((part, unfinished)),
            result => self.end(part, result.err().map(|unfinished| self.mover.failed(unfinished.failure))),
        }
        None
    }

    /// The instances of a caller whose own call was refused: each by itself, if any of them has a chance.
    async fn singly(&mut self, mut part: Part, FailedBatch { failure, left }: FailedBatch) {
        if self.failed.is_some() {
            return part.reply(self.failed.clone());
        }
        let mut outcome = Outcome::default();
        let has_chances = failure.kind != CloudErrorKind::Capacity || self.without_room < MAX_WITHOUT_CAPACITY;
        let result = if left.len() > 1 && has_chances && self.mover.may_go_one_by_one(&left) {
            self.one_by_one(std::slice::from_ref(&part), &left, &mut outcome).await
        } else {
            outcome.refused.extend(left.into_iter().map(|id| self.mover.refusal(id, &failure, false)));
            Ok(())
        };
        part.take(&outcome);
        self.end(part, result.err());
    }

    /// Answers a caller, and decides whether the others are still tried.
    fn end(&mut self, part: Part, error: Option<CloudError>) {
        let is_denied = error.as_ref().is_some_and(|error| error.kind == CloudErrorKind::Denied);
        self.mover.remember_denied(&part.ids, is_denied);
        self.denied = if is_denied { self.denied + 1 } else { 0 };
        self.failed = error.clone().filter(|error| !is_of_one(error.kind) || self.denied >= MAX_DENIED);
        part.reply(error);
    }

    /// One call for all, one more without each that EC2 names as the reason for a refusal, and one for those it refused
    /// before.
    async fn batch(&mut self, of: &[Part], ids: Vec<String>, outcome: &mut Outcome) -> Result<(), FailedBatch> {
        let Mover { refused, .. } = self.mover;
        let (known, mut left) = refused.split(ids);
        while !left.is_empty() {
            let failure = match self.send(of, &left, outcome).await {
                Ok(()) => break,
                Err(failure) => failure,
            };
            let (named, rest) = blamed(left, &failure);
            if named.is_empty() {
                return Err(FailedBatch { failure, left: rest.into_iter().chain(known).collect() });
            }
            outcome.refused.extend(named.into_iter().map(|id| self.mover.refusal(id, &failure, false)));
            left = rest;
        }
        let (mut turn, mut out) = refused.turn(known);
        while !turn.is_empty() {
            let Err(failure) = self.send(of, &turn, outcome).await else {
                turn = std::mem::take(&mut out); // The cause may be gone for everybody.
                continue;
            };
            let (named, rest) = blamed(turn, &failure);
            out.splice(..0, rest);
            if named.is_empty() {
                return Err(FailedBatch { failure, left: out });
            }
            outcome.refused.extend(named.into_iter().map(|id| self.mover.refusal(id, &failure, true)));
            outcome.refused.extend(refused.again(&out));
            break;
        }
        Ok(())
    }

    /// One call, when the rate limiter admits it, for the parts that are still wanted by then.
    async fn send(&mut self, of: &[Part], ids: &[String], outcome: &mut Outcome) -> Result<(), Failure> {
        let Mover { call, sender, refused, .. } = self.mover;
        let is_wanted = |id: &String| of.iter().any(|part| part.is_wanted() && part.ids.contains(id));
        if ids.iter().any(is_wanted) && !std::mem::take(&mut self.has_turn) {
            sender.turn(*call).await;
        }
        let ids: Vec<String> = ids.iter().filter(|id| is_wanted(id)).cloned().collect();
        if ids.is_empty() {
            return Ok(());
        }
        let moved = sender.send(*call, &ids).await?;
        refused.forget(&ids);
        outcome.moved.extend(moved);
        Ok(())
    }

    /// One call each. An instance with insufficient capacity is skipped in the next round, which begins with others;
    /// after some of them in a row the rest are not tried.
    async fn one_by_one(&mut self, of: &[Part], ids: &[String], outcome: &mut Outcome) -> Result<(), CloudError> {
        let mut of_this_caller = 0;
        for (at, id) in ids.iter().enumerate() {
            match self.send(of, std::slice::from_ref(id), outcome).await {
                Ok(()) => (self.without_room, of_this_caller) = (0, 0),
                Err(failure) if failure.may_be_of_some() => {
                    let no_room = failure.kind == CloudErrorKind::Capacity;
                    outcome.refused.push(self.mover.refusal(id.clone(), &failure, no_room));
                    let more = |count: usize| if no_room { count + 1 } else { 0 };
                    (self.without_room, of_this_caller) = (more(self.without_room), more(of_this_caller));
                    if of_this_caller >= MAX_WITHOUT_CAPACITY {
                        let rest = ids.iter().skip(at + 1).cloned();
                        outcome.refused.extend(rest.map(|id| self.mover.refusal(id, &failure, false)));
                        break;
                    }
                }
                // The caller learns what was done and requests the rest again.
                Err(_) if !outcome.moved.is_empty() => {
                    outcome.unfinished = true;
                    break;
                }
                Err(failure) => return Err(self.mover.failed(failure)),
            }
        }
        Ok(())
    }
}

/// The instances that EC2 names as the cause, and the others. A failure that is not about instances names none.
fn blamed(ids: Vec<String>, failure: &Failure) -> (Vec<String>, Vec<String>) {
    ids.into_iter().partition(|id| failure.blames_instances() && names(&failure.message, id))
}

/// Whether a failure may be due to one caller only: no capacity for its count, or a policy on the requested instances.
fn is_of_one(kind: CloudErrorKind) -> bool {
    matches!(kind, CloudErrorKind::Capacity | CloudErrorKind::Denied | CloudErrorKind::Invalid)
}

/// A batch that ended before all instances were moved or refused by name.
struct FailedBatch {
    failure: Failure,
    /// Who is left.
    left: Vec<String>,
}

/// Whether the message names this instance, and not one whose ID only begins alike.
fn names(message: &str, id: &str) -> bool {
    message.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').any(|word| word == id)
}

#[cfg(test)]
mod tests;
