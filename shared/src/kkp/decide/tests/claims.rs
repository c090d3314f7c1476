//! What a forged, restored or stale record can do: nothing past the preflight, and never against a protection or a
//! pause of others.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use strum::IntoEnumIterator as _;

use super::super::control_plane::Replicas;
use super::super::*;
use super::case::{Case, now, replicas};
use super::world::{UID, World, confirm, up_to_date, workload};
use crate::annotation::keys as common;
use crate::kkp::api::Cluster;
use crate::kkp::keys;
use crate::kkp::pause::is_paused_by_us;
use crate::kkp::record::{Machines, Record};
use crate::power::Power;

fn record(uid: &str, phase: Phase) -> Record {
    let mut record = Record::begin(uid, now()).enter(phase, now());
    for (name, count) in [("apiserver", 9), ("exporter", 9), ("etcd", 9)] {
        record.note(workload(name), count);
    }
    let autoscaler = [(keys::AUTOSCALER[1].to_owned(), "99".to_owned())].into();
    record.note_machines("kube-system/a", Machines { replicas: 99, autoscaler, ..Machines::default() });
    record.cron_jobs.insert("etcd-defragger".to_owned());
    record.quiet_since = Some("2026-11-22T17:59:00Z".to_owned());
    record
}

fn annotate(cluster: &mut Cluster, key: &str, value: &str) {
    cluster.metadata.annotations.get_or_insert_default().insert(key.to_owned(), value.to_owned());
}

/// Pauses that are not of the sleep of [`record`]: by their reason, or by the sleep that they name.
const FOREIGN: [(&str, &str); 4] = [
    ("maintenance", OURS.1),
    (keys::PAUSED_BY_US, ""),
    (keys::PAUSED_BY_US, "u-1/2026-11-21T18:00:00Z"),
    (keys::PAUSED_BY_US, "u-2/2026-11-21T18:00:00Z"),
];
/// The pause of that sleep.
const OURS: (&str, &str) = ("dehydrated by kubectl-hibernate: weekend", "u-1/2026-11-22T18:00:00Z");

/// A cluster that is paused, with this reason and by this sleep.
fn pause(cluster: &mut Cluster, (reason, sleep): (&str, &str)) {
    (cluster.spec.pause, cluster.spec.pause_reason) = (true, Some(reason.to_owned()));
    annotate(cluster, keys::PAUSED_BY_SLEEP, sleep);
}

/// What an attacker or an accident chooses.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each by itself")]
struct Forged {
    uid: &'static str,
    phase: Phase,
    condition: Option<Phase>,
    /// `spec.pause`: its reason, and the sleep that it names.
    pause: Option<(&'static str, &'static str)>,
    protected: bool,
    held: bool,
    asleep: bool,
    deleted: bool,
    may_begin: bool,
    corrections: u32,
    woken: bool,
    later: u64,
    counts: Vec<(u32, Option<u32>)>,
    machinery: Machinery,
    silent: bool,
}

fn phases() -> impl Strategy<Value = Phase> {
    proptest::sample::select(Phase::iter().collect::<Vec<_>>())
}

fn machinery() -> impl Strategy<Value = Machinery> {
    let deployment = (0u32..3, option::of(0u32..3), any::<bool>()).prop_map(|(replicas, copy, scaled)| {
        let autoscaler = scaled.then(|| (keys::AUTOSCALER[0].to_owned(), "1".to_owned())).into_iter().collect();
        let name = "kube-system/a".to_owned();
        MachineDeployment { name, replicas, autoscaler, copy, ..MachineDeployment::default() }
    });
    let node = any::<(bool, bool)>().prop_map(|(cordoned, ready)| Node {
        name: "n".to_owned(),
        cordoned,
        ready,
        ..Node::default()
    });
    let pod = any::<bool>().prop_map(|terminating| Pod { name: "a/b".to_owned(), terminating, ..Pod::default() });
    (vec(deployment, 0..2), vec(node, 0..2), vec(pod, 0..2), vec("m-[0-9]", 0..2)).prop_map(
        |(deployments, nodes, pods, machines)| Machinery { deployments, machines, nodes, pods, ..Machinery::default() },
    )
}

fn forged() -> impl Strategy<Value = Forged> {
    let pauses = proptest::sample::select(vec![OURS, OURS, OURS, FOREIGN[0], FOREIGN[1], FOREIGN[2], FOREIGN[3]]);
    let cluster = (option::of(phases()), option::of(pauses), any::<[bool; 5]>());
    let record = (proptest::sample::select(vec![UID, "u-2", ""]), phases(), 0u32..5, any::<bool>());
    let facts = (0u64..3_000, vec((0u32..4, option::of(0u32..4)), 3), machinery(), any::<bool>());
    (cluster, record, facts).prop_map(
        |(
            (condition, pause, [protected, held, asleep, deleted, may_begin]),
            (uid, phase, corrections, woken),
            (later, counts, machinery, silent),
        )| Forged {
            uid,
            phase,
            condition,
            pause,
            protected,
            held,
            asleep,
            deleted,
            may_begin,
            corrections,
            woken,
            later,
            counts,
            machinery,
            silent,
        },
    )
}

impl Forged {
    fn cluster(&self) -> Cluster {
        let mut cluster = up_to_date();
        confirm(&mut cluster, self.condition);
        if let Some(named) = self.pause {
            pause(&mut cluster, named);
        }
        if self.protected {
            annotate(&mut cluster, common::PROTECTED, "true");
        }
        if self.held {
            annotate(&mut cluster, common::HOLD_AWAKE_UNTIL, "2126-01-01T00:00:00Z");
        }
        cluster.metadata.deletion_timestamp = self.deleted.then(|| Time(now()));
        cluster
    }

    fn record(&self) -> Record {
        let woken = self.woken.then(|| "2126-01-01T00:00:00Z".to_owned());
        Record { corrections: self.corrections, woken, ..record(self.uid, self.phase) }
    }

    fn plan(&self) -> (Cluster, Plan) {
        let counts = ["apiserver", "scheduler", "etcd"].iter().zip(&self.counts);
        let control_plane = counts.map(|(name, (wanted, copy))| Replicas { copy: *copy, ..replicas(name, *wanted) });
        let case = Case {
            cluster: self.cluster(),
            record: Some(self.record()),
            control_plane: control_plane.collect(),
            cron_jobs: vec![CronJob { name: "etcd-defragger".to_owned(), suspended: self.woken, ours: false }],
            left: true,
            sleep: None,
            machinery: (!self.silent).then(|| self.machinery.clone()),
            may_begin: self.may_begin,
            later: Duration::from_secs(self.later),
            ..Case::new(if self.asleep { Power::Hibernating } else { Power::Running }, None)
        };
        let plan = case.plan();
        (case.cluster, plan)
    }
}

/// Whether it drains the cluster, or stops anything of it.
fn stops(action: &Action) -> bool {
    matches!(
        action,
        Action::StopAutoscaler(..)
            | Action::Cordon(_)
            | Action::DeletePods(_)
            | Action::DeleteLostPods(_)
            | Action::ScaleDownMachines(..)
            | Action::DeleteNode(_)
            | Action::Pause
            | Action::ScaleDown(..)
            | Action::Suspend(_)
    )
}

proptest! {
    /// Whatever a record says: without our condition on the Cluster nothing is done by it. What the pause of ours
    /// proves is that the cluster sleeps, and then nothing more of it is stopped.
    #[test]
    fn a_record_alone_moves_no_cluster_past_the_preflight(forged in forged()) {
        let forged = Forged { condition: forged.condition.filter(|phase| *phase == Phase::Preflight), ..forged };
        let (cluster, plan) = forged.plan();
        prop_assert!(plan.actions.is_empty(), "{plan:?}");
        let own = Some(forged.record()).filter(|_| forged.uid == UID);
        if is_paused_by_us(&cluster, own.as_ref()) && (own.is_some() || plan.record.is_some()) {
            let record = plan.record.unwrap();
            prop_assert!(record.phase == Phase::Dehydrated && record.corrections >= 3, "{record:?}");
            prop_assert!(forged.uid == UID || !forged.asleep || forged.deleted, "another's is rebuilt for a wake alone");
            prop_assert!(forged.uid == UID || record.control_plane.values().all(|count| *count < 9), "{record:?}");
        } else if forged.condition.is_none() || forged.uid != UID {
            prop_assert!(plan.record.is_none() && !plan.ends && !plan.clears_intent, "{plan:?}");
        } else if let Some(record) = plan.record {
            // Its own preflight has passed: nothing of what the record said is left.
            prop_assert!(forged.asleep && record.phase == Phase::Draining && record.control_plane.values().all(|count| *count < 9));
            prop_assert!(record.machine_deployments.values().all(|one| one.replicas < 9));
        }
    }

    /// The webhook may have been down when the sleep was requested, and the protection may have come later.
    #[test]
    fn a_cluster_that_is_kept_awake_is_neither_drained_nor_stopped(forged in forged()) {
        let forged = Forged { protected: forged.protected || !forged.held, ..forged };
        let (cluster, plan) = forged.plan();
        prop_assert!(!plan.actions.iter().any(stops), "{plan:?}");
        let entered = plan.record.map(|record| record.phase).filter(|entered| forged.condition != Some(*entered));
        let sleeps = is_paused_by_us(&cluster, None);
        let is_for_sleep = |phase: &Phase| phase.is_of_sleep() && !(*phase == Phase::Dehydrated && sleeps);
        prop_assert!(!entered.as_ref().is_some_and(is_for_sleep), "{entered:?}");
    }

    #[test]
    fn the_pause_of_another_client_never_ends(forged in forged(), pause in proptest::sample::select(FOREIGN.to_vec())) {
        let forged = Forged { pause: Some(pause), ..forged };
        prop_assert!(!forged.plan().1.actions.contains(&Action::Unpause));
    }

    /// Whoever writes the record of a cluster that sleeps can neither raise a count over what it was nor lead the
    /// phase.
    #[test]
    fn counts_and_phase_are_not_the_records(forged in forged()) {
        let (_, plan) = forged.plan();
        for action in &plan.actions {
            match action {
                Action::ScaleDown(_, count) => prop_assert!(*count < 9),
                // Whoever removes the copy of a workload at 0 may scale it.
                Action::Restore(workload, count) => {
                    let at = ["apiserver", "scheduler", "etcd"].iter().position(|name| workload.name == *name).unwrap();
                    prop_assert!(*count < 9 || matches!(forged.counts[at], (0, None | Some(0))), "{workload:?} {count}");
                }
                Action::ScaleDownMachines(_, machines) | Action::RestoreMachines(_, machines) => {
                    prop_assert!(machines.replicas < 9);
                }
                _ => {}
            }
        }
        let elsewhere = Forged { phase: Phase::Dehydrated, ..forged.clone() };
        let (mut one, mut other) = (plan, elsewhere.plan().1);
        if forged.condition.is_some() {
            for plan in [&mut one, &mut other] {
                if let Some(record) = &mut plan.record {
                    (record.phase, record.entered) = (Phase::Preflight, String::new());
                }
            }
            prop_assert_eq!(one, other);
        }
    }

    /// An attacker writes any record before each pass, on a cluster that is to run.
    #[test]
    fn a_cluster_that_is_to_run_stays_as_it_is(writes in vec((phases(), any::<bool>()), 1..20), protected: bool, paused: bool) {
        let mut world = World::new();
        if protected {
            annotate(&mut world.cluster, common::PROTECTED, "true");
            world.want(Power::Hibernating);
        }
        if paused {
            pause(&mut world.cluster, FOREIGN[usize::from(protected)]);
        }
        let (before, nodes) = (world.counts(), world.machinery.nodes.clone());
        for (phase, own) in writes {
            world.record = Some(record(if own { UID } else { "u-2" }, phase));
            world.run(3);
            prop_assert_eq!((world.counts(), &world.machinery.nodes), (before.clone(), &nodes));
            prop_assert_eq!(world.cluster.spec.pause, paused);
        }
    }
}

/// What counts of a record, by our condition, the pause and the UID.
#[test]
fn a_record_stands_by_its_uid_and_our_condition() {
    use Phase::{Dehydrated, Draining, Preflight, WaitingForNodes};
    let of = |condition: Option<Phase>, paused: Option<(&str, &str)>, record: Option<Record>| {
        let mut cluster = up_to_date();
        confirm(&mut cluster, condition);
        if let Some(named) = paused {
            pause(&mut cluster, named);
        }
        match standing(&cluster, record.as_ref().map(Ok)) {
            Standing::Absent => "absent".to_owned(),
            Standing::Void => "void".to_owned(),
            Standing::InForce(record) => format!("in force: {}", record.phase),
            Standing::Orphaned(record, phase) => {
                format!("{}: {phase}", if record.is_some() { "adopted" } else { "rebuilt" })
            }
            Standing::Held(report, _) => report.reason,
        }
    };
    let (own, foreign) = (|phase| Some(record(UID, phase)), || Some(record("u-2", Dehydrated)));
    let (ours, [theirs, unnamed, earlier, of_another]) = (Some(OURS), FOREIGN.map(Some));
    let restored = Some((OURS.0, "u-2/2026-11-22T18:00:00Z"));
    for (condition, pause, record, expected) in [
        (None, None, None, "absent"),
        (Some(Preflight), None, None, "absent"),
        (None, theirs, None, "absent"),
        (None, ours, None, "rebuilt: Dehydrated"),
        (Some(Draining), None, None, "rebuilt: Draining"),
        (Some(WaitingForNodes), None, None, "rebuilt: WaitingForNodes"),
        (None, None, own(Dehydrated), "RecordUnconfirmed"),
        (None, theirs, own(Dehydrated), "RecordUnconfirmed"),
        (None, ours, own(Draining), "adopted: Dehydrated"),
        (None, unnamed, None, "absent"),
        (None, of_another, None, "PauseForeign"),
        (None, unnamed, own(Dehydrated), "RecordUnconfirmed"),
        (None, earlier, own(Dehydrated), "RecordUnconfirmed"),
        (None, of_another, own(Dehydrated), "RecordUnconfirmed"),
        // The UID of the record was corrected, as the condition advises.
        (None, restored, own(Dehydrated), "adopted: Dehydrated"),
        (None, earlier, None, "rebuilt: Dehydrated"),
        (Some(Preflight), None, own(Dehydrated), "void"),
        (Some(Draining), None, own(Draining), "in force: Draining"),
        // Ahead: the controller ended between the two writes, or another client has edited the record.
        (Some(Draining), None, own(Dehydrated), "in force: Draining"),
        (Some(Dehydrated), ours, own(WaitingForNodes), "in force: Dehydrated"),
        (None, None, foreign(), "RecordForeign"),
        (Some(Dehydrated), ours, foreign(), "RecordForeign"),
        (Some(Preflight), None, Some(record("", Draining)), "RecordForeign"),
    ] {
        assert_eq!(of(condition, pause, record.clone()), expected, "{condition:?} {pause:?} {record:?}");
    }
}

/// Of a Cluster that was restored in its sleep, without its record; or with one that had been rebuilt before.
#[test]
fn a_restored_cluster_says_how_it_can_wake_and_the_advice_works() {
    let mut cluster = up_to_date();
    pause(&mut cluster, (OURS.0, "u-2/2026-11-22T18:00:00Z"));
    let Standing::Held(report, None) = standing(&cluster, None) else { panic!("{:?}", standing(&cluster, None)) };
    let advised = format!("{UID}/2026-11-22T18:00:00Z");
    assert!(report.message.contains(&format!("set the annotation to {advised:?}")), "{}", report.message);
    annotate(&mut cluster, keys::PAUSED_BY_SLEEP, &advised);
    assert_eq!(standing(&cluster, None), Standing::Orphaned(None, Phase::Dehydrated));

    pause(&mut cluster, (OURS.0, "u-2/2026-11-22T18:00:00Z"));
    let rebuilt = Record { rebuilt: true, ..record("u-2", Phase::Dehydrated) };
    assert!(matches!(standing(&cluster, Some(Ok(&rebuilt))), Standing::Held(_, Some(Phase::Dehydrated))));
}

/// A condition that holds the cluster keeps its phase, and the advice in it works.
#[test]
fn a_held_cluster_keeps_its_phase_and_goes_on_when_the_advice_is_followed() {
    // Of a Cluster that was restored with its record, without its status.
    let restored = Some((OURS.0, "u-2/2026-11-22T18:00:00Z"));
    for (detail, paused) in [
        (None, None),
        (None, Some(OURS)),
        (None, restored),
        (Some(Phase::Draining), None),
        (Some(Phase::Dehydrated), Some(OURS)),
    ] {
        let mut cluster = up_to_date();
        confirm(&mut cluster, detail);
        if let Some(named) = paused {
            pause(&mut cluster, named);
        }
        let phase = detail.or(paused.map(|_| Phase::Dehydrated));
        let mut record = record("u-2", Phase::Dehydrated);
        for _ in 0..2 {
            let Standing::Held(report, under_way) = standing(&cluster, Some(Ok(&record))) else { panic!("not held") };
            assert_eq!(under_way, phase);
            let place = "ConfigMap cluster-abc/hibernate-record, key record.json: ";
            let in_phase = phase.map(|phase| format!("in phase {phase}: ")).unwrap_or_default();
            let found = "it is of the Cluster with UID \"u-2\", and this Cluster has UID \"u-1\": no";
            assert!(report.message.starts_with(&format!("{in_phase}{place}{found}")), "{}", report.message);
            assert_eq!(
                (report.reason.as_str(), report.message.contains("set its field uid to \"u-1\"")),
                ("RecordForeign", phase.is_some())
            );
            assert_eq!(report.dehydrated, detail == Some(Phase::Dehydrated));
            super::world::say(&mut cluster, Some(report));
            assert_eq!(super::super::phase(&cluster), phase);
        }
        // "delete it", or "set its field uid".
        assert!(matches!(
            (standing(&cluster, None), phase),
            (Standing::Absent, None) | (Standing::Orphaned(None, _), Some(_))
        ));
        record.uid = UID.to_owned();
        assert_eq!(matches!(standing(&cluster, Some(Ok(&record))), Standing::InForce(_)), phase.is_some());
    }
}

/// What our pause has left makes no later pause ours, although the controller has not removed it yet.
#[test]
fn a_pause_that_follows_the_end_of_ours_is_of_another_client() {
    let mut world = World::new();
    let before = world.counts();
    world.want(Power::Hibernating);
    world.run(200);
    world.cluster.spec.pause = false;
    world.run(1);
    world.cluster.spec.pause = true;
    world.run(300);
    assert_eq!((world.phase(), world.counts(), world.cluster.spec.pause), (None, before, true), "{world:#?}");
}

/// The protection came while the cluster fell asleep, or slept.
#[test]
fn a_protection_undoes_a_sleep_that_is_under_way_and_leaves_one_that_is_complete() {
    for passes in 0..120 {
        let mut world = World::new();
        let before = world.counts();
        world.want(Power::Hibernating);
        world.run(passes);
        let asleep = world.phase() == Some(Phase::Dehydrated);
        annotate(&mut world.cluster, common::PROTECTED, "true");
        world.run(300);
        if asleep {
            assert_eq!(world.phase(), Some(Phase::Dehydrated), "after {passes}");
            world.raised = (passes + 300..passes + 400).collect();
            world.run(100);
            assert_eq!(world.control_plane[&workload("scheduler")], 1, "what another client raises stays");
            continue;
        }
        assert_eq!((world.phase(), world.counts()), (Some(Phase::Preflight), before), "after {passes}: {world:#?}");
        assert!(!world.cluster.spec.pause && world.record.is_none());
        // The request stands: the sleep begins once nothing keeps the cluster awake.
        world.cluster.metadata.annotations = None;
        world.run(300);
        assert_eq!(world.phase(), Some(Phase::Dehydrated), "after {passes}");
    }
}

/// The status of the Cluster is lost. Before the pause it is held: see `a_record_stands_by_its_uid_and_our_condition`.
#[test]
fn a_cluster_wakes_as_it_was_although_its_condition_is_lost() {
    for passes in 0..120 {
        let mut world = World::new();
        let before = world.counts();
        world.want(Power::Hibernating);
        world.run(passes);
        if !world.cluster.spec.pause {
            continue;
        }
        confirm(&mut world.cluster, None);
        world.want(Power::Running);
        world.run(400);
        assert_eq!((world.phase(), world.cluster.spec.pause), (None, false), "after {passes}: {world:#?}");
        assert_eq!(world.counts(), before, "after {passes}");
    }
}
