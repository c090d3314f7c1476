//! Objects with fields that cannot be read: a text is too long, a list stands where a number should be.
//!
//! Such a field is left out, so that everything else is judged and stamped, and is denied by its name
//! ([`super::judge`]). Of a large object with several such fields, the whole part of the object is left out, and
//! denied: reading one takes a bounded time.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{Denial, Fault, Finding, from_map};
use crate::text::sanitize_to;

/// Row of what cannot be read, whatever the kind.
pub const UNREADABLE: &str = "unreadable";

/// Most fields that are left out one by one: more than any kind has fields that rules read.
const MAX_SINGLE: usize = 32;
/// Bytes that are read to find them: an object of 512 KiB is read 32 times, the largest that etcd stores 10 times, one
/// of 8 MiB twice. After that each attempt leaves out a member of the object itself, such as `spec`.
const MAX_READ_BYTES: usize = 16 * 1024 * 1024;
/// Most members of the object itself that are left out: more than rules read.
const MAX_WHOLE: usize = 8;
/// Most names of a path: more than the fields that rules read have.
const MAX_PATH: usize = 16;
/// Characters that are kept of what stands in a field.
const MAX_FOUND_CHARS: usize = 40;
/// Characters that are kept of why it cannot be read.
const MAX_WHY_CHARS: usize = 200;

/// A field that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    path: Vec<String>,
    message: String,
    altered: bool,
}

/// What cannot be read of the objects of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnreadFields {
    /// Of the object as it is stored.
    pub old: Vec<Unread>,
    /// Of the object as it is to be stored.
    pub new: Vec<Unread>,
}

impl Unread {
    /// Whether the request sets or alters the field.
    pub fn altered(&self) -> bool {
        self.altered
    }

    /// Whether nothing is known of the field at this path, or not all of it.
    pub fn concerns(&self, path: &[&str]) -> bool {
        self.path.iter().zip(path).all(|(one, other)| one == other)
    }

    /// Whether nothing is known of the field at this path.
    pub fn covers(&self, path: &[&str]) -> bool {
        self.path.len() <= path.len() && self.concerns(path)
    }

    /// The denial of the field.
    pub fn denial(&self) -> Finding<Denial> {
        let detail = Denial { fault: Fault::Invalid, field: self.field(), message: self.message.clone() };
        Finding { row: UNREADABLE, detail }
    }

    /// The field, as denials name it.
    fn field(&self) -> String {
        let mut field = String::new();
        for name in &self.path {
            match name {
                name if name.contains(['.', '/']) => field.extend(["[", name, "]"]),
                name if field.is_empty() => field.push_str(name),
                name => field.extend([".", name]),
            }
        }
        field
    }
}

impl UnreadFields {
    /// What cannot be read of the object as it is stored, if it is, and as it is to be stored. Each comes with its
    /// text.
    pub fn new(old: Option<(&str, Vec<Unread>)>, (text, mut new): (&str, Vec<Unread>)) -> Self {
        let (before, old) = old.unzip();
        for field in &mut new {
            field.altered = before.and_then(|before| at(before, &field.path)) != at(text, &field.path);
        }
        Self { old: old.unwrap_or_default(), new }
    }
}

/// Reads an object. Fields that cannot be read are left out, and listed.
///
/// # Errors
/// When it is no object, or a field is left out that must be there.
pub fn read<T: DeserializeOwned>(object: &str) -> serde_json::Result<(T, Vec<Unread>)> {
    let (mut text, mut unread) = (Cow::Borrowed(object), Vec::<Unread>::new());
    let single = (MAX_READ_BYTES / object.len().max(1)).clamp(1, MAX_SINGLE);
    for attempt in 1..=single + MAX_WHOLE {
        let error = match from_map(&mut serde_json::Deserializer::from_str(&text)) {
            Ok(object) => return Ok((object, unread)),
            Err(error) => error,
        };
        let names = if attempt <= single { MAX_PATH } else { 1 };
        let Some(Member { path, key, value }) = member_at(&text, offset(&text, &error), names) else {
            return Err(error);
        };
        let message = message(value, &error);
        unread.retain(|other| !other.path.starts_with(&path));
        if attempt <= single {
            // Nothing reads a member whose name is blank.
            let (name, length) = (start(&text, key) + 1, key.len() - 2);
            text.to_mut().replace_range(name..name + length, &" ".repeat(length));
        } else {
            text = Cow::Owned(without(&text, &path));
        }
        unread.push(Unread { path, message, altered: true });
    }
    from_map(&mut serde_json::Deserializer::from_str(&text)).map(|object| (object, unread))
}

/// What was found, and what would be right.
fn message(value: &str, error: &serde_json::Error) -> String {
    let (found, why) = (sanitize_to(value, MAX_FOUND_CHARS), error.to_string());
    let more = if found.len() < value.len() { format!("... ({} bytes)", value.len()) } else { String::new() };
    // serde_json appends the position.
    let why = why.rsplit_once(" at line ").map_or(why.as_str(), |(why, _)| why);
    format!("found {found}{more}, which cannot be read: {}", sanitize_to(why, MAX_WHY_CHARS))
}

/// A member of a map, somewhere in an object, as it is written.
struct Member<'t> {
    path: Vec<String>,
    key: &'t str,
    value: &'t str,
}

/// The innermost member with a name around this byte, with a path of at most so many names.
fn member_at(object: &str, offset: usize, names: usize) -> Option<Member<'_>> {
    let (mut path, mut found, mut inside) = (Vec::new(), None, object);
    let around = |key: &str, value: &str| {
        !key.trim_matches(['"', ' ']).is_empty()
            && (start(object, key)..=start(object, value) + value.len()).contains(&offset)
    };
    while path.len() < names
        && let Some((key, value)) = find(inside, around)
    {
        path.push(serde_json::from_str(key).ok()?);
        (found, inside) = (Some((key, value)), value);
    }
    found.map(|(key, value)| Member { path, key, value })
}

/// The value at a path, as it is written.
fn at<'t>(object: &'t str, path: &[String]) -> Option<&'t str> {
    path.iter().try_fold(object, |inside, name| find(inside, |key, _| is(key, name)).map(|(_, value)| value))
}

/// Whether a key, as it is written, is this name.
fn is(key: &str, name: &str) -> bool {
    if key.contains('\\') {
        return serde_json::from_str::<String>(key).is_ok_and(|key| key == name);
    }
    key.strip_prefix('"').and_then(|key| key.strip_suffix('"')) == Some(name)
}

/// A map without its members at this path of one name.
fn without(map: &str, path: &[String]) -> String {
    let mut rest = String::with_capacity(map.len());
    each(map, |key, value| {
        if !path.iter().any(|name| is(key, name)) {
            rest.extend([if rest.is_empty() { "{" } else { "," }, key, ":", value]);
        }
    });
    rest.push_str(if rest.is_empty() { "{}" } else { "}" });
    rest
}

/// Key and value of the last member of a map for which this holds: of a key that is given twice, Go takes the last.
fn find(map: &str, fits: impl Fn(&str, &str) -> bool) -> Option<(&str, &str)> {
    let mut found = None;
    each(map, |key, value| found = if fits(key, value) { Some((key, value)) } else { found });
    found
}

/// Calls this with key and value of each member of a map, up to what is no JSON.
fn each<'t>(map: &'t str, call: impl FnMut(&'t str, &'t str)) {
    struct Each<F>(F);

    impl<'t, F: FnMut(&'t str, &'t str)> Visitor<'t> for Each<F> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map")
        }

        fn visit_map<A: MapAccess<'t>>(mut self, mut map: A) -> Result<(), A::Error> {
            while let Some((key, value)) = map.next_entry::<&RawValue, &RawValue>()? {
                self.0(key.get(), value.get());
            }
            Ok(())
        }
    }

    // What is no map has no members.
    let _ = serde_json::Deserializer::from_str(map).deserialize_map(Each(call));
}

/// Where a part of a text begins.
fn start(text: &str, part: &str) -> usize {
    part.as_ptr().addr() - text.as_ptr().addr()
}

/// The byte at which an error was found.
fn offset(text: &str, error: &serde_json::Error) -> usize {
    let lines = text.split_inclusive('\n').take(error.line().saturating_sub(1));
    lines.map(str::len).sum::<usize>() + error.column()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;
    use crate::admission::Meta;
    use crate::admission::bounded::{labels, short_if_any};

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct Read {
        #[serde(deserialize_with = "from_map")]
        metadata: Meta,
        spec: Option<Spec>,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct Spec {
        #[serde(deserialize_with = "short_if_any")]
        name: Option<String>,
        count: Option<u8>,
        #[serde(deserialize_with = "labels")]
        labels: Option<BTreeMap<String, String>>,
        deeper: Option<Box<Self>>,
    }

    fn fields(object: &str) -> (Read, Vec<String>) {
        let (object, unread) = read::<Read>(object).unwrap();
        (object, unread.iter().map(Unread::field).collect())
    }

    /// Whatever cannot be read, wherever it is: it alone is left out.
    #[test]
    fn each_field_that_cannot_be_read_is_named_and_left_out() {
        let long = "x".repeat(5_000);
        let whole = json!({
            "metadata": { "name": "demo", "annotations": { "hibernate.sh/reason": "night", "other": 7 } },
            "spec": { "name": "a", "count": 1, "labels": { "a.b/c": "d" }, "unknown": [1], "deeper": { "name": "b", "count": 2 } },
        });
        for (pointer, value, field) in [
            ("/spec/name", json!(long), "spec.name"),
            ("/spec/name", json!(["n\u{2029}", { "spec": 1 }]), "spec.name"),
            ("/spec/count", json!(-1), "spec.count"),
            ("/spec/deeper/name", json!({}), "spec.deeper.name"),
            ("/spec/deeper", json!("deep"), "spec.deeper"),
            ("/spec/labels/a.b~1c", json!(long), "spec.labels"),
            ("/spec/labels", json!([]), "spec.labels"),
            ("/spec", json!(7), "spec"),
            ("/metadata/name", json!(null), "metadata.name"),
            ("/metadata/annotations/hibernate.sh~1reason", json!(7), "metadata.annotations[hibernate.sh/reason]"),
            ("/metadata/annotations", json!("x"), "metadata.annotations"),
            ("/metadata", json!([]), "metadata"),
        ] {
            let mut object = whole.clone();
            *object.pointer_mut(pointer).unwrap() = value;
            for text in [object.to_string(), serde_json::to_string_pretty(&object).unwrap()] {
                let (object, unread) = fields(&text);
                assert_eq!(unread, [field], "{pointer}");
                assert!(object.metadata.name == "demo" || field.starts_with("metadata"), "{pointer}");
                let deep = object.spec.and_then(|spec| Some((spec.count, spec.deeper?.count?)));
                assert!(deep == Some((Some(1), 2)) || field.starts_with("spec"), "{pointer}: {deep:?}");
            }
        }
        assert_eq!(fields(&whole.to_string()).1, [""; 0]);
        let all =
            json!({ "metadata": [], "spec": { "name": 1, "count": "x", "labels": 2, "deeper": { "name": long } } });
        let mut found = fields(&all.to_string()).1;
        found.sort();
        assert_eq!(found, ["metadata", "spec.count", "spec.deeper.name", "spec.labels", "spec.name"]);
        for wrong in ["7", "[]", "null", "\"x\"", "{"] {
            assert!(read::<Read>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_no_api_server_sends_ends() {
        let many: Vec<String> = (0..10_000).map(|number| format!(r#""hibernate.sh/{number}":7"#)).collect();
        let (_, found) =
            fields(&format!(r#"{{"spec":{{"count":"x"}},"metadata":{{"annotations":{{{}}}}}}}"#, many.join(",")));
        assert_eq!(found, ["spec.count", "metadata"]);
        let (object, found) = fields(r#"{"spec":{"n\u0061me":"\ud800","":[],"count":1,"count":2}}"#);
        assert_eq!(found, ["spec.name", "spec.count"]);
        assert_eq!(object.spec.unwrap().count, Some(1));
    }

    /// An object of 4 MB whose fields are all wrong, each of them many times.
    #[test]
    fn a_large_object_is_read_few_times() {
        thread_local!(static ATTEMPTS: Cell<usize> = const { Cell::new(0) });

        #[derive(Debug, Default)]
        struct Counted(Read);

        impl<'de> Deserialize<'de> for Counted {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                ATTEMPTS.set(ATTEMPTS.get() + 1);
                Read::deserialize(deserializer).map(Self)
            }
        }

        let spec = r#""name":7,"n\u0061me":8,"count":"x","labels":2,"deeper":3"#;
        let (specs, filler) = ([r#""spec":{SPEC}"#; 10].join(",").replace("SPEC", spec), "0,".repeat(2_000_000));
        let large = format!(r#"{{"unknown":[{filler}0],{specs},"metadata":{{"name":9}},"sp\u0065c":{{{spec}}}}}"#);
        let (Counted(object), unread) = read::<Counted>(&large).unwrap();
        assert!(ATTEMPTS.get() <= 8, "{}", ATTEMPTS.get());
        assert!(object.spec.is_none() && unread.len() == 2);
        assert!(["spec", "metadata"].iter().all(|field| unread.iter().any(|unread| unread.covers(&[*field]))));
        let unread = UnreadFields::new(Some((&large.replace("9}", "8}"), unread.clone())), (&large, unread));
        let altered = unread.new.iter().filter(|field| field.altered()).map(Unread::field).collect::<Vec<_>>();
        assert_eq!(altered, ["metadata"]);
    }

    #[test]
    fn a_field_is_altered_if_the_request_writes_another_value() {
        let long = |letter: &str| json!({ "spec": { "name": letter.repeat(5_000), "count": 1 } }).to_string();
        let altered = |old: Option<&str>, new: &str| {
            let listed = |text: &str| read::<Read>(text).unwrap().1;
            let unread = UnreadFields::new(old.map(|old| (old, listed(old))), (new, listed(new)));
            (unread.old.len(), unread.new.iter().map(Unread::altered).collect::<Vec<_>>())
        };
        let (a, b, fine) = (long("a"), long("b"), json!({ "spec": { "name": "a" } }).to_string());
        assert_eq!(altered(None, &a), (0, vec![true]));
        assert_eq!(altered(Some(&a), &a), (1, vec![false]));
        assert_eq!(altered(Some(&b), &a), (1, vec![true]));
        assert_eq!(altered(Some(&fine), &a), (0, vec![true]));
        assert_eq!(altered(Some("{}"), &a), (0, vec![true]));
        assert_eq!(altered(Some(&a), &fine), (1, vec![]));
    }

    #[test]
    fn a_denial_says_what_was_found_and_what_would_be_right() {
        let detail = |spec: Value| {
            let (_, unread) = read::<Read>(&json!({ "spec": spec }).to_string()).unwrap();
            unread[0].denial().detail.to_string()
        };
        assert_eq!(
            detail(json!({ "name": "1h".repeat(2_500) })),
            "spec.name: found \"1h1h1h1h1h1h1h1h1h1h1h1h1h1h1h1h1h1h1h1... (5002 bytes), which cannot be read: must be a string of at most 4096 bytes"
        );
        assert_eq!(
            detail(json!({ "count": "2" })),
            "spec.count: found \"2\", which cannot be read: invalid type: string \"2\", expected u8"
        );
        let unread = read::<Read>(r#"{"spec":{"deeper":{"name":7}}}"#).unwrap().1;
        let of = |path: &[&str]| (unread[0].concerns(path), unread[0].covers(path));
        assert_eq!(of(&["spec", "deeper"]), (true, false));
        assert_eq!(of(&["spec", "deeper", "name"]), (true, true));
        assert_eq!(of(&["spec", "deeper", "name", "x"]), (true, true));
        assert_eq!(of(&["spec", "name"]), (false, false));
    }
}
