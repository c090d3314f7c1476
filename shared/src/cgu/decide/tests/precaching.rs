use proptest::prelude::*;

use super::super::precache::{State, next};
use super::*;
use crate::cgu::api::PrecachingSpec;
use crate::cgu::objects::LOCAL_CLUSTER;
use crate::cgu::precache::workload::{DEPENDENCIES, JOB_VIEW, NAMESPACE_VIEW, Workload};
use crate::cgu::wire::Scope;

const JOB_STATES: [(Job, State); 3] = [
    (Job::Succeeded, State::Succeeded),
    (Job::DeadlineExceeded, State::PrecacheTimeout),
    (Job::BackoffLimitExceeded, State::UnrecoverableError),
];

fn view(presence: Presence, answer: Answer) -> View {
    View { upgrade: Reference::default(), created: Timestamp::UNIX_EPOCH, scope: Scope::default(), presence, answer }
}

fn views(all: &[(&str, Presence, Answer)]) -> Views {
    all.iter()
        .map(|(name, found, answer)| (("a".to_owned(), (*name).to_owned()), view(*found, answer.clone())))
        .collect()
}

fn workload(spec: &PrecachingSpec) -> Workload<'_> {
    let (is_available, is_enabled) = (true, true);
    Workload { cluster: "a", spec, image: "image", timeout: 240, clusters: 1, is_available, is_enabled }
}

/// What happens next, `STATE: steps`.
fn after(
    state: State,
    all: &[(&str, Presence, Answer)],
    (is_available, is_enabled, second): (bool, bool, i64),
) -> String {
    let spec = PrecachingSpec::default();
    let workload = Workload { is_available, is_enabled, ..workload(&spec) };
    let found = next(state, &workload, &views(all), Timestamp::from_second(second).unwrap());
    let steps = found.steps.iter().map(|step| match step {
        Step::DeleteView(name) | Step::DeleteAction(name) => format!("-{name}"),
        Step::Act(name, _) => (*name).to_owned(),
        Step::View(request) => format!("+{}", request.name),
    });
    let steps: Vec<String> = steps.map(|step| step.replace("precache-", "")).collect();
    format!("{}: {}", found.state, steps.join(" ")).trim_end().trim_end_matches(':').to_owned()
}

const NOTHING: Answer = Answer::Nothing;

fn ready() -> [(&'static str, Presence, Answer); 3] {
    DEPENDENCIES.map(|name| (name, Presence::Present, NOTHING))
}

/// The policy that confines our account admits no action there.
#[test]
fn the_hub_itself_pulls_nothing() {
    let spec = PrecachingSpec::default();
    for (is_enabled, expected) in [(true, State::UnrecoverableError), (false, State::NotStarted)] {
        let workload = Workload { cluster: LOCAL_CLUSTER, is_enabled, ..workload(&spec) };
        let found = next(State::NotStarted, &workload, &Views::new(), Timestamp::UNIX_EPOCH);
        assert_eq!((found.state, found.steps), (expected, vec![]));
    }
}

/// `spec.remediationStrategy.timeout` has no maximum.
#[test]
fn a_huge_timeout_never_expires() {
    let spec = PrecachingSpec::default();
    for timeout in [i64::MAX, i64::MAX / 60 + 1] {
        let found = views(&[(JOB_VIEW, Presence::Present, Answer::Job(Job::Active))]);
        let found = next(State::Active, &Workload { timeout, ..workload(&spec) }, &found, Timestamp::MAX);
        assert_eq!(found.state, State::Active, "{timeout}");
    }
}

/// The table of section 9.5.
#[test]
fn a_cluster_goes_from_state_to_state() {
    let now = |second| (true, true, second);
    let removed = "-view-spec-configmap -view-service-acct -view-cluster-role-binding -view-namespace";
    let cleaned = format!("-ns-delete ns-delete -crb-delete crb-delete {removed} -view-job");
    let creations = "-ns-create -sa-create -crb-create -spec-cm-create -job-create";
    let prepared = format!("PreparingToStart: {creations} {cleaned} +view-namespace");
    assert_eq!(after(State::NotStarted, &[], now(0)), prepared);

    let namespace = |found| [(NAMESPACE_VIEW, found, NOTHING)];
    for (all, at, expected) in [
        (&[][..], now(0), "PreparingToStart: +view-namespace"),
        (&namespace(Presence::Unknown), now(29), "PreparingToStart"),
        (&namespace(Presence::Unknown), now(30), "UnrecoverableError"),
        (&namespace(Presence::Unknown), (false, true, 0), "UnrecoverableError"),
        (&namespace(Presence::Unknown), (false, false, 60), "PreparingToStart"),
        (&namespace(Presence::Present), now(60), "PreparingToStart"),
        (&namespace(Presence::Absent), now(60), "Starting"),
        (&namespace(Presence::Failed), now(0), "UnrecoverableError"),
    ] {
        assert_eq!(after(State::PreparingToStart, all, at), expected, "{all:?} {at:?}");
    }

    let created = "ns-create sa-create crb-create spec-cm-create +view-spec-configmap +view-service-acct \
                   +view-cluster-role-binding";
    let again = format!("Starting: -view-spec-configmap -view-service-acct -view-cluster-role-binding {created}");
    let created = format!("Starting: {created}");
    let mut missing = ready();
    missing[1].1 = Presence::Absent;
    let mut unknown = ready();
    unknown[2].1 = Presence::Unknown;
    let with = |found, answer| [&ready()[..], &[(JOB_VIEW, found, answer)]].concat();
    for (all, expected) in [
        (vec![], &*created),
        (ready()[..2].to_vec(), &again),
        (missing.to_vec(), &again),
        (unknown.to_vec(), "Starting"),
        (ready().to_vec(), "Starting: +view-job"),
        (with(Presence::Absent, NOTHING), "Starting: -view-job job-create +view-job"),
        (with(Presence::Unknown, NOTHING), "Starting"),
        (with(Presence::Present, NOTHING), "Starting"),
        (with(Presence::Failed, NOTHING), "UnrecoverableError"),
        (with(Presence::Present, Answer::Job(Job::Active)), &format!("Active: {removed}")),
        (with(Presence::Present, Answer::Job(Job::DeadlineExceeded)), &format!("PrecacheTimeout: {removed}")),
    ] {
        assert_eq!(after(State::Starting, &all, now(0)), expected, "{all:?}");
    }

    let job = |answer| [(JOB_VIEW, Presence::Present, answer)];
    let active = Answer::Job(Job::Active);
    for (all, at, expected) in [
        (&job(active.clone())[..], now(60), "Active"),
        (&job(active.clone()), (false, true, 60), "UnrecoverableError"),
        (&job(active), (false, false, 60), "Active"),
        (&[], now(60), "Active: +view-job"),
        (&[(JOB_VIEW, Presence::Absent, NOTHING)], now(60), "UnrecoverableError"),
        (&job(NOTHING), now(60), "Active"),
        (&job(NOTHING), now(250 * 60 + 1), "UnrecoverableError"),
        (&job(Answer::Job(Job::Succeeded)), now(60), "Succeeded"),
        (&job(Answer::Job(Job::BackoffLimitExceeded)), now(60), &format!("UnrecoverableError: {removed}")),
    ] {
        assert_eq!(after(State::Active, all, at), expected, "{all:?} {at:?}");
    }
    let succeeded = job(Answer::Job(Job::Succeeded));
    assert_eq!(after(State::Succeeded, &succeeded, now(60)), format!("Succeeded: {cleaned}"), "once it is written");
    assert_eq!(after(State::Succeeded, &[], now(60)), "Succeeded");
}

#[test]
fn a_job_gets_what_is_pulled_and_sees_the_node() {
    let spec = PrecachingSpec { additional_images: vec!["\"a\": {{b}}".to_owned()], ..PrecachingSpec::default() };
    let workload = Workload { clusters: 100, ..workload(&spec) };
    let all = |steps: Vec<Step>| -> Vec<Value> {
        steps.into_iter().filter_map(|step| if let Step::Act(_, spec) = step { Some(spec) } else { None }).collect()
    };
    let map = &all(workload.dependencies(false))[3]["kube"]["template"];
    assert_eq!(map["data"]["additionalImages"], "\"a\": {{b}}");
    let job = &all(workload.start())[0]["kube"]["template"]["spec"];
    assert_eq!((&job["activeDeadlineSeconds"], &job["backoffLimit"]), (&14_400.into(), &0.into()));
    let pod = &job["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(container["image"], "image");
    assert_eq!(container["volumeMounts"][18]["mountPath"], "/host/sys/fs/cgroup", "in TALM's order");
    assert_eq!(pod["volumes"].as_array().unwrap().len(), container["volumeMounts"].as_array().unwrap().len());
    for (name, seconds) in [(DEPENDENCIES[0], 300), (JOB_VIEW, 300), (NAMESPACE_VIEW, 0)] {
        let Step::View(request) = workload.view(name) else { panic!() };
        assert_eq!(request.scope.update_interval_seconds, Some(seconds), "6 s for each cluster, 300 at most: {name}");
    }
}

proptest! {
    /// Whatever a cluster answers, a final state stays, and an enabled upgrade gets one in the end.
    #[test]
    fn an_enabled_pull_ends(answers in proptest::collection::vec((0..4_usize, 0..5_usize), 0..12), is_available: bool) {
        let spec = PrecachingSpec::default();
        let mut state = State::NotStarted;
        let step = |state, found, job: usize, available| {
            let answer = JOB_STATES.get(job).map_or(NOTHING, |(job, _)| Answer::Job(*job));
            let names = DEPENDENCIES.into_iter().chain([NAMESPACE_VIEW, JOB_VIEW]);
            let all: Vec<_> = names.map(|name| (name, found, answer.clone())).collect();
            let workload = Workload { is_available: available, ..workload(&spec) };
            next(state, &workload, &views(&all), Timestamp::from_second(1_000).unwrap()).state
        };
        for (found, job) in answers {
            let found = [Presence::Unknown, Presence::Present, Presence::Absent, Presence::Failed][found];
            let before = state;
            state = step(state, found, job, is_available);
            prop_assert!(!before.is_final() || state == before);
        }
        for _ in 0..4 {
            state = step(state, Presence::Failed, 4, false);
        }
        prop_assert!(state.is_final());
    }
}
