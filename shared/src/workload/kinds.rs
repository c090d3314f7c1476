//! The kinds of workload that can be put to sleep, and the names by which people call them.

/// One kind of workload.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// API group.
    pub group: &'static str,
    /// Versions in which a hub may serve it, the one to try first in front.
    pub versions: &'static [&'static str],
    /// Kind, such as `Deployment`.
    pub kind: &'static str,
    /// Resource in URLs and admission requests, such as `deployments`.
    pub plural: &'static str,
    /// Short names, as kubectl knows them.
    pub short: &'static [&'static str],
}

/// Every kind of workload that can be put to sleep.
pub const KINDS: &[Kind] = &[
    Kind { group: "apps", versions: &["v1"], kind: "Deployment", plural: "deployments", short: &["deploy"] },
    Kind { group: "apps", versions: &["v1"], kind: "StatefulSet", plural: "statefulsets", short: &["sts"] },
    Kind {
        group: "cluster.x-k8s.io",
        versions: &["v1beta2", "v1beta1"],
        kind: "MachineDeployment",
        plural: "machinedeployments",
        short: &["md"],
    },
    Kind {
        group: "cluster.k8s.io",
        versions: &["v1alpha1"],
        kind: "MachineDeployment",
        plural: "machinedeployments",
        short: &["md"],
    },
];

/// The kind behind a group and a resource of an admission request.
#[must_use]
pub fn by_resource(group: &str, plural: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.group == group && kind.plural == plural)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_names_one_kind() {
        for kind in KINDS {
            assert_eq!(by_resource(kind.group, kind.plural), Some(kind));
        }
        assert_eq!(by_resource("apps", "daemonsets"), None);
        assert_eq!(by_resource("extensions", "deployments"), None);
    }
}
