//! The supervisor's own interface: what tests and `testbed` subcommands do to a running world.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use axum::extract::{Path, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, patch, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::World;
use super::answer::{Answer, merged};
use super::programs::Start;
use crate::cluster::{ClusterInfo, ClusterOptions};
use crate::controlplane::server::secret;
use crate::options::Timings;
use crate::process::{Record, Signal};
use crate::proxy::faults::{Faults, Rule};
use crate::world_file::{Control, ProgramAddress, WorldFile};
use crate::{ec2, ports};

type Shared = State<Arc<World>>;

/// Chooses where to listen, and the token that every call needs.
pub(super) fn address() -> Result<Control> {
    Ok(Control { url: format!("http://127.0.0.1:{}", ports::free()?), token: secret() })
}

/// Listens from now on.
pub(super) async fn serve(world: Arc<World>) -> Result<()> {
    let address = world.control.url.trim_start_matches("http://").to_owned();
    let listener = tokio::net::TcpListener::bind(&address).await.with_context(|| format!("listen on {address}"))?;
    let router = Router::new()
        .route("/world", get(read_world))
        .route("/status", get(status))
        .route("/timings", patch(change_timings))
        .route("/clusters", post(add_cluster))
        .route("/clusters/{namespace}/{name}", delete(remove_cluster))
        .route("/proxies/{name}/faults", get(list_faults).post(add_fault).delete(remove_faults))
        .route("/programs", post(start_program))
        .route("/programs/{name}/{signal}", post(signal_program))
        .merge(crate::fdb::server::routes())
        .merge(crate::kkp::server::routes())
        .layer(middleware::from_fn_with_state(world.clone(), authenticate))
        .with_state(world);
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, "the control interface has ended");
        }
    });
    Ok(())
}

/// Other users of this machine can reach the port, but not read the token.
async fn authenticate(State(world): Shared, request: Request, next: Next) -> Response {
    let given = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if given == Some(&format!("Bearer {}", world.control.token)) {
        next.run(request).await
    } else {
        (StatusCode::UNAUTHORIZED, "the token is in world.json, at control.token").into_response()
    }
}

async fn read_world(State(world): Shared) -> Json<WorldFile> {
    Json(world.file())
}

/// What is alive.
#[derive(Debug, Serialize, Deserialize)]
pub struct Status {
    /// Every process that runs.
    pub processes: Vec<ProcessStatus>,
    /// Every cluster.
    pub clusters: Vec<ClusterStatus>,
}

/// One process.
#[derive(Debug, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// What it is.
    #[serde(flatten)]
    pub record: Record,
    /// Resident memory, MiB.
    pub memory: u64,
}

/// One cluster.
#[derive(Debug, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// What it is.
    #[serde(flatten)]
    pub info: ClusterInfo,
    /// Whether its API server answers.
    pub open: bool,
    /// How many instances are in which state.
    pub instances: std::collections::BTreeMap<String, usize>,
}

async fn status(State(world): Shared) -> Json<Status> {
    let snapshot = world.snapshots.borrow().clone();
    let processes =
        world.children.records().into_iter().map(|record| ProcessStatus { memory: record.memory_mib(), record });
    let clusters = world
        .entries()
        .values()
        .map(|entry| {
            let mut instances = std::collections::BTreeMap::new();
            for instance in snapshot.of(&entry.info.infra_id) {
                *instances.entry(instance.state.clone()).or_insert(0) += 1;
            }
            ClusterStatus { info: entry.info.clone(), open: *entry.gate.opened().borrow(), instances }
        })
        .collect();
    Json(Status { processes: processes.collect(), clusters })
}

async fn change_timings(State(world): Shared, Json(change): Json<Value>) -> Answer<Timings> {
    let timings = merged(&world.clock.timings(), &change)?;
    let ec2 = ec2::Settings {
        start: Some(timings.ec2_start.as_secs_f64()),
        stop: Some(timings.ec2_stop.as_secs_f64()),
        terminate: Some(timings.ec2_terminate.as_secs_f64()),
        shift: None,
    };
    world.ec2.settings(&ec2).await?;
    world.clock.set(timings.clone());
    Ok(Json(timings))
}

/// A cluster that is to be made.
#[derive(Debug, Serialize, Deserialize)]
pub struct NewCluster {
    /// Name of the cluster and, unless the options say otherwise, of its namespace.
    pub name: String,
    /// What it is like.
    #[serde(default)]
    pub options: ClusterOptions,
}

async fn add_cluster(State(world): Shared, Json(new): Json<NewCluster>) -> Answer<ClusterInfo> {
    let info = world.add_cluster(&new.name, new.options).await?;
    world.publish()?;
    Ok(Json(info))
}

async fn remove_cluster(State(world): Shared, Path((namespace, name)): Path<(String, String)>) -> Answer<Value> {
    world.remove_cluster(&namespace, &name).await?;
    world.publish()?;
    Ok(Json(json!({})))
}

/// The faults of a proxy: `hub`, a service of OpenStack, or a cluster's infraID for its gate.
fn faults(world: &World, name: &str) -> Result<Arc<Faults>> {
    if name == "hub" {
        return Ok(world.hub_proxy.faults().clone());
    }
    if let Some(proxy) = world.openstack.as_ref().and_then(|openstack| openstack.proxies.get(name)) {
        return Ok(proxy.faults().clone());
    }
    let entries = world.entries();
    let entry = entries.get(name).with_context(|| format!("no proxy {name:?}: there is `hub`, and one per infraID"))?;
    Ok(entry.gate.faults().clone())
}

async fn list_faults(State(world): Shared, Path(name): Path<String>) -> Answer<Vec<Rule>> {
    Ok(Json(faults(&world, &name)?.list()))
}

async fn add_fault(State(world): Shared, Path(name): Path<String>, Json(rule): Json<Rule>) -> Answer<Rule> {
    Ok(Json(faults(&world, &name)?.add(rule)))
}

#[derive(Deserialize)]
struct Which {
    id: Option<String>,
}

async fn remove_faults(State(world): Shared, Path(name): Path<String>, Query(which): Query<Which>) -> Answer<Value> {
    faults(&world, &name)?.remove(which.id.as_deref());
    Ok(Json(json!({})))
}

async fn start_program(State(world): Shared, Json(start): Json<Start>) -> Answer<ProgramAddress> {
    Ok(Json(world.start_program(&start).await?))
}

async fn signal_program(State(world): Shared, Path((name, signal)): Path<(String, String)>) -> Answer<Value> {
    let signal = match signal.as_str() {
        "restart" => {
            world.children.restart(&name).await?;
            let _ = world.publish();
            return Ok(Json(json!({})));
        }
        "stop" => Signal::SIGTERM,
        "kill" => Signal::SIGKILL,
        "freeze" => Signal::SIGSTOP,
        "thaw" => Signal::SIGCONT,
        other => return Err(anyhow::anyhow!("no action {other:?}: stop, kill, restart, freeze, thaw").into()),
    };
    world.children.signal(&name, signal).await?;
    let _ = world.publish();
    Ok(Json(json!({})))
}
