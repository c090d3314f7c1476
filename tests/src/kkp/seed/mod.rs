//! The seed's side: what KKP's controllers and the seed's kubelets do for one user cluster.

mod cleanup;
mod encryption;
mod ensure;
mod kubeconfig;
mod kubelets;
mod pass;
mod restore;
mod status;
pub(crate) mod webhooks;

use std::sync::Arc;

use anyhow::Result;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::Value;
use tokio::task::JoinHandle;

pub(crate) use self::cleanup::finalizers;
pub(crate) use self::ensure::put_certificate;
pub(crate) use self::kubeconfig::{renew as renew_kubeconfig, void as void_kubeconfigs};
use super::registry::{Kkp, UserCluster, each_tick};

/// Begins to play the seed's side.
pub(crate) fn play(cluster: &Arc<UserCluster>, kkp: &Arc<Kkp>) -> Vec<JoinHandle<()>> {
    let of = || cluster.clone();
    let pass = (kkp.clone(), pass::Memory::default());
    let restore = (kkp.clone(), restore::Memory::default());
    vec![
        tokio::spawn(each_tick(of(), "seed's kubelets", (), async |cluster, ()| kubelets::tick(cluster).await)),
        tokio::spawn(each_tick(of(), "pause", pass::Pause::default(), async |cluster, pause| {
            pause.tick(cluster);
            Ok(())
        })),
        tokio::spawn(each_tick(of(), "KKP", pass, async |cluster, (kkp, memory)| {
            pass::tick(cluster, kkp, memory).await
        })),
        tokio::spawn(each_tick(of(), "encryption", encryption::Memory::default(), async |cluster, memory| {
            encryption::tick(cluster, memory).await
        })),
        tokio::spawn(each_tick(of(), "EtcdRestore", restore, async |cluster, (kkp, memory)| {
            restore::tick(cluster, kkp, memory).await
        })),
    ]
}

/// Whether a condition of a Cluster is True.
pub(crate) fn is_true(cluster: &DynamicObject, condition: &str) -> bool {
    cluster.data.pointer(&format!("/status/conditions/{condition}/status")).and_then(Value::as_str) == Some("True")
}

/// Whether KKP leaves the Cluster alone.
pub(crate) fn is_paused(cluster: &DynamicObject) -> bool {
    cluster.data.pointer("/spec/pause").and_then(Value::as_bool).unwrap_or_default()
}

impl UserCluster {
    /// KKP's merge patch of the Cluster.
    pub(crate) async fn patch_cluster(&self, patch: &Value) -> Result<()> {
        self.clusters().patch(&self.info.id, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// KKP's merge patch of the Cluster's status: only what it changes (row 12).
    pub(crate) async fn patch_status(&self, status: &Value) -> Result<()> {
        let patch = serde_json::json!({ "status": status });
        self.clusters().patch_status(&self.info.id, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(())
    }
}

/// What is gone needs no write.
pub(crate) fn unless_gone<T>(result: kube::Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error.into()),
    }
}
