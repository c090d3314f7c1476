//! An admission webhook for one Cluster, under a name of the test's choice: down, or denying every update as KKP's does
//! for a datacenter that left the Seed.

use anyhow::{Context as _, Result};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use shared::kkp::api::Cluster;
use testbed::denier::{Denial, Denier};
use testbed::{World, ensure_that, eventually};

use super::SOON;

pub struct Webhook {
    world: World,
    id: String,
    _denier: Denier,
}

impl Webhook {
    /// One that denies every update with this message; without one it does not answer.
    pub async fn new(world: &World, name: &str, id: &str, message: Option<&'static str>) -> Result<Self> {
        let webhook = json!({
            "name": name, "objectSelector": { "matchLabels": { "test": id } },
            "rules": [{ "apiGroups": ["kubermatic.k8c.io"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["clusters"] }],
        });
        let denial = Denial { name: &format!("test-{id}"), webhook, says: message.map(|message| (400, message)) };
        let denier = Denier::register(world, &denial).await?;
        let webhook = Self { world: world.clone(), id: id.to_owned(), _denier: denier };
        webhook.wait(true).await?;
        Ok(webhook)
    }

    /// Removes it, and waits until the API server has noticed.
    pub async fn remove(self) -> Result<()> {
        let api: Api<ValidatingWebhookConfiguration> = Api::all(self.world.hub().await?);
        api.delete(&format!("test-{}", self.id), &DeleteParams::default()).await?;
        self.wait(false).await
    }

    /// An API server takes a moment to notice a webhook.
    async fn wait(&self, refuses: bool) -> Result<()> {
        let clusters: Api<Cluster> = Api::all(self.world.hub().await?);
        let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
        let patch = json!({ "metadata": { "annotations": { "test": "x" } } });
        eventually(SOON, "webhook", async || {
            ensure_that(clusters.patch(&self.id, &dry_run, &Patch::Merge(&patch)).await, |answer| {
                answer.is_err() == refuses
            })
        })
        .await
        .context("the API server and the webhook")
    }
}
