//! Step 5 of checkClusterRunning (docs/reference/hive.md, section 1.3), where we believe operators sooner than Hive
//! does, and Nodes that nobody will ever see again.

use super::*;
use crate::cloud::InstanceState::Running;

/// An operator with a Lease that was renewed so many seconds ago; the wake began 30 s ago.
fn leased(name: &str, seconds_ago: i64, moved: bool) -> OperatorObservation {
    OperatorObservation { name: name.into(), unwell: vec![], leased: true, sign_of_life: Some(at(-seconds_ago)), moved }
}

fn with(cluster: &ClusterDeployment, operators: Vec<OperatorObservation>, well_since: Option<i64>) -> Plan {
    let mut facts = facts(cluster).machines_are(&[Running, Running]).nodes_are(AWAKE, &[]);
    if let Some(Ok(spoke)) = &mut facts.spoke {
        spoke.operators = operators;
        spoke.operators_well_since = well_since.map(|seconds| at(-seconds));
    }
    decide(&facts)
}

#[test]
fn operators_that_prove_that_they_live_are_believed_without_a_pause() {
    let nodes = waking(("False", "WaitingForNodes"));
    let operators = waking(("False", "WaitingForClusterOperators")); // for a minute
    let silent = OperatorObservation { leased: false, ..leased("dns", 3600, false) };
    let ill = OperatorObservation { unwell: vec!["Degraded=True".into()], ..leased("etcd", 1, false) };
    let etcd = |seconds_ago, moved| vec![leased("etcd", seconds_ago, moved)];
    let and = |more: &OperatorObservation| vec![leased("etcd", 1, false), more.clone()];
    let (waits, signs) = ("WaitingForClusterOperators", "SignsOfLife");
    for (case, cluster, found, well_since, power_state, awaited) in [
        ("all alive, settled", &nodes, etcd(1, false), Some(3), reason::RUNNING, "Running"),
        ("all alive, just well", &nodes, etcd(1, false), Some(1), waits, "ClusterOperators"),
        ("alive and ill", &nodes, vec![ill], None, waits, "ClusterOperators"),
        ("a Lease from before the sleep", &nodes, etcd(31, false), Some(9), waits, signs),
        ("its clock is behind, but it moves", &nodes, etcd(3600, true), Some(9), reason::RUNNING, "Running"),
        ("its clock is far ahead", &nodes, etcd(-60, false), Some(9), waits, signs),
        ("one keeps no Lease", &nodes, and(&silent), Some(9), reason::PAUSING, signs),
        ("given Hive's pause already", &operators, vec![silent], Some(9), reason::RUNNING, "Running"),
        ("a Lease that stays old is waited for", &operators, etcd(3600, false), Some(9), waits, signs),
        ("no operators at all", &nodes, vec![], None, reason::RUNNING, "Running"),
    ] {
        let plan = with(cluster, found, well_since);
        assert_eq!(says(&plan).2, power_state, "{case}");
        assert_eq!(plan.status.unwrap().progress.unwrap().reason, awaited, "{case}");
    }
    let plan = with(&nodes, vec![leased("etcd", 1, false)], Some(1));
    assert_eq!(plan.due, Some(Duration::from_secs(2)), "looked at when it has settled");
}

#[test]
fn nothing_is_told_of_nodes_that_come_at_once() {
    let cluster = waking(("False", "WaitingForMachines"));
    for (connected_for, nodes, power_state) in [
        (Some(Duration::from_millis(400)), [(false, -1, true); 2], ""),
        (Some(Duration::from_millis(900)), [(false, -1, true); 2], "WaitingForNodes"),
        (Some(Duration::ZERO), AWAKE, reason::PAUSING),
        // Such as with a kubeconfig that is refused: no connection is ever opened.
        (None, [(false, -1, true); 2], "WaitingForNodes"),
    ] {
        let facts = Facts { connected_for, ..facts(&cluster).machines_are(&[Running, Running]).nodes_are(nodes, &[]) };
        let plan = decide(&facts);
        assert_eq!(plan.status.as_ref().and_then(|status| status.power_state).unwrap_or_default(), power_state);
        assert_eq!(plan.watch, Watch::Everything);
        let untold = power_state.is_empty().then_some(Duration::from_millis(500));
        assert_eq!(plan.due.filter(|_| plan.status.is_none()), untold, "it is told as soon as that time is over");
    }
}

#[test]
fn a_lease_that_stays_old_holds_the_wake_up_for_the_pause_only() {
    let mut cluster = waking(("False", "WaitingForClusterOperators"));
    for condition in &mut cluster.status.as_mut().unwrap().conditions {
        condition.last_probe_time = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(-120)));
    }
    assert_eq!(says(&with(&cluster, vec![leased("etcd", 3600, false)], Some(9))).2, reason::RUNNING);
}

#[test]
fn a_node_whose_machine_is_gone_does_not_hold_the_wake_up_for_ever() {
    let cluster = waking(("False", "WaitingForNodes"));
    for (minutes, power_state, noted) in [(4, "WaitingForNodes", false), (6, reason::RUNNING, true)] {
        let cluster = began(cluster.clone(), 60 * minutes);
        let mut facts = facts(&cluster).machines_are(&[Running, Running]).nodes_are(AWAKE, &[]);
        if let Some(Ok(spoke)) = &mut facts.spoke {
            spoke.operators.clear();
            let ghost = NodeObservation { name: "scaled-away".into(), ready: false, ..spoke.nodes[0].clone() };
            spoke.nodes.push(ghost);
        }
        let plan = decide(&facts);
        assert_eq!(says(&plan).2, power_state, "after {minutes} minutes");
        let notice = plan.notice.filter(|n| n.reason == "NodesWithoutMachines" && n.message.contains("scaled-away"));
        assert_eq!(notice.is_some(), noted);
    }
    let old = began(cluster, 600);
    let plan = decide(&facts(&old).machines_are(&[Running, Running]).nodes_are([(false, -900, false); 2], &[]));
    assert_eq!(says(&plan).2, "WaitingForNodes", "a Node with a machine is waited for");
    let mut strangers = facts(&old).machines_are(&[Running, Running]).nodes_are([(false, -900, false); 2], &[]);
    if let Some(Ok(spoke)) = &mut strangers.spoke {
        spoke.nodes.iter_mut().for_each(|node| node.name.insert_str(0, "old-"));
    }
    assert_eq!(says(&decide(&strangers)).2, "WaitingForNodes", "a cluster of ghosts is not awake");
}

#[test]
fn the_spoke_is_watched_while_it_wakes_and_a_while_after() {
    let awake_for = |seconds: i64| {
        let mut cluster = waking(("True", reason::RUNNING));
        for condition in &mut cluster.status.as_mut().unwrap().conditions {
            condition.last_transition_time = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(-seconds)));
        }
        cluster
    };
    let (awake, long) = (awake_for(599), awake_for(601));
    for (case, cluster, watch) in [
        ("machines run", waking(("False", "WaitingForMachines")), Watch::Everything),
        ("nodes", waking(("False", "WaitingForNodes")), Watch::Everything),
        ("just awake", awake, Watch::Certificates),
        ("long awake", long, Watch::Nothing),
    ] {
        assert_eq!(decide(&facts(&cluster).machines_are(&[Running])).watch, watch, "{case}");
        let error = CloudError::new(CloudErrorKind::Unavailable, "no answer");
        let unlisted = Facts { machines: Some(Err(error)), ..facts(&cluster) };
        assert_eq!(decide(&unlisted).watch, Watch::Kept, "{case}, but one list fails");
    }
}

#[test]
fn machines_get_the_names_of_new_instances_as_soon_as_the_spoke_answers() {
    let cluster = waking(("False", "WaitingForMachines"));
    for (is_new, answers, named) in [(true, true, true), (true, false, false), (false, true, false)] {
        let facts = facts(&cluster).machines_are(&[Running, Running]);
        let mut facts = if answers { facts.nodes_are([(false, -1, true); 2], &[]) } else { facts };
        if let Some(Ok(machines)) = &mut facts.machines {
            machines.instances[0].provider_id = is_new.then(|| "openstack:///new".to_owned());
        }
        let early = Facts { connected_for: Some(Duration::ZERO), ..facts.clone() };
        assert_eq!((decide(&facts).name_machines, decide(&early).name_machines), (named, named), "{is_new} {answers}");
    }
}
