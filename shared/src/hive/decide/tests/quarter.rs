//! The ledger of a quarter, against the log of the cloud.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::cloud::Spot;
use crate::savings::ledger::{LEDGER, Ledger};
use crate::savings::period::Span;

/// How long a machine takes to stop or to start.
const MOVE: Duration = Duration::from_secs(40);
/// How often a cluster in transition is reconciled.
const POLL: Duration = Duration::from_secs(5);
const STEADY: Duration = Duration::from_mins(10);

#[derive(Clone, Copy, Debug)]
enum Event {
    Sleep,
    Wake,
    /// A wake so many seconds after a sleep, in the middle of its stops.
    SleepAndWake(u64),
    /// Another party starts a machine.
    Start(usize),
    /// It runs for so many minutes, while no controller runs for so many hours.
    StartUnseen(usize, u64, u64),
    /// No controller runs for so many hours.
    Down(u64),
}

struct Machine {
    instance: Instance,
    /// When a stop or a start under way is done.
    due: Option<Timestamp>,
    since: Timestamp,
    stopped: Vec<Span>,
}

/// A cluster, its cloud, and a controller that may not run.
struct World {
    cluster: ClusterDeployment,
    machines: Vec<Machine>,
    reports_start_time: bool,
    now: Timestamp,
    down_until: Timestamp,
    seen: Seen,
    names: u32,
}

impl World {
    fn new(reports_start_time: bool) -> Self {
        let mut world = Self {
            cluster: cluster("Running"),
            machines: Vec::new(),
            reports_start_time,
            now: "2026-08-31T20:00:00Z".parse().unwrap(),
            down_until: Timestamp::MIN,
            seen: Seen::default(),
            names: 0,
        };
        world.cluster.metadata.uid = Some("u-1".to_owned());
        world.cluster.metadata.labels = Some([(RESUME_SKIPS_CLUSTER_OPERATORS.to_owned(), "true".to_owned())].into());
        for (kind, spot) in
            [("m6i.xlarge", None), ("m6i.xlarge", None), ("r6i.large", None), ("c6i.large", Some(Spot::OneTime))]
        {
            world.add(kind, spot);
        }
        world.pass(Duration::from_hours(1));
        world
    }

    fn add(&mut self, kind: &str, spot: Option<Spot>) {
        self.names += 1;
        let instance = Instance { spot, ..Instance::new(format!("i-{}", self.names), Running).of_type(kind) };
        let instance = Instance { launched_at: self.reports_start_time.then_some(self.now), ..instance };
        self.machines.push(Machine { instance, due: None, since: self.now, stopped: Vec::new() });
    }

    /// Lets so much time pass, with reconciles.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.settle();
            let is_steady = if self.now < self.down_until { true } else { self.reconcile() };
            let moves = self.machines.iter().any(|machine| machine.due.is_some());
            self.now = (self.now + if is_steady && !moves { STEADY } else { POLL }).min(end);
        }
        self.settle();
    }

    /// What the cloud has done by now.
    fn settle(&mut self) {
        for machine in &mut self.machines {
            let Some(due) = machine.due.filter(|due| *due <= self.now) else { continue };
            (machine.due, machine.since) = (None, due);
            machine.instance.state = if machine.instance.state == Stopping { Stopped } else { Running };
        }
        self.machines.retain(|machine| machine.instance.state != Terminated);
    }

    fn start(&mut self, at: usize) {
        let (now, dates) = (self.now, self.reports_start_time);
        let machine = &mut self.machines[at];
        if machine.instance.state == Stopped {
            machine.stopped.push((machine.since, now));
            machine.instance.state = Pending;
            machine.instance.launched_at = dates.then_some(now);
            machine.due = Some(now + MOVE);
        }
    }

    fn stop(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        if machine.instance.state == Running {
            machine.instance.state = Stopping;
            machine.due = Some(self.now + MOVE);
        }
    }

    fn find(&self, id: &str) -> usize {
        self.machines.iter().position(|machine| machine.instance.id == id).unwrap()
    }

    /// One reconcile. Whether the cluster is where it should be.
    fn reconcile(&mut self) -> bool {
        let cluster = self.cluster.clone();
        let mut plan = decide(&self.facts(&cluster));
        for action in &plan.actions.clone() {
            let Action::Move(verb, ids) = action else { continue };
            for id in ids {
                let at = self.find(id);
                match verb {
                    Verb::Start => self.start(at),
                    Verb::Stop => self.stop(at),
                    Verb::Terminate => self.machines[at].instance.state = Terminated,
                }
            }
        }
        if !plan.actions.is_empty() {
            plan = decide_again(&self.facts(&cluster), plan);
        }
        if let Some(patch) = plan.status.and_then(|status| status.patch(&cluster, self.now)) {
            self.cluster = patched(&cluster, &patch);
        }
        let there = if self.cluster.desired() == Power::Hibernating { HIBERNATING } else { READY };
        if there == READY && self.cluster.is_true(READY) && self.machines.len() == 3 {
            self.add("c6i.large", Some(Spot::OneTime)); // by its MachineSet
        }
        self.cluster.is_true(there)
    }

    fn facts<'a>(&mut self, cluster: &'a ClusterDeployment) -> Facts<'a> {
        let mut facts = Facts { now: self.now, stopped: self.seen, ..facts(cluster) };
        while let Some(need) = needs(&facts) {
            match need {
                Need::Machines(_) => {
                    let instances = self.machines.iter().map(|machine| machine.instance.clone()).collect();
                    let profile = Profile {
                        reports_start_time: self.reports_start_time,
                        terminates_spot: true,
                        ..Profile::default()
                    };
                    let machines = Inventory::new(profile, Listing { instances, ..Listing::default() });
                    self.seen.observe(machines.all(Stopped), self.now, STEADY);
                    (facts.machines, facts.stopped) = (Some(Ok(machines)), self.seen);
                }
                Need::Spoke => {
                    let node = |machine: &Machine| NodeObservation {
                        name: String::new(),
                        instance: Some(machine.instance.id.clone()),
                        ready: true,
                        sign_of_life: Some(self.now),
                        moved: true,
                    };
                    let nodes = self.machines.iter().map(node).collect();
                    facts.spoke =
                        Some(Ok(Spoke { nodes, operators: Vec::new(), operators_well_since: Some(self.now) }));
                }
                Need::Upgrade => facts.upgrade = Some(Ok(Upgrade::Idle)),
            }
        }
        facts
    }

    fn wants(&mut self, power: Power) {
        self.cluster.spec.power_state = Some(power.to_string());
    }

    fn play(&mut self, event: Event) {
        match event {
            Event::Sleep => self.wants(Power::Hibernating),
            Event::Wake => self.wants(Power::Running),
            Event::SleepAndWake(seconds) => {
                self.wants(Power::Hibernating);
                self.pass(Duration::from_secs(seconds));
                self.wants(Power::Running);
            }
            Event::Start(at) => self.start(at % self.machines.len()),
            Event::StartUnseen(at, minutes, hours) => {
                self.down_until = self.now + Duration::from_hours(hours);
                let at = at % self.machines.len();
                self.start(at);
                self.pass(Duration::from_mins(minutes));
                self.stop(at);
                self.seen = Seen::default(); // the controller starts anew
            }
            Event::Down(hours) => {
                self.down_until = self.now + Duration::from_hours(hours);
                self.seen = Seen::default();
            }
        }
    }

    /// Wakes it, and reads its ledger: seconds asleep, and of machines by type.
    fn ledger(mut self) -> ((u64, BTreeMap<String, u64>), BTreeMap<String, u64>) {
        self.down_until = Timestamp::MIN;
        self.wants(Power::Running);
        self.pass(Duration::from_hours(1));
        let message = self.cluster.condition(LEDGER).and_then(|condition| condition.message.clone());
        let ledger = message.map(|message| Ledger::of(&message, "u-1", self.now).unwrap()).unwrap_or_default();
        let mut stopped = BTreeMap::new();
        for machine in &self.machines {
            let all = machine.stopped.iter().map(|(from, to)| (*to - *from).get_seconds().unsigned_abs()).sum::<u64>();
            *stopped.entry(machine.instance.price_key()).or_default() += all;
        }
        (ledger.totals(), stopped)
    }
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => Just(Event::Sleep),
        4 => Just(Event::Wake),
        1 => (5u64..70).prop_map(Event::SleepAndWake),
        1 => (0usize..3).prop_map(Event::Start),
        1 => (0usize..3, 20u64..200, 1u64..30).prop_map(|(at, minutes, hours)| Event::StartUnseen(at, minutes, hours)),
        1 => (1u64..30).prop_map(Event::Down),
    ]
}

/// Nights and weekends of a quarter, with a month's end in a sleep: at least 98 % of what the cloud has logged.
#[test]
fn a_quarter_without_a_fault_is_counted_almost_whole() {
    for reports_start_time in [true, false] {
        let mut world = World::new(reports_start_time);
        for _ in 0..13 {
            for (awake, asleep) in [(10, 14), (10, 14), (10, 14), (10, 14), (10, 62)] {
                world.pass(Duration::from_hours(awake));
                world.play(Event::Sleep);
                world.pass(Duration::from_hours(asleep));
                world.play(Event::Wake);
            }
        }
        let ((asleep, machines), stopped) = world.ledger();
        let nights = 13 * 118 * 3_600;
        assert!(asleep > nights * 98 / 100 && asleep <= nights, "{reports_start_time}: {asleep} of {nights}");
        for (kind, stopped) in stopped.into_iter().filter(|(_, stopped)| *stopped > 0) {
            let counted = machines[&kind];
            assert!(
                counted > stopped * 98 / 100 && counted <= stopped,
                "{reports_start_time}: {kind} {counted} of {stopped}"
            );
        }
    }
}

/// No controller runs through a weekend: where the cloud reports the last start of a machine, that proves the sleep.
#[test]
fn a_weekend_without_a_controller_is_counted_where_the_cloud_proves_it() {
    for (reports_start_time, is_counted) in [(true, true), (false, false)] {
        let mut world = World::new(reports_start_time);
        world.play(Event::Sleep);
        world.pass(Duration::from_hours(1));
        world.play(Event::Down(60));
        world.pass(Duration::from_hours(61));
        let ((asleep, machines), stopped) = world.ledger();
        let is_whole = asleep > 61 * 3_600 && machines["m6i.xlarge"] > 2 * 61 * 3_600;
        assert_eq!(is_whole, is_counted, "{reports_start_time}: {asleep}, {machines:?} of {stopped:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn no_more_is_counted_than_the_cloud_has_logged(
        reports_start_time: bool,
        events in prop::collection::vec((event(), 1u64..60), 1..40),
    ) {
        let mut world = World::new(reports_start_time);
        for (event, hours) in events {
            world.play(event);
            world.pass(Duration::from_hours(hours));
        }
        let ((asleep, machines), stopped) = world.ledger();
        let least = stopped.iter().filter(|(kind, _)| !kind.ends_with("spot")).map(|(_, seconds)| *seconds).min();
        prop_assert!(asleep <= least.unwrap_or_default(), "{asleep} of {stopped:?}");
        for (kind, counted) in machines {
            prop_assert!(counted <= stopped.get(&kind).copied().unwrap_or_default(), "{kind}: {counted} of {stopped:?}");
        }
    }
}
