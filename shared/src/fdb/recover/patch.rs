//! What is written: patches, and Services for Pods that have lost their own. JSON patches begin with a `test` of the
//! resourceVersion that was read: a failed one answers 422.

use std::time::Duration;

use crate::annotation::{annotation, format, keys};
use crate::duration::go_string;
use crate::fdb::admission::Kind;
use crate::fdb::api::{FoundationDBCluster, MISSING_POD, MISSING_PROCESSES, RESOURCES_TERMINATING};
use crate::fdb::suspension::{Minimum, RECOVERY, STAMP, Stamp, Suspension, moment, no_annotations};
use crate::object::{items, name_of, named};
use crate::record::Format;
use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::HOLD_FRESH;
use super::facts::{Facts, deleted_at, label, uid, version};
use super::presence::{Obstacle, Unrecoverable};
use super::record::{GroupRecord, Record};

/// Shortest hold for a recovery, whatever the cluster says.
const MIN_HOLD: Duration = Duration::from_hours(1);
/// How many IDs the operator's definition allows in a list.
const MAX_LISTED: usize = 500;
/// Stands for every ID in a list.
const EVERY: &str = "*";
/// Fields of a sibling's spec that are about the Service as such and not about that one.
const COMMON: &[&str] =
    &["type", "publishNotReadyAddresses", "ipFamilies", "ipFamilyPolicy", "sessionAffinity", "internalTrafficPolicy"];

/// An object to be patched, and the JSON merge patch for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Edit {
    pub kind: Kind,
    pub name: String,
    /// A merge patch of our annotations with the resourceVersion that was read.
    pub patch: Value,
}

/// R1: the claims and Services of all groups suspended now, for a recovery, with no release of anybody, unless they are.
/// While a Pod or a report is awaited the hold is kept fresh; once all are back it is about to be cleared.
pub(super) fn hold(facts: &Facts<'_>, record: &Record, back: bool) -> Vec<Edit> {
    if back && !record.groups.iter().any(|held| held.needs_edit(facts.cluster)) {
        return Vec::new();
    }
    let is_stale = |object: &Value| deleted_at(object).is_none() && !is_fresh(object, facts.now);
    let mut edits = Vec::new();
    for held in &record.groups {
        let stale = facts.objects_of(held).filter(|(_, object)| is_stale(object));
        edits.extend(stale.map(|(kind, object)| edit(kind, object, &suspension(object, facts, held))));
    }
    edits
}

/// Whether an object is held for a recovery, and nothing on it says otherwise.
fn is_fresh(object: &Value, now: Timestamp) -> bool {
    let stamp = Stamp::of(object);
    stamp.is_recovery()
        && !stamp.key
        && annotation(object, keys::RELEASED_AT).is_none()
        && stamp.since.is_some()
        && stamp.age(now) < HOLD_FRESH
}

/// The stamp for a recovery. It ends no earlier than the suspension that it takes the place of, whatever the plugin's clock
/// and the cluster say.
fn suspension(object: &Value, facts: &Facts<'_>, held: &GroupRecord) -> Value {
    let in_force = facts.cluster.annotations().get(keys::MINIMUM_SUSPENSION).map(String::as_str);
    let stamp = Stamp::of(object);
    let window = stamp.recorded().max(stamp.window(&Minimum::of(in_force, MIN_HOLD)));
    let record = Suspension {
        uid: uid(object).to_owned(),
        group: held.group.clone(),
        removal: held.removal.clone(),
        minimum: go_string(window.map_or(MIN_HOLD, |window| window.max(MIN_HOLD))),
        class: held.class.clone(),
        fault_domain: held.fault_domain.clone(),
        addresses: held.addresses.clone(),
        why: RECOVERY.to_owned(),
    };
    let mut annotations = record.annotations(stamp.since.map_or(facts.now, |since| since.max(facts.now)));
    annotations[keys::RELEASE] = Value::Null;
    annotations
}

fn edit(kind: Kind, object: &Value, annotations: &Value) -> Edit {
    let patch = json!({ "metadata": { "resourceVersion": version(object), "annotations": annotations } });
    Edit { kind, name: name_of(object).to_owned(), patch }
}

/// R2: the operator is to skip the cluster, and who is brought back is written beside it.
pub(super) fn skip(cluster: &FoundationDBCluster, record: &Record) -> Value {
    let record = Record { skipped: true, ..record.clone() };
    recorded(cluster, Some(&record), Some(true))
}

/// R4: the IDs out of both lists, those that go for them into the first. None if the lists are so already. With them go the
/// IDs of groups that are gone, as FoundationDB's own plugin has it: the operator leaves them there.
///
/// Those that were put there for a group which has been lost since are taken off again while the operator cannot have
/// seen them.
pub(super) fn lists(cluster: &FoundationDBCluster, record: &Record) -> Result<Option<Value>, Unrecoverable> {
    let spec = &cluster.spec;
    let without = |list: &[String]| list.iter().filter(|id| !record.has(id)).cloned().collect::<Vec<_>>();
    let mut first = without(&spec.process_groups_to_remove);
    if spec.skip == Some(true) {
        let begun = |id: &String| cluster.group(id).is_some_and(|group| group.is_marked() && !record.has_marked(group));
        first.retain(|id| !record.spared.contains(id) || record.replacements.contains(id) || begun(id));
    }
    let mut second = without(&spec.process_groups_to_remove_without_exclusion);
    // One that has gone already needs no second order.
    let left = |id: &&String| cluster.group(id).is_some() && !first.contains(id) && !second.contains(id);
    let more: Vec<String> = record.replacements.iter().filter(left).cloned().collect();
    first.extend(more);
    let (to_remove, without_exclusion) =
        (&spec.process_groups_to_remove, &spec.process_groups_to_remove_without_exclusion);
    if first == *to_remove && second == *without_exclusion {
        return Ok(None);
    }
    for list in [&mut first, &mut second] {
        list.retain(|id| id == EVERY || cluster.group(id).is_some());
    }
    if first.len() > MAX_LISTED {
        return Err(Unrecoverable::ListFull { count: first.len(), most: MAX_LISTED });
    }
    let mut patch = begin(cluster);
    for (path, before, after) in [
        ("processGroupsToRemove", to_remove, first),
        ("processGroupsToRemoveWithoutExclusion", without_exclusion, second),
    ] {
        if *before != after {
            patch.push(json!({ "op": "add", "path": format!("/spec/{path}"), "value": after }));
        }
    }
    Ok(Some(Value::Array(patch)))
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

/// After R6: only the record, as another run may have written it since, with what `include` ran for by this plan. None
/// where another release has written one meanwhile: it stays.
pub fn remember(cluster: &FoundationDBCluster, planned: &Record) -> Option<Value> {
    let record = Record::of(cluster).ok()?.unwrap_or_else(|| Record { skipped: false, ..planned.clone() });
    Some(recorded(cluster, Some(&record.with_included(planned)), None))
}

/// R7: the Services that are missing. The operator would make them after the Pods, and cannot make the Pods without
/// them.
pub(super) fn services(facts: &Facts<'_>, record: &Record) -> Result<Vec<Value>, Unrecoverable> {
    if !facts.cluster.has_services() {
        return Ok(Vec::new());
    }
    let lost = record.groups.iter().filter(|held| named(facts.services, &held.pod).is_none());
    lost.map(|held| like_its_siblings(facts, held)).collect()
}

fn like_its_siblings(facts: &Facts<'_>, held: &GroupRecord) -> Result<Value, Unrecoverable> {
    let (ids, classes) = (facts.cluster.group_labels(), facts.cluster.class_labels());
    let of_pod = |service: &&Value| ids.first().is_some_and(|key| label(service, key).is_some());
    let is_other_class = |service: &&Value| classes.first().is_none_or(|key| label(service, key) != Some(&held.class));
    let siblings = facts.services.iter().filter(of_pod).filter(|service| deleted_at(service).is_none());
    let Some(sibling) = siblings.min_by_key(is_other_class) else {
        return Err(Unrecoverable::NoSibling { group: held.group.clone(), service: held.pod.clone() });
    };
    let own = |path: &str| {
        let mut labels = sibling.pointer(path).cloned().unwrap_or_else(|| json!({}));
        for (keys, value) in [(&ids, &held.group), (&classes, &held.class)] {
            for key in keys {
                if let Some(old) = labels.get_mut(*key) {
                    *old = json!(value);
                }
            }
        }
        labels
    };
    let mut spec = sibling["spec"].as_object().cloned().unwrap_or_default();
    let is_headless = spec.get("clusterIP").and_then(Value::as_str) == Some("None");
    spec.retain(|field, _| COMMON.contains(&field.as_str()) || field == "clusterIP" && is_headless);
    // Of the ports, the API server has given this to the sibling alone.
    let mut ports: Vec<Value> = items(sibling, "/spec/ports").cloned().collect();
    ports.iter_mut().filter_map(Value::as_object_mut).for_each(|port| drop(port.remove("nodePort")));
    spec.extend([("selector".to_owned(), own("/spec/selector")), ("ports".to_owned(), json!(ports))]);
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": held.pod,
            "namespace": facts.cluster.namespace().unwrap_or_default(),
            "labels": own("/metadata/labels"),
            "ownerReferences": items(sibling, "/metadata/ownerReferences").collect::<Vec<_>>(),
        },
        "spec": spec,
    }))
}

/// R9: only clusters that were not skipped are taken on, so that is what they go back to. When no group is left to
/// recover, the record goes, too: a record without groups would not be read as one.
pub fn resume(cluster: &FoundationDBCluster, record: &Record) -> Value {
    let record = Record { skipped: false, ..record.clone() };
    recorded(cluster, Some(&record).filter(|record| !record.groups.is_empty()), Some(false))
}

/// R11: a change of the claim that wakes the operator. None if no report is awaited.
///
/// The operator watches the volumes of a cluster, and queues what changes during a pass for the next pass. A write to
/// the cluster would come into a slow pass, whose status update is then refused with a conflict and retried a minute
/// later.
pub fn wake(facts: &Facts<'_>, missing: &[Obstacle]) -> Option<Edit> {
    let up = missing.iter().find(|one| one.is_up)?;
    let claim = facts.claim_of(&up.group, &up.pod)?;
    Some(edit(Kind::Pvc, claim, &json!({ keys::WOKEN_AT: moment(facts.now) })))
}

/// R12: on the claims of those in exchange it is written which removal that is; then our stamps off: while one is left, any
/// run finishes this.
pub(super) fn clear(facts: &Facts<'_>, record: &Record) -> Vec<Edit> {
    let mut edits = Vec::new();
    for group in record.replacements.iter().filter_map(|id| facts.cluster.group(id)) {
        let Some(removal) = group.removal_timestamp.as_deref() else { continue };
        let is_noted = |claim: &Value| annotation(claim, keys::EXCHANGED_AT) == Some(removal);
        let claims = facts.claims_of(&group.process_group_id).into_iter();
        let claims = claims.filter(|claim| deleted_at(claim).is_none() && !is_noted(claim));
        edits.extend(claims.map(|claim| edit(Kind::Pvc, claim, &json!({ keys::EXCHANGED_AT: removal }))));
    }
    let objects = record.groups.iter().flat_map(|held| facts.objects_of(held));
    edits.extend(objects.filter_map(|(kind, object)| without_stamp(kind, object, record, facts.now)));
    edits
}

/// On the claim it stays written when it was brought back, also where the controller has taken the stamps off. None if
/// there is nothing to change.
fn without_stamp(kind: Kind, object: &Value, record: &Record, now: Timestamp) -> Option<Edit> {
    let recovered = annotation(object, keys::RECOVERED_AT).and_then(format::time);
    let is_noted = kind == Kind::Service || recovered >= format::time(&record.since);
    if is_noted && STAMP.iter().all(|key| annotation(object, key).is_none()) {
        return None;
    }
    let mut annotations = no_annotations();
    if kind == Kind::Pvc {
        annotations[keys::RECOVERED_AT] = format::seconds(now).into();
    }
    Some(edit(kind, object, &annotations))
}

/// R12: the record off.
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
