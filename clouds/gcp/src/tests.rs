//! The driver on a simulator that speaks Compute Engine's API.

use std::sync::Arc;

use cloud_conformance::{Bench, Intent, conformance_tests, drive, inventory, pass};
use cloud_http::{Http, Transport, Url};
use cloud_simulators::{Effect, Face, SimulatedBench};
use cloud_stopstart::StopStart;
use shared::cloud::{CloudErrorKind, Driver, InstanceState, Priority, Target, Verb};

use crate::account::{Account, RATE};
use crate::key;
use crate::wire::state;

fn connect(transport: Arc<dyn Transport>, permit: cloud_common::Permit) -> Arc<dyn Driver> {
    let key = key::parse(&cloud_simulators::service_account()).unwrap();
    let http = Http::over(transport, permit.clone(), RATE);
    let endpoint = Url::parse("https://compute.googleapis.com").unwrap();
    Arc::new(StopStart::new(Account::new(key, http, permit, &endpoint)))
}

fn bench() -> SimulatedBench {
    SimulatedBench::new(Face::Gcp, connect)
}

fn driver(bench: &SimulatedBench) -> Arc<dyn Driver> {
    bench.driver(Arc::new(|| true))
}

conformance_tests!(bench());

/// Every state of the reference; those after the blank line match nothing in Hive.
#[test]
fn every_state_that_google_lists() {
    use InstanceState::{Pending, Running, ShuttingDown, Stopped, Stopping, Unknown};
    for (word, expected) in [
        ("PROVISIONING", Pending),
        ("STAGING", Pending),
        ("RUNNING", Running),
        ("STOPPING", Stopping),
        ("STOPPED", Stopped),
        ("TERMINATED", Stopped),
        //
        ("PENDING", Pending),
        ("REPAIRING", Pending),
        ("PENDING_STOP", Stopping),
        ("SUSPENDING", Stopping),
        ("SUSPENDED", Stopped),
        ("DEPROVISIONING", ShuttingDown),
        ("", Unknown),
        ("running", Unknown),
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

/// Hive's table `TestGCPStopAndStartMachines` by its names.
#[tokio::test(start_paused = true)]
async fn hives_table_of_stops_and_starts() {
    for (case, before, intent, after) in [
        ("stop no running instances", ["TERMINATED", "STOPPING"], Intent::Asleep, ["TERMINATED", "STOPPING"]),
        ("stop running instances", ["TERMINATED", "RUNNING"], Intent::Asleep, ["TERMINATED", "STOPPING"]),
        ("start no stopped instances", ["RUNNING", "STAGING"], Intent::Awake, ["RUNNING", "STAGING"]),
        ("start stopped instances", ["TERMINATED", "RUNNING"], Intent::Awake, ["STAGING", "RUNNING"]),
        // Hive starts this one as well, which Google refuses: it waits here until it is stopped.
        ("start stopped and stopping instances", ["STOPPING", "TERMINATED"], Intent::Awake, ["STOPPING", "STAGING"]),
    ] {
        let (bench, target) = of_states(&before).await;
        pass(&*driver(&bench), &target, intent).await.unwrap();
        assert_eq!(words(&bench), after, "{case}");
    }
}

/// Hive's case `stop running instances with SSDs`: the owner decides, and without a decision hears which field it is.
#[tokio::test(start_paused = true)]
async fn hives_case_of_local_ssds() {
    for (discard, is_refused) in [(None, true), (Some(true), false), (Some(false), false)] {
        let (bench, mut target) = of_states(&["RUNNING", "RUNNING"]).await;
        for machine in bench.simulator().engine.machines.values_mut() {
            machine.local_ssd = true;
        }
        target.cluster.discard_local_ssd = discard;
        let (_, outcome) = pass(&*driver(&bench), &target, Intent::Asleep).await.unwrap();
        assert_eq!(outcome.refused.len(), if is_refused { 2 } else { 0 }, "{discard:?}");
        for refusal in outcome.refused {
            assert_eq!(refusal.kind, CloudErrorKind::Refused);
            assert!(refusal.message.contains("spec.platform.gcp.discardLocalSsdOnHibernate"), "{refusal}");
        }
    }
}

/// Hive's tables of `MachinesStopped` and `MachinesRunning`, and what they are blind to: under Hive's rule each of the
/// latter is asleep and awake at once.
#[tokio::test(start_paused = true)]
async fn hives_tables_of_what_is_stopped_and_running() {
    for (case, word, is_stopped, is_running) in [
        ("Stopped - All machines stopped or terminated", "TERMINATED", true, false),
        ("Stopped - Some machines pending", "STAGING", false, false),
        ("Stopped - machines running", "RUNNING", false, true),
        ("Running - Some machines stopping", "STOPPING", false, false),
        ("blind: SUSPENDED", "SUSPENDED", true, false),
        ("blind: SUSPENDING", "SUSPENDING", false, false),
        ("blind: REPAIRING", "REPAIRING", false, false),
        ("blind: PENDING", "PENDING", false, false),
        ("blind: PENDING_STOP", "PENDING_STOP", false, false),
        ("blind: DEPROVISIONING", "DEPROVISIONING", false, false),
    ] {
        let (bench, target) = of_states(&[word, word]).await;
        let found = inventory(&*driver(&bench), &target).await.unwrap();
        let is = |state| found.all(state);
        assert_eq!((is(InstanceState::Stopped), is(InstanceState::Running)), (is_stopped, is_running), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_suspended_machine_is_woken_by_resume() {
    let (bench, target) = of_states(&["SUSPENDED", "TERMINATED"]).await;
    drive(&bench, &driver(&bench), &target, Intent::Awake).await;
    let mut calls: Vec<String> =
        bench.calls().into_iter().map(|(call, _)| call).filter(|call| call != "list").collect();
    calls.sort();
    assert_eq!(calls, ["resume", "start"]);
}

/// By the label: under Hive's rule, which looks at the name only, the other cluster would be put to sleep too.
#[tokio::test(start_paused = true)]
async fn clusters_with_a_common_prefix_are_told_apart_by_label() {
    let bench = bench();
    let short = bench.cluster("demo-x7k2p", 2).await;
    bench.cluster("demo-x7k2p-two-abcde", 2).await;
    bench.simulator().engine.boot("demo-x7k2p-by-hand", "", "");
    let found = driver(&bench).list(&short, Priority::Sleeping).await.unwrap();
    let names: Vec<&str> = found.instances.iter().map(|instance| instance.id.as_str()).collect();
    assert_eq!(names, ["demo-x7k2p-by-hand", "demo-x7k2p-master-0", "demo-x7k2p-worker-1"]);
}

/// Google throttles with a 403, which Hive takes for missing rights and waits 1,000 s.
#[tokio::test(start_paused = true)]
async fn a_rate_limit_is_no_missing_right() {
    let (bench, target) = of_states(&["RUNNING"]).await;
    let (message, code) = ("Quota exceeded".to_owned(), "rateLimitExceeded".to_owned());
    bench.rule("list", "", Effect::Status { status: 403, code, message, retry_after: None });
    let error = inventory(&*driver(&bench), &target).await.unwrap_err();
    assert_eq!(error.kind, CloudErrorKind::Throttled, "{error}");
}

/// The start that is sent again after one was given up is another request: Google would answer the old one.
#[tokio::test(start_paused = true)]
async fn a_start_that_was_given_up_is_sent_as_a_new_request() {
    let (bench, target) = of_states(&["TERMINATED"]).await;
    let driver = driver(&bench);
    let (code, message) = ("ZONE_RESOURCE_POOL_EXHAUSTED".to_owned(), "full".to_owned());
    bench.rule("start", "", Effect::GivenUp { code, message });
    for _ in 0..2 {
        pass(&*driver, &target, Intent::Awake).await.unwrap();
        bench.finish().await;
    }
    pass(&*driver, &target, Intent::Awake).await.unwrap();
    let requests = bench.simulator().engine.request_ids.clone();
    assert_eq!(requests.len(), 3, "{requests:?}");
    let mut distinct = requests.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), 3, "{requests:?}");
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
    let driver = driver(&bench);
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
