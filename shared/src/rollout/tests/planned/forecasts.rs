//! Forecasts against rollouts that are carried out.

use super::*;
use crate::rollout::forecast::{Forecast, Subject, forecast};
use crate::rollout::member::MemberState;

/// What each target takes.
const TYPICAL: i64 = 60;

fn forecast_of(hub: &Hub) -> (Vec<View>, Forecast) {
    let (observed, members) =
        (hub.observed(), Members::of(&hub.rollout.spec.targets, &hub.rollout.spec.groups).unwrap());
    let subject = |object: &View| Subject {
        object: object.clone(),
        group: members.group(object),
        upgrade: hub.upgrades.get(&object.identity.name).cloned(),
        checked: hub.checked.get(&object.identity.name).map(|(why, _)| why.clone()),
    };
    let subjects: Vec<Subject> = observed.iter().map(subject).collect();
    let typical = u64::try_from(TYPICAL).unwrap();
    (observed, forecast(&hub.rollout, &subjects, std::time::Duration::from_secs(typical), hub.now))
}

/// Carries the rollout out, each target in the same time. The targets in the order of their starts, and the seconds
/// until the last record.
fn lived(hub: &mut Hub) -> (Vec<String>, u64) {
    let (begin, mut started, mut running, mut last) = (hub.now, Vec::new(), Vec::<(i64, String)>::new(), 0);
    for second in 0..3_600 {
        let done: Vec<(i64, String)> = running.extract_if(.., |(at, _)| *at == second).collect();
        for (_, name) in &done {
            let state = if hub.mark(name).wanted == Power::Running { awake() } else { asleep() };
            hub.reaches(name, state);
        }
        let records = |hub: &Hub| {
            hub.observed().iter().filter(|one| one.desired.mark.as_ref().is_some_and(|m| m.ended.is_some())).count()
        };
        let before = records(hub);
        let names = hub.settle();
        if records(hub) > before {
            last = hub.now.duration_since(begin).as_secs();
        }
        running.extend(names.iter().map(|name| (second + TYPICAL, name.clone())));
        started.extend(names);
        if hub.phase().is_over() {
            break;
        }
        hub.jump(1);
    }
    (started, u64::try_from(last).unwrap())
}

#[test]
fn a_forecast_is_what_becomes_of_a_rollout_whose_targets_succeed() {
    let canaries = |names: &[&str]| -> Value {
        let names: Vec<Value> = names.iter().map(|name| json!({ "namespace": "fleet", "name": name })).collect();
        json!([{ "name": "canary", "names": names }])
    };
    let names = ["a", "b", "c", "d", "e", "f"];
    let awake = || -> Vec<ClusterDeployment> { names.iter().map(|name| cluster(name, &json!({}))).collect() };
    let mut two_accounts = awake();
    for cluster in &mut two_accounts[4..] {
        cluster.spec.platform.aws.as_mut().unwrap().region = "eu-west-1".to_owned();
    }
    let mut some_sleep = awake();
    (some_sleep[2], some_sleep[3]) = (sleeping("c"), annotated("d", &json!({ "hibernate.sh/protected": "true" })));
    for (spec, clusters) in [
        (json!({ "maxConcurrency": 2 }), awake()),
        (json!({ "maxConcurrency": 2 }), two_accounts),
        (json!({ "groups": canaries(&["e"]), "minSuccessTime": null }), awake()),
        // Its canaries sleep already, or may not: others take their place.
        (json!({ "groups": canaries(&["c", "d"]), "maxConcurrency": 1, "minSuccessTime": "30s" }), some_sleep),
        (json!({ "startsPerMinute": 2 }), awake()),
        (json!({ "action": "Resume", "startsPerMinute": 4 }), names.map(sleeping).into()),
    ] {
        let mut hub = Hub::new(&spec, clusters);
        let (observed, forecast) = forecast_of(&hub);
        let order: Vec<String> =
            forecast.starts.iter().map(|(index, _)| observed[*index].identity.name.clone()).collect();
        assert_eq!((order, forecast.lasts.as_secs()), lived(&mut hub), "{spec}");
    }
}

#[test]
fn a_forecast_starts_no_target_that_has_to_wait() {
    let mut hub = Hub::of(&json!({ "notBefore": "2026-11-24T13:00:00Z", "paused": true }), &["a", "b", "c", "d"]);
    hub.clusters.push(annotated("e", &json!({ "hive.openshift.io/powerstate-pause": "true" })));
    // Held for longer than until the first start, and not until the last record.
    hub.clusters.push(annotated("f", &json!({ "hibernate.sh/hold-awake-until": "2026-11-24T12:01:30Z" })));
    // The requested time lies years ahead: no clock skew explains that.
    hub.clusters.push(annotated("g", &json!({ "hibernate.sh/requested-at": "2099-01-01T00:00:00Z" })));
    hub.upgrades.insert("b".to_owned(), "an upgrade".to_owned());
    hub.checked.insert("c".to_owned(), ("silent".to_owned(), now()));
    let (_, forecast) = forecast_of(&hub);
    assert_eq!(forecast.starts, [(0, 0), (3, 0)]);
    let labels: Vec<MemberState> = forecast.members.into_iter().flatten().map(|(label, _)| label).collect();
    let (pending, deferred) = (MemberState::Pending, MemberState::Deferred);
    assert_eq!(labels, [pending, deferred, deferred, pending, deferred, deferred, MemberState::Overridden]);
    assert_eq!(forecast.lasts.as_secs(), 60);
}

#[test]
fn the_order_is_that_of_the_starts_in_every_group() {
    let names: Vec<String> = (0..1_000).map(|at| format!("c{at:04}")).collect();
    let hub = Hub::of(
        &json!({ "maxTargets": 1_000, "startsPerMinute": 100, "groups": [
            { "name": "one", "names": [{ "namespace": "fleet", "name": "c0999" }] },
            { "name": "two", "names": [{ "namespace": "fleet", "name": "c0500" }, { "namespace": "fleet", "name": "c0400" }] },
        ] }),
        &names.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    let (_, forecast) = forecast_of(&hub);
    assert_eq!(forecast.starts[..5], [(999, 0), (400, 1), (500, 1), (0, 2), (1, 2)]);
    assert_eq!((forecast.starts.len(), forecast.starts[999]), (1_000, (998, 2)));
    assert_eq!(forecast.lasts.as_secs(), 60 + 60 + 50 * 60);
}

#[test]
fn a_status_estimates_its_end_by_what_its_targets_took() {
    let mut hub = Hub::of(&json!({ "maxConcurrency": 2 }), &["a", "b", "c", "d", "e"]);
    hub.settle();
    let end = |hub: &Hub| hub.rollout.status.as_ref().unwrap().estimated_end.as_ref().map(|at| at.0.to_string());
    hub.settle();
    assert_eq!(end(&hub), None, "no target has succeeded");
    hub.later(90);
    hub.reaches("a", asleep());
    hub.settle();
    // Of the five, one is done and two are in progress: two rounds of 90 s from 12:01:30, to the minute.
    assert_eq!(end(&hub).as_deref(), Some("2026-11-24T12:05:00Z"));
    hub.later(10);
    for name in ["b", "c"] {
        hub.reaches(name, asleep());
    }
    hub.settle();
    // They took 90, 100 and 10 s: one round of 66 s from 12:01:40.
    assert_eq!(end(&hub).as_deref(), Some("2026-11-24T12:03:00Z"));
    for name in ["d", "e"] {
        hub.reaches(name, asleep());
    }
    hub.settle();
    assert_eq!((hub.phase(), end(&hub)), (RolloutPhase::Succeeded, None));
}
