//! A whole namespace as the target: `ns/shop`.

use hub::is_namespace;
use shared::annotation::keys;
use view::resolve::NAMESPACE;

use crate::error::UsageError;

/// Namespaces of a hub's control plane.
const CONTROL_PLANE: &[&str] = &["hive", "kubermatic", "multicluster-engine", "openshift", keys::NAMESPACE];
/// How the names of further ones begin.
const PREFIXES: &[&str] = &["kube-", "open-cluster-management", "openshift-"];

/// The namespace that the words name, if they name one: `ns/shop` or `ns shop`.
///
/// # Errors
/// When it is not alone, or its name is none.
pub(super) fn named(words: &[String]) -> Result<Option<String>, UsageError> {
    let slashed = |word: &String| {
        word.split_once('/').filter(|(type_, _)| NAMESPACE.is_named(type_)).map(|(_, name)| name.to_owned())
    };
    let name = match words {
        [word] => slashed(word),
        [type_, name] if NAMESPACE.is_named(type_) => Some(name.clone()),
        [type_, _, _, ..] if NAMESPACE.is_named(type_) => return Err(UsageError::NamespaceAlone(type_.clone())),
        _ => None,
    };
    match name {
        Some(name) if is_namespace(&name) => Ok(Some(name)),
        Some(name) => Err(UsageError::NotAName(name)),
        None => match words.iter().find(|word| slashed(word).is_some()) {
            Some(word) => Err(UsageError::NamespaceAlone(word.clone())),
            None => Ok(None),
        },
    }
}

/// Whether a namespace belongs to a hub's control plane, by its name.
pub(crate) fn is_control_plane(name: &str) -> bool {
    CONTROL_PLANE.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
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
