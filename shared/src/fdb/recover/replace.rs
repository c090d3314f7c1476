//! Which group goes when one comes back.
//!
//! The operator had made another group in the place of the removed one, and nobody records which. Left alone it would find one
//! group too many after the recovery, and remove the one that has not reported yet: the recovered one.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::{
    super::api::ProcessGroup,
    Facts,
    object::{created_at, deleted_at},
    record::Held,
};
use crate::admission::format;

/// The removal is dated by the operator's clock, a claim by the API server's: so much earlier counts where nobody else is found.
const SKEW: SignedDuration = SignedDuration::from_secs(5);

/// What the user says about replacements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// Find them.
    #[default]
    Find,
    /// These, and no others.
    These(Vec<String>),
    /// None are to go.
    None,
}

/// Groups of one class that have to go, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The class.
    pub class: String,
    /// How many have to go.
    pub need: usize,
    /// Who can have been made for the removed groups, the newest first. The first `need` of them go unless somebody chooses.
    pub candidates: Vec<Candidate>,
}

/// A group that can have been made in the place of a removed one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its ID.
    pub group: String,
    /// When its claim was created.
    pub created: Timestamp,
}

/// Why it cannot be said who goes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplaceError {
    /// There would be too many, and nobody was made for the removed ones.
    #[error(
        "spec.processCounts.{class} is {count}, and with {groups} back there would be {total} {class} groups: the operator would \
         remove one again, probably the recovered one, and none was created since the removal that could go instead. Raise \
         spec.processCounts.{class} to {total}, or name the group that is to go: --replacement ID"
    )]
    TooMany {
        /// The class.
        class: String,
        /// How many the spec asks for.
        count: i64,
        /// How many there would be.
        total: i64,
        /// The groups that come back.
        groups: String,
    },
    /// `--replacement` names a group that does not exist.
    #[error("--replacement {0}: the cluster has no process group of this ID")]
    Unknown(String),
    /// `--replacement` names a group of another class.
    #[error("--replacement {id}: it is of class {class}, and none of the groups to recover is")]
    OtherClass {
        /// The ID.
        id: String,
        /// Its class.
        class: String,
    },
    /// `--replacement` names a group that goes already.
    #[error("--replacement {0}: it is being removed already")]
    Marked(String),
}

impl Choice {
    /// Whether there is more than one way.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.candidates.len() > self.need
    }

    /// Those who go if nobody chooses.
    pub fn newest(&self) -> impl Iterator<Item = &str> {
        self.candidates.iter().take(self.need).map(|candidate| candidate.group.as_str())
    }
}

/// Who has to go for the groups that come back, by class. `taken` are those that go already.
///
/// # Errors
/// When there would be too many and nobody can go, or the named ones cannot be meant.
pub fn choose(
    facts: &Facts<'_>,
    coming: &[Held],
    taken: &[String],
    wanted: &Wanted,
) -> Result<Vec<Choice>, ReplaceError> {
    let mut classes: BTreeMap<&str, Vec<&Held>> = BTreeMap::new();
    for held in coming {
        classes.entry(&held.class).or_default().push(held);
    }
    match wanted {
        Wanted::None => Ok(Vec::new()),
        Wanted::These(ids) => named(facts, &classes, ids),
        Wanted::Find => {
            let choices = classes.iter().map(|(class, groups)| find(facts, class, groups, coming, taken));
            Ok(choices.collect::<Result<Vec<_>, _>>()?.into_iter().filter(|choice| choice.need > 0).collect())
        }
    }
}

/// The class' groups that stay after the recovery: unmarked, not coming back, not going for others.
fn staying<'a>(facts: &Facts<'a>, class: &str, coming: &[Held], taken: &[String]) -> Vec<&'a ProcessGroup> {
    let is_coming = |id: &str| coming.iter().any(|held| held.group == id);
    let leaves = |id: &String| taken.contains(id) || is_coming(id);
    let groups = facts.cluster.groups().iter().filter(|group| group.process_class == class && !group.is_marked());
    let listed = |id: &String| {
        let spec = &facts.cluster.spec;
        spec.process_groups_to_remove.contains(id) || spec.process_groups_to_remove_without_exclusion.contains(id)
    };
    groups.filter(|group| !leaves(&group.process_group_id) && !listed(&group.process_group_id)).collect()
}

/// Those of the groups whose claim was created at this time or later, the newest first. Claims tell the second alone; within
/// one the operator's order counts, for it puts new groups at the end.
fn created_since(facts: &Facts<'_>, groups: &[&ProcessGroup], since: Option<Timestamp>) -> Vec<Candidate> {
    let candidate = |group: &&ProcessGroup| {
        let pod = facts.cluster.pod_name(group)?;
        let claim = facts.claim_of(&group.process_group_id, &pod).filter(|claim| deleted_at(claim).is_none())?;
        let created = created_at(claim)?;
        (created >= since?).then(|| Candidate { group: group.process_group_id.clone(), created })
    };
    let mut candidates: Vec<Candidate> = groups.iter().rev().filter_map(candidate).collect();
    candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.created));
    candidates
}

fn find(
    facts: &Facts<'_>,
    class: &str,
    groups: &[&Held],
    coming: &[Held],
    taken: &[String],
) -> Result<Choice, ReplaceError> {
    let removal = groups.iter().filter_map(|held| format::time(held.removal.as_deref()?)).min();
    let staying = staying(facts, class, coming, taken);
    let since = |skew| created_since(facts, &staying, removal.and_then(|removal| removal.checked_sub(skew).ok()));
    let total = i64::try_from(staying.len() + groups.len()).unwrap_or(i64::MAX);
    let asked = facts.cluster.spec.process_counts.get(class).copied().filter(|count| *count != 0);
    let wanted = if let Some(count) = asked {
        // The operator reads a negative count as none at all.
        usize::try_from(total - count.max(0)).unwrap_or_default()
    } else {
        // The operator works the count out from the database's configuration; it has replaced what it removed.
        let of_class = |id: &&String| facts.cluster.group(id).is_some_and(|group| group.process_class == class);
        groups.len().saturating_sub(taken.iter().filter(of_class).count())
    };
    let exact = since(SignedDuration::ZERO);
    let candidates = if exact.len() < wanted { since(SKEW) } else { exact };
    let need = match asked.map(|count| count.max(0)) {
        Some(count) if wanted > candidates.len() => {
            let groups = groups.iter().map(|held| held.group.as_str()).collect::<Vec<_>>().join(", ");
            return Err(ReplaceError::TooMany { class: class.to_owned(), count, total, groups });
        }
        _ => wanted.min(candidates.len()),
    };
    Ok(Choice { class: class.to_owned(), need, candidates })
}

fn named(facts: &Facts<'_>, classes: &BTreeMap<&str, Vec<&Held>>, ids: &[String]) -> Result<Vec<Choice>, ReplaceError> {
    let mut choices: BTreeMap<&str, Choice> = BTreeMap::new();
    for id in ids.iter().collect::<BTreeSet<_>>() {
        let group = facts.cluster.group(id).ok_or_else(|| ReplaceError::Unknown(id.clone()))?;
        let class = group.process_class.as_str();
        if !classes.contains_key(class) {
            return Err(ReplaceError::OtherClass { id: id.clone(), class: class.to_owned() });
        }
        if group.is_marked() || classes.values().flatten().any(|held| held.group == *id) {
            return Err(ReplaceError::Marked(id.clone()));
        }
        let choice =
            choices.entry(class).or_insert_with(|| Choice { class: class.to_owned(), need: 0, candidates: Vec::new() });
        choice.need += 1;
        choice.candidates.push(Candidate { group: id.clone(), created: facts.now });
    }
    Ok(choices.into_values().collect())
}
