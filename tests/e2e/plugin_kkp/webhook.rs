//! An admission webhook for one Cluster, under a name of the test's choice: down, or denying every update as KKP's does
//! for a datacenter that left the Seed.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use shared::kkp::api::Cluster;
use testbed::kubeconfig::base64;
use testbed::pki::Authority;
use testbed::proxy::tls;
use testbed::{World, apply, eventually};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

const SOON: Duration = Duration::from_mins(2);

pub struct Webhook {
    world: World,
    id: String,
    server: Option<JoinHandle<()>>,
}

impl Webhook {
    /// One that does not answer.
    pub async fn down(world: &World, name: &str, id: &str) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("https://127.0.0.1:{}/", listener.local_addr()?.port());
        drop(listener);
        let authority = Authority::new("nobody")?;
        Self::register(world, name, id, &url, &authority.certificate(), None).await
    }

    /// One that denies every update with this message.
    pub async fn denying(world: &World, name: &str, id: &str, message: &'static str) -> Result<Self> {
        let authority = Authority::new("denier")?;
        let acceptor = TlsAcceptor::from(tls::server(&authority.server("denier")?)?);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("https://127.0.0.1:{}/", listener.local_addr()?.port());
        let router = Router::new().route("/", post(review)).with_state(message);
        let server = tokio::spawn(serve(listener, acceptor, router));
        Self::register(world, name, id, &url, &authority.certificate(), Some(server)).await
    }

    async fn register(
        world: &World,
        name: &str,
        id: &str,
        url: &str,
        authority: &str,
        server: Option<JoinHandle<()>>,
    ) -> Result<Self> {
        let registration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": { "name": format!("test-{id}") },
            "webhooks": [{
                "name": name,
                "clientConfig": { "url": url, "caBundle": base64(authority) },
                "rules": [{
                    "apiGroups": ["kubermatic.k8c.io"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["clusters"],
                }],
                "objectSelector": { "matchLabels": { "test": id } },
                "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            }],
        });
        apply::all(&world.hub().await?, &[registration]).await?;
        let webhook = Self { world: world.clone(), id: id.to_owned(), server };
        webhook.wait(true).await?;
        Ok(webhook)
    }

    /// Removes it, and waits until the API server has noticed.
    pub async fn remove(self) -> Result<()> {
        let api: Api<ValidatingWebhookConfiguration> = Api::all(self.world.hub().await?);
        api.delete(&format!("test-{}", self.id), &DeleteParams::default()).await?;
        self.wait(false).await?;
        if let Some(server) = &self.server {
            server.abort();
        }
        Ok(())
    }

    /// An API server takes a moment to notice a webhook.
    async fn wait(&self, refuses: bool) -> Result<()> {
        let clusters: Api<Cluster> = Api::all(self.world.hub().await?);
        let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
        let patch = json!({ "metadata": { "annotations": { "test": "x" } } });
        eventually(SOON, "webhook", async || {
            let answer = clusters.patch(&self.id, &dry_run, &Patch::Merge(&patch)).await;
            ensure!(answer.is_err() == refuses, "{answer:?}");
            Ok(())
        })
        .await
        .context("the API server and the webhook")
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, router: Router) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, service) = (acceptor.clone(), TowerToHyperService::new(router.clone()));
        tokio::spawn(async move {
            if let Ok(stream) = acceptor.accept(stream).await {
                let builder = auto::Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection(TokioIo::new(stream), service).await;
            }
        });
    }
}

async fn review(State(message): State<&'static str>, Json(review): Json<Value>) -> Json<Value> {
    let status = json!({ "message": message, "code": 400 });
    let response = json!({ "uid": review["request"]["uid"], "allowed": false, "status": status });
    Json(json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response }))
}
