//! The conformance suite, and what only a recreate driver can do wrong: crashes, failures and changes of mind at any
//! request.

use std::sync::Arc;

use cloud_common::Permit;
use cloud_conformance::{Bench, Fault, Intent, Next, conformance_tests};
use cloud_recreate::ImageStatus;
use futures::FutureExt;
use proptest::prelude::*;
use shared::cloud::{CloudErrorKind, ClusterRef, Driver, InstanceState, Priority, Target, Verb};
use shared::record::Format;

use super::*;

mod faults;
mod obstacles;
mod records;

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
        Arc::new(self.0.by(permit).planner())
    }

    async fn cluster(&self, infra_id: &str, machines: usize) -> Target {
        for number in 0..machines {
            self.0.cloud().boot(infra_id, &cloud_conformance::machine(infra_id, number, machines));
        }
        target(&self.0, infra_id)
    }

    async fn finish(&self) {
        self.0.cloud().tick();
        assert_eq!(self.0.cloud().violations(), [""; 0]);
    }

    async fn fault(&self, fault: Option<Fault>) {
        match fault {
            None => self.0.trouble(None, false, None),
            Some(Fault::Throttled) => self.0.trouble(Some(CloudErrorKind::Throttled), false, None),
            Some(Fault::Unavailable) => self.0.trouble(Some(CloudErrorKind::Unavailable), false, None),
            Some(Fault::Denied) => self.0.trouble(Some(CloudErrorKind::Denied), false, None),
            Some(Fault::Silent) => self.0.trouble(None, true, None),
            Some(Fault::Refused(machine)) => self.0.trouble(None, false, Some(machine)),
            Some(fault @ (Fault::GivenUp(_) | Fault::Partial)) => panic!("{fault:?}"),
        }
    }

    /// Servers that fail later are a subject of its own tests, and its lists have one page.
    fn cannot(&self) -> &'static [&'static str] {
        &[cloud_conformance::GIVEN_UP, cloud_conformance::PARTIAL]
    }

    fn requests(&self) -> usize {
        self.0.requests()
    }

    async fn running(&self, target: &Target) -> usize {
        let cloud = self.0.cloud();
        cloud.servers(&target.cluster.infra_id).filter(|(_, server)| server.status == Status::Active).count()
    }

    async fn confuse(&self, target: &Target, id: &str) {
        self.0.cloud().force(&target.cluster.infra_id, id, Status::Odd("RESCUING".to_owned()));
    }
}

conformance_tests!(MemoryBench(Account::new()));

const MACHINES: usize = 3;

const MISHAPS: [Mishap; 5] = [Mishap::Before, Mishap::After, Mishap::Late, Mishap::Fails, Mishap::Lost];

const ALL_FAILS: [Fails; 5] = [Fails::Image, Fails::ImageVanishes, Fails::ImageStays, Fails::Server, Fails::Delete];

fn machine(number: usize) -> String {
    cloud_conformance::machine("demo", number, MACHINES)
}

fn machines() -> Vec<String> {
    (0..MACHINES).map(machine).collect()
}

/// A pass has at most 40 requests: a large cluster takes several.
#[tokio::test(start_paused = true)]
async fn sixty_machines_sleep_and_wake() {
    let bench = MemoryBench(Account::new());
    let target = bench.cluster("demo", 60).await;
    for (intent, running) in [(Intent::Asleep, 0), (Intent::Awake, 60)] {
        let driver = bench.driver(Arc::new(|| true));
        cloud_conformance::drive(&bench, &driver, &target, intent).await;
        assert_eq!(bench.running(&target).await, running, "{intent:?}");
    }
}

/// The control plane is stopped after them, so that each call says whether it has left any for the next one.
#[tokio::test(start_paused = true)]
async fn a_call_says_whether_it_has_left_machines_for_the_next_one() {
    let bench = MemoryBench(Account::new());
    let target = bench.cluster("demo", 60).await;
    let driver = bench.driver(Arc::new(|| true));
    let mut all: Vec<String> = (0..60).map(|number| cloud_conformance::machine("demo", number, 60)).collect();
    for (count, unfinished) in [(60, true), (30, false)] {
        all.truncate(count);
        let outcome = driver.advance(&target, Verb::Stop, &all).await.unwrap();
        assert_eq!((outcome.moved.len(), outcome.unfinished), (count.min(40), unfinished), "{outcome:?}");
        bench.finish().await;
    }
}

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
    /// The next of its kind that is finished fails.
    Fails(Fails),
    /// A request of a dead process arrives.
    Arrives,
    /// A person deletes the server of this machine, softly or for good.
    Deleted(usize, bool),
    /// A person stops a machine.
    Off(usize),
}

fn happens() -> impl Strategy<Value = Happens> {
    let mishap = prop::sample::select(MISHAPS.to_vec());
    prop_oneof![
        6 => Just(Happens::Pass),
        4 => (0u8..14, mishap).prop_map(|(at, mishap)| Happens::Dies(at, mishap)),
        2 => Just(Happens::Time),
        1 => Just(Happens::Mind),
        1 => prop::sample::select(ALL_FAILS.to_vec()).prop_map(Happens::Fails),
        2 => Just(Happens::Arrives),
        1 => (0..MACHINES, any::<bool>()).prop_map(|(machine, softly)| Happens::Deleted(machine, softly)),
        1 => (0..MACHINES).prop_map(Happens::Off),
    ]
}

/// A world with one cluster, and who works on it.
struct World {
    account: Account,
    target: Target,
    intent: Intent,
}

impl World {
    fn new() -> Self {
        let bench = MemoryBench(Account::new());
        let target = bench.cluster("demo", MACHINES).now_or_never().unwrap();
        Self { account: bench.0, target, intent: Intent::Asleep }
    }

    /// One pass by a new process. `None` if it died, or another writer was quicker.
    fn pass(&self) -> Option<Next> {
        let driver = self.account.planner();
        let before = self.account.requests();
        let passed = cloud_conformance::pass(&driver, &self.target, self.intent).now_or_never();
        let requests = self.account.requests() - before;
        assert!(requests <= 12 + 4 * MACHINES, "I6: {requests} requests in one pass");
        passed?.ok().map(|(next, _)| next)
    }

    /// What a list finds.
    fn found(&self) -> shared::cloud::Inventory {
        let driver = self.account.planner();
        cloud_conformance::inventory(&driver, &self.target).now_or_never().unwrap().unwrap()
    }

    /// One pass by a new process: what the driver refused.
    fn refused(&self) -> Vec<shared::cloud::Refusal> {
        let driver = self.account.planner();
        let passed = cloud_conformance::pass(&driver, &self.target, self.intent).now_or_never();
        passed.unwrap().map(|(_, outcome)| outcome.refused).unwrap_or_default()
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
            Happens::Mind => self.intent = if self.intent == Intent::Asleep { Intent::Awake } else { Intent::Asleep },
            Happens::Fails(fails) => self.account.cloud().fails = Some(fails),
            Happens::Arrives => self.account.deliver_late(),
            // What a late write decided was decided before the person acted: the two are not mixed here.
            Happens::Deleted(number, softly) if !self.account.is_late() => {
                self.account.cloud().person_deletes("demo", &machine(number), softly);
            }
            Happens::Deleted(..) => {}
            Happens::Off(number) => self.off(&machine(number)),
        }
    }

    /// A person stops a machine that runs.
    fn off(&self, machine: &str) {
        let mut cloud = self.account.cloud();
        let runs = cloud.servers("demo").any(|(_, s)| s.machine == machine && s.status == Status::Active && !s.imaging);
        if runs {
            cloud.force("demo", machine, Status::Off);
        }
    }

    /// Whether people have deleted all machines.
    fn is_empty(&self) -> bool {
        let cloud = self.account.cloud();
        cloud.dropped.len() == MACHINES && cloud.servers("demo").next().is_none()
    }

    /// With a constant intent and a cloud that works, it ends.
    fn ends(&self) -> Result<(), Vec<String>> {
        self.account.cloud().fails = None;
        for _ in 0..120 {
            let next = self.pass();
            if self.is_empty() {
                return Ok(()); // nothing is found, which the controller reports
            }
            if next == Some(Next::Rest) {
                let cloud = self.account.cloud();
                let wrong = match self.intent {
                    Intent::Awake => cloud.unlike_awake("demo", &machines()),
                    Intent::Asleep => cloud.unlike_asleep("demo", &machines()),
                };
                return if wrong.is_empty() { Ok(()) } else { Err(wrong) };
            }
            self.account.cloud().tick();
        }
        let cloud = self.account.cloud();
        Err(vec![format!("I5: it does not end: {:?}", cloud.servers("demo").collect::<Vec<_>>())])
    }
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
