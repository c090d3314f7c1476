//! The object beside a target that holds the record of a long operation: read with every target that may have one.

use hub::error::HubError;
use hub::{HubClient, Resource, is_name, is_namespace};
use serde_json::Value;
use shared::kinds::{Companion, TargetKind};

/// What lies beside a target.
#[derive(Clone, Debug)]
pub enum Beside {
    /// Its kind has no companion, or nothing shows that there is one.
    Nothing,
    /// There is none.
    Missing,
    /// The companion.
    Found(Value),
    /// It could not be read, and why.
    Unread(String),
}

/// Reads what lies beside an object, and puts a newer request there onto the object.
pub async fn attach(hub: &HubClient, row: &'static TargetKind, object: &mut Value) -> Beside {
    let Some(companion) = row.companion.filter(|companion| companion.is_expected(object)) else {
        return Beside::Nothing;
    };
    match get(hub, companion, object).await {
        Ok(Some(found)) => {
            companion.overlay(object, &found);
            Beside::Found(found)
        }
        Ok(None) => Beside::Missing,
        Err(error) => Beside::Unread(error.to_string()),
    }
}

/// The companion of an object; none if there is none.
///
/// # Errors
/// When the hub does not answer, or refuses to.
pub async fn get(
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
