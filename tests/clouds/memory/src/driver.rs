//! The driver: each pass lists everything, takes at most one kind of step per machine, and keeps no state.
//!
//! Crash safety: the driver records every destructive step before it takes it. A record that another writer has changed since is a conflict, and the pass ends.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use shared::cloud::{
    CloudError, CloudErrorKind, ClusterRef, Driver, InstanceState, Lifecycle, Listing, Outcome, Priority, Profile,
    ProviderIds, Refusal, Target, Verb,
};
use shared::record::Format;

use crate::cloud::{Answer, ImageStatus, Refused, Request};
use crate::faults::Account;
use crate::record::{Machine, Record};
use crate::survey::{Stage, Survey, View};

/// A driver of the recreate lifecycle.
pub struct Recreate {
    account: Account,
}

/// What a pass does to one machine.
enum Step {
    /// Nothing: it is there, or something is under way.
    Wait,
    /// A request.
    Send(Request),
    /// The record has to say so first: a new cycle, because its server may have run since its image was begun.
    Renew,
    /// The record has to say so first: its server is given up. Then the request.
    GiveUp(Request),
    /// It has its image.
    Ready,
}

impl Recreate {
    /// A driver for this account.
    pub fn new(account: Account) -> Self {
        Self { account }
    }

    async fn survey(&self, target: &Target) -> Result<Survey, CloudError> {
        let infra_id = target.cluster.infra_id.clone();
        let servers = match self.ask(Request::Servers { infra_id: infra_id.clone() }).await? {
            Answer::Servers(servers) => servers,
            other => return Err(unexpected(&other)),
        };
        let images = match self.ask(Request::Images { infra_id }).await? {
            Answer::Images(images) => images,
            other => return Err(unexpected(&other)),
        };
        let record = match target.ledger.read().await? {
            None => None,
            Some(entry) => {
                let record = Record::read(&entry.text).map_err(|why| unreadable(&why.to_string()))?;
                if !record.is_of(&target.cluster) {
                    return Err(unreadable("it is another cluster's"));
                }
                Some((record, entry.version))
            }
        };
        Ok(Survey { record, servers, images })
    }

    async fn ask(&self, request: Request) -> Result<Answer, CloudError> {
        self.account.send(request).await?.map_err(|refused| CloudError {
            kind: CloudErrorKind::Unavailable,
            message: format!("the cloud rejected the list request: {refused:?}"),
        })
    }

    /// Sends a step. A machine in transit, or already gone, is no error: the next list shows its state.
    async fn step(&self, machine: &str, request: Request, outcome: &mut Outcome) -> Result<bool, CloudError> {
        match self.account.send(request).await? {
            Ok(_) => Ok(true),
            Err(Refused::NotFound | Refused::Conflict) => Ok(false),
            Err(Refused::Locked) => {
                outcome.refused.push(Refusal {
                    id: machine.to_owned(),
                    kind: CloudErrorKind::Refused,
                    code: "Locked".to_owned(),
                    message: "the machine is locked".to_owned(),
                });
                Ok(false)
            }
        }
    }

    async fn write(&self, target: &Target, survey: &Survey, record: &Record) -> Result<(), CloudError> {
        let text = record.bounded_text().map_err(|why| unreadable(&why.to_string()))?;
        let seen = survey.record.as_ref().map(|(_, version)| version.as_str());
        target.ledger.write(&text, seen).await?;
        Ok(())
    }

    fn new_cycle(&self) -> String {
        self.account.cloud().id("cycle")
    }

    async fn move_all(&self, target: &Target, verb: Verb, ids: &[String]) -> Result<Outcome, CloudError> {
        let survey = self.survey(target).await?;
        let ids: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
        let views = survey.views();
        let step = |view: &View<'_>| match verb {
            Verb::Stop => stop(&survey, view),
            Verb::Start => start(&target.cluster.infra_id, view),
            Verb::Terminate => Step::Wait,
        };
        let steps: Vec<(&View<'_>, Step)> = views.iter().map(|view| (view, step(view))).collect();
        let asked = |view: &View<'_>| ids.contains(view.name);
        let record =
            || survey.record.as_ref().map_or_else(|| Record::new(&target.cluster), |(record, _)| record.clone());
        let mut outcome = Outcome::default();

        // First record every machine that is not recorded yet: a seal covers all of them.
        let renewed: Vec<_> = steps
            .iter()
            .filter(|(view, step)| matches!(step, Step::Renew) && (verb == Verb::Stop || asked(view)))
            .map(|(view, _)| *view)
            .collect();
        if !renewed.is_empty() {
            let mut next = record();
            next.sealed = false;
            for view in &renewed {
                let entry = Machine { server: view.server(), cycle: self.new_cycle(), image: None, given_up: false };
                next.machines.insert(view.name.to_owned(), entry);
            }
            self.write(target, &survey, &next).await?;
            if verb == Verb::Stop {
                return Ok(outcome);
            }
            for view in renewed {
                let unpause = Request::Unpause { server: view.server() };
                if self.step(view.name, unpause, &mut outcome).await? {
                    outcome.moved.push((view.name.to_owned(), InstanceState::Running));
                }
            }
        }

        // All have their images: from here on they may be given up.
        let is_sealed = survey.record.as_ref().is_some_and(|(record, _)| record.sealed);
        let may_be_sealed = |(view, step): &(&View<'_>, Step)| match step {
            Step::Ready => true,
            _ => view.entry.is_some_and(|entry| entry.given_up) && view.stage == Stage::Gone,
        };
        if verb == Verb::Stop && !is_sealed && !steps.is_empty() && steps.iter().all(may_be_sealed) {
            let mut next = record();
            for machine in next.machines.values_mut().filter(|machine| !machine.given_up) {
                machine.image = survey.image(machine).map(|(id, _)| id.clone());
            }
            next.machines.retain(|_, machine| machine.image.is_some());
            next.sealed = true;
            self.write(target, &survey, &next).await?;
            return Ok(outcome);
        }

        let given_up: Vec<_> = steps
            .iter()
            .filter(|(view, step)| matches!(step, Step::GiveUp(_)) && asked(view))
            .map(|(view, _)| view.name)
            .collect();
        if !given_up.is_empty() {
            let mut next = record();
            for name in given_up {
                if let Some(machine) = next.machines.get_mut(name) {
                    machine.given_up = true;
                }
            }
            self.write(target, &survey, &next).await?;
        }
        for (view, step) in steps.into_iter().filter(|(view, _)| asked(view)) {
            let (Step::Send(request) | Step::GiveUp(request)) = step else { continue };
            if self.step(view.name, request, &mut outcome).await? {
                let state = if verb == Verb::Stop { InstanceState::Stopping } else { InstanceState::Pending };
                outcome.moved.push((view.name.to_owned(), state));
            }
        }
        Ok(outcome)
    }

    /// Removes images that nothing names. Once all machines run, nothing names any: the record forgets them first, and
    /// goes last.
    async fn clean(&self, target: &Target) -> Result<(), CloudError> {
        let mut survey = self.survey(target).await?;
        let views = survey.views();
        let awake = !views.is_empty() && views.iter().all(|view| view.stage == Stage::Running);
        let asleep = !views.is_empty() && views.iter().all(|view| view.stage == Stage::Gone);
        if !awake && !asleep {
            return Ok(());
        }
        drop(views);
        if awake && survey.record.as_ref().is_some_and(|(record, _)| !record.machines.is_empty()) {
            self.write(target, &survey, &Record::new(&target.cluster)).await?;
            survey = self.survey(target).await?;
        }
        let mut outcome = Outcome::default();
        let mut left = 0;
        for image in survey.unnamed_images() {
            let delete = Request::DeleteImage { image: image.clone() };
            left += usize::from(!self.step("", delete, &mut outcome).await?);
        }
        if !awake {
            return Ok(());
        }
        for (server, _) in survey.servers.iter().filter(|(_, server)| server.cycle.is_some()) {
            self.step("", Request::Unmark { server: server.clone() }, &mut outcome).await?;
        }
        let empty = survey.record.as_ref().filter(|(record, _)| record.machines.is_empty() && left == 0);
        if let Some((_, version)) = empty {
            target.ledger.clear(version).await?;
        }
        Ok(())
    }
}

/// The next step of a machine into sleep.
fn stop(survey: &Survey, view: &View<'_>) -> Step {
    let server = view.server();
    let sealed = survey.record.as_ref().is_some_and(|(record, _)| record.sealed);
    match (&view.stage, view.entry) {
        (Stage::Running, Some(entry)) if view.is_recorded_server() && entry.image.is_none() && !sealed => {
            match survey.image(entry) {
                None => Step::Send(Request::Pause { server }),
                Some(_) => Step::Renew, // it has run since
            }
        }
        (Stage::Paused, Some(entry)) if view.is_recorded_server() => match (&entry.image, survey.image(entry)) {
            (Some(_), _) if sealed => Step::GiveUp(Request::DeleteServer { server }),
            (_, None) => Step::Send(Request::CreateImage { server, cycle: entry.cycle.clone() }),
            (_, Some((image, ImageStatus::Killed))) => Step::Send(Request::DeleteImage { image: image.clone() }),
            (_, Some((_, ImageStatus::Saving))) => Step::Wait,
            (_, Some((_, ImageStatus::Active))) => Step::Ready,
        },
        (Stage::Running | Stage::Paused, _) => Step::Renew,
        (Stage::GivenUp | Stage::Broken | Stage::Stray, _) => Step::Send(Request::DeleteServer { server }),
        (Stage::Unrestored, _) => Step::Send(Request::Restore { server }),
        (Stage::Imaging | Stage::Deleting | Stage::Gone | Stage::Building | Stage::Odd(_), _) => Step::Wait,
    }
}

/// The next step of a machine out of sleep.
fn start(infra_id: &str, view: &View<'_>) -> Step {
    let server = view.server();
    match (&view.stage, view.entry) {
        (Stage::Paused, Some(_)) if view.is_recorded_server() => Step::Renew,
        (Stage::Paused, _) => Step::Send(Request::Unpause { server }),
        (Stage::GivenUp | Stage::Broken | Stage::Stray, _) => Step::Send(Request::DeleteServer { server }),
        (Stage::Unrestored, _) => Step::Send(Request::Restore { server }),
        (Stage::Gone, Some(Machine { image: Some(image), cycle, .. })) => Step::Send(Request::CreateServer {
            infra_id: infra_id.to_owned(),
            machine: view.name.to_owned(),
            image: image.clone(),
            cycle: cycle.clone(),
        }),
        _ => Step::Wait,
    }
}

fn unexpected(answer: &Answer) -> CloudError {
    CloudError { kind: CloudErrorKind::Unavailable, message: format!("the cloud answers {answer:?}") }
}

fn unreadable(why: &str) -> CloudError {
    CloudError {
        kind: CloudErrorKind::Invalid,
        message: format!("the record of the cluster's machines is refused: {why}"),
    }
}

impl Driver for Recreate {
    fn domain(&self) -> Arc<str> {
        Arc::from("memory")
    }

    fn profile(&self, cluster: &ClusterRef) -> Profile {
        Profile {
            selector: format!("servers of {}", cluster.infra_id),
            lifecycle: Lifecycle::Recreate,
            provider_ids: ProviderIds { prefix: "memory:///", id_prefix: "" },
            ..Profile::default()
        }
    }

    fn list<'a>(&'a self, target: &'a Target, _priority: Priority) -> BoxFuture<'a, Result<Listing, CloudError>> {
        async { Ok(self.survey(target).await?.listing()) }.boxed()
    }

    fn advance<'a>(
        &'a self,
        target: &'a Target,
        verb: Verb,
        ids: &'a [String],
    ) -> BoxFuture<'a, Result<Outcome, CloudError>> {
        self.move_all(target, verb, ids).boxed()
    }

    fn settle<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<(), CloudError>> {
        self.clean(target).boxed()
    }
}
