//! The driver on a simulator that speaks Compute Engine's API.

use std::sync::Arc;

use cloud_conformance::{Bench, Intent, drive, inventory, pass};
use cloud_http::{Http, Transport, Url};
use cloud_simulators::{Disks, Effect, SimulatedBench, simulated_tests};
use cloud_stopstart::{Cloud as _, StopStart};
use shared::cloud::{CloudErrorKind, Driver, InstanceState, PlatformSpec, Priority, Verb};

use crate::account::Account;
use crate::key;
use crate::wire::state;

fn connect(_: &str, transport: Arc<dyn Transport>, permit: cloud_common::Permit) -> Arc<dyn Driver> {
    connect_with(&cloud_simulators::service_account(), transport, permit)
}

fn connect_with(key: &str, transport: Arc<dyn Transport>, permit: cloud_common::Permit) -> Arc<dyn Driver> {
    let key = key::parse(key).unwrap();
    let http = Http::over(transport, permit.clone(), Account::RATE);
    let endpoint = Url::parse("https://compute.googleapis.com").unwrap();
    Arc::new(StopStart::new(Account::new(key, http, &endpoint), permit))
}

simulated_tests!(Gcp, connect, moves: MOVES, states: STATES, refusals: REFUSALS);

/// Hive's `TestGCPStopAndStartMachines`, by its names: how many machines of which state get a call.
const MOVES: &str = "
    stop no running instances | Asleep | 2 TERMINATED, 2 STOPPING, 1 STOPPED |
    stop running instances | Asleep | 5 TERMINATED, 2 RUNNING | 2 RUNNING
    stop pending and running instances | Asleep | 5 TERMINATED, 3 STOPPING, 4 STOPPED, 7 STAGING, 3 RUNNING | 7 STAGING, 3 RUNNING
    stop provisioning instances | Asleep | 1 PROVISIONING | 1 PROVISIONING
    start no stopped instances | Awake | 4 STAGING, 3 RUNNING |
    start stopped instances | Awake | 3 STOPPED, 2 TERMINATED, 4 RUNNING | 3 STOPPED, 2 TERMINATED
    # Hive starts the one as well, which Google refuses: it is started here once it is stopped.
    start stopped and stopping instances | Awake | 3 STOPPED, 1 STOPPING, 7 TERMINATED | 3 STOPPED, 7 TERMINATED
";

/// Hive's `TestGCPMachinesStoppedAndRunning` by its names, and what Hive is blind to: under its rule each of the latter is
/// asleep and awake at once.
const STATES: &str = "
    Stopped - All machines stopped or terminated | 3 TERMINATED, 2 STOPPED | asleep
    Stopped - Some machines pending | 3 TERMINATED, 2 STOPPED, 2 STAGING |
    Stopped - machines running | 3 RUNNING, 2 TERMINATED |
    Running - All machines running | 3 RUNNING | awake
    Running - Some machines pending | 3 RUNNING, 1 STAGING |
    Running - Some machines stopped or shutting-down | 3 RUNNING, 2 TERMINATED, 1 STOPPED, 3 STOPPING |
    blind | 1 SUSPENDED | asleep
    blind | 1 SUSPENDING |
    blind | 1 REPAIRING |
    blind | 1 PENDING |
    blind | 1 PENDING_STOP |
    blind | 1 DEPROVISIONING |
    blind: nothing found | |
";

/// How a cloud refuses to move one machine, and what that means.
const REFUSALS: &[(u16, &str, &str, CloudErrorKind)] = &[
    (404, "notFound", "The resource was not found", CloudErrorKind::InTransit),
    (400, "resourceNotReady", "is not ready", CloudErrorKind::InTransit),
    (400, "invalid", "Invalid value", CloudErrorKind::Refused),
    (409, "resourceInUseByAnotherResource", "in use", CloudErrorKind::InTransit),
    (412, "conditionNotMet", "not met", CloudErrorKind::InTransit),
    (
        503,
        "backendError",
        "The zone does not have enough resources: ZONE_RESOURCE_POOL_EXHAUSTED",
        CloudErrorKind::Capacity,
    ),
    (403, "quotaExceeded", "Quota 'CPUS' exceeded", CloudErrorKind::Capacity),
    (403, "forbidden", "may not act as its service account", CloudErrorKind::Refused),
    (500, "internalError", "An internal error has occurred", CloudErrorKind::Refused),
];

/// Every state of the reference; those after the blank line match nothing in Hive.
#[test]
fn every_state_that_google_lists() {
    use InstanceState::{Pending, Running, ShuttingDown, Stopped, Stopping, Unknown};
    for (expected, words) in [
        (Pending, "PROVISIONING STAGING"),
        (Running, "RUNNING"),
        (Stopping, "STOPPING"),
        (Stopped, "STOPPED TERMINATED"),
        //
        (Pending, "PENDING REPAIRING"),
        (Stopping, "PENDING_STOP SUSPENDING"),
        (Stopped, "SUSPENDED"),
        (ShuttingDown, "DEPROVISIONING"),
        (Unknown, ""),
        (Unknown, "running"),
    ] {
        for word in words.split(' ') {
            assert_eq!(state(word), expected, "{word}");
        }
    }
}

/// Hive's case `stop running instances with SSDs: preserve`, and what Hive's cannot check: the value. Without one the
/// owner hears which field it is.
#[tokio::test(start_paused = true)]
async fn the_owner_decides_what_becomes_of_local_ssds() {
    for (discard, is_refused) in [(None, true), (Some(true), false), (Some(false), false)] {
        let bench = bench();
        let mut target = bench.cluster_of(&[("RUNNING", 2)]).await;
        for machine in bench.simulator().engine.machines.values_mut() {
            machine.disks = Disks::LocalSsd;
        }
        target.cluster.platform = PlatformSpec::Gcp { discard_local_ssd: discard };
        let found = inventory(&*bench.leader(), &target).await.unwrap();
        let says = "it has a local SSD: set spec.platform.gcp.discardLocalSsdOnHibernate: true";
        assert_eq!(found.obstacles().filter(|why| why.contains(says)).count(), if is_refused { 2 } else { 0 });
        let (_, outcome) = pass(&*bench.leader(), &target, Intent::Asleep).await.unwrap();
        assert_eq!(outcome.refused.len(), if is_refused { 2 } else { 0 }, "{discard:?}");
        for refusal in outcome.refused {
            assert_eq!(refusal.kind, CloudErrorKind::Refused);
            assert!(refusal.message.contains("spec.platform.gcp.discardLocalSsdOnHibernate"), "{refusal}");
        }
        let stops = bench.log().into_iter().filter(|call| call.call == "stop");
        let sent: Vec<_> = stops.map(|call| call.query.get("discardLocalSsd").cloned()).collect();
        assert_eq!(sent, vec![discard.map(|discard| discard.to_string()); 2]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_suspended_machine_is_woken_by_resume() {
    let bench = bench();
    let target = bench.cluster_of(&[("SUSPENDED", 1), ("TERMINATED", 1)]).await;
    drive(&bench, &bench.leader(), &target, Intent::Awake).await;
    let mut calls: Vec<String> =
        bench.calls().into_iter().map(|(call, _)| call).filter(|call| call != "list").collect();
    calls.sort();
    assert_eq!(calls, ["resume", "start"]);
}

/// By the label: under Hive's rule, which looks at the name only, the other cluster would hibernate too.
#[tokio::test(start_paused = true)]
async fn clusters_with_a_common_prefix_are_told_apart_by_label() {
    let bench = bench();
    let short = bench.cluster("demo-x7k2p", 2).await;
    bench.cluster("demo-x7k2p-two-abcde", 2).await;
    bench.simulator().engine.boot("demo-x7k2p-by-hand", "", "");
    let found = bench.leader().list(&short, Priority::Sleeping).await.unwrap();
    let names: Vec<&str> = found.instances.iter().map(|instance| instance.id.as_str()).collect();
    assert_eq!(names, ["demo-x7k2p-by-hand", "demo-x7k2p-master-0", "demo-x7k2p-worker-1"]);
}

/// Starts and stops do no harm when they are repeated, so that a call that a restart has forgotten is sent again. A
/// `requestId` would do harm: within an hour Google answers a repeated one with its old operation, also one that was given
/// up.
#[tokio::test(start_paused = true)]
async fn a_start_that_was_given_up_before_a_restart_is_made_again() {
    let bench = bench();
    let target = bench.cluster_of(&[("TERMINATED", 1)]).await;
    bench.give_up("start", "", "ZONE_RESOURCE_POOL_EXHAUSTED", "full");
    for _ in 0..3 {
        pass(&*bench.leader(), &target, Intent::Awake).await.unwrap();
        bench.finish().await;
    }
    bench.simulator().engine.heal();
    drive(&bench, &bench.leader(), &target, Intent::Awake).await;
    assert!(bench.log().iter().all(|call| !call.query.contains_key("requestId")));
}

/// A machine that is there answers 304, and the others go on.
#[tokio::test(start_paused = true)]
async fn what_google_calls_not_modified_is_no_failure() {
    let bench = bench();
    let target = bench.cluster_of(&[("RUNNING", 2)]).await;
    let driver = bench.leader();
    let found = inventory(&*driver, &target).await.unwrap();
    bench.simulator().engine.machines.get_mut("demo-worker-1").unwrap().word = "TERMINATED".to_owned();
    let ids: Vec<String> = found.instances.into_iter().map(|instance| instance.id).collect();
    let outcome = driver.advance(&target, Verb::Stop, &ids).await.unwrap();
    assert_eq!((outcome.moved.len(), outcome.refused.len()), (2, 0), "{outcome:?}");
    assert!(bench.calls().contains(&("stop".to_owned(), 304)));
    drive(&bench, &driver, &target, Intent::Asleep).await;
}

#[tokio::test(start_paused = true)]
async fn a_token_of_another_key_or_project_is_denied() {
    let (bench, own) = (bench(), cloud_simulators::service_account());
    let target = bench.cluster_of(&[("RUNNING", 1)]).await;
    let mut file: serde_json::Value = serde_json::from_str(&own).unwrap();
    file["private_key_id"] = "revoked".into();
    let revoked = SimulatedBench::sharing(&bench, file.to_string(), connect_with);
    let error = inventory(&*revoked.leader(), &target).await.unwrap_err();
    assert!(error.kind == CloudErrorKind::Denied && error.message.contains("401: authError"), "{error}");
    file["private_key_id"] = "key-1".into();
    file["project_id"] = "another".into();
    let elsewhere = SimulatedBench::sharing(&bench, file.to_string(), connect_with);
    let error = inventory(&*elsewhere.leader(), &target).await.unwrap_err();
    assert!(error.kind == CloudErrorKind::Denied && error.message.contains("403: forbidden"), "{error}");
}

/// Fifty names are one filter, and a name that is no infraID never gets into it.
#[tokio::test(start_paused = true)]
async fn clusters_of_a_project_share_lists() {
    let bench = bench();
    bench.simulator().engine.page = 500;
    let mut targets = Vec::new();
    for number in 0..100 {
        targets.push(bench.cluster(&format!("demo-{number:05}"), 3).await);
    }
    let driver = bench.leader();
    let lists = targets.iter().map(|target| driver.list(target, Priority::Sleeping));
    let found = futures::future::join_all(lists).await;
    assert!(found.iter().all(|found| found.as_ref().unwrap().instances.len() == 3));
    assert_eq!(bench.requests(), 2);
    let mut odd = targets.remove(0);
    "demo|.*".clone_into(&mut odd.cluster.infra_id);
    let error = driver.list(&odd, Priority::Sleeping).await.unwrap_err();
    assert_eq!(error.kind, CloudErrorKind::Invalid);
    assert!(error.message.starts_with("spec.clusterMetadata.infraID is \"demo|.*\""), "{error}");
    assert!(driver.advance(&odd, Verb::Stop, &["x".to_owned()]).await.is_err());
}

/// A zone that does not answer is no other cluster's affair, and most warnings are about what is listed.
#[tokio::test(start_paused = true)]
async fn a_silent_zone_matters_to_clusters_with_machines_there() {
    let bench = bench();
    let mut target = bench.cluster("demo", 3).await;
    target.cluster.region = "us-east1".to_owned();
    let driver = bench.leader();
    let mut elsewhere = bench.cluster("other", 3).await;
    elsewhere.cluster.region = "us-east4".to_owned();
    bench.rule("list", "", Effect::Partial);
    let lists = async |target| driver.list(target, Priority::Sleeping).await;
    let error = lists(&target).await.unwrap_err();
    assert_eq!(error.message, "instances.aggregatedList does not list us-east1-b: UNREACHABLE");
    assert!(lists(&elsewhere).await.is_ok(), "of another region");
    bench.simulator().engine.heal();
    lists(&target).await.unwrap();
    bench.rule("list", "", Effect::Partial);
    assert!(lists(&target).await.is_err(), "it has had machines there");
    bench.simulator().engine.heal();
    for machine in bench.simulator().engine.machines.values_mut() {
        machine.zone = machine.zone.replace('b', "c");
    }
    lists(&target).await.unwrap();
    bench.rule("list", "", Effect::Partial);
    assert_eq!(lists(&target).await.unwrap().instances.len(), 3, "its machines are in other zones");
    for (code, is_complete) in
        [("NOT_CRITICAL_ERROR", true), ("EXPERIMENTAL_TYPE_USED", true), ("PARTIAL_SUCCESS", false)]
    {
        bench.simulator().engine.heal();
        bench.rule("list", "", Effect::Warning { code: code.to_owned() });
        assert_eq!(lists(&target).await.is_ok(), is_complete, "{code}");
    }
}

/// Hive needs no right to read operations. Without it, a start that comes to nothing is reported, but not why.
#[tokio::test(start_paused = true)]
async fn a_start_whose_operation_may_not_be_read_is_reported_when_nothing_comes_of_it() {
    let bench = bench();
    let target = bench.cluster_of(&[("TERMINATED", 1)]).await;
    let driver = bench.leader();
    bench.reject("operation", "", 403, "forbidden", "compute.zoneOperations.get");
    bench.give_up("start", "", "forbidden", "compute.zoneOperations.get");
    pass(&*driver, &target, Intent::Awake).await.unwrap();
    let mut failed = Vec::new();
    for _ in 0..4 {
        bench.finish().await;
        failed = inventory(&*driver, &target).await.unwrap().failed;
    }
    let codes: Vec<_> = failed.iter().map(|refusal| (refusal.kind, refusal.code.as_str())).collect();
    assert_eq!(codes, [(CloudErrorKind::Refused, "NoEffect")]);
    bench.simulator().engine.heal();
    drive(&bench, &driver, &target, Intent::Awake).await;
}
