//! EC2 on the conformance bench: the whole driver with the real SDK, on an HTTP connector that is a small EC2.
//!
//! It has EC2's rules that matter: tag filters, pages, batches that one instance spoils, states that take time, errors
//! by code and status. `tests/clouds/ec2sim.py` is the large one, for whole processes.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use cloud_common::Permit;
use cloud_conformance::{Bench, Fault, TestLedger, conformance_tests};
use futures::FutureExt;
use parking_lot::{Mutex, MutexGuard};
use shared::cloud::{ClusterRef, Driver, Priority, Target, Verb};

use crate::client::{Options, base};
use crate::credentials::Source;
use crate::pool::driver;
use crate::quota::{Bucket, Limits};

/// Instances of a page.
const PAGE: usize = 7;

#[derive(Debug, Default)]
struct Ec2 {
    /// Owner and state, by ID.
    instances: BTreeMap<String, (String, String)>,
    names: BTreeMap<String, String>,
    requests: usize,
    fault: Option<Fault>,
    /// Code and message of a refusal of one machine, in place of stop protection.
    refusal: Option<(&'static str, &'static str)>,
}

/// What a request is answered.
type Answer = (u16, String);

impl Ec2 {
    fn answer(&mut self, form: &BTreeMap<String, String>) -> Answer {
        let ids: Vec<&String> = (1..).map_while(|n| form.get(&format!("InstanceId.{n}"))).collect();
        match &self.fault {
            Some(Fault::Throttled) => return error(503, "RequestLimitExceeded", "Request limit exceeded."),
            Some(Fault::Unavailable) => return error(500, "InternalError", "An internal error has occurred"),
            Some(Fault::Partial) if form.contains_key("NextToken") => {
                return error(500, "InternalError", "An internal error has occurred");
            }
            Some(Fault::Denied) => return error(403, "UnauthorizedOperation", "You are not authorized."),
            Some(Fault::Refused(id)) if ids.contains(&id) => {
                let named = format!("The instance '{id}' may not be stopped. Modify its 'disableApiStop' attribute.");
                let (code, message) = self.refusal.unwrap_or(("OperationNotPermitted", named.as_str()));
                return error(400, code, message);
            }
            _ => {}
        }
        match form.get("Action").map(String::as_str) {
            Some("DescribeInstances") => self.describe(form),
            Some("StopInstances") => self.moves("Stop", &ids, "pending", ("running", "stopping")),
            Some("StartInstances") => self.moves("Start", &ids, "stopping", ("stopped", "pending")),
            other => error(400, "InvalidAction", &format!("{other:?}")),
        }
    }

    fn describe(&self, form: &BTreeMap<String, String>) -> Answer {
        let name = form.get("Filter.1.Name").map(String::as_str).unwrap_or_default();
        let values: Vec<&String> = (1..).map_while(|n| form.get(&format!("Filter.1.Value.{n}"))).collect();
        let matches = |owner: &String| {
            let key = format!("kubernetes.io/cluster/{owner}");
            match name.strip_prefix("tag:") {
                Some(tag) => tag == key && values == ["owned"],
                None => name == "tag-key" && values.contains(&&key),
            }
        };
        let found: Vec<_> = self.instances.iter().filter(|(_, (owner, _))| matches(owner)).collect();
        let begin = form.get("NextToken").and_then(|token| token.parse().ok()).unwrap_or(0);
        let mut items = String::new();
        for (id, (owner, state)) in found.iter().skip(begin).take(PAGE) {
            let _ = write!(
                items,
                "<item><instancesSet><item><instanceId>{id}</instanceId><instanceState><code>0</code><name>{state}</name>\
                 </instanceState><privateDnsName>{id}.internal</privateDnsName><tagSet><item>\
                 <key>kubernetes.io/cluster/{owner}</key><value>owned</value></item>\
                 <item><key>Name</key><value>{}</value></item></tagSet></item></instancesSet></item>",
                self.names[*id]
            );
        }
        let token =
            if found.len() > begin + PAGE { format!("<nextToken>{}</nextToken>", begin + PAGE) } else { String::new() };
        (
            200,
            format!(
                "<DescribeInstancesResponse><reservationSet>{items}</reservationSet>{token}</DescribeInstancesResponse>"
            ),
        )
    }

    /// The whole batch is checked before any of it is moved. What is there already stays as it is.
    fn moves(&mut self, verb: &str, ids: &[&String], wrong: &str, (from, to): (&str, &str)) -> Answer {
        for id in ids {
            match self.instances.get(*id) {
                None => {
                    return error(400, "InvalidInstanceID.NotFound", &format!("The instance ID '{id}' does not exist"));
                }
                Some((_, state)) if state == wrong => {
                    return error(
                        400,
                        "IncorrectInstanceState",
                        &format!("The instance '{id}' is not in a state for it."),
                    );
                }
                Some(_) => {}
            }
        }
        let mut items = String::new();
        for id in ids {
            let Some((_, state)) = self.instances.get_mut(*id) else { continue };
            if state == from {
                to.clone_into(state);
            }
            let _ = write!(
                items,
                "<item><instanceId>{id}</instanceId><currentState><code>0</code><name>{state}</name></currentState></item>"
            );
        }
        (200, format!("<{verb}InstancesResponse><instancesSet>{items}</instancesSet></{verb}InstancesResponse>"))
    }
}

fn error(status: u16, code: &str, message: &str) -> Answer {
    let error = format!("<Error><Code>{code}</Code><Message>{message}</Message></Error>");
    (status, format!("<Response><Errors>{error}</Errors><RequestID>r</RequestID></Response>"))
}

/// `a=b&c=d%20e` as it was meant.
fn form(body: &[u8]) -> BTreeMap<String, String> {
    let decode = |text: &str| {
        let mut bytes = text.bytes();
        let mut decoded = Vec::new();
        while let Some(byte) = bytes.next() {
            decoded.push(match byte {
                b'+' => b' ',
                b'%' => {
                    let hex: String = bytes.by_ref().take(2).map(char::from).collect();
                    u8::from_str_radix(&hex, 16).unwrap()
                }
                other => other,
            });
        }
        String::from_utf8(decoded).unwrap()
    };
    let body = std::str::from_utf8(body).unwrap();
    body.split('&').filter_map(|pair| pair.split_once('=')).map(|(key, value)| (decode(key), decode(value))).collect()
}

/// The cloud, and the way there.
#[derive(Clone, Debug, Default)]
struct Ec2Bench(Arc<Mutex<Ec2>>);

impl Ec2Bench {
    fn ec2(&self) -> MutexGuard<'_, Ec2> {
        self.0.lock()
    }

    fn driver_within(&self, permit: Permit, limits: Arc<Limits>) -> Arc<dyn Driver> {
        let options = Options { endpoint_url: None, process: cloud_conformance::process(permit), quotas: Vec::new() };
        let keys = [("aws_access_key_id", "AKIA"), ("aws_secret_access_key", "hush")];
        let source = Source::read(&keys.map(|(key, value)| (key.to_owned(), value.into())).into()).unwrap();
        let base = base("us-east-1", &options).into_builder().http_client(self.clone()).build();
        Arc::new(driver(&options, "us-east-1", source, base, limits).now_or_never().unwrap())
    }
}

impl HttpClient for Ec2Bench {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for Ec2Bench {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let mut ec2 = self.ec2();
        ec2.requests += 1;
        if ec2.fault == Some(Fault::Silent) {
            return HttpConnectorFuture::new(std::future::pending());
        }
        let (status, body) = ec2.answer(&form(request.body().bytes().unwrap()));
        HttpConnectorFuture::ready(Ok(HttpResponse::new(status.try_into().unwrap(), body.into())))
    }
}

impl Bench for Ec2Bench {
    fn driver(&self, permit: Permit) -> Arc<dyn Driver> {
        self.driver_within(permit, Arc::new(Limits::new(&[])))
    }

    async fn cluster(&self, infra_id: &str, machines: usize) -> Target {
        let mut ec2 = self.ec2();
        for number in 0..machines {
            let id = format!("i-{:017x}", ec2.instances.len());
            ec2.names.insert(id.clone(), cloud_conformance::machine(infra_id, number, machines));
            ec2.instances.insert(id, (infra_id.to_owned(), "running".to_owned()));
        }
        let cluster = ClusterRef { infra_id: infra_id.to_owned(), region: "us-east-1".into(), ..ClusterRef::default() };
        Target { cluster, ledger: Arc::new(TestLedger::default()) }
    }

    async fn finish(&self) {
        for (_, state) in self.ec2().instances.values_mut() {
            match state.as_str() {
                "stopping" => "stopped".clone_into(state),
                "pending" => "running".clone_into(state),
                _ => {}
            }
        }
    }

    async fn fault(&self, fault: Option<Fault>) {
        self.ec2().fault = fault;
    }

    /// What EC2 accepts and gives up later shows as a machine that is stopped again, with its reason.
    fn cannot(&self) -> &'static [&'static str] {
        &[cloud_conformance::GIVEN_UP]
    }

    fn requests(&self) -> usize {
        self.ec2().requests
    }

    async fn running(&self, target: &Target) -> usize {
        let ec2 = self.ec2();
        let runs = |(owner, state): &&(String, String)| *owner == target.cluster.infra_id && state == "running";
        ec2.instances.values().filter(runs).count()
    }

    async fn confuse(&self, _: &Target, id: &str) {
        if let Some((_, state)) = self.ec2().instances.get_mut(id) {
            "hibernated-deeply".clone_into(state);
        }
    }
}

conformance_tests!(Ec2Bench::default());

/// By codes that no list here has, and without a name.
#[tokio::test(start_paused = true)]
async fn a_machine_that_is_refused_with_any_code_spoils_no_other() {
    for code in ["Unsupported", "MaxSpotInstanceCountExceeded", "ACodeOfNextYear"] {
        let bench = Ec2Bench::default();
        bench.ec2().refusal = Some((code, "The requested configuration is currently not supported."));
        cloud_conformance::a_refused_machine_spoils_no_other(&bench).await;
    }
}

/// At full use, EC2 throttles what comes a little early, and the SDK repeats it by itself: the next calls must come
/// later.
#[tokio::test(start_paused = true)]
async fn throttled_attempts_set_the_bucket_of_instances_back() {
    let (bench, limits) = (Ec2Bench::default(), Arc::new(Limits::new(&[])));
    let driver = bench.driver_within(Arc::new(|| true), limits.clone());
    let target = bench.cluster("demo", 3).await;
    let ids: Vec<String> = bench.ec2().instances.keys().cloned().collect();
    bench.fault(Some(Fault::Throttled)).await;
    let before = tokio::time::Instant::now();
    driver.advance(&target, Verb::Start, &ids).await.unwrap_err();
    let attempts = bench.requests();
    assert!(attempts > 1, "the SDK tries again");
    let left = limits.of(Bucket::Instances(Verb::Start)).acquire_some(Priority::Waking, 1, 1_000).await;
    // What was admitted once, and two seconds for each attempt.
    let used = u64::try_from(3 + 4 * attempts).unwrap();
    let refilled = 2 * (before.elapsed().as_secs() + 1);
    assert!(u64::from(left) <= 1_000 - used + refilled, "{left} left after {attempts} attempts, {refilled} came back");
    assert!(used > refilled, "or nothing is proven");
}
