//! One fault each, at every place where it may happen.

use super::*;

#[test]
fn a_process_may_die_at_any_request_of_a_sleep_and_of_a_wake() {
    for mishap in MISHAPS {
        for at in 0..16 {
            let mut world = World::new();
            for intent in [Intent::Asleep, Intent::Awake, Intent::Asleep, Intent::Awake] {
                world.intent = intent;
                for _ in 0..12 {
                    world.happens(Happens::Dies(at, mishap));
                    world.happens(Happens::Time);
                    world.happens(Happens::Arrives);
                }
                assert_eq!(world.ends(), Ok(()), "{intent:?} {mishap:?} at {at}");
            }
        }
    }
}

#[test]
fn what_fails_once_is_made_again() {
    for fails in ALL_FAILS {
        for fails_at in 0..14 {
            let mut world = World::new();
            for intent in [Intent::Asleep, Intent::Awake] {
                world.intent = intent;
                for pass in 0..14 {
                    if pass == fails_at {
                        world.happens(Happens::Fails(fails));
                    }
                    world.happens(Happens::Pass);
                }
                assert_eq!(world.ends(), Ok(()), "{intent:?}, {fails:?} at {fails_at}");
            }
        }
    }
}

/// A sleep whose images all fail is given up: all machines run again, no image is left, and the refusal names the
/// machine. Ten minutes later the sleep begins anew.
#[test]
fn a_sleep_without_images_is_given_up_and_tried_again() {
    for fails in [Fails::Image, Fails::ImageVanishes, Fails::ImageStays] {
        let mut world = World::new();
        let mut refused = Vec::new();
        for _ in 0..90 {
            world.account.cloud().fails = Some(fails);
            refused = world.refused();
            world.happens(Happens::Time);
            if !refused.is_empty() {
                break;
            }
        }
        let named = refused.iter().any(|r| r.id.starts_with("demo-") && r.code == "ImageFailed");
        assert!(named && refused[0].message.contains("2 times"), "{fails:?}: {refused:?}");
        world.account.cloud().fails = None;
        for _ in 0..4 {
            assert!(!world.refused().is_empty(), "{fails:?}: the failure stays visible");
            world.happens(Happens::Time);
        }
        {
            let cloud = world.account.cloud();
            assert!(cloud.servers("demo").all(|(_, s)| s.status == Status::Active), "{fails:?}: {cloud:?}");
            assert_eq!(cloud.images("demo").count(), 0, "{fails:?}");
        }
        assert_eq!(world.ends(), Ok(()), "{fails:?}");
    }
}

/// An image that is in use is tried once in a wake. It goes after the next sleep.
#[test]
fn an_image_in_use_goes_after_the_next_sleep() {
    let mut world = World::new();
    world.account.cloud().keeps_images_in_use = true;
    for round in 0..2 {
        for intent in [Intent::Asleep, Intent::Awake] {
            world.intent = intent;
            assert_eq!(world.ends(), Ok(()), "{intent:?} {round}");
            let before = world.account.requests();
            world.pass();
            assert_eq!(world.account.requests() - before, 2, "{intent:?}: lists only");
        }
        assert_eq!(world.account.cloud().images("demo").count(), MACHINES, "those of this wake");
    }
}

/// A machine that has its image stays asleep, whoever deleted its server.
#[test]
fn a_machine_with_an_image_survives_the_delete_of_its_server() {
    for softly in [false, true] {
        let mut world = World::new();
        while world.account.cloud().images("demo").filter(|(_, i)| i.status == ImageStatus::Active).count() < MACHINES {
            world.happens(Happens::Pass);
        }
        world.account.cloud().person_deletes("demo", &machine(0), softly);
        assert!(world.account.cloud().dropped.is_empty(), "it must not be lost");
        for intent in [Intent::Asleep, Intent::Awake] {
            world.intent = intent;
            assert_eq!(world.ends(), Ok(()), "{intent:?}, softly: {softly}");
        }
        assert_eq!(world.account.cloud().servers("demo").count(), MACHINES);
    }
}

/// Asleep, then one pass of a wake: all servers were asked for.
fn waking() -> World {
    let mut world = World::new();
    assert_eq!(world.ends(), Ok(()));
    world.intent = Intent::Awake;
    world.pass();
    assert_eq!(world.account.cloud().servers("demo").count(), MACHINES);
    world
}

/// The creates of a former leader arrive beside ours: all are accepted, and each loser takes the ports with it, whatever
/// was done meanwhile.
#[test]
fn of_two_creates_one_server_is_left_with_all_ports() {
    for passes in [0, 1, 4, 8] {
        let mut world = waking();
        {
            let mut cloud = world.account.cloud();
            let made: Vec<_> =
                cloud.servers("demo").map(|(_, s)| (s.machine.clone(), s.cycle.clone().unwrap())).collect();
            for (machine, cycle) in made {
                let image = cloud.images("demo").find(|(_, i)| i.machine == machine).map(|(id, _)| id.clone()).unwrap();
                let attributes = ServerAttributes { tagged: true, bound: true };
                let request = cloud_recreate::Request::CreateServer { machine, image, cycle, attributes };
                cloud.execute(Request::Plan { infra_id: "demo".to_owned(), request }).unwrap();
            }
        }
        for _ in 0..2 {
            world.happens(Happens::Time);
            (0..passes).for_each(|_| drop(world.pass()));
        }
        if passes == 0 {
            let cloud = world.account.cloud();
            let active = cloud.servers("demo").filter(|(_, s)| s.status == Status::Active).count();
            let bound = cloud.servers("demo").filter(|(id, s)| cloud.is_bound(id, s)).count();
            assert_eq!((active, bound), (MACHINES, 0), "the losers have unbound the winners' ports");
        }
        assert_eq!(world.ends(), Ok(()), "{passes} passes");
    }
}

/// The last request of a former leader arrives at any point of what the next leader does, while that dies, too.
#[test]
fn a_late_request_does_no_harm_wherever_it_arrives() {
    let scenario = |passes: usize, late: u8, settles: bool, then: usize, dies: u8| {
        let mut world = World::new();
        (0..passes).for_each(|_| world.happens(Happens::Pass));
        world.intent = Intent::Awake;
        world.happens(Happens::Dies(late, Mishap::Late));
        (0..12).filter(|_| settles).for_each(|_| drop(world.pass()));
        world.intent = Intent::Asleep;
        world.pass();
        world.pass();
        world.happens(Happens::Time);
        (0..then).for_each(|_| drop(world.pass()));
        world.happens(Happens::Dies(dies, Mishap::Before));
        world.happens(Happens::Arrives);
        let case = format!("{passes} passes, late at {late}, settles: {settles}, {then} passes, dies at {dies}");
        assert_eq!(world.account.cloud().violations(), [""; 0], "{case}");
        for intent in [Intent::Asleep, Intent::Awake] {
            world.intent = intent;
            assert_eq!(world.ends(), Ok(()), "{intent:?}: {case}");
        }
    };
    for settles in [false, true] {
        for passes in 1..6 {
            for late in 3..9 {
                for then in 0..4 {
                    (3..9).for_each(|dies| scenario(passes, late, settles, then, dies));
                }
            }
        }
    }
}

/// Asleep is not reported while a create may still arrive.
#[test]
fn a_sleep_waits_for_creates_under_way() {
    for late in 5..8 {
        let mut world = World::new();
        assert_eq!(world.ends(), Ok(()));
        world.intent = Intent::Awake;
        world.happens(Happens::Dies(late, Mishap::Late));
        world.intent = Intent::Asleep;
        assert_eq!(world.ends(), Ok(()));
        world.happens(Happens::Arrives);
        assert_eq!(world.account.cloud().servers("demo").count(), 0, "late at {late}");
    }
}

/// A create that the cloud has answered with an error is not under way: the next pass sends it again.
#[test]
fn a_create_that_was_not_done_is_repeated_at_once() {
    let mut world = World::new();
    assert_eq!(world.ends(), Ok(()));
    world.intent = Intent::Awake;
    // Lists, the record twice, its write; then the first create.
    world.account.dies(Some((5, Mishap::Fails)));
    assert_eq!(world.pass(), None, "the call failed");
    world.account.dies(None);
    world.pass();
    assert_eq!(world.account.cloud().servers("demo").count(), MACHINES, "at the same time");
}

/// A new server that has run and broke has more than its image: it is named, and nothing is done to it.
#[test]
fn a_new_server_that_broke_after_it_ran_is_left_alone() {
    let mut world = waking();
    world.happens(Happens::Time);
    world.happens(Happens::Time);
    world.account.cloud().force("demo", &machine(0), Status::Error);
    for intent in [Intent::Awake, Intent::Asleep] {
        world.intent = intent;
        for _ in 0..8 {
            world.happens(Happens::Pass);
        }
        assert_eq!(world.found().unknown(), ["demo-master-0 (ERROR)"], "{intent:?}");
        let cloud = world.account.cloud();
        assert!(cloud.servers("demo").any(|(_, s)| s.machine == machine(0) && s.status == Status::Error), "{intent:?}");
    }
}

/// Someone removes a machine from the record: its image is all that is left of it.
#[test]
fn the_image_of_a_machine_that_nothing_names_is_never_deleted() {
    let mut world = World::new();
    assert_eq!(world.ends(), Ok(()));
    let entry = world.target.ledger.read().now_or_never().unwrap().unwrap().unwrap();
    let mut record: cloud_recreate::Record<ServerAttributes> = Format::read(&entry.text).unwrap();
    record.machines.remove(&machine(1));
    world.target.ledger.write(&record.text(), None, Some(&entry.version)).now_or_never().unwrap().unwrap();
    world.intent = Intent::Awake;
    for _ in 0..12 {
        world.happens(Happens::Pass);
    }
    let left: Vec<_> = world.account.cloud().images("demo").map(|(_, image)| image.machine.clone()).collect();
    assert_eq!(left, [machine(1)], "the others run, and need theirs no more");
    world.intent = Intent::Asleep;
    for _ in 0..12 {
        world.happens(Happens::Pass);
    }
    assert_eq!(world.account.cloud().images("demo").filter(|(_, i)| i.machine == machine(1)).count(), 1);
}

/// A server goes by its ID, whatever it is called now.
#[test]
fn a_server_that_was_renamed_is_still_its_machine() {
    for passes in 1..4 {
        let mut world = World::new();
        (0..passes).for_each(|_| world.happens(Happens::Pass));
        for server in world.account.cloud().servers.values_mut() {
            if server.machine == machine(1) {
                "renamed".clone_into(&mut server.machine);
            }
        }
        let found = world.found();
        let names: Vec<&String> = found.instances.iter().map(|i| &i.id).collect();
        assert_eq!(names.len(), MACHINES, "{passes}: {names:?}");
        assert!(!found.all(InstanceState::Stopped), "{passes}");
        for _ in 0..12 {
            world.happens(Happens::Pass);
        }
        assert!(world.found().all(InstanceState::Stopped) && world.account.cloud().servers("demo").count() == 0);
        assert_eq!(world.account.cloud().violations(), [""; 0]);
    }
}

/// After a sleep that was given up, all machines run again, even if the controller tries one of them only.
#[test]
fn a_sleep_that_was_given_up_leaves_nobody_paused() {
    let mut world = World::new();
    let mut refused = Vec::new();
    while refused.is_empty() {
        world.account.cloud().fails = Some(Fails::Image);
        refused = world.refused();
        world.happens(Happens::Time);
    }
    let driver = world.account.planner();
    let ids = [machine(0)];
    driver.advance(&world.target, shared::cloud::Verb::Stop, &ids).now_or_never().unwrap().unwrap();
    assert!(world.account.cloud().servers("demo").all(|(_, s)| s.status == Status::Active));
}

/// Two servers of one name: nothing is touched, and both are named.
#[test]
fn two_servers_of_one_name_are_left_alone() {
    let world = World::new();
    world.account.cloud().boot("demo", &machine(0));
    for _ in 0..6 {
        world.pass();
        world.account.cloud().tick();
    }
    let found = world.found();
    assert_eq!(found.unknown(), ["demo-master-0 (SEVERAL-SERVERS)"]);
    assert_eq!(world.account.cloud().servers("demo").count(), MACHINES + 1);
}

/// A person deletes the image of a sleeping machine: it no longer counts as asleep, and nothing is made of it.
#[test]
fn a_machine_without_its_image_is_named() {
    let mut world = World::new();
    assert_eq!(world.ends(), Ok(()));
    let image = world.account.cloud().images("demo").next().map(|(id, _)| id.clone()).unwrap();
    world.account.cloud().images.remove(&image);
    world.intent = Intent::Awake;
    for _ in 0..6 {
        world.happens(Happens::Pass);
    }
    let found = world.found();
    assert_eq!(found.unknown(), ["demo-master-0 (IMAGE-MISSING)"]);
    assert_eq!(found.in_state(&[InstanceState::Running]).len(), MACHINES - 1);
    assert!(world.target.ledger.read().now_or_never().unwrap().unwrap().is_some(), "the record stays");
}

/// A request to pause arrives after the machine has been imaged and has run again: that image is out of date.
#[test]
fn a_machine_that_is_paused_late_is_imaged_anew() {
    let mut world = World::new();
    let active = |world: &World| {
        world.account.cloud().images("demo").filter(|(_, image)| image.status == ImageStatus::Active).count()
    };
    for _ in 0..10 {
        if active(&world) == MACHINES {
            break;
        }
        world.happens(Happens::Pass);
    }
    assert_eq!(active(&world), MACHINES);
    let all_run = |world: &World| world.account.cloud().servers("demo").all(|(_, s)| s.status == Status::Active);
    assert!(!all_run(&world), "they wait for the record to be sealed");
    world.intent = Intent::Awake;
    for _ in 0..5 {
        if !all_run(&world) {
            world.pass();
        }
    }
    assert!(all_run(&world));
    world.happens(Happens::Time);
    let server = world.account.cloud().servers("demo").next().map(|(id, _)| id.clone()).unwrap();
    let request = cloud_recreate::Request::Pause(server);
    world.account.cloud().execute(Request::Plan { infra_id: "demo".to_owned(), request }).unwrap();
    for intent in [Intent::Asleep, Intent::Awake] {
        world.intent = intent;
        assert_eq!(world.ends(), Ok(()), "{intent:?}");
    }
}

/// A sleeping cluster with a server that a request has made of an older image: it arrives far later than it can, after
/// the machine has run, and has been imaged and deleted again.
fn with_a_stray() -> World {
    let mut world = World::new();
    assert_eq!(world.ends(), Ok(()));
    world.intent = Intent::Awake;
    let (image, of) =
        world.account.cloud().images("demo").next().map(|(id, image)| (id.clone(), image.clone())).unwrap();
    let attributes = ServerAttributes { tagged: true, bound: true };
    let (machine, cycle) = (of.machine, of.cycle);
    let late = cloud_recreate::Request::CreateServer { machine, image, cycle, attributes };
    let until = |world: &World, state| {
        for _ in 0..30 {
            let driver = world.account.planner();
            let found = cloud_conformance::inventory(&driver, &world.target).now_or_never().unwrap().unwrap();
            if found.all(state) {
                return;
            }
            world.pass();
            world.account.cloud().tick();
        }
        panic!("{state} is not reached");
    };
    until(&world, InstanceState::Running);
    world.intent = Intent::Asleep;
    until(&world, InstanceState::Stopped);
    world.account.cloud().execute(Request::Plan { infra_id: "demo".to_owned(), request: late }).unwrap();
    assert_eq!(world.account.cloud().servers("demo").count(), 1, "the late request has made one");
    world.happens(Happens::Time);
    let found = world.found();
    let stray: Vec<_> = found.instances.iter().filter(|i| i.due).map(|i| i.state).collect();
    assert_eq!(stray, [InstanceState::Stopping], "it runs, but it is not the machine");
    world
}

#[test]
fn a_server_that_is_made_late_of_an_older_image_is_deleted_asleep_and_awake() {
    for intents in [&[Intent::Asleep, Intent::Awake][..], &[Intent::Awake, Intent::Asleep, Intent::Awake]] {
        let mut world = with_a_stray();
        for intent in intents {
            world.intent = *intent;
            assert_eq!(world.ends(), Ok(()), "{intent:?} of {intents:?}");
        }
    }
}

#[test]
fn the_referee_sees_what_a_careless_driver_does() {
    let world = World::new();
    let id = world.account.cloud().servers("demo").next().map(|(id, _)| id.clone()).unwrap();
    let request = cloud_recreate::Request::DeleteServer(id);
    world.account.cloud().execute(Request::Plan { infra_id: "demo".to_owned(), request }).unwrap();
    assert!(world.account.cloud().violations()[0].starts_with("I1"), "a server without an image is lost");
}
