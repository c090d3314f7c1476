//! The durable record, as it is stored.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shared::cloud::ClusterRef;
use shared::record::Format;

/// What existed, and how far its sleep is. Everything that decides about a delete is in here before the delete is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
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
#[serde(rename_all = "camelCase")]
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

impl Format for Record {
    // As the Secret that holds it.
    const MAX_BYTES: usize = 900 * 1024;
}

impl Record {
    /// An empty record of a cluster.
    pub fn new(cluster: &ClusterRef) -> Self {
        let name = format!("{}/{}", cluster.namespace, cluster.name);
        Self { cluster: name, infra_id: cluster.infra_id.clone(), sealed: false, machines: BTreeMap::new() }
    }

    /// Whether it is this cluster's.
    pub fn is_of(&self, cluster: &ClusterRef) -> bool {
        self.cluster == format!("{}/{}", cluster.namespace, cluster.name) && self.infra_id == cluster.infra_id
    }
}
