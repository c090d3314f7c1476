//! The driver on a simulator that speaks Azure's API.

use std::sync::Arc;

use cloud_common::Platform;
use cloud_conformance::{Bench, Intent, drive, inventory, pass};
use cloud_http::{Http, Transport};
use cloud_simulators::{CLIENT, Disks, Effect, Face, SECRET, SUBSCRIPTION, SimulatedBench, TENANT, simulated_tests};
use cloud_stopstart::{Cloud as _, StopStart};
use serde_json::json;
use shared::cloud::{CloudErrorKind, ClusterRef, Driver, PlatformSpec, Priority, Verb};

use crate::Azure;
use crate::account::Account;
use crate::principal::{self, Environment};

fn connect(_: &str, transport: Arc<dyn Transport>, permit: cloud_common::Permit) -> Arc<dyn Driver> {
    connect_with(SECRET, transport, permit)
}

fn connect_with(secret: &str, transport: Arc<dyn Transport>, permit: cloud_common::Permit) -> Arc<dyn Driver> {
    Arc::new(StopStart::new(account(secret, transport, permit.clone()), permit))
}

fn account(secret: &str, transport: Arc<dyn Transport>, permit: cloud_common::Permit) -> Account {
    let file = json!({"subscriptionId": SUBSCRIPTION, "tenantId": TENANT, "clientId": CLIENT, "clientSecret": secret});
    let principal = principal::parse(&file.to_string()).unwrap();
    Account::new(&principal, Environment::Public, Http::over(transport, permit, Account::RATE), None).unwrap()
}

simulated_tests!(Azure, connect, moves: MOVES, states: STATES, refusals: REFUSALS);

/// Hive's `TestAzureStopAndStartMachines` by its names, and one more: how many machines of which state get a call. That the
/// call names the resource group is up to the simulator.
const MOVES: &str = "
    # Hive leaves the two alone, which are billed.
    stop no running instances | Asleep | 2 deallocated, 2 deallocating, 2 stopped | 2 stopped
    stop running instances | Asleep | 2 deallocated, 2 running | 2 running
    stop pending and running instances | Asleep | 3 deallocating, 4 deallocated, 1 starting, 3 running | 3 running, 1 starting
    hanging ones, and those that say nothing | Asleep | 1 creating, 1 | 1 creating, 1
    start no stopped instances | Awake | 4 starting, 3 running |
    start stopped instances | Awake | 3 deallocated, 3 running | 3 deallocated
    # Hive starts the one as well: it is started here once it is deallocated.
    start stopped and stopping instances | Awake | 3 deallocated, 1 deallocating, 3 starting | 3 deallocated
    use resource group name on start | Awake | 3 stopped | 3 stopped
    use resource group name on stop | Asleep | 3 running | 3 running
";

/// Hive's `TestAzureMachinesStoppedAndRunning` by its names, and what Hive is blind to.
const STATES: &str = "
    # Hive calls the two stopped, which are billed.
    Stopped - All machines stopped | 3 deallocated, 2 stopped |
    Stopped - Some machines starting | 3 deallocated, 2 stopped, 2 starting |
    Stopped - machines running | 3 running, 2 deallocated |
    Running - All machines running | 3 running | awake
    Running - Some machines starting | 3 running, 1 starting |
    Running - Some machines deallocated or deallocating | 3 running, 2 deallocated, 1 stopped, 3 deallocating |
    all deallocated | 3 deallocated | asleep
    blind | 1 stopped |
    blind: no power state | 1 |
    blind | 1 unknown |
    blind | 1 creating |
    blind | 1 deleting |
    blind: nothing found | |
";

/// How a cloud refuses to move one machine, and what that means.
const REFUSALS: &[(u16, &str, &str, CloudErrorKind)] = &[
    (404, "ResourceNotFound", "was not found", CloudErrorKind::InTransit),
    (409, "OperationNotAllowed", "the machine is deallocating", CloudErrorKind::InTransit),
    (409, "ScopeLocked", "is locked", CloudErrorKind::Refused),
    (409, "AllocationFailed", "no capacity", CloudErrorKind::Capacity),
    (409, "SkuNotAvailable", "not in this region", CloudErrorKind::Capacity),
    (409, "OverconstrainedAllocationRequest", "no capacity", CloudErrorKind::Capacity),
    (
        409,
        "OperationNotAllowed",
        "Operation could not be completed as it results in exceeding approved Cores quota",
        CloudErrorKind::Capacity,
    ),
    (403, "RequestDisallowedByPolicy", "a policy denies it", CloudErrorKind::Refused),
    (500, "InternalExecutionError", "an internal error", CloudErrorKind::Refused),
];

/// Hive's three cases `mixed with other resource groups`. Names are compared ignoring case: Azure spells a group in
/// several ways.
#[tokio::test(start_paused = true)]
async fn hives_cases_of_other_resource_groups() {
    for (case, own, is_running) in [
        ("Stopped - mixed with other resource groups", &["stopped"; 4][..], false),
        ("Half Running - mixed with other resource groups", &["stopped", "stopped", "running", "running"], false),
        ("Fully Running - mixed with other resource groups", &["running"; 4], true),
    ] {
        let bench = bench();
        bench.cluster("other", 3).await;
        let mut target = bench.cluster("demo", 4).await;
        for (number, word) in own.iter().enumerate() {
            let name = cloud_conformance::machine("demo", number, 4);
            (*word).clone_into(&mut bench.simulator().engine.machines.get_mut(&name).unwrap().word);
        }
        target.cluster.platform = spec("", "Demo-RG");
        assert_eq!(bench.stopped_and_running(&target).await, (false, is_running), "{case}");
    }
}

/// Each has a copy of them otherwise, and hundreds of clusters may name one group.
#[tokio::test(start_paused = true)]
async fn clusters_that_name_one_group_share_its_machines() {
    let bench = SimulatedBench::new(Face::Azure, |_, transport, permit| {
        let account = account(SECRET, transport.clone(), permit.clone());
        let key = |infra_id: &str, group: &str| {
            let (infra_id, platform) = (infra_id.to_owned(), spec("", group));
            account.key(&ClusterRef { infra_id, platform, ..ClusterRef::default() }).unwrap()
        };
        assert!(key("demo", "demo-rg") == key("other", "Demo-RG"));
        connect("", transport, permit)
    });
    let mut target = bench.cluster("demo", 4).await;
    let driver = bench.leader();
    for infra_id in ["demo", "other"] {
        infra_id.clone_into(&mut target.cluster.infra_id);
        let found = driver.list(&target, Priority::Waking).await.unwrap().instances;
        let has_masters = found.iter().any(|instance| instance.control_plane);
        assert_eq!((found.len(), has_masters), (4, infra_id == "demo"));
    }
}

/// Azure refuses to deallocate it, after the others: it is known before the first is. A list of states does not say.
#[tokio::test(start_paused = true)]
async fn a_machine_with_an_ephemeral_os_disk_is_not_put_to_sleep() {
    let bench = bench();
    let target = bench.cluster_of(&[("running", 3)]).await;
    bench.simulator().engine.machines.get_mut("demo-worker-1").unwrap().disks = Disks::EphemeralOs;
    let driver = bench.leader();
    for (priority, is_known) in [(Priority::Waking, false), (Priority::Sleeping, true), (Priority::Waking, true)] {
        let found = driver.list(&target, priority).await.unwrap().instances;
        let obstacles: Vec<_> = found.iter().filter(|instance| instance.obstacle.is_some()).collect();
        assert_eq!(obstacles.len(), usize::from(is_known), "{priority:?}");
        assert!(obstacles.iter().all(|instance| instance.id == "demo-worker-1"));
    }
    // Sleeping clusters of a minute share what is known, and others that of ten.
    let models = || bench.calls().iter().filter(|(call, _)| call == "models").count();
    for (seconds, priority, expected) in [
        (0, Priority::Sleeping, 1),
        (59, Priority::Idle, 1),
        (0, Priority::Sleeping, 2),
        (590, Priority::Idle, 2),
        (10, Priority::Idle, 3),
    ] {
        tokio::time::sleep(std::time::Duration::from_secs(seconds)).await;
        driver.list(&target, priority).await.unwrap();
        assert_eq!(models(), expected, "{seconds} {priority:?}");
    }
    let outcome = driver.advance(&target, Verb::Stop, &["demo-worker-1".to_owned()]).await.unwrap();
    assert_eq!(outcome.refused.len(), 1, "as Azure does");
}

/// Hive's four cases `error: missing resource group`, without the list of the whole subscription that it makes before.
#[tokio::test(start_paused = true)]
async fn hives_cases_of_a_missing_resource_group() {
    let bench = bench();
    let mut target = bench.cluster_of(&[("running", 1)]).await;
    target.cluster.platform = spec("", "");
    let driver = bench.leader();
    let ids = ["demo-worker-0".to_owned()];
    let all = [
        driver.advance(&target, Verb::Stop, &ids).await.map(drop),
        driver.advance(&target, Verb::Start, &ids).await.map(drop),
        driver.list(&target, Priority::Sleeping).await.map(drop),
        driver.list(&target, Priority::Waking).await.map(drop),
    ];
    for result in all {
        let error = result.unwrap_err();
        assert_eq!(error.kind, CloudErrorKind::Invalid);
        let field = "spec.clusterMetadata.platform.azure.resourceGroupName is missing";
        assert!(error.message.starts_with(field), "{error}");
    }
    assert_eq!(bench.requests(), 0);
}

/// In rare cases a list has no power state: the machine is asked for by itself, and is unknown only if that has none.
#[tokio::test(start_paused = true)]
async fn a_missing_power_state_is_read_again() {
    let bench = bench();
    let target = bench.cluster_of(&[("deallocated", 2)]).await;
    bench.rule("list", "", Effect::NoPower);
    assert_eq!(bench.stopped_and_running(&target).await, (true, false));
    let calls: Vec<String> = bench.calls().into_iter().map(|(call, _)| call).collect();
    assert_eq!(calls, ["token", "list", "get", "get"]);
    bench.simulator().engine.machines.get_mut("demo-worker-1").unwrap().word.clear();
    let found = inventory(&*bench.leader(), &target).await.unwrap();
    assert_eq!(found.unknown(), ["demo-worker-1 (no-power-state)"]);
}

/// What is accepted is read back by either header.
#[tokio::test(start_paused = true)]
async fn an_operation_is_read_back_by_location_too() {
    for only_location in [false, true] {
        let bench = bench();
        bench.simulator().engine.only_location = only_location;
        let target = bench.cluster_of(&[("deallocated", 2)]).await;
        let driver = bench.leader();
        bench.give_up("start", "demo-worker-1", "ZonalAllocationFailed", "no capacity");
        pass(&*driver, &target, Intent::Awake).await.unwrap();
        bench.finish().await;
        let found = inventory(&*driver, &target).await.unwrap();
        let failed: Vec<_> = found.failed.iter().map(|refusal| (refusal.kind, refusal.code.as_str())).collect();
        assert_eq!(failed, [(CloudErrorKind::Capacity, "ZonalAllocationFailed")], "Location alone: {only_location}");
        bench.simulator().engine.heal();
        drive(&bench, &driver, &target, Intent::Awake).await;
    }
}

/// A token ends: it is renewed before, and once more when it is not accepted.
#[tokio::test(start_paused = true)]
async fn a_token_that_ends_is_renewed() {
    let bench = bench();
    bench.simulator().engine.token_life = std::time::Duration::from_secs(20);
    let target = bench.cluster_of(&[("running", 1)]).await;
    let driver = bench.leader();
    for _ in 0..10 {
        inventory(&*driver, &target).await.unwrap();
        bench.finish().await;
    }
    let calls = bench.calls();
    assert_eq!(
        calls.iter().filter(|(call, _)| call == "token").count(),
        3,
        "50 s, and a new one every 16 s: {calls:?}"
    );
    assert!(calls.iter().all(|(_, status)| *status == 200), "{calls:?}");
    bench.simulator().engine.revoke();
    inventory(&*driver, &target).await.unwrap();
    let last: Vec<_> = bench.calls().split_off(calls.len());
    let names: Vec<_> = last.iter().map(|(call, status)| (call.as_str(), *status)).collect();
    assert_eq!(names, [("list", 401), ("token", 200), ("list", 200)]);
}

/// Secrets are rotated: what Entra refuses is reported as denied, and not asked again by each reconcile.
#[tokio::test(start_paused = true)]
async fn a_secret_that_entra_refuses_is_denied() {
    let bench = SimulatedBench::new(Face::Azure, |_, transport, permit| connect_with("old", transport, permit));
    let target = bench.cluster("demo", 1).await;
    let driver = bench.leader();
    for _ in 0..3 {
        let error = inventory(&*driver, &target).await.unwrap_err();
        assert_eq!(error.kind, CloudErrorKind::Denied);
        assert!(error.message.contains("invalid_client: AADSTS7000215"), "{error}");
        assert!(!error.message.contains("old"), "{error}");
    }
    assert_eq!(bench.calls(), [("token".to_owned(), 401)]);
}

/// Neither the next page nor an operation leads to a host that has not answered.
#[tokio::test(start_paused = true)]
async fn a_link_to_another_host_is_not_followed() {
    let foreign = || Effect::ForeignLink { to: "https://evil.example".to_owned() };
    let bench = bench();
    let target = bench.cluster_of(&[("running", 9)]).await;
    bench.rule("list", "", foreign());
    let error = inventory(&*bench.leader(), &target).await.unwrap_err();
    assert_eq!(error.kind, CloudErrorKind::Unavailable);
    assert!(error.message.contains("a link that is not its own"), "{error}");
    bench.simulator().engine.heal();
    bench.rule("stop", "", foreign());
    let error = pass(&*bench.leader(), &target, Intent::Asleep).await.unwrap_err();
    assert!(error.message.contains("a link that is not its own"), "{error}");
    bench.simulator().engine.heal();
    drive(&bench, &bench.leader(), &target, Intent::Asleep).await;
}

/// Azure's own limits are in the simulator: 200 writes and 10 a second for a principal, 1,500 starts and 500 a minute
/// for a subscription, twelve and four a minute for a machine.
#[tokio::test(start_paused = true)]
async fn six_hundred_machines_of_a_subscription_start_without_a_429() {
    let bench = bench();
    bench.simulator().engine.page = 500;
    let mut targets = Vec::new();
    for number in 0..100 {
        targets.push(bench.cluster(&format!("demo-{number:05}"), 6).await);
    }
    let driver = bench.leader();
    for intent in [Intent::Asleep, Intent::Awake] {
        let began = tokio::time::Instant::now();
        loop {
            let passes = targets.iter().map(|target| pass(&*driver, target, intent));
            let mut is_over = true;
            for result in futures::future::join_all(passes).await {
                match result {
                    Ok((next, outcome)) => {
                        assert!(outcome.refused.is_empty(), "{outcome:?}");
                        is_over &= next == cloud_conformance::Next::Rest;
                    }
                    Err(error) => {
                        assert!(error.message.contains("not sent"), "Azure has throttled nothing: {error}");
                        is_over = false;
                    }
                }
            }
            if is_over {
                break;
            }
            bench.finish().await;
        }
        let took = began.elapsed();
        assert!(took < std::time::Duration::from_secs(90), "Azure's own limit takes 60 s: {took:?}");
    }
    let calls = bench.calls();
    let of = |name: &str| calls.iter().filter(|(call, _)| call == name).count();
    assert_eq!((of("stop"), of("start"), of("token")), (600, 600, 1), "each machine moved once each way");
    assert!(calls.iter().all(|(_, status)| *status < 300));
    assert!(of("list") <= 30, "{} lists", of("list"));
}

/// What a subscription admits within the time of one call: the others are not forgotten.
#[tokio::test(start_paused = true)]
async fn a_call_says_whether_it_has_left_machines_for_the_next_one() {
    let bench = bench();
    bench.simulator().engine.page = 500;
    let target = bench.cluster("demo", 500).await;
    let driver = bench.leader();
    let mut calls = Vec::new();
    for _ in 0..2 {
        let left = inventory(&*driver, &target).await.unwrap().to_stop(|_| true);
        let outcome = driver.advance(&target, Verb::Stop, &left).await.unwrap();
        assert!(outcome.refused.is_empty(), "{outcome:?}");
        calls.push((outcome.moved.len(), outcome.unfinished));
        bench.finish().await;
    }
    assert!(calls[0].0 < 450 && calls[0].1 && !calls[1].1, "{calls:?}");
    assert_eq!(calls[0].0 + calls[1].0, 500);
}

/// A tenant who changes its mind all the time uses up no limit of the subscription.
#[tokio::test(start_paused = true)]
async fn a_machine_is_started_four_times_a_minute_at_most() {
    let bench = bench();
    let target = bench.cluster_of(&[("deallocated", 1)]).await;
    let driver = bench.leader();
    let mut refused = Vec::new();
    for _ in 0..6 {
        driver.list(&target, Priority::Waking).await.unwrap();
        let outcome = driver.advance(&target, Verb::Start, &["demo-worker-0".to_owned()]).await.unwrap();
        refused.extend(outcome.refused.into_iter().map(|refusal| (refusal.kind, refusal.code)));
        bench.simulator().engine.finish();
        driver.list(&target, Priority::Waking).await.unwrap();
        for machine in bench.simulator().engine.machines.values_mut() {
            "deallocated".clone_into(&mut machine.word);
        }
    }
    assert_eq!(refused, vec![(CloudErrorKind::InTransit, "TooManyCalls".to_owned()); 2]);
}

fn spec(cloud_name: &str, resource_group: &str) -> PlatformSpec {
    PlatformSpec::Azure { cloud_name: cloud_name.to_owned(), resource_group: resource_group.to_owned() }
}

#[test]
fn a_cluster_says_which_cloud_it_is_in() {
    let process = cloud_conformance::process(Arc::new(|| true));
    let platform = Azure::new(&crate::AzureFlags { azure_endpoint_url: None }, &process);
    for (cloud, part) in
        [("AzureGermanCloud", "closed in 2021"), ("AzureStackCloud", "not supported"), ("x", "no cloud")]
    {
        let cluster = ClusterRef { credentials: "creds".to_owned(), platform: spec(cloud, ""), ..Default::default() };
        let message = platform.access(&cluster).unwrap_err().message;
        assert!(message.starts_with("spec.platform.azure.cloudName is ") && message.contains(part), "{message}");
        let right = "it has to be AzurePublicCloud, AzureUSGovernmentCloud or AzureChinaCloud";
        assert!(message.ends_with(right), "{message}");
    }
}
