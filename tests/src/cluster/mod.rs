//! A sample cluster: its instances in EC2, its objects on the hub, its Nodes and operators on a spoke, its gate.

pub mod certificates;
pub mod gate;
pub mod machine;
pub mod machines;
pub mod nodes;
pub mod objects;
pub mod openstack;
pub mod operators;
pub mod version;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Label with a cluster's infraID on everything that belongs to it on a shared spoke.
pub const LABEL: &str = "testbed.hibernate.sh/cluster";

/// What a cluster runs on, as its spec spells it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, strum::IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Platform {
    /// EC2's simulator.
    #[default]
    Aws,
    /// OpenStack's own services.
    OpenStack,
    /// A simulator of ours.
    Gcp,
    /// A simulator of ours.
    Azure,
    /// A simulator of ours.
    IbmCloud,
}

/// What a new cluster is like. The default is one that Hive has just handed over: awake, never hibernated.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ClusterOptions {
    /// Namespace; the cluster's name if absent.
    pub namespace: Option<String>,
    /// Which spoke it lives on; the one with the fewest clusters if absent.
    pub spoke: Option<usize>,
    /// Instances of the control plane.
    pub control_plane: usize,
    /// Worker instances.
    pub workers: usize,
    /// How many of the workers are spot instances of a one-time request.
    pub spot_workers: usize,
    /// What it runs on.
    pub platform: Platform,
    /// AWS region.
    pub region: String,
    /// Whether it has an AWS account and an access key of its own, instead of sharing the world's.
    pub own_account: bool,
    /// State that its instances begin in: `running` or `stopped`.
    pub instance_state: String,
    /// Annotations on the `ClusterDeployment`.
    pub annotations: BTreeMap<String, String>,
    /// Labels on the `ClusterDeployment`, besides Hive's.
    pub labels: BTreeMap<String, String>,
    /// A merge patch over the `ClusterDeployment` before it is created, such as `{"spec": {"installed": false}}`.
    pub patch: Value,
    /// A merge patch over its status.
    pub status_patch: Value,
    /// Whether its kubelets lose their certificates while they are off, as after a long sleep, and somebody has to
    /// approve their requests before they are Ready again. Its Machines exist then, too.
    pub certificates: bool,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            namespace: None,
            spoke: None,
            control_plane: 3,
            workers: 3,
            spot_workers: 0,
            platform: Platform::Aws,
            region: "us-east-1".to_owned(),
            own_account: false,
            instance_state: "running".to_owned(),
            annotations: BTreeMap::new(),
            labels: BTreeMap::new(),
            patch: json!({}),
            status_patch: json!({}),
            certificates: false,
        }
    }
}

impl ClusterOptions {
    /// A cluster of this many instances: three of the control plane, one if there are fewer than four.
    pub fn of_size(instances: usize) -> Self {
        let control_plane = if instances < 4 { 1.min(instances) } else { 3 };
        Self { control_plane, workers: instances - control_plane, ..Self::default() }
    }

    /// Whether its instances begin running.
    pub fn awake(&self) -> bool {
        self.instance_state == "running"
    }

    /// A cluster that has been asleep for a while: instances stopped, spec and status as Hive leaves them.
    pub fn asleep(mut self) -> Self {
        "stopped".clone_into(&mut self.instance_state);
        self.patch = json!({"spec": {"powerState": "Hibernating"}});
        let condition = |type_: &str, status: &str, reason: &str, message: &str| {
            json!({
                "type": type_, "status": status, "reason": reason, "message": message,
                "lastProbeTime": objects::days_ago(1), "lastTransitionTime": objects::days_ago(1),
            })
        };
        self.status_patch = json!({
            "powerState": "Hibernating",
            "conditions": [
                condition("Hibernating", "True", "Hibernating", "Cluster is stopped"),
                condition("Ready", "False", "StoppingOrHibernating", "Cluster is shutting down or hibernating, see Hibernating condition for details"),
            ],
        });
        self
    }
}

/// A cluster as the world file lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterInfo {
    /// Namespace of its `ClusterDeployment`.
    pub namespace: String,
    /// Name of its `ClusterDeployment`.
    pub name: String,
    /// Prefix and tag of everything it has in EC2.
    #[serde(rename = "infraID")]
    pub infra_id: String,
    /// Index of the spoke that its objects are on.
    pub spoke: usize,
    /// URL of its API server as seen through its gate.
    pub gate: String,
    /// File with the kubeconfig that its Secret holds.
    pub kubeconfig: String,
    /// What it runs on.
    pub platform: Platform,
    /// Region.
    pub region: String,
    /// AWS account.
    pub account: String,
    /// Access key ID in its Secret.
    pub access_key_id: String,
}
