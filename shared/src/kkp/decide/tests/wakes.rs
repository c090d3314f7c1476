//! Single situations of a wake, with the rows of docs/reference/kkp.md that they come from.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::*;
use super::case::{Case, deployment, node, replicas};
use super::control_plane::Replicas;
use super::world::{confirm, workload};
use crate::kkp::api::Condition;
use crate::kkp::keys;
use crate::power::Power;

/// Rows 8 and 9: never the end of the pause alone, and etcd first.
#[test]
fn etcd_rises_and_the_pause_ends_back_to_back() {
    let mut case = Case::new(Power::Running, Some(Phase::StartingControlPlane));
    assert_eq!(case.plan().actions, [Action::Restore(workload("etcd"), 3), Action::Unpause]);
    case.control_plane[2] = Replicas { ready: 1, ..replicas("etcd", 3) };
    case.cluster.spec.pause = false;
    assert_eq!((case.plan().actions, case.enters()), (vec![], None));
    case.control_plane[2].ready = 3;
    assert_eq!(case.enters(), Some(Phase::WaitingForApi));
}

/// A Deployment of others in the namespace, and one that does not become ready.
#[test]
fn a_wake_restores_what_kkp_does_not_and_in_the_end_waits_for_what_it_needs() {
    let mut case = Case::new(Power::Running, Some(Phase::WaitingForApi));
    let broken = Replicas { ready: 0, copy: Some(1), ..replicas("prometheus", 1) };
    let exporter = Replicas { copy: Some(1), ..replicas("exporter", 0) };
    case.control_plane = vec![replicas("apiserver", 2), exporter, broken, replicas("etcd", 3)];
    case.machinery = Some(Machinery::default());
    assert_eq!((case.says().as_str(), case.plan().actions.len()), ("waiting for exporter, prometheus", 0));
    case.later = Duration::from_secs(31);
    assert_eq!(case.plan().actions, [Action::Restore(workload("exporter"), 1)]);
    case.later = Duration::from_secs(601);
    assert_eq!(case.enters(), Some(Phase::WaitingForMachineController));
    case.control_plane[0].ready = 0;
    assert_eq!(case.says(), "for more than 10m0s: waiting for apiserver");
}

/// Row 64: the seed has no room for the third member of etcd, or for the second Pod of the API server.
#[test]
fn a_control_plane_that_serves_without_all_of_its_pods_wakes_the_cluster_and_is_named() {
    let mut case = Case::new(Power::Running, Some(Phase::StartingControlPlane));
    let etcd = |ready| Replicas { ready, ..replicas("etcd", 3) };
    let up =
        |ready, of_etcd| vec![Replicas { ready, ..replicas("apiserver", 2) }, replicas("scheduler", 1), etcd(of_etcd)];
    let late = Duration::from_secs(301);
    for (ready, later, enters) in [
        (3, Duration::ZERO, Some(Phase::WaitingForApi)),
        (2, Duration::ZERO, None),
        (2, late, Some(Phase::WaitingForApi)),
        (1, late, None),
    ] {
        (case.control_plane, case.cluster.spec.pause, case.later) = (up(0, ready), false, later);
        assert_eq!(case.enters(), enters, "{ready} after {later:?}");
    }

    let mut case = Case::new(Power::Running, Some(Phase::WaitingForApi));
    (case.cluster.spec.pause, case.machinery) = (false, Some(Machinery::default()));
    let late = Duration::from_secs(601);
    for (ready, of_etcd, later, enters) in [
        // All of etcd was waited for before.
        (2, 2, Duration::ZERO, Some(Phase::WaitingForMachineController)),
        (1, 2, Duration::ZERO, None),
        (1, 2, late, Some(Phase::WaitingForMachineController)),
        (0, 2, late, None),
        (2, 1, late, None),
    ] {
        (case.control_plane, case.later) = (up(ready, of_etcd), later);
        assert_eq!(case.enters(), enters, "{ready}, {of_etcd} of etcd after {later:?}");
    }

    let mut case = Case::new(Power::Running, Some(Phase::WaitingForNodes));
    let machinery = Machinery { deployments: vec![deployment(2)], ..Machinery::default() };
    (case.control_plane, case.machinery) = (up(1, 2), Some(machinery));
    let lacks = "apiserver (1 of 2), etcd (2 of 3)";
    assert_eq!(case.says(), format!("0 of 2 Nodes are ready; ready of the control plane: {lacks}"));
    case.machinery = Some(Machinery::default());
    assert!(case.ends());
    assert_eq!(case.plan().lacks.as_deref(), Some(lacks));
}

/// Until it is ready, or the next sleep.
#[test]
fn what_a_wake_has_left_unready_is_looked_at_until_it_is_ready() {
    let mut case = Case::new(Power::Running, None);
    confirm(&mut case.cluster, None);
    case.control_plane = vec![replicas("apiserver", 2), Replicas { ready: 2, ..replicas("etcd", 3) }];
    assert_eq!(case.plan(), Plan::default(), "of no wake");
    let message = Some("etcd (2 of 3)".to_owned());
    let awake = Condition { status: "True".into(), message, ..Condition::default() };
    case.cluster.status.as_mut().unwrap().conditions.insert(keys::AWAKE.to_owned(), awake);
    let plan = case.plan();
    assert_eq!((plan.lacks.as_deref(), plan.requeue), (Some("etcd (2 of 3)"), Some(Duration::from_mins(1))));
    // A sleep that is refused may be withdrawn.
    (case.desired, case.may_begin) = (Power::Hibernating, false);
    assert_eq!(case.plan().lacks.as_deref(), Some("etcd (2 of 3)"));
    (case.may_begin, case.machinery) = (true, Some(Machinery::default()));
    confirm(&mut case.cluster, Some(Phase::Preflight));
    let begins = case.plan();
    assert!(begins.record.is_some() && begins.lacks.is_none(), "{begins:?}");
    confirm(&mut case.cluster, None);
    (case.desired, case.machinery) = (Power::Running, None);
    case.control_plane[1].ready = 3;
    let plan = case.plan();
    assert_eq!((plan.lacks.as_deref(), plan.requeue), (Some(""), None));
    case.control_plane.clear(); // not read
    assert_eq!(case.plan().lacks, None);
}

#[test]
fn a_wake_that_lacks_nodes_opens_those_it_has_and_lets_the_cluster_sleep_again() {
    let mut case = Case::new(Power::Running, Some(Phase::WaitingForNodes));
    let nodes = vec![node("a")];
    case.machinery = Some(Machinery { deployments: vec![deployment(2)], nodes, ..Machinery::default() });
    assert_eq!(case.plan().actions, [Action::Uncordon(vec!["a".into()])]);
    case.desired = Power::Hibernating;
    assert!(case.ends());
}

/// A wake during `ScalingDownMachines`: the Nodes of Machines that terminate are none of the new ones.
#[test]
fn nodes_that_leave_are_neither_counted_nor_opened_again() {
    let mut case = Case::new(Power::Running, Some(Phase::WaitingForNodes));
    let leaving = Node { leaves: true, ..node("old") };
    let nodes = vec![leaving.clone(), node("new-1")];
    case.machinery = Some(Machinery { deployments: vec![deployment(2)], nodes, ..Machinery::default() });
    assert_eq!(case.says(), "1 of 2 Nodes are ready");
    let new = |name| Node { ours: false, ..node(name) };
    case.machinery.as_mut().unwrap().nodes = vec![leaving, new("new-1"), new("new-2")];
    assert_eq!(case.plan().actions, [Action::TouchBackups]);
}

/// Row 53: a change of annotations voids the token of Machines that are about to join.
#[test]
fn annotations_of_a_deployment_that_another_client_has_raised_wait_for_its_nodes() {
    let deployments = vec![MachineDeployment { copy: Some(2), ..deployment(1) }];
    let mut case = Case::new(Power::Running, Some(Phase::ScalingUpMachines));
    case.machinery = Some(Machinery { deployments: deployments.clone(), ..Machinery::default() });
    assert_eq!((case.enters(), case.plan().actions), (Some(Phase::WaitingForNodes), vec![Action::TouchBackups]));
    let mut case = Case::new(Power::Running, Some(Phase::WaitingForNodes));
    case.machinery = Some(Machinery { deployments: deployments.clone(), ..Machinery::default() });
    assert_eq!((case.says().as_str(), case.plan().actions), ("0 of 1 Nodes are ready", vec![]));
    let nodes = vec![Node { ours: false, ..node("a-1") }];
    case.machinery = Some(Machinery { deployments, nodes, ..Machinery::default() });
    let annotated = Action::RestoreAutoscaler("kube-system/a".into(), BTreeMap::new());
    assert_eq!((case.plan().actions, case.ends()), (vec![annotated.clone()], false));
    // A client that changes them each time holds up nothing: past the limit they are written once more.
    case.later = Duration::from_secs(1201);
    assert_eq!((case.plan().actions, case.ends()), (vec![annotated.clone(), Action::TouchBackups], true));
    (case.cluster.spec.pause, case.unpause_refused) = (true, Some("invalid datacenter name"));
    assert_eq!((case.plan().actions, case.enters()), (vec![annotated], Some(Phase::AwakePaused)));
}

/// Its user made room for others, or needs it no more.
#[test]
fn a_deployment_that_is_set_to_0_during_the_wake_stays_there() {
    for phase in [Phase::WaitingForNodes, Phase::AwakePaused] {
        let mut case = Case::new(Power::Running, Some(phase));
        case.machinery = Some(Machinery { deployments: vec![deployment(0)], ..Machinery::default() });
        assert_eq!(case.record.as_ref().unwrap().machine_deployments["kube-system/a"].replicas, 2);
        assert_eq!((case.plan().actions, case.ends()), (vec![Action::TouchBackups], true), "{phase}");
    }
}

/// Row 62.
#[test]
fn a_quota_that_refuses_machines_is_reported_and_their_sets_are_touched() {
    let mut case = Case::new(Power::Running, Some(Phase::WaitingForNodes));
    let quota = Quota { why: "requested CPU would exceed the quota".into(), sets: vec!["kube-system/a-1".into()] };
    case.machinery = Some(Machinery { deployments: vec![deployment(2)], quota: Some(quota), ..Machinery::default() });
    assert!(case.says().starts_with("hydrated in part: 0 of 2 Nodes are ready; a quota refuses"), "{}", case.says());
    assert_eq!(case.plan().actions, []);
    case.later = Duration::from_secs(61);
    assert_eq!(case.plan().actions, [Action::TouchMachineSets(vec!["kube-system/a-1".into()])]);
}
