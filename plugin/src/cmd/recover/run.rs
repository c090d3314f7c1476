//! Carries a recovery out: look at the cluster, do the first step that is left, look again.

use std::time::Duration;

use hub::error::HubError;
use hub::{HubClient, Resource};
use serde_json::Value;
use shared::fdb::recover::check::Place;
use shared::fdb::recover::patch::Edit;
use shared::fdb::recover::presence::{Unrecoverable, Wakes};
use shared::fdb::recover::record::Record;
use shared::fdb::recover::{Plan, Request, RunState, Step, remaining};
use shared::kinds::FOUNDATIONDB_CLUSTER;
use tokio::time::{Instant, sleep};

use super::{Options, dialog, is_left_to_end};
use crate::error::{FdbError, Problem};
use crate::output;
use crate::read::fdb::{DatabaseSnapshot, SERVICE, kind_of};

/// How often a step is retried after a conflict: an operator that reconciles all the time leaves few gaps on a busy hub.
pub(super) const CONFLICTS: u32 = 100;
/// Pause after a failed request; the hub may be restarting.
pub(super) const PAUSE: Duration = Duration::from_secs(2);
/// `include` is sent again after this if the operator's status still shows a group as excluded.
const INCLUDE_AGAIN: Duration = Duration::from_secs(15);

/// Whether a write may succeed in a moment: also where a webhook does not answer.
pub(super) fn may_pass(error: &HubError) -> bool {
    error.is_transient() || matches!(error, HubError::WebhookDown { .. })
}

/// One recovery on its way.
pub(super) struct Run<'a> {
    pub(super) hub: &'a HubClient,
    pub(super) place: &'a Place,
    /// The cluster as messages name it.
    pub(super) cluster: String,
    pub(super) options: &'a Options,
    /// The groups that come back, less those whose volume is lost meanwhile.
    pub(super) record: Record,
    /// The groups that go in exchange, as far as the user was told.
    pub(super) announced: Vec<String>,
    pub(super) begun: Instant,
    pub(super) progress: Progress,
}

/// What a run has seen and done so far.
#[derive(Default)]
pub(super) struct Progress {
    pub(super) state: RunState,
    /// What is going on, for the message when time is up.
    pub(super) doing: String,
    /// Whether the operator is asked to skip the cluster, as far as is known.
    pub(super) skipping: bool,
    /// How often `spec.skip` was set, and the status edited.
    pub(super) skips: u32,
    pub(super) edits: u32,
    /// Conflicts since the last step that was done.
    pub(super) conflicts: u32,
    /// Whether a failure that may pass was reported.
    pub(super) troubled: bool,
    /// When `include` ran, or why it failed.
    pub(super) included_at: Option<Instant>,
    pub(super) include_failure: String,
    pub(super) wakes: Wakes,
    /// The first volume that was lost.
    pub(super) lost: Option<FdbError>,
    /// What the user must run if the groups are back but `include` did not run.
    pub(super) owed: Option<String>,
}

/// What has come of a step.
pub(super) enum Turn {
    /// Look again: there is news, or it failed and may pass.
    Again,
    Done,
    End(End),
}

/// How a recovery ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// All is done.
    Recovered,
    /// The operator is left to create the Pods.
    Left,
}

impl Run<'_> {
    /// Holds the volumes and Services, and does nothing else.
    pub(super) async fn hold(&mut self) -> Result<(), Problem> {
        for _ in 0..CONFLICTS {
            let seen = self.snapshot().await?;
            let plan = match remaining(&seen.facts(), &self.record, self.options.include, self.progress.state) {
                Err(Unrecoverable::ForeignSkip) => return Ok(()), // they are held
                plan => plan.map_err(|lost| self.unrecoverable(lost))?,
            };
            let Some(step @ Step::Hold(_)) = plan.steps.first() else { return Ok(()) };
            match self.send(step).await {
                Ok(()) => self.say(&dialog::done(step)),
                Err(HubError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Problem::Contended(CONFLICTS))
    }

    /// Carries it out. What was done stays, and another run goes on from there: where this one cannot go on, it does not
    /// leave the operator paused.
    pub(super) async fn finish(&mut self) -> Result<End, Problem> {
        let ended = self.take_steps().await;
        if self.progress.skipping && ended.as_ref().err().is_some_and(is_left_to_end) {
            self.give_up().await;
        }
        ended
    }

    /// Nothing is remembered of a plan: each turn looks at the cluster, plans anew, and does the first step. Without
    /// disturbance these are, as [`crate::recover`] has them: hold the volumes (R1), have the operator skip the cluster
    /// (R2) and wait for the end of its pass (R3), edit lists and status (R4, R5), include the groups in the database
    /// (R6), create missing Services (R7), verify that the edits were kept (R8), let the operator go on (R9), wait for
    /// the Pods and the report of the processes (R10, R11), and take the record off (R12). A turn that fails because
    /// another client wrote in between, or the hub does not answer, is repeated; a volume that is lost is left out.
    async fn take_steps(&mut self) -> Result<End, Problem> {
        loop {
            let Some(seen) = self.look().await? else { continue };
            let Some(plan) = self.plan(&seen)? else { continue };
            let Some(step) = plan.steps.first() else { return Err(self.not_included(&seen)) };
            let turn = match step {
                Step::Hold(_) | Step::Lists(_) | Step::Services(_) => self.write(step).await?,
                Step::Skip(_) => self.skip(&seen, step).await?,
                Step::Settle => self.settle().await?,
                Step::Status(_) => self.edit_status(step).await?,
                Step::Include(orders, record) => self.include(&seen, orders, record).await?,
                Step::Verify => self.verify().await,
                Step::Resume(_) => self.resume(step).await?,
                Step::Await(missing) => self.wait(&seen, missing).await?,
                Step::Clear(..) => self.clear(&seen, step).await?,
            };
            match turn {
                Turn::Again => {}
                Turn::Done => {
                    self.progress.conflicts = 0;
                    self.say(&dialog::done(step));
                }
                Turn::End(end) => return Ok(end),
            }
        }
    }

    /// The cluster as it is now; none if the hub does not answer.
    async fn look(&mut self) -> Result<Option<DatabaseSnapshot>, Problem> {
        let seen = match self.snapshot().await {
            Ok(seen) if seen.cluster.metadata.deletion_timestamp.is_none() => seen,
            Ok(_) | Err(Problem::Hub(HubError::NoObject { .. })) => {
                return Err(FdbError::Deleted { cluster: self.cluster.clone() }.into());
            }
            Err(Problem::Hub(error)) if error.is_transient() => {
                self.trouble(&error).await;
                return Ok(None);
            }
            Err(problem) => return Err(problem),
        };
        self.progress.skipping = seen.facts().is_skipped();
        self.announce(&seen);
        Ok(Some(seen))
    }

    /// The cluster and what belongs to it.
    pub(super) async fn snapshot(&self) -> Result<DatabaseSnapshot, Problem> {
        DatabaseSnapshot::new(self.hub, &self.place.namespace, &self.place.name).await
    }

    pub(super) async fn object(&self) -> Result<Value, HubError> {
        let Place { namespace, name } = self.place;
        self.hub.get(Resource::preferred(&FOUNDATIONDB_CLUSTER.kind), namespace, name).await
    }

    /// Names groups that go in exchange besides those of the plan, once the record has them.
    fn announce(&mut self, seen: &DatabaseSnapshot) {
        let recorded = seen.facts().record().map(|record| record.replacements).unwrap_or_default();
        let more: Vec<String> = recorded.into_iter().filter(|id| !self.announced.contains(id)).collect();
        if !more.is_empty() {
            self.note(&format!("also removed in exchange: {}", more.join(", ")));
            self.announced.extend(more);
        }
    }

    /// What is left to be done; none if a group was left out.
    fn plan(&mut self, seen: &DatabaseSnapshot) -> Result<Option<Plan>, Problem> {
        self.progress.state.included = self.progress.included_at.is_some_and(|at| at.elapsed() < INCLUDE_AGAIN);
        let why = match remaining(&seen.facts(), &self.record, self.options.include, self.progress.state) {
            Ok(plan) => return Ok(Some(plan)),
            Err(why) => why,
        };
        let group = why.group().filter(|group| self.record.has(group)).map(ToOwned::to_owned);
        let error = self.unrecoverable(why);
        let Some(group) = group else { return Err(error.into()) };
        // The others come back, and the operator is not left asked to skip.
        self.record = self.record.without(&group, &seen.cluster);
        output::warning(&error.to_string());
        self.progress.lost.get_or_insert(error);
        Ok(None)
    }

    /// R1, R4, R7, and the writes of other steps.
    pub(super) async fn write(&mut self, step: &Step) -> Result<Turn, Problem> {
        match self.send(step).await {
            Ok(()) => return Ok(Turn::Done),
            // The next look tells what is gone.
            Err(HubError::Conflict { .. } | HubError::NoObject { .. }) if self.progress.conflicts < CONFLICTS => {
                self.progress.conflicts += 1;
            }
            Err(HubError::Conflict { .. }) => return Err(Problem::Contended(CONFLICTS)),
            Err(error) if may_pass(&error) => self.trouble(&error).await,
            Err(error) => return Err(error.into()),
        }
        Ok(Turn::Again)
    }

    pub(super) async fn send(&mut self, step: &Step) -> Result<(), HubError> {
        let before = self.progress.skipping;
        // After an interruption or a lost answer the outcome is unknown.
        self.progress.skipping |= matches!(step, Step::Skip(_));
        let answer = self.requests(step).await;
        match &answer {
            Ok(()) => self.progress.skipping &= !matches!(step, Step::Resume(_)),
            Err(error) if error.is_transient() => {}
            Err(_) => self.progress.skipping = before,
        }
        answer
    }

    async fn requests(&self, step: &Step) -> Result<(), HubError> {
        let (namespace, write) = (self.place.namespace.as_str(), &self.options.write);
        for request in step.requests() {
            match request {
                Request::Edit(edit) => self.edit(edit).await?,
                Request::Cluster(patch) => self.patch(patch).await?,
                Request::Status(patch) => {
                    let cluster = Resource::preferred(&FOUNDATIONDB_CLUSTER.kind).status();
                    self.hub.patch(cluster, namespace, &self.place.name, patch, write).await?;
                }
                Request::Create(service) => {
                    match self.hub.create(Resource::preferred(&SERVICE), Some(namespace), service, write).await {
                        // Another client created it in between.
                        Ok(_) | Err(HubError::Conflict { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) async fn edit(&self, edit: &Edit) -> Result<(), HubError> {
        let kind = Resource::preferred(kind_of(edit.kind));
        self.hub.patch(kind, &self.place.namespace, &edit.name, &edit.patch, &self.options.write).await.map(drop)
    }

    pub(super) async fn patch(&self, patch: &Value) -> Result<(), HubError> {
        let cluster = Resource::preferred(&FOUNDATIONDB_CLUSTER.kind);
        let Place { namespace, name } = self.place;
        self.hub.patch(cluster, namespace, name, patch, &self.options.write).await.map(drop)
    }

    pub(super) fn unrecoverable(&self, why: Unrecoverable) -> FdbError {
        FdbError::Unrecoverable { cluster: self.cluster.clone(), lost: Box::new(why) }
    }

    /// A failure that may pass: it is reported once, and the next try waits.
    pub(super) async fn trouble(&mut self, error: &HubError) {
        if !std::mem::replace(&mut self.progress.troubled, true) || self.hub.verbose {
            self.note(&format!("continuing despite an error: {error}"));
        }
        sleep(PAUSE).await;
    }

    pub(super) fn say(&mut self, text: &str) {
        text.clone_into(&mut self.progress.doing);
        self.note(text);
    }

    pub(super) fn note(&self, text: &str) {
        output::note(&format!("{}: {text}", self.cluster));
    }

    pub(super) fn warn(&self, text: &str) {
        output::warning(&format!("{}: {text}", self.cluster));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_that_does_not_answer_is_waited_for_and_one_that_refuses_is_not() {
        let (object, message) = (|| "fdb/sample".to_owned(), || "no".to_owned());
        for (error, passes) in [
            (HubError::WebhookDown { object: object(), message: message() }, true),
            (HubError::Status { object: object(), code: 503, message: message() }, true),
            (HubError::Forbidden { object: object(), message: message() }, false),
            (HubError::Refused { object: object(), by: message(), message: message(), denials: Vec::new() }, false),
        ] {
            assert_eq!(may_pass(&error), passes, "{error}");
        }
    }
}
