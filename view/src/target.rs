//! A target that was found.

use std::collections::BTreeMap;

use hub::error::HubError;
use hub::{HubClient, Resource, is_name, is_namespace};
use serde::Serialize;
use serde_json::Value;
use shared::kinds::confirmation::Preflight;
use shared::kinds::{Change, Companion, Record, TargetError, TargetKind};
use shared::object::{name_of, text};

use super::error::ViewError;

/// An object on the hub that can be put to sleep.
#[derive(Clone, Debug)]
pub struct Target {
    pub row: &'static TargetKind,
    /// The kind in the version under which it was found.
    pub resource: Resource,
    /// Empty if the kind has none.
    pub namespace: String,
    pub name: String,
    /// The whole object, with the request of its companion if that is newer.
    pub object: Value,
    pub companion: CompanionState,
}

/// The object that holds the record of a target's long operation.
#[derive(Clone, Debug)]
pub enum CompanionState {
    /// The kind has none, or nothing shows that there is one.
    NotExpected,
    /// There is none.
    Missing,
    Found(Value),
    /// It could not be read, and why.
    Unreadable(String),
}

/// What `status` shows of a target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TargetState {
    #[serde(skip)]
    pub row: &'static TargetKind,
    #[serde(flatten)]
    pub record: Record,
    #[serde(skip)]
    pub labels: BTreeMap<String, String>,
    /// Why the record is without what the companion says.
    #[serde(skip)]
    pub companion_error: Option<String>,
    /// The kind in the version under which it was found.
    #[serde(skip)]
    pub(super) resource: Resource,
}

impl Target {
    /// From an object as the hub sent it.
    pub fn new(row: &'static TargetKind, version: &'static str, object: Value) -> Self {
        let text = |path| text(&object, path).to_owned();
        let resource = Resource::new(&row.kind, version);
        Self {
            row,
            resource,
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
            object,
            companion: CompanionState::NotExpected,
        }
    }

    /// The same target with its companion, and with the request there if that is newer.
    pub async fn complete(mut self, hub: &HubClient) -> Self {
        let companion = self.row.companion.filter(|companion| companion.is_expected(&self.object));
        let Some(companion) = companion else { return self };
        self.companion = match get_companion(hub, companion, &self.object).await {
            Ok(Some(found)) => {
                companion.overlay(&mut self.object, &found);
                CompanionState::Found(found)
            }
            Ok(None) => CompanionState::Missing,
            Err(error) => CompanionState::Unreadable(error.to_string()),
        };
        self
    }

    /// The same target as it is now. `labels`: the selector that found it, empty for none.
    ///
    /// # Errors
    /// When it cannot be read, is another object of the same name, or is not selected any more.
    pub async fn read_again(&self, hub: &HubClient, labels: &str) -> Result<Self, ViewError> {
        let get = hub.get(self.resource, &self.namespace, &self.name);
        let object = if labels.is_empty() {
            get.await?
        } else {
            // The API server knows every form of a selector.
            let named = format!("metadata.name={}", self.name);
            let found = hub.list(self.resource, Some(&self.namespace), &named, labels).await?;
            match found.items.into_iter().find(|object| name_of(object) == self.name) {
                Some(object) => object,
                None => return Err(self.moved(&get.await?, labels).into()),
            }
        };
        if self.is_same(&object) {
            return Ok(Self::new(self.row, self.resource.version, object).complete(hub).await);
        }
        Err(self.moved(&object, labels).into())
    }

    /// Whether this is still the object, and not another one of its name.
    fn is_same(&self, object: &Value) -> bool {
        text(object, "/metadata/uid") == text(&self.object, "/metadata/uid")
    }

    /// Why an object of its name is not the target that was selected.
    fn moved(&self, object: &Value, labels: &str) -> TargetError {
        let why = if self.is_same(object) {
            format!("its labels have changed, and -l {labels} does not select it any more")
        } else {
            "it was deleted and created again (another metadata.uid) since it was selected".to_owned()
        };
        TargetError::Impossible(format!("{why}: nothing was written to it"))
    }

    /// What `status` shows of it, as a record.
    ///
    /// # Errors
    /// When the object does not match its schema.
    pub fn record(&self) -> Result<Record, TargetError> {
        let record = self.row.record(&self.object)?;
        Ok(match (self.row.companion, &self.companion) {
            (Some(companion), CompanionState::Found(found)) => companion.describe(&self.object, Some(found), record),
            (Some(companion), CompanionState::Missing) => companion.describe(&self.object, None, record),
            _ => record,
        })
    }

    /// The same with what is needed to show it.
    ///
    /// # Errors
    /// When the object does not match its schema.
    pub fn state(&self) -> Result<TargetState, TargetError> {
        let unreadable = if let CompanionState::Unreadable(why) = &self.companion { Some(why.clone()) } else { None };
        let labels = self.object.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
        let label = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
        Ok(TargetState {
            row: self.row,
            record: self.record()?,
            labels: labels.filter_map(label).collect(),
            companion_error: unreadable,
            resource: self.resource,
        })
    }

    /// How this change is confirmed, if it is a sleep that needs it.
    pub fn confirmation(&self, change: &Change) -> Option<&'static dyn Preflight> {
        let Change::Patch { patch, .. } = change else { return None };
        self.row.plan?.preflight.filter(|preflight| preflight.confirms(patch))
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

impl TargetState {
    /// The whole object as it is now.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn object(&self, hub: &HubClient) -> Result<Value, HubError> {
        hub.get(self.resource, &self.record.namespace, &self.record.name).await
    }
}

/// ` (namespace shop)`; empty for an object without a namespace.
pub fn place(namespace: &str) -> String {
    if namespace.is_empty() { String::new() } else { format!(" (namespace {namespace})") }
}

/// The companion of an object; none if there is none.
///
/// # Errors
/// When the hub does not answer, or refuses to.
pub async fn get_companion(
    hub: &HubClient,
    companion: &'static dyn Companion,
    object: &Value,
) -> Result<Option<Value>, HubError> {
    let (namespace, name) = companion.place(object);
    // Only what can be a name goes into a URL.
    if !is_namespace(&namespace) || !is_name(&name) {
        return Ok(None);
    }
    match hub.get(Resource::preferred(companion.kind()), &namespace, &name).await {
        Ok(found) => Ok(Some(found)),
        Err(HubError::NoObject { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
