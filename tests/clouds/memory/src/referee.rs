//! The referee: invariants I1 to I3 of a recreate driver. A driver that breaks one loses data sooner or later.

use std::collections::BTreeSet;

use cloud_recreate::{ImageStatus, Machine, Record};
use shared::record::Format;

use crate::cloud::{Cloud, Image, Server, Status};
use crate::request::ServerAttributes;

impl Cloud {
    /// Data that was lost, and promises that were broken.
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// Infrastructure ID, name and entry of every machine in any record.
    fn entries(&self) -> impl Iterator<Item = (String, String, Machine<ServerAttributes>)> + use<> {
        let records: Vec<_> =
            self.records.values().filter_map(|entry| Record::<ServerAttributes>::read(&entry.text).ok()).collect();
        records.into_iter().flat_map(|record| {
            let infra_id = record.infra_id;
            record.machines.into_iter().map(move |(name, machine)| (infra_id.clone(), name, machine))
        })
    }

    /// By the ID of a server, whatever it is called now, or by its name.
    fn entry(&self, id: &str, server: &Server) -> Option<Machine<ServerAttributes>> {
        let of_cluster = || self.entries().filter(|(of, _, _)| *of == server.infra_id);
        let by_id = of_cluster().find(|(_, _, machine)| machine.server == id);
        by_id.or_else(|| of_cluster().find(|(_, name, _)| *name == server.machine)).map(|(_, _, machine)| machine)
    }

    fn violated(&mut self, rule: &str, what: impl std::fmt::Display) {
        self.violations.push(format!("{rule}: {what}"));
    }

    /// I1: a server is deleted only if a sealed record gives it up and its image holds all that is on its disk. One
    /// that the driver made, and that has never run as this machine, has nothing to lose.
    pub(crate) fn judge_delete(&mut self, id: &str, server: &Server) {
        let entry = self.entry(id, server);
        let Some(machine) = entry.clone().filter(|machine| machine.server == id) else {
            let is_stray =
                entry.as_ref().is_some_and(|entry| server.cycle.as_ref().is_some_and(|cycle| *cycle != entry.cycle));
            let is_kept = entry.is_some_and(|entry| self.image_of(&entry).is_some());
            let is_deleted = matches!(server.status, Status::SoftDeleted(_)) && is_kept;
            if server.has_run && !is_stray && !is_deleted {
                self.violated("I1", format_args!("{id} of {} is deleted; no record gives it up", server.machine));
            }
            return;
        };
        let image = machine.image.as_ref().and_then(|image| self.images.get(image)).cloned();
        let is_kept = image.as_ref().is_some_and(|image| {
            // What ran after the image, a person has deleted.
            let is_whole = image.disk == server.disk || matches!(server.status, Status::SoftDeleted(_));
            image.status == ImageStatus::Active && image.of_halted && image.server == id && is_whole
        });
        if !(machine.given_up && is_kept) {
            self.violated("I1", format_args!("{id} is deleted: {machine:?}, {image:?}, disk {}", server.disk));
        }
        let disk = image.map_or(server.disk, |image| image.disk);
        self.kept.insert((server.infra_id.clone(), server.machine.clone()), disk);
    }

    /// I1: what was given up never runs again.
    pub(crate) fn judge_run(&mut self, id: &str) {
        if self.entries().any(|(_, _, machine)| machine.server == id && machine.given_up) {
            self.violated("I1", format_args!("{id} runs again after it was given up"));
        }
    }

    pub(crate) fn judge_record(&mut self, text: &str) {
        if let Ok(next) = Record::read(text) {
            self.must_keep_what_is_missing(&next.infra_id.clone(), Some(&next));
        }
    }

    pub(crate) fn judge_clear(&mut self, text: &str) {
        if let Ok(last) = Record::<ServerAttributes>::read(text) {
            self.must_keep_what_is_missing(&last.infra_id, None);
        }
    }

    /// I2: while a machine has no server, the record says what it was.
    fn must_keep_what_is_missing(&mut self, infra_id: &str, next: Option<&Record<ServerAttributes>>) {
        let missing = self.kept.keys().filter(|(of, machine)| {
            of == infra_id && !self.servers.values().any(|s| s.infra_id == *of && s.machine == *machine)
        });
        let is_recorded = |machine: &String| {
            next.and_then(|record| record.machines.get(machine)).is_some_and(|entry| self.image_of(entry).is_some())
        };
        let lost: Vec<String> = missing.map(|(_, machine)| machine.clone()).filter(|m| !is_recorded(m)).collect();
        for machine in lost {
            self.violated("I2", format_args!("{machine} has neither a server nor a record"));
        }
    }

    /// I3: an image is deleted only if no stored record names it.
    pub(crate) fn judge_image(&mut self, id: &str) {
        if self.entries().any(|(_, _, machine)| machine.image.as_deref() == Some(id)) {
            self.violated("I3", format_args!("{id} is deleted; a record names it"));
        }
    }

    /// The image that an entry names, or that of its cycle.
    fn image_of(&self, entry: &Machine<ServerAttributes>) -> Option<&Image> {
        let is_its = |(id, image): &(&String, &Image)| {
            let of_cycle = image.server == entry.server && image.cycle == entry.cycle;
            let is_there = matches!(image.status, ImageStatus::Active | ImageStatus::Withheld);
            entry.image.as_ref().map_or(of_cycle, |named| named == *id) && is_there
        };
        self.images.iter().find(is_its).map(|(_, image)| image)
    }

    /// A person deletes the server of a machine, softly or for good. The machine stays if it has its image: of this
    /// server, or the one that this server was made of.
    pub fn person_deletes(&mut self, infra_id: &str, machine: &str, softly: bool) {
        let mut of_machine = self.servers.iter().filter(|(_, s)| s.infra_id == infra_id && s.machine == machine);
        let Some((id, server)) =
            of_machine.find(|(_, s)| matches!(s.status, Status::Active | Status::Paused | Status::Off))
        else {
            return;
        };
        let (id, server) = (id.clone(), server.clone());
        let is_its = |entry: &Machine<ServerAttributes>| {
            entry.server == id || entry.image.is_some() && server.cycle.as_ref() == Some(&entry.cycle)
        };
        let entry = self.entry(&id, &server).filter(is_its);
        let disk = entry.and_then(|entry| self.image_of(&entry).map(|image| image.disk));
        let key = (infra_id.to_owned(), machine.to_owned());
        if let Some(disk) = disk {
            self.kept.insert(key, disk);
        } else {
            self.kept.remove(&key);
            self.dropped.insert(key);
        }
        let status = if softly { Status::SoftDeleted(self.now) } else { Status::Deleting };
        if let Some(server) = self.servers.get_mut(&id) {
            server.by_person = true;
            server.status = status;
        }
    }

    /// The servers of a cluster but for those that a person has deleted for good and the cloud keeps for a while.
    fn left<'a>(&'a self, infra_id: &'a str) -> impl Iterator<Item = (&'a String, &'a Server)> {
        self.servers(infra_id).filter(|(_, server)| {
            let is_dropped = self.dropped.contains(&(server.infra_id.clone(), server.machine.clone()));
            !(is_dropped && matches!(server.status, Status::SoftDeleted(_)))
        })
    }

    /// The machines of a cluster that must not be lost.
    fn machines<'a>(&'a self, infra_id: &str, all: &'a [String]) -> BTreeSet<&'a String> {
        all.iter().filter(|machine| !self.dropped.contains(&(infra_id.to_owned(), (*machine).clone()))).collect()
    }

    /// What is wrong with a cluster of these machines that should be awake, and nothing left of the driver's.
    pub fn unlike_awake(&self, infra_id: &str, all: &[String]) -> Vec<String> {
        let mut wrong = self.violations.clone();
        let machines = self.machines(infra_id, all);
        let servers: Vec<_> = self.left(infra_id).collect();
        if servers.iter().map(|(_, server)| &server.machine).collect::<BTreeSet<_>>() != machines
            || servers.len() != machines.len()
        {
            wrong.push(format!("{servers:?} for {machines:?}"));
        }
        for (id, server) in servers {
            let kept = self.kept.get(&(server.infra_id.clone(), server.machine.clone())).copied().unwrap_or_default();
            let is_whole = server.status == Status::Active && server.tagged && self.is_bound(id, server);
            if !is_whole || server.cycle.is_some() || server.disk < kept {
                wrong.push(format!("{id}: {server:?}, {kept} was kept"));
            }
        }
        if !self.keeps_images_in_use {
            let left = self.images(infra_id).filter(|(_, image)| machines.contains(&image.machine));
            wrong.extend(left.map(|(id, _)| format!("{id} is left")));
        }
        wrong.extend(self.records.keys().map(|record| format!("record {record} is left")));
        wrong
    }

    /// What is wrong with a cluster of these machines that should be asleep: one image each and nothing else.
    pub fn unlike_asleep(&self, infra_id: &str, all: &[String]) -> Vec<String> {
        let mut wrong = self.violations.clone();
        wrong.extend(self.left(infra_id).map(|(id, _)| format!("{id} is left")));
        let machines = self.machines(infra_id, all);
        let images = self.images(infra_id).map(|(_, image)| &image.machine);
        // What is left of a machine that is gone is never deleted.
        let images: Vec<_> = images.filter(|machine| machines.contains(machine)).collect();
        if images.iter().copied().collect::<BTreeSet<_>>() != machines || images.len() != machines.len() {
            wrong.push(format!("{images:?} for {machines:?}"));
        }
        wrong
    }
}
