//! `removeProcessGroups`, step by step.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};
use kube::ResourceExt as _;

use super::api::{Group, RESOURCES_TERMINATING};
use super::coordinate::INCLUSION;
use super::exclude::can_exclude;
use super::pass::{Pass, Point, Step, Wait};
use super::status::{done, now};
use super::store::Kind;
use crate::fdb::database::{Database, LOCALITY};
use crate::fdb::server::Question;

/// Zone of the groups that are on their way out already.
const TERMINATING: &str = "foundationdb.org/terminating";
/// Zone of groups of unknown zone.
const UNKNOWN: &str = "foundationdb.org/unknown";

/// How far the objects of a group are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Gone {
    All,
    Terminating,
    No,
}

impl Pass<'_> {
    pub(super) async fn remove_groups(&mut self) -> Step {
        if !self.cluster.status.process_groups.iter().any(Group::is_marked) {
            return Ok(None);
        }
        // 1, 2
        let mut database = self.cx.database().await?;
        let remaining = self.remaining(&database).await?;
        // 3: wrong mode takes everything for excluded.
        let (time, _) = now();
        let (wrong, mut take, mut open, mut new) = (self.settings.wrong, Vec::new(), false, false);
        for group in self.cluster.status.process_groups.iter_mut().filter(|group| group.is_marked()) {
            if database.coordinators.contains(&group.id) && !wrong {
                continue;
            }
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
            return Ok(open.then(|| Wait::delayed("exclusion is not complete", 15.0)));
        }
        if new {
            self.write_status().await?;
        }
        // 5
        take.retain(|id| !self.cluster.names("/buggify/blockRemoval", id));
        if take.is_empty() {
            return Ok(None);
        }
        // 6
        database = self.cx.database().await?;
        if !database.settings.available || !database.settings.fault_tolerant {
            return Ok(Some(Wait::delayed("fault tolerance is not as desired", 30.0)));
        }
        // 7, 8
        let (zones, last) = self.zones(&take);
        let mode = self.cluster.spec("/automationOptions/removalMode").as_str().unwrap_or("Zone").to_owned();
        if mode != "All" {
            let wait = self.cluster.spec("/automationOptions/waitBetweenRemovalsSeconds").as_f64();
            let wait = wait.filter(|seconds| *seconds >= 0.0).unwrap_or(60.0);
            let left = removal_blocked(last, Self::now(), wait / self.settings.speed) * self.settings.speed;
            if left > 0.0 {
                return Ok(Some(Wait::delayed(
                    format!("not allowed to remove process groups, waiting: {left:.0}s"),
                    left,
                )));
            }
        }
        // 9, 10
        let picked = pick(&mode, &zones)?;
        let terminating = zones.get(TERMINATING).into_iter().flatten();
        let all: Vec<Group> = {
            // One that is picked from those that terminate already gets its DELETEs twice.
            let groups = &self.cluster.status.process_groups;
            let ids = picked.iter().chain(terminating);
            ids.filter_map(|id| groups.iter().find(|group| group.id == *id)).cloned().collect()
        };
        self.cx.at(Point::Remove).await?;
        for group in &all {
            if let Err(error) = self.remove_group(group).await {
                tracing::info!(group = group.id, "could not remove process group: {error:#}");
            }
        }
        // 11, 12
        let gone: Vec<&Group> = all.iter().filter(|group| self.confirm(group) == Gone::All).collect();
        self.include(&gone).await
    }

    /// Marked groups that still hold data, as far as the database says. Those that are missing in its status are
    /// excluded here, and its answer is taken for "fully excluded".
    async fn remaining(&self, database: &Database) -> Result<BTreeSet<String>> {
        let marked = self.cluster.status.process_groups.iter().filter(|group| group.is_marked());
        let reports = |group: &&Group| database.processes.contains_key(&group.id);
        let to_verify: Vec<&Group> = marked.filter(|group| !group.is_excluded() || !reports(group)).collect();
        if to_verify.is_empty() || self.settings.wrong {
            return Ok(BTreeSet::new());
        }
        can_exclude(database, Self::now())?;
        let (open, safe): (Vec<&Group>, Vec<&Group>) =
            to_verify.into_iter().partition(|group| reports(group) && !database.is_excluded(&group.id));
        let targets: Vec<String> = safe.iter().flat_map(|group| self.cluster.exclusion_targets(group)).collect();
        if !targets.is_empty() {
            self.cx.ask(&Question::Exclude(targets)).await?;
        }
        Ok(open.into_iter().map(|group| group.id.clone()).collect())
    }

    /// The groups by zone, and when the last one began to terminate, seconds since 1970.
    fn zones(&self, take: &[String]) -> (BTreeMap<String, Vec<String>>, i64) {
        let (mut zones, mut last): (BTreeMap<String, Vec<String>>, i64) = (BTreeMap::new(), 0);
        let take: BTreeSet<&String> = take.iter().collect();
        for group in self.cluster.status.process_groups.iter().filter(|group| take.contains(&group.id)) {
            let zone = match group.since(RESOURCES_TERMINATING) {
                Some(since) => {
                    last = last.max(since);
                    TERMINATING
                }
                None if group.fault_domain.is_empty() => UNKNOWN,
                None => &group.fault_domain,
            };
            zones.entry(zone.to_owned()).or_default().push(group.id.clone());
        }
        (zones, last)
    }

    /// Pod, claim and Service of a group, all in one go. The first error is remembered and does not stop the others.
    async fn remove_group(&self, group: &Group) -> Result<()> {
        let store = &self.cx.store;
        let name = self.cluster.pod_name(&group.id, &group.process_class);
        let mut errors = Vec::new();
        let mut note = |result: Result<()>| errors.extend(result.err().map(|error| format!("{error:#}")));
        if let Some(pod) = store.get(Kind::Pod, &name) {
            if pod.annotations().get("foundationdb.org/isolate-process-group").is_some_and(|value| value == "true") {
                bail!("process group {} is isolated", group.id);
            }
            if pod.metadata.deletion_timestamp.is_none() {
                note(self.delete(Kind::Pod, &name).await);
            }
        }
        self.cx.at(Point::Claim).await?;
        let claims = self.claims(group);
        match claims.as_slice() {
            [] => {}
            [(claim, terminating)] => {
                if !terminating {
                    note(self.delete(Kind::Claim, claim).await);
                }
            }
            many => note(Err(anyhow::anyhow!("multiple PVCs found for process group {}: {}", group.id, many.len()))),
        }
        if store.get(Kind::Service, &name).is_some_and(|service| service.metadata.deletion_timestamp.is_none()) {
            note(self.delete(Kind::Service, &name).await);
        }
        if errors.is_empty() { Ok(()) } else { bail!("{}", errors.join("; ")) }
    }

    /// The claims that a group's labels find, with whether they are terminating.
    fn claims(&self, group: &Group) -> Vec<(String, bool)> {
        let mut wanted = self.cluster.match_labels();
        wanted.insert(self.cluster.id_labels().remove(0), group.id.clone());
        let found = self.cx.store.all(Kind::Claim).into_iter();
        let found = found.filter(|claim| wanted.iter().all(|(name, value)| claim.labels().get(name) == Some(value)));
        found.map(|claim| (claim.name_any(), claim.metadata.deletion_timestamp.is_some())).collect()
    }

    fn confirm(&self, group: &Group) -> Gone {
        let name = self.cluster.pod_name(&group.id, &group.process_class);
        let of = |kind: Kind| match self.cx.store.get(kind, &name) {
            None => Gone::All,
            Some(object) if object.metadata.deletion_timestamp.is_some() => Gone::Terminating,
            Some(_) => Gone::No,
        };
        let claims = self.claims(group).into_iter().map(|(_, goes)| if goes { Gone::Terminating } else { Gone::No });
        claims.chain([of(Kind::Pod), of(Kind::Service)]).max().unwrap_or(Gone::All)
    }

    /// Includes groups of which nothing is left, and drops them from the status. In global mode everything is included
    /// that is ready, once everything is that is pending: a group whose volume is held is not, for as long as it is
    /// held.
    async fn include(&mut self, gone: &[&Group]) -> Step {
        if gone.is_empty() {
            return Ok(None);
        }
        let database = self.cx.database().await?;
        let open: Vec<&Group> = gone.iter().copied().filter(|group| !excluded(group, &database).is_empty()).collect();
        let mut ready: BTreeSet<String> = gone.iter().map(|group| group.id.clone()).collect();
        if self.cluster.is_global() {
            self.put_on(&[INCLUSION.ready], &open, &database).await?;
        }
        if !open.is_empty() {
            if database.recovery_age(Self::now()) < database.settings.inclusion_recovery.as_secs_f64() {
                return Ok(Some(Wait::delayed("last recovery is too recent to include processes", 60.0)));
            }
            if self.cluster.is_global() {
                match self.agreed(&INCLUSION).await? {
                    Ok(all) => ready = all,
                    Err(text) => return Ok(Some(Wait::delayed(text, 60.0))),
                }
            }
        }
        self.cx.at(Point::Include).await?;
        let all = self.cluster.status.process_groups.iter().filter(|group| ready.contains(&group.id));
        let targets: Vec<String> = all.flat_map(|group| excluded(group, &database)).collect();
        if !targets.is_empty() {
            self.cx.ask(&Question::Include(targets)).await?;
        }
        let ids: BTreeSet<&String> = gone.iter().map(|group| &group.id).collect();
        self.cluster.status.process_groups.retain(|group| !ids.contains(&group.id));
        done(self.write_status().await)
    }
}

/// What of a group the database excludes: its locality and its addresses, as far as it does.
fn excluded(group: &Group, database: &Database) -> Vec<String> {
    let all = std::iter::once(format!("{LOCALITY}{}", group.id)).chain(group.addresses.iter().cloned());
    all.filter(|target| database.exclusions.contains(target)).collect()
}

/// How many seconds to wait until the next removal is allowed.
#[expect(clippy::cast_precision_loss, reason = "seconds since 1970 fit a float")]
fn removal_blocked(last: i64, now: f64, wait: f64) -> f64 {
    (last as f64 + wait - now).max(0.0)
}

/// Which groups a removal mode takes at once.
fn pick(mode: &str, zones: &BTreeMap<String, Vec<String>>) -> Result<Vec<String>> {
    match mode {
        "All" => Ok(zones.values().flatten().cloned().collect()),
        "ProcessGroup" => {
            // In Go's random order of a map, the zone of the terminating ones among them.
            let zone = zones.values().nth(rand::random_range(0..zones.len().max(1)));
            Ok(zone.into_iter().flatten().next().cloned().into_iter().collect())
        }
        "Zone" => {
            let largest = zones.iter().filter(|(zone, _)| *zone != TERMINATING).max_by_key(|(_, groups)| groups.len());
            Ok(largest.map(|(_, groups)| groups.clone()).unwrap_or_default())
        }
        "None" => Ok(Vec::new()),
        other => bail!("unknown deletion mode: \"{other}\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zones(terminating: usize) -> BTreeMap<String, Vec<String>> {
        let groups =
            |from: usize, count: usize| (from..from + count).map(|number| format!("storage-{number}")).collect();
        let mut zones: BTreeMap<String, Vec<String>> =
            [("z1".to_owned(), groups(1, 1)), ("z2".to_owned(), groups(2, 2)), (UNKNOWN.to_owned(), groups(4, 1))]
                .into();
        if terminating > 0 {
            zones.insert(TERMINATING.to_owned(), groups(5, terminating)); // no zone is empty
        }
        zones
    }

    #[test]
    fn each_mode_takes_its_own() {
        for (mode, terminating, count) in [
            ("All", 1, 5),
            ("Zone", 1, 2),
            ("Zone", 5, 2),
            ("ProcessGroup", 0, 1),
            ("ProcessGroup", 1, 1),
            ("None", 1, 0),
        ] {
            assert_eq!(pick(mode, &zones(terminating)).unwrap().len(), count, "{mode}");
        }
        let only_terminating = [(TERMINATING.to_owned(), vec!["storage-1".to_owned()])].into();
        assert!(pick("Zone", &only_terminating).unwrap().is_empty());
        assert!(pick("Sometimes", &zones(0)).unwrap_err().to_string().contains("unknown deletion mode"));
    }

    #[test]
    fn a_removal_waits_for_the_last_one() {
        for (last, wait, left) in
            [(0, 60.0, 0.0), (999, 60.0, 59.0), (941, 60.0, 1.0), (940, 60.0, 0.0), (999, 0.0, 0.0)]
        {
            assert!((removal_blocked(last, 1_000.0, wait) - left).abs() < 1e-9, "{last} {wait}");
        }
    }
}
