//! The cloud itself: servers, images, records, and the referee. Requests are executed at once; time passes in
//! [`Cloud::tick`].

use std::collections::BTreeMap;

use shared::cloud::Entry;
use shared::record::Format;

use crate::record::{Machine, Record};

/// Status of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// Being made.
    Build,
    /// Runs.
    Active,
    /// Paused: it holds its place and its ports.
    Paused,
    /// It could not be made.
    Error,
    /// Being deleted.
    Deleting,
    /// A word that no driver knows.
    Odd(String),
}

/// A server. Its ID is new each time it is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The cluster that it belongs to.
    pub infra_id: String,
    /// Name of the machine, which outlives the server. Only one server at a time holds the ports of a machine.
    pub machine: String,
    /// What it is doing.
    pub status: Status,
    /// Whether an image of it is being made: it can be neither unpaused nor imaged meanwhile.
    pub imaging: bool,
    /// The driver's mark: in which cycle it was made anew.
    pub cycle: Option<String>,
    /// Whether it has all attributes that it had before it was deleted.
    pub restored: bool,
    /// What is on its disk: grows while it runs.
    pub disk: u64,
}

/// Status of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageStatus {
    /// Being made.
    Saving,
    /// Usable.
    Active,
    /// It could not be made.
    Killed,
}

/// An image of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The cluster that it belongs to.
    pub infra_id: String,
    /// Name of the machine.
    pub machine: String,
    /// ID of the server that it was made of.
    pub server: String,
    /// In which cycle.
    pub cycle: String,
    /// How far it is.
    pub status: ImageStatus,
    /// What was on the disk when it was begun.
    pub disk: u64,
    /// Whether the server was paused then.
    pub of_paused: bool,
}

/// What a driver can ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Request {
    Servers { infra_id: String },
    Images { infra_id: String },
    Pause { server: String },
    Unpause { server: String },
    CreateImage { server: String, cycle: String },
    DeleteImage { image: String },
    CreateServer { infra_id: String, machine: String, image: String, cycle: String },
    DeleteServer { server: String },
    Restore { server: String },
    Unmark { server: String },
    Read { record: String },
    Write { record: String, text: String, seen: Option<String> },
    Clear { record: String, seen: String },
}

/// What the cloud answers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Answer {
    Servers(BTreeMap<String, Server>),
    Images(BTreeMap<String, Image>),
    Record(Option<Entry>),
    /// A new ID or version; empty where there is none.
    Done(String),
}

/// Why the cloud refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no such thing.
    NotFound,
    /// Not in this state.
    Conflict,
    /// This machine may not be moved.
    Locked,
}

/// Everything there is.
#[derive(Debug, Default)]
pub struct Cloud {
    servers: BTreeMap<String, Server>,
    images: BTreeMap<String, Image>,
    records: BTreeMap<String, Entry>,
    ids: u64,
    /// What was on the disk of a machine when its server was last given up: less must never come back.
    kept: BTreeMap<(String, String), u64>,
    /// The next server or image that is finished fails instead.
    pub fails_next: bool,
    violations: Vec<String>,
}

impl Cloud {
    /// A new ID or version, never given before.
    pub fn id(&mut self, kind: &str) -> String {
        self.ids += 1;
        format!("{kind}-{:04}", self.ids)
    }

    /// Makes a server that runs.
    pub fn boot(&mut self, infra_id: &str, machine: &str) {
        let id = self.id("server");
        let (infra_id, machine) = (infra_id.to_owned(), machine.to_owned());
        let server =
            Server { infra_id, machine, status: Status::Active, imaging: false, cycle: None, restored: true, disk: 1 };
        self.servers.insert(id, server);
    }

    /// Data that was lost, and promises that were broken.
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// The servers of a cluster.
    pub fn servers<'a>(&'a self, infra_id: &'a str) -> impl Iterator<Item = (&'a String, &'a Server)> {
        self.servers.iter().filter(move |(_, server)| server.infra_id == infra_id)
    }

    /// The images of a cluster.
    pub fn images<'a>(&'a self, infra_id: &'a str) -> impl Iterator<Item = (&'a String, &'a Image)> {
        self.images.iter().filter(move |(_, image)| image.infra_id == infra_id)
    }

    /// Puts a machine's server into an unknown state.
    pub fn confuse(&mut self, infra_id: &str, machine: &str) {
        let of_machine = |server: &&mut Server| server.infra_id == infra_id && server.machine == machine;
        if let Some(server) = self.servers.values_mut().find(of_machine) {
            server.status = Status::Odd("RESCUING".to_owned());
        }
    }

    /// Time passes: what is under way ends, and what runs works.
    pub fn tick(&mut self) {
        for image in self.images.values_mut().filter(|image| image.status == ImageStatus::Saving) {
            let fails = std::mem::take(&mut self.fails_next);
            image.status = if fails { ImageStatus::Killed } else { ImageStatus::Active };
            if let Some(server) = self.servers.get_mut(&image.server) {
                server.imaging = false;
            }
        }
        self.servers.retain(|_, server| server.status != Status::Deleting);
        for server in self.servers.values_mut() {
            match server.status {
                Status::Build if std::mem::take(&mut self.fails_next) => server.status = Status::Error,
                Status::Build => server.status = Status::Active,
                Status::Active => server.disk += 1,
                _ => {}
            }
        }
    }

    /// Whether a request would move this machine.
    pub fn is_about(&self, request: &Request, machine: &str) -> bool {
        match request {
            Request::CreateServer { machine: of, .. } => of == machine,
            Request::Pause { server }
            | Request::Unpause { server }
            | Request::CreateImage { server, .. }
            | Request::DeleteServer { server } => self.servers.get(server).is_some_and(|of| of.machine == machine),
            _ => false,
        }
    }

    /// Executes a request.
    ///
    /// # Errors
    /// When the cloud refuses it.
    pub fn execute(&mut self, request: Request) -> Result<Answer, Refused> {
        match request {
            Request::Servers { infra_id } => {
                let found = self.servers(&infra_id).map(|(id, server)| (id.clone(), server.clone()));
                return Ok(Answer::Servers(found.collect()));
            }
            Request::Images { infra_id } => {
                let found = self.images(&infra_id).map(|(id, image)| (id.clone(), image.clone()));
                return Ok(Answer::Images(found.collect()));
            }
            Request::Pause { server } => {
                let server = self.server(&server, |s| s.status == Status::Active)?;
                server.status = Status::Paused;
            }
            Request::Unpause { server } => {
                self.must_not_be_given_up(&server);
                let server = self.server(&server, |s| s.status == Status::Paused && !s.imaging)?;
                server.status = Status::Active;
            }
            Request::CreateImage { server, cycle } => return self.create_image(server, cycle),
            Request::DeleteImage { image } => {
                self.images.get(&image).ok_or(Refused::NotFound)?;
                self.must_not_be_named(&image);
                let image = self.images.remove(&image).filter(|image| image.status == ImageStatus::Saving);
                if let Some(server) = image.and_then(|image| self.servers.get_mut(&image.server)) {
                    server.imaging = false;
                }
            }
            Request::CreateServer { infra_id, machine, image, cycle } => {
                return self.create_server(infra_id, machine, &image, cycle);
            }
            Request::DeleteServer { server } => self.delete_server(&server)?,
            Request::Restore { server } => self.server(&server, |s| s.status == Status::Active)?.restored = true,
            Request::Unmark { server } => self.server(&server, |_| true)?.cycle = None,
            Request::Read { record } => return Ok(Answer::Record(self.records.get(&record).cloned())),
            Request::Write { record, text, seen } => {
                if self.records.get(&record).map(|entry| &entry.version) != seen.as_ref() {
                    return Err(Refused::Conflict);
                }
                let version = self.id("version");
                if let Ok(next) = Record::read(&text) {
                    self.must_keep_what_is_missing(&next.infra_id, Some(&next));
                }
                self.records.insert(record, Entry { text, version: version.clone() });
                return Ok(Answer::Done(version));
            }
            Request::Clear { record, seen } => {
                let entry = self.records.get(&record).ok_or(Refused::NotFound)?;
                if entry.version != seen {
                    return Err(Refused::Conflict);
                }
                if let Ok(last) = Record::read(&entry.text) {
                    self.must_keep_what_is_missing(&last.infra_id, None);
                }
                self.records.remove(&record);
            }
        }
        Ok(Answer::Done(String::new()))
    }

    fn server(&mut self, id: &str, may: impl Fn(&Server) -> bool) -> Result<&mut Server, Refused> {
        let server = self.servers.get_mut(id).filter(|server| server.status != Status::Deleting);
        let server = server.ok_or(Refused::NotFound)?;
        if may(server) { Ok(server) } else { Err(Refused::Conflict) }
    }

    fn create_image(&mut self, server: String, cycle: String) -> Result<Answer, Refused> {
        let of = self.server(&server, |s| matches!(s.status, Status::Active | Status::Paused) && !s.imaging)?;
        of.imaging = true;
        let image = Image {
            infra_id: of.infra_id.clone(),
            machine: of.machine.clone(),
            cycle,
            status: ImageStatus::Saving,
            disk: of.disk,
            of_paused: of.status == Status::Paused,
            server,
        };
        let id = self.id("image");
        self.images.insert(id.clone(), image);
        Ok(Answer::Done(id))
    }

    fn create_server(
        &mut self,
        infra_id: String,
        machine: String,
        image: &str,
        cycle: String,
    ) -> Result<Answer, Refused> {
        let boots = self.images.get(image).filter(|image| image.status == ImageStatus::Active);
        let disk = boots.ok_or(Refused::NotFound)?.disk;
        if self.servers.values().any(|server| server.infra_id == infra_id && server.machine == machine) {
            return Err(Refused::Conflict); // its ports are in use
        }
        let id = self.id("server");
        let server = Server {
            infra_id,
            machine,
            status: Status::Build,
            imaging: false,
            cycle: Some(cycle),
            restored: false,
            disk,
        };
        self.servers.insert(id.clone(), server);
        Ok(Answer::Done(id))
    }

    fn delete_server(&mut self, id: &str) -> Result<(), Refused> {
        let server = self.server(id, |_| true)?.clone();
        self.must_be_kept(id, &server);
        self.server(id, |_| true)?.status = Status::Deleting;
        Ok(())
    }
}

/// The referee: invariants I1 to I3 of a recreate driver. Whoever breaks one loses data sooner or later.
impl Cloud {
    /// Infrastructure ID, name and entry of every machine in any record.
    fn entries(&self) -> impl Iterator<Item = (String, String, Machine)> + use<> {
        let records: Vec<_> = self.records.values().filter_map(|entry| Record::read(&entry.text).ok()).collect();
        records.into_iter().flat_map(|record| {
            let infra_id = record.infra_id;
            record.machines.into_iter().map(move |(name, machine)| (infra_id.clone(), name, machine))
        })
    }

    fn violated(&mut self, rule: &str, what: impl std::fmt::Display) {
        self.violations.push(format!("{rule}: {what}"));
    }

    /// I1: a server is deleted only if a sealed record gives it up and its image holds all that is on its disk. One
    /// that the driver made, and that has never run as this machine, has nothing to lose.
    fn must_be_kept(&mut self, id: &str, server: &Server) {
        let mut of_machine = self.entries().filter(|(of, _, _)| *of == server.infra_id);
        let entry = of_machine.find(|(_, name, _)| *name == server.machine).map(|(_, _, machine)| machine);
        let Some(machine) = entry.clone().filter(|machine| machine.server == id) else {
            let never_ran = matches!(server.status, Status::Build | Status::Error);
            let is_stray = entry.is_some_and(|entry| server.cycle.as_ref().is_some_and(|cycle| *cycle != entry.cycle));
            if !never_ran && !is_stray {
                self.violated("I1", format_args!("{id} of {} is deleted; no record gives it up", server.machine));
            }
            return;
        };
        let image = machine.image.as_ref().and_then(|image| self.images.get(image)).cloned();
        let is_kept = image.as_ref().is_some_and(|image| {
            image.status == ImageStatus::Active && image.of_paused && image.server == id && image.disk == server.disk
        });
        if !(machine.given_up && is_kept) {
            self.violated("I1", format_args!("{id} is deleted: {machine:?}, {image:?}, disk {}", server.disk));
        }
        self.kept.insert((server.infra_id.clone(), server.machine.clone()), server.disk);
    }

    /// I1: what was given up never runs again.
    fn must_not_be_given_up(&mut self, id: &str) {
        if self.entries().any(|(_, _, machine)| machine.server == id && machine.given_up) {
            self.violated("I1", format_args!("{id} runs again after it was given up"));
        }
    }

    /// I2: while a machine has no server, the record says what it was.
    fn must_keep_what_is_missing(&mut self, infra_id: &str, next: Option<&Record>) {
        let missing = self.kept.keys().filter(|(of, machine)| {
            of == infra_id && !self.servers.values().any(|s| s.infra_id == *of && s.machine == *machine)
        });
        let is_recorded = |machine: &String| {
            let image = next.and_then(|record| record.machines.get(machine)?.image.as_ref());
            image.is_some_and(|image| self.images.contains_key(image))
        };
        let lost: Vec<String> = missing.map(|(_, machine)| machine.clone()).filter(|m| !is_recorded(m)).collect();
        for machine in lost {
            self.violated("I2", format_args!("{machine} has neither a server nor a record"));
        }
    }

    /// I3: an image is deleted only if no stored record names it.
    fn must_not_be_named(&mut self, id: &str) {
        if self.entries().any(|(_, _, machine)| machine.image.as_deref() == Some(id)) {
            self.violated("I3", format_args!("{id} is deleted; a record names it"));
        }
    }

    /// What is wrong with a cluster that should be awake with so many machines, and nothing left of the driver's.
    pub fn unlike_awake(&self, infra_id: &str, machines: usize) -> Vec<String> {
        let mut wrong = self.violations.clone();
        let servers: Vec<_> = self.servers(infra_id).collect();
        if servers.len() != machines {
            wrong.push(format!("{} servers for {machines} machines", servers.len()));
        }
        for (id, server) in servers {
            let kept = self.kept.get(&(server.infra_id.clone(), server.machine.clone())).copied().unwrap_or_default();
            if server.status != Status::Active || !server.restored || server.cycle.is_some() || server.disk < kept {
                wrong.push(format!("{id}: {server:?}, {kept} was kept"));
            }
        }
        wrong.extend(self.images(infra_id).map(|(id, _)| format!("{id} is left")));
        wrong.extend(self.records.keys().map(|record| format!("record {record} is left")));
        wrong
    }

    /// What is wrong with a cluster that should be asleep with so many machines: one image each and nothing else.
    pub fn unlike_asleep(&self, infra_id: &str, machines: usize) -> Vec<String> {
        let mut wrong = self.violations.clone();
        wrong.extend(self.servers(infra_id).map(|(id, _)| format!("{id} is left")));
        let images = self.images(infra_id).count();
        if images != machines {
            wrong.push(format!("{images} images for {machines} machines"));
        }
        wrong
    }
}
