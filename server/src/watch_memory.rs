//! Memory for what a watch of the hub keeps.

use std::collections::{HashMap, HashSet};
use std::mem::size_of;

use fair::{Charge, Consumer, MemoryLimit};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::runtime::watcher::Event;
use shared::annotation::keys;
use shared::guarded::{Guarded, Unreadable, identity};

/// Label of KKP's Clusters: their tenant.
const PROJECT: &str = "project-id";

/// The charges of what a watch keeps of objects, to their tenants.
pub struct WatchMemory {
    limit: MemoryLimit,
    charges: HashMap<Key, Charge>,
    /// What the list in progress has brought.
    listed: Option<HashSet<Key>>,
}

/// Namespace and name.
type Key = (Option<String>, Option<String>);

impl WatchMemory {
    pub fn new(limit: MemoryLimit) -> Self {
        Self { limit, charges: HashMap::new(), listed: None }
    }

    /// Charges what an event brings, and gives back what it takes away. An object that does not fit is refused, by its name.
    pub fn charge<K: Resource>(&mut self, mut event: Event<Guarded<K>>) -> Event<Guarded<K>> {
        match &mut event {
            Event::Init => self.listed = Some(HashSet::new()),
            Event::InitDone => {
                // What the list has not brought is gone.
                if let Some(listed) = self.listed.take() {
                    self.charges.retain(|key, _| listed.contains(key));
                }
            }
            Event::Delete(object) => drop(self.charges.remove(&key(object))),
            Event::InitApply(object) | Event::Apply(object) => self.charge_object(object),
        }
        event
    }

    /// Charges an object in place of its last version.
    fn charge_object<K: Resource>(&mut self, object: &mut Guarded<K>) {
        let key = key(object);
        let mut charge = self.limit.of(Consumer::new(tenant(object.meta()), "")).charge();
        self.charges.remove(&key);
        if let Some(listed) = &mut self.listed {
            listed.insert(key.clone());
        }
        if charge.spend(size_of::<Guarded<K>>() + object.1).is_ok() {
            self.charges.insert(key, charge);
            return;
        }
        let error = "the objects of its tenant take more memory together than this process has for one".to_owned();
        object.0 = Err(Unreadable { error, metadata: identity(object.meta()) });
    }
}

/// Whose share of a limit an object takes: that of its namespace, its project of KKP, or who wrote it.
pub fn tenant(meta: &ObjectMeta) -> &str {
    let label = || meta.labels.as_ref()?.get(PROJECT);
    let requester = || meta.annotations.as_ref()?.get(keys::REQUESTED_BY);
    let tenant = meta.namespace.as_ref().or_else(label).or_else(requester).or(meta.name.as_ref());
    tenant.map_or("", String::as_str)
}

fn key<K: Resource>(object: &Guarded<K>) -> Key {
    (object.meta().namespace.clone(), object.meta().name.clone())
}

#[cfg(test)]
mod tests {
    use fair::{Capacity, MemorySizes};
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    fn object(namespace: &str, name: &str, bytes: usize) -> Guarded<ConfigMap> {
        let text = json!({ "metadata": { "name": name, "namespace": namespace }, "data": { "a": "x".repeat(bytes) } });
        serde_json::from_str(&text.to_string()).unwrap()
    }

    #[test]
    fn objects_without_a_namespace_are_of_who_wrote_them() {
        for (meta, of) in [
            (json!({ "name": "n", "namespace": "x", "labels": { PROJECT: "p" } }), "x"),
            (json!({ "name": "n", "labels": { PROJECT: "p" }, "annotations": { keys::REQUESTED_BY: "a" } }), "p"),
            (json!({ "name": "n", "annotations": { keys::REQUESTED_BY: "alice" } }), "alice"),
            (json!({ "name": "n" }), "n"),
        ] {
            assert_eq!(tenant(&serde_json::from_value(meta).unwrap()), of);
        }
    }

    #[test]
    fn an_object_that_does_not_fit_is_refused_by_its_name_and_no_other() {
        let limit = MemoryLimit::new(MemorySizes::of_tenants(Capacity { total: 4 << 20, per_tenant: 2 << 20 }));
        let mut memory = WatchMemory::new(limit.clone());
        let mut admitted = |namespace: &str, number: usize| {
            let object = object(namespace, &number.to_string(), 100 << 10);
            let Event::Apply(object) = memory.charge(Event::Apply(object)) else { unreachable!() };
            object
        };
        let fit = (0..100).take_while(|number| admitted("greedy", *number).0.is_ok()).count();
        assert!((15..=20).contains(&fit), "{fit}");
        assert_eq!(admitted("greedy", 50).meta().name.as_deref(), Some("50"));
        assert!(admitted("other", 0).0.is_ok());
        // What is listed again takes the place of what was there.
        memory.charge(Event::<Guarded<ConfigMap>>::Init);
        for number in 0..fit {
            let listed = Event::InitApply(object("greedy", &number.to_string(), 100 << 10));
            assert!(matches!(memory.charge(listed), Event::InitApply(Guarded(Ok(_), _))), "{number}");
        }
        memory.charge(Event::<Guarded<ConfigMap>>::InitDone);
        assert_eq!(memory.charges.len(), fit, "the other tenant's is gone");
        for number in 0..fit {
            memory.charge(Event::Delete(object("greedy", &number.to_string(), 1)));
        }
        assert!(limit.is_free());
    }
}
