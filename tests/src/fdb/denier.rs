//! A webhook that denies DELETEs in one namespace while enabled: it replaces ours in the double's own tests.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::apply;
use crate::kubeconfig::base64;
use crate::pki::Authority;
use crate::proxy::tls;
use crate::world::World;

/// What a denied DELETE says.
pub const MESSAGE: &str = "held by the test";

/// The webhook. It ends with this object, and its registration with the namespace's world.
pub struct Denier {
    denies: Arc<AtomicBool>,
    server: JoinHandle<()>,
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
        let authority = Authority::new("denier")?;
        let acceptor = TlsAcceptor::from(tls::server(&authority.server("denier")?)?);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("listen for reviews")?;
        let url = format!("https://127.0.0.1:{}/", listener.local_addr()?.port());
        let denies = Arc::new(AtomicBool::new(true));
        let router = Router::new().route("/", post(review)).with_state(denies.clone());
        let server = tokio::spawn(serve(listener, acceptor, router));
        let registration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": format!("denier-{namespace}")},
            "webhooks": [{
                "name": "denier.testbed.hibernate.sh",
                "clientConfig": {"url": url, "caBundle": base64(&authority.certificate())},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": resources}],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
            }],
        });
        let denier = Self { denies, server };
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
        use k8s_openapi::api::core::v1::PersistentVolumeClaim;
        let api: kube::Api<PersistentVolumeClaim> = kube::Api::namespaced(world.hub().await?, namespace);
        let probe = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "probe"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        });
        api.create(&kube::api::PostParams::default(), &serde_json::from_value(probe)?).await.context("make a probe")?;
        let dry = kube::api::DeleteParams { dry_run: true, ..kube::api::DeleteParams::default() };
        for _ in 0..200 {
            if api.delete("probe", &dry).await.is_err() {
                self.deny(false);
                api.delete("probe", &kube::api::DeleteParams::default()).await.context("remove the probe")?;
                self.deny(true);
                return Ok(());
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        anyhow::bail!("the API server does not ask the denier of {namespace}")
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

async fn review(State(denies): State<Arc<AtomicBool>>, Json(review): Json<Value>) -> Json<Value> {
    let mut response = json!({"uid": review["request"]["uid"], "allowed": true});
    if denies.load(Ordering::SeqCst) {
        response =
            json!({"uid": review["request"]["uid"], "allowed": false, "status": {"message": MESSAGE, "code": 403}});
    }
    Json(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}
