//! Starting, stopping and terminating: the machines of several clusters by one call, without one spoiling it for another.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use shared::cloud::{CloudError, CloudErrorKind, InstanceState, Outcome, Priority, Refusal};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::describe::given_up;
use crate::errors::Failure;
use crate::gather::Gather;
use crate::refused::Refused;

/// Instances of one call.
const BATCH: usize = 100;

/// How long a call waits for others.
const WINDOW: Duration = Duration::from_millis(25);

/// How seldom a batch that is refused without naming an instance is tried one by one.
const ONE_BY_ONE_EVERY: Duration = Duration::from_mins(5);

/// After so many callers in a row were denied by themselves, the account may not do it for anybody.
const DENIED: usize = 3;

/// Callers of whom it is remembered when they were denied by themselves, so that they come after others.
const DENIED_BEFORE: usize = 1000;

/// After so many instances in a row for which there was no room, the others are not tried one by one.
const WITHOUT_ROOM: usize = 5;

/// The calls that move instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Start,
    Stop,
    Terminate,
}

impl Call {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Start => "StartInstances",
            Self::Stop => "StopInstances",
            Self::Terminate => "TerminateInstances",
        }
    }

    pub(crate) fn priority(self) -> Priority {
        match self {
            Self::Start => Priority::Waking,
            Self::Stop | Self::Terminate => Priority::Sleeping,
        }
    }
}

/// Instances with the state that a call answered.
pub(crate) type Moved = Vec<(String, InstanceState)>;

/// Who makes the calls.
pub(crate) trait Sender: Send + Sync + 'static {
    /// Returns once EC2's limits leave room for one call.
    fn turn(&self, call: Call) -> BoxFuture<'_, ()>;
    /// One call, whose turn it is.
    fn send<'a>(&'a self, call: Call, ids: &'a [String]) -> BoxFuture<'a, Result<Moved, Failure>>;
    /// What the failure of a whole call means.
    fn failed(&self, call: &str, failure: Failure) -> CloudError;
    /// EC2 says that this instance cannot be stopped because it is a one-time spot instance.
    fn cannot_stop(&self, id: &str);
}

/// Calls of one kind in one account.
pub(crate) struct Moves {
    call: Call,
    parts: Arc<Gather<Part>>,
}

/// What one caller wants moved.
struct Part {
    ids: Vec<String>,
    answer: oneshot::Sender<Result<Outcome, CloudError>>,
}

impl Moves {
    pub(crate) fn new<S: Sender>(call: Call, sender: Arc<S>) -> Self {
        let (refused, one_by_one, denied) = (Refused::default(), Mutex::default(), Mutex::default());
        let mover = Arc::new(Mover { call, sender, refused, one_by_one, denied });
        let parts = Gather::new(BATCH, move |parts: Vec<Part>| {
            let mover = mover.clone();
            Box::pin(async move { mover.answer(parts).await })
        });
        Self { call, parts }
    }

    /// Moves instances, together with what others want moved at the same time.
    pub(crate) async fn all(&self, ids: &[String]) -> Result<Outcome, CloudError> {
        let mut outcome = Outcome::default();
        for ids in ids.chunks(BATCH) {
            let (answer, moved) = oneshot::channel();
            self.parts.add(Part { ids: ids.to_vec(), answer }, ids.len(), WINDOW);
            let part = moved.await.unwrap_or_else(|_| Err(given_up(self.call.name())))?;
            outcome.moved.extend(part.moved);
            outcome.refused.extend(part.refused);
        }
        Ok(outcome)
    }
}

struct Mover<S> {
    call: Call,
    sender: Arc<S>,
    refused: Refused,
    /// When a batch was last tried one by one, by its least instance.
    one_by_one: Mutex<HashMap<String, Instant>>,
    /// When a caller was last denied by itself, by its first instance.
    denied: Mutex<HashMap<String, Instant>>,
}

impl<S: Sender> Mover<S> {
    async fn answer(&self, mut parts: Vec<Part>) {
        parts.retain(|part| !part.answer.is_closed());
        let outcomes = Round { mover: self, parts: &parts }.run().await;
        for (part, outcome) in parts.into_iter().zip(outcomes) {
            // Who has given up in the meantime does not hear it.
            let _ = part.answer.send(outcome);
        }
    }

    fn may_go_one_by_one(&self, ids: &[String]) -> bool {
        let Some(least) = ids.iter().min() else { return false };
        let mut tried = self.one_by_one.lock().unwrap_or_else(PoisonError::into_inner);
        tried.retain(|_, at| at.elapsed() < ONE_BY_ONE_EVERY);
        let may = tried.len() < 1000 && !tried.contains_key(least);
        if may {
            tried.insert(least.clone(), Instant::now());
        }
        may
    }

    /// When this caller was last denied by itself; whoever was not comes first in the order of these.
    fn was_denied(&self, ids: &[String]) -> Option<Instant> {
        let denied = self.denied.lock().unwrap_or_else(PoisonError::into_inner);
        denied.get(ids.first()?).copied()
    }

    fn remember_denied(&self, ids: &[String], is_denied: bool) {
        let Some(first) = ids.first() else { return };
        let mut denied = self.denied.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_denied {
            denied.remove(first);
        } else if denied.len() < DENIED_BEFORE || denied.contains_key(first) {
            denied.insert(first.clone(), Instant::now());
        } else {
            denied.clear();
        }
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

/// What several callers want at the same time, on its way.
struct Round<'a, S> {
    mover: &'a Mover<S>,
    parts: &'a [Part],
}

impl<S: Sender> Round<'_, S> {
    async fn run(&self) -> Vec<Result<Outcome, CloudError>> {
        match self.parts {
            [] => Vec::new(),
            [part] => vec![self.alone(part.ids.clone()).await],
            parts => self.together(parts).await,
        }
    }

    /// Several callers' instances in one call.
    ///
    /// When EC2 names nobody, has no room for all of them, or may not do it for all, each caller's part goes by itself.
    async fn together(&self, parts: &[Part]) -> Vec<Result<Outcome, CloudError>> {
        let mut seen = HashSet::new();
        let all = parts.iter().flat_map(|part| &part.ids).filter(|id| seen.insert(*id)).cloned().collect();
        let mut outcome = Outcome::default();
        match self.batch(all, &mut outcome).await {
            Ok(()) => parts.iter().map(|part| Ok(part_of(&outcome, &part.ids))).collect(),
            Err(Unfinished { failure, .. }) if is_of_one(failure.kind) || failure.blames_instances() => {
                self.apart(parts, &outcome).await
            }
            Err(Unfinished { failure, .. }) => {
                let error = self.failed(failure);
                let told = |part: &Part| {
                    if is_done(&outcome, &part.ids) { Ok(part_of(&outcome, &part.ids)) } else { Err(error.clone()) }
                };
                parts.iter().map(told).collect()
            }
        }
    }

    /// Each caller's part by itself. A failure that has nothing to do with the instances ends it for all who are left: so whoever
    /// was denied by itself of late comes last, and nobody is left for ever.
    async fn apart(&self, parts: &[Part], before: &Outcome) -> Vec<Result<Outcome, CloudError>> {
        let mut order: Vec<_> = parts.iter().map(|part| &part.ids).enumerate().collect();
        order.sort_by_key(|(_, ids)| self.mover.was_denied(ids));
        let mut outcomes = Vec::new();
        let mut failed: Option<CloudError> = None;
        let mut denied = 0;
        for (place, ids) in order {
            if let Some(error) = failed.as_ref().filter(|_| !is_done(before, ids)) {
                outcomes.push((place, Err(error.clone())));
                continue;
            }
            let mut outcome = part_of(before, ids);
            let refused = outcome.refused.iter().map(|refused| &refused.id);
            let done: BTreeSet<&String> = outcome.moved.iter().map(|(id, _)| id).chain(refused).collect();
            let left = ids.iter().filter(|id| !done.contains(id)).cloned().collect();
            let result = self.alone(left).await;
            let error = result.as_ref().err();
            let is_denied = error.is_some_and(|error| error.kind == CloudErrorKind::Denied);
            self.mover.remember_denied(ids, is_denied);
            denied = if is_denied { denied + 1 } else { 0 };
            failed = error.filter(|error| !is_of_one(error.kind) || denied >= DENIED).cloned();
            let result = result.map(|alone| {
                outcome.moved.extend(alone.moved);
                outcome.refused.extend(alone.refused);
                outcome
            });
            outcomes.push((place, result));
        }
        outcomes.sort_by_key(|(place, _)| *place);
        outcomes.into_iter().map(|(_, outcome)| outcome).collect()
    }

    /// One caller's instances.
    async fn alone(&self, ids: Vec<String>) -> Result<Outcome, CloudError> {
        let mut outcome = Outcome::default();
        match self.batch(ids, &mut outcome).await {
            Ok(()) => {}
            Err(Unfinished { failure, .. }) if !failure.may_be_of_some() => return Err(self.failed(failure)),
            Err(Unfinished { left, .. }) if left.len() > 1 && self.mover.may_go_one_by_one(&left) => {
                self.one_by_one(&left, &mut outcome).await?;
            }
            Err(Unfinished { failure, left }) => {
                outcome.refused.extend(left.into_iter().map(|id| self.mover.refusal(id, &failure, false)));
            }
        }
        Ok(outcome)
    }

    /// One call for all, one more without each that EC2 names as the reason for a refusal, and one for those it refused before.
    async fn batch(&self, ids: Vec<String>, outcome: &mut Outcome) -> Result<(), Unfinished> {
        let refused = &self.mover.refused;
        let (known, mut left) = refused.split(ids);
        while !left.is_empty() {
            let failure = match self.send(&left, outcome).await {
                Ok(()) => break,
                Err(failure) => failure,
            };
            let (named, rest) = blamed(left, &failure);
            if named.is_empty() {
                return Err(Unfinished { failure, left: rest.into_iter().chain(known).collect() });
            }
            outcome.refused.extend(named.into_iter().map(|id| self.mover.refusal(id, &failure, false)));
            left = rest;
        }
        let (mut turn, mut out) = refused.turn(known);
        while !turn.is_empty() {
            let Err(failure) = self.send(&turn, outcome).await else {
                turn = std::mem::take(&mut out); // The cause may be gone for everybody.
                continue;
            };
            let (named, rest) = blamed(turn, &failure);
            out.splice(..0, rest);
            if named.is_empty() {
                return Err(Unfinished { failure, left: out });
            }
            outcome.refused.extend(named.into_iter().map(|id| self.mover.refusal(id, &failure, true)));
            outcome.refused.extend(refused.again(&out));
            break;
        }
        Ok(())
    }

    /// One call, once its turn has come, for those who still want it then.
    async fn send(&self, ids: &[String], outcome: &mut Outcome) -> Result<(), Failure> {
        let Mover { call, sender, refused, .. } = self.mover;
        if ids.iter().any(|id| self.is_wanted(id)) {
            sender.turn(*call).await;
        }
        let ids: Vec<String> = ids.iter().filter(|id| self.is_wanted(id)).cloned().collect();
        if ids.is_empty() {
            return Ok(());
        }
        let moved = sender.send(*call, &ids).await?;
        refused.forget(&ids);
        outcome.moved.extend(moved);
        Ok(())
    }

    /// Whether a caller who has not given up wants this one moved.
    fn is_wanted(&self, id: &String) -> bool {
        self.parts.iter().any(|part| !part.answer.is_closed() && part.ids.contains(id))
    }

    /// Each by itself. Whoever is refused for want of room sits out, so that the next time begins with others; after some of them
    /// in a row the rest are not asked for.
    async fn one_by_one(&self, ids: &[String], outcome: &mut Outcome) -> Result<(), CloudError> {
        let mut without_room = 0;
        for (at, id) in ids.iter().enumerate() {
            match self.send(std::slice::from_ref(id), outcome).await {
                Ok(()) => without_room = 0,
                Err(failure) if failure.may_be_of_some() => {
                    let no_room = failure.kind == CloudErrorKind::Capacity;
                    without_room = if no_room { without_room + 1 } else { 0 };
                    outcome.refused.push(self.mover.refusal(id.clone(), &failure, no_room));
                    if without_room >= WITHOUT_ROOM {
                        let rest = ids.iter().skip(at + 1).cloned();
                        outcome.refused.extend(rest.map(|id| self.mover.refusal(id, &failure, false)));
                        break;
                    }
                }
                // What was done is told, and what was not is asked for again.
                Err(_) if !outcome.moved.is_empty() => break,
                Err(failure) => return Err(self.failed(failure)),
            }
        }
        Ok(())
    }

    fn failed(&self, failure: Failure) -> CloudError {
        self.mover.sender.failed(self.mover.call.name(), failure)
    }
}

/// Whom EC2 names as the reason, and the others. A failure that has nothing to do with instances is nobody's.
fn blamed(ids: Vec<String>, failure: &Failure) -> (Vec<String>, Vec<String>) {
    ids.into_iter().partition(|id| failure.blames_instances() && names(&failure.message, id))
}

/// Whether a failure may be one caller's alone: no room for so many, or a policy that looks at what is asked for.
fn is_of_one(kind: CloudErrorKind) -> bool {
    matches!(kind, CloudErrorKind::Capacity | CloudErrorKind::Denied | CloudErrorKind::Invalid)
}

/// Whether all of a caller's instances were moved or refused already.
fn is_done(outcome: &Outcome, ids: &[String]) -> bool {
    let part = part_of(outcome, ids);
    part.moved.len() + part.refused.len() >= ids.len()
}

/// A batch that ended before everybody was moved or refused by name.
struct Unfinished {
    failure: Failure,
    /// Who is left.
    left: Vec<String>,
}

/// What of an outcome is about these instances.
fn part_of(outcome: &Outcome, ids: &[String]) -> Outcome {
    let ids: HashSet<&String> = ids.iter().collect();
    Outcome {
        moved: outcome.moved.iter().filter(|(id, _)| ids.contains(id)).cloned().collect(),
        refused: outcome.refused.iter().filter(|refused| ids.contains(&refused.id)).cloned().collect(),
    }
}

/// Whether the message names this instance, and not one whose ID only begins alike.
fn names(message: &str, id: &str) -> bool {
    message.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').any(|word| word == id)
}

#[cfg(test)]
mod tests;
