//! What is on a hub, of every kind of the table of kinds: as it is, and each change after that. It prints nothing and
//! has no command line.

pub mod companion;
mod elsewhere;
pub mod error;
pub mod fdb;
mod item;
pub mod nearest;
pub mod pool;
pub mod protection;
pub mod resolve;
pub mod rollout;
pub mod target;
pub mod upgrade;

use std::time::Duration;

use futures::stream::{self, LocalBoxStream};
use futures::{Stream, StreamExt};
use hub::error::HubError;
use hub::watch::{self, Scope};
use hub::{HubClient, Resource};
use serde_json::Value;
use shared::hive::api::ClusterDeployment;
use shared::kinds::{Elsewhere, Key, Kind, ShownKind, Shows, TargetKind};
use shared::object::name_of;
use tokio::sync::OnceCell;

use self::error::{Failure, ViewError};
use self::fdb::DatabaseState;
pub use self::item::{Item, ItemList};
use self::pool::PoolState;
use self::resolve::Resolver;
use self::rollout::RolloutState;
use self::target::Target;
use self::upgrade::UpgradeState;

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

/// What to look for. By default nothing, in all namespaces.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// All objects of these kinds, if none is named.
    pub kinds: Vec<Row>,
    /// All namespaces if none. Names are looked up in that of the client then.
    pub namespace: Option<String>,
    /// Label selector of what is not named, empty for all.
    pub labels: String,
    /// Objects by name, in this order.
    pub names: Vec<ObjectName>,
    /// Whether it is a failure that one of several kinds does not exist or may not be read.
    pub is_typed: bool,
    /// Whether it is a failure that the namespace does not exist.
    pub is_whole: bool,
}

/// One object by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectName {
    /// Kinds that it can be of.
    pub kinds: Vec<Row>,
    /// The type as messages name it, if one was given.
    pub word: Option<String>,
    /// Its name.
    pub name: String,
}

/// What a hub has.
#[derive(Debug, Default)]
pub struct Listing {
    /// What was found, in the order of the query.
    pub items: Vec<Item>,
    /// What was not found or cannot be read.
    pub failures: Vec<Failure>,
    /// What was skipped without being a failure, in words.
    pub notes: Vec<String>,
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
}

/// What happens to objects.
#[derive(Debug)]
pub enum Event {
    /// One is as it is now.
    Set(Item),
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

impl Row {
    /// Group, versions, names and scope.
    pub fn kind(self) -> &'static Kind {
        match self {
            Self::Target(row) => &row.kind,
            Self::Shown(row) => &row.kind,
        }
    }

    fn elsewhere(self) -> Option<&'static Elsewhere> {
        match self {
            Self::Target(row) => row.elsewhere.as_ref(),
            Self::Shown(_) => None,
        }
    }
}

/// What the hub has now.
pub async fn list(hub: &HubClient, query: &Query) -> Listing {
    let resolver = Resolver::new(hub, query);
    let objects = resolver.objects().await;
    let watched = resolver.watched(objects.iter().flatten());
    let clusters = OnceCell::new();
    let read = async |object: Result<Object, Failure>| read(hub, object?, &clusters).await;
    let mut read = stream::iter(objects).map(read).buffered(CONCURRENCY);
    let (mut items, mut failures) = (Vec::new(), Vec::new());
    while let Some(item) = read.next().await {
        match item {
            Ok(item) => items.push(item),
            Err(failure) => failures.push(failure),
        }
    }
    drop(read);
    Listing { items, failures, notes: resolver.into_notes(), watched }
}

/// The targets of a query in its order, each with its whole object, and what was skipped.
pub async fn targets(hub: &HubClient, query: &Query) -> (Vec<Result<Target, Failure>>, Vec<String>) {
    let resolver = Resolver::new(hub, query);
    let target = async |object: Result<Object, Failure>| match object {
        Ok(Object { row: Row::Target(row), resource, value }) => {
            Some(Ok(Target::new(row, resource.version, value).complete(hub).await))
        }
        Ok(_) => None,
        Err(failure) => Some(Err(failure)),
    };
    let targets = stream::iter(resolver.objects().await).map(target).buffered(CONCURRENCY);
    let targets = targets.filter_map(async |target| target).collect().await;
    (targets, resolver.into_notes())
}

/// Follows what was listed: first everything as it is, then each change of an object. What lies beside an object is read
/// again with it. An error is one that will not pass by itself.
pub fn follow<'a>(
    hub: &'a HubClient,
    query: &'a Query,
    watched: &'a [Watched],
) -> impl Stream<Item = Result<Event, HubError>> + 'a {
    stream::select_all(watched.iter().map(|one| follow_kind(hub, query, one)))
}

fn follow_kind<'a>(
    hub: &'a HubClient,
    query: &'a Query,
    Watched { row, resource, names }: &'a Watched,
) -> LocalBoxStream<'a, Result<Event, HubError>> {
    let loud = matches!(row, Row::Target(_));
    let (namespace, labels) = (query.namespace.as_deref(), query.labels.as_str());
    let watcher = hub.watcher(Scope { namespace, names, labels, tick: TICK, loud, ..Scope::of(*resource) });
    let next = async move |mut watcher: watch::Watcher<'a>| {
        let event = match watcher.next().await {
            Ok(watch::Event::Applied(value)) => {
                let item = read(hub, Object { row: *row, resource: *resource, value }, &OnceCell::new()).await;
                Ok(item.map_or_else(Event::Unreadable, Event::Set))
            }
            Ok(watch::Event::Deleted((namespace, name))) => {
                Ok(Event::Gone((resource.kind.type_name(), namespace, name)))
            }
            Ok(watch::Event::Tick) => Ok(Event::Tick),
            Err(error) => Err(error),
        };
        Some((event, watcher))
    };
    stream::unfold(watcher, next).boxed_local()
}

/// Reads an object and what lies beside it. Pools need all clusters of the hub, which are read once.
async fn read(hub: &HubClient, object: Object, clusters: &OnceCell<Vec<ClusterDeployment>>) -> Result<Item, Failure> {
    let Object { row, resource, value } = object;
    let what = row.kind().full_name(name_of(&value));
    let item = match row {
        Row::Target(row) => {
            let target = Target::new(row, resource.version, value).complete(hub).await;
            target.state().map(Box::new).map(Item::Target).map_err(ViewError::from)
        }
        Row::Shown(row) => match row.shows {
            Shows::ClusterPool => PoolState::read(hub, &value, clusters).await.map(Box::new).map(Item::Pool),
            Shows::FoundationDb => DatabaseState::read(hub, &value).await.map(Box::new).map(Item::Database),
            Shows::Rollout => RolloutState::read(value).map(Box::new).map(Item::Rollout),
            Shows::Upgrade => UpgradeState::read(value).map(Box::new).map(Item::Upgrade),
        },
    };
    item.map_err(|error| Failure::new(what, error))
}

/// An object without the fields that have no value.
pub fn known(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    object
}
