//! The table of docs/reference/hive.md, sections 1.1 to 1.3, row by row, and what must hold for every cluster.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::facts::backoff;
use super::plan::{OWED, poll};
use super::*;
use crate::cloud::InstanceState::{Pending, Running, ShuttingDown, Stopped, Stopping, Terminated};
use crate::cloud::{CloudError, CloudErrorKind, Instance, InstanceState, Inventory, Lifecycle, Listing, Profile, Verb};
use crate::hive::api::{
    ClusterDeployment, ClusterDeploymentSpec, ClusterDeploymentStatus, Condition, RESUME_SKIPS_CLUSTER_OPERATORS,
};
use crate::hive::conditions::{PROGRESS, READY};
use crate::hive::data::{DATA, Data, Unit};
use crate::savings::ledger::Seen;
use crate::spoke::{NodeObservation, OperatorObservation, Spoke, SpokeError, Upgrade};

mod given_up;
mod identity;
mod kinds;
mod obstacles;
mod properties;
mod quarter;
mod shapes;
mod time;
mod wake;

impl Default for Settings {
    fn default() -> Self {
        Self {
            operator_pause: Duration::from_mins(2),
            operator_settle: Duration::from_secs(3),
            steady: Duration::from_mins(10),
            wake_limit: Duration::from_mins(30),
            sleep_limit: Duration::from_mins(15),
            stops_drift: true,
            certificate_minimum_validity: Duration::from_hours(2),
        }
    }
}

const NOW: i64 = 1_800_000_000;

fn at(seconds_from_now: i64) -> Timestamp {
    Timestamp::from_second(NOW + seconds_from_now).unwrap()
}

fn cluster(power_state: &str) -> ClusterDeployment {
    let spec = ClusterDeploymentSpec {
        installed: true,
        power_state: Some(power_state.into()),
        ..ClusterDeploymentSpec::default()
    };
    let mut cluster = ClusterDeployment::new("demo", spec);
    cluster.metadata.resource_version = Some("7".into());
    cluster
}

/// With conditions H and R of these reasons, written a minute ago.
fn noted(mut cluster: ClusterDeployment, h: (&str, &str), r: (&str, &str)) -> ClusterDeployment {
    let condition = |type_: &str, (status, reason): (&str, &str)| Condition {
        type_: type_.into(),
        status: status.into(),
        reason: Some(reason.into()),
        last_probe_time: Some(Time(at(-60))),
        last_transition_time: Some(Time(at(-60))),
        message: None,
    };
    let conditions = vec![condition(HIBERNATING, h), condition(READY, r)];
    cluster.status = Some(ClusterDeploymentStatus { conditions, ..ClusterDeploymentStatus::default() });
    cluster
}

fn annotated(mut cluster: ClusterDeployment, key: &str, value: &str) -> ClusterDeployment {
    cluster.metadata.annotations.get_or_insert_default().insert(key.into(), value.into());
    cluster
}

fn deleted(mut cluster: ClusterDeployment) -> ClusterDeployment {
    cluster.metadata.deletion_timestamp = Some(Time(at(0)));
    cluster
}

fn uninstalled(mut cluster: ClusterDeployment) -> ClusterDeployment {
    cluster.spec.installed = false;
    cluster
}

/// On its way to sleep or there: H speaks.
fn asleep(h: (&str, &str)) -> ClusterDeployment {
    noted(cluster("Hibernating"), h, ("False", "StoppingOrHibernating"))
}

/// Waking since 30 s, or awake: R speaks.
fn waking(r: (&str, &str)) -> ClusterDeployment {
    let cluster = noted(cluster("Running"), ("False", reason::RESUMING_OR_RUNNING), r);
    began(cluster, 30)
}

/// The same in a wake that began so many seconds ago.
fn began(mut cluster: ClusterDeployment, seconds_ago: i64) -> ClusterDeployment {
    for condition in &mut cluster.status.as_mut().unwrap().conditions {
        match condition.type_.as_str() {
            HIBERNATING => condition.last_probe_time = Some(Time(at(-seconds_ago))),
            _ => condition.last_transition_time = Some(Time(at(-3600))),
        }
    }
    cluster
}

fn facts(cluster: &ClusterDeployment) -> Facts<'_> {
    Facts {
        cluster,
        served: true,
        sync: SyncSetState::Applied,
        identity_taken: None,
        preflight_age: Some(Duration::ZERO),
        machines: None,
        unknown_for: Duration::MAX,
        empty_for: Duration::ZERO,
        stopped: Seen::default(),
        tried: None,
        failed_lists: 0,
        spoke: None,
        connected_for: None,
        upgrade: None,
        upgrade_unknown_for: Duration::ZERO,
        settings: Settings::default(),
        now: at(0),
    }
}

impl Facts<'_> {
    fn machines_are(self, states: &[InstanceState]) -> Self {
        let instance = |(n, state): (usize, &InstanceState)| Instance {
            node_names: vec![format!("node-{n}")],
            ..Instance::new(format!("i-{n}"), *state)
        };
        self.listed(states.iter().enumerate().map(instance).collect())
    }

    /// By a driver that stops and starts.
    fn listed(self, instances: Vec<Instance>) -> Self {
        self.found(Lifecycle::StopStart, Listing { instances, ..Listing::default() })
    }

    fn found(mut self, lifecycle: Lifecycle, listing: Listing) -> Self {
        let profile = Profile { selector: "tag x".into(), lifecycle, ..Profile::default() };
        self.machines = Some(Ok(Inventory::new(profile, listing)));
        self
    }

    fn failed(mut self, verb: Verb, seconds_ago: i64) -> Self {
        let failure =
            CloudError { kind: CloudErrorKind::Refused, message: "i-0: OperationNotPermitted: protected".into() };
        self.tried = Some(attempt(verb, seconds_ago, Some(failure), 1));
        self
    }

    fn cloud_says(mut self, kind: CloudErrorKind) -> Self {
        self.machines = Some(Err(CloudError { kind, message: "DescribeInstances: no".into() }));
        self
    }

    /// Two nodes with these signs of life, in seconds from now.
    fn nodes_are(mut self, nodes: [(bool, i64, bool); 2], unwell: &[&str]) -> Self {
        let node = |(n, (ready, sign, moved)): (usize, (bool, i64, bool))| NodeObservation {
            name: format!("node-{n}"),
            instance: None,
            ready,
            sign_of_life: Some(at(sign)),
            moved,
        };
        let silent = OperatorObservation {
            name: "dns".into(),
            unwell: vec![],
            leased: false,
            sign_of_life: Some(at(-3600)),
            moved: false,
        };
        let operator = |name: &&str| OperatorObservation {
            name: (*name).into(),
            unwell: vec!["Progressing=True".into()],
            ..silent.clone()
        };
        self.spoke = Some(Ok(Spoke {
            nodes: nodes.into_iter().enumerate().map(node).collect(),
            operators: unwell.iter().map(operator).chain([silent.clone()]).collect(),
            operators_well_since: unwell.is_empty().then(|| at(-10)),
        }));
        self
    }
}

fn attempt(verb: Verb, seconds_ago: i64, failure: Option<CloudError>, failures: u32) -> LastAttempt {
    LastAttempt { verb, at: at(-seconds_ago), failure, failures, given_up: vec![] }
}

const AWAKE: [(bool, i64, bool); 2] = [(true, -1, false), (true, -2, false)];

fn stop(ids: &[&str]) -> Action {
    Action::Move(Verb::Stop, ids.iter().map(|id| (*id).into()).collect())
}

fn start(ids: &[&str]) -> Action {
    Action::Move(Verb::Start, ids.iter().map(|id| (*id).into()).collect())
}

/// H.reason, R.reason, P of a plan.
fn says(plan: &Plan) -> (&str, &str, &str) {
    let status = plan.status.as_ref().unwrap();
    let reason = |word: &Option<crate::hive::conditions::Word>| word.as_ref().map_or("", |word| word.reason);
    (reason(&status.hibernating), reason(&status.ready), status.power_state.unwrap_or_default())
}

fn message(plan: &Plan) -> &str {
    let status = plan.status.as_ref().unwrap();
    let (h, r) = (status.hibernating.as_ref().unwrap(), status.ready.as_ref().unwrap());
    if r.reason == "StoppingOrHibernating" { &h.message } else { &r.message }
}

#[test]
fn rows_that_need_no_observation() {
    let paused = |cluster| annotated(cluster, POWERSTATE_PAUSE, "true");
    let (deleted, fresh) = (deleted(cluster("Hibernating")), uninstalled(cluster("Hibernating")));
    let unsupported = noted(cluster("Running"), ("False", "Unsupported"), ("True", "Running"));
    let fake = |state| annotated(cluster(state), FAKE_CLUSTER, "1");
    let halted = ("PowerStatePaused", "PowerStatePaused", "Unknown");
    for (row, cluster, served, detail) in [
        ("3", deleted.clone(), true, ("ClusterDeploymentDeleted", "ClusterDeploymentDeleted", "Unknown")),
        ("4", fresh, true, ("Initialized", "Initialized", "")),
        ("6", paused(cluster("Hibernating")), true, halted),
        ("6 beats 7", paused(cluster("Running")), false, halted),
        ("7", cluster("Hibernating"), false, ("Unsupported", "Running", "Running")),
        ("8", unsupported, true, ("ResumingOrRunning", "", "")),
        ("12b", fake("Hibernating"), true, ("Hibernating", "StoppingOrHibernating", "Hibernating")),
        ("13a", fake("Running"), true, ("ResumingOrRunning", "Running", "Running")),
    ] {
        let facts = Facts { served, ..facts(&cluster) };
        assert_eq!(needs(&facts), None, "row {row}");
        let plan = decide(&facts);
        assert_eq!((says(&plan), plan.actions.as_slice()), (detail, [].as_slice()), "row {row}");
    }
    let paused = annotated(deleted, RECONCILE_PAUSE, "T");
    assert_eq!(decide(&facts(&paused)), Plan::default(), "row 2 beats row 3");
}

#[test]
fn row_4_adds_only_what_is_missing_and_goes_on() {
    let has_ready = noted(uninstalled(cluster("")), ("Unknown", "Initialized"), ("Unknown", "Initialized"));
    assert!(decide(&facts(&has_ready)).status.unwrap().patch(&has_ready, at(0)).is_none());
}

#[test]
fn into_sleep() {
    let waits = "WaitingForMachinesToStop";
    let first = noted(cluster("Hibernating"), ("False", reason::RESUMING_OR_RUNNING), ("True", reason::RUNNING));
    let stopping = asleep(("False", reason::STOPPING));
    let waiting = asleep(("False", waits));
    let failed = asleep(("False", reason::FAILED_TO_STOP));
    let done = asleep(("True", reason::HIBERNATING));
    for (case, cluster, machines, actions, power_state) in [
        ("stopMachines", &first, &[Running, Running][..], vec![stop(&["i-0", "i-1"])], reason::STOPPING),
        (
            "leaves out what moves",
            &first,
            &[Pending, Running, Stopping, Stopped],
            vec![stop(&["i-1"])],
            reason::STOPPING,
        ),
        ("starting ones are not stopped yet", &stopping, &[Pending], vec![], waits),
        ("checkClusterStopped", &stopping, &[Stopping, Stopped], vec![], waits),
        ("a straggler is told again", &waiting, &[Running, Stopped], vec![stop(&["i-0"])], waits),
        ("all stopped", &waiting, &[Stopped, Stopped, Terminated], vec![], reason::HIBERNATING),
        ("being deleted is not stopped", &waiting, &[Stopped, ShuttingDown], vec![], waits),
        ("all stopped at the first look", &first, &[Stopped], vec![], reason::HIBERNATING),
        ("after a failure", &failed, &[Running, Stopped], vec![stop(&["i-0"])], reason::STOPPING),
        ("somebody started one", &done, &[Running, Stopped], vec![stop(&["i-0"])], reason::STOPPING),
        ("nothing there", &waiting, &[], vec![], reason::FAILED_TO_STOP),
        ("only ghosts", &waiting, &[Terminated], vec![], reason::FAILED_TO_STOP),
    ] {
        let plan = decide(&facts(cluster).machines_are(machines));
        let expected = (power_state, "StoppingOrHibernating", power_state);
        assert_eq!((plan.actions.clone(), says(&plan)), (actions, expected), "{case}");
    }
}

#[test]
fn a_failed_stop_names_the_machine_and_waits_before_the_next() {
    let cluster = asleep(("False", reason::STOPPING));
    let plan = decide(&facts(&cluster).machines_are(&[Running, Stopped]).failed(Verb::Stop, 2));
    assert_eq!((plan.actions.as_slice(), plan.requeue), ([].as_slice(), Requeue::Retry(Duration::from_secs(3))));
    assert_eq!(
        message(&plan),
        "Failed to stop machines: i-0: OperationNotPermitted: protected (more detail may be available in the logs)"
    );
    let plan = decide(&facts(&cluster).machines_are(&[Running, Stopped]).failed(Verb::Stop, 5));
    assert_eq!(plan.actions, [stop(&["i-0"])], "the wait is over");
    let plan = decide(&facts(&cluster).machines_are(&[Running, Stopped]).failed(Verb::Start, 1));
    assert_eq!(plan.actions, [stop(&["i-0"])], "a failed start holds no stop back");
}

#[test]
fn out_of_sleep_machines() {
    let slept = noted(cluster("Running"), ("True", reason::HIBERNATING), ("False", "StoppingOrHibernating"));
    let midway = noted(cluster(""), ("False", "WaitingForMachinesToStop"), ("False", "StoppingOrHibernating"));
    let fresh = noted(cluster("Running"), ("Unknown", "Initialized"), ("Unknown", "Initialized"));
    let starting = waking(("False", "StartingMachines"));
    let failed = waking(("False", "FailedToStartMachines"));
    let awake = waking(("True", reason::RUNNING));
    for (case, cluster, machines, actions, power_state) in [
        ("startMachines", &slept, &[Stopped, Stopped][..], vec![start(&["i-0", "i-1"])], "StartingMachines"),
        ("changed their mind", &midway, &[Stopping, Stopped, Running], vec![start(&["i-1"])], "StartingMachines"),
        ("never handled before", &fresh, &[Running], vec![], "StartingMachines"),
        ("checkClusterRunning 1", &starting, &[Pending, Running], vec![], "WaitingForMachines"),
        ("a straggler is told again", &starting, &[Stopped, Running], vec![start(&["i-0"])], "WaitingForMachines"),
        ("after a failure", &failed, &[Stopped, Running], vec![start(&["i-0"])], "WaitingForMachines"),
        ("somebody stopped one", &awake, &[Stopped, Running], vec![start(&["i-0"])], "WaitingForMachines"),
        ("and is stopping another", &awake, &[Stopping, Stopped], vec![start(&["i-1"])], "WaitingForMachines"),
        ("nothing there", &starting, &[], vec![], "FailedToStartMachines"),
        ("steady", &awake, &[Running, Running], vec![], reason::RUNNING),
        ("an autoscaler has made one", &awake, &[Running, Pending], vec![], reason::RUNNING),
        ("and takes one away", &awake, &[ShuttingDown, Running], vec![], reason::RUNNING),
    ] {
        let facts = facts(cluster).machines_are(machines);
        assert_eq!(needs(&facts), None, "{case}: nobody asks the spoke");
        let plan = decide(&facts);
        let expected = ("ResumingOrRunning", power_state, power_state);
        assert_eq!((plan.actions.clone(), says(&plan)), (actions, expected), "{case}");
    }
    let plan = decide(&facts(&awake).machines_are(&[Stopping, Running, Pending]));
    let soon = Requeue::After(Duration::from_secs(10));
    assert_eq!((plan.actions.len(), plan.status, plan.requeue), (0, None, soon), "GCP says so of deleted ones");
    let plan = decide(&facts(&starting).machines_are(&[Pending, Stopping, Running]));
    assert_eq!(
        message(&plan),
        "Waiting for cluster machines to start. Some machines are not yet running: i-0,i-1 (step 1/4)"
    );
}

#[test]
fn out_of_sleep_nodes_pause_operators() {
    let running = [Running, Running];
    let starting = waking(("False", "StartingMachines"));
    let pausing = waking(("False", reason::PAUSING)); // since a minute
    let operators = waking(("False", "WaitingForClusterOperators"));
    let mut skips = starting.clone();
    skips.metadata.labels.get_or_insert_default().insert(RESUME_SKIPS_CLUSTER_OPERATORS.into(), "true".into());
    let minute = Settings { operator_pause: Duration::from_mins(1), ..Settings::default() };
    let longer = Settings::default();
    let unready = [(false, -1, true), (true, -1, true)];
    let operators_next = "WaitingForClusterOperators";
    for (case, cluster, nodes, unwell, settings, power_state) in [
        ("nodes come first", &starting, unready, &[][..], longer, "WaitingForNodes"),
        ("then a pause", &starting, AWAKE, &["etcd"], longer, reason::PAUSING),
        ("which lasts", &pausing, AWAKE, &[], longer, reason::PAUSING),
        ("but not if a node fails", &pausing, unready, &[], longer, "WaitingForNodes"),
        ("then operators", &pausing, AWAKE, &["etcd"], minute, operators_next),
        ("which are waited for", &operators, AWAKE, &["etcd"], longer, operators_next),
        ("until they are well", &operators, AWAKE, &[], longer, reason::RUNNING),
        ("well after the pause", &pausing, AWAKE, &[], minute, reason::RUNNING),
        ("the label skips both", &skips, AWAKE, &["etcd"], longer, reason::RUNNING),
    ] {
        let facts = Facts { settings, ..facts(cluster).machines_are(&running) };
        assert_eq!(needs(&facts), Some(Need::Spoke), "{case}");
        let plan = decide(&facts.nodes_are(nodes, unwell));
        assert_eq!((says(&plan).2, plan.actions.as_slice()), (power_state, [].as_slice()), "{case}");
    }
    let plan = decide(&facts(&pausing).machines_are(&running).nodes_are(AWAKE, &[]));
    assert_eq!(message(&plan), "Pausing 2m0s for ClusterOperators to settle (step 3/4)");
    assert_eq!(plan.requeue, Requeue::After(Duration::from_secs(2)), "signs of life end it before its time");
}

#[test]
fn a_node_is_awake_only_with_a_sign_of_life_from_this_wake() {
    let cluster = waking(("False", "WaitingForNodes")); // began 30 s ago
    for (case, node, awake) in [
        ("ready, heartbeat since the wake began", (true, -10, false), true),
        ("ready in etcd from before the sleep", (true, -3600, false), false),
        ("clock behind, but the lease moves", (true, -3600, true), true),
        ("clock ahead: a stale lease from the future proves nothing", (true, 3600, false), false),
        ("clock ahead, but the lease moves", (true, 3600, true), true),
        ("a little ahead is normal", (true, 5, false), true),
        ("alive, but not ready", (false, -1, true), false),
    ] {
        let plan = decide(&facts(&cluster).machines_are(&[Running, Running]).nodes_are([node, (true, -1, true)], &[]));
        assert_eq!(says(&plan).2 != "WaitingForNodes", awake, "{case}");
        let progress = plan.status.unwrap().progress.unwrap().message;
        assert!(awake || progress == "1 of 2 nodes are not ready: node-0", "{case}: {progress}");
    }
    let mut restarted = facts(&cluster).machines_are(&[Running, Running]).nodes_are(AWAKE, &[]);
    if let Some(Ok(machines)) = &mut restarted.machines {
        machines.instances[0].launched_at = Some(at(0));
    }
    assert_eq!(says(&decide(&restarted)).2, "WaitingForNodes", "its instance was started after its last heartbeat");
}

#[test]
fn a_silent_cloud_changes_nothing_that_was_well() {
    let waiting = asleep(("False", "WaitingForMachinesToStop"));
    let done = asleep(("True", reason::HIBERNATING));
    let awake = noted(cluster("Hibernating"), ("False", reason::RESUMING_OR_RUNNING), ("True", reason::RUNNING));
    for (cluster, kind, detail) in [
        (&waiting, CloudErrorKind::Throttled, ("", "", "")),
        (&waiting, CloudErrorKind::Unavailable, ("", "", "")),
        (&waiting, CloudErrorKind::Denied, ("FailedToStop", "StoppingOrHibernating", "FailedToStop")),
        (&waiting, CloudErrorKind::Credentials, ("FailedToStop", "StoppingOrHibernating", "FailedToStop")),
        (&done, CloudErrorKind::Denied, ("", "", "")),
        (&awake, CloudErrorKind::Denied, ("FailedToStop", "StoppingOrHibernating", "FailedToStop")),
    ] {
        let plan = decide(&facts(cluster).cloud_says(kind));
        assert_eq!(says(&plan), detail, "{kind}");
        let progress = plan.status.unwrap().progress.unwrap();
        // A rollout frees the slot of a throttled target, and counts no failure that passes.
        let why = match kind {
            CloudErrorKind::Throttled => reason::THROTTLED,
            CloudErrorKind::Unavailable => reason::CLOUD_UNREACHABLE,
            _ => "CloudFailing",
        };
        assert_eq!((progress.reason, progress.message.as_str()), (why, "DescribeInstances: no"));
    }
}

#[test]
fn an_unreachable_spoke_is_named_and_waited_for() {
    let cluster = waking(("False", "WaitingForMachines"));
    for (error, what) in [
        (SpokeError::Unreachable("connection refused".into()), "ApiServer"),
        (SpokeError::Kubeconfig("kubeconfig is refused: it has exec".into()), "KubeconfigRefused"),
        (SpokeError::Failed("401".into()), "ApiServerFailing"),
    ] {
        let mut facts = facts(&cluster).machines_are(&[Running]);
        facts.spoke = Some(Err(error.clone()));
        let plan = decide(&facts);
        assert_eq!(says(&plan).2, "WaitingForNodes", "issue 2956: P does not stay at WaitingForMachines");
        let progress = plan.status.unwrap().progress.unwrap();
        assert_eq!((progress.reason, progress.message), (what, error.to_string()));
    }
}

#[test]
fn a_patch_tests_the_version_and_touches_only_our_conditions() {
    let mut cluster = asleep(("False", reason::STOPPING));
    let foreign = Condition { type_: "Provisioned".into(), status: "True".into(), ..Condition::default() };
    cluster.status.as_mut().unwrap().conditions.insert(0, foreign);
    let patch = PowerStatus::stopped().done("Hibernating", "6 instances stopped").patch(&cluster, at(0)).unwrap();
    let ops: Vec<_> = patch.as_array().unwrap().iter().map(|op| format!("{} {}", op["op"], op["path"])).collect();
    assert_eq!(
        ops,
        [
            r#""test" "/metadata/resourceVersion""#,
            r#""replace" "/status/conditions/1""#,
            r#""replace" "/status/conditions/2""#, // its message was empty in this test
            r#""add" "/status/conditions/-""#,
            r#""move" "/status/conditions/0""#, // R is failing and comes first
            r#""move" "/status/conditions/1""#,
            r#""move" "/status/conditions/2""#,
            r#""add" "/status/powerState""#,
        ]
    );
    let h = &patch[1]["value"];
    assert_eq!((&h["reason"], &h["lastTransitionTime"]), (&"Hibernating".into(), &at(0).to_string().into()));
    assert_eq!(patch[2]["value"]["lastTransitionTime"], at(-60).to_string(), "R stays False, only its message changes");
}

/// `ClusterPool` replaces a cluster whose H has pointed to R for longer than its resumeTimeout.
#[test]
fn a_resume_begins_when_h_points_to_r_whatever_its_status_was() {
    let midway = asleep(("False", reason::STOPPING));
    let woken = ClusterDeployment { spec: cluster("Running").spec, ..midway };
    let plan = decide(&facts(&woken).machines_are(&[Stopped, Running]));
    let woken = patched(&woken, &plan.status.unwrap().patch(&woken, at(0)).unwrap());
    let h = woken.condition(HIBERNATING).unwrap();
    assert_eq!((h.status.as_str(), h.reason.as_deref()), ("False", Some(reason::RESUMING_OR_RUNNING)));
    assert_eq!(h.last_transition_time, Some(Time(at(0))));
    // And it goes on from there.
    let plan = decide(&Facts { now: at(5), ..facts(&woken).machines_are(&[Pending, Running]) });
    let later = patched(&woken, &plan.status.unwrap().patch(&woken, at(5)).unwrap());
    assert_eq!(later.condition(HIBERNATING).unwrap().last_transition_time, Some(Time(at(0))));
}

/// Client certificates of kubelets are approved only after a sleep that was long enough.
#[test]
fn the_length_of_a_sleep_is_on_record_until_the_cluster_is_awake() {
    let write = |cluster: &ClusterDeployment, status: PowerStatus, when| {
        patched(cluster, &status.patch(cluster, at(when)).unwrap())
    };
    let seconds = |cluster: &ClusterDeployment| slept(cluster).map(|slept| slept.as_secs());
    let stopping = write(&waking(("True", reason::RUNNING)), PowerStatus::stopping(), 0);
    let asleep = write(&stopping, PowerStatus::stopped(), 60);
    assert_eq!(seconds(&asleep), None, "it is no wake");
    let mut woken = write(&asleep, PowerStatus::starting(), 7_200);
    assert_eq!(seconds(&woken), Some(7_140), "since all machines had stopped");
    let steps =
        [PowerStatus::failed_to_start("no"), PowerStatus::waiting_for_nodes(), PowerStatus::waiting_for_operators()];
    for (step, when) in steps.into_iter().zip([7_210, 7_220, 7_230]) {
        woken = write(&woken, step, when);
        assert_eq!(seconds(&woken), Some(7_140), "{when}");
    }
    // A worker that never gets Ready leaves no long sleep behind for the next wake.
    let stopping_again = write(&woken, PowerStatus::stopping(), 7_400);
    let asleep_again = write(&stopping_again, PowerStatus::stopped(), 7_410);
    assert_eq!(seconds(&write(&asleep_again, PowerStatus::starting(), 7_420)), Some(10));
    assert_eq!(seconds(&write(&stopping_again, PowerStatus::starting(), 7_405)), None, "given up midway");
    // Machines that ran all the time: the cloud refused to stop one, or they are left to another object.
    let refused = write(&waking(("True", reason::RUNNING)), PowerStatus::failed_to_stop("no"), 0);
    assert_eq!(seconds(&write(&refused, PowerStatus::starting(), 90_000)), None);
    let awake = write(&woken, PowerStatus::running(), 7_400);
    assert_eq!(seconds(&awake), None);
    assert_eq!(seconds(&write(&awake, PowerStatus::waiting_for_machines(&["i-0"]), 90_000)), None, "no sleep at all");
    assert_eq!(seconds(&write(&write(&asleep, PowerStatus::paused(), 9_000), PowerStatus::starting(), 9_001)), None);
}

#[test]
fn names_that_change_are_written_at_most_every_eight_seconds() {
    let cluster = asleep(("False", "WaitingForMachinesToStop"));
    let apply = |cluster: &ClusterDeployment, names: &str, at: Timestamp| {
        PowerStatus::default()
            .awaiting("MachinesToStop", names)
            .patch(cluster, at)
            .map(|patch| patched(cluster, &patch))
    };
    let first = apply(&cluster, "i-0, i-1", at(0)).unwrap();
    assert!(apply(&first, "i-0", at(7)).is_none(), "too soon");
    assert!(apply(&first, "i-0", at(8)).is_some());
    assert!(first.condition(PROGRESS).is_some_and(|progress| progress.status == "True"));
}

#[test]
fn the_count_is_written_with_the_progress_and_never_by_itself() {
    let cluster = asleep(("False", "WaitingForMachinesToStop"));
    let status =
        |left: usize| PowerStatus::default().awaiting("MachinesToStop", "i-0, i-1").counting(Unit::Instances, left, 6);
    let first = patched(&cluster, &status(2).patch(&cluster, at(0)).unwrap());
    let count = |cluster: &ClusterDeployment| {
        let progress = Data::of(cluster).progress_of(cluster.condition(PROGRESS).unwrap())?;
        Some((progress.unit, progress.awaited, progress.total))
    };
    assert_eq!(count(&first), Some((Unit::Instances, 2, 6)));
    assert!(status(1).patch(&first, at(60)).is_none(), "the same sentence is not written again for a count");
    let waits = PowerStatus::default().awaiting("ClusterSync", "missing").patch(&first, at(60)).unwrap();
    let later = patched(&first, &waits);
    assert_eq!(count(&later), None, "nothing is counted any more");
    let uncounted = PowerStatus::default().awaiting("ClusterSync", "missing").patch(&cluster, at(0)).unwrap();
    assert!(patched(&cluster, &uncounted).condition(DATA).is_none(), "nothing to hold");
}

/// The text of an overdue transition begins with its limit, which hid the count from `status`.
#[test]
fn an_overdue_transition_keeps_its_count() {
    let late = asleep(("False", "WaitingForMachinesToStop"));
    let plan = decide(&Facts { now: at(3600), ..facts(&late).machines_are(&[Running, Stopped, Stopping]) });
    let written = patched(&late, &plan.status.unwrap().patch(&late, at(3600)).unwrap());
    let message = written.condition(PROGRESS).and_then(|progress| progress.message.clone()).unwrap();
    assert!(message.starts_with("for more than 15m0s: 2 of 3 instances are not stopped: "), "{message}");
    let object = serde_json::to_value(&written).unwrap();
    let record = crate::kinds::CLUSTER_DEPLOYMENT.record(&object).unwrap();
    let instances = record.instances.unwrap();
    assert_eq!((instances.total, instances.awaited), (Some(3), 2));
}

fn patched(cluster: &ClusterDeployment, patch: &serde_json::Value) -> ClusterDeployment {
    let mut object = serde_json::to_value(cluster).unwrap();
    let patch: json_patch::Patch = serde_json::from_value(patch.clone()).unwrap();
    json_patch::patch(&mut object, &patch).unwrap();
    serde_json::from_value(object).unwrap()
}

#[test]
fn waits_grow_and_end() {
    let waits = |kind| [1, 2, 3, 4, 9].map(|n| backoff(kind, n).as_secs());
    assert_eq!(waits(CloudErrorKind::Refused), [5, 10, 20, 20, 20]);
    assert_eq!(waits(CloudErrorKind::Denied), [10, 20, 40, 60, 60]);
    assert_eq!(backoff(CloudErrorKind::Denied, u32::MAX), Duration::from_mins(1));
}

#[test]
fn soon_at_first_slower_later() {
    let secs = |n| poll(Duration::from_secs(n)).as_secs();
    assert_eq!([secs(0), secs(40), secs(60), secs(200), secs(3600)], [2, 2, 3, 10, 10]);
}
