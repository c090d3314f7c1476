//! The YAML files that are installed from here. Tests hold them to the names that programs use.

use serde_json::Value;

/// Our namespace, in which no pod may run with more rights than ours need.
pub(crate) const NAMESPACE: &str = include_str!("../base/namespace.yaml");
/// What the controller may do.
pub(crate) const CONTROLLER_RBAC: &str = include_str!("../base/controller-rbac.yaml");
/// The policy that confines the controller's account on `ClusterDeployments`.
pub(crate) const CONTROLLER_POLICY: &str = include_str!("../base/controller-policy.yaml");
/// The controller's right to read Secrets, and the binding that an overlay replaces.
pub(crate) const CONTROLLER_SECRETS: &str = include_str!("../base/controller-secrets.yaml");
/// The controller's Deployment, Service and disruption budget.
pub(crate) const CONTROLLER: &str = include_str!("../base/controller.yaml");
/// What the webhook may do.
pub(crate) const WEBHOOK_RBAC: &str = include_str!("../base/webhook-rbac.yaml");
/// The webhook's Deployment, Services and disruption budget.
pub(crate) const WEBHOOK: &str = include_str!("../base/webhook.yaml");
/// Which writes reach the webhook.
pub(crate) const WEBHOOKS: &str = include_str!("../base/webhook-configurations.yaml");
/// Who may connect to our pods.
pub(crate) const NETWORK_POLICIES: &str = include_str!("../base/network-policies.yaml");
/// `ClusterRoles` for users who look at rollouts, and for those who run them.
pub(crate) const ROLLOUT_ROLES: &str = include_str!("../base/rollout-roles.yaml");
/// What both programs may do on a hub with FoundationDB clusters.
pub(crate) const FDB_RBAC: &str = include_str!("../components/fdb/rbac.yaml");
/// The policy that confines the controller's account on objects of FoundationDB clusters.
pub(crate) const FDB_POLICY: &str = include_str!("../components/fdb/controller-policy.yaml");
/// The entries that guard FoundationDB clusters, as a patch of the base's configuration.
pub(crate) const FDB_VALIDATING: &str = include_str!("../components/fdb/validating-webhooks.yaml");
/// What the controller may do on a KKP seed.
pub(crate) const KKP_RBAC: &str = include_str!("../components/kkp/controller-rbac.yaml");
/// The policy that confines the controller's account on a KKP seed.
pub(crate) const KKP_POLICY: &str = include_str!("../components/kkp/controller-policy.yaml");
/// The entries that judge KKP's Clusters, as a patch of the base's configuration.
pub(crate) const KKP_VALIDATING: &str = include_str!("../components/kkp/validating-webhooks.yaml");
/// The entries that stamp KKP's Clusters, as a patch of the base's configuration.
pub(crate) const KKP_MUTATING: &str = include_str!("../components/kkp/mutating-webhooks.yaml");
/// What the controller may do on a hub whose upgrades it runs.
pub(crate) const CGU_RBAC: &str = include_str!("../components/cgu/controller-rbac.yaml");
/// The policy that confines the controller's account on a hub whose upgrades it runs.
pub(crate) const CGU_POLICY: &str = include_str!("../components/cgu/controller-policy.yaml");
/// What the controller may do on a hub with clusters on OpenStack.
pub(crate) const OPENSTACK_RBAC: &str = include_str!("../components/openstack/rbac.yaml");
/// The policy that confines the controller's account on Secrets.
pub(crate) const OPENSTACK_POLICY: &str = include_str!("../components/openstack/controller-policy.yaml");
/// What the controller may do where schedules put workloads to sleep.
pub(crate) const WORKLOADS_RBAC: &str = include_str!("../components/workload-schedules/rbac.yaml");
/// The policy that confines the controller's account on workloads.
pub(crate) const WORKLOADS_POLICY: &str = include_str!("../components/workload-schedules/controller-policy.yaml");
/// The twin of the webhook's static rules.
pub(crate) const POLICY: &str = include_str!("../components/policy/policy.yaml");
/// The policy that confines the webhook's account.
pub(crate) const CA_BUNDLE_ONLY: &str = include_str!("../components/ca-bundle-only/policy.yaml");
/// Metrics of the controller, and alerts about them.
pub(crate) const CONTROLLER_MONITORING: &str = include_str!("../components/monitoring/controller.yaml");
/// The dashboard.
pub(crate) const DASHBOARD: &str = include_str!("../components/monitoring/dashboard.yaml");
/// Metrics of the webhook, and alerts about them.
pub(crate) const WEBHOOK_MONITORING: &str = include_str!("../components/monitoring/webhook.yaml");

/// The documents of these files. They are compiled in, and a test reads each of them.
pub(crate) fn objects(files: &[&str]) -> Vec<Value> {
    let documents = |file: &&str| serde_saphyr::from_multiple::<Value>(file).unwrap_or_default();
    files.iter().flat_map(documents).collect()
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use serde_json::json;
    use shared::annotation::keys;
    use shared::hive::exempt;
    use shared::kinds::POWER_ROLLOUT;
    use shared::kkp;
    use shared::rollout::admission;
    use shared::schedule::admission::POLICY as SCHEDULES;
    use shared::schedule::api::{CLUSTER_POWER_SCHEDULE, POWER_SCHEDULE};

    use super::*;
    use crate::chart::SUSPEND;
    use crate::generated::{labels, versioned};
    use crate::{controller_monitoring, webhook_monitoring};

    /// Secret with the webhook's certificate authority and serving certificate.
    const CERTIFICATE_SECRET: &str = "hibernate-webhook-tls";
    /// Every file with rights of a program.
    const RBAC: [&str; 8] = [
        CONTROLLER_RBAC,
        CONTROLLER_SECRETS,
        WEBHOOK_RBAC,
        FDB_RBAC,
        KKP_RBAC,
        CGU_RBAC,
        OPENSTACK_RBAC,
        WORKLOADS_RBAC,
    ];

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
        let of = |text| kinds(super::objects(&[text]));
        assert_eq!(of(NAMESPACE), ["Namespace"]);
        assert_eq!(of(CONTROLLER), ["Deployment", "Service", "PodDisruptionBudget"]);
        assert_eq!(of(WEBHOOK), ["Deployment", "Service", "Service", "PodDisruptionBudget"]);
        assert_eq!(of(NETWORK_POLICIES), ["NetworkPolicy", "NetworkPolicy", "NetworkPolicy"]);
        assert_eq!(of(ROLLOUT_ROLES), ["ClusterRole"; 5]);
        let (everywhere, here) = (["ClusterRole", "ClusterRoleBinding"], ["Role", "RoleBinding"]);
        assert_eq!(of(CONTROLLER_RBAC), [&["ServiceAccount"][..], &everywhere, &["Lease"], &here].concat());
        assert_eq!(of(WEBHOOK_RBAC), [&["ServiceAccount"][..], &everywhere, &["Secret"], &here].concat());
        assert_eq!(of(CONTROLLER_SECRETS), everywhere);
        assert_eq!(of(FDB_RBAC), everywhere.repeat(2));
        assert_eq!(of(KKP_RBAC), everywhere);
        assert_eq!(of(CGU_RBAC), everywhere);
        assert_eq!(of(OPENSTACK_RBAC), everywhere);
        assert_eq!(of(WORKLOADS_RBAC), everywhere);
        assert_eq!(kinds(controller_monitoring()), ["PodMonitor", "PrometheusRule", "ConfigMap"]);
        assert_eq!(kinds(webhook_monitoring()), ["PodMonitor", "PrometheusRule"]);
        assert_eq!(objects(&[NAMESPACE])[0]["metadata"]["name"], keys::NAMESPACE);
        let monitoring = [controller_monitoring(), webhook_monitoring()].concat();
        for object in [objects(&[CONTROLLER]), objects(&[WEBHOOK]), objects(&[NETWORK_POLICIES]), monitoring].concat() {
            assert_eq!(object["metadata"]["namespace"], keys::NAMESPACE, "{object}");
        }
    }

    #[test]
    fn the_deployments_run_this_version_with_the_names_that_programs_use() {
        for (name, objects) in [(keys::CONTROLLER, objects(&[CONTROLLER])), (keys::WEBHOOK, objects(&[WEBHOOK]))] {
            // No registry, because none has been chosen: kustomize's `images` puts yours in front.
            assert_eq!(container(&objects)["image"], format!("{name}:v{}", env!("CARGO_PKG_VERSION")));
            assert_eq!(objects[0]["metadata"]["labels"], json!(versioned(name)));
            let pod = &objects[0]["spec"]["template"];
            assert_eq!(pod["metadata"]["labels"], json!(labels(name)));
            assert_eq!(pod["spec"]["serviceAccountName"], name);
            // The Pod's own: kustomize puts the Pods into another namespace, and leaves the text of arguments alone.
            assert!(arguments(&objects).contains(&"--namespace=$(POD_NAMESPACE)"));
            let variables = container(&objects)["env"].as_array().unwrap();
            let own = variables.iter().find(|variable| variable["name"] == "POD_NAMESPACE").unwrap();
            assert_eq!(own["valueFrom"]["fieldRef"]["fieldPath"], "metadata.namespace");
        }
        let webhook = objects(&[WEBHOOK]);
        let groups = exempt::GROUPS.iter().map(|group| format!("--exempt-group={group}"));
        let own = |user: &str| user.replace(&format!(":{}:", keys::NAMESPACE), ":$(POD_NAMESPACE):");
        let users = exempt::USERS.iter().map(|user| format!("--exempt-user={}", own(user)));
        let names = [
            format!("--certificate-secret={CERTIFICATE_SECRET}"),
            format!("--service={}", keys::WEBHOOK),
            format!("--configuration={}", keys::WEBHOOK),
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

    /// Rights are on texts: each is a name that the programs use, and each object is of one of them.
    #[test]
    fn rights_are_granted_to_our_programs_on_the_names_that_they_use() {
        let all: Vec<Value> = objects(&RBAC);
        for object in &all {
            let program = if object["metadata"]["name"].as_str().unwrap().starts_with(keys::CONTROLLER) {
                keys::CONTROLLER
            } else {
                keys::WEBHOOK
            };
            let metadata = &object["metadata"];
            assert_eq!(metadata["labels"], json!(labels(program)));
            assert!(metadata["namespace"].is_null() || metadata["namespace"] == keys::NAMESPACE, "{object}");
            if let Some(role) = object.get("roleRef") {
                let own = json!([{"kind": "ServiceAccount", "name": program, "namespace": keys::NAMESPACE}]);
                assert_eq!((&role["name"], &object["subjects"]), (&metadata["name"], &own));
            }
        }
        let rules = || all.iter().filter_map(|object| object["rules"].as_array()).flatten();
        let named = rules().filter_map(|rule| rule["resourceNames"].as_array()).flatten();
        let named: Vec<&str> = named.map(|name| name.as_str().unwrap()).collect();
        let (record, _) = kkp::keys::RECORD;
        let webhook = [keys::WEBHOOK, CERTIFICATE_SECRET];
        let syncs = "clustersyncs.hiveinternal.openshift.io";
        assert_eq!(
            named[..7],
            [&[syncs, admission::POLICY, SCHEDULES, keys::CONTROLLER][..], &webhook, &[record]].concat()
        );
        assert_eq!(named.len(), 20, "and four Secrets of a control plane, TALM's Lease, overrides, seven definitions");
        let plurals = [POWER_ROLLOUT.kind.plural, POWER_SCHEDULE.plural, CLUSTER_POWER_SCHEDULE.plural];
        let [rollouts, own, everywhere] = plurals;
        let ours = rules().filter(|rule| rule["apiGroups"] == json!([keys::GROUP]));
        let ours: Vec<Value> = ours.map(|rule| rule["resources"].clone()).collect();
        let status = |name: &str| format!("{name}/status");
        let expected = [
            json!([rollouts]),
            json!([status(rollouts)]),
            json!([own, everywhere]),
            json!([status(own), status(everywhere)]),
            json!([format!("{own}/rollouts")]),
            json!([format!("{own}/workloads")]),
        ];
        assert_eq!(ours, expected);
    }

    #[test]
    fn metrics_are_scraped_where_the_programs_serve_them() {
        for (name, deployed, monitoring) in [
            (keys::CONTROLLER, objects(&[CONTROLLER]), controller_monitoring()),
            (keys::WEBHOOK, objects(&[WEBHOOK]), webhook_monitoring()),
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
    fn patches_and_examples_name_what_is_installed() {
        let secrets = objects(&[CONTROLLER_SECRETS]);
        let (role, binding) = (&secrets[0], &secrets[1]);
        let patches = read("components/secrets-per-namespace/no-cluster-role-binding.yaml");
        let name = json!({"name": binding["metadata"]["name"]});
        let deleted = json!([{
            "$patch": "delete", "apiVersion": binding["apiVersion"], "kind": binding["kind"], "metadata": name,
        }]);
        assert_eq!(json!(patches), deleted);
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
        let guard = json!({"name": SUSPEND, "namespaceSelector": {"matchLabels": {keys::SUSPEND: "true"}}});
        let labeled = read("components/labeled-databases/namespace-selector.yaml");
        assert_eq!(
            (&labeled[0]["metadata"]["name"], &labeled[0]["webhooks"]),
            (&json!(keys::WEBHOOK), &json!([guard]))
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
