//! Single situations on the way to sleep, and asleep, with the rows of docs/reference/kkp.md that they come from.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::*;
use super::case::{Case, NOW, deployment, node, replicas};
use super::control_plane::Replicas;
use super::world::{confirm, say, workload};
use crate::finding::{Finding, Severity};
use crate::kkp::api::{Encryption, ResourceUsage};
use crate::kkp::keys::{self, ACTIVE_RESTORE};
use crate::kkp::record::Machines;
use crate::power::Power;

#[test]
fn a_refused_preflight_changes_nothing_and_says_why() {
    let mut case = Case::new(Power::Hibernating, None);
    case.machinery = Some(Machinery::default());
    case.findings = vec![Finding::new(Severity::Forceable, "BarePods", "Pods without a controller: a/b")];
    assert_eq!(case.says(), "refused: Pods without a controller: a/b; --force accepts this");
    case.findings.insert(0, Finding::new(Severity::Block, "Paused", "paused by another client"));
    assert!(case.says().starts_with("refused: paused by another client") && !case.says().contains("--force"));
    let plan = case.plan();
    assert!(plan.record.is_none() && plan.actions.is_empty());
    case.findings = vec![Finding::new(Severity::Warn, "Volumes", "3 volumes stay")];
    assert_eq!(case.enters(), Some(Phase::Draining));
}

/// Row 5: etcd waits until no reconcile in flight raises anything again.
#[test]
fn etcd_goes_last_and_only_after_a_quiet_time() {
    let mut case = Case::new(Power::Hibernating, Some(Phase::ScalingDownControlPlane));
    case.control_plane = vec![replicas("apiserver", 2), replicas("scheduler", 1), replicas("etcd", 3)];
    assert_eq!(case.plan().actions, [Action::ScaleDown(workload("scheduler"), 1)]);
    case.control_plane[1] = replicas("scheduler", 0);
    assert_eq!(case.plan().actions, [Action::ScaleDown(workload("apiserver"), 2)]);
    case.control_plane[0] = replicas("apiserver", 0);
    // From when that is so is on the record: the next controller counts on.
    case.record = case.plan().record;
    assert_eq!(case.record.as_ref().and_then(|record| record.quiet_since.as_deref()), Some(NOW));
    case.later = Duration::from_secs(14);
    assert_eq!((case.plan().actions, case.enters()), (vec![], None));
    case.later = Duration::from_secs(15);
    assert_eq!(case.plan().actions, [Action::ScaleDown(workload("etcd"), 3)]);
    case.control_plane[2] = replicas("etcd", 0);
    assert_eq!(case.enters(), Some(Phase::Dehydrated));
}

/// Row 58: a Machine whose terminate call was not made keeps its instance.
#[test]
fn a_cluster_with_a_machine_is_never_paused() {
    let mut case = Case::new(Power::Hibernating, Some(Phase::Pausing));
    assert_eq!(case.plan().actions, [], "the user cluster is silent");
    case.machinery = Some(Machinery { machines: vec!["m".into()], ..Machinery::default() });
    assert_eq!((case.plan().actions, case.enters()), (vec![], Some(Phase::ScalingDownMachines)));
    case.machinery = Some(Machinery::default());
    assert_eq!(case.plan().actions, [Action::Pause]);
    case.cluster.spec.pause = true;
    assert_eq!(case.enters(), Some(Phase::ScalingDownControlPlane));
    case.machinery = Some(Machinery { machines: vec!["m".into()], ..Machinery::default() });
    let back = case.plan().record.unwrap();
    assert_eq!(back.phase, Phase::ScalingDownMachines, "created around the pause");
}

fn encrypts(case: &mut Case) {
    let phase = Some("EncryptionNeeded".to_owned());
    case.cluster.status.as_mut().unwrap().encryption = Some(Encryption { phase });
}

/// Row 65: a reconcile in flight has begun with it around the pause. Without the API server its Job fails for good.
#[test]
fn encryption_that_begins_around_the_pause_goes_on_in_a_wake() {
    let mut case = Case::new(Power::Hibernating, Some(Phase::ScalingDownControlPlane));
    case.control_plane = vec![replicas("apiserver", 2), replicas("scheduler", 0), replicas("etcd", 3)];
    case.machinery = Some(Machinery::default());
    assert_eq!(case.plan().actions, [Action::ScaleDown(workload("apiserver"), 2)]);
    encrypts(&mut case);
    assert_eq!(case.enters(), Some(Phase::StartingControlPlane));
}

/// The preflight is old when the pause is written.
#[test]
fn what_changed_since_the_preflight_is_checked_before_the_pause() {
    for (change, says) in [
        (0, "another client has paused the cluster"),
        (1, "an EtcdRestore is under way"),
        (2, "KKP applies changes"),
        (3, "KKP applies changes"),
        (4, "StatefulSets etcd: "),
        (5, "status.encryption.phase: found \"EncryptionNeeded\", must be \"Active\": "),
    ] {
        let mut case = Case::new(Power::Hibernating, Some(Phase::Pausing));
        case.machinery = Some(Machinery::default());
        match change {
            0 => (case.cluster.spec.pause, case.cluster.spec.pause_reason) = (true, Some("maintenance".into())),
            1 => case.cluster.metadata.annotations = Some([(ACTIVE_RESTORE.to_owned(), "r".to_owned())].into()),
            2 => case.cluster.status.as_mut().unwrap().phase = Some("Updating".into()),
            5 => encrypts(&mut case),
            4 => case.control_plane[2] = Replicas { deletes_volumes: true, ..replicas("etcd", 3) },
            _ => {
                case.cluster.status.as_mut().unwrap().conditions.remove("SeedResourcesUpToDate");
            }
        }
        assert!(case.says().starts_with(says) && case.enters().is_none() && case.plan().actions.is_empty(), "{says}");
    }
}

#[test]
fn nothing_is_stopped_whose_volumes_would_be_deleted() {
    let mut case = Case::new(Power::Hibernating, Some(Phase::ScalingDownControlPlane));
    case.machinery = Some(Machinery::default());
    case.record.as_mut().unwrap().quiet_since = Some("2026-11-22T17:00:00Z".to_owned());
    case.control_plane[2] = Replicas { deletes_volumes: true, ..replicas("etcd", 3) };
    assert!(case.says().starts_with("StatefulSets etcd: ") && case.plan().actions.is_empty());
    case.control_plane[2].deletes_volumes = false;
    assert_eq!(case.plan().actions, [Action::ScaleDown(workload("etcd"), 3)]);
}

/// Row 58.
#[test]
fn a_machine_that_appears_after_the_pause_wakes_the_cluster_before_its_api_goes() {
    let mut case = Case::new(Power::Hibernating, Some(Phase::ScalingDownControlPlane));
    let ending = Replicas { running: true, ..replicas("machine-controller", 0) };
    case.control_plane = vec![replicas("apiserver", 2), ending, replicas("etcd", 3)];
    case.record.as_mut().unwrap().note(workload("machine-controller"), 1);
    assert_eq!((case.says().as_str(), case.plan().actions.len()), ("waiting for machine-controller to end", 0));
    case.control_plane[1].running = false;
    assert_eq!(case.plan().actions, [Action::ScaleDown(workload("apiserver"), 2)]);
    case.machinery = Some(Machinery { machines: vec!["m".into()], ..Machinery::default() });
    assert_eq!(case.enters(), Some(Phase::StartingControlPlane));
}

/// A copy that is left of an earlier sleep loses no count.
#[test]
fn a_stale_copy_below_the_count_is_not_what_comes_back() {
    let mut case = Case::new(Power::Hibernating, Some(Phase::ScalingDownControlPlane));
    let grown = |name, count, copy| Replicas { copy: Some(copy), ..replicas(name, count) };
    case.control_plane = vec![grown("apiserver", 4, 1), grown("scheduler", 1, 2), grown("etcd", 5, 3)];
    let noted = case.plan().record.unwrap();
    assert_eq!(noted.control_plane.values().copied().collect::<Vec<_>>(), [4, 2, 5]);
    case.record = Some(noted);
    assert_eq!(case.plan().actions, [Action::ScaleDown(workload("scheduler"), 2)]);
    case.control_plane[1] = replicas("scheduler", 0);
    assert_eq!(case.plan().actions, [Action::ScaleDown(workload("apiserver"), 4)]);
    case.control_plane[0] = replicas("apiserver", 0);
    case.record.as_mut().unwrap().quiet_since = Some("2026-11-22T17:00:00Z".to_owned());
    assert_eq!(case.plan().actions, [Action::ScaleDown(workload("etcd"), 5)]);
    // Without a record: the same.
    case.control_plane = vec![grown("apiserver", 4, 1), grown("etcd", 5, 3)];
    case.record = None;
    assert_eq!(case.plan().record.unwrap().control_plane.values().copied().collect::<Vec<_>>(), [4, 5]);
}

/// A `MachineDeployment` that is added or raised once the others are drained.
#[test]
fn what_runs_on_nodes_that_come_after_the_drain_has_its_grace_period_too() {
    let mut case = Case::new(Power::Hibernating, Some(Phase::ScalingDownMachines));
    let drained = Node { leaves: true, ..node("a-1") };
    let late = Node { cordoned: false, skips_eviction: false, ours: false, ..node("b-1") };
    let pod = Pod { name: "shop/web".into(), ..Pod::default() };
    let added = MachineDeployment { name: "kube-system/b".into(), copy: None, ..deployment(1) };
    let machinery = Machinery {
        machines: vec!["a-1".into(), "b-1".into()],
        deployments: vec![deployment(0), added.clone()],
        nodes: vec![drained.clone(), late.clone()],
        pods: vec![pod.clone()],
        ..Machinery::default()
    };
    case.machinery = Some(machinery.clone());
    case.record = case.plan().record; // it is recorded first
    assert_eq!(case.enters(), Some(Phase::Draining));
    case.enter(Phase::Draining);
    let actions = [Action::Cordon(vec!["b-1".into()]), Action::DeletePods(vec!["shop/web".into()])];
    assert_eq!(case.plan().actions, actions);
    let cordoned = node("b-1");
    case.machinery = Some(Machinery { nodes: vec![drained, cordoned], pods: vec![], ..machinery });
    assert_eq!(case.enters(), Some(Phase::ScalingDownMachines));
    case.enter(Phase::ScalingDownMachines);
    let down = |name: &str| Action::ScaleDownMachines(name.into(), Machines { replicas: 1, ..Machines::default() });
    assert_eq!(case.plan().actions, [down("kube-system/b")]);
    // What an operator has placed on cordoned Nodes since the sleep began is waited for in no phase.
    let returned = Some("2026-11-22T18:00:01Z".parse().unwrap());
    case.machinery.as_mut().unwrap().pods = vec![Pod { returned, ..pod }];
    case.record.as_mut().unwrap().entered = "2026-11-22T18:05:00Z".into();
    assert_eq!(case.enters(), None);
}

/// Rows 54 to 57.
#[test]
fn nodes_that_join_late_are_cordoned_and_orphans_deleted_once_they_are_stale() {
    let mut case = Case::new(Power::Hibernating, Some(Phase::ScalingDownMachines));
    let late = Node { cordoned: true, skips_eviction: false, ..node("late") };
    case.machinery = Some(Machinery {
        machines: vec!["m".into()],
        nodes: vec![node("a"), late],
        deployments: vec![deployment(0)],
        ..Machinery::default()
    });
    assert_eq!(case.plan().actions, [Action::Cordon(vec!["late".into()])]);
    let orphan = Node { has_machine: false, ready: false, ..node("orphan") };
    case.machinery =
        Some(Machinery { nodes: vec![orphan.clone()], deployments: vec![deployment(0)], ..Machinery::default() });
    assert_eq!((case.plan().actions, case.says()), (vec![], "waiting for Nodes to go: orphan".to_owned()));
    case.machinery.as_mut().unwrap().nodes = vec![Node { stale: true, ..orphan }];
    assert_eq!(case.plan().actions, [Action::DeleteNode("orphan".into())]);
}

/// Row 60: the CSI controllers of kube-system detach what the workloads used.
#[test]
fn kube_system_is_drained_once_nothing_is_attached() {
    let mut case = Case::new(Power::Hibernating, Some(Phase::Draining));
    let pod = |name: &str, stage| Pod { name: name.into(), stage, ..Pod::default() };
    let (db, web, csi) =
        (pod("a/db", Stage::WithVolumes), pod("a/web", Stage::Others), pod("kube-system/csi", Stage::System));
    let machinery =
        Machinery { attachments: vec!["csi-1".into()], deployments: vec![deployment(2)], ..Machinery::default() };
    for (pods, later, actions) in [
        (vec![csi.clone(), web.clone(), db], 0, vec![Action::DeletePods(vec!["a/db".into()])]),
        (vec![csi.clone(), Pod { terminating: true, ..web.clone() }], 0, vec![]),
        (vec![csi.clone(), web], 0, vec![Action::DeletePods(vec!["a/web".into()])]),
        (vec![csi.clone()], 0, vec![]),
        (vec![csi], 301, vec![Action::DeletePods(vec!["kube-system/csi".into()])]),
    ] {
        (case.machinery, case.later) = (Some(Machinery { pods, ..machinery.clone() }), Duration::from_secs(later));
        assert_eq!(case.plan().actions, actions, "{:?}", case.machinery);
    }
    case.later = Duration::from_secs(601);
    assert_eq!(case.enters(), Some(Phase::DrainTimedOut));
}

#[test]
fn a_drain_that_timed_out_is_undone_and_begins_again_when_it_is_requested_again() {
    let mut case = Case::new(Power::Hibernating, Some(Phase::DrainTimedOut));
    case.machinery =
        Some(Machinery { nodes: vec![node("a")], deployments: vec![deployment(2)], ..Machinery::default() });
    case.record.as_mut().unwrap().entered = "2026-11-22T18:00:01Z".into();
    assert_eq!(case.plan().actions, [Action::Uncordon(vec!["a".into()])]);
    assert_eq!(case.says(), drain::UNDOING);
    case.machinery.as_mut().unwrap().nodes.clear();
    // Everything is undone: what users change from here on is theirs.
    let undone = case.plan().record.unwrap();
    assert!(undone.machine_deployments.is_empty());
    case.record = Some(undone);
    assert!(!case.ends() && case.says().starts_with("Pods did not end in time"));
    for entered in ["2026-11-22T17:00:00Z", NOW] {
        case.record.as_mut().unwrap().entered = entered.into();
        assert!(case.ends(), "the request is newer than {entered}");
    }
    case.desired = Power::Running;
    assert!(case.ends());
}

/// Not those that nobody has touched yet, and with the reason.
#[test]
fn a_drain_that_timed_out_names_what_it_waited_for_and_the_last_error() {
    let last = "waiting for Pods to end: shop/db-0; retried after an error: write Pod shop/db-0: denied";
    let mut case = Case::new(Power::Hibernating, Some(Phase::Draining));
    let untouched = Pod { name: "kube-system/csi".into(), stage: Stage::System, ..Pod::default() };
    let deployments = vec![deployment(2)];
    case.machinery = Some(Machinery { pods: vec![untouched], deployments, ..Machinery::default() });
    say(&mut case.cluster, Some(Report::of(Phase::Draining, last)));
    case.later = Duration::from_secs(601);
    let plan = case.plan();
    assert_eq!(plan.report, Some(Report::of(Phase::DrainTimedOut, drain::UNDOING).with(Outcome::Pending)));
    case.record = plan.record.map(|record| Record { machine_deployments: BTreeMap::new(), ..record });
    confirm(&mut case.cluster, Some(Phase::DrainTimedOut));
    assert!(case.says().ends_with(&format!("retry. Last seen: {last}")), "{}", case.says());
}

#[test]
fn a_copy_is_older_than_what_others_have_written_since() {
    let annotations = |value: &str| [("max".to_owned(), value.to_owned())].into();
    let both = MachineDeployment { autoscaler: annotations("9"), autoscaler_copy: annotations("5"), ..deployment(3) };
    assert_eq!((both.before().replicas, both.before().autoscaler), (3, annotations("9")));
    let copy = MachineDeployment { autoscaler_copy: annotations("5"), ..deployment(0) };
    assert_eq!((copy.before().replicas, copy.before().autoscaler), (2, annotations("5")));
}

/// Operators of the network tolerate every taint: their controllers place them on cordoned Nodes again.
#[test]
fn a_drain_ends_although_pods_return_to_cordoned_nodes_or_have_no_kubelet() {
    let mut case = Case::new(Power::Hibernating, Some(Phase::Draining));
    let pod = |returned: Option<&str>, is_lost, terminating| Pod {
        name: "kube-system/operator".into(),
        returned: returned.map(|at| at.parse().unwrap()),
        is_lost,
        terminating,
        ..Pod::default()
    };
    for (pod, awaited) in [
        (pod(None, false, false), true),
        (pod(Some("2026-11-22T17:59:59Z"), false, false), true),
        (pod(Some("2026-11-22T18:00:01Z"), false, false), false),
        (pod(None, true, false), true),
        (pod(None, true, true), false),
    ] {
        let deployments = vec![deployment(2)];
        case.machinery = Some(Machinery { pods: vec![pod.clone()], deployments, ..Machinery::default() });
        assert_eq!(case.enters().is_none(), awaited, "{pod:?}");
    }
}

/// A paused cluster keeps the quota that it used last, and Pods of Nodes that are gone would be found by the wake.
#[test]
fn the_pause_waits_for_the_quota_and_for_lost_pods() {
    let mut case = Case::new(Power::Hibernating, Some(Phase::MachinesScaledDown));
    let usage = |cpu: &str| Some(ResourceUsage { cpu: Some(cpu.to_owned()), ..ResourceUsage::default() });
    for (cpu, enters) in [("8", None), ("500m", None), ("0", Some(Phase::Pausing)), ("0m", Some(Phase::Pausing))] {
        case.cluster.status.as_mut().unwrap().resource_usage = usage(cpu);
        assert_eq!(case.enters(), enters, "{cpu}");
    }
    let lost_pods = vec![LostPod { name: "kube-system/cni".into(), uid: "1".into() }];
    case.machinery = Some(Machinery { lost_pods: lost_pods.clone(), ..Machinery::default() });
    assert_eq!((case.enters(), case.plan().actions), (None, vec![Action::DeleteLostPods(lost_pods.clone())]));
    case.machinery = Some(Machinery { lost_pods, nodes: vec![node("late")], ..Machinery::default() });
    assert_eq!((case.enters(), case.plan().actions), (None, vec![]), "its kubelet may run it");
    case.later = Duration::from_secs(61);
    assert_eq!(case.enters(), Some(Phase::Pausing));
}

/// Row 15: KKP renews certificates only while the cluster is not paused.
#[test]
fn certificates_that_expire_within_two_weeks_are_a_warning() {
    let mut case = Case::new(Power::Hibernating, Some(Phase::Dehydrated));
    for (expiry, warns) in [("2026-12-06T17:00:00Z", true), ("2026-12-06T19:00:00Z", false), ("soon", false)] {
        case.cluster.metadata.annotations = Some([(keys::CERTIFICATES_EXPIRE_AT.to_owned(), expiry.to_owned())].into());
        assert_eq!(case.says().contains("; the control plane's certificates expire at"), warns, "{expiry}");
        assert_eq!(case.plan().warning.is_some(), warns);
    }
}

#[test]
fn what_takes_too_long_names_its_blocker_and_waits_longer() {
    let mut case = Case::new(Power::Hibernating, Some(Phase::ScalingDownMachines));
    case.machinery =
        Some(Machinery { machines: vec!["m-1".into()], deployments: vec![deployment(0)], ..Machinery::default() });
    assert_eq!(case.says(), "waiting for Machines to go: m-1");
    case.later = Duration::from_secs(1801);
    assert_eq!(case.says(), "for more than 30m0s: waiting for Machines to go: m-1");
    assert_eq!(case.plan().requeue, Some(Duration::from_secs(30)));
}

#[test]
fn raised_replicas_are_corrected_three_times_and_then_left_alone() {
    let mut case = Case::new(Power::Hibernating, Some(Phase::Dehydrated));
    assert!(case.says().starts_with("asleep since 2026-11-22T18:00:00Z"), "{}", case.says());
    case.control_plane[1] = replicas("scheduler", 1);
    for corrections in 0..3 {
        case.record.as_mut().unwrap().corrections = corrections;
        assert_eq!(case.enters(), Some(Phase::ScalingDownControlPlane));
        assert_eq!(case.plan().record.unwrap().corrections, corrections + 1);
    }
    // The Cluster has changed meanwhile, so that the condition was not written: the same correction goes on.
    for corrections in [1, 3] {
        let record = case.record.as_mut().unwrap();
        (record.phase, record.corrections, record.correcting) = (Phase::ScalingDownControlPlane, corrections, true);
        let plan = case.plan();
        assert!(plan.record.as_ref().is_some_and(|record| record.corrections == corrections), "{plan:?}");
        let mut case = Case {
            record: plan.record,
            control_plane: case.control_plane.clone(),
            ..Case::new(Power::Hibernating, None)
        };
        confirm(&mut case.cluster, Some(Phase::ScalingDownControlPlane));
        case.cluster.spec.pause = true;
        let plan = case.plan();
        assert!(plan.record.is_none_or(|record| record.corrections == corrections));
        assert!(matches!(plan.actions[..], [Action::ScaleDown(..)]), "{:?}", plan.actions);
        case.control_plane[1] = replicas("scheduler", 0);
        let ended = case.plan().record.unwrap();
        assert!(ended.phase == Phase::Dehydrated && !ended.correcting, "{ended:?}");
    }
    let record = case.record.as_mut().unwrap();
    (record.phase, record.corrections, record.correcting) = (Phase::Dehydrated, 3, false);
    assert!(case.plan().record.is_none() && case.says().contains("keeps raising replicas of scheduler"));
}

/// Row 10: each waking cluster counts as an update under way.
#[test]
fn what_finds_no_slot_stays_as_it_is_and_what_has_begun_goes_on() {
    let mut case = Case { may_begin: false, ..Case::new(Power::Hibernating, None) };
    case.machinery = Some(Machinery::default());
    assert!(case.enters().is_none() && case.says().starts_with("waiting for a free slot"), "{}", case.says());
    let case = Case { may_begin: false, ..Case::new(Power::Running, Some(Phase::Dehydrated)) };
    let plan = case.plan();
    assert!(plan.record.is_none() && plan.actions.is_empty() && plan.report.is_some_and(|report| report.dehydrated));
    // A drain is undone at once: nothing of the seed is needed for that.
    let case = Case { may_begin: false, ..Case::new(Power::Running, Some(Phase::Draining)) };
    assert_eq!(case.enters(), Some(Phase::WaitingForMachineController));
    let mut case = Case { may_begin: false, ..Case::new(Power::Hibernating, Some(Phase::Dehydrated)) };
    case.cluster.spec.pause = false;
    assert_eq!(case.enters(), Some(Phase::StartingControlPlane), "KKP brings up everything but etcd (row 8)");
}
