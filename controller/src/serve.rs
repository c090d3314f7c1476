//! /healthz, /readyz and /metrics on a plain port.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;

use crate::metrics::Metrics;

/// Serves until the process ends. `/readyz` needs no leadership: a controller that waits for its turn is ready to take over.
///
/// # Errors
/// When the address cannot be bound.
pub async fn serve(listen: SocketAddr, metrics: Arc<Metrics>) -> std::io::Result<()> {
    let text = [(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")];
    let app = Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(|| async { "ok" }))
        .route("/metrics", get(move || async move { (text, metrics.text()) }));
    axum::serve(tokio::net::TcpListener::bind(listen).await?, app).await
}
