//! Whether a group can still come back, and what it lacks until it is back.

use shared::annotation::annotation;
use shared::fdb::api::{MARKED_AS_EXCLUDED, MISSING_POD, MISSING_PROCESSES, POD_FAILING, POD_PENDING, ProcessGroup};

use super::HELD_MINUTES;
use super::facts::Facts;
use super::object::{self, created_at, deleted_at, name, uid};
use super::record::{Held, Record, is_listed};

/// What the operator notes on a claim: a hash of the template that it was made from.
const LAST_SPEC: &str = "foundationdb.org/last-applied-spec";

/// What a group lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// ID of the process group.
    pub group: String,
    /// Its Pod.
    pub pod: String,
    /// In words.
    pub what: String,
    /// Whether its Pod runs and nothing but a pass of the operator is awaited.
    pub is_up: bool,
}

/// Why a recovery cannot be finished.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unrecoverable {
    /// The volume has gone in the middle of it.
    #[error("{group}: its PersistentVolumeClaim was deleted during the recovery, and the data is lost")]
    NoClaim { group: String },
    /// The volume is going.
    #[error("{group}: PersistentVolumeClaim {claim} was deleted at {since} during the recovery; {volume}")]
    ClaimGoing { group: String, claim: String, since: String, volume: String },
    /// Another volume has its name by now.
    #[error(
        "{group}: PersistentVolumeClaim {claim} is not the one that was held (uid {found}, not {wanted}): the old data is gone"
    )]
    OtherClaim { group: String, claim: String, wanted: String, found: String },
    /// Nothing to copy a Service from.
    #[error(
        "{group}: it has no Service {service}, and there is no Service of another Pod to copy. If spec.routing.publicIPSource was set to service \
         since the removal, wait until the operator has created those of the other Pods, and run this again; else create Service {service} by \
         hand, without which the operator cannot create any Pod of the cluster"
    )]
    NoSibling { group: String, service: String },
    /// Another client has set `spec.skip`.
    #[error(
        "another client set spec.skip to true during the recovery. The volumes are held for {} minutes at least: run this command again to \
         hold them longer, or set spec.skip to false and run it at once",
        HELD_MINUTES
    )]
    ForeignSkip,
}

impl Unrecoverable {
    /// The group whose volume is lost, if that is why. Others can come back nevertheless.
    pub fn group(&self) -> Option<&str> {
        match self {
            Self::NoClaim { group } | Self::ClaimGoing { group, .. } | Self::OtherClaim { group, .. } => Some(group),
            Self::NoSibling { .. } | Self::ForeignSkip => None,
        }
    }
}

/// Whether the volume that a group held is still its volume.
pub(super) fn claim_is_there(facts: &Facts<'_>, held: &Held) -> Result<(), Unrecoverable> {
    let group = held.group.clone();
    let Some(object) = facts.claim_of(&held.group, &held.pod) else { return Err(Unrecoverable::NoClaim { group }) };
    let claim = name(object).to_owned();
    if uid(object) != held.claim {
        let (wanted, found) = (held.claim.clone(), uid(object).to_owned());
        return Err(Unrecoverable::OtherClaim { group, claim, wanted, found });
    }
    let Some(since) = deleted_at(object).map(ToOwned::to_owned) else { return Ok(()) };
    Err(Unrecoverable::ClaimGoing { group, claim, since, volume: object::volume(object) })
}

/// R10: what a group lacks to run on its old volume; none if nothing.
pub fn lacks(facts: &Facts<'_>, held: &Held) -> Option<Missing> {
    let what = match facts.pod(&held.pod) {
        None => "the operator has not created its Pod yet".to_owned(),
        Some(pod) if deleted_at(pod).is_some() => "its old Pod is still terminating".to_owned(),
        Some(pod) => {
            let claim = facts.claim_of(&held.group, &held.pod).map(name).unwrap_or_default();
            match object::phase(pod) {
                _ if !object::mounts(pod, claim) => format!("its Pod does not mount PersistentVolumeClaim {claim}"),
                "Running" => return None,
                phase => match object::why_not_running(pod) {
                    Some(why) => format!("its Pod is {phase}: {why}"),
                    None => format!("its Pod is {phase}"),
                },
            }
        }
    };
    Some(Missing { group: held.group.clone(), pod: held.pod.clone(), what, is_up: false })
}

/// R11: what the operator's status still reports against a group whose Pod runs; none if its process takes part in the
/// database. `include` is whether the recovery includes it.
pub(super) fn unreported(facts: &Facts<'_>, held: &Held, include: bool) -> Option<Missing> {
    let group = facts.cluster.group(&held.group);
    let has = |type_: &str| group.is_some_and(|group| group.condition(type_).is_some());
    // What is still excluded needs an `include` first, and a pass after it.
    let is_up = held.included || !has(MARKED_AS_EXCLUDED);
    let what = if group.is_none() {
        "the operator's status does not list it".to_owned()
    } else if let Some(type_) =
        [MISSING_PROCESSES, MISSING_POD, POD_PENDING, POD_FAILING].into_iter().find(|type_| has(type_))
    {
        format!("its Pod runs, and the operator's status does not show its process yet ({type_})")
    } else if include && has(MARKED_AS_EXCLUDED) {
        format!("the operator's status shows it as excluded in the database ({MARKED_AS_EXCLUDED})")
    } else {
        return None;
    };
    Some(Missing { group: held.group.clone(), pod: held.pod.clone(), what, is_up })
}

/// Whether a group that stays is excluded in the database, by the operator's status: a removal excludes for itself.
pub fn is_left_excluded(facts: &Facts<'_>, group: &ProcessGroup) -> bool {
    let excluded = group.condition(MARKED_AS_EXCLUDED).is_some();
    excluded && !group.is_marked() && !is_listed(facts.cluster, &group.process_group_id)
}

/// Says which groups the spec removes once more although their recovery has let the operator go on: another client has
/// listed them since.
pub fn removed_again(facts: &Facts<'_>) -> Option<String> {
    let record = facts.record().filter(|record| !record.skipped && facts.cluster.spec.skip != Some(true))?;
    let again: Vec<String> =
        record.groups.into_iter().map(|held| held.group).filter(|id| is_listed(facts.cluster, id)).collect();
    let again = Some(again.join(", ")).filter(|again| !again.is_empty())?;
    Some(format!(
        "{again}: another client has listed it for removal again since its recovery began; it is taken off the list once more. To remove it \
         nevertheless, list it again when this command has ended"
    ))
}

/// Marked groups that the operator replaces once they are back, because the spec has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{groups}: {why}")]
pub struct Outdated {
    /// Their IDs.
    pub groups: String,
    /// What is different about them.
    pub why: &'static str,
    /// The field that has changed.
    pub field: &'static str,
}

/// Marked groups of another `processGroupIDPrefix`, or else those whose claim was made from another template than the
/// newest claim of their class.
pub fn outdated(facts: &Facts<'_>, record: &Record) -> Option<Outdated> {
    let prefix = facts.cluster.spec.process_group_id_prefix.as_deref().filter(|prefix| !prefix.is_empty());
    let has_other_prefix = |held: &&Held| {
        let named = held.group.rsplit_once('-').map_or("", |(named, _)| named);
        named.strip_suffix(&held.class).is_none_or(|own| own.strip_suffix('-').unwrap_or(own) != prefix.unwrap_or(""))
    };
    let template = |claim| annotation(claim, LAST_SPEC);
    let has_other_template = |held: &&Held| {
        let class = facts.cluster.groups().iter().filter(|group| group.process_class == held.class);
        let claims = class.flat_map(|group| facts.claims_of(&group.process_group_id));
        let newest = claims.max_by_key(|claim| created_at(claim)).and_then(template);
        let own = facts.claim_of(&held.group, &held.pod).and_then(template);
        own.is_some() && newest.is_some() && own != newest
    };
    let is_marked = |held: &&Held| facts.cluster.group(&held.group).is_some_and(ProcessGroup::is_marked);
    let marked = record.groups.iter().filter(is_marked);
    let found = |is: &dyn Fn(&&Held) -> bool, why, field| {
        let groups: Vec<&str> = marked.clone().filter(is).map(|held| held.group.as_str()).collect();
        (!groups.is_empty()).then(|| Outdated { groups: groups.join(", "), why, field })
    };
    let template = "the newest volume of its class was created from a different volumeClaimTemplate";
    found(&has_other_prefix, "spec.processGroupIDPrefix is not that of its ID", "spec.processGroupIDPrefix")
        .or_else(|| found(&has_other_template, template, "spec.processes"))
}
