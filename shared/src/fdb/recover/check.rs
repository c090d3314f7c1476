//! Whether what was asked for can be done at all: nothing is changed before this says yes.

use crate::annotation::{annotation, format, keys};
use crate::fdb::api::{ProcessGroup, RESOURCES_TERMINATING};
use crate::fdb::suspension::Stamp;
use crate::object::{name_of, named};
use crate::record::RecordError;
use crate::text::quoted;
use jiff::Timestamp;
use kube::ResourceExt;

use super::HELD_MINUTES;
use super::facts::{Facts, deleted_at, uid, volume};
use super::presence::{claim_is_there, is_left_excluded, pod_obstacle};
use super::record::{GroupRecord, Record};
use super::replace::{self, Choice, ReplaceError, ReplacementMode};

/// What a recovery will do, before anybody was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goal {
    /// Who comes back; the replacements of an earlier run are in it, those of this one are to be chosen.
    pub record: Record,
    /// Who is to go for it.
    pub choices: Vec<Choice>,
    /// Groups that another or an interrupted recovery has begun with: this run finishes them, too.
    pub unfinished: Vec<String>,
    /// Groups that were brought back before, with the time.
    pub recovered: Vec<(String, String)>,
    /// Another client has the operator skip the cluster: the volumes can be held, and no more.
    pub skipped: bool,
}

/// A cluster, as commands for people name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub namespace: String,
    pub name: String,
}

/// Why a recovery is not begun.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{cluster} has no process group {id:?}; {known}")]
    Unknown { cluster: String, id: String, known: String },
    #[error("{id} is not suspended: it is not marked for removal, and {state}")]
    NotMarked { id: String, state: String },
    #[error(
        "{id} is not suspended yet: it is marked for removal{excluded}, and its Pod {pod} still runs. The operator removes a marked \
         group even without its ID in spec.processGroupsToRemove: wait until status shows it as suspended, then run this again"
    )]
    PodRuns { id: String, pod: String, excluded: &'static str },
    #[error("{id} has nothing to bring back: process groups of class {class} have no volume")]
    Stateless { id: String, class: String },
    #[error("{id}: too late: its PersistentVolumeClaim does not exist any more{since}")]
    Gone { id: String, since: String },
    #[error("{id}: too late: its PersistentVolumeClaim {claim} was deleted at {since}; {volume}")]
    Going { id: String, claim: String, since: String, volume: String },
    #[error(
        "{id} goes in exchange for {groups}, whose recovery is not finished: run this with -c {cluster} and no group first, then name it"
    )]
    InExchange { id: String, groups: String, cluster: String },
    #[error("{0} is not an ID that the operator gives (PREFIX-CLASS-NUMBER): cannot derive its Pod and volume from it")]
    OddId(String),
    #[error("{}", skipped(.place, *.held))]
    Skipped { place: Place, held: bool },
    #[error("{cluster}: annotation {key} cannot be read: {why}. {}", way_out(*.why))]
    Unreadable { cluster: String, key: &'static str, why: RecordError },
    #[error("{cluster} has been terminating since {since}: its groups cannot be recovered")]
    Deleted { cluster: String, since: String },
    #[error(transparent)]
    Replace(#[from] ReplaceError),
}

fn skipped(Place { namespace, name }: &Place, held: bool) -> String {
    let held = if held {
        format!("The volumes are held for {HELD_MINUTES} minutes at least")
    } else {
        "A run without --dry-run holds the volumes first, and only then is this safe".to_owned()
    };
    format!(
        "{name}: spec.skip is true, and no recovery set it, so the operator ignores the cluster. {held}: when the other work is done, set \
         it to false (kubectl -n {} patch fdb {} --type merge -p '{{\"spec\":{{\"skip\":false}}}}'), and run this command again at once; \
         while the other work goes on, run this command again to hold them longer",
        quoted(namespace),
        quoted(name)
    )
}

fn way_out(why: RecordError) -> &'static str {
    match why {
        RecordError::Version(_) => {
            "A recovery is unfinished: finish it with the release of kubectl-hibernate that began it, and leave the annotation and spec.skip \
             as they are"
        }
        _ => "It was probably edited by hand: remove it, and set spec.skip to false",
    }
}

/// The groups that are suspended: marked, with a volume, and without a Pod that runs.
pub fn suspended<'a>(facts: &Facts<'a>) -> Vec<&'a ProcessGroup> {
    let groups = facts.cluster.groups().iter();
    groups.filter(|group| group.is_marked() && group.is_stateful() && state(facts, group).is_ok()).collect()
}

/// What is to be done for these IDs, and for those of an earlier run that did not finish.
///
/// # Errors
/// When one of them cannot be brought back: then none is.
pub fn check(facts: &Facts<'_>, ids: &[String], wanted: &ReplacementMode) -> Result<Goal, Vec<Refusal>> {
    let name = facts.cluster.name_any();
    if let Some(since) = &facts.cluster.metadata.deletion_timestamp {
        return Err(vec![Refusal::Deleted { cluster: name, since: format::seconds(since.0) }]);
    }
    let recorded = match Record::of(facts.cluster) {
        Ok(recorded) => recorded,
        Err(why) => return Err(vec![Refusal::Unreadable { cluster: name, key: keys::RECOVERY, why }]),
    };
    let earlier =
        recorded.clone().map(|record| facts.unfinished(record, &ids.iter().map(String::as_str).collect::<Vec<_>>()));
    let skipped = facts.is_skipped() && !earlier.as_ref().is_some_and(|earlier| earlier.skipped);
    let fresh_start = Record { since: format::seconds(facts.now), ..Record::default() };
    let mut record = earlier.unwrap_or(fresh_start);
    let unfinished = record.groups.iter().map(|held| held.group.clone()).filter(|id| !ids.contains(id)).collect();
    let (mut coming, mut recovered, mut refusals) = (Vec::new(), Vec::new(), Vec::new());
    for id in ids.iter().filter(|id| !record.has(id)) {
        if record.replacements.contains(id) {
            let groups = record.ids().join(", ");
            refusals.push(Refusal::InExchange { id: id.clone(), groups, cluster: name.clone() });
            continue;
        }
        match held(facts, id) {
            Ok(GroupState::Coming(held)) if !coming.contains(&held) => coming.push(held),
            Ok(GroupState::Coming(_)) => {}
            Ok(GroupState::Recovered(at)) => recovered.push((id.clone(), at)),
            Err(refusal) => refusals.push(refusal),
        }
    }
    if !refusals.is_empty() {
        return Err(refusals);
    }
    let mut choices = Vec::new();
    if !skipped {
        date(facts, recorded.as_ref(), &mut coming);
        choices = replace::decide(facts, &record, ids, &coming, wanted).map_err(|error| vec![error.into()])?;
        if *wanted != ReplacementMode::Find {
            replace::leave_alone(facts, &record, &mut coming, &choices);
        }
    }
    record.groups.extend(coming);
    Ok(Goal { record, choices, unfinished, recovered, skipped })
}

/// Dates the removals by the record of a recovery that the operator has taken back: its new mark is younger than the
/// replacements. A group that the spec lists was removed once more, by a user.
fn date(facts: &Facts<'_>, recorded: Option<&Record>, coming: &mut [GroupRecord]) {
    for held in coming.iter_mut().filter(|held| !facts.cluster.lists_for_removal(&held.group)) {
        let before = recorded.iter().flat_map(|record| &record.groups).find(|one| one.group == held.group);
        if let Some(before) = before.filter(|before| before.claim == held.claim && held.removal.is_some()) {
            held.first_removal = before.removed_at().map(ToOwned::to_owned);
        }
    }
}

enum GroupState {
    /// Suspended, or back without the database knowing it.
    Coming(GroupRecord),
    /// Brought back at this time.
    Recovered(String),
}

fn held(facts: &Facts<'_>, id: &str) -> Result<GroupState, Refusal> {
    let Some(group) = facts.cluster.group(id) else {
        return Err(Refusal::Unknown { cluster: facts.cluster.name_any(), id: id.to_owned(), known: known(facts) });
    };
    if !group.is_stateful() {
        return Err(Refusal::Stateless { id: id.to_owned(), class: group.process_class.clone() });
    }
    if group.is_marked() {
        return state(facts, group).map(GroupState::Coming);
    }
    let Some(pod) = facts.cluster.pod_name(group) else { return Err(Refusal::OddId(id.to_owned())) };
    let claim = facts.claim_of(id, &pod);
    let held = GroupRecord::new(group, pod, claim.map(uid).unwrap_or_default());
    let missing = pod_obstacle(facts, &held);
    // A run that was interrupted before it cleared the stamps.
    let is_unfinished = claim.is_some_and(|claim| deleted_at(claim).is_none() && Stamp::of(claim).is_recovery());
    match claim.and_then(|claim| annotation(claim, keys::RECOVERED_AT)) {
        _ if missing.is_none() && is_unfinished => Ok(GroupState::Coming(held)),
        // The `include` did not run: that is what is left of the recovery.
        // One that the spec removes again is excluded for that.
        Some(_) if missing.is_none() && is_left_excluded(facts, group) && claim_is_there(facts, &held).is_ok() => {
            Ok(GroupState::Coming(held))
        }
        Some(at) if missing.is_none() => Ok(GroupState::Recovered(at.to_owned())),
        _ => {
            let state = missing.map_or_else(|| "its Pod runs".to_owned(), |missing| missing.what);
            Err(Refusal::NotMarked { id: id.to_owned(), state })
        }
    }
}

/// A marked group, if it can be brought back.
fn state(facts: &Facts<'_>, group: &ProcessGroup) -> Result<GroupRecord, Refusal> {
    let id = group.process_group_id.clone();
    let Some(pod) = facts.cluster.pod_name(group) else { return Err(Refusal::OddId(id)) };
    let Some(claim) = facts.claim_of(&id, &pod) else {
        let since = group.condition(RESOURCES_TERMINATING);
        let since = since.and_then(|since| Timestamp::from_second(since.timestamp).ok());
        let since = since.map(|at| format!("; the operator began to delete its resources at {}", format::seconds(at)));
        return Err(Refusal::Gone { id, since: since.unwrap_or_default() });
    };
    if let Some(since) = deleted_at(claim) {
        let (claim_name, since, volume) = (name_of(claim).to_owned(), since.to_owned(), volume(claim));
        return Err(Refusal::Going { id, claim: claim_name, since, volume });
    }
    if named(facts.pods, &pod).is_some_and(|pod| deleted_at(pod).is_none()) {
        let excluded = if group.is_excluded() { " and excluded" } else { "" };
        return Err(Refusal::PodRuns { id, pod, excluded });
    }
    Ok(GroupRecord::new(group, pod, uid(claim)))
}

/// `suspended groups: storage-1, storage-2`.
fn known(facts: &Facts<'_>) -> String {
    let suspended: Vec<&str> = suspended(facts).iter().map(|group| group.process_group_id.as_str()).collect();
    match suspended.as_slice() {
        [] => "none of its groups is suspended".to_owned(),
        ids => format!("suspended groups: {}", ids.join(", ")),
    }
}
