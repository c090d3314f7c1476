//! The rows of the table: one for each kind that sleeps, one for each kind that is only shown.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::confirmation::Preflight;
use super::kind::Kind;
use super::lifecycle::{Change, Intent, Lifecycle, Progress, TargetError};
use super::record::{Instances, Record};
use super::sleep_reader::RowObject;
use super::sleep_row::SleepRow;
use crate::annotation::{annotation, keys, protected};
use crate::duration::hours;
use crate::power::Power;
use crate::savings::period::Period;
use crate::savings::report::percent;
use crate::text::sanitize_to;

/// Characters of an API server's message about an unknown field.
const MAX_FIELD: usize = 200;

/// A kind that can be put to sleep.
#[derive(Debug)]
pub struct TargetKind {
    /// Group, versions, names and scope.
    pub kind: Kind,
    /// Which commands select it without a TYPE.
    pub by_default: ByDefault,
    /// Whether a controller ends its sleep or its hold: `--for` and `--until`.
    pub has_schedule: bool,
    /// Whether a preflight has refusals that `--force` accepts.
    pub has_force: bool,
    /// How `plan` judges its objects; none if it does not.
    pub plan: Option<&'static Plan>,
    /// The field of `spec` that a sleep sets and whoever deploys the target may set too: after a wake it is theirs.
    /// Autoscalers, owners and deployment tools may undo a sleep by it.
    pub deployed_field: Option<&'static str>,
    /// What a sleep writes, where code does it: for people.
    pub writes: &'static str,
    /// Another controller that changes the power state of its objects.
    pub rival: Option<&'static Rival>,
    /// What `--wait` says once the target sleeps.
    pub asleep: &'static str,
    /// What `--wait` says once the target is awake.
    pub awake: &'static str,
    /// Columns of `status -o wide`.
    pub columns: &'static [Column],
    /// What `status` warns of.
    pub warnings: fn(&Record, Timestamp) -> Vec<String>,
    /// The object beside it that holds the record of a long operation.
    pub companion: Option<&'static dyn Companion>,
    /// Where to look for an object that the hub does not have.
    pub elsewhere: Option<Elsewhere>,
    /// How the name of the namespace begins that has an object's control plane; the object's name follows.
    pub control_plane: Option<&'static str>,
    /// How long one of its objects may take in a rollout, unless that says otherwise; none if no rollout may have its
    /// objects as targets.
    pub in_rollouts: Option<Deadlines>,
    /// Whether `status` lists a target that was not named.
    pub is_listed: fn(&Record) -> bool,
    /// Whether it sleeps with its whole namespace.
    pub in_namespace: bool,
    /// The order in which objects of a namespace fall asleep: 1 is what starts or scales others, 2 what serves, 3 what keeps
    /// its data, 4 databases, 5 machines. They wake in the reverse order.
    pub stage: u8,
    /// How intent is written and state is read.
    pub reader: Reader,
}

/// How objects of a kind are read.
#[derive(Clone, Copy, Debug)]
pub enum Reader {
    /// By code.
    Code(fn(&Value) -> Result<Box<dyn Lifecycle + '_>, TargetError>),
    /// By data.
    Row(&'static SleepRow),
}

/// How long a target may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// To fall asleep.
    pub sleep: Duration,
    /// To wake.
    pub wake: Duration,
}

/// Of a cluster whose machines stop and start.
pub const STOP_START: Deadlines = Deadlines { sleep: Duration::from_mins(15), wake: Duration::from_mins(30) };

/// How `plan` judges the objects of a kind, besides what their reader finds ([`Lifecycle::findings`]).
#[derive(Debug)]
pub struct Plan {
    /// The controller's preflight, after which the user confirms a sleep that destroys something; none if no controller
    /// makes one.
    pub preflight: Option<&'static dyn Preflight>,
    /// The rules of the webhook about the kind; none if it has none.
    pub rules: Option<RuleTable>,
    /// The object that says whether what a cluster gets from the hub has been applied.
    pub sync: Option<SyncObject>,
    /// Whether `ClusterGroupUpgrades` name objects of the kind.
    pub is_upgraded: bool,
}

/// The rules of the webhook about a kind.
#[derive(Debug)]
pub struct RuleTable {
    /// Whether the table has a row of this name.
    pub has: fn(&str) -> bool,
    /// Row and field of the rule that depends on the settings of the webhook.
    pub by_settings: (&'static str, &'static str),
}

/// An object with the name of a target.
#[derive(Debug)]
pub struct SyncObject {
    /// Its kind.
    pub kind: Kind,
    /// Whether it says that everything has been applied.
    pub is_applied: fn(&Value) -> bool,
}

/// A kind of which nothing is known but what its own change refuses and warns of.
pub static BY_CHANGE: Plan = Plan { preflight: None, rules: None, sync: None, is_upgraded: false };

/// The object beside a target that holds the record of a long operation. It also takes a request to wake that the target's
/// own system refuses to store. Pure: objects in, data out.
pub trait Companion: fmt::Debug + Sync {
    /// Its kind.
    fn kind(&self) -> &'static Kind;

    /// Its namespace and name.
    fn place(&self, target: &Value) -> (String, String);

    /// Whether the target shows that there may be one.
    fn is_expected(&self, target: &Value) -> bool;

    /// Puts the request on the companion in place of the target's own, if it is newer.
    fn overlay(&self, target: &mut Value, companion: &Value);

    /// Adds what the companion holds to what `status` shows; `None` if there is no companion.
    fn describe(&self, target: &Value, companion: Option<&Value>, record: Record) -> Record;

    /// Whether an admission webhook belongs to the target's own system. Such a webhook judges the whole object: its
    /// refusal says nothing about the request.
    fn is_webhook_of_system(&self, name: &str) -> bool;

    /// The JSON merge patch that requests on the companion what the target cannot store.
    ///
    /// # Errors
    /// When no controller could read the request there, or when the target itself must change.
    fn request(&self, target: &Value, companion: &Value, intent: &Intent<'_>) -> Result<Value, TargetError>;
}

/// Which commands select a kind without a TYPE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByDefault {
    /// `--all`, `-l` and `status`.
    Always,
    /// Only `status`: to change every object of a hub, a user has to name the TYPE.
    InStatus,
    /// None.
    Never,
}

/// Where to look for an object that the hub does not have.
#[derive(Debug)]
pub struct Elsewhere {
    /// Where objects of the kind are, and how to get there.
    pub hint: &'static str,
    /// What else its word may mean on other hubs.
    pub namesakes: &'static str,
    /// A kind whose objects name the hubs that have objects of this one.
    pub index: Kind,
    /// What a hub seems to be that has objects of the index, and none of this kind.
    pub role: &'static str,
    /// The name that people gave an object, where it is not its own.
    pub display_name: fn(&Value) -> Option<&str>,
}

/// Another controller that changes objects of a kind by itself, unless its settings disable it.
#[derive(Debug)]
pub struct Rival {
    /// What messages call it.
    pub name: &'static str,
    /// The kind and the name of its settings.
    pub settings: (&'static Kind, &'static str),
    /// Whether these settings disable it.
    pub is_disabled: fn(&Value) -> bool,
    /// How to disable it.
    pub remedy: &'static str,
}

/// A column of `status -o wide`.
#[derive(Debug)]
pub struct Column {
    /// Its header.
    pub header: &'static str,
    /// The cell for a record, empty if the record has no value.
    pub cell: fn(&Record, Timestamp) -> String,
}

/// The cloud.
pub const PLATFORM: Column =
    Column { header: "PLATFORM", cell: |record, _| record.platform.clone().unwrap_or_default() };

/// The part of the cloud.
pub const REGION: Column = Column { header: "REGION", cell: |record, _| record.region.clone().unwrap_or_default() };

/// How much of the last 30 days a target was asleep.
pub const ASLEEP: Column = Column { header: "ASLEEP-30D", cell: asleep };

fn asleep(record: &Record, now: Timestamp) -> String {
    let Some(history) = &record.sleep_history else { return String::new() };
    let usage = history.usage(Period::last_days(30, now), now);
    let share = percent(usage.asleep, usage.existed);
    share.map(|share| format!("{} ({share}%)", hours(usage.asleep))).unwrap_or_default()
}

/// How large a target is and how far it has come: instances of a cluster, replicas of a workload.
pub const INSTANCES: Column = Column { header: "INSTANCES", cell: |record, _| instances(record) };

/// `4/6 stopped` where the total is known, `2 to stop` where only those that lag behind are known.
fn instances(record: &Record) -> String {
    let (done, to_do) = if record.desired == "Hibernating" { ("stopped", "to stop") } else { ("running", "to start") };
    match (record.instances, record.replicas, &record.recorded_replicas) {
        (Some(Instances { total: Some(total), awaited: 0 }), ..) => total.to_string(),
        (Some(Instances { total: Some(total), awaited }), ..) => {
            format!("{}/{total} {done}", total.saturating_sub(awaited))
        }
        (Some(Instances { total: None, awaited }), ..) => format!("{awaited} {to_do}"),
        (None, Some(0), Some(recorded)) => format!("0 ({recorded} recorded)"),
        (None, Some(replicas), _) => replicas.to_string(),
        (None, None, _) => String::new(),
    }
}

impl TargetKind {
    /// A kind with nothing of its own but how it is read.
    pub const fn plain(kind: Kind, reader: Reader) -> Self {
        Self {
            kind,
            by_default: ByDefault::Never,
            has_schedule: false,
            has_force: false,
            plan: Some(&BY_CHANGE),
            deployed_field: None,
            writes: "",
            rival: None,
            asleep: "asleep",
            awake: "awake",
            columns: &[],
            warnings: |_, _| Vec::new(),
            companion: None,
            elsewhere: None,
            control_plane: None,
            in_rollouts: None,
            in_namespace: false,
            stage: 2,
            is_listed: |_| true,
            reader,
        }
    }
}

impl PartialEq for TargetKind {
    /// Rows are identified by their kind.
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind
    }
}

impl Eq for TargetKind {}

impl TargetKind {
    /// How it sleeps, if it is a row of data, of a kind that an operator runs.
    pub const fn sleep_row(&self) -> Option<&'static SleepRow> {
        match self.reader {
            Reader::Row(row) => Some(row),
            Reader::Code(_) => None,
        }
    }

    /// Why the API server refuses a sleep with this message, if its definition of the kind is too old, and what helps. The
    /// message quotes the whole object first.
    pub fn outdated(&self, message: &str) -> Option<String> {
        let SleepRow { since, .. } = self.sleep_row()?;
        let (_, field) = message.split_once("strict decoding error: ")?;
        let later = if since.is_empty() { String::new() } else { format!(" to {since} or later") };
        let field = sanitize_to(field, MAX_FIELD);
        Some(format!("its definition on the hub is too old: {field}: update its operator{later}"))
    }

    /// Reads an object.
    ///
    /// # Errors
    /// When the object does not match its schema.
    pub fn read<'a>(&self, object: &'a Value) -> Result<Box<dyn Lifecycle + 'a>, TargetError> {
        match self.reader {
            Reader::Code(read) => read(object),
            Reader::Row(row) => Ok(Box::new(RowObject { row, object })),
        }
    }

    /// What an intent needs written to the object.
    ///
    /// # Errors
    /// As [`Lifecycle::change`], and when the object does not match its schema.
    pub fn change(&self, object: &Value, intent: &Intent<'_>) -> Result<Change, TargetError> {
        self.read(object)?.change(intent)
    }

    /// The patch that puts the object to sleep, for a dry run. `None` if the object asks for sleep already, or refuses.
    pub fn trial_patch(&self, object: &Value, end: Option<Timestamp>, now: Timestamp) -> Option<Value> {
        let intent = Intent { power: Power::Hibernating, reason: None, end, now, queried: false, force: false };
        let Ok(Change::Patch { mut patch, .. }) = self.change(object, &intent) else {
            return None;
        };
        // A dry run keeps nothing, so it may run against a newer version of the object.
        if let Some(metadata) = patch.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("resourceVersion");
        }
        Some(patch)
    }

    /// The target's progress.
    ///
    /// # Errors
    /// When the object does not match its schema.
    pub fn progress(&self, object: &Value, action: Power) -> Result<Progress, TargetError> {
        Ok(self.read(object)?.progress(action))
    }

    /// The progress of a check that [`Change::RequestCheck`] requested at this time.
    ///
    /// # Errors
    /// When the object does not match its schema.
    pub fn check_progress(&self, object: &Value, requested: Timestamp) -> Result<Progress, TargetError> {
        Ok(self.read(object)?.check_progress(requested))
    }

    /// What `--wait` says once the target has followed the action.
    pub fn state_after(&self, action: Power) -> &'static str {
        match action {
            Power::Hibernating => self.asleep,
            Power::Running => self.awake,
        }
    }

    /// What `status` shows of the object.
    ///
    /// # Errors
    /// When the object does not match its schema.
    pub fn record(&self, object: &Value) -> Result<Record, TargetError> {
        let target = self.read(object)?;
        let mut record = Record::of(&self.kind, target.view(None));
        if !self.has_schedule {
            // No controller follows these annotations on such a kind.
            (record.wake_at, record.hold_awake_until, record.hold_awake_by) = (None, None, None);
        }
        Ok(target.describe(record))
    }
}

/// Whether an object is protected from sleep: putting it to sleep needs a confirmation.
pub fn is_protected(object: &Value) -> bool {
    protected(annotation(object, keys::PROTECTED))
}

/// A kind that has no power state of its own: `status` shows it in a view of its own, every other command refuses it.
#[derive(Debug, PartialEq, Eq)]
pub struct ShownKind {
    /// Group, versions, names and scope.
    pub kind: Kind,
    /// The word that messages name it by, as in `pool/NAME`.
    pub word: &'static str,
    /// What `status` shows of it.
    pub shows: Shows,
    /// What several objects of it are called.
    pub many: &'static str,
    /// Why it cannot be put to sleep and what to do instead; `{target}` stands for the object.
    pub refusal: &'static str,
    /// Why `status --watch` does not follow it and what to do instead; `None` if it does.
    pub not_watched: Option<&'static str>,
}

/// What `status` shows of a kind without a power state. The crate `view` reads what belongs to the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// The numbers of a pool, and its clusters.
    ClusterPool,
    /// The health of a database, and its suspended process groups.
    FoundationDb,
    /// The progress of a rollout, and its targets.
    Rollout,
    /// The progress of an upgrade, and its clusters.
    Upgrade,
    /// The edges of a schedule.
    Schedule,
}

impl ShownKind {
    /// Why this object cannot be put to sleep.
    pub fn refusal_of(&self, target: &str) -> String {
        self.refusal.replace("{target}", target)
    }

    /// Why its view does not show other targets too.
    pub fn not_together_with(&self, other: &str) -> String {
        format!("{} are shown by themselves, not together with {other:?}", self.many)
    }
}
