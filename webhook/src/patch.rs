//! Edits of annotations as a JSON patch.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, ReplaceOperation};
use serde_json::{Map, Value};
use shared::admission::Edit;
use shared::annotation::Annotations;

/// The operations that make the edits, in an object with these annotations. Nothing is edited, nothing comes out.
pub fn annotations(found: &Annotations, edits: &[Edit]) -> Patch {
    let at = |key: Option<&str>| PointerBuf::from_tokens(["metadata", "annotations"].into_iter().chain(key));
    if !found.present() {
        let values: Map<String, Value> =
            edits.iter().filter_map(|edit| Some((edit.key.to_owned(), Value::from(edit.value.as_deref()?)))).collect();
        let add = (!values.is_empty()).then(|| AddOperation { path: at(None), value: values.into() });
        return Patch(add.into_iter().map(PatchOperation::Add).collect());
    }
    let operation = |Edit { key, value }: &Edit| {
        let path = at(Some(key));
        match (found.get(key), value) {
            (None, None) => None,
            (None, Some(value)) => Some(PatchOperation::Add(AddOperation { path, value: value.as_str().into() })),
            (Some(_), Some(value)) => {
                Some(PatchOperation::Replace(ReplaceOperation { path, value: value.as_str().into() }))
            }
            (Some(_), None) => Some(PatchOperation::Remove(RemoveOperation { path })),
        }
    };
    Patch(edits.iter().filter_map(operation).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::admission::Meta;
    use shared::annotation::keys;

    use super::*;

    fn patched(mut object: Value, edits: &[(&'static str, Option<&str>)]) -> (Value, Value) {
        let edits: Vec<Edit> = edits.iter().map(|(key, value)| Edit { key, value: value.map(str::to_owned) }).collect();
        let meta: Meta = serde_json::from_value(object["metadata"].clone()).unwrap();
        let patch = annotations(&meta.annotations, &edits);
        json_patch::patch(&mut object, &patch).unwrap();
        (serde_json::to_value(&patch).unwrap(), object["metadata"]["annotations"].clone())
    }

    #[test]
    fn keys_are_escaped_and_only_what_is_needed_is_done() {
        let object =
            json!({ "metadata": { "annotations": { keys::REQUESTED_BY: "bob", keys::REASON: "x", "a~/b": "y" } } });
        let edits = [(keys::REQUESTED_BY, Some("alice")), (keys::REQUESTED_AT, Some("now")), (keys::REASON, None)];
        let (patch, annotations) = patched(object, &edits);
        assert_eq!(
            patch,
            json!([
                { "op": "replace", "path": "/metadata/annotations/hibernate.sh~1requested-by", "value": "alice" },
                { "op": "add", "path": "/metadata/annotations/hibernate.sh~1requested-at", "value": "now" },
                { "op": "remove", "path": "/metadata/annotations/hibernate.sh~1reason" },
            ])
        );
        assert_eq!(annotations, json!({ keys::REQUESTED_BY: "alice", keys::REQUESTED_AT: "now", "a~/b": "y" }));
    }

    #[test]
    fn the_map_is_made_where_there_is_none() {
        for metadata in [json!({}), json!({ "annotations": null })] {
            let (patch, annotations) = patched(json!({ "metadata": metadata }), &[(keys::REPLICAS, Some("3"))]);
            assert_eq!(
                patch,
                json!([{ "op": "add", "path": "/metadata/annotations", "value": { keys::REPLICAS: "3" } }])
            );
            assert_eq!(annotations, json!({ keys::REPLICAS: "3" }));
        }
        let (patch, _) = patched(json!({ "metadata": { "annotations": {} } }), &[(keys::REPLICAS, Some("3"))]);
        assert_eq!(patch[0]["path"], "/metadata/annotations/hibernate.sh~1replicas");
    }

    #[test]
    fn nothing_to_do_is_no_patch() {
        for metadata in [json!({}), json!({ "annotations": {} })] {
            assert_eq!(patched(json!({ "metadata": metadata }), &[]).0, json!([]));
            assert_eq!(patched(json!({ "metadata": metadata }), &[(keys::REASON, None)]).0, json!([]));
        }
    }
}
