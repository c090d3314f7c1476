//! A simulator on the conformance bench.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use cloud_common::{Charge, Permit};
use cloud_conformance::{Bench, Fault, Intent, TestLedger, inventory, pass};
use cloud_http::{Body, CallError, Reply, Request, Transport};
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use shared::cloud::{CloudErrorKind, ClusterRef, Driver, InstanceState, PlatformSpec, Target};
use tokio::time::Instant;

use crate::engine::CONFUSED;
use crate::{Effect, Face, LogEntry, Rule, Simulator};

/// How long the cloud takes, on the test's clock.
const TRANSITION: std::time::Duration = std::time::Duration::from_secs(5);

/// How long its lists lag behind its calls.
const LAG: std::time::Duration = std::time::Duration::from_secs(2);

/// Makes the driver under test, from credentials of the test's choice, on a transport.
type Connect = fn(&str, Arc<dyn Transport>, Permit) -> Arc<dyn Driver>;

/// A simulator, and drivers for it.
#[derive(Clone)]
pub struct SimulatedBench {
    simulator: Arc<Mutex<Simulator>>,
    face: Face,
    credentials: String,
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
    fn send<'a>(
        &'a self,
        _what: &'a str,
        request: Request,
        _charge: &'a mut Charge,
    ) -> BoxFuture<'a, Result<Reply, CallError>> {
        let answer = self.0.simulator().answer(&plain(request));
        async move {
            let Some(answer) = answer else { return std::future::pending().await };
            let (parts, body) = answer.into_parts();
            Ok(Reply { status: parts.status, headers: parts.headers, body, by: None })
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
        let mut simulator = Simulator::new(face);
        simulator.engine.lag = LAG;
        let simulator = Arc::new(Mutex::new(simulator));
        Self { simulator, face, credentials: String::new(), connect, began: Instant::now() }
    }

    /// The same cloud, with other credentials.
    pub fn sharing(other: &Self, credentials: String, connect: Connect) -> Self {
        Self { credentials, connect, ..other.clone() }
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

    /// From now on calls of this name, for this machine, are answered like this.
    pub fn reject(&self, call: &str, machine: &str, status: u16, code: &str, message: &str) {
        let (code, message) = (code.to_owned(), message.to_owned());
        self.rule(call, machine, Effect::Status { status, code, message, retry_after: None });
    }

    /// From now on calls of this name, for this machine, are accepted, and given up with these words.
    pub fn give_up(&self, call: &str, machine: &str, code: &str, message: &str) {
        self.rule(call, machine, Effect::GivenUp { code: code.to_owned(), message: message.to_owned() });
    }

    /// A cluster `demo` with so many machines of each word.
    pub async fn cluster_of(&self, words: &[(&str, usize)]) -> Target {
        let words: Vec<&str> = words.iter().flat_map(|(word, count)| std::iter::repeat_n(*word, *count)).collect();
        let target = self.cluster("demo", words.len()).await;
        for (machine, word) in self.simulator().engine.machines.values_mut().zip(words) {
            word.clone_into(&mut machine.word);
        }
        target
    }

    /// One pass towards an intent: how many machines of which word were started or stopped.
    ///
    /// # Panics
    /// When the pass fails.
    #[expect(clippy::expect_used, reason = "it is part of tests")]
    async fn moved(&self, target: &Target, intent: Intent) -> BTreeMap<String, usize> {
        let machines = self.simulator().engine.machines.clone();
        pass(&*self.leader(), target, intent).await.expect("the cloud answers");
        let mut moved = BTreeMap::new();
        for call in self.log().iter().filter(|call| ["start", "stop", "resume"].contains(&call.call.as_str())) {
            *moved.entry(machines[&call.machine].word.clone()).or_default() += 1;
        }
        moved
    }

    /// Whether all machines are asleep, and whether all run.
    ///
    /// # Panics
    /// When the list fails.
    #[expect(clippy::expect_used, reason = "it is part of tests")]
    pub async fn stopped_and_running(&self, target: &Target) -> (bool, bool) {
        let found = inventory(&*self.leader(), target).await.expect("the cloud answers");
        (found.all(InstanceState::Stopped), found.all(InstanceState::Running))
    }

    /// Every call so far.
    pub fn log(&self) -> Vec<LogEntry> {
        self.simulator().engine.calls.clone()
    }

    /// What becomes of a machine whose stops are answered like this, while another one is well: kind and code. The other
    /// one is stopped.
    ///
    /// # Panics
    /// When the whole call fails, or the other machine is not stopped.
    #[expect(clippy::expect_used, reason = "it is part of tests")]
    async fn refused_as(&self, status: u16, code: &str, message: &str) -> (CloudErrorKind, String) {
        let target = self.cluster("demo", 2).await;
        self.reject("stop", "demo-worker-1", status, code, message);
        let moved = pass(&*self.leader(), &target, Intent::Asleep).await;
        let (_, mut outcome) = moved.expect("one machine is no reason to fail");
        assert_eq!(outcome.moved.len(), 1, "{outcome:?}");
        let refusal = outcome.refused.pop().expect("a refusal");
        assert_eq!(refusal.id, "demo-worker-1");
        (refusal.kind, refusal.code)
    }

    /// Which machines a pass moves: `CASE | Asleep or Awake | MACHINES | those that get a call`.
    ///
    /// # Panics
    /// When a case fails.
    pub async fn check_moves(make: fn() -> Self, table: &str) {
        for [case, intent, machines, moved] in rows(table) {
            let bench = make();
            let target = bench.cluster_of(&counted(machines)).await;
            let intent = if intent == "Asleep" { Intent::Asleep } else { Intent::Awake };
            let expected = counted(moved).into_iter().map(|(word, count)| (word.to_owned(), count)).collect();
            assert_eq!(bench.moved(&target, intent).await, expected, "{case}: {machines}");
        }
    }

    /// What counts as asleep and as awake: `CASE | MACHINES | asleep, awake or nothing`.
    ///
    /// # Panics
    /// When a case fails.
    pub async fn check_states(make: fn() -> Self, table: &str) {
        for [case, machines, state] in rows(table) {
            let bench = make();
            let target = bench.cluster_of(&counted(machines)).await;
            let expected = (state == "asleep", state == "awake");
            assert_eq!(bench.stopped_and_running(&target).await, expected, "{case}: {machines}");
        }
    }

    /// What a rejected stop of one machine counts as: rows of status, code, message and kind. The other machine moves.
    ///
    /// # Panics
    /// When a case fails.
    pub async fn check_refusals(make: fn() -> Self, rows: &[(u16, &str, &str, CloudErrorKind)]) {
        for (status, code, message, kind) in rows {
            // Where others move, the account is not to blame, whatever the status says.
            let expected = match status {
                403 if *kind == CloudErrorKind::Refused => "Denied",
                500 => "Unavailable",
                _ => code,
            };
            assert_eq!(make().refused_as(*status, code, message).await, (*kind, expected.to_owned()));
        }
    }

    /// Names and answers of the calls so far.
    pub fn calls(&self) -> Vec<(String, u16)> {
        self.simulator().engine.calls.iter().map(|call| (call.call.clone(), call.status)).collect()
    }
}

/// The tests of every driver on a simulator: conformance, and tables as [`SimulatedBench`] checks them.
#[macro_export]
macro_rules! simulated_tests {
    ($face:ident, $connect:path, moves: $moves:expr, states: $states:expr, refusals: $refusals:expr $(,)?) => {
        fn bench() -> $crate::SimulatedBench {
            $crate::SimulatedBench::new($crate::Face::$face, $connect)
        }

        ::cloud_conformance::conformance_tests!(bench());

        #[tokio::test(start_paused = true)]
        async fn which_machines_a_stop_and_a_start_move() {
            $crate::SimulatedBench::check_moves(bench, $moves).await;
        }

        #[tokio::test(start_paused = true)]
        async fn what_is_asleep_and_what_is_awake() {
            $crate::SimulatedBench::check_states(bench, $states).await;
        }

        #[tokio::test(start_paused = true)]
        async fn what_is_about_one_machine_stops_no_other() {
            $crate::SimulatedBench::check_refusals(bench, $refusals).await;
        }
    };
}

/// The rows of a table, one a line. A line that begins with `#` says something about the next one.
#[expect(clippy::expect_used, reason = "it is part of tests")]
fn rows<const CELLS: usize>(table: &str) -> impl Iterator<Item = [&str; CELLS]> {
    let lines = table.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        cells.try_into().expect("a row with all its cells")
    })
}

/// `2 RUNNING, 1 STOPPED`: how many machines have which word. What follows no word has none.
#[expect(clippy::expect_used, reason = "it is part of tests")]
fn counted(cell: &str) -> Vec<(&str, usize)> {
    let parts = cell.split(", ").filter(|part| !part.is_empty());
    let counted = parts.map(|part| part.split_once(' ').unwrap_or((part, "")));
    counted.map(|(count, word)| (word, count.parse().expect("a number of machines"))).collect()
}

impl Bench for SimulatedBench {
    fn driver(&self, permit: Permit) -> Arc<dyn Driver> {
        (self.connect)(&self.credentials, Arc::new(InProcess(self.clone())), permit)
    }

    async fn cluster(&self, infra_id: &str, machines: usize) -> Target {
        let group = format!("{infra_id}-rg");
        for number in 0..machines {
            let name = cloud_conformance::machine(infra_id, number, machines);
            self.simulator().engine.boot(&name, infra_id, &group);
        }
        let platform = PlatformSpec::Azure { cloud_name: String::new(), resource_group: group };
        let cluster = ClusterRef { infra_id: infra_id.to_owned(), platform, ..ClusterRef::default() };
        Target { cluster, ledger: Arc::new(TestLedger::default()) }
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
            CONFUSED.clone_into(&mut machine.word);
        }
    }
}
