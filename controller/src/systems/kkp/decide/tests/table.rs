//! Single situations: what is decided in each, with the row of docs/reference/kkp.md that it comes from.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use shared::finding::{Finding, Severity};
use shared::kkp::api::{Cluster, Request, ResourceUsage};
use shared::kkp::keys::{self, ACTIVE_RESTORE};
use shared::kkp::phase::Limits;
use shared::kkp::record::{Machines, Numbers, Record, RecordError};

use super::super::control_plane::Replicas;
use super::super::*;
use super::world::{UID, confirm, up_to_date, workload};

const NOW: &str = "2026-11-22T18:00:00Z";
/// The sleep of the records below.
const SLEEP: &str = "u-1/2026-11-22T18:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

/// A situation, to be changed by a case.
struct Case {
    cluster: Cluster,
    desired: Desired,
    record: Option<Record>,
    unread: Option<RecordError>,
    control_plane: Vec<Replicas>,
    /// Whether a pause that has ended leaves its reason, and the sleep that it names.
    left: bool,
    /// The sleep that the pause names.
    sleep: Option<&'static str>,
    machinery: Option<Machinery>,
    may_begin: bool,
    unpause_refused: Option<&'static str>,
    later: Duration,
    /// When the request was made, after the beginning.
    requested: Duration,
    findings: Vec<Finding>,
}

fn replicas(name: &str, wanted: u32) -> Replicas {
    Replicas { workload: workload(name), wanted, ready: true, running: wanted > 0, copy: None, deletes_volumes: false }
}

impl Case {
    fn new(desired: Desired, phase: Option<Phase>) -> Self {
        let record = phase.map(|phase| {
            let mut record = Record::begin(UID, now()).enter(phase, now());
            for (name, count) in [("apiserver", 2), ("scheduler", 1), ("etcd", 3)] {
                record.note(workload(name), count);
            }
            record.note_machines("kube-system/a", Machines { replicas: 2, ..Machines::default() });
            record
        });
        let mut cluster = up_to_date();
        confirm(&mut cluster, phase.or((desired == Desired::Hibernating).then_some(Phase::Preflight)));
        cluster.spec.pause =
            matches!(phase, Some(Phase::ScalingDownControlPlane | Phase::Dehydrated | Phase::StartingControlPlane));
        cluster.spec.pause_reason = Some(keys::PAUSED_BY_US.to_owned());
        Self {
            cluster,
            desired,
            record,
            unread: None,
            control_plane: vec![replicas("apiserver", 0), replicas("scheduler", 0), replicas("etcd", 0)],
            left: false,
            sleep: Some(SLEEP),
            machinery: None,
            may_begin: true,
            unpause_refused: None,
            later: Duration::ZERO,
            requested: Duration::ZERO,
            findings: Vec::new(),
        }
    }

    fn plan(&self) -> Plan {
        let mut cluster = self.cluster.clone();
        if !cluster.spec.pause && !self.left {
            cluster.spec.pause_reason = None;
        } else if let Some(sleep) = self.sleep {
            let annotations = cluster.metadata.annotations.get_or_insert_default();
            annotations.insert(keys::PAUSED_BY_SLEEP.to_owned(), sleep.to_owned());
        }
        decide(&Facts {
            cluster: &cluster,
            request: Request { desired: self.desired, at: Some(now() + self.requested) },
            forced: false,
            record: self.record.as_ref(),
            unread: self.unread,
            preflight: Some(&self.findings),
            control_plane: &self.control_plane,
            numbers: Numbers::default(),
            cron_jobs: &[],
            user: self.machinery.as_ref().map_or(User::Silent("connection refused"), User::Seen),
            may_begin: self.may_begin,
            unpause_refused: self.unpause_refused,
            now: now() + self.later,
            limits: Limits::default(),
        })
    }

    /// The record as it is written, and then our condition.
    fn enter(&mut self, phase: Phase) {
        self.record = self.record.take().map(|record| record.enter(phase, now()));
        confirm(&mut self.cluster, Some(phase));
    }

    fn ends(&self) -> bool {
        is_over(&self.plan())
    }

    fn enters(&self) -> Option<Phase> {
        self.plan().record.map(|record| record.phase)
    }

    fn says(&self) -> String {
        self.plan().report.map(|report| report.message).unwrap_or_default()
    }
}

/// The condition says so before the record goes.
fn is_over(plan: &Plan) -> bool {
    !plan.ends && plan.report == Some(Report::of(Phase::Preflight, ENDS))
}

fn node(name: &str) -> Node {
    Node {
        name: name.into(),
        cordoned: true,
        skips_eviction: true,
        ours: true,
        has_machine: true,
        leaves: false,
        ready: true,
        stale: false,
    }
}

fn deployment(replicas: u32) -> MachineDeployment {
    let copy = (replicas == 0).then_some(2);
    MachineDeployment { name: "kube-system/a".into(), replicas, copy, ..MachineDeployment::default() }
}

#[test]
fn a_refused_preflight_changes_nothing_and_says_why() {
    let mut case = Case::new(Desired::Hibernating, None);
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
    let mut case = Case::new(Desired::Hibernating, Some(Phase::ScalingDownControlPlane));
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

/// Row 8: KKP raises everything but etcd when another client ends the pause.
#[test]
fn an_unpause_by_another_client_is_a_wake() {
    for phase in [Phase::ScalingDownControlPlane, Phase::Dehydrated] {
        let mut case = Case::new(Desired::Hibernating, Some(phase));
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

/// Rows 8 and 9: never the end of the pause alone, and etcd first.
#[test]
fn etcd_rises_and_the_pause_ends_back_to_back() {
    let mut case = Case::new(Desired::Running, Some(Phase::StartingControlPlane));
    assert_eq!(case.plan().actions, [Action::Restore(workload("etcd"), 3), Action::Unpause]);
    case.control_plane[2] = Replicas { ready: false, ..replicas("etcd", 3) };
    case.cluster.spec.pause = false;
    assert_eq!((case.plan().actions, case.enters()), (vec![], None));
    case.control_plane[2].ready = true;
    assert_eq!(case.enters(), Some(Phase::WaitingForApi));
}

/// Rows 20, 21 and 27: KKP restores nothing, so the record does.
#[test]
fn a_cluster_that_kkp_leaves_alone_is_restored_from_the_record() {
    let mut case = Case::new(Desired::Running, Some(Phase::StartingControlPlane));
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
    let mut case = Case::new(Desired::Running, Some(Phase::WaitingForNodes));
    (case.unpause_refused, case.cluster.spec.pause) = (Some("invalid datacenter name"), true);
    case.machinery = Some(Machinery::default());
    assert_eq!(case.enters(), Some(Phase::AwakePaused));
    case.enter(Phase::AwakePaused);
    assert_eq!(case.plan().actions, [Action::Unpause]);
    assert!(case.says().ends_with("was refused: invalid datacenter name") && !case.ends());
    case.cluster.spec.pause = false;
    assert!(case.ends());
}

/// Row 58: a Machine whose terminate call was not made keeps its instance.
#[test]
fn a_cluster_with_a_machine_is_never_paused() {
    let mut case = Case::new(Desired::Hibernating, Some(Phase::Pausing));
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

/// The preflight is old when the pause is written.
#[test]
fn what_changed_since_the_preflight_is_checked_before_the_pause() {
    for (change, says) in [
        (0, "another client has paused the cluster"),
        (1, "an EtcdRestore is under way"),
        (2, "KKP applies changes"),
        (3, "KKP applies changes"),
        (4, "StatefulSets etcd: "),
    ] {
        let mut case = Case::new(Desired::Hibernating, Some(Phase::Pausing));
        case.machinery = Some(Machinery::default());
        match change {
            0 => (case.cluster.spec.pause, case.cluster.spec.pause_reason) = (true, Some("maintenance".into())),
            1 => case.cluster.metadata.annotations = Some([(ACTIVE_RESTORE.to_owned(), "r".to_owned())].into()),
            2 => case.cluster.status.as_mut().unwrap().phase = Some("Updating".into()),
            4 => case.control_plane[2] = Replicas { deletes_volumes: true, ..replicas("etcd", 3) },
            _ => {
                case.cluster.status.as_mut().unwrap().conditions.remove("SeedResourcesUpToDate");
            }
        }
        assert!(case.says().starts_with(says) && case.enters().is_none() && case.plan().actions.is_empty(), "{says}");
    }
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
            let pausing = case(Desired::Hibernating, Phase::Pausing);
            assert_eq!(pausing.enters(), is_ours.then_some(Phase::ScalingDownControlPlane), "{what}");
            assert_eq!(pausing.says().starts_with("another client has paused the cluster"), !is_ours, "{what}");
            assert!(pausing.plan().actions.is_empty(), "{what}");
        }
        let starting = case(Desired::Running, Phase::StartingControlPlane).plan();
        assert_eq!(starting.actions.contains(&Action::Unpause), is_ours, "{what}");
        // KKP leaves it alone.
        assert_eq!(starting.actions.contains(&Action::Restore(workload("scheduler"), 1)), !is_ours, "{what}");
        let awake = case(Desired::Running, Phase::AwakePaused).plan();
        assert_eq!(awake.actions.contains(&Action::Unpause), is_ours, "{what}");
        assert_eq!(awake.warning.map(|warning| warning.reason), (!is_ours).then_some("PausedByOthers"), "{what}");
    }
}

/// F1: KKP pauses the cluster for it, and deletes etcd and its volumes.
#[test]
fn a_wake_waits_for_a_restore_of_etcd() {
    let phases = [Phase::StartingControlPlane, Phase::WaitingForApi, Phase::ScalingUpMachines, Phase::AwakePaused];
    for (phase, paused) in phases.into_iter().flat_map(|phase| [(phase, true), (phase, false)]) {
        let mut case = Case::new(Desired::Running, Some(phase));
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

#[test]
fn nothing_is_stopped_whose_volumes_would_be_deleted() {
    let mut case = Case::new(Desired::Hibernating, Some(Phase::ScalingDownControlPlane));
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
    let mut case = Case::new(Desired::Hibernating, Some(Phase::ScalingDownControlPlane));
    let ending = Replicas { running: true, ..replicas("machine-controller", 0) };
    case.control_plane = vec![replicas("apiserver", 2), ending, replicas("etcd", 3)];
    case.record.as_mut().unwrap().note(workload("machine-controller"), 1);
    assert_eq!((case.says().as_str(), case.plan().actions.len()), ("waiting for machine-controller to end", 0));
    case.control_plane[1].running = false;
    assert_eq!(case.plan().actions, [Action::ScaleDown(workload("apiserver"), 2)]);
    case.machinery = Some(Machinery { machines: vec!["m".into()], ..Machinery::default() });
    assert_eq!(case.enters(), Some(Phase::StartingControlPlane));
}

#[test]
fn a_record_that_is_missing_is_rebuilt_from_the_copies_or_named() {
    for desired in [Desired::Hibernating, Desired::Running] {
        let mut case = Case::new(desired, None);
        case.cluster.spec.pause = true;
        let plan = case.plan();
        assert!(plan.record.is_none() && plan.report.is_some_and(|report| report.reason == "RecordMissing"));
        case.control_plane[0].copy = Some(2);
        case.control_plane[2].copy = Some(3);
        let record = case.plan().record.unwrap();
        assert_eq!((record.phase, record.uid.as_str()), (Phase::Dehydrated, UID));
        assert_eq!(record.control_plane.values().copied().collect::<Vec<_>>(), [2, 3]);
    }
    let mut case = Case::new(Desired::Running, Some(Phase::ScalingUpMachines));
    case.record.as_mut().unwrap().machine_deployments.clear();
    let deployments = vec![MachineDeployment { copy: Some(2), ..deployment(0) }];
    case.machinery = Some(Machinery { deployments, ..Machinery::default() });
    assert_eq!(case.plan().actions, [raised("kube-system/a", 2)]);
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
        (None, Some(RecordError::TooLong), "RecordUnreadable"),
    ] {
        for phase in [None, Some(Draining), Some(ScalingDownControlPlane), Some(Dehydrated), Some(WaitingForNodes)] {
            let mut case = Case::new(Desired::Hibernating, phase);
            (case.record, case.unread) = (record.clone(), unread);
            confirm(&mut case.cluster, phase);
            case.cluster.spec.pause |= phase.is_none(); // our pause alone
            let (begun, is_wake) = (phase.unwrap_or(Dehydrated), phase == Some(WaitingForNodes));
            for desired in [Desired::Hibernating, Desired::Running] {
                case.desired = desired;
                case.control_plane = vec![replicas("apiserver", 0), replicas("scheduler", 1), replicas("etcd", 0)];
                let held = case.plan();
                assert!(held.record.is_none() && held.actions.is_empty() && !held.ends, "{reason} {phase:?}");
                assert_eq!(held.report.as_ref().map(|report| report.reason.as_str()), Some(reason), "{phase:?}");
                let waits = held.report.unwrap().message.contains("etcd carries no copy of its count");
                assert_eq!(waits, is_wake || desired == Desired::Running, "{reason} {phase:?}");
                case.control_plane[0].copy = Some(2);
                case.control_plane[2].copy = Some(3);
                let plan = case.plan();
                assert_eq!((plan.actions.len(), plan.ends), (0, false));
                let Some(rebuilt) = plan.record else {
                    assert!(!is_wake && desired == Desired::Hibernating, "{reason} {phase:?}");
                    continue;
                };
                assert!(is_wake || desired == Desired::Running, "{reason} {phase:?}");
                assert_eq!((rebuilt.uid.as_str(), rebuilt.phase, rebuilt.corrections), (UID, begun, 3));
                assert_eq!(rebuilt.control_plane.values().copied().collect::<Vec<_>>(), [2, 1, 3]);
                assert!(plan.warning.is_some_and(|warning| warning.note.contains(reason)));
            }
        }
        // Of a cluster that runs, nothing is rebuilt.
        let mut case = Case::new(Desired::Running, None);
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
            let mut case = Case::new(Desired::Hibernating, phase);
            (case.record, case.cluster.spec.pause, case.machinery) = (None, true, Some(Machinery::default()));
            case.cluster.metadata.annotations = Some([(keys::POWER_STATE.to_owned(), "Hibernating".to_owned())].into());
            confirm(&mut case.cluster, phase);
            let held = case.plan().report.unwrap();
            assert_eq!((held.reason.as_str(), held.dehydrated), ("RecordMissing", true), "{phase:?}");
            assert!(held.message.contains("hibernate.sh/allow-unpause"), "{}", held.message);
            super::world::say(&mut case.cluster, Some(held));
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
                    case.record = Some(Record::read(&record.text().unwrap()).unwrap());
                }
                if plan.ends {
                    case.record = None;
                }
                if plan.clears_intent {
                    case.desired = Desired::Running;
                }
                super::world::say(&mut case.cluster, plan.report);
            }
            assert!(entered.contains(&Phase::WaitingForNodes), "{phase:?}: {entered:?}");
            assert!(!case.cluster.spec.pause && case.control_plane == raised, "{phase:?}");
        }
    }
}

/// The record is restored in place of that: the cluster sleeps on, and nothing that was raised meanwhile is set to 0.
#[test]
fn a_missing_record_that_is_restored_is_gone_on_from() {
    let mut case = Case::new(Desired::Hibernating, Some(Phase::Dehydrated));
    let record = case.record.take();
    let held = case.plan().report;
    super::world::say(&mut case.cluster, held);
    (case.record, case.control_plane[1]) = (record, replicas("scheduler", 1));
    let adopted = case.plan().record.unwrap();
    assert_eq!((adopted.phase, adopted.corrections, adopted.control_plane.len()), (Phase::Dehydrated, 3, 3));
}

/// A copy that is left of an earlier sleep loses no count.
#[test]
fn a_stale_copy_below_the_count_is_not_what_comes_back() {
    let mut case = Case::new(Desired::Hibernating, Some(Phase::ScalingDownControlPlane));
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

/// A Deployment of others in the namespace, and one that does not become ready.
#[test]
fn a_wake_restores_what_kkp_does_not_and_in_the_end_waits_for_what_it_needs() {
    let mut case = Case::new(Desired::Running, Some(Phase::WaitingForApi));
    let broken = Replicas { ready: false, copy: Some(1), ..replicas("prometheus", 1) };
    let exporter = Replicas { copy: Some(1), ..replicas("exporter", 0) };
    case.control_plane = vec![replicas("apiserver", 2), exporter, broken, replicas("etcd", 3)];
    case.machinery = Some(Machinery::default());
    assert_eq!((case.says().as_str(), case.plan().actions.len()), ("waiting for exporter, prometheus", 0));
    case.later = Duration::from_secs(31);
    assert_eq!(case.plan().actions, [Action::Restore(workload("exporter"), 1)]);
    case.later = Duration::from_secs(601);
    assert_eq!(case.enters(), Some(Phase::WaitingForMachineController));
    case.control_plane[0].ready = false;
    assert_eq!(case.says(), "for more than 600 s: waiting for apiserver");
}

#[test]
fn a_wake_that_lacks_nodes_opens_those_it_has_and_lets_the_cluster_sleep_again() {
    let mut case = Case::new(Desired::Running, Some(Phase::WaitingForNodes));
    let nodes = vec![node("a")];
    case.machinery = Some(Machinery { deployments: vec![deployment(2)], nodes, ..Machinery::default() });
    assert_eq!(case.plan().actions, [Action::Uncordon(vec!["a".into()])]);
    case.desired = Desired::Hibernating;
    assert!(case.ends());
}

#[test]
fn counts_that_are_raised_during_the_drain_are_recorded_too() {
    let mut case = Case::new(Desired::Hibernating, Some(Phase::ScalingDownMachines));
    case.record.as_mut().unwrap().machine_deployments.get_mut("kube-system/a").unwrap().replicas = 0;
    case.machinery = Some(Machinery { deployments: vec![deployment(3)], ..Machinery::default() });
    assert_eq!(case.plan().record.unwrap().machine_deployments["kube-system/a"].replicas, 3);
}

/// Rows 54 to 57.
#[test]
fn nodes_that_join_late_are_cordoned_and_orphans_deleted_once_they_are_stale() {
    let mut case = Case::new(Desired::Hibernating, Some(Phase::ScalingDownMachines));
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
    let mut case = Case::new(Desired::Hibernating, Some(Phase::Draining));
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
    let mut case = Case::new(Desired::Hibernating, Some(Phase::DrainTimedOut));
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
    case.desired = Desired::Running;
    assert!(case.ends());
}

/// Not those that nobody has touched yet, and with the reason.
#[test]
fn a_drain_that_timed_out_names_what_it_waited_for_and_the_last_error() {
    let last = "waiting for Pods to end: shop/db-0; retried after an error: write Pod shop/db-0: denied";
    let mut case = Case::new(Desired::Hibernating, Some(Phase::Draining));
    let untouched = Pod { name: "kube-system/csi".into(), stage: Stage::System, ..Pod::default() };
    let deployments = vec![deployment(2)];
    case.machinery = Some(Machinery { pods: vec![untouched], deployments, ..Machinery::default() });
    super::world::say(&mut case.cluster, Some(Report::of(Phase::Draining, last)));
    case.later = Duration::from_secs(601);
    let plan = case.plan();
    assert_eq!(plan.report, Some(Report::of(Phase::DrainTimedOut, drain::UNDOING).with(Outcome::Pending)));
    case.record = plan.record.map(|record| Record { machine_deployments: BTreeMap::new(), ..record });
    confirm(&mut case.cluster, Some(Phase::DrainTimedOut));
    assert!(case.says().ends_with(&format!("retry. Last seen: {last}")), "{}", case.says());
}

/// Row 8: also in a wake that has come further.
#[test]
fn what_is_left_of_a_pause_that_another_client_has_ended_goes() {
    let up = vec![replicas("apiserver", 2), replicas("scheduler", 1), replicas("etcd", 3)];
    for (phase, actions) in [
        (Phase::StartingControlPlane, vec![Action::Unpause]),
        (Phase::WaitingForNodes, vec![Action::TouchBackups, Action::Unpause]),
    ] {
        let mut case = Case { left: true, control_plane: up.clone(), ..Case::new(Desired::Running, Some(phase)) };
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

#[test]
fn a_copy_is_older_than_what_others_have_written_since() {
    let annotations = |value: &str| [("max".to_owned(), value.to_owned())].into();
    let both = MachineDeployment { autoscaler: annotations("9"), autoscaler_copy: annotations("5"), ..deployment(3) };
    assert_eq!((both.before().replicas, both.before().autoscaler), (3, annotations("9")));
    let copy = MachineDeployment { autoscaler_copy: annotations("5"), ..deployment(0) };
    assert_eq!((copy.before().replicas, copy.before().autoscaler), (2, annotations("5")));
}

/// Row 18: the counts are those of the backup.
#[test]
fn during_an_etcd_restore_the_recorded_counts_are_dropped() {
    let mut case = Case::new(Desired::Running, Some(Phase::ScalingUpMachines));
    case.machinery = Some(Machinery { deployments: vec![deployment(0)], ..Machinery::default() });
    assert_eq!(case.plan().actions, [raised("kube-system/a", 2)]);
    for (phase, drops) in [
        (Phase::Draining, false),
        (Phase::Dehydrated, true),
        (Phase::StartingControlPlane, true),
        (Phase::ScalingUpMachines, true),
    ] {
        let mut case = Case::new(Desired::Running, Some(phase));
        case.cluster.metadata.annotations = Some([(ACTIVE_RESTORE.to_owned(), "r".to_owned())].into());
        let plan = case.plan();
        let emptied = plan.record.is_some_and(|record| record.machine_deployments.is_empty() && record.phase == phase);
        assert_eq!(emptied, drops, "{phase}");
    }
}

fn raised(name: &str, replicas: u32) -> Action {
    Action::RestoreMachines(name.into(), Machines { replicas, ..Machines::default() })
}

/// K13 let the DELETE pass, or the webhook was not asked.
#[test]
fn a_cluster_that_is_deleted_with_certificates_that_end_soon_is_warned_of_once() {
    let mut case = Case::new(Desired::Hibernating, Some(Phase::Dehydrated));
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
    (case.cluster.metadata.deletion_timestamp, case.desired) = (None, Desired::Running);
    assert_eq!((case.enters(), case.plan().warning), (Some(Phase::StartingControlPlane), None), "a wake renews them");
}

/// Rows 19 to 22: KKP deletes nothing of a cluster whose API server is down, and volumes need a Node to go.
#[test]
fn a_cluster_that_is_deleted_is_brought_up_while_it_is_paused() {
    let deleted = |phase| {
        let mut case = Case::new(Desired::Hibernating, Some(phase));
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
        let mut case = Case::new(Desired::Running, Some(Phase::AwakePaused));
        (case.cluster.metadata.annotations, case.machinery) = (annotated(state), Some(Machinery::default()));
        let plan = case.plan();
        assert_eq!((is_over(&plan), plan.clears_intent), (true, clears), "{state}");
    }
}

/// Operators of the network tolerate every taint: their controllers place them on cordoned Nodes again.
#[test]
fn a_drain_ends_although_pods_return_to_cordoned_nodes_or_have_no_kubelet() {
    let mut case = Case::new(Desired::Hibernating, Some(Phase::Draining));
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
    let mut case = Case::new(Desired::Hibernating, Some(Phase::MachinesScaledDown));
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

/// A wake during `ScalingDownMachines`: the Nodes of Machines that terminate are none of the new ones.
#[test]
fn nodes_that_leave_are_neither_counted_nor_opened_again() {
    let mut case = Case::new(Desired::Running, Some(Phase::WaitingForNodes));
    let leaving = Node { leaves: true, ..node("old") };
    let nodes = vec![leaving.clone(), node("new-1")];
    case.machinery = Some(Machinery { deployments: vec![deployment(2)], nodes, ..Machinery::default() });
    assert_eq!(case.says(), "1 of 2 Nodes are ready");
    let new = |name| Node { ours: false, ..node(name) };
    case.machinery.as_mut().unwrap().nodes = vec![leaving, new("new-1"), new("new-2")];
    assert_eq!(case.plan().actions, [Action::TouchBackups]);
}

/// Row 11: KKP keeps annotations that it does not know.
#[test]
fn our_copies_of_counts_go_with_the_wake() {
    let mut case = Case::new(Desired::Running, Some(Phase::WaitingForNodes));
    case.control_plane[0].copy = Some(2);
    case.machinery = Some(Machinery::default());
    assert_eq!(case.plan().actions, [Action::Unmark(vec![workload("apiserver")]), Action::TouchBackups]);
}

/// Row 53: a change of annotations voids the token of Machines that are about to join.
#[test]
fn annotations_of_a_deployment_that_another_client_has_raised_wait_for_its_nodes() {
    let deployments = vec![MachineDeployment { copy: Some(2), ..deployment(1) }];
    let mut case = Case::new(Desired::Running, Some(Phase::ScalingUpMachines));
    case.machinery = Some(Machinery { deployments: deployments.clone(), ..Machinery::default() });
    assert_eq!((case.enters(), case.plan().actions), (Some(Phase::WaitingForNodes), vec![Action::TouchBackups]));
    let mut case = Case::new(Desired::Running, Some(Phase::WaitingForNodes));
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
        let mut case = Case::new(Desired::Running, Some(phase));
        case.machinery = Some(Machinery { deployments: vec![deployment(0)], ..Machinery::default() });
        assert_eq!(case.record.as_ref().unwrap().machine_deployments["kube-system/a"].replicas, 2);
        assert_eq!((case.plan().actions, case.ends()), (vec![Action::TouchBackups], true), "{phase}");
    }
}

/// Row 62.
#[test]
fn a_quota_that_refuses_machines_is_reported_and_their_sets_are_touched() {
    let mut case = Case::new(Desired::Running, Some(Phase::WaitingForNodes));
    let quota = Quota { why: "requested CPU would exceed the quota".into(), sets: vec!["kube-system/a-1".into()] };
    case.machinery = Some(Machinery { deployments: vec![deployment(2)], quota: Some(quota), ..Machinery::default() });
    assert!(case.says().starts_with("hydrated in part: 0 of 2 Nodes are ready; a quota refuses"), "{}", case.says());
    assert_eq!(case.plan().actions, []);
    case.later = Duration::from_secs(61);
    assert_eq!(case.plan().actions, [Action::TouchMachineSets(vec!["kube-system/a-1".into()])]);
}

/// Row 15: KKP renews certificates only while the cluster is not paused.
#[test]
fn certificates_that_expire_within_two_weeks_are_a_warning() {
    let mut case = Case::new(Desired::Hibernating, Some(Phase::Dehydrated));
    for (expiry, warns) in [("2026-12-06T17:00:00Z", true), ("2026-12-06T19:00:00Z", false), ("soon", false)] {
        case.cluster.metadata.annotations = Some([(keys::CERTIFICATES_EXPIRE_AT.to_owned(), expiry.to_owned())].into());
        assert_eq!(case.says().contains("; the control plane's certificates expire at"), warns, "{expiry}");
        assert_eq!(case.plan().warning.is_some(), warns);
    }
}

#[test]
fn what_takes_too_long_names_its_blocker_and_waits_longer() {
    let mut case = Case::new(Desired::Hibernating, Some(Phase::ScalingDownMachines));
    case.machinery =
        Some(Machinery { machines: vec!["m-1".into()], deployments: vec![deployment(0)], ..Machinery::default() });
    assert_eq!(case.says(), "waiting for Machines to go: m-1");
    case.later = Duration::from_secs(1801);
    assert_eq!(case.says(), "for more than 1800 s: waiting for Machines to go: m-1");
    assert_eq!(case.plan().requeue, Some(Duration::from_secs(30)));
}

#[test]
fn raised_replicas_are_corrected_three_times_and_then_left_alone() {
    let mut case = Case::new(Desired::Hibernating, Some(Phase::Dehydrated));
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
            ..Case::new(Desired::Hibernating, None)
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
    let mut case = Case { may_begin: false, ..Case::new(Desired::Hibernating, None) };
    case.machinery = Some(Machinery::default());
    assert!(case.enters().is_none() && case.says().starts_with("waiting for a free slot"), "{}", case.says());
    let case = Case { may_begin: false, ..Case::new(Desired::Running, Some(Phase::Dehydrated)) };
    let plan = case.plan();
    assert!(plan.record.is_none() && plan.actions.is_empty() && plan.report.is_some_and(|report| report.dehydrated));
    // A drain is undone at once: nothing of the seed is needed for that.
    let case = Case { may_begin: false, ..Case::new(Desired::Running, Some(Phase::Draining)) };
    assert_eq!(case.enters(), Some(Phase::WaitingForMachineController));
    let mut case = Case { may_begin: false, ..Case::new(Desired::Hibernating, Some(Phase::Dehydrated)) };
    case.cluster.spec.pause = false;
    assert_eq!(case.enters(), Some(Phase::StartingControlPlane), "KKP brings up everything but etcd (row 8)");
}
