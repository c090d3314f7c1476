//! A simulator on the conformance bench.

use std::fmt;
use std::sync::Arc;

use cloud_common::Permit;
use cloud_conformance::{Bench, Fault, NoLedger};
use cloud_http::{Body, CallError, Reply, Request, Transport};
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use shared::cloud::{ClusterRef, Driver, Target};
use tokio::time::Instant;

use crate::{Effect, Face, Rule, Simulator};

/// How long the cloud takes, on the test's clock.
const TRANSITION: std::time::Duration = std::time::Duration::from_secs(5);

/// Makes the driver under test on a transport.
type Connect = fn(Arc<dyn Transport>, Permit) -> Arc<dyn Driver>;

/// A simulator, and drivers for it.
#[derive(Clone)]
pub struct SimulatedBench {
    simulator: Arc<Mutex<Simulator>>,
    face: Face,
    connect: Connect,
    began: Instant,
}

impl fmt::Debug for SimulatedBench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedBench").field("face", &self.face).finish_non_exhaustive()
    }
}

/// The way to a simulator in the same process.
struct InProcess(SimulatedBench);

impl Transport for InProcess {
    fn send<'a>(&'a self, _what: &'a str, request: Request) -> BoxFuture<'a, Result<Reply, CallError>> {
        let answer = self.0.simulator().answer(&plain(request));
        async move {
            let Some(answer) = answer else { return std::future::pending().await };
            let (parts, body) = answer.into_parts();
            Ok(Reply { status: parts.status, headers: parts.headers, body })
        }
        .boxed()
    }
}

fn plain(request: Request) -> http::Request<Vec<u8>> {
    let mut url = request.url;
    let host = url.host_str().unwrap_or_default().to_owned();
    let body = match request.body {
        None => Vec::new(),
        Some(Body::Json(json) | Body::As(_, json)) => json.to_string().into_bytes(),
        Some(Body::Form(fields)) => {
            let mut form = url.clone();
            form.query_pairs_mut().clear().extend_pairs(fields);
            form.query().unwrap_or_default().as_bytes().to_vec()
        }
    };
    url.set_fragment(None);
    let mut plain = http::Request::new(body);
    *plain.method_mut() = request.method;
    *plain.uri_mut() = url.as_str().parse().unwrap_or_default();
    *plain.headers_mut() = request.headers;
    if let Ok(host) = host.parse() {
        plain.headers_mut().insert("host", host);
    }
    plain
}

impl SimulatedBench {
    /// An empty cloud, and how a driver for it is made.
    pub fn new(face: Face, connect: Connect) -> Self {
        Self { simulator: Arc::new(Mutex::new(Simulator::new(face))), face, connect, began: Instant::now() }
    }

    /// The cloud, by the test's clock.
    pub fn simulator(&self) -> MutexGuard<'_, Simulator> {
        let mut simulator = self.simulator.lock();
        simulator.tick(self.began.elapsed());
        simulator
    }

    /// From now on this goes wrong with calls of this name, and for this machine.
    pub fn rule(&self, call: &str, machine: &str, effect: Effect) {
        let (call, machine) = (call.to_owned(), machine.to_owned());
        self.simulator().engine.rule(Rule { call, machine, times: None, effect });
    }

    /// Names and answers of the calls so far.
    pub fn calls(&self) -> Vec<(String, u16)> {
        self.simulator().engine.calls.iter().map(|call| (call.call.clone(), call.status)).collect()
    }
}

impl Bench for SimulatedBench {
    fn driver(&self, permit: Permit) -> Arc<dyn Driver> {
        (self.connect)(Arc::new(InProcess(self.clone())), permit)
    }

    async fn cluster(&self, infra_id: &str, machines: usize) -> Target {
        let group = format!("{infra_id}-rg");
        for number in 0..machines {
            let name = cloud_conformance::machine(infra_id, number, machines);
            self.simulator().engine.boot(&name, infra_id, &group);
        }
        let cluster =
            ClusterRef { infra_id: infra_id.to_owned(), resource_group: Some(group), ..ClusterRef::default() };
        Target { cluster, ledger: Arc::new(NoLedger) }
    }

    async fn finish(&self) {
        tokio::time::sleep(TRANSITION).await;
    }

    async fn fault(&self, fault: Option<Fault>) {
        self.simulator().engine.heal();
        let status = |status, code: &str| {
            let (code, message) = (code.to_owned(), "the simulator was asked to answer this".to_owned());
            Effect::Status { status, code, message, retry_after: None }
        };
        let (machine, effect) = match (fault, self.face) {
            (None, _) => return,
            (Some(Fault::Throttled), Face::Gcp) => (String::new(), status(403, "rateLimitExceeded")),
            (Some(Fault::Throttled), _) => (String::new(), status(429, "TooManyRequests")),
            (Some(Fault::Unavailable), _) => (String::new(), status(503, "backendError")),
            (Some(Fault::Denied), _) => (String::new(), status(403, "forbidden")),
            (Some(Fault::Silent), _) => (String::new(), Effect::Hang),
            (Some(Fault::Partial), _) => (String::new(), Effect::Partial),
            (Some(Fault::Refused(id)), _) => (id, status(400, "notNow")),
            (Some(Fault::GivenUp(id)), face) => {
                let code = match face {
                    Face::Gcp => "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
                    Face::Azure => "AllocationFailed",
                    Face::Ibm => "cannot_start_capacity",
                };
                (id, Effect::GivenUp { code: code.to_owned(), message: "no machines of this type here now".to_owned() })
            }
        };
        self.rule("", &machine, effect);
    }

    fn requests(&self) -> usize {
        self.simulator().engine.calls.len()
    }

    async fn running(&self, target: &Target) -> usize {
        let simulator = self.simulator();
        let running = simulator.engine.words().running;
        let is_up = |name: &&crate::Machine| name.owner == target.cluster.infra_id && name.word == running;
        simulator.engine.machines.values().filter(is_up).count()
    }

    async fn confuse(&self, _: &Target, id: &str) {
        if let Some(machine) = self.simulator().engine.machines.get_mut(id) {
            "levitating".clone_into(&mut machine.word);
        }
    }
}
