//! Upgrades on a paused clock, with a hub in memory: the controller is killed after every write, TALM comes back at any
//! point, and the hub gives every bad answer.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher;
use serde::de::DeserializeOwned;
use serde_json::Value;
use shared::cgu::wire::PlacementObject;
use shared::guarded::Named;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::index::Source;
use super::*;
use crate::runtime::index::Change;
use crate::runtime::testing::MemoryHub;
use crate::runtime::{Follower, Guarded, Key, Object};

const UPGRADES: &str = "/apis/ran.openshift.io/v1alpha1/namespaces/ztp/clustergroupupgrades/";
const UPGRADE: &str = "/apis/ran.openshift.io/v1alpha1/namespaces/ztp/clustergroupupgrades/wave";
const CLUSTERS: &str = "/apis/cluster.open-cluster-management.io/v1/managedclusters/";
const PLACEMENTS: &str = "/apis/cluster.open-cluster-management.io/v1beta1/namespaces/policies/placements/";
const BINDINGS: &str = "/apis/policy.open-cluster-management.io/v1/namespaces/policies/placementbindings/";
const POLICIES: &str = "/apis/policy.open-cluster-management.io/v1/namespaces/";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/talm/leases/9a2365a3.openshift.io";
/// There, while the definition of upgrades has no `status.placements`.
const OLD: &str = "/old";
const NAMES: [&str; 3] = ["a", "b", "c"];

/// Three clusters, the last of which complies with both policies, and an upgrade of all.
fn hub() -> MemoryHub {
    let hub = MemoryHub::default();
    for name in NAMES {
        hub.put(&format!("{CLUSTERS}{name}"), json!({ "kind": "ManagedCluster", "metadata": { "name": name } }));
    }
    for policy in ["p1", "p2"] {
        let template = json!({ "metadata": {}, "spec": { "object-templates": [] } });
        let spec = json!({ "remediationAction": "inform", "policy-templates": [{ "objectDefinition": template }] });
        let status = NAMES.map(
            |name| json!({ "clustername": name, "compliant": if name == "c" { "Compliant" } else { "NonCompliant" } }),
        );
        let root = json!({
            "kind": "Policy", "metadata": { "name": policy, "namespace": "policies" }, "spec": spec,
            "status": { "status": status },
        });
        hub.put(&format!("{POLICIES}policies/policies/{policy}"), root);
        for name in NAMES {
            let child = format!("policies.{policy}");
            let labels = json!({ "policy.open-cluster-management.io/root-policy": child });
            let object =
                json!({ "kind": "Policy", "metadata": { "name": child, "namespace": name, "labels": labels } });
            hub.put(&format!("{POLICIES}{name}/policies/policies.{policy}"), object);
        }
    }
    let spec = json!({
        "clusters": NAMES, "managedPolicies": ["p1", "p2"], "remediationStrategy": { "maxConcurrency": 1 },
        "actions": {
            "beforeEnable": { "addClusterLabels": { "running": "" } },
            "afterCompletion": { "addClusterLabels": { "done": "" }, "removeClusterLabels": ["running"] },
        },
    });
    let upgrade = json!({
        "apiVersion": "ran.openshift.io/v1alpha1", "kind": "ClusterGroupUpgrade",
        "metadata": { "name": "wave", "namespace": "ztp", "uid": "12345678", "generation": 1 }, "spec": spec,
    });
    hub.put(UPGRADE, upgrade);
    hub
}

/// A controller, as a new process has it, and governance beside it.
struct Process {
    tasks: [JoinHandle<()>; 2],
    talm: Arc<Talm>,
    hub: MemoryHub,
}

impl Process {
    fn start(hub: &MemoryHub) -> Self {
        let index = Arc::new(GovernanceIndex::default());
        let sleepers = Arc::new(Sleepers::default());
        let missing = kube::core::Status::failure("no", "no").with_code(404);
        sleepers.failed(&watcher::Error::InitialListFailed(kube::Error::Api(missing.boxed())));
        let settings = CguSettings {
            settle: Duration::ZERO,
            talm_namespace: "talm".to_owned(),
            precache_image: None,
            graphs: Graphs::new(Vec::new()),
        };
        let (mut kept, known) = (None, index.clone());
        let kind = hub.term().watch().with(|handle| {
            let upgrades = Upgrades::new(handle.clone(), known, sleepers, Arc::new(settings));
            upgrades.talm.apply(Change::Listed(HashMap::new()));
            kept = Some((handle, upgrades.talm.clone()));
            upgrades
        });
        let (handle, talm) = kept.unwrap();
        let work = tokio::spawn(kind.followed_by(index.clone()).run_on(hub.watch::<ClusterGroupUpgrade>(UPGRADES)));
        let (hub, governed) = (hub.clone(), hub.clone());
        let governance = tokio::spawn(async move {
            let mut watched = Watched::default();
            loop {
                comply(&governed);
                watched.show(&governed, &index, &handle);
                sleep(Duration::from_secs(1)).await;
            }
        });
        Self { tasks: [work, governance], talm, hub }
    }

    fn kill(&self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }

    /// TALM renews its Lease, under a new name each time, or gives it up: a watch says so, and so does a read.
    fn lease(&self, renewal: Option<usize>) {
        let holder = renewal.map(|renewal| renewal.to_string());
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": "9a2365a3.openshift.io", "namespace": "talm" }, "spec": { "holderIdentity": holder },
        });
        self.hub.put(LEASE, lease);
        let renewal = holder.map(|holder| format!("{holder} None"));
        self.talm.apply(Change::Set((String::new(), String::new()), renewal));
    }
}

fn objects<K: DeserializeOwned>(hub: &MemoryHub, below: &str) -> Vec<(Value, K)> {
    hub.below(below).into_iter().map(|object| (object.clone(), serde_json::from_value(object).unwrap())).collect()
}

/// A cluster complies as soon as a Placement that is bound selects it.
fn comply(hub: &MemoryHub) {
    for (_, placement) in objects::<PlacementObject>(hub, PLACEMENTS) {
        let binding = format!("{BINDINGS}{}", placement.metadata.name.clone().unwrap());
        if hub.get(&binding).is_null() {
            continue;
        }
        let policy = placement.labels().get("openshift-cluster-group-upgrades/forPolicy").cloned().unwrap();
        let selected = placement.spec.into_clusters();
        hub.edit(&format!("{POLICIES}policies/policies/{policy}"), |root| {
            for entry in root["status"]["status"].as_array_mut().unwrap() {
                if selected.iter().any(|name| entry["clustername"] == *name) {
                    entry["compliant"] = json!("Compliant");
                }
            }
        });
    }
}

/// What the watches of a process have brought.
#[derive(Default)]
struct Watched {
    objects: HashMap<&'static str, Vec<Value>>,
    is_old: Option<bool>,
}

impl Watched {
    /// Everything at first, then what has changed.
    fn show_kind<K: Object, I: Clone + Ord, E: Clone + PartialEq>(
        &mut self,
        (hub, below): (&MemoryHub, &'static str),
        (index, handle): (&GovernanceIndex, &Handle<ClusterGroupUpgrade>),
        source: &Source<K, I, E>,
    ) {
        let (now, apply) = (objects::<Guarded<K>>(hub, below), |change| index.apply(handle, source, change));
        let Some(before) = self.objects.insert(source.name, now.iter().map(|(object, _)| object.clone()).collect())
        else {
            return apply(Change::Listed(now.iter().map(|(_, one)| (key_of(one), (source.entry)(one))).collect()));
        };
        let key = |one: &Value| key_of(&serde_json::from_value::<Named<ConfigMap>>(one.clone()).unwrap());
        let is_gone = |one: &&Value| now.iter().all(|(other, _)| key(other) != key(one));
        before.iter().filter(is_gone).for_each(|one| apply(Change::Gone(key(one))));
        let set = now.iter().filter(|(object, _)| !before.contains(object));
        set.for_each(|(_, one)| apply(Change::Set(key_of(one), (source.entry)(one))));
    }

    fn show(&mut self, hub: &MemoryHub, index: &GovernanceIndex, handle: &Handle<ClusterGroupUpgrade>) {
        let is_first = self.objects.is_empty();
        self.show_kind((hub, CLUSTERS), (index, handle), &index::CLUSTERS);
        self.show_kind((hub, POLICIES), (index, handle), &index::ROOTS);
        self.show_kind((hub, POLICIES), (index, handle), &index::CHILDREN);
        self.show_kind((hub, PLACEMENTS), (index, handle), &index::PLACEMENTS);
        if is_first {
            index.apply(handle, &index::VIEWS, Change::Listed(HashMap::new()));
            index.apply(handle, &index::IMAGE_BASED, Change::Listed(HashMap::new()));
            index.apply(handle, &index::CONFIGS, Change::Listed(HashMap::new()));
            index.apply(handle, &index::OVERRIDE_MAPS, Change::Listed(HashMap::new()));
        }
        let (is_old, definition) = (hub.get(OLD).is_object(), |change| index.apply(handle, &index::DEFINITION, change));
        match self.is_old.replace(is_old) {
            None => definition(Change::Listed(HashMap::from([(Key::default(), Some(!is_old))]))),
            Some(was_old) if was_old != is_old => definition(Change::Set(Key::default(), Some(!is_old))),
            Some(_) => {}
        }
    }
}

fn is_write(method: &Method, path: &str) -> bool {
    matches!(*method, Method::PATCH | Method::POST | Method::DELETE) && !path.contains("/events")
}

fn is_over(hub: &MemoryHub) -> bool {
    !hub.get(UPGRADE)["status"]["status"]["completedAt"].is_null()
}

/// The upgrade has done everything, once.
fn check(hub: &MemoryHub, what: &str) {
    let status = &hub.get(UPGRADE)["status"];
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let succeeded = conditions.iter().find(|one| one["type"] == "Succeeded").cloned().unwrap_or_default();
    assert_eq!(
        (&succeeded["status"], &succeeded["reason"]),
        (&json!("True"), &json!("Completed")),
        "{what}: {status:#}"
    );
    assert_eq!(status["remediationPlan"], json!([["a"], ["b"]]), "{what}");
    assert_eq!(status["clusters"].as_array().map(Vec::len), Some(3), "{what}: {status:#}");
    for name in NAMES {
        assert_eq!(
            hub.get(&format!("{CLUSTERS}{name}"))["metadata"]["labels"],
            json!({ "done": "" }),
            "{what}: {name}"
        );
    }
    assert_eq!(hub.below(PLACEMENTS).len(), 0, "{what}");
}

/// Runs the upgrade, with a kill after the `point`-th write: what the dying process still asks for is not answered. How
/// many writes there were.
async fn run(point: usize) -> usize {
    let hub = hub();
    let (written, killed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (count, dead) = (written.clone(), killed.clone());
    hub.inject(move |method, path, _| {
        if count.load(Ordering::Relaxed) >= point && !dead.load(Ordering::Relaxed) {
            return Some(503);
        }
        count.fetch_add(usize::from(is_write(method, path)), Ordering::Relaxed);
        None
    });
    let mut process = Process::start(&hub);
    for _ in 0..120 {
        sleep(Duration::from_millis(500)).await;
        if written.load(Ordering::Relaxed) >= point && !killed.swap(true, Ordering::Relaxed) {
            process.kill();
            process = Process::start(&hub);
        }
        if is_over(&hub) {
            break;
        }
    }
    process.kill();
    check(&hub, &format!("killed after write {point}"));
    written.load(Ordering::Relaxed)
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_that_is_killed_after_any_write_goes_on() {
    let undisturbed = run(usize::MAX).await;
    assert!((20..40).contains(&undisturbed), "{undisturbed} writes");
    for point in 1..undisturbed {
        let writes = run(point).await;
        assert!(writes <= undisturbed + 4, "{writes} writes instead of {undisturbed}, killed after {point}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_while_talm_renews_its_lease() {
    for point in [1, 5, 9, 14] {
        let (hub, written) = (hub(), Arc::new(AtomicUsize::new(0)));
        let count = written.clone();
        hub.inject(move |method, path, _| {
            count.fetch_add(usize::from(is_write(method, path)), Ordering::Relaxed);
            None
        });
        let process = Process::start(&hub);
        while written.load(Ordering::Relaxed) < point {
            sleep(Duration::from_millis(20)).await;
        }
        process.lease(Some(0));
        sleep(Duration::from_secs(1)).await; // the reconcile that was under way
        let before = written.load(Ordering::Relaxed);
        for renewal in 1..10 {
            sleep(Duration::from_secs(10)).await;
            process.lease(Some(renewal));
        }
        assert_eq!(written.load(Ordering::Relaxed), before, "TALM came after write {point}");
        let noticed = hub.events().into_iter().filter(|(reason, _)| reason == "TalmActive").count();
        assert_eq!(noticed, 1, "once");
        process.lease(None);
        sleep(Duration::from_mins(1)).await;
        check(&hub, &format!("TALM came after write {point}"));
        process.kill();
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_could_not_be_written_is_written_later() {
    let hub = hub();
    let process = Process::start(&hub);
    process.lease(Some(0));
    let tries = Arc::new(AtomicUsize::new(0));
    let count = tries.clone();
    hub.inject(move |_, path, _| {
        count.fetch_add(usize::from(path.contains("/events")), Ordering::Relaxed);
        path.contains("/events").then_some(503)
    });
    for renewal in 1..20 {
        sleep(Duration::from_secs(30)).await;
        process.lease(Some(renewal));
        if renewal == 10 {
            assert_eq!(hub.events(), []);
            let tries = tries.load(Ordering::Relaxed);
            assert!((5..=9).contains(&tries), "{tries} tries in 5 minutes");
            hub.heal();
        }
    }
    let events: Vec<String> = hub.events().into_iter().map(|(reason, _)| reason).collect();
    assert_eq!(events, ["TalmActive"], "once");
    process.kill();
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_waits_for_a_definition_with_placements() {
    let hub = hub();
    hub.put(OLD, json!({ "metadata": {} }));
    let process = Process::start(&hub);
    sleep(Duration::from_mins(5)).await;
    assert_eq!(hub.requests(is_write), 0);
    let events: Vec<String> = hub.events().into_iter().map(|(reason, _)| reason).collect();
    assert_eq!(events, ["OldDefinition"], "once");
    hub.remove(OLD);
    sleep(Duration::from_mins(1)).await;
    check(&hub, "a new definition");
    process.kill();
}

#[tokio::test(start_paused = true)]
async fn bad_answers_are_tried_again_with_a_backoff() {
    let of = [("placements", PLACEMENTS), ("clusters", CLUSTERS), ("status", UPGRADES), ("bindings", BINDINGS)];
    for code in [404, 409, 410, 413, 422, 429, 500, 503] {
        for (what, path_of) in of {
            // A cluster that is gone is left out.
            if code == 404 && what == "clusters" {
                continue;
            }
            let hub = hub();
            let tries = Arc::new(AtomicUsize::new(0));
            let count = tries.clone();
            hub.inject(move |method, path, _| {
                let is_of = is_write(method, path) && format!("{path}/").contains(path_of);
                // A binding that exists counts as created.
                let fails = is_of && !(code == 409 && *method == Method::POST);
                count.fetch_add(usize::from(fails), Ordering::Relaxed);
                fails.then_some(code)
            });
            let process = Process::start(&hub);
            sleep(Duration::from_mins(2)).await;
            let tries = tries.load(Ordering::Relaxed);
            // Three objects, each of which is tried every 1.5 s.
            assert!(tries <= 3 * 100, "{tries} tries in 2 minutes, {code} of {what}");
            hub.heal();
            for _ in 0..60 {
                sleep(Duration::from_secs(10)).await;
                if is_over(&hub) {
                    break;
                }
            }
            check(&hub, &format!("{code} of {what}"));
            process.kill();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_binding_that_is_deleted_while_an_upgrade_waits_is_made_again() {
    let hub = hub();
    hub.edit(UPGRADE, |upgrade| upgrade["spec"]["enable"] = json!(false));
    let process = Process::start(&hub);
    sleep(Duration::from_mins(1)).await;
    let bindings = hub.below(BINDINGS);
    assert_eq!(bindings.len(), 2);
    hub.remove(&format!("{BINDINGS}{}", bindings[0]["metadata"]["name"].as_str().unwrap()));
    hub.edit(UPGRADE, |upgrade| {
        upgrade["spec"]["enable"] = json!(true);
        upgrade["metadata"]["generation"] = json!(2);
    });
    sleep(Duration::from_mins(1)).await;
    check(&hub, "a binding was deleted");
    process.kill();
}

/// As a label of `addClusterLabels` that no label can be.
#[tokio::test(start_paused = true)]
async fn a_write_that_is_refused_has_one_event_in_the_words_of_the_api_server() {
    for code in [403, 422] {
        let hub = hub();
        hub.inject(move |method, path, _| {
            (is_write(method, path) && path.contains("/managedclusters/")).then_some(code)
        });
        let process = Process::start(&hub);
        sleep(Duration::from_mins(20)).await;
        let events = || hub.events().into_iter().filter(|(reason, _)| reason == "WriteRefused").collect::<Vec<_>>();
        let (first, tries) = (events(), hub.requests(is_write));
        assert_eq!(first.len(), 1, "{first:?}");
        assert!(first[0].1.starts_with("cannot write ManagedCluster "), "{first:?}");
        assert!(first[0].1.contains(": the API server refused the write: "), "{first:?}");
        assert!(tries < 100, "{tries} writes in 20 minutes");
        hub.heal();
        sleep(Duration::from_mins(10)).await;
        check(&hub, "refused at first");
        process.kill();
    }
}

/// The namespace of a policy that was dropped before the start is cleaned up, too.
#[tokio::test(start_paused = true)]
async fn what_was_prepared_for_a_policy_that_was_dropped_goes() {
    const ELSEWHERE: &str = "/apis/cluster.open-cluster-management.io/v1beta1/namespaces/other/placements/x";
    let hub = hub();
    let labels = json!({
        "openshift-cluster-group-upgrades/clusterGroupUpgrade": "wave",
        "openshift-cluster-group-upgrades/clusterGroupUpgradeNamespace": "ztp",
    });
    hub.put(
        ELSEWHERE,
        json!({ "kind": "Placement", "metadata": { "name": "x", "namespace": "other", "labels": labels } }),
    );
    hub.edit(UPGRADE, |upgrade| {
        upgrade["status"] = json!({ "safeResourceNames": { "other/wave-p3-placement": "x", "/view": "view" } });
    });
    let process = Process::start(&hub);
    sleep(Duration::from_mins(1)).await;
    check(&hub, "a policy was dropped");
    assert!(hub.get(ELSEWHERE).is_null());
    process.kill();
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_that_is_left_alone_can_be_deleted() {
    for reason in ["PlacementRules", "OldDefinition", "NotServed"] {
        let (hub, is_old) = (hub(), reason == "OldDefinition");
        if is_old {
            hub.put(OLD, json!({ "metadata": {} }));
        }
        hub.edit(UPGRADE, |upgrade| {
            upgrade["metadata"]["finalizers"] = json!([FINALIZER]);
            if reason == "NotServed" {
                upgrade["spec"]["manifestWorkTemplates"] = json!(["works"]);
            }
            let conditions = json!([{
                "type": "Progressing", "status": if is_old { "False" } else { "True" }, "reason": "InProgress", "message": "",
                "lastTransitionTime": "2026-11-21T18:00:00Z",
            }]);
            upgrade["status"] = json!({
                "conditions": conditions, "managedPoliciesForUpgrade": [{ "name": "p1", "namespace": "policies" }],
            });
        });
        let process = Process::start(&hub);
        sleep(Duration::from_mins(1)).await;
        let events: Vec<String> = hub.events().into_iter().map(|(reason, _)| reason).collect();
        assert_eq!((events, hub.requests(is_write)), (vec![reason.to_owned()], 0));
        hub.edit(UPGRADE, |upgrade| upgrade["metadata"]["deletionTimestamp"] = json!("2026-11-21T18:01:00Z"));
        sleep(Duration::from_mins(1)).await;
        let left = &hub.get(UPGRADE)["metadata"]["finalizers"];
        assert!(left.as_array().is_none_or(Vec::is_empty), "{reason}: {left}");
        assert!(
            hub.requests(|method, path| *method == Method::DELETE && path.contains("placementbindings")) > 0,
            "{reason}"
        );
        process.kill();
    }
}
