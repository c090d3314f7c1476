//! The rules, asked before anybody writes: would the sleep of this cluster be denied?

use std::collections::BTreeMap;

use serde::de::IgnoredAny;

use super::cluster::{AzureMetadata, Cluster, ClusterMetadata, PlatformMetadata, PoolReference, Reference, Spec};
use super::judge;
use crate::admission::{Denial, Finding, Meta, Settings, sleep_denial};
use crate::annotation::Annotations;
use crate::hive::api::ClusterDeployment;

/// The denial of the sleep of a cluster that runs: V1 to V8, but for holds. `served`: the
/// platforms whose clusters can be put to sleep.
pub fn refusal(cluster: &ClusterDeployment, served: &[&str]) -> Option<Finding<Denial>> {
    let served_platforms = served.iter().copied().map(str::to_owned).collect();
    let settings = Settings { served_platforms, ..Settings::default() };
    let none = BTreeMap::new();
    let annotations = cluster.metadata.annotations.as_ref().unwrap_or(&none);
    sleep_denial(annotations, &settings, judge, |annotations, asleep| read(cluster, annotations, asleep))
}

/// The cluster as the rules read it, without what none of them denies.
fn read(cluster: &ClusterDeployment, annotations: Annotations, asleep: bool) -> Cluster {
    let (meta, spec) = (&cluster.metadata, &cluster.spec);
    let platform = Some(spec.platform.name()).filter(|name| !name.is_empty());
    Cluster {
        metadata: Meta {
            name: meta.name.clone().unwrap_or_default(),
            namespace: meta.namespace.clone().unwrap_or_default(),
            annotations,
            finalizers: Vec::new(),
            deletion_timestamp: meta.deletion_timestamp.as_ref().map(|_| IgnoredAny),
        },
        spec: Some(Box::new(Spec {
            power_state: Some(if asleep { "Hibernating" } else { "Running" }.to_owned()),
            hibernate_after: spec.hibernate_after.clone(),
            installed: Some(spec.installed),
            platform: Some(platform.map(|name| (name.to_owned(), Some(IgnoredAny))).into_iter().collect()),
            cluster_metadata: spec.cluster_metadata.as_ref().map(|metadata| ClusterMetadata {
                infra_id: Some(metadata.infra_id.clone()),
                admin_kubeconfig_secret_ref: Some(Reference {
                    name: Some(metadata.admin_kubeconfig_secret_ref.name.clone()),
                }),
                platform: metadata.platform.as_ref().map(|platform| PlatformMetadata {
                    azure: platform
                        .azure
                        .as_ref()
                        .map(|azure| AzureMetadata { resource_group_name: azure.resource_group_name.clone() }),
                }),
            }),
            cluster_pool_ref: spec.cluster_pool_ref.as_ref().map(|pool| PoolReference {
                pool_name: Some(pool.pool_name.clone()),
                claim_name: pool.claim_name.clone(),
                claimed_timestamp: pool.claimed_timestamp.as_ref().map(|_| IgnoredAny),
            }),
        })),
        status: None,
    }
}
