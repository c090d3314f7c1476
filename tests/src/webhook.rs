//! Admission webhooks of the doubles: a server on plain HTTP, behind a proxy where TLS ends.

use std::net::Ipv4Addr;

use anyhow::{Context as _, Result};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::kubeconfig::base64;

/// Serves reviews on plain HTTP, and answers the URL.
///
/// # Errors
/// When it cannot listen.
pub(crate) async fn serve(router: Router) -> Result<(String, JoinHandle<()>)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("listen for reviews")?;
    let url = format!("http://{}", listener.local_addr()?);
    let server = tokio::spawn(async move { drop(axum::serve(listener, router).await) });
    Ok((url, server))
}

/// A configuration with one webhook: failurePolicy Fail.
pub(crate) fn configuration(kind: &str, name: &str, url: &str, authority: &str, rules: &Value) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": { "name": name },
        "webhooks": [{
            "name": format!("{name}.k8c.io"), "clientConfig": { "url": url, "caBundle": base64(authority) }, "rules": rules,
            "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 10,
        }],
    })
}

/// The answer to a review.
pub(crate) fn answer(review: &Value, mut response: Value) -> Json<Value> {
    response["uid"] = review["request"]["uid"].clone();
    Json(json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response }))
}

/// A review that is denied.
pub(crate) fn denied(review: &Value, code: u16, message: &str) -> Json<Value> {
    answer(review, json!({ "allowed": false, "status": { "code": code, "message": message } }))
}

/// A review that is allowed.
pub(crate) fn allowed(review: &Value) -> Json<Value> {
    answer(review, json!({ "allowed": true }))
}
