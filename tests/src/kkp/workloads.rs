//! What a tenant runs in a user cluster of the double.

use serde_json::{Value, json};

use super::options::{KkpOptions, PROVIDER};

/// Namespace of the tenant's workloads.
pub const NAMESPACE: &str = "shop";
/// The CSI driver's controller: volumes are detached while a Pod of it runs (row 60).
pub const CSI: &str = "csi-controller";

fn meta(namespace: &str, name: &str) -> Value {
    json!({ "name": name, "namespace": namespace, "labels": { "app": name } })
}

fn template(name: &str) -> Value {
    json!({
        "metadata": { "labels": { "app": name } },
        "spec": { "containers": [{ "name": "main", "image": "example.com/main:1" }], "terminationGracePeriodSeconds": 30 },
    })
}

fn workload(kind: &str, namespace: &str, name: &str, replicas: u32) -> Value {
    let mut spec = json!({ "selector": { "matchLabels": { "app": name } }, "template": template(name) });
    if kind != "DaemonSet" {
        spec["replicas"] = json!(replicas);
    }
    json!({ "apiVersion": "apps/v1", "kind": kind, "metadata": meta(namespace, name), "spec": spec })
}

/// A disruption budget that allows none.
fn budget(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta(namespace, name),
        "spec": { "maxUnavailable": 0, "selector": { "matchLabels": { "app": name } } },
    })
}

/// Namespaces of a new user cluster.
pub fn namespaces() -> Vec<Value> {
    [NAMESPACE, "cloud-init-settings"]
        .map(|name| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }))
        .into()
}

/// Pods that run once there are Nodes.
pub fn pods(options: &KkpOptions) -> usize {
    let machines: u32 = options.machine_deployments.iter().map(|one| one.replicas).sum();
    let own = if has_any(options) { 3 + machines } else { 0 };
    (own + 2 * options.load_balancers + options.volumes) as usize
}

fn has_any(options: &KkpOptions) -> bool {
    options.volumes + options.load_balancers > 0
}

/// Everything but volumes.
pub fn objects(options: &KkpOptions) -> Vec<Value> {
    let mut all = Vec::new();
    if has_any(options) {
        all.extend([
            workload("Deployment", "kube-system", "coredns", 2),
            budget("kube-system", "coredns"),
            workload("DaemonSet", "kube-system", "node-exporter", 0),
            workload("Deployment", "kube-system", CSI, 1),
        ]);
    }
    for number in 1..=options.load_balancers {
        let name = format!("web-{number}");
        all.push(workload("Deployment", NAMESPACE, &name, 2));
        all.push(budget(NAMESPACE, &name));
        all.push(json!({
            "apiVersion": "v1", "kind": "Service", "metadata": meta(NAMESPACE, &name),
            "spec": { "type": "LoadBalancer", "selector": { "app": name }, "ports": [{ "port": 443 }] },
        }));
    }
    if options.volumes > 0 {
        let mut database = workload("StatefulSet", NAMESPACE, "db", options.volumes);
        database["spec"]["serviceName"] = json!("db");
        database["spec"]["podManagementPolicy"] = json!("Parallel");
        database["spec"]["volumeClaimTemplates"] = json!([claim_template()]);
        all.push(budget(NAMESPACE, "db"));
        all.push(database);
    }
    all
}

fn claim_template() -> Value {
    json!({
        "metadata": { "name": "data" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "10Gi" } } },
    })
}

/// A volume of the `StatefulSet`, with its claim, as a provisioner leaves them.
pub fn volume(number: u32, handle: &str) -> [Value; 2] {
    let claim = format!("data-db-{number}");
    let mut spec = claim_template()["spec"].clone();
    spec["volumeName"] = json!(format!("pvc-{handle}"));
    spec["storageClassName"] = json!("fast");
    [
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": format!("pvc-{handle}") },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "10Gi" }, "storageClassName": "fast",
                "persistentVolumeReclaimPolicy": "Delete",
                "csi": { "driver": "csi.example.com", "volumeHandle": handle },
                "claimRef": { "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": NAMESPACE, "name": claim },
            },
        }),
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": claim, "namespace": NAMESPACE, "labels": { "app": "db" } },
            "spec": spec,
        }),
    ]
}

/// A `MachineDeployment`.
pub fn machine_deployment(new: &super::options::MachineDeployment) -> Value {
    let mut annotations = json!({});
    if let Some((min, max)) = new.autoscaler {
        annotations["cluster.k8s.io/cluster-api-autoscaler-node-group-min-size"] = json!(min.to_string());
        annotations["cluster.k8s.io/cluster-api-autoscaler-node-group-max-size"] = json!(max.to_string());
    }
    let labels = json!({ "machine": new.name });
    json!({
        "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment",
        "metadata": { "name": new.name, "namespace": "kube-system", "annotations": annotations },
        "spec": {
            "replicas": new.replicas, "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "providerSpec": { "value": { "cloudProvider": PROVIDER, "operatingSystem": "ubuntu", "cloudProviderSpec": { "instanceType": "t3a.large" } } }, "versions": { "kubelet": "1.34.1" } },
            },
        },
    })
}
