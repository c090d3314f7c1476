//! Which group goes when one comes back.
//!
//! The operator had created another group in place of the removed one, and records no relation. Left alone it would
//! find one group too many after the recovery, and remove the one that has not reported yet: the recovered one.

use std::collections::{BTreeMap, BTreeSet};

use crate::annotation::format;
use crate::fdb::api::ProcessGroup;
use jiff::{SignedDuration, Timestamp};

use super::facts::{Facts, created_at, deleted_at};
use super::record::{GroupRecord, Record};

/// The removal is dated by the operator's clock, a claim by the API server's: so much earlier counts where nobody else
/// is found.
const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(5);

/// What the user says about replacements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReplacementMode {
    #[default]
    Find,
    /// These, and no others.
    These(Vec<String>),
    None,
}

/// Groups of one class that have to go, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    pub class: String,
    pub need: usize,
    /// Groups that may replace the removed ones, the newest first. The first `need` of them go unless the user chooses.
    pub candidates: Vec<Candidate>,
    /// Whether `--replacement` named them.
    pub named: bool,
}

/// A group that can have been made in the place of a removed one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub group: String,
    /// When its claim was created.
    pub created: Timestamp,
}

/// Why it cannot be said who goes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplaceError {
    #[error(
        "spec.processCounts.{class} is {count}; with {groups} recovered there are {total} {class} groups. The operator would remove \
         one, probably the recovered one, because no group was created since the removal. Raise spec.processCounts.{class} to \
         {total}, or pass --replacement ID"
    )]
    TooMany { class: String, count: i64, total: i64, groups: String },
    #[error("--replacement {0}: the cluster has no process group of this ID")]
    Unknown(String),
    #[error("--replacement {id}: it is of class {class}, and none of the groups to recover is")]
    OtherClass { id: String, class: String },
    #[error("--replacement {0}: it is being removed already")]
    Marked(String),
    #[error("--replacement {0}: an earlier run already removes it in exchange for another group")]
    Taken(String),
    #[error("--replacement {0}: no group is left to recover in exchange for it")]
    Idle(String),
    #[error(
        "--replacement {requested}: the recovery of {groups} was begun at {since} with {recorded} to go in exchange{ordered}. It is \
         finished as it was begun: run this again without --replacement"
    )]
    Recorded { requested: String, groups: String, since: String, recorded: String, ordered: &'static str },
}

impl Choice {
    /// Whether there is more than one way.
    pub fn is_open(&self) -> bool {
        self.candidates.len() > self.need
    }

    /// Those that go unless the user chooses.
    pub fn newest(&self) -> impl Iterator<Item = &str> {
        self.candidates.iter().take(self.need).map(|candidate| candidate.group.as_str())
    }
}

/// Who has to go for the groups that this run begins with. `record` is what an earlier one has left, and for its groups
/// it was decided then; `ids` are all that were requested for. Of those that come, only the removed ones need somebody to
/// go.
///
/// # Errors
/// When what was decided is to be changed, a named one cannot be meant, or there would be too many and nobody can go.
pub(super) fn decide(
    facts: &Facts<'_>,
    record: &Record,
    ids: &[String],
    coming: &[GroupRecord],
    wanted: &ReplacementMode,
) -> Result<Vec<Choice>, ReplaceError> {
    let named: &[String] = match wanted {
        ReplacementMode::These(ids) => ids,
        ReplacementMode::Find | ReplacementMode::None => &[],
    };
    let (taken, other): (Vec<&String>, Vec<&String>) = named.iter().partition(|id| record.replacements.contains(id));
    let again = record.groups.iter().filter(|held| ids.contains(&held.group)).count();
    let begins = coming.iter().any(|held| held.removal.is_some());
    // One that has gone by now is unknown to the cluster alone, and after the last step to everybody.
    let gone = facts.record().map(|record| record.replacements).unwrap_or_default();
    let unknown = named.iter().find(|id| facts.cluster.group(id).is_none() && !gone.contains(id));
    if let Some(id) = unknown.filter(|_| begins || again > 0) {
        return Err(ReplaceError::Unknown(id.clone()));
    }
    if again > 0 && *wanted != ReplacementMode::Find {
        let left_out = record.replacements.iter().any(|id| !named.contains(id));
        // Who names some of those that go means those of the groups that are requested for, which may not be all.
        let all = *wanted == ReplacementMode::None || again == record.groups.len();
        let more = !other.is_empty();
        if left_out && (all || more) || more && !begins {
            return Err(recorded(facts, record, named));
        }
    }
    if !begins {
        let is_marked = |id: &str| facts.cluster.group(id).is_none_or(ProcessGroup::is_marked);
        let stays = other.iter().find(|id| !is_marked(id) && !facts.cluster.lists_for_removal(id));
        return stays.map_or(Ok(Vec::new()), |id| Err(ReplaceError::Idle((*id).clone())));
    }
    if let Some(id) = taken.first().filter(|_| again == 0) {
        return Err(ReplaceError::Taken((*id).clone()));
    }
    let all = [record.groups.as_slice(), coming].concat();
    match wanted {
        ReplacementMode::None => Ok(Vec::new()),
        ReplacementMode::These(_) => these(facts, coming, &all, &other),
        ReplacementMode::Find => find(facts, &all, &record.replacements),
    }
}

fn recorded(facts: &Facts<'_>, record: &Record, named: &[String]) -> ReplaceError {
    let list = |ids: &[String], nobody: &str| if ids.is_empty() { nobody.to_owned() } else { ids.join(", ") };
    let listed = record.replacements.iter().any(|id| facts.cluster.lists_for_removal(id));
    ReplaceError::Recorded {
        requested: list(named, "none"),
        groups: record.ids().join(", "),
        since: record.since.clone(),
        recorded: list(&record.replacements, "nobody"),
        ordered: if listed { ", as spec.processGroupsToRemove says by now" } else { "" },
    }
}

/// The choices of a user who names who goes.
fn these(
    facts: &Facts<'_>,
    coming: &[GroupRecord],
    all: &[GroupRecord],
    ids: &[&String],
) -> Result<Vec<Choice>, ReplaceError> {
    // Groups that only lack the `include` need no exchange.
    let removed = |class: &str| coming.iter().any(|held| held.class == class && held.removal.is_some());
    let mut groups = ids.iter().filter_map(|id| facts.cluster.group(id));
    if let Some(group) = groups.find(|group| !removed(&group.process_class)) {
        let (id, class) = (group.process_group_id.clone(), group.process_class.clone());
        return Err(ReplaceError::OtherClass { id, class });
    }
    let mut choices: BTreeMap<&str, Choice> = BTreeMap::new();
    for &id in ids.iter().collect::<BTreeSet<_>>() {
        let group = facts.cluster.group(id).ok_or_else(|| ReplaceError::Unknown(id.clone()))?;
        if group.is_marked() || all.iter().any(|held| held.group == *id) {
            return Err(ReplaceError::Marked(id.clone()));
        }
        let class = group.process_class.as_str();
        let new = || Choice { class: class.to_owned(), named: true, ..Choice::default() };
        let choice = choices.entry(class).or_insert_with(new);
        choice.need += 1;
        choice.candidates.push(Candidate { group: id.clone(), created: facts.now });
    }
    Ok(choices.into_values().collect())
}

/// Who has to go for the groups that come back, by class. `taken` are those that go already.
fn find(facts: &Facts<'_>, coming: &[GroupRecord], taken: &[String]) -> Result<Vec<Choice>, ReplaceError> {
    let mut choices = Vec::new();
    for (class, groups) in removed_by_class(coming) {
        let Surplus { count, candidates, requested } = surplus(facts, class, &groups, coming, taken);
        if let Some((count, total)) = requested.filter(|_| count > candidates.len()) {
            let groups = groups.iter().map(|held| held.group.as_str()).collect::<Vec<_>>().join(", ");
            return Err(ReplaceError::TooMany { class: class.to_owned(), count, total, groups });
        }
        let need = count.min(candidates.len());
        if need > 0 {
            choices.push(Choice { class: class.to_owned(), need, candidates, named: false });
        }
    }
    Ok(choices)
}

/// Groups by class, without classes of which none was removed.
fn removed_by_class(groups: &[GroupRecord]) -> BTreeMap<&str, Vec<&GroupRecord>> {
    let mut classes: BTreeMap<&str, Vec<&GroupRecord>> = BTreeMap::new();
    for held in groups {
        classes.entry(&held.class).or_default().push(held);
    }
    classes.retain(|_, groups| groups.iter().any(|held| held.removal.is_some()));
    classes
}

/// How many groups of a class are too many once its groups are back, and which can go.
struct Surplus {
    count: usize,
    candidates: Vec<Candidate>,
    /// `spec.processCounts` of the class, and how many groups there would be.
    requested: Option<(i64, i64)>,
}

fn surplus(
    facts: &Facts<'_>,
    class: &str,
    groups: &[&GroupRecord],
    coming: &[GroupRecord],
    taken: &[String],
) -> Surplus {
    let removal = groups.iter().filter_map(|held| format::time(held.removed_at()?)).min();
    let staying = staying(facts, class, coming, taken);
    let since = |skew| created_since(facts, &staying, removal.and_then(|removal| removal.checked_sub(skew).ok()));
    let total = i64::try_from(staying.len() + groups.len()).unwrap_or(i64::MAX);
    let alone = groups.iter().filter(|held| held.alone).count();
    // The operator reads a negative count as none at all.
    let count = facts.cluster.spec.process_counts.get(class).copied().filter(|count| *count != 0);
    let requested = count.map(|count| (count.max(0), total));
    // The operator works a count that is not given out from the database's configuration; it has replaced what it
    // removed.
    let replaced = || groups.iter().filter(|held| held.removal.is_some() && !held.alone).count();
    let count = match requested {
        Some((requested, total)) => usize::try_from(total - requested).unwrap_or_default().saturating_sub(alone),
        None => replaced().saturating_sub(taken.iter().filter(|id| is_of_class(facts, id, class)).count()),
    };
    let exact = since(SignedDuration::ZERO);
    let candidates = if exact.len() < count { since(MAX_CLOCK_SKEW) } else { exact };
    Surplus { count, candidates, requested }
}

/// The class' groups that stay after the recovery: unmarked, not coming back, not going for others.
fn staying<'a>(facts: &Facts<'a>, class: &str, coming: &[GroupRecord], taken: &[String]) -> Vec<&'a ProcessGroup> {
    let leaves = |id: &String| taken.contains(id) || coming.iter().any(|held| held.group == *id);
    let groups = facts.cluster.groups().iter().filter(|group| group.process_class == class && !group.is_marked());
    let is_staying = |id: &String| !leaves(id) && !facts.cluster.lists_for_removal(id);
    groups.filter(|group| is_staying(&group.process_group_id)).collect()
}

/// Those of the groups whose claim was created at this time or later, the newest first. Claims tell the second alone;
/// within one the highest ID is first, so that every run finds the same order.
fn created_since(facts: &Facts<'_>, groups: &[&ProcessGroup], since: Option<Timestamp>) -> Vec<Candidate> {
    let candidate = |group: &&ProcessGroup| {
        let pod = facts.cluster.pod_name(group)?;
        let claim = facts.claim_of(&group.process_group_id, &pod).filter(|claim| deleted_at(claim).is_none())?;
        let created = created_at(claim)?;
        (created >= since?).then(|| Candidate { group: group.process_group_id.clone(), created })
    };
    let mut candidates: Vec<Candidate> = groups.iter().filter_map(candidate).collect();
    candidates.sort_by(|one, other| (other.created, &other.group).cmp(&(one.created, &one.group)));
    candidates
}

/// Whether a group is of a class. One that is gone tells it by its ID alone: `PREFIX-CLASS-NUMBER`.
fn is_of_class(facts: &Facts<'_>, id: &str, class: &str) -> bool {
    if let Some(group) = facts.cluster.group(id) {
        return group.process_class == class;
    }
    let before = id.rsplit_once('-').map_or("", |(before, _)| before);
    before == class || before.strip_suffix(class).is_some_and(|prefix| prefix.ends_with('-'))
}

/// Marks as many of the groups that come back as would be too many with the groups that `--replacement` names: nothing
/// goes for them.
pub(super) fn leave_alone(facts: &Facts<'_>, record: &Record, coming: &mut [GroupRecord], choices: &[Choice]) {
    let all = [record.groups.as_slice(), coming].concat();
    let named = choices.iter().flat_map(Choice::newest).map(ToOwned::to_owned);
    let taken: Vec<String> = record.replacements.iter().cloned().chain(named).collect();
    for (class, groups) in removed_by_class(&all) {
        let excess = surplus(facts, class, &groups, &all, &taken).count;
        let removed = coming.iter_mut().filter(|held| held.class == class && held.removal.is_some());
        removed.take(excess).for_each(|held| held.alone = true);
    }
}

impl Record {
    /// This record with the groups that still have to go. It is computed for every step: another recovery may have
    /// taken the group that this one would choose, and the operator may have created groups since.
    pub(super) fn completed(&self, facts: &Facts<'_>) -> Self {
        let mut record = self.clone();
        for (class, groups) in removed_by_class(&self.groups) {
            let found = surplus(facts, class, &groups, &self.groups, &self.replacements);
            record.replacements.extend(found.candidates.into_iter().take(found.count).map(|one| one.group));
        }
        record.replacements.sort();
        record
    }
}
