//! Product timers on a paused clock, with a hub and a cloud in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use clap::Parser;
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};
use shared::cloud::{
    CloudError, CloudErrorKind, CloudFuture, ClusterRef, Driver, Instance, InstanceState, Listing, Outcome, Priority,
    Profile, Target as CloudTarget, Verb,
};
use shared::kinds::{CLUSTER_DEPLOYMENT, Change, Intent, Progress};
use shared::power::Power;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::*;
use crate::args::Args;
use crate::runtime::testing::MemoryHub;

mod steady;

const CLUSTERS: &str = "/apis/hive.openshift.io/v1/namespaces/";
const SECRET: &str = "/api/v1/namespaces/ns/secrets/aws";
const LONG_AGO: &str = "2025-01-01T00:00:00Z";
const CLUSTER: &str = "/apis/hive.openshift.io/v1/namespaces/ns/clusterdeployments/demo";

/// A cloud with one machine, which may refuse what it is asked for.
#[derive(Default)]
struct Cloud {
    /// Whether the credentials are refused.
    denies: AtomicBool,
    /// Calls that move machines, and when.
    moves: Mutex<Vec<Instant>>,
    stopped: AtomicBool,
    /// Whether there are two machines, which take 19 and 21 s to stop.
    slow: AtomicBool,
    /// Whether it shows no machines, as to a key of another account.
    empty: AtomicBool,
    /// Who was stopped of two workers and a machine of the control plane, if a call moves only the first one that it names.
    one_by_one: Option<Mutex<Vec<String>>>,
    /// Times that its machines were listed.
    lists: AtomicUsize,
    /// Whether each start is accepted, and the machine stops again.
    gives_up: AtomicBool,
    /// When it was last started in vain.
    launched: Mutex<Option<Timestamp>>,
}

/// Why it stops again.
const WHY: &str = "Client.InternalError: Client error on launch";

struct Shared(Arc<Cloud>);

impl Cloud {
    fn moves(&self) -> Vec<Instant> {
        self.moves.lock().clone()
    }

    fn turn(&self, ids: &[String], stop: bool) -> Result<Outcome, CloudError> {
        self.moves.lock().push(Instant::now());
        if self.denies.load(Ordering::Relaxed) {
            return Err(CloudError { kind: CloudErrorKind::Denied, message: "not authorized".to_owned() });
        }
        if !stop && self.gives_up.load(Ordering::Relaxed) {
            *self.launched.lock() = Some(clock::now());
            let moved = ids.iter().map(|id| (id.clone(), InstanceState::Pending)).collect();
            return Ok(Outcome { moved, ..Outcome::default() });
        }
        if let Some(order) = &self.one_by_one {
            order.lock().push(ids[0].clone());
            let moved = vec![(ids[0].clone(), InstanceState::Stopped)];
            return Ok(Outcome { moved, unfinished: ids.len() > 1, ..Outcome::default() });
        }
        self.stopped.store(stop, Ordering::Relaxed);
        let state = match stop {
            true if self.slow.load(Ordering::Relaxed) => InstanceState::Stopping,
            true => InstanceState::Stopped,
            false => InstanceState::Running,
        };
        Ok(Outcome { moved: ids.iter().map(|id| (id.clone(), state)).collect(), ..Outcome::default() })
    }
}

impl Driver for Shared {
    fn domain(&self) -> Arc<str> {
        Arc::from("test/account")
    }

    fn profile(&self, cluster: &ClusterRef) -> Profile {
        Profile { selector: format!("tag {}", cluster.infra_id), ..Profile::default() }
    }

    fn list<'a>(&'a self, _: &'a CloudTarget, _: Priority) -> CloudFuture<'a, Listing> {
        self.0.lists.fetch_add(1, Ordering::Relaxed);
        let stopped = self.0.stopped.load(Ordering::Relaxed);
        let state = if stopped { InstanceState::Stopped } else { InstanceState::Running };
        let instance = |id: &str, state| Instance { control_plane: true, ..Instance::new(id, state) };
        let instances = if self.0.empty.load(Ordering::Relaxed) {
            vec![]
        } else if let Some(order) = &self.0.one_by_one {
            let stopped = order.lock().clone();
            let state = |id: &str| if stopped.iter().any(|one| one == id) { InstanceState::Stopped } else { state };
            let machine = |id: &'static str| Instance { control_plane: id == "m-1", ..Instance::new(id, state(id)) };
            Vec::from(["m-1", "w-1", "w-2"].map(machine))
        } else if self.0.slow.load(Ordering::Relaxed) {
            let since = self.0.moves().first().map(|moved| moved.elapsed().as_secs());
            let state = |takes| match since {
                None => InstanceState::Running,
                Some(since) if since < takes => InstanceState::Stopping,
                Some(_) => InstanceState::Stopped,
            };
            vec![instance("i-1", state(19)), instance("i-2", state(21))]
        } else {
            let launched_at = *self.0.launched.lock();
            let stop_reason = launched_at.map(|_| WHY.to_owned());
            vec![Instance { launched_at, stop_reason, ..instance("i-1", state) }]
        };
        async move { Ok(Listing { instances, ..Listing::default() }) }.boxed()
    }

    fn advance<'a>(&'a self, _: &'a CloudTarget, verb: Verb, ids: &'a [String]) -> CloudFuture<'a, Outcome> {
        async move { self.0.turn(ids, verb != Verb::Start) }.boxed()
    }
}

impl crate::cloud::Cloud for Shared {
    fn name(&self) -> &'static str {
        "aws"
    }

    fn driver<'a>(&'a self, _: &'a Client, _: &'a ClusterRef) -> BoxFuture<'a, Result<Arc<dyn Driver>, CloudError>> {
        let driver: Arc<dyn Driver> = Arc::new(Self(self.0.clone()));
        async move { Ok(driver) }.boxed()
    }

    fn doubt(&self, _: &ClusterRef) -> Option<String> {
        Some("1".to_owned())
    }

    fn secrets_of(&self, _: &ClusterRef) -> Vec<(String, String)> {
        vec![("ns".to_owned(), "aws".to_owned())]
    }
}

/// A cluster that is to sleep, and the controller at work on it.
fn asleep(cloud: &Arc<Cloud>) -> (MemoryHub, JoinHandle<()>) {
    asleep_with(cloud, &json!({}))
}

/// The same, with these annotations.
fn asleep_with(cloud: &Arc<Cloud>, annotations: &Value) -> (MemoryHub, JoinHandle<()>) {
    asleep_in(MemoryHub::default(), cloud, annotations)
}

/// The same, in this hub.
fn asleep_in(hub: MemoryHub, cloud: &Arc<Cloud>, annotations: &Value) -> (MemoryHub, JoinHandle<()>) {
    hub.put(CLUSTER, to_sleep(annotations));
    at_work(hub, cloud)
}

/// A cluster that is to sleep.
fn to_sleep(annotations: &Value) -> Value {
    json!({
        "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment",
        "metadata": {"name": "demo", "namespace": "ns", "uid": "u1", "generation": 1, "annotations": annotations},
        "spec": {
            "baseDomain": "test", "clusterName": "demo", "installed": true, "powerState": "Hibernating",
            "clusterMetadata": {"infraID": "demo-1", "clusterID": "c", "adminKubeconfigSecretRef": {"name": "k"}},
            "platform": {"aws": {"region": "r", "credentialsSecretRef": {"name": "aws"}}},
        },
    })
}

/// A cluster that runs since long ago.
fn running() -> Value {
    let condition = |type_: &str, status: &str, reason: &str| {
        json!({
            "type": type_, "status": status, "reason": reason, "message": "",
            "lastProbeTime": LONG_AGO, "lastTransitionTime": LONG_AGO,
        })
    };
    let conditions = [condition("Hibernating", "False", "ResumingOrRunning"), condition("Ready", "True", "Running")];
    let mut running = to_sleep(&json!({}));
    running["spec"]["powerState"] = json!("Running");
    running["status"] = json!({ "powerState": "Running", "conditions": conditions });
    running
}

/// The controller at work on what the hub has.
fn at_work(hub: MemoryHub, cloud: &Arc<Cloud>) -> (MemoryHub, JoinHandle<()>) {
    let cloud = cloud.clone();
    let ownership = Arc::new(Ownership::default());
    let owners = ownership.clone();
    let (network, settings) = (Network::default(), Args::parse_from(["c"]).settings());
    let kind = hub.term().watch().with(|handle| {
        let clouds = Drivers { hub: handle.hub.clone(), clouds: vec![Box::new(Shared(cloud))] };
        Hive::new(handle, clouds, owners, network, settings, 4)
    });
    let kind = kind.followed_by(ownership);
    let work = tokio::spawn(kind.run_on(hub.watch::<ClusterDeployment>(CLUSTERS)));
    (hub, work)
}

fn power_state(hub: &MemoryHub) -> String {
    hub.get(CLUSTER)["status"]["powerState"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn while_credentials_are_refused_the_secret_is_read_every_ten_seconds_and_the_cloud_is_left_in_peace() {
    let (hub, cloud) = (MemoryHub::default(), Arc::new(Cloud::default()));
    cloud.denies.store(true, Ordering::Relaxed);
    hub.put(SECRET, json!({ "metadata": { "name": "aws", "namespace": "ns" } })); // version 1
    let (hub, work) = asleep_in(hub, &cloud, &json!({}));
    let reads = || hub.requests(|method, path| *method == http::Method::GET && path == SECRET);
    sleep(Duration::from_mins(10)).await;
    let (before, moves) = (reads(), cloud.moves().len());
    assert!((45..=61).contains(&before), "{before} reads of the Secret in 10 minutes");
    assert!((3..=20).contains(&moves), "{moves} calls in 10 minutes");
    cloud.denies.store(false, Ordering::Relaxed);
    hub.edit(SECRET, |secret| secret["data"] = json!({ "key": "bmV3" }));
    sleep(Duration::from_secs(12)).await;
    assert_eq!(cloud.moves().len(), moves + 1, "new credentials are tried at once");
    assert_eq!(power_state(&hub), "Hibernating");
    let before = reads();
    sleep(Duration::from_mins(10)).await;
    assert_eq!(reads(), before, "nothing is in doubt any more");
    work.abort();
}

/// The other object is another tenant's, and nobody acts on it either.
#[tokio::test(start_paused = true)]
async fn machines_that_an_older_object_names_are_left_to_it_until_it_names_them_no_more() {
    let (hub, cloud) = (MemoryHub::default(), Arc::new(Cloud::default()));
    let other = "/apis/hive.openshift.io/v1/namespaces/tenant/clusterdeployments/hidden";
    hub.put(
        other,
        json!({
            "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment",
            "metadata": {
                "name": "hidden", "namespace": "tenant", "uid": "u0", "generation": 1,
                "creationTimestamp": "2026-11-01T00:00:00Z",
                "annotations": {"hive.openshift.io/reconcile-pause": "true"},
            },
            "spec": {
                "baseDomain": "test", "clusterName": "hidden", "installed": true,
                "clusterMetadata": {"infraID": "demo-1", "clusterID": "c", "adminKubeconfigSecretRef": {"name": "k"}},
                "platform": {"aws": {"region": "r"}},
            },
        }),
    );
    let (hub, work) = asleep_in(hub, &cloud, &json!({}));
    sleep(Duration::from_mins(30)).await;
    assert_eq!(power_state(&hub), "FailedToStop");
    let (moves, lists) = (cloud.moves().len(), cloud.lists.load(Ordering::Relaxed));
    assert_eq!((moves, lists, hub.patches()), (0, 0, 1), "the cloud is not asked, and the status is written once");
    let status = hub.get(CLUSTER)["status"].to_string();
    assert!(status.contains("IdentityTaken: an older ClusterDeployment in another namespace"), "{status}");
    assert!(!status.contains("hidden") && !status.contains("tenant"), "{status}");
    hub.edit(other, |cluster| cluster["spec"]["clusterMetadata"]["infraID"] = Value::from("demo-2"));
    sleep(Duration::from_secs(5)).await;
    assert_eq!(
        (power_state(&hub).as_str(), cloud.moves().len()),
        ("Hibernating", 1),
        "at once, and not at the next look"
    );
    work.abort();
}

#[tokio::test(start_paused = true)]
async fn refusals_are_answered_by_ever_longer_pauses() {
    let cloud = Arc::new(Cloud::default());
    cloud.denies.store(true, Ordering::Relaxed);
    let (_hub, work) = asleep(&cloud);
    sleep(Duration::from_mins(30)).await;
    let moves = cloud.moves();
    let pauses: Vec<Duration> = moves.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.len() >= 3 && pauses.is_sorted_by(|a, b| a <= &(*b + Duration::from_secs(11))), "{pauses:?}");
    work.abort();
}

/// The same text stands from the first time on, so that few writes and one Event tell of it.
#[tokio::test(start_paused = true)]
async fn a_machine_that_the_cloud_stops_after_each_start_is_named_with_the_reason_and_started_less_and_less_often() {
    let cloud = Arc::new(Cloud::default());
    let (hub, work) = asleep(&cloud);
    sleep(Duration::from_mins(1)).await;
    assert_eq!(power_state(&hub), "Hibernating");
    let (moves, writes) = (cloud.moves().len(), hub.patches());
    cloud.gives_up.store(true, Ordering::Relaxed);
    hub.edit(CLUSTER, |cluster| {
        cluster["spec"]["powerState"] = json!("Running");
        cluster["metadata"]["generation"] = json!(2);
    });
    sleep(Duration::from_mins(3)).await;
    let status = hub.get(CLUSTER)["status"].to_string();
    assert_eq!(power_state(&hub), "FailedToStartMachines", "{status}");
    assert!(status.contains(&format!("i-1: StoppedAgain: {WHY}")), "{status}");
    let starts = cloud.moves().len() - moves;
    assert!((8..=12).contains(&starts), "{starts} starts in 3 minutes");
    let writes = hub.patches() - writes;
    assert!(writes <= 6, "{writes} writes");
    let noted = hub.events().into_iter().filter(|(reason, _)| reason == "FailedToStartMachines").count();
    assert_eq!(noted, 1, "{:?}", hub.events());
    work.abort();
}

#[tokio::test(start_paused = true)]
async fn a_resume_of_a_running_cluster_has_its_machines_checked_at_once() {
    let (hub, cloud) = (MemoryHub::default(), Arc::new(Cloud::default()));
    hub.put(CLUSTER, running());
    let (hub, work) = at_work(hub, &cloud);
    sleep(Duration::from_mins(1)).await;
    cloud.stopped.store(true, Ordering::Relaxed);
    sleep(Duration::from_mins(1)).await;
    assert_eq!((power_state(&hub).as_str(), cloud.moves().len()), ("Running", 0), "nobody looks for ten minutes");
    let intent =
        Intent { power: Power::Running, reason: None, end: None, now: clock::now(), queried: false, force: false };
    let Ok(Change::RequestCheck { patch, requested, .. }) = CLUSTER_DEPLOYMENT.change(&hub.get(CLUSTER), &intent)
    else {
        panic!("{}", hub.get(CLUSTER))
    };
    hub.edit(CLUSTER, |cluster| json_patch::merge(cluster, &patch));
    let progress = || CLUSTER_DEPLOYMENT.check_progress(&hub.get(CLUSTER), requested).unwrap();
    assert!(matches!(progress(), Progress::Unanswered(_)), "{:?}", progress());
    for _ in 0..50 {
        if progress() == Progress::Reached {
            break;
        }
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!((progress(), cloud.moves().len()), (Progress::Reached, 1), "it is started, and the request answered");
    work.abort();
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_was_applied_costs_no_more_calls_than_another() {
    let mut lists = Vec::new();
    for annotations in [json!({}), json!({"kubectl.kubernetes.io/last-applied-configuration": "{}"})] {
        let cloud = Arc::new(Cloud::default());
        let (hub, work) = asleep_with(&cloud, &annotations);
        sleep(Duration::from_mins(3)).await;
        work.abort();
        assert_eq!(power_state(&hub), "Hibernating");
        lists.push(cloud.lists.load(Ordering::Relaxed));
    }
    assert_eq!(lists[0], lists[1]);
}

/// The two machines stop in two reconciles: the first says nothing that the second does not say better.
#[tokio::test(start_paused = true)]
async fn machines_that_stop_moments_apart_cost_no_write_of_their_own() {
    let cloud = Arc::new(Cloud { slow: AtomicBool::new(true), ..Cloud::default() });
    let (hub, work) = asleep(&cloud);
    sleep(Duration::from_mins(1)).await;
    work.abort();
    assert_eq!(power_state(&hub), "Hibernating");
    assert_eq!(hub.patches(), 3, "stopping, waiting for machines, asleep");
}

/// The account's limits may admit a few machines only: while workers run, so does their API server.
#[tokio::test(start_paused = true)]
async fn the_control_plane_is_not_stopped_before_a_call_was_made_for_each_worker() {
    let cloud = Arc::new(Cloud { one_by_one: Some(Mutex::default()), ..Cloud::default() });
    let (hub, work) = asleep(&cloud);
    sleep(Duration::from_secs(15)).await;
    work.abort();
    assert_eq!(power_state(&hub), "Hibernating");
    assert_eq!(*cloud.one_by_one.as_ref().unwrap().lock(), ["w-1", "w-2", "m-1"]);
}

#[tokio::test(start_paused = true)]
async fn another_controller_is_noticed_left_alone_for_ten_minutes_and_tried_again() {
    let (hub, work) = asleep(&Arc::new(Cloud::default()));
    let mut foreign = 0;
    for _ in 0..540 {
        sleep(Duration::from_secs(1)).await;
        if power_state(&hub) == "Hibernating" {
            hub.edit(CLUSTER, |cluster| cluster["status"]["powerState"] = Value::from("Unknown"));
            foreign += 1;
        }
    }
    assert_eq!(foreign, 3, "after three writes the target is left alone");
    assert_eq!(
        hub.events().iter().filter(|(reason, _)| reason == "AnotherController").count(),
        1,
        "{:?}",
        hub.events()
    );
    sleep(Duration::from_mins(3)).await;
    assert_eq!(power_state(&hub), "Hibernating", "it may have been switched off");
    work.abort();
}

/// As by an admission webhook of others.
#[tokio::test(start_paused = true)]
async fn an_event_that_is_refused_is_tried_again_less_and_less_often_until_it_is_written() {
    let annotations = json!({ shared::annotation::keys::WAKE_AT: "2025-01-01T00:00:00Z" });
    let (hub, work) = asleep_with(&Arc::new(Cloud::default()), &annotations);
    let tries = Arc::new(AtomicUsize::new(0));
    let count = tries.clone();
    hub.inject(move |_, path, event| {
        let is_notice = path.contains("/events") && event["reason"] == "WakeAtIgnored";
        count.fetch_add(usize::from(is_notice), Ordering::Relaxed);
        is_notice.then_some(403)
    });
    sleep(Duration::from_mins(20)).await;
    let tries = tries.load(Ordering::Relaxed);
    assert!((8..=12).contains(&tries), "{tries} tries in 20 minutes");
    hub.heal();
    sleep(Duration::from_mins(20)).await;
    let written = hub.events().into_iter().filter(|(reason, _)| reason == "WakeAtIgnored").count();
    assert_eq!(written, 1, "{:?}", hub.events());
    work.abort();
}

#[tokio::test(start_paused = true)]
async fn a_status_that_the_schema_refuses_is_told_and_backed_off() {
    let cloud = Arc::new(Cloud::default());
    let hub = {
        let (hub, work) = asleep(&cloud);
        hub.inject(|method, path, _| (*method == http::Method::PATCH && path.ends_with("/status")).then_some(422));
        sleep(Duration::from_mins(10)).await;
        work.abort();
        hub
    };
    let tries = hub.patches();
    assert!((5..=12).contains(&tries), "{tries} status writes in 10 minutes");
    let refused: Vec<_> = hub.events().into_iter().filter(|(reason, _)| reason == "WriteRefused").collect();
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!(cloud.moves().len(), 1, "the machines were stopped all the same, once");
}

#[tokio::test(start_paused = true)]
async fn however_often_a_preflight_is_requested_there_is_one_in_fifteen_seconds() {
    let cloud = Arc::new(Cloud::default());
    let (hub, work) = asleep(&cloud);
    sleep(Duration::from_mins(1)).await;
    let key = shared::annotation::keys::PREFLIGHT_REQUESTED_AT;
    let request = || {
        let now = shared::annotation::format::seconds(clock::now());
        hub.edit(CLUSTER, |cluster| cluster["metadata"]["annotations"][key] = json!(now));
        now
    };
    let read = || serde_json::from_value::<ClusterDeployment>(hub.get(CLUSTER)).unwrap();
    let mut answers = std::collections::BTreeSet::new();
    for _ in 0..60 {
        request();
        sleep(Duration::from_secs(1)).await;
        answers.extend(shared::hive::preflight::found_at(&read()));
    }
    assert!((4..=5).contains(&answers.len()), "in a minute: {answers:?}");
    // A request that another client's write comes before is answered soon, and not 15 s later.
    sleep(Duration::from_secs(20)).await;
    hub.race(1);
    let asked = request();
    sleep(Duration::from_secs(2)).await;
    assert!(shared::hive::preflight::answers(&read(), asked.parse().unwrap()), "{asked}");
    work.abort();
}

#[test]
fn targets_that_wait_about_as_long_are_reconciled_at_the_same_moment() {
    let at = |elapsed: u64, pause: u64| {
        let (elapsed, pause) = (Duration::from_millis(elapsed), Duration::from_millis(pause));
        (elapsed + in_step(elapsed, pause, REQUEUE_STEP)).as_millis()
    };
    assert_eq!([at(0, 1_700), at(100, 1_700), at(299, 1_700), at(301, 1_700)], [1_750, 2_000, 2_000, 2_250]);
    for elapsed in (0..3_000).step_by(7) {
        let paused = at(elapsed, 1_700) - u128::from(elapsed);
        assert!((1_700..=1_950).contains(&paused) && at(elapsed, 1_700) % 250 == 0, "{elapsed}: {paused}");
    }
    let steady = in_step(Duration::from_secs(61), Duration::ZERO, Duration::from_mins(10));
    assert_eq!(steady, Duration::from_secs(539));
}
