//! The conformance suite, and what only a recreate driver can do wrong: crashes, failures and changes of mind at any
//! request.

use std::sync::Arc;

use cloud_common::Permit;
use cloud_conformance::{Bench, Fault, Next, Wish, conformance_tests};
use futures::FutureExt;
use proptest::prelude::*;
use shared::cloud::{CloudErrorKind, ClusterRef, Driver, InstanceState, Target};

use super::*;

/// A cloud in memory on the bench.
struct MemoryBench(Account);

fn target(account: &Account, infra_id: &str) -> Target {
    let names = |text: &str| text.to_owned();
    let cluster = ClusterRef {
        namespace: names("ns"),
        name: names(infra_id),
        infra_id: names(infra_id),
        ..ClusterRef::default()
    };
    Target { cluster, ledger: Arc::new(MemoryLedger::new(account.clone(), format!("ns/{infra_id}"))) }
}

impl Bench for MemoryBench {
    fn driver(&self, permit: Permit) -> Arc<dyn Driver> {
        Arc::new(Recreate::new(self.0.by(permit)))
    }

    fn cluster(&self, infra_id: &str, machines: usize) -> Target {
        for machine in 0..machines {
            self.0.cloud().boot(infra_id, &format!("{infra_id}-worker-{machine}"));
        }
        target(&self.0, infra_id)
    }

    fn finish(&self) {
        self.0.cloud().tick();
        assert_eq!(self.0.cloud().violations(), [""; 0]);
    }

    fn fault(&self, fault: Option<Fault>) {
        match fault {
            None => self.0.trouble(None, false, None),
            Some(Fault::Throttled) => self.0.trouble(Some(CloudErrorKind::Throttled), false, None),
            Some(Fault::Unavailable) => self.0.trouble(Some(CloudErrorKind::Unavailable), false, None),
            Some(Fault::Denied) => self.0.trouble(Some(CloudErrorKind::Denied), false, None),
            Some(Fault::Silent) => self.0.trouble(None, true, None),
            Some(Fault::Refused(machine)) => self.0.trouble(None, false, Some(machine)),
        }
    }

    fn requests(&self) -> usize {
        self.0.requests()
    }

    fn running(&self, target: &Target) -> usize {
        let cloud = self.0.cloud();
        cloud.servers(&target.cluster.infra_id).filter(|(_, server)| server.status == Status::Active).count()
    }

    fn confuse(&self, target: &Target, id: &str) {
        self.0.cloud().confuse(&target.cluster.infra_id, id);
    }
}

conformance_tests!(MemoryBench(Account::new()));

const MACHINES: usize = 3;

/// One thing that happens to a cluster.
#[derive(Clone, Copy, Debug)]
enum Happens {
    /// A pass of the controller, and time.
    Pass,
    /// A pass whose process dies at its request of this number.
    Dies(u8, Mishap),
    /// Time without a pass.
    Time,
    /// The user wants the opposite.
    Mind,
    /// The next image or server that is finished fails.
    Fails,
    /// A request of a dead process arrives.
    Arrives,
}

fn happens() -> impl Strategy<Value = Happens> {
    let mishap = prop::sample::select(vec![Mishap::Before, Mishap::After, Mishap::Late]);
    prop_oneof![
        6 => Just(Happens::Pass),
        4 => (0u8..14, mishap).prop_map(|(at, mishap)| Happens::Dies(at, mishap)),
        2 => Just(Happens::Time),
        1 => Just(Happens::Mind),
        1 => Just(Happens::Fails),
        2 => Just(Happens::Arrives),
    ]
}

/// A world with one cluster, and who works on it.
struct World {
    account: Account,
    target: Target,
    wish: Wish,
}

impl World {
    fn new() -> Self {
        let bench = MemoryBench(Account::new());
        let target = bench.cluster("demo", MACHINES);
        Self { account: bench.0, target, wish: Wish::Asleep }
    }

    /// One pass by a new process. `None` if it died, or another writer was quicker.
    fn pass(&self) -> Option<Next> {
        let driver = Recreate::new(self.account.clone());
        let before = self.account.requests();
        let passed = cloud_conformance::pass(&driver, &self.target, self.wish).now_or_never();
        let requests = self.account.requests() - before;
        assert!(requests <= 12 + 4 * MACHINES, "I6: {requests} requests in one pass");
        passed?.ok().map(|(next, _)| next)
    }

    fn happens(&mut self, what: Happens) {
        match what {
            Happens::Pass => {
                self.pass();
                self.account.cloud().tick();
            }
            Happens::Dies(at, mishap) => {
                self.account.dies(Some((usize::from(at), mishap)));
                self.pass();
                self.account.dies(None);
            }
            Happens::Time => self.account.cloud().tick(),
            Happens::Mind => self.wish = if self.wish == Wish::Asleep { Wish::Awake } else { Wish::Asleep },
            Happens::Fails => self.account.cloud().fails_next = true,
            Happens::Arrives => self.account.deliver_late(),
        }
    }

    /// With a constant wish and a cloud that works, it ends.
    fn ends(&self) -> Result<(), Vec<String>> {
        self.account.cloud().fails_next = false;
        for _ in 0..60 {
            let next = self.pass();
            if next == Some(Next::Rest) {
                let cloud = self.account.cloud();
                let wrong = match self.wish {
                    Wish::Awake => cloud.unlike_awake("demo", MACHINES),
                    Wish::Asleep => cloud.unlike_asleep("demo", MACHINES),
                };
                return if wrong.is_empty() { Ok(()) } else { Err(wrong) };
            }
            self.account.cloud().tick();
        }
        let cloud = self.account.cloud();
        Err(vec![format!("I5: it does not end: {:?}", cloud.servers("demo").collect::<Vec<_>>())])
    }
}

#[test]
fn a_process_may_die_at_any_request_of_a_sleep_and_of_a_wake() {
    for mishap in [Mishap::Before, Mishap::After, Mishap::Late] {
        for at in 0..16 {
            let mut world = World::new();
            for wish in [Wish::Asleep, Wish::Awake, Wish::Asleep, Wish::Awake] {
                world.wish = wish;
                for _ in 0..12 {
                    world.happens(Happens::Dies(at, mishap));
                    world.happens(Happens::Time);
                    world.happens(Happens::Arrives);
                }
                assert_eq!(world.ends(), Ok(()), "{wish:?} {mishap:?} at {at}");
            }
        }
    }
}

#[test]
fn an_image_or_a_server_that_fails_is_made_again() {
    for fails_at in 0..14 {
        let mut world = World::new();
        for wish in [Wish::Asleep, Wish::Awake] {
            world.wish = wish;
            for pass in 0..14 {
                if pass == fails_at {
                    world.happens(Happens::Fails);
                }
                world.happens(Happens::Pass);
            }
            assert_eq!(world.ends(), Ok(()), "{wish:?}, failing at {fails_at}");
        }
    }
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
    world.wish = Wish::Awake;
    for _ in 0..5 {
        if !all_run(&world) {
            world.pass();
        }
    }
    assert!(all_run(&world));
    world.happens(Happens::Time);
    let server = world.account.cloud().servers("demo").next().map(|(id, _)| id.clone()).unwrap();
    world.account.cloud().execute(Request::Pause { server }).unwrap();
    for wish in [Wish::Asleep, Wish::Awake] {
        world.wish = wish;
        assert_eq!(world.ends(), Ok(()), "{wish:?}");
    }
}

/// A sleeping cluster with a server that a late request has made of an older image: it arrives after the machine has
/// run, and has been imaged and deleted again.
fn with_a_stray() -> World {
    let mut world = World::new();
    assert_eq!(world.ends(), Ok(()));
    world.wish = Wish::Awake;
    // A pass lists three times, and looks again before it acts.
    world.happens(Happens::Dies(6, Mishap::Late));
    let until = |world: &World, state| {
        for _ in 0..30 {
            let driver = Recreate::new(world.account.clone());
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
    world.wish = Wish::Asleep;
    until(&world, InstanceState::Stopped);
    world.happens(Happens::Arrives);
    assert_eq!(world.account.cloud().servers("demo").count(), 1, "the late request has made one");
    world.happens(Happens::Time);
    let driver = Recreate::new(world.account.clone());
    let found = cloud_conformance::inventory(&driver, &world.target).now_or_never().unwrap().unwrap();
    let stray: Vec<_> = found.instances.iter().filter(|i| i.due).map(|i| i.state).collect();
    assert_eq!(stray, [InstanceState::Stopping], "it runs, but it is not the machine");
    world
}

#[test]
fn a_server_that_is_made_late_of_an_older_image_is_deleted_asleep_and_awake() {
    for wishes in [&[Wish::Asleep, Wish::Awake][..], &[Wish::Awake, Wish::Asleep, Wish::Awake]] {
        let mut world = with_a_stray();
        for wish in wishes {
            world.wish = *wish;
            assert_eq!(world.ends(), Ok(()), "{wish:?} of {wishes:?}");
        }
    }
}

#[test]
fn the_referee_sees_what_a_careless_driver_does() {
    let world = World::new();
    let id = world.account.cloud().servers("demo").next().map(|(id, _)| id.clone()).unwrap();
    world.account.cloud().execute(Request::DeleteServer { server: id }).unwrap();
    assert!(world.account.cloud().violations()[0].starts_with("I1"), "a server without an image is lost");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    /// I1 to I7: whatever happens, nothing is lost, and it ends.
    #[test]
    fn nothing_is_lost_whatever_happens(all in prop::collection::vec(happens(), 1..60)) {
        let mut world = World::new();
        for what in all {
            world.happens(what);
            let violations = world.account.cloud().violations().to_vec();
            prop_assert!(violations.is_empty(), "{:?}", violations);
        }
        for _ in 0..2 {
            let ends = world.ends();
            prop_assert!(ends.is_ok(), "{:?}", ends);
            world.happens(Happens::Mind);
        }
    }
}
