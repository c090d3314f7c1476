//! The double's part of the supervisor's interface: requests of the operator, of fdbcli and of tests.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::extract::{Path, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::cluster::{FdbInfo, merge};
use super::database::{Command, Database, Delete, Excluded, Log, Pass};
use super::fdbcli::{self, Call, Output};
use super::machines::{Entry, Machines};
use super::options::{FdbOptions, Settings};
use crate::supervisor::World;
use crate::supervisor::answer::Answer;
use crate::supervisor::clock::Clock;

type Shared = State<Arc<World>>;
type Which = Path<(String, String)>;

pub(crate) fn routes() -> Router<Arc<World>> {
    Router::new()
        .route("/fdb", get(list).post(add))
        .route("/fdb/exec", post(exec))
        .route("/fdb/{namespace}/{name}", get(read).delete(remove))
        .route("/fdb/{namespace}/{name}/log", get(read_log))
        .route("/fdb/{namespace}/{name}/settings", axum::routing::patch(change))
        .route("/fdb/{namespace}/{name}/ask", post(ask))
        .route("/fdb/{namespace}/{name}/tell", post(tell))
        .route("/fdb/{namespace}/{name}/at/{point}", post(at))
}

/// A database that is to be made.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NewFdb {
    /// Name of the `FoundationDBCluster`.
    pub(crate) name: String,
    /// What it is like.
    #[serde(default)]
    pub(crate) options: FdbOptions,
}

/// What the operator asks of its database.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Question {
    /// Exclude these.
    Exclude(Vec<String>),
    /// Include these.
    Include(Vec<String>),
    /// Make these groups the coordinators.
    Coordinators(Vec<String>),
    /// Set and clear keys of the operators' lists, in one transaction.
    Keys {
        /// To be set.
        set: Vec<String>,
        /// To be cleared.
        clear: Vec<String>,
    },
}

/// What the operator reports about itself.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum News {
    /// It has sent a DELETE.
    Delete(Delete),
    /// A pass has ended.
    Pass(Pass),
}

/// A command in a container, as the kubelet passes it on.
#[derive(Debug, Deserialize)]
struct Exec {
    namespace: String,
    pod: String,
    container: String,
    command: Vec<String>,
}

fn with<T>(
    machines: &Machines,
    (namespace, name): (String, String),
    use_it: impl FnOnce(&mut Entry) -> T,
) -> Result<T> {
    let mut entries = machines.entries();
    let key = (namespace, name);
    let entry = entries.get_mut(&key).with_context(|| format!("no database {}/{}", key.0, key.1))?;
    Ok(use_it(entry))
}

async fn list(State(world): Shared) -> Json<Vec<FdbInfo>> {
    Json(world.machines.entries().values().map(|entry| entry.info.clone()).collect())
}

async fn add(State(world): Shared, Json(new): Json<NewFdb>) -> Answer<FdbInfo> {
    Ok(Json(world.add_fdb(&new.name, new.options).await?))
}

async fn remove(State(world): Shared, Path((namespace, name)): Which) -> Answer<Value> {
    world.remove_fdb(&namespace, &name).await?;
    Ok(Json(json!({})))
}

async fn read(State(world): Shared, Path(which): Which) -> Answer<Database> {
    Ok(Json(with(&world.machines, which, |entry| entry.database.clone())?))
}

async fn read_log(State(world): Shared, Path(which): Which) -> Answer<Log> {
    Ok(Json(with(&world.machines, which, |entry| entry.log.clone())?))
}

async fn change(State(world): Shared, Path(which): Which, Json(change): Json<Value>) -> Answer<Settings> {
    let changed = with(&world.machines, which, |entry| {
        let mut settings = serde_json::to_value(&entry.database.settings)?;
        merge(&mut settings, &change);
        entry.database.settings = serde_json::from_value(settings)?;
        Ok::<_, serde_json::Error>(entry.database.settings.clone())
    })?;
    Ok(Json(changed?))
}

async fn ask(State(world): Shared, Path(which): Which, Json(question): Json<Question>) -> Answer<Value> {
    let now = Clock::now();
    let answer = with(&world.machines, which, |entry| {
        let (database, log) = (&mut entry.database, &mut entry.log);
        if !database.settings.available {
            anyhow::bail!("cluster is unavailable");
        }
        let mut note = |text: String| log.commands.push(Command { at: now, by: "operator".to_owned(), text });
        Ok(match question {
            Question::Exclude(targets) => {
                note(format!("exclude {}", targets.join(" ")));
                let missing = database.exclude(&targets, now).into_iter().filter(|(_, is)| *is == Excluded::Missing);
                json!({"missing": missing.map(|(target, _)| target).collect::<Vec<_>>()})
            }
            Question::Include(targets) => {
                note(format!("include {}", targets.join(" ")));
                json!({"unknown": database.include(&targets, now)})
            }
            Question::Coordinators(groups) => {
                note(format!("coordinators {}", groups.join(" ")));
                database.coordinators = groups.into_iter().collect();
                database.recovered_at = now;
                json!({})
            }
            Question::Keys { set, clear } => {
                database.keys.retain(|key, _| !clear.contains(key));
                database.keys.extend(set.into_iter().map(|key| (key, now)));
                json!({})
            }
        })
    })?;
    Ok(Json(answer?))
}

async fn tell(State(world): Shared, Path(which): Which, Json(news): Json<News>) -> Answer<Value> {
    with(&world.machines, which, |entry| match news {
        News::Delete(delete) => entry.log.deletes.push(delete),
        News::Pass(pass) => entry.log.passes.push(pass),
    })?;
    Ok(Json(json!({})))
}

/// Returns once the operator is not held at this point, or after half a minute: then it asks again.
async fn at(State(world): Shared, Path((namespace, name, point)): Path<(String, String, String)>) -> Answer<bool> {
    for _ in 0..600 {
        let which = (namespace.clone(), name.clone());
        let held = with(&world.machines, which, |entry| {
            let held = entry.database.settings.hold.contains(&point);
            entry.database.held = held.then(|| point.clone());
            held
        })?;
        if !held {
            return Ok(Json(true));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(Json(false))
}

async fn exec(State(world): Shared, Json(exec): Json<Exec>) -> Answer<Output> {
    let pods: Api<Pod> = Api::namespaced(world.hub_client.clone(), &exec.namespace);
    let pod = pods.get(&exec.pod).await.with_context(|| format!("container not found (\"{}\")", exec.container))?;
    let runs = pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
    let owner = pod.metadata.owner_references.iter().flatten().find(|owner| owner.kind == super::KIND);
    let Some(owner) = owner.filter(|_| runs) else {
        return Err(anyhow::anyhow!("container not found (\"{}\")", exec.container).into());
    };
    let which = (exec.namespace, owner.name.clone());
    Ok(Json(fdbcli(&world.machines, which, &exec.pod, &exec.command).await?))
}

/// Runs fdbcli, which waits for a database that does not answer, up to its `--timeout`.
async fn fdbcli(machines: &Machines, which: (String, String), pod: &str, line: &[String]) -> Result<Output> {
    let call = match Call::parse(line) {
        Ok(call) => call,
        Err(output) => return Ok(output),
    };
    let begun = Clock::now();
    loop {
        let done = with(machines, which.clone(), |entry| {
            if call.needs_database() && !entry.database.settings.available {
                return None;
            }
            let now = Clock::now();
            let commands = call.commands.iter().map(|text| Command { at: now, by: pod.to_owned(), text: text.clone() });
            entry.log.commands.extend(commands);
            Some(fdbcli::run(&mut entry.database, &call, now))
        })?;
        match done {
            Some(output) => return Ok(output),
            None if call.timeout > 0.0 && Clock::now() - begun >= call.timeout => return Ok(fdbcli::timed_out()),
            None => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}
