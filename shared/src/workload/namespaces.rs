//! Which namespaces are not put to sleep as a whole.

use serde_json::Value;

use crate::annotation::keys;

/// Namespaces of a hub's control plane.
pub const CONTROL_PLANE: &[&str] = &[keys::NAMESPACE, "hive", "kubermatic", "multicluster-engine", "openshift"];
/// How the names of further ones begin.
pub const PREFIXES: &[&str] = &["kube-", "open-cluster-management", "openshift-"];

/// Whether a namespace belongs to a hub's control plane, by its name.
pub fn is_control_plane(name: &str) -> bool {
    CONTROL_PLANE.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether an object is of our own programs, which may run in a namespace of any name.
pub fn is_ours(object: &Value) -> bool {
    object.pointer("/metadata/labels/app.kubernetes.io~1part-of").is_some_and(|program| program == keys::PLUGIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespaces_of_a_control_plane_are_known_by_name() {
        for name in [
            "kube-system",
            "kube-public",
            "openshift",
            "openshift-etcd",
            "hive",
            "hibernate-system",
            "open-cluster-management-hub",
        ] {
            assert!(is_control_plane(name), "{name}");
        }
        for name in ["shop", "default", "kubernetes-dashboard", "hive-demo", "my-kube-system", "openshifty"] {
            assert!(!is_control_plane(name), "{name}");
        }
    }
}
