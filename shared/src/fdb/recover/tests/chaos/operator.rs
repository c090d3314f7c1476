//! The operator's passes: phase by phase, each as slow as the round wants it.

use super::*;

impl Sim {
    /// The operator, as far as it gets within this second.
    pub(super) fn operate(&mut self) {
        for _ in 0..40 {
            let Some(mut pass) = self.pass.take() else {
                let timer = self.requeue.is_some_and(|at| at <= self.second);
                if !timer && !self.dirty {
                    return;
                }
                self.dirty = false;
                if timer {
                    self.requeue = None;
                }
                if self.world.cluster["spec"]["skip"] != json!(true) {
                    self.note("pass begins");
                    let (cluster, groups) = (self.world.cluster.clone(), self.groups());
                    let due = self.second + self.delay(0);
                    self.pass = Some(Pass { cluster, written: groups.clone(), groups, at: 0, due });
                }
                continue;
            };
            if pass.due > self.second {
                self.pass = Some(pass);
                return;
            }
            match self.phase(&mut pass) {
                Ok(()) => {
                    pass.at += 1;
                    pass.due = self.second + self.delay(pass.at);
                    self.pass = Some(pass);
                }
                Err(again) => {
                    self.note(&format!("pass ends in {:?}, again after {again:?}", PHASES[pass.at]));
                    let again = again.map(|seconds| self.second + seconds);
                    // A queue keeps the earliest of several times.
                    self.requeue = self.requeue.into_iter().chain(again).min();
                }
            }
        }
    }

    fn delay(&mut self, phase: usize) -> u64 {
        let (slow, seconds, passes) = self.slow;
        if slow == phase && passes > 0 {
            self.slow.2 -= 1;
            return seconds;
        }
        u64::from(self.dice.one_in(6))
    }

    fn phase(&mut self, pass: &mut Pass) -> Outcome {
        match PHASES[pass.at] {
            Phase::Pods => {
                self.add_pods(pass);
                Ok(())
            }
            // Without the database's status it goes on, and comes again.
            Phase::Status if self.unread > 0 && self.dice.one_in(3) => {
                self.unread -= 1;
                self.requeue = self.requeue.into_iter().chain([self.second + 10]).min();
                Ok(())
            }
            Phase::Status => {
                self.observation(pass);
                self.write(pass)
            }
            Phase::Groups => self.add_groups(pass),
            Phase::Choose => self.choose(pass),
            Phase::Exclude => {
                self.exclude(pass);
                Ok(())
            }
            Phase::Bounce if self.bounce => Err(Some(600)),
            Phase::Bounce => Ok(()),
            Phase::Remove => self.remove(pass),
            Phase::Last => {
                self.observation(pass);
                self.write(pass)?;
                let unwell = |group: &ProcessGroup| {
                    let goes = leaves(group) && group.condition(RESOURCES_TERMINATING).is_some();
                    if group.is_marked() { !goes } else { !group.process_group_conditions.is_empty() }
                };
                Err(pass.groups.iter().any(unwell).then_some(10))
            }
        }
    }

    /// Writes the status: an update is refused if the cluster has changed, an apply overwrites whatever it finds.
    fn write(&mut self, pass: &mut Pass) -> Outcome {
        if pass.written == pass.groups {
            return Ok(());
        }
        let version = |cluster: &Value| cluster["metadata"]["resourceVersion"].clone();
        if !self.apply && version(&self.world.cluster) != version(&pass.cluster) {
            return Err(Some(60));
        }
        self.world.cluster["status"]["processGroups"] = json!(pass.groups);
        bump(&mut self.world.cluster);
        if !self.apply {
            pass.cluster = self.world.cluster.clone();
        }
        pass.written = pass.groups.clone();
        Ok(())
    }

    fn add_pods(&mut self, pass: &Pass) {
        for group in pass.groups.iter().filter(|group| !leaves(group)) {
            let id = &group.process_group_id;
            let has_claim = self.world.claims.iter().any(|claim| label(claim, GROUP_LABEL) == Some(id.as_str()));
            if !has_claim || self.pods.contains_key(id) {
                continue;
            }
            self.made += 1;
            let runs = self.second + 1 + self.dice.below(3);
            let reports = runs + self.dice.below(5);
            self.pods.insert(id.clone(), Started { runs, reports, address: format!("10.0.1.{}", self.made) });
            self.world.pods.push(pod(id, "Pending"));
            self.dirty = true;
        }
    }

    fn observation(&mut self, pass: &mut Pass) {
        let (now, seconds) = (format::seconds(self.world.now), self.world.now.as_second());
        let spec = &pass.cluster["spec"];
        let lists =
            ["processGroupsToRemove", "processGroupsToRemoveWithoutExclusion"].map(|list| spec[list].as_array());
        let listed: BTreeSet<&str> = lists.into_iter().flatten().flatten().filter_map(Value::as_str).collect();
        for group in &mut pass.groups {
            let id = group.process_group_id.clone();
            if listed.contains(id.as_str()) && !group.is_marked() {
                group.removal_timestamp = Some(now.clone());
            }
            let up = self.pods.get(&id).filter(|started| started.runs <= self.second);
            if let Some(up) = up {
                if !group.is_marked() {
                    group.addresses.clear();
                }
                if !group.addresses.contains(&up.address) {
                    group.addresses.push(up.address.clone());
                }
            }
            let (has_pod, reports, excluded) = (self.pods.contains_key(&id), self.reports(&id), self.is_excluded(&id));
            if reports && !excluded && !group.exclusion_skipped {
                group.exclusion_timestamp = None;
            }
            let stays = !leaves(group);
            let ends = group.condition(RESOURCES_TERMINATING).is_some() || !stays && !has_pod;
            let checks = [
                (RESOURCES_TERMINATING, ends),
                (MISSING_POD, stays && !has_pod),
                (POD_PENDING, stays && has_pod && up.is_none()),
                (MISSING_PROCESSES, stays && has_pod && !reports),
                (MARKED_AS_EXCLUDED, !group.is_marked() && reports && excluded),
            ];
            let old = std::mem::take(&mut group.process_group_conditions);
            let since = |type_: &str| old.iter().find(|one| one.type_ == type_).map_or(seconds, |one| one.timestamp);
            let wrong = checks.into_iter().filter(|(_, is)| *is);
            let condition =
                |(type_, _): (&str, bool)| ProcessGroupCondition { type_: type_.to_owned(), timestamp: since(type_) };
            group.process_group_conditions = wrong.map(condition).collect();
        }
        pass.groups.sort_by(|one, other| one.process_group_id.cmp(&other.process_group_id));
    }

    fn add_groups(&mut self, pass: &mut Pass) -> Outcome {
        let there = pass.groups.iter().filter(|group| !group.is_marked()).count();
        let (now, seconds) = (format::seconds(self.world.now), self.world.now.as_second());
        let mut new = Vec::new();
        for _ in there..COUNT {
            self.made += 1;
            let process_group_id = format!("storage-{}", 100 + self.made);
            new.push(process_group_id.clone());
            let conditions = [MISSING_POD, MISSING_PROCESSES];
            let condition = |type_: &str| ProcessGroupCondition { type_: type_.to_owned(), timestamp: seconds };
            pass.groups.push(ProcessGroup {
                process_group_id,
                process_class: "storage".to_owned(),
                process_group_conditions: conditions.map(condition).into(),
                ..ProcessGroup::default()
            });
        }
        self.write(pass)?;
        for id in new {
            self.world.claims.push(claim(&id, "storage", &now));
            self.dirty = true;
        }
        self.add_pods(pass);
        Ok(())
    }

    /// Marks groups if there are too many. One that does not report is never kept.
    fn choose(&mut self, pass: &mut Pass) -> Outcome {
        let now = format::seconds(self.world.now);
        let mut unmarked: Vec<(bool, u64, usize)> = Vec::new();
        for (at, group) in pass.groups.iter().enumerate().filter(|(_, group)| !group.is_marked()) {
            unmarked.push((self.reports(&group.process_group_id), self.dice.below(1_000), at));
        }
        let excess = unmarked.len().saturating_sub(COUNT);
        if excess > 0 && unmarked.iter().filter(|(reports, ..)| *reports).count() < COUNT {
            return Err(Some(5));
        }
        unmarked.sort_unstable();
        for (_, _, at) in unmarked.into_iter().take(excess) {
            pass.groups[at].removal_timestamp = Some(now.clone());
        }
        self.write(pass)
    }

    fn exclude(&mut self, pass: &Pass) {
        let up = pass.groups.iter().filter(|group| !group.is_marked() && self.reports(&group.process_group_id)).count();
        if up < COUNT {
            return;
        }
        for group in pass.groups.iter().filter(|group| group.is_marked() && !group.is_excluded()) {
            if self.reports(&group.process_group_id) {
                let targets = self.targets(group);
                self.excluded.extend(targets);
            }
        }
    }

    /// Excludes marked groups that do not report, as every pass does, and deletes what is excluded, as far as the
    /// webhook lets it.
    fn remove(&mut self, pass: &mut Pass) -> Outcome {
        let now = format::seconds(self.world.now);
        let mut taken = Vec::new();
        for group in pass.groups.iter_mut().filter(|group| group.is_marked()) {
            let id = group.process_group_id.clone();
            let reports = self.reports(&id);
            if reports && !self.is_excluded(&id) || group.addresses.is_empty() {
                continue;
            }
            if !reports {
                let targets = self.targets(group);
                self.excluded.extend(targets);
            }
            if !group.is_excluded() {
                group.exclusion_timestamp = Some(now.clone());
                group.process_group_conditions.retain(|one| one.type_ == RESOURCES_TERMINATING);
            }
            taken.push((id, group.removal_timestamp.clone()));
        }
        self.write(pass)?;
        for (id, removal) in taken {
            if self.pods.remove(&id).is_some() {
                self.world.pods.retain(|pod| name_of(pod) != pod_of(&id));
                self.dirty = true;
            }
            let is_released = |claim: &Value| {
                label(claim, GROUP_LABEL) == Some(id.as_str()) && Stamp::of(claim).is_released_for(removal.as_deref())
            };
            if let Some(at) = self.world.claims.iter().position(is_released) {
                self.world.claims.remove(at);
                self.dirty = true;
                pass.groups.retain(|group| group.process_group_id != id);
            }
        }
        self.write(pass)
    }
}
