//! Objects of a list or a watch, of which one that cannot be read does not end it.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _};
use serde_json::value::RawValue;

/// An object of a watched kind, or what of it could be read. Kube's `DeserializeGuard` builds a generic value of each
/// object, which fails for one that is nested too deep, and copies it; this reads the text, and once more only if that
/// fails. It needs the text: an event has its `type` before its `object`, as every API server writes it.
#[derive(Clone, Debug)]
pub struct Guarded<K>(pub Result<K, Unreadable>);

/// What could be read of an object, and why not all of it.
#[derive(Clone, Debug)]
pub struct Unreadable {
    /// Why.
    pub error: String,
    /// Who it is.
    pub metadata: ObjectMeta,
}

/// Skips all else, however deep it is nested.
#[derive(Deserialize)]
struct Named {
    metadata: ObjectMeta,
}

impl<'de, K: Resource + DeserializeOwned> Deserialize<'de> for Guarded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let error = match serde_json::from_str(text.get()) {
            Ok(object) => return Ok(Self(Ok(object))),
            Err(error) => error.to_string(),
        };
        let Named { metadata } = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
        Ok(Self(Err(Unreadable { error, metadata })))
    }
}

impl<K: Resource> Resource for Guarded<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(of: &K::DynamicType) -> Cow<'_, str> {
        K::kind(of)
    }

    fn group(of: &K::DynamicType) -> Cow<'_, str> {
        K::group(of)
    }

    fn version(of: &K::DynamicType) -> Cow<'_, str> {
        K::version(of)
    }

    fn plural(of: &K::DynamicType) -> Cow<'_, str> {
        K::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|unreadable| &unreadable.metadata, K::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.as_mut().map_or_else(|unreadable| &mut unreadable.metadata, K::meta_mut)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::ResourceExt as _;
    use kube::core::{DynamicObject, ObjectList, WatchEvent};

    use super::*;

    #[test]
    fn an_object_that_cannot_be_read_is_known_by_its_name() {
        let good = r#"{"metadata":{"name":"a"},"data":{"key":"value"}}"#;
        let bad = r#"{"metadata":{"name":"b"},"data":{"key":7}}"#;
        let of = |object: &Guarded<ConfigMap>| match &object.0 {
            Ok(map) => format!("{} {:?}", object.name_any(), map.data),
            Err(unreadable) => format!("{} {}", object.name_any(), unreadable.error.split(" at ").next().unwrap()),
        };
        let words = [r#"a Some({"key": "value"})"#, "b invalid type: integer `7`, expected a string"];
        let list = format!(r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{}},"items":[{good},{bad}]}}"#);
        let list: ObjectList<Guarded<ConfigMap>> = serde_json::from_str(&list).unwrap();
        assert_eq!(list.items.iter().map(of).collect::<Vec<_>>(), words);
        for (text, expected) in [good, bad].into_iter().zip(words) {
            let event = serde_json::from_str(&format!(r#"{{"type":"ADDED","object":{text}}}"#)).unwrap();
            let WatchEvent::Added(object) = event else { panic!("{text}") };
            assert_eq!(of(&object), expected);
            assert_eq!(of(&serde_json::from_value(serde_json::from_str(text).unwrap()).unwrap()), expected);
        }
        serde_json::from_str::<Guarded<ConfigMap>>(r#"{"metadata":{"name":7}}"#).unwrap_err();
    }

    #[test]
    fn an_object_that_is_nested_too_deep_spoils_no_list() {
        let deep = format!(r#"{{"status":{}{},"metadata":{{"name":"deep"}}}}"#, "[".repeat(200), "]".repeat(200));
        let raw = r#"{"status":{"$serde_json::private::RawValue":"{"},"metadata":{"name":"raw"}}"#;
        let list = format!(r#"{{"metadata":{{}},"items":[{deep},{raw},{{"metadata":{{"name":"b"}}}}]}}"#);
        let list: ObjectList<Guarded<DynamicObject>> = serde_json::from_str(&list).unwrap();
        let found: Vec<_> = list.items.iter().map(|one| (one.meta().name.clone().unwrap(), one.0.is_ok())).collect();
        assert_eq!(found, [("deep".to_owned(), false), ("raw".to_owned(), false), ("b".to_owned(), true)]);
    }
}
