//! The controller's decision about one `FoundationDBCluster`: what to stamp, what to release, whom to wake, what to
//! clear.
//!
//! Total, deterministic and idempotent: same facts, same plan; once a plan is carried out, the next one has nothing to
//! do until time passes or something changes. Everything that has to outlive this process stands on the held objects.
//!
//! | # | an object of a process group that is not being deleted itself | action |
//! |---|---|---|
//! | D1 | its group is being recovered, and the hold is younger than the window and than 10 min (than 10 min, if the group is not marked) | none |
//! | D2 | its group is not marked (any more), and it carries a stamp | the stamp is cleared |
//! | D3 | its group is not in the status | none: what it carries holds |
//! | D4 | its group is marked, but not excluded, or a Pod of it is there and not terminating | none |
//! | D5 | it carries no stamp, or one of another removal, and suspension is on | stamped: held from now on |
//! | D6 | its stamp cannot be read, and suspension is on | stamped again; what can be read of it stays |
//! | D7 | it says that it is held since a time that lies more than a minute ahead | held from now on |
//! | D8 | its recovery was given up: its hold is as old as the window | an ordinary stamp again, with the same age |
//! | D9 | its stamp is of this removal, and its window runs | none; if more is in force than was recorded, that is recorded |
//! | D10 | its window has passed, and it is its turn (see [`turn`]) | released, together with all objects of its group |
//! | D11 | it was released some time ago and still exists | wake the operator, with backoff |

mod facts;
mod plan;
mod stamp;
mod turn;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::annotation::format;
use crate::duration::age;
use crate::fdb::admission::Kind;
use crate::fdb::api::ProcessGroup;

pub use facts::{Facts, Held, Pod, Turn};
use plan::Group;
pub use plan::{Action, Change, Plan};
use stamp::{Inspection, inspect};

/// How often to check a group whose Pod is not deleted yet, at first.
const POD_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Decides.
pub fn decide(facts: &Facts<'_>) -> Plan {
    let mut plan = Plan::default();
    let mut due: BTreeMap<&str, Group> = BTreeMap::new();
    let mut released: BTreeMap<&str, Group> = BTreeMap::new();
    let mut early: BTreeSet<&str> = BTreeSet::new();
    let mut held: BTreeSet<&str> = BTreeSet::new();
    for (index, object) in facts.objects.iter().enumerate().filter(|(_, object)| !object.deleting) {
        let Some(id) = object.group.as_deref() else { continue };
        let group = facts.cluster.group(id);
        let seen = inspect(facts, object, group);
        if seen.holds() && held.insert(id) {
            plan.held += 1;
        }
        if seen.holds() && object.kind == Kind::Pvc {
            plan.held_bytes += object.bytes;
        }
        match seen {
            Inspection::Nothing => {}
            Inspection::PodIsThere => plan.requeue_in(pod_pause(group, facts.now)),
            Inspection::Runs { until } => {
                early.insert(id);
                if let Some(until) = until {
                    plan.requeue_at(until, facts.now);
                }
            }
            Inspection::Clear => plan.act(index, Change::Clear),
            Inspection::ClearsAt(at) => plan.requeue_at(at, facts.now),
            Inspection::Stamp { since, record } => {
                early.insert(id);
                plan.requeue_in(Duration::ZERO); // the next pass checks the window of the new stamp
                plan.act(index, Change::Stamp(since, Box::new(record)));
            }
            Inspection::Due { since } => join(&mut due, id, index, facts.zone(object, group), since),
            Inspection::Released { at } => join(&mut released, id, index, facts.zone(object, group), at),
        }
    }
    due.retain(|id, _| !early.contains(id)); // a group goes as a whole
    plan.released = released.len();
    turn::take(facts, &due, &released, &mut plan);
    turn::wake(facts, &released, &mut plan);
    plan
}

fn join<'a>(groups: &mut BTreeMap<&'a str, Group>, id: &'a str, object: usize, zone: String, since: Timestamp) {
    let group = groups.entry(id).or_insert_with(|| Group { objects: vec![], zone, since });
    group.objects.push(object);
    group.since = group.since.max(since);
}

/// As long again as the group has been excluded for: its Pod may stay for days, because somebody has isolated it.
fn pod_pause(group: Option<&ProcessGroup>, now: Timestamp) -> Duration {
    let moment = |group: &ProcessGroup| {
        let text = group.exclusion_timestamp.as_deref().or(group.removal_timestamp.as_deref());
        text.and_then(format::time)
    };
    let excluded_for = group.and_then(moment).map_or(Duration::ZERO, |since| age(since, now));
    excluded_for.max(POD_POLL_INTERVAL)
}

/// Whether a cluster needs a reconcile: something of it is being removed.
pub fn concerns(groups: &[ProcessGroup]) -> bool {
    groups.iter().any(|group| group.is_marked() && group.is_excluded())
}

#[cfg(test)]
mod tests;
