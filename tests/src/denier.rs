//! A webhook that denies while it is told to, in place of one that a test does without.

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

/// What a denied DELETE of a volume says.
pub const MESSAGE: &str = "held by the test";

/// What a webhook denies.
pub struct Denial<'a> {
    /// Name of its configuration.
    pub name: &'a str,
    /// Fields of the webhook in the configuration: `name`, `rules`, selectors.
    pub webhook: Value,
    /// HTTP status and words of the denial; none: the webhook is down.
    pub says: Option<(u16, &'static str)>,
}

/// The webhook. It ends with this object; its registration stays.
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
    /// Registers one, which denies from the start. An API server takes a moment to notice it.
    ///
    /// # Errors
    /// When it cannot listen, or the hub refuses its registration.
    pub async fn register(world: &World, denial: &Denial<'_>) -> Result<Self> {
        let (denies, (code, words)) = (Arc::new(AtomicBool::new(true)), denial.says.unwrap_or_default());
        let review = async move |State(denies): State<Arc<AtomicBool>>, Json(review): Json<Value>| {
            let is_denied = denies.load(Ordering::SeqCst);
            if is_denied { webhook::denied(&review, code, words) } else { webhook::allowed(&review) }
        };
        let (plain, server) = webhook::serve(Router::new().route("/", post(review)).with_state(denies.clone())).await?;
        let authority = Authority::new("denier")?;
        let tls = Proxy::start(Settings {
            upstream: Upstream::new(&plain, &authority.certificate())?,
            tls: Some(tls::server(&authority.server("denier")?)?),
            lists: None,
            open: denial.says.is_some(),
        })?;
        let (kind, url) = ("ValidatingWebhookConfiguration", tls.url());
        let mut registration =
            webhook::configuration(kind, denial.name, &url, &authority.certificate(), &denial.webhook["rules"]);
        json_patch::merge(&mut registration["webhooks"][0], &denial.webhook);
        apply::all(&world.hub().await?, &[registration]).await?;
        Ok(Self { denies, server, _tls: tls })
    }

    /// Registers one for the DELETE of these resources of the core group, such as `persistentvolumeclaims`, in one
    /// namespace, and waits until the hub asks it.
    ///
    /// # Errors
    /// As [`Denier::register`].
    pub async fn of_deletes(world: &World, namespace: &str, resources: &[&str]) -> Result<Self> {
        let webhook = json!({
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": resources}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        });
        let denial = Denial { name: &format!("denier-{namespace}"), webhook, says: Some((403, MESSAGE)) };
        let denier = Self::register(world, &denial).await?;
        let api: Api<PersistentVolumeClaim> = Api::namespaced(world.hub().await?, namespace);
        let probe = json!({
            "metadata": {"name": "probe"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        });
        api.create(&PostParams::default(), &serde_json::from_value(probe)?).await.context("make a probe")?;
        let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
        eventually(Duration::from_mins(1), "denial of the probe", async || {
            ensure!(api.delete("probe", &dry).await.is_err(), "the API server does not ask the denier of {namespace}");
            Ok(())
        })
        .await?;
        denier.deny(false);
        api.delete("probe", &DeleteParams::default()).await.context("remove the probe")?;
        denier.deny(true);
        Ok(denier)
    }

    /// Denies from now on, or allows.
    pub fn deny(&self, denies: bool) {
        self.denies.store(denies, Ordering::SeqCst);
    }
}
