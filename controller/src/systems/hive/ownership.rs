//! Whose machines: which `ClusterDeployments` name them, and in which account the cloud has shown them.
//!
//! An index over the watch, so that no reconcile looks through ten thousand objects. It hears of a change before the
//! systems do.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use kube::runtime::reflector::Store;
use kube::{Resource, ResourceExt};
use parking_lot::Mutex;
use shared::hive::api::ClusterDeployment;
use shared::hive::identity::{Identity, seniority};
use tokio::sync::Notify;

use crate::fleet::Domain;
use crate::runtime::hub::{key_of, object_ref};
use crate::runtime::{Follower, Guarded, Key};

/// An object as the watch has brought it.
type Object = Arc<Guarded<ClusterDeployment>>;

/// The machines of one term of leadership, and who names them.
#[derive(Debug, Default)]
pub struct Ownership {
    known: Mutex<Known>,
    /// Machines have another owner.
    changes: Notify,
}

#[derive(Debug, Default)]
struct Known {
    /// The watch's store, once its list was complete.
    objects: Option<Store<Guarded<ClusterDeployment>>>,
    /// Objects that name machines.
    owners: HashMap<Key, Owner>,
    /// The same by the hash of their identity, the oldest first.
    claims: HashMap<u64, Vec<Object>>,
    hasher: RandomState,
    /// Objects to reconcile, because the first one of their identity is another one now.
    changed: Vec<Key>,
}

#[derive(Debug)]
struct Owner {
    object: Object,
    /// See [`Ownership::found_in`].
    domain: Option<Arc<str>>,
}

impl Ownership {
    /// Whether every object is known. Until then nothing tells whose machines are whose.
    pub fn is_listed(&self) -> bool {
        self.known.lock().objects.is_some()
    }

    /// An older object that names the same machines, as far as the cloud has not shown them in another account.
    pub fn older_than(&self, cluster: &ClusterDeployment) -> Option<Object> {
        let identity = Identity::of(cluster)?;
        let known = self.known.lock();
        let claims = known.claims.get(&known.hasher.hash_one(&identity))?;
        let is_older = |claim: &&Object| read(claim).is_some_and(|claim| seniority(claim) < seniority(cluster));
        let is_same = |claim: &&Object| {
            read(claim).and_then(Identity::of).as_ref() == Some(&identity)
                && !(identity.is_per_account() && known.are_apart(&key_of(&***claim), &key_of(cluster)))
        };
        claims.iter().take_while(is_older).find(is_same).cloned()
    }

    /// The cloud has listed this cluster's machines: whose limits they share is known. Not before, because credentials
    /// are a tenant's to write.
    pub fn found_in(&self, cluster: &ClusterDeployment, domain: Arc<str>) {
        let Some(identity) = Identity::of(cluster) else { return };
        let key = key_of(cluster);
        let known = &mut *self.known.lock();
        let owner = known.owners.get_mut(&key).filter(|owner| owner.object.meta().uid == cluster.metadata.uid);
        let Some(owner) = owner else { return };
        let before = owner.domain.replace(domain);
        if identity.is_per_account() && before != owner.domain {
            let others = known.claims.get(&known.hasher.hash_one(&identity)).into_iter().flatten();
            known.changed.extend(others.map(|claim| key_of(&**claim)).filter(|other| *other != key));
            self.changes.notify_one();
        }
    }

    /// What the object with this UID shares a cloud's limits with, if it is known.
    pub fn domain(&self, key: &Key, uid: &str) -> Option<Arc<str>> {
        let known = self.known.lock();
        let owner = known.owners.get(key)?;
        owner.domain.clone().filter(|_| owner.object.meta().uid.as_deref() == Some(uid))
    }

    /// What objects share a cloud's limits with, for rollouts.
    pub fn domains(self: Arc<Self>) -> Domain {
        Arc::new(move |item| {
            let (key, uid) = item.identity();
            self.domain(&key, &uid)
        })
    }

    /// Asks for a reconcile of every object whose machines have another owner.
    pub async fn follow(&self, trigger: impl Fn(Key)) {
        loop {
            self.changes.notified().await;
            let changed = std::mem::take(&mut self.known.lock().changed);
            changed.into_iter().for_each(&trigger);
        }
    }
}

impl Known {
    /// The account that the cloud has shown an object's machines in: its domain without the credentials.
    fn account(&self, key: &Key) -> Option<&str> {
        let (account, _) = self.owners.get(key)?.domain.as_deref()?.rsplit_once('/')?;
        Some(account)
    }

    fn are_apart(&self, one: &Key, other: &Key) -> bool {
        self.account(one).zip(self.account(other)).is_some_and(|(one, other)| one != other)
    }

    fn hash(&self, object: &Object) -> Option<u64> {
        Some(self.hasher.hash_one(Identity::of(read(object)?)?))
    }

    /// Who is acted on of those with this hash.
    fn first(&self, hash: u64) -> Option<String> {
        self.claims.get(&hash)?.first()?.uid()
    }

    /// An object is there, has changed, or is gone. What cannot be read any more keeps the machines that it had.
    fn update(&mut self, key: &Key, object: Option<Object>) {
        if object.as_ref().is_some_and(|object| read(object).is_none()) {
            return;
        }
        let before = self.owners.get(key).and_then(|owner| self.hash(&owner.object));
        let after = object.as_ref().and_then(|object| self.hash(object));
        let touched = [before, after].map(|hash| hash.map(|hash| (hash, self.first(hash))));
        let owner = self.remove(key);
        if let (Some(object), Some(hash)) = (object, after) {
            let owner = owner.filter(|owner| owner.object.meta().uid == object.meta().uid);
            self.insert(key.clone(), hash, Owner { object, domain: owner.and_then(|owner| owner.domain) });
        }
        for (hash, first) in touched.into_iter().flatten() {
            if self.first(hash) != first {
                let others = self.claims.get(&hash).into_iter().flatten().map(|claim| key_of(&**claim));
                self.changed.extend(others.filter(|other| other != key));
            }
        }
    }

    fn insert(&mut self, key: Key, hash: u64, owner: Owner) {
        let claims = self.claims.entry(hash).or_default();
        let is_older = |claim: &Object| read(claim).map(seniority) <= read(&owner.object).map(seniority);
        claims.insert(claims.partition_point(is_older), owner.object.clone());
        self.owners.insert(key, owner);
    }

    fn remove(&mut self, key: &Key) -> Option<Owner> {
        let owner = self.owners.remove(key)?;
        if let Some(hash) = self.hash(&owner.object)
            && let Some(claims) = self.claims.get_mut(&hash)
        {
            claims.retain(|claim| !Arc::ptr_eq(claim, &owner.object));
            if claims.is_empty() {
                self.claims.remove(&hash);
            }
        }
        Some(owner)
    }
}

fn read(object: &Object) -> Option<&ClusterDeployment> {
    object.0.as_ref().ok()
}

impl Follower<ClusterDeployment> for Ownership {
    fn listed(&self, objects: &Store<Guarded<ClusterDeployment>>) {
        let known = &mut *self.known.lock();
        known.objects = Some(objects.clone());
        let gone: Vec<Key> =
            known.owners.keys().filter(|key| objects.get(&object_ref((*key).clone())).is_none()).cloned().collect();
        for key in gone {
            known.update(&key, None);
        }
        for object in objects.state() {
            known.update(&key_of(&*object), Some(object));
        }
        known.changed.clear(); // each listed object is reconciled
    }

    fn changed(&self, key: &Key) {
        let known = &mut *self.known.lock();
        let Some(objects) = &known.objects else { return };
        let object = objects.get(&object_ref(key.clone()));
        known.update(key, object);
        if !known.changed.is_empty() {
            self.changes.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::reflector::store::Writer;
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

    use super::*;

    struct Watch {
        writer: Writer<Guarded<ClusterDeployment>>,
        ownership: Ownership,
    }

    fn object(namespace: &str, name: &str, created: u8, infra_id: &str) -> Value {
        json!({
            "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment",
            "metadata": {
                "name": name, "namespace": namespace, "uid": format!("{namespace}-{name}"),
                "creationTimestamp": format!("2026-11-{created:02}T00:00:00Z"),
            },
            "spec": {
                "baseDomain": "d", "clusterName": name, "installed": true,
                "platform": { "aws": { "region": "us-east-1" } },
                "clusterMetadata": {
                    "clusterID": "c", "infraID": infra_id, "adminKubeconfigSecretRef": { "name": "k" },
                },
            },
        })
    }

    fn guarded(object: &Value) -> Guarded<ClusterDeployment> {
        serde_json::from_value(object.clone()).unwrap()
    }

    impl Watch {
        fn of(objects: &[Value]) -> Self {
            let mut watch = Self { writer: Writer::default(), ownership: Ownership::default() };
            watch.list(objects);
            watch
        }

        fn list(&mut self, objects: &[Value]) {
            self.writer.apply_watcher_event(&Event::Init);
            for object in objects {
                self.writer.apply_watcher_event(&Event::InitApply(guarded(object)));
            }
            self.writer.apply_watcher_event(&Event::InitDone);
            self.ownership.listed(&self.writer.as_reader());
        }

        /// Who is to be reconciled because of it.
        fn event(
            &mut self,
            event: fn(Guarded<ClusterDeployment>) -> Event<Guarded<ClusterDeployment>>,
            object: &Value,
        ) -> Vec<String> {
            let key = key_of(&guarded(object));
            self.writer.apply_watcher_event(&event(guarded(object)));
            self.ownership.changed(&key);
            let mut changed: Vec<String> =
                std::mem::take(&mut self.ownership.known.lock().changed).into_iter().map(|(_, name)| name).collect();
            changed.sort();
            changed
        }

        fn older_than(&self, object: &Value) -> Option<String> {
            let older = self.ownership.older_than(guarded(object).0.as_ref().unwrap())?;
            Some(older.name_any())
        }
    }

    #[test]
    fn the_oldest_of_one_identity_is_acted_on_and_the_next_once_it_is_gone() {
        let [first, second, third] = [("x", "first", 1), ("y", "second", 2), ("x", "third", 3)]
            .map(|(namespace, name, created)| object(namespace, name, created, "demo-1"));
        let other = object("z", "other", 4, "demo-2");
        let mut watch = Watch::of(&[third.clone(), other.clone(), second.clone(), first.clone()]);
        assert!(watch.ownership.is_listed());
        let owners = |watch: &Watch| [&first, &second, &third, &other].map(|one| watch.older_than(one));
        let named = |name: &str| Some(name.to_owned());
        assert_eq!(owners(&watch), [None, named("first"), named("first"), None]);

        let mut deleting = first.clone();
        deleting["metadata"]["deletionTimestamp"] = json!("2026-11-05T00:00:00Z");
        assert_eq!(watch.event(Event::Apply, &deleting), [""; 0], "its machines are there until it is gone");
        assert_eq!(watch.older_than(&second), named("first"));
        assert_eq!(watch.event(Event::Delete, &deleting), ["second", "third"]);
        assert_eq!(owners(&watch)[1..3], [None, named("second")]);

        let mut renamed = second.clone();
        renamed["spec"]["clusterMetadata"]["infraID"] = json!("demo-2");
        assert_eq!(watch.event(Event::Apply, &renamed), ["other", "third"], "both of its machines have another owner");
        assert_eq!((watch.older_than(&third), watch.older_than(&other)), (None, named("second")));
        assert_eq!(
            watch.event(Event::Apply, &object("x", "fourth", 6, "demo-1")),
            [""; 0],
            "a younger one changes nothing"
        );
    }

    #[test]
    fn what_cannot_be_read_any_more_keeps_its_machines() {
        let (first, second) = (object("x", "first", 1, "demo-1"), object("y", "second", 2, "demo-1"));
        let mut watch = Watch::of(&[first.clone(), second.clone()]);
        let mut broken = first.clone();
        broken["spec"]["installed"] = json!("maybe");
        assert_eq!(watch.event(Event::Apply, &broken), [""; 0]);
        assert_eq!(watch.older_than(&second), Some("first".to_owned()));
        watch.list(&[broken.clone(), second.clone()]);
        assert_eq!(watch.older_than(&second), Some("first".to_owned()), "also when the watch begins anew");
        assert_eq!(watch.event(Event::Delete, &broken), ["second"]);
        assert_eq!(watch.older_than(&second), None);
    }

    #[test]
    fn a_list_that_was_missed_is_caught_up_with() {
        let (first, second) = (object("x", "first", 1, "demo-1"), object("y", "second", 2, "demo-1"));
        let mut watch = Watch::of(&[first, second.clone()]);
        watch.list(std::slice::from_ref(&second));
        assert_eq!(watch.older_than(&second), None);
        let known = watch.ownership.known.lock();
        assert_eq!((known.owners.len(), known.claims.len()), (1, 1), "nothing is kept");
    }

    #[test]
    fn an_account_is_known_of_this_very_object_until_it_is_gone() {
        let own = object("x", "own", 1, "demo-1");
        let mut watch = Watch::of(std::slice::from_ref(&own));
        let domain = |watch: &Watch, object: &Value| {
            let object = guarded(object);
            watch.ownership.domain(&key_of(&object), object.meta().uid.as_deref().unwrap_or_default())
        };
        assert_eq!(domain(&watch, &own), None, "not before the cloud has accepted its credentials");
        watch.ownership.found_in(guarded(&own).0.as_ref().unwrap(), Arc::from("aws/us-east-1/1"));
        let mut touched = own.clone();
        touched["metadata"]["labels"] = json!({ "a": "b" });
        watch.event(Event::Apply, &touched);
        assert_eq!(domain(&watch, &touched).as_deref(), Some("aws/us-east-1/1"));
        let mut again = own.clone();
        again["metadata"]["uid"] = json!("again");
        assert_eq!(domain(&watch, &again), None);
        watch.event(Event::Apply, &again);
        assert_eq!(domain(&watch, &again), None, "another object of its name");
        watch.ownership.found_in(guarded(&own).0.as_ref().unwrap(), Arc::from("aws/us-east-1/1"));
        assert_eq!(domain(&watch, &again), None, "an answer that came late is of the one before");
    }

    /// Each subscription may have a resource group of that name, and only the cloud says which one is meant.
    #[test]
    fn groups_of_one_name_are_told_apart_once_the_cloud_has_shown_both() {
        let azure = |name: &str, created: u8| {
            let mut one = object("x", name, created, &format!("{name}-1"));
            one["spec"]["platform"] = json!({ "azure": { "region": "r" } });
            one["spec"]["clusterMetadata"]["platform"] = json!({ "azure": { "resourceGroupName": "shared" } });
            one
        };
        let (first, second) = (azure("first", 1), azure("second", 2));
        let watch = Watch::of(&[first.clone(), second.clone()]);
        for (of, domain, changed, older) in [
            (&second, "azure/two/a", "first", true),
            (&first, "azure/one/b", "second", false),
            (&first, "azure/one/b", "", false),
            (&first, "azure/two/b", "second", true),
        ] {
            watch.ownership.found_in(guarded(of).0.as_ref().unwrap(), Arc::from(domain));
            let triggered = std::mem::take(&mut watch.ownership.known.lock().changed).into_iter().map(|(_, name)| name);
            assert_eq!(triggered.collect::<String>(), changed, "{domain}");
            assert_eq!(watch.older_than(&second).is_some(), older, "{domain}");
            assert_eq!(watch.older_than(&first), None);
        }
    }

    /// Ten thousand objects of one identity, such as a tenant may make: each change of one is still cheap.
    #[test]
    fn many_objects_of_one_identity_cost_no_more_than_a_search() {
        let all: Vec<Value> = (0..10_000).map(|n| object("x", &format!("c{n:05}"), 1, "demo-1")).collect();
        let mut watch = Watch::of(&all);
        let begin = std::time::Instant::now();
        for one in all.iter().rev().take(100) {
            assert_eq!(watch.event(Event::Apply, one), [""; 0]);
            assert_eq!(watch.older_than(one), Some("c00000".to_owned()));
        }
        assert!(begin.elapsed().as_secs() < 2, "{:?}", begin.elapsed());
    }
}
