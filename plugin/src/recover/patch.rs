//! The edits, as patches. JSON patches begin with a `test` of the resourceVersion that was read: a failed one answers
//! 422.

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};
use shared::annotation::{annotation, format, keys};
use shared::duration::go_string;
use shared::fdb::admission::Kind as Kept;
use shared::fdb::api::{FoundationDBCluster, MISSING_POD, MISSING_PROCESSES, RESOURCES_TERMINATING};
use shared::fdb::suspension::{Minimum, RECOVERY, STAMP, Stamp, Suspension, moment, no_annotations};
use shared::record::Format;

use super::facts::Facts;
use super::object::{name, uid, version};
use super::record::{Held, Record};

/// An object to be patched, and the JSON merge patch for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Edit {
    /// What it is.
    pub kind: Kept,
    /// Its name.
    pub name: String,
    /// A merge patch of our annotations with the resourceVersion that was read.
    pub patch: Value,
}

/// Shortest hold for a recovery, whatever the cluster says.
const MIN_HOLD: std::time::Duration = std::time::Duration::from_hours(1);

/// R1: suspended now, for a recovery, with no release of anybody.
pub(super) fn hold(kind: Kept, object: &Value, facts: &Facts<'_>, held: &Held) -> Edit {
    let stamp = Stamp::of(object);
    let in_force = facts.cluster.annotations().get(keys::MINIMUM_SUSPENSION).map(String::as_str);
    let minimum = stamp.window(&Minimum::of(in_force, MIN_HOLD)).map_or(MIN_HOLD, |window| window.max(MIN_HOLD));
    let record = Suspension {
        uid: uid(object).to_owned(),
        group: held.group.clone(),
        removal: held.removal.clone(),
        minimum: go_string(minimum),
        class: held.class.clone(),
        fault_domain: held.fault_domain.clone(),
        addresses: held.addresses.clone(),
        why: RECOVERY.to_owned(),
    };
    let mut annotations = record.annotations(facts.now);
    annotations[keys::RELEASE] = Value::Null;
    edit(kind, object, &annotations)
}

/// R12: our stamps off; on the claim it stays written when it was brought back, also where the controller has taken the
/// stamps off. None if there is nothing to change.
pub(super) fn clear(kind: Kept, object: &Value, record: &Record, now: Timestamp) -> Option<Edit> {
    let recovered = annotation(object, keys::RECOVERED_AT).and_then(format::time);
    let is_noted = kind == Kept::Service || recovered >= format::time(&record.since);
    if is_noted && STAMP.iter().all(|key| annotation(object, key).is_none()) {
        return None;
    }
    let mut annotations = no_annotations();
    if kind == Kept::Pvc {
        annotations[keys::RECOVERED_AT] = format::seconds(now).into();
    }
    Some(edit(kind, object, &annotations))
}

/// R12: on the claim of a group that goes in exchange, which removal that is. None if it is written already.
pub(super) fn exchanged(claim: &Value, removal: &str) -> Option<Edit> {
    let is_written = annotation(claim, keys::EXCHANGED_AT) == Some(removal);
    (!is_written).then(|| edit(Kept::Pvc, claim, &json!({ keys::EXCHANGED_AT: removal })))
}

/// R11: a change of the claim that wakes the operator.
pub(super) fn wake(claim: &Value, now: Timestamp) -> Edit {
    edit(Kept::Pvc, claim, &json!({ keys::WOKEN_AT: moment(now) }))
}

fn edit(kind: Kept, object: &Value, annotations: &Value) -> Edit {
    let patch = json!({ "metadata": { "resourceVersion": version(object), "annotations": annotations } });
    Edit { kind, name: name(object).to_owned(), patch }
}

/// R2: the operator is to skip the cluster, and who is brought back is written beside it.
pub(super) fn skip(cluster: &FoundationDBCluster, record: &Record) -> Value {
    let record = Record { skipped: true, ..record.clone() };
    recorded(cluster, Some(&record), Some(true))
}

/// After R6: only the record.
pub fn remember(cluster: &FoundationDBCluster, record: &Record) -> Value {
    recorded(cluster, Some(record), None)
}

/// R4: the IDs out of both lists, those that go for them into the first. None if the lists are so already.
///
/// Those that were put there for a group which has been lost since are taken off again while the operator cannot have
/// seen them.
pub(super) fn lists(cluster: &FoundationDBCluster, record: &Record) -> Option<Value> {
    let spec = &cluster.spec;
    let without = |list: &[String]| list.iter().filter(|id| !record.has(id)).cloned().collect::<Vec<_>>();
    let mut first = without(&spec.process_groups_to_remove);
    if spec.skip == Some(true) {
        let begun = |id: &String| cluster.group(id).is_some_and(|group| group.is_marked() && !record.has_marked(group));
        first.retain(|id| !record.spared.contains(id) || record.replacements.contains(id) || begun(id));
    }
    let second = without(&spec.process_groups_to_remove_without_exclusion);
    // One that has gone already needs no second order.
    let left = |id: &&String| cluster.group(id).is_some() && !first.contains(id) && !second.contains(id);
    let more: Vec<String> = record.replacements.iter().filter(left).cloned().collect();
    first.extend(more);
    let mut patch = begin(cluster);
    for (path, before, after) in [
        ("processGroupsToRemove", &spec.process_groups_to_remove, first),
        ("processGroupsToRemoveWithoutExclusion", &spec.process_groups_to_remove_without_exclusion, second),
    ] {
        if *before != after {
            patch.push(json!({ "op": "add", "path": format!("/spec/{path}"), "value": after }));
        }
    }
    (patch.len() > 1).then_some(Value::Array(patch))
}

/// R5: every mark of the removal off, and the conditions on that the operator gives to a new group: it clears them in a
/// pass that sees the process report, so they tell whether such a pass has ended. Those that go in exchange are marked
/// in the same edit: a pass that cannot read the database marks none that the spec names, goes on, finds one group too
/// many and picks any. None if all is so already.
pub(super) fn status(cluster: &FoundationDBCluster, record: &Record, now: Timestamp) -> Option<Value> {
    let mut patch = begin(cluster);
    let skipping = cluster.spec.skip == Some(true);
    for (at, group) in cluster.groups().iter().enumerate() {
        let (id, path) = (&group.process_group_id, |field: &str| format!("/status/processGroups/{at}/{field}"));
        let (goes, comes) =
            (record.replacements.contains(id) && !group.is_marked(), record.has(id) && group.needs_edit());
        let is_spared = skipping && record.spared.contains(id) && !record.replacements.contains(id);
        let stays = is_spared && record.has_marked(group);
        if goes || comes || stays {
            patch.push(json!({ "op": "test", "path": path("processGroupID"), "value": id }));
        }
        if goes {
            let mark = json!(format::seconds(format::time(&record.since).unwrap_or(now)));
            patch.push(json!({ "op": "add", "path": path("removalTimestamp"), "value": mark }));
        } else if stays {
            patch.push(json!({ "op": "remove", "path": path("removalTimestamp") }));
        }
        if !comes {
            continue;
        }
        let marks = [
            ("removalTimestamp", group.removal_timestamp.is_some()),
            ("exclusionTimestamp", group.exclusion_timestamp.is_some()),
            ("exclusionSkipped", group.exclusion_skipped),
        ];
        let marks = marks.into_iter().filter(|(_, present)| *present);
        patch.extend(marks.map(|(field, _)| json!({ "op": "remove", "path": path(field) })));
        let replaced = [RESOURCES_TERMINATING, MISSING_POD, MISSING_PROCESSES];
        let others = group.process_group_conditions.iter().filter(|other| !replaced.contains(&other.type_.as_str()));
        let new = [MISSING_POD, MISSING_PROCESSES].map(|type_| json!({ "type": type_, "timestamp": now.as_second() }));
        let conditions: Vec<Value> = others.map(|condition| json!(condition)).chain(new).collect();
        patch.push(json!({ "op": "add", "path": path("processGroupConditions"), "value": conditions }));
    }
    (patch.len() > 1).then_some(Value::Array(patch))
}

/// R9: only clusters that were not skipped are taken on, so that is what they go back to. When no group is left to
/// recover, the record goes, too: a record without groups would not be read as one.
pub fn resume(cluster: &FoundationDBCluster, record: &Record) -> Value {
    let record = Record { skipped: false, ..record.clone() };
    recorded(cluster, Some(&record).filter(|record| !record.groups.is_empty()), Some(false))
}

/// R12.
pub(super) fn forget(cluster: &FoundationDBCluster) -> Value {
    recorded(cluster, None, None)
}

/// This record on the cluster, or none any more, and with it `spec.skip`. A cluster without annotations has no map to
/// add one to, and a JSON patch must not remove what is not there.
fn recorded(cluster: &FoundationDBCluster, record: Option<&Record>, skip: Option<bool>) -> Value {
    let path = format!("/metadata/annotations/{}", keys::RECOVERY.replace('~', "~0").replace('/', "~1"));
    let annotations = cluster.metadata.annotations.as_ref();
    let mut patch = begin(cluster);
    patch.extend(match (record.map(Record::text), annotations) {
        (Some(text), Some(_)) => Some(json!({ "op": "add", "path": path, "value": text })),
        (Some(text), None) => {
            Some(json!({ "op": "add", "path": "/metadata/annotations", "value": { keys::RECOVERY: text } }))
        }
        (None, Some(all)) if all.contains_key(keys::RECOVERY) => Some(json!({ "op": "remove", "path": path })),
        (None, _) => None,
    });
    patch.extend(skip.map(|skip| json!({ "op": "add", "path": "/spec/skip", "value": skip })));
    Value::Array(patch)
}

fn begin(cluster: &FoundationDBCluster) -> Vec<Value> {
    let version = cluster.resource_version().unwrap_or_default();
    vec![json!({ "op": "test", "path": "/metadata/resourceVersion", "value": version })]
}
