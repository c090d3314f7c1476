//! What the cloud and the record say of a cluster's machines, put together: a table from what is there to where a
//! machine stands.

use std::collections::{BTreeMap, BTreeSet};

use shared::cloud::{CloudErrorKind, Instance, InstanceState, Listing, Refusal};

use crate::cloud::{Image, ImageStatus, Server, Status};
use crate::record::{Machine, Record};

/// The result of one list.
#[derive(Debug)]
pub(crate) struct Survey {
    /// The record, with its version.
    pub record: Option<(Record, String)>,
    pub servers: BTreeMap<String, Server>,
    pub images: BTreeMap<String, Image>,
}

/// Where a machine stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It runs.
    Running,
    /// It is paused and can go either way.
    Paused,
    /// An image of it is being made.
    Imaging,
    /// It may not run again; its server still has to be deleted.
    GivenUp,
    /// Its server is being deleted.
    Deleting,
    /// Only the record and its image are left.
    Gone,
    /// Its new server is being made.
    Building,
    /// Its new server could not be made: it is deleted, and made again.
    Broken,
    /// Its new server runs, but does not have everything yet.
    Unrestored,
    /// A server that a late request has made of an older image: it is deleted.
    Stray,
    /// Something that this driver does not know.
    Odd(String),
}

/// One machine.
#[derive(Clone, Debug)]
pub(crate) struct View<'a> {
    pub name: &'a str,
    pub entry: Option<&'a Machine>,
    /// The server that holds its ports, unless it is being deleted.
    pub live: Option<(&'a String, &'a Server)>,
    pub stage: Stage,
}

impl View<'_> {
    /// Whether the record knows this very server.
    pub fn is_recorded_server(&self) -> bool {
        self.entry.zip(self.live).is_some_and(|(entry, (id, _))| entry.server == *id)
    }

    pub fn server(&self) -> String {
        self.live.map(|(id, _)| id.clone()).unwrap_or_default()
    }
}

impl Survey {
    /// Every machine that a server or the record names, by name.
    pub fn views(&self) -> Vec<View<'_>> {
        let recorded = self.record.iter().flat_map(|(record, _)| record.machines.keys());
        let names: BTreeSet<&String> = recorded.chain(self.servers.values().map(|server| &server.machine)).collect();
        names.into_iter().filter_map(|name| self.view(name)).collect()
    }

    fn view<'a>(&'a self, name: &'a str) -> Option<View<'a>> {
        let mut of_machine = self.servers.iter().filter(|(_, server)| server.machine == name);
        let live = of_machine.clone().find(|(_, server)| server.status != Status::Deleting);
        let deleting = of_machine.any(|(_, server)| server.status == Status::Deleting);
        let entry = self.record.as_ref().and_then(|(record, _)| record.machines.get(name));
        // An entry whose server is gone without an image says nothing any more: it was written by a late request.
        let entry = entry.filter(|e| e.given_up || live.is_some_and(|(id, _)| *id == e.server));
        let stage = match (entry, live) {
            (None, None) if !deleting => return None,
            (_, None) if deleting => Stage::Deleting,
            (_, None) => Stage::Gone,
            (entry, Some((id, server))) => stage(entry, id, server),
        };
        Some(View { name, entry, live, stage })
    }

    /// The image of a machine in its cycle. More than one exist only if a late request has made another.
    pub fn image(&self, entry: &Machine) -> Option<(&String, ImageStatus)> {
        let of_cycle = |image: &&Image| image.server == entry.server && image.cycle == entry.cycle;
        let mut images = self.images.iter().filter(|(_, image)| of_cycle(image)).map(|(id, image)| (id, image.status));
        let first = images.clone().next();
        images.find(|(_, status)| *status == ImageStatus::Active).or(first)
    }

    /// Images that the record does not name.
    pub fn unnamed_images(&self) -> impl Iterator<Item = &String> {
        let machines = self.record.iter().flat_map(|(record, _)| record.machines.values());
        let named: BTreeSet<&String> = machines.filter_map(|machine| machine.image.as_ref()).collect();
        self.images.keys().filter(move |id| !named.contains(id))
    }

    /// As decisions see it.
    pub fn listing(&self) -> Listing {
        let views = self.views();
        let broken = views.iter().filter(|view| view.stage == Stage::Broken).map(|view| Refusal {
            id: view.name.to_owned(),
            kind: CloudErrorKind::Capacity,
            code: "NoValidHost".to_owned(),
            message: "the server could not be made".to_owned(),
        });
        let awake = !views.is_empty() && views.iter().all(|view| view.stage == Stage::Running);
        let marked = self.servers.values().any(|server| server.cycle.is_some());
        let owed = if awake {
            self.record.is_some() || marked || !self.images.is_empty()
        } else {
            self.unnamed_images().next().is_some()
        };
        Listing { instances: views.iter().map(instance).collect(), failed: broken.collect(), owed }
    }
}

fn stage(entry: Option<&Machine>, id: &str, server: &Server) -> Stage {
    let paused = || if server.imaging { Stage::Imaging } else { Stage::Paused };
    let odd = |word: &str| Stage::Odd(word.to_owned());
    let ours = entry.is_some_and(|entry| entry.server != id && server.cycle.as_ref() == Some(&entry.cycle));
    let recorded = entry.is_some_and(|entry| entry.server == id);
    match (&server.status, entry) {
        (Status::Odd(word), _) => odd(word),
        (_, Some(entry)) if recorded && entry.given_up => Stage::GivenUp,
        (_, Some(_)) if !recorded && !ours && server.cycle.is_some() => Stage::Stray,
        (_, Some(_)) if !recorded && !ours => odd("FOREIGN"),
        (Status::Active, Some(_)) if recorded && server.imaging => Stage::Imaging,
        (Status::Active, Some(_)) if ours && !server.restored => Stage::Unrestored,
        (Status::Active, _) => Stage::Running,
        (Status::Paused, _) => paused(),
        (Status::Build, _) => Stage::Building,
        (Status::Error, _) if ours => Stage::Broken,
        (Status::Error, _) => odd("ERROR"),
        (Status::Deleting, _) => Stage::Deleting,
    }
}

fn instance(view: &View<'_>) -> Instance {
    let (state, due) = match &view.stage {
        Stage::Running => (InstanceState::Running, false),
        Stage::Paused => (InstanceState::Halted, false),
        Stage::Deleting if view.entry.is_none() => (InstanceState::ShuttingDown, false),
        Stage::Imaging | Stage::Deleting => (InstanceState::Stopping, false),
        Stage::GivenUp | Stage::Stray => (InstanceState::Stopping, true),
        Stage::Gone => (InstanceState::Stopped, false),
        Stage::Building => (InstanceState::Pending, false),
        Stage::Broken | Stage::Unrestored => (InstanceState::Pending, true),
        Stage::Odd(_) => (InstanceState::Unknown, false),
    };
    let instance = Instance {
        due,
        recorded: view.stage == Stage::Gone,
        node_names: vec![view.name.to_owned()],
        control_plane: view.name.contains("-master-"),
        ..Instance::new(view.name, state)
    };
    match &view.stage {
        Stage::Odd(word) => instance.in_words(word),
        Stage::Paused => instance.in_words("PAUSED"),
        _ => instance,
    }
}
