//! The steps that are more than a write: one function each, in their order.

use std::pin::pin;
use std::time::Duration;

use futures::future::select;
use hub::Resource;
use hub::error::HubError;
use hub::exec::POD;
use hub::watch::Scope;
use serde_json::Value;
use shared::fdb::recover::Step;
use shared::fdb::recover::facts::{is_ready, version};
use shared::fdb::recover::include::{TIMEOUT, command, orders};
use shared::fdb::recover::patch::{remember, resume, wake};
use shared::fdb::recover::presence::{Obstacle, removed_again, spec_drift};
use shared::fdb::recover::record::Record;
use shared::object::managed_fields::{manager, owners, written_at};
use shared::object::name_of;
use shared::text::{quoted, sanitize};
use tokio::time::{Instant, sleep, timeout};

use super::run::{CONFLICTS, End, PAUSE, Run, Turn, may_pass};
use super::{dialog, is_left_skipped};
use crate::error::{FdbError, Problem};
use crate::read::fdb::{DatabaseSnapshot, read};

/// How often `spec.skip` is set again that another client has reset.
const SKIPS: u32 = 10;
/// How often the cluster is read while the operator settles.
const TICK: Duration = Duration::from_millis(250);
/// After this, the status is edited even if it still changes: the edit has a precondition, and is verified later.
const RESTLESS: Duration = Duration::from_mins(1);
/// How often the status is edited: an operator that takes it back as often does so for a reason.
const EDITS: u32 = 4;
/// In how many Pods `fdbcli` is tried.
const PODS: usize = 3;
/// The container of the operator's Pods in which `fdbcli` is.
const CONTAINER: &str = "foundationdb";
/// Without events everything is read again after this.
const SILENCE: Duration = Duration::from_secs(10);
/// How often the cluster is read while the operator's report is awaited.
const POLL: Duration = Duration::from_secs(1);

impl Run<'_> {
    /// R2.
    pub(super) async fn skip(&mut self, seen: &DatabaseSnapshot, step: &Step) -> Result<Turn, Problem> {
        let cluster = self.cluster.clone();
        if self.progress.edits > 0
            && let Some(outdated) = spec_drift(&seen.facts(), &self.record)
        {
            return Err(FdbError::Outdated { cluster, outdated }.into());
        }
        let Turn::Done = self.write(step).await? else { return Ok(Turn::Again) };
        self.progress.state.settled = false;
        if let Some(text) = removed_again(&seen.facts()) {
            self.warn(&text);
        }
        self.progress.skips += u32::from(!seen.facts().is_skipped());
        if self.progress.skips > SKIPS {
            let manager = skip_manager(&seen.object, &self.options.write.manager);
            return Err(FdbError::SkipReset { cluster, times: SKIPS, manager }.into());
        }
        Ok(Turn::Done)
    }

    /// R3: waits until the status has not changed for a while: the operator's pass in progress has ended.
    pub(super) async fn settle(&mut self) -> Result<Turn, Problem> {
        let (settle, begin) = (self.options.settle, Instant::now());
        let (mut status, mut since) = (None, Instant::now());
        while since.elapsed() < settle && begin.elapsed() < RESTLESS.max(settle * 3) {
            sleep(TICK.min(settle)).await;
            let object = match self.object().await {
                Ok(object) => object,
                Err(error) if error.is_transient() => continue,
                Err(HubError::NoObject { .. }) => break, // which the next look finds, too
                Err(error) => return Err(error.into()),
            };
            let found = object.get("status").cloned();
            if found != status {
                (status, since) = (found, Instant::now());
            }
        }
        self.progress.state.settled = true;
        Ok(Turn::Done)
    }

    /// R5.
    pub(super) async fn edit_status(&mut self, step: &Step) -> Result<Turn, Problem> {
        let Turn::Done = self.write(step).await? else { return Ok(Turn::Again) };
        self.progress.state.verified = false;
        self.progress.edits += 1;
        if self.progress.edits > EDITS {
            return Err(FdbError::RecoveryReverted { cluster: self.cluster.clone(), times: EDITS }.into());
        }
        Ok(Turn::Done)
    }

    /// Lets the operator reconcile again, unless another client has it skip the cluster. [`Progress::skipping`] reports a
    /// failure.
    pub(super) async fn give_up(&mut self) {
        for _ in 0..CONFLICTS {
            let Ok(seen) = self.snapshot().await else { return };
            if !is_left_skipped(&seen) {
                return;
            }
            match self.patch(&resume(&seen.cluster, &self.merged(&seen))).await {
                Ok(()) => {
                    self.progress.skipping = false;
                    return self.say(&dialog::done(&Step::Resume(Value::Null)));
                }
                Err(HubError::Conflict { .. }) => {}
                Err(_) => return,
            }
        }
    }

    /// The record with what other runs and the operator have done since.
    fn merged(&self, seen: &DatabaseSnapshot) -> Record {
        self.record.merged_with(seen.facts().record().as_ref()).with_exclusions(&seen.cluster)
    }

    /// R6.
    pub(super) async fn include(
        &mut self,
        seen: &DatabaseSnapshot,
        orders: &[String],
        record: &Record,
    ) -> Result<Turn, Problem> {
        self.progress.doing = format!("running in the database: {}", orders.join("; "));
        let Err(why) = self.run_in_database(seen, orders).await else {
            self.progress.included_at = Some(Instant::now());
            self.progress.state.retried_with = 0;
            return self.remember(record).await;
        };
        self.progress.state.include_failed(&seen.facts(), record);
        if self.progress.state.include_failures == 1 {
            self.warn(&format!(
                "cannot include the groups in the database: {why}. The command retries when the Pods run; to do it by hand: {}",
                self.by_hand(orders)
            ));
        }
        self.progress.include_failure = why;
        Ok(Turn::Again)
    }

    /// Runs `fdbcli` in a Pod that is ready, in another one if that does not answer.
    async fn run_in_database(&self, seen: &DatabaseSnapshot, orders: &[String]) -> Result<(), String> {
        let command = command(orders);
        let limit = Duration::from_secs(u64::from(TIMEOUT) + 10);
        let mut why = format!("the cluster has no ready Pod to run {}", command[0]);
        for pod in seen.pods.iter().filter(|pod| is_ready(pod)).map(name_of).take(PODS) {
            match self.hub.exec(&self.place.namespace, pod, CONTAINER, &command, limit).await {
                // The database is the same from every Pod.
                Ok(output) => {
                    return output.failure.map_or(Ok(()), |why| Err(format!("{}: {why}", last_line(&output.text))));
                }
                Err(error) => why = format!("Pod {pod}: {error}"),
            }
        }
        Err(why)
    }

    /// Records that `include` ran. It is repeated by a run that cannot record it, and after one that is killed before.
    async fn remember(&mut self, planned: &Record) -> Result<Turn, Problem> {
        for _ in 0..CONFLICTS {
            let written = match self.object().await {
                Ok(object) => match remember(&read(&object)?, planned) {
                    Some(patch) => self.patch(&patch).await,
                    None => Ok(()),
                },
                Err(error) => Err(error),
            };
            match written {
                Ok(()) => return Ok(Turn::Done),
                Err(HubError::Conflict { .. }) => {}
                Err(error) if may_pass(&error) => {
                    self.trouble(&error).await;
                    return Ok(Turn::Again);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(Problem::Contended(CONFLICTS))
    }

    /// R8: said once nothing is left to edit.
    pub(super) async fn verify(&mut self) -> Turn {
        sleep(self.options.settle).await;
        self.progress.state.verified = true;
        Turn::Again
    }

    /// R9.
    pub(super) async fn resume(&mut self, step: &Step) -> Result<Turn, Problem> {
        let Turn::Done = self.write(step).await? else { return Ok(Turn::Again) };
        if self.progress.state.verified {
            self.say(&dialog::done(&Step::Verify));
        }
        Ok(Turn::Done)
    }

    /// R10, R11.
    pub(super) async fn wait(&mut self, seen: &DatabaseSnapshot, missing: &[Obstacle]) -> Result<Turn, Problem> {
        if !self.options.wait {
            if self.progress.state.include_failures > 0 {
                return Err(self.not_included(seen));
            }
            self.note(&format!("waiting on the operator: {}", dialog::missing(missing)));
            self.owe(seen);
            return Ok(Turn::End(End::Left));
        }
        match self.progress.wakes.pause(missing, self.begun.elapsed()) {
            Some(Duration::ZERO) => {
                if let Some(edit) = wake(&seen.facts(), missing) {
                    // Who wrote in between has woken it; after another failure the next wake-up follows.
                    let _ = self.edit(&edit).await;
                }
            }
            pause => self.await_news(seen, missing, pause.map_or(SILENCE, |pause| pause.min(SILENCE))).await,
        }
        Ok(Turn::Again)
    }

    /// Says what is missing if that is news, and waits for something to happen to the Pods or the cluster, or for
    /// `limit`.
    async fn await_news(&mut self, seen: &DatabaseSnapshot, missing: &[Obstacle], limit: Duration) {
        let text = dialog::missing(missing);
        if self.progress.doing != text {
            self.say(&text);
        }
        let labels = seen.cluster.selector();
        let namespace = Some(self.place.namespace.as_str());
        let scope = Scope { namespace, labels: &labels, ..Scope::of(Resource::preferred(&POD)) };
        let mut watcher = self.hub.watcher_from(scope, &seen.pods_version);
        let pods = async {
            if watcher.next().await.is_err() {
                sleep(PAUSE).await;
            }
        };
        let report = async {
            loop {
                sleep(POLL).await;
                if self.object().await.is_ok_and(|object| version(&object) != version(&seen.object)) {
                    return;
                }
            }
        };
        let _ = timeout(limit, select(pin!(pods), pin!(report))).await;
    }

    /// R12.
    pub(super) async fn clear(&mut self, seen: &DatabaseSnapshot, step: &Step) -> Result<Turn, Problem> {
        let Turn::Done = self.write(step).await? else { return Ok(Turn::Again) };
        self.say(&dialog::done(step));
        self.owe(seen);
        self.progress.lost.take().map_or(Ok(Turn::End(End::Recovered)), |lost| Err(lost.into()))
    }

    /// Remembers what is left for a person when the database is left alone.
    fn owe(&mut self, seen: &DatabaseSnapshot) {
        let orders = if self.options.include { Vec::new() } else { orders(&seen.cluster, &self.merged(seen)) };
        self.progress.owed = (!orders.is_empty()).then(|| self.by_hand(&orders));
    }

    pub(super) fn not_included(&self, seen: &DatabaseSnapshot) -> Problem {
        let mut record = self.merged(seen);
        record.groups.iter_mut().for_each(|held| held.included = false); // one that was is excluded again
        let command = self.by_hand(&orders(&seen.cluster, &record));
        FdbError::NotIncluded { cluster: self.cluster.clone(), why: self.progress.include_failure.clone(), command }
            .into()
    }

    /// The command for a person.
    pub(super) fn by_hand(&self, orders: &[String]) -> String {
        let (namespace, orders) = (quoted(&self.place.namespace), quoted(&orders.join("; ")));
        format!("kubectl -n {namespace} exec POD -c {CONTAINER} -- fdbcli --exec {orders}")
    }
}

/// Who has `spec.skip` now, if it is not us: the field manager that the API server has recorded.
fn skip_manager(cluster: &Value, own: &str) -> String {
    let others = owners(cluster, "/fieldsV1/f:spec/f:skip").filter(|entry| manager(entry) != own);
    let last = others.max_by_key(|entry| written_at(entry)).map(manager).filter(|name| !name.is_empty());
    last.map_or_else(|| "another client".to_owned(), |name| format!("field manager {}", sanitize(name)))
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
