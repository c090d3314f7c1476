//! Places of an object that was read as JSON. What is not there is empty.

use serde_json::Value;

/// The name of an object.
pub fn name_of(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// The text at this place of an object, empty if there is none.
pub fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// The items of the list at this place of an object, none if there is no list.
pub fn items<'a>(object: &'a Value, path: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(path).and_then(Value::as_array).into_iter().flatten()
}

/// The owner that controls an object.
pub fn controller(object: &Value) -> Option<&Value> {
    items(object, "/metadata/ownerReferences").find(|owner| owner["controller"] == true)
}

/// The API group of an `apiVersion`, empty for the core group.
pub fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// The object of this name.
pub fn named<'a>(objects: &'a [Value], name: &str) -> Option<&'a Value> {
    objects.iter().find(|object| name_of(object) == name)
}

/// Sets a member of nested objects. A null removes it, as in any merge patch.
pub fn put(patch: &mut Value, at: &str, value: Value) {
    let mut place = patch;
    for member in at.split('/').skip(1) {
        place = &mut place[member.replace("~1", "/").replace("~0", "~")];
    }
    *place = value;
}

/// `metadata.managedFields`: which field manager owns what of an object, as the API server keeps it.
pub mod managed_fields {
    use jiff::Timestamp;
    use serde_json::Value;

    use crate::annotation::format;

    /// The entries, each of one manager and one way of writing.
    pub fn entries(object: &Value) -> impl Iterator<Item = &Value> {
        object.pointer("/metadata/managedFields").and_then(Value::as_array).into_iter().flatten()
    }

    /// Those that own a field, named as in `/fieldsV1/f:spec/f:replicas`.
    pub fn owners<'a>(object: &'a Value, field: &'a str) -> impl Iterator<Item = &'a Value> {
        entries(object).filter(move |entry| entry.pointer(field).is_some())
    }

    /// Those that own an annotation.
    pub fn annotators<'a>(object: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
        let field = format!("/fieldsV1/f:metadata/f:annotations/f:{}", key.replace('/', "~1"));
        entries(object).filter(move |entry| entry.pointer(&field).is_some())
    }

    /// The manager of an entry; empty if it names none. Untrusted text.
    pub fn manager(entry: &Value) -> &str {
        entry.get("manager").and_then(Value::as_str).unwrap_or_default()
    }

    /// When an entry was last written.
    pub fn written_at(entry: &Value) -> Option<Timestamp> {
        format::time(entry.get("time")?.as_str()?)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::managed_fields::{entries, manager, owners, written_at};
    use super::*;

    #[test]
    fn what_an_entry_says() {
        let full =
            json!({ "manager": "helm", "time": "2026-11-21T09:00:00Z", "fieldsV1": { "f:spec": { "f:skip": {} } } });
        let object = |entries: Value| json!({ "metadata": { "managedFields": entries } });
        for (object, all, owned) in [
            (json!({}), 0, 0),
            (object(json!("no list")), 0, 0),
            (object(json!([{}, full])), 2, 1),
            (object(json!([7, full, full])), 3, 2),
        ] {
            assert_eq!(entries(&object).count(), all, "{object}");
            assert_eq!(owners(&object, "/fieldsV1/f:spec/f:skip").count(), owned, "{object}");
            assert_eq!(owners(&object, "/fieldsV1/f:spec/f:replicas").count(), 0, "{object}");
        }
        let time = written_at(&full).map(|time| time.to_string());
        assert_eq!((manager(&full), time.as_deref()), ("helm", Some("2026-11-21T09:00:00Z")));
        for odd in [json!({}), json!({ "manager": 7, "time": "yesterday" }), json!({ "time": null })] {
            assert_eq!((manager(&odd), written_at(&odd)), ("", None), "{odd}");
        }
    }
}
