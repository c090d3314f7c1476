//! Everything that the operator makes: groups, and for each what it needs.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::ResourceExt as _;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::api::{CURRENT_NODE, Group, INCORRECT_POD_METADATA, RESOURCES_TERMINATING};
use super::pass::{Pass, Step, Wait};
use super::status::done;
use super::store::Kind;

/// How many objects are made at once.
const AT_ONCE: usize = 16;

impl Pass<'_> {
    pub(super) async fn update_config_map(&mut self) -> Step {
        if self.cx.store.get(Kind::ConfigMap, &format!("{}-config", self.cluster.name())).is_some() {
            return Ok(None);
        }
        done(self.create(Kind::ConfigMap, vec![self.cluster.config_map()]).await)
    }

    /// Fills up each class with new groups: those that are marked do not count.
    pub(super) async fn add_groups(&mut self) -> Step {
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
        done(self.write_status().await)
    }

    pub(super) async fn add_services(&mut self) -> Step {
        if !self.cluster.uses_services() {
            return Ok(None);
        }
        let missing = self.without(Kind::Service, "", |_| true);
        done(self.create(Kind::Service, missing.iter().map(|group| self.cluster.service(group)).collect()).await)
    }

    pub(super) async fn add_claims(&mut self) -> Step {
        let missing = self.without(Kind::Claim, "-data", Group::is_stateful);
        done(self.create(Kind::Claim, missing.iter().map(|group| self.cluster.claim(group)).collect()).await)
    }

    /// A Pod is made for every group that is not on its way out. One that is known by its Service cannot be made
    /// without it.
    pub(super) async fn add_pods(&mut self) -> Step {
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
        done(self.create(Kind::Pod, pods).await)
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
        let database = self.cx.database().await?;
        let wanted: usize = self.cluster.counts().values().sum();
        if database.processes.len() < wanted {
            let text = format!("{} of {wanted} processes report", database.processes.len());
            return Ok(Some(Wait { text, seconds: 5.0, delayed: false }));
        }
        self.cluster.status.connection_string =
            format!("{}:{:08x}@127.0.0.1:4500", self.cluster.name().replace('-', "_"), rand::random::<u32>());
        self.cluster.status.configured = true;
        done(self.write_status().await)
    }

    /// Puts right the operator's own annotations of Pods, but not of those on their way out.
    pub(super) async fn update_metadata(&mut self) -> Step {
        let api = self.cx.store.api(Kind::Pod);
        let is_wrong = |group: &&Group| {
            group.since(INCORRECT_POD_METADATA).is_some() && group.since(RESOURCES_TERMINATING).is_none()
        };
        let groups: Vec<&Group> = self.cluster.status.process_groups.iter().filter(is_wrong).collect();
        let repair = async |group: &Group| {
            let name = self.cluster.pod_name(&group.id, &group.process_class);
            let Some(pod) = self.cx.store.get(Kind::Pod, &name) else { return anyhow::Ok(()) };
            let patch = json!({"metadata": {"annotations": {CURRENT_NODE: pod.data.pointer("/spec/nodeName")}}});
            match api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                Ok(pod) => self.cx.store.put(Kind::Pod, pod),
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(error) => return Err(error).with_context(|| format!("annotate Pod {name}")),
            }
            Ok(())
        };
        let repaired: Result<()> =
            stream::iter(groups.into_iter().map(repair)).buffer_unordered(AT_ONCE).try_collect().await;
        done(repaired)
    }
}
