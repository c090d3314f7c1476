//! A recovery beside an operator, a controller, Pods and a database that all take their time, in rounds on a clock of
//! their own: slow passes at each sub-step, passes that end early with long requeues, a status of the database that does
//! not come, addresses that change, and runs that are killed after any step.

use std::cell::RefMut;

use crate::annotation::{annotation, format, keys};
use crate::fdb::admission::Kind;
use crate::fdb::api::{GROUP_LABEL, ProcessGroup, RESOURCES_TERMINATING};
use crate::fdb::decide;
use crate::fdb::suspension::{Minimum, Stamp};
use fdb_simulator::database::UpdateMode;
use fdb_simulator::fdbcli::{self, Call};
use fdb_simulator::memory::{Memory, State};
use fdb_simulator::operator::pass::{SubStep, seconds};
use serde_json::json;

use super::super::check::Refusal;
use super::super::facts::{deleted_at, label, uid};
use super::super::presence::Wakes;
use super::super::*;
use super::world::*;

/// Longest life of a run, in seconds: less than the requeue of a pass that ends early.
const LONGEST_RUN: u64 = 450;
/// How long the world goes on after the last run.
const AFTER: u64 = 90;
/// How long the operator may take to make the cluster, and to suspend groups.
const PREPARED: u64 = 600;

/// Everything but the plugin.
struct Sim {
    round: u64,
    memory: Memory<World>,
    second: u64,
    window: Duration,
    /// So many times the database's status still fails to come.
    unread: u64,
}

/// The webhook: a claim goes once it is released for the removal of its group.
fn denies(objects: &Objects, claim: &Value) -> bool {
    let mut groups = objects.cluster["status"]["processGroups"].as_array().into_iter().flatten();
    let group = groups.find(|group| group["processGroupID"].as_str() == label(claim, GROUP_LABEL));
    !Stamp::of(claim).is_released_for(group.and_then(|group| group["removalTimestamp"].as_str()))
}

impl Sim {
    /// One or two groups of a new cluster are suspended.
    fn new(round: u64) -> Self {
        let spec = json!({ "version": "7.3.69", "processCounts": { "storage": 3 }, "automationOptions": {} });
        let world = World(Objects::new("sample", "db", &spec, at(NOW)));
        let mut sim =
            Self { round, memory: Memory::new(world, round, denies), second: 0, window: Duration::ZERO, unread: 0 };
        let removed = {
            let mut state = sim.memory.state();
            let State { objects, database, dice, is_random, .. } = &mut *state;
            let options = &mut objects.cluster["spec"]["automationOptions"];
            options["removalMode"] = json!(if dice.one_in(2) { "All" } else { "Zone" });
            options["useLocalitiesForExclusion"] = json!(!dice.one_in(3));
            database.settings.update_mode = if dice.one_in(2) { UpdateMode::Apply } else { UpdateMode::Update };
            sim.window = Duration::from_secs(120 + dice.below(600));
            *is_random = true;
            1 + usize::from(dice.one_in(3))
        };
        sim.until(|groups| groups.len() == 3 && groups.iter().all(|group| group.process_group_conditions.is_empty()));
        let ids: Vec<String> = sim.groups().into_iter().take(removed).map(|group| group.process_group_id).collect();
        sim.world().cluster["spec"]["processGroupsToRemove"] = json!(ids);
        sim.memory.state().is_dirty = true;
        sim.until(|groups| {
            let (marked, others): (Vec<&ProcessGroup>, Vec<_>) = groups.iter().partition(|group| group.is_marked());
            let gone = marked.iter().filter(|group| group.condition(RESOURCES_TERMINATING).is_some());
            gone.count() == removed && others.iter().all(|group| group.process_group_conditions.is_empty())
        });
        {
            let mut state = sim.memory.state();
            let State { database, dice, slow, .. } = &mut *state;
            let step = SubStep::ALL[usize::try_from(dice.below(12)).unwrap()];
            *slow = Some((step, 5 + dice.below(26).cast_signed(), dice.below(4)));
            database.settings.bounces = dice.one_in(4);
            sim.unread = dice.below(4);
        }
        // A pass may be under way when the plugin looks first.
        for _ in 0..sim.below(4) {
            sim.tick();
        }
        sim
    }

    fn until(&mut self, is_there: impl Fn(&[ProcessGroup]) -> bool) {
        while !is_there(&self.groups()) {
            assert!(self.second < PREPARED, "{}", self.story());
            (0..3).for_each(|_| self.tick());
        }
    }

    fn world(&self) -> RefMut<'_, World> {
        RefMut::map(self.memory.state(), |state| &mut state.objects)
    }

    fn below(&self, end: u64) -> u64 {
        self.memory.state().dice.below(end)
    }

    /// What happened last, for a failure.
    fn story(&self) -> String {
        let state = self.memory.state();
        let log = state.log[state.log.len().saturating_sub(80)..].join("\n");
        let (status, excluded) = (&state.objects.cluster["status"], &state.database.exclusions);
        format!("round {}, excluded {excluded:?}, {status}\n{log}", self.round)
    }

    fn groups(&self) -> Vec<ProcessGroup> {
        self.world().with(|facts| facts.cluster.groups().to_vec())
    }

    fn tick(&mut self) {
        self.second += 1;
        if self.unread > 0 && self.below(20) == 0 {
            self.unread -= 1;
            self.memory.state().database.settings.failed_fetches = 2;
        }
        self.memory.tick();
        if self.second.is_multiple_of(3) {
            self.control();
        }
    }

    /// The controller, as it decides.
    fn control(&mut self) {
        let (window, mut state) = (self.window, self.memory.state());
        let State { objects: world, is_dirty, .. } = &mut *state;
        let actions = world.with(|facts| {
            let id = |object: &Value| label(object, GROUP_LABEL).map(ToOwned::to_owned);
            let pod =
                |pod: &Value| decide::Pod { group: id(pod).unwrap_or_default(), deleting: deleted_at(pod).is_some() };
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
            let changes = action.change.annotations(world.now);
            let claim = &mut world.claims[action.object];
            json_patch::merge(claim, &json!({ "metadata": { "annotations": changes } }));
            bump(claim);
            *is_dirty = true;
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
    /// What `fdbcli` ran for, until that is recorded.
    ran: Option<Record>,
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
        let goal = self.world().goal(ids);
        let goal = match goal {
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
            ran: None,
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
                let found = self.world().cluster["status"].clone();
                if found != *status {
                    (*status, *since) = (found, self.second);
                }
                if self.second - *since < 5 && self.second - *begun < 60 {
                    return Worked::Waits;
                }
                run.done.settled = true;
            }
        }
        run.pause = Pause::No;
        if let Some(planned) = run.ran.take() {
            self.world().remember(&planned);
            self.memory.state().is_dirty = true;
        }
        run.done.included = run.included.is_some_and(|at| self.second - at < 15);
        let steps = self.world().steps(&run.record, run.done);
        let step = match steps {
            Ok(steps) => steps.into_iter().next(),
            Err(lost) => panic!("{lost}\n{}", self.story()),
        };
        let Some(step) = step else { panic!("nothing to do\n{}", self.story()) };
        self.memory.state().note(&format!("    {}", word(&step)));
        self.carry_out(run, &step)
    }

    fn carry_out(&mut self, run: &mut Run, step: &Step) -> Worked {
        match step {
            Step::Settle => {
                let status = self.world().cluster["status"].clone();
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
                    let edit = self.world().with(|facts| patch::wake(facts, missing));
                    if let Some(edit) = &edit {
                        self.world().edit(edit);
                    }
                    self.memory.state().is_dirty = true;
                }
                run.pause = Pause::Until(self.second + 1);
                return Worked::Goes;
            }
            Step::Include(orders, planned) => {
                let mut state = self.memory.state();
                let (call, now) = (Call::parse(&include::command(orders)).ok().unwrap(), seconds(state.objects.now));
                let ran = fdbcli::run(&mut state.database, &call, now);
                assert_eq!(ran.code, 0, "{orders:?}: {ran:?}");
                run.included = Some(self.second);
                (run.ran, run.pause) = (Some(planned.clone()), Pause::Until(self.second + 1));
                return Worked::Goes;
            }
            Step::Status(_) => {
                run.done.verified = false;
                run.edits += 1;
            }
            Step::Skip(_) => run.done.settled = false,
            _ => {}
        }
        self.world().carry_out(step, &mut run.done);
        self.memory.state().is_dirty |= !matches!(step, Step::Status(_)); // a status wakes nobody
        if run.edits > 4 {
            let record = run.record.clone();
            let mut world = self.world();
            let patch = world.with(|facts| {
                let record = record.merged_with(facts.record().as_ref()).with_exclusions(facts.cluster);
                patch::resume(facts.cluster, &record)
            });
            world.patch_cluster(&patch);
            drop(world);
            self.memory.state().is_dirty = true;
            return Worked::GaveUp;
        }
        if matches!(step, Step::Clear(..)) { Worked::Ended } else { Worked::Goes }
    }
}

fn round(number: u64) {
    let mut sim = Sim::new(number);
    let asked: Vec<ProcessGroup> = sim.groups().into_iter().filter(ProcessGroup::is_marked).collect();
    let ids: Vec<&str> = asked.iter().map(|group| group.process_group_id.as_str()).collect();
    let is_asked = |claim: &&Value| label(claim, GROUP_LABEL).is_some_and(|id| ids.contains(&id));
    let volumes: Vec<String> = sim.world().claims.iter().filter(is_asked).map(|claim| uid(claim).to_owned()).collect();
    let others: Vec<ProcessGroup> = sim.groups().into_iter().filter(|group| !group.is_marked()).collect();
    let (mut run, mut again, mut kills): (Option<Run>, u64, u64) = (None, 0, sim.below(5));
    let mut ended: Option<u64> = None;
    while ended.is_none_or(|at| sim.second < at + AFTER) {
        assert!(sim.second < PREPARED + 2_500, "it never ends\n{}", sim.story());
        sim.tick();
        let lost = volumes.iter().find(|volume| !sim.world().claims.iter().any(|claim| uid(claim) == **volume));
        assert!(lost.is_none(), "{lost:?} is lost\n{}", sim.story());
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
            is_killed = worked != Worked::Ended && kills > 0 && sim.below(12) == 0;
            if worked != Worked::Goes || is_killed {
                break;
            }
        }
        if worked == Worked::Ended {
            ended = Some(sim.second);
        } else if worked == Worked::GaveUp || is_killed {
            kills = kills.saturating_sub(1);
            again = sim.second + 1 + sim.below(8);
            sim.memory.state().note("    killed");
        } else {
            run = Some(now);
        }
    }
    for before in &asked {
        let id = &before.process_group_id;
        let after = sim.groups().into_iter().find(|group| group.process_group_id == *id);
        assert!(after.is_some_and(|group| !group.needs_edit()), "{id} is not back\n{}", sim.story());
        let database = sim.memory.state().database.clone();
        let takes_part = database.processes.contains_key(id) && !database.is_excluded(id);
        assert!(takes_part, "{id} does not report, or is excluded\n{}", sim.story());
        let left: Vec<&String> = before.addresses.iter().filter(|one| database.exclusions.contains(*one)).collect();
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
