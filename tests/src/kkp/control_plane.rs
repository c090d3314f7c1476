//! The control plane that KKP ensures in the namespace of a cluster: the table, and its objects.

use serde_json::{Value, json};

/// The etcd `StatefulSet`.
pub const ETCD: &str = "etcd";
/// Members of etcd.
pub const MEMBERS: i64 = 3;
/// The API server's Deployment.
pub const API_SERVER: &str = "apiserver";
/// The `CronJob`.
pub const DEFRAGGER: &str = "etcd-defragger";

/// The part of KKP's health that a workload makes up.
type Health = Option<&'static str>;

/// Deployments with their replicas: rows 1 and 15a.
pub const DEPLOYMENTS: &[(&str, i64, Health)] = &[
    (API_SERVER, 2, Some("apiserver")),
    ("controller-manager", 1, Some("controller")),
    ("scheduler", 1, Some("scheduler")),
    ("machine-controller", 1, Some("machineController")),
    ("machine-controller-webhook", 1, None),
    ("operating-system-manager", 1, Some("operatingSystemManager")),
    ("operating-system-manager-webhook", 1, None),
    ("usercluster-controller", 1, Some("userClusterControllerManager")),
    ("usercluster-webhook", 1, None),
    ("kubernetes-dashboard", 2, Some("kubernetesDashboard")),
    ("nodeport-proxy-envoy", 2, None),
    ("nodeport-proxy-lb-updater", 1, None),
    ("kube-state-metrics", 1, None),
];

/// `StatefulSets` besides etcd.
pub const STATEFUL_SETS: &[(&str, i64, Health)] = &[("prometheus", 1, Some("monitoring"))];

/// Every workload that is reset: all but etcd.
pub fn kept() -> impl Iterator<Item = (&'static str, &'static str, i64)> {
    let deployments = DEPLOYMENTS.iter().map(|(name, replicas, _)| ("Deployment", *name, *replicas));
    deployments.chain(STATEFUL_SETS.iter().map(|(name, replicas, _)| ("StatefulSet", *name, *replicas)))
}

/// Components whose version is the cluster's, in the order in which an update reaches them (row 14).
pub const VERSIONED: &[(&str, &str)] =
    &[(API_SERVER, "apiserver"), ("controller-manager", "controllerManager"), ("scheduler", "scheduler")];

/// A Deployment or `StatefulSet` of the control plane.
pub fn workload(namespace: &str, kind: &str, name: &str, replicas: i64, version: &str) -> Value {
    let labels = json!({ "app": name });
    let mut spec = json!({
        "replicas": replicas,
        "selector": { "matchLabels": labels },
        "template": {
            "metadata": { "labels": { "app": name, "cluster": namespace.trim_start_matches("cluster-") } },
            "spec": {
                "containers": [{ "name": name, "image": format!("quay.io/kubermatic/{name}:v{version}") }],
                "terminationGracePeriodSeconds": 0,
            },
        },
    });
    if kind == "StatefulSet" {
        spec["serviceName"] = json!(name);
        spec["podManagementPolicy"] = json!("Parallel");
    }
    if name == ETCD {
        spec["volumeClaimTemplates"] = json!([{
            "metadata": { "name": "data" },
            "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "5Gi" } } },
        }]);
    }
    let metadata = json!({ "name": name, "namespace": namespace, "labels": labels });
    json!({ "apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec })
}

/// The namespace, the `CronJob`, a backup configuration and the disruption budgets.
pub fn surroundings(namespace: &str, id: &str) -> Vec<Value> {
    let pod = json!({ "spec": { "restartPolicy": "Never", "containers": [{ "name": "defrag", "image": "etcd" }] } });
    let budget = |name: &str| {
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": name, "namespace": namespace },
            "spec": { "maxUnavailable": 1, "selector": { "matchLabels": { "app": name } } },
        })
    };
    vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace, "labels": { "cluster": id } } }),
        json!({
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": DEFRAGGER, "namespace": namespace },
            "spec": { "schedule": "@every 3h", "jobTemplate": { "spec": { "template": pod } } },
        }),
        budget(ETCD),
        budget(API_SERVER),
        json!({
            "apiVersion": "kubermatic.k8c.io/v1", "kind": "EtcdBackupConfig",
            "metadata": { "name": "default-backups", "namespace": namespace },
            "spec": {
                "name": "default-backups", "schedule": "@every 20m", "keep": 20, "destination": "minio",
                "cluster": { "apiVersion": "kubermatic.k8c.io/v1", "kind": "Cluster", "name": id },
            },
        }),
    ]
}
