//! The driver: each pass lists everything, takes at most one step per machine, and keeps no state.
//!
//! Crash safety: the driver records every step that cannot be undone before it takes it. A record that another writer
//! has changed since is a conflict, and the pass ends.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fair::Charge;
use futures::{FutureExt, StreamExt, TryFutureExt, stream};
use jiff::Timestamp;
use parking_lot::Mutex;
use shared::cloud::CloudErrorKind::{NotLeader, Throttled, Unavailable};
use shared::cloud::{
    CloudError, CloudFuture, ClusterRef, Driver, InstanceState, LedgerError, Listing, Outcome, Priority, Profile,
    Target, Verb,
};

use crate::cloud::{Cloud, Failure, Image, Obstacle, Request, Server, check_size};
use crate::give_up::{
    Steps, abort_causes, give_up, has_begun, is_past_point_of_no_return, may_be_sealed, refusal, stall_after,
    stall_before,
};
use crate::record::{FailedSleep, Record, is_within, sleep_retry_delay};
use crate::steps::{MachineFacts, Step, is_new};
use crate::survey::{Stage, Survey};

/// How long a pass may act on its own lists.
const LIST_TTL: Duration = Duration::from_secs(5);

/// Requests of one pass in flight at once.
pub const MAX_IN_FLIGHT: usize = 4;

/// Most requests of one call: the rest is for the next pass.
pub const MAX_REQUESTS: usize = 40;

/// How long after its decision a pass sends requests: [`REQUEST_LIFETIME`](crate::REQUEST_LIFETIME) counts from the decision.
pub const SEND_WINDOW: Duration = Duration::from_secs(20);

/// How often a pass starts over after a conflict.
const MAX_CONFLICTS: usize = 3;

/// A driver of the recreate lifecycle.
pub struct Planner<C: Cloud> {
    cloud: C,
    /// How long an image may take.
    pub image_deadline: Duration,
    /// The last lists of each cluster, by infraID, until the pass that asked for them acts.
    lists: Mutex<HashMap<String, Lists<C::Attributes>>>,
}

struct Lists<A> {
    at: Timestamp,
    servers: Vec<Server<A>>,
    images: Vec<Image>,
    charge: Charge,
}

/// Why a pass ended early.
pub(crate) enum PassError {
    /// Another writer of the record was quicker.
    Lost,
    Failed(CloudError),
}

impl From<CloudError> for PassError {
    fn from(error: CloudError) -> Self {
        Self::Failed(error)
    }
}

impl<C: Cloud> Planner<C> {
    pub fn new(cloud: C, image_deadline: Duration) -> Self {
        Self { cloud, image_deadline, lists: Mutex::default() }
    }

    pub fn cloud(&self) -> &C {
        &self.cloud
    }

    /// The lists that this pass made, once.
    fn taken(&self, cluster: &ClusterRef) -> Option<Lists<C::Attributes>> {
        let mut lists = self.lists.lock();
        let now = self.cloud.now();
        lists.retain(|_, lists| is_within(now, lists.at, LIST_TTL));
        lists.remove(&cluster.infra_id)
    }

    async fn listed(&self, cluster: &ClusterRef, priority: Priority) -> Result<Lists<C::Attributes>, CloudError> {
        let (at, mut charge) = (self.cloud.now(), self.cloud.charge(&cluster.infra_id));
        let (servers, images) = self.cloud.list(cluster, priority, &mut charge).await?;
        Ok(Lists { at, servers, images, charge })
    }

    /// What is there. The record is read anew even if the lists are not.
    async fn survey(
        &self,
        target: &Target,
        priority: Priority,
        taken: Option<Lists<C::Attributes>>,
    ) -> Result<Survey<C::Attributes>, CloudError> {
        let Lists { at: now, servers, mut images, charge } = match taken {
            Some(lists) => lists,
            None => self.listed(&target.cluster, priority).await?,
        };
        let mut held = self.cloud.charge(&format!("record of {}", target.cluster.infra_id));
        let record = self.recorded(target, &servers, &images, &mut held).await?;
        check_size(servers.len().max(record.as_ref().map_or(0, |(record, _)| record.machines.len())))?;
        images.extend(record.iter().flat_map(|(record, _)| self.not_listed(record, &images)).collect::<Vec<_>>());
        let mut survey = Survey {
            cluster: target.cluster.clone(),
            record,
            servers,
            images,
            charge,
            held,
            now,
            decided: self.cloud.now(),
            image_deadline: self.image_deadline,
            owners: HashMap::new(),
            differences: HashMap::new(),
        };
        survey.assign();
        let compare =
            |(server, of): (&Server<C::Attributes>, _)| (server.id.clone(), self.cloud.compare(&server.attributes, of));
        survey.differences = survey.marked().map(compare).collect();
        Ok(survey)
    }

    /// Sends requests, a few at a time, until a call fails as a whole. A machine in transit, or already gone, is no
    /// error: the next list shows its state. Answers for which machines certainly no image or server is made: a refusal by
    /// the cloud itself is as certain as a request that was not sent. Answers also whose call failed as a whole.
    async fn send<'a>(
        &self,
        target: &Target,
        requests: &'a [(String, InstanceState, Request<C::Attributes>)],
        until: Timestamp,
        outcome: &mut Outcome,
    ) -> (Vec<&'a str>, Option<(&'a str, CloudError)>) {
        let stops = AtomicBool::new(false);
        let mut calls = Vec::new();
        for (_, _, request) in requests {
            calls.push(self.send_one(&target.cluster, request, until, &stops));
        }
        let mut answers = stream::iter(calls).buffered(MAX_IN_FLIGHT);
        let (mut undone, mut failed) = (Vec::new(), None);
        for (machine, state, request) in requests {
            match answers.next().await {
                Some(Ok(())) => outcome.moved.push((machine.clone(), *state)),
                Some(Err(failure)) => {
                    let may_arrive = matches!(failure, Failure::Unknown(_) | Failure::Gone | Failure::Conflict);
                    // The machine has run since its last image, whether it was paused or not.
                    let is_pause = matches!(request, Request::Pause(_));
                    undone.extend((!may_arrive && !is_pause).then_some(machine.as_str()));
                    if let Err(error) = failure.note(machine, outcome) {
                        failed.get_or_insert((machine.as_str(), error));
                    }
                }
                None => {}
            }
        }
        (undone, failed)
    }

    async fn send_one(
        &self,
        cluster: &ClusterRef,
        request: &Request<C::Attributes>,
        until: Timestamp,
        stops: &AtomicBool,
    ) -> Result<(), Failure> {
        if stops.load(Ordering::Relaxed) || self.cloud.now() > until {
            return Err(Failure::NotDone(CloudError::new(Unavailable, "not sent")));
        }
        let answer = self.cloud.send(cluster, request).await;
        if matches!(answer, Err(Failure::NotDone(_) | Failure::Unknown(_))) {
            stops.store(true, Ordering::Relaxed);
        }
        answer
    }

    /// One pass. Of two writers of the record the one that was later begins again at once.
    async fn move_all(&self, target: &Target, verb: Verb, ids: &[String]) -> Result<Outcome, CloudError> {
        for _ in 0..MAX_CONFLICTS {
            match self.try_to_move(target, verb, ids).await {
                Err(PassError::Lost) => {}
                Err(PassError::Failed(error)) => return Err(error),
                Ok(outcome) => return Ok(outcome),
            }
        }
        Err(LedgerError::Conflict.into())
    }

    async fn try_to_move(&self, target: &Target, verb: Verb, ids: &[String]) -> Result<Outcome, PassError> {
        let survey = self.survey(target, verb.priority(), self.taken(&target.cluster)).await?;
        let mut outcome = Outcome::default();
        let undescribed = survey.undescribed(MAX_REQUESTS);
        if verb == Verb::Start && !undescribed.is_empty() {
            match self.send(target, &undescribed, survey.decided + SEND_WINDOW, &mut outcome).await.1 {
                Some((_, error)) if error.kind == NotLeader => return Err(PassError::Failed(error)),
                None if outcome.refused.is_empty() => return Ok(Outcome { unfinished: true, ..outcome }),
                // They stay when the cluster is awake, which is no reason not to wake it.
                _ => outcome = Outcome::default(),
            }
        }
        let mut next = survey.next_record();
        let views = survey.views();
        let has_begun = has_begun(&views);
        if verb == Verb::Stop {
            next.forget_faults();
        }
        let waits = |failed: &FailedSleep| is_within(survey.now, failed.at, sleep_retry_delay(failed.number));
        let failed = next.failed.clone().filter(waits);
        let step = |view| {
            let facts = MachineFacts { survey: &survey, view, new_cycle: self.cloud.new_cycle() };
            let step = match verb {
                Verb::Stop if failed.is_some() => facts.undo(),
                Verb::Stop => facts.stop(),
                Verb::Start => facts.start(),
                Verb::Terminate => Step::Wait,
            };
            (view, step)
        };
        let steps: Steps<'_, _> = views.iter().map(step).collect();
        let may_return = verb == Verb::Stop && failed.is_none() && !is_past_point_of_no_return(&views);
        // While every machine runs, another try costs no capacity.
        let before = next.stalled.take().filter(|_| has_begun);
        next.stalled = (may_return && has_begun).then(|| stall_before(&survey, &views, before)).flatten();
        if verb == Verb::Stop {
            outcome.refused = match &failed {
                Some(failed) => vec![failed.refusal()],
                None => abort_causes(survey.now, &steps, next.stalled.as_ref()),
            };
            if let Some(first) = outcome.refused.first().filter(|_| may_return) {
                if has_begun {
                    give_up(&mut next, first, survey.decided, || self.cloud.new_cycle());
                    self.write(target, &survey, &next).await?;
                }
                return Ok(outcome);
            }
            if !next.sealed && may_be_sealed(&steps) {
                self.write(target, &survey, &survey.sealed(next)).await?;
                return Ok(outcome);
            }
        }
        let asked: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
        let mut requests = Vec::new();
        for (view, step) in steps {
            // All come back from a sleep that was given up, whichever are tried next.
            let is_wanted = asked.contains(view.name) || failed.is_some();
            let is_asked = is_wanted && requests.len() < MAX_REQUESTS;
            outcome.unfinished |= is_wanted && !is_asked && matches!(step, Step::Send(_) | Step::Record(..));
            let request = match step {
                // A seal covers every machine: a sleep records all of them at once.
                Step::Record(entry, request) if is_asked || (verb == Verb::Stop && is_new(&entry)) => {
                    next.sealed &= entry.given_up;
                    next.cleaned = false;
                    next.machines.insert(view.name.to_owned(), entry);
                    request
                }
                Step::Send(request) => Some(request),
                _ => None,
            };
            let state = if verb == Verb::Stop { InstanceState::Stopping } else { InstanceState::Pending };
            requests.extend(request.filter(|_| is_asked).map(|request| (view.name.to_owned(), state, request)));
        }
        if next.machines.is_empty() {
            return Ok(outcome);
        }
        let version = self.write(target, &survey, &next).await?;
        let (until, known) = (survey.decided + SEND_WINDOW, outcome.refused.len());
        let (undone, failure) = self.send(target, &requests, until, &mut outcome).await;
        let mut after = survey.before(next.clone(), &undone).unwrap_or_else(|| next.clone());
        if may_return && (has_begun || !outcome.moved.is_empty()) {
            let mut refused = outcome.refused[known..].to_vec();
            if let Some((machine, error)) = failure.as_ref().filter(|(_, e)| !matches!(e.kind, NotLeader | Throttled)) {
                refused.push(refusal(machine, Obstacle::new(error.kind.into(), &error.message)));
            }
            let tried: Vec<&str> = requests.iter().map(|(machine, ..)| machine.as_str()).collect();
            after.stalled = stall_after(&survey, &views, &tried, after.stalled, &refused);
        }
        if after != next {
            // They need not wait until an earlier request can no longer arrive. If this fails, they do.
            let _ = self.store(target, &after, Some(&version)).await;
        }
        failure.map_or(Ok(outcome), |(_, error)| Err(error.into()))
    }

    /// Removes what nothing needs. Once all machines run, nothing needs any image: the record forgets them first, and
    /// goes last. An image that is still in use goes after the next sleep.
    async fn clean(&self, target: &Target) -> Result<(), PassError> {
        let mut survey = self.survey(target, Priority::Idle, self.taken(&target.cluster)).await?;
        let views = survey.views();
        let is_at = |stage: &Stage| !views.is_empty() && views.iter().all(|view| view.is_at(stage));
        let (awake, asleep) = (is_at(&Stage::Running), is_at(&Stage::Gone));
        drop(views);
        if !awake && !asleep {
            return Ok(());
        }
        if awake && survey.record.is_some() {
            let cleaned = survey.record.as_ref().is_some_and(|(record, _)| record.cleaned);
            let machines = survey.moved_lately();
            let forgotten = Record { cleaned, machines, ..Record::new(&target.cluster) };
            self.write(target, &survey, &forgotten).await?;
            survey = self.survey(target, Priority::Idle, None).await?;
        }
        // Someone has deleted the last servers: nothing had to be moved any more.
        if asleep && survey.record.as_ref().is_some_and(|(record, _)| !record.sealed) {
            self.write(target, &survey, &survey.sealed(survey.next_record())).await?;
            survey = self.survey(target, Priority::Idle, None).await?;
        }
        // Once when all run, and once when nothing can arrive any more.
        let is_over = |record: &Record<_>| awake && record.machines.is_empty();
        let is_tried = survey.record.as_ref().is_some_and(|(record, _)| record.cleaned && !is_over(record));
        let unneeded = survey.unneeded_images().filter(|_| !is_tried);
        // What is left in the end, such as an image in use, must not pass for a machine that sleeps.
        let is_last = survey.record.as_ref().is_some_and(|(record, _)| record.cleaned && is_over(record));
        let has_copy = |image: &&Image| image.copy.as_ref().is_some_and(|copy| !copy.is_empty());
        let has_copies = survey.images.iter().any(|image| has_copy(&image));
        let left = survey.images.iter().filter(|image| is_last && has_copy(image));
        let left = left.map(|image| Request::Describe(image.clone(), String::new()));
        let images = unneeded.filter(|image| !(is_last && has_copy(image)));
        let images = images.map(|image| Request::DeleteImage(image.id.clone())).chain(left);
        let marked = survey.servers.iter().filter(|server| awake && server.cycle.is_some());
        let marks = marked.map(|server| Request::Unmark(server.id.clone()));
        let requests = images.chain(marks).map(|request| (String::new(), InstanceState::Running, request));
        let undescribed = survey.undescribed(MAX_REQUESTS).into_iter().filter(|_| asleep);
        let mut requests: Vec<_> = requests.chain(undescribed).collect();
        let is_all = requests.len() <= MAX_REQUESTS;
        requests.truncate(MAX_REQUESTS);
        if let (_, Some((_, error))) = self.send(target, &requests, Timestamp::MAX, &mut Outcome::default()).await {
            return Err(error.into());
        }
        match &survey.record {
            Some((record, Some(version))) if is_all && is_over(record) && !has_copies => {
                target.ledger.clear(version).await.map_err(CloudError::from)?;
            }
            Some((record, _)) if is_all => {
                self.write(target, &survey, &Record { cleaned: true, ..record.clone() }).await?;
            }
            _ => {}
        }
        Ok(())
    }
}

impl<C: Cloud> Driver for Planner<C> {
    fn domain(&self) -> Arc<str> {
        self.cloud.domain()
    }

    fn profile(&self, cluster: &ClusterRef) -> Profile {
        self.cloud.profile(cluster)
    }

    fn list<'a>(&'a self, target: &'a Target, priority: Priority) -> CloudFuture<'a, Listing> {
        async move {
            let survey = self.survey(target, priority, None).await?;
            let listing = survey.listing();
            let Survey { cluster, servers, images, charge, now: at, .. } = survey;
            let mut lists = self.lists.lock();
            lists.retain(|_, lists| is_within(at, lists.at, LIST_TTL));
            lists.insert(cluster.infra_id, Lists { at, servers, images, charge });
            Ok(listing)
        }
        .boxed()
    }

    fn advance<'a>(&'a self, target: &'a Target, verb: Verb, ids: &'a [String]) -> CloudFuture<'a, Outcome> {
        self.move_all(target, verb, ids).boxed()
    }

    fn settle<'a>(&'a self, target: &'a Target) -> CloudFuture<'a, ()> {
        let cleaned = self.clean(target).map_err(|stopped| match stopped {
            PassError::Lost => LedgerError::Conflict.into(),
            PassError::Failed(error) => error,
        });
        cleaned.boxed()
    }
}
