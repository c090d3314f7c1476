//! The checks. Each panics with what is wrong.
#![expect(
    clippy::missing_panics_doc,
    clippy::expect_used,
    clippy::panic,
    reason = "these are tests; panics are how they report"
)]

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use shared::cloud::{CloudError, CloudErrorKind, Driver, InstanceState, Lifecycle, PlatformSpec, Target, Verb};

use crate::bench::{Bench, Fault, GIVEN_UP, Leadership, PARTIAL};
use crate::drive::{Intent, drive, inventory, inventory_for, pass};
use crate::ledger::TestLedger;

async fn ids(driver: &Arc<dyn Driver>, target: &Target) -> Vec<String> {
    let found = inventory(&**driver, target).await.expect("the cloud answers");
    found.instances.into_iter().map(|instance| instance.id).collect()
}

/// Machines of clusters with a common name prefix are assigned to the right cluster, and every running machine is
/// listed as running.
pub async fn finds_the_machines_of_its_cluster_and_no_others(bench: &impl Bench) {
    let driver = bench.leader();
    let mut clusters = Vec::new();
    for (id, count) in [("demo-a1b2c", 3), ("demo-a1b2c-d-e3f4g", 2), ("demo", 1)] {
        clusters.push((bench.cluster(id, count).await, count));
    }
    for (target, count) in &clusters {
        let found = inventory(&*driver, target).await.expect("the cloud answers");
        assert_eq!(found.instances.len(), *count, "{}", target.cluster.infra_id);
        assert!(found.all(InstanceState::Running), "{found:?}");
        let masters = found.instances.iter().filter(|i| i.control_plane).count();
        assert_eq!(masters, usize::from(*count > 1), "the first of several is of the control plane: {found:?}");
        assert!(found.profile.selector.contains(&target.cluster.infra_id), "the selector names the cluster");
    }
    let mut all = Vec::new();
    for (target, _) in &clusters {
        all.extend(ids(&driver, target).await.into_iter().map(|id| format!("{}/{id}", target.cluster.infra_id)));
    }
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 6, "no machine is found twice: {all:?}");
}

/// Nothing found is an empty list; that this is an error is decided elsewhere.
pub async fn finds_nothing_of_a_cluster_that_does_not_exist(bench: &impl Bench) {
    let mut missing = bench.cluster("demo", 1).await;
    "missing".clone_into(&mut missing.cluster.infra_id);
    "missing".clone_into(&mut missing.cluster.name);
    if let PlatformSpec::Azure { resource_group, .. } = &mut missing.cluster.platform {
        "missing".clone_into(resource_group);
    }
    missing.ledger = Arc::new(TestLedger::default());
    let found = inventory(&*bench.leader(), &missing).await.expect("the cloud answers");
    assert_eq!(found.instances, [], "and not what others have");
}

/// All the way down, and all the way up, by a new driver each time; nothing is left behind.
pub async fn sleeps_and_wakes(bench: &impl Bench) {
    let target = bench.cluster("demo", 3).await;
    let before = ids(&bench.leader(), &target).await;
    for _ in 0..2 {
        drive(bench, &bench.leader(), &target, Intent::Asleep).await;
        assert_eq!(bench.running(&target).await, 0);
        let asleep = inventory(&*bench.leader(), &target).await.expect("the cloud answers");
        assert!(asleep.all(InstanceState::Stopped), "{asleep:?}");
        drive(bench, &bench.leader(), &target, Intent::Awake).await;
        assert_eq!(bench.running(&target).await, 3);
        assert_eq!(ids(&bench.leader(), &target).await, before, "the names of machines outlive a sleep");
    }
    assert!(target.ledger.read().await.expect("the ledger answers").is_none(), "the record is gone");
}

/// A driver that stops and starts keeps no record and pretends none. One that recreates has a record for as long as a
/// machine is missing, and calls each machine recorded that the cloud does not have.
pub async fn only_a_recreate_driver_uses_the_ledger(bench: &impl Bench) {
    let driver = bench.leader();
    let mut target = bench.cluster("demo", 2).await;
    let ledger = Arc::new(TestLedger::default());
    if driver.profile(&target.cluster).lifecycle == Lifecycle::StopStart {
        target.ledger = ledger.clone();
    }
    drive(bench, &driver, &target, Intent::Asleep).await;
    let asleep = inventory(&*driver, &target).await.expect("the cloud answers");
    let calls = ledger.calls();
    let is_recorded = target.ledger.read().await.expect("the ledger answers").is_some();
    drive(bench, &driver, &target, Intent::Awake).await;
    match asleep.profile.lifecycle {
        Lifecycle::StopStart => {
            assert_eq!((calls, ledger.calls()), (0, 1), "the ledger is none of its business");
            assert!(asleep.instances.iter().all(|i| !i.recorded && !i.due) && !asleep.owed, "{asleep:?}");
        }
        Lifecycle::Shelve => {
            assert!(
                !is_recorded && asleep.instances.iter().all(|i| !i.recorded && !i.due) && !asleep.owed,
                "{asleep:?}"
            );
        }
        Lifecycle::Recreate => {
            assert!(is_recorded, "without a record nobody knows what existed");
            for instance in &asleep.instances {
                assert!(instance.recorded && instance.word.is_empty(), "the cloud has no word for it: {instance:?}");
            }
            let awake = inventory(&*driver, &target).await.expect("the cloud answers");
            assert!(awake.instances.iter().all(|i| !i.recorded), "all have a server again: {awake:?}");
        }
    }
}

/// What was calls for is calls for again, before and after the cloud has done it.
pub async fn repeated_calls_do_no_harm(bench: &impl Bench) {
    let driver = bench.leader();
    let target = bench.cluster("demo", 2).await;
    let all = ids(&driver, &target).await;
    for (intent, verb) in [(Intent::Asleep, Verb::Stop), (Intent::Awake, Verb::Start)] {
        for round in 0..3 {
            let outcome = driver.advance(&target, verb, &all).await.expect("a repeated call is no failure");
            let in_transit = outcome.refused.iter().all(|refusal| refusal.kind == CloudErrorKind::InTransit);
            assert!(in_transit, "{verb} {round}: {outcome:?}");
        }
        drive(bench, &driver, &target, intent).await;
        assert_eq!(ids(&driver, &target).await, all);
    }
}

/// The desired state changes after any number of passes, and again.
pub async fn changes_its_mind_at_any_point(bench: &impl Bench) {
    for after in 0..8 {
        let target = bench.cluster(&format!("demo{after}"), 2).await;
        for intent in [Intent::Asleep, Intent::Awake, Intent::Asleep] {
            let driver = bench.leader();
            for _ in 0..after {
                pass(&*driver, &target, intent).await.expect("the cloud answers");
                bench.finish().await;
            }
        }
        drive(bench, &bench.leader(), &target, Intent::Awake).await;
        assert_eq!(bench.running(&target).await, 2, "after {after} passes");
        drive(bench, &bench.leader(), &target, Intent::Asleep).await;
        assert_eq!(bench.running(&target).await, 0, "after {after} passes");
    }
}

/// One machine cannot be moved. The others are, and the refusal names it, with the cloud's words.
pub async fn a_refused_machine_spoils_no_other(bench: &impl Bench) {
    let driver = bench.leader();
    let target = bench.cluster("demo", 3).await;
    let all = ids(&driver, &target).await;
    let bad = all.last().cloned().expect("three machines");
    bench.fault(Some(Fault::Refused(bad.clone()))).await;
    let mut refused = Vec::new();
    // A driver that pauses machines gives up after a minute, and brings all back.
    for _ in 0..3 {
        let (_, outcome) =
            pass(&*driver, &target, Intent::Asleep).await.expect("a refusal of one is no failure of all");
        refused.extend(outcome.refused);
        bench.finish().await;
    }
    let refusal = refused.iter().find(|refusal| refusal.id == bad).expect("the refusal names the machine");
    assert!(!refusal.code.is_empty() && !refusal.message.is_empty(), "{refusal:?}");
    assert!(refused.iter().all(|refusal| refusal.id == bad), "nobody else is blamed: {refused:?}");
    let found = inventory(&*driver, &target).await.expect("the cloud answers");
    for instance in &found.instances {
        assert_eq!(instance.state == InstanceState::Running, instance.id == bad, "{found:?}");
    }
    bench.fault(None).await;
    drive(bench, &driver, &target, Intent::Asleep).await;
    assert_eq!(bench.running(&target).await, 0, "the cause is gone");
}

/// The driver distinguishes throttling, server errors and missing permissions, for lists and for moves.
pub async fn failures_are_told_by_kind(bench: &impl Bench) {
    let target = bench.cluster("demo", 1).await;
    let all = ids(&bench.leader(), &target).await;
    for (fault, kind) in [
        (Fault::Throttled, CloudErrorKind::Throttled),
        (Fault::Unavailable, CloudErrorKind::Unavailable),
        (Fault::Denied, CloudErrorKind::Denied),
    ] {
        let driver = bench.leader();
        ids(&driver, &target).await; // so that a move needs no list
        bench.fault(Some(fault.clone())).await;
        let list = inventory(&*driver, &target).await.expect_err("the cloud refuses everything");
        let stop = driver.advance(&target, Verb::Stop, &all).await.expect_err("the cloud refuses everything");
        bench.fault(None).await;
        assert_eq!((list.kind, stop.kind), (kind, kind), "{fault:?}: {list}; {stop}");
        assert!(!list.message.is_empty() && !stop.message.is_empty());
    }
    drive(bench, &bench.leader(), &target, Intent::Asleep).await;
}

/// Every call has a deadline.
pub async fn a_cloud_that_is_silent_is_given_up(bench: &impl Bench) {
    let driver = bench.leader();
    let target = bench.cluster("demo", 1).await;
    let all = ids(&driver, &target).await;
    bench.fault(Some(Fault::Silent)).await;
    let within = Duration::from_secs(35); // 30 s for the call, and some until it is made
    let list = tokio::time::timeout(within, inventory(&*driver, &target)).await.expect("a list has a deadline");
    let stop = tokio::time::timeout(within, driver.advance(&target, Verb::Stop, &all)).await;
    let kinds = [list.map(drop), stop.expect("a move has a deadline").map(drop)].map(|r| r.map_err(|error| error.kind));
    assert_eq!(kinds, [Err(CloudErrorKind::Unavailable); 2]);
    bench.fault(None).await;
    drive(bench, &driver, &target, Intent::Asleep).await;
}

/// A state that did not exist when the driver was written, or that means "broken".
pub async fn an_unknown_state_is_neither_awake_nor_asleep(bench: &impl Bench) {
    let driver = bench.leader();
    let target = bench.cluster("demo", 2).await;
    let all = ids(&driver, &target).await;
    let odd = all.first().cloned().expect("two machines");
    bench.confuse(&target, &odd).await;
    for _ in 0..6 {
        pass(&*driver, &target, Intent::Asleep).await.expect("the cloud answers");
        bench.finish().await;
        let found = inventory(&*driver, &target).await.expect("the cloud answers");
        let instance = found.instances.iter().find(|i| i.id == odd).expect("it does not seem to be gone");
        assert_eq!(instance.state, InstanceState::Unknown, "{found:?}");
        assert!(!instance.word.is_empty(), "the cloud's own word is kept");
        assert!(!found.all(InstanceState::Stopped));
    }
}

fn is_not_leader<T: std::fmt::Debug>(result: &Result<T, CloudError>) -> bool {
    result.as_ref().is_err_and(|error| error.kind == CloudErrorKind::NotLeader)
}

/// A controller that does not lead any more makes no request, and says why.
pub async fn no_request_leaves_without_the_permit(bench: &impl Bench) {
    let leadership = Leadership::default();
    let driver = bench.driver(leadership.permit());
    let target = bench.cluster("demo", 2).await;
    let all = ids(&driver, &target).await;
    leadership.lose();
    let before = bench.requests();
    for verb in [Verb::Stop, Verb::Start] {
        let moved = driver.advance(&target, verb, &all).await;
        assert!(is_not_leader(&moved), "{verb}: {moved:?}");
    }
    let list = inventory(&*driver, &target).await;
    assert!(is_not_leader(&list), "{list:?}");
    assert_eq!(bench.requests(), before, "not one request");
    assert_eq!(bench.running(&target).await, 2);
}

/// The permit is lost at any point of a sleep. From there on no request leaves, and the next leader goes on.
pub async fn the_permit_may_go_at_any_request(bench: &impl Bench) {
    for most in 0..12 {
        let leadership = Leadership::of(most);
        let former = bench.driver(leadership.permit());
        let target = bench.cluster(&format!("demo{most}"), 2).await;
        let before = bench.requests();
        for _ in 0..12 {
            if is_not_leader(&pass(&*former, &target, Intent::Asleep).await) {
                break;
            }
            bench.finish().await;
        }
        let requests = bench.requests() - before;
        assert!(requests <= leadership.given(), "{requests} requests on {} permits", leadership.given());
        drive(bench, &bench.leader(), &target, Intent::Asleep).await;
        assert_eq!(bench.running(&target).await, 0, "after {most} permits");
        drive(bench, &bench.leader(), &target, Intent::Awake).await;
        assert_eq!(bench.running(&target).await, 2, "after {most} permits");
    }
}

/// Whoever waits for a call may give up at any time.
pub async fn a_dropped_call_does_no_harm(bench: &impl Bench) {
    let driver = bench.leader();
    let target = bench.cluster("demo", 2).await;
    let all = ids(&driver, &target).await;
    for wait in [0, 1, 30, 200, 3_000].map(Duration::from_millis) {
        bench.fault(Some(Fault::Silent)).await;
        let _ = tokio::time::timeout(wait, inventory(&*driver, &target)).await;
        let _ = tokio::time::timeout(wait, driver.advance(&target, Verb::Stop, &all)).await;
        bench.fault(None).await;
        let _ = tokio::time::timeout(wait, driver.advance(&target, Verb::Stop, &all)).await;
    }
    let _ = driver.advance(&target, Verb::Start, &all).now_or_never();
    // A dropped call may still be in flight; no caller waits for it.
    tokio::time::sleep(Duration::from_mins(2)).await;
    drive(bench, &driver, &target, Intent::Asleep).await;
    drive(bench, &driver, &target, Intent::Awake).await;
    assert_eq!(bench.running(&target).await, 2);
}

/// Calls of one pass: at most four, and twelve for each machine.
pub async fn the_number_of_calls_is_bounded(bench: &impl Bench) {
    const MACHINES: usize = 20;
    let driver = bench.leader();
    let target = bench.cluster("demo", MACHINES).await;
    for intent in [Intent::Asleep, Intent::Awake] {
        let (before, mut moves) = (bench.requests(), 0);
        for _ in 0..40 {
            let at = bench.requests();
            let (next, _) = pass(&*driver, &target, intent).await.expect("the cloud answers");
            let of_pass = bench.requests() - at;
            assert!(of_pass <= 4 + 12 * MACHINES, "{of_pass} requests in one pass: {next:?}");
            if matches!(next, crate::Next::Rest) {
                assert!(of_pass <= 4, "{of_pass} requests to find that all is well");
                break;
            }
            moves += 1;
            bench.finish().await;
        }
        let all = bench.requests() - before;
        assert!(all <= 4 * (moves + 1) + 12 * MACHINES, "{all} requests in {moves} passes");
    }
}

/// The cloud accepts a stop or a start and gives it up. It is reported with the cloud's words, a start as want of capacity;
/// the others arrive, and so does this one once the cause is gone. It is not reported to who wants the opposite.
pub async fn a_call_that_is_given_up_is_reported(bench: &impl Bench) {
    if bench.cannot().contains(&GIVEN_UP) {
        return;
    }
    let driver = bench.leader();
    let target = bench.cluster("demo", 3).await;
    let last = ids(&driver, &target).await.pop().expect("three machines");
    for (intent, other) in [(Intent::Asleep, Intent::Awake), (Intent::Awake, Intent::Asleep)] {
        bench.fault(Some(Fault::GivenUp(last.clone()))).await;
        pass(&*driver, &target, intent).await.expect("the cloud answers");
        for _ in 0..3 {
            bench.finish().await;
            let found = inventory_for(&*driver, &target, intent).await.expect("the cloud answers");
            for instance in &found.instances {
                assert_eq!(instance.state == intent.end(), instance.id != last, "{found:?}");
            }
            if intent == Intent::Asleep && found.failed.is_empty() {
                break; // IBM Cloud has no words for a stop that failed: it is sent again
            }
            let [refusal] = found.failed.as_slice() else { panic!("one call was given up: {found:?}") };
            assert_eq!(refusal.id, last, "{refusal:?}");
            assert!(intent == Intent::Asleep || refusal.kind == CloudErrorKind::Capacity, "{refusal:?}");
            assert!(!refusal.code.is_empty() && !refusal.message.is_empty(), "{refusal:?}");
        }
        bench.fault(None).await;
        let found = inventory_for(&*driver, &target, other).await.expect("the cloud answers");
        assert!(found.failed.is_empty(), "what was asked for before is over: {found:?}");
        drive(bench, &driver, &target, intent).await;
    }
    assert_eq!(bench.running(&target).await, 3, "there is room again");
}

/// A zone or a later page does not answer: that is an error, and never a cluster with fewer machines.
pub async fn a_part_that_does_not_answer_is_no_smaller_cluster(bench: &impl Bench) {
    const MACHINES: usize = 20;
    let target = bench.cluster("demo", MACHINES).await;
    if !bench.cannot().contains(&PARTIAL) {
        bench.fault(Some(Fault::Partial)).await;
        let error = inventory(&*bench.leader(), &target).await.expect_err("a part is missing");
        assert_eq!(error.kind, CloudErrorKind::Unavailable, "{error}");
        bench.fault(None).await;
    }
    assert_eq!(ids(&bench.leader(), &target).await.len(), MACHINES, "all pages");
}

/// Lists lag behind calls: a machine whose call was accepted gets no other one while the cloud still shows its old state,
/// and counts as on its way.
pub async fn an_accepted_call_is_not_repeated_while_lists_lag(bench: &impl Bench) {
    let driver = bench.leader();
    let target = bench.cluster("demo", 3).await;
    for intent in [Intent::Asleep, Intent::Awake] {
        pass(&*driver, &target, intent).await.expect("the cloud answers");
        let (next, _) = pass(&*driver, &target, intent).await.expect("the cloud answers");
        let found = inventory(&*driver, &target).await.expect("the cloud answers");
        if found.profile.lifecycle == Lifecycle::StopStart {
            assert_eq!(next, crate::Next::Wait, "{found:?}");
        }
        drive(bench, &driver, &target, intent).await;
    }
}
