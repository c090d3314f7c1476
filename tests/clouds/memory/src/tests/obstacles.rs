//! What a cloud refuses for long: before a sleep, in the middle of it, and in a wake.

use cloud_recreate::Obstacle;

use super::*;

/// What stands in the way of one machine is found before the first one is paused, and a list shows the same.
#[test]
fn nothing_is_paused_while_a_machine_cannot_sleep() {
    let rescue = || Obstacle::new(Obstacle::STATUS, "its status is RESCUE");
    for (status, shown, code) in [
        (Status::Error, None, "Status"),
        (Status::Odd("RESCUING".to_owned()), None, "Status"),
        (Status::Build, Some(rescue()), "Status"),
        (Status::Active, Some(Obstacle::new("Locked", "it is locked")), "Locked"),
        (Status::Off, Some(Obstacle::new("FlavorMissing", "its flavor is gone")), "FlavorMissing"),
        (Status::Busy, None, "Busy"),
    ] {
        let mut world = World::new();
        {
            let mut cloud = world.account.cloud();
            cloud.force("demo", &machine(2), status.clone());
            cloud
                .servers
                .values_mut()
                .for_each(|server| server.builds = u64::from(server.status == Status::Build) * 99);
            cloud.obstacle = shown.map(|why| (machine(2), why));
        }
        for _ in 0..4 {
            let refused = world.refused();
            assert!(matches!(refused.as_slice(), [one] if one.id == machine(2) && one.code == code), "{refused:?}");
            let found = world.found();
            let shown: Vec<_> = found.instances.iter().filter_map(|i| i.obstacle.as_deref()).collect();
            assert!(matches!(shown.as_slice(), [one] if one.starts_with(&format!("{code}: "))), "{shown:?}");
            world.happens(Happens::Time);
        }
        {
            let mut cloud = world.account.cloud();
            let active = cloud.servers("demo").filter(|(_, s)| s.status == Status::Active && s.machine != machine(2));
            assert_eq!((active.count(), cloud.records.len(), cloud.images.len()), (MACHINES - 1, 0, 0), "{status:?}");
            cloud.obstacle = None;
            cloud.force("demo", &machine(2), Status::Active);
        }
        assert_eq!(world.ends(), Ok(()), "{status:?}");
    }
}

/// What comes up once machines are paused brings all of them back, at whatever step, and stays named until the next try.
#[test]
fn a_sleep_that_cannot_go_on_brings_all_back() {
    for passes in 1..5 {
        let mut world = World::new();
        (0..passes).for_each(|_| world.happens(Happens::Pass));
        if world.account.cloud().records.values().any(|record| record.text.contains("\"sealed\":true")) {
            continue; // they may be given up
        }
        world.account.cloud().obstacle = Some((machine(2), Obstacle::new("Locked", "it is locked")));
        for _ in 0..4 {
            let refused = world.refused();
            assert!(refused.iter().any(|r| r.id == machine(2) && r.code == "Locked"), "{passes}: {refused:?}");
            world.happens(Happens::Time);
        }
        {
            let mut cloud = world.account.cloud();
            assert!(cloud.servers("demo").all(|(_, s)| s.status == Status::Active), "{passes}: {cloud:?}");
            assert_eq!(cloud.images("demo").count(), 0, "{passes}");
            cloud.obstacle = None;
        }
        assert_eq!(world.ends(), Ok(()), "{passes}");
    }
}

/// A request that fails once, at whatever step: with and without a time without passes that is longer than a sleep is
/// patient.
#[test]
fn one_failed_request_ends_no_sleep() {
    for (at, mishap) in (0..14).flat_map(|at| MISHAPS.map(|mishap| (at, mishap))) {
        for pause in [0, 2, 4] {
            let mut world = World::new();
            world.happens(Happens::Dies(at, mishap));
            (0..pause).for_each(|_| world.happens(Happens::Time));
            for _ in 0..12 {
                world.pass();
                let cloud = world.account.cloud();
                let is_given_up = cloud.records.values().any(|record| record.text.contains("\"failed\":{"));
                assert!(!is_given_up, "{mishap:?} at request {at}, {pause}");
                drop(cloud);
                world.account.cloud().tick();
            }
            assert_eq!(world.account.cloud().unlike_asleep("demo", &machines()), [""; 0], "{mishap:?} at request {at}");
        }
    }
}

/// A server that its owner or the cloud works on: waited for before the first pause, and for a minute after it.
#[test]
fn a_busy_server_leaves_nobody_paused() {
    let mut world = World::new();
    world.happens(Happens::Pass);
    world.account.cloud().force("demo", &machine(2), Status::Busy);
    let mut paused = 0;
    for tick in 0..20 {
        let refused = world.refused();
        world.happens(Happens::Time);
        let cloud = world.account.cloud();
        let is_paused = cloud.servers("demo").any(|(_, s)| !matches!(s.status, Status::Active | Status::Busy));
        paused = if is_paused { paused + 1 } else { 0 };
        assert!(TICK * paused <= std::time::Duration::from_mins(3), "paused for {paused} ticks");
        assert!(is_paused || refused.iter().any(|r| r.code == "Busy" && r.id == machine(2)), "{tick}: {refused:?}");
    }
    world.account.cloud().force("demo", &machine(2), Status::Active);
    assert_eq!(world.ends(), Ok(()));
}

/// Its image was deleted while the cluster slept: the advice of the message works.
#[test]
fn a_cluster_goes_on_without_a_machine_whose_image_is_gone() {
    let mut world = World::new();
    assert_eq!(world.ends(), Ok(()));
    world.account.cloud().images.retain(|_, image| image.machine != machine(2));
    world.intent = Intent::Awake;
    (0..8).for_each(|_| world.happens(Happens::Pass));
    world.intent = Intent::Asleep;
    let refused = world.refused();
    assert!(
        matches!(refused.as_slice(), [one] if one.message.contains("delete the Secret with the record")),
        "{refused:?}"
    );
    world.account.cloud().records.clear();
    let asleep = |world: &World| {
        let cloud = world.account.cloud();
        (cloud.servers("demo").count(), cloud.images("demo").count())
    };
    (0..12).for_each(|_| world.happens(Happens::Pass));
    assert_eq!(asleep(&world), (0, MACHINES - 1));
    world.intent = Intent::Awake;
    (0..12).for_each(|_| world.happens(Happens::Pass));
    assert_eq!(asleep(&world).0, MACHINES - 1);
}

/// Images that a quota refuses: named in every pass, all run again within three minutes, and the next tries come later
/// and later.
#[test]
fn a_quota_that_is_used_up_leaves_nobody_paused() {
    let mut world = World::new();
    world.account.cloud().quota = Some((1, 99));
    let (mut paused, mut tries) = (0, Vec::new());
    for tick in 0..120 {
        let refused = world.refused();
        world.happens(Happens::Time);
        let cloud = world.account.cloud();
        let is_paused = cloud.servers("demo").any(|(_, s)| s.status != Status::Active);
        if is_paused && paused == 0 {
            tries.push(tick);
        }
        paused = if is_paused { paused + 1 } else { 0 };
        assert!(TICK * paused <= std::time::Duration::from_mins(3), "paused for {paused} ticks");
        assert!(paused == 1 || refused.iter().any(|r| r.code == "QuotaExceeded"), "{tick}: {refused:?}");
    }
    let pauses: Vec<_> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.len() > 1 && pauses.is_sorted_by(|a, b| a < b), "{tries:?}");
    world.account.cloud().quota = None;
    assert_eq!(world.ends(), Ok(()));
}

/// A refusal by the cloud itself is certain: it is named in every pass, and the next pass asks again.
#[test]
fn a_create_that_is_refused_is_named_until_it_succeeds() {
    let mut world = World::new();
    assert_eq!(world.ends(), Ok(()));
    world.intent = Intent::Awake;
    world.account.cloud().quota = Some((99, 1));
    for _ in 0..6 {
        let refused: Vec<_> = world.refused().into_iter().map(|r| (r.id, r.code)).collect();
        assert_eq!(refused.len(), MACHINES - 1, "{refused:?}");
        world.happens(Happens::Time);
    }
    world.account.cloud().quota = None;
    world.pass();
    assert_eq!(world.account.cloud().servers("demo").count(), MACHINES, "the next pass makes them");
    assert_eq!(world.ends(), Ok(()));
}

/// Its image may not be used for now: it is named, kept, and used once it may.
#[test]
fn an_image_that_is_deactivated_is_named_and_kept() {
    let mut world = World::new();
    assert_eq!(world.ends(), Ok(()));
    let set = |world: &World, status| {
        let mut cloud = world.account.cloud();
        let image = cloud.images.values_mut().find(|image| image.machine == machine(0)).unwrap();
        image.status = status;
    };
    set(&world, ImageStatus::Withheld);
    world.account.cloud().records.clear();
    for intent in [Intent::Asleep, Intent::Awake] {
        world.intent = intent;
        for _ in 0..6 {
            world.happens(Happens::Pass);
        }
        let found = world.found();
        assert_eq!(found.unknown(), ["demo-master-0 (IMAGE-DEACTIVATED)"], "{intent:?}");
        assert!(found.instances[0].obstacle.as_ref().is_some_and(|why| why.starts_with("ImageDeactivated: ")));
    }
    // Asked to sleep in the middle of the wake: those that run are not paused for it.
    world.intent = Intent::Asleep;
    for _ in 0..4 {
        assert!(world.refused().iter().any(|r| r.id == machine(0)));
        world.happens(Happens::Time);
        assert!(world.account.cloud().servers("demo").all(|(_, s)| s.status == Status::Active));
    }
    set(&world, ImageStatus::Active);
    assert_eq!(world.ends(), Ok(()));
    world.intent = Intent::Awake;
    assert_eq!(world.ends(), Ok(()));
}

/// The object that has put the machines to sleep is gone, and another one names the same machines: that is said, with
/// the name under which they wake.
#[test]
fn a_cluster_that_was_made_again_under_another_name_is_told_whose_record_it_is() {
    let mut world = World::new();
    assert_eq!(world.ends(), Ok(()));
    world.account.cloud().records.clear();
    let own = world.target.clone();
    "again".clone_into(&mut world.target.cluster.name);
    let driver = world.account.planner();
    let found = driver.list(&world.target, Priority::Idle).now_or_never().unwrap();
    let why = found.unwrap_err();
    assert!(why.message.starts_with("RecordElsewhere: ") && why.message.contains("ns/demo, which"), "{why}");
    assert_eq!(why.kind, CloudErrorKind::Invalid);
    world.target = own;
    world.intent = Intent::Awake;
    assert_eq!(world.ends(), Ok(()), "as the message says");
}
