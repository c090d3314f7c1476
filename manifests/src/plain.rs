//! The base's plain YAML files, read for those who install them from here. Tests hold them to the names that programs use.

use serde_json::Value;

const NAMESPACE: &str = include_str!("../base/namespace.yaml");
const CONTROLLER: &str = include_str!("../base/controller.yaml");
const WEBHOOK: &str = include_str!("../base/webhook.yaml");
const NETWORK_POLICIES: &str = include_str!("../base/network-policies.yaml");

/// Our namespace, in which no pod may run with more rights than ours need.
pub(crate) fn namespace() -> Vec<Value> {
    objects(NAMESPACE)
}

/// The controller's Deployment, Service and disruption budget.
pub(crate) fn controller() -> Vec<Value> {
    objects(CONTROLLER)
}

/// The webhook's Deployment, Services and disruption budget.
pub(crate) fn webhook() -> Vec<Value> {
    objects(WEBHOOK)
}

/// Who may connect to our pods.
pub(crate) fn network_policies() -> Vec<Value> {
    objects(NETWORK_POLICIES)
}

/// The documents of a file. The files are compiled in, and a test reads each of them.
fn objects(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use shared::hive::exempt;

    use super::*;
    use crate::names;

    /// The container of a file's Deployment.
    fn container(objects: &[Value]) -> &Value {
        let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
        &deployment["spec"]["template"]["spec"]["containers"][0]
    }

    fn arguments(objects: &[Value]) -> Vec<&str> {
        container(objects)["args"].as_array().unwrap().iter().map(|argument| argument.as_str().unwrap()).collect()
    }

    #[test]
    fn every_file_holds_its_objects() {
        let kinds = |objects: Vec<Value>| -> Vec<String> {
            objects.iter().map(|object| object["kind"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(kinds(namespace()), ["Namespace"]);
        assert_eq!(kinds(controller()), ["Deployment", "Service", "PodDisruptionBudget"]);
        assert_eq!(kinds(webhook()), ["Deployment", "Service", "Service", "PodDisruptionBudget"]);
        assert_eq!(kinds(network_policies()), ["NetworkPolicy", "NetworkPolicy", "NetworkPolicy"]);
        assert_eq!(namespace()[0]["metadata"]["name"], names::NAMESPACE);
        for object in [controller(), webhook(), network_policies()].concat() {
            assert_eq!(object["metadata"]["namespace"], names::NAMESPACE, "{object}");
        }
    }

    #[test]
    fn the_deployments_run_this_version_with_the_names_that_programs_use() {
        for (name, objects) in [(names::CONTROLLER, controller()), (names::WEBHOOK, webhook())] {
            // No registry, because none has been chosen: kustomize's `images` puts yours in front.
            assert_eq!(container(&objects)["image"], format!("{name}:v{}", env!("CARGO_PKG_VERSION")));
            let pod = &objects[0]["spec"]["template"];
            assert_eq!(pod["metadata"]["labels"], serde_json::json!(names::labels(name)));
            assert_eq!(pod["spec"]["serviceAccountName"], name);
            // The Pod's own: kustomize puts the Pods into another namespace, and leaves the text of arguments alone.
            assert!(arguments(&objects).contains(&"--namespace=$(POD_NAMESPACE)"));
            let variables = container(&objects)["env"].as_array().unwrap();
            let own = variables.iter().find(|variable| variable["name"] == "POD_NAMESPACE").unwrap();
            assert_eq!(own["valueFrom"]["fieldRef"]["fieldPath"], "metadata.namespace");
        }
        let webhook = webhook();
        let groups = exempt::GROUPS.iter().map(|group| format!("--exempt-group={group}"));
        let own = |user: &str| user.replace(&format!(":{}:", names::NAMESPACE), ":$(POD_NAMESPACE):");
        let users = exempt::USERS.iter().map(|user| format!("--exempt-user={}", own(user)));
        let names = [
            format!("--certificate-secret={}", names::CERTIFICATE_SECRET),
            format!("--lease={}", names::CERTIFICATE_LEASE),
            format!("--service={}", names::WEBHOOK),
            format!("--configuration={}", names::WEBHOOK),
        ];
        for expected in groups.chain(users).chain(names) {
            assert!(arguments(&webhook).contains(&expected.as_str()), "{expected}");
        }
        let exempted = |argument: &&&str| argument.starts_with("--exempt-");
        assert_eq!(
            arguments(&webhook).iter().filter(exempted).count(),
            exempt::GROUPS.len() + exempt::USERS.len(),
            "nobody else is exempt"
        );
    }

    /// Every `kustomization.yaml` of the folder.
    fn kustomizations(folder: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
        let here = files.into_iter().filter(|path| path.ends_with("kustomization.yaml"));
        here.chain(folders.iter().flat_map(|folder| kustomizations(folder))).collect()
    }

    #[test]
    fn every_kustomization_names_files_that_exist() {
        let found = kustomizations(Path::new(env!("CARGO_MANIFEST_DIR")));
        assert!(found.len() > 10);
        for path in found {
            let text = std::fs::read_to_string(&path).unwrap();
            let kustomization: Value = serde_saphyr::from_str(&text).unwrap();
            let list = |field: &str| kustomization[field].as_array().cloned().unwrap_or_default();
            let patches = list("patches").into_iter().filter_map(|patch| patch.get("path").cloned());
            let folders = list("components").into_iter().chain(list("transformers"));
            for named in list("resources").into_iter().chain(folders).chain(patches) {
                let there = path.with_file_name(named.as_str().unwrap());
                assert!(there.exists(), "{} names {}", path.display(), there.display());
            }
        }
    }
}
