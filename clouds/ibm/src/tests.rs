//! The driver on a simulator that speaks IBM Cloud's API.

use std::sync::Arc;

use cloud_conformance::{Bench, Intent, conformance_tests, drive, inventory, pass};
use cloud_http::{Http, Transport, Url};
use cloud_simulators::{API_KEY, Effect, Face, SimulatedBench};
use cloud_stopstart::StopStart;
use shared::cloud::{CloudErrorKind, Driver, InstanceState, Priority, Target};

use crate::account::{Account, RATE};
use crate::wire::state;

fn connect(transport: Arc<dyn Transport>, permit: cloud_common::Permit) -> Arc<dyn Driver> {
    connect_with(API_KEY, "eu-de", transport, permit)
}

fn connect_with(
    key: &str,
    region: &str,
    transport: Arc<dyn Transport>,
    permit: cloud_common::Permit,
) -> Arc<dyn Driver> {
    let http = Http::over(transport, permit.clone(), RATE);
    let endpoint = Url::parse("https://simulator.example").unwrap();
    let account = Account::new(key.to_owned(), region, "account", http, permit, Some(&endpoint));
    Arc::new(StopStart::new(account.unwrap()))
}

fn bench() -> SimulatedBench {
    SimulatedBench::new(Face::Ibm, connect)
}

fn driver(bench: &SimulatedBench) -> Arc<dyn Driver> {
    bench.driver(Arc::new(|| true))
}

conformance_tests!(bench());

#[test]
fn every_state_that_ibm_lists() {
    use InstanceState::{Pending, Running, ShuttingDown, Stopped, Stopping, Unknown};
    for (word, expected) in [
        ("pending", Pending),
        ("running", Running),
        ("stopping", Stopping),
        ("stopped", Stopped),
        // Hive reads AWS's names, and is blind to these.
        ("starting", Pending),
        ("restarting", Pending),
        ("deleting", ShuttingDown),
        ("failed", Unknown),
        ("shutting-down", Unknown),
        ("", Unknown),
    ] {
        assert_eq!(state(word), expected, "{word}");
    }
}

async fn of_states(words: &[&str]) -> (SimulatedBench, Target) {
    let bench = bench();
    let target = bench.cluster("demo", words.len()).await;
    for (machine, word) in bench.simulator().engine.machines.values_mut().zip(words) {
        (*word).clone_into(&mut machine.word);
    }
    (bench, target)
}

fn words(bench: &SimulatedBench) -> Vec<String> {
    bench.simulator().engine.machines.values().map(|machine| machine.word.clone()).collect()
}

/// Hive's table `TestIBMCloudStopAndStartMachines` by its names.
#[tokio::test(start_paused = true)]
async fn hives_table_of_stops_and_starts() {
    for (case, before, intent, after) in [
        ("stop no running instances", ["stopped", "stopping"], Intent::Asleep, ["stopped", "stopping"]),
        ("stop running instances", ["stopped", "running"], Intent::Asleep, ["stopped", "stopping"]),
        ("start no stopped instances", ["running", "starting"], Intent::Awake, ["running", "starting"]),
        ("start stopped instances", ["stopped", "running"], Intent::Awake, ["starting", "running"]),
        ("start stopped and stopping instances", ["stopping", "stopped"], Intent::Awake, ["stopping", "starting"]),
    ] {
        let (bench, target) = of_states(&before).await;
        pass(&*driver(&bench), &target, intent).await.unwrap();
        assert_eq!(words(&bench), after, "{case}");
    }
}

/// Hive's tables of `MachinesStopped` and `MachinesRunning`, and what they are blind to.
#[tokio::test(start_paused = true)]
async fn hives_tables_of_what_is_stopped_and_running() {
    for (case, word, is_stopped, is_running) in [
        ("Stopped - All machines stopped", "stopped", true, false),
        ("Stopped - Some machines pending", "pending", false, false),
        ("Stopped - machines running", "running", false, true),
        ("Running - Some machines stopping", "stopping", false, false),
        ("blind: starting", "starting", false, false),
        ("blind: restarting", "restarting", false, false),
        ("blind: failed", "failed", false, false),
        ("blind: deleting", "deleting", false, false),
    ] {
        let (bench, target) = of_states(&[word, word]).await;
        let found = inventory(&*driver(&bench), &target).await.unwrap();
        let is = |state| found.all(state);
        assert_eq!((is(InstanceState::Stopped), is(InstanceState::Running)), (is_stopped, is_running), "{case}");
    }
}

/// Hive's case `unable to GetVPCInstances`: an error, and a name of the call.
#[tokio::test(start_paused = true)]
async fn hives_case_of_a_list_that_fails() {
    let (bench, target) = of_states(&["running"]).await;
    let (message, code) = ("cannot list".to_owned(), "service_error".to_owned());
    bench.rule("list", "", Effect::Status { status: 500, code, message, retry_after: None });
    let error = inventory(&*driver(&bench), &target).await.unwrap_err();
    assert_eq!(error.kind, CloudErrorKind::Unavailable);
    assert!(error.message.contains("/v1/instances: 500: service_error: cannot list"), "{error}");
}

/// Names are all that IBM's lists have. A cluster in a VPC of its own name is found, which Hive calls stopped.
#[tokio::test(start_paused = true)]
async fn clusters_with_a_common_prefix_are_told_apart_by_their_control_planes() {
    let bench = bench();
    let short = bench.cluster("demo-x7k2p", 2).await;
    bench.cluster("demo-x7k2p-two-abcde", 2).await;
    bench.simulator().engine.boot("demo-x7k2p-worker-by-hand", "", "");
    let found = driver(&bench).list(&short, Priority::Sleeping).await.unwrap();
    let names: Vec<&str> = found.instances.iter().map(|instance| instance.id.as_str()).collect();
    assert_eq!(names, ["demo-x7k2p-master-0", "demo-x7k2p-worker-1", "demo-x7k2p-worker-by-hand"]);
    assert!(found.instances[0].is_node("other", Some("0717_00000000")), "by the ID in its providerID");
}

/// IBM queues whatever is asked for: only machines that need it are asked.
#[tokio::test(start_paused = true)]
async fn an_action_goes_to_machines_that_need_it_and_one_refusal_stops_no_other() {
    let (bench, target) = of_states(&["running", "stopped", "running"]).await;
    bench.simulator().engine.machines.get_mut("demo-worker-1").unwrap().blocked = true;
    let driver = driver(&bench);
    let all: Vec<String> = bench.simulator().engine.machines.keys().cloned().collect();
    driver.list(&target, Priority::Waking).await.unwrap();
    let outcome = driver.advance(&target, shared::cloud::Verb::Start, &all).await.unwrap();
    assert_eq!(outcome.moved.len(), 2);
    let [refusal] = outcome.refused.as_slice() else { panic!("{outcome:?}") };
    assert_eq!((refusal.id.as_str(), refusal.code.as_str()), ("demo-worker-1", "not_startable"));
    let calls: Vec<String> = bench.calls().into_iter().map(|(call, _)| call).collect();
    assert_eq!(calls, ["token", "region", "list"], "no action");
}

/// What IBM says of a start that failed stands in the list, long after: only a start of ours is given up by it.
#[tokio::test(start_paused = true)]
async fn an_old_reason_is_no_refusal_of_this_wake() {
    let (bench, target) = of_states(&["stopped", "stopped"]).await;
    let why = || Some(("cannot_start_network".to_owned(), "the subnet is gone".to_owned()));
    for machine in bench.simulator().engine.machines.values_mut() {
        machine.reason = why();
    }
    let driver = driver(&bench);
    let found = inventory(&*driver, &target).await.unwrap();
    assert!(found.failed.is_empty(), "{found:?}");
    let reasons: Vec<Option<&str>> = found.instances.iter().map(|instance| instance.stop_reason.as_deref()).collect();
    assert_eq!(reasons, [Some("cannot_start_network: the subnet is gone"); 2]);
    drive(&bench, &driver, &target, Intent::Awake).await;
}

#[tokio::test(start_paused = true)]
async fn a_key_that_iam_does_not_know_is_denied_and_a_region_that_is_none_is_named() {
    let bench = SimulatedBench::new(Face::Ibm, |transport, permit| connect_with("old", "eu-de", transport, permit));
    let target = bench.cluster("demo", 1).await;
    let error = inventory(&*driver(&bench), &target).await.unwrap_err();
    assert_eq!(error.kind, CloudErrorKind::Denied);
    assert!(error.message.contains("BXNIM0415E") && !error.message.contains("old"), "{error}");
    let bench = SimulatedBench::new(Face::Ibm, |transport, permit| connect_with(API_KEY, "xx-yy", transport, permit));
    let error = inventory(&*driver(&bench), &target).await.unwrap_err();
    assert_eq!(error.kind, CloudErrorKind::Invalid);
    assert_eq!(error.message, "spec.platform.ibmcloud.region is xx-yy: IBM Cloud has no such region");
}

/// The account's token goes to no host but IBM's.
#[tokio::test(start_paused = true)]
async fn neither_a_region_nor_a_page_leads_to_another_host() {
    for call in ["region", "list"] {
        let (bench, target) = of_states(&["running"; 9]).await;
        bench.rule(call, "", Effect::ForeignLink { to: "https://evil.example".to_owned() });
        let error = inventory(&*driver(&bench), &target).await.unwrap_err();
        assert_eq!(error.kind, CloudErrorKind::Unavailable, "{call}: {error}");
        assert_eq!(bench.calls().iter().filter(|(name, _)| name == call).count(), 1);
    }
    for (endpoint, is_trusted) in [
        ("https://eu-de.iaas.cloud.ibm.com", true),
        ("http://eu-de.iaas.cloud.ibm.com", false),
        ("https://cloud.ibm.com.evil.example", false),
        ("https://evilcloud.ibm.com", false),
        ("https://evil.example", false),
    ] {
        let http = Http::over(Arc::new(Nowhere), Arc::new(|| true), RATE);
        let account = Account::new("k".to_owned(), "eu-de", "a", http, Arc::new(|| true), None).unwrap();
        assert_eq!(account.is_trusted(&Url::parse(endpoint).unwrap()), is_trusted, "{endpoint}");
    }
}

/// A transport that is never used.
struct Nowhere;

impl Transport for Nowhere {
    fn send<'a>(
        &'a self,
        _what: &'a str,
        _request: cloud_http::Request,
    ) -> futures::future::BoxFuture<'a, Result<cloud_http::Reply, cloud_http::CallError>> {
        Box::pin(std::future::pending())
    }
}
