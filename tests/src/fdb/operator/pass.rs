//! One pass over a cluster: the sub-steps in their order, and what ends it.

use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde::Serialize;
use serde_json::{Value, json};

use super::api::{Cluster, Status};
use super::store::{Kind, Store};
use crate::fdb::cluster::FdbInfo;
use crate::fdb::database::{Database, Delete};
use crate::fdb::options::{Settings, UpdateMode};
use crate::fdb::server::{News, Question};
use crate::fdb::{API_VERSION, KIND};
use crate::json_http::JsonHttp;
use crate::supervisor::clock::Clock;

/// Points of a pass at which the operator can be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// The cluster has been read, `spec.skip` too.
    Read,
    /// Before every write of the status.
    Status,
    /// Before surplus groups are chosen.
    Choose,
    /// Before anything is excluded.
    Exclude,
    /// Before the first DELETE.
    Remove,
    /// Between the DELETE of a Pod and that of its claim.
    Claim,
    /// Before anything is included.
    Include,
}

impl Point {
    /// As it stands in [`Settings::hold`].
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Status => "status",
            Self::Choose => "choose",
            Self::Exclude => "exclude",
            Self::Remove => "remove",
            Self::Claim => "claim",
            Self::Include => "include",
        }
    }
}

/// What every pass has.
pub struct Cx {
    /// What the operator has seen.
    pub store: Store,
    /// Where its database is.
    pub supervisor: JsonHttp,
    /// Which cluster.
    pub info: FdbInfo,
    /// Number of the pass.
    pub pass: u64,
}

/// How a pass has ended.
pub enum Outcome {
    /// Nothing is left to do; no timer.
    Done(String),
    /// It comes again by itself.
    Again {
        /// Why.
        text: String,
        /// After this long.
        after: Duration,
    },
    /// It comes again after a backoff.
    Failed(anyhow::Error),
}

/// A sub-step that is not finished, with the operator's own seconds until it is to be tried again. A delayed one lets
/// the others go on.
pub(super) struct Wait {
    pub(super) text: String,
    pub(super) seconds: f64,
    pub(super) delayed: bool,
}

impl Wait {
    pub(super) fn delayed(text: impl Into<String>, seconds: f64) -> Self {
        Self { text: text.into(), seconds, delayed: true }
    }
}

pub(super) type Step = Result<Option<Wait>>;

/// The sub-steps that do something here. The real operator has some more; its `removeServices` leaves the groups'
/// Services alone.
#[derive(Clone, Copy, Debug)]
enum Sub {
    AddPods,
    UpdateStatus,
    UpdateConfigMap,
    ReplaceFailed,
    AddProcessGroups,
    AddServices,
    AddPVCs,
    GenerateInitialClusterFile,
    UpdateMetadata,
    ChooseRemovals,
    ExcludeProcesses,
    ChangeCoordinators,
    BounceProcesses,
    RemoveProcessGroups,
}

/// Their order. With `useDNSInClusterFile`, which is the default, Pods of known groups come before everything else.
const ORDER: [Sub; 16] = [
    Sub::AddPods,
    Sub::UpdateStatus,
    Sub::UpdateConfigMap,
    Sub::ReplaceFailed,
    Sub::AddProcessGroups,
    Sub::AddServices,
    Sub::AddPVCs,
    Sub::AddPods,
    Sub::GenerateInitialClusterFile,
    Sub::UpdateMetadata,
    Sub::ChooseRemovals,
    Sub::ExcludeProcesses,
    Sub::ChangeCoordinators,
    Sub::BounceProcesses,
    Sub::RemoveProcessGroups,
    Sub::UpdateStatus,
];

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
/// How long a process has to be up before it is bounced.
const BOUNCE: f64 = 600.0;

/// The end of a pass that has to bounce processes.
fn too_young() -> Wait {
    let text = format!("processes must be up for {BOUNCE} seconds to safely bounce");
    Wait { text, seconds: BOUNCE, delayed: false }
}

/// One pass.
pub async fn run(cx: &Cx) -> Outcome {
    let Some(object) = cx.store.get(Kind::Cluster, &cx.info.name) else {
        return Outcome::Done("no cluster".to_owned());
    };
    let pass = async {
        let cluster = Cluster::new(DynamicObject::clone(&object))?;
        let database = cx.database().await?;
        let written = cluster.status.clone();
        anyhow::Ok(Pass { cx, cluster, settings: database.settings, written, reconciled: false })
    };
    let mut pass = match pass.await {
        Ok(pass) => pass,
        Err(error) => return Outcome::Failed(error),
    };
    let scaled = |seconds: f64| Duration::from_secs_f64(seconds / pass.settings.speed.max(0.001));
    let (conflict, unreconciled) = (scaled(CONFLICT), scaled(UNRECONCILED));
    let speed = pass.settings.speed.max(0.001);
    match pass.go().await {
        Err(error) if is_conflict(&error) => Outcome::Again { text: format!("{error:#}"), after: conflict },
        Err(error) => Outcome::Failed(error),
        Ok(Some(wait)) => Outcome::Again { text: wait.text, after: Duration::from_secs_f64(wait.seconds / speed) },
        Ok(None) if pass.cluster.spec("/skip") == true => Outcome::Done("skipped".to_owned()),
        Ok(None) if !pass.reconciled => {
            Outcome::Again { text: "cluster was not fully reconciled".to_owned(), after: unreconciled }
        }
        Ok(None) => Outcome::Done("Reconciliation complete".to_owned()),
    }
}

/// Whether another client has written first. An object that exists already answers 409, too.
fn is_conflict(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<kube::Error>())
        .any(|cause| matches!(cause, kube::Error::Api(status) if status.reason == "Conflict"))
}

impl Pass<'_> {
    /// The sub-steps in their order, up to one that wants to be tried again first.
    async fn go(&mut self) -> Step {
        self.cx.at(Point::Read).await?;
        if self.cluster.spec("/skip") == true {
            return Ok(None);
        }
        tokio::time::sleep(self.settings.pass_delay.0).await;
        let mut waits: Option<Wait> = None;
        for sub in ORDER {
            let result = self.step(sub).await.with_context(|| format!("{sub:?}"))?;
            match result {
                Some(wait) if !wait.delayed => return Ok(Some(wait)),
                // The longest counts.
                Some(wait) if waits.as_ref().is_none_or(|other| other.seconds < wait.seconds) => waits = Some(wait),
                _ => {}
            }
        }
        Ok(waits)
    }

    async fn step(&mut self, sub: Sub) -> Step {
        match sub {
            Sub::AddPods => self.add_pods().await,
            Sub::UpdateStatus => self.update_status().await,
            Sub::UpdateConfigMap => self.update_config_map().await,
            Sub::ReplaceFailed => self.replace_failed().await,
            Sub::AddProcessGroups => self.add_groups().await,
            Sub::AddServices => self.add_services().await,
            Sub::AddPVCs => self.add_claims().await,
            Sub::GenerateInitialClusterFile => self.generate_cluster_file().await,
            Sub::UpdateMetadata => self.update_metadata().await,
            Sub::ChooseRemovals => self.choose_removals().await,
            Sub::ExcludeProcesses => self.exclude_processes().await,
            Sub::ChangeCoordinators => self.change_coordinators().await,
            Sub::BounceProcesses => Ok(self.settings.bounce.then(too_young)),
            Sub::RemoveProcessGroups => self.remove_groups().await,
        }
    }

    /// Writes the status if it has changed.
    pub(super) async fn write_status(&mut self) -> Result<()> {
        if self.cluster.status == self.written {
            return Ok(());
        }
        self.cx.at(Point::Status).await?;
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
                    "metadata": {"name": name, "namespace": self.cx.info.namespace},
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
        self.cx.tell(delete).await?;
        match error {
            Some(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Some(error) => Err(error).with_context(|| format!("could not delete {} {name}", kind.name())),
            None => Ok(()),
        }
    }

    /// Seconds since 1970.
    pub(super) fn now() -> f64 {
        Clock::now()
    }
}

impl Cx {
    /// The database as it is now.
    pub(super) async fn database(&self) -> Result<Database> {
        self.supervisor.get(&self.info.path()).await
    }

    /// Asks the database.
    pub(super) async fn ask(&self, question: &Question) -> Result<Value> {
        self.post("ask", question).await
    }

    /// Tells what has been done.
    pub(super) async fn tell(&self, delete: Delete) -> Result<()> {
        self.post("tell", &News::Delete(delete)).await.map(drop)
    }

    /// Waits as long as the operator is held at a point.
    pub(super) async fn at(&self, point: Point) -> Result<()> {
        let path = format!("{}/at/{}", self.info.path(), point.name());
        while !self.supervisor.post::<bool>(&path, &json!({})).await? {}
        Ok(())
    }

    async fn post(&self, what: &str, body: &impl Serialize) -> Result<Value> {
        self.supervisor.post(&format!("{}/{what}", self.info.path()), body).await
    }
}
