//! Kinds that keep the record of a long operation in an object beside the target. It also takes a request to wake that
//! the target's own system refuses to store.

use std::fmt;

use serde_json::Value;

use super::kind::Kind;
use super::lifecycle::{Intent, TargetError};
use super::record::Record;

/// The object beside a target. Pure: objects in, data out.
pub trait Companion: fmt::Debug + Sync {
    /// Its kind.
    fn kind(&self) -> &'static Kind;

    /// Its namespace and name.
    fn place(&self, target: &Value) -> (String, String);

    /// Whether the target shows that there may be one.
    fn is_expected(&self, target: &Value) -> bool;

    /// Puts the request on the companion in place of the target's own, if it is newer.
    fn overlay(&self, target: &mut Value, companion: &Value);

    /// Adds what the companion holds to what `status` shows; `None` if there is no companion.
    fn describe(&self, target: &Value, companion: Option<&Value>, record: Record) -> Record;

    /// Whether an admission webhook belongs to the target's own system. Such a webhook judges the whole object: its
    /// refusal says nothing about the request.
    fn is_webhook_of_system(&self, name: &str) -> bool;

    /// The JSON merge patch that requests on the companion what the target cannot store.
    ///
    /// # Errors
    /// When no controller could read the request there, or when the target itself must change.
    fn request(&self, target: &Value, companion: &Value, intent: &Intent<'_>) -> Result<Value, TargetError>;
}
