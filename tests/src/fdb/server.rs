//! The double's part of the supervisor's interface: requests of fdbcli and of tests.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::extract::{Path, State};
use axum::routing::{get, patch, post};
use axum::{Json, Router};
use fdb_simulator::fdbcli::{self, Call, Output};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::cluster::FdbInfo;
use super::database::{Command, Database, Log};
use super::machines::Key;
use super::options::{FdbOptions, Settings};
use crate::supervisor::World;
use crate::supervisor::answer::{Answer, merged};
use crate::supervisor::clock::Clock;

type Shared = State<Arc<World>>;
type Which = Path<Key>;

pub(crate) fn routes() -> Router<Arc<World>> {
    Router::new()
        .route("/fdb", post(add))
        .route("/fdb/exec", post(exec))
        .route("/fdb/{namespace}/{name}", get(read).delete(remove))
        .route("/fdb/{namespace}/{name}/log", get(read_log))
        .route("/fdb/{namespace}/{name}/operator", get(operate).delete(wait_for_operator))
        .route("/fdb/{namespace}/{name}/settings", patch(change))
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

/// A command in a container, as the kubelet passes it on.
#[derive(Debug, Deserialize)]
struct Exec {
    namespace: String,
    pod: String,
    container: String,
    command: Vec<String>,
}

async fn add(State(world): Shared, Json(new): Json<NewFdb>) -> Answer<FdbInfo> {
    Ok(Json(world.add_fdb(&new.name, new.options).await?))
}

async fn remove(State(world): Shared, Path(which): Which) -> Answer<Value> {
    world.remove_fdb(&which).await?;
    Ok(Json(json!({})))
}

async fn read(State(world): Shared, Path(which): Which) -> Answer<Database> {
    Ok(Json(world.machines.entry(&which, |entry| entry.database.clone())?))
}

async fn read_log(State(world): Shared, Path(which): Which) -> Answer<Log> {
    Ok(Json(world.machines.entry(&which, |entry| entry.log.clone())?))
}

async fn change(State(world): Shared, Path(which): Which, Json(change): Json<Value>) -> Answer<Settings> {
    let settings = world.machines.entry(&which, |entry| {
        entry.database.settings = merged(&entry.database.settings, &change)?;
        anyhow::Ok(entry.database.settings.clone())
    })??;
    Ok(Json(settings))
}

/// Runs the operator for as long as the client waits for the answer.
async fn operate(State(world): Shared, Path(which): Which) -> Answer<Value> {
    let turn = world.machines.entry(&which, |entry| entry.operator.clone())?;
    let _turn = turn.lock().await;
    world.operate(which).await?;
    Ok(Json(json!({})))
}

/// Returns once no operator runs.
async fn wait_for_operator(State(world): Shared, Path(which): Which) -> Answer<Value> {
    let turn = world.machines.entry(&which, |entry| entry.operator.clone())?;
    drop(turn.lock().await);
    Ok(Json(json!({})))
}

async fn exec(State(world): Shared, Json(exec): Json<Exec>) -> Answer<Output> {
    let pods: Api<Pod> = Api::namespaced(world.hub_client.clone(), &exec.namespace);
    let not_found = || format!("container not found (\"{}\")", exec.container);
    let pod = pods.get(&exec.pod).await.with_context(not_found)?;
    let runs = pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
    let owner = pod.metadata.owner_references.iter().flatten().find(|owner| owner.kind == super::KIND);
    let owner = owner.filter(|_| runs).with_context(not_found)?;
    let which = (exec.namespace.clone(), owner.name.clone());
    Ok(Json(fdbcli(&world, &which, &exec.pod, &exec.command).await?))
}

/// Runs fdbcli, which waits for a database that does not answer, up to its `--timeout`.
async fn fdbcli(world: &World, which: &Key, pod: &str, line: &[String]) -> Result<Output> {
    let call = match Call::parse(line) {
        Ok(call) => call,
        Err(output) => return Ok(output),
    };
    let begun = Clock::now();
    loop {
        let now = Clock::now();
        let done = world.machines.entry(which, |entry| {
            if !entry.database.settings.available {
                return None;
            }
            let commands = call.commands.iter().map(|text| Command { at: now, by: pod.to_owned(), text: text.clone() });
            entry.log.commands.extend(commands);
            Some(fdbcli::run(&mut entry.database, &call, now))
        })?;
        match done {
            Some(output) => return Ok(output),
            None if call.timeout > 0.0 && now - begun >= call.timeout => return Ok(fdbcli::timed_out()),
            None => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}
