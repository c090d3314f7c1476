//! `updateStatus`: what is there, what is wrong with it, and whether that is all as it should be.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::api::{Condition, Group, Health, MARKED_AS_EXCLUDED, RESOURCES_TERMINATING};
use super::pass::Pass;
use super::{Kind, Observed, Surroundings};
use crate::database::Database;

impl<S: Surroundings> Pass<'_, S> {
    pub(super) async fn update_status(&mut self) -> Result<()> {
        let database = self.database()?;
        let mut groups = std::mem::take(&mut self.cluster.status.process_groups);
        for group in &mut groups {
            self.mark(group);
            self.look_at(group, &database);
        }
        groups.sort_by(|one, other| one.id.cmp(&other.id));
        self.cluster.status.process_groups = groups;
        let available = database.settings.available;
        self.cluster.status.health = Health { available, healthy: available, full_replication: available };
        self.judge();
        self.coordinate(&database)?;
        self.write_status().await
    }

    /// Marks a group that the spec names, without an exclusion if the spec says so.
    fn mark(&self, group: &mut Group) {
        let without = self.cluster.names("/processGroupsToRemoveWithoutExclusion", &group.id);
        if !without && !self.cluster.names("/processGroupsToRemove", &group.id) {
            return;
        }
        group.removal_timestamp.get_or_insert_with(|| self.now().0);
        if without && !group.exclusion_skipped {
            group.exclusion_skipped = true;
        }
    }

    fn look_at(&self, group: &mut Group, database: &Database) {
        let seconds = self.cx.now().as_second();
        let name = self.cluster.pod_name(&group.id, &group.process_class);
        let pod = self.cx.observe(Kind::Pod, &name);
        let claim = self.cx.observe(Kind::Claim, &format!("{name}-data"));
        let service = self.cx.observe(Kind::Service, &name);
        let process = database.processes.get(&group.id);
        if let Some(address) = self.address(pod.as_ref(), service.as_ref()) {
            // Those of a marked group accumulate.
            if !group.is_marked() && database.settings.available {
                group.addresses.clear();
            }
            if !group.addresses.contains(&address) {
                group.addresses.push(address);
            }
        }
        if let Some(process) = process {
            group.fault_domain.clone_from(&process.zone);
            if !group.exclusion_skipped && !database.is_excluded(&group.id) {
                group.exclusion_timestamp = None;
            }
        }
        if group.is_marked() && group.exclusion_skipped && group.exclusion_timestamp.is_none() {
            group.set_excluded(&self.now().0);
        }
        let mut wrong: BTreeSet<&str> = BTreeSet::new();
        if group.since(RESOURCES_TERMINATING).is_some() {
            wrong.insert(RESOURCES_TERMINATING); // nothing ever takes it back
        }
        let alive = pod.as_ref().filter(|pod| !pod.is_terminating);
        if group.is_leaving() {
            let claim_goes = group.is_stateful() && claim.as_ref().is_none_or(|claim| claim.is_terminating);
            if alive.is_none() || claim_goes {
                wrong.insert(RESOURCES_TERMINATING);
            }
        } else {
            let checks = [
                ("MissingPod", alive.is_none()),
                ("MissingPVC", group.is_stateful() && claim.is_none()),
                ("MissingService", self.cluster.uses_services() && service.is_none()),
                ("PodPending", alive.is_some_and(|pod| pod.phase.as_deref() == Some("Pending"))),
                ("MissingProcesses", alive.is_some() && process.is_none()),
                (MARKED_AS_EXCLUDED, !group.is_marked() && process.is_some() && database.is_excluded(&group.id)),
            ];
            wrong.extend(checks.into_iter().filter(|(_, is)| *is).map(|(type_, _)| type_));
        }
        let old = std::mem::take(&mut group.process_group_conditions);
        let since = |type_: &str| old.iter().find(|c| c.type_ == type_).map_or(seconds, |c| c.timestamp);
        let condition = |type_: &str| Condition { type_: type_.to_owned(), timestamp: since(type_) };
        group.process_group_conditions = wrong.into_iter().map(condition).collect();
    }

    /// Address of a group that has a Pod: its own, or that of its Service.
    fn address(&self, pod: Option<&Observed>, service: Option<&Observed>) -> Option<String> {
        let own = pod.filter(|pod| !pod.is_terminating)?.ip.clone()?;
        let of_service = service.filter(|_| self.cluster.uses_services()).and_then(|service| service.ip.clone());
        Some(of_service.unwrap_or(own))
    }

    /// `CheckReconciliation`.
    fn judge(&mut self) {
        let (generation, counts) = (self.cluster.generation(), self.cluster.counts());
        let mut there: BTreeMap<&str, usize> = BTreeMap::new();
        let (mut against, mut pending) = (BTreeSet::new(), false);
        for group in &self.cluster.status.process_groups {
            if !group.is_marked() {
                *there.entry(&group.process_class).or_default() += 1;
                if !group.process_group_conditions.is_empty() {
                    against.insert("hasUnhealthyProcess");
                }
            } else if group.is_excluded() && group.since(RESOURCES_TERMINATING).is_some() {
                pending = true;
            } else {
                against.insert("needsShrink");
            }
        }
        let classes: BTreeSet<&str> = counts.keys().map(String::as_str).chain(there.keys().copied()).collect();
        for class in classes {
            let (is, wanted) = (there.get(class).copied().unwrap_or(0), counts.get(class).copied().unwrap_or(0));
            if is != wanted {
                against.insert(if is < wanted { "needsGrow" } else { "needsShrink" });
            }
        }
        if !self.cluster.status.configured {
            against.insert("missingDatabaseStatus");
        }
        let status = &mut self.cluster.status;
        self.reconciled = against.is_empty();
        let before = status.generations.get("reconciled").copied();
        let reconciled = if self.reconciled { Some(generation) } else { before };
        status.generations = against.into_iter().map(|name| (name.to_owned(), generation)).collect();
        status.generations.extend(reconciled.map(|generation| ("reconciled".to_owned(), generation)));
        if pending {
            status.generations.insert("hasPendingRemoval".to_owned(), generation);
        }
        let version = self.cluster.spec("/version").as_str().unwrap_or_default().to_owned();
        self.cluster.status.running_version = version;
    }
}
