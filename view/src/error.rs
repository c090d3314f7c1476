//! Why an object is not shown.

use std::fmt;
use std::sync::Arc;

use hub::error::HubError;
use shared::kinds::{Key, Kind, TargetError};

/// Why an object was not found, or cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    #[error("{what} not found{}{hint}", in_namespace(namespace.as_deref()))]
    NotFound { what: String, namespace: Option<String>, hint: String },
    #[error("{name:?} is the name of several targets: {}; say which", candidates.join(", "))]
    Ambiguous { name: String, candidates: Vec<String> },
    #[error("the hub does not have the type {0}")]
    NoKind(String),
    /// What belongs to the object cannot be read.
    #[error("{object}: {source}")]
    Related { object: String, source: Box<HubError> },
    /// The clusters of the hub, which every pool needs.
    #[error("{0}")]
    Clusters(Arc<HubError>),
    #[error(transparent)]
    Hub(#[from] HubError),
    #[error(transparent)]
    Target(#[from] TargetError),
}

/// What is not shown.
#[derive(Debug)]
pub struct Failure {
    /// The object or the kind as messages name it.
    pub what: String,
    pub error: ViewError,
    /// Whether no object of the kind can be read.
    pub is_of_kind: bool,
    /// Whether the user may not list this kind of an operator, in a query for a whole namespace.
    pub is_unseen: bool,
    /// The object, if it is there.
    pub key: Option<Key>,
}

impl ViewError {
    pub(super) fn related(object: String, source: HubError) -> Self {
        Self::Related { object, source: Box::new(source) }
    }

    pub(super) fn unreadable(error: serde_json::Error) -> Self {
        Self::Target(error.into())
    }
}

impl Failure {
    pub(super) fn new(what: String, error: ViewError) -> Self {
        Self { what, error, is_of_kind: false, is_unseen: false, key: None }
    }

    pub(super) fn of_kind(kind: &Kind, error: ViewError) -> Self {
        Self { is_of_kind: true, ..Self::new(kind.resource_name(), error) }
    }

    /// Whether one of these has the same message.
    pub(super) fn is_among<'a>(&self, mut others: impl Iterator<Item = &'a Self>) -> bool {
        let text = self.to_string();
        others.any(|other| other.to_string() == text)
    }

    pub(super) fn unreadable(kind: &Kind, key: Key, error: ViewError) -> Self {
        let what = kind.full_name(&key.2);
        Self { key: Some(key), ..Self::new(what, error) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.error {
            ViewError::Target(error) => write!(f, "{}: {error}", self.what),
            // The others name their object themselves.
            error => write!(f, "{error}"),
        }
    }
}

fn in_namespace(namespace: Option<&str>) -> String {
    namespace.map(|namespace| format!(" in namespace {namespace:?}")).unwrap_or_default()
}
