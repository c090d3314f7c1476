//! Carries out a plan: the record first, then each action. The first that fails ends the reconcile; the next one goes
//! on.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use futures::{StreamExt, stream};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::Value;
use server::hub;
use shared::guarded::Named;
use shared::kkp::api::Cluster;
use shared::kkp::decide::{Action, Plan};
use shared::kkp::node::NodeBefore;
use shared::kkp::record::Workload;
use shared::power::Power;
use shared::spoke::SpokeError;
use shared::spoke::kinds::{Kind, MachineDeployment, MachineSet, Node, Pod};
use shared::text::{sanitize, sanitize_chain};
use tokio::time::Instant;

use super::machinery::Seen;
use super::store::{self, Stored, cluster_not_written, lead};
use super::{Kkp, Observation, patches, seed};
use crate::runtime::hub::as_controller;
use crate::runtime::{Class, Guarded, ReconcileError, Reconciled, Target, WriteError};
use crate::spoke::failure;
use crate::spoke::reader::{SpokeClient, if_there};

/// Writes that are under way at once for one cluster.
const CONCURRENT_WRITES: usize = 8;
/// How long failures of such writes hold up no others: a webhook that hangs takes its time for each.
const FAILURES_FOR: Duration = Duration::from_secs(20);

/// Carries it out.
pub async fn run(
    kkp: &Kkp,
    observation: &mut Observation<'_>,
    plan: &Plan,
    target: &mut Target<Kkp>,
) -> Reconciled<()> {
    if let Some(record) = &plan.record {
        let written = store::write(kkp, observation.cluster, observation.record.as_ref(), record).await?;
        observation.record = Some(written);
    }
    let cluster = observation.cluster;
    let stored = observation.record.clone();
    let record = stored.as_ref().and_then(Stored::readable);
    for action in &plan.actions {
        match action {
            Action::Pause => {
                let patch = patches::pause(cluster, record, observation.certificates_expire);
                observation.written = Some(write_cluster(kkp, cluster, patch).await?);
            }
            Action::Unpause => observation.written = unpause(kkp, cluster, target).await?,
            Action::Disown => observation.written = Some(write_cluster(kkp, cluster, patches::disown()).await?),
            other => one(kkp, observation, other).await?,
        }
    }
    if plan.clears_intent {
        let written = observation.written.as_deref().unwrap_or(cluster);
        // One to run is the record's: the Cluster's own is what it overrules.
        let request = stored.as_ref().filter(|_| observation.request.desired == Power::Running);
        let patch = patches::run(observation.now, request.map(|stored| &stored.request));
        observation.written = Some(write_cluster(kkp, written, patch).await?);
    }
    if let Some(stored) = stored.filter(|_| plan.ends) {
        store::remove(kkp, cluster, &stored).await?;
        target.state.unpause_refused = None;
    }
    Ok(())
}

async fn one(kkp: &Kkp, observation: &Observation<'_>, action: &Action) -> Reconciled<()> {
    let seed = Seed { kkp, namespace: observation.cluster.control_plane_namespace() };
    let user = || User::of(kkp, &observation.user);
    match action {
        Action::Pause | Action::Unpause | Action::Disown => Ok(()), // to the Cluster itself
        Action::ScaleDown(workload, replicas) => seed.workload(workload, patches::scale_down(*replicas)).await,
        Action::Restore(workload, replicas) => seed.workload(workload, patches::restore(*replicas)).await,
        Action::Unmark(workloads) => {
            for workload in workloads {
                seed.workload(workload, patches::unmark()).await?;
            }
            Ok(())
        }
        Action::Suspend(names) => seed.cron_jobs(names, true).await,
        Action::Unsuspend(names) => seed.cron_jobs(names, false).await,
        Action::TouchBackups => seed.touch_backups(patches::touch(observation.now)).await,
        Action::TouchMachineSets(names) => {
            user()?.write_all::<MachineSet>("MachineSet", names, |_| patches::touch(observation.now)).await
        }
        Action::StopAutoscaler(name, recorded) => user()?.machines(name, patches::stop_autoscaler(recorded)).await,
        Action::ScaleDownMachines(name, recorded) => {
            user()?.machines(name, patches::scale_down_machines(recorded)).await
        }
        Action::RestoreMachines(name, recorded) => user()?.machines(name, patches::restore_machines(recorded)).await,
        Action::RestoreAutoscaler(name, recorded) => {
            user()?.machines(name, patches::restore_autoscaler(recorded)).await
        }
        Action::Cordon(names) => {
            let before = nodes_before(&observation.user);
            user()?.write_all::<Node>("Node", names, |name| patches::cordon(&before(name))).await
        }
        Action::Uncordon(names) => {
            let before = nodes_before(&observation.user);
            user()?.write_all::<Node>("Node", names, |name| patches::uncordon(&before(name))).await
        }
        Action::DeleteNode(name) => user()?.delete::<Node>("Node", name, &DeleteParams::default()).await,
        Action::DeletePods(names) => {
            let user = &user()?;
            each(names, |name| async move { user.delete::<Pod>("Pod", &name, &DeleteParams::default()).await }).await
        }
        Action::DeleteLostPods(pods) => {
            let user = &user()?;
            each(pods, |pod| async move {
                let uid = Some(pod.uid).filter(|uid| !uid.is_empty());
                let only = Preconditions { uid, resource_version: None };
                let params = DeleteParams::default().grace_period(0).preconditions(only);
                user.delete::<Pod>("Pod", &pod.name, &params).await
            })
            .await
        }
    }
}

/// What a Node was before the sleep, by its name.
fn nodes_before(seen: &Seen) -> impl Fn(&str) -> NodeBefore {
    let nodes = seen.iter().flat_map(|user| &user.machinery.nodes);
    let before: BTreeMap<&str, &NodeBefore> = nodes.map(|node| (node.name.as_str(), &node.before)).collect();
    move |name: &str| before.get(name).map(|before| (*before).clone()).unwrap_or_default()
}

/// Makes a call for each of these, some at once. One that the user cluster refuses or does not answer holds up no other for
/// a while. The outcome is the failure of the first of these, not the first to answer: the condition names it.
async fn each<T, F>(all: &[T], call: impl Fn(T) -> F) -> Reconciled<()>
where
    T: Clone,
    F: Future<Output = Reconciled<()>>,
{
    let numbered = all.iter().cloned().enumerate().map(move |(number, one)| {
        let call = call(one);
        async move { (number, call.await) }
    });
    let mut calls = stream::iter(numbered).buffer_unordered(CONCURRENT_WRITES);
    let (begun, mut failed) = (Instant::now(), BTreeMap::new());
    while let Some((number, result)) = calls.next().await {
        match result {
            Err(error) if error.cause::<SpokeError>().is_some() => {
                failed.insert(number, error);
                if begun.elapsed() >= FAILURES_FOR {
                    break;
                }
            }
            result => result?,
        }
    }
    failed.pop_first().map_or(Ok(()), |(_, error)| Err(error))
}

async fn write_cluster(kkp: &Kkp, cluster: &Cluster, patch: Value) -> Reconciled<Box<Cluster>> {
    kkp.handle.hub.patch(cluster, patch).await.map(Box::new).map_err(cluster_not_written())
}

/// The end of the pause. KKP's refusal is a fact for the next decision: then every count is restored by us (rows 20,
/// 27).
async fn unpause(kkp: &Kkp, cluster: &Cluster, target: &mut Target<Kkp>) -> Reconciled<Option<Box<Cluster>>> {
    match kkp.handle.hub.patch(cluster, patches::unpause()).await {
        Ok(written) => {
            target.state.unpause_refused = None;
            Ok(Some(Box::new(written)))
        }
        // A webhook of KKP that hangs is a refusal, too.
        Err(WriteError::Refused(error) | WriteError::Failed(error)) => {
            target.state.unpause_refused = Some(match &*error {
                kube::Error::Api(status) => sanitize(&status.message),
                other => sanitize_chain(other),
            });
            Ok(None)
        }
        Err(error) => Err(cluster_not_written()(error)),
    }
}

/// Writes to the control plane.
struct Seed<'a> {
    kkp: &'a Kkp,
    namespace: String,
}

impl Seed<'_> {
    fn api(&self, group: &str, kind: &str) -> Api<Guarded<Named<DynamicObject>>> {
        Api::namespaced_with(self.kkp.handle.hub.client.clone(), &self.namespace, &seed::kind(group, kind))
    }

    async fn write(&self, group: &str, kind: &str, name: &str, patch: Value) -> Reconciled<()> {
        lead(self.kkp)?;
        let written = self.api(group, kind).patch(name, &as_controller(), &Patch::Merge(patch)).await;
        written.map(|_| ()).map_err(ReconcileError::unversioned(format!("{kind} {}/{name}", self.namespace)))
    }

    async fn workload(&self, workload: &Workload, patch: Value) -> Reconciled<()> {
        self.write("apps", &workload.kind.to_string(), &workload.name, patch).await
    }

    async fn cron_jobs(&self, names: &[String], suspended: bool) -> Reconciled<()> {
        for name in names {
            self.write("batch", "CronJob", name, patches::suspend(suspended)).await?;
        }
        Ok(())
    }

    /// Backups go on when KKP sees a change of their configuration (row 17).
    async fn touch_backups(&self, touched: Value) -> Reconciled<()> {
        let (group, kind) = ("kubermatic.k8c.io", "EtcdBackupConfig");
        let found = hub::list(&self.api(group, kind), &ListParams::default(), |one| Ok(one.name_any())).await;
        let found = if_there(found).map_err(ReconcileError::list("EtcdBackupConfigs"))?;
        for name in found.unwrap_or_default() {
            self.write(group, kind, &name, touched.clone()).await?;
        }
        Ok(())
    }
}

/// Writes to the user cluster, to objects that are named as `namespace/name`, or as `name` if they have none. What is
/// gone needs no write.
struct User<'a> {
    kkp: &'a Kkp,
    client: &'a SpokeClient,
}

impl<'a> User<'a> {
    fn of(kkp: &'a Kkp, seen: &'a Seen) -> Reconciled<Self> {
        match seen {
            Ok(user) => Ok(Self { kkp, client: &user.client }),
            Err(why) => Err(not_done("an object", SpokeError::Failed(why.clone()))),
        }
    }

    fn done(kind: &str, object: &str, result: kube::Result<()>) -> Reconciled<()> {
        let done = if_there(result).map(drop);
        done.map_err(|error| not_done(&format!("{kind} {object}"), failure(&error)))
    }

    async fn write<K: Kind>(&self, kind: &str, object: &str, patch: Value) -> Reconciled<()> {
        lead(self.kkp)?;
        let (namespace, name) = parts(object);
        Self::done(kind, object, self.client.patch::<K>(namespace, name, &Patch::Merge(patch)).await)
    }

    async fn write_all<K: Kind>(&self, kind: &str, names: &[String], patch: impl Fn(&str) -> Value) -> Reconciled<()> {
        each(names, |name| {
            let patch = patch(&name);
            async move { self.write::<K>(kind, &name, patch).await }
        })
        .await
    }

    async fn machines(&self, name: &str, patch: Value) -> Reconciled<()> {
        self.write::<MachineDeployment>("MachineDeployment", name, patch).await
    }

    async fn delete<K: Kind>(&self, kind: &str, object: &str, params: &DeleteParams) -> Reconciled<()> {
        lead(self.kkp)?;
        let (namespace, name) = parts(object);
        Self::done(kind, object, self.client.delete::<K>(namespace, name, params).await)
    }
}

/// The user cluster did not do what it was asked to.
fn not_done(what: &str, source: SpokeError) -> ReconcileError {
    ReconcileError::new("User", Class::Failed, format!("write {what} of the user cluster")).because(source)
}

fn parts(object: &str) -> (Option<&str>, &str) {
    object.split_once('/').map_or((None, object), |(namespace, name)| (Some(namespace), name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_failure_that_is_named_does_not_depend_on_who_answers_first() {
        let seconds = [0, 9, 5, 1];
        let done = each(&seconds, |seconds| async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            let denied = || not_done(&format!("Pod {seconds}"), SpokeError::Failed("denied".to_owned()));
            if seconds == 0 { Ok(()) } else { Err(denied()) }
        });
        assert_eq!(done.await.unwrap_err().to_string(), "write Pod 9 of the user cluster");
    }
}
