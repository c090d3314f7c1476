//! Applies objects that are just data.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{self, Scope};
use kube::{Api, Client};
use serde_json::{Value, json};

/// Field manager of the world's own writes.
pub const MANAGER: &str = "testbed";

/// Applies every object, in order, by server-side apply. Kinds that an object before has just defined are waited for.
///
/// # Errors
/// When the API server refuses one; the error names it.
pub async fn all(client: &Client, objects: &[Value]) -> Result<()> {
    let mut kinds: HashMap<(String, String), (ApiResource, Scope)> = HashMap::new();
    for object in objects {
        let field = |name: &str| {
            object[name].as_str().map(str::to_owned).with_context(|| format!("{name} is missing in {object}"))
        };
        let (version, kind) = (field("apiVersion")?, field("kind")?);
        let name =
            object["metadata"]["name"].as_str().with_context(|| format!("metadata.name is missing in {object}"))?;
        let key = (version.clone(), kind.clone());
        if !kinds.contains_key(&key) {
            kinds.insert(key.clone(), resolve(client, &version, &kind).await?);
        }
        let (resource, scope) = &kinds[&key];
        let api = api(client, resource, scope, object["metadata"]["namespace"].as_str());
        api.patch(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(object))
            .await
            .with_context(|| format!("apply {kind} {name}"))?;
        if kind == "CustomResourceDefinition" {
            established(&api, name).await?;
        }
    }
    Ok(())
}

fn api(client: &Client, resource: &ApiResource, scope: &Scope, namespace: Option<&str>) -> Api<DynamicObject> {
    match (scope, namespace) {
        (Scope::Namespaced, Some(namespace)) => Api::namespaced_with(client.clone(), namespace, resource),
        (Scope::Namespaced, None) => Api::default_namespaced_with(client.clone(), resource),
        _ => Api::all_with(client.clone(), resource),
    }
}

async fn resolve(client: &Client, version: &str, kind: &str) -> Result<(ApiResource, Scope)> {
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let wanted = GroupVersionKind::gvk(group, version, kind);
    let mut last = None;
    for _ in 0..50 {
        match discovery::pinned_kind(client, &wanted).await {
            Ok((resource, capabilities)) => return Ok((resource, capabilities.scope)),
            Err(error) => last = Some(error),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err(last.map_or_else(|| anyhow::anyhow!("never tried"), Into::into))
        .with_context(|| format!("find kind {kind} of {group}/{version}"))
}

async fn established(api: &Api<DynamicObject>, name: &str) -> Result<()> {
    for _ in 0..100 {
        let definition = api.get(name).await.with_context(|| format!("read CustomResourceDefinition {name}"))?;
        let conditions = definition.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is = |type_: &str, status: &str| conditions.iter().any(|c| c["type"] == type_ && c["status"] == status);
        if is("NamesAccepted", "False") || is("NonStructuralSchema", "True") {
            bail!("CustomResourceDefinition {name} is not accepted: {}", json!(conditions));
        }
        if is("Established", "True") {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bail!("CustomResourceDefinition {name} is not established after 5 s")
}
