//! What a user cluster of the double is like, and what its parts do while it lives.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::delay::Delay;

/// A user cluster that is to be made.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct KkpOptions {
    /// Its spoke; one without a user cluster if absent. Two user clusters never share a spoke.
    pub spoke: Option<usize>,
    /// `spec.version`.
    pub version: String,
    /// `spec.cloud.dc`.
    pub datacenter: String,
    /// `spec.cloud.providerName`, and the provider of its Machines.
    pub provider: String,
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
            spoke: None,
            version: "1.34.1".to_owned(),
            datacenter: "eu".to_owned(),
            provider: "aws".to_owned(),
            machine_deployments: vec![
                MachineDeployment { autoscaler: Some((1, 5)), ..MachineDeployment::new("a", 3) },
                MachineDeployment::new("b", 2),
            ],
            volumes: 3,
            load_balancers: 2,
            cleanup_finalizers: false,
            settings: Settings::fast(),
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
    /// The waits of everything that is played are divided by this, unless they say otherwise.
    pub speed: f64,
    /// From a workload that is not as KKP wants it to KKP's write: 0.4 to 2.3 s (row 2).
    pub reset: Delay,
    /// From a control-plane Pod whose dependencies are there to one that is Ready.
    pub pod_start: Delay,
    /// From the Pods of etcd to one that serves: 11 to 28 s (rows 36, 42).
    pub etcd_start: Delay,
    /// How long a member of etcd is away, beyond its `StatefulSet`'s count, before the others remove it: 40 s (row 38).
    pub etcd_removal: Delay,
    /// From all health Up to the roll-out of a changed version: 4 s (row 14).
    pub update: Delay,
    /// machine-controller's poll: 10 s (row 49).
    pub machine_poll: Delay,
    /// How long the cloud takes to terminate an instance.
    pub terminate: Delay,
    /// From an instance to its Node.
    pub boot: Delay,
    /// How long a leader election takes after the API server was away: 15 s (row 58).
    pub lease_wait: Delay,
    /// How long a Pod takes to end once it is deleted, if its grace period allows that and no annotation of its own
    /// says otherwise.
    pub pod_end: Delay,
    /// How long a bootstrap token lives: 1 h (row 53). Not divided.
    pub token_life: Delay,
    /// From the end of an `EtcdRestore`'s deletions to the new etcd, and from there to its end: 30 s each (row 18).
    pub restore_step: Delay,
    /// What reconciles in flight do after a pause (row 5).
    pub in_flight: InFlight,
    /// The Pods of the API server are ready, but it does not answer (row 15a).
    pub api_silent: bool,
    /// So many Machines fit into the project's quota (row 62).
    pub quota: Option<u32>,
    /// `MachineDeployments` whose new instances never join (Must show 7).
    pub never_join: BTreeSet<String>,
    /// How much longer a new instance takes to join. Not divided.
    pub join_late: Delay,
    /// The host that the kubeconfig names. KKP's own ends in a dot, which certificates do not.
    pub host: String,
    /// The KKP that writes conditions.
    pub kubermatic_version: String,
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

impl Default for Settings {
    /// As observed.
    fn default() -> Self {
        Self {
            speed: 1.0,
            reset: Delay::secs(1),
            pod_start: Delay::secs(1),
            etcd_start: Delay::secs(12),
            etcd_removal: Delay::secs(40),
            update: Delay::secs(4),
            machine_poll: Delay::secs(10),
            terminate: Delay::secs(4),
            boot: Delay::secs(3),
            lease_wait: Delay::secs(15),
            pod_end: Delay::secs(1),
            token_life: Delay::secs(3600),
            restore_step: Delay::secs(30),
            in_flight: InFlight::default(),
            api_silent: false,
            quota: None,
            never_join: BTreeSet::new(),
            join_late: Delay::default(),
            host: "127.0.0.1".to_owned(),
            kubermatic_version: "v2.30.0".to_owned(),
        }
    }
}

impl Settings {
    /// For tests: a minute is three seconds.
    pub fn fast() -> Self {
        Self { speed: 20.0, ..Self::default() }
    }

    /// A wait, at this speed, in seconds.
    pub fn secs(&self, wait: Delay) -> f64 {
        wait.as_secs_f64() / self.speed.max(0.001)
    }

    /// A wait, at this speed.
    pub fn wait(&self, wait: Delay) -> Duration {
        Duration::from_secs_f64(self.secs(wait))
    }
}

/// Knobs of the seed: of KKP itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct SeedSettings {
    /// The Seed's datacenters. A Cluster of another one cannot be written any more (row 27).
    pub datacenters: BTreeSet<String>,
    /// Kubernetes versions on offer.
    pub versions: BTreeSet<String>,
    /// `--max-parallel-reconcile` (row 9).
    pub max_parallel_reconcile: usize,
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
            datacenters: ["eu".to_owned()].into(),
            versions: ["1.33.5", "1.34.1", "1.34.2"].map(str::to_owned).into(),
            max_parallel_reconcile: 10,
            others_updating: 0,
            webhooks_down: false,
            controllers_down: false,
        }
    }
}
