//! A hub in memory, for tests on a paused clock: it keeps objects, applies patches, and answers what a test injects.
//!
//! It is no API server: no schemas, no watches of its own. Tests of the product against a real one are in `tests/`.

use std::collections::BTreeMap;
use std::sync::Arc;

use fair::{FairLimit, MemoryLimit, MemorySizes};
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use kube::runtime::events::Reporter;
use kube::runtime::watcher::{self, Event};
use parking_lot::Mutex;
use serde_json::{Value, json};
use server::Warnings;
use tokio::time::Instant;
use tower::BoxError;

use super::crash_marks::CrashMarks;
use super::events::Events;
use super::lease::Claim;
use super::readiness::Readiness;
use super::{Guarded, Hub, Object, Term, clock};
use crate::metrics::Metrics;

/// What a test may answer to a request: method, path and body. `None` lets it through.
pub type Fault = Box<dyn FnMut(&Method, &str, &Value) -> Option<u16> + Send>;

/// A hub in memory.
#[derive(Clone, Default)]
pub struct MemoryHub {
    state: Arc<Mutex<State>>,
    pub metrics: Arc<Metrics>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    version: u64,
    requests: Vec<(Method, String, Value)>,
    events: Vec<Value>,
    fault: Option<Fault>,
    /// Patches before each of which another client writes.
    races: u32,
    watchers: Vec<UnboundedSender<Value>>,
}

impl MemoryHub {
    /// Answers requests as this says from here on.
    pub fn inject(&self, fault: impl FnMut(&Method, &str, &Value) -> Option<u16> + Send + 'static) {
        self.state.lock().fault = Some(Box::new(fault));
    }

    /// Answers everything again.
    pub fn heal(&self) {
        self.state.lock().fault = None;
    }

    /// Lets another client write first before each of the next patches, so many.
    pub fn race(&self, patches: u32) {
        self.state.lock().races = patches;
    }

    /// Creates or replaces an object, as another client does.
    pub fn put(&self, path: &str, mut object: Value) {
        let mut state = self.state.lock();
        state.version += 1;
        object["metadata"]["resourceVersion"] = json!(state.version.to_string());
        state.objects.insert(path.to_owned(), object.clone());
        state.notify(&object);
    }

    /// Edits an object, as another client does.
    pub fn edit(&self, path: &str, edit: impl FnOnce(&mut Value)) {
        let mut object = self.get(path);
        edit(&mut object);
        self.put(path, object);
    }

    /// An object as it stands.
    pub fn get(&self, path: &str) -> Value {
        self.state.lock().objects.get(path).cloned().unwrap_or_default()
    }

    /// The objects below a path.
    pub fn below(&self, below: &str) -> Vec<Value> {
        let state = self.state.lock();
        state.objects.iter().filter(|(path, _)| path.starts_with(below)).map(|(_, object)| object.clone()).collect()
    }

    /// Removes an object.
    pub fn remove(&self, path: &str) -> Value {
        self.state.lock().objects.remove(path).unwrap_or_default()
    }

    /// Patches so far, with their paths.
    pub fn patches(&self) -> usize {
        self.state.lock().requests.iter().filter(|(method, ..)| method == Method::PATCH).count()
    }

    /// Requests so far that are of this form.
    pub fn requests(&self, is: impl Fn(&Method, &str) -> bool) -> usize {
        self.state.lock().requests.iter().filter(|(method, path, _)| is(method, path)).count()
    }

    /// Reason and note of each Event.
    pub fn events(&self) -> Vec<(String, String)> {
        let text = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
        self.state.lock().events.iter().map(|event| (text(event, "reason"), text(event, "note"))).collect()
    }

    /// A client of this hub.
    pub fn client(&self) -> Client {
        let hub = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let hub = hub.clone();
            async move {
                let (parts, body) = request.into_parts();
                let bytes = body.collect_bytes().await?;
                let body = serde_json::from_slice(&bytes).unwrap_or_default();
                let (code, answer) = hub.answer(&parts.method, parts.uri.path(), body);
                let answer = Response::builder().status(code).body(Body::from(serde_json::to_vec(&answer)?));
                answer.map_err(BoxError::from)
            }
        });
        Client::new(service, "default")
    }

    /// A new term of leadership.
    pub fn term(&self) -> Term {
        let client = self.client();
        let reporter = Reporter { controller: "test".to_owned(), instance: None };
        let hub = Hub {
            client: client.clone(),
            watches: client.clone(),
            memory: MemoryLimit::new(MemorySizes::OBJECTS),
            claim: Claim::held(),
            metrics: self.metrics.clone(),
            events: Events::new(client, reporter),
            warnings: Warnings::default(),
            marks: CrashMarks::default(),
            writes: FairLimit::new(32, 32),
            began: Instant::now(),
            began_at: clock::now(),
        };
        Term { hub, readiness: Arc::new(Readiness::new(self.metrics.clone())) }
    }

    /// Watches the objects below a path: lists them, then sends each later write.
    pub fn watch<K: Object>(&self, below: &str) -> UnboundedReceiver<watcher::Result<Event<Guarded<K>>>> {
        let (sender, receiver) = unbounded();
        let (raw, changes) = unbounded::<Value>();
        let mut state = self.state.lock();
        let _ = sender.unbounded_send(Ok(Event::Init));
        for object in state.objects.iter().filter(|(path, _)| path.starts_with(below)).map(|(_, object)| object) {
            let _ = sender.unbounded_send(Ok(Event::InitApply(read(object))));
        }
        let _ = sender.unbounded_send(Ok(Event::InitDone));
        state.watchers.push(raw);
        let kind = K::kind(&()).into_owned();
        tokio::spawn(async move {
            use futures::StreamExt;
            let mut changes = changes;
            while let Some(object) = changes.next().await {
                if object["kind"] == kind {
                    let _ = sender.unbounded_send(Ok(Event::Apply(read(&object))));
                }
            }
        });
        receiver
    }

    fn answer(&self, method: &Method, path: &str, body: Value) -> (u16, Value) {
        let mut state = self.state.lock();
        state.requests.push((method.clone(), path.to_owned(), body.clone()));
        let fault = state.fault.as_mut().and_then(|fault| fault(method, path, &body));
        if let Some(code) = fault {
            return failure(code, "an injected fault");
        }
        if path.contains("/events") {
            if *method == Method::POST {
                state.events.push(body.clone());
            }
            return (201, body);
        }
        let (path, part) = path.strip_suffix("/status").map_or((path, ""), |path| (path, "/status"));
        match *method {
            Method::GET => state.objects.get(path).map_or_else(
                || match state.list(path) {
                    Some(list) => (200, list),
                    None => missing(path),
                },
                |object| (200, object.clone()),
            ),
            Method::PATCH => {
                state.race(path);
                state.patch(path, part, body)
            }
            Method::POST => state.create(path, body),
            Method::DELETE => state.delete(path, &body),
            _ => failure(405, "not served"),
        }
    }
}

impl State {
    /// A collection: its last word is plural, and objects are below it. `ClusterSyncs` do not exist here.
    fn list(&self, path: &str) -> Option<Value> {
        let below = format!("{path}/");
        let items: Vec<&Value> =
            self.objects.iter().filter(|(path, _)| path.starts_with(&below)).map(|(_, object)| object).collect();
        (path.ends_with('s') && !path.ends_with("/clustersyncs"))
            .then(|| json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items}))
    }

    fn create(&mut self, path: &str, mut body: Value) -> (u16, Value) {
        let path = format!("{path}/{}", body["metadata"]["name"].as_str().unwrap_or_default());
        if self.objects.contains_key(&path) {
            let (code, mut status) = failure(409, "already exists");
            status["reason"] = json!("AlreadyExists");
            return (code, status);
        }
        self.version += 1;
        body["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(path, body.clone());
        self.notify(&body);
        (201, body)
    }

    fn delete(&mut self, path: &str, options: &Value) -> (u16, Value) {
        // A collection: all of it, whatever its labels.
        let below = format!("{path}/");
        if path.ends_with('s') && !self.objects.contains_key(path) {
            self.objects.retain(|path, _| !path.starts_with(&below));
            return (200, json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success" }));
        }
        let Some(found) = self.objects.get(path) else { return failure(404, "not found") };
        let version = &options["preconditions"]["resourceVersion"];
        if !version.is_null() && *version != found["metadata"]["resourceVersion"] {
            return failure(409, "the object has been modified");
        }
        (200, self.objects.remove(path).unwrap_or_default())
    }

    /// Another client writes first, if one is to.
    fn race(&mut self, path: &str) {
        let Some(left) = self.races.checked_sub(1) else { return };
        let Some(object) = self.objects.get_mut(path) else { return };
        (self.races, self.version) = (left, self.version + 1);
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = object.clone();
        self.notify(&object);
    }

    fn patch(&mut self, path: &str, part: &str, body: Value) -> (u16, Value) {
        let Some(before) = self.objects.get(path).cloned() else { return failure(404, "not found") };
        if before["immutable"] == true && !body["data"].is_null() {
            return failure(422, "field is immutable when `immutable` is set");
        }
        let mut after = before.clone();
        if body.is_array() {
            let Ok(patch) = serde_json::from_value::<json_patch::Patch>(body) else { return failure(400, "no patch") };
            if json_patch::patch(&mut after, &patch).is_err() {
                return failure(422, "the server rejected our request due to an error in our request");
            }
        } else {
            let version = body["metadata"]["resourceVersion"].clone();
            if !version.is_null() && version != before["metadata"]["resourceVersion"] {
                return failure(409, "the object has been modified");
            }
            json_patch::merge(&mut after, &body);
        }
        if after == before {
            return (200, before);
        }
        self.version += 1;
        if part.is_empty() && after["spec"] != before["spec"] {
            after["metadata"]["generation"] = json!(after["metadata"]["generation"].as_u64().unwrap_or_default() + 1);
        }
        after["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(path.to_owned(), after.clone());
        self.notify(&after);
        (200, after)
    }

    fn notify(&mut self, object: &Value) {
        self.watchers.retain(|watcher| watcher.unbounded_send(object.clone()).is_ok());
    }
}

fn read<K: Object>(object: &Value) -> Guarded<K> {
    serde_json::from_value(object.clone()).unwrap()
}

/// As an API server that serves the kind answers.
fn missing(path: &str) -> (u16, Value) {
    let (code, mut status) = failure(404, "not found");
    status["details"] = json!({ "name": path.rsplit('/').next() });
    (code, status)
}

fn failure(code: u16, message: &str) -> (u16, Value) {
    let status = Status::failure(message, if code == 404 { "NotFound" } else { "Any" }).with_code(code);
    (code, serde_json::to_value(status).unwrap_or_default())
}
