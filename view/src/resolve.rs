//! Finds objects on the hub with as few requests as possible and without discovery.

use std::collections::{BTreeSet, HashMap};
use std::mem;
use std::sync::{Mutex, PoisonError};

use futures::future::join_all;
use futures::{StreamExt, stream};
use hub::error::HubError;
use hub::watch::Place;
use hub::{HubClient, Resource};
use serde_json::Value;
use shared::kinds::Kind;
use shared::object::name_of;
use shared::text::quoted;

use super::error::{Failure, ViewError};
use super::{CONCURRENCY, Namespaces, Object, ObjectName, Query, Row, Watched, elsewhere};

/// `Namespace`.
pub static NAMESPACE: Kind = Kind::cluster_scoped("", &["v1"], "Namespace", "namespaces").with_short(&["ns"]);

/// From so many kinds on, those of API groups that the hub does not serve are left out.
const MANY: usize = 10;

/// Finds objects, and remembers which kinds the hub has.
pub(super) struct Resolver<'a> {
    hub: &'a HubClient,
    query: &'a Query,
    /// The version that the hub serves of a kind, by group and resource; none if it serves none.
    versions: Mutex<HashMap<(&'static str, &'static str), Option<&'static str>>>,
}

/// The answers to a lookup of one name in every kind that it can be of.
struct Answers {
    found: Vec<Object>,
    /// Kinds without an object of this name. A kind that the hub does not have is not among them.
    absent: Vec<Row>,
    errors: Vec<HubError>,
}

impl Answers {
    fn new(kinds: &[Row], lookups: Vec<Result<Option<Object>, HubError>>) -> Self {
        let (mut found, mut absent, mut errors) = (Vec::new(), Vec::new(), Vec::new());
        for (kind, lookup) in kinds.iter().zip(lookups) {
            match lookup {
                Ok(Some(object)) => found.push(object),
                Ok(None) => absent.push(*kind),
                Err(HubError::NoKind(_)) => {}
                Err(error) => errors.push(error),
            }
        }
        Self { found, absent, errors }
    }

    /// Takes out the refusals of kinds that the user may not see, if another kind answered: what was only one of
    /// several meanings is, for this user, not there.
    fn take_unseen(&mut self) -> Vec<HubError> {
        if self.found.is_empty() && self.absent.is_empty() {
            return Vec::new();
        }
        let (unseen, errors) = mem::take(&mut self.errors).into_iter().partition(is_forbidden);
        self.errors = errors;
        unseen
    }
}

/// Whether an operator runs the objects of a kind: most users have no rights on most of these kinds.
fn is_of_operators(row: Row) -> bool {
    row.target().is_some_and(|row| row.sleep_row().is_some())
}

fn is_forbidden(error: &HubError) -> bool {
    matches!(error, HubError::Forbidden { .. })
}

impl<'a> Resolver<'a> {
    pub(super) fn new(hub: &'a HubClient, query: &'a Query) -> Self {
        Self { hub, query, versions: Mutex::default() }
    }

    /// Reads each object of the query, in its order; what cannot be found is a failure in its place.
    pub(super) async fn objects<T>(&self, read: impl AsyncFn(Object) -> Result<T, Failure>) -> Vec<Result<T, Failure>> {
        let found = if self.query.names.is_empty() { self.every(&read).await } else { self.named(&read).await };
        match &self.query.namespace {
            Namespaces::Whole(name) if found.is_empty() => self.no_namespace(name).await.map(Err).into_iter().collect(),
            _ => found,
        }
    }

    /// The kinds to watch, also those without objects yet.
    pub(super) fn watched(&self, found: Vec<(Row, Resource, Place)>) -> Vec<Watched> {
        let is_named = !self.query.names.is_empty();
        let mut watched: Vec<Watched> = Vec::new();
        let kinds = self.query.kinds.iter().filter(|_| !is_named);
        for (row, resource) in kinds.filter_map(|row| Some((*row, self.resource(*row)?))) {
            watched.push(Watched { row, resource, names: Vec::new(), places: Vec::new() });
        }
        for (row, resource, place) in found {
            let at = watched.iter().position(|one| one.resource == resource).unwrap_or_else(|| {
                watched.push(Watched { row, resource, names: Vec::new(), places: Vec::new() });
                watched.len() - 1
            });
            if is_named {
                watched[at].names.push(place.1);
            } else {
                watched[at].places.push(place);
            }
        }
        watched
    }

    fn namespace(&self) -> &str {
        self.query.namespace(self.hub).unwrap_or(&self.hub.namespace)
    }

    /// The failure of a namespace that does not exist: in lists it looks like an empty one.
    async fn no_namespace(&self, name: &str) -> Option<Failure> {
        match self.hub.get(Resource::preferred(&NAMESPACE), "", name).await {
            Err(error @ HubError::NoObject { .. }) => Some(Failure::new(NAMESPACE.full_name(name), error.into())),
            _ => None,
        }
    }

    /// The objects that are named, each once.
    async fn named<T>(&self, read: &impl AsyncFn(Object) -> Result<T, Failure>) -> Vec<Result<T, Failure>> {
        let mut found: Vec<Result<Object, Failure>> = Vec::new();
        let mut work = stream::iter(&self.query.names).map(|name| self.find(name)).buffered(CONCURRENCY);
        while let Some(result) = work.next().await {
            if !result.as_ref().is_ok_and(|object| repeats(&found, object)) {
                found.push(result);
            }
        }
        drop(work);
        let read = async |object: Result<Object, Failure>| read(object?).await;
        stream::iter(found).map(read).buffered(CONCURRENCY).collect().await
    }

    /// One object by name.
    pub(super) async fn find(&self, name: &ObjectName) -> Result<Object, Failure> {
        let fail = |error: ViewError| Failure::new(describe(name), error);
        let lookups = join_all(name.kinds.iter().map(|row| self.look_up(*row, &name.name))).await;
        let mut answers = Answers::new(&name.kinds, lookups);
        for error in answers.take_unseen() {
            self.leave_out(&error);
        }
        let Answers { mut found, absent, errors } = answers;
        if found.len() > 1 {
            let candidates = found.iter().map(|object| object.row.kind().full_name(&name.name)).collect();
            return Err(fail(ViewError::Ambiguous { name: name.name.clone(), candidates }));
        }
        if let Some(object) = found.pop() {
            return Ok(object);
        }
        if let Some(error) = errors.into_iter().next() {
            return Err(fail(error.into()));
        }
        if absent.is_empty() {
            let word = name.word.as_deref().unwrap_or("of any target").to_owned();
            return Err(fail(ViewError::NoKind(elsewhere::of_word(&name.kinds).unwrap_or(word))));
        }
        let has_namespaces = absent.iter().any(|row| row.kind().is_namespaced());
        Err(fail(ViewError::NotFound {
            what: describe(name),
            namespace: has_namespaces.then(|| self.namespace().to_owned()),
            hint: self.hint(&name.name, &absent).await,
        }))
    }

    fn leave_out(&self, error: &HubError) {
        self.hub.note(&format!("skipped, because another type matched: {error}"));
    }

    /// The object of this kind and name; none if there is no such object.
    async fn look_up(&self, row: Row, name: &str) -> Result<Option<Object>, HubError> {
        self.served(row.kind(), async |resource| match self.hub.get(resource, self.namespace(), name).await {
            Ok(value) => Ok(Some(Object { row, resource, value })),
            Err(HubError::NoObject { .. }) => Ok(None),
            Err(error) => Err(error),
        })
        .await
    }

    /// Runs a request in the version that the hub serves, which the request itself finds out.
    async fn served<T>(
        &self,
        kind: &'static Kind,
        request: impl AsyncFn(Resource) -> Result<T, HubError>,
    ) -> Result<T, HubError> {
        let key = (kind.group, kind.plural);
        let absent = || HubError::NoKind(kind.resource_name());
        let known = self.versions.lock().unwrap_or_else(PoisonError::into_inner).get(&key).copied();
        let candidates = match &known {
            Some(None) => return Err(absent()),
            Some(Some(version)) => std::slice::from_ref(version),
            None => kind.versions,
        };
        for version in candidates {
            match request(Resource::new(kind, version)).await {
                Err(HubError::NoKind(_)) => {}
                result => {
                    self.remember(key, Some(version));
                    return result;
                }
            }
        }
        self.remember(key, None);
        Err(absent())
    }

    /// Objects of a kind.
    pub(super) async fn list(
        &self,
        kind: &'static Kind,
        namespace: Option<&str>,
        fields: &str,
    ) -> Result<Vec<Value>, HubError> {
        self.served(kind, async |resource| Ok(self.hub.list(resource, namespace, fields, "").await?.items)).await
    }

    /// Lists a kind page by page and reads each object, so that only one page is held as JSON.
    async fn read_list<T>(&self, row: Row, read: &impl AsyncFn(Object) -> T) -> Result<Vec<T>, HubError> {
        self.served(row.kind(), async |resource| {
            let mut pages = self.hub.pages(resource, self.query.namespace(self.hub), "", &self.query.labels);
            let mut found = Vec::new();
            while let Some(page) = pages.next().await? {
                let objects = page.into_iter().map(|value| Object { row, resource, value });
                let page: Vec<T> =
                    stream::iter(objects).map(|object| read(object)).buffered(CONCURRENCY).collect().await;
                found.extend(page);
            }
            Ok(found)
        })
        .await
    }

    /// A kind in the version that the hub was found to serve; none if it serves none or was not asked.
    fn resource(&self, row: Row) -> Option<Resource> {
        let kind = row.kind();
        let versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        let version = (*versions.get(&(kind.group, kind.plural))?)?;
        Some(Resource::new(kind, version))
    }

    fn remember(&self, key: (&'static str, &'static str), version: Option<&'static str>) {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner).insert(key, version);
    }

    /// `; it exists in namespace shop: add -n shop`: one request for each kind, only on the way to an error. Who may
    /// not list all namespaces gets no such hint.
    async fn in_other_namespaces(&self, wanted: &str, kinds: &[Row]) -> Option<String> {
        let named = format!("metadata.name={wanted}");
        let kinds = kinds.iter().map(|row| row.kind()).filter(|kind| kind.is_namespaced());
        let lists = join_all(kinds.map(|kind| self.list(kind, None, &named))).await;
        let items = lists.into_iter().flatten().flatten();
        let namespaces: BTreeSet<String> =
            items.filter_map(|item| Some(item.pointer("/metadata/namespace")?.as_str()?.to_owned())).collect();
        let first = quoted(namespaces.first()?);
        Some(match namespaces.len() {
            1 => format!("; it exists in namespace {first}: add -n {first}"),
            more => format!("; it exists in {more} other namespaces: add for example -n {first}"),
        })
    }

    /// `; did you mean demo?`, or where else to look: one more request, only on the way to an error.
    async fn hint(&self, wanted: &str, kinds: &[Row]) -> String {
        let is_target = |row: &Row| matches!(row, Row::Target(_));
        if kinds.iter().any(|row| row.kind().is_namespaced() && !is_target(row)) {
            return String::new();
        }
        if let Some(hint) = self.in_other_namespaces(wanted, kinds).await {
            return hint;
        }
        let namespace = Some(self.namespace());
        let lists = kinds.iter().map(async |row| (*row, self.list(row.kind(), namespace, "").await));
        let lists = join_all(lists).await;
        let names = lists.iter().filter_map(|(_, list)| list.as_ref().ok()).flatten();
        let names = names.filter_map(|object| object.pointer("/metadata/name")?.as_str());
        if let Some(hint) = elsewhere::did_you_mean(wanted, names).or_else(|| elsewhere::display_name(wanted, &lists)) {
            return hint;
        }
        match lists.as_slice() {
            [(Row::Shown(row), _)] => {
                format!("; `kubectl hibernate status {}` lists those that there are", row.many)
            }
            [(row, list)] => elsewhere::hint(self.hub, *row, list.as_deref().ok()).await.unwrap_or_default(),
            _ => String::new(),
        }
    }

    /// All objects of the kinds.
    async fn every<T>(&self, read: &impl AsyncFn(Object) -> Result<T, Failure>) -> Vec<Result<T, Failure>> {
        let (kinds, is_typed) = (self.served_kinds().await, self.query.is_typed);
        let lists = join_all(kinds.iter().map(|row| self.read_list(*row, read))).await;
        let some_kind_exists = lists.iter().any(|list| !matches!(list, Err(HubError::NoKind(_))));
        let seen: Vec<&str> =
            kinds.iter().zip(&lists).filter(|(_, list)| list.is_ok()).map(|(row, _)| row.kind().kind).collect();
        let is_left_out = |row: &Row| seen.contains(&row.kind().kind) || !is_typed && !seen.is_empty();
        let mut found: Vec<Result<T, Failure>> = Vec::new();
        for (row, list) in kinds.iter().zip(lists) {
            let kind = row.kind();
            if list.as_ref().is_err_and(is_forbidden) {
                self.remember((kind.group, kind.plural), None); // it is not watched
            }
            match list {
                Ok(read) => found.extend(read),
                Err(HubError::NoKind(_)) if some_kind_exists => {
                    self.hub.note(&format!("the hub does not have the type {}", kind.resource_name()));
                }
                // `md` means two kinds of one name, and no word at all means what the user may see.
                Err(error) if is_forbidden(&error) && is_left_out(row) => self.leave_out(&error),
                // No word at all: Hive's kind alone is missed.
                Err(HubError::NoKind(_)) if !is_typed && !found.is_empty() => {}
                Err(HubError::NoKind(what)) => {
                    let what = elsewhere::of_word(&[*row]).unwrap_or(what);
                    found.push(Err(Failure::of_kind(kind, ViewError::NoKind(what))));
                }
                Err(error) => {
                    let is_unseen = is_forbidden(&error) && self.query.whole().is_some() && is_of_operators(*row);
                    push_once(&mut found, Failure { is_unseen, ..Failure::of_kind(kind, error.into()) });
                }
            }
        }
        found
    }

    /// The kinds of the query. Of many, those whose API group the hub serves: one request instead of a list of each.
    async fn served_kinds(&self) -> Vec<Row> {
        let kinds = &self.query.kinds;
        if kinds.len() < MANY {
            return kinds.clone();
        }
        let Ok(groups) = self.hub.groups().await else { return kinds.clone() };
        let is_served = |row: &&Row| row.kind().group.is_empty() || groups.iter().any(|name| name == row.kind().group);
        kinds.iter().filter(is_served).copied().collect()
    }
}

fn describe(ObjectName { kinds, word, name }: &ObjectName) -> String {
    match (kinds.as_slice(), word) {
        ([row], _) => row.kind().full_name(name),
        (_, Some(word)) => format!("{word}/{name}"),
        (_, None) => format!("target {name:?}"),
    }
}

/// A hub that is down is down for every kind: reported once.
fn push_once<T>(found: &mut Vec<Result<T, Failure>>, failure: Failure) {
    if !failure.is_among(found.iter().filter_map(|one| one.as_ref().err())) {
        found.push(Err(failure));
    }
}

fn repeats(found: &[Result<Object, Failure>], object: &Object) -> bool {
    let same = |other: &Object| other.resource == object.resource && name_of(&other.value) == name_of(&object.value);
    found.iter().flatten().any(same)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::kinds::KINDS;

    use super::*;

    fn forbidden() -> Result<Option<Object>, HubError> {
        Err(HubError::Forbidden {
            object: "clusterdeployment.hive.openshift.io/wbe".to_owned(),
            message: "no".to_owned(),
        })
    }

    fn down() -> Result<Option<Object>, HubError> {
        Err(HubError::Unauthorized { url: "https://hub".into() })
    }

    fn unserved() -> Result<Option<Object>, HubError> {
        Err(HubError::NoKind("x".to_owned()))
    }

    fn web(row: Row) -> Object {
        let value = json!({ "metadata": { "name": "web", "namespace": "shop" } });
        Object { row, resource: Resource::preferred(row.kind()), value }
    }

    /// How many kinds are left out, and how many errors stay.
    #[test]
    fn a_kind_that_may_not_be_seen_is_not_there_if_another_one_answered() {
        let kinds = KINDS.targets[..3].iter().copied().map(Row::Target).collect::<Vec<_>>();
        for (case, lookups, left_out, errors) in [
            ("another has none of that name", vec![forbidden(), Ok(None), unserved()], 1, 0),
            ("another has it", vec![forbidden(), Ok(Some(web(kinds[1]))), forbidden()], 2, 0),
            ("another failed otherwise", vec![forbidden(), Ok(None), down()], 1, 1),
            ("no other is served", vec![forbidden(), unserved(), unserved()], 0, 1),
            ("nothing may be seen", vec![forbidden(), forbidden(), forbidden()], 0, 3),
            ("nothing else answered", vec![forbidden(), down(), unserved()], 0, 2),
        ] {
            let mut answers = Answers::new(&kinds, lookups);
            let unseen = answers.take_unseen();
            assert_eq!((unseen.len(), answers.errors.len()), (left_out, errors), "{case}");
            assert!(unseen.iter().all(is_forbidden), "{case}");
        }
    }
}
