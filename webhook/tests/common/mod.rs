//! Reviews as the API server writes them, and the router that answers them.
#![allow(dead_code, reason = "each test file uses its part")]

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use shared::admission::Settings;
use shared::hive::admission as hive;
use shared::kkp::admission as kkp;
use tower::ServiceExt;
use webhook::fdb::Clusters;
use webhook::server::{Webhook, router};

pub(crate) const CLUSTERS: (&str, &str, &str) = ("hive.openshift.io", "clusterdeployments", "ClusterDeployment");
pub(crate) const KKP_CLUSTERS: (&str, &str, &str) = ("kubermatic.k8c.io", "clusters", "Cluster");
pub(crate) const DEPLOYMENTS: (&str, &str, &str) = ("apps", "deployments", "Deployment");

/// A request of alice's, as JSON.
pub(crate) fn request(
    (group, resource, kind): (&str, &str, &str),
    operation: &str,
    old: Option<&Value>,
    new: Option<&Value>,
) -> Value {
    json!({
        "uid": "0c9a8d74-9cb7-44dd-b98e-09fd62def2f4",
        "kind": { "group": group, "version": "v1", "kind": kind },
        "resource": { "group": group, "version": "v1", "resource": resource },
        "requestKind": { "group": group, "version": "v1", "kind": kind },
        "requestResource": { "group": group, "version": "v1", "resource": resource },
        "name": "demo",
        "namespace": "shop",
        "operation": operation,
        "userInfo": { "username": "alice", "uid": "7", "groups": ["devs", "system:authenticated"] },
        "object": new,
        "oldObject": old,
        "dryRun": false,
        "options": { "kind": "PatchOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "kubectl-patch" },
    })
}

/// Alice's update of an object.
pub(crate) fn update(kind: (&str, &str, &str), old: &Value, new: &Value) -> Value {
    request(kind, "UPDATE", Some(old), Some(new))
}

/// The usual one: she puts a cluster to sleep.
pub(crate) fn to_sleep() -> Value {
    update(CLUSTERS, &cluster(""), &cluster("Hibernating"))
}

/// A cluster that is to sleep, although it is protected.
pub(crate) fn protected() -> Value {
    with(cluster("Hibernating"), "/metadata/annotations/hibernate.sh~1protected", json!("true"))
}

/// Each of these members is there, with this value.
#[track_caller]
pub(crate) fn assert_has(found: &Value, expected: &Value) {
    let mut all = found.clone();
    json_patch::merge(&mut all, expected);
    assert_eq!(*found, all);
}

/// The envelope around a request.
pub(crate) fn review(request: &Value) -> Value {
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request })
}

/// The same as an API server writes it: the objects behind everything that tells their kind.
pub(crate) fn in_order(request: &Value) -> String {
    let last = ["object", "oldObject", "dryRun", "options"];
    let (objects, head): (Vec<_>, Vec<_>) =
        request.as_object().unwrap().iter().partition(|(name, _)| last.contains(&name.as_str()));
    let members: Vec<_> =
        head.into_iter().chain(objects).map(|(name, value)| format!("{}:{value}", json!(name))).collect();
    review(&json!("REQUEST")).to_string().replace("\"REQUEST\"", &format!("{{{}}}", members.join(",")))
}

/// An installed, sound cluster on AWS in this state, stamped by alice.
pub(crate) fn cluster(state: &str) -> Value {
    json!({
        "apiVersion": "hive.openshift.io/v1",
        "kind": "ClusterDeployment",
        "metadata": {
            "name": "demo", "namespace": "shop",
            "annotations": { "hibernate.sh/requested-by": "alice", "hibernate.sh/requested-at": "2026-11-20T18:00:00Z" },
            "managedFields": [{ "manager": "x", "fieldsV1": { "f:spec": { "f:powerState": {} } } }],
        },
        "spec": {
            "baseDomain": "example.com", "clusterName": "demo", "installed": true, "powerState": state,
            "platform": { "aws": { "region": "us-east-1" } },
            "clusterMetadata": {
                "clusterID": "c", "infraID": "demo-x7k2p", "adminKubeconfigSecretRef": { "name": "demo-admin" },
            },
        },
        "status": { "installedTimestamp": "2026-01-01T00:00:00Z" },
    })
}

/// A KKP Cluster with this power state; it is dehydrated, and its certificates have expired.
pub(crate) fn kkp_cluster(state: &str) -> Value {
    json!({
        "metadata": {
            "name": "demo", "uid": "4c0a", "finalizers": ["kubermatic.k8c.io/cleanup-in-cluster-lb"],
            "annotations": {
                "hibernate.sh/power-state": state, "hibernate.sh/certificates-expire-at": "2026-01-01T00:00:00Z",
                "hibernate.sh/paused-by-sleep": "4c0a/2026-11-20T18:00:00Z",
                "hibernate.sh/requested-by": "alice", "hibernate.sh/requested-at": "2026-11-20T18:00:00Z",
            },
        },
        "spec": {
            "pause": true, "pauseReason": "dehydrated by kubectl-hibernate", "version": "1.34.1",
            "cloud": { "dc": "eu", "providerName": "aws" },
        },
        "status": { "phase": "Running", "conditions": {
            "SeedResourcesUpToDate": { "status": "True" }, "ClusterDehydrated": { "status": "True", "reason": "Dehydrated" },
        } },
    })
}

/// A Deployment with this many replicas.
pub(crate) fn deployment(replicas: u32) -> Value {
    json!({ "metadata": { "name": "demo", "namespace": "shop" }, "spec": { "replicas": replicas } })
}

/// The same object with one member set, or removed by null.
pub(crate) fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, member) = pointer.rsplit_once('/').unwrap();
    let parent = object.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    let member = member.replace("~1", "/");
    if value.is_null() {
        parent.remove(&member);
    } else {
        parent.insert(member, value);
    }
    object
}

/// Posts a body as the API server does.
pub(crate) async fn post(path: &str, body: impl Into<Body>) -> (StatusCode, Vec<u8>) {
    let request = Request::post(path).header("content-type", "application/json").body(body.into()).unwrap();
    send(request).await
}

/// A webhook with default settings.
pub(crate) fn default_webhook() -> Webhook {
    let deleters = kkp::DELETERS.iter().copied().map(str::to_owned).collect();
    let settings = Settings { deleters, ..hive::default_settings() };
    Webhook::new(settings, Arc::default(), Arc::new(Clusters::new(Duration::ZERO)))
}

/// Sends a request to it.
pub(crate) async fn send(request: Request<Body>) -> (StatusCode, Vec<u8>) {
    let response = router(Arc::new(default_webhook())).oneshot(request).await.unwrap();
    let code = response.status();
    (code, response.into_body().collect().await.unwrap().to_bytes().to_vec())
}

/// Posts a review and gives back `response`.
pub(crate) async fn ask(path: &str, request: &Value) -> Value {
    let (code, body) = post(path, review(request).to_string()).await;
    assert_eq!(code, StatusCode::OK, "{}", String::from_utf8_lossy(&body));
    let mut answer: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(answer["kind"], "AdmissionReview");
    assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(answer["response"]["uid"], request["uid"]);
    answer["response"].take()
}

/// The JSON patch of an answer, `[]` if there is none.
pub(crate) fn patch_of(response: &Value) -> json_patch::Patch {
    match &response["patch"] {
        Value::Null => json_patch::Patch::default(),
        patch => {
            assert_eq!(response["patchType"], "JSONPatch");
            let bytes: k8s_openapi::ByteString = serde_json::from_value(patch.clone()).unwrap();
            serde_json::from_slice(&bytes.0).unwrap()
        }
    }
}
