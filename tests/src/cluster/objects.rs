//! What Hive leaves on a hub for an installed cluster.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use shared::annotation::format;

use super::{ClusterInfo, ClusterOptions, Platform};
use crate::kubeconfig::base64;
use crate::simulated::group;

/// The entry of `clouds.yaml`.
pub const CLOUD: &str = "openstack";

/// What the Secrets hold.
#[derive(Clone, Debug)]
pub struct Credentials<'a> {
    /// AWS secret access key.
    pub secret_access_key: &'a str,
    /// Key and value of the Secret of a cluster that is not on AWS.
    pub cloud: Option<(&'a str, &'a str)>,
    /// The administrator's kubeconfig.
    pub kubeconfig: &'a str,
}

/// A moment some days ago, RFC 3339, as Kubernetes writes it.
pub fn days_ago(days: i64) -> String {
    format::seconds(Timestamp::now() - SignedDuration::from_hours(24 * days))
}

/// Namespace and Secrets.
pub fn surroundings(cluster: &ClusterInfo, credentials: &Credentials<'_>) -> Vec<Value> {
    let secret = |suffix: &str, type_: &str, data: Value| {
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": format!("{}-{suffix}", cluster.name),
                "namespace": cluster.namespace,
                "labels": {
                    "hive.openshift.io/cluster-deployment-name": cluster.name,
                    "hive.openshift.io/secret-type": type_,
                },
            },
            "type": "Opaque",
            "data": data,
        })
    };
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": cluster.namespace}}),
        match credentials.cloud {
            Some((key, value)) => secret("cloud-creds", "provider", json!({key: base64(value)})),
            None => secret(
                "aws-creds",
                "provider",
                json!({
                    "aws_access_key_id": base64(&cluster.access_key_id),
                    "aws_secret_access_key": base64(credentials.secret_access_key),
                }),
            ),
        },
        secret(
            "admin-kubeconfig",
            "kubeconfig",
            json!({
                "kubeconfig": base64(credentials.kubeconfig),
                "raw-kubeconfig": base64(credentials.kubeconfig),
            }),
        ),
        secret(
            "admin-password",
            "kubeadmincreds",
            json!({
                "username": base64("kubeadmin"),
                "password": base64("not-a-password"),
            }),
        ),
        secret("pull-secret", "pull-secret", json!({".dockerconfigjson": base64("{\"auths\":{}}")})),
    ]
}

/// The `ClusterDeployment`, without its status.
pub fn cluster_deployment(cluster: &ClusterInfo, options: &ClusterOptions) -> Value {
    let name = &cluster.name;
    let reference = |suffix: &str| json!({"name": format!("{name}-{suffix}")});
    let mut object = json!({
        "apiVersion": "hive.openshift.io/v1",
        "kind": "ClusterDeployment",
        "metadata": {
            "name": name,
            "namespace": cluster.namespace,
            "labels": {
                "hive.openshift.io/cluster-platform": <&str>::from(options.platform),
                "hive.openshift.io/cluster-region": cluster.region,
                "hive.openshift.io/version": "4.20.8",
                "hive.openshift.io/version-major": "4",
                "hive.openshift.io/version-major-minor": "4.20",
                "hive.openshift.io/version-major-minor-patch": "4.20.8",
            },
            "annotations": {},
        },
        "spec": {
            "baseDomain": "testbed.example.com",
            "clusterName": name,
            "controlPlaneConfig": {"servingCertificates": {}},
            "installed": true,
            "clusterMetadata": {
                "clusterID": uuid(&cluster.infra_id),
                "infraID": cluster.infra_id,
                "adminKubeconfigSecretRef": reference("admin-kubeconfig"),
                "adminPasswordSecretRef": reference("admin-password"),
            },
            "platform": platform(cluster, options.platform),
            "provisioning": {
                "imageSetRef": {"name": "openshift-v4.20.8"},
                "installConfigSecretRef": reference("install-config"),
            },
            "pullSecretRef": reference("pull-secret"),
        },
    });
    for (place, entries) in [("labels", &options.labels), ("annotations", &options.annotations)] {
        for (key, value) in entries {
            object["metadata"][place][key] = json!(value);
        }
    }
    if options.platform == Platform::Azure {
        let group = json!({"azure": {"resourceGroupName": group(&cluster.infra_id)}});
        object["spec"]["clusterMetadata"]["platform"] = group;
    }
    json_patch::merge(&mut object, &options.patch);
    object
}

/// `spec.platform`.
fn platform(cluster: &ClusterInfo, platform: Platform) -> Value {
    let suffix = if platform == Platform::Aws { "aws" } else { "cloud" };
    let mut spec = json!({"credentialsSecretRef": {"name": format!("{}-{suffix}-creds", cluster.name)}});
    match platform {
        Platform::Aws => spec["region"] = json!(cluster.region),
        Platform::OpenStack => spec["cloud"] = json!(CLOUD),
        Platform::Gcp => spec["region"] = json!("us-east1"),
        Platform::Azure => spec["region"] = json!("eastus"),
        Platform::IbmCloud => spec["region"] = json!("eu-de"),
    }
    json!({<&str>::from(platform): spec})
}

/// The status of a cluster that was installed three days ago and that no hibernation controller has reconciled yet.
pub fn status(cluster: &ClusterInfo, options: &ClusterOptions) -> Value {
    let installed = days_ago(3);
    let condition = |type_: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": type_, "status": status, "reason": reason, "message": message,
            "lastProbeTime": installed, "lastTransitionTime": installed,
        })
    };
    let mut conditions = vec![
        condition("Provisioned", "True", "Provisioned", "Cluster is provisioned"),
        condition("RequirementsMet", "True", "AllRequirementsMet", "All pre-provision requirements met"),
        condition("Unreachable", "False", "ClusterReachable", "cluster is reachable"),
        condition("ProvisionFailed", "False", "InitializedProvisionFailed", "Provision succeeded"),
        condition("SyncSetFailed", "False", "SyncSetApplySuccess", "SyncSet apply is successful"),
    ];
    let mut patch = options.status_patch.clone();
    if let Some(more) = patch.as_object_mut().and_then(|patch| patch.remove("conditions")) {
        conditions.extend(more.as_array().cloned().unwrap_or_default());
    }
    let mut status = json!({
        "apiURL": cluster.gate,
        "cliImage": "quay.io/openshift/cli:4.20",
        "conditions": conditions,
        "installRestarts": 0,
        "installStartedTimestamp": installed,
        "installVersion": "4.20.8",
        "installedTimestamp": installed,
        "webConsoleURL": format!("https://console-openshift-console.apps.{}.testbed.example.com", cluster.name),
    });
    json_patch::merge(&mut status, &patch);
    status
}

/// A stable UUID for a name.
fn uuid(name: &str) -> String {
    let digits = format!("{}{}", crate::paths::fingerprint(&[name]), crate::paths::fingerprint(&[name, "uuid"]));
    format!("{}-{}-4{}-8{}-{}", &digits[0..8], &digits[8..12], &digits[13..16], &digits[17..20], &digits[20..32])
}
