//! What governance knows of the hub.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use futures::StreamExt as _;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Cluster,
    SetBinding,
    Placement,
    Decision,
    Policy,
    Binding,
    View,
    Action,
}

impl Kind {
    const ALL: [Self; 8] = [
        Self::Cluster,
        Self::SetBinding,
        Self::Placement,
        Self::Decision,
        Self::Policy,
        Self::Binding,
        Self::View,
        Self::Action,
    ];

    pub(super) fn resource(self) -> ApiResource {
        let (group, version, kind, plural) = match self {
            Self::Cluster => ("cluster", "v1", "ManagedCluster", "managedclusters"),
            Self::SetBinding => ("cluster", "v1beta2", "ManagedClusterSetBinding", "managedclustersetbindings"),
            Self::Placement => ("cluster", "v1beta1", "Placement", "placements"),
            Self::Decision => ("cluster", "v1beta1", "PlacementDecision", "placementdecisions"),
            Self::Policy => ("policy", "v1", "Policy", "policies"),
            Self::Binding => ("policy", "v1", "PlacementBinding", "placementbindings"),
            Self::View => ("view", "v1beta1", "ManagedClusterView", "managedclusterviews"),
            Self::Action => ("action", "v1beta1", "ManagedClusterAction", "managedclusteractions"),
        };
        let group = format!("{group}.open-cluster-management.io");
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(&group, version, kind), plural)
    }
}

/// Objects by namespace and name.
pub(super) type Objects = BTreeMap<(String, String), Value>;

/// All objects at one moment.
pub(super) struct View(BTreeMap<Kind, Objects>);

impl View {
    pub(super) fn of(&self, kind: Kind) -> &Objects {
        &self.0[&kind]
    }

    pub(super) fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<&Value> {
        self.0[&kind].get(&(namespace.to_owned(), name.to_owned()))
    }
}

/// Watches of every kind.
pub(super) struct Stores(BTreeMap<Kind, Store<DynamicObject>>);

impl Stores {
    pub(super) async fn start(client: &Client, changed: &Arc<Notify>) -> Result<(Self, Vec<JoinHandle<()>>)> {
        let (mut stores, mut tasks) = (BTreeMap::new(), Vec::new());
        for kind in Kind::ALL {
            let resource = kind.resource();
            let writer = reflector::store::Writer::new(resource.clone());
            let (store, changed) = (writer.as_reader(), changed.clone());
            let events = watcher(Api::all_with(client.clone(), &resource), watcher::Config::default());
            let events = events.default_backoff().reflect(writer);
            tasks.push(tokio::spawn(events.for_each(move |_| {
                changed.notify_one();
                futures::future::ready(())
            })));
            store.wait_until_ready().await?;
            stores.insert(kind, store);
        }
        Ok((Self(stores), tasks))
    }

    pub(super) fn view(&self) -> View {
        let object = |object: &Arc<DynamicObject>| {
            let key = (object.namespace().unwrap_or_default(), object.name_any());
            Some((key, serde_json::to_value(&**object).ok()?))
        };
        View(self.0.iter().map(|(kind, store)| (*kind, store.state().iter().filter_map(object).collect())).collect())
    }
}
