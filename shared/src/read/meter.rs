//! Builds a value with any format's parser in one pass, and counts what is kept of it.
//!
//! A value that does not fit its type leaves the parser behind that value, so that reading can go on: a type that takes a
//! default instead ([`super::lenient`]) gets one, and the field is listed.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::mem::size_of;

use serde::de::value::{
    self, CowStrDeserializer, MapAccessDeserializer, SeqDeserializer, StrDeserializer, StringDeserializer,
};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

use super::budget::{Budget, OVERHEAD, ShortError, line};

/// A list grows by doubling, so half of it may be spare.
const GROWTH: usize = 2;
/// Capacity that a list and a map allocate at first.
const FIRST_ELEMENTS: usize = 4;
const FIRST_MEMBERS: usize = 11;
/// The name by which `&RawValue` is requested. It borrows from the text, so it is not counted.
const RAW_VALUE: &str = "$serde_json::private::RawValue";

type Counter<'b, 'l> = &'b RefCell<Budget<'l>>;

/// Counts everything that a type keeps of a value.
pub(super) struct CountingDeserializer<'b, 'l, D> {
    pub(super) inner: D,
    pub(super) budget: Counter<'b, 'l>,
}

/// What a type expects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expected {
    Scalar,
    Text,
    /// The name of a field, which is not kept.
    Name,
    List,
    Map,
    /// The members of a struct, whose size is counted where the struct is kept. Others are skipped.
    Fields(&'static [&'static str]),
    Enum(&'static str, &'static [&'static str]),
}

impl<'de, D: Deserializer<'de>> CountingDeserializer<'_, '_, D> {
    fn any<V: Visitor<'de>>(self, visitor: V, expected: Expected) -> Result<V::Value, D::Error> {
        let Self { inner, budget } = self;
        let read = inner.deserialize_any(CountingVisitor { visitor, budget, expected });
        read.inspect_err(|error| budget.borrow_mut().fail(error))
    }
}

macro_rules! expected {
    ($($method:ident: $expected:expr;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.any(visitor, $expected)
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for CountingDeserializer<'_, '_, D> {
    type Error = D::Error;

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct
    }

    expected! {
        deserialize_any: Expected::Scalar;
        deserialize_str: Expected::Text;
        deserialize_string: Expected::Text;
        deserialize_identifier: Expected::Name;
        deserialize_seq: Expected::List;
        deserialize_map: Expected::Map;
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.any(visitor, Expected::Fields(fields))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.any(visitor, Expected::Enum(name, variants))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let Self { inner, budget } = self;
        let read = inner.deserialize_option(CountingVisitor { visitor, budget, expected: Expected::Scalar });
        read.inspect_err(|error| budget.borrow_mut().fail(error))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, D::Error> {
        if name != RAW_VALUE {
            return visitor.visit_newtype_struct(self);
        }
        let read = self.inner.deserialize_newtype_struct(name, visitor);
        read.inspect_err(|error| self.budget.borrow_mut().fail(error))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let read = self.inner.deserialize_ignored_any(visitor);
        read.inspect_err(|error| self.budget.borrow_mut().fail(error))
    }
}

struct CountingVisitor<'b, 'l, V> {
    visitor: V,
    budget: Counter<'b, 'l>,
    expected: Expected,
}

/// Notes it if a visitor has refused a value that the parser has just read.
fn note_misfit<T, E: Error>(budget: Counter<'_, '_>, visited: Result<T, ShortError>) -> Result<T, E> {
    visited.map_err(|why| {
        budget.borrow_mut().refuse(&why);
        E::custom(why)
    })
}

/// Stands for null: an API server writes it for an empty list or map.
fn empty_map<'de>() -> value::MapDeserializer<'de, std::iter::Empty<(&'static str, &'static str)>, ShortError> {
    value::MapDeserializer::new(std::iter::empty())
}

macro_rules! numbers {
    ($($visit:ident: $type:ty),*) => {$(
        fn $visit<E: Error>(self, found: $type) -> Result<V::Value, E> {
            note_misfit(self.budget, self.visitor.$visit(found))
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for CountingVisitor<'_, '_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    numbers! { visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64 }

    fn visit_str<E: Error>(self, text: &str) -> Result<V::Value, E> {
        let found = match self.expected {
            Expected::Enum(name, variants) => {
                StrDeserializer::<ShortError>::new(text).deserialize_enum(name, variants, self.visitor)
            }
            Expected::Name => self.visitor.visit_str(text),
            _ => match self.budget.borrow_mut().text(text.len()) {
                Ok(()) => self.visitor.visit_str(text),
                Err(why) => Err(ShortError(why)),
            },
        };
        note_misfit(self.budget, found)
    }

    /// A type that borrows is charged as if it copied.
    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<V::Value, E> {
        if !matches!(self.expected, Expected::Text) {
            return self.visit_str(text);
        }
        let charged = self.budget.borrow_mut().text(text.len()).map_err(ShortError);
        note_misfit(self.budget, charged.and_then(|()| self.visitor.visit_borrowed_str(text)))
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        let found = match self.expected {
            Expected::Text => self.visitor.visit_str(""),
            Expected::List => self.visitor.visit_seq(SeqDeserializer::<_, ShortError>::new(std::iter::empty::<u8>())),
            Expected::Map | Expected::Fields(_) => self.visitor.visit_map(empty_map()),
            Expected::Scalar | Expected::Name | Expected::Enum(..) => self.visitor.visit_unit(),
        };
        note_misfit(self.budget, found)
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        note_misfit(self.budget, self.visitor.visit_none())
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        let found = self.visitor.visit_some(CountingDeserializer { inner, budget: self.budget });
        found.inspect_err(|error| self.budget.borrow_mut().refuse(error))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        let mut members = Members::new(inner, self.budget, None);
        let found = match self.expected {
            // Serde would take a list for a struct, field by field, and a patch of the object would fail.
            Expected::Fields(_) => Err(A::Error::custom("invalid type: sequence, expected an object")),
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
        let fields = match self.expected {
            Expected::Fields(fields) => Some(fields),
            _ => None,
        };
        let mut members = Members::new(inner, self.budget, fields);
        let found = match self.expected {
            Expected::Enum(name, variants) => {
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
    /// Size of the current key.
    key: usize,
    /// The only members that are read, for a struct.
    fields: Option<&'static [&'static str]>,
    /// The value of the current key is still to be read.
    has_value: bool,
    /// That value, if it was read ahead to know its length.
    text: Option<String>,
}

impl<'b, 'l, A> Members<'b, 'l, A> {
    fn new(inner: A, budget: Counter<'b, 'l>, fields: Option<&'static [&'static str]>) -> Self {
        Self { inner, budget, count: 0, key: 0, fields, has_value: false, text: None }
    }

    /// Counts one more member of this size. The first one allocates room for `first`.
    fn count_member<E: Error>(&mut self, size: usize, first: usize) -> Result<(), E> {
        if self.fields.is_some() || size == 0 {
            return Ok(());
        }
        let allocated = if self.count == 0 { first * size + OVERHEAD } else { 0 };
        self.count += 1;
        self.budget.borrow_mut().keep(allocated + GROWTH * size).map_err(E::custom)
    }

    /// Ends a member, before which so much was kept.
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

    /// Takes the parser behind the last member, whatever the visitor has read of them.
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
            budget.refuse(error); // keeps an earlier error of a member
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
        let read = self.inner.next_element_seed(CountingSeed { seed, budget: self.budget });
        self.settle(before, read.as_ref().err())?;
        if matches!(read, Ok(Some(_))) {
            self.count_member(size_of::<T::Value>(), FIRST_ELEMENTS)?;
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
            let made = CountingSeed { seed, budget: self.budget }.deserialize(CowStrDeserializer::new(name));
            self.settle(before, made.as_ref().err())?;
            return made.map(Some);
        }
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        let size = size_of::<T::Value>();
        self.count_member(if size == 0 { 0 } else { self.key + size }, FIRST_MEMBERS)?;
        self.has_value = false;
        let before = self.budget.borrow().kept;
        let seed = CountingSeed { seed, budget: self.budget };
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

/// Reads the name of a member, and copies it only if it has escapes.
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

pub(super) struct CountingSeed<'b, 'l, T> {
    pub(super) seed: T,
    pub(super) budget: Counter<'b, 'l>,
}

impl<'de, T: DeserializeSeed<'de>> DeserializeSeed<'de> for CountingSeed<'_, '_, T> {
    type Value = T::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<T::Value, D::Error> {
        let Self { seed, budget } = self;
        let made = seed.deserialize(CountingDeserializer { inner, budget });
        made.inspect_err(|error| budget.borrow_mut().refuse(error)) // a type may refuse what it has read
    }
}
