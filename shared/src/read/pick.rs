//! Picks parts of JSON text as they are written.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The values at these paths, in one pass. The last of two members with one name counts, as in Go. Malformed JSON has no
/// values.
pub fn pick<'t>(text: &'t str, paths: &[&[String]]) -> Vec<Option<&'t str>> {
    let mut found = vec![None; paths.len()];
    let wanted = paths.iter().copied().enumerate().collect();
    let _ = Pick { wanted, found: &mut found }.deserialize(&mut serde_json::Deserializer::from_str(text));
    found
}

struct Pick<'p, 't, 'f> {
    /// The index of a path, and the rest of it.
    wanted: Vec<(usize, &'p [String])>,
    found: &'f mut Vec<Option<&'t str>>,
}

impl<'t> DeserializeSeed<'t> for Pick<'_, 't, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'t>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

macro_rules! nothing {
    ($($visit:ident: $type:ty),*) => {$(
        fn $visit<E>(self, _: $type) -> Result<(), E> {
            Ok(())
        }
    )*};
}

impl<'t> Visitor<'t> for Pick<'_, 't, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    nothing! { visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'t>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<Cow<'t, str>>()? {
            let inside = self.wanted.iter().filter_map(|(at, path)| match path.split_first() {
                Some((first, rest)) if *first == name => Some((*at, rest)),
                _ => None,
            });
            let wanted: Vec<_> = inside.collect();
            if wanted.is_empty() {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            for (at, _) in &wanted {
                self.found[*at] = None;
            }
            if wanted.iter().any(|(_, path)| path.is_empty()) {
                let value = map.next_value::<&RawValue>()?.get();
                for (at, path) in wanted {
                    self.found[at] = if path.is_empty() { Some(value) } else { pick(value, &[path])[0] };
                }
            } else {
                map.next_value_seed(Pick { wanted, found: &mut *self.found })?;
            }
        }
        Ok(())
    }
}
