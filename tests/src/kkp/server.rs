//! The double's part of the supervisor's interface.

use std::sync::Arc;

use anyhow::Result;
use axum::extract::{Path, State};
use axum::routing::{get, patch, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::certificates::SECRETS;
use super::cloud::Cloud;
use super::etcd::Etcd;
use super::log::Log;
use super::options::{KkpOptions, SeedSettings, Settings};
use super::registry::{KkpInfo, UserCluster};
use super::seed::{put_certificate, renew_kubeconfig, void_kubeconfigs};
use crate::supervisor::World;
use crate::supervisor::answer::{Answer, merged};

type Shared = State<Arc<World>>;

pub(crate) fn routes() -> Router<Arc<World>> {
    Router::new()
        .route("/kkp", post(add))
        .route("/kkp/{id}", get(read))
        .route("/kkp/{id}/log", get(read_log).delete(clear_log))
        .route("/kkp/{id}/settings", patch(change))
        .route("/kkp/{id}/act", post(act))
        .route("/kkp-seed", patch(change_seed))
}

/// A user cluster that is to be made.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NewKkp {
    /// Name of its Cluster.
    pub(crate) id: String,
    /// What it is like.
    #[serde(default)]
    pub(crate) options: KkpOptions,
}

/// A user cluster as it is now, besides its objects.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Inspection {
    /// Where it is.
    pub info: KkpInfo,
    /// Whether its API server answers.
    pub open: bool,
    /// Its etcd.
    pub etcd: Etcd,
    /// What its cloud has.
    pub cloud: Cloud,
}

/// Something that happens to a user cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Act {
    /// Its certificates and kubeconfigs are valid for so many days from now; fewer than 0: they have expired.
    ExpireCertificates(i64),
}

async fn add(State(world): Shared, Json(new): Json<NewKkp>) -> Answer<KkpInfo> {
    Ok(Json(world.add_kkp(&new.id, new.options).await?))
}

async fn read(State(world): Shared, Path(id): Path<String>) -> Answer<Inspection> {
    let cluster = world.kkp.cluster(&id)?;
    let state = cluster.state();
    Ok(Json(Inspection {
        info: cluster.info.clone(),
        open: cluster.answers(),
        etcd: state.etcd.clone(),
        cloud: state.cloud.clone(),
    }))
}

async fn read_log(State(world): Shared, Path(id): Path<String>) -> Answer<Log> {
    Ok(Json(world.kkp.cluster(&id)?.state().log.clone()))
}

async fn clear_log(State(world): Shared, Path(id): Path<String>) -> Answer<Value> {
    world.kkp.cluster(&id)?.state().log = Log::default();
    Ok(Json(json!({})))
}

async fn change(State(world): Shared, Path(id): Path<String>, Json(change): Json<Value>) -> Answer<Settings> {
    let cluster = world.kkp.cluster(&id)?;
    let settings = merged(&cluster.settings(), &change)?;
    cluster.state().settings = settings.clone();
    Ok(Json(settings))
}

async fn act(State(world): Shared, Path(id): Path<String>, Json(act): Json<Act>) -> Answer<Value> {
    let cluster = world.kkp.cluster(&id)?;
    let Act::ExpireCertificates(days) = act;
    expire(&cluster, days).await?;
    Ok(Json(json!({})))
}

async fn expire(cluster: &UserCluster, days: i64) -> Result<()> {
    for secret in SECRETS {
        put_certificate(cluster, secret, days).await?;
    }
    renew_kubeconfig(cluster, days).await?;
    if days < 0 {
        void_kubeconfigs(cluster).await?;
    }
    Ok(())
}

async fn change_seed(State(world): Shared, Json(change): Json<Value>) -> Answer<SeedSettings> {
    let settings = merged(&world.kkp.settings(), &change)?;
    world.kkp.set(settings.clone());
    Ok(Json(settings))
}
