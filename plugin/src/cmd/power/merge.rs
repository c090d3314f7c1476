//! JSON merge patch (RFC 7386), for `--dry-run=client -o yaml`.

use serde_json::{Map, Value};

/// The object with the patch applied.
pub(crate) fn merged(object: &Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else {
        return patch.clone();
    };
    let mut result = object.as_object().cloned().unwrap_or_else(Map::new);
    for (key, value) in patch {
        if value.is_null() {
            result.remove(key);
        } else {
            let before = result.get(key).unwrap_or(&Value::Null);
            let after = merged(before, value);
            result.insert(key.clone(), after);
        }
    }
    Value::Object(result)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Examples of RFC 7386, appendix A.
    #[test]
    fn follows_the_rfc() {
        for (object, patch, expected) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [1, 2]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
        ] {
            assert_eq!(merged(&object, &patch), expected, "{object} {patch}");
        }
    }
}
