//! What the rules read of an object that is being deleted.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::admission::{Unread, metadata};
use crate::annotation::Annotations;
use crate::fdb::api;
use crate::object::group_of;
use crate::read::lenient_types;

/// Which kind of object is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A volume.
    Pvc,
    /// An address.
    Service,
}

impl Kind {
    /// As kubectl names the resource.
    pub fn resource(self) -> &'static str {
        match self {
            Self::Pvc => "pvc",
            Self::Service => "service",
        }
    }
}

/// A PVC or Service that is being deleted, as `oldObject` holds it.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Deleted {
    /// Metadata; the rules read nothing else.
    #[serde(deserialize_with = "metadata")]
    pub metadata: Metadata,
    /// What cannot be read of it.
    #[serde(skip)]
    pub unread: Vec<Unread>,
}

lenient_types! {
    /// Its metadata.
    Metadata {
        /// Name.
        name: String,
        /// Namespace.
        namespace: String,
        /// What distinguishes it from a later object of the same name, and from a copy.
        uid: String,
        /// Annotations of ours.
        annotations: Annotations,
        /// Labels: which of them tell the process group and its class is the cluster's to say.
        labels: Option<BTreeMap<String, String>>,
        /// Owners.
        owner_references: Option<Vec<Owner>>,
        /// Set once it is being deleted.
        deletion_timestamp: Option<IgnoredAny>,
    }
}

/// One of its owners.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Owner {
    /// API group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// What distinguishes it from a later object of the same name.
    pub uid: String,
}

impl Deleted {
    /// Whether its owners cannot all be read.
    pub fn hides_its_owners(&self) -> bool {
        self.unread.iter().any(|field| field.concerns(&["metadata", "ownerReferences"]))
    }

    /// Its owners that are `FoundationDBClusters`, of any version.
    pub fn owners(&self) -> impl Iterator<Item = &Owner> {
        let owners = self.metadata.owner_references.as_deref().unwrap_or_default();
        owners.iter().filter(|owner| owner.kind == api::KIND && group_of(&owner.api_version) == api::GROUP)
    }

    /// Value of the first of these labels that it has.
    pub fn label(&self, names: &[String]) -> Option<&str> {
        let labels = self.metadata.labels.as_ref()?;
        names.iter().find_map(|name| labels.get(name)).map(String::as_str)
    }
}
