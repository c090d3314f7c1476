//! The largest that can come, in the smallest parts: each place of a sample that takes a list, a map or a text is filled, one
//! after the other, up to a size.

use serde_json::{Map, Value, json};

/// Stands where a place is filled.
const HERE: &str = "\u{1}here\u{1}";

/// Members of an element of which small elements are made.
const MAX_NAMES: usize = 8;

/// Reads each attack on a sample: `read` says how many bytes are kept of it, or `None` if it is refused. Prints the worst.
///
/// # Panics
/// When more than `most` bytes are kept, or, where memory is measured ([`crate::peak`]), when more is in use at once besides
/// the text than three times its bytes and 1 MiB, or than twice `most`.
pub fn run(name: &str, sample: &Value, (bytes, most): (usize, usize), read: impl Fn(&[u8]) -> Option<usize>) {
    assert!(read(sample.to_string().as_bytes()).is_some(), "{name}: the sample is read: {sample:.500}");
    let (mut inputs, mut worst) = (0, (0, 0));
    for place in places(sample) {
        for text in fillings(sample, &place, bytes) {
            inputs += 1;
            let (kept, peak) = crate::peak(|| read(text.as_bytes()));
            let (kept, peak) = (kept.unwrap_or_default(), peak.unwrap_or_default());
            worst = (worst.0.max(kept), worst.1.max(peak));
            assert!(kept <= most, "{name}: {kept} bytes are kept of {} in {place}: {text:.200}", text.len());
            // Of a fleet, few bytes of each member may take more, up to their limit.
            assert!(
                peak <= (3 * text.len() + (1 << 20)).max(2 * most),
                "{name}: {peak} for {} in {place}: {text:.200}",
                text.len()
            );
        }
    }
    assert!(inputs > 0, "{name} has no place that could be filled");
    println!("hostile {name:<32} {inputs:>6} inputs, at most {:>8} kept, {:>9} in use", worst.0, worst.1);
}

/// Bytes that are in use besides those of a short text, and for each of its bytes: small parts of large types, nested.
const BESIDE: usize = 128 << 10;
const FOR_EACH: usize = 64;

/// Reads mutations of a sample ([`crate::run`]).
///
/// # Panics
/// When memory is measured and more is in use at once than 128 KiB and 64 times the bytes of the text.
pub fn mutated(name: &str, sample: &Value, read: impl Fn(&[u8]) -> Option<usize>) {
    let mut worst = 0;
    crate::run(name, &[sample.to_string().as_bytes(), b"{}"], |text| {
        let (kept, peak) = crate::peak(|| read(text));
        let peak = peak.unwrap_or_default();
        worst = worst.max(peak);
        assert!(peak <= BESIDE + FOR_EACH * text.len(), "{name}: {peak} in use for {}", text.len());
        kept.is_some()
    });
    println!("fuzz {name:<32} of these inputs, at most {worst} bytes were in use");
}

/// Pointers to every list, map and text of a sample.
fn places(sample: &Value) -> Vec<String> {
    fn walk(value: &Value, at: &str, found: &mut Vec<String>) {
        match value {
            Value::Array(all) => all.iter().enumerate().for_each(|(n, one)| walk(one, &format!("{at}/{n}"), found)),
            Value::Object(all) => {
                for (name, one) in all {
                    walk(one, &format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")), found);
                }
            }
            Value::String(_) => {}
            _ => return,
        }
        found.push(at.to_owned());
    }

    let mut found = Vec::new();
    walk(sample, "", &mut found);
    found
}

/// The sample with this place filled, in each way.
fn fillings(sample: &Value, place: &str, bytes: usize) -> Vec<String> {
    let Some(found) = sample.pointer(place) else { return Vec::new() };
    let mut with = sample.clone();
    let Some(here) = with.pointer_mut(place) else { return Vec::new() };
    *here = json!(HERE);
    let (text, mark) = (with.to_string(), json!(HERE).to_string());
    let of = |filling: String| text.replacen(&mark, &filling, 1);
    match found {
        Value::Array(all) => {
            let list = |part: &str| format!("[{}]", vec![part; bytes / (part.len() + 1)].join(","));
            smallest(all.first()).iter().map(|part| of(list(part))).collect()
        }
        Value::Object(all) => {
            // One more than the sample has, by name and by group.
            let groups: Vec<&str> = all.keys().filter_map(|name| Some(name.split_once('/')?.0)).collect();
            let groups = std::iter::once(String::new()).chain(groups.first().map(|group| format!("{group}/")));
            let parts = smallest(all.values().next());
            let maps = groups.flat_map(|group| parts.iter().map(move |part| (group.clone(), part)));
            let rest = Value::Object(all.clone()).to_string();
            let map = |(group, part): (String, &String)| {
                let count = bytes / (part.len() + group.len() + 10);
                let members: Vec<_> = (0..count).map(|n| format!("\"{group}{n:x}\":{part}")).collect();
                format!("{},{}}}", rest.trim_end_matches('}').trim_end_matches('{'), members.join(","))
            };
            maps.map(map).filter(|map| serde_json::from_str::<Value>(map).is_ok()).map(of).collect()
        }
        Value::String(_) => {
            [of(json!("x".repeat(bytes)).to_string()), of(format!("\"{}\"", "\\u0041".repeat(bytes / 6)))].into()
        }
        _ => Vec::new(),
    }
}

/// The smallest values that may pass for this one.
fn smallest(like: Option<&Value>) -> Vec<String> {
    let mut parts: Vec<String> = ["{}", "\"\"", "0", "[]", "[[]]"].map(str::to_owned).into();
    if let Some(Value::Object(all)) = like {
        let name = |(name, value): (&String, &Value)| {
            let empty = match value {
                Value::String(_) => json!(""),
                Value::Object(_) => Value::Object(Map::new()),
                Value::Array(_) => json!([]),
                other => other.clone(),
            };
            json!({ name: empty }).to_string()
        };
        parts.extend(all.iter().take(MAX_NAMES).map(name));
    }
    parts
}

/// A sample of what a schema of a definition allows: one of everything.
pub fn sample(schema: &Value) -> Value {
    let all_of = |properties: &Value| -> Map<String, Value> {
        properties.as_object().into_iter().flatten().map(|(name, schema)| (name.clone(), sample(schema))).collect()
    };
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    match schema["type"].as_str() {
        Some("object") if schema["properties"].is_object() => Value::Object(all_of(&schema["properties"])),
        Some("object") if schema["additionalProperties"].is_object() => {
            json!({ "a": sample(&schema["additionalProperties"]) })
        }
        Some("object") => json!({ "a": "b" }),
        Some("array") => json!([sample(&schema["items"])]),
        Some("integer" | "number") => json!(1),
        Some("boolean") => json!(true),
        Some("string") => match schema["format"].as_str() {
            Some("date-time") => json!("2026-11-28T00:00:00Z"),
            Some("byte") => json!("eA=="),
            _ => json!("x"),
        },
        _ if schema["x-kubernetes-int-or-string"] == true => json!("1"),
        _ => json!("x"),
    }
}

/// Metadata as tenants can write it.
pub fn metadata() -> Value {
    json!({
        "name": "demo", "namespace": "x", "uid": "u", "resourceVersion": "7", "generation": 1,
        "creationTimestamp": "2026-11-28T00:00:00Z",
        "labels": { "a": "b" },
        "annotations": { "hibernate.sh/reason": "night", "other.io/a": "b" },
        "finalizers": ["a/b"],
        "ownerReferences": [{ "apiVersion": "v1", "kind": "K", "name": "n", "uid": "u", "controller": true }],
        "managedFields": [{
            "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": { "f:metadata": { "f:labels": {} } }, "manager": "m",
            "operation": "Update", "time": "2026-11-28T00:00:00Z",
        }],
    })
}
