//! What is on a hub, of every kind of the table of kinds: as it is, and each change after that. It prints nothing and
//! has no command line.

pub mod age;
pub mod calendar;
pub mod columns;
mod elsewhere;
pub mod entries;
pub mod error;
pub mod fdb;
pub mod installed;
mod item;
pub mod lines;
pub mod pool;
pub mod protection;
pub mod resolve;
pub mod rollout;
pub mod savings;
pub mod schedule;
pub mod target;
pub mod times;
pub mod upgrade;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use futures::stream::{self, LocalBoxStream};
use futures::{Stream, StreamExt};
use hub::error::HubError;
use hub::watch::{self, Place, Scope, Watcher, place};
use hub::{HubClient, Resource};
use serde_json::Value;
use shared::hive::api::ClusterDeployment;
use shared::kinds::{CLUSTER_DEPLOYMENT, Governed, Key, Kind, Record, ShownKind, Shows, TargetKind};
use shared::object::{name_of, text};
use shared::schedule::governs::may_govern;
use tokio::sync::OnceCell;

use self::error::{Failure, ViewError};
use self::fdb::DatabaseState;
pub use self::item::{Item, ItemList};
use self::pool::PoolState;
use self::resolve::Resolver;
use self::rollout::RolloutState;
use self::schedule::{ScheduleState, Schedules};
use self::target::{Target, TargetState};
use self::upgrade::UpgradeState;

/// What has happened to an object.
pub static EVENT: Kind = Kind::namespaced("", &["v1"], "Event", "events");
/// How many objects are worked on at the same time.
pub const CONCURRENCY: usize = 16;
/// How often [`Event::Tick`] comes while nothing changes.
const TICK: Duration = Duration::from_secs(10);

/// A row of the table of kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    /// A kind that can be put to sleep.
    Target(&'static TargetKind),
    /// A kind that is only shown.
    Shown(&'static ShownKind),
}

/// What to look for: the objects that are named, or else all objects of some kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// All objects of these kinds, if none is named.
    pub kinds: Vec<Row>,
    pub namespace: Namespaces,
    /// Label selector of what is not named, empty for all.
    pub labels: String,
    /// Objects by name, in this order.
    pub names: Vec<ObjectName>,
    /// Whether it is a failure that one of several kinds does not exist or may not be read.
    pub is_typed: bool,
}

/// Where to look for objects of kinds that have namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Namespaces {
    /// In the namespace of the client.
    #[default]
    OfClient,
    /// In all. Names are looked up in that of the client.
    All,
    /// In this one, all of which is meant: it is a failure if it does not exist.
    Whole(String),
}

/// One object by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectName {
    /// Kinds that it can be of.
    pub kinds: Vec<Row>,
    /// The type as messages name it, if one was given.
    pub word: Option<String>,
    pub name: String,
}

/// What a hub has.
#[derive(Debug, Default)]
pub struct Listing {
    /// What was found, in the order of the query.
    pub items: Vec<Item>,
    /// What was not found or cannot be read.
    pub failures: Vec<Failure>,
    /// What [`follow`] watches.
    pub watched: Vec<Watched>,
}

/// A kind in the version that the hub serves, to be watched.
#[derive(Clone, Debug)]
pub struct Watched {
    row: Row,
    resource: Resource,
    /// All objects if empty.
    names: Vec<String>,
    /// The objects that were listed, if all are watched.
    places: Vec<Place>,
}

/// What happens to objects.
#[derive(Debug)]
pub enum Event<T = Item> {
    /// One is as it is now.
    Set(T),
    /// One is there and cannot be read.
    Unreadable(Failure),
    /// One does not exist any more.
    Gone(Key),
    /// Nothing has changed, but time has passed.
    Tick,
}

/// An object as the hub sent it.
#[derive(Debug)]
struct Object {
    row: Row,
    resource: Resource,
    value: Value,
}

/// What many objects need, read once.
#[derive(Default)]
struct Others {
    /// All clusters of a hub: for pools.
    clusters: OnceCell<Result<Vec<ClusterDeployment>, Arc<HubError>>>,
    /// The schedules: for targets.
    schedules: Arc<OnceCell<Schedules>>,
}

impl Row {
    /// Group, versions, names and scope.
    pub fn kind(self) -> &'static Kind {
        match self {
            Self::Target(row) => &row.kind,
            Self::Shown(row) => &row.kind,
        }
    }

    pub fn target(self) -> Option<&'static TargetKind> {
        if let Self::Target(row) = self { Some(row) } else { None }
    }

    pub fn shown(self) -> Option<&'static ShownKind> {
        if let Self::Shown(row) = self { Some(row) } else { None }
    }
}

impl Query {
    /// The namespace to search; none for all.
    pub fn namespace<'a>(&'a self, hub: &'a HubClient) -> Option<&'a str> {
        match &self.namespace {
            Namespaces::OfClient => Some(&hub.namespace),
            Namespaces::All => None,
            Namespaces::Whole(name) => Some(name),
        }
    }

    /// The namespace that is meant as a whole.
    pub fn whole(&self) -> Option<&str> {
        if let Namespaces::Whole(name) = &self.namespace { Some(name) } else { None }
    }

    /// The namespace to search, for messages; none for all of them, or if no kind has namespaces.
    pub fn searched<'a>(&'a self, hub: &'a HubClient) -> Option<&'a str> {
        self.namespace(hub).filter(|_| self.kinds.iter().any(|row| row.kind().is_namespaced()))
    }

    /// Whether an item is shown: of targets that are not named only those of interest.
    pub fn shows(&self, item: &Item) -> bool {
        let Item::Target(target) = item else { return true };
        !self.names.is_empty() || self.whole().is_some() || (target.row.is_listed)(&target.record)
    }
}

/// What the hub has now.
pub async fn list(hub: &HubClient, query: &Query) -> Listing {
    let (resolver, others) = (Resolver::new(hub, query), Others::default());
    let read = async |object: Object| {
        let found = (object.row, object.resource, place(&object.value));
        Ok((found, read(hub, query, object, &others).await))
    };
    let (mut items, mut failures, mut places) = (Vec::new(), Vec::<Failure>::new(), Vec::new());
    for object in resolver.objects(read).await {
        let item = match object {
            Ok((found, item)) => {
                places.push(found);
                item
            }
            Err(failure) => Err(failure),
        };
        match item {
            Ok(item) => items.push(item),
            // What every object lacks is reported once.
            Err(failure) if failure.key.is_none() && failure.is_among(failures.iter()) => {}
            Err(failure) => failures.push(failure),
        }
    }
    Listing { items, failures, watched: resolver.watched(places) }
}

/// The targets of a query in its order, each with its whole object; what cannot be found is a failure in its place.
pub async fn targets(hub: &HubClient, query: &Query) -> Vec<Result<Target, Failure>> {
    let target = async |Object { row, resource, value }| match row {
        Row::Target(row) => Ok(Some(Target::new(row, resource.version, value).complete(hub).await)),
        Row::Shown(_) => Ok(None),
    };
    Resolver::new(hub, query).objects(target).await.into_iter().filter_map(Result::transpose).collect()
}

/// One object by its name, as the hub sent it.
///
/// # Errors
/// When it cannot be read. If it does not exist, with a hint.
pub async fn object(hub: &HubClient, row: Row, name: &str) -> Result<Value, ViewError> {
    let name = ObjectName { kinds: vec![row], word: Some(row.kind().resource_name()), name: name.to_owned() };
    let found = Resolver::new(hub, &Query::default()).find(&name).await;
    found.map(|object| object.value).map_err(|failure| failure.error)
}

/// The names of all objects of these kinds in the namespace of the client, without what cannot be listed.
pub async fn names(hub: &HubClient, kinds: impl IntoIterator<Item = &'static Kind>) -> Vec<String> {
    let query = Query::default();
    let resolver = Resolver::new(hub, &query);
    let lists = join_all(kinds.into_iter().map(|kind| resolver.list(kind, Some(&hub.namespace), ""))).await;
    let items = lists.iter().flatten().flatten();
    items.filter_map(|object| Some(object.pointer("/metadata/name")?.as_str()?.to_owned())).collect()
}

/// Follows what was listed: first everything as it is, then each change of an object. What belongs to an object is read
/// again with it. An error is one that will not pass by itself.
pub fn follow<'a>(
    hub: &'a HubClient,
    query: &'a Query,
    watched: &'a [Watched],
) -> impl Stream<Item = Result<Event, HubError>> + 'a {
    let (namespace, schedules) = (query.namespace(hub), Arc::<OnceCell<Schedules>>::default());
    stream::select_all(watched.iter().map(move |Watched { row, resource, names, places }| {
        let (row, resource, loud) = (*row, *resource, row.target().is_some());
        let scope = Scope { namespace, names, labels: &query.labels, tick: TICK, loud, ..Scope::of(resource) };
        let schedules = schedules.clone();
        changes(hub.watcher_after(scope, places), scope, async move |value| {
            let others = Others { schedules: schedules.clone(), ..Others::default() };
            read(hub, query, Object { row, resource, value }, &others).await
        })
    }))
}

/// Follows targets of one kind in the same way.
pub fn follow_targets<'a>(
    hub: &'a HubClient,
    row: &'static TargetKind,
    scope: Scope<'a>,
) -> impl Stream<Item = Result<Event<Target>, HubError>> + Unpin + 'a {
    let version = scope.resource.version;
    changes(hub.watcher(scope), scope, async move |value| Ok(Target::new(row, version, value).complete(hub).await))
}

/// What happens to the objects of a watch, each read by `read`.
fn changes<'a, T, R: AsyncFn(Value) -> Result<T, Failure> + 'a>(
    watcher: Watcher<'a>,
    scope: Scope<'a>,
    read: R,
) -> LocalBoxStream<'a, Result<Event<T>, HubError>> {
    let read = Rc::new(read);
    let event = move |event: Result<watch::Event, HubError>| {
        let read = Rc::clone(&read);
        async move {
            Ok(match event? {
                watch::Event::Applied(value) => read(value).await.map_or_else(Event::Unreadable, Event::Set),
                watch::Event::Deleted((namespace, name)) => {
                    Event::Gone((scope.resource.kind.type_name(), namespace, name))
                }
                watch::Event::Tick => Event::Tick,
            })
        }
    };
    let events = stream::unfold(watcher, async |mut watcher| Some((watcher.next().await, watcher)));
    // The token of a list's next page expires: pages are read faster than what belongs to each object.
    events.map(event).buffered(CONCURRENCY).boxed_local()
}

/// Reads an object and what belongs to it.
async fn read(hub: &HubClient, query: &Query, object: Object, others: &Others) -> Result<Item, Failure> {
    let Object { row, resource, value } = object;
    let key = (row.kind().type_name(), text(&value, "/metadata/namespace").to_owned(), name_of(&value).to_owned());
    let item = match row {
        Row::Target(row) => {
            let target = Target::new(row, resource.version, value).complete(hub).await;
            let schedule = governed(hub, query, &target, &others.schedules).await;
            let state = |state: TargetState| TargetState { record: Record { schedule, ..state.record }, ..state };
            target.state().map(state).map(Box::new).map(Item::Target).map_err(ViewError::from)
        }
        Row::Shown(row) => match row.shows {
            Shows::ClusterPool => {
                match others.clusters.get_or_init(async || pool::clusters(hub).await.map_err(Arc::new)).await {
                    Ok(clusters) => PoolState::read(hub, &value, clusters).await.map(Box::new).map(Item::Pool),
                    Err(error) => {
                        let error = ViewError::Clusters(Arc::clone(error));
                        return Err(Failure::of_kind(&CLUSTER_DEPLOYMENT.kind, error));
                    }
                }
            }
            Shows::FoundationDb => DatabaseState::read(hub, &value).await.map(Box::new).map(Item::Database),
            Shows::Rollout => RolloutState::read(value).map(Box::new).map(Item::Rollout),
            Shows::Upgrade => UpgradeState::read(value).map(Box::new).map(Item::Upgrade),
            Shows::Schedule => ScheduleState::read(row, value).map(Box::new).map(Item::Schedule),
        },
    };
    item.map_err(|error| Failure::unreadable(row.kind(), key, error))
}

/// The schedule that governs a target. It is not known without the right to list schedules.
async fn governed(
    hub: &HubClient,
    query: &Query,
    target: &Target,
    schedules: &OnceCell<Schedules>,
) -> Option<Governed> {
    if !may_govern(target.row) {
        return None;
    }
    let list = async || {
        let (found, failures) = Schedules::list(hub, query.namespace(hub)).await;
        for failure in failures {
            hub.note(&format!("{failure}: not all schedules are known"));
        }
        found
    };
    let schedules = schedules.get_or_init(list).await;
    if schedules.is_empty() {
        return None; // and the object need not be read twice
    }
    let view = target.row.read(&target.object).ok()?.view(None);
    schedules.governed(target.row, &view)
}

/// An object without the fields that have no value.
pub fn known(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    object
}
