//! Plain YAML files, read for those who install or test them from here. Tests hold them to the names that programs use.

use serde_json::Value;

const NAMESPACE: &str = include_str!("../base/namespace.yaml");
const CONTROLLER: &str = include_str!("../base/controller.yaml");
const WEBHOOK: &str = include_str!("../base/webhook.yaml");
const NETWORK_POLICIES: &str = include_str!("../base/network-policies.yaml");
const ROLLOUT_ROLES: &str = include_str!("../base/rollout-roles.yaml");
const CONTROLLER_MONITORING: &str = include_str!("../components/monitoring/controller.yaml");
const DASHBOARD: &str = include_str!("../components/monitoring/dashboard.yaml");
const WEBHOOK_MONITORING: &str = include_str!("../components/monitoring/webhook.yaml");

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

/// `ClusterRoles` for users who look at rollouts, and for those who run them.
pub(crate) fn rollout_roles() -> Vec<Value> {
    objects(ROLLOUT_ROLES)
}

/// What watches the controller: its metrics, alerts about them, and a dashboard. A test of the controller looks up what
/// they ask for.
pub fn controller_monitoring() -> Vec<Value> {
    [objects(CONTROLLER_MONITORING), objects(DASHBOARD)].concat()
}

/// What watches the webhook. A test of the webhook looks up what it asks for.
pub fn webhook_monitoring() -> Vec<Value> {
    objects(WEBHOOK_MONITORING)
}

/// The documents of a file. The files are compiled in, and a test reads each of them.
fn objects(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use serde_json::json;
    use shared::annotation::keys;
    use shared::hive::exempt;

    use super::*;
    use crate::{fdb, names, rbac};

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
        assert_eq!(kinds(rollout_roles()), ["ClusterRole", "ClusterRole"]);
        assert_eq!(kinds(controller_monitoring()), ["PodMonitor", "PrometheusRule", "ConfigMap"]);
        assert_eq!(kinds(webhook_monitoring()), ["PodMonitor", "PrometheusRule"]);
        assert_eq!(namespace()[0]["metadata"]["name"], names::NAMESPACE);
        let monitoring = [controller_monitoring(), webhook_monitoring()].concat();
        for object in [controller(), webhook(), network_policies(), monitoring].concat() {
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

    #[test]
    fn metrics_are_scraped_where_the_programs_serve_them() {
        for (name, deployed, monitoring) in [
            (names::CONTROLLER, controller(), controller_monitoring()),
            (names::WEBHOOK, webhook(), webhook_monitoring()),
        ] {
            let spec = &monitoring[0]["spec"];
            assert_eq!(spec["selector"], deployed[0]["spec"]["selector"], "{name}");
            assert_eq!(spec["podMetricsEndpoints"][0]["path"], "/metrics");
            let scraped = &spec["podMetricsEndpoints"][0]["port"];
            let ports = container(&deployed)["ports"].as_array().unwrap();
            assert!(ports.iter().any(|port| port["name"] == *scraped), "{name} has no port {scraped}");
        }
    }

    /// The documents of a file that nobody installs from here.
    fn read(path: &str) -> Vec<Value> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    #[test]
    fn patches_and_examples_name_what_is_generated() {
        let generated = rbac::controller_secrets();
        let (role, binding) = (&generated[0], &generated[1]);
        for overlay in ["kkp", "secrets-per-namespace"] {
            let patches = read(&format!("overlays/{overlay}/no-cluster-role-binding.yaml"));
            let name = json!({"name": binding["metadata"]["name"]});
            let deleted = json!([{
                "$patch": "delete", "apiVersion": binding["apiVersion"], "kind": binding["kind"], "metadata": name,
            }]);
            assert_eq!(json!(patches), deleted, "{overlay}");
        }
        let in_a_namespace = read("overlays/secrets-per-namespace/role-binding.yaml");
        assert_eq!(in_a_namespace[0]["kind"], "RoleBinding");
        assert_eq!(in_a_namespace[0]["roleRef"], binding["roleRef"]);
        assert_eq!(in_a_namespace[0]["roleRef"]["name"], role["metadata"]["name"]);
        assert_eq!(in_a_namespace[0]["subjects"], binding["subjects"]);
        let of_one_secret = read("components/aws-service-provider/secret-rbac.yaml");
        assert_eq!(of_one_secret[0]["rules"].as_array().unwrap().len(), 1);
        assert_eq!(of_one_secret[0]["rules"][0]["resourceNames"].as_array().unwrap().len(), 1);
        assert_eq!(of_one_secret[0]["rules"][0]["verbs"], json!(["get"]));
        assert_eq!(of_one_secret[1]["roleRef"]["name"], of_one_secret[0]["metadata"]["name"]);
        assert_eq!(of_one_secret[1]["subjects"], binding["subjects"]);
        let guard = json!({"name": fdb::SUSPEND, "namespaceSelector": {"matchLabels": {keys::SUSPEND: "true"}}});
        let labelled = read("components/labelled-databases/namespace-selector.yaml");
        assert_eq!(
            (&labelled[0]["metadata"]["name"], &labelled[0]["webhooks"]),
            (&json!(names::WEBHOOK), &json!([guard]))
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
