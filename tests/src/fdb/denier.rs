//! A webhook that denies DELETEs in one namespace while enabled: it replaces ours in the double's own tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::pki::Authority;
use crate::proxy::{Proxy, Settings, Upstream, tls};
use crate::world::World;
use crate::world::helpers::eventually;
use crate::{apply, webhook};

/// What a denied DELETE says.
pub const MESSAGE: &str = "held by the test";

/// The webhook. It ends with this object, and its registration with the namespace's world.
pub struct Denier {
    denies: Arc<AtomicBool>,
    server: JoinHandle<()>,
    _tls: Proxy,
}

impl Drop for Denier {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Denier {
    /// Registers one for the DELETE of these resources of the core group, such as `persistentvolumeclaims`, in one
    /// namespace. It denies from the start.
    ///
    /// # Errors
    /// When it cannot listen, or the hub refuses its registration.
    pub async fn start(world: &World, namespace: &str, resources: &[&str]) -> Result<Self> {
        let denies = Arc::new(AtomicBool::new(true));
        let router = Router::new().route("/", post(review)).with_state(denies.clone());
        let (plain, server) = webhook::serve(router).await?;
        let authority = Authority::new("denier")?;
        let tls = Proxy::start(Settings {
            upstream: Upstream::new(&plain, &authority.certificate())?,
            tls: Some(tls::server(&authority.server("denier")?)?),
            lists: None,
            open: true,
        })?;
        let rules =
            json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": resources}]);
        let (kind, name) = ("ValidatingWebhookConfiguration", format!("denier-{namespace}"));
        let mut registration = webhook::configuration(kind, &name, &tls.url(), &authority.certificate(), &rules);
        registration["webhooks"][0]["namespaceSelector"] =
            json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}});
        let denier = Self { denies, server, _tls: tls };
        apply::all(&world.hub().await?, &[registration]).await?;
        denier.wait_for_hub(world, namespace).await?;
        Ok(denier)
    }

    /// Denies from now on, or allows.
    pub fn deny(&self, denies: bool) {
        self.denies.store(denies, Ordering::SeqCst);
    }

    /// An API server takes a moment to notice a new webhook: until a DELETE of nothing in particular is denied.
    async fn wait_for_hub(&self, world: &World, namespace: &str) -> Result<()> {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(world.hub().await?, namespace);
        let probe = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "probe"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        });
        api.create(&PostParams::default(), &serde_json::from_value(probe)?).await.context("make a probe")?;
        let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
        eventually(Duration::from_secs(10), "denial of the probe", async || {
            ensure!(api.delete("probe", &dry).await.is_err(), "the API server does not ask the denier of {namespace}");
            Ok(())
        })
        .await?;
        self.deny(false);
        api.delete("probe", &DeleteParams::default()).await.context("remove the probe")?;
        self.deny(true);
        Ok(())
    }
}

async fn review(State(denies): State<Arc<AtomicBool>>, Json(review): Json<Value>) -> Json<Value> {
    if denies.load(Ordering::SeqCst) { webhook::denied(&review, 403, MESSAGE) } else { webhook::allowed(&review) }
}
