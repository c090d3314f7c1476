//! Objects as they are and as they change: a list, the watch that goes on from it, and a list again once the watch has
//! ended.
//!
//! Not by kube's `watcher`: it cannot begin at a version that was read before, and opens a watch that ends at once
//! again and again.

use std::collections::{BTreeSet, VecDeque};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{self, BoxStream, LocalBoxStream};
use kube::Client;
use kube::api::{WatchEvent, WatchParams};
use kube::core::Request;
use serde_json::Value;
use shared::object::{name_of, text};
use tokio::time::{Instant, sleep_until, timeout};

use crate::connection::Notice;
use crate::error::HubError;
use crate::{HubClient, Pages, Resource, answer, selector};

/// After this long without any event a watch is taken for broken. The API server sends a bookmark about every minute.
const SILENCE: Duration = Duration::from_secs(90);
/// Time between two lists at the least: the hub may be restarting.
const PAUSE: Duration = Duration::from_secs(1);

/// The namespace of an object, empty if its kind has none, and its name.
pub type Place = (String, String);

/// What happens to the objects.
#[derive(Debug, PartialEq)]
pub enum Event {
    /// One is as it is now.
    Applied(Value),
    /// One does not exist any more.
    Deleted(Place),
    /// Nothing has changed, but time has passed.
    Tick,
}

/// Which objects are watched.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    pub resource: Resource,
    /// All if none.
    pub namespace: Option<&'a str>,
    /// All if empty.
    pub names: &'a [String],
    /// Label selector; empty for none.
    pub labels: &'a str,
    /// How often [`Event::Tick`] comes while nothing changes, or while the hub does not answer.
    pub tick: Duration,
    /// Whether the user reads of errors that pass also without `-v`.
    pub loud: bool,
}

impl Scope<'_> {
    /// All objects of a kind.
    pub fn of(resource: Resource) -> Self {
        Self { resource, namespace: None, names: &[], labels: "", tick: Duration::MAX, loud: false }
    }

    fn fields(&self) -> String {
        match self.names {
            [name] => format!("metadata.name={name}"),
            _ => String::new(),
        }
    }

    fn has(&self, place: &Place) -> bool {
        self.names.is_empty() || self.names.contains(&place.1)
    }
}

/// What happens to the objects, and that time passes.
pub struct Watcher<'a> {
    tick: Duration,
    events: LocalBoxStream<'a, Result<Event, HubError>>,
}

/// Where events come from.
struct Source<'a> {
    hub: &'a HubClient,
    scope: Scope<'a>,
    stage: Stage<'a>,
    /// What exists, as far as is known.
    known: BTreeSet<Place>,
    /// What was found and not taken yet.
    events: VecDeque<Event>,
    /// When the last list began.
    listed: Option<Instant>,
    /// Whether the hub did not answer last.
    has_failed: bool,
}

/// What comes next.
enum Stage<'a> {
    /// A list.
    List,
    /// The next page of the list, and the places seen so far.
    Pages(Box<Pages<'a>>, BTreeSet<Place>),
    /// A watch from this version on.
    Open(String),
    /// The next event of the watch.
    Watch(BoxStream<'static, Result<WatchEvent<Value>, HubError>>),
}

impl HubClient {
    /// Watches objects: first as they are, then every change. What is named and does not exist counts as deleted.
    pub fn watcher<'a>(&'a self, scope: Scope<'a>) -> Watcher<'a> {
        self.watcher_after(scope, &[])
    }

    /// The same after a list that had these objects: those that do not exist any more are deleted.
    pub fn watcher_after<'a>(&'a self, scope: Scope<'a>, known: &[Place]) -> Watcher<'a> {
        let mut source = Source::new(self, scope, Stage::List, None);
        source.known.extend(known.iter().cloned());
        source.watcher()
    }

    /// Watches objects that were read: every change after this version.
    pub fn watcher_from<'a>(&'a self, scope: Scope<'a>, version: &str) -> Watcher<'a> {
        Source::new(self, scope, Stage::Open(version.to_owned()), Some(Instant::now())).watcher()
    }

    /// Changes after a version. The stream ends when the API server ends it.
    async fn watch(
        &self,
        scope: &Scope<'_>,
        version: &str,
    ) -> Result<BoxStream<'static, Result<WatchEvent<Value>, HubError>>, HubError> {
        let call = scope.resource.call("watch", "");
        let params = WatchParams {
            field_selector: selector(&scope.fields()),
            label_selector: selector(scope.labels),
            ..WatchParams::default()
        };
        let request = Request::new(scope.resource.path(scope.namespace)).watch(&params, version);
        let request = request.map_err(|source| answer::unsendable(&call, source))?;
        let (url, call) = (&self.url, &call);
        let open = move |client: Client| {
            let request = request.clone();
            async move {
                let stream = client.request_events::<Value>(request).await;
                stream.map_err(|source| answer::judge(url, call, source))
            }
        };
        let stream = self.session.send(open).await?;
        let (url, call) = (Arc::clone(url), call.clone());
        Ok(stream.map(move |event| event.map_err(|source| answer::judge(&url, &call, source))).boxed())
    }
}

impl Watcher<'_> {
    /// The next event. After a transient error the objects are listed again: the caller sets the deadline.
    ///
    /// # Errors
    /// When the hub refuses to be asked.
    pub async fn next(&mut self) -> Result<Event, HubError> {
        match timeout(self.tick, self.events.next()).await {
            Ok(Some(event)) => event,
            Ok(None) | Err(_) => Ok(Event::Tick),
        }
    }
}

impl<'a> Source<'a> {
    fn new(hub: &'a HubClient, scope: Scope<'a>, stage: Stage<'a>, listed: Option<Instant>) -> Self {
        let namespace = scope.namespace.filter(|_| scope.resource.kind.is_namespaced()).unwrap_or_default();
        let known = scope.names.iter().map(|name| (namespace.to_owned(), name.clone())).collect();
        Self { hub, scope, stage, known, events: VecDeque::new(), listed, has_failed: false }
    }

    /// A tick must not cancel the request that is under way, so the stream keeps it.
    fn watcher(self) -> Watcher<'a> {
        let tick = self.scope.tick;
        let events = stream::unfold(self, |mut source| async move { Some((source.next().await, source)) });
        Watcher { tick, events: events.boxed_local() }
    }

    async fn next(&mut self) -> Result<Event, HubError> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            match self.step().await {
                Err(error) if error.is_transient() => {
                    let (kind, loud) = (self.scope.resource.kind.kind, self.scope.loud || self.hub.verbose);
                    (self.hub.notify)(Notice::Retry { kind, text: &error.to_string(), loud });
                    self.has_failed = true;
                    self.stage = Stage::List;
                }
                step => step?,
            }
        }
    }

    async fn step(&mut self) -> Result<(), HubError> {
        match &mut self.stage {
            Stage::List => {
                if let Some(listed) = self.listed {
                    sleep_until(listed + PAUSE).await;
                }
                self.listed = Some(Instant::now());
                let Scope { resource, namespace, labels, .. } = self.scope;
                let pages = self.hub.pages(resource, namespace, &self.scope.fields(), labels);
                self.stage = Stage::Pages(Box::new(pages), BTreeSet::new());
            }
            Stage::Pages(pages, found) => {
                let page = pages.next().await?;
                if mem::take(&mut self.has_failed) {
                    (self.hub.notify)(Notice::Recovered { kind: self.scope.resource.kind.kind });
                }
                let Some(page) = page else {
                    let before = mem::replace(&mut self.known, mem::take(found));
                    let gone = before.into_iter().filter(|place| !self.known.contains(place));
                    self.events.extend(gone.map(Event::Deleted));
                    self.stage = Stage::Open(mem::take(&mut pages.version));
                    return Ok(());
                };
                let placed = page.into_iter().map(|object| (place(&object), object));
                for (place, object) in placed.filter(|(place, _)| self.scope.has(place)) {
                    // If the list begins again, what is missing then counts as deleted.
                    self.known.insert(place.clone());
                    found.insert(place);
                    self.events.push_back(Event::Applied(object));
                }
            }
            Stage::Open(version) => {
                let changes = self.hub.watch(&self.scope, version).await?;
                self.stage = Stage::Watch(changes);
            }
            Stage::Watch(changes) => match timeout(SILENCE, changes.next()).await {
                // It is broken, has ended, or its version is too old.
                Err(_) | Ok(None | Some(Ok(WatchEvent::Error(_)))) => self.stage = Stage::List,
                Ok(Some(change)) => self.change(change?),
            },
        }
        Ok(())
    }

    fn change(&mut self, change: WatchEvent<Value>) {
        let (object, exists) = match change {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, true),
            WatchEvent::Deleted(object) => (object, false),
            WatchEvent::Bookmark(_) | WatchEvent::Error(_) => return,
        };
        let place = place(&object);
        if !self.scope.has(&place) {
            return;
        }
        if exists {
            self.known.insert(place);
            self.events.push_back(Event::Applied(object));
        } else {
            self.known.remove(&place);
            self.events.push_back(Event::Deleted(place));
        }
    }
}

/// The place of an object.
pub fn place(object: &Value) -> Place {
    (text(object, "/metadata/namespace").to_owned(), name_of(object).to_owned())
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::Mutex;
    use std::thread;

    use serde_json::json;
    use shared::kinds::POWER_ROLLOUT;

    use super::*;
    use crate::connection::Connection;

    /// A hub that gives these answers in turn, each on a connection of its own, and what it was asked: to list, or to
    /// watch from a version on. An answer without a body does not end.
    fn server(answers: Vec<(u16, String)>) -> (String, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let received = Arc::clone(&requests);
        thread::spawn(move || {
            for ((code, body), stream) in answers.into_iter().zip(listener.incoming()) {
                let mut stream = stream.unwrap();
                let mut head = [0; 8192];
                let length = stream.read(&mut head).unwrap();
                let head = String::from_utf8_lossy(&head[..length]).into_owned();
                let version =
                    head.split_once("resourceVersion=").map(|(_, rest)| rest.split([' ', '&']).next().unwrap());
                received.lock().unwrap().push(version.map_or("list".to_owned(), |version| format!("watch {version}")));
                let length = body.len().max(1);
                let head = format!(
                    "HTTP/1.1 {code} x\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
                );
                stream.write_all((head + &body).as_bytes()).unwrap();
                if body.is_empty() {
                    mem::forget(stream);
                }
            }
        });
        (url, requests)
    }

    fn hub(url: String) -> HubClient {
        let _ = crate::provider().install_default();
        let mut kubeconfig = tempfile::NamedTempFile::new().unwrap();
        kubeconfig.write_all(b"kind: Config\n").unwrap();
        let kubeconfig = Some(kubeconfig.path().to_owned());
        HubClient::connect(&Connection { server: Some(url), kubeconfig, ..Connection::default() }, Arc::new(|_| {}))
            .unwrap()
    }

    fn wait_for<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
    }

    fn object(name: &str, version: &str) -> Value {
        json!({ "apiVersion": "hibernate.sh/v1alpha1", "kind": "PowerRollout", "metadata": { "name": name, "resourceVersion": version } })
    }

    fn list(version: &str, items: &[Value]) -> (u16, String) {
        (200, json!({ "kind": "List", "metadata": { "resourceVersion": version }, "items": items }).to_string())
    }

    fn changes(changes: &[(&str, Value)]) -> (u16, String) {
        let line = |(type_, object): &(&str, Value)| format!("{}\n", json!({ "type": type_, "object": object }));
        (200, changes.iter().map(line).collect())
    }

    fn status(code: u16, message: &str) -> Value {
        json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "message": message })
    }

    /// `a 1`, `-b`, or `tick`.
    fn short(event: &Event) -> String {
        match event {
            Event::Applied(object) => {
                format!("{} {}", name_of(object), object["metadata"]["resourceVersion"].as_str().unwrap())
            }
            Event::Deleted((namespace, name)) => format!("{namespace}-{name}"),
            Event::Tick => "tick".to_owned(),
        }
    }

    #[test]
    fn nothing_is_missed_between_watches_and_no_hub_is_asked_in_a_hurry() {
        let refused = r#"powerrollouts.hibernate.sh is forbidden: User "x" cannot watch resource "powerrollouts""#;
        let (url, requests) = server(vec![
            list("5", &[object("a", "1"), object("b", "2"), object("other", "3")]),
            changes(&[
                ("MODIFIED", object("a", "6")),
                ("BOOKMARK", object("", "7")),
                ("ADDED", object("another", "8")),
                ("DELETED", object("b", "9")),
            ]),
            // The watch has ended: what happened since then is in the list.
            list("12", &[object("b", "11")]),
            changes(&[("ERROR", status(410, "too old resource version"))]),
            (500, status(500, "restarting").to_string()),
            list("13", &[object("b", "11")]),
            (403, status(403, refused).to_string()),
        ]);
        let names = ["a", "b"].map(str::to_owned);
        let begun = Instant::now();
        let (events, error) = wait_for(async {
            let hub = hub(url);
            let scope = Scope { names: &names, ..Scope::of(Resource::preferred(&POWER_ROLLOUT.kind)) };
            let mut watcher = hub.watcher(scope);
            let mut events = Vec::new();
            loop {
                match watcher.next().await {
                    Ok(event) => events.push(short(&event)),
                    Err(error) => return (events, error),
                }
            }
        });
        assert_eq!(events, ["a 1", "b 2", "a 6", "-b", "b 11", "-a", "b 11"]);
        assert!(matches!(error, HubError::Forbidden { .. }), "{error}");
        assert_eq!(*requests.lock().unwrap(), ["list", "watch 5", "list", "watch 12", "list", "list", "watch 13"]);
        assert!(begun.elapsed() >= 3 * PAUSE, "four lists in {:?}", begun.elapsed());
    }

    /// Objects are there with their page, and what an aborted list had is gone if the next one lacks it.
    #[test]
    fn a_list_whose_token_expires_between_pages_begins_again() {
        let page = json!({ "kind": "List", "metadata": { "continue": "more" }, "items": [object("a", "1")] });
        let (url, requests) = server(vec![
            (200, page.to_string()),
            (410, status(410, "The provided continue parameter is too old").to_string()),
            list("7", &[object("b", "2")]),
            (200, String::new()),
        ]);
        let events = wait_for(async {
            let hub = hub(url);
            let mut watcher = hub.watcher(Scope::of(Resource::preferred(&POWER_ROLLOUT.kind)));
            let mut events = Vec::new();
            for _ in 0..3 {
                events.push(short(&watcher.next().await.unwrap()));
            }
            events
        });
        assert_eq!(events, ["a 1", "b 2", "-a"]);
        assert_eq!(requests.lock().unwrap()[..3], ["list", "list", "list"]);
    }

    #[test]
    fn what_is_named_and_not_there_is_gone_and_time_passes_while_nothing_changes() {
        let (url, requests) = server(vec![list("5", &[]), (200, String::new())]);
        let names = ["a".to_owned()];
        let events = wait_for(async {
            let hub = hub(url);
            let tick = Duration::from_millis(10);
            let mut watcher =
                hub.watcher(Scope { names: &names, tick, ..Scope::of(Resource::preferred(&POWER_ROLLOUT.kind)) });
            let mut events = Vec::new();
            for _ in 0..3 {
                events.push(short(&watcher.next().await.unwrap()));
            }
            events
        });
        assert_eq!(events, ["-a", "tick", "tick"]);
        assert_eq!(*requests.lock().unwrap(), ["list", "watch 5"]);
    }

    /// Whether it answers with an error or not at all.
    #[test]
    fn time_passes_while_the_hub_cannot_be_listed() {
        let (url, requests) = server(vec![(500, status(500, "restarting").to_string()), (200, String::new())]);
        wait_for(async {
            let hub = hub(url);
            let tick = Duration::from_millis(10);
            let mut watcher = hub.watcher(Scope { tick, ..Scope::of(Resource::preferred(&POWER_ROLLOUT.kind)) });
            let mut ticks = 0;
            while requests.lock().unwrap().len() < 2 || ticks < 3 {
                let event = timeout(PAUSE * 5, watcher.next()).await.expect("time passes");
                assert_eq!(event.unwrap(), Event::Tick);
                ticks += 1;
            }
            assert_eq!(timeout(PAUSE, watcher.next()).await.expect("time passes").unwrap(), Event::Tick);
        });
        assert_eq!(*requests.lock().unwrap(), ["list", "list"]);
    }
}
