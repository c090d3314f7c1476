//! FoundationDB: bringing suspended process groups back, and showing them.

use jiff::Timestamp;
use serde_json::Value;
use shared::{
    fdb::{api::FoundationDBCluster, recover::Facts},
    workload::kinds::Kind,
};

use crate::{
    api::{Hub, Resource, answer::HubError, exec::POD},
    error::Problem,
};

/// The operator's kind.
pub(crate) static FDB_CLUSTER: Kind = Kind {
    group: "apps.foundationdb.org",
    versions: &["v1beta2"],
    kind: "FoundationDBCluster",
    plural: "foundationdbclusters",
    short: &["fdb"],
};
pub(crate) static CLAIM: Kind = Kind {
    group: "",
    versions: &["v1"],
    kind: "PersistentVolumeClaim",
    plural: "persistentvolumeclaims",
    short: &["pvc"],
};
pub(crate) static SERVICE: Kind =
    Kind { group: "", versions: &["v1"], kind: "Service", plural: "services", short: &["svc"] };

pub(crate) fn resource(kind: &'static Kind) -> Resource {
    Resource { kind, version: kind.versions[0] }
}

/// Whether a word names the kind.
pub(crate) fn is_fdb_word(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    let (name, group) = word.split_once('.').unwrap_or((&word, FDB_CLUSTER.group));
    let known = ["fdb", "foundationdbcluster", FDB_CLUSTER.plural].contains(&name);
    known && (group == FDB_CLUSTER.group || group.strip_prefix("v1beta2.") == Some(FDB_CLUSTER.group))
}

/// One look at a cluster and what belongs to it.
pub(crate) struct Look {
    /// As the hub sent it.
    pub(crate) object: Value,
    pub(crate) cluster: FoundationDBCluster,
    pub(crate) claims: Vec<Value>,
    pub(crate) services: Vec<Value>,
    pub(crate) pods: Vec<Value>,
    /// resourceVersion of the list of Pods.
    pub(crate) pods_version: String,
}

impl Look {
    /// Looks. The cluster is read first: what is written later is tested against that version.
    pub(crate) async fn new(hub: &Hub, namespace: &str, name: &str) -> Result<Self, Problem> {
        let object = hub.get(resource(&FDB_CLUSTER), namespace, name).await?;
        Self::around(hub, namespace, object).await
    }

    /// Looks at what belongs to a cluster that was read.
    pub(crate) async fn around(hub: &Hub, namespace: &str, object: Value) -> Result<Self, Problem> {
        let cluster = read(&object)?;
        let labels: Vec<String> = cluster.match_labels().iter().map(|(key, value)| format!("{key}={value}")).collect();
        let labels = labels.join(",");
        let list = |kind| hub.list(resource(kind), Some(namespace), "", &labels);
        let (claims, services, pods) = tokio::try_join!(list(&CLAIM), list(&SERVICE), list(&POD))?;
        Ok(Self {
            object,
            cluster,
            claims: claims.items,
            services: services.items,
            pods: pods.items,
            pods_version: pods.version,
        })
    }

    pub(crate) fn facts(&self) -> Facts<'_> {
        Facts {
            cluster: &self.cluster,
            claims: &self.claims,
            services: &self.services,
            pods: &self.pods,
            now: Timestamp::now(),
        }
    }
}

pub(crate) fn read(object: &Value) -> Result<FoundationDBCluster, Problem> {
    serde_json::from_value(object.clone()).map_err(Problem::Unreadable)
}

/// The clusters of a namespace or of all. None where the operator is not installed.
pub(crate) async fn clusters(hub: &Hub, namespace: Option<&str>, labels: &str) -> Result<Vec<Value>, HubError> {
    Ok(hub.list(resource(&FDB_CLUSTER), namespace, "", labels).await?.items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_has_its_names() {
        for word in [
            "fdb",
            "FDB",
            "foundationdbcluster",
            "foundationdbclusters.apps.foundationdb.org",
            "fdb.v1beta2.apps.foundationdb.org",
        ] {
            assert!(is_fdb_word(word), "{word}");
        }
        for word in ["fdbs", "cd", "fdb.example.com", ""] {
            assert!(!is_fdb_word(word), "{word}");
        }
    }
}
