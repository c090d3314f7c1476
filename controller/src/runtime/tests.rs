//! The harness on a paused clock, with a hub in memory and a system whose targets say how they behave.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::core::Status;
use kube::runtime::watcher::{self, Event};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::crash_marks::CrashMarks;
use super::testing::MemoryHub;
use super::*;

const BELOW: &str = "/api/v1/namespaces/ns/configmaps/";

/// How often each target was reconciled, and when.
type Log = Arc<Mutex<BTreeMap<String, Vec<Instant>>>>;

/// A system whose targets say in their data what happens to them.
struct Puppet {
    handle: Handle<ConfigMap>,
    log: Log,
    forgotten: Log,
}

/// Counts what it remembers.
#[derive(Default)]
struct Remembered {
    passes: usize,
    failed: Vec<Class>,
    brittle: bool,
}

fn note(log: &Log, name: &str) {
    log.lock().entry(name.to_owned()).or_default().push(Instant::now());
}

impl System for Puppet {
    type Object = ConfigMap;
    type State = Remembered;
    type Facts<'a> = &'a ConfigMap;
    type Plan = String;
    const NAME: &'static str = "puppet";
    const ACTION: &'static str = "Play";
    const SETTINGS: Settings = Settings {
        page_size: 10,
        concurrency: 4,
        timeout: Duration::from_secs(30),
        optional: true,
        conflict: 100..101,
        retry: 2_000..2_001,
    };

    async fn observe<'a>(
        &self,
        object: &'a ConfigMap,
        target: &mut Target<Self>,
    ) -> Reconciled<Observed<&'a ConfigMap>> {
        target.state.passes += 1;
        note(&self.log, &object.name_any());
        Ok(Observed::Facts(object))
    }

    fn decide(&self, object: &Self::Facts<'_>) -> String {
        object.data.as_ref().and_then(|data| data.get("plan")).cloned().unwrap_or_default()
    }

    async fn act(
        &self,
        object: &mut Self::Facts<'_>,
        plan: &mut String,
        target: &mut Target<Self>,
    ) -> Reconciled<Acted> {
        match plan.as_str() {
            "panic" => panic!("\u{202e}broken\n{}", "x".repeat(2_000)),
            "hang" => std::future::pending().await,
            "hang and panic" => {
                target.state.brittle = true;
                std::future::pending().await
            }
            "silent" => {
                slot::outside(sleep(Duration::from_secs(8))).await;
                Ok(Acted::Nothing)
            }
            "slow" => {
                sleep(Duration::from_secs(8)).await;
                Ok(Acted::Nothing)
            }
            "write" => {
                let version = object.resource_version();
                let patch = json!([
                    {"op": "test", "path": "/metadata/resourceVersion", "value": version},
                    {"op": "add", "path": "/status", "value": {"said": "done"}},
                ]);
                let written = self.handle.hub.patch_status(*object, patch).await.map_err(ReconcileError::status)?;
                target.wrote(&written);
                Ok(Acted::Changed)
            }
            _ => Ok(Acted::Nothing),
        }
    }

    fn decide_again(&self, _: &Self::Facts<'_>, first: String) -> String {
        format!("{first} again")
    }

    async fn report(&self, _: &mut Self::Facts<'_>, plan: &mut String, _: &mut Target<Self>) -> Reconciled<Done> {
        let requeue = plan.strip_prefix("every ").and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
        Ok(Done { requeue, changed: plan.ends_with(" again") })
    }

    fn failed(&self, state: &mut Remembered, class: Class) {
        assert!(!state.brittle, "the bookkeeping is broken");
        state.failed.push(class);
    }

    fn forget(&self, key: &Key) {
        note(&self.forgotten, &key.1);
    }
}

/// A stage: the hub, the system at work, and what it has done.
struct Stage {
    hub: MemoryHub,
    log: Log,
    forgotten: Log,
    events: futures::channel::mpsc::UnboundedSender<watcher::Result<Event<Guarded<ConfigMap>>>>,
    term: Term,
    work: JoinHandle<()>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.work.abort();
    }
}

fn map(name: &str, plan: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"plan": plan},
        "metadata": {"name": name, "namespace": "ns", "uid": name, "generation": 1}})
}

impl Stage {
    fn open(targets: &[(&str, &str)]) -> Self {
        Self::marked(targets, CrashMarks::default())
    }

    fn marked(targets: &[(&str, &str)], marks: CrashMarks) -> Self {
        use futures::StreamExt;
        let hub = MemoryHub::default();
        for (name, plan) in targets {
            hub.put(&format!("{BELOW}{name}"), map(name, plan));
        }
        let (log, forgotten) = (Log::default(), Log::default());
        let (events, injected) = futures::channel::mpsc::unbounded();
        let mut term = hub.term();
        term.hub.marks = marks;
        let puppet = |handle| Puppet { handle, log: log.clone(), forgotten: forgotten.clone() };
        let watch = futures::stream::select(hub.watch::<ConfigMap>(BELOW), injected);
        let work = tokio::spawn(term.watch().with(puppet).run_on(watch.boxed()));
        Self { hub, log, forgotten, events, term, work }
    }

    fn passes(&self, name: &str) -> Vec<Instant> {
        self.log.lock().get(name).cloned().unwrap_or_default()
    }

    fn forgotten(&self, name: &str) -> usize {
        self.forgotten.lock().get(name).map_or(0, Vec::len)
    }

    /// Whole seconds between its reconciles.
    fn pauses(&self, name: &str) -> Vec<u64> {
        self.passes(name).windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect()
    }

    fn plan(&self, name: &str, plan: &str) {
        self.hub.edit(&format!("{BELOW}{name}"), |object| {
            object["data"]["plan"] = json!(plan);
            object["metadata"]["generation"] = json!(object["metadata"]["generation"].as_u64().unwrap() + 1);
        });
    }

    fn metric(&self, line: &str) -> bool {
        self.hub.metrics.text().lines().any(|found| found == line)
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_stays_with_its_target_and_is_retried_slowly_until_the_object_changes() {
    let stage = Stage::open(&[("bad", "panic"), ("good", "every 10")]);
    sleep(Duration::from_mins(16)).await;
    assert_eq!(stage.pauses("bad"), [60, 120, 240, 480]);
    assert!(stage.passes("good").len() >= 96, "nobody else waits");
    assert!(stage.metric("hibernate_panics_total{system=\"puppet\"} 5"), "{}", stage.hub.metrics.text());
    assert!(stage.metric("hibernate_reconciles_total{system=\"puppet\",outcome=\"Panicked\"} 5"));
    let events = stage.hub.events();
    let (reason, text) = &events[0];
    assert!(reason == "InternalError" && text.contains(" broken x") && text.len() < 1_000, "{events:?}");
    assert!(!text.contains(['\n', '\u{202e}']), "{text:?}");

    stage.plan("bad", "every 10");
    sleep(Duration::from_secs(21)).await;
    assert_eq!(stage.passes("bad").len(), 8, "at once, and then as planned");
    stage.plan("bad", "panic");
    sleep(Duration::from_secs(61)).await;
    assert_eq!(stage.pauses("bad").last(), Some(&60), "the backoff begins anew");
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_bookkeeping_stays_with_its_target_too() {
    let stage = Stage::open(&[("bad", "hang and panic"), ("good", "every 10")]);
    sleep(Duration::from_mins(10)).await;
    assert_eq!(stage.pauses("bad"), [90; 6], "the timeout and a minute");
    let pauses = stage.pauses("good");
    assert!(pauses.len() >= 58 && pauses.iter().all(|pause| *pause == 10), "{pauses:?}");
}

#[tokio::test(start_paused = true)]
async fn a_status_of_others_is_no_reason_to_panic_more_often_than_once_a_minute() {
    let stage = Stage::open(&[("bad", "panic")]);
    for second in 0..300 {
        sleep(Duration::from_secs(1)).await;
        stage.hub.edit(&format!("{BELOW}bad"), |object| object["status"] = json!({"beat": second}));
    }
    let passes = stage.passes("bad").len();
    assert!((4..=6).contains(&passes), "{passes}");
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_that_hangs_is_given_up() {
    let stage = Stage::open(&[("slow", "hang"), ("good", "every 10")]);
    sleep(Duration::from_secs(33)).await;
    assert_eq!(stage.pauses("slow"), [32]);
    assert_eq!(stage.passes("good").len(), 4);
    assert!(stage.metric("hibernate_reconciles_total{system=\"puppet\",outcome=\"TimedOut\"} 1"));
}

/// When a target of another tenant is reconciled that comes while a crowd of this one does this.
async fn beside(plan: &str, crowd: usize) -> Duration {
    let names: Vec<String> = (0..crowd).map(|number| format!("crowd-{number}")).collect();
    let targets: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), plan)).collect();
    let stage = Stage::open(&targets);
    sleep(Duration::from_secs(1)).await;
    let (asked, mut other) = (Instant::now(), map("other", "every 10"));
    other["metadata"]["namespace"] = json!("another");
    stage.hub.put(&format!("{BELOW}other"), other);
    sleep(Duration::from_mins(40)).await;
    assert!(names.iter().all(|name| !stage.passes(name).is_empty()), "each has its turn");
    assert!(stage.pauses("other").iter().all(|pause| *pause <= 11), "and the other one goes on");
    stage.passes("other")[0] - asked
}

#[tokio::test(start_paused = true)]
async fn a_thousand_targets_of_one_tenant_delay_no_other() {
    for plan in ["silent", "slow"] {
        assert!(beside(plan, 1_000).await < Duration::from_millis(100), "{plan}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_target_that_has_ended_the_process_is_left_alone_and_others_are_not() {
    let folder = std::env::temp_dir().join(format!("puppets-{:016x}", rand::random::<u64>()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("targets-at-work"), "1 1 0 puppet/bomb ns/bomb\n").unwrap();
    let marks = CrashMarks::open(&folder).unwrap();
    let began = Instant::now();
    let stage = Stage::marked(&[("bomb", "every 10"), ("good", "every 10")], marks);
    sleep(Duration::from_mins(1)).await;
    assert_eq!(stage.passes("good")[0], began, "at once");
    let left_alone = (stage.passes("bomb")[0] - began).as_secs();
    assert!((4..=6).contains(&left_alone), "{left_alone} s after the second time");
    assert!(stage.pauses("bomb").iter().all(|pause| *pause == 10), "it has come to an end");
    let events = stage.hub.events();
    assert!(events.len() == 1 && events[0].1.contains("ended 2 times in a row"), "{events:?}");
    drop(stage);
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lost_race_is_repeated_at_once_and_its_own_write_is_read_back() {
    let stage = Stage::open(&[]);
    let hub = stage.hub.clone();
    hub.race(3);
    hub.put(&format!("{BELOW}racer"), map("racer", "write"));
    sleep(Duration::from_secs(2)).await;
    assert_eq!(hub.get(&format!("{BELOW}racer"))["status"]["said"], "done");
    assert!(stage.passes("racer").len() >= 4);
    assert!(stage.metric("hibernate_reconciles_total{system=\"puppet\",outcome=\"Status\"} 3"));
    assert!(hub.events().is_empty(), "a conflict is nobody's problem: {:?}", hub.events());
    let settled = hub.patches();
    sleep(Duration::from_mins(10)).await;
    assert_eq!(hub.patches() - settled, 0, "and nothing loops");
}

#[tokio::test(start_paused = true)]
async fn a_refused_status_is_told_counted_and_backed_off() {
    // A schema answers 422, a webhook of others whatever it likes.
    for code in [404, 409, 422] {
        let stage = Stage::open(&[]);
        let is_status = |method: &http::Method, path: &str| *method == http::Method::PATCH && path.ends_with("/status");
        stage.hub.inject(move |method, path, _| is_status(method, path).then_some(code));
        stage.hub.put(&format!("{BELOW}refused"), map("refused", "write"));
        sleep(Duration::from_mins(16)).await;
        assert_eq!(stage.pauses("refused"), [2, 4, 8, 16, 32, 64, 128, 256, 300], "{code}");
        assert!(stage.metric("hibernate_refused_writes_total{system=\"puppet\"} 10"), "{}", stage.hub.metrics.text());
        let events = stage.hub.events();
        assert_eq!(events.len(), 1, "published once: {events:?}");
        assert!(events[0].0 == "WriteRefused" && events[0].1.contains("an injected fault"), "{events:?}");
        stage.hub.heal();
        stage.plan("refused", "write");
        sleep(Duration::from_secs(1)).await;
        let said = stage.hub.get(&format!("{BELOW}refused"))["status"]["said"].clone();
        assert_eq!(said, "done", "at once when the object changes");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unprocessable_write_to_an_object_that_has_moved_is_a_conflict() {
    let stage = Stage::open(&[("stale", "")]);
    sleep(Duration::from_secs(1)).await;
    let read: ConfigMap = serde_json::from_value(stage.hub.get(&format!("{BELOW}stale"))).unwrap();
    stage.hub.edit(&format!("{BELOW}stale"), |object| object["data"]["by"] = json!("somebody"));
    let patch = json!([{"op": "test", "path": "/metadata/resourceVersion", "value": read.resource_version()}]);
    let error = stage.term.hub.patch_status(&read, patch).await.unwrap_err();
    assert_eq!(error.class(), Class::Conflict, "{error}");
}

#[tokio::test(start_paused = true)]
async fn what_is_gone_is_forgotten_however_that_is_learned() {
    let stage = Stage::open(&[("deleted", ""), ("unnoticed", ""), ("busy", "hang"), ("stays", "")]);
    sleep(Duration::from_secs(1)).await;
    for name in ["deleted", "busy"] {
        let object = serde_json::from_value(stage.hub.remove(&format!("{BELOW}{name}"))).unwrap();
        let _ = stage.events.unbounded_send(Ok(Event::Delete(object)));
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!((stage.forgotten("deleted"), stage.forgotten("busy")), (1, 1));
    sleep(Duration::from_secs(40)).await;
    assert!(stage.forgotten("busy") >= 2, "once more when its reconcile has ended");
    assert_eq!(stage.passes("busy").len(), 1);

    let stays = serde_json::from_value(stage.hub.get(&format!("{BELOW}stays"))).unwrap();
    for event in [Event::Init, Event::InitApply(stays), Event::InitDone] {
        let _ = stage.events.unbounded_send(Ok(event));
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!((stage.forgotten("unnoticed"), stage.forgotten("stays")), (1, 0), "while the watch was down");
    assert_eq!(stage.passes("stays").len(), 2, "what is listed again is reconciled again");
}

#[tokio::test(start_paused = true)]
async fn another_object_of_the_same_name_begins_with_nothing_remembered() {
    let stage = Stage::open(&[("twin", "")]);
    sleep(Duration::from_secs(1)).await;
    stage.hub.edit(&format!("{BELOW}twin"), |object| object["metadata"]["uid"] = json!("another"));
    sleep(Duration::from_secs(1)).await;
    assert_eq!((stage.passes("twin").len(), stage.forgotten("twin")), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_is_told_and_waited_for() {
    let stage = Stage::open(&[]);
    sleep(Duration::from_secs(1)).await;
    assert!(stage.term.readiness.answer(true, true).1.contains("[+]puppet ok\n"));
    let missing = Status::failure("404 page not found", "").with_code(404).boxed();
    let missing = watcher::Error::InitialListFailed(kube::Error::Api(missing));
    let _ = stage.events.unbounded_send(Err(missing));
    sleep(Duration::from_secs(1)).await;
    let text = stage.term.readiness.answer(true, true).1;
    assert!(text.contains("[-]puppet kind configmaps is not served\n"), "{text}");
    assert!(stage.metric("hibernate_kind_served{system=\"puppet\",kind=\"configmaps\"} 0"));
    stage.hub.put(&format!("{BELOW}late"), map("late", ""));
    sleep(Duration::from_secs(1)).await;
    assert!(stage.term.readiness.answer(true, true).1.contains("[+]puppet ok\n"));
    assert_eq!(stage.passes("late").len(), 1);
}
