//! Copies of a `ClusterDeployment`, and what those of another tenant need.

use anyhow::Result;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{ApiResource, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use shared::hive::api::ClusterDeployment;

/// Creates a copy of an object with its status: with a name and an infraID of its own, and what the caller changes.
///
/// # Errors
/// When the hub refuses it.
pub async fn copy(
    hub: &Client,
    model: &Value,
    namespace: &str,
    name: &str,
    change: impl FnOnce(&mut Value),
) -> Result<()> {
    let resource = ApiResource::erase::<ClusterDeployment>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(hub.clone(), namespace, &resource);
    let mut object = model.clone();
    object["metadata"] = json!({"name": name, "namespace": namespace, "labels": object["metadata"]["labels"]});
    object["spec"]["clusterName"] = json!(name);
    object["spec"]["clusterMetadata"]["infraID"] = json!(name);
    change(&mut object);
    let status = Patch::Merge(json!({"status": object["status"]}));
    api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    api.patch_status(name, &PatchParams::default(), &status).await?;
    Ok(())
}

/// Creates a tenant's namespace.
///
/// # Errors
/// When the hub refuses it.
pub async fn namespace(hub: &Client, name: &str) -> Result<()> {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    Api::all(hub.clone()).create(&PostParams::default(), &namespace).await?;
    Ok(())
}

/// Creates a Secret with a `clouds.yaml` of one entry.
///
/// # Errors
/// When the hub refuses it.
pub async fn clouds_yaml(hub: &Client, namespace: &str, name: &str, cloud: &str, entry: &Value) -> Result<()> {
    let clouds = json!({"clouds": {cloud: entry}}).to_string();
    let secret = Secret {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some([("clouds.yaml".to_owned(), ByteString(clouds.into_bytes()))].into()),
        ..Secret::default()
    };
    Api::namespaced(hub.clone(), namespace).create(&PostParams::default(), &secret).await?;
    Ok(())
}
