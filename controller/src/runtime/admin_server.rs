//! `/healthz`, `/readyz` and `/metrics`, in plain HTTP.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::RawQuery;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use server::{ConnectionMetrics, metrics as served};
use tokio_util::sync::CancellationToken;

use super::readiness::Readiness;
use crate::metrics::Metrics;

/// Serves until the process ends. `/readyz` needs no leadership: a standby controller is ready to take over. It fails
/// while the Lease cannot be read. With `?verbose` it says how each system is, and is still `ok` where a kind is
/// missing.
///
/// # Errors
/// When the address cannot be bound.
pub async fn serve(listen: SocketAddr, metrics: Arc<Metrics>, readiness: Arc<Readiness>) -> std::io::Result<()> {
    let text = [(CONTENT_TYPE, served::CONTENT_TYPE)];
    let leader = metrics.leader.clone();
    let ready = move |RawQuery(query): RawQuery| async move {
        let verbose = query.is_some_and(|query| query.split('&').any(|pair| pair.split('=').next() == Some("verbose")));
        readiness.answer(verbose, leader.get() == 1)
    };
    let app = Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(move || async move { (text, metrics.text()) }));
    server::plain(server::bind(listen)?, app, ConnectionMetrics::default(), CancellationToken::new()).await
}
