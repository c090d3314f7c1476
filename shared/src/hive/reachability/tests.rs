//! The cases of docs/reference/hive.md, sections 6 and 7, by name, those of sleep, and what must hold for every
//! cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::hive::api::{
    ClusterDeploymentSpec, ClusterDeploymentStatus, ClusterMetadata, Condition, ControlPlaneConfig,
};

const NOW: i64 = 1_800_000_000;
const MINUTE: i64 = 60;
const HOUR: i64 = 3600;

fn at(seconds_from_now: i64) -> Timestamp {
    Timestamp::from_second(NOW + seconds_from_now).unwrap()
}

/// A cluster with these conditions: type, status, reason, age in seconds.
fn cluster(conditions: &[(&str, &str, &str, i64)]) -> ClusterDeployment {
    let spec = ClusterDeploymentSpec {
        installed: true,
        cluster_metadata: Some(ClusterMetadata::default()),
        ..ClusterDeploymentSpec::default()
    };
    let condition = |(type_, status, reason, age): &(&str, &str, &str, i64)| Condition {
        type_: (*type_).into(),
        status: (*status).into(),
        reason: Some((*reason).into()),
        last_probe_time: Some(Time(at(-age))),
        last_transition_time: Some(Time(at(-age))),
        message: (*reason == reason::REACHABLE).then(|| REACHABLE.to_owned()),
    };
    let conditions = conditions.iter().map(condition).collect();
    let status = ClusterDeploymentStatus { conditions, ..ClusterDeploymentStatus::default() };
    let mut cluster = ClusterDeployment { status: Some(status), ..ClusterDeployment::new("demo", spec) };
    cluster.metadata.resource_version = Some("7".into());
    cluster
}

/// Status and reason of a condition.
type Word = (&'static str, &'static str);

const NEW: Word = ("Unknown", power::INITIALIZED);
const UP: Word = ("False", reason::REACHABLE);
const DOWN: Word = ("True", reason::ERROR);
const MARKED: Word = ("True", reason::ASLEEP);

/// Both conditions, the second as every cluster without an override has it, and R.
fn known((status, reason): Word, age: i64, ready: (&str, i64)) -> ClusterDeployment {
    cluster(&[
        (ACTIVE_OVERRIDE, "Unknown", power::INITIALIZED, HOUR),
        (READY, if ready.0 == power::RUNNING { "True" } else { "False" }, ready.0, ready.1),
        (UNREACHABLE, status, reason, age),
    ])
}

const RUNNING: (&str, i64) = (power::RUNNING, 9 * HOUR);
const SLEEPING: (&str, i64) = (power::STOPPING_OR_HIBERNATING, 10);

fn with_override(mut cluster: ClusterDeployment) -> ClusterDeployment {
    let url = Some("https://api.vanity.example".to_owned());
    cluster.spec.control_plane_config =
        Some(ControlPlaneConfig { api_url_override: url, ..ControlPlaneConfig::default() });
    cluster
}

fn facts(cluster: &ClusterDeployment) -> Facts<'_> {
    Facts { cluster, primary: None, initial: None, tried: None, now: at(0) }
}

/// The last try: seconds ago, failures in a row.
type LastTry = Option<(i64, u32)>;

/// Name; cluster, last try; what the primary URL answers; who is asked, what `Unreachable` says then, when to look
/// again.
type Row<'a> = (&'a str, ClusterDeployment, LastTry, Answer, &'a [Url], &'a str, Option<Duration>);

/// Name; cluster; what both URLs answer; who is asked, what both conditions say then.
type RowWithOverride<'a> = (&'a str, ClusterDeployment, (Answer, Answer), &'a [Url], (&'a str, &'a str));

fn tried(last: LastTry) -> Option<LastAttempt> {
    last.map(|(ago, failures)| LastAttempt { at: at(-ago), failures })
}

/// A whole look at a world in which the URLs answer so: what was asked, and the plan.
fn observation(facts: &mut Facts<'_>, primary: &Answer, initial: &Answer) -> (Vec<Url>, Plan) {
    let mut asked = Vec::new();
    while let Some(ask) = needs(facts) {
        asked.push(ask.url);
        assert!(asked.len() <= 2, "asked again and again");
        facts.answered(ask.url, if ask.url == Url::Primary { primary } else { initial }.clone(), facts.now);
    }
    (asked, decide(facts))
}

/// The conditions that the look leaves: status and reason by type, and when `Unreachable` was last probed.
fn after(cluster: &ClusterDeployment, plan: &Plan) -> ClusterDeployment {
    let Some(patch) = plan.patch(cluster, at(0)) else { return cluster.clone() };
    let mut document = serde_json::to_value(cluster).unwrap();
    let patch: json_patch::Patch = serde_json::from_value(patch).unwrap();
    json_patch::patch(&mut document, &patch).unwrap();
    serde_json::from_value(document).unwrap()
}

fn says(cluster: &ClusterDeployment, type_: &str) -> String {
    cluster.condition(type_).map_or_else(String::new, |c| format!("{}/{}", c.status, c.reason.as_deref().unwrap()))
}

fn no() -> Answer {
    Err("connection refused".into())
}

const NOBODY: &[Url] = &[];
const PRIMARY: &[Url] = &[Url::Primary];
const BOTH: &[Url] = &[Url::Primary, Url::Initial];
const YES: &str = "False/ClusterReachable";
const NO: &str = "True/ErrorConnectingToCluster";
const ASLEEP: &str = "True/Hibernating";
const LATER: Option<Duration> = Some(RECHECK);

#[expect(clippy::unnecessary_wraps, reason = "reads as what it is compared with")]
fn soon(seconds: u64) -> Option<Duration> {
    Some(Duration::from_secs(seconds))
}

#[test]
fn the_table_without_an_override() {
    let new = |age| known(NEW, age, RUNNING);
    let up = |age| known(UP, age, RUNNING);
    let down = |age| known(DOWN, age, RUNNING);
    let table: &[Row<'_>] = &[
        ("initialize conditions", cluster(&[]), None, Ok(()), NOBODY, "Unknown/Initialized", None),
        ("recent reachable", up(HOUR), None, no(), NOBODY, YES, Some(RECHECK / 2)),
        ("unknown status", new(1), None, Ok(()), PRIMARY, YES, LATER),
        ("old reachable", up(2 * HOUR), None, Ok(()), PRIMARY, YES, LATER),
        ("old reachable is not any more", up(2 * HOUR), None, no(), PRIMARY, NO, Some(backoff(1))),
        ("unreachable", down(HOUR), Some((MINUTE, 5)), no(), PRIMARY, NO, Some(backoff(6))),
        ("unreachable, not yet due", down(HOUR), Some((10, 5)), Ok(()), NOBODY, NO, soon(6)),
        ("unreachable, after a restart", down(1), None, no(), PRIMARY, NO, Some(backoff(1))),
        ("reachable with no condition", new(9), Some((9, 2)), Ok(()), PRIMARY, YES, LATER),
        ("reachable with old condition", up(9 * HOUR), Some((9 * HOUR, 0)), Ok(()), PRIMARY, YES, LATER),
        ("reachable with unreachable condition", down(5), Some((5, 2)), Ok(()), PRIMARY, YES, LATER),
    ];
    for (name, cluster, last, answer, asked, result, again) in table {
        let mut facts = Facts { tried: tried(*last), ..facts(cluster) };
        let (found, plan) = observation(&mut facts, answer, &Ok(()));
        let after = after(cluster, &plan);
        assert_eq!(
            (found.as_slice(), says(&after, UNREACHABLE).as_str(), plan.requeue),
            (*asked, *result, *again),
            "{name}"
        );
        assert_eq!(says(&after, ACTIVE_OVERRIDE), "Unknown/Initialized", "{name}: nothing to say without an override");
        let probed = after.condition(UNREACHABLE).unwrap().last_probe_time.as_ref().unwrap().0;
        let reachable = says(&after, UNREACHABLE) == YES && !asked.is_empty();
        assert!(!reachable || probed == at(0), "{name}: lastProbeTime is refreshed");
    }
}

#[test]
fn the_table_with_an_override() {
    const ACTIVE: Word = ("True", reason::REACHABLE);
    const INACTIVE: Word = ("False", reason::ERROR);
    const ON: &str = "True/ClusterReachable";
    const OFF: &str = "False/ErrorConnectingToCluster";
    let known = |(status, reason): Word, unreachable: Word, age| {
        let both = [(ACTIVE_OVERRIDE, status, reason, age), (UNREACHABLE, unreachable.0, unreachable.1, age)];
        with_override(cluster(&both))
    };
    let yes = || Ok(());
    let table: &[RowWithOverride<'_>] = &[
        ("primary reachable, nothing known", known(NEW, NEW, 1), (yes(), no()), PRIMARY, (YES, ON)),
        ("primary recently reachable", known(ACTIVE, UP, HOUR), (no(), no()), NOBODY, (YES, ON)),
        ("primary lost, secondary reachable", known(ACTIVE, UP, 2 * HOUR), (no(), yes()), BOTH, (YES, OFF)),
        ("primary back while on secondary", known(INACTIVE, UP, MINUTE), (yes(), no()), PRIMARY, (YES, ON)),
        (
            "primary still lost, secondary asked an hour ago",
            known(INACTIVE, UP, HOUR),
            (no(), no()),
            PRIMARY,
            (YES, OFF),
        ),
        (
            "primary still lost, secondary asked 2 hours ago",
            known(INACTIVE, UP, 2 * HOUR),
            (no(), no()),
            BOTH,
            (NO, OFF),
        ),
        ("both were lost, secondary back", known(INACTIVE, DOWN, MINUTE), (no(), yes()), BOTH, (YES, OFF)),
    ];
    for (name, cluster, (primary, initial), asked, (unreachable, active)) in table {
        let (found, plan) = observation(&mut facts(cluster), primary, initial);
        let after = after(cluster, &plan);
        let detail = (says(&after, UNREACHABLE), says(&after, ACTIVE_OVERRIDE));
        assert_eq!((found.as_slice(), detail.0.as_str(), detail.1.as_str()), (*asked, *unreachable, *active), "{name}");
        let slow = plan.requeue.unwrap() > Duration::from_mins(5);
        assert_eq!(slow, *active == ON, "{name}: on the secondary the primary is tried again soon");
    }
}

#[test]
fn sleep_and_wake() {
    let begun = |mut cluster: ClusterDeployment, ago: i64| {
        let conditions = &mut cluster.status.as_mut().unwrap().conditions;
        conditions.retain(|condition| condition.type_ != HIBERNATING);
        for ready in conditions.iter_mut().filter(|condition| condition.type_ == READY) {
            ready.last_transition_time = Some(Time(at(-86_400)));
        }
        let noted = super::tests::cluster(&[(HIBERNATING, "False", power::RESUMING_OR_RUNNING, ago)]);
        cluster.status.as_mut().unwrap().conditions.extend(noted.status.unwrap().conditions);
        cluster
    };
    let with = |mut cluster: ClusterDeployment, type_: &str, status: &str, reason: &str, age: i64| {
        let more = super::tests::cluster(&[(type_, status, reason, age)]).status.unwrap().conditions;
        cluster.status.as_mut().unwrap().conditions.extend(more);
        cluster
    };
    let marked = |ready| known(MARKED, 9 * HOUR, ready);
    let waking = |ready, awaited, ago| begun(with(marked((ready, 3)), PROGRESS, "True", awaited, 3), ago);
    let refused = |cluster| with(cluster, HIBERNATING, "False", power::FAILED_TO_STOP, 10);
    let (machines, nodes) = (power::STARTING_MACHINES, power::WAITING_FOR_NODES);
    let (slept, woke) = (SLEEPING, |seconds| known(DOWN, HOUR, (power::RUNNING, seconds)));
    let long = Some((9 * HOUR, 9));
    let table: &[Row<'_>] = &[
        ("falls asleep, was reachable", known(UP, 5 * HOUR, slept), None, no(), NOBODY, ASLEEP, None),
        ("falls asleep, was unreachable", known(DOWN, 5, slept), Some((HOUR, 9)), no(), NOBODY, ASLEEP, None),
        ("falls asleep, never asked", known(NEW, 5, slept), None, no(), NOBODY, ASLEEP, None),
        ("sleeps since long", marked((slept.0, 9 * HOUR)), None, no(), NOBODY, ASLEEP, None),
        ("wakes, machines start", waking(machines, "Machines", 20), None, Ok(()), NOBODY, ASLEEP, soon(280)),
        ("wakes, the wake knocks", waking(nodes, "ApiServer", 30), None, Ok(()), NOBODY, ASLEEP, soon(270)),
        ("wakes, and has knocked for long", waking(nodes, "ApiServer", 301), long, no(), PRIMARY, NO, soon(1)),
        ("wakes, first answer", waking(nodes, "Nodes", 30), long, Ok(()), PRIMARY, YES, LATER),
        ("wakes, answers the wake and not us", waking(nodes, "Nodes", 30), long, no(), PRIMARY, NO, soon(1)),
        ("its kubeconfig is refused", waking(nodes, "KubeconfigRefused", 30), None, no(), PRIMARY, NO, soon(1)),
        ("is awake", marked((power::RUNNING, 1)), None, Ok(()), PRIMARY, YES, LATER),
        ("woke after the last try", woke(3), Some((20, 9)), Ok(()), PRIMARY, YES, LATER),
        ("woke before the last try", woke(30), Some((20, 9)), Ok(()), NOBODY, NO, soon(100)),
        ("a stop is refused, was marked", refused(marked(slept)), None, Ok(()), PRIMARY, YES, Some(DEGRADED_INTERVAL)),
        ("a stop is refused, was up", refused(known(UP, 6 * MINUTE, slept)), None, no(), PRIMARY, NO, soon(1)),
    ];
    for (name, cluster, last, answer, asked, result, again) in table {
        let mut facts = Facts { tried: tried(*last), ..facts(cluster) };
        let urgent = needs(&facts).map(|ask| ask.urgent);
        let (found, plan) = observation(&mut facts, answer, &Ok(()));
        let detail = says(&after(cluster, &plan), UNREACHABLE);
        assert_eq!((found.as_slice(), detail.as_str(), plan.requeue), (*asked, *result, *again), "{name}");
        let waited_for =
            name.contains("first answer") || name.starts_with("is awake") || name.starts_with("woke after");
        assert!(!waited_for || urgent == Some(true), "{name}: somebody waits");
    }
}

#[test]
fn what_is_not_ours_is_left_alone_and_a_fake_cluster_is_never_asked() {
    let base = || known(NEW, 1, RUNNING);
    let annotated = |key: &str| {
        let mut cluster = base();
        cluster.metadata.annotations.get_or_insert_default().insert(key.into(), "true".into());
        cluster
    };
    let mut deleted = base();
    deleted.metadata.deletion_timestamp = Some(Time(at(-1)));
    let (mut fresh, mut nameless) = (base(), base());
    fresh.spec.installed = false;
    nameless.spec.cluster_metadata = None;
    for cluster in [annotated(RECONCILE_PAUSE), deleted, fresh, nameless] {
        assert_eq!(observation(&mut facts(&cluster), &no(), &no()), (vec![], Plan::default()));
    }
    let fake = annotated(FAKE_CLUSTER);
    let (asked, plan) = observation(&mut facts(&fake), &no(), &no());
    assert_eq!((asked, says(&after(&fake, &plan), UNREACHABLE)), (vec![], YES.to_owned()));
}

#[test]
fn a_message_does_not_change_with_the_clock() {
    let rustls =
        "invalid peer certificate: certificate expired: verification time 1742774398 (UNIX), but it is 1 s late";
    assert_eq!(stable(rustls), "invalid peer certificate: certificate expired");
    assert_eq!(stable("connection refused"), "connection refused");
    assert_eq!(stable(&"ä".repeat(501)).chars().count(), 500);
}

#[test]
fn pauses_grow_to_two_minutes() {
    let pauses = [0, 1, 2, 3, 7, 8, 9, 40, u32::MAX].map(|failures| backoff(failures).as_secs());
    assert_eq!(pauses, [0, 1, 2, 4, 64, 120, 120, 120, 120]);
}

fn any_cluster() -> impl Strategy<Value = ClusterDeployment> {
    let age = prop_oneof![0_i64..4, 0_i64..600, 7000_i64..7400];
    let ready = prop::sample::select(vec![
        power::RUNNING,
        power::STOPPING_OR_HIBERNATING,
        power::STARTING_MACHINES,
        power::WAITING_FOR_NODES,
        power::WAITING_FOR_CLUSTER_OPERATORS,
        power::PAUSED,
    ]);
    let unreachable = prop::sample::select(vec![
        None,
        Some(("Unknown", power::INITIALIZED)),
        Some(("True", reason::ERROR)),
        Some(("True", reason::ASLEEP)),
        Some(("False", reason::REACHABLE)),
    ]);
    let active = prop::sample::select(vec![None, Some("True"), Some("False"), Some("Unknown")]);
    let progress = prop::sample::select(vec![None, Some("ApiServer"), Some("Nodes"), Some("Machines")]);
    let hibernating = prop::sample::select(vec![power::FAILED_TO_STOP, power::STOPPING, power::RESUMING_OR_RUNNING]);
    let flags = (any::<bool>(), any::<bool>());
    (ready, unreachable, active, progress, hibernating, flags, age).prop_map(
        |(ready, unreachable, active, progress, hibernating, (vanity, fake), age)| {
            let mut conditions = vec![(HIBERNATING, "False", hibernating, age), (READY, "False", ready, age)];
            conditions.extend(progress.map(|reason| (PROGRESS, "True", reason, age)));
            conditions.extend(active.map(|status| (ACTIVE_OVERRIDE, status, "Any", age)));
            conditions.extend(unreachable.map(|(status, reason)| (UNREACHABLE, status, reason, age)));
            let mut found = cluster(&conditions);
            let annotations = found.metadata.annotations.get_or_insert_default();
            if fake {
                annotations.insert(FAKE_CLUSTER.into(), "true".into());
            }
            if vanity { with_override(found) } else { found }
        },
    )
}

proptest! {
    /// The first look may add the conditions, the second may ask; a third at the same moment has nothing to do.
    #[test]
    fn what_was_written_is_not_written_again_and_what_was_asked_is_not_asked_again(
        found in any_cluster(),
        last in proptest::option::of((0_i64..400, 0_u32..12)),
        answers in (any::<bool>(), any::<bool>()),
    ) {
        let answer = |yes: bool| if yes { Ok(()) } else { no() };
        let (primary, initial) = (answer(answers.0), answer(answers.1));
        let mut tried = tried(last);
        let mut found = found;
        for round in 0..4 {
            let mut facts = Facts { tried, ..facts(&found) };
            let (asked, plan) = observation(&mut facts, &primary, &initial);
            tried = facts.tried;
            prop_assert!(round < 2 || asked.is_empty(), "asked in round {round}: {asked:?} of {found:?}");
            prop_assert!(round < 2 || plan.patch(&found, at(0)).is_none(), "written in round {round}: {plan:?}");
            prop_assert!(round < 2 || plan.requeue.is_none_or(|again| again >= Duration::from_secs(1)), "hot: {plan:?}");
            found = after(&found, &plan);
        }
    }

    #[test]
    fn who_sleeps_is_marked_and_never_asked(mut found in any_cluster(), yes in any::<bool>()) {
        found.status.as_mut().unwrap().conditions.retain(|c| c.type_ != READY && c.type_ != HIBERNATING);
        found.status.as_mut().unwrap().conditions.extend(
            cluster(&[(READY, "False", power::STOPPING_OR_HIBERNATING, 1), (HIBERNATING, "True", power::HIBERNATING, 1)])
                .status.unwrap().conditions,
        );
        for _ in 0..2 {
            let (asked, plan) = observation(&mut facts(&found), &if yes { Ok(()) } else { no() }, &no());
            prop_assert!(asked.is_empty());
            found = after(&found, &plan);
        }
        prop_assert_eq!(says(&found, UNREACHABLE), ASLEEP);
    }
}

#[test]
fn the_patch_keeps_hives_order_and_tests_the_version() {
    let cluster = known(NEW, 1, (power::RUNNING, 1));
    let (_, plan) = observation(&mut facts(&cluster), &no(), &no());
    let patch = plan.patch(&cluster, at(0)).unwrap();
    assert_eq!(patch[0], json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"}));
    let after = after(&cluster, &plan);
    let order: Vec<_> = after.status.iter().flat_map(|s| &s.conditions).map(|c| c.type_.as_str()).collect();
    assert_eq!(order, [UNREACHABLE, READY, ACTIVE_OVERRIDE], "failing first, Unknown last");
}
