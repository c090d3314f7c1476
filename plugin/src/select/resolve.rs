//! Finds targets on the hub with as few requests as possible and without discovery.

use std::collections::{BTreeSet, HashMap};
use std::mem;
use std::sync::{Mutex, PoisonError};

use futures::future::join_all;
use futures::{StreamExt, stream};
use hub::error::HubError;
use hub::{HubClient, Resource};
use shared::kinds::TargetKind;
use shared::text::quoted;

use super::elsewhere;
use super::nearest::did_you_mean;
use super::parse::{Reference, Selection, has_namespaces};
use super::target::Target;
use super::whole::NAMESPACE;
use crate::error::{Failure, Problem, ResolveError};
use crate::output;

/// How many targets are worked on at the same time.
pub(crate) const CONCURRENCY: usize = 16;

/// Finds targets, and remembers which kinds the hub has.
pub(crate) struct Resolver<'a> {
    hub: &'a HubClient,
    namespace: Option<&'a str>,
    versions: Mutex<HashMap<(&'static str, &'static str), Option<&'static str>>>,
}

/// The answers to a lookup of one name in every kind that it can be of.
struct Answers {
    found: Vec<Target>,
    /// Kinds without an object of this name. A kind that the hub does not have is not among them.
    absent: Vec<&'static TargetKind>,
    errors: Vec<HubError>,
}

impl Answers {
    fn new(kinds: &[&'static TargetKind], lookups: Vec<Result<Option<Target>, HubError>>) -> Self {
        let (mut found, mut absent, mut errors) = (Vec::new(), Vec::new(), Vec::new());
        for (kind, lookup) in kinds.iter().zip(lookups) {
            match lookup {
                Ok(Some(target)) => found.push(target),
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

fn is_forbidden(error: &HubError) -> bool {
    matches!(error, HubError::Forbidden { .. })
}

impl<'a> Resolver<'a> {
    /// `namespace` is none for all namespaces.
    pub(crate) fn new(hub: &'a HubClient, namespace: Option<&'a str>) -> Self {
        Self { hub, namespace, versions: Mutex::default() }
    }

    /// Everything that was selected, in the order given; what cannot be found is a failure in its place.
    pub(crate) async fn resolve(&self, selection: &Selection) -> Vec<Result<Target, Failure>> {
        let found = self.select(selection).await;
        stream::iter(found)
            .map(async |target| Ok(target?.complete(self.hub).await))
            .buffered(CONCURRENCY)
            .collect()
            .await
    }

    async fn select(&self, selection: &Selection) -> Vec<Result<Target, Failure>> {
        match selection {
            Selection::Named(references) => {
                let mut found: Vec<Result<Target, Failure>> = Vec::new();
                let mut work = stream::iter(references).map(|reference| self.find(reference)).buffered(CONCURRENCY);
                while let Some(result) = work.next().await {
                    if !result.as_ref().is_ok_and(|target| repeats(&found, target)) {
                        found.push(result);
                    }
                }
                found
            }
            Selection::Query { kinds, selector, typed, whole } => {
                let found = self.query(kinds, selector, *typed).await;
                match whole {
                    Some(name) if found.is_empty() => self.no_namespace(name).await,
                    _ => found,
                }
            }
        }
    }

    /// The failure of a namespace that does not exist: in lists it looks like an empty one.
    async fn no_namespace(&self, name: &str) -> Vec<Result<Target, Failure>> {
        match self.hub.get(Resource::preferred(&NAMESPACE), "", name).await {
            Err(error @ HubError::NoObject { .. }) => vec![Err(Failure::new(NAMESPACE.full_name(name), error.into()))],
            _ => Vec::new(),
        }
    }

    /// One target by name.
    async fn find(&self, reference: &Reference) -> Result<Target, Failure> {
        let fail = |problem: Problem| Failure::new(Self::describe(reference), problem);
        let lookups = join_all(reference.kinds.iter().map(|kind| self.look_up(kind, &reference.name))).await;
        let mut answers = Answers::new(&reference.kinds, lookups);
        for error in answers.take_unseen() {
            self.leave_out(&error);
        }
        let Answers { mut found, absent, errors } = answers;
        if found.len() > 1 {
            let candidates = found.iter().map(Target::full_name).collect();
            return Err(fail(ResolveError::Ambiguous { name: reference.name.clone(), candidates }.into()));
        }
        if let Some(target) = found.pop() {
            return Ok(target);
        }
        if let Some(error) = errors.into_iter().next() {
            return Err(fail(error.into()));
        }
        if absent.is_empty() {
            let word = reference.word.as_deref().unwrap_or("of any target").to_owned();
            let what = elsewhere::of_word(&reference.kinds).unwrap_or(word);
            return Err(fail(ResolveError::NoKind(what).into()));
        }
        let hint = self.hint(&reference.name, &absent).await;
        Err(fail(Problem::Resolve(ResolveError::NotFound {
            what: Self::describe(reference),
            namespace: has_namespaces(&absent).then(|| self.hub.namespace.clone()),
            hint,
        })))
    }

    fn leave_out(&self, error: &HubError) {
        if self.hub.verbose {
            output::note(&format!("skipped, because another type matched: {error}"));
        }
    }

    fn describe(reference: &Reference) -> String {
        match reference.kinds.as_slice() {
            [kind] => kind.kind.full_name(&reference.name),
            _ => match &reference.word {
                Some(word) => format!("{word}/{}", reference.name),
                None => format!("target {:?}", reference.name),
            },
        }
    }

    /// The object of this kind and name; none if there is no such object.
    async fn look_up(&self, kind: &'static TargetKind, name: &str) -> Result<Option<Target>, HubError> {
        let namespace = &self.hub.namespace;
        self.served(kind, async |resource| match self.hub.get(resource, namespace, name).await {
            Ok(object) => Ok(Some(Target::new(kind, resource.version, object))),
            Err(HubError::NoObject { .. }) => Ok(None),
            Err(error) => Err(error),
        })
        .await
    }

    /// Runs a request in the version that the hub serves, which the request itself finds out.
    async fn served<T>(
        &self,
        kind: &'static TargetKind,
        request: impl AsyncFn(Resource) -> Result<T, HubError>,
    ) -> Result<T, HubError> {
        let kind = &kind.kind;
        let key = (kind.group, kind.plural);
        let absent = || HubError::NoKind(kind.resource_name());
        let known = self.versions.lock().unwrap_or_else(PoisonError::into_inner).get(&key).copied();
        let candidates = match &known {
            Some(None) => return Err(absent()),
            Some(Some(version)) => std::slice::from_ref(version),
            None => kind.versions,
        };
        for version in candidates {
            match request(Resource { kind, version }).await {
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

    /// A kind in the version that the hub was found to serve; none if it serves none or was not asked.
    pub(crate) fn resource(&self, kind: &'static TargetKind) -> Option<Resource> {
        let kind = &kind.kind;
        let versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        let version = (*versions.get(&(kind.group, kind.plural))?)?;
        Some(Resource { kind, version })
    }

    fn remember(&self, key: (&'static str, &'static str), version: Option<&'static str>) {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner).insert(key, version);
    }

    /// `; it exists in namespace shop: add -n shop`: one request for each kind, only on the way to an error. Who may
    /// not list all namespaces gets no such hint.
    async fn in_other_namespaces(&self, wanted: &str, kinds: &[&'static TargetKind]) -> Option<String> {
        let named = format!("metadata.name={wanted}");
        let lists = join_all(kinds.iter().filter(|kind| kind.kind.is_namespaced()).map(async |kind| {
            self.served(kind, async |resource| self.hub.list(resource, None, &named, "").await).await
        }));
        let items = lists.await.into_iter().flatten().flat_map(|list| list.items);
        let namespaces: BTreeSet<String> =
            items.filter_map(|item| Some(item.pointer("/metadata/namespace")?.as_str()?.to_owned())).collect();
        let first = quoted(namespaces.first()?);
        Some(match namespaces.len() {
            1 => format!("; it exists in namespace {first}: add -n {first}"),
            more => format!("; it exists in {more} other namespaces: add for example -n {first}"),
        })
    }

    /// `; did you mean demo?`, or where else to look: one more request, only on the way to an error.
    async fn hint(&self, wanted: &str, kinds: &[&'static TargetKind]) -> String {
        if let Some(hint) = self.in_other_namespaces(wanted, kinds).await {
            return hint;
        }
        let namespace = Some(self.hub.namespace.as_str());
        let lists = join_all(kinds.iter().map(async |kind| {
            let list = self.served(kind, async |resource| self.hub.list(resource, namespace, "", "").await).await;
            (*kind, list.map(|list| list.items))
        }));
        let lists = lists.await;
        let names = lists.iter().filter_map(|(_, list)| list.as_ref().ok()).flatten();
        let names = names.filter_map(|object| object.pointer("/metadata/name")?.as_str());
        if let Some(hint) = did_you_mean(wanted, names).or_else(|| elsewhere::display_name(wanted, &lists)) {
            return hint;
        }
        match lists.as_slice() {
            [(row, list)] => elsewhere::hint(self.hub, row, list.as_deref().ok()).await.unwrap_or_default(),
            _ => String::new(),
        }
    }

    /// All targets of some kinds.
    async fn query(&self, kinds: &[&'static TargetKind], selector: &str, typed: bool) -> Vec<Result<Target, Failure>> {
        let lists = kinds.iter().map(|kind| {
            self.served(kind, async |resource| {
                let list = self.hub.list(resource, self.namespace, "", selector).await?;
                let targets = list.items.into_iter().map(|object| Target::new(kind, resource.version, object));
                Ok(targets.collect::<Vec<_>>())
            })
        });
        let lists = join_all(lists).await;
        let some_kind_exists = lists.iter().any(|list| !matches!(list, Err(HubError::NoKind(_))));
        let seen: Vec<&str> =
            kinds.iter().zip(&lists).filter(|(_, list)| list.is_ok()).map(|(kind, _)| kind.kind.kind).collect();
        let is_left_out = |kind: &TargetKind| seen.contains(&kind.kind.kind) || !typed && !seen.is_empty();
        let mut found: Vec<Result<Target, Failure>> = Vec::new();
        for (kind, list) in kinds.iter().zip(lists) {
            let what = kind.kind.resource_name();
            match list {
                Ok(targets) => found.extend(targets.into_iter().map(Ok)),
                Err(HubError::NoKind(_)) if some_kind_exists => {
                    if self.hub.verbose {
                        output::note(&format!("the hub does not have the type {what}"));
                    }
                }
                // `md` means two kinds of one name, and no word at all means what the user may see.
                Err(error) if is_forbidden(&error) && is_left_out(kind) => self.leave_out(&error),
                // No word at all: Hive's kind alone is missed.
                Err(HubError::NoKind(_)) if !typed && !found.is_empty() => {}
                Err(HubError::NoKind(what)) => {
                    let what = elsewhere::of_word(&[kind]).unwrap_or(what);
                    found.push(Err(Failure::new(kind.kind.resource_name(), ResolveError::NoKind(what).into())));
                }
                Err(error) => push_once(&mut found, Failure::new(what, error.into())),
            }
        }
        found
    }
}

/// A hub that is down is down for every kind: reported once.
fn push_once(found: &mut Vec<Result<Target, Failure>>, failure: Failure) {
    let text = failure.to_string();
    if !found.iter().any(|one| one.as_ref().is_err_and(|one| one.to_string() == text)) {
        found.push(Err(failure));
    }
}

fn repeats(found: &[Result<Target, Failure>], target: &Target) -> bool {
    let same = |other: &Target| other.resource == target.resource && other.name == target.name;
    found.iter().flatten().any(same)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::kinds::KINDS;

    use super::*;

    fn forbidden() -> Result<Option<Target>, HubError> {
        Err(HubError::Forbidden {
            object: "clusterdeployment.hive.openshift.io/wbe".to_owned(),
            message: "no".to_owned(),
        })
    }

    fn down() -> Result<Option<Target>, HubError> {
        Err(HubError::Unauthorized { url: "https://hub".into() })
    }

    fn unserved() -> Result<Option<Target>, HubError> {
        Err(HubError::NoKind("x".to_owned()))
    }

    fn web(kind: &'static TargetKind) -> Target {
        Target::new(kind, "v1", json!({ "metadata": { "name": "web", "namespace": "shop" } }))
    }

    /// How many kinds are left out, and how many errors stay.
    #[test]
    fn a_kind_that_may_not_be_seen_is_not_there_if_another_one_answered() {
        let kinds = &KINDS.targets[..3];
        for (case, lookups, left_out, errors) in [
            ("another has none of that name", vec![forbidden(), Ok(None), unserved()], 1, 0),
            ("another has it", vec![forbidden(), Ok(Some(web(kinds[1]))), forbidden()], 2, 0),
            ("another failed otherwise", vec![forbidden(), Ok(None), down()], 1, 1),
            ("no other is served", vec![forbidden(), unserved(), unserved()], 0, 1),
            ("nothing may be seen", vec![forbidden(), forbidden(), forbidden()], 0, 3),
            ("nothing else answered", vec![forbidden(), down(), unserved()], 0, 2),
        ] {
            let mut answers = Answers::new(kinds, lookups);
            let unseen = answers.take_unseen();
            assert_eq!((unseen.len(), answers.errors.len()), (left_out, errors), "{case}");
            assert!(unseen.iter().all(is_forbidden), "{case}");
        }
    }
}
