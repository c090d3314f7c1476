//! One database, as far as the operator and fdbcli can see it: who reports, who is excluded, what is on which volume.
//!
//! It lives in the supervisor, so that it outlives the operator, as a real one does.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// What stands before an ID in an exclusion by locality.
pub const LOCALITY: &str = "locality_instance_id:";

/// Where the operators of a database keep their lists in it, as fdbcli writes it.
pub const OPERATORS: &str = r"\xff\x02/org.foundationdb.kubernetes-operator";

/// The key of a group in one of the operators' lists; without an ID, what those of all groups begin with. An operator
/// whose groups have a prefix keeps a part of the list for itself.
pub fn key(list: &str, prefix: &str, id: &str) -> String {
    let parts = [OPERATORS, list, prefix, id].into_iter().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("/")
}

/// How the operator writes the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UpdateMode {
    /// A full update of what it has in memory, refused with 409 if another client has written in between. The default.
    Update,
    /// Server-side apply by force (`--server-side-apply`): writes of other clients in between are lost silently.
    Apply,
}

/// Knobs of one database and its operator. All can be turned while it runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Settings {
    /// How the operator writes the status.
    pub update_mode: UpdateMode,
    /// Whether the database answers.
    pub available: bool,
    /// Makes the operator do the wrong thing: it takes every marked group for excluded and removes it with the data on
    /// it.
    pub wrong: bool,
    /// So many of the operator's next fetches of the database's status fail, each after its 10 s.
    pub failed_fetches: u32,
    /// Restarts of processes are due: every pass ends before the removals, and comes again after 600 s.
    pub bounces: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { update_mode: UpdateMode::Update, available: true, wrong: false, failed_fetches: 0, bounces: false }
    }
}

/// The database.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Database {
    /// The knobs.
    pub settings: Settings,
    /// What is excluded: localities (`locality_instance_id:storage-1`) and addresses.
    pub exclusions: BTreeSet<String>,
    /// The processes that report, by the ID of their group. They stay in the list while the database is unavailable.
    pub processes: BTreeMap<String, Process>,
    /// The volumes that there are, by the UID of their claim.
    pub volumes: BTreeMap<String, Volume>,
    /// The volumes that there were. One that is not drained is lost data.
    pub gone: Vec<Volume>,
    /// When the last recovery was, seconds since 1970.
    pub recovered_at: f64,
    /// The keys of the operators' lists, which they have in global mode only, as fdbcli writes them, and when each was
    /// set, seconds since 1970.
    pub keys: BTreeMap<String, f64>,
}

/// A process that reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Process {
    /// Its address.
    pub address: String,
    /// Its zone: the Node that its Pod is on.
    pub zone: String,
    /// UID of its Pod.
    pub pod: String,
    /// UID of its volume's claim, if it has one.
    pub volume: Option<String>,
}

/// What is on a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// Name of its claim.
    pub claim: String,
    /// ID of the group that it belongs to.
    pub group: String,
    /// Stands for the data: written when a process first used the volume.
    pub marker: String,
    /// Whether the database has moved the data elsewhere.
    pub drained: bool,
}

impl Database {
    /// A database that has been up for long, without processes.
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Whether a process is excluded, by its locality or its address.
    pub fn is_excluded(&self, group: &str) -> bool {
        let by_address = self.processes.get(group).is_some_and(|process| self.exclusions.contains(&process.address));
        by_address || self.exclusions.contains(&format!("{LOCALITY}{group}"))
    }

    /// One of the operators' lists, such as `pendingForInclusion`: IDs, and when each was put there. Of the groups with
    /// a prefix, or of all if that is empty.
    pub fn list(&self, list: &str, prefix: &str) -> BTreeMap<String, f64> {
        let under = key(list, prefix, "");
        let entries = self.keys.iter().filter(|(entry, _)| entry.starts_with(&under));
        entries.map(|(entry, at)| (entry.rsplit('/').next().unwrap_or_default().to_owned(), *at)).collect()
    }

    /// The group whose process an address or locality means.
    fn meant_by(&self, target: &str) -> Option<String> {
        if let Some(group) = target.strip_prefix(LOCALITY) {
            return self.processes.contains_key(group).then(|| group.to_owned());
        }
        self.processes.iter().find(|(_, process)| process.address == *target).map(|(group, _)| group.clone())
    }

    /// Excludes addresses and localities. The data of a process that is meant has moved when this returns; a new
    /// exclusion of one makes the transaction system recover.
    pub fn exclude(&mut self, targets: &[String], now: f64) {
        for target in targets {
            let new = self.exclusions.insert(target.clone());
            let Some(group) = self.meant_by(target) else { continue };
            if new {
                self.recovered_at = now;
            }
            self.drain(&group, true);
        }
    }

    /// Takes back exclusions, which makes the transaction system recover; processes that report get their data again.
    pub fn include(&mut self, targets: &[String], now: f64) {
        for target in targets {
            if self.exclusions.remove(target) {
                self.recovered_at = now;
            }
        }
        let back: Vec<String> = self.processes.keys().filter(|group| !self.is_excluded(group)).cloned().collect();
        for group in back {
            self.drain(&group, false);
        }
    }

    /// A process begins to report.
    pub fn report(&mut self, group: &str, process: Process) {
        self.processes.insert(group.to_owned(), process);
        if self.settings.available {
            self.drain(group, self.is_excluded(group));
        }
    }

    /// A process of this Pod reports no more.
    pub fn fall_silent(&mut self, pod: &str) {
        self.processes.retain(|_, process| process.pod != pod);
    }

    /// A process first uses a volume, or uses it again: what is on it stays.
    pub fn mount(&mut self, uid: &str, claim: &str, group: &str) {
        self.volumes.entry(uid.to_owned()).or_insert_with(|| Volume {
            claim: claim.to_owned(),
            group: group.to_owned(),
            marker: format!("{group}-{:016x}", rand::random::<u64>()),
            drained: false,
        });
    }

    /// A volume is gone, with what was on it.
    pub fn lose(&mut self, uid: &str) {
        self.gone.extend(self.volumes.remove(uid));
    }

    fn drain(&mut self, group: &str, drained: bool) {
        let volume = self.processes.get(group).and_then(|process| process.volume.clone());
        if let Some(volume) = volume.and_then(|uid| self.volumes.get_mut(&uid)) {
            volume.drained = drained;
        }
    }
}

/// The commands a database received, from which client, and what its operator did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Log {
    /// Exclusions, inclusions and fdbcli's commands, in order.
    pub commands: Vec<Command>,
    /// Every DELETE that the operator has sent, in order.
    pub deletes: Vec<Delete>,
    /// The operator's passes, in order.
    pub passes: Vec<Pass>,
}

/// Something that was asked of a database.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Command {
    /// When, seconds since 1970.
    pub at: f64,
    /// `operator`, or the Pod that fdbcli ran in.
    pub by: String,
    /// What, as fdbcli writes it: `exclude locality_instance_id:storage-1`.
    pub text: String,
}

/// A DELETE that the operator has sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delete {
    /// When, seconds since 1970.
    pub at: f64,
    /// In which of its passes.
    pub pass: u64,
    /// `Pod`, `PersistentVolumeClaim` or `Service`.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// What the API server said against it, if anything.
    pub error: Option<String>,
}

/// A pass of the operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pass {
    /// Its number since the operator started.
    pub number: u64,
    /// When it began, seconds since 1970.
    pub began: f64,
    /// When it ended.
    pub ended: f64,
    /// What woke it: `Pod demo-storage-1 deleted`, `timer`, ...
    pub why: Vec<String>,
    /// How it ended: `Reconciliation complete`, an error, or what it waits for.
    pub result: String,
    /// After how many seconds it comes again by itself, if at all.
    pub again: Option<f64>,
}
