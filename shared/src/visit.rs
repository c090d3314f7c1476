//! Frames of serde visitors: a text, a list, a map, read piece by piece. Nothing is held but what is kept, and what is
//! skipped is never built: whoever charges what is built, as the reader of spokes does, charges no more than that.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A text that is looked at where it is.
pub(crate) struct Text<F> {
    what: &'static str,
    read: F,
}

/// Reads a text, without copying it. `what` it has to be, for the error.
pub(crate) fn text<T, F: FnOnce(&str) -> Result<T, String>>(what: &'static str, read: F) -> Text<F> {
    Text { what, read }
}

impl<T, F: FnOnce(&str) -> Result<T, String>> Visitor<'_> for Text<F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.read)(text).map_err(E::custom)
    }
}

impl<'de, T, F: FnOnce(&str) -> Result<T, String>> DeserializeSeed<'de> for Text<F> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_str(self)
    }
}

/// Reads a text of at most so many bytes.
///
/// # Errors
/// When it is no text, or longer.
pub(crate) fn short<'de, D: Deserializer<'de>>(deserializer: D, most: usize) -> Result<String, D::Error> {
    deserializer.deserialize_str(text("a string", |text| {
        if text.len() > most { Err(format!("must be a string of at most {most} bytes")) } else { Ok(text.to_owned()) }
    }))
}

/// A list of at most so many entries, each of which is taken into what is kept. Null is the default.
pub(crate) struct List<T, A> {
    pub(crate) kept: A,
    pub(crate) most: usize,
    pub(crate) take: fn(&mut A, T),
}

impl<'de, T: Deserialize<'de>, A: Default> Visitor<'de> for List<T, A> {
    type Value = A;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_unit<E>(self) -> Result<A, E> {
        Ok(A::default())
    }

    fn visit_seq<L: SeqAccess<'de>>(mut self, mut list: L) -> Result<A, L::Error> {
        let mut count = 0;
        while list.next_element_seed(Entry(&mut self.kept, self.take))?.is_some() {
            count += 1;
            if count > self.most {
                return Err(L::Error::custom(format_args!("a list has more than {} entries", self.most)));
            }
        }
        Ok(self.kept)
    }
}

/// An entry of a list. As a seed without a value it is not counted as one that is kept.
struct Entry<'a, T, A>(&'a mut A, fn(&mut A, T));

impl<'de, T: Deserialize<'de>, A> DeserializeSeed<'de> for Entry<'_, T, A> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        (self.1)(self.0, T::deserialize(deserializer)?);
        Ok(())
    }
}

/// A map, of which the wanted members are taken into what is kept, and the others are skipped. Null is the default.
pub(crate) struct Map<K, V, A> {
    pub(crate) kept: A,
    pub(crate) wanted: fn(&K) -> bool,
    pub(crate) take: fn(&mut A, K, V) -> Result<(), String>,
}

impl<'de, K: Deserialize<'de>, V: Deserialize<'de>, A: Default> Visitor<'de> for Map<K, V, A> {
    type Value = A;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_unit<E>(self) -> Result<A, E> {
        Ok(A::default())
    }

    fn visit_map<M: MapAccess<'de>>(mut self, mut map: M) -> Result<A, M::Error> {
        while let Some(key) = map.next_key()? {
            if (self.wanted)(&key) {
                let value = map.next_value()?;
                (self.take)(&mut self.kept, key, value).map_err(M::Error::custom)?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(self.kept)
    }
}
