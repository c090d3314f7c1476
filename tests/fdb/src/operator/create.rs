//! Everything that the operator makes: groups, and for each what it needs.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};

use super::api::{Condition, Group};
use super::pass::{Pass, Step, Wait};
use super::{Kind, Surroundings};

impl<S: Surroundings> Pass<'_, S> {
    /// Fills up each class with new groups: those that are marked do not count.
    pub(super) async fn add_groups(&mut self) -> Result<()> {
        let mut there: BTreeMap<String, usize> = BTreeMap::new();
        for group in self.cluster.status.process_groups.iter().filter(|group| !group.is_marked()) {
            *there.entry(group.process_class.clone()).or_default() += 1;
        }
        let mut taken: BTreeSet<String> =
            self.cluster.status.process_groups.iter().map(|group| group.id.clone()).collect();
        let (_, timestamp) = self.now();
        let new = |type_: &str| Condition { type_: type_.to_owned(), timestamp };
        for (class, wanted) in self.cluster.counts() {
            for _ in there.get(&class).copied().unwrap_or(0)..wanted {
                let id = loop {
                    let id = self.cluster.new_id(&class, 1 + self.cx.random() % 99_999);
                    if taken.insert(id.clone()) {
                        break id;
                    }
                };
                let process_group_conditions = ["MissingPod", "MissingProcesses"].map(new).into();
                let group = Group { id, process_class: class.clone(), process_group_conditions, ..Group::default() };
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
        self.cx.create(Kind::Service, missing.iter().map(|group| self.cluster.service(group)).collect()).await
    }

    pub(super) async fn add_claims(&mut self) -> Result<()> {
        let missing = self.without(Kind::Claim, "-data", Group::is_stateful);
        self.cx.create(Kind::Claim, missing.iter().map(|group| self.cluster.claim(group)).collect()).await
    }

    /// A Pod is made for every group that is not on its way out. One that is known by its Service cannot be made
    /// without it.
    pub(super) async fn add_pods(&mut self) -> Result<()> {
        let mut pods = Vec::new();
        for group in self.without(Kind::Pod, "", |_| true) {
            let name = self.cluster.pod_name(&group.id, &group.process_class);
            let address = if self.cluster.uses_services() {
                let Some(service) = self.cx.observe(Kind::Service, &name) else {
                    bail!("Service \"{name}\" not found")
                };
                service.ip
            } else {
                None
            };
            pods.push(self.cluster.pod(group, address.as_deref()));
        }
        self.cx.create(Kind::Pod, pods).await
    }

    /// The groups that stay, or that have yet to be excluded, and lack something.
    fn without(&self, kind: Kind, suffix: &str, needs: impl Fn(&Group) -> bool) -> Vec<&Group> {
        let groups = self.cluster.status.process_groups.iter().filter(|group| !group.is_leaving() && needs(group));
        groups
            .filter(|group| {
                let name = format!("{}{suffix}", self.cluster.pod_name(&group.id, &group.process_class));
                self.cx.observe(kind, &name).is_none()
            })
            .collect()
    }

    /// Without a cluster file no process finds another: once enough of them run, there is one, and the database is
    /// configured.
    pub(super) async fn generate_cluster_file(&mut self) -> Step {
        if self.cluster.status.configured {
            return Ok(None);
        }
        let database = self.database()?;
        let wanted: usize = self.cluster.counts().values().sum();
        if database.processes.len() < wanted {
            let text = format!("{} of {wanted} processes report", database.processes.len());
            return Ok(Some(Wait::new(text, 5.0)));
        }
        self.cluster.status.configured = true;
        self.write_status().await.map(|()| None)
    }
}
