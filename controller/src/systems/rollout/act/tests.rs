//! Starts that are denied, that fail, or whose guard has no answer.

use std::num::NonZeroUsize;

use http::Method;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::Event;
use serde_json::json;
use shared::kinds::KINDS;
use shared::kinds::operators::objects::{MemberObject, VIRTUAL_MACHINE_AT};

use super::*;
use crate::fleet::{Fleet, FleetKind, Watched};
use crate::runtime::testing::MemoryHub;
use crate::runtime::{Follower, Guarded, Handle};
use crate::spoke::Network;
use crate::systems::rollout::Turns;

type VirtualMachine = MemberObject<VIRTUAL_MACHINE_AT>;

/// What came of the start of a virtual machine whose reads and writes are answered so.
async fn started(get: Option<u16>, patch: Option<u16>) -> String {
    let (hub, path) = (MemoryHub::default(), format!("{}/demo", VirtualMachine::url_path(&(), Some("ns"))));
    let machine = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": { "namespace": "ns", "name": "demo", "uid": "u" }, "spec": { "runStrategy": "Always" },
    });
    hub.put(&path, machine);
    let (fleet, mut writer) =
        (Arc::new(Watched::<VirtualMachine>::default()), Writer::<Guarded<VirtualMachine>>::default());
    let listed = Event::InitApply(serde_json::from_value(hub.get(&path)).expect("a machine"));
    for event in [Event::Init, listed, Event::InitDone] {
        writer.apply_watcher_event(&event);
    }
    fleet.listed(&writer.as_reader());
    let kind = FleetKind::of(VirtualMachine::ROW, fleet.clone());
    let rollout = json!({
        "apiVersion": "hibernate.sh/v1alpha1", "kind": "PowerRollout",
        "metadata": { "name": "night", "uid": "ours", "generation": 1 },
        "spec": {
            "action": "Hibernate", "targets": { "kind": "VirtualMachine", "all": true }, "maxTargets": 1,
            "asOf": "2026-11-24T12:00:00Z", "notAfter": "2126-01-01T00:00:00Z",
        },
    });
    let rollout: PowerRollout = serde_json::from_value(rollout).expect("a rollout");
    let mut kept = None;
    let new = |handle: Handle<PowerRollout>| {
        let new = |handle| {
            let (turns, namespace) = (Arc::new(Turns::new(NonZeroUsize::MIN)), "hibernate-system".to_owned());
            Rollouts::new(handle, KINDS, vec![kind.clone()], Arc::default(), Network::default(), namespace, turns)
        };
        kept = Some(new(handle.clone()));
        new(handle)
    };
    let watch = hub.term().watch().with(new);
    let rollouts = kept.expect("it is made at once");
    let events = [Event::Init, Event::InitApply(Guarded::from(rollout.clone())), Event::InitDone].map(Ok);
    let work = tokio::spawn(watch.run_on(stream::iter(events).chain(stream::pending())));
    // Only the task of a watch may wait for its list: of two tasks one is not woken.
    tokio::time::sleep(Duration::from_secs(1)).await;
    hub.inject(move |method, of, _| match *method {
        Method::GET if of == path => get,
        Method::PATCH if of == path => patch,
        _ => None,
    });
    let claim = json!({
        "v": 1, "by": "night", "uid": "ours", "action": "Hibernate", "group": 0, "attempt": 0, "before": "Running",
        "wanted": "Hibernating", "at": "2026-11-24T12:00:00Z",
    });
    let claim = Mark::parse(&claim.to_string()).expect("a claim");
    let item = fleet.items().expect("a list").remove(0);
    let outcome = start(&rollouts, &rollout, &item, &claim).await;
    work.abort();
    match outcome {
        Outcome::Written(_) => "written".to_owned(),
        Outcome::Deferred(why) => format!("deferred: {why}"),
        Outcome::Failed(error) => format!("failed: {error}"),
        Outcome::Skipped | Outcome::Refused(_) => "left to the next plan".to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_denied_or_whose_guard_has_no_answer_is_no_lost_race() {
    let (denied, unread) = (
        "deferred: the API server refuses the write: an injected fault",
        "failed: read the field managers of a target",
    );
    for (get, patch, expected) in [
        (None, None, "written"),
        // As by a webhook of others that has not found a Secret, or has lost a race itself.
        (None, Some(404), denied),
        (None, Some(409), denied),
        // A person may have started it again meanwhile.
        (Some(429), None, unread),
        (Some(500), None, unread),
    ] {
        assert_eq!(started(get, patch).await, expected, "{get:?} {patch:?}");
    }
}

#[test]
fn codes_that_pass_with_time_are_no_refusals() {
    // A webhook that denies without a code answers 400.
    for (codes, expected) in
        [(&[400, 403, 405, 413, 418, 422][..], true), (&[200, 401, 404, 408, 409, 410, 429, 500, 503, 504][..], false)]
    {
        for code in codes {
            assert_eq!(refuses(*code), expected, "{code}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_that_fails_for_a_minute_is_hopeless_unless_no_write_passes() {
    let target = (("n".to_owned(), "a".to_owned()), "uid".to_owned());
    let spoke = ReconcileError::spoke("check a target")(SpokeError::Failed("403".to_owned()));
    let target_error = |source| ReconcileError::of_other("Target", "write a target")(source);
    let write = target_error(WriteError::Failed(Box::new(kube::Error::LinesCodecMaxLineLengthExceeded)));
    let lost = target_error(WriteError::NotLeader);
    for (error, another_is_written, expected) in
        [(&spoke, false, true), (&write, false, false), (&write, true, true), (&lost, true, false)]
    {
        let mut state = TargetState::default();
        assert!(!is_hopeless(&mut state, &target, error), "{error}: the first failure");
        tokio::time::sleep(Duration::from_secs(59)).await;
        assert!(!is_hopeless(&mut state, &target, error), "{error}: less than a minute");
        state.wrote = another_is_written.then(Instant::now);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(is_hopeless(&mut state, &target, error), expected, "{error}: {another_is_written}");
    }
}
