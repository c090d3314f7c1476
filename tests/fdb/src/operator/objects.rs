//! What the operator makes for a process group.

use serde_json::{Value, json};

use super::api::{Cluster, Group};
use crate::{API_VERSION, KIND};

impl Cluster {
    fn metadata(&self, name: &str, labels: &Value) -> Value {
        json!({
            "name": name,
            "namespace": self.object["metadata"]["namespace"],
            "labels": labels,
            "ownerReferences": [{
                "apiVersion": API_VERSION, "kind": KIND, "name": self.name(), "uid": self.object["metadata"]["uid"], "controller": true,
            }],
        })
    }

    /// A group's own Service.
    pub(super) fn service(&self, group: &Group) -> Value {
        let labels = self.labels_of(&group.id, &group.process_class);
        let mut selector = self.match_labels();
        selector.extend(self.id_labels().into_iter().take(1).map(|name| (name, group.id.clone())));
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": self.metadata(&self.pod_name(&group.id, &group.process_class), &json!(labels)),
            "spec": {
                "selector": selector,
                "publishNotReadyAddresses": true,
                "ports": [{"name": "tls", "port": 4500}, {"name": "non-tls", "port": 4501}],
            },
        })
    }

    /// A group's volume claim.
    pub(super) fn claim(&self, group: &Group) -> Value {
        let pointer = |class: &str| format!("/processes/{class}/volumeClaimTemplate/spec");
        let own = self.spec(&pointer(&group.process_class)).clone();
        let spec = if own.is_null() { self.spec(&pointer("general")).clone() } else { own };
        let labels = self.labels_of(&group.id, &group.process_class);
        let name = format!("{}-data", self.pod_name(&group.id, &group.process_class));
        let default = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "128G"}}});
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": self.metadata(&name, &json!(labels)),
            "spec": if spec.is_null() { default } else { spec },
        })
    }

    /// A group's Pod, known by the address of its Service if it has one.
    pub(super) fn pod(&self, group: &Group, address: Option<&str>) -> Value {
        let name = self.pod_name(&group.id, &group.process_class);
        let labels = self.labels_of(&group.id, &group.process_class);
        let mut variables = vec![
            json!({"name": "FDB_INSTANCE_ID", "value": group.id}),
            json!({"name": "FDB_PROCESS_CLASS", "value": group.process_class}),
        ];
        variables.extend(address.map(|address| json!({"name": "FDB_PUBLIC_IP", "value": address})));
        let data = if group.is_stateful() {
            json!({"name": "data", "persistentVolumeClaim": {"claimName": format!("{name}-data")}})
        } else {
            json!({"name": "data", "emptyDir": {}})
        };
        let container = |name: &str| {
            json!({
                "name": name,
                "image": format!("foundationdb/{name}:7.3.69"),
                "env": variables,
                "volumeMounts": [{"name": "data", "mountPath": "/var/fdb/data"}],
            })
        };
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": self.metadata(&name, &json!(labels)),
            "spec": {
                "automountServiceAccountToken": false,
                "containers": [container("foundationdb"), container("foundationdb-kubernetes-sidecar")],
                "volumes": [data],
            },
        })
    }
}
