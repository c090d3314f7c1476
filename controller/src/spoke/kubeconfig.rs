//! The Secret with a `ClusterDeployment`'s administrator kubeconfig. It is read one by one, never watched.

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt};
use shared::hive::api::ClusterDeployment;
use shared::spoke::SpokeError;

use super::reader::Whose;

/// The administrator's kubeconfig and the version of its Secret.
///
/// # Errors
/// [`SpokeError::Kubeconfig`] if the Secret or its key is missing, [`SpokeError::Failed`] if it cannot be read.
pub async fn read(client: &Client, cluster: &ClusterDeployment) -> Result<(Vec<u8>, Option<String>), SpokeError> {
    let name = secret_name(cluster).ok_or_else(|| {
        SpokeError::Kubeconfig("spec.clusterMetadata.adminKubeconfigSecretRef.name is missing".to_owned())
    })?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &cluster.namespace().unwrap_or_default());
    let secret = secrets.get(name).await.map_err(|error| match error {
        kube::Error::Api(status) if status.is_not_found() => {
            SpokeError::Kubeconfig(in_secret(cluster, "does not exist"))
        }
        other => SpokeError::Failed(in_secret(cluster, &format!("cannot be read: {other}"))),
    })?;
    let version = secret.resource_version();
    let kubeconfig = secret.data.and_then(|mut data| data.remove("kubeconfig"));
    let kubeconfig = kubeconfig.ok_or_else(|| SpokeError::Kubeconfig(in_secret(cluster, "has no key kubeconfig")))?;
    if kubeconfig.0.is_empty() {
        return Err(SpokeError::Kubeconfig(in_secret(cluster, "the key kubeconfig is empty")));
    }
    Ok((kubeconfig.0, version))
}

/// Whose spoke a cluster is: of its namespace.
pub fn whose(cluster: &ClusterDeployment) -> Whose {
    Whose::new(&cluster.namespace().unwrap_or_default(), cluster.name_any())
}

fn secret_name(cluster: &ClusterDeployment) -> Option<&str> {
    let metadata = cluster.spec.cluster_metadata.as_ref()?;
    Some(metadata.admin_kubeconfig_secret_ref.name.as_str()).filter(|name| !name.is_empty())
}

/// The reason with the name of the Secret in front.
pub fn in_secret(cluster: &ClusterDeployment, why: &str) -> String {
    format!("Secret {}/{}: {why}", cluster.namespace().unwrap_or_default(), secret_name(cluster).unwrap_or_default())
}
