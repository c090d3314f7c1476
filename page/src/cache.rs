//! What the page has of the hub: one list and one watch for each kind, however many tabs there are.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use hub::HubClient;
use hub::error::HubError;
use jiff::Timestamp;
use shared::kinds::{CLUSTER_SCHEDULE, Key, SCHEDULE};
use shared::text::{and_more, sanitize};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until};
use view::entries::{self, Entries, Entry, Update};
use view::error::{Failure, ViewError};
use view::target::TargetState;
use view::{Event, Item, Listing, Query};

/// Pauses before everything is listed again after the hub has refused to be read: the first, and the longest.
const RELIST_BACKOFF: (Duration, Duration) = (Duration::from_secs(5), Duration::from_mins(1));
/// Time between two lists because of a schedule that changed: targets show the schedules of the last list.
const RELIST_INTERVAL: Duration = Duration::from_secs(30);
/// Time until everything is listed again because the user may not list a kind.
const FORBIDDEN_INTERVAL: Duration = Duration::from_mins(5);
/// Failures that a tab gets.
const MAX_FAILURES: usize = 20;

/// Makes a client of the hub, with the credentials of now.
pub type Connect = dyn Fn() -> Result<HubClient, HubError> + Send + Sync;

/// The objects, shared by all tabs.
#[derive(Default)]
pub struct Cache {
    objects: Mutex<Objects>,
    changed: watch::Sender<u64>,
}

/// The objects and what is wrong.
#[derive(Default)]
pub struct Objects {
    entries: Entries,
    /// Incremented when a target appears or disappears.
    pub revision: u64,
    /// Incremented when a rollout, upgrade or schedule changes.
    pub activity: u64,
    /// Whether they were listed once.
    pub is_listed: bool,
    /// Why kinds are not shown.
    failures: Vec<String>,
    /// Since when the hub does not answer, and its error: by kind, empty for all.
    outages: BTreeMap<&'static str, (Timestamp, String)>,
}

impl Objects {
    /// What can be read.
    pub fn items(&self) -> impl Iterator<Item = &Item> {
        self.entries.values().flatten()
    }

    /// The object with this key.
    pub fn item(&self, key: &Key) -> Option<&Item> {
        self.entries.get(key)?.as_ref().ok()
    }

    /// The target with this key.
    pub fn target(&self, key: &Key) -> Option<&TargetState> {
        self.item(key)?.target()
    }

    /// All targets.
    pub fn targets(&self) -> impl Iterator<Item = &TargetState> {
        self.items().filter_map(Item::target)
    }

    /// What is not shown, and why.
    pub fn failures(&self) -> Vec<String> {
        let mut all = self.failures.iter().chain(self.entries.values().filter_map(|entry| entry.as_ref().err()));
        let mut shown: Vec<String> = all.by_ref().take(MAX_FAILURES).cloned().collect();
        shown.extend(and_more(all.count()));
        shown
    }

    /// Since when the hub does not answer, and its error; empty while it does.
    pub fn outage(&self) -> String {
        let first = self.outages.values().min_by_key(|(since, _)| *since);
        first.map(|(since, text)| format!("since {since:.0}: {text}")).unwrap_or_default()
    }

    /// Replaces everything by a list.
    fn replace(&mut self, query: &Query, items: Vec<Item>, failures: &[Failure]) {
        let (mut entries, failures) = entries::of_failures(failures);
        let shown = items.into_iter().filter(|item| query.shows(item)).map(bounded);
        entries.extend(shown.map(|item| (item.key(), Ok(item))));
        self.revision += u64::from(!targets(&self.entries).eq(targets(&entries)));
        self.activity += 1;
        (self.entries, self.failures) = (entries, failures);
        self.is_listed = true;
        self.outages.clear();
    }

    /// One more object.
    #[cfg(test)]
    pub fn insert(&mut self, item: Item) {
        self.entries.insert(item.key(), Ok(item));
    }

    /// Applies an event. Whether anything changed.
    fn apply(&mut self, query: &Query, event: Event) -> bool {
        let Some(key) = event.key() else { return false };
        let event = if let Event::Set(item) = event { Event::Set(bounded(item)) } else { event };
        let is_target = query.kinds.iter().any(|row| row.target().is_some() && row.kind().type_name() == key.0);
        let was_there = self.item(&key).is_some();
        let is_changed = event.apply(query, &mut self.entries) != Update::None;
        self.revision += u64::from(is_target && was_there != self.item(&key).is_some());
        self.activity += u64::from(!is_target && is_changed);
        is_changed
    }
}

impl Cache {
    /// The objects, for a moment.
    pub fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What counts the changes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Records an error of the hub and when it began. `kind`: which objects it keeps from being read, empty for all.
    pub fn fail(&self, kind: &'static str, text: &str) {
        let mut objects = self.objects();
        let outages = &mut objects.outages;
        let known = if kind.is_empty() { outages.values().min() } else { outages.get(kind) };
        let since = known.map_or_else(Timestamp::now, |(since, _)| *since);
        if kind.is_empty() {
            outages.clear(); // what follows explains them all
        }
        outages.insert(kind, (since, sanitize(text)));
        drop(objects);
        self.change();
    }

    /// The hub answers again.
    pub fn recover(&self, kind: &'static str) {
        if self.objects().outages.remove(kind).is_some() {
            self.change();
        }
    }

    fn change(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    /// Lists and watches the objects of the query, and lists them again after an error, with a client that `connect` makes.
    pub async fn follow(&self, query: &Query, hub: &Mutex<HubClient>, connect: &Arc<Connect>) {
        let mut pause = RELIST_BACKOFF.0;
        loop {
            let client = hub.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let Some(mut error) = self.until_error(&client, query, &mut pause).await else { continue };
            loop {
                self.fail("", &error);
                sleep(pause).await;
                pause = (2 * pause).min(RELIST_BACKOFF.1);
                let connect = Arc::clone(connect);
                // A credential plugin may take its time, and tabs are answered meanwhile.
                match spawn_blocking(move || connect()).await {
                    Ok(Ok(client)) => break *hub.lock().unwrap_or_else(PoisonError::into_inner) = client,
                    Ok(Err(failed)) => error = failed.to_string(),
                    Err(panic) => error = panic.to_string(),
                }
            }
        }
    }

    /// Returns the error, or none when a schedule has changed.
    async fn until_error(&self, hub: &HubClient, query: &Query, pause: &mut Duration) -> Option<String> {
        let Listing { items, failures, watched } = view::list(hub, query).await;
        if let Some(failure) = failures.iter().find(|failure| is_outage(failure)) {
            return Some(failure.to_string()); // what was listed before stays
        }
        self.objects().replace(query, items, &failures);
        self.change();
        *pause = RELIST_BACKOFF.0;
        let (again, later) = (Instant::now() + RELIST_INTERVAL, Instant::now() + FORBIDDEN_INTERVAL);
        let is_partial =
            failures.iter().any(|failure| matches!(failure.error, ViewError::Hub(HubError::Forbidden { .. })));
        let mut events = pin!(view::follow(hub, query, &watched));
        let mut is_stale = false;
        loop {
            let event = tokio::select! {
                () = sleep_until(again), if is_stale => return None,
                () = sleep_until(later), if is_partial => return None,
                event = events.next() => event,
            };
            match event {
                Some(Ok(event)) => {
                    let is_of_schedule = match &event {
                        Event::Set(item) => matches!(item, Item::Schedule(_)),
                        Event::Gone(key) => {
                            [&SCHEDULE, &CLUSTER_SCHEDULE].iter().any(|row| row.kind.type_name() == key.0)
                        }
                        Event::Unreadable(_) | Event::Tick => false,
                    };
                    let is_changed = self.objects().apply(query, event);
                    is_stale |= is_changed && is_of_schedule;
                    if is_changed {
                        self.change();
                    }
                }
                Some(Err(error)) => return Some(error.to_string()),
                // Nothing may be watched yet.
                None => {
                    sleep_until(again).await;
                    return None;
                }
            }
        }
    }
}

fn targets(entries: &Entries) -> impl Iterator<Item = &Key> {
    let is_target = |(_, entry): &(&Key, &Entry)| matches!(entry, Ok(Item::Target(_)));
    entries.iter().filter(is_target).map(|(key, _)| key)
}

/// Whether a list failed because of the hub or the login, and not because of the user's rights on one kind.
fn is_outage(failure: &Failure) -> bool {
    let is_of_rights = matches!(failure.error, ViewError::Hub(HubError::Forbidden { .. }));
    failure.is_of_kind && matches!(failure.error, ViewError::Hub(_)) && !is_of_rights
}

/// An object in the DOM and in requests: type, namespace and name.
pub fn id((kind, namespace, name): &Key) -> String {
    format!("{kind}/{namespace}/{name}")
}

/// The key of such an ID.
pub fn key(id: &str) -> Option<Key> {
    let mut parts = id.split('/').map(str::to_owned);
    let key = (parts.next()?, parts.next()?, parts.next()?);
    parts.next().is_none().then_some(key)
}

/// An item whose long texts, which tenants write, are cut.
fn bounded(mut item: Item) -> Item {
    if let Item::Target(target) = &mut item {
        let record = &mut target.record;
        for text in [&mut record.reason, &mut record.requested_by].into_iter().flatten() {
            *text = sanitize(text);
        }
        if let Some(step) = &mut record.step {
            (step.reason, step.message) = (sanitize(&step.reason), sanitize(&step.message));
        }
    }
    item
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::kinds::CLUSTER_DEPLOYMENT;
    use view::rollout::RolloutState;
    use view::target::Target;

    use super::*;

    fn item(name: &str, reason: &str) -> Item {
        let object = json!({
            "metadata": { "namespace": "a", "name": name, "annotations": { "hibernate.sh/reason": reason } },
            "spec": { "clusterName": name, "baseDomain": "example.org", "platform": {} },
        });
        Item::Target(Box::new(Target::new(&CLUSTER_DEPLOYMENT, "v1", object).state().unwrap()))
    }

    fn rollout() -> Item {
        let spec = json!({ "action": "Hibernate", "maxTargets": 1, "notAfter": "2126-01-01T00:00:00Z", "targets": { "all": true } });
        Item::Rollout(Box::new(RolloutState::read(json!({ "metadata": { "name": "night" }, "spec": spec })).unwrap()))
    }

    fn unreadable(name: &str, text: &str) -> Failure {
        let key = (CLUSTER_DEPLOYMENT.kind.type_name(), "a".to_owned(), name.to_owned());
        let error = ViewError::NoKind(text.to_owned());
        Failure { what: String::new(), error, is_of_kind: false, is_unseen: false, key: Some(key) }
    }

    #[test]
    fn only_what_changes_counts_and_failures_end_with_their_object() {
        let query = Query { kinds: vec![view::Row::Target(&CLUSTER_DEPLOYMENT)], ..Query::default() };
        let mut objects = Objects::default();
        objects.replace(&query, vec![item("one", "x")], &[]);
        let revision = objects.revision;
        objects.replace(&query, vec![item("one", "y")], &[]);
        assert_eq!(objects.revision, revision, "the list has the same targets");
        objects.replace(&query, vec![item("one", "x")], &[]);
        assert!(!objects.apply(&query, Event::Set(item("one", "x"))), "equal");
        assert!(objects.apply(&query, Event::Set(item("one", &"y".repeat(10_000)))));
        let reason = objects.targets().next().and_then(|target| target.record.reason.clone());
        assert_eq!((reason.map(|text| text.len()), objects.revision), (Some(512), revision));
        assert!(objects.apply(&query, Event::Set(item("two", ""))) && objects.revision == revision + 1);
        for at in 0..30 {
            assert!(objects.apply(&query, Event::Unreadable(unreadable(&format!("bad-{at}"), "x"))));
        }
        assert!(!objects.apply(&query, Event::Unreadable(unreadable("bad-0", "x"))), "the same failure");
        assert_eq!((objects.failures().len(), objects.failures()[20].as_str()), (21, "and 10 more"));
        assert!(objects.apply(&query, Event::Set(item("bad-0", ""))));
        objects.apply(&query, Event::Gone(unreadable("bad-1", "").key.unwrap()));
        assert_eq!(objects.failures()[20], "and 8 more");
        let (revision, activity) = (objects.revision, objects.activity);
        assert!(objects.apply(&query, Event::Set(rollout())) && !objects.apply(&query, Event::Set(rollout())));
        assert_eq!((objects.revision, objects.activity), (revision, activity + 1), "the list of targets is as it was");
    }

    #[tokio::test]
    async fn an_outage_begins_once_and_ends_with_its_kind() {
        let cache = Cache::default();
        cache.fail("Cluster", "gone \u{1b}[2J");
        let first = cache.objects().outage();
        cache.fail("Cluster", "gone still");
        cache.fail("PowerRollout", "other");
        let since = first.split(": ").next().unwrap();
        assert!(first.ends_with(": gone  [2J") || first.ends_with(": gone [2J"), "{first}");
        assert!(cache.objects().outage().starts_with(since));
        cache.recover("Cluster");
        assert!(cache.objects().outage().ends_with(": other"));
        cache.recover("PowerRollout");
        assert_eq!(cache.objects().outage(), "");
        cache.fail("Cluster", "gone");
        let since = cache.objects().outages["Cluster"].0;
        cache.fail("", "401");
        assert_eq!(cache.objects().outages, BTreeMap::from([("", (since, "401".to_owned()))]), "the latest cause");
    }
}
