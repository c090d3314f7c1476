//! Serde visitors that read a string in place, or a list entry by entry: only what is kept is allocated and charged.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};

pub(crate) struct Text<F> {
    what: &'static str,
    read: F,
}

/// Reads a text without copying it. `what` is expected, for the error.
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

/// Reads a text of at most so many bytes; a longer one is an error.
pub(crate) fn short<'de, D: Deserializer<'de>>(deserializer: D, most: usize) -> Result<String, D::Error> {
    deserializer.deserialize_str(text("a string", |text| {
        if text.len() > most { Err(format!("must be a string of at most {most} bytes")) } else { Ok(text.to_owned()) }
    }))
}

/// Folds the entries of a list into a value. Null gives the default.
pub(crate) fn fold<'de, T, A, D>(deserializer: D, take: impl FnMut(&mut A, T)) -> Result<A, D::Error>
where
    T: Deserialize<'de>,
    A: Default,
    D: Deserializer<'de>,
{
    deserializer.deserialize_seq(List { kept: A::default(), take, entry: PhantomData })
}

struct List<T, A, F> {
    kept: A,
    take: F,
    entry: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>, A: Default, F: FnMut(&mut A, T)> Visitor<'de> for List<T, A, F> {
    type Value = A;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_unit<E>(self) -> Result<A, E> {
        Ok(A::default())
    }

    fn visit_seq<L: SeqAccess<'de>>(mut self, mut list: L) -> Result<A, L::Error> {
        while list.next_element_seed(&mut self)?.is_some() {}
        Ok(self.kept)
    }
}

/// Reads an entry. A seed without a value is not counted as kept.
impl<'de, T: Deserialize<'de>, A, F: FnMut(&mut A, T)> DeserializeSeed<'de> for &mut List<T, A, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        (self.take)(&mut self.kept, T::deserialize(deserializer)?);
        Ok(())
    }
}
