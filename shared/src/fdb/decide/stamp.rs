//! Rows D1 to D9: what one object of a process group needs.

use jiff::{SignedDuration, Timestamp};

use super::facts::{Facts, Held};
use crate::duration::{after, parse_unsigned};
use crate::fdb::admission::Kind;
use crate::fdb::api::{FoundationDBCluster, ProcessGroup};
use crate::fdb::suspension::{
    LISTED, LISTED_WITHOUT_EXCLUSION, Minimum, OPERATOR, RECOVERY_KEEPS, SKEW, Stamp, Suspension,
};

/// What is to be done about one object.
#[derive(Debug)]
pub(super) enum Inspection {
    /// Nothing, and it is not held by us.
    Nothing,
    /// Its Pod has yet to go.
    PodIsThere,
    /// Held; the window ends then, if it ends at all.
    Runs { until: Option<Timestamp> },
    /// The stamp has to go.
    Clear,
    /// The stamp has to go at that time.
    ClearsAt(Timestamp),
    /// It has to be stamped.
    Stamp { since: Timestamp, record: Suspension },
    /// The window ended then.
    Due { since: Timestamp },
    /// Released then.
    Released { at: Timestamp },
}

impl Inspection {
    /// Whether the object counts as held.
    pub(super) fn holds(&self) -> bool {
        matches!(self, Self::Runs { .. } | Self::Stamp { .. } | Self::Due { .. } | Self::ClearsAt(_))
    }
}

pub(super) fn inspect(facts: &Facts<'_>, object: &Held, group: Option<&ProcessGroup>) -> Inspection {
    let stamp = &object.stamp;
    let Some(group) = group else {
        return if stamp.present { Inspection::Runs { until: None } } else { Inspection::Nothing }; // D3
    };
    if !group.is_marked() {
        return unmarked(facts, stamp);
    }
    if !group.is_excluded() || facts.has_pod(&group.process_group_id) {
        let waits = group.is_excluded() && (!facts.minimum.is_off() || stamp.present);
        return if waits { Inspection::PodIsThere } else { Inspection::Nothing }; // D4
    }
    if object.kind == Kind::Service && !(group.is_stateful() && facts.cluster.has_services()) {
        return Inspection::Nothing; // the webhook lets these go
    }
    marked(facts, object, group)
}

/// D1 and D2.
fn unmarked(facts: &Facts<'_>, stamp: &Stamp) -> Inspection {
    if !stamp.present {
        return Inspection::Nothing;
    }
    let since = stamp.since.filter(|since| stamp.is_recovery() && !is_ahead(*since, facts.now));
    match since.map(|since| after(since, RECOVERY_KEEPS)) {
        Some(ends) if facts.now < ends => Inspection::ClearsAt(ends), // D1
        _ => Inspection::Clear,                                       // D2
    }
}

/// D1 and D5 to D10.
fn marked(facts: &Facts<'_>, object: &Held, group: &ProcessGroup) -> Inspection {
    let (now, stamp) = (facts.now, &object.stamp);
    let removal = group.removal_timestamp.as_deref();
    let fresh = |since| Inspection::Stamp { since, record: record(facts, object, group) };
    let Some(record) = &stamp.record else {
        return match stamp.since {
            _ if facts.minimum.is_off() && stamp.present => Inspection::Runs { until: None }, // it never means off
            _ if facts.minimum.is_off() => Inspection::Nothing,
            Some(since) if !is_ahead(since, now) => fresh(since), // D6
            _ => fresh(now),                                      // D5, D6, D7
        };
    };
    let until = stamp.until(&facts.minimum);
    if stamp.is_recovery() && stamp.since.is_some_and(|since| !is_ahead(since, now)) {
        let until = until.map(|until| until.max(after(stamp.since.unwrap_or(now), RECOVERY_KEEPS)));
        if until.is_none_or(|until| now < until) {
            return Inspection::Runs { until }; // D1
        }
    }
    if !record.is_of(removal) {
        return if facts.minimum.is_off() { Inspection::Clear } else { fresh(now) }; // D2, D5
    }
    let mut kept = Suspension { why: why(facts.cluster, group), ..record.clone() };
    let grows = grows(record, &facts.minimum);
    if grows {
        kept.minimum = facts.minimum.text();
    }
    match stamp.since {
        None => Inspection::Stamp { since: now, record: kept }, // D6
        Some(since) if is_ahead(since, now) => Inspection::Stamp { since: now, record: kept }, // D7
        Some(since) if stamp.is_recovery() => Inspection::Stamp { since, record: kept }, // D8
        Some(since) if grows && stamp.released.is_none() => Inspection::Stamp { since, record: kept }, // D9
        Some(_) => match (stamp.released, until) {
            (Some(at), _) => Inspection::Released { at },
            (None, Some(until)) if until <= now => Inspection::Due { since: until }, // D10
            (None, until) => Inspection::Runs { until },                             // D9
        },
    }
}

/// Whether more is in force by now than was promised when the stamp was written. It is promised from now on.
fn grows(record: &Suspension, in_force: &Minimum) -> bool {
    let recorded = parse_unsigned(&record.minimum).ok();
    matches!((recorded, in_force), (Some(recorded), Minimum::For(now)) if recorded < *now)
}

/// Whether a moment lies further ahead than clocks differ.
fn is_ahead(moment: Timestamp, now: Timestamp) -> bool {
    SignedDuration::try_from(SKEW).is_ok_and(|skew| moment.duration_since(now) > skew)
}

/// What is recorded of a group that is held from now on.
fn record(facts: &Facts<'_>, object: &Held, group: &ProcessGroup) -> Suspension {
    Suspension {
        uid: object.uid.clone(),
        group: group.process_group_id.clone(),
        removal: group.removal_timestamp.clone(),
        minimum: facts.minimum.text(),
        class: group.process_class.clone(),
        fault_domain: group.fault_domain.clone(),
        addresses: group.addresses.clone(),
        why: why(facts.cluster, group),
    }
}

/// What the removal goes back to.
fn why(cluster: &FoundationDBCluster, group: &ProcessGroup) -> String {
    let listed = |list: &[String]| list.iter().any(|id| *id == group.process_group_id || id == "*");
    let why = match &cluster.spec {
        spec if listed(&spec.process_groups_to_remove) => LISTED,
        spec if listed(&spec.process_groups_to_remove_without_exclusion) => LISTED_WITHOUT_EXCLUSION,
        _ => OPERATOR,
    };
    why.to_owned()
}
