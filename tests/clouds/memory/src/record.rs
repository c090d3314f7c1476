//! The durable record, as it is stored.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shared::cloud::ClusterRef;

/// What existed, and how far its sleep is. Everything that decides about a delete is in here before the delete is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Record {
    /// Version of the format.
    version: u32,
    /// Namespace and name of the cluster.
    cluster: String,
    /// The cluster's infraID.
    pub infra_id: String,
    /// Whether every machine has its image. Only then may one be given up.
    pub sealed: bool,
    /// By name, which outlives servers.
    pub machines: BTreeMap<String, Machine>,
}

/// One machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Machine {
    /// ID of the server that it was when its sleep began.
    pub server: String,
    /// Marks its image, and the server that is made of it. Another one each time the server may have run since.
    pub cycle: String,
    /// Its image, once the record is sealed.
    pub image: Option<String>,
    /// Whether its server may be deleted, and must never run again.
    pub given_up: bool,
}

/// Version of the format.
const VERSION: u32 = 1;

impl Record {
    /// An empty record of a cluster.
    pub fn new(cluster: &ClusterRef) -> Self {
        let name = format!("{}/{}", cluster.namespace, cluster.name);
        Self {
            version: VERSION,
            cluster: name,
            infra_id: cluster.infra_id.clone(),
            sealed: false,
            machines: BTreeMap::new(),
        }
    }

    /// Reads a stored record.
    ///
    /// # Errors
    /// When it is not one of this version.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let record: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if record.version == VERSION { Ok(record) } else { Err(format!("version {} is not known", record.version)) }
    }

    /// Whether it is this cluster's.
    pub fn is_of(&self, cluster: &ClusterRef) -> bool {
        self.cluster == format!("{}/{}", cluster.namespace, cluster.name) && self.infra_id == cluster.infra_id
    }

    /// As it is stored.
    ///
    /// # Errors
    /// Never, for these types.
    pub fn bytes(&self) -> Result<Vec<u8>, String> {
        serde_json::to_vec(self).map_err(|error| error.to_string())
    }
}
