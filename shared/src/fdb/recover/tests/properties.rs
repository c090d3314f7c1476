//! Runs that are interrupted, and looks that are repeated.

use crate::fdb::suspension::Stamp;
use proptest::prelude::*;
use serde_json::json;

use super::world::*;
use super::*;

proptest! {
    /// Killed before or after any step, however often, with the operator undoing the status now and then: it always
    /// ends, with the same world.
    #[test]
    fn however_often_it_is_interrupted_it_ends_the_same(
        events in proptest::collection::vec(0..8_u8, 0..40),
        services in any::<bool>(),
        skipped in any::<bool>(),
    ) {
        let mut world = World::suspended();
        if services {
            world.cluster["spec"]["routing"] = json!({ "publicIPSource": "service" });
            world.services = vec![service("storage-2", "storage")];
        }
        if skipped {
            world.groups()[1]["exclusionSkipped"] = json!(true);
        }
        let mut straight = world.clone();
        let record = straight.record(&["storage-1"]);
        straight.run(&record);

        let (mut done, mut record) = (RunState::default(), record);
        let mut undone = 0;
        for event in events {
            let Some(step) = world.steps(&record, done).unwrap().into_iter().next() else { break };
            match event {
                0 => {
                    // Killed, and run again.
                    done = RunState::default();
                    record = world.record(&["storage-1"]);
                    continue;
                }
                1 if undone < 3 && matches!(step, Step::Verify | Step::Await(_)) => {
                    // An operator that applies its status has overwritten ours.
                    undone += 1;
                    world.groups()[1]["removalTimestamp"] = json!(REMOVAL);
                    bump(&mut world.cluster);
                    continue;
                }
                _ => {}
            }
            if matches!(step, Step::Lists(_) | Step::Status(_)) {
                prop_assert_eq!(&world.cluster["spec"]["skip"], &json!(true), "edited while the operator works");
                prop_assert!(done.settled);
                prop_assert!(Stamp::of(&world.claims[0]).is_recovery(), "edited without a hold");
            }
            world.carry_out(&step, &mut done);
            if matches!(step, Step::Clear(..)) {
                break;
            }
        }
        let record = world.record(&["storage-1"]);
        if !record.groups.is_empty() {
            world.run(&record);
        }
        for world in [&mut world, &mut straight] {
            world.cluster["metadata"]["resourceVersion"] = json!("0");
            world.claims[0]["metadata"]["resourceVersion"] = json!("0");
            world.services.iter_mut().for_each(|service| service["metadata"]["resourceVersion"] = json!("0"));
        }
        prop_assert_eq!(world, straight);
    }

    /// Looking changes nothing, and the same look finds the same plan.
    #[test]
    fn the_same_facts_give_the_same_plan(settled in any::<bool>(), verified in any::<bool>(), include in any::<bool>()) {
        let (world, record) = begun();
        let done = RunState { settled, verified, ..RunState::default() };
        let plan = || world.with(|facts| remaining(facts, &record, include, done));
        prop_assert_eq!(plan(), plan());
        prop_assert_eq!(plan().unwrap().steps.iter().any(|step| matches!(step, Step::Include(..))), include);
    }
}
