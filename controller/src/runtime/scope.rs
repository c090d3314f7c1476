//! Kinds whose objects live in namespaces, and kinds whose objects do not.

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::{Api, Client, Resource};

/// How objects of a scope are reached.
pub trait Scoped<K>: Sized {
    /// The API of a namespace, which is empty for kinds without one.
    fn api(client: Client, namespace: &str) -> Api<K>;
}

impl<K: Resource<DynamicType = (), Scope = Self>> Scoped<K> for NamespaceResourceScope {
    fn api(client: Client, namespace: &str) -> Api<K> {
        Api::namespaced(client, namespace)
    }
}

impl<K: Resource<DynamicType = (), Scope = Self>> Scoped<K> for ClusterResourceScope {
    fn api(client: Client, _: &str) -> Api<K> {
        Api::all(client)
    }
}
