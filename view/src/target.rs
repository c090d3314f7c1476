//! A target that was found.

use hub::error::HubError;
use hub::{HubClient, Resource};
use serde::Serialize;
use serde_json::Value;
use shared::kinds::{Change, Confirmation, Record, TargetError, TargetKind};
use shared::object::text;

use super::companion::{self, Beside};

/// An object on the hub that can be put to sleep.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its row in the table of kinds.
    pub row: &'static TargetKind,
    /// The kind in the version under which it was found.
    pub resource: Resource,
    /// Its namespace, empty if the kind has none.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The whole object, with the request of its companion if that is newer.
    pub object: Value,
    /// What lies beside it.
    pub beside: Beside,
}

/// What `status` shows of a target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TargetState {
    /// Its row in the table of kinds.
    #[serde(skip)]
    pub row: &'static TargetKind,
    #[serde(flatten)]
    pub record: Record,
    /// Why the record is without what lies beside the target.
    #[serde(skip)]
    pub unread: Option<String>,
}

impl Target {
    /// From an object as the hub sent it.
    pub fn new(row: &'static TargetKind, version: &'static str, object: Value) -> Self {
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
    pub async fn complete(mut self, hub: &HubClient) -> Self {
        self.beside = companion::attach(hub, self.row, &mut self.object).await;
        self
    }

    /// The same target as it is now.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn read_again(&self, hub: &HubClient) -> Result<Self, HubError> {
        let object = hub.get(self.resource, &self.namespace, &self.name).await?;
        Ok(Self::new(self.row, self.resource.version, object).complete(hub).await)
    }

    /// What `status` shows of it, as a record.
    ///
    /// # Errors
    /// When the object does not match its schema.
    pub fn record(&self) -> Result<Record, TargetError> {
        let record = self.row.record(&self.object)?;
        Ok(match (self.row.companion, &self.beside) {
            (Some(companion), Beside::Found(found)) => companion.describe(&self.object, Some(found), record),
            (Some(companion), Beside::Missing) => companion.describe(&self.object, None, record),
            _ => record,
        })
    }

    /// The same with what is needed to show it.
    ///
    /// # Errors
    /// When the object does not match its schema.
    pub fn state(&self) -> Result<TargetState, TargetError> {
        let unread = if let Beside::Unread(why) = &self.beside { Some(why.clone()) } else { None };
        Ok(TargetState { row: self.row, record: self.record()?, unread })
    }

    /// How this change is confirmed, if it is a sleep that needs it.
    pub fn confirmation(&self, change: &Change) -> Option<&'static dyn Confirmation> {
        let Change::Patch { patch, .. } = change else { return None };
        self.row.confirmation.filter(|confirmation| confirmation.is_needed(patch))
    }

    /// The name for messages.
    pub fn full_name(&self) -> String {
        self.row.kind.full_name(&self.name)
    }

    /// ` (namespace shop)`, for messages about targets of several namespaces; empty if it has none.
    pub fn place(&self) -> String {
        place(&self.namespace)
    }
}

/// ` (namespace shop)`; empty for an object without a namespace.
pub fn place(namespace: &str) -> String {
    if namespace.is_empty() { String::new() } else { format!(" (namespace {namespace})") }
}
