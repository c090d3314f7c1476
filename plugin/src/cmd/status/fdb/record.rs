//! A FoundationDB cluster in the form that `status -o json` documents.

use jiff::Timestamp;
use serde::Serialize;
use shared::fdb::api::Health;

/// One cluster in the form that `-o json` documents. Later versions only add fields.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClusterRecord {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// `yes`, `no` or `unknown`.
    pub(crate) protected: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unprotected_because: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) minimum_suspension: Option<String>,
    /// Whether the operator leaves it alone.
    pub(crate) skipped: bool,
    /// IDs of groups that a recovery has begun with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) recovering: Vec<String>,
    /// As the operator has seen the database last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) health: Option<Health>,
    /// Volumes that are in use and carry a human's key: nothing guards them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) unlocked: Vec<String>,
    /// IDs of groups that are not removed and that the database has excluded: the operator replaces them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) excluded: Vec<String>,
    pub(crate) suspended: Vec<GroupRecord>,
}

/// One suspended process group.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GroupRecord {
    pub(crate) group: String,
    pub(crate) class: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) zone: Option<String>,
    /// When the controller has stamped it; not yet if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<Timestamp>,
    /// When it is released, at the earliest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expires: Option<Timestamp>,
    /// Whether it has been released: the operator deletes it at any moment.
    pub(crate) released: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    pub(crate) claim: String,
    pub(crate) size: String,
}
