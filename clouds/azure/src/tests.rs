//! The driver on a simulator that speaks Azure's API.

use std::sync::Arc;

use cloud_conformance::{Bench, Intent, conformance_tests, drive, inventory, pass};
use cloud_http::{Http, Transport};
use cloud_simulators::{CLIENT, Effect, Face, SECRET, SUBSCRIPTION, SimulatedBench, TENANT};
use cloud_stopstart::StopStart;
use serde_json::json;
use shared::cloud::{CloudErrorKind, Driver, InstanceState, Priority, Target};

use crate::account::{Account, RATE};
use crate::principal::{self, Environment};

fn connect(transport: Arc<dyn Transport>, permit: cloud_common::Permit) -> Arc<dyn Driver> {
    connect_with(SECRET, transport, permit)
}

fn connect_with(secret: &str, transport: Arc<dyn Transport>, permit: cloud_common::Permit) -> Arc<dyn Driver> {
    let file = json!({"subscriptionId": SUBSCRIPTION, "tenantId": TENANT, "clientId": CLIENT, "clientSecret": secret});
    let principal = principal::parse(&file.to_string()).unwrap();
    let http = Http::over(transport, permit.clone(), RATE);
    Arc::new(StopStart::new(Account::new(principal, Environment::Public, http, permit, None).unwrap()))
}

fn bench() -> SimulatedBench {
    SimulatedBench::new(Face::Azure, connect)
}

fn driver(bench: &SimulatedBench) -> Arc<dyn Driver> {
    bench.driver(Arc::new(|| true))
}

conformance_tests!(bench());

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

/// Hive's table `TestAzureStopAndStartMachines` by its names, and a machine that is off and billed.
#[tokio::test(start_paused = true)]
async fn hives_table_of_stops_and_starts() {
    for (case, before, intent, after) in [
        ("stop no running machines", ["deallocated", "deallocating"], Intent::Asleep, ["deallocated", "deallocating"]),
        ("stop running machines", ["deallocated", "running"], Intent::Asleep, ["deallocated", "deallocating"]),
        ("start no stopped machines", ["running", "starting"], Intent::Awake, ["running", "starting"]),
        ("start stopped machines", ["stopped", "deallocated"], Intent::Awake, ["starting", "starting"]),
        (
            "start stopped and stopping machines",
            ["deallocating", "deallocated"],
            Intent::Awake,
            ["deallocating", "starting"],
        ),
        ("blind: stopped is billed", ["stopped", "deallocated"], Intent::Asleep, ["deallocating", "deallocated"]),
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
        ("Stopped - All machines stopped or terminated", "deallocated", true, false),
        ("Stopped - Some machines pending", "starting", false, false),
        ("Stopped - machines running", "running", false, true),
        ("Running - Some machines stopped or shutting-down", "deallocating", false, false),
        ("blind: stopped", "stopped", false, false),
        ("blind: no power state", "", false, false),
        ("blind: unknown", "unknown", false, false),
        ("blind: creating", "creating", false, false),
        ("blind: deleting", "deleting", false, false),
    ] {
        let (bench, target) = of_states(&[word, word]).await;
        let found = inventory(&*driver(&bench), &target).await.unwrap();
        let is = |state| found.all(state);
        assert_eq!((is(InstanceState::Stopped), is(InstanceState::Running)), (is_stopped, is_running), "{case}");
    }
}

/// Hive's case `error: missing resource group`, without the list of the whole subscription that it makes before.
#[tokio::test(start_paused = true)]
async fn hives_case_of_a_missing_resource_group() {
    let (bench, mut target) = of_states(&["running"]).await;
    target.cluster.resource_group = None;
    let error = inventory(&*driver(&bench), &target).await.unwrap_err();
    assert_eq!(error.kind, CloudErrorKind::Invalid);
    assert!(error.message.starts_with("spec.clusterMetadata.platform.azure.resourceGroupName is missing"), "{error}");
    assert_eq!(bench.requests(), 0);
}

/// In rare cases a list has no power state: the machine is asked for by itself.
#[tokio::test(start_paused = true)]
async fn a_missing_power_state_is_read_again() {
    let (bench, target) = of_states(&["", "deallocated"]).await;
    let found = inventory(&*driver(&bench), &target).await.unwrap();
    assert_eq!(found.unknown(), ["demo-master-0 (no-power-state)"]);
    let calls: Vec<String> = bench.calls().into_iter().map(|(call, _)| call).collect();
    assert_eq!(calls, ["token", "list", "get"]);
}

/// Secrets are rotated: what Entra refuses is reported as denied, and not asked again by each reconcile.
#[tokio::test(start_paused = true)]
async fn a_secret_that_entra_refuses_is_denied() {
    let bench = SimulatedBench::new(Face::Azure, |transport, permit| connect_with("old", transport, permit));
    let target = bench.cluster("demo", 1).await;
    let driver = driver(&bench);
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
    let (bench, target) = of_states(&["running"; 9]).await;
    bench.rule("list", "", foreign());
    let error = inventory(&*driver(&bench), &target).await.unwrap_err();
    assert_eq!(error.kind, CloudErrorKind::Unavailable);
    assert!(error.message.contains("a link that is not its own"), "{error}");
    bench.simulator().engine.heal();
    bench.rule("stop", "", foreign());
    let error = pass(&*driver(&bench), &target, Intent::Asleep).await.unwrap_err();
    assert!(error.message.contains("a link that is not its own"), "{error}");
    bench.simulator().engine.heal();
    drive(&bench, &driver(&bench), &target, Intent::Asleep).await;
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
    let driver = driver(&bench);
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

/// A tenant who changes its mind all the time uses up no limit of the subscription.
#[tokio::test(start_paused = true)]
async fn a_machine_is_started_four_times_a_minute_at_most() {
    let (bench, target) = of_states(&["deallocated"]).await;
    let driver = driver(&bench);
    let mut refused = Vec::new();
    for _ in 0..6 {
        driver.list(&target, Priority::Waking).await.unwrap();
        let outcome = driver.advance(&target, shared::cloud::Verb::Start, &["demo-worker-0".to_owned()]).await.unwrap();
        refused.extend(outcome.refused.into_iter().map(|refusal| (refusal.kind, refusal.code)));
        bench.simulator().engine.finish();
        driver.list(&target, Priority::Waking).await.unwrap();
        for machine in bench.simulator().engine.machines.values_mut() {
            "deallocated".clone_into(&mut machine.word);
        }
    }
    assert_eq!(refused, vec![(CloudErrorKind::InTransit, "TooManyCalls".to_owned()); 2]);
}
