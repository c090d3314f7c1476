//! The driver on a simulator that speaks IBM Cloud's API.

use std::sync::Arc;

use cloud_common::Platform;
use cloud_conformance::{Bench, Intent, drive, inventory, pass};
use cloud_http::{Http, Transport, Url};
use cloud_simulators::{API_KEY, Effect, Face, SimulatedBench, simulated_tests};
use cloud_stopstart::{Cloud as _, StopStart};
use shared::cloud::{CloudErrorKind, ClusterRef, Driver, InstanceState, Priority};

use crate::IbmCloud;
use crate::account::Account;
use crate::wire::state;

fn connect(_: &str, transport: Arc<dyn Transport>, permit: cloud_common::Permit) -> Arc<dyn Driver> {
    connect_with(API_KEY, "eu-de", transport, permit)
}

fn connect_with(
    key: &str,
    region: &str,
    transport: Arc<dyn Transport>,
    permit: cloud_common::Permit,
) -> Arc<dyn Driver> {
    let http = Http::over(transport, permit.clone(), Account::RATE);
    let account = Account::new(key, region, "account", http, None);
    Arc::new(StopStart::new(account.unwrap(), permit))
}

simulated_tests!(Ibm, connect, moves: MOVES, states: STATES, refusals: REFUSALS);

/// Hive's `TestIBMCloudStopAndStartMachines` by its names: how many machines of which state get a call.
const MOVES: &str = "
    stop no running instances | Asleep | 2 deleting, 2 stopping, 1 stopped |
    stop running instances | Asleep | 5 deleting, 2 running | 2 running
    stop pending and running instances | Asleep | 5 deleting, 3 stopping, 4 stopped, 7 pending, 3 running | 7 pending, 3 running
    # Hive leaves the two alone, and calls the cluster stopped.
    starting and failed instances | Asleep | 1 starting, 1 failed | 1 starting, 1 failed
    start no stopped instances | Awake | 4 pending, 3 running |
    start stopped instances | Awake | 3 stopped, 4 running | 3 stopped
    # Hive starts the one as well: it is started here once it is stopped.
    start stopped and stopping instances | Awake | 3 stopped, 1 stopping, 7 deleting | 3 stopped
";

/// Hive's `TestIBMCloudMachinesStoppedAndRunning` by its names, and what Hive is blind to. A machine that is being deleted
/// counts here until it is gone.
const STATES: &str = "
    Stopped - All machines stopped or terminated | 2 stopped | asleep
    Stopped - Some machines pending | 3 deleting, 2 stopped, 2 pending |
    Stopped - machines running | 3 running, 2 deleting |
    Running - All machines running | 3 running | awake
    Running - Some machines pending | 3 running, 1 pending |
    Running - Some machines stopped or shutting-down | 3 running, 2 deleting, 1 stopped, 3 stopping |
    blind | 1 starting |
    blind | 1 restarting |
    blind | 1 failed |
    blind: deleting | 2 stopped, 1 deleting |
    blind: nothing found | |
";

/// How a cloud refuses to move one machine, and what that means.
const REFUSALS: &[(u16, &str, &str, CloudErrorKind)] = &[
    (404, "not_found", "Instance not found", CloudErrorKind::InTransit),
    (400, "bad_request", "not now", CloudErrorKind::Refused),
    (409, "instance_not_ready", "The instance is busy", CloudErrorKind::InTransit),
    (409, "cannot_start_capacity", "no capacity", CloudErrorKind::Capacity),
    (400, "over_quota", "too many", CloudErrorKind::Capacity),
    (403, "forbidden", "may not operate it", CloudErrorKind::Refused),
    (500, "internal_error", "an internal error", CloudErrorKind::Refused),
];

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

/// Hive's case `unable to GetVPCInstances`: an error, and a name of the call.
#[tokio::test(start_paused = true)]
async fn hives_case_of_a_list_that_fails() {
    let bench = bench();
    let target = bench.cluster_of(&[("running", 1)]).await;
    bench.reject("list", "", 500, "service_error", "cannot list");
    let error = inventory(&*bench.leader(), &target).await.unwrap_err();
    assert_eq!(error.kind, CloudErrorKind::Unavailable);
    assert!(error.message.contains("/v1/instances: 500: service_error: cannot list"), "{error}");
}

/// A cluster in a VPC that existed before: Hive asks for `<infraID>-vpc`, finds nothing and calls that stopped.
#[tokio::test(start_paused = true)]
async fn a_cluster_in_a_vpc_of_another_name_is_found() {
    let bench = bench();
    let target = bench.cluster("demo", 2).await;
    for machine in bench.simulator().engine.machines.values_mut() {
        "shared".clone_into(&mut machine.vpc);
    }
    assert_eq!(bench.stopped_and_running(&target).await, (false, true));
}

/// IBM runs whatever is asked for in its turn: what is asked for twice while lists lag would come after a change of mind.
#[tokio::test(start_paused = true)]
async fn a_change_of_mind_meets_no_action_of_before() {
    let bench = bench();
    let target = bench.cluster_of(&[("running", 2)]).await;
    let driver = bench.leader();
    for _ in 0..3 {
        pass(&*driver, &target, Intent::Asleep).await.unwrap();
    }
    drive(&bench, &driver, &target, Intent::Awake).await;
    for _ in 0..4 {
        bench.finish().await;
    }
    assert_eq!(bench.running(&target).await, 2, "no stop was waiting");
}

/// Names are all that IBM's lists have to tell whose a machine is.
#[tokio::test(start_paused = true)]
async fn clusters_with_a_common_prefix_are_told_apart_by_their_control_planes() {
    let bench = bench();
    let short = bench.cluster("demo-x7k2p", 2).await;
    bench.cluster("demo-x7k2p-two-abcde", 2).await;
    for by_hand in ["demo-x7k2p-worker-by-hand", "demo-x7k2p-worker-master-0", "demo-x7k2p-two-abcde-master-fghij-2"] {
        bench.simulator().engine.boot(by_hand, "", "");
    }
    let found = bench.leader().list(&short, Priority::Sleeping).await.unwrap();
    let names: Vec<&str> = found.instances.iter().map(|instance| instance.id.as_str()).collect();
    let own = ["demo-x7k2p-master-0", "demo-x7k2p-worker-1", "demo-x7k2p-worker-by-hand", "demo-x7k2p-worker-master-0"];
    assert_eq!(names, own, "a name that looks like a master's takes no machine away");
    assert!(found.instances[0].is_node("other", Some("0717_00000000")), "by the ID in its providerID");
}

/// IBM queues whatever is asked for: only machines that need it are asked.
#[tokio::test(start_paused = true)]
async fn an_action_goes_to_machines_that_need_it_and_one_refusal_stops_no_other() {
    let bench = bench();
    let target = bench.cluster_of(&[("running", 1), ("stopped", 1), ("running", 1)]).await;
    bench.simulator().engine.machines.get_mut("demo-worker-1").unwrap().blocked = true;
    let driver = bench.leader();
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
    let bench = bench();
    let target = bench.cluster_of(&[("stopped", 2)]).await;
    let why = || Some(("cannot_start_network".to_owned(), "the subnet is gone".to_owned()));
    for machine in bench.simulator().engine.machines.values_mut() {
        machine.reason = why();
    }
    let driver = bench.leader();
    let found = inventory(&*driver, &target).await.unwrap();
    assert!(found.failed.is_empty(), "{found:?}");
    let reasons: Vec<Option<&str>> = found.instances.iter().map(|instance| instance.stop_reason.as_deref()).collect();
    assert_eq!(reasons, [Some("cannot_start_network: the subnet is gone"); 2]);
    drive(&bench, &driver, &target, Intent::Awake).await;
}

#[tokio::test(start_paused = true)]
async fn a_key_that_iam_does_not_know_is_denied_and_a_region_that_is_none_is_named() {
    let bench = SimulatedBench::new(Face::Ibm, |_, transport, permit| connect_with("old", "eu-de", transport, permit));
    let target = bench.cluster("demo", 1).await;
    let error = inventory(&*bench.leader(), &target).await.unwrap_err();
    assert_eq!(error.kind, CloudErrorKind::Denied);
    assert!(error.message.contains("BXNIM0415E") && !error.message.contains("old"), "{error}");
    let bench =
        SimulatedBench::new(Face::Ibm, |_, transport, permit| connect_with(API_KEY, "xx-yy", transport, permit));
    let error = inventory(&*bench.leader(), &target).await.unwrap_err();
    assert_eq!(error.kind, CloudErrorKind::Invalid);
    assert_eq!(error.message, "spec.platform.ibmcloud.region is xx-yy: IBM Cloud has no such region");
}

/// The account's token goes to no host but IBM's.
#[tokio::test(start_paused = true)]
async fn neither_a_region_nor_a_page_leads_to_another_host() {
    for call in ["region", "list"] {
        let bench = bench();
        let target = bench.cluster_of(&[("running", 9)]).await;
        bench.rule(call, "", Effect::ForeignLink { to: "https://evil.example".to_owned() });
        let error = inventory(&*bench.leader(), &target).await.unwrap_err();
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
        let http = Http::over(Arc::new(Nowhere), Arc::new(|| true), Account::RATE);
        let account = Account::new("k", "eu-de", "a", http, None).unwrap();
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
        _charge: &'a mut cloud_common::Charge,
    ) -> futures::future::BoxFuture<'a, Result<cloud_http::Reply, cloud_http::CallError>> {
        Box::pin(std::future::pending())
    }
}

#[test]
fn a_cluster_says_which_region_it_is_in() {
    let process = cloud_conformance::process(Arc::new(|| true));
    let platform = IbmCloud::new(&crate::IbmFlags { ibm_endpoint_url: None }, &process);
    for (region, is_one) in [("eu-de", true), ("", false), ("EU-DE", false), ("eu-de.evil.example/", false)] {
        let (namespace, credentials) = ("ns".to_owned(), "creds".to_owned());
        let cluster = ClusterRef { namespace, credentials, region: region.to_owned(), ..ClusterRef::default() };
        match platform.access(&cluster) {
            Ok(access) => assert!(is_one && access.secrets == [("ns".to_owned(), "creds".to_owned())], "{region}"),
            Err(error) => {
                let says = format!("spec.platform.ibmcloud.region is {region:?}");
                assert!(!is_one && error.message.starts_with(&says), "{error}");
            }
        }
    }
}
