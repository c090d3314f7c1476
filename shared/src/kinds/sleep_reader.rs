//! The one reader of kinds that are rows of data.
//!
//! | # | asked | as it is | record | answer |
//! |---|---|---|---|---|
//! | O1 | sleep | awake | any | the switches are set, what was there is recorded |
//! | O2 | sleep | awake, protected or an obstacle | any | refused |
//! | O3 | sleep | asked to sleep | none | nothing: others did it, and a wake leaves it |
//! | O4 | sleep | asked to sleep | ours | nothing |
//! | O5 | sleep | stopped by itself, where objects do that | any | nothing, for the same reason |
//! | O6 | wake | asked to sleep | ours | what was there is restored, the record removed |
//! | O7 | wake | asked to sleep | none | nothing for one of many; an error for one that is named |
//! | O8 | wake | asked to sleep | malformed, or out of range | error that names the annotation |
//! | O9 | wake | asked to sleep, by others since | ours | left as it is, the record removed |
//! | O10 | wake | awake | none | nothing: it is awake |
//! | O11 | wake | awake | any | the stale record is removed |
//! | O12 | wake | asked in part: others took back some of what our sleep set | ours | what was there is restored for the rest, the record removed |
//! | O13 | sleep | the same | ours | the switches are set, what was there before the first sleep stays recorded |
//!
//! Patches carry the resourceVersion, and record and switches are one patch.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::lifecycle::{Change, HubFacts, HubFindings, Intent, Lifecycle, Progress, REFUSED, TargetError};
use super::record::Record;
use super::sleep_row::{At, Obstacle, Phase, Scalar, Seen, SleepRow, State, Switch, Test};
use super::view::{Observed, StepRecord, View};
use crate::admission::Settings;
use crate::annotation::{annotation, keys, protected};
use crate::finding::Finding;
use crate::object::{items, put};
use crate::power::Power;
use crate::read::{self, Limits};
use crate::text::sanitize_to;
use crate::workload::ownership::{last_status_write, our_last_write, stale_record};
use crate::workload::replicas::{ReplicasError, guarded, reason_change};

/// Most characters of a record: a few short values.
const MAX_RECORD: usize = 1_024;
/// Characters that a message shows of what an operator or a record says.
const MAX_TEXT: usize = 200;
/// Codes of findings.
const STAYS: &str = "StaysBilled";
const LOSES: &str = "Loses";

/// An object of a kind that is a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowObject<'a> {
    pub(crate) row: &'static SleepRow,
    pub(crate) object: &'a Value,
}

impl RowObject<'_> {
    fn value(&self, at: &str) -> &Value {
        self.object.pointer(at).unwrap_or(&Value::Null)
    }

    /// The switches that this object has.
    fn switches(&self) -> impl Iterator<Item = &'static Switch> {
        self.row.switches.iter().filter(|switch| !switch.only_present || !self.value(switch.at).is_null())
    }

    /// The switches by which it is asked to sleep: all of them, or, where others took back some, those that our sleep set
    /// and that are still set. Where the record says nothing that can be read, all that are set.
    fn asking(&self) -> Vec<&'static Switch> {
        let mut set: Vec<&'static Switch> = self.switches().collect();
        let all = set.len();
        set.retain(|one| one.is_set(self.value(one.at)));
        if !set.is_empty() && set.len() < all {
            match self.recorded() {
                None => set.clear(),
                Some(Ok(before)) => set.retain(|one| before.get(one.at).is_some_and(|before| !one.is_set(before))),
                Some(Err(_)) => {}
            }
        }
        set
    }

    /// Whether it is asked to sleep.
    fn is_asked(&self) -> bool {
        !self.asking().is_empty()
    }

    fn at(&self, at: At) -> &Value {
        match at {
            At::Field(pointer) => self.value(pointer),
            At::Condition(kind, member) => self.member("/status/conditions", kind, member),
            At::Constraint(kind, member) => self.member("/status/constraints", kind, member),
        }
    }

    fn member(&self, list: &str, kind: &str, member: &str) -> &Value {
        let found = items(self.object, list).find(|one| one["type"] == *kind);
        found.and_then(|one| one.get(member)).unwrap_or(&Value::Null)
    }

    fn holds(&self, test: Test) -> bool {
        let number = |at: At, absent: u64| self.at(at).as_u64().unwrap_or(absent);
        match test {
            Test::Is(at, words) => self.at(at).as_str().is_some_and(|found| words.contains(&found)),
            Test::Begins(at, text) => self.at(at).as_str().is_some_and(|found| found.starts_with(text)),
            Test::IsTrue(at) => *self.at(at) == true,
            Test::Present(at) => !self.at(at).is_null(),
            Test::Absent(at) => self.at(at).is_null(),
            Test::Zero(at) => number(at, 0) == 0,
            Test::AtLeast(at, wanted) => number(at, 0) >= number(wanted, 1),
            Test::AllZero(list, member) => {
                items(self.object, list).all(|one| one[member].as_u64().unwrap_or_default() == 0)
            }
            Test::AllAtLeast((list, member), (wanted, of)) => items(self.object, wanted).all(|one| {
                let found = items(self.object, list).find(|other| other["name"] == one["name"]);
                let found = found.and_then(|found| found[member].as_u64()).unwrap_or_default();
                found >= one[of].as_u64().unwrap_or(1)
            }),
            Test::Asked(sleeps) => self.is_asked() == sleeps,
        }
    }

    /// What is observed, and what the operator says of it. None while nothing matches, or the status is about an older spec.
    fn observed(&self) -> Option<(Phase, Option<String>)> {
        let is_seen = match self.row.seen {
            Seen::Nowhere => true,
            Seen::Generation(at) => {
                let seen = self.value(at);
                let seen = seen.as_u64().or_else(|| seen.as_str()?.parse().ok()).unwrap_or_default();
                seen >= self.value("/metadata/generation").as_u64().unwrap_or_default()
            }
            Seen::ByTime => our_last_write(self.object) <= last_status_write(self.object),
        };
        let matches = |state: &&State| state.when.iter().all(|test| self.holds(*test));
        let state = self.row.states.iter().find(matches).filter(|_| is_seen)?;
        let text = state.text.and_then(|at| self.at(at).as_str()).filter(|text| !text.is_empty());
        Some((state.is, text.map(|text| sanitize_to(text, MAX_TEXT))))
    }

    /// What was there before the sleep, by place.
    fn recorded(&self) -> Option<Result<Map<String, Value>, String>> {
        let text = annotation(self.object, keys::BEFORE)?;
        let checked = || {
            if text.len() > MAX_RECORD {
                return Err("it is too long".to_owned());
            }
            let found = read::text::<Map<String, Value>>(text, &Limits::answer(text.len()))
                .map_err(|_| "it is no JSON object of places and values".to_owned())?
                .value;
            for (place, value) in &found {
                match self.row.switches.iter().find(|switch| switch.at == place) {
                    None => return Err(format!("found {:?}, which no sleep writes", sanitize_to(place, MAX_TEXT))),
                    Some(switch) if !switch.range.has(value) => {
                        let value = sanitize_to(&value.to_string(), MAX_TEXT);
                        return Err(format!("found {value} for {place}, must be {} or null", switch.range.words()));
                    }
                    Some(_) => {}
                }
            }
            Ok(found)
        };
        Some(checked())
    }

    /// Whether others have set one of these since the record was written, and who wrote the record.
    fn stale(&self, switches: &[&Switch]) -> Option<String> {
        switches.iter().find_map(|switch| stale_record(self.object, keys::BEFORE, &switch.managed()))
    }

    fn unreadable(&self, why: &str) -> TargetError {
        TargetError::Impossible(format!(
            "annotation {}: {why}: correct it, or remove it and wake the object by hand, by {}",
            keys::BEFORE,
            self.by_hand()
        ))
    }

    /// What a wake restores after a sleep that sets these switches. What our last sleep set, and nobody since, counts as it
    /// was before that.
    fn before(&self, switches: &[&Switch], asking: &[&Switch]) -> Result<Map<String, Value>, TargetError> {
        let recorded = if asking.is_empty() || self.stale(asking).is_some() { None } else { self.recorded() };
        let recorded = recorded.transpose().map_err(|why| self.unreadable(&why))?.unwrap_or_default(); // O8, O13
        let mut before = Map::new();
        for switch in switches {
            let now = self.value(switch.at);
            let value = recorded.get(switch.at).filter(|_| switch.is_set(now)).unwrap_or(now);
            if !switch.range.has(value) {
                let (value, words) = (sanitize_to(&value.to_string(), MAX_TEXT), switch.range.words());
                return Err(TargetError::Refused(format!("{}: found {value}, a sleep needs {words}", switch.at)));
            }
            before.insert(switch.at.to_owned(), value.clone());
        }
        if json!(before).to_string().len() > MAX_RECORD {
            return Err(TargetError::Refused(format!(
                "what was there before takes more than {MAX_RECORD} characters, which no wake would read"
            )));
        }
        Ok(before)
    }

    fn patch(&self, intent: &Intent<'_>, record: Option<&Map<String, Value>>, set: &[(&str, Value)]) -> Value {
        let mut annotations = reason_change(self.object, intent.reason);
        annotations.insert(keys::BEFORE.to_owned(), json!(record.map(|record| json!(record).to_string())));
        // They name who made the request before this one. A rollout stamps its own.
        let stamps = [keys::REQUESTED_BY, keys::REQUESTED_AT];
        let stale = stamps.into_iter().filter(|key| annotation(self.object, key).is_some());
        annotations.extend(stale.map(|key| (key.to_owned(), Value::Null)));
        let mut patch = guarded(self.object, &annotations, None);
        for (at, value) in set {
            put(&mut patch, at, value.clone());
        }
        patch
    }

    /// A place above this one that holds something else than an object: a merge patch would replace it.
    fn not_an_object<'p>(&self, at: &'p str) -> Option<&'p str> {
        let above = at.match_indices('/').skip(1).map(|(end, _)| &at[..end]);
        above.into_iter().find(|place| !matches!(self.value(place), Value::Null | Value::Object(_)))
    }

    fn obstacles(&self) -> impl Iterator<Item = &'static Obstacle> {
        self.row.obstacles.iter().filter(|obstacle| obstacle.when.iter().all(|test| self.holds(*test)))
    }

    fn sleep(&self, intent: &Intent<'_>) -> Result<Change, TargetError> {
        let none = |message: &str| Ok(Change::None { message: message.to_owned(), will_reach: true });
        let (switches, asking): (Vec<&Switch>, _) = (self.switches().collect(), self.asking());
        if !asking.is_empty() && asking.len() == switches.len() {
            let is_ours = self.recorded().is_some();
            return none(if is_ours { "unchanged" } else { "unchanged (asleep already: a resume leaves it so)" }); // O4, O3
        }
        if self.row.may_stop && asking.is_empty() && matches!(self.observed(), Some((Phase::Asleep, _))) {
            return none("unchanged (it does not run: a resume leaves it so)"); // O5
        }
        if protected(annotation(self.object, keys::PROTECTED)) {
            return Err(TargetError::Refused(ReplicasError::Protected.to_string())); // O2
        }
        if let Some(obstacle) = self.obstacles().find(|obstacle| obstacle.refuses) {
            return Err(TargetError::Refused(obstacle.says.to_owned())); // O2
        }
        if switches.is_empty() {
            let places: Vec<&str> = self.row.switches.iter().map(|switch| switch.at).collect();
            return Err(TargetError::Impossible(format!(
                "it has none of {}: nothing says how it runs",
                places.join(", ")
            )));
        }
        if let Some(at) = switches.iter().find_map(|switch| self.not_an_object(switch.at)) {
            return Err(TargetError::Refused(format!("{at}: found no object, so that nothing can be set in it")));
        }
        let before = self.before(&switches, &asking)?;
        let set: Vec<(&str, Value)> =
            switches.iter().map(|switch| (switch.at, switch.asleep.value(intent.now))).collect();
        let patch = self.patch(intent, Some(&before), &set);
        let warnings = self.obstacles().map(|obstacle| obstacle.says).chain(self.row.loses);
        Ok(Change::Patch {
            patch,
            message: "hibernation requested".to_owned(),
            warnings: warnings.map(str::to_owned).collect(),
        }) // O1
    }

    fn wake(&self, intent: &Intent<'_>) -> Result<Change, TargetError> {
        let write = |set: &[(&str, Value)], message: String| {
            Ok(Change::Patch { patch: self.patch(intent, None, set), message, warnings: Vec::new() })
        };
        let asking = self.asking();
        match (!asking.is_empty(), self.recorded()) {
            (false, None) => Ok(Change::None { message: "unchanged".to_owned(), will_reach: true }), // O10
            (false, Some(_)) => write(&[], "already awake, stale record removed".to_owned()),        // O11
            (true, None) if intent.queried => {
                Ok(Change::None { message: "left asleep (nothing recorded)".to_owned(), will_reach: false }) // O7
            }
            (true, None) => Err(TargetError::Impossible(format!(
                "it is asleep and no annotation {} says what was there before: wake it by hand, by {}",
                keys::BEFORE,
                self.by_hand()
            ))), // O7
            (true, Some(Err(why))) => Err(self.unreadable(&why)), // O8
            (true, Some(Ok(before))) => {
                if let Some(by) = self.stale(&asking) {
                    return write(&[], format!("left asleep: others have set it since ({by})")); // O9
                }
                // Not what others have set to something else.
                let set = self.row.switches.iter().filter(|one| one.is_set(self.value(one.at)));
                let before = set.filter_map(|one| Some((one.at, before.get(one.at)?.clone())));
                let cleared = self.row.clears.iter().map(|at| (*at, Value::Null));
                write(&before.chain(cleared).collect::<Vec<_>>(), "resume requested".to_owned()) // O6, O12
            }
        }
    }

    /// How a person wakes it.
    fn by_hand(&self) -> String {
        let of = |switch: &Switch| match switch.absent {
            Scalar::None | Scalar::Now => format!("removing {}", switch.at),
            value => format!("setting {} to {}", switch.at, value.value(Timestamp::UNIX_EPOCH)),
        };
        self.switches().map(of).collect::<Vec<_>>().join(" and ")
    }
}

impl Lifecycle for RowObject<'_> {
    fn view(&self, _: Option<&Settings>) -> View {
        let power = if self.is_asked() { Power::Hibernating } else { Power::Running };
        let (phase, text) = self.observed().unzip();
        let state = match (phase, power) {
            (Some(Phase::Asleep), Power::Hibernating) => "Hibernating",
            // What a wake has left behind, or what does not run by itself.
            (Some(Phase::Asleep), Power::Running) if self.row.may_stop => "Stopped",
            (Some(Phase::Asleep | Phase::Waking), _) => "Starting",
            (Some(Phase::Awake), Power::Running) => "Running",
            (Some(Phase::Awake | Phase::FallingAsleep), _) => "Stopping",
            (Some(Phase::Waits), _) => "Waiting",
            (Some(Phase::Failed), _) => "Failed",
            (None, _) if self.row.states.is_empty() && power == Power::Hibernating => "Hibernating",
            (None, _) if self.row.states.is_empty() => "Running",
            (None, _) => "",
        };
        let failed = phase == Some(Phase::Failed);
        let step = text.flatten().map(|text| StepRecord { failed, ..StepRecord::waiting(text) });
        let written = our_last_write(self.object);
        let settled: Option<Power> = state.parse().ok();
        let observed = Observed {
            power: settled.map(|power| (power, written.unwrap_or(Timestamp::UNIX_EPOCH))),
            state: state.to_owned(),
            since: written.filter(|_| power == Power::Hibernating),
            step: step.filter(|_| settled.is_none()),
            ..Observed::default()
        };
        let mut view = View { observed, ..View::of_value(self.object, power) };
        // A rollout is not to claim what it would not change.
        let unchanged = |wanted| {
            let now = Timestamp::UNIX_EPOCH;
            let intent = Intent { power: wanted, reason: None, end: None, now, queried: true, force: false };
            match self.change(&intent) {
                Err(error) => Some(error.to_string()),
                Ok(Change::None { message, .. }) if wanted != power => Some(message),
                Ok(_) => None,
            }
        };
        (view.obstacles.refused, view.obstacles.no_wake) = (unchanged(Power::Hibernating), unchanged(Power::Running));
        view
    }

    fn change(&self, intent: &Intent<'_>) -> Result<Change, TargetError> {
        match intent.power {
            Power::Hibernating => self.sleep(intent),
            Power::Running => self.wake(intent),
        }
    }

    fn findings(&self, facts: HubFacts<'_>) -> HubFindings {
        let sleeps = !self.is_asked();
        let power = if sleeps { Power::Hibernating } else { Power::Running };
        let intent = Intent { power, reason: None, end: None, now: facts.now, queried: true, force: false };
        let mut found = HubFindings::default();
        if let Err(error) = self.change(&intent) {
            found.judged.push(Finding::block(REFUSED, error.to_string()));
        }
        if sleeps {
            let warned = self.obstacles().filter(|one| !one.refuses).map(|one| one.says).chain(self.row.loses);
            found.others.extend(warned.map(|text| Finding::warn(LOSES, text)));
            found.others.push(Finding::info(STAYS, self.row.stays));
        }
        found
    }

    fn progress(&self, action: Power) -> Progress {
        if self.object.pointer("/metadata/deletionTimestamp").is_some() {
            return Progress::Failed("it is being deleted".to_owned());
        }
        if self.is_asked() != (action == Power::Hibernating) {
            return Progress::Failed(format!(
                "another client has since requested {}",
                if self.is_asked() { "a sleep" } else { "a wake" }
            ));
        }
        if self.row.states.is_empty() {
            return Progress::Reached;
        }
        let unnoticed = || Progress::InProgress(format!("no sign of the operator yet: {}", self.row.may_wait));
        let Some((phase, text)) = self.observed() else { return unnoticed() };
        let text = |what: &str| text.clone().unwrap_or_else(|| what.to_owned());
        match (phase, action) {
            (Phase::Asleep, Power::Hibernating) | (Phase::Awake, Power::Running) => Progress::Reached,
            (Phase::Asleep, Power::Running) | (Phase::Awake, Power::Hibernating) => unnoticed(),
            (Phase::FallingAsleep, _) => Progress::InProgress(text("stopping")),
            (Phase::Waking, _) => Progress::InProgress(text("starting")),
            (Phase::Waits, _) => Progress::InProgress(text(self.row.may_wait)),
            (Phase::Failed, _) => Progress::Failed(text("its operator reports a failure")),
        }
    }

    fn describe(&self, mut record: Record) -> Record {
        record.more.extend(
            annotation(self.object, keys::BEFORE).map(|text| ("recordedBefore", json!(sanitize_to(text, MAX_RECORD)))),
        );
        record
    }
}
