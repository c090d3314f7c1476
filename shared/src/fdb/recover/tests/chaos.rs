//! A recovery beside an operator, a controller, Pods and a database that all take their time, in rounds on a clock of
//! their own: slow passes at each phase, passes that end early with long requeues, addresses that change, and runs that
//! are killed after any step.

mod operator;

use std::collections::{BTreeMap, BTreeSet};

use crate::annotation::{annotation, format, keys};
use crate::fdb::admission::Kind;
use crate::fdb::api::{
    GROUP_LABEL, MARKED_AS_EXCLUDED, MISSING_POD, MISSING_PROCESSES, POD_PENDING, ProcessGroup, ProcessGroupCondition,
    RESOURCES_TERMINATING,
};
use crate::fdb::decide;
use crate::fdb::suspension::{Minimum, Stamp};
use crate::object::name_of;
use jiff::SignedDuration;
use serde_json::json;

use super::super::check::Refusal;
use super::super::facts::{label, uid};
use super::super::presence::Wakes;
use super::super::*;
use super::world::*;

/// `spec.processCounts.storage`.
const COUNT: usize = 3;
/// Longest life of a run, in seconds: less than the requeue of a pass that ends early.
const LONGEST_RUN: u64 = 450;
/// How long the world goes on after the last run.
const AFTER: u64 = 90;

/// Numbers that are the same in every run of the tests.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % end
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// The parts of a pass, in the operator's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Pods,
    Status,
    Groups,
    Choose,
    Exclude,
    Bounce,
    Remove,
    Last,
}

const PHASES: [Phase; 8] = [
    Phase::Pods,
    Phase::Status,
    Phase::Groups,
    Phase::Choose,
    Phase::Exclude,
    Phase::Bounce,
    Phase::Remove,
    Phase::Last,
];

/// A pass of the operator under way.
struct Pass {
    /// The cluster as it was read or last written.
    cluster: Value,
    groups: Vec<ProcessGroup>,
    written: Vec<ProcessGroup>,
    at: usize,
    due: u64,
}

/// `Err` ends a pass: with a requeue after so many seconds, or with none.
type Outcome = Result<(), Option<u64>>;

/// A Pod: when it runs, when its process reports, and from where.
struct Started {
    runs: u64,
    reports: u64,
    address: String,
}

/// Everything but the plugin.
struct Sim {
    round: u64,
    world: World,
    second: u64,
    dice: Dice,
    /// What the database excludes.
    excluded: BTreeSet<String>,
    pods: BTreeMap<String, Started>,
    pass: Option<Pass>,
    requeue: Option<u64>,
    /// Something that the operator watches has changed.
    dirty: bool,
    /// The operator writes the status by server-side apply.
    apply: bool,
    /// Every pass ends early, with a requeue of ten minutes.
    bounce: bool,
    /// Which phase is slow, for how long, and in how many more passes.
    slow: (usize, u64, u64),
    /// In so many passes the database's status does not come in time for the first look.
    unread: u64,
    window: Duration,
    made: u64,
    log: Vec<String>,
}

fn leaves(group: &ProcessGroup) -> bool {
    group.is_marked() && group.is_excluded()
}

fn locality(id: &str) -> String {
    format!("locality_instance_id:{id}")
}

impl Sim {
    fn new(round: u64) -> Self {
        let mut dice = Dice(round.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for _ in 0..8 {
            dice.below(2);
        }
        let mut world = World::suspended();
        if dice.one_in(3) {
            world.cluster["spec"]["processGroupsToRemove"] = json!(["log-9", "storage-1", "storage-2"]);
            world.cluster["status"]["processGroups"][0] = removed("storage-2", "storage");
            world.pods.remove(0);
            world.cluster["status"]["processGroups"].as_array_mut().unwrap().push(group("storage-5", "storage"));
            world.claims.push(claim("storage-5", "storage", "2026-11-21T17:59:59Z"));
            world.pods.push(pod("storage-5", "Running"));
        }
        if dice.one_in(3) {
            world.cluster["spec"]["automationOptions"] = json!({ "useLocalitiesForExclusion": false });
        }
        for (at, group) in world.cluster["status"]["processGroups"].as_array_mut().unwrap().iter_mut().enumerate() {
            group["addresses"] = json!([format!("10.0.0.{at}")]);
        }
        let (phase, seconds, passes) = (dice.below(8), 5 + dice.below(26), dice.below(4));
        let mut sim = Self {
            round,
            world,
            second: 0,
            apply: dice.one_in(2),
            bounce: dice.one_in(4),
            slow: (usize::try_from(phase).unwrap(), seconds, passes),
            unread: dice.below(4),
            window: Duration::from_secs(120 + dice.below(600)),
            dice,
            excluded: BTreeSet::new(),
            pods: BTreeMap::new(),
            pass: None,
            requeue: None,
            dirty: true,
            made: 0,
            log: Vec::new(),
        };
        for group in sim.groups() {
            if group.is_marked() {
                let targets = sim.targets(&group);
                sim.excluded.extend(targets);
            } else {
                let started = Started { runs: 0, reports: 0, address: group.addresses[0].clone() };
                sim.pods.insert(group.process_group_id, started);
            }
        }
        sim.control();
        // A pass may be under way when the plugin looks first.
        for _ in 0..sim.dice.below(4) {
            sim.tick();
        }
        sim
    }

    fn note(&mut self, text: &str) {
        self.log.push(format!("{:>4} {text}", self.second));
    }

    /// What happened last, for a failure.
    fn story(&self) -> String {
        let status = &self.world.cluster["status"]["processGroups"];
        let log = self.log[self.log.len().saturating_sub(80)..].join("\n");
        format!("round {}, excluded {:?}, {status}\n{log}", self.round, self.excluded)
    }

    fn groups(&self) -> Vec<ProcessGroup> {
        serde_json::from_value(self.world.cluster["status"]["processGroups"].clone()).unwrap()
    }

    /// What the operator excludes a group by.
    fn targets(&self, group: &ProcessGroup) -> Vec<String> {
        if self.world.cluster["spec"]["automationOptions"]["useLocalitiesForExclusion"] == json!(false) {
            group.addresses.clone()
        } else {
            vec![locality(&group.process_group_id)]
        }
    }

    fn reports(&self, id: &str) -> bool {
        self.pods.get(id).is_some_and(|started| started.reports <= self.second)
    }

    fn is_excluded(&self, id: &str) -> bool {
        let by_address = self.pods.get(id).is_some_and(|started| self.excluded.contains(&started.address));
        by_address || self.excluded.contains(&locality(id))
    }

    fn tick(&mut self) {
        self.second += 1;
        let passed = SignedDuration::from_secs(i64::try_from(self.second).unwrap());
        self.world.now = at(NOW).checked_add(passed).unwrap();
        for id in self.pods.iter().filter(|(_, started)| started.runs == self.second).map(|(id, _)| id) {
            let pod = self.world.pods.iter_mut().find(|pod| name_of(pod) == pod_of(id)).unwrap();
            pod["status"]["phase"] = json!("Running");
        }
        if self.second.is_multiple_of(3) {
            self.control();
        }
        self.operate();
    }

    /// The controller, as it decides.
    fn control(&mut self) {
        let window = self.window;
        let actions = self.world.with(|facts| {
            let id = |object: &Value| label(object, GROUP_LABEL).map(ToOwned::to_owned);
            let pod = |pod: &Value| decide::Pod { group: id(pod).unwrap_or_default(), deleting: false };
            let held = |claim: &Value| decide::Held {
                kind: Kind::Pvc,
                name: String::new(),
                version: None,
                uid: uid(claim).to_owned(),
                group: id(claim),
                deleting: false,
                bytes: 1,
                stamp: Stamp::of(claim),
                woken: annotation(claim, keys::WOKEN_AT).and_then(format::time),
            };
            let facts = decide::Facts {
                cluster: facts.cluster,
                minimum: Minimum::For(window),
                pods: facts.pods.iter().map(pod).collect(),
                objects: facts.claims.iter().map(held).collect(),
                turn: None,
                began: at("2026-11-21T00:00:00Z"),
                now: facts.now,
            };
            decide::decide(&facts).actions
        });
        for action in actions {
            let changes = action.change.annotations(self.world.now);
            let claim = &mut self.world.claims[action.object];
            json_patch::merge(claim, &json!({ "metadata": { "annotations": changes } }));
            bump(claim);
            self.dirty = true;
        }
    }
}

/// What a run waits for.
enum Pause {
    No,
    Until(u64),
    Settle { begun: u64, since: u64, status: Value },
}

/// A run of the plugin.
struct Run {
    record: Record,
    done: RunState,
    included: Option<u64>,
    wakes: Wakes,
    edits: u32,
    began: u64,
    pause: Pause,
}

/// What has come of a look of the plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Worked {
    Waits,
    Goes,
    GaveUp,
    Ended,
}

impl Sim {
    /// Begins a run. None if the groups are back; an error if the operator has to go on first.
    fn begin(&self, ids: &[&str]) -> Result<Option<Run>, ()> {
        let goal = match self.world.goal(ids) {
            Ok(goal) => goal,
            Err(refusals) if refusals.iter().all(|one| matches!(one, Refusal::PodRuns { .. })) => return Err(()),
            Err(refusals) => panic!("{refusals:?}\n{}", self.story()),
        };
        if goal.record.groups.is_empty() {
            return Ok(None);
        }
        Ok(Some(Run {
            record: goal.record,
            done: RunState::default(),
            included: None,
            wakes: Wakes::default(),
            edits: 0,
            began: self.second,
            pause: Pause::No,
        }))
    }

    /// One look of a run, and the step that it finds.
    fn work(&mut self, run: &mut Run) -> Worked {
        match &mut run.pause {
            Pause::Until(until) if *until > self.second => return Worked::Waits,
            Pause::No | Pause::Until(_) => {}
            Pause::Settle { begun, since, status } => {
                let found = &self.world.cluster["status"];
                if *found != *status {
                    (*status, *since) = (found.clone(), self.second);
                }
                if self.second - *since < 5 && self.second - *begun < 60 {
                    return Worked::Waits;
                }
                run.done.settled = true;
            }
        }
        run.pause = Pause::No;
        run.done.included = run.included.is_some_and(|at| self.second - at < 15);
        let step = match self.world.steps(&run.record, run.done) {
            Ok(steps) => steps.into_iter().next(),
            Err(lost) => panic!("{lost}\n{}", self.story()),
        };
        let Some(step) = step else { panic!("nothing to do\n{}", self.story()) };
        self.note(&format!("    {}", word(&step)));
        match &step {
            Step::Settle => {
                let status = self.world.cluster["status"].clone();
                run.pause = Pause::Settle { begun: self.second, since: self.second, status };
                return Worked::Goes;
            }
            Step::Verify => {
                run.done.verified = true;
                run.pause = Pause::Until(self.second + 5);
                return Worked::Goes;
            }
            Step::Await(missing) => {
                let now = Duration::from_secs(self.second - run.began);
                if run.wakes.pause(missing, now) == Some(Duration::ZERO) {
                    let edit = self.world.with(|facts| patch::wake(facts, missing));
                    if let Some(edit) = edit {
                        self.world.edit(&edit);
                    }
                    self.dirty = true;
                }
                run.pause = Pause::Until(self.second + 1);
                return Worked::Goes;
            }
            Step::Include(orders, _) => {
                for target in orders[0].split(' ').skip(1) {
                    self.excluded.remove(target);
                }
                run.included = Some(self.second);
            }
            Step::Status(_) => {
                run.done.verified = false;
                run.edits += 1;
            }
            Step::Skip(_) => run.done.settled = false,
            _ => {}
        }
        self.world.carry_out(&step, &mut run.done);
        self.dirty |= !matches!(step, Step::Status(_)); // a status wakes nobody
        if run.edits > 4 {
            let record = run.record.clone();
            let patch = self.world.with(|facts| {
                let record = record.adopting(facts.record().as_ref()).with_exclusions(facts.cluster);
                patch::resume(facts.cluster, &record)
            });
            self.world.patch_cluster(&patch);
            self.dirty = true;
            return Worked::GaveUp;
        }
        if matches!(step, Step::Clear(..)) { Worked::Ended } else { Worked::Goes }
    }
}

fn round(number: u64) {
    let mut sim = Sim::new(number);
    let asked: Vec<ProcessGroup> = sim.groups().into_iter().filter(ProcessGroup::is_marked).collect();
    let ids: Vec<&str> = asked.iter().map(|group| group.process_group_id.as_str()).collect();
    let others: Vec<ProcessGroup> = sim.groups().into_iter().filter(|group| !group.is_marked()).collect();
    let (mut run, mut again, mut kills): (Option<Run>, u64, u64) = (None, 0, sim.dice.below(5));
    let mut ended: Option<u64> = None;
    while ended.is_none_or(|at| sim.second < at + AFTER) {
        assert!(sim.second < 2_500, "it never ends\n{}", sim.story());
        sim.tick();
        for id in &ids {
            let kept = sim.world.claims.iter().any(|claim| uid(claim) == format!("uid-{id}"));
            assert!(kept, "the volume of {id} is lost\n{}", sim.story());
        }
        if ended.is_some() || run.is_none() && sim.second < again {
            continue;
        }
        let Some(mut now) = run.take() else {
            match sim.begin(&ids) {
                Ok(Some(new)) => run = Some(new),
                Ok(None) => ended = Some(sim.second),
                Err(()) => again = sim.second + 5,
            }
            continue;
        };
        assert!(sim.second - now.began < LONGEST_RUN, "a run does not end\n{}", sim.story());
        let (mut worked, mut is_killed) = (Worked::Goes, false);
        for _ in 0..4 {
            worked = sim.work(&mut now);
            is_killed = worked != Worked::Ended && kills > 0 && sim.dice.one_in(12);
            if worked != Worked::Goes || is_killed {
                break;
            }
        }
        if worked == Worked::Ended {
            ended = Some(sim.second);
        } else if worked == Worked::GaveUp || is_killed {
            kills = kills.saturating_sub(1);
            again = sim.second + 1 + sim.dice.below(8);
            sim.note("    killed");
        } else {
            run = Some(now);
        }
    }
    for before in &asked {
        let id = &before.process_group_id;
        let after = sim.groups().into_iter().find(|group| group.process_group_id == *id);
        assert!(after.is_some_and(|group| !group.needs_edit()), "{id} is not back\n{}", sim.story());
        assert!(sim.reports(id) && !sim.is_excluded(id), "{id} does not report, or is excluded\n{}", sim.story());
        let left: Vec<&String> = before.addresses.iter().filter(|address| sim.excluded.contains(*address)).collect();
        assert!(left.is_empty(), "{id}: {left:?} stay excluded\n{}", sim.story());
    }
    let stays = |other: &&ProcessGroup| {
        sim.groups().iter().any(|group| group.process_group_id == other.process_group_id && !group.is_marked())
    };
    let gone = others.len() - others.iter().filter(stays).count();
    assert!(gone <= asked.len(), "{gone} went for {}\n{}", asked.len(), sim.story());
}

#[test]
fn in_a_thousand_rounds_no_volume_is_lost_and_every_run_ends() {
    for number in 0..1_000 {
        round(number);
    }
}
