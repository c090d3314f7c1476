//! The folder `manifests/` as a list of files, written, and compared with what is committed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde_json::{Value, json};

use crate::names::{CONTROLLER, WEBHOOK};
use crate::{ClientConfig, admission, monitoring, network, policy, rbac, webhook_configurations, workloads, yaml};

/// Namespace in the overlay's example binding. It stands for each namespace that holds clusters.
const EXAMPLE_NAMESPACE: &str = "clusters";

/// Hive's namespace, and the Secret in the component's example. The Secret stands for the one that `HiveConfig` names.
const SERVICE_PROVIDER_SECRET: (&str, &str) = ("hive", "aws-service-provider");

/// Why the files could not be made, written or compared.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// An object has no form in YAML. This cannot happen with what this crate makes.
    #[error("write {path} as YAML")]
    Render {
        /// File within the folder.
        path: String,
        /// What the serializer said.
        source: serde_saphyr::SerializeError,
    },
    /// The file system refused.
    #[error("{action} {}", path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// To which file or folder.
        path: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
}

/// Every generated file: path within `manifests/` and text.
///
/// # Errors
/// When an object has no form in YAML.
pub fn files() -> Result<BTreeMap<String, String>, TreeError> {
    let base = [
        ("namespace.yaml", workloads::namespace()),
        ("controller-rbac.yaml", rbac::controller()),
        ("controller-secrets.yaml", rbac::controller_secrets()),
        ("controller.yaml", workloads::controller()),
        ("network-policies.yaml", network::objects()),
        ("webhook-rbac.yaml", rbac::webhook()),
        ("webhook.yaml", workloads::webhook()),
        ("webhook-configurations.yaml", webhook_configurations(&ClientConfig::Service)),
    ];
    let kustomization = |fields: Value| {
        let mut object = json!({"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"});
        merge(&mut object, fields);
        vec![object]
    };
    let component = |resource: &str| {
        let (version, kind) = ("kustomize.config.k8s.io/v1alpha1", "Component");
        vec![json!({"apiVersion": version, "kind": kind, "resources": [resource]})]
    };
    let names: Vec<_> = base.iter().map(|(name, _)| *name).collect();
    let mut tree: Vec<(String, Vec<Value>)> = vec![
        ("kustomization.yaml".to_owned(), kustomization(json!({"resources": ["base"]}))),
        ("base/kustomization.yaml".to_owned(), kustomization(json!({"resources": names}))),
        ("components/monitoring/kustomization.yaml".to_owned(), component("monitoring.yaml")),
        ("components/monitoring/monitoring.yaml".to_owned(), monitoring()),
        (
            "overlays/monitoring/kustomization.yaml".to_owned(),
            kustomization(json!({"resources": ["../../base"], "components": ["../../components/monitoring"]})),
        ),
        (
            "components/labelled-databases/kustomization.yaml".to_owned(),
            vec![json!({
                "apiVersion": "kustomize.config.k8s.io/v1alpha1",
                "kind": "Component",
                "patches": [{"path": "namespace-selector.yaml"}],
            })],
        ),
        ("components/labelled-databases/namespace-selector.yaml".to_owned(), vec![admission::labelled_databases()]),
        (
            "overlays/labelled-databases/kustomization.yaml".to_owned(),
            kustomization(json!({"resources": ["../../base"], "components": ["../../components/labelled-databases"]})),
        ),
        (
            "overlays/webhook-only/kustomization.yaml".to_owned(),
            kustomization(json!({"resources": ["../../base"], "replicas": [{"name": CONTROLLER, "count": 0}]})),
        ),
        (
            "overlays/cut-over/kustomization.yaml".to_owned(),
            kustomization(json!({"resources": ["../../base"], "patches": [served_platforms()]})),
        ),
        ("components/policy/kustomization.yaml".to_owned(), component("policy.yaml")),
        ("components/policy/policy.yaml".to_owned(), policy()),
        (
            "components/aws-service-provider/kustomization.yaml".to_owned(),
            vec![json!({
                "apiVersion": "kustomize.config.k8s.io/v1alpha1",
                "kind": "Component",
                "resources": ["secret-rbac.yaml"],
            })],
        ),
        (
            "components/aws-service-provider/secret-rbac.yaml".to_owned(),
            rbac::service_provider_secret(SERVICE_PROVIDER_SECRET.0, SERVICE_PROVIDER_SECRET.1),
        ),
        (
            "overlays/policy-only/kustomization.yaml".to_owned(),
            kustomization(json!({"components": ["../../components/policy"]})),
        ),
        (
            "overlays/secrets-per-namespace/kustomization.yaml".to_owned(),
            kustomization(json!({
                "resources": ["../../base", "role-binding.yaml"],
                "patches": [{"path": "no-cluster-role-binding.yaml"}],
            })),
        ),
        (
            "overlays/secrets-per-namespace/role-binding.yaml".to_owned(),
            vec![rbac::controller_secrets_in(EXAMPLE_NAMESPACE)],
        ),
        (
            "overlays/secrets-per-namespace/no-cluster-role-binding.yaml".to_owned(),
            vec![json!({
                "$patch": "delete",
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": rbac::SECRETS},
            })],
        ),
    ];
    tree.extend(base.into_iter().map(|(name, objects)| (format!("base/{name}"), objects)));
    tree.into_iter()
        .map(|(path, objects)| {
            let text = yaml::file(&objects).map_err(|source| TreeError::Render { path: path.clone(), source })?;
            Ok((path, text))
        })
        .collect()
}

/// The webhook refuses sleep on platforms that nobody serves once Hive's own controller is switched off.
fn served_platforms() -> Value {
    let edit =
        json!([{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--served-platforms=aws"}]);
    json!({"target": {"kind": "Deployment", "name": WEBHOOK}, "patch": edit.to_string()})
}

/// Writes every generated file below `folder`.
///
/// # Errors
/// When a file cannot be made or written.
pub fn write(folder: &Path) -> Result<(), TreeError> {
    for (name, text) in files()? {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(io_error("create folder", parent))?;
        }
        fs::write(&path, text).map_err(io_error("write", &path))?;
    }
    Ok(())
}

/// Files below `folder` that are missing or hold another text than they should.
///
/// # Errors
/// When a file cannot be made, or is there and cannot be read.
pub fn stale(folder: &Path) -> Result<Vec<String>, TreeError> {
    let mut stale = Vec::new();
    for (name, text) in files()? {
        let path = folder.join(&name);
        let committed = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            other => Some(other.map_err(io_error("read", &path))?),
        };
        if committed.as_deref() != Some(&text) {
            stale.push(name);
        }
    }
    Ok(stale)
}

fn merge(object: &mut Value, fields: Value) {
    if let (Some(object), Value::Object(fields)) = (object.as_object_mut(), fields) {
        object.extend(fields);
    }
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> TreeError {
    let path = path.to_owned();
    move |source| TreeError::Io { action, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_files_are_the_generated_ones() {
        let stale = stale(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
        assert_eq!(stale, Vec::<String>::new(), "run `cargo run --release -p hibernate-manifests`");
    }

    #[test]
    fn a_changed_file_and_a_missing_file_are_stale() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path()).unwrap();
        fs::write(folder.path().join("kustomization.yaml"), "resources: []\n").unwrap();
        fs::remove_file(folder.path().join("base/webhook.yaml")).unwrap();
        assert_eq!(stale(folder.path()).unwrap(), ["base/webhook.yaml", "kustomization.yaml"]);
    }

    #[test]
    fn every_kustomization_names_files_that_exist() {
        let files = files().unwrap();
        for (path, text) in &files {
            let Some(folder) = path.strip_suffix("kustomization.yaml") else {
                continue;
            };
            let kustomization: Value = serde_saphyr::from_str(text).unwrap();
            for resource in kustomization["resources"].as_array().into_iter().flatten() {
                let resource = resource.as_str().unwrap().trim_start_matches("../");
                assert!(
                    files.keys().any(|name| name.ends_with(resource) || name.contains(&format!("{resource}/"))),
                    "{folder}kustomization.yaml names {resource}"
                );
            }
        }
    }
}
