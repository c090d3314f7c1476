//! The Secret with the administrator kubeconfig of a spoke. It is read one by one, never watched.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt};
use server::hub;
use shared::hive::api::ClusterDeployment;
use shared::spoke::SpokeError;

use fair::Consumer;

/// The administrator's kubeconfig and the version of its Secret.
///
/// # Errors
/// [`SpokeError::Kubeconfig`] if the Secret or its key is missing, [`SpokeError::Failed`] if it cannot be read.
pub async fn read(client: &Client, cluster: &ClusterDeployment) -> Result<(Vec<u8>, Option<String>), SpokeError> {
    let name = secret_name(cluster).ok_or_else(|| {
        SpokeError::Kubeconfig("spec.clusterMetadata.adminKubeconfigSecretRef.name is missing".to_owned())
    })?;
    read_secret(client, &cluster.namespace().unwrap_or_default(), name).await
}

/// The same of a Secret by its name.
///
/// # Errors
/// As [`read`].
pub async fn read_secret(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<(Vec<u8>, Option<String>), SpokeError> {
    let about = |why: &str| format!("Secret {namespace}/{name}: {why}");
    let unusable = |why: &str| SpokeError::Kubeconfig(about(why));
    let secret = hub::get::<Secret>(&Api::namespaced(client.clone(), namespace), name).await;
    let secret = secret.map_err(|error| SpokeError::Failed(about(&format!("cannot be read: {error}"))))?;
    let secret = secret.ok_or_else(|| unusable("does not exist"))?;
    let version = secret.resource_version();
    match secret.data.and_then(|mut data| data.remove("kubeconfig")) {
        None => Err(unusable("has no key kubeconfig")),
        Some(ByteString(kubeconfig)) if kubeconfig.is_empty() => Err(unusable("the key kubeconfig is empty")),
        Some(ByteString(kubeconfig)) => Ok((kubeconfig, version)),
    }
}

/// Who is charged for the spoke of a cluster: its namespace.
pub fn consumer(cluster: &ClusterDeployment) -> Consumer {
    Consumer::new(&cluster.namespace().unwrap_or_default(), cluster.name_any())
}

fn secret_name(cluster: &ClusterDeployment) -> Option<&str> {
    let metadata = cluster.spec.cluster_metadata.as_ref()?;
    Some(metadata.admin_kubeconfig_secret_ref.name.as_str()).filter(|name| !name.is_empty())
}

/// The reason with the name of the Secret in front.
pub fn in_secret(cluster: &ClusterDeployment, why: &str) -> String {
    format!("Secret {}/{}: {why}", cluster.namespace().unwrap_or_default(), secret_name(cluster).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::runtime::testing::MemoryHub;

    /// What is found in place of the Secret, and what is said of it.
    #[tokio::test]
    async fn a_secret_without_a_kubeconfig_is_named_with_what_it_lacks() {
        let cluster: ClusterDeployment = serde_json::from_value(json!({
            "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment",
            "metadata": {"name": "demo", "namespace": "ns"},
            "spec": {
                "baseDomain": "test", "clusterName": "demo", "platform": {"aws": {"region": "r"}},
                "clusterMetadata": {"infraID": "i", "clusterID": "c", "adminKubeconfigSecretRef": {"name": "admin"}},
            },
        }))
        .unwrap();
        for (data, detail) in [
            (None, "Secret ns/admin: does not exist"),
            (Some(json!({})), "Secret ns/admin: has no key kubeconfig"),
            (Some(json!({"raw-kubeconfig": "eA=="})), "Secret ns/admin: has no key kubeconfig"),
            (Some(json!({"kubeconfig": ""})), "Secret ns/admin: the key kubeconfig is empty"),
        ] {
            let hub = holding(data);
            let error = read(&hub.client(), &cluster).await.unwrap_err();
            assert_eq!(error, SpokeError::Kubeconfig(detail.to_owned()));
        }
        let (kubeconfig, _) = read(&holding(Some(json!({"kubeconfig": "eA=="}))).client(), &cluster).await.unwrap();
        assert_eq!(kubeconfig, b"x");
    }

    /// A hub with this Secret, or without it.
    fn holding(data: Option<Value>) -> MemoryHub {
        let hub = MemoryHub::default();
        if let Some(data) = data {
            let metadata = json!({"name": "admin", "namespace": "ns"});
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data});
            hub.put("/api/v1/namespaces/ns/secrets/admin", secret);
        }
        hub
    }
}
