//! Names that several objects must agree on.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
pub use shared::annotation::keys::NAMESPACE;

/// The controller: its Deployment, `ServiceAccount`, image, Service and Lease.
pub const CONTROLLER: &str = shared::annotation::keys::CONTROLLER;
/// The webhook: its Deployment, `ServiceAccount`, image, Service and both configurations.
pub const WEBHOOK: &str = shared::annotation::keys::WEBHOOK;

/// The resource of rollouts.
pub(crate) const ROLLOUTS: &str = "powerrollouts";

/// The label with the version of an object.
pub(crate) const VERSION: &str = "app.kubernetes.io/version";

/// Labels of every object that belongs to one program.
pub fn labels(program: &str) -> BTreeMap<String, String> {
    [("app.kubernetes.io/name", program), ("app.kubernetes.io/part-of", shared::annotation::keys::PLUGIN)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

/// The same of an object whose version matters to clients: `kubectl hibernate check` compares it.
pub(crate) fn versioned(program: &str) -> BTreeMap<String, String> {
    let mut labels = labels(program);
    labels.insert(VERSION.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    labels
}

/// Metadata of an object of a program that lives in no namespace.
pub(crate) fn cluster_wide(name: &str, program: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), labels: Some(labels(program)), ..ObjectMeta::default() }
}
