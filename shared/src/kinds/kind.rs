//! A kind of Kubernetes object: how it is named, served and scoped.

/// Whether objects of a kind live in namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every object belongs to a namespace.
    Namespaced,
    /// No object belongs to a namespace; a namespace given by flag or kubeconfig is ignored.
    Cluster,
}

/// One kind of object.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// API group, empty for the core group.
    pub group: &'static str,
    /// Versions that a hub may serve, the preferred one first.
    pub versions: &'static [&'static str],
    /// Kind, such as `Deployment`.
    pub kind: &'static str,
    /// Resource in URLs and admission requests, such as `deployments`.
    pub plural: &'static str,
    /// Short names that kubectl knows, the one to suggest first.
    pub short: &'static [&'static str],
    /// Further names that only this project accepts.
    pub aliases: &'static [&'static str],
    /// Whether objects live in namespaces.
    pub scope: Scope,
    /// Whether kind and plural name it only together with the group, because the words alone mean another kind.
    pub is_homonym: bool,
}

impl Kind {
    /// A kind whose objects live in namespaces.
    pub const fn namespaced(
        group: &'static str,
        versions: &'static [&'static str],
        kind: &'static str,
        plural: &'static str,
    ) -> Self {
        Self { group, versions, kind, plural, short: &[], aliases: &[], scope: Scope::Namespaced, is_homonym: false }
    }

    /// A kind whose objects belong to no namespace.
    pub const fn cluster_scoped(
        group: &'static str,
        versions: &'static [&'static str],
        kind: &'static str,
        plural: &'static str,
    ) -> Self {
        Self { scope: Scope::Cluster, ..Self::namespaced(group, versions, kind, plural) }
    }

    /// The same kind with short names.
    pub const fn with_short(self, short: &'static [&'static str]) -> Self {
        Self { short, ..self }
    }

    /// The same kind with further names.
    pub const fn with_aliases(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    /// The same kind, whose kind and plural mean another kind where the group is left out.
    pub const fn as_homonym(self) -> Self {
        Self { is_homonym: true, ..self }
    }

    /// Whether objects live in namespaces.
    pub fn is_namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    /// Whether a word names the kind: by kind, plural, short name or alias, in any letter case, alone, with the group
    /// (`deployments.apps`) or with version and group (`deployments.v1.apps`).
    pub fn is_named(&self, word: &str) -> bool {
        let word = word.to_ascii_lowercase();
        let (name, rest) = word.split_once('.').unwrap_or((&word, ""));
        let is_short = self.short.contains(&name) || self.aliases.contains(&name);
        let is_long = self.kind.eq_ignore_ascii_case(name) || self.plural == name;
        let known = is_short || is_long && !(self.is_homonym && rest.is_empty());
        let version = rest.strip_suffix(self.group).and_then(|version| version.strip_suffix('.'));
        let served = version.is_some_and(|version| self.versions.contains(&version));
        known && (rest.is_empty() || rest == self.group || served)
    }

    /// `deployment.apps` or `pod`: the type as kubectl's messages and our JSON name it.
    pub fn type_name(&self) -> String {
        with_group(&self.kind.to_ascii_lowercase(), self.group)
    }

    /// `deployments.apps` or `pods`: the resource as RBAC and error messages name it.
    pub fn resource_name(&self) -> String {
        with_group(self.plural, self.group)
    }

    /// `deployment.apps/web` or `pod/web`: an object as kubectl's messages name it.
    pub fn full_name(&self, name: &str) -> String {
        format!("{}/{name}", self.type_name())
    }
}

fn with_group(name: &str, group: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_named_as_kubectl_names_them() {
        let pod = Kind::namespaced("", &["v1"], "Pod", "pods");
        assert_eq!(
            (pod.type_name(), pod.resource_name(), pod.full_name("x")),
            ("pod".into(), "pods".into(), "pod/x".into())
        );
        let deployment = Kind::namespaced("apps", &["v1"], "Deployment", "deployments");
        assert_eq!(deployment.resource_name(), "deployments.apps");
        assert_eq!(deployment.full_name("web"), "deployment.apps/web");
    }

    #[test]
    fn only_the_scope_tells_the_two_constructors_apart() {
        let (one, other) = (Kind::namespaced("g", &["v1"], "K", "ks"), Kind::cluster_scoped("g", &["v1"], "K", "ks"));
        assert!(one.is_namespaced() && !other.is_namespaced());
        assert_eq!(Kind { scope: Scope::Namespaced, ..other }, one);
    }
}
