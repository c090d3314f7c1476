//! The simulators of Compute Engine, Azure and IBM Cloud VPC in a world: served by the supervisor, and what tests see of
//! them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
pub use cloud_simulators::{Disks, LogEntry};
use cloud_simulators::{Effect, Face, Machine, Rule, Simulator};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::cluster::Platform;
use crate::ec2::client::cluster_tag;
use crate::ec2::{Instance, NewInstance};
use crate::json_http::JsonHttp;
use crate::supervisor::clock::Clock;

/// The platforms that are simulated here.
pub const PLATFORMS: [Platform; 3] = [Platform::Gcp, Platform::Azure, Platform::IbmCloud];

/// One simulator, as the supervisor has it.
#[derive(Clone)]
pub(crate) struct Served {
    simulator: Arc<Mutex<Simulator>>,
    began: Instant,
    platform: Platform,
    pub(crate) endpoint: String,
}

/// Every simulator of a world.
#[derive(Clone)]
pub(crate) struct Clouds(Vec<Served>);

/// One simulator, as tests see it.
#[derive(Clone, Debug)]
pub struct Simulated {
    http: JsonHttp,
    platform: Platform,
}

fn face(platform: Platform) -> Option<Face> {
    match platform {
        Platform::Aws | Platform::OpenStack => None,
        Platform::Gcp => Some(Face::Gcp),
        Platform::Azure => Some(Face::Azure),
        Platform::IbmCloud => Some(Face::Ibm),
    }
}

impl Clouds {
    /// Serves all of them on free ports. Machines start and stop within these times.
    pub(crate) async fn serve(transition: Duration) -> Result<Self> {
        let mut served = Vec::new();
        for platform in PLATFORMS {
            let face = face(platform).context("a platform without a simulator")?;
            let mut simulator = Simulator::new(face);
            simulator.engine.transition = transition;
            simulator.engine.page = 500;
            simulator.engine.epoch = Clock::now();
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.context("bind a simulator's port")?;
            let endpoint = format!("http://{}", listener.local_addr().context("read a simulator's port")?);
            let one = Served { simulator: Arc::new(Mutex::new(simulator)), began: Instant::now(), platform, endpoint };
            let router = Router::new().fallback(answer).with_state(one.clone());
            tokio::spawn(async move {
                if let Err(error) = axum::serve(listener, router).await {
                    tracing::error!(%error, "a simulator has ended");
                }
            });
            served.push(one);
        }
        Ok(Self(served))
    }

    pub(crate) fn of(&self, platform: Platform) -> Option<&Served> {
        self.0.iter().find(|served| served.platform == platform)
    }

    /// URL by platform.
    pub(crate) fn endpoints(&self) -> BTreeMap<Platform, String> {
        self.0.iter().map(|served| (served.platform, served.endpoint.clone())).collect()
    }

    /// The controller's flags that lead it here.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let flag = |platform| match platform {
            Platform::IbmCloud => "ibm",
            other => other.into(),
        };
        let of = |served: &Served| [format!("--{}-endpoint-url", flag(served.platform)), served.endpoint.clone()];
        self.0.iter().flat_map(of).collect()
    }

    /// Every machine as gates and nodes see instances.
    pub(crate) fn instances(&self) -> Vec<Instance> {
        let of = |served: &Served| -> Vec<Instance> {
            served.lock().engine.machines.values().map(|machine| instance(served.platform, machine)).collect()
        };
        self.0.iter().flat_map(of).collect()
    }

    pub(crate) fn forget(&self, infra_id: &str) {
        for served in &self.0 {
            served.lock().engine.machines.retain(|_, machine| machine.owner != infra_id);
        }
    }
}

impl Served {
    /// The simulator, by the clock.
    fn lock(&self) -> MutexGuard<'_, Simulator> {
        let mut simulator = self.simulator.lock().unwrap_or_else(PoisonError::into_inner);
        simulator.tick(self.began.elapsed());
        simulator
    }

    /// Makes the machines of a cluster.
    pub(crate) fn create(&self, infra_id: &str, new: &[NewInstance]) -> Vec<Instance> {
        let mut simulator = self.lock();
        let engine = &mut simulator.engine;
        let words = engine.words();
        for machine in new {
            engine.boot(&machine.name, infra_id, &group(infra_id));
            if let Some(made) = engine.machines.get_mut(&machine.name) {
                made.since = machine.since.unwrap_or_default();
                made.spot = machine.spot.is_some();
                if machine.state.as_deref() == Some("stopped") {
                    words.stopped.clone_into(&mut made.word);
                }
            }
        }
        let made = engine.machines.values().filter(|machine| machine.owner == infra_id);
        made.map(|machine| instance(self.platform, machine)).collect()
    }
}

async fn answer(State(served): State<Served>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes().to_vec()).unwrap_or_default();
    let answer = served.lock().answer(&Request::from_parts(parts, body));
    match answer {
        Some(answer) => answer.map(Body::from),
        None => std::future::pending().await,
    }
}

/// The resource group of a cluster on Azure.
pub(crate) fn group(infra_id: &str) -> String {
    format!("{infra_id}-rg")
}

/// A machine as an instance.
fn instance(platform: Platform, machine: &Machine) -> Instance {
    let state = match machine.word.to_ascii_lowercase().as_str() {
        "running" => "running",
        "staging" | "starting" | "provisioning" | "pending" => "pending",
        "stopping" | "deallocating" => "stopping",
        "terminated" | "stopped" | "deallocated" | "suspended" => "stopped",
        _ => "unknown",
    };
    let (name, group) = (&machine.name, &machine.group);
    let provider_id = match platform {
        Platform::Azure => {
            format!(
                "azure:///subscriptions/s/resourceGroups/{group}/providers/Microsoft.Compute/virtualMachines/{name}"
            )
        }
        Platform::IbmCloud => format!("ibm://account///{}/{}", machine.owner, machine.id),
        _ => format!("gce://{}/us-east1-{}/{name}", cloud_simulators::PROJECT, machine.zone),
    };
    let role = if name.contains("-master-") { "master" } else { "worker" };
    Instance {
        id: name.clone(),
        account: String::new(),
        region: String::new(),
        zone: machine.zone.clone(),
        state: state.to_owned(),
        since: machine.since,
        launch_time: String::new(),
        private_dns: name.clone(),
        private_ip: "10.0.0.1".to_owned(),
        lifecycle: machine.spot.then(|| "spot".to_owned()),
        tags: [
            (cluster_tag(&machine.owner), "owned".to_owned()),
            ("Name".to_owned(), name.clone()),
            (Instance::ROLE.to_owned(), role.to_owned()),
        ]
        .into(),
        provider_id: Some(provider_id),
    }
}

/// The Secret with a cluster's credentials: the end of its name, and its data.
pub(crate) fn credentials(platform: Platform) -> Option<(&'static str, String)> {
    let principal = json!({
        "subscriptionId": cloud_simulators::SUBSCRIPTION, "tenantId": cloud_simulators::TENANT,
        "clientId": cloud_simulators::CLIENT, "clientSecret": cloud_simulators::SECRET,
    });
    Some(match platform {
        Platform::Aws | Platform::OpenStack => return None,
        Platform::Gcp => ("osServiceAccount.json", cloud_simulators::service_account()),
        Platform::Azure => ("osServicePrincipal.json", principal.to_string()),
        Platform::IbmCloud => ("ibmcloud_api_key", cloud_simulators::API_KEY.to_owned()),
    })
}

impl Simulated {
    pub(crate) fn new(platform: Platform, endpoint: &str) -> Self {
        Self { http: JsonHttp::new(endpoint), platform }
    }

    /// Its URL.
    pub fn endpoint(&self) -> &str {
        self.http.base()
    }

    /// The machines of a cluster, as instances.
    ///
    /// # Errors
    /// When the world is gone.
    pub async fn instances(&self, infra_id: &str) -> Result<Vec<Instance>> {
        let machines = self.machines(infra_id).await?;
        Ok(machines.iter().map(|machine| instance(self.platform, machine)).collect())
    }

    /// The machines of a cluster.
    ///
    /// # Errors
    /// When the world is gone.
    pub async fn machines(&self, infra_id: &str) -> Result<Vec<Machine>> {
        let mut machines: Vec<Machine> = self.http.get("/_simulator/machines").await?;
        machines.retain(|machine| machine.owner == infra_id);
        Ok(machines)
    }

    /// Every call so far.
    ///
    /// # Errors
    /// When the world is gone.
    pub async fn calls(&self) -> Result<Vec<LogEntry>> {
        self.http.get("/_simulator/calls").await
    }

    /// Writes a machine as it is given.
    ///
    /// # Errors
    /// When the world is gone.
    pub async fn put(&self, machine: Machine) -> Result<()> {
        self.http.post::<Value>("/_simulator/machines", &[machine]).await.map(drop)
    }

    /// From now on this goes wrong too.
    ///
    /// # Errors
    /// When the world is gone.
    pub async fn inject(&self, rule: &Rule) -> Result<()> {
        self.http.post::<Value>("/_simulator/rules", rule).await.map(drop)
    }

    /// The next start of a machine is accepted, and ends with this.
    ///
    /// # Errors
    /// When the world is gone.
    pub async fn give_up(&self, machine: &str, code: &str, message: &str) -> Result<()> {
        let effect = Effect::GivenUp { code: code.to_owned(), message: message.to_owned() };
        self.inject(&Rule { call: "start".to_owned(), machine: machine.to_owned(), times: Some(1), effect }).await
    }

    /// Nothing goes wrong any more.
    ///
    /// # Errors
    /// When the world is gone.
    pub async fn heal(&self) -> Result<()> {
        self.http.delete("/_simulator/rules").await
    }
}
