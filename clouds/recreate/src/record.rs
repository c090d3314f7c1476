//! The durable record as it is stored, and the timeouts of the requests that it names.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use shared::cloud::ClusterRef;
use shared::record::Format;

/// How long a request may be in flight: its deadline of 30 s, the way from a proxy to the cloud, and the clock skew of two
/// controllers.
pub const REQUEST_LIFETIME: Duration = Duration::from_secs(90);

/// The delay of the next sleep after the first one that was given up.
const SLEEP_RETRY_DELAY: Duration = Duration::from_mins(10);

/// How long a sleep retries what the cloud refuses, and waits for a busy server, while other machines are down.
pub const STALL_TIMEOUT: Duration = Duration::from_mins(1);

/// The backoff of creates grows up to this many times [`REQUEST_LIFETIME`], that of sleeps as [`sleep_retry_delay`] says.
pub const MAX_BACKOFF_FACTOR: u32 = 5;

/// How long the next sleep waits after so many in a row were given up.
pub fn sleep_retry_delay(given_up: u32) -> Duration {
    SLEEP_RETRY_DELAY * given_up.clamp(1, MAX_BACKOFF_FACTOR)
}

/// Whether `then` is no longer ago than `time`. A time far ahead comes from a wrong clock and does not count.
pub(crate) fn is_within(now: Timestamp, then: Timestamp, time: Duration) -> bool {
    now < then + time && then <= now + REQUEST_LIFETIME
}

/// What existed, and how far its sleep is. Everything that decides about a request that cannot be undone is in here
/// before the request is sent.
///
/// It names its cluster by infraID, which outlives the object on the hub: a restored backup still wakes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record<A> {
    /// Namespace and name of the cluster.
    pub(crate) cluster: String,
    pub infra_id: String,
    /// Whether every machine has its image. Only then may one be given up.
    pub sealed: bool,
    /// Whether images that this sleep does not need were deleted, as far as they could be.
    #[serde(default)]
    pub cleaned: bool,
    /// Why the last sleep was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedSleep>,
    /// What holds this sleep up: a request that the cloud refuses again and again, or a busy server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled: Option<FailedSleep>,
    /// By name, which outlives servers.
    pub machines: BTreeMap<String, Machine<A>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine<A> {
    /// ID of the server that it was when its sleep began.
    pub server: String,
    /// Marks its image, and the server that is made of it. Another one each time the server may have run since.
    pub cycle: String,
    /// Its image, once the record is sealed.
    pub image: Option<String>,
    /// Whether its server may be deleted, and must never run again.
    pub given_up: bool,
    /// The last request for an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imaged: Option<Attempt>,
    /// The last request that makes a server of it run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Attempt>,
    /// What a new server needs.
    pub attributes: A,
}

/// What an image carries of the record, so that its loss is not the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EntryCopy<A> {
    /// Namespace and name of the cluster.
    cluster: String,
    infra_id: String,
    /// Names of all machines that sleep with it.
    all: BTreeSet<String>,
    pub(crate) name: String,
    pub(crate) machine: Machine<A>,
}

/// A request that may be in flight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// How often it was sent.
    pub number: u32,
    /// When it was sent last.
    pub at: Timestamp,
    /// Why it failed, in the cloud's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// A sleep that was given up, or does not go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedSleep {
    /// Since when.
    pub at: Timestamp,
    /// The machine that could not be put to sleep.
    pub machine: String,
    #[serde(default = "image_failed")]
    pub code: String,
    pub message: String,
    /// How often in a row.
    #[serde(default)]
    pub number: u32,
}

fn image_failed() -> String {
    IMAGE_FAILED.to_owned()
}

/// The code of an image that could not be made.
pub(crate) const IMAGE_FAILED: &str = "ImageFailed";

/// Longest ID, and longest name of a machine, in characters: Nova counts so, too.
const MAX_ID: usize = 255;

impl<A: Clone + Serialize + DeserializeOwned> Format for Record<A> {
    // As the Secret that holds it.
    const MAX_BYTES: usize = 900 * 1024;

    fn checked(self) -> Option<Self> {
        Some(self).filter(|record| record.machines.iter().all(|(name, machine)| machine.is_sound(name)))
    }
}

impl<A: Clone + Serialize + DeserializeOwned> Format for EntryCopy<A> {
    // Glance takes 64 KiB.
    const MAX_BYTES: usize = 60_000;

    fn checked(self) -> Option<Self> {
        Some(self).filter(|copy| copy.machine.is_sound(&copy.name) && copy.machine.image.is_some())
    }
}

impl<A> Machine<A> {
    /// IDs become parts of URLs.
    fn is_sound(&self, name: &str) -> bool {
        let is_id = |id: &str| {
            let is_known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
            (1..=MAX_ID).contains(&id.len()) && id.chars().all(is_known)
        };
        let image = self.image.as_deref();
        name.chars().count() <= MAX_ID
            && is_id(&self.server)
            && is_id(&self.cycle)
            && image.is_none_or(is_id)
            && (image.is_some() || !self.given_up)
    }
}

impl<A> Record<A> {
    pub fn new(cluster: &ClusterRef) -> Self {
        let (cluster, infra_id) = (name(cluster), cluster.infra_id.clone());
        let machines = BTreeMap::new();
        Self { cluster, infra_id, sealed: false, cleaned: false, failed: None, stalled: None, machines }
    }

    /// Forgets why servers could not be made: the cluster is to sleep.
    pub(crate) fn forget_faults(&mut self) {
        let started = self.machines.values_mut().filter_map(|machine| machine.started.as_mut());
        started.for_each(|started| started.fault = None);
    }

    /// The record by the copies on images, if there is one for each machine that any of them names and that is not there.
    /// Of several of a machine the last one counts.
    ///
    /// # Errors
    /// The machines without a copy.
    pub(crate) fn of_copies(
        cluster: &ClusterRef,
        copies: Vec<EntryCopy<A>>,
        is_there: impl Fn(&str) -> bool,
    ) -> Result<Option<Self>, Vec<String>> {
        let is_its = |copy: &EntryCopy<A>| copy.cluster == name(cluster) && copy.infra_id == cluster.infra_id;
        let mut copies: Vec<EntryCopy<A>> = copies.into_iter().filter(is_its).collect();
        copies.sort_by_key(|copy| copy.machine.imaged.as_ref().map(|imaged| imaged.at));
        let all: BTreeSet<String> = copies.iter().flat_map(|copy| copy.all.iter().cloned()).collect();
        let machines: BTreeMap<_, _> = copies.into_iter().map(|copy| (copy.name, copy.machine)).collect();
        let missing: Vec<String> =
            all.into_iter().filter(|name| !machines.contains_key(name) && !is_there(name)).collect();
        if !missing.is_empty() {
            return Err(missing);
        }
        Ok((!machines.is_empty()).then(|| Self { sealed: true, machines, ..Self::new(cluster) }))
    }

    /// Whether it is this cluster's.
    pub fn is_of(&self, cluster: &ClusterRef) -> bool {
        self.cluster == name(cluster) && self.infra_id == cluster.infra_id
    }
}

impl<A> EntryCopy<A> {
    /// The other object that has put these machines to sleep, if the copies name one.
    pub(crate) fn elsewhere<'a>(copies: &'a [Self], cluster: &ClusterRef) -> Option<&'a str> {
        let own = name(cluster);
        let mut of = copies.iter().filter(|copy| copy.infra_id == cluster.infra_id).map(|copy| copy.cluster.as_str());
        let first = of.next()?;
        (first != own && of.all(|of| of != own)).then_some(first)
    }
}

impl<A: Clone> EntryCopy<A> {
    /// The copy for an image that is ready.
    pub(crate) fn of(
        cluster: &ClusterRef,
        all: BTreeSet<String>,
        name_of_machine: &str,
        image: &str,
        entry: &Machine<A>,
    ) -> Self {
        let machine = Machine { image: Some(image.to_owned()), given_up: true, started: None, ..entry.clone() };
        let (cluster, infra_id) = (name(cluster), cluster.infra_id.clone());
        Self { cluster, infra_id, all, name: name_of_machine.to_owned(), machine }
    }
}

fn name(cluster: &ClusterRef) -> String {
    format!("{}/{}", cluster.namespace, cluster.name)
}

impl Attempt {
    pub(crate) fn after(last: Option<&Self>, at: Timestamp) -> Self {
        Self { number: last.map_or(0, |last| last.number).saturating_add(1), at, fault: None }
    }
}
