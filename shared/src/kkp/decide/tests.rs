//! A user cluster in memory that a sleep and a wake run through, and what single situations decide.

mod case;
mod claims;
mod faults;
mod sleeps;
mod wakes;
mod world;

use std::collections::BTreeSet;

use proptest::prelude::*;
use strum::IntoEnumIterator as _;

use self::world::World;
use super::*;
use crate::power::Power;

/// As the tables in the comments number them.
#[test]
fn each_row_has_its_place() {
    let tables = Phase::iter().map(|phase| if phase.is_of_wake() { wake::rows(phase) } else { sleep::rows(phase) });
    let mut seen: BTreeSet<&str> = FIRST.iter().map(|(number, _)| *number).collect();
    for table in tables {
        let numbers: Vec<u32> = table.iter().map(|(number, _)| number[1..].parse().unwrap()).collect();
        assert!(numbers.iter().filter(|number| **number != 7).is_sorted(), "{numbers:?}");
        seen.extend(table.iter().map(|(number, _)| *number));
    }
    let all = (1..=3).map(|number| format!("F{number}"));
    let all = all.chain((1..=40).map(|number| format!("S{number}"))).chain((1..=19).map(|number| format!("W{number}")));
    let missing: Vec<String> = all.filter(|number| !seen.remove(number.as_str())).collect();
    assert!(missing.is_empty() && seen.is_empty(), "missing {missing:?}, unknown {seen:?}");
}

#[test]
fn a_cluster_sleeps_and_wakes_as_it_was() {
    let mut world = World::new();
    let before = world.counts();
    world.want(Power::Hibernating);
    world.run(200);
    assert_eq!(world.phase(), Some(Phase::Dehydrated), "{world:#?}");
    assert!(world.machinery.machines.is_empty() && world.machinery.nodes.is_empty());
    assert!(world.cluster.spec.pause && world.control_plane.values().all(|count| *count == 0));
    world.want(Power::Running);
    world.run(200);
    assert_eq!((world.phase(), world.counts()), (None, before), "{world:#?}");
    let suspended = world.cron_jobs.iter().map(|job| (job.suspended, job.ours));
    assert!(!world.cluster.spec.pause && suspended.eq([(false, false), (true, false)]), "{world:#?}");
}

/// Whether the controller sleeps on or wakes the cluster: what stands on the objects is enough, whichever phase has
/// lost its record.
#[test]
fn a_record_that_is_lost_in_any_phase_costs_nothing() {
    for (lost_in, later) in Phase::iter().flat_map(|phase| (0..4).map(move |later| (phase, later))) {
        let mut world = World::new();
        let before = (world.counts(), world.cron_jobs.clone());
        (world.stuck, world.refuses) = (lost_in == Phase::DrainTimedOut, lost_in == Phase::AwakePaused);
        world.want(Power::Hibernating);
        if lost_in.is_of_wake() {
            world.run(200);
            world.want(Power::Running);
        }
        for _ in 0..400 {
            if world.phase() == Some(lost_in) {
                break;
            }
            world.run(1);
        }
        assert_eq!(world.phase(), Some(lost_in), "{world:#?}");
        world.run(later);
        world.record = None;
        world.run(300);
        (world.stuck, world.refuses) = (false, false);
        world.want(Power::Running);
        world.run(400);
        assert_eq!((world.phase(), world.cluster.spec.pause), (None, false), "{lost_in} {later}: {world:#?}");
        assert_eq!((world.counts(), world.cron_jobs.clone()), before, "{lost_in} {later}");
    }
}

/// S24: KKP leaves a paused cluster alone, and the next sleep would take the pause for the end of this one.
#[test]
fn no_pause_outlives_a_drain_that_began_again_after_it() {
    for (desired, kills) in [Power::Hibernating, Power::Running].into_iter().flat_map(|one| [(one, 0), (one, 40)]) {
        let mut world = World::new();
        let before = world.counts();
        world.pause_and_raise();
        world.kills = (0..kills).map(|pass| pass % 5).collect();
        world.run(300);
        assert_eq!((world.phase(), world.cluster.spec.pause), (Some(Phase::DrainTimedOut), false), "{world:#?}");
        assert_eq!(world.counts(), before);
        world.stuck = false;
        world.want(desired);
        world.run(300);
        if desired == Power::Hibernating {
            assert_eq!(world.phase(), Some(Phase::Dehydrated), "{world:#?}");
            assert!(world.machinery.machines.is_empty() && world.control_plane.values().all(|count| *count == 0));
            world.want(Power::Running);
            world.run(300);
        }
        assert_eq!((world.phase(), world.cluster.spec.pause, world.counts()), (None, false, before), "{world:#?}");
    }
    // Nor does it wait for the Nodes of a wake that undoes the drain.
    for passes in 0..8 {
        let mut world = World::new();
        let before = world.counts();
        world.pause_and_raise();
        world.run(passes);
        world.want(Power::Running);
        world.run(1);
        assert_eq!(world.phase(), Some(Phase::StartingControlPlane), "after {passes}");
        world.run(300);
        assert_eq!((world.phase(), world.cluster.spec.pause, world.counts()), (None, false, before), "after {passes}");
    }
}

/// KKP's volumes go only where a Node runs (row 22), and a record that was rebuilt does not know whether there are any.
#[test]
fn a_cluster_that_is_deleted_without_its_record_gets_its_node() {
    let mut world = World::new();
    world.want(Power::Hibernating);
    world.run(200);
    world.record = None;
    world.run(10);
    world.delete();
    world.run(600);
    assert!(world.phase().is_none() && !world.cluster.spec.pause && !world.machinery.nodes.is_empty(), "{world:#?}");
}

proptest! {
    /// Rows 19 to 23: whenever the cluster is deleted, and whenever the controller dies, KKP finds an API server that
    /// answers, a Node where volumes have to go, and no pause.
    #[test]
    fn deleted_anywhere_kkp_can_clean_up(
        kills in proptest::collection::vec(0usize..12, 0..40), passes in 0usize..160, volumes in 0u32..2,
    ) {
        let mut world = World::new();
        (world.kills, world.volumes) = (kills, volumes);
        world.want(Power::Hibernating);
        world.run(passes);
        world.delete();
        world.run(600);
        prop_assert_eq!(world.phase(), None, "{:#?}", world);
        prop_assert!(!world.cluster.spec.pause && world.api_answers());
        prop_assert!(volumes == 0 || !world.machinery.nodes.is_empty());
    }

    /// Whenever the controller dies, and whenever the user changes their mind: it ends as the last request says,
    /// nothing is lost, and no instance is left behind by a pause.
    #[test]
    fn killed_anywhere_and_wanted_otherwise_it_ends_as_wanted(
        kills in proptest::collection::vec(0usize..12, 0..40), turns in proptest::collection::vec(1usize..60, 0..5), asleep: bool,
        raised in proptest::collection::vec(0usize..120, 0..3),
    ) {
        let mut world = World::new();
        let before = world.counts();
        world.kills = kills;
        world.raised = raised;
        let mut desired = asleep;
        for passes in turns {
            world.want(if desired { Power::Hibernating } else { Power::Running });
            world.run(passes);
            desired = !desired;
        }
        world.want(if asleep { Power::Hibernating } else { Power::Running });
        world.run(600);
        if asleep {
            prop_assert_eq!(world.phase(), Some(Phase::Dehydrated));
            prop_assert!(world.machinery.machines.is_empty());
            world.want(Power::Running);
            world.run(600);
        }
        prop_assert_eq!(world.phase(), None);
        prop_assert_eq!(world.counts(), before);
        prop_assert!(!world.cluster.spec.pause);
    }
}
