//! Records that are gone, or another program's.

use super::*;

/// Someone deletes the record at any time of a sleep: the copies on the images are as good. Without one of them nothing
/// is touched, and the error names the machine.
#[test]
fn a_record_that_is_gone_is_made_of_the_copies_on_the_images() {
    for lost_at in 0..24 {
        let mut world = World::new();
        for pass in 0..24 {
            if pass == lost_at {
                world.account.cloud().records.clear();
            }
            world.happens(Happens::Pass);
        }
        assert_eq!(world.ends(), Ok(()), "lost at {lost_at}");
        world.account.cloud().records.clear();
        assert_eq!(world.ends(), Ok(()), "lost asleep");
        assert_eq!(world.account.cloud().records.len(), 1, "it is stored again, asleep");
        world.account.cloud().records.clear();
        world.intent = Intent::Awake;
        assert_eq!(world.ends(), Ok(()), "lost asleep, and at {lost_at}");
    }
}

/// Another program has put the cluster to sleep: it wakes by that program's record, whenever the process dies and
/// whichever images are ours by then.
#[test]
fn another_programs_record_wakes_a_cluster_whenever_the_process_dies() {
    for mishap in [Mishap::Before, Mishap::After, Mishap::Late] {
        for at in 0..14 {
            for first in 0..3 {
                let mut world = World::new();
                assert_eq!(world.ends(), Ok(()));
                world.account.cloud().is_anothers("ns/demo");
                world.intent = Intent::Awake;
                (0..first).for_each(|_| world.happens(Happens::Pass));
                world.happens(Happens::Dies(at, mishap));
                world.happens(Happens::Arrives);
                assert_eq!(world.ends(), Ok(()), "{mishap:?} at {at} of pass {first}");
                assert_eq!(world.account.cloud().violations(), [""; 0], "{mishap:?} at {at} of pass {first}");
            }
        }
    }
}

#[test]
fn without_a_copy_of_each_machine_nothing_is_touched() {
    let world = World::new();
    assert_eq!(world.ends(), Ok(()));
    world.account.cloud().records.clear();
    let lost = {
        let mut cloud = world.account.cloud();
        let image = cloud.images.values_mut().next().unwrap();
        image.copy = None;
        image.machine.clone()
    };
    let before = world.account.cloud().images.clone();
    let target = target(&world.account, "demo");
    let driver = MemoryBench(world.account.clone()).driver(Arc::new(|| true));
    for verb in [Verb::Start, Verb::Stop] {
        let listed = driver.list(&target, Priority::Waking).now_or_never().unwrap();
        let advanced = driver.advance(&target, verb, std::slice::from_ref(&lost)).now_or_never().unwrap();
        for error in [listed.map(drop).unwrap_err(), advanced.map(drop).unwrap_err()] {
            assert!(error.message.starts_with("RecordMissing") && error.message.contains(&lost), "{error}");
        }
    }
    assert_eq!(world.account.cloud().images, before);
    assert!(world.account.cloud().servers.is_empty());
}
