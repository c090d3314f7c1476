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

/// The object of this name.
pub fn named<'a>(objects: &'a [Value], name: &str) -> Option<&'a Value> {
    objects.iter().find(|object| name_of(object) == name)
}
