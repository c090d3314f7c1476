//! The admin server: `/healthz`, `/readyz` and `/metrics` over plain HTTP.

use std::net::TcpListener;
use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use server::{ConnectionMetrics, metrics};
use tokio_util::sync::CancellationToken;

use crate::certs::Certificates;
use crate::fdb::Clusters;
use crate::metrics::Metrics;

/// State that the admin server reports.
#[derive(Clone, Debug)]
pub struct Health {
    /// The webhook is not ready before it has a certificate that its clients trust.
    pub certificates: Certificates,
    /// The webhook is not ready before this cache has synced once.
    pub fdb: Arc<Clusters>,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// The webhook is not ready after it is asked to stop, although its ports still serve.
    pub stopping: CancellationToken,
}

impl Health {
    fn ready(&self) -> (StatusCode, String) {
        if self.stopping.is_cancelled() {
            return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n".to_owned());
        }
        if let Err(missing) = self.certificates.ready() {
            let trouble = self.certificates.trouble().map(|trouble| format!("; {trouble}")).unwrap_or_default();
            return (StatusCode::SERVICE_UNAVAILABLE, format!("{missing}{trouble}\n"));
        }
        match self.fdb.ready() {
            Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
            Err(missing) => (StatusCode::SERVICE_UNAVAILABLE, format!("{missing}\n")),
        }
    }
}

/// Routes of the admin server.
pub fn router(health: Health) -> Router {
    let text = [(CONTENT_TYPE, metrics::CONTENT_TYPE)];
    let counted = Arc::clone(&health.metrics);
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(move || async move { health.ready() }))
        .route("/metrics", get(move || async move { (text, counted.text()) }))
}

/// Serves until the port is asked to stop. The limits are separate from those of the HTTPS port, so that probes and
/// scrapes still get through when other clients hold many connections.
///
/// The listener must be non-blocking.
///
/// # Errors
/// When the listener cannot be used.
pub async fn serve(listener: TcpListener, health: Health, stop: CancellationToken) -> std::io::Result<()> {
    server::plain(listener, router(health), ConnectionMetrics::default(), stop).await
}
