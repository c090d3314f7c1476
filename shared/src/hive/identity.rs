//! Whose machines: what a `ClusterDeployment` says its machines are, and which one of several that say the same is
//! acted on.

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;
use kube::ResourceExt;

use crate::hive::api::{ClusterDeployment, FAKE_CLUSTER};

/// Condition `HibernationProgress`, and the first word of the failure in H or R: an older object names the same
/// machines.
pub const IDENTITY_TAKEN: &str = "IdentityTaken";

/// There the resource group finds a cluster's machines, whatever its infraID is.
const AZURE: &str = "azure";

/// What finds a cluster's machines in its cloud. Objects with one identity name the same machines.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity<'a> {
    platform: &'a str,
    region: &'a str,
    /// The infraID; on Azure the resource group in lowercase, because case does not count there.
    name: Cow<'a, str>,
}

impl<'a> Identity<'a> {
    /// The identity of an object, whether it is installed, paused or being deleted: its machines are there until it is
    /// gone. `None` if it names no machines: it has no infraID or, on Azure, no resource group, or is a fake.
    pub fn of(cluster: &'a ClusterDeployment) -> Option<Self> {
        let metadata = cluster.spec.cluster_metadata.as_ref()?;
        let platform = &cluster.spec.platform;
        let name = if platform.name() == AZURE {
            let group = metadata.platform.as_ref()?.azure.as_ref()?.resource_group_name.as_ref()?;
            Cow::Owned(group.to_lowercase())
        } else {
            Cow::Borrowed(metadata.infra_id.as_str())
        };
        let is_fake = cluster.annotation_is_true(FAKE_CLUSTER);
        let names_machines = !metadata.infra_id.is_empty() && !name.is_empty() && !is_fake;
        // There a region takes no part in finding machines: another spelling of it names the same ones.
        let is_global = matches!(platform.name(), AZURE | "gcp" | "openstack");
        let region = platform.region().filter(|_| !is_global).unwrap_or_default();
        names_machines.then(|| Self { platform: platform.name(), region, name })
    }

    /// Whether machines of this identity in another account are other machines: people name resource groups, and each
    /// subscription may have one of that name.
    pub fn is_per_account(&self) -> bool {
        self.platform == AZURE
    }
}

impl fmt::Display for Identity<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { platform, region, name } = self;
        if self.is_per_account() {
            return write!(f, "{platform}, resource group {name}");
        }
        write!(f, "{platform}, {region}, {name}")
    }
}

/// The order of objects with one identity: only the first one is acted on. The UID decides between those of the same
/// second.
pub fn seniority(cluster: &ClusterDeployment) -> (Timestamp, &str) {
    let created = cluster.metadata.creation_timestamp.as_ref().map_or(Timestamp::MAX, |time| time.0);
    (created, cluster.metadata.uid.as_deref().unwrap_or_default())
}

/// An older object with the same identity, as far as the owner of the younger one may see it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Older {
    /// In the same namespace, with this name.
    Here(String),
    /// In another namespace, which may be another tenant's.
    Elsewhere,
}

impl Older {
    /// What the owner of `cluster` may see of `older`.
    pub fn seen_from(cluster: &ClusterDeployment, older: &ClusterDeployment) -> Self {
        if cluster.namespace() == older.namespace() { Self::Here(older.name_any()) } else { Self::Elsewhere }
    }
}

impl fmt::Display for Older {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here(name) => write!(f, "the older ClusterDeployment {name}"),
            Self::Elsewhere => f.write_str("an older ClusterDeployment in another namespace"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cluster(namespace: &str, name: &str, change: &Value) -> ClusterDeployment {
        let mut object = json!({
            "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment",
            "metadata": {
                "name": name, "namespace": namespace, "uid": name, "creationTimestamp": "2026-11-01T00:00:00Z",
            },
            "spec": {
                "baseDomain": "d", "clusterName": name, "installed": true,
                "platform": { "aws": { "region": "us-east-1" } },
                "clusterMetadata": {
                    "clusterID": "c", "infraID": "demo-x7k2p", "adminKubeconfigSecretRef": { "name": "k" },
                },
            },
        });
        json_patch::merge(&mut object, change);
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn which_objects_name_the_same_machines() {
        let own = cluster("a", "own", &json!({}));
        for (case, change, same) in [
            (
                "another account's role: the cloud decides that, not the object",
                json!({ "spec": { "platform": { "aws": { "credentialsAssumeRole": { "roleARN": "arn:r" } } } } }),
                true,
            ),
            ("not installed", json!({ "spec": { "installed": false } }), true),
            ("being deleted", json!({ "metadata": { "deletionTimestamp": "2026-11-02T00:00:00Z" } }), true),
            ("paused", json!({ "metadata": { "annotations": { "hive.openshift.io/reconcile-pause": "true" } } }), true),
            (
                "being relocated",
                json!({ "metadata": { "annotations": { "hive.openshift.io/relocate": "x/Outgoing" } } }),
                true,
            ),
            ("another infraID", json!({ "spec": { "clusterMetadata": { "infraID": "demo-x7k2" } } }), false),
            ("another region", json!({ "spec": { "platform": { "aws": { "region": "us-east-2" } } } }), false),
            (
                "another platform",
                json!({ "spec": { "platform": { "aws": null, "gcp": { "region": "us-east-1" } } } }),
                false,
            ),
            ("a fake", json!({ "metadata": { "annotations": { "hive.openshift.io/fake-cluster": "true" } } }), false),
            ("no infraID", json!({ "spec": { "clusterMetadata": { "infraID": "" } } }), false),
            ("no metadata", json!({ "spec": { "clusterMetadata": null } }), false),
        ] {
            let other = cluster("b", "other", &change);
            assert_eq!(Identity::of(&other) == Identity::of(&own), same, "{case}");
        }
        let on = |platform: &str, region: &str| {
            let metadata = json!({ "platform": { "azure": { "resourceGroupName": "demo-rg" } } });
            let platform = json!({ "aws": null, platform: { "region": region } });
            cluster("a", "own", &json!({ "spec": { "platform": platform, "clusterMetadata": metadata } }))
        };
        for (platform, same) in [("azure", true), ("gcp", true), ("openstack", true), ("ibmcloud", false)] {
            let (a, b) = (on(platform, "a"), on(platform, "b"));
            assert_eq!(Identity::of(&a) == Identity::of(&b), same, "regions of {platform}");
        }
        let nameless = cluster("a", "own", &json!({ "spec": { "clusterMetadata": { "infraID": "" } } }));
        assert_eq!(Identity::of(&nameless), None, "two objects without machines share none");
    }

    #[test]
    fn on_azure_the_resource_group_names_the_machines_whatever_the_infra_id() {
        let on = |infra_id: &str, group: &str| {
            let metadata = json!({ "infraID": infra_id, "platform": { "azure": { "resourceGroupName": group } } });
            let platform = json!({ "aws": null, "azure": { "region": "r" } });
            cluster("a", "own", &json!({ "spec": { "platform": platform, "clusterMetadata": metadata } }))
        };
        let own = on("demo-x7k2p", "Demo-RG");
        for (infra_id, group, same) in [("other-b3m9q", "demo-rg", true), ("demo-x7k2p", "other-rg", false)] {
            assert_eq!(Identity::of(&on(infra_id, group)) == Identity::of(&own), same, "{infra_id} {group}");
        }
        for (infra_id, group) in [("demo-x7k2p", ""), ("", "demo-rg")] {
            assert_eq!(Identity::of(&on(infra_id, group)), None, "no machine is found by it");
        }
        assert_eq!(Identity::of(&own).unwrap().to_string(), "azure, resource group demo-rg");
    }

    #[test]
    fn the_oldest_comes_first_and_the_uid_decides_within_a_second() {
        let created = |name: &str, at: Value| cluster("a", name, &json!({ "metadata": { "creationTimestamp": at } }));
        let (early, late) = (json!("2026-11-01T00:00:00Z"), json!("2026-11-01T00:00:01Z"));
        for (first, second) in [
            (created("z", early.clone()), created("a", late)),
            (created("a", early.clone()), created("b", early.clone())),
            (created("z", early), created("a", Value::Null)),
        ] {
            assert!(seniority(&first) < seniority(&second), "{first:?} {second:?}");
        }
    }

    #[test]
    fn an_older_object_is_named_in_its_own_namespace_only() {
        let (own, here, there) =
            (cluster("a", "own", &json!({})), cluster("a", "old", &json!({})), cluster("b", "secret", &json!({})));
        assert_eq!(Older::seen_from(&own, &here).to_string(), "the older ClusterDeployment old");
        assert_eq!(Older::seen_from(&own, &there).to_string(), "an older ClusterDeployment in another namespace");
    }
}
