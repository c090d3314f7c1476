//! What a user cluster of the double is like, and what its parts do while it lives.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::delay::Delay;

/// The waits of everything that is played are divided by this.
pub(crate) const SPEED: f64 = 20.0;

/// `spec.cloud.providerName`, and the provider of its Machines.
pub(crate) const PROVIDER: &str = "aws";

/// `spec.version` of a new cluster.
pub(crate) const VERSION: &str = "1.34.1";

/// Kubernetes versions on offer.
pub(crate) const VERSIONS: [&str; 3] = ["1.33.5", VERSION, "1.34.2"];

/// The KKP that writes conditions.
pub(crate) const KUBERMATIC_VERSION: &str = "v2.30.0";

/// A wait of so many seconds, at the double's speed.
pub(crate) fn wait(seconds: f64) -> f64 {
    seconds / SPEED
}

/// A user cluster that is to be made.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct KkpOptions {
    /// `spec.cloud.dc`.
    pub datacenter: String,
    /// Its `MachineDeployments`.
    pub machine_deployments: Vec<MachineDeployment>,
    /// A `StatefulSet` of so many Pods, each with a volume, and a disruption budget that allows none.
    pub volumes: u32,
    /// Services of type `LoadBalancer`, each with a Deployment of two Pods and a disruption budget that allows none.
    pub load_balancers: u32,
    /// Whether KKP's dashboard has set the finalizers for volumes and load balancers, as it does at a deletion (row
    /// 23).
    pub cleanup_finalizers: bool,
    /// The knobs, as they stand at first.
    pub settings: Settings,
}

/// A `MachineDeployment`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MachineDeployment {
    /// Its name.
    pub name: String,
    /// `spec.replicas`.
    pub replicas: u32,
    /// Bounds of the autoscaler, if it is under its control.
    #[serde(default)]
    pub autoscaler: Option<(u32, u32)>,
}

impl MachineDeployment {
    /// One without an autoscaler.
    pub fn new(name: &str, replicas: u32) -> Self {
        Self { name: name.to_owned(), replicas, autoscaler: None }
    }
}

impl Default for KkpOptions {
    /// Five machines in two `MachineDeployments`, one of them autoscaled; three volumes, two load balancers.
    fn default() -> Self {
        Self {
            datacenter: "eu".to_owned(),
            machine_deployments: vec![
                MachineDeployment { autoscaler: Some((1, 5)), ..MachineDeployment::new("a", 3) },
                MachineDeployment::new("b", 2),
            ],
            volumes: 3,
            load_balancers: 2,
            cleanup_finalizers: false,
            settings: Settings::default(),
        }
    }
}

impl KkpOptions {
    /// One machine, and nothing that runs on it: for tests of the seed's side.
    pub fn small() -> Self {
        Self {
            machine_deployments: vec![MachineDeployment::new("a", 1)],
            volumes: 0,
            load_balancers: 0,
            ..Self::default()
        }
    }
}

/// Knobs of one user cluster. All can be turned while it runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Settings {
    /// How long the cloud takes to terminate an instance, before the speed.
    pub terminate: Delay,
    /// What reconciles in flight do after a pause (row 5).
    pub in_flight: InFlight,
    /// The Pods of the API server are ready, but it does not answer (row 15a).
    pub api_silent: bool,
    /// So many Pods of a component of the control plane find room on the seed; all of those that are not named.
    pub room: BTreeMap<String, usize>,
    /// How long the Job takes that encrypts every object with a new key (row 65). Not divided.
    pub encryption: Delay,
    /// So many Machines fit into the project's quota (row 62).
    pub quota: Option<u32>,
    /// `MachineDeployments` whose new instances never join.
    pub never_join: BTreeSet<String>,
    /// How much longer a new instance takes to join. Not divided.
    pub join_late: Delay,
    /// The host that the kubeconfig names. KKP's own ends in a dot, which certificates do not.
    pub host: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            terminate: Delay::secs(4),
            in_flight: InFlight::default(),
            api_silent: false,
            room: BTreeMap::new(),
            encryption: Delay::secs(2),
            quota: None,
            never_join: BTreeSet::new(),
            join_late: Delay::default(),
            host: "127.0.0.1".to_owned(),
        }
    }
}

/// Reconciles that were under way when the pause was set: they raise Deployments that are at 0 (row 5).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct InFlight {
    /// How many reconciles: each writes once.
    pub rounds: u32,
    /// How many Deployments each raises at most.
    pub deployments: u32,
    /// From the pause to the first, and from each to the next. Not divided.
    pub delay: Delay,
}

/// Knobs of the seed: of KKP itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct SeedSettings {
    /// The Seed's datacenters. A Cluster of another one cannot be written any more (row 27).
    pub datacenters: BTreeSet<String>,
    /// So many clusters that are not here are being updated.
    pub others_updating: usize,
    /// KKP's webhooks do not answer (row 27).
    pub webhooks_down: bool,
    /// KKP's seed-controller-manager does not run.
    pub controllers_down: bool,
}

impl Default for SeedSettings {
    fn default() -> Self {
        Self {
            datacenters: ["eu", "us"].map(str::to_owned).into(),
            others_updating: 0,
            webhooks_down: false,
            controllers_down: false,
        }
    }
}
