//! Whatever the targets do, and wherever a controller ends between two writes: the next one plans from what was
//! written. No target starts twice, the window holds, the canary goes first, and every rollout ends.

use proptest::prelude::{Just, ProptestConfig, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::Strategy as Generator;
use proptest::test_runner::TestCaseError;

use super::*;

const STEP: i64 = 10;
const DEADLINE: i64 = 120;

/// What a target does, and after how many seconds from its start.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Sleeps(i64),
    Fails(i64),
    Hangs,
    /// A person wakes it.
    Woken(i64),
}

#[derive(Clone, Debug)]
struct Case {
    /// The first is the canary.
    fates: Vec<Fate>,
    window: usize,
    soak: u32,
    max_failures: u32,
    /// Writes until the controller ends, pass by pass; none: the pass is carried out as planned.
    crashes: Vec<Option<usize>>,
}

fn case() -> impl Generator<Value = Case> {
    let fate = prop_oneof![
        5 => (0_i64..90).prop_map(Fate::Sleeps),
        1 => (0_i64..90).prop_map(Fate::Fails),
        1 => Just(Fate::Hangs),
        1 => (0_i64..90).prop_map(Fate::Woken),
    ];
    let crash = prop_oneof![2 => Just(None), 1 => (0_usize..4).prop_map(Some)];
    let (fates, crashes) = (prop::collection::vec(fate, 1..9), prop::collection::vec(crash, 1..60));
    (fates, 1_usize..5, 0_u32..40, any::<bool>(), crashes).prop_map(|(fates, window, soak, tolerant, crashes)| Case {
        fates,
        window,
        soak,
        max_failures: if tolerant { 100 } else { 0 },
        crashes,
    })
}

struct Run {
    hub: Hub,
    fates: Vec<Fate>,
    window: usize,
    /// The canary fails and may: its claim stays open until its deadline, and holds back nothing.
    lets_go: bool,
    starts: BTreeMap<String, usize>,
}

impl Run {
    fn new(case: &Case) -> Self {
        let names: Vec<String> = (0..case.fates.len()).map(|index| format!("t{index}")).collect();
        let spec = json!({
            "maxConcurrency": case.window, "deadline": format!("{DEADLINE}s"), "minSuccessTime": format!("{}s", case.soak),
            "maxFailures": case.max_failures, "notAfter": "2026-11-25T12:00:00Z",
            "groups": [{
                "name": "canary", "names": [{ "namespace": "fleet", "name": "t0" }], "maxFailures": case.max_failures,
            }],
        });
        let hub = Hub::of(&spec, &names.iter().map(String::as_str).collect::<Vec<_>>());
        let lets_go = case.max_failures > 0 && matches!(case.fates[0], Fate::Fails(_));
        Self { hub, fates: case.fates.clone(), window: case.window, lets_go, starts: BTreeMap::new() }
    }

    fn marked(&self, index: usize) -> Option<Mark> {
        let annotations = self.hub.clusters[index].metadata.annotations.as_ref()?;
        Mark::parse(annotations.get(crate::annotation::keys::ROLLOUT)?)
    }

    /// Claims within their deadline.
    fn under_way(&self) -> usize {
        let holds = |mark: &Mark| {
            let since: Timestamp = mark.since.parse().unwrap();
            mark.ended.is_none() && (self.hub.now - since).get_seconds() < DEADLINE
        };
        (0..self.fates.len()).filter_map(|index| self.marked(index)).filter(holds).count()
    }

    /// What the targets do by themselves.
    fn live(&mut self) {
        for index in 0..self.fates.len() {
            let Some(mark) = self.marked(index).filter(|mark| mark.ended.is_none()) else { continue };
            let since: Timestamp = mark.since.parse().unwrap();
            let lasted = (self.hub.now - since).get_seconds();
            let name = format!("t{index}");
            match self.fates[index] {
                Fate::Sleeps(limit) if lasted >= limit => self.hub.reaches(&name, asleep()),
                Fate::Fails(limit) if lasted >= limit => self.hub.fails(&name),
                Fate::Woken(limit) if lasted >= limit => {
                    self.hub.clusters[index].spec.power_state = Some("Running".to_owned());
                }
                _ => continue,
            }
            self.fates[index] = match self.fates[index] {
                Fate::Fails(_) => Fate::Hangs,
                // A state that is reached again later would begin its soak anew.
                _ => Fate::Sleeps(i64::MAX),
            };
        }
    }

    /// A halt is an end once nothing is under way.
    fn is_over(&self) -> bool {
        let is_open = |index| self.marked(index).is_some_and(|mark: Mark| mark.ended.is_none());
        let is_halted =
            self.hub.rollout.status.as_ref().is_some_and(|status| status.phase == Some(RolloutPhase::Halted));
        is_over(&self.hub.rollout) || is_halted && !(0..self.fates.len()).any(is_open)
    }

    fn pass(&mut self, crash: Option<usize>) -> Result<(), TestCaseError> {
        let plan = self.hub.plan();
        prop_assert_eq!(&self.hub.plan(), &plan, "same facts, same answer");
        prop_assert!(plan.starts.is_empty() || self.hub.rollout.status.is_some(), "a start before the status says so");
        for name in self.hub.carry_out(&plan, crash) {
            let is_over = self.marked(0).is_some_and(|canary| canary.ended.is_some() || self.lets_go);
            prop_assert!(name == "t0" || is_over, "{} before the canary", name);
            let starts = self.starts.entry(name).or_default();
            *starts += 1;
            prop_assert_eq!(*starts, 1, "started twice");
        }
        let under_way = self.under_way();
        prop_assert!(under_way <= self.window, "{} under way", under_way);
        Ok(())
    }
}

proptest! {
    // Each case is a whole rollout.
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn wherever_it_ends_between_two_writes_no_target_starts_twice_and_all_end(case in case()) {
        let mut run = Run::new(&case);
        let mut crashes = case.crashes.iter().copied().chain(std::iter::repeat(None));
        for _ in 0..1_000 {
            run.live();
            for _ in 0..4 {
                run.pass(crashes.next().flatten())?;
            }
            if run.is_over() {
                break;
            }
            run.hub.jump(STEP);
        }
        let phase = run.hub.phase();
        prop_assert!(phase.is_over() || phase == RolloutPhase::Halted, "it does not end: {:#?}", run.hub.plan());
        let status = run.hub.rollout.status.clone().unwrap();
        prop_assert_eq!(status.counts.values().sum::<u32>(), status.total.unwrap());
        for index in 0..case.fates.len() {
            let mark = run.marked(index);
            let is_halted = phase == RolloutPhase::Halted && mark.is_none();
            prop_assert!(is_halted || mark.is_some_and(|mark| mark.ended.is_some()), "t{} is left", index);
        }
    }
}
