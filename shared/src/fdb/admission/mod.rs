//! Admission: no volume and no Service of a removed process group goes before its time.
//!
//! The operator marks, excludes and deletes within half a second, so that a cache which says "not marked" proves
//! nothing. A deletion is therefore judged from the object itself; the cache may only say that there is nothing to
//! guard, and only while it is fresh. The first row that applies decides. Nobody is exempt: garbage collector and
//! operator are who deletes.
//!
//! | # | the object that is deleted, and its cluster | answer |
//! |---|---|---|
//! | S1 | has no `FoundationDBCluster` among its owners | allowed (does not reach the webhook) |
//! | S2 | is being deleted already | allowed: nothing brings it back |
//! | S3 | carries `hibernate.sh/release` with its own UID | allowed: a human's key |
//! | S4 | the clusters are not known, or not heard of lately | **denied**, data first |
//! | S5 | none of its owners (by uid) exists | allowed: deletion of the cluster or of its namespace |
//! | S6 | its owner is being deleted | allowed |
//! | S7 | suspension is off for the cluster, and it carries no stamp | allowed |
//! | S8 | is a Service, but of no process group, or of a class without a volume | allowed |
//! | S9 | is a Service, and `spec.routing.publicIPSource` is not `service` any more | allowed |
//! | S10 | its group is being recovered | **denied** |
//! | S11 | was released for this removal, or for one of a group that the status does not know (any more) | allowed |
//! | S12 | was released for another removal, or its group is not marked | **denied** |
//! | S13 | is stamped | **denied** until the controller releases it |
//! | S14 | carries no stamp (yet) | **denied** |
//! | unreadable | before S5: its owners cannot all be read; before S7: its cluster cannot; before S8: another field cannot | **denied** |
//!
//! A cluster's deletion needs no look at its namespace: the cluster has no finalizer, so it is gone before its volumes
//! are asked for a second time.
//!
//! Rules for the cluster itself:
//!
//! | # | annotation `hibernate.sh/minimum-suspension` | answer |
//! |---|---|---|
//! | M1 | is set or altered, and is no duration | denied |
//! | M2 | is shortened, set to 0 or removed | warning: what is held stays as long as it was promised |

mod cluster;
mod known;
mod message;
mod object;

use crate::admission::{Denial, Evaluation, Fault, Finding, UNREADABLE, annotation_field};
use crate::annotation::keys;

pub use cluster::{Annotated, judge_cluster};
pub use known::{CacheState, Cluster};
pub use object::{Deleted, Kind};

use super::suspension::Stamp;

/// S1 in CEL: a `FoundationDBCluster` is among the owners of what is deleted, one by one or with its collection.
pub const OWNED_BY_FDB: &str = "has(oldObject.metadata.ownerReferences) && oldObject.metadata.ownerReferences.exists(o, o.kind == 'FoundationDBCluster' && o.apiVersion.startsWith('apps.foundationdb.org/'))";

/// What a row of the table says.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may go.
    Allow(&'static str),
    /// It must stay, because of this.
    Deny(&'static str, String),
}

/// Judges the deletion of a volume or a Service.
pub fn judge_deletion(kind: Kind, object: &Deleted, cache: &CacheState<'_>) -> Evaluation {
    match judge(kind, object, cache) {
        Verdict::Allow(_) => Evaluation::default(),
        Verdict::Deny(row, message) => Evaluation { denials: vec![denial(row, message)], ..Evaluation::default() },
    }
}

/// The denial of an object that cannot even be read.
pub fn unreadable(why: &str) -> Evaluation {
    let message = format!("the object cannot be decoded, so its deletion is denied: {why}");
    Evaluation { denials: vec![denial(UNREADABLE, message)], ..Evaluation::default() }
}

fn denial(row: &'static str, message: String) -> Finding<Denial> {
    Finding { row, detail: Denial { fault: Fault::Forbidden, field: annotation_field(keys::RELEASED_AT), message } }
}

/// The table, from top to bottom.
pub fn judge(kind: Kind, object: &Deleted, cache: &CacheState<'_>) -> Verdict {
    if object.owners().next().is_none() && !object.hides_its_owners() {
        return Verdict::Allow("S1");
    }
    if object.metadata.deletion_timestamp.is_some() {
        return Verdict::Allow("S2");
    }
    let stamp = Stamp::read(&object.metadata.uid, |key| object.metadata.annotations.get(key));
    if stamp.key {
        return Verdict::Allow("S3");
    }
    let clusters = match cache {
        CacheState::Stale(why) => return Verdict::Deny("S4", message::stale(kind, object, &stamp, why)),
        CacheState::Fresh(clusters) => clusters,
    };
    if object.hides_its_owners() {
        return undecided(kind, object);
    }
    let mut owners = object.owners().filter_map(|owner| clusters.get(&owner.uid));
    let Some(cluster) = owners.next() else {
        return Verdict::Allow("S5");
    };
    if cluster.deleting {
        return Verdict::Allow("S6");
    }
    if let Some(why) = &cluster.unreadable {
        let why = format!("FoundationDBCluster {}/{} cannot be read: {why}", cluster.namespace, cluster.name);
        return Verdict::Deny(UNREADABLE, message::undecided(kind, object, &why));
    }
    if cluster.minimum.is_off() && !stamp.present {
        return Verdict::Allow("S7");
    }
    if !object.unread.is_empty() {
        return undecided(kind, object);
    }
    let group = cluster.group_of(object);
    if kind == Kind::Service {
        if group.is_none() || !cluster.holds_class_of(object) {
            return Verdict::Allow("S8");
        }
        if !cluster.has_services {
            return Verdict::Allow("S9");
        }
    }
    held(kind, object, cluster, group, &stamp)
}

/// What cannot be read decides.
fn undecided(kind: Kind, object: &Deleted) -> Verdict {
    let fields = object.unread.iter().map(|field| field.denial().detail.to_string()).collect::<Vec<_>>().join("; ");
    Verdict::Deny(UNREADABLE, message::undecided(kind, object, &fields))
}

/// Rows S10 to S14: there is something to guard, and only the object itself can say that it may go.
fn held(kind: Kind, object: &Deleted, cluster: &Cluster, group: Option<&str>, stamp: &Stamp) -> Verdict {
    let detail = message::Held { kind, object, cluster, group };
    if stamp.is_recovery() {
        return Verdict::Deny("S10", detail.recovering(stamp));
    }
    if !stamp.present {
        return Verdict::Deny("S14", detail.unstamped());
    }
    let record = stamp.record.as_ref().filter(|record| group.is_none_or(|group| record.group == group));
    let Some(record) = record.filter(|_| stamp.released.is_some()) else {
        return Verdict::Deny("S13", detail.stamped(stamp));
    };
    match cluster.removal_of(&record.group) {
        None => Verdict::Allow("S11"),
        Some(removal) if removal.is_some() && stamp.is_released_for(removal) => Verdict::Allow("S11"),
        Some(removal) => Verdict::Deny("S12", detail.released_for_another(stamp, record, removal)),
    }
}

#[cfg(test)]
mod tests;
