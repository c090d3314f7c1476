//! What a world is made of, and how fast its parts are.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::delay::Delay;

/// What `testbed up` starts.
#[derive(clap::Args, Clone, Debug, Serialize, Deserialize)]
pub struct Options {
    /// Folder of this world's state; several worlds live side by side in different folders
    /// [default: kubectl-hibernate-testbed in the folder for temporary files]
    #[arg(long, value_name = "DIR", env = "HIBERNATE_WORLD")]
    pub state: Option<PathBuf>,
    /// Spoke API servers
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub spokes: usize,
    /// Sample clusters: demo, demo-2, ... spread over the spokes
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub clusters: usize,
    /// EC2 instances per cluster: three control plane machines (one if fewer than four in total), the rest workers
    #[arg(long, default_value_t = 6, value_name = "N")]
    pub instances: usize,
    /// Do not start these of our programs
    #[arg(long, value_delimiter = ',', value_name = "PROGRAM,...")]
    pub without: Vec<Program>,
    /// Start OpenStack's services, each behind a fault proxy
    #[arg(long)]
    pub openstack: bool,
    /// Connect the controller to the hub through the fault proxy
    #[arg(long)]
    pub hub_proxy: bool,
    /// Keep audit logs of all API servers (logs/hub-audit.jsonl, logs/spoke-0-audit.jsonl, ...)
    #[arg(long)]
    pub audit: bool,
    /// Install these CRD files instead of the definitions made from our own types
    #[arg(long, value_name = "DIR")]
    pub upstream_crds: Option<PathBuf>,
    /// Stop the world when the process with this ID ends
    #[arg(long, value_name = "PID")]
    pub while_pid: Option<i32>,
    /// How fast things go: {"ec2Start": "4s", "operatorSettle": "8s"}
    #[arg(long, value_name = "JSON", default_value = "{}", value_parser = |text: &str| serde_json::from_str::<Timings>(text))]
    pub timings: Timings,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            state: None,
            spokes: 1,
            clusters: 1,
            instances: 6,
            without: Vec::new(),
            openstack: false,
            hub_proxy: false,
            audit: false,
            upstream_crds: None,
            while_pid: None,
            timings: Timings::default(),
        }
    }
}

impl Options {
    /// The same world without our webhook and controller: for tests of the parts around them.
    pub fn without_programs() -> Self {
        Self { without: vec![Program::Controller, Program::Webhook], ..Self::default() }
    }

    /// A bare hub: no spokes, and none of our programs until a test starts them.
    pub fn bare_hub() -> Self {
        Self { without: vec![Program::Controller, Program::Webhook], ..Self::hub_only() }
    }

    /// A hub with our programs and nothing beside it: for tests that need no machines.
    pub fn hub_only() -> Self {
        Self { clusters: 0, spokes: 0, timings: Timings::fast(), ..Self::default() }
    }

    /// The world that most tests share: our programs, fast timings, no clusters yet. The controller talks to the hub
    /// through the fault proxy, so that a test can meet it there.
    pub fn shared() -> Self {
        Self { clusters: 0, hub_proxy: true, timings: Timings::fast(), ..Self::default() }
    }

    /// Whether a program of ours is to be started.
    pub fn has(&self, program: Program) -> bool {
        !self.without.contains(&program)
    }
}

/// A program of ours that the world runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Program {
    /// `hibernate-controller`
    #[default]
    Controller,
    /// `hibernate-webhook`
    Webhook,
}

impl Program {
    /// Its name in the world: of its log, its process record and its ports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Webhook => "webhook",
        }
    }

    /// Its executable, which is also the name of its service account.
    pub const fn executable(self) -> &'static str {
        match self {
            Self::Controller => "hibernate-controller",
            Self::Webhook => "hibernate-webhook",
        }
    }
}

/// How long things take. Can be changed while the world runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Timings {
    /// EC2: pending to running.
    pub ec2_start: Delay,
    /// EC2: stopping to stopped.
    pub ec2_stop: Delay,
    /// EC2: shutting-down to terminated.
    pub ec2_terminate: Delay,
    /// Time from a running instance to a booted system: the API server answers, kubelets start.
    pub boot_delay: Delay,
    /// From a started kubelet to its first heartbeat.
    pub node_ready_delay: Delay,
    /// Between two renewals of a Node's Lease (in reality 10s).
    pub lease_period: Delay,
    /// Between two status heartbeats of a Node (in reality 10s, or 5m while nothing changes).
    pub status_period: Delay,
    /// From an answering API server to `ClusterOperators` that say Progressing.
    pub operator_lag: Delay,
    /// How long `ClusterOperators` stay Progressing after a wake.
    pub operator_settle: Delay,
    /// Between two renewals of an operator's Lease (in reality 26s).
    pub operator_lease_period: Delay,
    /// The controller's --cluster-operator-pause (its own default is 2m).
    pub cluster_operator_pause: Delay,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            ec2_start: Delay::secs(5),
            ec2_stop: Delay::secs(5),
            ec2_terminate: Delay::secs(5),
            boot_delay: Delay::secs(3),
            node_ready_delay: Delay::secs(3),
            lease_period: Delay::secs(2),
            status_period: Delay::secs(5),
            operator_lag: Delay::secs(1),
            operator_settle: Delay::secs(4),
            operator_lease_period: Delay::secs(5),
            cluster_operator_pause: Delay::secs(3),
        }
    }
}

impl Timings {
    /// Everything about as fast as a simulator can: for tests that look at logic, not at waiting.
    pub fn fast() -> Self {
        Self {
            ec2_start: Delay::millis(500),
            ec2_stop: Delay::millis(500),
            ec2_terminate: Delay::millis(500),
            boot_delay: Delay::millis(500),
            node_ready_delay: Delay::millis(500),
            lease_period: Delay::secs(4),
            status_period: Delay::secs(5),
            operator_lag: Delay::millis(200),
            operator_settle: Delay::secs(1),
            operator_lease_period: Delay::secs(5),
            cluster_operator_pause: Delay::secs(1),
        }
    }
}
