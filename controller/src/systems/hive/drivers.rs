//! Which driver works on which target: credentials are read Secret by Secret, when a target needs them.
//!
//! No cloud is named here: what is a platform's own comes with its registration.

use std::sync::Arc;

use cloud_common::Process;
use kube::ResourceExt;
use shared::annotation::keys;
use shared::cloud::{AwsRole, CloudError, CloudErrorKind, ClusterRef, Driver, PlatformSpec, Target};
use shared::hive::api::{ClusterDeployment, LocalReference};

use crate::cloud::{Cloud, read_all, versions};
use crate::cloud_registry::{CloudFlags, PLATFORMS, api_call, clouds};
use crate::ledger::SecretLedger;
use crate::metrics::Metrics;
use crate::runtime::Hub;

/// The platform of a cluster that we serve, for labels of metrics.
fn platform(cluster: &ClusterDeployment) -> &'static str {
    let name = cluster.spec.platform.name();
    PLATFORMS.iter().find(|platform| **platform == name).copied().unwrap_or("none")
}

/// Counts a call to the cloud of a cluster.
pub fn called<T>(metrics: &Metrics, cluster: &ClusterDeployment, call: &'static str, result: &Result<T, CloudError>) {
    let cloud = platform(cluster);
    let result = result.as_ref().map_or_else(|error| error.kind.into(), |_| "ok");
    metrics.called(cloud, call, result, api_call(cloud, call));
}

/// The drivers at work, on every platform.
pub struct Drivers {
    pub(super) hub: Hub,
    pub(super) clouds: Vec<Box<dyn Cloud>>,
}

impl Drivers {
    /// Reads Secrets of this hub.
    pub fn new(hub: Hub, flags: &CloudFlags, process: &Process) -> Self {
        Self { hub, clouds: clouds(flags, process) }
    }

    fn cloud(&self, cluster: &ClusterDeployment) -> Result<&dyn Cloud, CloudError> {
        let name = cluster.spec.platform.name();
        let cloud = self.clouds.iter().find(|cloud| cloud.name() == name).map(|cloud| &**cloud);
        cloud.ok_or_else(|| invalid(format!("platform {name} has no driver")))
    }

    /// The driver for a cluster, and the cluster as its platform knows it, with its durable record.
    ///
    /// # Errors
    /// When the cluster does not say what or where its machines are, no driver serves its platform, or its Secret is
    /// missing or refused.
    pub async fn of(&self, cluster: &ClusterDeployment) -> Result<(Arc<dyn Driver>, Target), CloudError> {
        let found = cluster_ref(cluster);
        if found.infra_id.is_empty() {
            let field = if cluster.spec.cluster_metadata.is_some() { ".infraID" } else { "" };
            let field = format!("spec.clusterMetadata{field}");
            return Err(invalid(format!("{field} is missing: cannot identify the cluster's machines")));
        }
        let driver = self.cloud(cluster)?.driver(&self.hub.client, &found).await?;
        let ledger = SecretLedger::new(&self.hub, cluster, cluster.spec.platform.name());
        Ok((driver, Target { cluster: found, ledger: Arc::new(ledger) }))
    }

    /// The cloud refused what came with the cluster's credentials: they are read again at the next call. Answers their
    /// version.
    pub fn doubt(&self, cluster: &ClusterDeployment) -> Option<String> {
        self.cloud(cluster).ok()?.doubt(&cluster_ref(cluster))
    }

    /// Whether a cluster's credentials have another version than the one that was refused.
    pub async fn are_new(&self, cluster: &ClusterDeployment, refused: &str) -> bool {
        let secrets = self.cloud(cluster).map(|cloud| cloud.secrets_of(&cluster_ref(cluster))).unwrap_or_default();
        let secrets = read_all(&self.hub.client, &secrets).await;
        secrets.is_ok_and(|secrets| versions(&secrets).is_some_and(|version| version != refused))
    }
}

/// A cluster as drivers know it. The schema asks for an infraID, but allows it to be empty.
fn cluster_ref(cluster: &ClusterDeployment) -> ClusterRef {
    let platform = &cluster.spec.platform;
    let (metadata, aws) = (cluster.spec.cluster_metadata.clone().unwrap_or_default(), platform.aws.clone());
    let other = platform.other.get(platform.name()).cloned().unwrap_or_default();
    let name = |secret: Option<LocalReference>| secret.unwrap_or_default().name;
    let credentials = aws.as_ref().map_or(other.credentials_secret_ref, |aws| aws.credentials_secret_ref.clone());
    let part = match platform.name() {
        "aws" => {
            let role = aws.and_then(|aws| aws.credentials_assume_role);
            PlatformSpec::Aws { role: role.map(|role| AwsRole { arn: role.role_arn, external_id: role.external_id }) }
        }
        "azure" => PlatformSpec::Azure {
            cloud_name: other.cloud_name.unwrap_or_default(),
            resource_group: metadata.platform.and_then(|of| of.azure?.resource_group_name).unwrap_or_default(),
        },
        "gcp" => PlatformSpec::Gcp { discard_local_ssd: other.discard_local_ssd_on_hibernate },
        "ibmcloud" => PlatformSpec::Ibm { account: other.account_id.unwrap_or_default() },
        "openstack" => PlatformSpec::OpenStack {
            cloud: other.cloud.unwrap_or_default(),
            certificates: name(other.certificates_secret_ref),
            mode: cluster.annotations().get(keys::OPENSTACK_MODE).cloned(),
            forced: cluster.annotation_is_true(keys::FORCE),
        },
        _ => PlatformSpec::Plain,
    };
    ClusterRef {
        namespace: cluster.namespace().unwrap_or_default(),
        name: cluster.name_any(),
        infra_id: metadata.infra_id,
        desired: cluster.desired(),
        region: platform.region().unwrap_or_default().to_owned(),
        credentials: name(credentials),
        platform: part,
    }
}

fn invalid(message: String) -> CloudError {
    CloudError { kind: CloudErrorKind::Invalid, message }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::power::Power;

    use super::*;

    #[test]
    fn each_platform_gets_its_part_of_the_spec() {
        let role = Some(AwsRole { arn: "a".to_owned(), external_id: Some("x".to_owned()) });
        let text = str::to_owned;
        let azure =
            |cloud_name: &str| PlatformSpec::Azure { cloud_name: text(cloud_name), resource_group: text("own-rg") };
        let openstack = |certificates: &str, cloud: &str| {
            let (cloud, certificates, mode) = (text(cloud), text(certificates), Some(text("shelve")));
            PlatformSpec::OpenStack { cloud, certificates, mode, forced: true }
        };
        let (none, some) = (json!({}), json!({"certificatesSecretRef": {"name": "ca"}, "cloud": "c"}));
        for (name, spec, expected) in [
            ("aws", json!({"credentialsAssumeRole": {"roleARN": "a", "externalID": "x"}}), PlatformSpec::Aws { role }),
            ("aws", none.clone(), PlatformSpec::Aws { role: None }),
            ("azure", json!({"cloudName": "AzureChinaCloud"}), azure("AzureChinaCloud")),
            ("azure", none.clone(), azure("")),
            ("gcp", none.clone(), PlatformSpec::Gcp { discard_local_ssd: None }),
            ("gcp", json!({"discardLocalSsdOnHibernate": false}), PlatformSpec::Gcp { discard_local_ssd: Some(false) }),
            ("ibmcloud", json!({"accountID": "a"}), PlatformSpec::Ibm { account: "a".to_owned() }),
            ("openstack", some, openstack("ca", "c")),
            ("openstack", none.clone(), openstack("", "")),
            ("vsphere", none.clone(), PlatformSpec::Plain),
        ] {
            let mut platform = json!({name: {"region": "r", "credentialsSecretRef": {"name": "creds"}}});
            platform[name].as_object_mut().unwrap().extend(spec.as_object().cloned().unwrap());
            let cluster: ClusterDeployment = serde_json::from_value(json!({
                "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment",
                "metadata": {
                    "name": "demo", "namespace": "ns",
                    "annotations": {"hibernate.sh/openstack-mode": "shelve", "hibernate.sh/force": "true"},
                },
                "spec": {
                    "baseDomain": "b", "clusterName": "demo", "platform": platform, "powerState": "Hibernating",
                    "clusterMetadata": {
                        "clusterID": "c", "infraID": "demo-1", "adminKubeconfigSecretRef": {"name": "k"},
                        "platform": {"azure": {"resourceGroupName": "own-rg"}},
                    },
                },
            }))
            .unwrap();
            let found = cluster_ref(&cluster);
            assert_eq!(
                (found.namespace.as_str(), found.name.as_str(), found.infra_id.as_str()),
                ("ns", "demo", "demo-1")
            );
            assert_eq!((found.region.as_str(), found.credentials.as_str()), ("r", "creds"));
            assert_eq!((found.desired, found.platform), (Power::Hibernating, expected), "{name}");
        }
    }
}
