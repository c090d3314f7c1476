//! Rows 7 and 9 to 12c of docs/reference/hive.md, `hibernateAfter` (section 1.2), and the times that users set.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::annotation::{format, keys};
use crate::cloud::InstanceState::{Running, Stopped};
use crate::hive::api::{ClusterPoolReference, OtherPlatform};
use crate::hive::conditions::PROGRESS;
use crate::power::Power;

const MINUTE: i64 = 60;
const HOUR: i64 = 3600;

fn installed(mut cluster: ClusterDeployment, seconds_ago: i64) -> ClusterDeployment {
    cluster.status.get_or_insert_default().installed_timestamp = Some(Time(at(-seconds_ago)));
    cluster
}

fn sleeps_after(mut cluster: ClusterDeployment, duration: &str) -> ClusterDeployment {
    cluster.spec.hibernate_after = Some(duration.into());
    cluster
}

/// Awake since so many seconds.
fn awake_since(seconds: i64) -> ClusterDeployment {
    let mut cluster = waking(("True", reason::RUNNING));
    for condition in &mut cluster.status.as_mut().unwrap().conditions {
        condition.last_transition_time = Some(Time(at(-seconds)));
    }
    cluster
}

fn fresh(power_state: &str) -> ClusterDeployment {
    noted(cluster(power_state), ("Unknown", "Initialized"), ("Unknown", "Initialized"))
}

fn fake(cluster: ClusterDeployment) -> ClusterDeployment {
    annotated(cluster, FAKE_CLUSTER, "true")
}

fn decided(cluster: &ClusterDeployment, sync: SyncSetState, upgrade: Option<Upgrade>) -> Plan {
    decide(&Facts { sync, upgrade: upgrade.map(Ok), ..facts(cluster).machines_are(&[Running, Running]) })
}

fn sets(to: Power, because: &str) -> Vec<Action> {
    vec![Action::SetPowerState(to, because.into())]
}

#[test]
fn a_preflight_is_planned_when_it_is_due_of_clusters_that_are_served() {
    let (awake, now) = (awake_since(HOUR), format::seconds(at(0)));
    let requested = annotated(awake.clone(), keys::PREFLIGHT_REQUESTED_AT, &now);
    let paused = annotated(requested.clone(), RECONCILE_PAUSE, "true");
    for (cluster, seconds_ago, served, expected) in [
        (&awake, None, true, Some(0)),
        (&awake, None, false, None),
        (&awake, Some(60), true, None),
        (&requested, Some(60), true, Some(0)),
        (&requested, Some(5), true, Some(10)),
        (&paused, None, true, None),
    ] {
        let preflight_age = seconds_ago.map(Duration::from_secs);
        let plan = decide(&Facts { served, preflight_age, ..facts(cluster).machines_are(&[Running]) });
        let due = plan.due.map(|due| due.as_secs()).or(plan.preflight.then_some(0));
        assert_eq!(due, expected, "{seconds_ago:?} {served}: {plan:?}");
    }
}

#[test]
fn azure_without_infrastructure_is_unsupported() {
    for (row, value, detail) in [("7", "true", "Unsupported"), ("12d", "false", "Stopping")] {
        let mut cluster = fresh("Hibernating");
        cluster.spec.platform.other.insert("azure".into(), OtherPlatform::default());
        let cluster = annotated(cluster, INFRA_DISABLED, value);
        let plan = decided(&cluster, SyncSetState::Applied, None);
        assert_eq!(says(&plan).0, detail, "row {row}");
        if detail == "Unsupported" {
            assert_eq!(plan.status.unwrap().hibernating.unwrap().message, "Infrastructure disabled by annotation");
        }
    }
}

#[test]
fn row_9_waits_for_the_cluster_sync_but_not_for_ever() {
    let running = noted(cluster("Hibernating"), ("False", reason::RESUMING_OR_RUNNING), ("True", reason::RUNNING));
    let slept = noted(cluster("Running"), ("True", reason::HIBERNATING), ("False", reason::STOPPING_OR_HIBERNATING));
    let missing = |seconds: i64| SyncSetState::Missing(at(-seconds));
    for (case, cluster, sync, waits) in [
        ("sleep, just missed", installed(running.clone(), HOUR), missing(0), true),
        ("sleep, missed for a minute", installed(running.clone(), HOUR), missing(60), false),
        ("sleep, installed just now", installed(running.clone(), 9 * MINUTE), missing(60), true),
        ("sleep, not listed yet", running.clone(), SyncSetState::NotListed, true),
        ("sleep, no such kind", running.clone(), SyncSetState::NoSuchKind, false),
        ("wake, just missed", installed(slept.clone(), HOUR), missing(59), true),
        ("wake, missed for a minute", installed(slept.clone(), HOUR), missing(60), false),
        ("wake, applied", slept.clone(), SyncSetState::Applied, false),
        ("wake, not applied", installed(slept, MINUTE), SyncSetState::NotApplied, false),
    ] {
        let machines = Facts { sync, ..facts(&cluster) };
        assert_eq!(needs(&machines).is_none(), waits, "{case}");
        let state = if cluster.desired() == Power::Running { Stopped } else { Running };
        let plan = decide(&Facts { sync, ..facts(&cluster).machines_are(&[state]) });
        assert_eq!(plan.actions.is_empty(), waits, "{case}: {plan:?}");
        let status = plan.status.unwrap_or_default();
        assert_eq!(status.power_state.is_none(), waits, "{case}: H, R and P are left as they are");
        let warned = plan.notice.is_some_and(|notice| notice.reason == "ClusterSyncMissing");
        assert_eq!(warned, !waits && matches!(sync, SyncSetState::Missing(_)), "{case}");
    }
    let midway = asleep(("False", reason::STOPPING));
    assert!(!decided(&midway, missing(0), None).actions.is_empty(), "what has begun goes on");
}

#[test]
fn rows_10_and_12a_sync_sets() {
    let running = noted(cluster("Hibernating"), ("False", reason::RESUMING_OR_RUNNING), ("True", reason::RUNNING));
    let held = noted(cluster("Hibernating"), ("False", reason::SYNC_SETS_NOT_APPLIED), ("True", reason::RUNNING));
    for (row, cluster, sync, detail) in [
        ("12a", installed(running.clone(), 9 * MINUTE), SyncSetState::NotApplied, "SyncSetsNotApplied"),
        ("12a over", installed(running.clone(), 10 * MINUTE), SyncSetState::NotApplied, "Stopping"),
        ("12a without a timestamp", running.clone(), SyncSetState::NotApplied, "Stopping"),
        ("12a applied", installed(running, MINUTE), SyncSetState::Applied, "Stopping"),
        ("12a stays", installed(held.clone(), 9 * MINUTE), SyncSetState::NotApplied, "SyncSetsNotApplied"),
        ("10", installed(held.clone(), 9 * MINUTE), SyncSetState::Applied, "SyncSetsApplied"),
        ("12a and fake", fake(installed(held, MINUTE)), SyncSetState::NotApplied, "SyncSetsNotApplied"),
    ] {
        assert_eq!(says(&decided(&cluster, sync, None)).0, detail, "row {row}");
    }
    let young = installed(fresh("Hibernating"), 8 * MINUTE);
    let plan = decided(&young, SyncSetState::NotApplied, None);
    assert_eq!(plan.due, Some(Duration::from_mins(2)), "looked at again when the grace ends");
    let status = plan.status.unwrap();
    assert_eq!(status.hibernating.unwrap().message, "Cluster SyncSets have not been applied");
    assert_eq!(status.power_state, Some("SyncSetsNotApplied"));
    let noted = noted(fresh("Hibernating"), ("False", reason::SYNC_SETS_APPLIED), ("True", reason::RUNNING));
    assert_eq!(says(&decided(&noted, SyncSetState::Applied, None)).0, "Stopping", "after row 10 the sleep begins");
}

/// Section 7, `TestHibernateAfter`.
#[test]
fn row_11_hibernate_after() {
    let due = |plan: &Plan| {
        !plan.actions.is_empty() && plan.actions == sets(Power::Hibernating, "hibernateAfter 8h0m0s has passed")
    };
    let unsupported = noted(cluster("Running"), ("False", reason::UNSUPPORTED), ("True", reason::RUNNING));
    let pool = |mut cluster: ClusterDeployment, claim: Option<&str>, claimed: Option<i64>| {
        cluster.spec.cluster_pool_ref = Some(ClusterPoolReference {
            pool_name: "pool".into(),
            claim_name: claim.map(Into::into),
            claimed_timestamp: claimed.map(|seconds| Time(at(-seconds))),
            ..ClusterPoolReference::default()
        });
        cluster
    };
    let after = |cluster| sleeps_after(cluster, "8h");
    let held_until =
        |time: Timestamp| annotated(after(awake_since(10 * HOUR)), keys::HOLD_AWAKE_UNTIL, &time.to_string());
    for (case, cluster, expired, left) in [
        ("due, no condition", after(installed(cluster("Running"), 10 * HOUR)), true, None),
        ("due, installedTimestamp missing", after(fresh("")), true, None),
        // Row 8 comes first.
        ("due but unsupported until now", after(installed(unsupported, 10 * HOUR)), false, Some(8 * HOUR - MINUTE)),
        ("not yet due, never looked at", after(installed(fresh("Running"), 6 * HOUR)), false, Some(2 * HOUR)),
        ("with running condition, due", after(installed(awake_since(10 * HOUR), 20 * HOUR)), true, None),
        ("with running condition, not due", after(installed(awake_since(HOUR), 20 * HOUR)), false, Some(7 * HOUR)),
        ("just due", after(awake_since(8 * HOUR)), true, None),
        ("a wake never expires", after(installed(waking(("False", "WaitingForNodes")), 20 * HOUR)), false, None),
        ("unclaimed in a pool", after(pool(awake_since(10 * HOUR), None, None)), false, None),
        ("claimed, no time of the claim yet", after(pool(awake_since(10 * HOUR), Some("c"), None)), false, None),
        ("claimed an hour ago", after(pool(awake_since(10 * HOUR), Some("c"), Some(HOUR))), false, Some(7 * HOUR)),
        ("claimed long ago", after(pool(awake_since(10 * HOUR), Some("c"), Some(9 * HOUR))), true, None),
        ("no duration", sleeps_after(awake_since(10 * HOUR), "soon"), false, None),
        ("held awake", held_until(at(HOUR)), false, Some(HOUR)),
        ("held awake until an hour ago", held_until(at(-HOUR)), true, None),
        ("protected", annotated(after(awake_since(10 * HOUR)), keys::PROTECTED, "true"), false, Some(5 * MINUTE)),
    ] {
        let facts = Facts { upgrade: Some(Ok(Upgrade::Idle)), ..facts(&cluster).machines_are(&[Running]) };
        let plan = decide(&facts);
        assert_eq!(due(&plan), expired, "{case}: {plan:?}");
        assert_eq!(plan.due.map(|due| i64::try_from(due.as_secs()).unwrap()), left, "{case}");
    }
    let paused = noted(cluster("Running"), ("Unknown", "PowerStatePaused"), ("Unknown", "PowerStatePaused"));
    let plan = decided(&after(installed(paused, 10 * HOUR)), SyncSetState::Applied, None);
    assert_eq!(says(&plan).2, "StartingMachines", "after a pause the cluster is looked at first");
}

#[test]
fn row_12a_comes_before_row_12c() {
    let young = sleeps_after(installed(fresh("Running"), 8 * MINUTE), "1m");
    for (case, cluster, sync, says_first) in [
        ("due, no syncsets", young.clone(), SyncSetState::Missing(at(0)), None),
        ("due but not applied", young.clone(), SyncSetState::NotApplied, Some("SyncSetsNotApplied")),
        ("due, fake but not applied", fake(young), SyncSetState::NotApplied, Some("SyncSetsNotApplied")),
    ] {
        let plan = decided(&cluster, sync, Some(Upgrade::Idle));
        assert!(plan.actions.is_empty(), "{case}");
        assert_eq!(plan.status.and_then(|status| status.power_state), says_first, "{case}");
    }
    let instant = fake(sleeps_after(installed(fresh("Running"), HOUR), "1m"));
    assert_eq!(needs(&Facts { sync: SyncSetState::NotApplied, ..facts(&instant) }), None, "no cloud and no spoke");
    let plan = decide(&Facts { sync: SyncSetState::NotApplied, ..facts(&instant) });
    assert_eq!(plan.actions, sets(Power::Hibernating, "hibernateAfter 1m0s has passed"));
    let noted = fake(sleeps_after(installed(fresh("Hibernating"), HOUR), "1m"));
    let plan = decide(&facts(&noted));
    assert_eq!((says(&plan).2, message(&plan)), ("Hibernating", "Fake cluster is stopped"), "without a cloud");
}

#[test]
fn an_upgrade_is_not_interrupted_by_a_schedule() {
    let cluster = sleeps_after(awake_since(10 * HOUR), "8h");
    assert_eq!(needs(&facts(&cluster).machines_are(&[Running])), Some(Need::Upgrade));
    let silent = || Ok(Upgrade::Unknown("no answer".into()));
    for (case, said, minutes, deferred) in [
        ("it goes on", Ok(Upgrade::Progressing("to 4.20.9".into())), 0, Some(("UpgradeInProgress", "4.20.9"))),
        ("one silence says little", silent(), 0, Some(("UpgradeUnknown", "no answer"))),
        ("nor do more of them", silent(), 59, Some(("UpgradeUnknown", "no answer"))),
        ("who is silent for an hour is not kept awake", silent(), 60, None),
        ("the hub says nothing about it", Err(SpokeError::Failed("503".into())), 600, Some(("UpgradeUnknown", "503"))),
        ("it is over", Ok(Upgrade::Idle), 0, None),
    ] {
        let (upgrade, upgrade_unknown_for) = (Some(said), Duration::from_mins(minutes));
        let plan = decide(&Facts { upgrade, upgrade_unknown_for, ..facts(&cluster).machines_are(&[Running]) });
        assert_eq!(plan.actions.is_empty(), deferred.is_some(), "{case}: {plan:?}");
        let Some((reason, detail)) = deferred else { continue };
        assert_eq!(plan.due, Some(Duration::from_mins(5)), "{case}");
        let notice = plan.notice.unwrap();
        assert!(notice.warning && notice.reason == reason && notice.message.contains(detail), "{case}: {notice:?}");
    }
}

#[test]
fn wakes_when_the_user_wants() {
    let asleep = asleep_since(2 * HOUR);
    let at_time = |moment: Timestamp| annotated(asleep.clone(), keys::WAKE_AT, &moment.to_string());
    for (case, cluster, wakes, left) in [
        ("in an hour", at_time(at(HOUR)), false, Some(Duration::from_hours(1))),
        ("now", at_time(at(0)), true, None),
        ("an hour ago, while nobody looked", at_time(at(-HOUR)), true, None),
        ("never", asleep.clone(), false, None),
        ("not a time", annotated(asleep.clone(), keys::WAKE_AT, "tomorrow"), false, None),
    ] {
        let plan = decide(&facts(&cluster).machines_are(&[Stopped]));
        let wake = matches!(plan.actions.as_slice(), [Action::SetPowerState(Power::Running, _)]);
        assert_eq!((wake, plan.due), (wakes, left), "{case}");
    }
    let running = annotated(awake_since(HOUR), keys::WAKE_AT, &at(-HOUR).to_string());
    assert!(decided(&running, SyncSetState::Applied, None).actions.is_empty(), "a cluster that is awake is not woken");
}

/// Asleep, and Ready turned False so many seconds ago.
fn asleep_since(seconds_ago: i64) -> ClusterDeployment {
    let mut asleep = asleep(("True", reason::HIBERNATING));
    for condition in &mut asleep.status.as_mut().unwrap().conditions {
        condition.last_transition_time = Some(Time(at(-seconds_ago)));
    }
    asleep
}

#[test]
fn a_scheduled_wake_from_an_earlier_sleep_is_ignored_and_reported() {
    let wake_at =
        |cluster: ClusterDeployment, seconds: i64| annotated(cluster, keys::WAKE_AT, &at(seconds).to_string());
    let requested_at = |cluster, seconds: i64| annotated(cluster, keys::REQUESTED_AT, &at(seconds).to_string());
    let mut begins = awake_since(HOUR);
    begins.spec.power_state = Some("Hibernating".to_owned());
    // A pause that began a minute ago is over.
    let paused = noted(cluster("Hibernating"), ("Unknown", reason::PAUSED), ("Unknown", reason::PAUSED));
    for (case, cluster, wakes, ignored) in [
        ("from before this sleep", wake_at(asleep_since(HOUR), -2 * HOUR), false, true),
        ("from within this sleep", wake_at(asleep_since(2 * HOUR), -HOUR), true, false),
        ("yet to come", wake_at(asleep_since(HOUR), HOUR), false, false),
        ("the sleep has not begun", wake_at(begins.clone(), -1), false, true),
        ("requested with this sleep, which was held up", requested_at(wake_at(begins.clone(), -1), -60), true, false),
        ("the request is of an earlier sleep", requested_at(wake_at(begins, -1), -2 * HOUR), false, true),
        ("due during a pause", requested_at(wake_at(paused.clone(), -30), -2 * HOUR), true, false),
        ("due before a pause", requested_at(wake_at(paused.clone(), -HOUR), -2 * HOUR), true, false),
        ("from before the sleep that was paused", requested_at(wake_at(paused.clone(), -HOUR), -30), false, true),
    ] {
        let plan = decide(&facts(&cluster).machines_are(&[Stopped]));
        let wake = matches!(plan.actions.as_slice(), [Action::SetPowerState(Power::Running, _)]);
        let reported = plan.notice.is_some_and(|notice| notice.reason == "WakeAtIgnored");
        assert_eq!((wake, reported), (wakes, ignored), "{case}");
    }
    // The first status after a pause moves R's transition, which is no reason to ignore a later wake.
    let paused = requested_at(wake_at(paused, 1), -2 * HOUR);
    let plan = decide(&facts(&paused).machines_are(&[Stopped]));
    let asleep = patched(&paused, &plan.status.unwrap().patch(&paused, at(0)).unwrap());
    let plan = decide(&Facts { now: at(1), ..facts(&asleep).machines_are(&[Stopped]) });
    assert!(matches!(plan.actions.as_slice(), [Action::SetPowerState(Power::Running, _)]), "{plan:?}");
}

#[test]
fn what_cannot_be_read_holds() {
    let due = |key: &str, value: &str| {
        let mut cluster = annotated(awake_since(9 * HOUR), key, value);
        cluster.spec.hibernate_after = Some("8h".to_owned());
        let plan = decide(&facts(&cluster).machines_are(&[Running]));
        (plan.actions.is_empty(), plan.notice.map(|notice| notice.message).unwrap_or_default())
    };
    for (key, value, held, detail) in [
        (keys::PROTECTED, "true", true, "hibernateAfter has passed, but annotation hibernate.sh/protected is true"),
        (keys::PROTECTED, "yes\u{202e}", true, "protected is yes, neither true nor false, and counts as true"),
        (keys::PROTECTED, "false", false, ""),
        (
            keys::HOLD_AWAKE_UNTIL,
            "tomorrow",
            true,
            "hold-awake-until is tomorrow, which is no time: correct or remove it",
        ),
        (keys::HOLD_AWAKE_UNTIL, "2020-01-01T00:00:00Z", false, ""),
    ] {
        let (is_held, message) = due(key, value);
        assert_eq!(is_held, held, "{key} {value}");
        assert!(message.contains(detail), "{key} {value}: {message}");
    }
}

#[test]
fn what_takes_too_long_is_told_and_tried_slowly() {
    let mut stopping = asleep(("False", "WaitingForMachinesToStop"));
    let mut waking = waking(("False", "WaitingForMachines"));
    for (minutes, late) in [(14, [false, false]), (16, [true, false]), (31, [true, true])] {
        for condition in &mut stopping.status.as_mut().unwrap().conditions {
            condition.last_probe_time = Some(Time(at(-minutes * MINUTE)));
            condition.last_transition_time = Some(Time(at(-minutes * MINUTE)));
        }
        waking = began(waking, minutes * MINUTE);
        let noted = [&stopping, &waking].map(|cluster| {
            let plan = decide(&facts(cluster).machines_are(&[crate::cloud::InstanceState::Stopping, Stopped, Running]));
            let awaited = plan.status.unwrap().progress.unwrap();
            let slow = plan.requeue == Requeue::After(Duration::from_mins(1));
            let warned = plan.notice.is_some_and(|notice| notice.warning && notice.reason.ends_with("TakesTooLong"));
            assert_eq!(warned, slow);
            assert_eq!(warned, awaited.message.starts_with("for more than "), "{awaited:?}");
            warned
        });
        assert_eq!(noted, late, "after {minutes} minutes");
    }
}

/// What happens to a cluster that has been where it should be for hours is told in its own words.
#[test]
fn who_has_arrived_is_late_for_nothing() {
    let hours = |mut cluster: ClusterDeployment| {
        for condition in &mut cluster.status.as_mut().unwrap().conditions {
            condition.last_probe_time = Some(Time(at(-300 * MINUTE)));
            condition.last_transition_time = Some(Time(at(-300 * MINUTE)));
        }
        cluster
    };
    let sleeps = hours(asleep(("True", reason::HIBERNATING)));
    let plan = decide(&facts(&sleeps).machines_are(&[Running, Stopped]));
    assert_eq!(plan.notice.as_ref().map(|notice| notice.reason), Some("StartedWhileAsleep"));
    // And the time in which it has to sleep again begins anew.
    let stopping = patched(&sleeps, &plan.status.unwrap().patch(&sleeps, at(0)).unwrap());
    let plan = decide(&Facts { now: at(14 * MINUTE), ..facts(&stopping).machines_are(&[Running, Stopped]) });
    assert_eq!(plan.notice, None);
    let plan = decide(&Facts { now: at(16 * MINUTE), ..facts(&stopping).machines_are(&[Running, Stopped]) });
    assert_eq!(plan.notice.map(|notice| notice.reason), Some("SleepTakesTooLong"));
    let awake = hours(waking(("True", reason::RUNNING)));
    let plan = decide(&facts(&awake).machines_are(&[Running, Stopped]));
    assert_eq!(plan.notice, None, "one was stopped a moment ago");
    let plan = decide(&facts(&awake).cloud_says(crate::cloud::CloudErrorKind::Denied));
    assert_eq!(plan.notice, None, "{:?}", plan.status);
}

#[test]
fn somebody_starts_a_machine_of_a_sleeping_cluster() {
    let cluster = asleep(("True", reason::HIBERNATING));
    for (stops_drift, stops, power_state) in [(true, 1, "Stopping"), (false, 0, "Hibernating")] {
        let settings = Settings { stops_drift, ..Settings::default() };
        let plan = decide(&Facts { settings, ..facts(&cluster).machines_are(&[Running, Stopped]) });
        assert_eq!((plan.actions.len(), says(&plan).2), (stops, power_state));
        assert!(
            plan.notice.is_some_and(|n| n.warning && n.reason == "StartedWhileAsleep" && n.message.contains("i-0"))
        );
        let noted = plan.status.unwrap().patch(&cluster, at(0)).unwrap().to_string();
        assert!(noted.contains(PROGRESS));
    }
}
