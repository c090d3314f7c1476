//! Everything that the operator makes: groups, and for each what it needs.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::ResourceExt as _;
use kube::api::{DynamicObject, PostParams};
use serde_json::Value;

use super::api::Group;
use super::pass::{Pass, Step, Wait};
use super::store::Kind;

/// How many objects are made at once.
const AT_ONCE: usize = 16;

impl Pass<'_> {
    /// Fills up each class with new groups: those that are marked do not count.
    pub(super) async fn add_groups(&mut self) -> Result<()> {
        let mut there: BTreeMap<String, usize> = BTreeMap::new();
        for group in self.cluster.status.process_groups.iter().filter(|group| !group.is_marked()) {
            *there.entry(group.process_class.clone()).or_default() += 1;
        }
        let mut taken: BTreeSet<String> =
            self.cluster.status.process_groups.iter().map(|group| group.id.clone()).collect();
        for (class, wanted) in self.cluster.counts() {
            for _ in there.get(&class).copied().unwrap_or(0)..wanted {
                let id = loop {
                    let id = self.cluster.new_id(&class, 1 + rand::random::<u32>() % 99_999);
                    if taken.insert(id.clone()) {
                        break id;
                    }
                };
                let group = Group { id, process_class: class.clone(), ..Group::default() };
                self.cluster.status.process_groups.push(group);
            }
        }
        self.write_status().await
    }

    pub(super) async fn add_services(&mut self) -> Result<()> {
        if !self.cluster.uses_services() {
            return Ok(());
        }
        let missing = self.without(Kind::Service, "", |_| true);
        self.create(Kind::Service, missing.iter().map(|group| self.cluster.service(group)).collect()).await
    }

    pub(super) async fn add_claims(&mut self) -> Result<()> {
        let missing = self.without(Kind::Claim, "-data", Group::is_stateful);
        self.create(Kind::Claim, missing.iter().map(|group| self.cluster.claim(group)).collect()).await
    }

    /// A Pod is made for every group that is not on its way out. One that is known by its Service cannot be made
    /// without it.
    pub(super) async fn add_pods(&mut self) -> Result<()> {
        let mut pods = Vec::new();
        for group in self.without(Kind::Pod, "", |_| true) {
            let name = self.cluster.pod_name(&group.id, &group.process_class);
            let address = if self.cluster.uses_services() {
                let Some(service) = self.cx.store.get(Kind::Service, &name) else {
                    bail!("Service \"{name}\" not found")
                };
                service.data.pointer("/spec/clusterIP").and_then(Value::as_str).map(str::to_owned)
            } else {
                None
            };
            pods.push(self.cluster.pod(group, address.as_deref()));
        }
        self.create(Kind::Pod, pods).await
    }

    /// The groups that stay, or that have yet to be excluded, and lack something.
    fn without(&self, kind: Kind, suffix: &str, needs: impl Fn(&Group) -> bool) -> Vec<&Group> {
        let groups = self.cluster.status.process_groups.iter().filter(|group| !group.is_leaving() && needs(group));
        groups
            .filter(|group| {
                let name = format!("{}{suffix}", self.cluster.pod_name(&group.id, &group.process_class));
                self.cx.store.get(kind, &name).is_none()
            })
            .collect()
    }

    async fn create(&self, kind: Kind, objects: Vec<Value>) -> Result<()> {
        let api = self.cx.store.api(kind);
        let create = async |object: Value| {
            let object: DynamicObject = serde_json::from_value(object)?;
            let made = api.create(&PostParams::default(), &object).await;
            let made = made.with_context(|| format!("create {} {}", kind.name(), object.name_any()))?;
            self.cx.store.put(kind, made);
            anyhow::Ok(())
        };
        stream::iter(objects.into_iter().map(create)).buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Without a cluster file no process finds another: once enough of them run, there is one, and the database is
    /// configured.
    pub(super) async fn generate_cluster_file(&mut self) -> Step {
        if self.cluster.status.configured {
            return Ok(None);
        }
        let database = self.cx.database()?;
        let wanted: usize = self.cluster.counts().values().sum();
        if database.processes.len() < wanted {
            let text = format!("{} of {wanted} processes report", database.processes.len());
            return Ok(Some(Wait::new(text, 5.0)));
        }
        self.cluster.status.configured = true;
        self.write_status().await.map(|()| None)
    }
}
