//! Simulators of Compute Engine, Azure and IBM Cloud VPC.
//!
//! No registry has one that takes time, fails later or checks credentials. One [`Engine`] has machines, transitions,
//! operations, faults and a log of calls; three faces speak the clouds' APIs. Each is a function of a request: benches
//! call it in process on a paused clock, the testbed serves it by HTTP. The vendors' own SDKs list, stop, start and
//! fail against them in the tests of the test world.

mod azure;
mod bench;
mod control;
mod credentials;
mod engine;
mod gcp;
mod ibm;
mod request;

use std::time::Duration;

use http::{Request, Response};
use serde_json::{Value, json};

pub use self::bench::SimulatedBench;
pub use self::credentials::{API_KEY, CLIENT, PROJECT, SECRET, SUBSCRIPTION, TENANT, service_account};
pub use self::engine::{Disks, Effect, Engine, LogEntry, Machine, Rule, Words};
pub use self::request::Call;

/// Which cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Face {
    /// Google Compute Engine.
    Gcp,
    /// Microsoft Azure.
    Azure,
    /// IBM Cloud VPC.
    Ibm,
}

/// An answer: status, headers, and a body that is JSON.
pub struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Option<Value>,
}

impl Answer {
    fn ok(body: Value) -> Self {
        Self::of(200, body)
    }

    fn of(status: u16, body: Value) -> Self {
        Self { status, headers: Vec::new(), body: Some(body) }
    }

    fn empty(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: None }
    }
}

/// One cloud.
#[derive(Debug)]
pub struct Simulator {
    face: Face,
    /// What is there.
    pub engine: Engine,
}

impl Simulator {
    /// An empty cloud.
    pub fn new(face: Face) -> Self {
        let words = match face {
            Face::Gcp => gcp::WORDS,
            Face::Azure => azure::WORDS,
            Face::Ibm => ibm::WORDS,
        };
        let mut engine = Engine::new(words);
        engine.queues = face == Face::Ibm;
        Self { face, engine }
    }

    /// Time passes until so long after the beginning.
    pub fn tick(&mut self, now: Duration) {
        self.engine.tick(now);
    }

    /// Answers a request; `None` is silence. Below `/_simulator` is what only tests ask for.
    pub fn answer(&mut self, request: &Request<Vec<u8>>) -> Option<Response<Vec<u8>>> {
        let mut call = Call::new(request);
        let answer = if call.path.first().is_some_and(|first| first == "_simulator") {
            self.engine.control(&call)
        } else {
            match self.face {
                Face::Gcp => gcp::name(&mut call),
                Face::Azure => azure::name(&mut call),
                Face::Ibm => {
                    ibm::name(&mut call);
                    call.machine = self.engine.name_of(&call.machine);
                }
            }
            let error = match self.face {
                Face::Gcp => gcp::error,
                Face::Azure => azure::error,
                Face::Ibm => ibm::error,
            };
            let answer = match self.engine.fault(&call) {
                Some(Effect::Hang) => {
                    self.engine.log(&call, 0);
                    return None;
                }
                Some(Effect::Status { status, code, message, retry_after }) => {
                    let mut answer = error(status, &code, &message);
                    answer.headers.extend(retry_after.map(|seconds| ("retry-after", seconds.to_string())));
                    answer
                }
                effect => match self.face {
                    Face::Gcp => gcp::answer(&mut self.engine, &call, effect),
                    Face::Azure => azure::answer(&mut self.engine, &call, effect),
                    Face::Ibm => ibm::answer(&mut self.engine, &call, effect),
                },
            };
            self.engine.log(&call, answer.status);
            answer
        };
        let mut response = Response::builder().status(answer.status).header("content-type", "application/json");
        for (name, value) in answer.headers {
            response = response.header(name, value);
        }
        let body = answer.body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        Some(
            response
                .body(body)
                .unwrap_or_else(|_| Response::new(json!({"error": "malformed"}).to_string().into_bytes())),
        )
    }
}
