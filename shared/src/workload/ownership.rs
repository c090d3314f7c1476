//! Who owns what a sleep changes (`spec.replicas`, `spec.suspend`) and its record: the field managers in
//! `metadata.managedFields`.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::replicas::replicas;
use crate::annotation::{format, keys};
use crate::object::managed_fields::{annotators, entries, manager, owners, written_at};
use crate::text::sanitize_to;

/// What a sleep changes, as an entry of a field manager names it.
const SPEC: [&str; 2] = [REPLICAS, SUSPEND];
/// `spec.replicas`.
pub const REPLICAS: &str = "/fieldsV1/f:spec/f:replicas";
/// `spec.suspend`.
pub const SUSPEND: &str = "/fieldsV1/f:spec/f:suspend";
/// Characters that a message shows of a field manager.
const MAX_NAME: usize = 64;

/// `recorded by MANAGER at TIME`, if the manager that wrote the record of annotation `key` no longer owns `field`:
/// others have set it since, and the record may be stale. None as well if the managers do not show it, or if the record
/// is the newer one.
///
/// `kubectl scale` leaves an owner without a time in managedFields, or none. Our programs write both fields at once, so a
/// missing one means that another client scaled.
pub fn stale_record(object: &Value, key: &str, field: &str) -> Option<String> {
    let writer = annotators(object, key).max_by_key(|entry| written_at(entry))?;
    let name = manager(writer);
    let scalers: Vec<&Value> = owners(object, field).collect();
    let kept = scalers.iter().any(|entry| manager(entry) == name);
    // `kubectl scale` leaves an entry without a time, or none at all.
    let taken = scalers.iter().any(|entry| written_at(entry).is_none_or(|at| Some(at) >= written_at(writer)));
    let lost = scalers.is_empty() && [keys::PLUGIN, keys::CONTROLLER].contains(&name);
    if kept || !(taken || lost) {
        return None;
    }
    let at = written_at(writer).map(|at| format!(" at {}", format::seconds(at))).unwrap_or_default();
    Some(format!("recorded by {}{at}", sanitize_to(name, MAX_NAME)))
}

/// When one of our programs last wrote the object, as the API server recorded it.
pub fn our_last_write(object: &Value) -> Option<Timestamp> {
    let ours = entries(object).filter(|entry| [keys::PLUGIN, keys::CONTROLLER].contains(&manager(entry)));
    ours.filter_map(written_at).max()
}

/// When a controller last wrote the status of the object, as the API server recorded it.
pub fn last_status_write(object: &Value) -> Option<Timestamp> {
    entries(object).filter(|entry| entry["subresource"] == "status").filter_map(written_at).max()
}

/// The JSON patch by which a manager gives up `spec.replicas` or `spec.suspend` of a workload that is awake, so that a
/// server-side apply by others has no conflict. None if the manager does not own it. It only applies to the entry that
/// it was made from.
pub fn release(object: &Value, own: &str) -> Option<Value> {
    if replicas(object) == 0 || object.pointer("/spec/suspend") == Some(&Value::Bool(true)) {
        return None; // the ownership guards the sleep
    }
    let is_own = |entry: &Value| manager(entry) == own && is_update_of_the_object(entry);
    let owns = |entry: &Value| SPEC.into_iter().any(|field| entry.pointer(field).is_some());
    let (at, entry) = entries(object).enumerate().find(|(_, entry)| is_own(entry) && owns(entry))?;
    let mut fields = entry.get("fieldsV1")?.clone();
    let spec = fields.get_mut("f:spec")?.as_object_mut()?;
    spec.remove("f:replicas");
    spec.remove("f:suspend");
    if spec.is_empty() {
        fields.as_object_mut()?.remove("f:spec"); // an empty set would be the ownership of the whole spec
    }
    let path = format!("/metadata/managedFields/{at}");
    let change = if fields.as_object().is_some_and(Map::is_empty) {
        json!({ "op": "remove", "path": path })
    } else {
        json!({ "op": "replace", "path": format!("{path}/fieldsV1"), "value": fields })
    };
    Some(json!([{ "op": "test", "path": path, "value": entry }, change]))
}

/// Whether an entry came from an update of the object itself: not of a subresource such as `scale`, and not from a
/// server-side apply, whose owner takes away what it no longer applies.
fn is_update_of_the_object(entry: &Value) -> bool {
    let is_update = entry.get("operation").and_then(Value::as_str) == Some("Update");
    is_update && entry.get("subresource").and_then(Value::as_str).is_none_or(str::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry by a manager at a minute, that owns `spec.replicas` and the record or one of them.
    fn entry(manager: &str, minute: u32, replicas: bool, record: bool) -> Value {
        let mut fields = json!({});
        if replicas {
            fields["f:spec"] = json!({ "f:replicas": {} });
        }
        if record {
            fields["f:metadata"] = json!({ "f:annotations": { "f:hibernate.sh/replicas": {} } });
        }
        let time = format!("2026-11-21T09:{minute:02}:00Z");
        json!({ "manager": manager, "operation": "Update", "time": time, "fieldsType": "FieldsV1", "fieldsV1": fields })
    }

    fn workload(replicas: u32, entries: &[Value]) -> Value {
        json!({ "metadata": { "name": "web", "managedFields": entries }, "spec": { "replicas": replicas } })
    }

    #[test]
    fn a_record_is_stale_once_its_writer_has_lost_the_replicas() {
        let ours = |replicas| entry("kubectl-hibernate", 5, replicas, true);
        let mut untimed = entry("kubectl", 7, true, false);
        untimed.as_object_mut().unwrap().remove("time");
        let stale = Some("recorded by kubectl-hibernate at 2026-11-21T09:05:00Z");
        for (case, entries, expected) in [
            ("nobody is known", vec![], None),
            ("as we left it", vec![entry("helm", 1, false, false), ours(true)], None),
            ("scaled since", vec![ours(false), entry("kubectl", 7, true, false)], stale),
            ("scaled by the subresource", vec![ours(false), untimed], stale),
            ("scaled in the same second", vec![ours(false), entry("kubectl", 5, true, false)], stale),
            ("recorded by hand after others scaled", vec![entry("kubectl", 4, true, false), ours(false)], None),
            ("shared with an apply", vec![ours(true), entry("helm", 7, true, false)], None),
            ("nobody owns the replicas", vec![entry("helm", 5, false, true)], None),
            ("scaled to 0 by the subresource", vec![ours(false)], stale),
            ("nobody owns the record", vec![entry("kubectl", 7, true, false)], None),
            (
                "a hostile name",
                vec![entry("a\u{1b}[31m\n", 5, false, true), entry("kubectl", 7, true, false)],
                Some("recorded by a [31m at 2026-11-21T09:05:00Z"),
            ),
        ] {
            assert_eq!(stale_record(&workload(0, &entries), keys::REPLICAS, REPLICAS).as_deref(), expected, "{case}");
        }
    }

    #[test]
    fn a_wake_releases_the_replicas_and_nothing_else() {
        let helm = entry("helm", 1, false, false);
        let ours = |more: bool, record| {
            let mut entry = entry("kubectl-hibernate", 5, true, record);
            if more {
                entry["fieldsV1"]["f:spec"]["f:paused"] = json!({});
            }
            entry
        };
        let left = |fields: Value| {
            let mut entry = entry("kubectl-hibernate", 5, false, false);
            entry["fieldsV1"] = fields;
            entry
        };
        let record = json!({ "f:annotations": { "f:hibernate.sh/replicas": {} } });
        for (case, entry, kept) in [
            ("only the replicas", ours(false, false), None),
            ("also an annotation", ours(false, true), Some(left(json!({ "f:metadata": record })))),
            ("also of the spec", ours(true, false), Some(left(json!({ "f:spec": { "f:paused": {} } })))),
        ] {
            let mut object = workload(3, &[helm.clone(), entry]);
            let patch = release(&object, keys::PLUGIN).unwrap();
            json_patch::patch(&mut object, &serde_json::from_value::<json_patch::Patch>(patch).unwrap()).unwrap();
            let entries: Vec<Value> = std::iter::once(helm.clone()).chain(kept).collect();
            assert_eq!(object, workload(3, &entries), "{case}");
            assert_eq!(release(&object, keys::PLUGIN), None, "{case}: once is enough");
        }
    }

    #[test]
    fn what_is_not_ours_or_guards_a_sleep_is_not_released() {
        let ours = entry(keys::PLUGIN, 5, true, false);
        let mut scaled = ours.clone();
        scaled["subresource"] = json!("scale");
        let mut applied = ours.clone();
        applied["operation"] = json!("Apply");
        for (case, replicas, entry) in [
            ("asleep", 0, ours.clone()),
            ("another manager", 3, entry("kubectl", 5, true, false)),
            ("of the scale subresource", 3, scaled),
            ("applied, not updated", 3, applied),
            ("no longer owned", 3, entry(keys::PLUGIN, 5, false, true)),
        ] {
            assert_eq!(release(&workload(replicas, &[entry]), keys::PLUGIN), None, "{case}");
        }
        let raced = release(&workload(3, std::slice::from_ref(&ours)), keys::PLUGIN).unwrap();
        let mut moved = workload(3, &[entry("kubectl", 7, false, true), ours]);
        let patch = serde_json::from_value::<json_patch::Patch>(raced).unwrap();
        assert!(json_patch::patch(&mut moved, &patch).is_err(), "another entry is never removed");
    }
}
