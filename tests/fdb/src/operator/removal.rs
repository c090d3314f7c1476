//! `removeProcessGroups`, step by step.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};

use super::api::{Group, RESOURCES_TERMINATING};
use super::coordinate::INCLUSION;
use super::pass::{Pass, Step, Wait};
use super::{Kind, Observed, Surroundings};
use crate::database::{Database, LOCALITY};

/// Zone of the groups that are on their way out already.
const TERMINATING: &str = "foundationdb.org/terminating";

impl<S: Surroundings> Pass<'_, S> {
    pub(super) async fn remove_groups(&mut self) -> Step {
        if !self.cluster.status.process_groups.iter().any(Group::is_marked) {
            return Ok(None);
        }
        // 1, 2
        let remaining = self.remaining(&self.database()?)?;
        // 3: wrong mode takes everything for excluded.
        let (time, _) = self.now();
        let (wrong, mut take, mut open, mut new) = (self.settings.wrong, Vec::new(), false, false);
        for group in self.cluster.status.process_groups.iter_mut().filter(|group| group.is_marked()) {
            if remaining.contains(&group.id) && !wrong {
                open |= !group.is_excluded();
                continue;
            }
            if !group.is_excluded() {
                if group.addresses.is_empty() && !wrong {
                    open = true;
                    continue;
                }
                group.set_excluded(&time);
                new = true;
            }
            take.push(group.id.clone());
        }
        // 4
        if take.is_empty() {
            return Ok(open.then(|| Wait::new("exclusion is not complete", 15.0)));
        }
        if new {
            self.write_status().await?;
        }
        // 6
        if !self.database()?.settings.available {
            return Ok(Some(Wait::new("fault tolerance is not as desired", 30.0)));
        }
        // 7, 8
        let (zones, last) = self.zones(&take);
        let mode = self.cluster.spec("/automationOptions/removalMode").as_str().unwrap_or("Zone").to_owned();
        if mode != "All" {
            let wait = self.cluster.spec("/automationOptions/waitBetweenRemovalsSeconds").as_f64();
            let wait = wait.filter(|seconds| *seconds >= 0.0).unwrap_or(60.0);
            let left = wait - (self.seconds() - last) * S::SPEED;
            if left > 0.0 {
                let text = format!("not allowed to remove process groups, waiting: {left:.0}s");
                return Ok(Some(Wait::new(text, left)));
            }
        }
        // 9, 10
        let picked = pick(&mode, &zones)?;
        let groups = &self.cluster.status.process_groups;
        let ids = picked.iter().chain(zones.get(TERMINATING).into_iter().flatten());
        let all: Vec<Group> = ids.filter_map(|id| groups.iter().find(|group| group.id == *id)).cloned().collect();
        for group in &all {
            if let Err(error) = self.remove_group(group).await {
                tracing::info!(group = group.id, "could not remove process group: {error:#}");
            }
        }
        // 11, 12
        let gone: Vec<&Group> = all.iter().filter(|group| self.is_gone(group)).collect();
        self.include(&gone).await
    }

    /// Marked groups that still hold data, as far as the database says. Those that are missing in its status are
    /// excluded here, and its answer is taken for "fully excluded".
    fn remaining(&self, database: &Database) -> Result<BTreeSet<String>> {
        let marked = self.cluster.status.process_groups.iter().filter(|group| group.is_marked());
        let reports = |group: &&Group| database.processes.contains_key(&group.id);
        let to_verify: Vec<&Group> = marked.filter(|group| !group.is_excluded() || !reports(group)).collect();
        if to_verify.is_empty() || self.settings.wrong {
            return Ok(BTreeSet::new());
        }
        self.can_exclude(database)?;
        let (open, safe): (Vec<&Group>, Vec<&Group>) =
            to_verify.into_iter().partition(|group| reports(group) && !database.is_excluded(&group.id));
        let targets: Vec<String> = safe.iter().flat_map(|group| self.cluster.exclusion_targets(group)).collect();
        if !targets.is_empty() {
            self.order("exclude", &targets, Database::exclude)?;
        }
        Ok(open.into_iter().map(|group| group.id.clone()).collect())
    }

    /// The groups by zone, and when the last one began to terminate, seconds since 1970.
    #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 fit a float")]
    fn zones(&self, take: &[String]) -> (BTreeMap<String, Vec<String>>, f64) {
        let (mut zones, mut last): (BTreeMap<String, Vec<String>>, f64) = (BTreeMap::new(), 0.0);
        let take: BTreeSet<&String> = take.iter().collect();
        for group in self.cluster.status.process_groups.iter().filter(|group| take.contains(&group.id)) {
            let zone = match group.since(RESOURCES_TERMINATING) {
                Some(since) => {
                    last = last.max(since as f64);
                    TERMINATING
                }
                None => &group.fault_domain,
            };
            zones.entry(zone.to_owned()).or_default().push(group.id.clone());
        }
        (zones, last)
    }

    /// Pod, claim and Service of a group, all in one go. The first error is remembered and does not stop the others.
    async fn remove_group(&self, group: &Group) -> Result<()> {
        let name = self.cluster.pod_name(&group.id, &group.process_class);
        let mut errors = Vec::new();
        let mut note = |result: Result<()>| errors.extend(result.err().map(|error| format!("{error:#}")));
        let stays = |kind: Kind| self.cx.observe(kind, &name).is_some_and(|object| !object.is_terminating);
        if stays(Kind::Pod) {
            note(self.cx.delete(Kind::Pod, &name).await);
        }
        let claims = self.claims(group);
        match claims.as_slice() {
            [] => {}
            [claim] if claim.is_terminating => {}
            [claim] => note(self.cx.delete(Kind::Claim, &claim.name).await),
            many => note(Err(anyhow::anyhow!("multiple PVCs found for process group {}: {}", group.id, many.len()))),
        }
        if stays(Kind::Service) {
            note(self.cx.delete(Kind::Service, &name).await);
        }
        if errors.is_empty() { Ok(()) } else { bail!("{}", errors.join("; ")) }
    }

    /// The claims that a group's labels find.
    fn claims(&self, group: &Group) -> Vec<Observed> {
        let mut wanted = self.cluster.match_labels();
        wanted.insert(self.cluster.id_labels().remove(0), group.id.clone());
        self.cx.claims(&wanted)
    }

    fn is_gone(&self, group: &Group) -> bool {
        let name = self.cluster.pod_name(&group.id, &group.process_class);
        let is_there = |kind: Kind| self.cx.observe(kind, &name).is_some();
        !is_there(Kind::Pod) && !is_there(Kind::Service) && self.claims(group).is_empty()
    }

    /// Includes groups of which nothing is left, and drops them from the status. In global mode everything is included
    /// that is ready, once everything is that is pending: a group whose volume is held is not, for as long as it is
    /// held.
    async fn include(&mut self, gone: &[&Group]) -> Step {
        if gone.is_empty() {
            return Ok(None);
        }
        let database = self.database()?;
        let open: Vec<&Group> = gone.iter().copied().filter(|group| !excluded(group, &database).is_empty()).collect();
        let mut ready: BTreeSet<String> = gone.iter().map(|group| group.id.clone()).collect();
        if self.cluster.is_global() {
            self.put_on(&[INCLUSION.ready], &open, &database)?;
            if !open.is_empty() {
                match self.agreed(&INCLUSION)? {
                    Ok(all) => ready = all,
                    Err(text) => return Ok(Some(Wait::new(text, 60.0))),
                }
            }
        }
        let all = self.cluster.status.process_groups.iter().filter(|group| ready.contains(&group.id));
        let targets: Vec<String> = all.flat_map(|group| excluded(group, &database)).collect();
        if !targets.is_empty() {
            self.order("include", &targets, Database::include)?;
        }
        let ids: BTreeSet<&String> = gone.iter().map(|group| &group.id).collect();
        self.cluster.status.process_groups.retain(|group| !ids.contains(&group.id));
        self.write_status().await.map(|()| None)
    }
}

/// What of a group the database excludes: its locality and its addresses, as far as it does.
fn excluded(group: &Group, database: &Database) -> Vec<String> {
    let all = std::iter::once(format!("{LOCALITY}{}", group.id)).chain(group.addresses.iter().cloned());
    all.filter(|target| database.exclusions.contains(target)).collect()
}

/// Which groups a removal mode takes at once.
fn pick(mode: &str, zones: &BTreeMap<String, Vec<String>>) -> Result<Vec<String>> {
    match mode {
        "All" => Ok(zones.values().flatten().cloned().collect()),
        "Zone" => {
            let largest = zones.iter().filter(|(zone, _)| *zone != TERMINATING).max_by_key(|(_, groups)| groups.len());
            Ok(largest.map(|(_, groups)| groups.clone()).unwrap_or_default())
        }
        other => bail!("unknown deletion mode: \"{other}\""),
    }
}
