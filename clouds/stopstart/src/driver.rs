//! The [`Driver`] for any [`Cloud`], one for all clusters with the same credentials.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cloud_common::{ChargeGuard, ChargedValue, ListBatcher, Permit, Pool, Process};
use cloud_http::{CallError, Http, Options};
use futures::{FutureExt, StreamExt, stream};
use jiff::Timestamp;
use parking_lot::Mutex;
use shared::cloud::{
    CloudError, CloudErrorKind, CloudFuture, ClusterRef, Driver, Instance, InstanceState, Listing, Outcome, Priority,
    Profile, Refusal, Target, Verb,
};
use tokio::time::Instant;

use crate::accepted::{AcceptedCall, Counts, Name, OPERATION_TIMEOUT, states};
use crate::cloud::{Cloud, Failure, Machine, MachinesByKey, Move, Progress, Reason};

/// Least time between two lists.
const LIST_INTERVAL: Duration = Duration::from_secs(1);

/// Launch times that are cached.
const MAX_LAUNCHES: usize = 10_000;

/// Calls of one cluster at once.
const MAX_IN_FLIGHT: usize = 16;

/// How long a pass begins calls: the next one takes the machines that are left.
const SEND_WINDOW: Duration = Duration::from_secs(20);

/// A list of several clusters, which all of them share.
type Shared<C> = Arc<ChargedValue<MachinesByKey<<C as Cloud>::Key>>>;

/// A list, when it was made, and what it is charged.
type LastList = (Instant, Arc<[Machine]>, ChargeGuard);

/// One account of a cloud, for all clusters there.
pub struct StopStart<C: Cloud> {
    cloud: Arc<C>,
    permit: Permit,
    lists: ListBatcher<C::Key, Shared<C>>,
    /// The last list of each cluster that is going to sleep or waking.
    seen: Mutex<BTreeMap<C::Key, LastList>>,
    sent: Mutex<HashMap<Name, AcceptedCall>>,
    /// Launch times, where the cloud does not say.
    launched: Mutex<HashMap<Name, Timestamp>>,
    counts: Mutex<Counts>,
}

/// One driver for all clusters with the same credentials.
pub struct Accounts<C: Cloud> {
    process: Process,
    pool: Pool<StopStart<C>>,
}

impl<C: Cloud> Accounts<C> {
    /// No request is made yet.
    pub fn new(process: &Process) -> Self {
        Self { process: process.clone(), pool: Pool::default() }
    }

    /// The driver for these credentials. `account` is a word for their account, which answers are charged to; `make` puts
    /// the credentials and the account's client together.
    pub fn connect<K: Hash>(
        &self,
        credentials: K,
        account: String,
        make: impl FnOnce(K, Http) -> Result<C, String>,
    ) -> Result<Arc<dyn Driver>, String> {
        let driver = self.pool.get(credentials, |credentials| {
            let (process, account) = (self.process.clone(), account.into());
            let http = Http::new(Options { process, tenant: None, account, authorities: None, rate: C::RATE })?;
            Ok::<_, String>(StopStart::new(make(credentials, http)?, self.process.permit.clone()))
        })?;
        Ok(driver)
    }
}

impl<C: Cloud> StopStart<C> {
    /// No request is made yet.
    pub fn new(cloud: C, permit: Permit) -> Self {
        let cloud = Arc::new(cloud);
        let of_lists = cloud.clone();
        let lists = ListBatcher::new(C::MAX_CLUSTERS_PER_LIST, LIST_INTERVAL, move |wanted, priority| {
            of_lists.clone().list(wanted, priority).map(|found| found.map(Arc::new)).boxed()
        });
        Self {
            cloud,
            permit,
            lists,
            seen: Mutex::default(),
            sent: Mutex::default(),
            launched: Mutex::default(),
            counts: Mutex::default(),
        }
    }

    async fn machines(&self, cluster: &ClusterRef, priority: Priority) -> Result<Arc<[Machine]>, CloudError> {
        let key = self.cloud.key(cluster)?;
        let found = self.lists.list(key.clone(), false, priority).await?;
        let machines = found.get(&key).cloned().unwrap_or_else(|| Ok(Arc::default()))?;
        let mut seen = self.seen.lock();
        if priority == Priority::Idle {
            seen.remove(&key);
        } else {
            seen.retain(|_, (at, ..)| at.elapsed() < OPERATION_TIMEOUT);
            seen.insert(key, (Instant::now(), machines.clone(), found.guard()));
        }
        Ok(machines)
    }

    /// The machines of a cluster as the last list has found them.
    async fn last(&self, cluster: &ClusterRef, verb: Verb) -> Result<Arc<[Machine]>, CloudError> {
        let key = self.cloud.key(cluster)?;
        let seen = self.seen.lock().get(&key).cloned();
        match seen {
            Some((_, machines, _)) => Ok(machines),
            None => self.machines(cluster, verb.priority()).await,
        }
    }

    /// A machine as it is listed, and what the cloud has given up for it: while it rests although a call was accepted,
    /// the call is read back.
    async fn awaited(
        &self,
        cluster: &ClusterRef,
        machine: &Machine,
        priority: Priority,
    ) -> (Instance, Option<Refusal>) {
        let mut instance = machine.instance.clone();
        // By its infraID: several clusters may name the same machines.
        instance.control_plane = Instance::is_master(&cluster.infra_id, machine.name());
        let name = name(cluster, &instance.id);
        let sent = self.sent.lock().get(&name).cloned();
        self.dated(&name, &mut instance, sent.as_ref());
        let Some(sent) = sent else { return (instance, None) };
        let (end, on_the_way) = states(sent.verb);
        let rests = matches!(instance.state, InstanceState::Running | InstanceState::Halted | InstanceState::Stopped);
        if instance.state == end || sent.given_up.is_some() && !sent.is_awaited(priority) {
            self.sent.lock().remove(&name);
            return (instance, None);
        }
        if !rests || sent.given_up.is_some() {
            let given_up = sent.given_up.filter(|_| rests).map(|reason| reason.of(&instance.id));
            return (instance, given_up);
        }
        let given_up = match (&sent.operation, &machine.given_up) {
            (Some(operation), _) => match self.cloud.progress(operation).await {
                Ok(Progress::GivenUp(reason)) => Some(reason),
                Ok(Progress::Done) => {
                    self.change(&name, AcceptedCall::is_done);
                    None
                }
                Err(CallError::Rejected(error)) if [401, 403, 404, 410].contains(&error.status.as_u16()) => {
                    // It is forgotten, or may not be read: the call counts for no longer than lists lag.
                    self.change(&name, |sent| sent.operation = None);
                    None
                }
                Ok(Progress::InProgress) | Err(_) => None,
            },
            (None, reason) => reason.clone().filter(|reason| sent.is_meant_by(reason)),
        };
        if given_up.is_none() && sent.is_under_way() {
            instance.state = on_the_way;
            return (instance, None);
        }
        // Nothing has come of it: the operation may not be read, or has ended, or another party moved the machine back.
        let given_up = given_up.unwrap_or_else(|| {
            let why = instance.stop_reason.clone();
            let why = why.unwrap_or_else(|| format!("the cloud accepted it, and the machine is {}", instance.state));
            Reason::new(CloudErrorKind::Refused, "NoEffect", why)
        });
        self.change(&name, |sent| sent.given_up = Some(given_up.clone()));
        let given_up = sent.is_awaited(priority).then(|| given_up.of(&instance.id));
        (instance, given_up)
    }

    /// Adds when the machine came up, where the cloud does not say: the first list that shows it running after a start
    /// of ours. A sign of life of its Node from before its stop is none of this boot.
    fn dated(&self, name: &Name, instance: &mut Instance, sent: Option<&AcceptedCall>) {
        if instance.launched_at.is_some() {
            return;
        }
        let mut launched = self.launched.lock();
        match instance.state {
            InstanceState::Running if sent.is_some_and(|sent| sent.verb == Verb::Start) => {
                if launched.len() >= MAX_LAUNCHES {
                    launched.clear();
                }
                launched.insert(name.clone(), Timestamp::now());
            }
            // It may have been stopped again.
            InstanceState::Running | InstanceState::Stopped => {}
            _ => return,
        }
        instance.launched_at = launched.get(name).copied();
    }

    fn change(&self, name: &Name, change: impl FnOnce(&mut AcceptedCall)) {
        if let Some(sent) = self.sent.lock().get_mut(name) {
            change(sent);
        }
    }

    /// Why a machine gets no call now, or the state that it will have without one.
    fn without_call(
        &self,
        cluster: &ClusterRef,
        verb: Verb,
        machine: &Machine,
    ) -> Option<Result<InstanceState, Refusal>> {
        let Machine { instance, blocked, .. } = machine;
        let (end, on_the_way) = states(verb);
        let name = name(cluster, &instance.id);
        let covered = self.sent.lock().get(&name).is_some_and(|sent| sent.covers(verb));
        match (instance.state, blocked) {
            (state, _) if state == end || state == on_the_way => Some(Ok(state)),
            _ if covered => Some(Ok(on_the_way)),
            // One that hangs on its way up is stopped, as by Hive. The cloud may refuse it.
            (InstanceState::Pending, _) if verb == Verb::Stop => None,
            (state @ (InstanceState::Pending | InstanceState::Stopping | InstanceState::ShuttingDown), _) => {
                let reason = Reason::new(CloudErrorKind::InTransit, &*instance.word, format!("it is {state}"));
                Some(Err(reason.of(&instance.id)))
            }
            (_, Some(reason)) if verb == Verb::Start => Some(Err(reason.clone().of(&instance.id))),
            _ => None,
        }
    }

    /// Makes the call for one machine.
    async fn send(&self, cluster: &ClusterRef, verb: Verb, machine: &Machine) -> Result<(), Failure> {
        let name = name(cluster, &machine.instance.id);
        if !self.counts.lock().admit(&name, verb, C::MAX_CALLS_PER_MINUTE) {
            let message = format!("no more than {} calls a minute are made for one machine", C::MAX_CALLS_PER_MINUTE);
            return Err(Failure::Machine(Reason::new(CloudErrorKind::InTransit, "TooManyCalls", message)));
        }
        let to = match verb {
            Verb::Start => Move::Start,
            Verb::Stop => Move::Stop,
            Verb::Terminate => {
                let error = CloudError::new(CloudErrorKind::Invalid, "machines of this platform are never deleted");
                return Err(Failure::Account(error));
            }
        };
        let operation = self.cloud.send(cluster, to, machine).await?;
        let mut sent = self.sent.lock();
        sent.retain(|_, sent| !sent.is_old());
        sent.insert(name, AcceptedCall::new(verb, operation, machine.given_up.clone()));
        Ok(())
    }

    async fn move_all(&self, cluster: &ClusterRef, verb: Verb, ids: &[String]) -> Result<Outcome, CloudError> {
        if !(self.permit)() {
            let message = format!("{verb} not sent: not the leader any more");
            return Err(CloudError::new(CloudErrorKind::NotLeader, message));
        }
        let machines = self.last(cluster, verb).await?;
        let (mut outcome, mut calls) = (Outcome::default(), Vec::new());
        for id in ids {
            let Some(machine) = machines.iter().find(|machine| machine.instance.id == *id) else {
                let reason = Reason::new(CloudErrorKind::InTransit, "NotListed", "it is not listed");
                outcome.refused.push(reason.of(id));
                continue;
            };
            match self.without_call(cluster, verb, machine) {
                Some(Ok(state)) => outcome.moved.push((id.clone(), state)),
                Some(Err(refusal)) => outcome.refused.push(refusal),
                None => calls.push(machine),
            }
        }
        let (began, is_over) = (Instant::now(), AtomicBool::new(false));
        let mut answers = Vec::new();
        for machine in calls {
            let is_over = &is_over;
            answers.push(async move {
                if is_over.load(Ordering::Relaxed) || began.elapsed() >= SEND_WINDOW {
                    return None;
                }
                let answer = self.send(cluster, verb, machine).await;
                let kind = if let Err(Failure::Account(error)) = &answer { Some(error.kind) } else { None };
                if matches!(kind, Some(CloudErrorKind::Throttled | CloudErrorKind::NotLeader)) {
                    is_over.store(true, Ordering::Relaxed);
                }
                Some((machine.instance.id.clone(), answer))
            });
        }
        let (mut failed, mut unfinished) = (Vec::new(), false);
        let mut answers = stream::iter(answers).buffer_unordered(MAX_IN_FLIGHT);
        while let Some(answer) = answers.next().await {
            match answer {
                None => unfinished = true,
                Some((id, Ok(()))) => outcome.moved.push((id, states(verb).1)),
                Some((id, Err(Failure::Machine(reason)))) => outcome.refused.push(reason.of(&id)),
                Some((id, Err(Failure::Account(error)))) => failed.push((id, error)),
            }
        }
        outcome.moved.sort();
        outcome.refused.sort();
        failed.sort_by(|a, b| a.0.cmp(&b.0));
        let not_leader = failed.iter().find(|(_, error)| error.kind == CloudErrorKind::NotLeader);
        let of_all = not_leader.or(failed.first().filter(|_| outcome == Outcome::default()));
        if let Some((_, error)) = of_all {
            return Err(error.clone());
        }
        // The account is not to blame, because others were moved. What was throttled is asked for again.
        let is_throttled = |(_, error): &(String, CloudError)| error.kind == CloudErrorKind::Throttled;
        outcome.unfinished = unfinished || failed.iter().any(is_throttled);
        for (id, error) in failed.into_iter().filter(|failed| !is_throttled(failed)) {
            let reason = Reason::new(CloudErrorKind::Refused, error.kind.to_string(), error.message);
            outcome.refused.push(reason.of(&id));
        }
        Ok(outcome)
    }
}

fn name(cluster: &ClusterRef, id: &str) -> Name {
    (cluster.infra_id.clone(), id.to_owned())
}

impl<C: Cloud> Driver for StopStart<C> {
    fn domain(&self) -> Arc<str> {
        self.cloud.domain()
    }

    fn profile(&self, cluster: &ClusterRef) -> Profile {
        Profile { one_by_one: true, ..self.cloud.profile(cluster) }
    }

    fn list<'a>(&'a self, target: &'a Target, priority: Priority) -> CloudFuture<'a, Listing> {
        async move {
            let machines = self.machines(&target.cluster, priority).await?;
            let mut awaited = Vec::new();
            for machine in &*machines {
                awaited.push(self.awaited(&target.cluster, machine, priority));
            }
            let awaited: Vec<_> = stream::iter(awaited).buffered(MAX_IN_FLIGHT).collect().await;
            let (instances, failed): (_, Vec<_>) = awaited.into_iter().unzip();
            Ok(Listing { instances, failed: failed.into_iter().flatten().collect(), ..Listing::default() })
        }
        .boxed()
    }

    fn advance<'a>(&'a self, target: &'a Target, verb: Verb, ids: &'a [String]) -> CloudFuture<'a, Outcome> {
        self.move_all(&target.cluster, verb, ids).boxed()
    }
}
