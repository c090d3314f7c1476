//! A target that was found.

use serde_json::Value;
use shared::target::TargetKind;

use crate::api::Resource;

/// An object on the hub that can be put to sleep.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Its row in the table of kinds.
    pub(crate) row: &'static TargetKind,
    /// The kind in the version under which it was found.
    pub(crate) resource: Resource,
    /// Its namespace, empty if the kind has none.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
    /// The whole object.
    pub(crate) object: Value,
}

impl Target {
    /// From an object as the hub sent it.
    pub(crate) fn new(row: &'static TargetKind, version: &'static str, object: Value) -> Self {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let resource = Resource { kind: &row.kind, version };
        Self { row, resource, namespace: text("/metadata/namespace"), name: text("/metadata/name"), object }
    }

    /// The same target as it is now.
    pub(crate) fn with(&self, object: Value) -> Self {
        Self::new(self.row, self.resource.version, object)
    }

    /// The name for messages.
    pub(crate) fn full_name(&self) -> String {
        self.row.kind.full_name(&self.name)
    }

    /// ` (namespace shop)`, for messages about targets of several namespaces; empty if it has none.
    pub(crate) fn place(&self) -> String {
        place(&self.namespace)
    }
}

/// ` (namespace shop)`; empty for an object without a namespace.
pub(crate) fn place(namespace: &str) -> String {
    if namespace.is_empty() { String::new() } else { format!(" (namespace {namespace})") }
}
