//! Single situations that others cause: records that are lost, pauses and ends of pauses, restores, deletions.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::super::*;
use super::case::{Case, NOW, SLEEP, deployment, is_over, node, now, raised, replicas};
use super::world::{UID, confirm, say, workload};
use crate::kkp::keys::{self, ACTIVE_RESTORE};
use crate::power::Power;
use crate::record::{Format, RecordError};

/// Row 8: KKP raises everything but etcd when another client ends the pause.
#[test]
fn an_unpause_by_another_client_is_a_wake() {
    for phase in [Phase::ScalingDownControlPlane, Phase::Dehydrated] {
        let mut case = Case::new(Power::Hibernating, Some(phase));
        case.cluster.spec.pause = false;
        let woken = case.plan().record.unwrap();
        assert_eq!((woken.phase, woken.woken.as_deref()), (Phase::StartingControlPlane, Some(NOW)));
        // The write of the intent may conflict, or the controller may die before it: the record voids older requests.
        case.record = Some(woken);
        case.enter(Phase::StartingControlPlane);
        case.cluster.metadata.annotations = Some([(keys::POWER_STATE.to_owned(), "Hibernating".to_owned())].into());
        assert!(case.plan().clears_intent);
        case.enter(Phase::AwakePaused);
        case.machinery = Some(Machinery::default());
        let plan = case.plan();
        assert!(is_over(&plan) && plan.clears_intent);
        case.later = Duration::from_mins(1);
        case.requested = Duration::from_mins(1);
        assert!(!case.plan().clears_intent, "a newer request stands");
    }
}

/// Rows 20, 21 and 27: KKP restores nothing, so the record does.
#[test]
fn a_cluster_that_kkp_leaves_alone_is_restored_from_the_record() {
    let mut case = Case::new(Power::Running, Some(Phase::StartingControlPlane));
    case.unpause_refused = Some("invalid datacenter name");
    let all =
        [("etcd", 3), ("apiserver", 2), ("scheduler", 1)].map(|(name, count)| Action::Restore(workload(name), count));
    let and_unpause: Vec<Action> = all.into_iter().chain([Action::Unpause]).collect();
    assert_eq!(case.plan().actions, and_unpause, "the end of the pause is tried again: KKP alone renews certificates");
    assert!(case.says().starts_with("KKP refuses the end of spec.pause: invalid"), "{}", case.says());
    case.control_plane = vec![replicas("apiserver", 2), replicas("scheduler", 1), replicas("etcd", 3)];
    assert_eq!(case.enters(), Some(Phase::WaitingForApi), "although KKP still refuses");
    case.enter(Phase::WaitingForApi);
    assert_eq!(case.plan().actions, [Action::Unpause]);
    let mut case = Case::new(Power::Running, Some(Phase::WaitingForNodes));
    (case.unpause_refused, case.cluster.spec.pause) = (Some("invalid datacenter name"), true);
    case.machinery = Some(Machinery::default());
    assert_eq!(case.enters(), Some(Phase::AwakePaused));
    case.enter(Phase::AwakePaused);
    assert_eq!(case.plan().actions, [Action::Unpause]);
    assert!(case.says().ends_with("was refused: invalid datacenter name") && !case.ends());
    case.cluster.spec.pause = false;
    assert!(case.ends());
}

/// A drain that went on after the pause has timed out: the pause ends first, whether the user cluster answers or not.
#[test]
fn the_undo_of_a_drain_ends_our_pause_and_no_other() {
    let mut case = Case::new(Power::Hibernating, Some(Phase::DrainTimedOut));
    case.cluster.spec.pause = true;
    assert_eq!((case.plan().actions, case.says()), (vec![Action::Unpause], drain::UNDOING.to_owned()), "it is silent");
    let nodes = vec![node("a")];
    case.machinery = Some(Machinery { nodes, deployments: vec![deployment(2)], ..Machinery::default() });
    let both = [Action::Unpause, Action::Uncordon(vec!["a".into()])];
    case.cluster.metadata.deletion_timestamp = Some(Time(now()));
    assert_eq!(case.plan().actions, both, "its control plane runs");
    case.cluster.metadata.deletion_timestamp = None;
    case.unpause_refused = Some("invalid datacenter name");
    assert_eq!(case.plan().actions, both);
    assert_eq!(case.says(), "undoing the drain: KKP refuses the end of spec.pause: invalid datacenter name");
    case.machinery.as_mut().unwrap().nodes.clear();
    assert!(!case.ends() && case.plan().actions == [Action::Unpause], "although it is requested again");
    case.sleep = Some("u-1/2026-11-21T18:00:00Z");
    assert!(case.ends(), "another client's pause");
}

/// The reason alone proves nothing: it may be copied, or left of an earlier sleep, or of a Cluster that had the name
/// before. The controller may have died between the pause and the next phase.
#[test]
fn a_pause_is_ours_by_the_sleep_that_it_names() {
    let earlier = "u-1/2026-11-21T18:00:00Z";
    for (sleep, rebuilt, woken, is_ours) in [
        (Some(SLEEP), false, None, true),
        (None, false, None, false),
        (Some(""), false, None, false),
        (Some("u-1"), false, None, false),
        (Some(earlier), false, None, false),
        (Some("u-2/2026-11-21T18:00:00Z"), false, None, false),
        // The record was restored with its Cluster, and its UID corrected.
        (Some("u-2/2026-11-22T18:00:00Z"), false, None, true),
        // A record that was made again does not know when the sleep began.
        (Some(earlier), true, None, true),
        (Some("u-2/2026-11-22T18:00:00Z"), true, None, false),
        (None, true, None, false),
        // Our pause has ended: this is another.
        (Some(SLEEP), false, Some(NOW), false),
        (Some(SLEEP), true, Some(NOW), false),
    ] {
        let case = |desired, phase| {
            let mut case = Case { sleep, machinery: Some(Machinery::default()), ..Case::new(desired, Some(phase)) };
            case.cluster.spec.pause = true;
            let record = case.record.as_mut().unwrap();
            (record.rebuilt, record.woken) = (rebuilt, woken.map(str::to_owned));
            case
        };
        let what = format!("{sleep:?} {rebuilt} {woken:?}");
        if woken.is_none() {
            let pausing = case(Power::Hibernating, Phase::Pausing);
            assert_eq!(pausing.enters(), is_ours.then_some(Phase::ScalingDownControlPlane), "{what}");
            assert_eq!(pausing.says().starts_with("another client has paused the cluster"), !is_ours, "{what}");
            assert!(pausing.plan().actions.is_empty(), "{what}");
        }
        let starting = case(Power::Running, Phase::StartingControlPlane).plan();
        assert_eq!(starting.actions.contains(&Action::Unpause), is_ours, "{what}");
        // KKP leaves it alone.
        assert_eq!(starting.actions.contains(&Action::Restore(workload("scheduler"), 1)), !is_ours, "{what}");
        let awake = case(Power::Running, Phase::AwakePaused).plan();
        assert_eq!(awake.actions.contains(&Action::Unpause), is_ours, "{what}");
        assert_eq!(awake.actions.contains(&Action::Disown), !is_ours && sleep.is_some(), "{what}");
        assert_eq!(awake.warning.map(|warning| warning.reason), (!is_ours).then_some("PausedByOthers"), "{what}");
    }
}

/// F1: KKP pauses the cluster for it, and deletes etcd and its volumes.
#[test]
fn a_wake_waits_for_a_restore_of_etcd() {
    let phases = [Phase::StartingControlPlane, Phase::WaitingForApi, Phase::ScalingUpMachines, Phase::AwakePaused];
    for (phase, paused) in phases.into_iter().flat_map(|phase| [(phase, true), (phase, false)]) {
        let mut case = Case::new(Power::Running, Some(phase));
        case.cluster.spec.pause = paused;
        case.record.as_mut().unwrap().machine_deployments.clear(); // they are dropped first
        case.machinery = Some(Machinery { deployments: vec![deployment(0)], ..Machinery::default() });
        case.cluster.metadata.annotations = Some([(ACTIVE_RESTORE.to_owned(), "r".to_owned())].into());
        let plan = case.plan();
        assert!(case.says().starts_with("WaitingForRestore: "), "{phase:?}: {plan:?}");
        assert!(plan.actions.is_empty() && plan.record.is_none() && plan.requeue.is_some(), "{phase:?}: {plan:?}");
        case.cluster.metadata.annotations = None;
        assert!(!case.says().starts_with("WaitingForRestore: "));
    }
}

/// What cannot be read holds up a sleep, and no wake.
#[test]
fn a_record_of_no_use_holds_up_a_sleep_and_is_rebuilt_for_a_wake() {
    use Phase::{Dehydrated, Draining, ScalingDownControlPlane, WaitingForNodes};
    let foreign = Record::begin("u-2", now()).enter(Dehydrated, now());
    for (record, unread, reason) in [
        (Some(foreign), None, "RecordForeign"),
        (None, Some(RecordError::Unreadable), "RecordUnreadable"),
        (None, Some(RecordError::Version(2)), "RecordUnreadable"),
        (None, Some(RecordError::TooLong(512 << 10)), "RecordUnreadable"),
    ] {
        for phase in [None, Some(Draining), Some(ScalingDownControlPlane), Some(Dehydrated), Some(WaitingForNodes)] {
            let mut case = Case::new(Power::Hibernating, phase);
            (case.record, case.unread) = (record.clone(), unread);
            confirm(&mut case.cluster, phase);
            case.cluster.spec.pause |= phase.is_none(); // our pause alone
            let (begun, is_wake) = (phase.unwrap_or(Dehydrated), phase == Some(WaitingForNodes));
            for desired in [Power::Hibernating, Power::Running] {
                case.desired = desired;
                case.control_plane = vec![replicas("apiserver", 0), replicas("scheduler", 1), replicas("etcd", 0)];
                let held = case.plan();
                assert!(held.record.is_none() && held.actions.is_empty() && !held.ends, "{reason} {phase:?}");
                assert_eq!(held.report.as_ref().map(|report| report.reason.as_str()), Some(reason), "{phase:?}");
                let waits = held.report.unwrap().message.contains("etcd carries no copy of its count");
                assert_eq!(waits, is_wake || desired == Power::Running, "{reason} {phase:?}");
                case.control_plane[0].copy = Some(2);
                case.control_plane[2].copy = Some(3);
                let plan = case.plan();
                assert_eq!((plan.actions.len(), plan.ends), (0, false));
                let Some(rebuilt) = plan.record else {
                    assert!(!is_wake && desired == Power::Hibernating, "{reason} {phase:?}");
                    continue;
                };
                assert!(is_wake || desired == Power::Running, "{reason} {phase:?}");
                assert_eq!((rebuilt.uid.as_str(), rebuilt.phase, rebuilt.corrections), (UID, begun, 3));
                assert_eq!(rebuilt.control_plane.values().copied().collect::<Vec<_>>(), [2, 1, 3]);
                assert!(plan.warning.is_some_and(|warning| warning.note.contains(reason)));
            }
        }
        // Of a cluster that runs, nothing is rebuilt.
        let mut case = Case::new(Power::Running, None);
        (case.record, case.unread) = (record, unread);
        case.control_plane = vec![replicas("apiserver", 2), replicas("etcd", 3)];
        let plan = case.plan();
        assert!(plan.record.is_none() && plan.report.is_some_and(|report| report.message.contains("elete it")));
    }
}

/// What it says to do is done, step by step, in every phase that may miss its record: nothing of it is set to 0 or
/// paused again.
#[test]
fn the_advice_about_a_missing_record_works() {
    for phase in [None, Some(Phase::Pausing), Some(Phase::ScalingDownControlPlane), Some(Phase::Dehydrated)] {
        for raises_first in [true, false] {
            let mut case = Case::new(Power::Hibernating, phase);
            (case.record, case.cluster.spec.pause, case.machinery) = (None, true, Some(Machinery::default()));
            case.cluster.metadata.annotations = Some([(keys::POWER_STATE.to_owned(), "Hibernating".to_owned())].into());
            confirm(&mut case.cluster, phase);
            let held = case.plan().report.unwrap();
            assert_eq!((held.reason.as_str(), held.dehydrated), ("RecordMissing", true), "{phase:?}");
            assert!(held.message.contains("hibernate.sh/allow-unpause"), "{}", held.message);
            say(&mut case.cluster, Some(held));
            let raised = [replicas("apiserver", 2), replicas("scheduler", 1), replicas("etcd", 3)];
            let mut entered = Vec::new();
            for step in 0..12 {
                match step {
                    0 => case.control_plane[2] = raised[2].clone(),
                    1 if raises_first => case.control_plane = raised.to_vec(),
                    6 => (case.control_plane, case.cluster.spec.pause) = (raised.to_vec(), false),
                    _ => {}
                }
                if !raises_first && step == 0 {
                    // The pause ends before the controller has looked again.
                    (case.control_plane, case.cluster.spec.pause) = (raised.to_vec(), false);
                }
                let plan = case.plan();
                let stops =
                    |action: &Action| matches!(action, Action::ScaleDown(..) | Action::Pause | Action::Suspend(_));
                assert!(!plan.actions.iter().any(stops), "{phase:?} {step}: {plan:#?}");
                if let Some(record) = plan.record {
                    entered.push(record.phase);
                    case.record = Some(Record::read(&record.text()).unwrap());
                }
                if plan.ends {
                    case.record = None;
                }
                if plan.clears_intent {
                    case.desired = Power::Running;
                }
                say(&mut case.cluster, plan.report);
            }
            assert!(entered.contains(&Phase::WaitingForNodes), "{phase:?}: {entered:?}");
            assert!(!case.cluster.spec.pause && case.control_plane == raised, "{phase:?}");
        }
    }
}

/// The record is restored in place of that: the cluster sleeps on, and nothing that was raised meanwhile is set to 0.
#[test]
fn a_missing_record_that_is_restored_is_gone_on_from() {
    let mut case = Case::new(Power::Hibernating, Some(Phase::Dehydrated));
    let record = case.record.take();
    let held = case.plan().report;
    say(&mut case.cluster, held);
    (case.record, case.control_plane[1]) = (record, replicas("scheduler", 1));
    let adopted = case.plan().record.unwrap();
    assert_eq!((adopted.phase, adopted.corrections, adopted.control_plane.len()), (Phase::Dehydrated, 3, 3));
}

/// Row 8: also in a wake that has come further.
#[test]
fn what_is_left_of_a_pause_that_another_client_has_ended_goes() {
    let up = vec![replicas("apiserver", 2), replicas("scheduler", 1), replicas("etcd", 3)];
    for (phase, actions) in [
        (Phase::StartingControlPlane, vec![Action::Unpause]),
        (Phase::WaitingForNodes, vec![Action::TouchBackups, Action::Unpause]),
    ] {
        let mut case = Case { left: true, control_plane: up.clone(), ..Case::new(Power::Running, Some(phase)) };
        (case.cluster.spec.pause, case.machinery) = (false, Some(Machinery::default()));
        assert_eq!(case.plan().actions, actions, "{phase}");
        // Or nothing is left but the date, or the name of the sleep.
        case.left = false;
        for (key, value) in [(keys::CERTIFICATES_EXPIRE_AT, NOW), (keys::PAUSED_BY_SLEEP, SLEEP)] {
            case.cluster.metadata.annotations = Some([(key.to_owned(), value.to_owned())].into());
            assert_eq!(case.plan().actions, actions, "{phase} {key}");
        }
        case.cluster.metadata.annotations = None;
        assert!(!case.plan().actions.contains(&Action::Unpause), "{phase}");
        (case.cluster.spec.pause, case.cluster.spec.pause_reason) = (true, Some("maintenance".into()));
        assert!(!case.plan().actions.contains(&Action::Unpause), "{phase}: another client's pause");
    }
}

/// Row 18: the counts are those of the backup.
#[test]
fn during_an_etcd_restore_the_recorded_counts_are_dropped() {
    let mut case = Case::new(Power::Running, Some(Phase::ScalingUpMachines));
    case.machinery = Some(Machinery { deployments: vec![deployment(0)], ..Machinery::default() });
    assert_eq!(case.plan().actions, [raised("kube-system/a", 2)]);
    for (phase, drops) in [
        (Phase::Draining, false),
        (Phase::Dehydrated, true),
        (Phase::StartingControlPlane, true),
        (Phase::ScalingUpMachines, true),
    ] {
        let mut case = Case::new(Power::Running, Some(phase));
        case.cluster.metadata.annotations = Some([(ACTIVE_RESTORE.to_owned(), "r".to_owned())].into());
        let plan = case.plan();
        let emptied = plan.record.is_some_and(|record| record.machine_deployments.is_empty() && record.phase == phase);
        assert_eq!(emptied, drops, "{phase}");
    }
}

/// K13 let the DELETE pass, or the webhook was not asked.
#[test]
fn a_cluster_that_is_deleted_with_certificates_that_end_soon_is_warned_of_once() {
    let mut case = Case::new(Power::Hibernating, Some(Phase::Dehydrated));
    case.cluster.metadata.deletion_timestamp = Some(Time(now()));
    for (expiry, warns) in [
        ("2026-11-23T18:00:00Z", true),
        ("2026-11-21T18:00:00Z", true),
        ("2026-11-23T18:00:01Z", false),
        ("soon", false),
    ] {
        case.cluster.metadata.annotations = Some([(keys::CERTIFICATES_EXPIRE_AT.to_owned(), expiry.to_owned())].into());
        let plan = case.plan();
        assert_eq!(plan.record.map(|record| record.phase), Some(Phase::StartingControlPlane));
        assert_eq!(plan.warning.is_some(), warns, "{expiry}");
        assert!(plan.warning.is_none_or(|warning| warning.note.contains(expiry)), "{expiry}");
    }
    (case.cluster.metadata.deletion_timestamp, case.desired) = (None, Power::Running);
    assert_eq!((case.enters(), case.plan().warning), (Some(Phase::StartingControlPlane), None), "a wake renews them");
}

/// Rows 19 to 22: KKP deletes nothing of a cluster whose API server is down, and volumes need a Node to go.
#[test]
fn a_cluster_that_is_deleted_is_brought_up_while_it_is_paused() {
    let deleted = |phase| {
        let mut case = Case::new(Power::Hibernating, Some(phase));
        case.cluster.metadata.deletion_timestamp = Some(Time(now()));
        case.machinery = Some(Machinery { deployments: vec![deployment(0)], ..Machinery::default() });
        case
    };
    assert_eq!(deleted(Phase::Dehydrated).enters(), Some(Phase::StartingControlPlane));
    let mut case = deleted(Phase::StartingControlPlane);
    let all =
        [("etcd", 3), ("apiserver", 2), ("scheduler", 1)].map(|(name, count)| Action::Restore(workload(name), count));
    assert_eq!(case.plan().actions, all);
    case.control_plane = vec![replicas("apiserver", 2), replicas("scheduler", 1), replicas("etcd", 3)];
    assert_eq!(case.enters(), Some(Phase::WaitingForApi));

    let mut case = deleted(Phase::ScalingUpMachines);
    assert_eq!(case.enters(), Some(Phase::WaitingForNodes), "without volumes no Node is needed");
    case.record.as_mut().unwrap().numbers.volumes = 3;
    assert_eq!(case.plan().actions, [raised("kube-system/a", 1)]);

    let mut case = deleted(Phase::WaitingForNodes);
    case.cluster.spec.pause = true;
    case.machinery.as_mut().unwrap().deployments = vec![deployment(1)];
    assert_eq!(case.enters(), None);
    case.later = Duration::from_secs(1201);
    assert_eq!(case.enters(), Some(Phase::AwakePaused), "KKP then cleans up as far as it can");
    case.later = Duration::ZERO;
    case.machinery.as_mut().unwrap().nodes = vec![node("a")];
    assert_eq!(case.enters(), Some(Phase::AwakePaused));
    case.enter(Phase::AwakePaused);
    assert_eq!(case.plan().actions, [Action::Unpause]);
    (case.cluster.spec.pause, case.machinery) = (false, None);
    assert!(case.ends());
    case.record = None;
    assert_eq!(case.plan(), Plan::default());
}

/// Row 27: a request on the record overrules the Cluster's, which must not put the cluster to sleep again.
#[test]
fn the_end_of_a_wake_replaces_a_request_that_a_newer_one_has_overruled() {
    let annotated = |state: &str| Some([(keys::POWER_STATE.to_owned(), state.to_owned())].into());
    for (state, clears) in [("Hibernating", true), ("Running", false)] {
        let mut case = Case::new(Power::Running, Some(Phase::AwakePaused));
        (case.cluster.metadata.annotations, case.machinery) = (annotated(state), Some(Machinery::default()));
        let plan = case.plan();
        assert_eq!((is_over(&plan), plan.clears_intent), (true, clears), "{state}");
    }
}
