//! A user cluster in memory that a sleep and a wake run through, and what single situations decide.

mod claims;
mod table;
mod world;

use proptest::prelude::*;

use self::world::World;
use super::*;

#[test]
fn a_cluster_sleeps_and_wakes_as_it_was() {
    let mut world = World::new();
    let before = world.counts();
    world.want(Desired::Hibernating);
    world.run(200);
    assert_eq!(world.phase(), Some(Phase::Dehydrated), "{world:#?}");
    assert!(world.machinery.machines.is_empty() && world.machinery.nodes.is_empty());
    assert!(world.cluster.spec.pause && world.control_plane.values().all(|count| *count == 0));
    world.want(Desired::Running);
    world.run(200);
    assert_eq!((world.phase(), world.counts()), (None, before), "{world:#?}");
    assert!(!world.cluster.spec.pause && world.cron_jobs.iter().all(|job| !job.suspended));
}

proptest! {
    /// Rows 19 to 23: whenever the cluster is deleted, and whenever the controller dies, KKP finds an API server that answers, a Node
    /// where volumes have to go, and no pause.
    #[test]
    fn deleted_anywhere_kkp_can_clean_up(
        kills in proptest::collection::vec(0usize..12, 0..40), passes in 0usize..160, volumes in 0u32..2,
    ) {
        let mut world = World::new();
        (world.kills, world.volumes) = (kills, volumes);
        world.want(Desired::Hibernating);
        world.run(passes);
        world.delete();
        world.run(600);
        prop_assert_eq!(world.phase(), None, "{:#?}", world);
        prop_assert!(!world.cluster.spec.pause && world.api_answers());
        prop_assert!(volumes == 0 || !world.machinery.nodes.is_empty());
    }

    /// Whenever the controller dies, and whenever the user changes their mind: it ends as the last request says, nothing is lost, and no
    /// instance is left behind by a pause.
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
            world.want(if desired { Desired::Hibernating } else { Desired::Running });
            world.run(passes);
            desired = !desired;
        }
        world.want(if asleep { Desired::Hibernating } else { Desired::Running });
        world.run(600);
        if asleep {
            prop_assert_eq!(world.phase(), Some(Phase::Dehydrated));
            prop_assert!(world.machinery.machines.is_empty());
            world.want(Desired::Running);
            world.run(600);
        }
        prop_assert_eq!(world.phase(), None);
        prop_assert_eq!(world.counts(), before);
        prop_assert!(!world.cluster.spec.pause);
    }
}
