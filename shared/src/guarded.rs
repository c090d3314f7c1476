//! Objects of the hub. Tenants write them: each is read within limits, and one that cannot be read does not spoil a list.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PersistentVolumeClaim, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny};
use serde_json::value::RawValue;

use crate::annotation::format;
use crate::cgu::api::ClusterGroupUpgrade;
use crate::fdb::api::FoundationDBCluster;
use crate::hive::api::{ClusterDeployment, ClusterSync};
use crate::kkp::api::Cluster;
use crate::read::{self, Foreign, Limits, Read};
use crate::rollout::api::PowerRollout;
use crate::schedule::api::{ClusterPowerSchedule, PowerSchedule};

macro_rules! foreign {
    ($($type:ty: $limits:ident),* $(,)?) => {$(
        impl Foreign for $type {
            const LIMITS: Limits = Limits::$limits;
        }
    )*};
}

foreign! {
    ClusterDeployment: OBJECT,
    ClusterSync: OBJECT,
    ClusterGroupUpgrade: FLEET,
    PowerRollout: FLEET,
    PowerSchedule: FLEET,
    ClusterPowerSchedule: FLEET,
    FoundationDBCluster: DATABASE,
    Cluster: OBJECT,
    ConfigMap: DATA,
    Secret: DATA,
    PersistentVolumeClaim: OBJECT,
    Lease: OBJECT,
    Namespace: OBJECT,
    ValidatingAdmissionPolicy: FLEET,
    ValidatingAdmissionPolicyBinding: OBJECT,
}

/// An object, or its identity and why it cannot be read; and the bytes that it keeps. Reading needs the raw text: an event of
/// a watch must have its `type` before its `object`, as every API server writes it.
#[derive(Clone, Debug)]
pub struct Guarded<K>(pub Result<K, Unreadable>, pub usize);

/// An object that cannot be read.
#[derive(Clone, Debug)]
pub struct Unreadable {
    pub error: String,
    /// Name, namespace, UID, resourceVersion and deletionTimestamp.
    pub metadata: ObjectMeta,
}

/// The metadata of an object, and nothing else.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Named<K = ()> {
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(skip)]
    kind: PhantomData<K>,
}

impl<K> Foreign for Named<K> {}

/// Who wrote an object, by `metadata.managedFields`, which watches leave out.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Managed {
    #[serde(default)]
    metadata: ManagedMetadata,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ManagedMetadata {
    managed_fields: Vec<ManagedEntry>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ManagedEntry {
    manager: String,
    time: String,
    #[serde(rename = "fieldsV1")]
    fields: ManagedFields,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ManagedFields {
    #[serde(rename = "f:spec")]
    #[expect(clippy::zero_sized_map_values, reason = "serde reads the keys of an object as a map alone")]
    spec: BTreeMap<String, IgnoredAny>,
}

impl Foreign for Managed {
    const LIMITS: Limits = Limits::MANAGED;
}

impl Managed {
    /// The field manager that wrote the spec last, not before `since`, besides `own`, and has such members of it.
    /// Untrusted text.
    pub fn wrote_spec(&self, since: Timestamp, own: &str, is_of: impl Fn(&str) -> bool) -> Option<&str> {
        let written = |entry: &ManagedEntry| format::time(&entry.time).filter(|at| *at >= since);
        let has_such = |entry: &&ManagedEntry| {
            let mut members = entry.fields.spec.keys().filter_map(|key| key.strip_prefix("f:"));
            entry.manager != own && members.any(&is_of)
        };
        let others = self.metadata.managed_fields.iter().filter(has_such);
        let others = others.filter_map(|entry| Some((written(entry)?, entry.manager.as_str())));
        others.max_by_key(|(at, _)| *at).map(|(_, manager)| manager)
    }
}

/// The identity of an object, however large the rest of it is.
#[derive(Deserialize)]
struct Identifiable {
    metadata: Identity,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Identity {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    deletion_timestamp: Option<Time>,
}

impl Foreign for Identifiable {}

/// Declares kinds of the hub: where they are served, and the fields that are read besides the metadata. Any field may be
/// absent.
#[macro_export]
macro_rules! hub_kinds {
    ($($(#[$doc:meta])* $name:ident: $scope:ty = $group:literal, $version:literal, $kind:literal, $plural:literal; $limits:ident $(+ $besides:ident)? {
        $($(#[$of_field:meta])* $field:ident: $type:ty,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, serde::Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        pub struct $name {
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            $($(#[$of_field])* pub $field: $type,)*
        }

        impl kube::Resource for $name {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                $kind.into()
            }

            fn group((): &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }

            fn version((): &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }

            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }

        impl $crate::read::Foreign for $name {
            const LIMITS: $crate::read::Limits = $crate::read::Limits::$limits;
            $(fn besides(&self) -> usize {
                $besides(self)
            })?
        }
    )*};
}

impl<K> From<K> for Guarded<K> {
    fn from(object: K) -> Self {
        Self(Ok(object), 0)
    }
}

impl<'de, K: Foreign> Deserialize<'de> for Guarded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let (error, text) = match read::json(text.get().as_bytes(), &K::LIMITS) {
            Ok(Read { value, kept, .. }) => {
                let kept = kept + K::besides(&value);
                return Ok(Self(Ok(value), kept));
            }
            Err(error) => (error.to_string(), text),
        };
        let found =
            read::json::<Identifiable>(text.get().as_bytes(), &Identifiable::LIMITS).map_err(D::Error::custom)?;
        let Identity { name, namespace, uid, resource_version, deletion_timestamp } = found.value.metadata;
        let metadata =
            ObjectMeta { name, namespace, uid, resource_version, deletion_timestamp, ..ObjectMeta::default() };
        Ok(Self(Err(Unreadable { error, metadata }), found.kept))
    }
}

/// The metadata that identifies an object.
pub fn identity(meta: &ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        deletion_timestamp: meta.deletion_timestamp.clone(),
        ..ObjectMeta::default()
    }
}

impl<K> Guarded<K> {
    pub fn ok(self) -> Option<K> {
        self.0.ok()
    }

    /// The object, or why it cannot be read.
    pub fn read(self) -> Result<K, serde_json::Error> {
        self.0.map_err(|unreadable| serde_json::Error::custom(unreadable.error))
    }
}

macro_rules! of_kind {
    () => {
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
    };
}

impl<K: Resource> Resource for Named<K> {
    of_kind!();

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl<K: Resource> Resource for Guarded<K> {
    of_kind!();

    fn meta(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|unreadable| &unreadable.metadata, K::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.as_mut().map_or_else(|unreadable| &mut unreadable.metadata, K::meta_mut)
    }
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt as _;
    use kube::core::{ObjectList, WatchEvent};

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

    /// One that has written something else of the spec has not written this.
    #[test]
    fn who_wrote_a_member_of_the_spec_is_the_last_that_has_it() {
        let entry = |manager: &str, minute: u32, spec: &str| {
            let fields = format!(r#"{{"f:spec":{{"{spec}":{{}}}}}}"#);
            format!(r#"{{"manager":"{manager}","time":"2026-11-24T12:{minute:02}:00Z","fieldsV1":{fields}}}"#)
        };
        let all = [
            entry("kubectl", 1, "f:runStrategy"),
            entry("virt-api", 3, "f:runStrategy"),
            entry("ours", 4, "f:runStrategy"),
            entry("gitops", 5, "f:template"),
        ];
        let text = format!(r#"{{"metadata":{{"managedFields":[{}]}}}}"#, all.join(","));
        let managed: Managed = serde_json::from_str(&text).unwrap();
        let since = |minute: u32| format::time(&format!("2026-11-24T12:{minute:02}:00Z")).unwrap();
        let by = |minute, member: &str| managed.wrote_spec(since(minute), "ours", |of| of == member);
        assert_eq!(
            [by(0, "runStrategy"), by(3, "runStrategy"), by(4, "runStrategy")],
            [Some("virt-api"), Some("virt-api"), None]
        );
        assert_eq!((by(0, "template"), by(0, "running")), (Some("gitops"), None));
    }

    #[test]
    fn an_object_that_is_nested_too_deep_spoils_no_list() {
        let deep = format!(r#"{{"data":{{"x":{}{}}},"metadata":{{"name":"deep"}}}}"#, "[".repeat(200), "]".repeat(200));
        let raw = r#"{"data":{"x":{"$serde_json::private::RawValue":"{"}},"metadata":{"name":"raw"}}"#;
        let skipped = r#"{"status":[[[[1e999]]]],"metadata":{"name":"b"}}"#;
        let list = format!(r#"{{"metadata":{{}},"items":[{deep},{raw},{skipped}]}}"#);
        let list: ObjectList<Guarded<ConfigMap>> = serde_json::from_str(&list).unwrap();
        let found: Vec<_> = list.items.iter().map(|one| (one.meta().name.clone().unwrap(), one.0.is_ok())).collect();
        assert_eq!(found, [("deep".to_owned(), false), ("raw".to_owned(), false), ("b".to_owned(), true)]);
    }
}
