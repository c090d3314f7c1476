//! What the cloud and the record say of a cluster's machines, put together: a table from what is there to where a
//! machine stands.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use fair::Charge;
use jiff::Timestamp;
use shared::cloud::{ClusterRef, InstanceState};
use shared::record::Format;

use crate::cloud::{Attributes, Difference, Image, ImageStatus, Obstacle, Request, Server, Status};
use crate::record::{EntryCopy, Machine, REQUEST_LIFETIME, Record, is_within};

/// The result of one list.
#[derive(Debug)]
pub(crate) struct Survey<A> {
    pub cluster: ClusterRef,
    /// The record, with its version; `None` if it is made of copies and not stored yet.
    pub record: Option<(Record<A>, Option<String>)>,
    pub servers: Vec<Server<A>>,
    pub images: Vec<Image>,
    /// Memory of the servers and images.
    pub charge: Charge,
    /// Memory of the record.
    #[expect(dead_code, reason = "it is kept, not read")]
    pub held: Charge,
    /// When the lists were begun.
    pub now: Timestamp,
    /// When the pass decided: requests leave soon after.
    pub decided: Timestamp,
    /// How long an image may take.
    pub image_deadline: Duration,
    /// Name of the machine that a server is, by ID.
    pub owners: HashMap<String, String>,
    /// Of the servers that were made of a record, by ID.
    pub differences: HashMap<String, Difference<A>>,
}

/// Someone has deleted the image of a machine that may not run again. Nothing is touched.
const IMAGE_GONE: &str = "IMAGE-MISSING";

/// The image of a machine that may not run again may not be used for now. Nothing is touched.
const IMAGE_DEACTIVATED: &str = "IMAGE-DEACTIVATED";

/// Beside a record there is a server of its machine's name that the record does not know. Nothing is touched.
const FOREIGN_SERVER: &str = "FOREIGN";

/// A name that several servers have. Nothing is touched.
const SEVERAL_SERVERS: &str = "SEVERAL-SERVERS";

/// What the owner of a machine without an image can do.
const IMAGE_GONE_ADVICE: &str = "its image is gone, and its server was given up. Once all others run, delete the Secret with the record: \
                       the cluster goes on without it";

/// Where a machine stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It runs.
    Running,
    /// It is halted and can go either way.
    Halted,
    /// On its way down, or an image of it is being made.
    Stopping,
    /// It has its image, and its server is of no use any more: someone has deleted it, or it broke. Every change of the
    /// record gives it up ([`Survey::next_record`]).
    Useless,
    /// It may not run again; its server still has to be deleted.
    GivenUp,
    /// Its server is being deleted.
    Deleting,
    /// Only the record and its image are left.
    Gone,
    /// Its new server is on its way up, or its create may still arrive.
    Starting,
    /// Its new server could not be made: it is deleted, and made again.
    Broken,
    /// Its new server runs, but does not have everything yet.
    Unrestored,
    /// A server that a late request has made of an older image: it is deleted.
    Stray,
    /// A state that the planner does not know, by its word.
    Odd(String),
}

#[derive(Debug)]
pub(crate) struct View<'a, A> {
    pub name: &'a str,
    pub entry: Option<&'a Machine<A>>,
    /// The server that is the machine, unless it is being deleted.
    pub live: Option<&'a Server<A>>,
    /// A server beside it that has to go first: a stray, or a loser of two creates.
    pub extra: Option<&'a Server<A>>,
    pub stage: Stage,
}

impl<A> View<'_, A> {
    /// Whether the record knows this very server.
    pub fn is_recorded_server(&self) -> bool {
        self.entry.zip(self.live).is_some_and(|(entry, server)| entry.server == server.id)
    }

    pub fn server(&self) -> String {
        self.live.map(|server| server.id.clone()).unwrap_or_default()
    }

    /// What keeps a machine from falling asleep. A server that was made of a record may lack some of it still: of such a
    /// one only what it is doing counts. What a server is busy with is ours once the record knows the machine.
    pub fn obstacle(&self) -> Option<Obstacle> {
        let shown = self.live.and_then(|server| server.obstacle.as_ref());
        let is_made = self.live.is_some_and(|server| server.cycle.is_some());
        let shown = shown.filter(|obstacle| !is_made || obstacle.code == Obstacle::STATUS);
        let shown = shown.filter(|obstacle| self.entry.is_none() || obstacle.code != Obstacle::BUSY);
        match &self.stage {
            Stage::Odd(word) => Some(match word.as_str() {
                SEVERAL_SERVERS => Obstacle::several(),
                IMAGE_GONE => Obstacle::new("ImageMissing", IMAGE_GONE_ADVICE),
                IMAGE_DEACTIVATED => {
                    Obstacle::new("ImageDeactivated", "its image is deactivated: have the cloud reactivate it")
                }
                FOREIGN_SERVER => Obstacle::new("ForeignServer", "a server that its record does not know has its name"),
                word => shown.cloned().unwrap_or_else(|| {
                    Obstacle::new(Obstacle::STATUS, &format!("its state is {word}, which is neither on nor off"))
                }),
            }),
            // It is being made.
            Stage::Starting if is_made && self.live.is_some_and(|server| !server.has_run) => None,
            Stage::Running | Stage::Halted | Stage::Stopping | Stage::Starting | Stage::Unrestored => shown.cloned(),
            _ => None,
        }
    }

    /// Whether it has arrived at a stage, with no server beside it.
    pub fn is_at(&self, stage: &Stage) -> bool {
        self.stage == *stage && self.extra.is_none()
    }
}

impl<A: Attributes> Survey<A> {
    /// Every machine that a server or the record names, by name.
    pub fn views(&self) -> Vec<View<'_, A>> {
        self.names().into_iter().filter_map(|name| self.view(name)).collect()
    }

    /// Finds out which machine each server is: by its ID or mark if the record knows them, whatever it is called now.
    pub fn assign(&mut self) {
        let machines = || self.record.iter().flat_map(|(record, _)| &record.machines);
        let by_id: HashMap<&String, &String> = machines().map(|(name, entry)| (&entry.server, name)).collect();
        let by_cycle: HashMap<&String, &String> = machines().map(|(name, entry)| (&entry.cycle, name)).collect();
        let owner = |server: &Server<A>| {
            let of_cycle = server.cycle.as_ref().and_then(|cycle| by_cycle.get(cycle));
            by_id.get(&server.id).or(of_cycle).map(|name| (*name).clone())
        };
        let owners = self.servers.iter().filter_map(|server| Some((server.id.clone(), owner(server)?)));
        self.owners = owners.collect();
    }

    /// Name of the machine that a server is.
    fn machine<'a>(&'a self, server: &'a Server<A>) -> &'a String {
        self.owners.get(&server.id).unwrap_or(&server.machine)
    }

    fn view<'a>(&'a self, name: &'a str) -> Option<View<'a, A>> {
        let entry = self.record.as_ref().and_then(|(record, _)| record.machines.get(name));
        // An entry whose server is gone without an image says nothing any more: it was written by a late request, or
        // someone else has deleted the server.
        let entry = entry.filter(|entry| {
            let is_over = |status| matches!(status, Status::Deleting | Status::SoftDeleted);
            let lives = |server: &Server<A>| server.id == entry.server && !is_over(server.status);
            entry.given_up || self.servers.iter().any(lives) || self.ready_image(entry).is_some()
        });
        let of_machine = self.servers.iter().filter(|server| self.machine(server) == name);
        let (gone, live): (Vec<_>, Vec<_>) = of_machine.partition(|server| self.is_gone(entry, server));
        let view = |live, extra, stage| Some(View { name, entry, live, extra, stage });
        let Some(entry) = entry else {
            return match live.as_slice() {
                // What its owner has deleted is none of ours, even if it is kept for a while.
                [] if gone.iter().all(|server| server.status == Status::SoftDeleted) => None,
                [] => view(None, None, Stage::Deleting),
                [server] => view(Some(*server), None, unrecorded(server)),
                [first, ..] => view(Some(*first), None, Stage::Odd(SEVERAL_SERVERS.to_owned())),
            };
        };
        let (strays, mut live): (Vec<_>, Vec<_>) =
            live.into_iter().partition(|s| s.id != entry.server && s.cycle.as_ref().is_some_and(|c| *c != entry.cycle));
        // The recorded server first, then the oldest that is up.
        live.sort_by_key(|s| {
            (s.id != entry.server, matches!(s.status, Status::Failed), s.status == Status::Starting, s.created)
        });
        let failed = live.iter().skip(1).find(|s| s.status == Status::Failed && s.cycle.is_some() && !s.has_run);
        let is_kept = !live.is_empty() || self.ready_image(entry).is_some();
        let extra = strays.first().filter(|_| is_kept).or(failed).copied();
        let waits = live.iter().skip(1).any(|server| server.status == Status::Starting);
        let several = live.iter().skip(1).any(|s| {
            !matches!(s.status, Status::Failed | Status::Starting)
                || s.cycle.is_none()
                || s.has_run && s.status == Status::Failed
        });
        match live.first() {
            None if extra.is_some() => view(None, extra, Stage::Stray),
            None if !strays.is_empty() => view(None, None, self.without_image(entry)),
            None if !gone.is_empty() => view(None, None, Stage::Deleting),
            None if is_under_way(entry, self.now) => view(None, None, Stage::Starting),
            None if self.ready_image(entry).is_none() => view(None, None, self.without_image(entry)),
            None => view(None, None, Stage::Gone),
            Some(_) if several => view(live.first().copied(), None, Stage::Odd(SEVERAL_SERVERS.to_owned())),
            // Until the other one has failed, it may take this one's ports.
            Some(first) if waits && first.cycle.is_some() => view(Some(*first), extra, Stage::Starting),
            Some(first) => view(Some(*first), extra, self.recorded(entry, first)),
        }
    }

    fn without_image(&self, entry: &Machine<A>) -> Stage {
        let is_withheld = self.image(entry).is_some_and(|image| image.status == ImageStatus::Withheld);
        Stage::Odd(if is_withheld { IMAGE_DEACTIVATED } else { IMAGE_GONE }.to_owned())
    }

    /// Whether a server is on its way out. One that someone has deleted is kept for a while, with its ports: if it has its
    /// image, it is in the way.
    fn is_gone(&self, entry: Option<&Machine<A>>, server: &Server<A>) -> bool {
        match server.status {
            Status::Deleting => true,
            Status::SoftDeleted => !entry.is_some_and(|entry| {
                let is_its = entry.server == server.id || server.cycle.is_some();
                is_its && self.ready_image(entry).is_some()
            }),
            _ => false,
        }
    }

    /// Where a machine with an entry stands, by its server.
    fn recorded(&self, entry: &Machine<A>, server: &Server<A>) -> Stage {
        let is_old = server.id == entry.server;
        match (is_old && entry.given_up, self.ready_image(entry)) {
            (true, Some(_)) => return Stage::GivenUp,
            (true, None) => return self.without_image(entry),
            (false, _) => {}
        }
        if !is_old && server.cycle.is_none() {
            return Stage::Odd(FOREIGN_SERVER.to_owned());
        }
        match server.status {
            Status::Active if self.differences.get(&server.id).is_some_and(|found| found.lacks) => Stage::Unrestored,
            Status::Failed if !is_old && !server.has_run => Stage::Broken,
            Status::Failed if !is_old => Stage::Odd(server.word.clone()),
            Status::Failed | Status::SoftDeleted if self.ready_image(entry).is_some() => Stage::Useless,
            _ => unrecorded(server),
        }
    }

    /// The servers that the planner has made and not yet unmarked, with what was recorded of them.
    pub fn marked(&self) -> impl Iterator<Item = (&Server<A>, &A)> {
        let marked = self.servers.iter().filter(|server| server.cycle.is_some());
        marked.filter_map(|server| {
            let (record, _) = self.record.as_ref()?;
            Some((server, &record.machines.get(self.machine(server))?.attributes))
        })
    }

    /// What is recorded of a server.
    pub fn attributes<'a>(&'a self, server: &'a Server<A>) -> &'a A {
        self.differences.get(&server.id).map_or(&server.attributes, |found| &found.recorded)
    }

    /// The image of a machine: the one that its entry names, or that of its cycle. More than one exist only if a late
    /// request has made another.
    pub fn image(&self, entry: &Machine<A>) -> Option<&Image> {
        if let Some(named) = &entry.image {
            return self.images.iter().find(|image| image.id == *named);
        }
        let of_cycle = |image: &&Image| image.server == entry.server && image.cycle == entry.cycle;
        let mut images = self.images.iter().filter(of_cycle);
        let first = images.clone().next();
        images.find(|image| image.status == ImageStatus::Active).or(first)
    }

    /// The image that a machine can be made of.
    pub fn ready_image(&self, entry: &Machine<A>) -> Option<&String> {
        self.image(entry).filter(|image| image.status == ImageStatus::Active).map(|image| &image.id)
    }

    /// Whether a machine on its way into sleep has not even an image that is being made.
    pub fn has_no_image(&self, view: &View<'_, A>) -> bool {
        matches!(view.stage, Stage::Running | Stage::Halted)
            && view.entry.is_none_or(|entry| self.image(entry).is_none())
    }

    /// Whether a server is on its way, and no image of it is being made.
    pub fn is_busy(&self, view: &View<'_, A>) -> bool {
        let saving = |image: &Image| image.machine == view.name && image.status == ImageStatus::Saving;
        matches!(view.stage, Stage::Stopping | Stage::Starting)
            && view.live.is_some()
            && !self.images.iter().any(saving)
    }

    fn names(&self) -> BTreeSet<&String> {
        let recorded = self.record.iter().flat_map(|(record, _)| record.machines.keys());
        recorded.chain(self.servers.iter().map(|server| self.machine(server))).collect()
    }

    /// The copy that an image of a machine has to carry.
    pub fn copy(&self, machine: &str, image: &Image, entry: &Machine<A>) -> String {
        let all = self.names().into_iter().cloned().collect();
        let copy = EntryCopy::of(&self.cluster, all, machine, &image.id, entry);
        // An entry that is too long has no copy: the record holds it.
        copy.bounded_text().unwrap_or_default()
    }

    /// Images of another program by which the cluster is to wake, each with its machine: not marked as ours yet.
    pub fn unowned(&self) -> impl Iterator<Item = (&String, &Machine<A>, &Image)> {
        let entries = self.record.iter().flat_map(|(record, _)| &record.machines).filter(|(_, entry)| entry.given_up);
        entries.filter_map(|(name, entry)| {
            let image = self.image(entry).filter(|image| image.status == ImageStatus::Active && !image.is_tagged)?;
            Some((name, entry, image))
        })
    }

    /// The requests that mark at most so many of them as ours.
    pub fn undescribed(&self, most: usize) -> Vec<(String, InstanceState, Request<A>)> {
        let requests = self.unowned().take(most).map(|(name, entry, image)| {
            let copy = self.copy(name, image, entry);
            (name.clone(), InstanceState::Stopped, Request::Describe(image.clone(), copy))
        });
        requests.collect()
    }

    /// Images that nothing needs: the record does not name them, and they are of no cycle of it. One of a machine that
    /// neither a server nor the record has is all that is left of it.
    pub fn unneeded_images(&self) -> impl Iterator<Item = &Image> {
        self.images.iter().filter(|image| {
            let entry = self.record.as_ref().and_then(|(record, _)| record.machines.get(&image.machine));
            match entry.map(|entry| (&entry.image, entry)) {
                Some((Some(named), _)) => *named != image.id,
                Some((None, entry)) => entry.server != image.server || entry.cycle != image.cycle,
                None => {
                    !matches!(image.status, ImageStatus::Active | ImageStatus::Withheld)
                        || self.servers.iter().any(|s| *self.machine(s) == image.machine)
                }
            }
        })
    }

    /// Whether the image of a machine should have been ready.
    pub fn is_overdue(&self, entry: &Machine<A>) -> bool {
        entry.imaged.as_ref().is_some_and(|imaged| !is_within(self.now, imaged.at, self.image_deadline))
    }
}

/// Whether a create may still arrive.
fn is_under_way<A>(entry: &Machine<A>, now: Timestamp) -> bool {
    entry.given_up && entry.started.as_ref().is_some_and(|started| is_within(now, started.at, REQUEST_LIFETIME))
}

/// Where a machine without an entry stands, or one whose entry says nothing more.
fn unrecorded<A>(server: &Server<A>) -> Stage {
    match server.status {
        Status::Active => Stage::Running,
        Status::Halted => Stage::Halted,
        Status::Stopping => Stage::Stopping,
        Status::Starting => Stage::Starting,
        Status::Deleting | Status::SoftDeleted => Stage::Deleting,
        Status::Failed | Status::Unknown => Stage::Odd(server.word.clone()),
    }
}
