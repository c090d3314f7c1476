//! What the user may do, as the API server's authorizer says.

use hub::{HubClient, Resource, Write};
use serde_json::{Value, json};
use shared::kinds::Kind;

static REVIEW: Kind =
    Kind::cluster_scoped("authorization.k8s.io", &["v1"], "SelfSubjectAccessReview", "selfsubjectaccessreviews");

/// Whether the authorizer allows this, in the form of `spec.resourceAttributes`. None if it does not answer.
pub(crate) async fn is_allowed(hub: &HubClient, attributes: &Value, write: &Write) -> Option<bool> {
    let review = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": REVIEW.kind,
        "spec": { "resourceAttributes": attributes } });
    let write = Write { dry_run: false, ..write.clone() };
    let answer = hub.create(Resource::preferred(&REVIEW), None, &review, &write).await;
    answer.ok()?.pointer("/status/allowed")?.as_bool()
}
