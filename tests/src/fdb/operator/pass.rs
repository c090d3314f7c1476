//! One pass over a cluster: the sub-steps in their order, and what ends it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;

use super::api::{Cluster, Status};
use super::store::{Kind, Store};
use crate::fdb::database::{Command, Database, Delete};
use crate::fdb::machines::{Key, Machines};
use crate::fdb::options::{SPEED, Settings, UpdateMode};
use crate::fdb::{API_VERSION, KIND};
use crate::supervisor::clock::Clock;

/// What every pass has.
pub(super) struct Cx {
    /// What the operator has seen.
    pub(super) store: Store,
    /// Where its database is.
    pub(super) machines: Arc<Machines>,
    /// Which cluster.
    pub(super) of: Key,
    /// Number of the pass.
    pub(super) pass: u64,
}

/// A sub-step that is not finished, with the operator's own seconds until it is to be tried again.
pub(super) struct Wait {
    pub(super) text: String,
    pub(super) seconds: f64,
}

impl Wait {
    pub(super) fn new(text: impl Into<String>, seconds: f64) -> Self {
        Self { text: text.into(), seconds }
    }
}

pub(super) type Step = Result<Option<Wait>>;

/// A pass under way.
pub(super) struct Pass<'a> {
    pub(super) cx: &'a Cx,
    pub(super) cluster: Cluster,
    pub(super) settings: Settings,
    written: Status,
    pub(super) reconciled: bool,
}

/// How often an unreconciled cluster is reconciled, in the operator's seconds.
const UNRECONCILED: f64 = 10.0;
/// How long a lost write waits.
const CONFLICT: f64 = 60.0;
/// How long it waits for the database's status.
const FETCH: f64 = 10.0;

/// One pass: how it ended, and after how long it comes again by itself, if at all.
pub(super) async fn run(cx: &Cx) -> Result<(String, Option<Duration>)> {
    let Some(object) = cx.store.get(Kind::Cluster, &cx.of.1) else { return Ok(("no cluster".to_owned(), None)) };
    let cluster = Cluster::new(DynamicObject::clone(&object))?;
    let (settings, written) = (cx.database()?.settings, cluster.status.clone());
    let mut pass = Pass { cx, cluster, settings, written, reconciled: false };
    let after = |seconds: f64| Some(Duration::from_secs_f64(seconds / SPEED));
    Ok(match pass.go().await {
        Err(error) if is_conflict(&error) => (format!("{error:#}"), after(CONFLICT)),
        Err(error) => return Err(error),
        Ok(Some(wait)) => (wait.text, after(wait.seconds)),
        Ok(None) if pass.cluster.spec("/skip") == true => ("skipped".to_owned(), None),
        Ok(None) if !pass.reconciled => ("cluster was not fully reconciled".to_owned(), after(UNRECONCILED)),
        Ok(None) => ("Reconciliation complete".to_owned(), None),
    })
}

/// Whether another client has written first. An object that exists already answers 409, too.
fn is_conflict(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<kube::Error>())
        .any(|cause| matches!(cause, kube::Error::Api(status) if status.reason == "Conflict"))
}

impl Pass<'_> {
    /// The sub-steps that do something here, in their order, up to one that wants to be tried again first. The real
    /// operator has some more; its `removeServices` leaves the groups' Services alone.
    async fn go(&mut self) -> Step {
        if self.cluster.spec("/skip") == true {
            return Ok(None);
        }
        // With `useDNSInClusterFile`, which is the default, Pods of known groups come before everything else.
        self.add_pods().await.context("AddPods")?;
        // A pass that could not read the database's status goes on, and comes again.
        let fetched = self.cx.fetch().await || self.cx.fetch().await;
        let unread = (!fetched).then(|| Wait::new("cannot read the database's status", UNRECONCILED));
        if fetched {
            self.update_status().await.context("UpdateStatus")?;
        }
        self.add_groups().await.context("AddProcessGroups")?;
        self.add_services().await.context("AddServices")?;
        self.add_claims().await.context("AddPVCs")?;
        self.add_pods().await.context("AddPods")?;
        if let Some(wait) = self.generate_cluster_file().await.context("GenerateInitialClusterFile")? {
            return Ok(Some(wait));
        }
        self.choose_removals().await.context("ChooseRemovals")?;
        let excluded = self.exclude_processes().context("ExcludeProcesses")?;
        let removed = self.remove_groups().await.context("RemoveProcessGroups")?;
        self.update_status().await.context("UpdateStatus")?;
        // The longest counts.
        Ok([unread, excluded, removed].into_iter().flatten().max_by(|one, other| one.seconds.total_cmp(&other.seconds)))
    }

    /// Writes the status if it has changed.
    pub(super) async fn write_status(&mut self) -> Result<()> {
        if self.cluster.status == self.written {
            return Ok(());
        }
        let (api, name) = (self.cx.store.api(Kind::Cluster), self.cluster.name());
        let status = serde_json::to_value(&self.cluster.status)?;
        let object = match self.settings.update_mode {
            UpdateMode::Update => {
                let mut object = self.cluster.object.clone();
                object.data["status"] = status;
                let written = api.replace_status(&name, &PostParams::default(), &object).await;
                let written = written.with_context(|| format!("update the status of {name}"))?;
                self.cluster.object = written.clone();
                written
            }
            UpdateMode::Apply => {
                let patch = json!({
                    "apiVersion": API_VERSION, "kind": KIND,
                    "metadata": {"name": name, "namespace": self.cx.of.0},
                    "status": status,
                });
                let params = PatchParams::apply("fdb-operator").force();
                let written = api.patch_status(&name, &params, &Patch::Apply(&patch)).await;
                written.with_context(|| format!("apply the status of {name}"))?
            }
        };
        self.cx.store.put(Kind::Cluster, object);
        self.written = self.cluster.status.clone();
        Ok(())
    }

    /// Sends a DELETE, and logs it. An object that is gone already is fine.
    pub(super) async fn delete(&self, kind: Kind, name: &str) -> Result<()> {
        let at = Clock::now();
        let answer = self.cx.store.api(kind).delete(name, &DeleteParams::default()).await;
        let error = match answer {
            Ok(answer) => {
                match (answer.left(), self.cx.store.get(kind, name)) {
                    (Some(object), _) if object.metadata.deletion_timestamp.is_some() => {
                        self.cx.store.put(kind, object);
                    }
                    (_, Some(object)) => self.cx.store.remove(kind, &object),
                    _ => {}
                }
                None
            }
            Err(error) => Some(error),
        };
        let delete = Delete {
            at,
            pass: self.cx.pass,
            kind: kind.name().to_owned(),
            name: name.to_owned(),
            error: error.as_ref().map(ToString::to_string),
        };
        self.cx.machines.entry(&self.cx.of, |entry| entry.log.deletes.push(delete))?;
        match error {
            Some(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Some(error) => Err(error).with_context(|| format!("could not delete {} {name}", kind.name())),
            None => Ok(()),
        }
    }
}

impl Cx {
    /// The database as it is now.
    pub(super) fn database(&self) -> Result<Database> {
        self.machines.entry(&self.of, |entry| entry.database.clone())
    }

    /// Fetches the database's status; false if it does not come.
    async fn fetch(&self) -> bool {
        let fails = self.machines.entry(&self.of, |entry| {
            let left = &mut entry.database.settings.failed_fetches;
            let fails = *left > 0;
            *left = left.saturating_sub(1);
            fails
        });
        if fails.as_ref().is_ok_and(|fails| *fails) {
            tokio::time::sleep(Duration::from_secs_f64(FETCH / SPEED)).await;
        }
        fails.is_ok_and(|fails| !fails)
    }

    /// Has the database do something to these targets, and logs it as fdbcli writes it.
    pub(super) fn order(
        &self,
        what: &str,
        targets: &[String],
        order: impl FnOnce(&mut Database, &[String], f64),
    ) -> Result<()> {
        let at = Clock::now();
        self.machines.entry(&self.of, |entry| {
            ensure!(entry.database.settings.available, "cluster is unavailable");
            let text = format!("{what} {}", targets.join(" "));
            entry.log.commands.push(Command { at, by: "operator".to_owned(), text });
            order(&mut entry.database, targets, at);
            Ok(())
        })?
    }
}
