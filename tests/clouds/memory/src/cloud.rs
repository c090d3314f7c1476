//! The cloud itself: servers, ports, images, records. Requests are executed at once; time passes in [`Cloud::tick`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cloud_recreate::ImageStatus;
use jiff::Timestamp;
use shared::cloud::Entry;

use crate::request::{Answer, Refusal, Request, ServerAttributes};

/// How much time passes in a tick.
pub const TICK: Duration = Duration::from_secs(40);

/// How long a stuck image takes.
const STUCK_IMAGE_TIME: Duration = Duration::from_mins(21);

/// How long a server that was deleted softly is kept.
const RECLAIM_TIME: Duration = Duration::from_mins(10);

/// Status of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Status {
    #[default]
    Build,
    /// Runs.
    Active,
    /// Paused: it holds its place and its ports.
    Paused,
    /// Off, or suspended: it holds its place and its ports.
    Off,
    /// It could not be made, or not be deleted.
    Error,
    /// Deleted at this time, and kept for a while with its ports.
    SoftDeleted(Timestamp),
    Deleting,
    /// Its owner, or the cloud, works on it.
    Busy,
    /// A word that no driver knows.
    Odd(String),
}

/// A server. Its ID is new each time it is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Server {
    /// The cluster that it belongs to.
    pub infra_id: String,
    /// Name of the machine, which outlives the server.
    pub machine: String,
    pub status: Status,
    /// Whether an image of it is being made: it can be neither unpaused nor imaged meanwhile.
    pub imaging: bool,
    /// The planner's mark: in which cycle it was made anew.
    pub cycle: Option<String>,
    /// Whether it has the tags that it had before it was deleted.
    pub tagged: bool,
    /// What is on its disk: grows while it runs.
    pub disk: u64,
    /// The image that is being made of it is stuck until this time.
    pub stuck: Option<Timestamp>,
    /// For how many ticks more it is being made.
    pub builds: u64,
    /// Whether it has ever run.
    pub has_run: bool,
    /// Whether a person has deleted it, and tries again until it is gone.
    pub by_person: bool,
}

/// An image of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The cluster that it belongs to.
    pub infra_id: String,
    pub machine: String,
    /// ID of the server that it was made of.
    pub server: String,
    /// In which cycle.
    pub cycle: String,
    pub status: ImageStatus,
    /// What was on the disk when it was begun.
    pub disk: u64,
    /// Whether the server was halted then.
    pub of_halted: bool,
    /// The copy of its machine's entry that it carries.
    pub copy: Option<String>,
}

/// How the next thing of its kind ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fails {
    /// The image is killed.
    Image,
    /// The image is gone.
    ImageVanishes,
    /// The image stays as it is, and so does its server.
    ImageStays,
    /// The server is in ERROR.
    Server,
    /// The server that is being deleted is in ERROR.
    Delete,
}

/// Everything there is.
#[derive(Debug, Default)]
pub struct Cloud {
    pub(crate) servers: BTreeMap<String, Server>,
    pub(crate) images: BTreeMap<String, Image>,
    pub(crate) records: BTreeMap<String, Entry>,
    /// By cluster and machine: the server that its ports are bound to.
    ports: BTreeMap<(String, String), String>,
    ids: u64,
    pub(crate) now: Timestamp,
    /// What the next of its kind comes to.
    pub fails: Option<Fails>,
    /// The machine that no sleep may touch, and why.
    pub obstacle: Option<(String, cloud_recreate::Obstacle)>,
    /// How many images, and how many servers, the account may have.
    pub quota: Option<(usize, usize)>,
    /// An image cannot be deleted while a server lives that was made of it.
    pub keeps_images_in_use: bool,
    /// Images that servers were made of, by server.
    made_of: BTreeMap<String, String>,
    /// What was on the disk of a machine when its server was last given up: less must never come back.
    pub(crate) kept: BTreeMap<(String, String), u64>,
    /// Machines that a person has deleted for good.
    pub(crate) dropped: BTreeSet<(String, String)>,
    pub(crate) violations: Vec<String>,
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
        self.ports.insert((infra_id.clone(), machine.clone()), id.clone());
        let status = Status::Active;
        let server = Server { infra_id, machine, status, tagged: true, disk: 1, has_run: true, ..Server::default() };
        self.servers.insert(id, server);
    }

    /// The servers of a cluster.
    pub fn servers<'a>(&'a self, infra_id: &'a str) -> impl Iterator<Item = (&'a String, &'a Server)> {
        self.servers.iter().filter(move |(_, server)| server.infra_id == infra_id)
    }

    /// The images of a cluster.
    pub fn images<'a>(&'a self, infra_id: &'a str) -> impl Iterator<Item = (&'a String, &'a Image)> {
        self.images.iter().filter(move |(_, image)| image.infra_id == infra_id)
    }

    /// Puts a machine's server into another status.
    pub fn force(&mut self, infra_id: &str, machine: &str, status: Status) {
        let of_machine = |server: &&mut Server| server.infra_id == infra_id && server.machine == machine;
        if let Some(server) = self.servers.values_mut().find(of_machine) {
            server.status = status;
        }
    }

    /// Whether the ports of its machine are bound to a server.
    pub(crate) fn is_bound(&self, id: &str, server: &Server) -> bool {
        self.ports.get(&(server.infra_id.clone(), server.machine.clone())).is_some_and(|holder| holder == id)
    }

    fn fails_as(&mut self, fails: &[Fails]) -> Option<Fails> {
        self.fails.take_if(|next| fails.contains(next))
    }

    /// Time passes: what is under way ends, and what runs works.
    pub fn tick(&mut self) {
        self.now += TICK;
        let saving = self.images.iter().filter(|(_, image)| image.status == ImageStatus::Saving);
        for id in saving.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            let fails = self.fails_as(&[Fails::Image, Fails::ImageVanishes, Fails::ImageStays]);
            let Some(image) = self.images.get_mut(&id) else { continue };
            let is_gone = |server: &&mut Server| matches!(server.status, Status::Deleting | Status::SoftDeleted(_));
            let server = self.servers.get_mut(&image.server).filter(|server| !is_gone(server));
            match (fails, server) {
                // Its delete frees its server sooner.
                (Some(Fails::ImageStays), Some(server)) => server.stuck = Some(self.now + STUCK_IMAGE_TIME),
                (_, Some(server)) if server.stuck.is_some_and(|until| self.now < until) => {}
                (Some(Fails::ImageVanishes), Some(server)) => {
                    server.imaging = false;
                    self.images.remove(&id);
                }
                (fails, Some(server)) => {
                    server.imaging = false;
                    image.status = if fails.is_some() { ImageStatus::Failed } else { ImageStatus::Active };
                }
                (_, None) => image.status = ImageStatus::Failed,
            }
        }
        for id in self.servers.keys().cloned().collect::<Vec<_>>() {
            self.end(&id);
        }
        for server in self.servers.values_mut().filter(|server| server.status == Status::Active) {
            server.disk += 1;
        }
    }

    /// What is under way of a server ends.
    fn end(&mut self, id: &str) {
        let Some(server) = self.servers.get(id).cloned() else { return };
        let ports = (server.infra_id.clone(), server.machine.clone());
        let becomes = match server.status {
            Status::Deleting if !server.by_person && self.fails_as(&[Fails::Delete]).is_some() => Some(Status::Error),
            Status::SoftDeleted(at) if self.now < at + RECLAIM_TIME => return,
            Status::Deleting | Status::SoftDeleted(_) => None,
            Status::Build if server.builds > 0 => {
                if let Some(server) = self.servers.get_mut(id) {
                    server.builds -= 1;
                }
                return;
            }
            Status::Build if self.fails_as(&[Fails::Server]).is_some() => Some(Status::Error),
            Status::Build if self.ports.contains_key(&ports) => {
                // The loser of two creates takes the winner's ports with it.
                self.ports.remove(&ports);
                Some(Status::Error)
            }
            Status::Build => {
                self.ports.insert(ports.clone(), id.to_owned());
                Some(Status::Active)
            }
            _ => return,
        };
        if let (Some(status), Some(server)) = (becomes, self.servers.get_mut(id)) {
            server.has_run |= status == Status::Active;
            server.status = status;
        } else {
            self.servers.remove(id);
            self.ports.retain(|_, holder| holder != id);
        }
    }

    /// Whether a request would move this machine.
    pub fn is_about(&self, request: &Request, machine: &str) -> bool {
        use cloud_recreate::Request as Plan;
        let Request::Plan { request, .. } = request else { return false };
        match request {
            Plan::CreateServer { machine: of, .. } | Plan::CreateImage { machine: of, .. } => of == machine,
            Plan::Pause(server) | Plan::Run(server) | Plan::DeleteServer(server) => {
                self.servers.get(server).is_some_and(|of| of.machine == machine)
            }
            _ => false,
        }
    }

    /// Makes the sleep of a cluster another program's: images carry nothing of ours, and the record is an array.
    pub fn is_anothers(&mut self, record: &str) {
        for image in self.images.values_mut() {
            (image.cycle, image.copy) = (String::new(), None);
        }
        let pairs: Vec<_> = self.images.iter().map(|(id, image)| (image.machine.clone(), id.clone())).collect();
        if let (Some(entry), Ok(text)) = (self.records.get_mut(record), serde_json::to_string(&pairs)) {
            entry.text = text;
        }
    }

    /// Executes a request.
    pub fn execute(&mut self, request: Request) -> Result<Answer, Refusal> {
        match request {
            Request::Servers { infra_id } => {
                let found = self.servers(&infra_id).map(|(id, server)| self.listed(id, server));
                Ok(Answer::Servers(found.collect()))
            }
            Request::Images { infra_id } => {
                let ours = self.images(&infra_id).filter(|(_, image)| !image.cycle.is_empty());
                let found = ours.map(|(id, image)| cloud_recreate::Image {
                    id: id.clone(),
                    server: image.server.clone(),
                    machine: image.machine.clone(),
                    cycle: image.cycle.clone(),
                    status: image.status,
                    is_tagged: image.copy.is_some(),
                    copy: image.copy.clone(),
                });
                Ok(Answer::Images(found.collect()))
            }
            Request::Plan { infra_id, request } => self.plan(infra_id, request).map(|()| Answer::Done(String::new())),
            Request::Read { record } => Ok(Answer::Record(self.records.get(&record).cloned())),
            Request::Write { record, text, seen } => {
                if self.records.get(&record).map(|entry| &entry.version) != seen.as_ref() {
                    return Err(Refusal::Conflict);
                }
                let version = self.id("version");
                self.judge_record(&text);
                self.records.insert(record, Entry { text, version: version.clone() });
                Ok(Answer::Done(version))
            }
            Request::Clear { record, seen } => {
                let entry = self.records.get(&record).ok_or(Refusal::NotFound)?.clone();
                if entry.version != seen {
                    return Err(Refusal::Conflict);
                }
                self.judge_clear(&entry.text);
                self.records.remove(&record);
                Ok(Answer::Done(String::new()))
            }
        }
    }

    fn plan(&mut self, infra_id: String, request: cloud_recreate::Request<ServerAttributes>) -> Result<(), Refusal> {
        use cloud_recreate::Request as Plan;
        match request {
            Plan::Pause(server) => self.server(&server, |s| s.status == Status::Active)?.status = Status::Paused,
            Plan::Run(server) => {
                self.judge_run(&server);
                let may = |s: &Server| matches!(s.status, Status::Paused | Status::Off) && !s.imaging;
                self.server(&server, may)?.status = Status::Active;
            }
            Plan::CreateImage { server, machine, cycle } => return self.create_image(server, machine, cycle),
            Plan::Describe(image, copy) => {
                let found = self.images.get_mut(&image.id).ok_or(Refusal::NotFound)?;
                (found.server, found.cycle, found.copy) = (image.server, image.cycle, Some(copy));
            }
            Plan::DeleteImage(image) => {
                self.images.get(&image).ok_or(Refusal::NotFound)?;
                if self.keeps_images_in_use
                    && self.made_of.iter().any(|(s, of)| *of == image && self.servers.contains_key(s))
                {
                    return Err(Refusal::Conflict);
                }
                self.judge_image(&image);
                let image = self.images.remove(&image).filter(|image| image.status == ImageStatus::Saving);
                if let Some(server) = image.and_then(|image| self.servers.get_mut(&image.server)) {
                    (server.imaging, server.stuck) = (false, None);
                }
            }
            Plan::CreateServer { machine, image, cycle, .. } => {
                return self.create_server(infra_id, machine, &image, cycle);
            }
            Plan::DeleteServer(server) => {
                let found = self.server(&server, |_| true)?.clone();
                self.judge_delete(&server, &found);
                self.server(&server, |_| true)?.status = Status::Deleting;
            }
            Plan::Restore(server, attributes) => {
                let found = self.server(&server, |s| s.status == Status::Active)?;
                found.tagged = attributes.tagged;
                let ports = (found.infra_id.clone(), found.machine.clone());
                self.ports.entry(ports).or_insert(server);
            }
            Plan::Unmark(server) => self.server(&server, |_| true)?.cycle = None,
        }
        Ok(())
    }

    fn server(&mut self, id: &str, may: impl Fn(&Server) -> bool) -> Result<&mut Server, Refusal> {
        let server = self.servers.get_mut(id).filter(|server| server.status != Status::Deleting);
        let server = server.ok_or(Refusal::NotFound)?;
        if may(server) { Ok(server) } else { Err(Refusal::Conflict) }
    }

    fn create_image(&mut self, server: String, machine: String, cycle: String) -> Result<(), Refusal> {
        if self.quota.is_some_and(|(images, _)| self.images.len() >= images) {
            return Err(Refusal::Quota);
        }
        let may = |s: &Server| matches!(s.status, Status::Active | Status::Paused | Status::Off) && !s.imaging;
        let of = self.server(&server, may)?;
        of.imaging = true;
        let (infra_id, disk, of_halted) = (of.infra_id.clone(), of.disk, of.status != Status::Active);
        let image =
            Image { infra_id, machine, cycle, status: ImageStatus::Saving, disk, of_halted, server, copy: None };
        let id = self.id("image");
        self.images.insert(id, image);
        Ok(())
    }

    /// Two creates of one machine are both accepted, until one of them has its ports.
    fn create_server(&mut self, infra_id: String, machine: String, image: &str, cycle: String) -> Result<(), Refusal> {
        if self.quota.is_some_and(|(_, servers)| self.servers.len() >= servers) {
            return Err(Refusal::Quota);
        }
        let boots = self.images.get(image).filter(|image| image.status == ImageStatus::Active);
        let disk = boots.ok_or(Refusal::NotFound)?.disk;
        if self.ports.contains_key(&(infra_id.clone(), machine.clone())) {
            return Err(Refusal::Conflict);
        }
        let id = self.id("server");
        self.made_of.insert(id.clone(), image.to_owned());
        let builds = self.ids % 2;
        let server = Server { infra_id, machine, cycle: Some(cycle), disk, builds, ..Server::default() };
        self.servers.insert(id, server);
        Ok(())
    }
}
