//! Builds values of JSON, and charges each part of them while it is built: what bounds an answer is what reads it.
//!
//! The whole text is read, also the fields that nobody asks for, by one parser with its own rules: an answer with a
//! number that does not exist, half a surrogate, more depth than it takes, or text after its end is refused.

use std::cell::RefCell;
use std::fmt::{self, Write as _};
use std::mem::size_of;

use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor, value};
use serde::forward_to_deserialize_any;

use fair::{Charge, Full};

/// Bytes that the value of one answer may take.
const VALUE: usize = 6 << 20;
/// Parts of one answer: fields that nobody asks for, too.
const PARTS: usize = 500_000;
/// Bytes of one text that is kept.
const TEXT: usize = 64 << 10;
/// Bytes of one text that is skipped, as it is written. Kubernetes allows annotations of 256 KiB.
const SKIPPED_TEXT: usize = 1 << 20;
/// Bytes that a text, a list or a map takes besides what is in it.
const OVERHEAD: usize = 24;
/// A list grows by doubling: of the old and the new one, so many times the size of its elements is in use at once.
const GROWTH: usize = 4;
/// What of that is in use when the list is done.
const GROWN: usize = 2;
/// Elements for which a list makes room at once, and members for which a map does.
const FIRST_ELEMENTS: usize = 4;
const FIRST_MEMBERS: usize = 11;

/// Why a value could not be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// It is malformed or too large, as it will be the next time.
    Refused(String),
    /// There is no room for it now.
    Full(Full),
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => f.write_str(why),
            Self::Full(full) => full.fmt(f),
        }
    }
}

impl std::error::Error for Unread {}

/// Builds a value. What it takes is charged; what building it takes besides is charged meanwhile.
///
/// # Errors
/// If the text is malformed or has too many parts, or there is no room. Then what was
/// charged stays charged, so that a retry with more room gets further.
pub fn build<T: DeserializeOwned>(text: &[u8], charge: &mut Charge) -> Result<T, Unread> {
    let longest = longest_text(text);
    if longest > SKIPPED_TEXT {
        return Err(Unread::Refused(format!("the answer has a text of more than {} MiB", SKIPPED_TEXT >> 20)));
    }
    // The parser decodes texts with escapes in a place of its own.
    let aside = GROWTH * longest;
    charge.spend(aside).map_err(Unread::Full)?;
    let begun = charge.used();
    let budget = RefCell::new(Budget { charge, begun, aside, parts: 0, why: None });
    let mut json = serde_json::Deserializer::from_slice(text);
    let own = budget.borrow_mut().value(GROWN * size_of::<T>(), GROWN * size_of::<T>());
    let built = own
        .map_err(serde_json::Error::custom)
        .and_then(|()| T::deserialize(Counted { json: &mut json, budget: &budget }))
        .and_then(|value| json.end().map(|()| value));
    let Budget { charge, aside, why, .. } = budget.into_inner();
    match (built, why) {
        (Ok(value), None) => {
            charge.refund(aside);
            Ok(value)
        }
        (_, Some(why)) => Err(why),
        (Err(error), None) => Err(Unread::Refused(format!("the answer cannot be read: {}", Short::custom(error)))),
    }
}

/// Bytes of the longest text, as it is written. Up to the first fault of the JSON, texts begin and end where the parser
/// sees it.
fn longest_text(json: &[u8]) -> usize {
    let (mut longest, mut begin, mut escaped) = (0, None, false);
    for (at, byte) in json.iter().enumerate() {
        match (byte, begin) {
            _ if escaped => escaped = false,
            (b'\\', Some(_)) => escaped = true,
            (b'"', Some(from)) => {
                longest = longest.max(at - from);
                begin = None;
            }
            (b'"', None) => begin = Some(at),
            _ => {}
        }
    }
    longest.max(begin.map_or(0, |from| json.len() - from))
}

struct Budget<'a> {
    charge: &'a mut Charge,
    /// What was charged before.
    begun: usize,
    /// What is charged only while the value is built.
    aside: usize,
    parts: usize,
    why: Option<Unread>,
}

impl Budget<'_> {
    /// One more part.
    fn part(&mut self) -> Result<(), &'static str> {
        self.parts += 1;
        if self.parts > PARTS { Err(self.refuse("the answer has too many parts")) } else { Ok(()) }
    }

    /// So much more is in use, of which so much stays.
    fn value(&mut self, bytes: usize, stays: usize) -> Result<(), &'static str> {
        self.part()?;
        if self.charge.used() + bytes > self.begun + VALUE {
            return Err(self.refuse("the answer has too many parts"));
        }
        self.aside += bytes - stays;
        self.charge.spend(bytes).map_err(|full| {
            self.aside -= bytes - stays;
            self.why = Some(Unread::Full(full));
            "full"
        })
    }

    /// A text that is kept.
    fn text(&mut self, length: usize) -> Result<(), &'static str> {
        if length > TEXT {
            return Err(self.refuse("the answer has a text of more than 64 KiB"));
        }
        self.value(2 * length + OVERHEAD, length + OVERHEAD)
    }

    fn refuse(&mut self, why: &'static str) -> &'static str {
        self.why = Some(Unread::Refused(why.to_owned()));
        why
    }
}

/// An error of which a line is kept: errors quote what they are about, with escapes.
#[derive(Debug)]
struct Short(String);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Short {}

impl Error for Short {
    fn custom<T: fmt::Display>(message: T) -> Self {
        struct Line(String);

        impl fmt::Write for Line {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                for c in text.chars() {
                    if self.0.len() > 200 {
                        return Err(fmt::Error);
                    }
                    self.0.push(c);
                }
                Ok(())
            }
        }

        let mut line = Line(String::new());
        let _ = write!(line, "{message}");
        Self(line.0)
    }
}

/// A deserializer whose every part is counted.
struct Counted<'b, 'c, D> {
    json: D,
    budget: &'b RefCell<Budget<'c>>,
}

impl<'de, D: Deserializer<'de>> Counted<'_, '_, D> {
    fn any<V: Visitor<'de>>(self, visitor: V, wanted: Wanted) -> Result<V::Value, D::Error> {
        self.json.deserialize_any(Building { visitor, budget: self.budget, wanted })
    }
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
    /// A map whose values are fields: its size is counted where it is kept.
    Fields,
    /// It is skipped: its parts are counted, and none is kept.
    Nothing,
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Counted<'_, '_, D> {
    type Error = D::Error;

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct enum
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.any(visitor, Wanted::Scalar)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.any(visitor, Wanted::Text)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.any(visitor, Wanted::Text)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.any(visitor, Wanted::Name)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.any(visitor, Wanted::List)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.any(visitor, Wanted::Map)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.any(visitor, Wanted::Fields)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let Self { json, budget } = self;
        json.deserialize_option(Building { visitor, budget, wanted: Wanted::Scalar })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, D::Error> {
        visitor.visit_newtype_struct(self)
    }

    /// What is skipped is read all the same.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.any(visitor, Wanted::Nothing)
    }
}

/// Counts what a visitor builds.
struct Building<'b, 'c, V> {
    visitor: V,
    budget: &'b RefCell<Budget<'c>>,
    wanted: Wanted,
}

impl<V> Building<'_, '_, V> {
    fn part<E: Error>(&self) -> Result<(), E> {
        self.budget.borrow_mut().part().map_err(E::custom)
    }
}

/// The parts of nothing: an API server writes null for a list or a map without members.
fn nothing<'de, E: Error>() -> value::MapDeserializer<'de, std::iter::Empty<(&'static str, &'static str)>, E> {
    value::MapDeserializer::new(std::iter::empty())
}

macro_rules! numbers {
    ($($visit:ident: $type:ty),*) => {$(
        fn $visit<E: Error>(self, found: $type) -> Result<V::Value, E> {
            self.part()?;
            self.visitor.$visit::<Short>(found).map_err(E::custom)
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
        match self.wanted {
            Wanted::Name | Wanted::Nothing => self.part()?,
            _ => self.budget.borrow_mut().text(text.len()).map_err(E::custom)?,
        }
        self.visitor.visit_str::<Short>(text).map_err(E::custom)
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.part()?;
        let visited = match self.wanted {
            Wanted::Text => self.visitor.visit_str::<Short>(""),
            Wanted::List => self.visitor.visit_seq(value::SeqDeserializer::<_, Short>::new(std::iter::empty::<u8>())),
            Wanted::Map | Wanted::Fields => self.visitor.visit_map(nothing::<Short>()),
            Wanted::Scalar | Wanted::Name | Wanted::Nothing => self.visitor.visit_unit::<Short>(),
        };
        visited.map_err(E::custom)
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.part()?;
        self.visitor.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, json: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_some(Counted { json, budget: self.budget })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, json: A) -> Result<V::Value, A::Error> {
        self.part()?;
        self.visitor.visit_seq(Members { json, budget: self.budget, count: 0, key: 0, kept: true })
    }

    fn visit_map<A: MapAccess<'de>>(self, json: A) -> Result<V::Value, A::Error> {
        self.part()?;
        let kept = self.wanted != Wanted::Fields;
        self.visitor.visit_map(Members { json, budget: self.budget, count: 0, key: 0, kept })
    }
}

/// The elements of a list or the members of a map.
struct Members<'b, 'c, A> {
    json: A,
    budget: &'b RefCell<Budget<'c>>,
    count: usize,
    /// Bytes of a key.
    key: usize,
    kept: bool,
}

impl<A> Members<'_, '_, A> {
    /// One more, of this size.
    fn another<E: Error>(&mut self, size: usize, first: usize) -> Result<(), E> {
        if !self.kept || size == 0 {
            return Ok(());
        }
        let room = if self.count == 0 { first * size + OVERHEAD } else { 0 };
        self.count += 1;
        let (most, stays) = (room + GROWTH * size, room + GROWN * size);
        self.budget.borrow_mut().value(most, stays).map_err(E::custom)
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Members<'_, '_, A> {
    type Error = A::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, A::Error> {
        let found = self.json.next_element_seed(Seed { seed, budget: self.budget })?;
        if found.is_some() {
            self.another(size_of::<T::Value>(), FIRST_ELEMENTS)?;
        }
        Ok(found)
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Members<'_, '_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        self.key = size_of::<K::Value>();
        self.json.next_key_seed(Seed { seed, budget: self.budget })
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        let size = size_of::<T::Value>();
        self.another(if size == 0 { 0 } else { self.key + size }, FIRST_MEMBERS)?;
        self.json.next_value_seed(Seed { seed, budget: self.budget })
    }
}

struct Seed<'b, 'c, T> {
    seed: T,
    budget: &'b RefCell<Budget<'c>>,
}

impl<'de, T: DeserializeSeed<'de>> DeserializeSeed<'de> for Seed<'_, '_, T> {
    type Value = T::Value;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<T::Value, D::Error> {
        self.seed.deserialize(Counted { json, budget: self.budget })
    }
}
