//! FoundationDB: bringing suspended process groups back, and showing them.

pub(crate) mod alias;
mod ask;
pub(crate) mod complete;
mod error;
mod late;
mod protect;
pub(crate) mod recover;
mod rights;
mod select;
mod show;
pub(crate) mod status;
mod steps;
mod stop;

use jiff::Timestamp;
use serde_json::Value;
use shared::{
    fdb::{api::FoundationDBCluster, recover::Facts},
    workload::kinds::Kind,
};

pub(crate) use self::error::FdbError;
use crate::{
    error::Problem,
    hub::{Hub, Resource, answer::HubError, exec::POD},
};

/// The operator's kind.
pub(crate) static FDB_CLUSTER: Kind = Kind {
    group: "apps.foundationdb.org",
    versions: &["v1beta2"],
    kind: "FoundationDBCluster",
    plural: "foundationdbclusters",
    short: &["fdb"],
};
static CLAIM: Kind = Kind {
    group: "",
    versions: &["v1"],
    kind: "PersistentVolumeClaim",
    plural: "persistentvolumeclaims",
    short: &["pvc"],
};
static SERVICE: Kind = Kind { group: "", versions: &["v1"], kind: "Service", plural: "services", short: &["svc"] };

fn resource(kind: &'static Kind) -> Resource {
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
struct Look {
    /// As the hub sent it.
    object: Value,
    cluster: FoundationDBCluster,
    claims: Vec<Value>,
    services: Vec<Value>,
    pods: Vec<Value>,
    /// resourceVersion of the list of Pods.
    pods_version: String,
}

impl Look {
    /// Looks. The cluster is read first: what is written later is tested against that version.
    async fn new(hub: &Hub, namespace: &str, name: &str) -> Result<Self, Problem> {
        let object = hub.get(resource(&FDB_CLUSTER), namespace, name).await?;
        Self::around(hub, namespace, object).await
    }

    /// Looks at what belongs to a cluster that was read.
    async fn around(hub: &Hub, namespace: &str, object: Value) -> Result<Self, Problem> {
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

    fn facts(&self) -> Facts<'_> {
        Facts {
            cluster: &self.cluster,
            claims: &self.claims,
            services: &self.services,
            pods: &self.pods,
            now: Timestamp::now(),
        }
    }
}

fn read(object: &Value) -> Result<FoundationDBCluster, Problem> {
    serde_json::from_value(object.clone()).map_err(Problem::Unreadable)
}

/// The clusters of a namespace or of all. None where the operator is not installed.
async fn clusters(hub: &Hub, namespace: Option<&str>, labels: &str) -> Result<Vec<Value>, HubError> {
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
