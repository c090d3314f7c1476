//! A target that was found.

use hub::error::HubError;
use hub::{HubClient, Resource, text};
use serde_json::Value;
use shared::kinds::{Change, Confirmation, Record, TargetError, TargetKind};

use crate::read::companion::{self, Beside};

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
    /// The whole object, with the request of its companion if that is newer.
    pub(crate) object: Value,
    /// What lies beside it.
    pub(crate) beside: Beside,
}

impl Target {
    /// From an object as the hub sent it.
    pub(crate) fn new(row: &'static TargetKind, version: &'static str, object: Value) -> Self {
        let text = |path| text(&object, path).to_owned();
        let resource = Resource { kind: &row.kind, version };
        Self {
            row,
            resource,
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
            object,
            beside: Beside::Nothing,
        }
    }

    /// The same target with what lies beside it.
    pub(crate) async fn complete(mut self, hub: &HubClient) -> Self {
        self.beside = companion::attach(hub, self.row, &mut self.object).await;
        self
    }

    /// The same target as it is now.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) async fn read_again(&self, hub: &HubClient) -> Result<Self, HubError> {
        let object = hub.get(self.resource, &self.namespace, &self.name).await?;
        Ok(Self::new(self.row, self.resource.version, object).complete(hub).await)
    }

    /// What `status` shows of it.
    ///
    /// # Errors
    /// When the object does not match its schema.
    pub(crate) fn record(&self) -> Result<Record, TargetError> {
        let record = self.row.record(&self.object)?;
        Ok(match (self.row.companion, &self.beside) {
            (Some(companion), Beside::Found(found)) => companion.describe(&self.object, Some(found), record),
            (Some(companion), Beside::Missing) => companion.describe(&self.object, None, record),
            _ => record,
        })
    }

    /// How this change is confirmed, if it is a sleep that needs it.
    pub(crate) fn confirmation(&self, change: &Change) -> Option<&'static dyn Confirmation> {
        let Change::Patch { patch, .. } = change else { return None };
        self.row.confirmation.filter(|confirmation| confirmation.is_needed(patch))
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
