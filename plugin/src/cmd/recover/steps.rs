//! Executes a recovery: read the cluster, execute the first step that is left, read again.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use hub::error::HubError;
use hub::{HubClient, Resource, Write};
use serde_json::Value;
use shared::kinds::FOUNDATIONDB_CLUSTER;
use shared::managed_fields::{manager, owners, written_at};
use shared::text::{quoted, sanitize};
use tokio::time::{Instant, sleep};

use crate::cmd::recover::render;
use crate::error::{FdbError, Problem};
use crate::output;
use crate::read::fdb::{DatabaseSnapshot, SERVICE, kind_of, read};
use crate::recover::include::{TIMEOUT, command, orders};
use crate::recover::object::{is_ready, name};
use crate::recover::patch::{remember, resume};
use crate::recover::record::Record;
use crate::recover::wake::Wakes;
use crate::recover::{Done, Edit, Step, Unrecoverable, outdated, remaining, removed_again};

/// How often a step is retried after a conflict.
const CONFLICTS: u32 = 20;
/// How often the status is edited: an operator that takes it back as often does so for a reason.
const EDITS: u32 = 4;
/// `include` is sent again after this if the operator's status still shows a group as excluded.
const INCLUDE_AGAIN: Duration = Duration::from_secs(15);
/// How often `spec.skip` is set again that another client has reset.
const SKIPS: u32 = 10;
/// Pause after a failed request; the hub may be restarting.
pub(super) const PAUSE: Duration = Duration::from_secs(2);
/// In how many Pods `fdbcli` is tried.
const PODS: usize = 3;
/// The container of the operator's Pods in which `fdbcli` is.
const CONTAINER: &str = "foundationdb";

/// Who has `spec.skip` now, if it is not us: the field manager that the API server has recorded.
fn skip_manager(cluster: &Value, own: &str) -> String {
    let others = owners(cluster, "/fieldsV1/f:spec/f:skip").filter(|entry| manager(entry) != own);
    let last = others.max_by_key(|entry| written_at(entry)).map(manager).filter(|name| !name.is_empty());
    last.map_or_else(|| "another client".to_owned(), |name| format!("field manager {}", sanitize(name)))
}

/// One recovery on its way.
pub(crate) struct Run<'a> {
    pub(crate) hub: &'a HubClient,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// The cluster as messages name it.
    pub(crate) cluster: String,
    pub(crate) record: Record,
    /// Whether to run `include` in the database.
    pub(crate) include: bool,
    /// Whether to wait for the Pods.
    pub(crate) wait: bool,
    pub(crate) settle: Duration,
    pub(crate) write: &'a Write,
    /// What is going on, for the message when time is up.
    pub(crate) state: RefCell<String>,
    /// Whether the operator is asked to skip the cluster, as far as is known.
    pub(crate) skipping: Cell<bool>,
    /// What the user must run if the groups are back but `include` did not run.
    pub(crate) owed: RefCell<Option<String>>,
    /// The groups that go in exchange, as far as the user was told.
    pub(crate) announced: RefCell<Vec<String>>,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// All is done.
    Recovered,
    /// The operator is left to create the Pods.
    Left,
}

impl Run<'_> {
    /// Carries it out.
    ///
    /// # Errors
    /// When it cannot be finished; what was done stays, and another run goes on from there.
    pub(crate) async fn finish(&self) -> Result<End, Problem> {
        let (mut done, mut conflicts, mut edits) = (Done::default(), 0, 0);
        let mut include_failure = String::new();
        let (mut troubled, mut record, mut lost) = (false, self.record.clone(), None);
        let mut included_at: Option<Instant> = None;
        let (mut skips, mut wakes, begun) = (0, Wakes::default(), Instant::now());
        loop {
            let observation = match self.observation().await {
                Ok(observation) if observation.cluster.metadata.deletion_timestamp.is_none() => observation,
                Ok(_) | Err(Problem::Hub(HubError::NoObject { .. })) => {
                    return Err(FdbError::Deleted { cluster: self.cluster.clone() }.into());
                }
                Err(Problem::Hub(error)) if error.is_transient() => {
                    self.trouble(&error, &mut troubled).await;
                    continue;
                }
                Err(problem) => return Err(problem),
            };
            self.skipping.set(observation.cluster.spec.skip == Some(true));
            self.announce(&observation);
            done.included = included_at.is_some_and(|at| at.elapsed() < INCLUDE_AGAIN);
            let steps = match remaining(&observation.facts(), &record, self.include, done) {
                Ok(steps) => steps,
                Err(why) => {
                    let group = why.group().filter(|group| record.has(group)).map(ToOwned::to_owned);
                    let error = self.unrecoverable(why);
                    let Some(group) = group else { return Err(error.into()) };
                    // The others come back, and the operator is not left asked to skip.
                    record = record.without(&group, &observation.cluster);
                    output::warning(&error.to_string());
                    lost.get_or_insert(error);
                    continue;
                }
            };
            let Some(step) = steps.first() else {
                return Err(self.not_included(&observation, &record, include_failure));
            };
            if edits > 0
                && matches!(step, Step::Skip(_))
                && let Some(outdated) = outdated(&observation.facts(), &record)
            {
                return Err(FdbError::Outdated { cluster: self.cluster.clone(), outdated }.into());
            }
            match step {
                Step::Settle => {
                    self.settled().await?;
                    done.settled = true;
                }
                Step::Verify => {
                    sleep(self.settle).await;
                    done.verified = true;
                    continue; // said once nothing is left to edit
                }
                Step::Await(_) if !self.wait && done.include_failures > 0 => {
                    return Err(self.not_included(&observation, &record, include_failure));
                }
                Step::Await(missing) if !self.wait => {
                    self.note(&format!("waiting on the operator: {}", render::missing(missing)));
                    self.owe(&observation, &record);
                    return Ok(End::Left);
                }
                Step::Await(missing) => {
                    let pause = wakes.pause(missing, begun.elapsed());
                    if pause == Some(Duration::ZERO) {
                        self.wake(&observation, missing).await;
                    } else {
                        self.await_news(&observation, missing, pause).await;
                    }
                    continue;
                }
                Step::Include(orders, record) => match self.include(&observation, orders).await {
                    Ok(()) => {
                        included_at = Some(Instant::now());
                        self.remember(record).await?;
                    }
                    Err(why) => {
                        done.include_failures += 1;
                        if done.include_failures == 1 {
                            self.warn(&format!(
                                "cannot include the groups in the database: {why}. The command retries when the Pods run; to do it by \
                                 hand: {}",
                                self.by_hand(orders)
                            ));
                        }
                        include_failure = why;
                        continue;
                    }
                },
                step => match self.act(step).await {
                    Ok(()) => {}
                    // The next look tells what is gone.
                    Err(HubError::Conflict { .. } | HubError::NoObject { .. }) if conflicts < CONFLICTS => {
                        conflicts += 1;
                        continue;
                    }
                    Err(HubError::Conflict { .. }) => return Err(Problem::Contended(CONFLICTS)),
                    Err(error) if error.is_transient() => {
                        self.trouble(&error, &mut troubled).await;
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                },
            }
            conflicts = 0;
            match step {
                Step::Resume(_) if done.verified => self.say(&render::done(&Step::Verify)),
                Step::Skip(_) => {
                    done.settled = false;
                    if let Some(text) = removed_again(&observation.facts()) {
                        self.warn(&text);
                    }
                    skips += u32::from(observation.cluster.spec.skip != Some(true));
                    if skips > SKIPS {
                        let (cluster, times) = (self.cluster.clone(), SKIPS);
                        let manager = skip_manager(&observation.object, &self.write.manager);
                        return Err(FdbError::SkipReset { cluster, times, manager }.into());
                    }
                }
                Step::Status(_) => {
                    done.verified = false;
                    edits += 1;
                    if edits > EDITS {
                        self.give_up(&record).await;
                        return Err(FdbError::RecoveryReverted { cluster: self.cluster.clone(), times: EDITS }.into());
                    }
                }
                _ => {}
            }
            self.say(&render::done(step));
            if matches!(step, Step::Clear(..)) {
                self.owe(&observation, &record);
                return lost.map_or(Ok(End::Recovered), |lost| Err(lost.into()));
            }
        }
    }

    /// Holds the volumes and Services, and does nothing else.
    ///
    /// # Errors
    /// When the API server refuses it, or a volume has gone.
    pub(crate) async fn hold(&self) -> Result<(), Problem> {
        for _ in 0..CONFLICTS {
            let observation = self.observation().await?;
            let steps = match remaining(&observation.facts(), &self.record, self.include, Done::default()) {
                Err(Unrecoverable::ForeignSkip) => return Ok(()), // they are held
                steps => steps.map_err(|lost| self.unrecoverable(lost))?,
            };
            let Some(step @ Step::Hold(_)) = steps.first() else { return Ok(()) };
            match self.act(step).await {
                Ok(()) => self.say(&render::done(step)),
                Err(HubError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Problem::Contended(CONFLICTS))
    }

    /// The cluster and what belongs to it, as it is now.
    pub(super) async fn observation(&self) -> Result<DatabaseSnapshot, Problem> {
        DatabaseSnapshot::new(self.hub, self.namespace, self.name).await
    }

    pub(super) fn unrecoverable(&self, why: Unrecoverable) -> FdbError {
        FdbError::Unrecoverable { cluster: self.cluster.clone(), lost: Box::new(why) }
    }

    fn note(&self, text: &str) {
        output::note(&format!("{}: {text}", self.cluster));
    }

    pub(super) fn warn(&self, text: &str) {
        output::warning(&format!("{}: {text}", self.cluster));
    }

    pub(super) fn say(&self, text: &str) {
        text.clone_into(&mut self.state.borrow_mut());
        self.note(text);
    }

    /// A failure that may pass: it is reported once, and the next try waits.
    async fn trouble(&self, error: &HubError, troubled: &mut bool) {
        if !std::mem::replace(troubled, true) || self.hub.verbose {
            self.note(&format!("continuing despite an error: {error}"));
        }
        sleep(PAUSE).await;
    }

    /// Steps that only write.
    async fn act(&self, step: &Step) -> Result<(), HubError> {
        match step {
            Step::Hold(edits) => self.edit(edits).await,
            Step::Skip(patch) => {
                // After an interruption or a lost answer the outcome is unknown.
                let before = self.skipping.replace(true);
                let answer = self.patch(patch).await;
                if answer.as_ref().is_err_and(|error| !error.is_transient()) {
                    self.skipping.set(before);
                }
                answer
            }
            Step::Lists(patch) => self.patch(patch).await,
            Step::Resume(patch) => {
                self.patch(patch).await?;
                self.skipping.set(false);
                Ok(())
            }
            Step::Status(patch) => {
                let cluster = Resource::preferred(&FOUNDATIONDB_CLUSTER.kind);
                self.hub.patch_status(cluster, self.namespace, self.name, patch, self.write).await.map(drop)
            }
            Step::Services(services) => {
                for service in services {
                    let kind = Resource::preferred(&SERVICE);
                    match self.hub.create(kind, Some(self.namespace), service, self.write).await {
                        // Another client created it in between.
                        Ok(_) | Err(HubError::Conflict { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(())
            }
            Step::Clear(edits, patch) => {
                self.edit(edits).await?;
                self.patch(patch).await
            }
            Step::Settle | Step::Verify | Step::Await(_) | Step::Include(..) => Ok(()),
        }
    }

    async fn patch(&self, patch: &Value) -> Result<(), HubError> {
        let cluster = Resource::preferred(&FOUNDATIONDB_CLUSTER.kind);
        self.hub.patch(cluster, self.namespace, self.name, patch, self.write).await.map(drop)
    }

    pub(super) async fn edit(&self, edits: &[Edit]) -> Result<(), HubError> {
        for edit in edits {
            let kind = kind_of(edit.kind);
            self.hub.patch(Resource::preferred(kind), self.namespace, &edit.name, &edit.patch, self.write).await?;
        }
        Ok(())
    }

    /// Has the API server judge every write of a plan without keeping any.
    ///
    /// # Errors
    /// Its refusal.
    pub(crate) async fn rehearse(&self, steps: &[Step]) -> Result<(), Problem> {
        for step in steps {
            self.act(step).await?;
        }
        Ok(())
    }

    /// Names groups that go in exchange besides those of the plan, once the record has them.
    fn announce(&self, observation: &DatabaseSnapshot) {
        let recorded = observation.facts().record().map(|record| record.replacements).unwrap_or_default();
        let mut announced = self.announced.borrow_mut();
        let more: Vec<String> = recorded.into_iter().filter(|id| !announced.contains(id)).collect();
        if !more.is_empty() {
            self.note(&format!("also removed in exchange: {}", more.join(", ")));
            announced.extend(more);
        }
    }

    /// Lets the operator reconcile again. [`Run::skipping`] reports a failure.
    async fn give_up(&self, record: &Record) {
        let Ok(observation) = self.observation().await else { return };
        let record = record.adopting(observation.facts().record().as_ref()).with_exclusions(&observation.cluster);
        if self.patch(&resume(&observation.cluster, &record)).await.is_ok() {
            self.skipping.set(false);
        }
    }

    /// Runs `fdbcli` in a Pod that is ready, in another one if that does not answer.
    async fn include(&self, observation: &DatabaseSnapshot, orders: &[String]) -> Result<(), String> {
        *self.state.borrow_mut() = format!("running in the database: {}", orders.join("; "));
        let command = command(orders);
        let limit = Duration::from_secs(u64::from(TIMEOUT) + 10);
        let pods: Vec<&str> = observation.pods.iter().filter(|pod| is_ready(pod)).map(name).take(PODS).collect();
        let mut why = format!("the cluster has no ready Pod to run {}", command[0]);
        for pod in pods {
            match self.hub.exec(self.namespace, pod, CONTAINER, &command, limit).await {
                // The database is the same from every Pod.
                Ok(output) => {
                    return output.failure.map_or(Ok(()), |why| Err(format!("{}: {why}", last_line(&output.text))));
                }
                Err(error) => why = format!("Pod {pod}: {error}"),
            }
        }
        Err(why)
    }

    /// Records that `include` ran. A run that is killed before repeats it.
    async fn remember(&self, record: &Record) -> Result<(), Problem> {
        for _ in 0..CONFLICTS {
            let patch = remember(&read(&self.object().await?)?, record);
            match self.patch(&patch).await {
                Ok(()) => return Ok(()),
                Err(HubError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Problem::Contended(CONFLICTS))
    }

    /// The command for a person.
    pub(crate) fn by_hand(&self, orders: &[String]) -> String {
        let (namespace, orders) = (quoted(self.namespace), quoted(&orders.join("; ")));
        format!("kubectl -n {namespace} exec POD -c {CONTAINER} -- fdbcli --exec {orders}")
    }

    /// Remembers what is left for a person when the database is left alone.
    fn owe(&self, observation: &DatabaseSnapshot, record: &Record) {
        let record = record.adopting(observation.facts().record().as_ref()).with_exclusions(&observation.cluster);
        let orders = if self.include { Vec::new() } else { orders(&observation.cluster, &record) };
        *self.owed.borrow_mut() = (!orders.is_empty()).then(|| self.by_hand(&orders));
    }

    fn not_included(&self, observation: &DatabaseSnapshot, record: &Record, why: String) -> Problem {
        let mut record = record.adopting(observation.facts().record().as_ref());
        record.groups.iter_mut().for_each(|held| held.included = false); // one that was is excluded again
        let command = self.by_hand(&orders(&observation.cluster, &record));
        FdbError::NotIncluded { cluster: self.cluster.clone(), why, command }.into()
    }
}

/// What a program said last, which is where the reason stands.
fn last_line(text: &str) -> &str {
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it printed nothing")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_reason_is_the_last_line() {
        assert_eq!(
            last_line("WARNING: Long delay\n\nThe database is unavailable.\n\n"),
            "The database is unavailable."
        );
        assert_eq!(last_line(" \n"), "it printed nothing");
    }

    #[test]
    fn who_resets_the_skip_is_named() {
        let entry = |manager: &str, time: &str, fields: Value| json!({ "manager": manager, "operation": "Update", "time": time, "fieldsV1": fields });
        let skip = || json!({ "f:spec": { "f:skip": {} } });
        let cluster = |entries: &[Value]| json!({ "metadata": { "name": "sample", "managedFields": entries } });
        let ours = entry("kubectl-hibernate", "2026-11-26T03:00:02Z", skip());
        let flux = entry("kustomize-controller", "2026-11-26T03:00:01Z", skip());
        let other = entry("operator", "2026-11-26T03:00:03Z", json!({ "f:status": {} }));
        let found = |entries: &[Value]| skip_manager(&cluster(entries), "kubectl-hibernate");
        assert_eq!(found(&[other.clone(), ours.clone(), flux]), "field manager kustomize-controller");
        assert_eq!(found(&[other, ours]), "another client");
    }
}
