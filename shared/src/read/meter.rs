//! Builds a value by any format's parser, in one pass, and counts what is kept of it.
//!
//! The parser is left behind each value that does not fit its type, so that reading goes on behind it: a type that takes
//! a default instead ([`super::lenient`]) gets one, and the field is listed.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::mem::size_of;

use serde::de::value::{
    self, CowStrDeserializer, MapAccessDeserializer, SeqDeserializer, StrDeserializer, StringDeserializer,
};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

use super::{Field, Limits};
use crate::text::sanitize_to;

/// Bytes that a text, a list or a map takes besides what is in it.
const OVERHEAD: usize = 24;
/// A list grows by doubling: half of it may be spare.
const GROWN: usize = 2;
/// Elements for which a list allocates at first, and members for which a map does.
const FIRST_ELEMENTS: usize = 4;
const FIRST_MEMBERS: usize = 11;
/// Most values that do not fit. No type has so many fields: they are given again and again.
const MAX_MISFITS: usize = 256;

/// What is built so far.
pub(super) struct Budget<'a> {
    limits: &'a Limits,
    charge: &'a mut dyn FnMut(usize) -> bool,
    pub(super) kept: usize,
    /// Names of the members around what is being read, and where each of them ends.
    names: String,
    ends: Vec<usize>,
    pub(super) fields: Vec<Field>,
    misfits: usize,
    /// Why the value that was read last does not fit its type. The parser is behind it.
    pub(super) misfit: Option<String>,
    /// Why nothing more can be read.
    pub(super) fatal: Option<String>,
}

impl<'a> Budget<'a> {
    pub(super) fn new(limits: &'a Limits, charge: &'a mut dyn FnMut(usize) -> bool) -> Self {
        let (names, ends, fields) = (String::with_capacity(128), Vec::with_capacity(8), Vec::new());
        Self { limits, charge, kept: 0, names, ends, fields, misfits: 0, misfit: None, fatal: None }
    }

    /// So much more is kept.
    pub(super) fn keep(&mut self, bytes: usize) -> Result<(), String> {
        self.kept = self.kept.saturating_add(bytes);
        let fits = self.kept <= self.limits.kept;
        if fits && (self.charge)(bytes) {
            return Ok(());
        }
        let most = if fits { "there is memory for".to_owned() } else { Size(self.limits.kept).to_string() };
        Err(format!("more than {most} of it would be kept"))
    }

    #[inline]
    fn text(&mut self, length: usize) -> Result<(), String> {
        let is_annotation = self.ends.len() > 1 && self.name(self.ends.len() - 2) == "annotations";
        let most = if is_annotation { self.limits.annotation } else { self.limits.text };
        if length > most {
            return Err(format!("must be a text of at most {}", Size(most)));
        }
        self.keep(length + OVERHEAD)
    }

    /// Whether a member of this name is skipped.
    #[inline]
    fn skips(&self, name: &str) -> bool {
        (self.limits.skips)(self.ends.len().checked_sub(1).map_or("", |at| self.name(at)), name)
    }

    /// Bytes up to which what is skipped is kept here nevertheless.
    fn brief(&self) -> usize {
        if self.ends.last().is_some() && self.name(self.ends.len() - 1) == "annotations" {
            self.limits.brief
        } else {
            0
        }
    }

    /// The name of one of the members around what is being read, from the outside.
    #[inline]
    fn name(&self, at: usize) -> &str {
        let begin = at.checked_sub(1).and_then(|at| self.ends.get(at)).copied().unwrap_or_default();
        self.ends.get(at).and_then(|end| self.names.get(begin..*end)).unwrap_or_default()
    }

    #[inline]
    fn enter(&mut self, name: &str) {
        self.names.push_str(name);
        self.ends.push(self.names.len());
    }

    #[inline]
    fn leave(&mut self) {
        self.ends.pop();
        self.names.truncate(self.ends.last().copied().unwrap_or_default());
    }

    fn path(&self) -> Vec<String> {
        (0..self.ends.len()).map(|at| self.name(at).to_owned()).collect()
    }

    /// A value was read, before which so much was kept. One that did not fit, and was replaced by a default, is listed, and
    /// nothing of it is kept.
    fn settle(&mut self, before: usize) -> Result<(), String> {
        if let Some(why) = &self.fatal {
            return Err(why.clone());
        }
        let Some(why) = self.misfit.take() else { return Ok(()) };
        self.kept = before;
        self.misfits += 1;
        if self.misfits > MAX_MISFITS {
            self.fatal = Some("too many values do not fit".to_owned());
        }
        let path = self.path();
        if !self.fields.iter().any(|other| path.starts_with(&other.path)) {
            self.fields.retain(|other| !other.path.starts_with(&path));
            self.fields.push(Field { path, why });
        }
        Ok(())
    }

    /// The parser has failed, unless a value did not fit its type: then it is behind that value.
    fn fail(&mut self, error: &impl fmt::Display) {
        if self.misfit.is_none() {
            self.fatal.get_or_insert_with(|| line(error));
        }
    }

    /// A type does not take the value that the parser is behind.
    fn refuse(&mut self, error: &impl fmt::Display) {
        if self.fatal.is_none() {
            self.misfit.get_or_insert_with(|| line(error));
        }
    }
}

/// A number of bytes, for people.
pub(super) struct Size(pub(super) usize);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes >= 1 << 20 => write!(f, "{} MiB", bytes >> 20),
            bytes if bytes >= 1 << 10 => write!(f, "{} KiB", bytes >> 10),
            bytes => write!(f, "{bytes} bytes"),
        }
    }
}

/// What `&RawValue` asks the parser for. A part of the text itself is borrowed, and not kept.
const AS_WRITTEN: &str = "$serde_json::private::RawValue";

/// Characters that are kept of an error: errors quote what they are about.
const MAX_ERROR: usize = 200;

fn line(error: &impl fmt::Display) -> String {
    sanitize_to(error, MAX_ERROR)
}

/// An error of which a line is kept.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Short(String);

impl Error for Short {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(line(&message))
    }
}

type Counter<'b, 'l> = &'b RefCell<Budget<'l>>;

/// A deserializer of which everything that is kept is counted.
pub(super) struct Metered<'b, 'l, D> {
    pub(super) inner: D,
    pub(super) budget: Counter<'b, 'l>,
}

/// What a type asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Scalar,
    Text,
    /// A name of a field, which is not kept.
    Name,
    List,
    Map,
    /// A map whose values are these fields: its size is counted where it is kept, and others are skipped.
    Fields(&'static [&'static str]),
    Enum(&'static str, &'static [&'static str]),
}

impl<'de, D: Deserializer<'de>> Metered<'_, '_, D> {
    fn any<V: Visitor<'de>>(self, visitor: V, wanted: Wanted) -> Result<V::Value, D::Error> {
        let budget = self.budget;
        let read = self.inner.deserialize_any(Building { visitor, budget, wanted });
        if let Err(error) = &read {
            budget.borrow_mut().fail(error);
        }
        read
    }
}

macro_rules! wanted {
    ($($method:ident: $wanted:expr;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.any(visitor, $wanted)
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Metered<'_, '_, D> {
    type Error = D::Error;

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct
    }

    wanted! {
        deserialize_any: Wanted::Scalar;
        deserialize_str: Wanted::Text;
        deserialize_string: Wanted::Text;
        deserialize_identifier: Wanted::Name;
        deserialize_seq: Wanted::List;
        deserialize_map: Wanted::Map;
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.any(visitor, Wanted::Fields(fields))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.any(visitor, Wanted::Enum(name, variants))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let Self { inner, budget } = self;
        let read = inner.deserialize_option(Building { visitor, budget, wanted: Wanted::Scalar });
        read.inspect_err(|error| budget.borrow_mut().fail(error))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, D::Error> {
        if name != AS_WRITTEN {
            return visitor.visit_newtype_struct(self);
        }
        let read = self.inner.deserialize_newtype_struct(name, visitor);
        read.inspect_err(|error| self.budget.borrow_mut().fail(error))
    }

    /// What is skipped is not built.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let read = self.inner.deserialize_ignored_any(visitor);
        read.inspect_err(|error| self.budget.borrow_mut().fail(error))
    }
}

/// Counts what a visitor builds.
struct Building<'b, 'l, V> {
    visitor: V,
    budget: Counter<'b, 'l>,
    wanted: Wanted,
}

/// What a visitor has made of a value that the parser is behind.
fn made<T, E: Error>(budget: Counter<'_, '_>, made: Result<T, Short>) -> Result<T, E> {
    made.map_err(|why| {
        budget.borrow_mut().refuse(&why);
        E::custom(why)
    })
}

/// The members of nothing: an API server writes null for a list or a map without members.
fn nothing<'de>() -> value::MapDeserializer<'de, std::iter::Empty<(&'static str, &'static str)>, Short> {
    value::MapDeserializer::new(std::iter::empty())
}

macro_rules! numbers {
    ($($visit:ident: $type:ty),*) => {$(
        fn $visit<E: Error>(self, found: $type) -> Result<V::Value, E> {
            made(self.budget, self.visitor.$visit(found))
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Building<'_, '_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    numbers! { visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64 }

    fn visit_str<E: Error>(self, text: &str) -> Result<V::Value, E> {
        let found = match self.wanted {
            Wanted::Enum(name, variants) => {
                StrDeserializer::<Short>::new(text).deserialize_enum(name, variants, self.visitor)
            }
            Wanted::Name => self.visitor.visit_str(text),
            _ => match self.budget.borrow_mut().text(text.len()) {
                Ok(()) => self.visitor.visit_str(text),
                Err(why) => Err(Short(why)),
            },
        };
        made(self.budget, found)
    }

    /// A type may borrow it, and is charged as if it did not.
    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<V::Value, E> {
        if !matches!(self.wanted, Wanted::Text) {
            return self.visit_str(text);
        }
        let charged = self.budget.borrow_mut().text(text.len()).map_err(Short);
        made(self.budget, charged.and_then(|()| self.visitor.visit_borrowed_str(text)))
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        let found = match self.wanted {
            Wanted::Text => self.visitor.visit_str(""),
            Wanted::List => self.visitor.visit_seq(SeqDeserializer::<_, Short>::new(std::iter::empty::<u8>())),
            Wanted::Map | Wanted::Fields(_) => self.visitor.visit_map(nothing()),
            Wanted::Scalar | Wanted::Name | Wanted::Enum(..) => self.visitor.visit_unit(),
        };
        made(self.budget, found)
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        made(self.budget, self.visitor.visit_none())
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        let found = self.visitor.visit_some(Metered { inner, budget: self.budget });
        if let Err(error) = &found {
            self.budget.borrow_mut().refuse(error);
        }
        found
    }

    fn visit_seq<A: SeqAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        let mut members = Members::new(inner, self.budget, None);
        let found = match self.wanted {
            // Serde would take a list for a struct, field by field, and a patch of the object would fail.
            Wanted::Fields(_) => Err(A::Error::custom("invalid type: sequence, expected an object")),
            _ => self.visitor.visit_seq(&mut members),
        };
        members.end(found, |inner, _| {
            let mut skipped = 0;
            while inner.next_element::<IgnoredAny>()?.is_some() {
                skipped += 1;
            }
            Ok(skipped)
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        let fields = match self.wanted {
            Wanted::Fields(fields) => Some(fields),
            _ => None,
        };
        let mut members = Members::new(inner, self.budget, fields);
        let found = match self.wanted {
            Wanted::Enum(name, variants) => {
                MapAccessDeserializer::new(&mut members).deserialize_enum(name, variants, self.visitor)
            }
            _ => self.visitor.visit_map(&mut members),
        };
        members.end(found, |inner, has_value| {
            let mut skipped = 0;
            if has_value {
                inner.next_value::<IgnoredAny>()?;
            }
            while inner.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                skipped += 1;
            }
            Ok(skipped)
        })
    }
}

/// The elements of a list or the members of a map.
struct Members<'b, 'l, A> {
    inner: A,
    budget: Counter<'b, 'l>,
    count: usize,
    /// Bytes of a key.
    key: usize,
    /// The only ones that are read. Those of a struct are counted where it is kept.
    fields: Option<&'static [&'static str]>,
    /// The value of a key is yet to be read.
    has_value: bool,
    /// It, if it was read to know how long it is.
    text: Option<String>,
}

impl<'b, 'l, A> Members<'b, 'l, A> {
    fn new(inner: A, budget: Counter<'b, 'l>, fields: Option<&'static [&'static str]>) -> Self {
        Self { inner, budget, count: 0, key: 0, fields, has_value: false, text: None }
    }

    /// One more, of this size.
    fn another<E: Error>(&mut self, size: usize, first: usize) -> Result<(), E> {
        if self.fields.is_some() || size == 0 {
            return Ok(());
        }
        let begun = if self.count == 0 { first * size + OVERHEAD } else { 0 };
        self.count += 1;
        self.budget.borrow_mut().keep(begun + GROWN * size).map_err(E::custom)
    }

    /// A member was read, unless there is an error. So much was kept before.
    #[inline]
    fn settle<E: Error>(&self, before: usize, error: Option<&E>) -> Result<(), E> {
        let mut budget = self.budget.borrow_mut();
        if let Some(error) = error {
            budget.fail(error);
        } else if budget.misfit.is_some() || budget.fatal.is_some() {
            return budget.settle(before).map_err(E::custom);
        }
        Ok(())
    }

    /// Leaves the parser behind the last member, whatever was made of them.
    fn end<T, E: Error>(
        mut self,
        made: Result<T, E>,
        skip: impl FnOnce(&mut A, bool) -> Result<usize, E>,
    ) -> Result<T, E> {
        let mut budget = self.budget.borrow_mut();
        if self.has_value {
            budget.leave();
        }
        if let Err(error) = &made {
            budget.refuse(error); // unless something in it has failed already, this is the visitor's own
            if budget.fatal.is_some() {
                return made;
            }
        }
        match skip(&mut self.inner, self.has_value && self.text.is_none()) {
            Ok(skipped) if skipped > 0 && made.is_ok() => {
                let error = E::custom("it has more entries than expected");
                budget.refuse(&error);
                Err(error)
            }
            Ok(_) => made,
            Err(error) => {
                budget.fatal.get_or_insert_with(|| line(&error));
                Err(error)
            }
        }
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for &mut Members<'_, '_, A> {
    type Error = A::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, A::Error> {
        let before = self.budget.borrow().kept;
        let read = self.inner.next_element_seed(Seed { seed, budget: self.budget });
        self.settle(before, read.as_ref().err())?;
        if matches!(read, Ok(Some(_))) {
            self.another(size_of::<T::Value>(), FIRST_ELEMENTS)?;
        }
        read
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for &mut Members<'_, '_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        let before = self.budget.borrow().kept;
        loop {
            let read = self.inner.next_key_seed(Name);
            self.settle(before, read.as_ref().err())?;
            let Some(name) = read? else { return Ok(None) };
            let is_field = self.fields.is_none_or(|fields| fields.contains(&name.as_ref()));
            if !is_field || self.budget.borrow().skips(&name) {
                let most = if is_field { self.budget.borrow().brief() } else { 0 };
                let skipped = if most > 0 {
                    let text = self.inner.next_value_seed(Name);
                    text.map(|text| Some(text).filter(|text| text.len() <= most).map(Cow::into_owned))
                } else {
                    self.inner.next_value::<IgnoredAny>().map(|_| None)
                };
                self.settle(before, skipped.as_ref().err())?;
                self.text = skipped?;
                if self.text.is_none() {
                    continue;
                }
            }
            self.budget.borrow_mut().enter(&name);
            (self.has_value, self.key) = (true, size_of::<K::Value>());
            let made = Seed { seed, budget: self.budget }.deserialize(CowStrDeserializer::new(name));
            self.settle(before, made.as_ref().err())?;
            return made.map(Some);
        }
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        let size = size_of::<T::Value>();
        self.another(if size == 0 { 0 } else { self.key + size }, FIRST_MEMBERS)?;
        self.has_value = false;
        let before = self.budget.borrow().kept;
        let seed = Seed { seed, budget: self.budget };
        let read = match self.text.take() {
            Some(text) => seed.deserialize(StringDeserializer::new(text)),
            None => self.inner.next_value_seed(seed),
        };
        let settled = self.settle(before, read.as_ref().err());
        self.budget.borrow_mut().leave();
        settled?;
        read
    }
}

/// The name of a member, copied only if it has escapes.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<Cow<'de, str>, D::Error> {
        inner.deserialize_identifier(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}

pub(super) struct Seed<'b, 'l, T> {
    pub(super) seed: T,
    pub(super) budget: Counter<'b, 'l>,
}

impl<'de, T: DeserializeSeed<'de>> DeserializeSeed<'de> for Seed<'_, '_, T> {
    type Value = T::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<T::Value, D::Error> {
        let Self { seed, budget } = self;
        let made = seed.deserialize(Metered { inner, budget });
        if let Err(error) = &made {
            budget.borrow_mut().refuse(error); // a type may refuse what it has read
        }
        made
    }
}
