//! What can be put to sleep: the table of kinds, how targets are named on the command line, and how they are found.

pub(crate) mod nearest;
pub(crate) mod parse;
pub(crate) mod resolve;

use serde_json::Value;
use shared::workload::kinds::{KINDS, Kind};

use crate::api::Resource;

/// Hive's kind.
pub(crate) static CLUSTER_DEPLOYMENT: Kind = Kind {
    group: "hive.openshift.io",
    versions: &["v1"],
    kind: "ClusterDeployment",
    plural: "clusterdeployments",
    short: &["cd"],
};

/// Every kind that can be put to sleep.
pub(crate) fn kinds() -> impl Iterator<Item = &'static Kind> {
    std::iter::once(&CLUSTER_DEPLOYMENT).chain(KINDS)
}

/// Kinds that a word names, by kind, plural or short name, alone or with its group (`deployments.apps`), in any letter case.
/// `machinedeployment` alone names two.
pub(crate) fn kinds_named(word: &str) -> Vec<&'static Kind> {
    let word = word.to_ascii_lowercase();
    let (name, rest) = word.split_once('.').unwrap_or((&word, ""));
    kinds()
        .filter(|kind| kind.kind.to_ascii_lowercase() == name || kind.plural == name || kind.short.contains(&name))
        .filter(|kind| {
            let version = rest.strip_suffix(kind.group).and_then(|version| version.strip_suffix('.'));
            rest.is_empty() || rest == kind.group || version.is_some_and(|version| kind.versions.contains(&version))
        })
        .collect()
}

/// `clusterdeployment.hive.openshift.io/demo` or `pod/demo`, as kubectl names objects in its messages.
pub(crate) fn full_name(kind: &Kind, name: &str) -> String {
    if kind.group.is_empty() {
        return format!("{}/{name}", kind.kind.to_ascii_lowercase());
    }
    format!("{}.{}/{name}", kind.kind.to_ascii_lowercase(), kind.group)
}

/// An object that was found.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Its kind and the version under which it was found.
    pub(crate) resource: Resource,
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
    /// The whole object.
    pub(crate) object: Value,
}

impl Target {
    /// From an object as the hub sent it.
    pub(crate) fn new(resource: Resource, object: Value) -> Self {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        Self { resource, namespace: text("/metadata/namespace"), name: text("/metadata/name"), object }
    }

    /// The name for messages.
    pub(crate) fn full_name(&self) -> String {
        full_name(self.resource.kind, &self.name)
    }

    /// Whether it is Hive's.
    pub(crate) fn is_cluster(&self) -> bool {
        self.resource.kind == &CLUSTER_DEPLOYMENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_has_many_names() {
        let groups = |word: &str| -> Vec<_> { kinds_named(word).iter().map(|kind| (kind.group, kind.kind)).collect() };
        let hive = vec![("hive.openshift.io", "ClusterDeployment")];
        let capi = ("cluster.x-k8s.io", "MachineDeployment");
        let kkp = ("cluster.k8s.io", "MachineDeployment");
        for (word, expected) in [
            ("cd", hive.clone()),
            ("clusterdeployment", hive.clone()),
            ("ClusterDeployments", hive.clone()),
            ("clusterdeployment.hive.openshift.io", hive.clone()),
            ("clusterdeployments.v1.hive.openshift.io", hive),
            ("deploy", vec![("apps", "Deployment")]),
            ("deployments.apps", vec![("apps", "Deployment")]),
            ("deployments.v1.apps", vec![("apps", "Deployment")]),
            ("deployments.v1beta1.apps", vec![]),
            ("sts", vec![("apps", "StatefulSet")]),
            ("md", vec![capi, kkp]),
            ("machinedeployment", vec![capi, kkp]),
            ("machinedeployment.cluster.x-k8s.io", vec![capi]),
            ("md.cluster.k8s.io", vec![kkp]),
            ("machinedeployments.v1beta1.cluster.x-k8s.io", vec![capi]),
            ("pod", vec![]),
            ("deploy.", vec![("apps", "Deployment")]),
            ("deploy.x", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(groups(word), expected, "{word}");
        }
    }
}
